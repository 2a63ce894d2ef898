#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do the benches run, and how many instructions is a pair of allocate and free?

usage: benches.py

Every bench once in its short form on the simulated device: it shows that nothing fails, the times mean nothing. Then
callgrind counts instructions a pair, which do not depend on what else the machine does; where the compiler is the
one of bench/results/instructions.csv, no pool may have grown heavier than that file says.
"""

import re
import shutil

from programs import build
from workshop import BUILD, ROOT, close_with, run, tail

COMMITTED = ROOT / "bench/results/instructions.csv"
COMPILER_OF_COMMITTED = "12"


def smoke():
    """Complaint about the benches' short form, or ''."""
    done = run(["sh", ROOT / "bench/run.sh", "--smoke", BUILD / "release/bench/weir-bench-simulated"], timeout=600, cwd=BUILD)
    ran = re.search(r"(\d+) benches ran", done.output)
    print(f"benches: {ran.group(1) if ran else 'none'} ran")
    return "" if done.code == 0 and ran and int(ran.group(1)) > 0 else f"exit {done.code}:\n{tail(done.output)}"


def instructions():
    """Complaint about the counts, or ''; prints them."""
    if not shutil.which("valgrind"):
        return "no valgrind here"
    same = run(["g++", "-dumpversion"]).output.split(".")[0].strip() == COMPILER_OF_COMMITTED
    check = ["--check", COMMITTED] if COMMITTED.exists() and same else []
    done = run(["sh", ROOT / "bench/instructions.sh", BUILD / "release/bench/weir-instructions", *check], timeout=600, cwd=BUILD)
    for line in done.output.splitlines():
        print(f"instructions: {line}")
    return "" if done.code == 0 and "per pair" in done.output else f"exit {done.code}:\n{tail(done.output)}"


def main():
    complaint = build("release", ["-DWEIR_DEVICE=simulated"])
    close_with([("benches: build", complaint), ("benches: short form", smoke()), ("benches: instructions", instructions())])


if __name__ == "__main__":
    main()
