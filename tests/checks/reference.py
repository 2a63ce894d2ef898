#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Are the reference's pages made, without a warning?

usage: reference.py

Builds the target weir-reference (cmake/reference.cmake), which fails if Doxygen warns, and looks for a member, an inherited
one and a head on their pages. Each name that the umbrellas and the headers of interop/ bring has a page, or a place on its namespace's,
and a sentence there; so has each member of their options. No namespace 'detail' has a page, nor what stands in one. Then on a few
headers with a mistake in a comment, which must be reported.
"""

import re
import shutil
import tempfile
import pathlib
from xml.etree import ElementTree

from names import declared
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
UNSAID = {"deprecated", "operator"} # no names
MACHINERY = re.compile(r"::(detail|base|contract|recipes|cuda_mr::version)\b") # public, and not for users' programs
MISTAKE = ("\n/// The sum.\n/// @param nosuch a number\nint sum(int first, int second);\n", "nosuch")


def made(project, build):
    """What building the target says, and whether it was built."""
    done = run(["cmake", "-G", "Ninja", "-S", project, "-B", build, "-DWEIR_BUILD_TESTS=OFF", "-DWEIR_BUILD_EXAMPLES=OFF",
                "-DWEIR_BUILD_BENCHES=OFF", "-DWEIR_INSTALL=OFF", "-DDOXYGEN_GENERATE_XML=YES"])
    if done.code == 0:
        done = run(["cmake", "--build", build, "--target", "weir-reference"])
    return done.output, done.code == 0


def public_names():
    """(namespace, name) of what the umbrellas' headers, and those of interop/, declare for users."""
    top = ROOT / "include/weir"
    headers = {*top.glob("*.hpp"), *(top / "interop").glob("*.hpp"), top / "graph/graph_memory.hpp"}
    for umbrella in top.glob("*.hpp"):
        headers |= {ROOT / "include" / name for name in re.findall(r"#include <(weir/\w+/[^>]+)>", umbrella.read_text())}
    names = set().union(*(declared(path.read_text()) for path in headers))
    return sorted((space, name) for space, name in names if name not in UNSAID and name[0].islower() and not MACHINERY.search(space))


def has_sentence(element):
    return any("".join(text.itertext()).strip() for text in map(element.find, ("briefdescription", "detaileddescription"))
               if text is not None)


def said(xml, pages):
    """Of each name of a class or in a namespace whether it has a place on the pages and a sentence; and what members of options lack one."""
    known, options = {}, {}
    for compound in ElementTree.parse(xml / "index.xml").getroot().iter("compound"):
        kind, name = compound.get("kind"), re.sub(r"<.*", "", compound.findtext("name")).strip()
        if kind not in ("class", "struct", "union", "namespace") or not name.startswith("weir"):
            continue
        whole = ElementTree.parse(xml / f"{compound.get('refid')}.xml").getroot().find("compounddef")
        page = pages / f"{compound.get('refid')}.html"
        known[name] = known.get(name, False) or page.exists() and has_sentence(whole)
        text = page.read_text() if page.exists() else ""
        for member in whole.iter("memberdef"):
            own = f"{name}::{member.findtext('name')}"
            if kind == "namespace":
                known[own] = known.get(own, False) or f'id="{member.get("id").rpartition("_1")[2]}"' in text and has_sentence(member)
            elif name.endswith("_options") and "detail" not in name and member.get("prot") == "public":
                option = own.removesuffix("_bytes") # what 'limit(bytes)' sets, 'limit_bytes()' tells
                options[option] = options.get(option, False) or has_sentence(member) or option.split("::")[-1] == name.split("::")[-1]
    return known, sorted(option for option, has in options.items() if not has)


def lacks(pages):
    """Complaint about public names without a page or a sentence, about private ones with a page, and about words not found; ''."""
    known, silent = said(pages.parent / "xml", pages)
    gone = [f"{space}::{name}" for space, name in public_names() if not known.get(f"{space}::{name}")]
    private = [path.name for path in pages.glob("*weir_1_1*.html") if re.search(r"_1_1detail(_1_1|-members|\.html)", path.name)]
    found = "".join(path.read_text() for path in (pages / "search").glob("pages_*.js")).lower()
    return "; ".join(filter(None, (gone and f"no page or no sentence: {gone}", silent and f"options without a sentence: {silent}",
                                   private and f"pages of what is private: {private}",
                                   (lost := [word for word in SEARCHED if word.lower() not in found]) and f"not found: {lost}")))


def with_mistake():
    """Complaint if a mistake in a comment is not seen, or if one is seen where there is none; ''."""
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder) / "weir"
        for part in ("cmake", "include/weir/base", "tests/simulated_cuda", "tests/contract", "tests/support"):
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
