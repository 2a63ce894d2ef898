#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many instructions do a pair of allocation and free take, PyTorch's own and weir's?

usage: pair_instructions.py PYTHON

PYTHON is an interpreter that has PyTorch. Counted by valgrind's callgrind on the simulated device, whose own instructions are left
out: what a call of CUDA's takes is no matter of an allocator's, how many it makes is said beside. A minute.
"""

import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "checks")]
from run import FOLDER, ROOT, SIMULATED, simulated_device  # noqa: E402
from with_torch import silent_driver, with_simulated_device  # noqa: E402
from workshop import cuda_include, run, tail  # noqa: E402

PAIRS = 10000


def need(done):
    if done.code != 0:
        raise SystemExit(tail(done.output))
    return done.output


def figures(program, out, words):
    """Instructions of a pair without CUDA's, and calls of CUDA's."""
    os.environ["LD_LIBRARY_PATH"] = str(FOLDER / "silent_driver")
    need(run(["valgrind", "--tool=callgrind", "--toggle-collect=counted_pairs", f"--callgrind-out-file={out}", program, PAIRS,
              *words], env={**os.environ, "LD_PRELOAD": str(SIMULATED)}))
    total, inside, calls, current, ours, called = 0, 0, 0, False, None, ""
    names = {}

    def name_of(line):
        """'fn=(12) name' at first, and 'fn=(12)' from then on."""
        kind, number, name = re.match(r"c?(\w+)=\((\d+)\)(?: (.*))?", line).groups()
        if name:
            names[kind, number] = name
        return names[kind, number]

    lines = iter(out.read_text().splitlines())
    for line in lines:
        if line.startswith("ob="):
            current = name_of(line) == str(SIMULATED)
        elif line.startswith("cob="):
            ours = name_of(line) == str(SIMULATED)
        elif line.startswith(("fn=", "cfn=")):
            called = name_of(line)
        elif line.startswith("calls="):
            cost = int(next(lines).split()[1])
            callee = current if ours is None else ours
            if callee and not current and not called.startswith("pthread_"):  # it has locks of its own between
                inside, calls = inside + cost, calls + int(line[6:].split()[0])
            ours = None
        elif line.startswith(("totals:", "summary:")):
            total = int(line.split()[1])
    return (total - inside) / PAIRS, calls / PAIRS


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    python, folder = sys.argv[1], FOLDER / "pairs"
    folder.mkdir(parents=True, exist_ok=True)
    complaint = ("" if SIMULATED.exists() else simulated_device()) or silent_driver(python)
    if complaint:
        raise SystemExit(complaint)
    plugin = need(with_simulated_device([python, "-m", "weir_torch", "build"])).splitlines()[-1]
    version, top = need(run([python, "-c", "import torch; print(torch.__version__); print(torch.__path__[0])"])).split()[-2:]
    program = folder / "pair_instructions"
    need(run(["g++", "-std=c++20", "-O2", f"-I{ROOT / 'tests/simulated_cuda/include'}", f"-I{ROOT / 'include'}", "-isystem",
              cuda_include(), "-isystem", f"{top}/include", HERE / "pair_instructions.cpp", SIMULATED, f"-L{top}/lib", "-lc10_cuda",
              "-lc10", "-ldl", f"-Wl,-rpath,{top}/lib:{SIMULATED.parent}", "-o", program]))
    for bytes_ in (512, 4 << 20):
        for name, words in (("PyTorch's own", []), ("weir's", [plugin, version])):
            count, calls = figures(program, folder / "callgrind.out", [bytes_, *words])
            print(f"{bytes_:>8} B  {name:<14}{count:8,.0f} instructions, {calls:.0f} calls of CUDA's", flush=True)


if __name__ == "__main__":
    main()
