#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does the plug-in compile against each PyTorch?

usage: torch_headers.py FOLDER...

Each folder holds wheels of PyTorch, as 'pip download --no-deps torch==2.12.0' leaves them; their headers are unpacked beside them,
once. Or it is a folder that has 'torch/include' already. CUDA's headers come from where tests/checks looks for them. Nothing is
linked: each version takes a compiler 8 seconds.
"""

import pathlib
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/checks")]
from workshop import WARNINGS, close_with, cuda_include, run, say, tail  # noqa: E402

PARTS = ("torch/include/c10/", "torch/include/torch/headeronly/")
CXX20_SINCE = 14


def unpacked(wheel):
    """The folder with a wheel's headers."""
    top = wheel.with_suffix("")
    if not (top / PARTS[1]).exists():
        with zipfile.ZipFile(wheel) as whole:
            whole.extractall(top, [name for name in whole.namelist() if name.startswith(PARTS)])
    return top


def minor_version(top):
    for line in (top / "torch/include/torch/headeronly/version.h").read_text().splitlines():
        if line.startswith("#define TORCH_VERSION_MINOR"):
            return int(line.split()[2])
    raise SystemExit(f"{top} says no version")


def compiles(top):
    """A complaint or ''."""
    standard = 20 if minor_version(top) >= CXX20_SINCE else 17
    done = run(["g++", f"-std=c++{standard}", "-fsyntax-only", "-DNDEBUG", "-DWEIR_PLUGIN_TORCH_CLASS",
                "-DWEIR_PLUGIN_HANDLES=1", *WARNINGS, "-Werror=suggest-override", f"-I{ROOT / 'include'}",
                "-isystem", cuda_include(), "-isystem", top / "torch/include", ROOT / "examples/python/weir_plugin/plugin.cpp"])
    return tail(done.output) if done.code else ""


def main():
    tops = []
    for folder in map(pathlib.Path, sys.argv[1:]):
        tops += [folder] if (folder / "torch/include").exists() else map(unpacked, sorted(folder.glob("torch-*.whl")))
    if not tops:
        raise SystemExit(__doc__)
    results = []
    for top in tops:
        name = f"PyTorch 2.{minor_version(top)}"
        say(name)
        results.append((name, compiles(top)))
    close_with(results)


if __name__ == "__main__":
    main()
