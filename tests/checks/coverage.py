#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does some test reach every line of the library's host code?

usage: coverage.py [--no-build]

Builds and runs all tests with g++ --coverage, and reads with gcovr which lines of include/weir ran. A line that did
not, and that coverage_exclusions.txt does not name with a reason, fails its header. Prints what is excluded.
--no-build: only reads what the last run left.
"""

import argparse
import json
import os
import pathlib
import shutil

from programs import build, execute_all, programs
from workshop import BUILD, JOBS, ROOT, close, run, tail

PRESET = "coverage"
os.environ["WEIR_QUICK"] = "1"  # what a short campaign reaches, a long one does too
EXCLUSIONS = pathlib.Path(__file__).resolve().parent / "coverage_exclusions.txt"


def exclusions():
    """[header, text, why, used] of each entry."""
    entries = []
    for line in EXCLUSIONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            header, text, why = (part.strip() for part in line.split("|", 2))
            entries.append([header, text, why, 0])
    return entries


def measured():
    """header -> {line number: count}, as gcovr tells."""
    table = BUILD / PRESET / "coverage.json"
    done = run(["gcovr", "--root", ROOT, "--object-directory", BUILD / PRESET, "--filter", str(ROOT / "include/weir") + "/",
                "--exclude-unreachable-branches", "--gcov-ignore-parse-errors", "-j", JOBS, "--json", table, BUILD / PRESET], cwd=ROOT,
               timeout=900)
    if done.code != 0:
        raise SystemExit(f"FAILED gcovr:\n{tail(done.output)}\n0 passed, 1 failed")
    lines = {}
    for entry in json.loads(table.read_text())["files"]:
        counts = lines.setdefault(pathlib.PurePosixPath(entry["file"]).as_posix().split("include/weir/")[-1], {})
        for line in entry["lines"]:
            if not line.get("gcovr/noncode"):
                number = line["line_number"]
                counts[number] = counts.get(number, 0) + line["count"]
    return lines


def main():
    if not shutil.which("gcovr"):
        raise SystemExit("FAILED no gcovr here\n0 passed, 1 failed")
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-build", action="store_true")
    options = parser.parse_args()
    passed = failed = 0
    if not options.no_build:
        complaint = build(PRESET)
        if complaint:
            print(f"FAILED {complaint}\n")
        for old in (BUILD / PRESET).rglob("*.gcda"):
            old.unlink()
        passed, failed = execute_all(PRESET, programs(PRESET), figures=True)
        failed += 1 if complaint else 0
    entries = exclusions()
    total = reached = excluded = 0
    headers = measured()
    for header, counts in sorted(headers.items()):
        text = (ROOT / "include/weir" / header).read_text().splitlines()
        unreached = []
        for number, count in sorted(counts.items()):
            total += 1
            if count:
                reached += 1
                continue
            source = text[number - 1] if number <= len(text) else ""
            for entry in entries:
                if entry[0] in (header, "any") and (entry[1] == "*" or entry[1] in source):
                    entry[3] += 1
                    excluded += 1
                    break
            else:
                unreached.append(f"{header}:{number}: {source.strip()}")
        if unreached:
            failed += 1
            print(f"FAILED coverage: {header}: {len(unreached)} of {len(counts)} lines unreached\n" + "\n".join(unreached) + "\n")
        else:
            passed += 1
    for header, text, why, used in entries:
        if text == "*" and header not in headers:
            print(f"coverage: no code of {header} in any program, which is excluded: {why}")
        elif used or why.startswith("two threads must meet"):
            print(f"coverage: excluded {header} '{text}' ({used} lines): {why}")
        else:
            failed += 1
            print(f"FAILED coverage: the exclusion '{header} | {text}' excludes nothing\n")
    if total:
        print(f"coverage: {reached} of {total} lines reached ({100 * reached / total:.2f} %), {excluded} excluded")
    close(passed, failed)


if __name__ == "__main__":
    main()
