#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what is published of a version: the sources, the one header, the recipes that name them, and Python's archive.

usage: release.py [--revision REVISION] [--address ADDRESS] OUT
  --revision  what is published; HEAD by default, and for a version its tag
  --address   where the files will lie, as 'https://HOST/FOLDER'; by default where this puts them, so that recipes work here

All of it is made from the archive of sources, and nothing from the folder that this runs in, but for what is not in git: OUT/
  weir-VERSION.tar.gz                      the sources
  weir-VERSION.hpp                         all in one header (amalgamate.py)
  weir_torch-VERSION.tar.gz                the Python package's sources, where there is hatchling to write them
  sha256sums.txt                           the checksums of these, for 'sha256sum --check'
  conan vcpkg spack compiler_explorer      the recipes of packages/, with version, address and checksums filled in
"""

import argparse
import hashlib
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def said(*command, folder):
    """What a command prints; ends this one if it fails."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"weir: '{' '.join(map(str, command))}' failed")
    return done.stdout


def filled(text, words):
    """A recipe with its '@word@'s filled in."""
    return re.sub(r"@(\w+)@", lambda found: words[found[1]], text)


def recipes(sources, out, words):
    for recipe in sorted((sources / "cmake/packages").rglob("*")):
        if recipe.is_file():
            target = out / recipe.relative_to(sources / "cmake/packages")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(filled(recipe.read_text(), words))


def python_sources(sources, out):
    """hatchling's archive of the package; "" or why there is none."""
    ask = f"from hatchling import build; build.build_sdist({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", ask], cwd=sources / "examples/python", capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def checksums(out, version):
    """The lines of sha256sums.txt."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.glob(f"weir*-{version}.*")))


def release(revision, address, out):
    """The names of what was written."""
    shown = said("git", "show", f"{revision}:./CMakeLists.txt", folder=ROOT).decode()
    version = re.search(r"project\(weir VERSION ([\d.]+)", shown)[1]
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"weir-{version}.tar.gz"
    archive.write_bytes(said("git", "archive", "--format=tar.gz", f"--prefix=weir-{version}/", revision, folder=ROOT))
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(archive) as whole:
            whole.extractall(place)
        sources = pathlib.Path(place) / f"weir-{version}"
        one = said(sys.executable, "cmake/amalgamate.py", folder=sources)
        (out / f"weir-{version}.hpp").write_bytes(one)
        bytes_ = archive.read_bytes()
        recipes(sources, out, {"version": version, "digits": version.replace(".", ""), "archive": archive.name,
                               "address": address or out.as_uri(), "sha256": hashlib.sha256(bytes_).hexdigest(),
                               "sha512": hashlib.sha512(bytes_).hexdigest()})
        if why := python_sources(sources, out):
            print(f"weir: left out: the Python package's archive ({why})", file=sys.stderr)
    (out / "sha256sums.txt").write_text(checksums(out, version))
    return sorted(path.name for path in out.iterdir())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--revision", default="HEAD")
    parser.add_argument("--address", default="")
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    print(*release(options.revision, options.address.rstrip("/"), options.out.resolve()), sep="\n")


if __name__ == "__main__":
    main()
