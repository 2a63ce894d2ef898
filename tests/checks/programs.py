#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the test programs of one preset and runs them.

usage: programs.py PRESET [--figures] [FOLDER...]

Prints a line a program, adds up doctest's cases, and closes with 'N passed, N failed'. --figures: fails unless
there are as many cases and assertions as the project promises.
"""

import argparse
import os
import re
import time

from workshop import BUILD, JOBS, ROOT, at_once, close, run, tail

LEAST_CASES = 400
LEAST_ASSERTIONS = 100_000
LONGEST = ["interleavings", "faults", "simulation", "runtime", "examples"]
TIME_LIMIT = 900  # seconds for one program
SUMMARY = re.compile(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed(?: \|\s*(\d+) skipped)?")
ASSERTIONS = re.compile(r"assertions:\s*(\d+)")


def build(preset, extra=()):
    """Configures and builds one preset; returns a complaint or ''."""
    folder = BUILD / preset
    done = run(["cmake", "--preset", preset, "-B", folder, *extra], cwd=ROOT, timeout=300)
    if done.code != 0:
        return f"cmake --preset {preset} failed:\n{tail(done.output)}"
    done = run(["cmake", "--build", folder, "-j", JOBS, "--", "-k", "0"], cwd=ROOT, timeout=2400)
    (folder / "build.log").write_text(done.output)
    if done.code != 0:
        failed = re.findall(r"^FAILED: (\S+)", done.output, flags=re.M)
        errors = [line for line in done.output.splitlines() if re.search(r"(error:|undefined reference|multiple definition)", line)]
        return f"the build of '{preset}' failed at {failed}:\n" + "\n".join(errors[:30] or [tail(done.output)])
    return ""


def libraries(*targets):
    """Builds these static libraries with the preset 'gcc': their paths."""
    folder = BUILD / "gcc"
    for command in (["cmake", "--preset", "gcc", "-B", folder], ["cmake", "--build", folder, "--target", *targets]):
        done = run(command, cwd=ROOT, timeout=600)
        if done.code != 0:
            raise SystemExit(f"FAILED {' and '.join(targets)} do not build:\n{tail(done.output)}\n0 passed, 1 failed")
    return [path for target in targets for path in folder.rglob(f"lib{target}*.a")]


def programs(preset, folders):
    """The test programs of a preset, those that run longest first, so that nothing waits for them in the end."""
    places = [p for p in (BUILD / preset / "tests").rglob("*")
              if p.is_file() and os.access(p, os.X_OK) and p.suffix == "" and "CMakeFiles" not in p.parts]
    places.sort(key=lambda place: (LONGEST.index(place.name) if place.name in LONGEST else len(LONGEST), place.name))
    return [p for p in places if not folders or p.name in folders]


def settings(preset):
    """The environment of a test program."""
    env = dict(os.environ)
    env.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    env.setdefault("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1")
    return env


def execute(preset, program):
    """Runs one program: (passed, failed, assertions, line, complaint)."""
    began = time.monotonic()
    done = run([program, "--duration=false"], cwd=ROOT, timeout=TIME_LIMIT, env=settings(preset))
    took = time.monotonic() - began
    (BUILD / preset / f"{program.name}.log").write_text(done.output)
    summary = SUMMARY.search(done.output)
    passed, failed = (int(summary.group(2)), int(summary.group(3))) if summary else (0, 0)
    assertions = int(ASSERTIONS.search(done.output).group(1)) if ASSERTIONS.search(done.output) else 0
    complaint = ""
    if done.code != 0 or not summary:
        failed = max(failed, 1)
        how = "ran out of time" if done.code is None else f"exit {done.code}"
        complaint = f"{program.name} ({how}):\n{tail(done.output, 60)}"
    line = f"    {program.name:<24}{passed:>5} passed{failed:>5} failed{assertions:>10} assertions{took:>8.1f} s"
    return passed, failed, assertions, line, complaint


def execute_all(preset, folders=(), figures=False):
    """Runs the programs of a preset and prints what came out: (passed, failed)."""
    results = at_once(lambda program: execute(preset, program), programs(preset, folders))
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("preset")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("folders", nargs="*")
    options = parser.parse_args()
    complaint = build(options.preset)
    if complaint:
        print(f"FAILED {complaint}\n")
    passed, failed = execute_all(options.preset, options.folders, options.figures)
    close(passed, failed + (1 if complaint else 0))


if __name__ == "__main__":
    main()
