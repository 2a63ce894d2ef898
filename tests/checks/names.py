#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many names stand at weir::, how many clauses ask whether a part has a member, and is each version the project's?

usage: names.py [ROOT]

At weir:: stands what users write every day; what parts and layers alone write lies in the namespace of its folder. A clause is a
'has_...' of contract/: it asks for one member, where an ability asks for all that belong together.
"""

import pathlib
import re
import sys

from workshop import ROOT, close_with

MOST_AT_TOP = 70
MOST_CLAUSES = 40
VERSIONS = {  # the places that have to follow CMakeLists.txt, and how the version stands there
    "CITATION.cff": r"(?m)^version: (\S+)", "README.md": r"(?:find_package\(weir |This is )(\d\.\d)",
    "cmake/README.md": r"(?:weir(?:_torch)?[/-]|\bv)(\d+\.\d+\.\d+)",
    "examples/python/pyproject.toml": r'(?m)^version = "([^"]+)"'}
DECLARES = re.compile(r"(?:\[\[[^\]]*\]\]\s*)?(?:template <.*?> )?(?:class|struct|union|enum class|enum) (?:\[\[[^\]]*\]\]\s*)?(\w+)"
                      r"|using (\w+) =|[\w:<>,&*\[\] ]+?\b(\w+)(?:<[^()]*>)?\s*(?:\(|=|\{|;)")


def declared(text):
    """The names that a header declares in each namespace of weir's, as (namespace, name)."""
    found, inside = set(), []
    for line in text.splitlines():
        if opened := re.match(r"(?:inline )?namespace ([\w:]+) \{", line):
            inside += [] if line.endswith("}") else [opened.group(1)]
        elif line.startswith("} // namespace"):
            inside[-1:] = []
        elif inside[:2] == ["weir", "v0"] and re.match(r"[A-Za-z\[]", line) and not re.match(r"template <[^()]*>$|\w+:$", line):
            if names := DECLARES.match(line):
                found.add(("::".join(["weir", *inside[2:]]), next(filter(None, names.groups()))))
    return found


def at_top(text):
    """The names that a header declares at weir:: itself."""
    return {name for namespace, name in declared(text) if namespace == "weir"}


def other_version(root):
    """What is wrong with WEIR_VERSION; '' where it is the version that CMakeLists.txt names."""
    files = [root / "CMakeLists.txt", root / "include/weir/fwd.hpp"]
    if not all(path.exists() for path in files):
        return ""
    named = re.search(r"project\(weir VERSION (\d+)\.(\d+)\.(\d+)", files[0].read_text())
    number = re.search(r"#define WEIR_VERSION (\d+)", files[1].read_text())
    due = sum(int(part) * weight for part, weight in zip(named.groups(), (10000, 100, 1)))
    if not number or int(number.group(1)) != due:
        return f"WEIR_VERSION has to be {due}, as CMakeLists.txt says"
    version = ".".join(named.groups())
    for name, pattern in VERSIONS.items():
        path = root / name
        if path.exists() and (other := set(re.findall(pattern, path.read_text())) - {version, version.rpartition(".")[0]}):
            return f"{name} names the version {sorted(other)}, and CMakeLists.txt {version}"
    return ""


def main():
    top = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT) / "include/weir"
    texts = {path: path.read_text() for path in top.rglob("*") if path.suffix in (".hpp", ".cuh") and "interop" not in path.parts}
    names = sorted(set().union(*map(at_top, texts.values())))
    clauses = {name for text in texts.values() for name in re.findall(r"\busing (has_\w+) =", text)}
    print(f"names: {len(names)} at weir::, {len(clauses)} clauses")
    close_with([("names: version", other_version(top.parents[1])),
                ("names: at weir::", f"{len(names)}, more than {MOST_AT_TOP}: {' '.join(names)}" if len(names) > MOST_AT_TOP else ""),
                ("names: clauses", f"{len(clauses)}, more than {MOST_CLAUSES}" if len(clauses) > MOST_CLAUSES else "")])


if __name__ == "__main__":
    main()
