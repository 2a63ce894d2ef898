#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Has every header a test at the mirrored path, and a file name of its own?

usage: mirror.py [ROOT]

include/weir/<folder>/<stem>.hpp is tested in tests/<folder>/<stem>.cpp (or .cu), whose cases begin with
'<stem>:'. What lies in a folder within a folder may be tested so, or by the tests of the part whose folder it is; so may a
room that is one part, and the words of a part (floors.py names both); what a slot asks for (contract/) by tests/contract/slots.cpp. A file name that two headers bear makes messages, tabs and searches
ambiguous. Every recipe stands in the table of tests/contract/recipes.cpp, whose cases all of them meet.
"""

import pathlib
import re
import sys

from floors import WHOLE, WORDS
from workshop import ROOT, close_with


def judge(name, root, names):
    """What is wrong with one header; '' if nothing."""
    path = pathlib.PurePosixPath(name)
    twins = [other for other in names if other != name and pathlib.PurePosixPath(other).name == path.name]
    if twins:
        return f"bears the same file name as {', '.join(twins)}"
    if len(path.parts) == 1:
        return ""  # fwd, recipes and the umbrella name what others define and test
    tests = [p for p in (root / "tests" / path.with_suffix(s) for s in (".cpp", ".cu")) if p.exists()]
    if not tests and (path.parts[0] in ("contract", *WHOLE) or len(path.parts) > 2 or name in WORDS):
        return ""
    if not tests:
        return f"no test at the mirrored path tests/{path.with_suffix('.cpp')}"
    cases = re.findall(r'TEST_CASE(?:_TEMPLATE|_FIXTURE)?\s*\((?:\w+,\s*)?"([^"]*)"', tests[0].read_text())
    if not cases:
        return f"tests/{path.with_suffix('')} holds no TEST_CASE"
    strays = [case for case in cases if not case.startswith(f"{path.stem}:")]
    if strays:
        return f"cases that do not begin with '{path.stem}:': {strays}"
    return ""


def judge_recipes(root, names):
    """Which recipes fwd.hpp declares and the table of their contract lacks; '' if none."""
    recipes = [path.stem for path in map(pathlib.PurePosixPath, names) if path.parts[0] == "recipes" and path.stem.endswith("_pool")]
    if not recipes:
        return ""
    declared = (root / "include/weir/fwd.hpp").read_text()
    table = re.search(r"#define WEIR_TEST_RECIPES((?:.*\\\n)*.*)", (root / "tests/contract/recipes.cpp").read_text())
    tested = re.findall(r"weir::(\w+)", table[1] if table else "")
    left = [name for name in recipes if re.search(rf"^(?:using|class) {name}\b", declared, re.M) and name not in tested]
    return f"not in WEIR_TEST_RECIPES of tests/contract/recipes.cpp: {', '.join(left)}" if left else ""


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT)
    top = root / "include/weir"
    names = sorted(p.relative_to(top).as_posix() for p in top.rglob("*") if p.suffix in (".hpp", ".cuh"))
    close_with([(f"mirror: {name}", judge(name, root, names)) for name in names]
               + [("mirror: the table of recipes", judge_recipes(root, names))])


if __name__ == "__main__":
    main()
