# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What becomes of files that were compiled in different ways, once they are one program or one process? See run.py.

Each way compiles a project of this folder with plain commands, links it, in each order where that matters, and runs it.
"""

import functools
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
from programs import libraries
from workshop import BUILD, INCLUDE, ROOT, ccache, cuda_include, run, tail

HERE = pathlib.Path(__file__).resolve().parent
PLACE = BUILD / "consume"
COMPILERS = [each for each in ("g++", "clang++") if shutil.which(each)]


class Refused(Exception):
    """A step that failed, with what it said."""


def step(what, command, **more):
    """Runs one command or raises."""
    done = run(command, timeout=300, **more)
    if done.code != 0:
        raise Refused(f"{what} failed:\n{tail(done.output)}")
    return done.output


@functools.cache
def simulated():
    """What stands in CUDA's place at the link; built before the ways run side by side."""
    return [*libraries("simulated_cuda"), "-pthread", "-ldl"]


def compiled(compiler, source, target, *flags, include=INCLUDE):
    """Compiles one file of a user's."""
    target.parent.mkdir(parents=True, exist_ok=True)
    cuda = cuda_include()
    step(f"{compiler} {' '.join(flags)}", [*ccache(), compiler, "-std=c++17", *flags, f"-I{include}", f"-I{ROOT / 'tests'}", "-isystem", cuda,
                                           "-isystem", cuda / "cccl", "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP", "-c", source, "-o", target])
    return target


def null_stream(compiler):
    """A null stream means the default stream of the file that writes it, whichever file the linker sees first."""
    place = PLACE / f"null-{compiler.replace('+', 'p')}"
    for level in ("-O0", "-O2"):
        files = [compiled(compiler, HERE / "null_stream/file.cpp", place / f"{kind}{level}.o", level, *defines)
                 for kind, defines in (("legacy", []), ("per-thread", ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"]))]
        for order in (files, files[::-1]):
            step("link", [compiler, *order, "-o", place / "program", *simulated()])
            said = step("run", [place / "program"])
            if "null is what each file means by it" not in said:
                raise Refused(f"{compiler} {level}, {order[0].name} linked first:\n{said}")


WAYS = {f"both kinds of null, {each}": functools.partial(null_stream, each) for each in COMPILERS}
