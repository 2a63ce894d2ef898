#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does every header compile alone, everywhere, without a warning, whatever macros came before?

usage: run.py [--compiler g++|clang++|nvcc] [--part] [HEADER...]
  --part  each header alone with one compiler and standard, with others at another commit

For each header: a .cpp under g++ and clang++ and a .cu under nvcc, in C++17 and C++20, which defines hostile
macros and then includes that header twice and nothing else. And for each compiler and standard two files that
include all headers, in order and backwards, after 'min' and 'max' too: the C++ library takes those away again or
fails on them, so there its headers and CUDA's come first.

base/ and placement/ compile with no CUDA on the path. Headers that stand on a library that is not installed are
left out, and said to be.
"""

import argparse
import itertools
import re
import shutil
import sys
import tempfile
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
from workshop import BUILD, INCLUDE, NCCL, WARNINGS, at_once, ccache, close_with, cuda_include, head, headers, include_flags, run, turn

HOSTILE = '#include "hostile.hpp"\n'
STANDARDS = ["c++17", "c++20"]
HERE = pathlib.Path(__file__).resolve().parent
NO_CUDA = ("base/", "placement/", "trace/")


def commands(compiler, standard, name, source):
    """The command that compiles 'source', made for header 'name'."""
    if compiler == "nvcc":
        host = ",".join(WARNINGS)
        return ccache() + ["nvcc", "-x", "cu", f"-std={standard}", "-arch=sm_90", "-c", source, "-o", source.with_suffix(".o"),
                           "-Werror=all-warnings", f"-Xcompiler={host}", "--extended-lambda", f"-I{HERE}", f"-I{INCLUDE}", "-isystem", NCCL]
    flags = [f"-I{INCLUDE}"] if name.startswith(NO_CUDA) else include_flags()
    # clang++ reads '-x c++' for .cuh too; the backend's switch keeps Thrust's headers off the CUDA compiler's.
    return ccache() + [compiler, f"-std={standard}", "-O0", *WARNINGS, f"-I{HERE}", *flags,
                       "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP", "-c", source, "-o", source.with_suffix(".o")]


def missing(name):
    """The foreign header that this one needs and this machine lacks; '' if none."""
    cuda = cuda_include()
    text = (INCLUDE / "weir" / name).read_text()
    for target in re.findall(r"(?:#\s*include\s*|__has_include\()<([^>]+)>", text):
        if re.match(r"(c10|torch|ATen|nccl|nvtx3)", target):
            places = [cuda, pathlib.Path("/usr/include"), pathlib.Path("/usr/local/include"), NCCL]
            if not any((place / target).exists() for place in places):
                return target
    return ""


def used(name):
    """A line that uses what a header promises alone: a recipe's pool."""
    pool = re.fullmatch(r"recipes/(?!recorded_)(\w+_pool)\.hpp", name)  # a recorded one takes a recorder
    if not pool or pool.group(1) == "general_device_pool":
        return ""
    return f"inline void use() {{ weir::{pool.group(1)} pool; pool.deallocate_sync(pool.allocate_sync(64), 64); }}\n"


def foreign_first(names):
    """#include lines of everything that is not ours in these headers, so that macros can come after it."""
    found = set()
    for name in names:
        text = (INCLUDE / "weir" / name).read_text()
        found |= {t for t in re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, flags=re.M) if not t.startswith("weir/")}
    return "".join(f"#include <{target}>\n" for target in sorted(found))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", action="append")
    parser.add_argument("--part", action="store_true")
    parser.add_argument("headers", nargs="*")
    options = parser.parse_args()
    compilers = options.compiler or [c for c in ("g++", "clang++", "nvcc") if shutil.which(c)]
    if unknown := sorted({*options.headers} - {*headers()}):
        sys.exit(f"no header {', '.join(map(repr, unknown))}; name them as under include/weir, like 'pool/pool.hpp'")
    names = options.headers or headers()
    left_out = {name: missing(name) for name in names}
    for name, target in left_out.items():
        if target:
            print(f"left out: {name} (no <{target}> on this machine)")
    names = [name for name in names if not left_out[name]]

    (BUILD / "headers").mkdir(parents=True, exist_ok=True)
    work = BUILD / "headers"
    jobs = []
    ways = list(itertools.product(compilers, STANDARDS))
    due = turn(len(ways) if options.part else 1)
    for way, (compiler, standard) in enumerate(ways):
        suffix = ".cu" if compiler == "nvcc" else ".cpp"
        place = work / compiler.replace("+", "p") / standard.replace("+", "p")
        place.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names):
            if options.part and (number + due) % len(ways) != way:
                continue
            if name.endswith(".cuh") and compiler != "nvcc" and "cuda_runtime.h" in (INCLUDE / "weir" / name).read_text():
                continue
            source = place / (name.replace("/", "-").replace(".", "_") + suffix)
            line = f"#include <weir/{name}>\n"
            jobs.append((compiler, standard, name, source, HOSTILE + line + line + used(name)))
        if not options.headers:
            host_only = [n for n in names if n.endswith(".hpp") and not n.startswith("interop/")]
            before = foreign_first(host_only) + "#define WEIR_HOSTILE_TO_ALL\n" + HOSTILE
            # In both orders: a name may mean another thing where another header came before.
            backwards = [n for n in host_only[::-1] if n not in ("weir.hpp", "recipes.hpp")] # which have an order of their own
            for order, listed in (("all", host_only), ("all-backwards", backwards)):
                text = before + "".join(f"#include <weir/{n}>\n" for n in listed)
                jobs.append((compiler, standard, order, place / f"{order}{suffix}", text))

    def compile_one(job):
        compiler, standard, name, source, text = job
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        done = run(commands(compiler, standard, name, source), timeout=300)
        said = done.output.strip()
        complaint = head(said) if done.code != 0 or said else ""
        if done.code != 0 and not complaint:
            complaint = f"exit {done.code}"
        return (f"headers: {name} alone, {compiler} {standard}", complaint)

    close_with(at_once(compile_one, jobs))


if __name__ == "__main__":
    main()
