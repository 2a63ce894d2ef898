#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does every file begin as the house's files begin, and is no header too long?

usage: heads.py [ROOT]

Every source: the licence line first (after '#!'); nothing left open; no backtick in a static_assert, which nvcc
prints as '?'; a file that a comment names by its path is there. Every header besides: no ternary that stands as a statement;
'#pragma once', then a head comment of 5 to 40 lines, 350 lines at most, none of more than 128 columns.
"""

import pathlib
import re
import sys

from workshop import ROOT, close_with

LICENCE = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
SOURCES = {".hpp", ".cuh", ".cpp", ".cu", ".py", ".sh", ".cmake", ".in", ".bug"}
FOLDERS = ["include", "tests", "examples", "bench", "cmake"]
LONGEST = 350
WIDEST = 128
HEAD_LINES = range(5, 41)


def head_comment(lines):
    """The lines of the first block of '//' after '#pragma once' and any includes-free blank lines."""
    at = lines.index("#pragma once") + 1
    while at < len(lines) and not lines[at].strip():
        at += 1
    block = []
    while at < len(lines) and lines[at].startswith("//"):
        block.append(lines[at])
        at += 1
    return block


def is_ternary_statement(line, before):
    """Whether a line is a whole statement 'a ? b() : c();', whose value nobody takes."""
    code = line.strip()
    if not line.startswith(" ") or not re.match(r"(?!return\b|throw\b|//)[^=?;]*[^=?;\s] \? .* : .*;$", code) or \
            not re.search(r"[;{}]$|^\s*//|\)$|^$|else$", before):
        return False
    depth = 0
    for letter in line[:line.index(" ? ")]:
        depth += (letter in "([{") - (letter in ")]}")
    return depth == 0


def judge(path, text, root):
    """What is wrong with one file; '' if nothing."""
    lines = text.splitlines()
    first = lines[1] if lines and lines[0].startswith("#!") and len(lines) > 1 else lines[0] if lines else ""
    wrong = []
    if first not in (f"// {LICENCE}", f"# {LICENCE}"):
        wrong.append(f"the first line is not '{LICENCE}'")
    if path.suffix in (".hpp", ".cuh"):
        if "#pragma once" not in lines[:3]:
            wrong.append("no '#pragma once' on the second line")
        elif "include/weir" in path.as_posix():
            block = head_comment(lines)
            if len(block) not in HEAD_LINES:
                wrong.append(f"a head comment of {len(block)} lines; {HEAD_LINES.start} to {HEAD_LINES.stop - 1} are due")
        if "include/weir" in path.as_posix() and len(lines) > LONGEST:
            wrong.append(f"{len(lines)} lines; {LONGEST} at most: split by idea")
        if "include/weir" in path.as_posix():
            wrong += [f"line {number} has {len(line)} columns; {WIDEST} at most" for number, line in enumerate(lines, 1)
                      if len(line) > WIDEST]
            wrong += [f"line {number}: a ternary is no statement: {line.strip()}"
                      for number, (before, line) in enumerate(zip(lines, lines[1:]), 2) if is_ternary_statement(line, before)]
    if path.suffix in (".hpp", ".cuh", ".cpp", ".cu"):
        if re.search(r'static_assert\s*\([^;]*`', text):
            wrong.append("a backtick in a static_assert's message; use single quotes")
        for name in re.findall(rf"//.*?\b((?:{'|'.join(FOLDERS)})/[\w./]+\.(?:hpp|cuh|cpp|cu|py|sh|md))\b", text):
            if not (root / name).exists():
                wrong.append(f"names {name}, which does not exist")
        for number, line in enumerate(lines, 1):
            if re.search(r"//.*\b(TODO|FIXME|XXX|HACK)\b", line):
                wrong.append(f"line {number} leaves something open: {line.strip()}")
    return "\n".join(wrong)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT)
    paths = sorted(p for folder in FOLDERS for p in (root / folder).rglob("*")
                   if p.is_file() and (p.suffix in SOURCES or p.name == "CMakeLists.txt"))
    close_with([(f"heads: {p.relative_to(root)}", judge(p, p.read_text(), root)) for p in paths])


if __name__ == "__main__":
    main()
