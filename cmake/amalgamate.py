#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes weir as one header, for online compilers and single-file reports of bugs.

usage: amalgamate.py [HEADER...] > weir.hpp

HEADER is a path as in an #include: 'weir/weir.hpp' (the default), 'weir/interop/pmr.hpp'. Each header of weir's stands where it
is first included, and once. What is not weir's stays an #include.
"""

import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parents[1] / "include"
LICENCE = "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n"


def written(name, seen):
    """The lines of one header and of those that it includes, but for what was seen before."""
    if name in seen:
        return
    seen.add(name)
    path = INCLUDE / name
    if not path.is_file():
        sys.exit(f"there is no {path}; name a header as an #include does, like 'weir/weir.hpp'")
    for line in path.read_text().splitlines():
        if found := re.match(r"#include <(weir/[^>]+)>", line):
            yield from written(found.group(1), seen)
        elif line not in ("#pragma once", LICENCE.strip()):
            yield line


def main():
    seen = set()
    lines = [line for name in sys.argv[1:] or ["weir/weir.hpp"] for line in written(name, seen)]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    sys.stdout.write(f"{LICENCE}#pragma once\n\n// weir in one header, written by cmake/amalgamate.py. Change the headers, not this file.\n\n{text}\n")


if __name__ == "__main__":
    main()
