#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do bench/run.sh and bench/report.py keep what was measured, and say in a sentence what they cannot use?

usage: reports.py

The benches themselves are a few lines of shell here, which answer in no time.
"""

import pathlib
import tempfile

from workshop import ROOT, close_with, run, tail

RUN, REPORT = ROOT / "bench/run.sh", ROOT / "bench/report.py"
# In place of weir-bench: answers every question but one that is named 'crash'.
PROGRAM = r'''#!/bin/sh
for each; do
    case $each in
    --benchmark_filter=^crash/) echo "Segmentation fault"; exit 139 ;;
    --benchmark_out=*) out=${each#*=} ;;
    esac
done
echo '{"context": {"device": "none"}, "benchmarks": [
    {"name": "pairs/256_B/weir::device_pool/x", "run_type": "iteration", "real_time": 7.5}]}' > "$out"
'''


def asked(place, questions, out):
    """Runs run.sh with the program above."""
    program = place / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return run(["env", f"WEIR_BENCH_QUESTIONS={questions}", "sh", RUN, program, out], cwd=place)


def expect(done, code, *parts):
    """Complaint about an exit code and what was said, or ''."""
    missing = [part for part in parts if part not in done.output]
    if done.code == code and not missing and "Traceback" not in done.output:
        return ""
    return f"exit {done.code}, not {code}, or not said: {missing}\n{tail(done.output)}"


def all_answered(place):
    done = asked(place, "pairs:5", place / "all/of/it")
    files = sorted(path.name for path in (place / "all/of/it").glob("*"))
    if files != ["raw.tar.gz", "report.md", "report.svg", "results.csv", "table.txt"]:
        return f"left {files}\n{tail(done.output)}"
    return expect(done, 0, "7.5")


def one_crashed(place):
    done = asked(place, "crash:5 pairs:5", place / "some")
    if "7.5" not in (place / "some/table.txt").read_text():
        return f"the other question's figures are lost:\n{tail(done.output)}"
    return expect(done, 1, "exit code 139", "7.5")


def no_folder(place):
    (place / "file").write_text("")
    done = asked(place, "pairs:5", place / "file/out")
    return expect(done, 2, f"run.sh: cannot write '{place}/file/out'; name another folder") or \
        ("the questions were asked all the same" if "pairs: " in done.output else "")


def results():
    """(name, complaint) of everything here."""
    found = []
    for check in (all_answered, one_crashed, no_folder):
        with tempfile.TemporaryDirectory() as folder:
            found.append((f"reports: {check.__name__}", check(pathlib.Path(folder))))
    return found


if __name__ == "__main__":
    close_with(results())
