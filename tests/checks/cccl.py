#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does what names CCCL compile with each of its versions, and work with the oldest and the newest?

usage: cccl.py [VERSION...]

The test of interop/cuda_mr is compiled with the headers of each version under build/cccl, which cmake/setup.sh fetches, and
with a toolkit's CUDA. With the oldest and the newest, it and the tests of Thrust are linked with the simulated device and run.
"""

import re
import sys

from programs import libraries
from workshop import BUILD, ROOT, WARNINGS, at_once, ccache, close_with, cuda_include, head, run

EVERYWHERE = ["cuda_mr"]
ENDS = ["thrust", "thrust/memory_resource"]
DEFINES = ["-DWEIR_SIMULATED_CUDA=1", "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP", "-include", "ostream"]


def main():
    found = {place.name: next(place.rglob("cuda/memory_resource")).parents[1]
             for place in (BUILD / "cccl").glob("*.*") if re.fullmatch(r"[0-9.]+", place.name)}
    versions = sorted(found, key=lambda version: [*map(int, version.split("."))])
    if unknown := [version for version in sys.argv[1:] if version not in found]:
        sys.exit(f"no CCCL {', '.join(unknown)} in build/cccl; there are: {', '.join(versions)}")
    linked = libraries("weir-test-main", "simulated_cuda")
    place = BUILD / "cccl" / "tests"
    place.mkdir(parents=True, exist_ok=True)
    ends = (versions[0], versions[-1])

    def judge(job):
        version, source = job
        name = f"cccl: {source}.cpp with CCCL {version}"
        target = place / f"{source.replace('/', '-')}-{version}"
        done = run([*ccache(), "g++", "-std=c++17", "-O0", *WARNINGS, *DEFINES, f"-I{ROOT / 'include'}", f"-I{ROOT / 'tests'}",
                    "-isystem", found[version], "-isystem", cuda_include(), "-c", ROOT / f"tests/interop/{source}.cpp",
                    "-o", f"{target}.o"], timeout=300)
        if done.code != 0:
            return name, f"does not compile:\n{head(done.output)}"
        if version not in ends:
            return name, ""
        done = run(["g++", "-o", target, f"{target}.o", *linked, "-pthread", "-ldl"], timeout=120)
        if done.code == 0:
            done = run([target, "--minimal"], timeout=300)
        return name, "" if done.code == 0 else head(done.output)

    close_with(at_once(judge, [(version, source) for version in sys.argv[1:] or versions
                               for source in (ENDS + EVERYWHERE if version in ends else EVERYWHERE)]))


if __name__ == "__main__":
    main()
