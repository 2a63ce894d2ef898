#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the stages of the tests, one line each, and adds them up. Called by tests/run.sh, which sets things up.

usage: stages.py [--all | --ci | --gpu] [--only STAGE[,STAGE...]] [--list | --needs | --lacking 'NEED...']
  --only     the named stages, whole; with --ci or --gpu in the form that they have there
  --needs    prints what the stages need, for weir_get of cmake/setup.sh
  --lacking  what of it is missing: the stages that need it fail at once, before any other runs

A stage is a command that closes with 'N passed, N failed'; its whole output goes to build/logs/STAGE.log, what it
measured (lines that begin with the name of a figure) and what failed comes here. Stages run one after another, each
on all cores; those that use one core come last, side by side.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

from workshop import BUILD, CLOSING, JOBS, ROOT

PY = sys.executable


# What each stage cannot do without beside Python and what every Debian has, in the words of cmake/setup.sh; what is
# there 'if-any' helps.
BUILDS = "g++ cmake ninja cuda ccache-if-any"
TESTS = f"{BUILDS} doctest zlib fmt-if-any json-if-any heaptrack_print-if-any memory-viz-if-any"
NEEDS = {
    "checks": "",
    "gcc": TESTS,
    "oldest": "g++ cmake ninja ccache-if-any doctest zlib oldest-cuda",
    "versions": "g++ ccache-if-any git-if-any each-cuda g++-11-if-any g++-12-if-any g++-13-if-any g++-14-if-any clang++-14-if-any "
                "newest-clang++-if-any",
    "clang": f"{TESTS} clang++",
    "asan": f"{TESTS} clang++ sanitizers",
    "tsan": f"{TESTS} clang++ sanitizers",
    "coverage": f"{BUILDS} doctest gcovr fmt-if-any",
    "headers": "g++ clang++ nvcc ccache-if-any git-if-any",
    "refuse": "g++ clang++ nvcc ccache-if-any",
    "bugs": f"{BUILDS} doctest git-if-any",
    "cccl": f"{BUILDS} doctest cccl",
    "consume": f"{BUILDS} nvcc doctest googletest-if-any pkg-config-if-any gdb-if-any conan-if-any "
               "git-if-any hatchling-if-any",
    "readme": f"{BUILDS} doctest",
    "benches": f"{BUILDS} benchmark zlib valgrind git-if-any",
    "peers": f"{BUILDS} benchmark zlib nvcc cccl rmm-if-any",
    "examples": f"{BUILDS} zlib cli11 json-if-any ncurses-if-any chromium-if-any",
    "lines": "g++ cuda",
    "python": "g++ cuda pybind11 hatchling-if-any",
    "umbrella": "g++ nvcc valgrind",
    "reference": "g++ cmake ninja cuda doxygen",
    "gpu": "g++ cmake ninja ccache-if-any doctest zlib-if-any fmt-if-any json-if-any nvcc gpu",
}


ONE_CORE = ("examples", "python", "umbrella")


class Stage:
    """A name, what it shows in a few words, its command, and what it needs."""

    def __init__(self, name, shows, command, sets=("all",)):
        self.name = name
        self.shows = shows
        self.command = command
        self.sets = sets
        self.needs = NEEDS[name].split()


