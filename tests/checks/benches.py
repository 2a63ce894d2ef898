#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do the benches run, and how many instructions is a pair of allocate and free?

usage: benches.py

Every bench once in its short form on the simulated device, no question left out and no row of weir-bench-staging: it
shows that nothing fails, the times mean nothing. Then callgrind counts instructions a pair, which do not depend on what else the machine does;
where bench/results/instructions.csv holds counts of the same compiler, no pool may have grown heavier than they say.
And what becomes of the figures: reports.py.
"""

import os
import re
import shutil

from programs import build
from reports import results as of_reports
from workshop import BUILD, ROOT, close_with, run, tail

COMMITTED = ROOT / "bench/results/instructions.csv"
NO_QUESTION = ("main", "collective", "instructions", "recording", "stable", "staging", "watch")  # of weir-bench; every other source there is one


def smoke():
    """Complaint about the benches' short form, or ''."""
    done = run(["sh", ROOT / "bench/run.sh", "--smoke", BUILD / "release/bench/weir-bench-simulated"], timeout=600, cwd=BUILD)
    ran = re.search(r"(\d+) benches of (\d+) questions ran", done.output)
    asked = int(ran.group(2)) if ran else 0
    print(f"benches: {ran.group(1) if ran else 'none'} ran, of {asked} questions")
    files = sorted(path.stem for path in (ROOT / "bench").glob("*.cpp") if path.stem not in NO_QUESTION)
    if done.code == 0 and asked != len(files):
        return f"{asked} questions were asked, and bench/ has {len(files)}: {', '.join(files)}; main.cpp calls each"
    return "" if done.code == 0 and ran else f"exit {done.code}:\n{tail(done.output)}"


def staging():
    """Complaint about weir-bench-staging's short form, or ''."""
    done = run([BUILD / "release/bench/weir-bench-staging-simulated"], timeout=300,
               env={**os.environ, "WEIR_BENCH_REPEAT": "1"})
    lines = done.output.splitlines()
    failed = [line for line in lines if ",failed," in line]
    print(f"benches: {len(lines)} rows of staging ran")
    return "" if done.code == 0 and lines and not failed else f"exit {done.code}:\n{tail(done.output)}"


def stable():
    """Complaint about weir-bench-stable's short form, or ''."""
    done = run([BUILD / "release/bench/weir-bench-stable-simulated"], timeout=300)
    return "" if done.code == 0 else f"exit {done.code}:\n{tail(done.output)}"


def instructions():
    """Complaint about the counts, or ''; prints them."""
    if not shutil.which("valgrind"):
        return "no valgrind here"
    done = run(["sh", ROOT / "bench/instructions.sh", BUILD / "release/bench/weir-instructions", "--check", COMMITTED],
               timeout=600, cwd=BUILD)
    for line in done.output.splitlines():
        print(f"instructions: {line}")
    return "" if done.code == 0 and "per pair" in done.output else f"exit {done.code}:\n{tail(done.output)}"


def main():
    complaint = build("release", ["-DWEIR_DEVICE=simulated"])
    close_with([("benches: build", complaint), ("benches: short form", smoke()), ("benches: staging", staging()),
                ("benches: stable", stable()), ("benches: instructions", instructions()), *of_reports()])


if __name__ == "__main__":
    main()
