#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What do <weir/weir.hpp> and the headers of interop/ cost a user's compile time?

They are judged by the instructions that g++'s front end runs (valgrind counts them), in those for an empty file with CUDA's
header: they are the same on a busy machine, where seconds waver by a third. The umbrella is held against the empty file; a
recipe's own header has to cost less; a header of interop/ against a file that includes what it includes of the other library, and
the recipes where it has pools of its own.

Seconds are printed: an empty C++17 .cu file and one that includes the umbrella are compiled with nvcc in turn, and of each the
least is taken, since what else the machine does only ever adds. The aim is 0.6 s over the empty file where that takes 0.75 s; 0.3 s
for a header of interop/, which is 1.6 empty files in instructions. What is read is the processor's time, which is wall time on
an idle machine: nvcc runs its steps one by one.
"""

import pathlib
import re
import resource
import shutil

from workshop import BUILD, INCLUDE, NCCL, close_with, head, run, say

AIM_SECONDS = 0.6
MOST_INSTRUCTIONS = 4.6  # those of an empty file
RECIPE = "weir/recipes/device_pool.hpp"
MOST_OF_A_RECIPE = 0.7  # of the most that the umbrella may add
MOST_OF_INTEROP = 1.6  # empty files
ROUNDS = 3


def seconds(source):
    """Processor time of one compilation."""
    say(f"nvcc: {source.name}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(["nvcc", "-std=c++17", "-arch=sm_90", f"-I{INCLUDE}", "-c", source, "-o", source.with_suffix(".o")], timeout=600)
    if done.code != 0:
        raise RuntimeError(head(done.output))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def instructions(source):
    """Instructions that g++'s front end runs for a file, CUDA's header included."""
    say(f"instructions: {source.name}")
    front = run(["g++", "-print-prog-name=cc1plus"]).output.strip()
    system = run(["g++", "-print-multiarch"]).output.strip()
    cuda = pathlib.Path(shutil.which("nvcc")).resolve().parents[1] / "include"
    done = run(["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", front, "-quiet",
                "-fsyntax-only", "-std=c++17", "-D_GNU_SOURCE", "-imultiarch", system, f"-I{INCLUDE}",
                *(word for place in (cuda, cuda / "cccl", NCCL) for word in ("-isystem", place)),
                "-include", "cuda_runtime.h", source], timeout=600)
    found = re.search(r"refs:\s+([\d,]+)", done.output)
    if done.code != 0 or not found:
        raise RuntimeError(head(done.output))
    return int(found.group(1).replace(",", ""))


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


def interop(of_empty):
    """(name, complaint) of each header of interop/."""
    for path in sorted((INCLUDE / "weir/interop").glob("*.hpp")):
        name = f"weir/interop/{path.name}"
        before, after = (BUILD / "umbrella" / f"{path.stem}_{which}.cpp" for which in ("without", "with"))
        # What CCCL keeps behind a switch costs with and without weir.
        pools = "#include <weir/recipes.hpp>\n" if "weir/pool/pool.hpp" in always_included(path.read_text()) else ""
        before.write_text("#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE\n" + foreign(name) + pools)
        after.write_text(before.read_text() + f"#include <{name}>\n")
        over = (instructions(after) - instructions(before)) / of_empty
        print(f"umbrella: <{name}> {over:.2f} empty files over what it adapts (at most {MOST_OF_INTEROP})")
        yield (f"umbrella: instructions to compile <{name}>",
               f"{over:.2f} empty files, more than {MOST_OF_INTEROP}" if over > MOST_OF_INTEROP else "")


def main():
    place = BUILD / "umbrella"
    place.mkdir(parents=True, exist_ok=True)
    empty, umbrella, recipe = (place / f"{name}.cu" for name in ("empty", "umbrella", "recipe"))
    empty.write_text("")
    umbrella.write_text("#include <weir/weir.hpp>\n")
    recipe.write_text(f"#include <{RECIPE}>\n")
    try:
        for each in (empty, umbrella, recipe):
            each.with_suffix(".cpp").write_text(each.read_text())
        none, all_of_it, one = (instructions(each.with_suffix(".cpp")) for each in (empty, umbrella, recipe))
        share, of_recipe = all_of_it / none - 1, (one / none - 1) / MOST_INSTRUCTIONS
        seconds(umbrella)
        pairs = [(seconds(empty), seconds(umbrella)) for _ in range(ROUNDS)]
        base, whole = (min(column) for column in zip(*pairs))
        plugs = list(interop(none))
    except RuntimeError as error:
        close_with([("umbrella: compiles under nvcc", str(error))])
    print(f"umbrella: {whole - base:.2f} s over an empty file (least of {ROUNDS}: empty {base:.2f} s, umbrella {whole:.2f} s; "
          f"aim {AIM_SECONDS} s)")
    print(f"umbrella: {(all_of_it - none) / 1e6:.0f} million instructions of g++ over an empty file's {none / 1e6:.0f} million")
    print(f"umbrella: <{RECIPE}> adds {of_recipe:.2f} of the {MOST_INSTRUCTIONS} empty files that the umbrella may add")
    complaint = f"{share:.2f} empty files, more than {MOST_INSTRUCTIONS}" if share > MOST_INSTRUCTIONS else ""
    dear = f"{of_recipe:.2f} of what the umbrella may add, more than {MOST_OF_A_RECIPE}" if of_recipe > MOST_OF_A_RECIPE else ""
    close_with([("umbrella: instructions to compile it", complaint), (f"umbrella: those of <{RECIPE}>", dear), *plugs])


if __name__ == "__main__":
    main()
