#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which header may include which? The plan's table of rooms, held against the code.

usage: floors.py [ROOT]

Each folder of include/weir is a floor. A header may include the floors that the table gives its own, and the
standard library; CUDA and other libraries only where the table says so. Parts of one floor do not include each
other, because they meet as template arguments: WITHIN lists what is no part, with the reason.
"""

import pathlib
import re
import sys

from workshop import ROOT, close_with

CORE = ["base", "placement", "runtime", "upstream", "reuse", "pool", "layer", "container", "staging"]

# floor -> floors that it may include, besides fwd.hpp, which declares names and stands on nothing.
MAY_INCLUDE = {
    "base": [],
    "placement": ["base"],
    "runtime": ["base"],
    "upstream": ["base", "runtime"],
    "reuse": ["base", "runtime"],
    "pool": ["base", "runtime"],
    "layer": ["base", "runtime"],
    "container": ["base", "runtime"],
    "staging": ["base", "runtime", "container"],
    "kernel": ["base"],
    "interop": ["base", "runtime", "container"],
    "fwd.hpp": [],
    "recipes.hpp": CORE,
    "weir.hpp": CORE + ["recipes.hpp"],
}

# (header or whole floor that includes, header or whole floor that is included): why that is no arrow between parts.
WITHIN = {
    ("base", "base"): "words that the parts are written in, not parts",
    ("runtime", "runtime"): "words that the parts are written in, not parts",
}

CUDA = ["runtime", "upstream", "reuse", "pool", "layer", "container", "staging", "interop", "kernel"]
CUDA_HEADERS = {"cuda_runtime_api.h", "cuda.h", "driver_types.h", "vector_types.h"}
KERNEL_HEADERS = {"cuda_runtime.h"}
LIBRARIES = re.compile(r"^(thrust|cub|cuda|c10|torch|ATen|nccl|cutlass)(?:/|\.h$)|^(memory_resource)$")
HEAVY = {"iostream", "regex", "functional", "unordered_map", "map", "sstream", "future", "filesystem", "string", "string_view",
         "stdexcept", "memory", "vector"}


def standard(name):
    """A header of the C++ library, by its looks: no folder and no suffix. Two of the system's stand in for <thread>
    and <mutex>, and one tells how much memory the host has."""
    return ("/" not in name and "." not in name) or name in ("sched.h", "pthread.h", "sys/sysinfo.h")


def includes(text):
    """(name in < > or quotes with the quotes) of every #include, comments left out."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    for line in text.splitlines():
        found = re.match(r'\s*#\s*include\s*(?:<([^>]+)>|("[^"]+"))', line)
        if found:
            yield found.group(1) or found.group(2)


def allowed(name, target):
    """May header 'name' include header 'target' (both relative to include/weir)?"""
    floor = name.split("/")[0]
    to = target.split("/")[0]
    if target == "fwd.hpp" or to in MAY_INCLUDE.get(floor, []):
        return True
    return any((here, there) in WITHIN for here in (floor, name) for there in (to, target))


def judge(name, text, top):
    """What is wrong with one header's includes; '' if nothing."""
    floor = name.split("/")[0]
    if floor not in MAY_INCLUDE:
        return f"'{floor}' is no floor of the plan"
    wrong = []
    libraries = set()
    for target in includes(text):
        if target.startswith('"'):
            wrong.append(f"includes {target}; write '#include <weir/folder/stem.hpp>'")
        elif target.startswith("weir/"):
            target = target[len("weir/"):]
            if not (top / target).exists():
                wrong.append(f"includes <weir/{target}>, which does not exist")
            elif not allowed(name, target):
                wrong.append(f"includes <weir/{target}>: no arrow from '{floor}' to '{target}' in the plan")
        elif target in CUDA_HEADERS:
            if floor not in CUDA:
                wrong.append(f"includes <{target}>: '{floor}' compiles with no CUDA on the path")
        elif LIBRARIES.match(target):
            libraries.add(next(filter(None, LIBRARIES.match(target).groups())))
            if floor not in ("interop", "kernel"):
                wrong.append(f"includes <{target}>: other libraries live in interop")
        elif target in HEAVY and floor not in ("interop", "kernel"):
            wrong.append(f"includes <{target}>, which costs every user's compile time")
        elif not standard(target) and not (floor == "kernel" and target in KERNEL_HEADERS):
            wrong.append(f"includes <{target}>, which the plan does not know")
    if len(libraries) > 1:
        wrong.append(f"names {len(libraries)} foreign libraries ({', '.join(sorted(libraries))}); one header, one library")
    return "\n".join(wrong)


def reached(top, start):
    """Headers that 'start' includes, itself among them, through any number of steps."""
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name in seen or not (top / name).exists():
            continue
        seen.add(name)
        todo += [t[len("weir/"):] for t in includes((top / name).read_text()) if t.startswith("weir/")]
    return seen


def main():
    top = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT) / "include/weir"
    names = sorted(p.relative_to(top).as_posix() for p in top.rglob("*") if p.suffix in (".hpp", ".cuh"))
    results = [(f"floors: {name}", judge(name, (top / name).read_text(), top)) for name in names]
    umbrella = reached(top, "weir.hpp")
    left = [n for n in names if n.split("/")[0] in CORE + ["recipes.hpp", "fwd.hpp"] and n not in umbrella]
    beyond = [n for n in umbrella if n.split("/")[0] in ("interop", "kernel")]
    complaint = "\n".join([f"weir.hpp does not reach {n}" for n in left] + [f"weir.hpp reaches {n}" for n in beyond])
    results.append(("floors: the umbrella holds the core and nothing else", complaint))
    close_with(results)


if __name__ == "__main__":
    main()
