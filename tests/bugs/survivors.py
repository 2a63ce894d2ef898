#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which test cases does a wrong pool pass? Plants one and runs every test case of pools alone.

usage: survivors.py [--list] [NAME...]
  NAME    a bug of tests/bugs; without one, those of MAY_SURVIVE
  --list  prints every survivor, also those that may be

A survivor is a test case that stays green although the planted code did what is wrong while it ran (did_wrong.hpp): one
that passes with a pool that refuses everything asks for nothing that a pool is for. MAY_SURVIVE says of which this is
right, and why; any other fails this script, and so does a pattern that no survivor matches. It builds most tests again for
each bug, five minutes of processor time or more, so it is run by hand, where tests of pools were added.
"""

import argparse
import fnmatch
import os
import pathlib
import sys

from run import HERE, compiled, plant
from programs import libraries
from workshop import BUILD, ROOT, at_once, close_with, head, run

FOLDERS = ["pool", "contract", "reuse", "layer", "container", "interop", "simulation", "interleavings", "examples"]
TIME_LIMIT = 60  # seconds for a test case; a wrong pool may never end one
# Bug, reason: patterns of 'program: test case'.
MAY_SURVIVE = {
    "pool/wrong_pool_refuses": {
        "its subject is what is refused, and in which words": [
            "*: an empty rule has nothing<*", "*: bad input gives sentences, and nothing is lost",
            "*: says what to do where managed memory is out", "*: what is refused is named as CUDA was asked for it*",
        ],
    },
    "pool/wrong_pool_never_reuses": {
        "says what nobody may have yet; the cases beside it say that it is had afterwards": [
            "*: work may still use what a stream-ordered pool takes back<*", "*: a use on a second stream is waited for<*",
            "*: a block that another stream frees is ordered before it is free",
            "*: a block that two streams use is handed to*", "*: a block that a second stream uses<*",
            "*: a second use keeps the block<*", "*: what a captured stream frees is not handed out*",
            "*: a block that another stream uses is not handed out*", "*: a free on a stream of an old handle*",
            "*: a stock goes back where it came from*", "*: a stream that bears the handle of a destroyed one*",
            "*: rung 3 comes before 4*",
        ],
        "any bytes will do: it counts blocks or looks at what they hold": [
            "*: blocks are disjoint, keep their bytes*", "*: random use follows a model<*", "*: threads share a * that *",
            "*: without a stream, memory is there at once*arena*",
            "*: random histories over each pool<*", "*: a device container's life over each pool<*",
            "*: one call that fails as it ends*", "*: whatever it does, the capture of another stream lives on",
            "*: lives in memory that is open to one device*", "*: grows and is made on its default stream*",
            "*: a default stream is the device's*", "*: the default streams *", "*: device_pool survives streams*",
            "*: node_pool hands out*", "*: two threads share a stream<*",
            "*: two streams want small blocks of the last slab*",
            "*: an allocation that finds no room reads the pool's state*", "*: frees that were none do not end it",
            "*: real threads<*", "*: a seed says everything", "*: events are made once and used again",
        ],
        "its subject is what goes back to the upstream or the pool, or 'settle', after which anyone has it": [
            "*: settle and trim give everything back<*", "*: with nothing handed out trim gives everything back*",
            "*: one thread settles and trims*", "*: a trim while a stream is captured*",
            "*: suspends and resumes with the mutex*", "*: every CUDA call of *",
            "*: 'settle' waits for the uses of what came back*", "*: memory of no device is waited for*",
            "*: a thread that waits at the limit*",
        ],
        "its subject is what is refused, or how much is asked of the upstream": [
            "*: what cannot be is out_of_memory*", "*: a limit holds<*slab*", "*: a limit holds<*fallback*",
            "*: null may be captured, and is refused then<*", "*: a promised pool that has no block at hand asks*",
            "*: an allocation on a captured stream is refused*", "*: one chunk makes room for the block*",
            "*: where the upstream has no room for a step*", "*: whatever call fails*",
        ],
        "replays of a pool are figures to compare; 'holds little more than the trace' looks at them": [
            "*: replay: driver calls are *", "*: replay: every pool replays*", "*: replay: timed passes*",
            "*: replay: under a limit*",
        ],
        "graph memory goes back whole: what becomes of it is the pool's": [
            "*graph_memory: a block of any*", "*graph_memory: a block of the*", "*graph_memory: a block that another*",
            "*graph_memory: a handler is not*", "*graph_memory: a large block of*", "*graph_memory: a pool without room*",
            "*graph_memory: after a release the*", "*graph_memory: an allocation that the*",
            "*graph_memory: containers live in it*", "*graph_memory: it goes back by itself capture*",
            "*graph_memory: it goes back by itself when*", "*graph_memory: its end waits for*",
            "*graph_memory: its pool's failure handler*", "*graph_memory: other streams and other*",
            "*graph_memory: what was released on*", "*graph_memory: whatever call fails, nothing*",
            "*graph_memory: whatever one call fails*", "*graph_memory: where a graph could*",
            "*graph_memory: where the device does*",
        ],
    },
    "pool/wrong_pool_never_frees": {
        "its subject is what is refused, or how much is asked of the upstream": [
            "*: a captured copy between devices needs memory that both reach*",
            "*: a stream that is captured uses no container*", "*: a copy from what a graph works with*",
            "*: nobody is asked *", "*: a handler is not asked*", "*: its pool's failure handler may ask it to go back",
            "*: a block that the placement has not says so", "*: a chunk that the placement cannot take*",
            "*: below its limit by less than a step*", "*: sizes that cannot be are refused*",
            "*: what the upstream throws passes through*", "*: where the upstream has no room for a step*",
            "*: a captured stream is refused*", "*: a thread's default stream may be captured",
        ],
        "its subject is the end of the pool, which takes all blocks along": [
            "*: its end waits for the graph's work*", "*: every CUDA call of its end*", "*: one that ends w*",
            "*: a pool that ends waits*", "*: once the device is lost*",
        ],
        "blocks are there to be used, or to be told from none": [
            "*: containers take null", "*: is on the device that was current*", "*: what a placement does not tell*",
            "*: more frees than blocks count nothing*", "*: a seed says everything", "*: replay: driver calls are *",
        ],
    },
}


def sources_of():
    """{program: its sources}, as tests/CMakeLists.txt has them."""
    programs = {}
    for folder in FOLDERS:
        for source in sorted((ROOT / "tests" / folder).glob("*.cpp")):
            kind = next((mark for mark in ("ndebug", "ptds") if f".{mark}." in source.name), "")
            programs.setdefault(f"{folder}-{kind}".strip("-"), []).append(source)
    programs["examples"] += [part for part in sorted((ROOT / "examples/replay").glob("*.cpp")) if part.name != "main.cpp"]
    return programs


def build(place):
    """The programs with the headers planted under 'place'; ends this script where one cannot be built."""
    programs = sources_of()
    jobs = [(name, source, place / name / f"{source.stem}.o") for name, sources in programs.items() for source in sources]
    for name in programs:
        (place / name).mkdir(parents=True, exist_ok=True)
    examples = [f'-DWEIR_EXAMPLES_DIR="{ROOT / "examples"}"', f"-I{ROOT / 'examples'}"]
    done = at_once(lambda job: compiled(job[1], job[2], place, examples if job[0] == "examples" else ()), jobs)
    for job, each in zip(jobs, done):
        if each.code != 0:
            raise SystemExit(f"FAILED {job[1]} does not compile:\n{head(each.output)}\n0 passed, 1 failed")
    archives = libraries("weir-test-main", "simulated_cuda")
    for name in programs:
        objects = [job[2] for job in jobs if job[0] == name]
        linked = run(["g++", "-o", place / name / "program", *objects, *archives, "-pthread", "-ldl", "-lz"], timeout=120)
        if linked.code != 0:
            raise SystemExit(f"FAILED {name} does not link:\n{head(linked.output)}\n0 passed, 1 failed")
    return list(programs)


def cases_of(program):
    """The names of a program's test cases, in the order of '--first' and '--last'."""
    listed = run([program, "--list-test-cases", "--order-by=file", "--no-colors"]).output.splitlines()
    rules = [number for number, line in enumerate(listed) if line.startswith("=====")]
    return listed[rules[0] + 1:rules[-1]]


