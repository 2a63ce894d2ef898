#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the dumps that callgrind made of weir-instructions and prints instructions a pair.

    instructions.py --compiler NAME DUMP...                  print the table
    instructions.py --compiler NAME --write FILE DUMP...     and write it as CSV; other compilers' rows stay
    instructions.py --compiler NAME --check FILE DUMP...     and fail if a pool needs over 3 % more than FILE says
                                                             of this compiler, or a CUDA call more

A dump's title is 'pool bytes pairs'. CUDA's functions are the simulated device's: 'cudaXxx', or, for one that a
program has of the driver's by cudaGetDriverEntryPoint, a function of its own that calls 'cudaXxx'. What a call
from weir to them costs is taken off, and the calls are counted instead. Standard library only.
"""
import argparse
import collections
import csv
import os
import re
import sys

TITLE = re.compile(r"^desc: Trigger: Client Request: (.+) (\d+) (\d+)$")
NAME = re.compile(r"^\((\d+)\)(?: (.*))?$")
CUDA = re.compile(r"^cuda[A-Z]\w*")
DEVICE = re.compile(r"^(cuda[A-Z]|simulated_device::)")
COLUMNS = ("compiler", "pool", "bytes", "instructions", "cuda_calls")


def read(path):
    """(pool, bytes, pairs, instructions without CUDA's, {CUDA call: times}) of one dump, or None."""
    title, names, caller, callee, calls = None, {}, "", None, 0
    cuda_calls = collections.Counter()  # by the name of the function that weir called
    driver = {}  # of a driver's function, the runtime's name for it
    cuda_cost = 0
    total = 0

    def name(text):
        number, spelled = NAME.match(text).groups()
        if spelled is not None:
            names[number] = spelled
        return names[number]

    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            line = line.rstrip("\n")
            match = TITLE.match(line)
            if match:
                title = match.groups()
            elif line.startswith("fn="):
                caller = name(line[3:])
            elif line.startswith("cfn="):
                callee = name(line[4:])
            elif line.startswith("calls="):
                calls = int(line[6:].split()[0])
            elif line.startswith(("summary:", "totals:")):
                total = max(total, int(line.split(":")[1].split()[0]))
            elif line and (line[0].isdigit() or line[0] in "+-*"):
                cost = int(line.split()[1]) if len(line.split()) > 1 else 0
                if callee is not None:
                    if DEVICE.match(callee) and not DEVICE.match(caller):
                        cuda_calls[callee] += calls
                        cuda_cost += cost
                    elif CUDA.match(callee):
                        driver[caller] = CUDA.match(callee).group() + " of the driver"
                    callee = None
    if title is None:
        return None
    named = collections.Counter()
    for callee, times in cuda_calls.items():
        plain = CUDA.match(callee)
        named[plain.group() if plain else driver.get(callee, callee.split("(")[0])] += times
    return title[0], int(title[1]), int(title[2]), total - cuda_cost, named


def rows_of(path):
    """The rows of a CSV file that --write made; none if there is no such file."""
    if not os.path.exists(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path, compiler, rows):
    others = [row for row in rows_of(path) if row["compiler"] != compiler]
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(others)
        for pool, size, each, calls in rows:
            out.writerow(dict(zip(COLUMNS, (compiler, pool, size, each, round(sum(calls.values()), 3)))))


def check(path, compiler, rows):
    """The exit code; says on stderr what grew heavier."""
    committed = rows_of(path)
    before = {(row["pool"], int(row["bytes"])): row for row in committed if row["compiler"] == compiler}
    if not before:
        known = ", ".join(sorted({row["compiler"] for row in committed})) or "none"
        print(f"not compared: '{path}' holds no counts of {compiler} (but of: {known}); make them with --write")
        return 0
    heavier, compared = [], 0
    for pool, size, each, calls in rows:
        then = before.pop((pool, size), None)
        if then is None:
            continue
        compared += 1
        if each > float(then["instructions"]) * 1.03 + 0.5:
            heavier.append(f"{pool}, {size} bytes: {each:g} instructions a pair, were {then['instructions']}")
        if sum(calls.values()) > float(then["cuda_calls"]) + 0.05:
            heavier.append(f"{pool}, {size} bytes: {sum(calls.values()):g} CUDA calls a pair, were {then['cuda_calls']}")
    print(f"compared with '{path}': {compared} of {len(rows)} pairs, {len(heavier)} heavier")
    for each in heavier:
        print(f"instructions.py: heavier than {path}: {each}", file=sys.stderr)
    for pool, size in before:
        print(f"instructions.py: {path} counts {pool}, {size} bytes, which is measured no more", file=sys.stderr)
    if heavier or before:
        print(f"instructions.py: if this is meant, run 'sh bench/instructions.sh PROGRAM --write {path}' and commit it",
              file=sys.stderr)
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description="Prints instructions a pair from callgrind's dumps.")
    parser.add_argument("--compiler", default="unknown", help="what compiled the program")
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--check", metavar="FILE")
    parser.add_argument("dumps", nargs="+")
    given = parser.parse_args()

    loop, rows = 0.0, []
    for path in sorted(given.dumps, key=lambda p: [int(n) for n in re.findall(r"\d+", p)]):
        found = read(path)
        if not found:
            continue
        pool, size, pairs, instructions, cuda = found
        if pool == "(loop)":
            loop = instructions / pairs
            continue
        calls = {call: times / pairs for call, times in sorted(cuda.items())}
        rows.append((pool, size, round(instructions / pairs - loop, 1), calls))
    if not rows:
        print("instructions.py: the dumps hold no counts", file=sys.stderr)
        return 1

    print(f"instructions per pair ({given.compiler}; callgrind; CUDA's own functions and the loop are not in it)")
    print(f"{'pool':<34}{'bytes':>9}{'instructions':>14}  CUDA calls per pair")
    for pool, size, each, calls in rows:
        said = ", ".join(f"{call} {times:g}" for call, times in calls.items()) or "none"
        print(f"{pool:<34}{size:>9}{each:>14.1f}  {said}")

    if given.write:
        write(given.write, given.compiler, rows)
    return check(given.check, given.compiler, rows) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
