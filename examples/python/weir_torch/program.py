# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program as python3 takes it, a file, '-m module' or '-c code', and how it runs within this process."""

from __future__ import annotations

import importlib.util
import pathlib
import runpy
import sys
import types
from typing import List, Sequence, Tuple


FLAGS = ("-h", "--help", "--shares")


def split(words: Sequence[str]) -> Tuple[List[str], List[str]]:
    """A command line's own options, each of which has a value but for FLAGS, and the program with all that follows it,
    as python3 would be given them. argparse alone would take a '--' out of the program's arguments."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return list(words[:at]), list(words[at + 1:])
        if word[:2] in ("-m", "-c"):
            return list(words[:at]), [word[:2], *([word[2:]] if word[2:] else []), *words[at + 1:]]
        if not word.startswith("-"):
            return list(words[:at]), list(words[at:])
        at += 1 if "=" in word or word in FLAGS else 2
    return list(words), []


def missing(words: Sequence[str]) -> str:
    """What is wrong if there is no such program, or ''."""
    if not words or words[0] in ("-m", "-c") and len(words) < 2:
        return "weir: no program is named; name a file, '-m' and a module, or '-c' and a text"
    if words[0] == "-m":
        try:
            found = importlib.util.find_spec(words[1]) is not None
        except (ImportError, ValueError):
            found = False
        return "" if found else f"weir: there is no module {words[1]}"
    return "" if words[0] == "-c" or pathlib.Path(words[0]).exists() else f"weir: there is no program {words[0]}"


def title(words: Sequence[str]) -> str:
    return " ".join(words[:2]) if words[0] in ("-m", "-c") else pathlib.Path(words[0]).name


def run(words: Sequence[str]) -> None:
    """What 'python3 WORDS...' does, in this process."""
    if words[0] == "-m":
        sys.argv = list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = list(words)
        sys.path.insert(0, str(pathlib.Path(words[0]).resolve().parent))
        runpy.run_path(words[0], run_name="__main__")
