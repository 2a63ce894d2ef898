#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does weir work with each CUDA, each compiler and each C++ that it is said to work with?

usage: versions.py [--part | --list | COMBINATION...]
  --part         two combinations, others at another commit
  COMBINATION    such as '13.5 g++-11 c++2b': the headers of a CUDA, a compiler, a standard; --list names them

The headers of each CUDA lie in build/cuda-VERSION, where cmake/setup.sh puts them. For each combination the umbrellas and two
plugs are compiled with every warning an error, and the simulated device and the program of tests/consume, which runs.
Then a combination with a mistake planted, which must fail.
"""

import math
import re
import shutil
import sys

from workshop import BUILD, INCLUDE, ROOT, WARNINGS, at_once, ccache, close_with, head, run, turn

STANDARDS = ["c++17", "c++20", "c++2b"]
COMPILERS = ["g++-11", "g++-12", "g++-13", "g++-14", "clang++-14"]  # and the newest clang++ that is here
DUE = 2  # combinations a commit
SIMULATOR = ROOT / "tests/simulated_cuda"
ALL = ["weir/weir.hpp", "weir/staging.hpp", "weir/stable.hpp", "weir/multi_device.hpp", "weir/trace.hpp", "weir/interop/pmr.hpp", "weir/interop/format.hpp"]


def compilers():
    """The compilers that are here; what is not is said."""
    newest = max((number for number in range(15, 100) if shutil.which(f"clang++-{number}")), default=0)
    wanted = [*COMPILERS, f"clang++-{newest}" if newest else "a clang++ after 14"]
    for each in wanted:
        if not shutil.which(each):
            print(f"left out: {each} (not on this machine)")
    return [each for each in wanted if shutil.which(each)]


def combinations():
    """Every (CUDA, compiler, standard), so that neighbours differ in all three as far as may be."""
    cudas = sorted((place.name.removeprefix("cuda-") for place in BUILD.glob("cuda-*") if re.fullmatch(r"cuda-\d+\.\d+", place.name)),
                   key=lambda version: [*map(int, version.split("."))])
    every = [(cuda, compiler, standard) for standard in STANDARDS for compiler in compilers() for cuda in cudas]
    step = 37
    while every and math.gcd(step, len(every)) != 1:  # then each comes up
        step += 1
    return [every[number * step % len(every)] for number in range(len(every))]


def sources(place):
    """What a combination compiles: name -> (text, flags)."""
    parts = re.findall(r"\b\w+\.cpp", (SIMULATOR / "CMakeLists.txt").read_text())
    alone = "not_modelled.cpp"  # it defines CUDA's functions without CUDA's declarations
    device = "".join(f'#include "{SIMULATOR / part}"\n' for part in parts if part != alone)
    ours = "".join(f"#include <{name}>\n" for name in ALL)
    found = {"headers": (ours, WARNINGS), "device": (device, [f"-I{SIMULATOR / 'include'}"]),
             "not_modelled": (f'#include "{SIMULATOR / alone}"\n', []),
             "main": (f'#include "{ROOT / "tests/consume/main.cpp"}"\n', []),
             "other": (f'#include "{ROOT / "tests/consume/other.cpp"}"\n', [])}
    for name, (text, _) in found.items():
        (place / f"{name}.cpp").write_text(text)
    return found


def judge(combination, *more):
    """Complaint about one combination, or ''; 'more' are flags."""
    cuda, compiler, standard = combination
    place = BUILD / "versions" / "-".join(combination).replace("+", "p")
    place.mkdir(parents=True, exist_ok=True)
    objects = []
    for name, (_, flags) in sources(place).items():
        objects.append(place / f"{name}.o")
        done = run([*ccache(), compiler, f"-std={standard}", "-O0", *flags, *more, f"-I{INCLUDE}", "-isystem",
                    BUILD / f"cuda-{cuda}/include", "-c", place / f"{name}.cpp", "-o", objects[-1]], timeout=900)
        if done.code != 0:
            return f"{name} is not compiled:\n{head(done.output)}"
    done = run([compiler, *objects, "-pthread", "-ldl", "-o", place / "program"], timeout=300)
    if done.code == 0:
        done = run([place / "program"], timeout=60)
    return "" if done.code == 0 and "in use: 0\nconsumed" in done.output else f"exit {done.code}:\n{head(done.output)}"


def main():
    every = combinations()
    words = {" ".join(each): each for each in every}
    if sys.argv[1:] == ["--list"]:
        print("\n".join(sorted(words)))
        return
    asked = [word for word in sys.argv[1:] if word != "--part"]
    if unknown := [word for word in asked if word not in words]:
        sys.exit(f"no combination {', '.join(map(repr, unknown))}; '--list' names them")
    chosen = [words[word] for word in asked] or every
    if "--part" in sys.argv:
        first = turn(len(every)) if every else 0
        chosen = [every[(first + number) % len(every)] for number in range(DUE)] if every else []
        print("\n".join(f"versions: {' '.join(each)}" for each in chosen))
    results = [(f"versions: {' '.join(each)}", complaint) for each, complaint in zip(chosen, at_once(judge, chosen))]
    for each in chosen[:1]:
        said = judge(each, "-DWEIR_GUARD=2")
        results.append(("versions: sees a mistake", "" if "is not compiled" in said else f"it says: {said}"))
    close_with(results or [("versions: headers", "there are none in build/cuda-VERSION: 'sh tests/run.sh --only versions' fetches them")])


if __name__ == "__main__":
    main()
