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
SIMULATED = ROOT / "tests/simulated_cuda/include"
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


def linkers(place, compiler, *flags):
    """Which of the linkers that are here link what this compiler makes with these flags."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "empty.cpp").write_text("int main() {}\n")
    return [linker for linker in ("bfd", "gold", "lld", "mold") if shutil.which(f"ld.{linker}") and run(
        [compiler, *flags, f"-fuse-ld={linker}", place / "empty.cpp", "-o", place / "empty"]).code == 0]


def agree(command, program=None):
    """Files of equal settings: they link without a word."""
    if said := step("link", command):
        raise Refused(f"{command} says:\n{said}")
    if program and "in use: 0" not in step("run", [program]):
        raise Refused(f"{command} links a program that does not end as it should")


def differ(command):
    """Files of unequal settings: they do not link, and what the linker says has the reason."""
    done = run(command, timeout=300)
    if done.code == 0 or "weir_files_differ_in_WEIR_GUARD" not in done.output:
        raise Refused(f"{command} ends with {done.code} and does not say that files differ in WEIR_GUARD:\n{tail(done.output)}")


def guards(compiler, *flags):
    """A debug file and an NDEBUG file that share a pool do not link: as objects, from an archive, as a shared library."""
    place = PLACE / "-".join(["guards", compiler, *flags]).replace("+", "p").replace("=", "-")
    shutil.rmtree(place, ignore_errors=True)
    main, equal, unequal, named = (compiled(compiler, HERE / "guard" / source, place / f"{name}.o", *flags, *defines)
                                   for name, source, defines in (("main", "main.cpp", []), ("equal", "pool.cpp", []),
                                                                 ("unequal", "pool.cpp", ["-DNDEBUG"]),
                                                                 ("named", "pool.cpp", ["-DNDEBUG", "-DWEIR_GUARD=1"])))
    there = linkers(place, compiler, *flags)
    if not there:
        raise Refused(f"no linker takes {compiler} {flags}")
    for linker in there:
        link = [compiler, *flags, f"-fuse-ld={linker}", "-o", place / "program"]
        agree([*link, main, equal, *simulated()], place / "program")
        differ([*link, main, unequal, *simulated()])
        if "-fPIC" not in flags: # optimized at the link, which takes its time
            continue
        agree([*link, main, named, *simulated()], place / "program")
        differ([*link, unequal, main, *simulated()])
        agree([*link, "-shared", main, equal])
        differ([*link, "-shared", main, unequal])
        for each in (equal, unequal):
            step("ar", ["ar", "rcs", each.with_suffix(".a"), each])
        agree([*link, main, equal.with_suffix(".a"), *simulated()], place / "program")
        differ([*link, main, unequal.with_suffix(".a"), *simulated()])
    return there


def compiled_by_nvcc(source, target, *flags):
    """Compiles one file of a user's as CUDA."""
    target.parent.mkdir(parents=True, exist_ok=True)
    step("nvcc", [*ccache(), "nvcc", "-x", "cu", "-std=c++17", "-arch=sm_90", f"-I{INCLUDE}", *flags, "-c", source, "-o", target])
    return target


def guards_under_nvcc():
    """The same where nvcc compiled one of the files."""
    place = PLACE / "guards-nvcc"
    main = compiled("g++", HERE / "guard/main.cpp", place / "main.o", "-O0")
    for judge, defines in ((agree, []), (differ, ["-DNDEBUG"])):
        pool = compiled_by_nvcc(HERE / "guard/pool.cpp", place / "pool.o", *defines)
        judge(["g++", main, pool, "-o", place / "program", *simulated()])


def shared_library(compiler, source, place, name, *flags, include=INCLUDE):
    """A shared library of one file, which shows nothing of weir's."""
    library = compiled(compiler, source, place / f"{name}.o", "-O0", "-fPIC", "-fvisibility=hidden", f"-DLIBRARY={name}", *flags,
                       include=include)
    made = library.with_name(f"lib{name}.so")
    step("link", [compiler, "-shared", library, "-o", made])
    if shown := [row.split()[-1] for row in step("nm", ["nm", "-D", "--defined-only", made]).splitlines() if "weir" in row]:
        raise Refused(f"{made.name} shows {shown[:5]}")
    return made


def runs_with(compiler, main, made):
    """What a program says with these libraries, linked in either order."""
    for order in (made, made[::-1]):
        step("link", [compiler, main, *order, f"-Wl,-rpath,{main.parent}", "-o", main.with_name("program"), *simulated()])
        yield step("run", [main.with_name("program")])


