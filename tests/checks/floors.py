#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which header may include which? The plan's rooms, held against the code.

usage: floors.py [ROOT]

Each folder of include/weir is a floor. A header may include the floors that the table gives its own, and the
standard library; CUDA and other libraries only where the table says so.

  parts    do not include each other, because they meet as template arguments: upstream/device.hpp is a part.
  private  What a part alone is made of lies in the folder of its name, reuse/stream_ordered/... is reuse/stream_ordered.hpp's,
           and nobody else includes it.
  words    What users of a part name beside it (its options, its policies) stands at the room's first level, and that part includes
           it: WORDS. Names of a folder within a room are in a namespace 'detail'.
  whole    A room of WHOLE is one part: its headers include one another.
  shared   What several parts need lies in a floor of SHARED, or in a folder of a floor that bears no part's name
           (container/owned). Each such header has users in at least two parts, as far as includes lead; a header that users
           include themselves (PUBLIC) counts as used.
"""

import pathlib
import re
import sys

from workshop import ROOT, close_with

SHARED = ["base", "contract", "runtime", "order", "resource"]
CORE = [*SHARED, "placement", "growth", "upstream", "reuse", "supply", "pool", "driver", "graph", "layer", "container"]

# floor -> floors that it may include, besides fwd.hpp, which declares names and stands on nothing.
MAY_INCLUDE = {
    "base": [],
    "contract": ["base"],
    "placement": ["base", "contract"],
    "growth": ["base", "contract"],
    "runtime": ["base"],
    "trace": ["base"],
    "order": ["base", "runtime", "trace"],
    "upstream": ["base", "contract", "runtime", "trace"],
    "resource": ["base", "contract", "runtime"],
    "reuse": ["base", "contract", "runtime", "order", "trace"],
    "supply": ["base", "contract", "runtime", "order", "resource", "trace"],
    "pool": ["base", "contract", "runtime", "order", "resource", "supply", "trace"],
    "driver": ["base", "contract", "runtime", "order", "resource", "trace"],
    "graph": ["base", "contract", "runtime", "order", "resource", "trace"],
    "layer": ["base", "contract", "runtime", "resource", "trace"],
    "container": ["base", "runtime", "order", "resource"],
    "converting": ["base", "runtime", "order", "resource", "container"],
    "staging": ["base", "runtime", "order", "resource", "container", "converting"],
    "stable": ["base", "contract", "runtime", "order", "upstream", "resource", "supply", "container"],
    "multi_device": ["base", "contract", "runtime", "order", "placement", "upstream", "resource", "container", "converting", "staging",
                     "stable"],
    "interop": [*CORE, "trace", "recipes", "converting", "staging", "stable", "multi_device"],
    "fwd.hpp": [],
    "recipes": [*CORE, "trace"],
    "recipes.hpp": ["recipes", "driver"],
    "make_pool.hpp": CORE + ["recipes.hpp"],
    "weir.hpp": CORE + ["recipes.hpp", "make_pool.hpp"],
    "staging.hpp": ["staging", "converting"],  # a container that only staging fills
    "stable.hpp": ["stable"],
    "trace.hpp": ["trace", "upstream", "layer", "recipes"],
    "multi_device.hpp": ["multi_device"],
}

WHOLE = ["supply", "trace", "converting", "recipes", "stable"]

# What users of a part name beside it -> that part; all of a room where it ends in a slash.
WORDS = {
    "driver/driver_pool_options.hpp": "driver/driver_pool",
    "reuse/handover.hpp": "reuse/stream_ordered",
    "reuse/identity.hpp": "reuse/stream_ordered",
    "reuse/tuning.hpp": "reuse/stream_ordered",
    "upstream/memory_tuning.hpp": "upstream/virtual_memory",
    "multi_device/chunk_registration.hpp": "multi_device/collective_pool",
    "multi_device/rank_channel.hpp": "multi_device/",
    "staging/copy_threads.hpp": "staging/",
    "staging/pending_copy.hpp": "staging/",
    "staging/piece.hpp": "staging/",
    "staging/pinned_ring.hpp": "staging/",
    "staging/pinned_ring_options.hpp": "staging/",
    "staging/sources.hpp": "staging/streaming",
    "staging/spill_state.hpp": "staging/spill",
    "staging/streaming_options.hpp": "staging/streaming",
    "staging/victims.hpp": "staging/spill",
}

# Shared headers, or floors of them, that users need themselves, with what for.
PUBLIC = {
    "contract": "who writes a part reads what its slot asks for",
    "resource/any_pool.hpp": "an owner of any pool",
    "runtime/managed_memory.hpp": "prefetch, advise and discard",
    "runtime/wait.hpp": "synchronize",
}

CUDA = ["runtime", "order", "upstream", "resource", "reuse", "supply", "pool", "driver", "graph", "layer", "container",
        "converting", "staging", "stable", "multi_device", "recipes", "interop"]
MOST_ROOMS = 16  # headers a folder
CUDA_HEADERS = {"cuda_runtime_api.h", "cuda.h", "driver_types.h", "vector_types.h"}
KERNEL_HEADERS = {"cuda_runtime.h"}
LIBRARIES = re.compile(r"^(thrust|cub|cuda|c10|torch|ATen|nccl|nvtx3|cutlass)(?:/|\.h$)|^(memory_resource)$")
HEAVY = {"iostream", "regex", "functional", "unordered_map", "map", "sstream", "future", "filesystem", "string", "string_view",
         "stdexcept", "memory", "vector"}


def standard(name):
    """A header of the C++ library, by its looks: no folder and no suffix. Two of the system's stand in for <thread>
    and <mutex>, one tells how much memory the host has, two map it, three read files, three name the functions on a stack,
    and two talk with other machines."""
    return ("/" not in name and "." not in name) or name in ("sched.h", "pthread.h", "sys/sysinfo.h", "sys/mman.h",
                                                             "sys/syscall.h", "fcntl.h", "unistd.h", "sys/stat.h", "poll.h",
                                                             "sys/socket.h", "unwind.h", "link.h", "cxxabi.h")


def includes(text):
    """(name in < > or quotes with the quotes) of every #include, comments left out."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    for line in text.splitlines():
        found = re.match(r'\s*#\s*include\s*(?:<([^>]+)>|("[^"]+"))', line)
        if found and not (found.group(2) or "").startswith('"weir: '):  # fwd.hpp ends the compilation with a sentence
            yield found.group(1) or found.group(2)


