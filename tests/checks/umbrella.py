#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What do <weir/weir.hpp> and the headers of interop/ cost a user's compile time?

Compiles an empty C++17 .cu file and one that includes the umbrella with nvcc, in turn, eight times each, and prints
the least of each: what else the machine does only ever adds. So where that is too much it goes on, up to 32 times.
The aim is 0.6 s over the empty file. What is read is the processor's time, which is wall time on an idle machine:
nvcc runs its steps one by one. A slower machine takes longer for the empty file too, so it may take 0.8 empty
files: where an empty file takes 0.75 s, that is the aim.

A header of interop/ is measured the same way over a file that includes what it includes of the other library; the aim is 0.3 s.
Such a file takes up to nine seconds, and its time wavers by one of them, so a tenth of it is let pass.
"""

import re
import resource

from workshop import BUILD, INCLUDE, close_with, head, run, say

AIM_SECONDS = 0.6
BOUND = 0.8  # empty files
INTEROP_AIM_SECONDS = 0.3
INTEROP_BOUND = 0.4  # empty files
INTEROP_ROUNDS = 12  # at most
ROUNDS = 8
MOST_ROUNDS = 32


def seconds(source):
    """Processor time of one compilation."""
    say(f"nvcc: {source.name}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(["nvcc", "-std=c++17", "-arch=sm_90", f"-I{INCLUDE}", "-c", source, "-o", source.with_suffix(".o")], timeout=600)
    if done.code != 0:
        raise RuntimeError(head(done.output))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def always_included(text):
    """What a header's text includes outside every #if."""
    found, depth = [], 0
    for word, rest in re.findall(r"^# *(if|ifdef|ifndef|endif|include)\b(.*)", text, flags=re.M):
        depth += word.startswith("if") - (word == "endif")
        if word == "include" and depth == 0:
            found += re.findall(r"<(\S+)>", rest)
    return found


def foreign(header):
    """What a header of interop/ always includes of other libraries, itself or through its private pieces, as lines."""
    found, todo, seen = [], [header], set()
    while todo:
        name = todo.pop()
        seen.add(name)
        for target in always_included((INCLUDE / name).read_text()):
            if target.startswith("weir/interop/"):
                todo += [target] if target not in seen else []
            elif not target.startswith("weir/"):
                found.append(f"#include <{target}>\n")
    return "".join(dict.fromkeys(found))


def least(first, second, bound):
    """The least times of two files, in turn, until the second is within the bound of the first or too often."""
    pairs = []
    while True:
        pairs += [(seconds(first), seconds(second)) for _ in range(2)]
        base, whole = (min(column) for column in zip(*pairs))
        if whole - base <= bound or len(pairs) >= INTEROP_ROUNDS:
            return whole - base, base


def interop(empty_seconds):
    """(name, complaint) of each header of interop/."""
    for path in sorted((INCLUDE / "weir/interop").glob("*.hpp")):
        name = f"weir/interop/{path.name}"
        before, after = (BUILD / "umbrella" / f"{path.stem}_{which}.cu" for which in ("without", "with"))
        # What CCCL keeps behind a switch costs with and without weir.
        before.write_text("#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE\n" + foreign(name))
        after.write_text(before.read_text() + f"#include <{name}>\n")
        bound = max(INTEROP_AIM_SECONDS, INTEROP_BOUND * empty_seconds)
        over, base = least(before, after, bound)
        print(f"umbrella: <{name}> {over:.2f} s over what it adapts (aim {INTEROP_AIM_SECONDS} s)")
        slow = over > max(bound, base / 10)
        yield f"umbrella: compile time of <{name}>", f"{over:.2f} s, more than {bound:.2f} s and than a tenth" if slow else ""


def main():
    place = BUILD / "umbrella"
    place.mkdir(parents=True, exist_ok=True)
    empty, umbrella = place / "empty.cu", place / "umbrella.cu"
    empty.write_text("")
    umbrella.write_text("#include <weir/weir.hpp>\n")
    try:
        seconds(umbrella)
        pairs = []
        while True:
            pairs += [(seconds(empty), seconds(umbrella)) for _ in range(ROUNDS)]
            base, whole = (min(column) for column in zip(*pairs))
            over = whole - base
            bound = max(AIM_SECONDS, BOUND * base)
            if over <= bound or len(pairs) >= MOST_ROUNDS:
                break
        plugs = list(interop(base))
    except RuntimeError as error:
        close_with([("umbrella: compiles under nvcc", str(error))])
    print(f"umbrella: {over:.2f} s over an empty file (least of {len(pairs)}: empty {base:.2f} s, umbrella {whole:.2f} s; "
          f"aim {AIM_SECONDS} s)")
    complaint = f"{over:.2f} s, more than {AIM_SECONDS} s and than {BOUND} empty files" if over > bound else ""
    close_with([("umbrella: compile time", complaint), *plugs])


if __name__ == "__main__":
    main()
