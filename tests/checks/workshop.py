# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the checks share: where things are, how a command is run, how a stage closes.

Every script here can be run alone; its last line is 'N passed, N failed' and it exits non-zero if any failed.
Python's standard library only.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", ROOT / "build"))
INCLUDE = ROOT / "include"
NCCL = ROOT / "tests/support/nccl"  # the header of the stand-in for it
JOBS = int(os.environ.get("WEIR_JOBS", "0")) or len(os.sched_getaffinity(0))

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror"]
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)


def headers():
    """Every header of the library, as 'folder/stem.hpp', sorted."""
    top = INCLUDE / "weir"
    return sorted(p.relative_to(top).as_posix() for p in top.rglob("*") if p.suffix in (".hpp", ".cuh"))


def cuda_include():
    """The folder of cuda_runtime_api.h."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), pathlib.Path(nvcc).resolve().parents[1] if nvcc else None, "/usr/local/cuda"]
    for place in places:
        if place and (pathlib.Path(place) / "include/cuda_runtime_api.h").exists():
            return pathlib.Path(place) / "include"
    raise SystemExit("no cuda_runtime_api.h: run 'sh tests/run.sh', which fetches it, or set CUDA_HOME")


def include_flags(*first):
    """-I for weir (after the folders in 'first') and -isystem for CUDA, CCCL and the stand-in for NCCL."""
    cuda = cuda_include()
    flags = [f"-I{place}" for place in first] + [f"-I{INCLUDE}"]
    for place in (cuda, cuda / "cccl", NCCL):
        flags += ["-isystem", str(place)]
    return flags


def ccache():
    """['ccache'] where there is one."""
    return ["ccache"] if shutil.which("ccache") else []


class Ran:
    """A finished command: 'code' (None: it ran out of time), 'output' (both streams)."""

    def __init__(self, code, output):
        self.code = code
        self.output = output


SAYS = [time.monotonic()]  # when this script last said how far it is


def say(text):
    """Prints how far this script is, unless it did so within ten seconds: what shows it to whoever waits is stages.py."""
    if time.monotonic() >= SAYS[0] + 10:
        SAYS[0] = time.monotonic()
        print(text, flush=True)


def follow(child, timeout):
    """What a command printed, at its end or its time limit; says meanwhile how far ninja is."""
    late = threading.Timer(timeout, os.killpg, (child.pid, signal.SIGKILL))
    late.start()
    lines = []
    for line in child.stdout:
        lines.append(line)
        if re.match(r"\[\d+/\d+\] ", line):
            say(line.rstrip())
    in_time = late.is_alive()
    late.cancel()
    return Ran(child.wait() if in_time else None, "".join(lines) + ("" if in_time else f"\n(ended after {timeout} s)"))


def run(command, timeout=600, cwd=None, env=None, out=None):
    """Runs a command to its end or its time limit, and ends its children too. out: stdout goes there instead."""
    try:
        child = subprocess.Popen([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, env=env,
                                 stdout=out or subprocess.PIPE, stderr=subprocess.PIPE if out else subprocess.STDOUT,
                                 text=True, errors="replace", start_new_session=True)
    except FileNotFoundError as error:
        return Ran(127, f"there is no '{error.filename}' here; 'sh tests/run.sh' installs what the tests need")
    if command[0] == "cmake" and out is None:
        return follow(child, timeout)
    try:
        output, errors = child.communicate(timeout=timeout)
        return Ran(child.returncode, (output or "") + (errors or ""))
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, errors = child.communicate()
        return Ran(None, (output or "") + (errors or "") + f"\n(ended after {timeout} s)")


def at_once(function, items, workers=JOBS):
    """Results of function(item) in the order of the items, 'workers' at a time; says how many are done."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=workers) as crew:
        for result in crew.map(function, items):
            results.append(result)
            say(f"{len(results)} of {len(items)}")
    return results


def turn(parts):
    """Which of so many parts is due: as a commit's name falls, so that each comes up sooner or later."""
    if parts == 1 or not shutil.which("git"):
        return 0
    done = run(["git", "-c", "safe.directory=*", "rev-parse", "HEAD"], cwd=ROOT)  # whoever owns the clone
    return int(done.output, 16) % parts if done.code == 0 else 0


def tail(text, lines=40):
    """The end of a long text."""
    rows = text.rstrip().splitlines()
    return "\n".join((["..."] if len(rows) > lines else []) + rows[-lines:])


def head(text, lines=25):
    """The beginning of a long text."""
    rows = text.rstrip().splitlines()
    return "\n".join(rows[:lines] + (["..."] if len(rows) > lines else []))


def close(passed, failed):
    """The closing line, and the end of the script."""
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed or not passed else 0)


def close_with(results):
    """The same for (name, complaint) pairs, where an empty complaint is a pass; complaints are printed."""
    failed = [(name, complaint) for name, complaint in results if complaint]
    for name, complaint in failed:
        print(f"FAILED {name}\n{complaint}\n")
    close(len(results) - len(failed), len(failed))
