#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which test cases does a wrong pool pass? Plants one and runs every test case of pools alone.

usage: survivors.py [--list] [NAME...]
  NAME    a bug of tests/bugs; without one, all wrong_pool_*
  --list  prints every survivor, also those that may be

A survivor is a test case that stays green although the planted code did what is wrong while it ran (did_wrong.hpp): one
that passes with a pool that refuses everything asks for nothing that a pool is for. MAY_SURVIVE says of which this is
right, and why; any other fails this script, and so does a pattern that no survivor matches. It builds most tests again for
each bug, so it is run by hand: where tests of pools were added, about ten minutes of processor time a bug.
"""

import argparse
import fnmatch
import os
import pathlib
import shutil
import sys

from run import HERE, compiled, plant
from programs import libraries
from workshop import BUILD, ROOT, at_once, close_with, head, run

FOLDERS = ["pool", "contract", "reuse", "layer", "container", "interop", "simulation", "interleavings", "examples"]
TIME_LIMIT = 60  # seconds for a test case; a wrong pool may never end one
# Bug, reason: patterns of 'program: test case'.
MAY_SURVIVE = {
}


def sources_of():
    """{program: its sources}, as tests/CMakeLists.txt has them."""
    programs = {}
    for folder in FOLDERS:
        for source in sorted((ROOT / "tests" / folder).glob("*.cpp")):
            kind = next((mark for mark in ("ndebug", "ptds") if f".{mark}." in source.name), "")
            programs.setdefault(f"{folder}-{kind}".strip("-"), []).append(source)
    programs["examples"] += [part for part in sorted((ROOT / "examples/replay").glob("*.cpp")) if part.name != "main.cpp"]
    return programs


def build(place):
    """The programs with the headers planted under 'place'; ends this script where one cannot be built."""
    programs = sources_of()
    jobs = [(name, source, place / name / f"{source.stem}.o") for name, sources in programs.items() for source in sources]
    for name in programs:
        (place / name).mkdir(parents=True, exist_ok=True)
    examples = [f'-DWEIR_EXAMPLES_DIR="{ROOT / "examples"}"', f"-I{ROOT / 'examples'}"]
    done = at_once(lambda job: compiled(job[1], job[2], place, examples if job[0] == "examples" else ()), jobs)
    for job, each in zip(jobs, done):
        if each.code != 0:
            raise SystemExit(f"FAILED {job[1]} does not compile:\n{head(each.output)}\n0 passed, 1 failed")
    archives = libraries("weir-test-main", "simulated_cuda")
    for name in programs:
        objects = [job[2] for job in jobs if job[0] == name]
        linked = run(["g++", "-o", place / name / "program", *objects, *archives, "-pthread", "-ldl", "-lz"], timeout=120)
        if linked.code != 0:
            raise SystemExit(f"FAILED {name} does not link:\n{head(linked.output)}\n0 passed, 1 failed")
    return list(programs)


def cases_of(program):
    """The names of a program's test cases, in the order of '--first' and '--last'."""
    listed = run([program, "--list-test-cases", "--order-by=file", "--no-colors"]).output.splitlines()
    rules = [number for number, line in enumerate(listed) if line.startswith("=====")]
    return listed[rules[0] + 1:rules[-1]]


def judged(place, name, number, case):
    """('red', 'untouched' or 'green', 'program: test case')."""
    mark = place / name / f"did-wrong-{number}"
    mark.unlink(missing_ok=True)
    done = run([place / name / "program", f"--first={number}", f"--last={number}", "--order-by=file", "--minimal",
                "--abort-after=1"], timeout=TIME_LIMIT, cwd=ROOT,
               env={**os.environ, "WEIR_QUICK": "1", "WEIR_DID_WRONG": str(mark)})
    (place / name / f"output-{number}").write_text(f"{case}\n{done.output}")
    return "red" if done.code != 0 else "green" if mark.exists() else "untouched", f"{name}: {case}"


def survivors(bug, lists):
    """[(name, complaint)] of one planted bug."""
    place = BUILD / "survivors" / bug
    if complaint := plant((HERE / f"{bug}.bug").read_text(), place):
        return [(bug, complaint)]
    jobs = [(place, name, number, case) for name in build(place)
            for number, case in enumerate(cases_of(place / name / "program"), 1)]
    verdicts = at_once(lambda job: judged(*job), jobs)
    (place / "verdicts").write_text("".join(f"{verdict} {case}\n" for verdict, case in verdicts))
    green = [case for verdict, case in verdicts if verdict == "green"]
    may = {pattern: reason for reason, patterns in MAY_SURVIVE.get(bug, {}).items() for pattern in patterns}
    results = []
    for case in green:
        reasons = [reason for pattern, reason in may.items() if fnmatch.fnmatchcase(case, pattern)]
        results.append((case, "" if reasons else f"stays green under {bug}: require what such a pool does not do"))
        if lists:
            print(f"    {case}" + "".join(f" ({reason})" for reason in reasons))
    results += [(pattern, f"matches no survivor of {bug}: drop it") for pattern in may if not fnmatch.filter(green, pattern)]
    untouched = sum(verdict == "untouched" for verdict, _ in verdicts)
    print(f"{bug}: of {len(verdicts)} cases {len(verdicts) - untouched - len(green)} red, {len(green)} green, and {untouched} "
          "in which nothing went wrong", flush=True)
    return results + [(bug, "" if len(green) < len(verdicts) else "no case is red")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    bugs = options.names or sorted(path.stem for path in HERE.glob("wrong_pool_*.bug"))
    close_with([result for bug in bugs for result in survivors(bug, options.list)])


if __name__ == "__main__":
    main()