STAGES = [
    Stage("checks", "rooms, mirrors, heads; and the checks see planted mistakes", [PY, "tests/checks/checks.py"], ("usual", "all", "ci", "gpu")),
    Stage("gcc", "the campaign, examples: g++ C++17 (the other tests: coverage)",
          [PY, "tests/checks/programs.py", "gcc", "simulation", "examples"], ("ci",)),
    Stage("gcc", "all tests, g++ C++17; campaigns and sweeps in short", [PY, "tests/checks/programs.py", "gcc", "--figures", "--short"],
          ("usual",)),
    Stage("gcc", "all tests, g++ C++17", [PY, "tests/checks/programs.py", "gcc", "--figures"]),
    Stage("oldest", "a quarter of what calls CUDA, with the headers of CUDA 12.8: g++ C++17",
          [PY, "tests/checks/programs.py", "oldest-cuda", "--part", "4",
           "driver", "graph", "order", "pool", "runtime", "simulated_cuda", "supply", "upstream"], ("ci",)),
    Stage("oldest", "all tests but Thrust's, with the headers of CUDA 12.8: g++ C++17",
          [PY, "tests/checks/programs.py", "oldest-cuda", "--without", "examples,interop"]),
    Stage("versions", "two of the combinations of CUDA, compiler and C++", [PY, "tests/checks/versions.py", "--part"], ("ci",)),
    Stage("versions", "each CUDA's headers, each compiler, each C++", [PY, "tests/checks/versions.py"]),
    Stage("clang", "all tests, clang++ C++20", [PY, "tests/checks/programs.py", "clang"]),
    Stage("asan", "a sixth of the tests, clang++ C++20, address and undefined sanitizers",
          [PY, "tests/checks/programs.py", "asan", "--part", "6"], ("ci",)),
    Stage("asan", "all tests, clang++ C++20, address and undefined sanitizers",
          [PY, "tests/checks/programs.py", "asan", "--figures"]),
    Stage("tsan", "a third of where threads meet, clang++ C++17, thread sanitizer",
          [PY, "tests/checks/programs.py", "tsan", "--threads", "--part", "3", "--without", "interleavings,interop"], ("ci",)),
    Stage("tsan", "all tests, clang++ C++17, thread sanitizer", [PY, "tests/checks/programs.py", "tsan"]),
    Stage("coverage", "every line of the host code reached", [PY, "tests/checks/coverage.py"], ("all", "ci")),
    Stage("headers", "each header alone: g++, clang++ or nvcc; C++17 or 20", [PY, "tests/headers/run.py", "--part"], ("ci",)),
    Stage("headers", "each header alone: g++, clang++, nvcc; C++17, 20", [PY, "tests/headers/run.py"]),
    Stage("refuse", "promised compile errors, accept and reject, one compiler a file", [PY, "tests/refuse/run.py", "--part"], ("ci",)),
    Stage("refuse", "promised compile errors, accept and reject", [PY, "tests/refuse/run.py"]),
    Stage("bugs", "a sixteenth of the planted bugs turn tests red", [PY, "tests/bugs/run.py", "--part", "16"], ("ci",)),
    Stage("bugs", "planted bugs turn tests red", [PY, "tests/bugs/run.py"]),
    Stage("cccl", "what names CCCL, with each of its versions; run: two of them", [PY, "tests/checks/cccl.py"], ("all", "ci")),
    Stage("consume", "users' projects take weir in", [PY, "tests/consume/run.py"], ("all", "ci")),
    Stage("readme", "README's and the guides' snippets print what they say", [PY, "tests/checks/readme.py"], ("usual", "all", "ci")),
    Stage("benches", "every bench runs, in short; instructions a pair", [PY, "tests/checks/benches.py"], ("all", "ci")),
    Stage("peers", "the benches for the GPU are built with every peer, not run", [PY, "tests/checks/peers.py"]),
    Stage("examples", "every example runs", [PY, "tests/checks/examples.py"], ("all", "ci")),
    Stage("lines", "what the umbrella and the core make a compiler read", [PY, "tests/checks/lines.py"], ("usual", "all", "ci")),
    Stage("python", "Python's plug-in, built and called as PyTorch does", [PY, "tests/python/run.py"], ("usual", "all", "ci")),
    Stage("umbrella", "what the umbrella costs to compile", [PY, "tests/checks/umbrella.py"], ("all", "ci")),
    Stage("reference", "the reference pages, without a warning", [PY, "tests/checks/reference.py"]),
    Stage("gpu", "all tests on the real device", [PY, "tests/checks/programs.py", "gpu"], ("gpu",)),
]


def chosen(options):
    """The stages that the command line asks for."""
    group = next((each for each in ("gpu", "ci", "all") if getattr(options, each)), "")
    if options.only is None:
        return [stage for stage in STAGES if (group or "usual") in stage.sets]
    known = {stage.name: stage for stage in STAGES if not group or group in stage.sets}  # the whole form comes last
    names = options.only.split(",")
    for name in names:
        if name not in known:
            sys.exit(f"no stage '{name}'{' of --' + group if group else ''}; there are: {', '.join(known)}")
    return [known[name] for name in names]


