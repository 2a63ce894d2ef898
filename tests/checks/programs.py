#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the test programs of one preset and runs them.

usage: programs.py PRESET [--figures] [--short] [--threads] [--part K] [--without PROGRAM,...] [PROGRAM...]

All of them, or the named ones: a program has the name of its folder of tests/. Prints a line a program, adds up
doctest's cases, and closes with 'N passed, N failed'.
  --figures  fails unless there are as many cases and assertions as the project promises
  --short    sets WEIR_QUICK: campaigns and sweeps run in short
  --threads  only the files of tests in which threads are started
  --part K   every K-th program, others at another commit
"""

import argparse
import json
import os
import re
import sys
import time

from workshop import BUILD, JOBS, ROOT, at_once, close, run, tail, turn

LEAST_CASES = 400
LEAST_ASSERTIONS = 100_000
FILLS = "fills the card"  # the suite of the cases that ask for more than a device has, or look how much is free
ON_A_GPU = ("gpu",)  # presets
LONGEST = ["interleavings", "faults", "simulation", "pool", "driver", "supply", "contract", "reuse", "examples"]
TIME_LIMIT = 900  # seconds for one program
SUMMARY = re.compile(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed(?: \|\s*(\d+) skipped)?")
ASSERTIONS = re.compile(r"assertions:\s*(\d+)")


def configure(preset, extra=()):
    """Configures one preset; returns a complaint or ''."""
    done = run(["cmake", "--preset", preset, "-B", BUILD / preset, *extra], cwd=ROOT, timeout=300)
    return "" if done.code == 0 else f"cmake --preset {preset} failed:\n{tail(done.output)}"


def build(preset, extra=(), targets=()):
    """Configures and builds one preset, or some of its targets; returns a complaint or ''."""
    if complaint := configure(preset, extra):
        return complaint
    folder = BUILD / preset
    wanted = ["--target", *targets] if targets else []
    done = run(["cmake", "--build", folder, "-j", JOBS, *wanted, "--", "-k", "0"], cwd=ROOT, timeout=2400)
    (folder / "build.log").write_text(done.output)
    if done.code != 0:
        failed = re.findall(r"^FAILED: (\S+)", done.output, flags=re.M)
        errors = [line for line in done.output.splitlines() if re.search(r"(error:|undefined reference|multiple definition)", line)]
        return f"the build of '{preset}' failed at {failed}:\n" + "\n".join(errors[:30] or [tail(done.output)])
    return ""


def libraries(*targets):
    """Builds these static libraries with the preset 'gcc': their paths."""
    if complaint := build("gcc", targets=targets):
        raise SystemExit(f"FAILED {complaint}\n0 passed, 1 failed")
    return [path for target in targets for path in (BUILD / "gcc").rglob(f"lib{target}*.a")]


def programs(preset):
    """The names of a preset's test programs, which is configured; those that run longest first, so that nothing waits for
    them in the end."""
    done = run(["ctest", "--test-dir", BUILD / preset, "--show-only=json-v1"])
    names = [test["name"] for test in json.loads(done.output)["tests"]] if done.code == 0 else []
    return sorted(names, key=lambda name: (LONGEST.index(name) if name in LONGEST else len(LONGEST), name))


def settings(preset):
    """The environment of a test program."""
    env = dict(os.environ)
    env.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    env.setdefault("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1")
    return env


def execute(preset, name, *which):
    """Runs one program, or which of its cases: (passed, failed, assertions, line, complaint)."""
    program = BUILD / preset / "tests" / name
    if not program.exists():
        return 0, 1, 0, f"    {name:<24}not built", f"{name} was not built"
    began = time.monotonic()
    done = run([program, "--duration=false", *which], cwd=ROOT, timeout=TIME_LIMIT, env=settings(preset))
    took = time.monotonic() - began
    with open(BUILD / preset / f"{name}.log", "a") as log:
        log.write(done.output)
    summary = SUMMARY.search(done.output)
    passed, failed = (int(summary.group(2)), int(summary.group(3))) if summary else (0, 0)
    assertions = int(ASSERTIONS.search(done.output).group(1)) if ASSERTIONS.search(done.output) else 0
    complaint = ""
    if done.code != 0 or not summary:
        failed = max(failed, 1)
        how = "ran out of time" if done.code is None else f"exit {done.code}"
        complaint = f"{name} ({how}):\n{tail(done.output, 60)}"
    line = f"    {name:<24}{passed:>5} passed{failed:>5} failed{assertions:>10} assertions{took:>8.1f} s"
    return passed, failed, assertions, line, complaint


def execute_all(preset, names, figures=False):
    """Runs programs of a preset and prints what came out: (passed, failed). Programs run side by side; on a GPU, which they
    share, those of their cases that fill it run alone."""
    for name in names:
        (BUILD / preset / f"{name}.log").unlink(missing_ok=True)
    if preset in ON_A_GPU:
        results = at_once(lambda name: execute(preset, name, f"--test-suite-exclude={FILLS}"), names)
        alone = [execute(preset, name, f"--test-suite={FILLS}") for name in names if (BUILD / preset / "tests" / name).exists()]
        results += [result for result in alone if result[0] or result[1]]
    else:
        results = at_once(lambda name: execute(preset, name), names)
    passed = sum(result[0] for result in results)
    failed = sum(result[1] for result in results)
    assertions = sum(result[2] for result in results)
    for result in sorted(results, key=lambda result: result[3]):
        print(result[3])
    for result in results:
        if result[4]:
            print(f"FAILED {result[4]}\n")
    print(f"{preset}: {passed} cases, {assertions} assertions in {len(results)} programs")
    if figures and (passed < LEAST_CASES or assertions < LEAST_ASSERTIONS):
        print(f"FAILED {LEAST_CASES} cases and {LEAST_ASSERTIONS} assertions are due\n")
        failed += 1
    return passed, failed


def asked(arguments):
    """What a command line asks for; SystemExit if it cannot be read."""
    parser = argparse.ArgumentParser(prog="programs.py")
    parser.add_argument("preset")
    for flag in ("--figures", "--short", "--threads"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--without", default="")
    parser.add_argument("programs", nargs="*")
    return parser.parse_intermixed_args(arguments)


def main():
    options = asked(sys.argv[1:])
    if options.short:
        os.environ["WEIR_QUICK"] = "1"
    extra = [f"-DWEIR_THREADS_ONLY={'ON' if options.threads else 'OFF'}"]
    complaint = configure(options.preset, extra)
    names = [] if complaint else programs(options.preset)
    if not names and not complaint:
        complaint = f"{options.preset} has no test programs: see what CMake left out, and why"
    unknown = {*options.programs, *filter(None, options.without.split(","))} - {*names}
    if unknown and not complaint:
        complaint = f"{options.preset} has no program {', '.join(sorted(unknown))}; there are: {', '.join(names)}"
    some = [name for name in names if name not in options.without.split(",") and name in (options.programs or names)]
    due = turn(options.part)
    some = [name for number, name in enumerate(some) if number % options.part == due]
    if not complaint:
        complaint = build(options.preset, extra, targets=[f"test-{name}" for name in some] if some != names else ())
    if complaint:
        print(f"FAILED {complaint}\n")
    passed, failed = execute_all(options.preset, some, options.figures)
    close(passed, failed + (1 if complaint else 0))


if __name__ == "__main__":
    main()