def part_of(name, top):
    """The part that a header is or belongs to, as its path without suffix; the room where it is shared: 'base/',
    'container/owned/'; '' for what stands at the top."""
    path = pathlib.PurePosixPath(name)
    if len(path.parts) == 1:
        return ""
    if path.parts[0] in SHARED:
        return path.parts[0] + "/"
    if path.parts[0] in WHOLE:
        return path.parts[0]
    part = "/".join(path.parts[:2])
    if len(path.parts) == 2:
        return part.rpartition(".")[0]
    return part if any((top / (part + suffix)).exists() for suffix in (".hpp", ".cuh")) else part + "/"


def objection(name, target, top):
    """Why header 'name' may not include header 'target' (both relative to include/weir); '' if it may."""
    floor, to = name.split("/")[0], target.split("/")[0]
    if target == "fwd.hpp":
        return ""
    if to != floor and to not in MAY_INCLUDE.get(floor, []):
        return f"no arrow from '{floor}' to '{target}' in the plan"
    here, there = part_of(name, top), part_of(target, top)
    if there.endswith("/") or here == there or here == "" or here.startswith(WORDS.get(target, "nobody")):
        return ""
    if target.count("/") > 1:
        return f"it is private to '{there}'"
    return f"no arrow from '{here}' to '{there}' in the plan: parts meet as template arguments" if to == floor else ""