def two_commits(compiler):
    """Two shared libraries with weir inside, one of another commit, and a program of its own build: hidden, each is its own."""
    place = PLACE / f"commits-{compiler.replace('+', 'p')}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(INCLUDE, place / "include")
    for header, text, changed in (("pool/pool.hpp", "    pool_options options_;", "    char of_another_commit_[64] = {};\n    pool_options options_;"),
                                  ("placement/best_fit/free_ranges.hpp", "    size_lists lists_;", "    char of_another_commit_[64] = {};\n    size_lists lists_;"),
                                  ("resource/report_text.hpp", "return \"pool '\"", "return \"pool of another commit '\"")):
        path = place / "include/weir" / header
        if path.read_text().count(text) != 1:
            raise Refused(f"'{text}' is not once in {header}: change another line")
        path.write_text(path.read_text().replace(text, changed))
    made = [shared_library(compiler, HERE / "two_commits/library.cpp", place, "this_commit"),
            shared_library(compiler, HERE / "two_commits/library.cpp", place, "another_commit", "-DNDEBUG", include=place / "include")]
    main = compiled(compiler, HERE / "two_commits/main.cpp", place / "main.o", "-O0", "-DNDEBUG", "-fvisibility=hidden")
    for said in runs_with(compiler, main, made):
        reports = [row.split(":")[0] for row in said.splitlines()]
        if reports != ["pool 'inside' (host)", "pool of another commit 'inside' (host)", "pool 'program' (host)"] or "in use in 1" in said:
            raise Refused(said)


def two_options(compiler):
    """Two shared libraries with weir inside, built with different options, and a program: each follows its own options."""
    place = PLACE / f"options-{compiler.replace('+', 'p')}"
    shutil.rmtree(place, ignore_errors=True)
    made = [shared_library(compiler, HERE / "two_options/library.cpp", place, "debug"),
            shared_library(compiler, HERE / "two_options/library.cpp", place, "release", "-O2", "-DNDEBUG", "-std=c++20",
                           "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")]
    main = compiled(compiler, HERE / "two_options/main.cpp", place / "main.o", "-O1", "-DNDEBUG", "-fvisibility=hidden")
    due = ["debug: 1 wrong frees, 0 bytes in use, null is legacy", "debug: refused 2097152 bytes", "program: weir: out of memory: pool 'debug'",
           "release: 0 wrong frees, 0 bytes in use, null is per thread", "release: refused 2097152 bytes", "program: weir: out of memory: pool 'release'",
           "program: 0 bytes in use"]
    for said in runs_with(compiler, main, made):
        rows = said.splitlines()
        if len(rows) != len(due) or not all(row.startswith(words) for row, words in zip(rows, due)):
            raise Refused(said)


def fails(program, *sentences):
    """A program that ends with an error because of what was reported, which it says."""
    done = run(program)
    if done.code != 1 or any(each not in done.output for each in (*sentences, "; this program ends with an error")):
        raise Refused(f"{program} ends with {done.code} and does not say '{sentences}':\n{done.output}")


def launches_kernels(program):
    """kernel/main.cu: one kernel has a stand-in, one has none."""
    fails([program], "scaled: cudaSuccess, 2020202\n", "launched: cudaErrorNoKernelImageForDevice\n", "scale<int>(int*, int, int)",
          "launches the kernel 'fill(int*, int)', for which nothing stands in", "simulated device: 3 reports")


def kernel():
    """Kernels on the simulated device, with either default stream."""
    place = PLACE / "kernel"
    for null in ("legacy", "per-thread"):
        file = compiled_by_nvcc(HERE / "kernel/main.cu", place / f"{null}.o", f"--default-stream={null}", f"-I{SIMULATED}")
        step("link", ["g++", file, "-o", place / "program", *simulated()])
        launches_kernels(place / "program")


# In one partition: for several g++ starts make, and warns where there is none.
FLAGS = {"g++": [["-O0", "-fPIC"], ["-O1", "-flto", "-flto-partition=one"]], "clang++": [["-O2", "-fPIC"], ["-O1", "-flto=thin"]]}
WAYS = {f"both kinds of null, {each}": functools.partial(null_stream, each) for each in COMPILERS}
WAYS |= {f"unequal guards, {each} {' '.join(flags)}": functools.partial(guards, each, *flags) for each in COMPILERS for flags in FLAGS[each]}
WAYS |= {"unequal guards, nvcc": guards_under_nvcc, "a kernel on the simulated device": kernel} if shutil.which("nvcc") else {}
WAYS |= {f"two commits, {each}": functools.partial(two_commits, each) for each in COMPILERS}
WAYS |= {f"two options, {each}": functools.partial(two_options, each) for each in COMPILERS}
