#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Are the reference's pages made, without a warning?

usage: reference.py

Builds the target weir-reference (cmake/reference.cmake), which fails if Doxygen warns, and looks for a member, an inherited
one and a head on their pages. Then on a few headers with a mistake in a comment, which must be reported.
"""

import re
import shutil
import tempfile
import pathlib

from names import at_top
from workshop import BUILD, ROOT, close_with, run, tail

# a page, what it must hold
HELD = [
    ("classweir_1_1device__vector.html", "read after blocking until the stream is done"),
    ("classweir_1_1device__vector.html", "Makes the capacity at least"),
    ("thrust_8hpp.html", "How does Thrust get its memory from a pool?"),
    ("classweir_1_1pool.html", "A pool of four parts"),
    ("classweir_1_1pool__options.html", "What a pool is told when it is made"),
    ("namespaceweir.html", "CUDA memory pools and typed containers"),
    ("namespaceweir_1_1reuse.html", "When may freed bytes be handed out again?"),
    ("guides.html", "how much a pool holds and gives back"),
]
SEARCHED = ["limit", "OOM", "record_stream", "cudaMallocAsync"]  # what its search has to find
UNSAID = {"default_stream", "deprecated", "layer_options"}  # constants, attributes, and what layers alone take
MISTAKE = ("\n/// The sum.\n/// @param nosuch a number\nint sum(int first, int second);\n", "nosuch")


def made(project, build):
    """What building the target says, and whether it was built."""
    done = run(["cmake", "-G", "Ninja", "-S", project, "-B", build, "-DWEIR_BUILD_TESTS=OFF", "-DWEIR_BUILD_EXAMPLES=OFF",
                "-DWEIR_BUILD_BENCHES=OFF", "-DWEIR_INSTALL=OFF"])
    if done.code == 0:
        done = run(["cmake", "--build", build, "--target", "weir-reference"])
    return done.output, done.code == 0


def lacks(pages):
    """Complaint about public names without a page or a line on the namespace's, and about words not found; ''."""
    top = ROOT / "include/weir"
    names = set().union(*(at_top(path.read_text()) for path in top.rglob("*.hpp") if "interop" not in path.parts)) - UNSAID
    listed = set(re.findall(r"\w+", re.sub(r"<[^>]+>", "", (pages / "namespaceweir.html").read_text())))
    gone = [name for name in sorted(names) if name not in listed and
            not any((pages / f"{kind}weir_1_1{name.replace('_', '__')}.html").exists() for kind in ("class", "struct"))]
    found = "".join(path.read_text() for path in (pages / "search").glob("pages_*.js")).lower()
    return "; ".join(filter(None, (gone and f"no page for {gone}",
                                   (lost := [word for word in SEARCHED if word.lower() not in found]) and f"not found: {lost}")))


def with_mistake():
    """Complaint if a mistake in a comment is not seen, or if one is seen where there is none; ''."""
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder) / "weir"
        for part in ("cmake", "include/weir/base", "tests/simulated_cuda"):
            shutil.copytree(ROOT / part, project / part)
        shutil.copy(ROOT / "CMakeLists.txt", project)
        said, good = made(project, project / "build")
        if not good:
            return f"fails without a mistake:\n{tail(said)}"
        with open(project / "include/weir/base/size.hpp", "a") as file:
            file.write(MISTAKE[0])
        said, good = made(project, project / "build")
        return f"it says:\n{tail(said)}" if good or MISTAKE[1] not in said else ""


def main():
    build = BUILD / "reference"
    shutil.rmtree(build / "reference", ignore_errors=True)
    said, good = made(ROOT, build)
    results = [("reference: without a warning", "" if good else tail(said))]
    for name, words in HELD if good else []:
        page = build / "reference/html" / name
        text = re.sub(r"<[^>]+>", "", page.read_text()) if page.exists() else "(there is no such page)"
        results.append((f"reference: {name}", "" if words in text else f"does not say '{words}'"))
    results.append(("reference: names, rooms, search", lacks(build / "reference/html") if good else "there are no pages"))
    close_with([*results, ("reference: sees a mistake", with_mistake())])


if __name__ == "__main__":
    main()
