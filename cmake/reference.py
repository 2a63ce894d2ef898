#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How does Doxygen read a header of weir? Called by it, as the filter of reference.cmake.

usage: reference.py HEADER

A header's head is what its page begins with: Doxygen is shown it as a comment of its own kind, with 'invariant:', 'order:',
'cost:' and 'not for:' as headings. The namespace of the version is left out, so that names are those that users write. What stands
in a namespace 'detail' has no sentence of its own, and so no page; its members keep theirs, for classes that inherit them. The lines
keep their numbers, for the sake of warnings.
"""

import pathlib
import re
import sys


def private(lines):
    """Which lines stand in a namespace 'detail'."""
    inside = []
    for line in lines:
        if opened := re.match(r"(?:inline )?namespace ([\w:]+) \{( //.*)?$", line):
            inside.append(opened[1])
        elif line.startswith("} // namespace"):
            inside[-1:] = []
        yield any("detail" in name.split("::") for name in inside)


def silenced(lines):
    """The lines, of which classes in a namespace 'detail', classes in those and functions have no sentence."""
    lines, hidden = list(lines), list(private(lines))
    for at, line in enumerate(lines):
        if not hidden[at] or not re.match(r"\s*(?:template <.*> ?)?(?:class|struct|enum|union) ", line) and line.startswith(" "):
            continue
        above = at - 1 if line.startswith(" ") else at
        while re.match(r"\s*(?:///|template <)", lines[above]):
            lines[above] = lines[above].replace("///", "//", 1)
            above -= 1
    return lines


def shown(header, lines):
    """The lines of a header, as Doxygen is to see them."""
    at = lines.index("#pragma once") + 1
    lines[at] = "/// @mainpage weir" if header.as_posix().endswith("weir/weir.hpp") else "/// @file"
    at += 1
    while at < len(lines) and lines[at].startswith("//"):
        text = re.sub(r"^ {11}", "", lines[at][3:])  # what goes on under such a word
        if not text.startswith("    "):  # code
            text = re.sub(r"^(invariant|order|cost|not for): +", r"@heading{\1} ", re.sub(r"([<>])", r"\\\1", text))
        lines[at] = f"/// {text}"
        at += 1
    lines = silenced(lines)
    ours = r"inline namespace v0 \{|\} // namespace v0"
    return ["" if re.fullmatch(ours, line) else line for line in lines]


def main():
    header = pathlib.Path(sys.argv[1])
    if header.suffix == ".dox": # is written for Doxygen
        print(header.read_text())
        return
    print("\n".join(shown(header, header.read_text().splitlines())))


if __name__ == "__main__":
    main()
