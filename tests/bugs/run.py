#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Would the tests notice? Plants one bug at a time and wants to see red.

usage: run.py [--part K | NAME...]
  --part K  every K-th of them, others at another commit; of the rest only that they can be planted

Each tests/bugs/NAME.bug, such as pool/ladder_grows_while_suspended, is an exact-text edit of a header of that room, and the tests that must fail with it:

    # Why: the invariant, and what the bug would do to a user.
    tests: placement/best_fit.cpp pool/pool.cpp      (files under tests/, compiled against the broken header)
    cases: best_fit: *,pool: grows*                  (only these test cases; optional where all of the files' are quick)
    edit: include/weir/placement/best_fit.hpp
    <<<<
    text, which must occur exactly once in the file
    ====
    the text instead
    >>>>

Red is a test program that fails or crashes; it ends at the first check that fails. A bug whose text is no longer there,
that does not compile, or one of whose filters matches no test case, fails this script: it must be planted anew. So does
one whose tests do not end in time: on a machine that is slow enough, so would the code without it. The tests run on the
simulated device; that they are green without the bug is the business of the stages that run them all.
"""

import argparse
import os
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
from programs import libraries
from workshop import BUILD, ROOT, at_once, ccache, close_with, head, include_flags, run, turn

HERE = pathlib.Path(__file__).resolve().parent
KINDS = {"ndebug": "NDEBUG", "ptds": "CUDA_API_PER_THREAD_DEFAULT_STREAM"}  # as in tests/CMakeLists.txt
EDIT = re.compile(r"^edit:\s*(\S+)\n<<<<\n(.*?)\n?====\n(.*?)\n?>>>>$", re.M | re.S)
DEFINES = ["-DWEIR_SIMULATED_CUDA=1", "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP", "-include", "ostream"]
TIME_LIMIT = 120  # seconds for a test program that would end in a few


LIBRARIES = []  # what every test program links


def name_of(path):
    return path.relative_to(HERE).with_suffix("").as_posix()


def plant(bug, place):
    """Writes the broken headers under 'place'; returns a complaint or ''."""
    edits = EDIT.findall(bug)
    if not edits:
        return "no edit found; see this script's head for the form"
    texts = {}
    for target, old, new in edits:
        if not (ROOT / target).exists():
            return f"edits {target}, which does not exist"
        text = texts.setdefault(target, (ROOT / target).read_text())
        if text.count(old) != 1:
            return f"its text occurs {text.count(old)} times in {target}, and must once:\n{old}"
        texts[target] = text.replace(old, new)
    for target, text in texts.items():
        path = place / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return ""


def compiled(source, target, place, more=()):
    """Compiles a file of the tests with the headers planted under 'place'."""
    kind = [f"-D{macro}" for mark, macro in KINDS.items() if f".{mark}." in source.name]
    return run([*ccache(), "g++", "-std=c++17", "-O0", "-x", "c++", *DEFINES, *kind, *more,
                *include_flags(place / "include", ROOT / "tests"), "-c", source, "-o", target], timeout=300)


def unmatched(program, filters):
    """The filters that match no test case of the program: what runs nothing is green, and says nothing."""
    def count(one):
        listed = run([program, "--count", "--no-colors", f"--test-case={one}"], timeout=TIME_LIMIT).output
        return re.search(r"current filters: (\d+)$", listed, flags=re.M)
    return [one for one in filters if (found := count(one)) and found[1] == "0"]


def judge(path):
    """(name, complaint): empty if the bug was caught."""
    name = f"bugs: {name_of(path)}"
    bug = path.read_text()
    tests = re.findall(r"^tests:\s*(.+)$", bug, flags=re.M)
    cases = [one for row in re.findall(r"^cases:\s*(.+)$", bug, flags=re.M) for one in row.split(",")]
    if not tests:
        return name, "no line 'tests: ...'"
    place = BUILD / "bugs" / name_of(path)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    complaint = plant(bug, place)
    if complaint:
        return name, complaint
    objects = []
    for test in " ".join(tests).split():
        source = ROOT / "tests" / test
        if not source.exists():
            return name, f"tests/{test} does not exist"
        objects.append(place / (test.replace("/", "-") + ".o"))
        done = compiled(source, objects[-1], place)
        if done.code != 0:
            return name, f"does not compile:\n{head(done.output)}"
    done = run(["g++", "-o", place / "red", *objects, *LIBRARIES, "-pthread", "-ldl"], timeout=120)
    if done.code != 0:
        return name, f"does not link:\n{head(done.output)}"
    if stale := unmatched(place / "red", cases):
        return name, f"no test case matches {' or '.join(repr(one) for one in stale)} in {' '.join(tests)}"
    chosen = [f"--test-case={','.join(cases)}"] if cases else []
    done = run([place / "red", "--minimal", "--abort-after=1", *chosen], timeout=TIME_LIMIT, cwd=ROOT,
               env={**os.environ, "WEIR_QUICK": "1"})
    (place / "output").write_text(done.output)
    shutil.rmtree(place / "include", ignore_errors=True)
    if done.code is None:
        return name, f"took longer than {TIME_LIMIT} s: name its cases, or let them fail before what blocks"
    if done.code == 0:
        return name, f"stays green under {' '.join(tests)} {cases or ''}: no test notices\n{head(done.output, 5)}"
    return name, ""


def plantable(path):
    """(name, complaint): empty if the bug's text is where it says."""
    place = BUILD / "bugs" / name_of(path)
    complaint = plant(path.read_text(), place)
    shutil.rmtree(place, ignore_errors=True)
    return f"bugs: {name_of(path)}", complaint


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    paths = sorted(p for p in HERE.glob("*/*.bug") if not options.names or name_of(p) in options.names)
    if unknown := sorted({*options.names} - {name_of(path) for path in paths}):
        sys.exit(f"no bug {', '.join(map(repr, unknown))}; name them as under tests/bugs, like 'pool/ladder_waits_and_grows'")
    due = turn(options.part)
    judged = [path for number, path in enumerate(paths) if number % options.part == due]
    LIBRARIES.extend(libraries("weir-test-main", "simulated_cuda"))
    print(f"bugs: {len(judged)} of {len(paths)} planted")
    close_with([plantable(path) for path in paths if path not in judged] + at_once(judge, judged))


if __name__ == "__main__":
    main()