def lonely(names, top):
    """(shared header, complaint): which of them serve one part only?"""
    users = {name: set() for name in names}
    for name in names:
        for target in includes((top / name).read_text()):
            if target.startswith("weir/") and target[5:] in users and name not in ("weir.hpp", "recipes.hpp", "make_pool.hpp"):
                users[target[5:]].add(name)

    def parts(name, seen):
        found = set()
        for user in users[name] - seen:
            seen.add(user)
            part = part_of(user, top)
            found |= parts(user, seen) if part.endswith("/") else {part}
        return found
    for name in names:
        if part_of(name, top).endswith("/"):
            of = parts(name, {name})
            few = len(of) < 2 and name not in PUBLIC and name.split("/")[0] not in PUBLIC
            yield name, f"is shared, and serves {' and '.join(sorted(of)) or 'nobody'} only: put it into that part's folder" if few else ""


def hidden(name, text):
    """Names that users may write and that stand in a folder within a room, as lines; base/ has none for users, and a header
    of interop/ has its folder for them."""
    if name.count("/") < 2 or name.startswith(("base/", "interop/")):
        return []
    found, inside = [], []
    for line in text.splitlines():
        if opened := re.match(r"(?:inline )?namespace ([\w:]+) \{$", line):
            inside.append(opened.group(1))
        elif line.startswith("} // namespace"):
            inside[-1:] = []
        elif inside and "detail" not in "".join(inside) and re.match(r"\w", line):
            found.append(f"declares '{line[:60]}' in a folder within a room, and outside a namespace 'detail'")
    return found


def judge(name, text, top):
    """What is wrong with one header's includes; '' if nothing."""
    floor = name.split("/")[0]
    if floor not in MAY_INCLUDE:
        return f"'{floor}' is no floor of the plan"
    wrong = []
    wrong += hidden(name, text)
    libraries = set()
    for target in includes(text):
        if target.startswith('"'):
            wrong.append(f"includes {target}; write '#include <weir/folder/stem.hpp>'")
        elif target.startswith("weir/"):
            target = target[len("weir/"):]
            if not (top / target).exists():
                wrong.append(f"includes <weir/{target}>, which does not exist")
            elif reason := objection(name, target, top):
                wrong.append(f"includes <weir/{target}>: {reason}")
        elif target in CUDA_HEADERS:
            if floor not in CUDA:
                wrong.append(f"includes <{target}>: '{floor}' compiles with no CUDA on the path")
        elif LIBRARIES.match(target):
            libraries.add(next(filter(None, LIBRARIES.match(target).groups())))
            if floor != "interop":
                wrong.append(f"includes <{target}>: other libraries live in interop")
        elif target in HEAVY and floor != "interop":
            wrong.append(f"includes <{target}>, which costs every user's compile time")
        elif not standard(target) and not (name.endswith(".cuh") and target in KERNEL_HEADERS):
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
    results += [(f"rooms: {name}", complaint) for name, complaint in lonely(names, top)]
    folders = {path: [p for p in path.iterdir() if p.suffix in (".hpp", ".cuh")] for path in top.rglob("*") if path.is_dir()}
    results += [(f"rooms: {path.relative_to(top)}/", f"{len(rooms)} headers; {MOST_ROOMS} at most" if len(rooms) > MOST_ROOMS else "")
                for path, rooms in sorted(folders.items())]
    umbrella = reached(top, "weir.hpp")
    stacks = reached(top, "trace/call_stacks.hpp")  # the unwinder's header is for who asks for stacks
    others = reached(top, "staging.hpp") | reached(top, "trace.hpp") | reached(top, "graph/graph_memory.hpp")
    left = [n for n in names if n.split("/")[0] in CORE + ["recipes", "recipes.hpp", "make_pool.hpp", "fwd.hpp"] and n not in umbrella | others]
    beyond = [n for n in umbrella if n.split("/")[0] in ("interop", "converting", "staging", "stable", "multi_device")]
    lost = [(room, n) for room in ("staging", "stable", "multi_device", "trace") for n in names  # .cuh: nvcc's alone
            if n.split("/")[0] == room and not n.endswith(".cuh") and n not in reached(top, f"{room}.hpp") | stacks]
    complaint = "\n".join([f"{room}.hpp does not reach {n}" for room, n in lost] + [f"weir.hpp does not reach {n}" for n in left] + [f"weir.hpp reaches {n}" for n in beyond])
    results.append(("floors: the umbrella holds the core and nothing else", complaint))
    close_with(results)


if __name__ == "__main__":
    main()
