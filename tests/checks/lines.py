#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much do the umbrella and what is in it make a compiler read?

usage: lines.py [--write]
  --write  makes what is counted here the committed figures

g++ preprocesses the headers that users include, each alone. Two figures a header: the lines of weir's own that are left, without
comments and blank lines, and the foreign headers that weir's name, since their length is the machine's. lines.csv holds the
committed figures. A header whose lines have grown by more than a tenth fails, and so does one that needs another foreign
header: find out why, or commit the new figures on purpose. Then each kind of mistake is planted, and must be seen.
"""

import csv
import pathlib
import re
import shutil
import sys
import tempfile

from floors import includes, reached
from workshop import INCLUDE, at_once, close_with, cuda_include, head, run

COMMITTED = pathlib.Path(__file__).resolve().with_suffix(".csv")
HEADERS = ["weir.hpp", "recipes.hpp", "recipes/device_pool.hpp", "pool/pool.hpp", "container/vector.hpp", "staging.hpp"]
MOST = 1.1  # times the committed lines


def lines_of(header, include):
    """Lines of weir's own in a preprocessed header."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "alone.cpp"
        source.write_text(f"#include <weir/{header}>\n")
        done = run(["g++", "-std=c++17", "-E", f"-I{include}", "-isystem", cuda_include(), source], timeout=60)
    if done.code != 0:
        raise SystemExit(f"FAILED lines: g++ does not preprocess <weir/{header}>\n{head(done.output)}\n0 passed, 1 failed")
    count, ours = 0, False
    for line in done.output.splitlines():
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            ours = marker.group(1).startswith(f"{include}/")
        else:
            count += ours and bool(line.strip())
    return count


def foreign_of(header, include):
    """The foreign headers that it and what it includes of ours name."""
    top = include / "weir"
    return sorted({target for name in reached(top, header) for target in includes((top / name).read_text())
                   if not target.startswith(("weir/", '"'))})


def figures(include, names=HEADERS):
    """header -> (lines, foreign headers)."""
    return dict(zip(names, at_once(lambda header: (lines_of(header, include), foreign_of(header, include)), names)))


def committed():
    """The same, as it was committed."""
    with open(COMMITTED, newline="") as file:
        return {row["header"]: (int(row["lines"]), row["foreign headers"].split()) for row in csv.DictReader(file)}


def complaints(found, due):
    """header -> what has grown, or ''."""
    said = {}
    for header, (lines, foreign) in found.items():
        least, known = due.get(header, (0, []))
        wrong = [f"{lines} lines of weir's own, more than a tenth above the committed {least}"] if lines > MOST * least else []
        wrong += [f"needs <{name}>, which is not among the committed foreign headers" for name in foreign if name not in known]
        said[header] = "\n".join(wrong)
    return said


def planted(text):
    """What is said of the umbrella where a header that it includes ends with this text."""
    with tempfile.TemporaryDirectory() as folder:
        include = pathlib.Path(folder) / "include"
        shutil.copytree(INCLUDE, include)
        with open(include / "weir/base/size.hpp", "a") as file:
            file.write(text)
        found = figures(include, ["weir.hpp"])
    return complaints(found, committed())["weir.hpp"]


def main():
    found = figures(INCLUDE)
    if sys.argv[1:] == ["--write"]:
        with open(COMMITTED, "w", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(["header", "lines", "foreign headers"])
            out.writerows([header, lines, " ".join(foreign)] for header, (lines, foreign) in found.items())
    due = committed()
    for header, (lines, foreign) in found.items():
        print(f"lines: <weir/{header}> {lines} of weir's own ({due.get(header, (0,))[0]} committed), {len(foreign)} foreign headers")
    results = [(f"lines: <weir/{header}>", said) for header, said in complaints(found, due).items()]
    spare = int(MOST * due["weir.hpp"][0]) - found["weir.hpp"][0]
    for what, text, word in (("an over-long header", "extern int more;\n" * (spare + 1), "more than a tenth"),
                             ("a foreign header", "#include <unordered_map>\n", "needs <unordered_map>"),
                             ("no mistake in comments", "// more\n\n" * spare + "extern int more;\n" * spare, "")):
        said = planted(text)
        results.append((f"lines: sees {what}", "" if word in said and bool(word) == bool(said) else f"it says: {said}"))
    close_with(results)


if __name__ == "__main__":
    main()