def judged(place, name, number, case):
    """('red', 'untouched' or 'green', 'program: test case')."""
    mark = place / name / f"did-wrong-{number}"
    mark.unlink(missing_ok=True)
    done = run([place / name / "program", f"--first={number}", f"--last={number}", "--order-by=file", "--minimal",
                "--abort-after=1"], timeout=TIME_LIMIT, cwd=ROOT,
               env={**os.environ, "WEIR_QUICK": "1", "WEIR_DID_WRONG": str(mark)})
    (place / name / f"output-{number}").write_text(f"{case}\n{done.output}")
    return "red" if done.code != 0 else "green" if mark.exists() else "untouched", f"{name}: {case}"


def survivors(bug, lists):
    """[(name, complaint)] of one planted bug."""
    place = BUILD / "survivors" / bug
    if complaint := plant((HERE / f"{bug}.bug").read_text(), place):
        return [(bug, complaint)]
    jobs = [(place, name, number, case) for name in build(place)
            for number, case in enumerate(cases_of(place / name / "program"), 1)]
    verdicts = at_once(lambda job: judged(*job), jobs)
    (place / "verdicts").write_text("".join(f"{verdict} {case}\n" for verdict, case in verdicts))
    green = [case for verdict, case in verdicts if verdict == "green"]
    may = {pattern: reason for reason, patterns in MAY_SURVIVE.get(bug, {}).items() for pattern in patterns}
    results = []
    for case in green:
        reasons = [reason for pattern, reason in may.items() if fnmatch.fnmatchcase(case, pattern)]
        results.append((case, "" if reasons else f"stays green under {bug}: require what such a pool does not do"))
        if lists:
            print(f"    {case}" + "".join(f" ({reason})" for reason in reasons))
    results += [(pattern, f"matches no survivor of {bug}: drop it") for pattern in may if not fnmatch.filter(green, pattern)]
    untouched = sum(verdict == "untouched" for verdict, _ in verdicts)
    print(f"{bug}: of {len(verdicts)} cases {len(verdicts) - untouched - len(green)} red, {len(green)} green, and {untouched} "
          "in which nothing went wrong", flush=True)
    return results + [(bug, "" if len(green) < len(verdicts) else "no case is red")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    bugs = options.names or list(MAY_SURVIVE)
    close_with([result for bug in bugs for result in survivors(bug, options.list)])


if __name__ == "__main__":
    main()
