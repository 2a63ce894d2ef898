#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Are the compile errors that weir promises given, and only where they are due?

usage: run.py [--compiler g++|clang++|nvcc] [--part] [NAME...]

Each tests/refuse/*.cpp is compiled twice and never linked. As it is, it must compile without a warning. With
-DREJECT it must not compile, and what the compiler says must hold every sentence that a line '// expect: ...' of the
file gives, in at most N errors if a line '// errors: N' says so. '// std: 20' on a line of its own: that standard, else
C++17. All files go through every C++ compiler here; nvcc, whose messages differ by more than wording, sees the first of each
folder's files.
  --part  each file under one C++ compiler, under the others at another commit
"""

import argparse
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
from workshop import WARNINGS, at_once, ccache, close_with, head, include_flags, run, turn

HERE = pathlib.Path(__file__).resolve().parent


def command(compiler, standard, source, reject):
    """The command that looks at 'source' and writes nothing."""
    if compiler == "nvcc":
        flags = ["-x", "cu", "-arch=sm_90", "-Werror=all-warnings", f"-Xcompiler={','.join(WARNINGS)}", f"-I{include_flags()[0][2:]}",
                 "-c", "-o", "/dev/null"]
    else:
        flags = ["-fsyntax-only", *WARNINGS, *include_flags(), "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP"]
    return [compiler, f"-std=c++{standard}", *flags, *(["-DREJECT"] if reject else []), source]


def squeeze(text):
    """One line, single spaces: compilers break and quote long messages as they like."""
    return re.sub(r"\s+", " ", text)


def judge(case):
    """(name, complaint) of one file under one compiler, accepted or rejected."""
    compiler, source, reject = case
    text = source.read_text()
    expected = [squeeze(line.strip()) for line in re.findall(r"^\s*//\s*expect:(.*)$", text, flags=re.M)]
    standard = (re.findall(r"^\s*//\s*std:\s*(\d+)", text, flags=re.M) or ["17"])[0]
    name = f"refuse: {source.stem} {'rejected' if reject else 'accepted'} by {compiler}"
    if not expected:
        return name, "the file has no line '// expect: <sentence>'"
    done = run(command(compiler, standard, source, reject), timeout=300)
    if not reject:
        return name, "" if done.code == 0 and not done.output.strip() else head(done.output) or f"exit {done.code}"
    if done.code == 0:
        return name, "compiles, and must not"
    said = squeeze(done.output)
    unsaid = [sentence for sentence in expected if sentence not in said]
    if unsaid:
        return name, f"does not say: {unsaid}\nit says:\n{head(done.output)}"
    most = re.findall(r"^\s*//\s*errors:\s*(\d+)", text, flags=re.M)
    errors = re.findall(r"\berror: ", done.output)
    if most and len(errors) > int(most[0]):
        return name, f"{len(errors)} errors, and {most[0]} would do\nit says:\n{head(done.output)}"
    return name, ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", action="append")
    parser.add_argument("--part", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    sources = sorted(p for p in HERE.glob("*.cpp") if not options.names or p.stem in options.names)
    cases = []
    compilers = options.compiler or [c for c in ("g++", "clang++", "nvcc") if shutil.which(c)]
    hosts = [compiler for compiler in compilers if compiler != "nvcc"]
    due = turn(len(hosts)) if options.part and hosts else 0
    for compiler in compilers:
        seen = set()
        for number, source in enumerate(sources):
            if options.part and compiler != "nvcc" and hosts[(number + due) % len(hosts)] != compiler:
                continue
            floor = source.stem.split("_")[0]
            if compiler == "nvcc" and not options.compiler and floor in seen:
                continue
            seen.add(floor)
            cases += [(compiler, source, False), (compiler, source, True)]
    close_with(at_once(judge, cases))


if __name__ == "__main__":
    main()