class Progress:
    """Shows on stderr how long a stage has been running and what its log said last: on a terminal in one line that moves, elsewhere
    in a line every ten seconds."""

    def __init__(self, label, log, out=sys.stderr, seconds=None, alone=True):
        self.label, self.log, self.out = label, log, out
        self.moves = alone and out.isatty()
        self.seconds = seconds if seconds is not None else 1 if self.moves else 10
        self.began = time.monotonic()

    def show(self):
        with open(self.log, errors="replace") as log:
            log.seek(max(0, os.path.getsize(self.log) - 2000))
            last = [line for line in log.read().splitlines() if line.strip()][-1:]
        text = f"{self.label} {time.monotonic() - self.began:.0f} s: {''.join(last)}"
        if self.moves:
            print(f"\r\033[K{text[:shutil.get_terminal_size().columns - 1]}", end="", file=self.out, flush=True)
        else:
            print(text, file=self.out, flush=True)

    def end(self):
        if self.moves:
            print("\r\033[K", end="", file=self.out, flush=True)


def watched(command, log, progress):
    """Runs a command whose output goes into a log: its exit status, and the processor's seconds."""
    with open(log, "w") as out, subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=subprocess.STDOUT) as child:
        shown = time.monotonic()
        while True:
            ended, status, used = os.wait4(child.pid, os.WNOHANG)
            if ended:
                child.returncode = os.waitstatus_to_exitcode(status)
                progress.end()
                return child.returncode, used.ru_utime + used.ru_stime
            if time.monotonic() - shown >= progress.seconds:
                progress.show()
                shown = time.monotonic()
            time.sleep(0.02)


def perform(stage, logs, missing, label, alone=True):
    """Runs one stage, unless something is missing: (passed, failed, wall seconds, processor seconds, output)."""
    if missing:
        return 0, 1, 0, 0, f"FAILED {stage.name} was not run: there is no {' and no '.join(missing)} here"
    began = time.monotonic()
    path = logs / f"{stage.name}.log"
    code, used = watched(stage.command, path, Progress(label, path, alone=alone))
    output = path.read_text(errors="replace")
    closing = CLOSING.findall(output)
    passed, failed = map(int, closing[-1]) if closing else (0, 0)
    if code != 0 and failed == 0 or not closing:
        failed = max(failed, 1)
    return passed, failed, time.monotonic() - began, used, output


def performed(stages, logs, missing):
    """(place in the list, stage, what 'perform' says) of each, as they end."""
    def one(number, alone=True):
        stage = stages[number - 1]
        return number, stage, perform(stage, logs, missing[stage], f"[{number:>2}/{len(stages)}] {stage.name}", alone)

    last = [number for number, stage in enumerate(stages, 1) if stage.name in ONE_CORE]
    for number in range(1, len(stages) + 1):
        if number not in last:
            yield one(number)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as crew:
        for done in concurrent.futures.as_completed([crew.submit(one, number, alone=False) for number in last]):
            yield done.result()


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    groups = parser.add_mutually_exclusive_group()
    for flag in ("--all", "--ci", "--gpu"):
        groups.add_argument(flag, action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--needs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--lacking", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        for stage in chosen(options):
            print(f"{stage.name:<10} {stage.shows}")
        return
    stages = chosen(options)
    if options.needs:
        print(*dict.fromkeys(need for stage in stages for need in stage.needs))
        return
    missing = {stage: [need for need in stage.needs if need in options.lacking.split()] for stage in stages}
    stages.sort(key=lambda stage: (not missing[stage], stage.name in ONE_CORE))
    logs = BUILD / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    all_passed = all_failed = all_used = 0
    began = time.monotonic()
    for number, stage, (passed, failed, seconds, used, output) in performed(stages, logs, missing):
        label = f"[{number:>2}/{len(stages)}] {stage.name:<9} {stage.shows:<60}"
        all_passed += passed
        all_failed += failed
        all_used += used
        print(f"{label} {passed:>5} passed {failed:>3} failed {seconds:>5.0f} s ({used:.0f} s cpu)", flush=True)
        for line in output.splitlines():
            if re.match(rf"{stage.name}: |left out: |instructions: ", line):
                print(f"        {line}")
        if failed:
            blocks = output[output.find("FAILED"):] if "FAILED" in output else output[-4000:]
            rows = [row for row in blocks.splitlines() if not CLOSING.match(row)]
            print("\n".join("        " + row for row in rows[:80]))
            if len(rows) > 80:
                print(f"        ... all of it in {os.path.relpath(logs / (stage.name + '.log'), ROOT)}")
            sys.stdout.flush()
    print(f"{len(stages)} stages in {(time.monotonic() - began) / 60:.1f} min ({all_used:.0f} s cpu)")
    print(f"{all_passed} passed, {all_failed} failed", flush=True)
    sys.exit(1 if all_failed or not all_passed else 0)


if __name__ == "__main__":
    main()
