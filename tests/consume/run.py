#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Can a user's project take weir in, each way that the README names?

usage: run.py [WAY...]

add_subdirectory, FetchContent (from a local folder), find_package after an install, pkg-config, one
header made of all, what a release has for Conan (where pip has it) and others (released.py), and a bare -I with no build system (and, configured only, a project in CUDA alone, and one whose language is
a sibling's); each builds main.cpp and other.cpp, two translation units, links the CUDA runtime and runs. And with only CUDA's headers on the machine the project
still configures and compiles. A consumer gets none of weir's tests, warnings or downloads, and of what weir cannot be or do
a sentence. A user's tests take the simulated device in, in C++ and in CUDA. Then (linking.py) projects whose files were compiled in different ways.
"""

import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
import released
from linking import HERE, PLACE, Refused, WAYS, fails, launches_kernels, simulated, step
from workshop import INCLUDE, ROOT, at_once, ccache, close_with, cuda_include, run, tail


def with_cmake(way, *settings, build=None):
    """Configures, builds and runs the project of one folder."""
    build = PLACE / (build or way)
    shutil.rmtree(build, ignore_errors=True)
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={word}" for word in ccache()]
    said = step("configure", ["cmake", "-G", "Ninja", "-S", HERE / way, "-B", build, f"-DWEIR={ROOT}",
                              "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_CXX_COMPILER=g++", *launcher, *settings])
    commands = (build / "compile_commands.json").read_text()
    if "-Wconversion" in commands or "doctest" in said or commands.count('"command"') != 2:
        raise Refused("the consumer got weir's own warnings, tests or sources:\n" + commands)
    if way != "find_package" and f"-isystem {INCLUDE}" not in commands:
        raise Refused("the consumer's own warnings are for weir's headers too:\n" + commands)
    step("build", ["cmake", "--build", build, "-j", "1"])
    if "consumed" not in step("run", [build / "consumer"]):
        raise Refused("the program did not end as it should")


def asks(lines, sentence, *settings):
    """Configures a project of these lines, which is to fail with that sentence."""
    PLACE.mkdir(parents=True, exist_ok=True)
    project = pathlib.Path(tempfile.mkdtemp(dir=PLACE, prefix="asks-"))
    (project / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.22)\nproject(asks LANGUAGES CXX)\n{lines}\n")
    done = run(["cmake", "-G", "Ninja", "-S", project, "-B", project / "build", "-DCMAKE_CXX_COMPILER=g++", *settings], timeout=300)
    shutil.rmtree(project, ignore_errors=True)
    if done.code == 0 or sentence not in " ".join(done.output.split()):
        raise Refused(f"'{lines}' with {settings} says nothing of '{sentence}':\n{tail(done.output)}")


def no_headers():
    """A folder that holds no cuda_runtime_api.h."""
    asks(f"add_subdirectory({ROOT} weir)", "weir: WEIR_CUDA_INCLUDE_DIR is '/nowhere', which holds no cuda_runtime_api.h; set it to the "
         "folder that does", "-DWEIR_CUDA_INCLUDE_DIR=/nowhere")


def install_commands():
    """What README.md says to write in order to install weir: two commands."""
    said = re.search(r"`(cmake -S weir -B build)`, then `(cmake --install build)`", (ROOT / "README.md").read_text())
    if said is None:
        raise Refused("README.md does not say how weir is installed")
    return [shlex.split(command) for command in said.groups()]


def install(name):
    """A weir that was installed as README.md says, on a machine that has no doctest: its prefix."""
    stage = PLACE / f"install-{name}"
    prefix = PLACE / name
    shutil.rmtree(prefix, ignore_errors=True)
    configure, put = [[{"weir": ROOT, "build": stage}.get(word, word) for word in command] for command in install_commands()]
    hidden = []
    while True:
        shutil.rmtree(stage, ignore_errors=True)
        said = step("configure", [*configure, "-G", "Ninja", f"-DCMAKE_IGNORE_PATH={';'.join(hidden)}"])
        found = re.search(r"^WEIR_DOCTEST_INCLUDE_DIR:PATH=(.*)$", (stage / "CMakeCache.txt").read_text(), flags=re.M)[1]
        if found.endswith("-NOTFOUND"):
            break
        hidden.append(found)
    if "weir: leaving the tests out: they need doctest" not in " ".join(said.split()):
        raise Refused(f"what is left out is not said:\n{tail(said)}")
    step("install", [*put, "--prefix", prefix])
    for text in prefix.rglob("*.cmake"):
        if re.search(rf"(?<![\w./}}-]){re.escape(str(ROOT))}(?![\w.-])", text.read_text()): # a clone may lie at /weir
            raise Refused(f"{text} names the source folder")
    return prefix


def installed():
    """find_package, after an install into a folder of its own."""
    prefix = install("prefix")
    with_cmake("find_package", f"-DCMAKE_PREFIX_PATH={prefix}")
    at = f"-DCMAKE_PREFIX_PATH={prefix}"
    asks("find_package(weir REQUIRED COMPONENTS gpu)", "weir has no component 'gpu'; there is one, 'simulated_device'", at)
    asks("find_package(weir REQUIRED)\nif(NOT TARGET weir::simulated_device)\nmessage(FATAL_ERROR \"none\")\nendif()", "none", at)
    asks("find_package(weir COMPONENTS gpu)\nif(NOT weir_FOUND AND NOT TARGET weir::weir)\nmessage(FATAL_ERROR \"none\")\nendif()",
         "none", at)
    asks("find_package(weir REQUIRED OPTIONAL_COMPONENTS gpu)\nif(TARGET weir::weir)\nmessage(FATAL_ERROR \"here\")\nendif()",
         "here", at)
    asks("include(FetchContent)\nFetchContent_Declare(weir URL /nowhere FIND_PACKAGE_ARGS 0.2)\nFetchContent_MakeAvailable(weir)\n"
         "if(TARGET weir::weir)\nmessage(FATAL_ERROR \"here\")\nendif()", "here", at)
    asks("find_package(weir REQUIRED)", "WEIR_CUDA_INCLUDE_DIR is '/nowhere', which holds no cuda_runtime_api.h", at,
         "-DWEIR_CUDA_INCLUDE_DIR=/nowhere")


def built(way, *settings):
    """Configures and builds a project in which the simulated device is compiled: its folder."""
    build = PLACE / way
    shutil.rmtree(build, ignore_errors=True)
    launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER={word}" for word in ccache() for language in ("CXX", "CUDA")]
    step("configure", ["cmake", "-G", "Ninja", "-S", HERE / way, "-B", build, "-DCMAKE_CXX_COMPILER=g++", "--no-warn-unused-cli", *launcher,
                       *settings])
    step("build", ["cmake", "--build", build, "-j", "1"])
    return build


def simulated_device():
    """The installed component: mistakes within a pool's chunks end a user's test program, and nothing else does."""
    build = built("simulated_device", f"-DCMAKE_PREFIX_PATH={install('prefix_of_component')}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wconversion -Werror")
    said = step("run", [build / "my_tests", "right"])
    if said != "in use: 0\n":
        raise Refused(f"a program without a mistake says:\n{said}")
    fails([build / "my_tests", "beyond"], "which belongs to a pool that has not handed it out", "simulated device: 1 report;")
    fails([build / "my_tests", "after"], "reads 8 bytes", "simulated device: 2 reports;")
    for program in ("with_doctest", "with_googletest"):
        if (build / program).exists():
            step("run", [build / program])


def contract_tests():
    """The installed suites pass the parts of examples/own_parts.md, an upstream and a pool, and not parts with a mistake."""
    page = (ROOT / "examples/own_parts.md").read_text()
    blocks = {name: next(block for block in re.findall(r"```cpp\n(.*?)```", page, re.S) if re.search(rf"^(class|struct) {name} ", block, re.M))
              for name in ("first_fit", "at_end_of_step", "doubling")}
    prefix = install("prefix_for_parts")
    parts = PLACE / "contract_tests-parts"
    parts.mkdir(parents=True, exist_ok=True)

    def written(mistakes):
        for name, block in blocks.items():
            was, mistake = mistakes.get(name, ("", ""))
            if was not in block:
                raise Refused(f"{name} has no '{was}' any more")
            (parts / f"{name}.hpp").write_text("#pragma once\n#include <weir/weir.hpp>\n" + (block.replace(was, mistake) if was else block))

    written({})
    settings = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DPARTS={parts}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wconversion -Werror"]
    said = step("run", [built("contract_tests", *settings) / "part_tests"])
    if not re.search(r"test cases: +[2-9]\d \| +\d+ passed \| +0 failed", said):
        raise Refused(f"not all suites ran:\n{tail(said)}")
    written({"first_fit": ("chunks_.insert(begin);", ""), "at_end_of_step": ("freed_.push_back(block);", "placement_.give(block);"),
             "doubling": ("needed_bytes > reserved_bytes ? needed_bytes : reserved_bytes", "needed_bytes + reserved_bytes")})
    step("build", ["cmake", "--build", PLACE / "contract_tests", "-j", "1"])
    done = run([PLACE / "contract_tests/part_tests"])
    for case in ("placement: blocks are apart, aligned and inside one chunk", "reuse contract: random use follows a model",
                 "growth contract: no policy asks for less than is needed, or overflows"):
        if done.code == 0 or case not in done.output:
            raise Refused(f"a mistake is not seen by '{case}':\n{tail(done.output)}")


def shown_by_gdb():
    """The installed printers show a core file's pools, containers and sizes."""
    prefix = install("prefix_for_gdb")
    build = built("debugged", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug")
    core = build / "program.core"
    gdb = ["gdb", "-nx", "-q", "-batch"]
    step("core file", [*gdb, "-ex", "run", "-ex", f"generate-core-file {core}", build / "program"])
    if core.stat().st_size > 1 << 28:
        raise Refused(f"the core file has {core.stat().st_size} bytes: the simulated device's memory is in it")
    shown = {
        "pool": "pool 'frames' on device 0: 3.75 KiB in 3 blocks in use, 2 MiB in 1 chunk reserved, limit 1 GiB",
        "xs": "device_vector of 100 float (400 B) at 0x",
        "bytes": "device_buffer of 2.92 KiB at 0x",
        "scratch": "pool 'unnamed' on device 0: 4.88 KiB in 1 block in use",
        "waiting": "pool 'unnamed' on device 0: 5 KiB in 1 block in use",
        "cudas": "CUDA's pool 'cudas': 1 block in use",
        "counted": "layer::statistics over pool 'frames'",
        "tenant": "layer::limit 'tenant' of 1 MiB over pool 'frames'",
        "both": "layer::fallback over pool 'frames' on device 0: 3.75 KiB in 3 blocks in use, 2 MiB in 1 chunk reserved, limit 1 GiB; "
                "then CUDA's pool 'cudas'",
        "memory": "graph_memory over pool 'frames'",
        "any": "any_pool over pool 'by name'",
        "ref": "pool_ref to pool 'frames'",
        "sum": "device_value of 1 double (8 B) at 0x",
        "each": "pools of 1 device = {",
        "state": "pool 'frames': 3.75 KiB in 3 blocks in use, 2 MiB in 1 chunk reserved, limit 1 GiB",
        "part": "512 B at 0x1000",
        "host": "on_host",
        "legacy": "the legacy default stream",
    }
    asked = [word for name in shown for word in ("-ex", f"print {name}")]
    said = step("print", [*gdb, "-ex", f"source {prefix}/share/weir/weir_gdb.py", "-ex", "frame function main", *asked,
                          build / "program", core])
    for number, (name, line) in enumerate(shown.items(), 1):
        if f"${number} = {line}" not in said:
            raise Refused(f"gdb does not show '{name}' as '{line}':\n{tail(said)}")


def simulated_kernel():
    """A project in CUDA, with weir in a folder; its program for the real device has a runtime all the same."""
    build = built("simulated_kernel", f"-DWEIR={ROOT}")
    launches_kernels(build / "my_tests")
    if "consumed" not in step("run", [build / "consumer"]):
        raise Refused("the program did not end as it should")


def two_runtimes():
    """Who links both runtimes is told when CMake configures, through a library too."""
    for through in ("program PRIVATE weir::weir", "library PRIVATE weir::weir", "library PUBLIC weir::weir"):
        asks(f"""add_subdirectory({ROOT} weir)
file(WRITE ${{CMAKE_BINARY_DIR}}/empty.cpp "int main() {{}}")
add_library(library STATIC ${{CMAKE_BINARY_DIR}}/empty.cpp)
add_executable(program ${{CMAKE_BINARY_DIR}}/empty.cpp)
target_link_libraries({through})
target_link_libraries(program PRIVATE library weir::simulated_device)""",
             "weir: a program has one CUDA runtime. Link weir::weir or weir::simulated_device, not both.")


def no_runtime():
    """Who asked for no runtime is told that weir::weir brings none."""
    for setting, how in (("CMAKE_CUDA_RUNTIME_LIBRARY", "None"), ("WEIR_CUDA_RUNTIME", "none")):
        asks(f"add_subdirectory({ROOT} weir)\nmessage(FATAL_ERROR \"as it should\")",
             f"weir: weir::weir brings no CUDA runtime library, because {setting} is '{how}'", f"-D{setting}={how}")


def by_command(name, flags, libraries):
    """g++ with these flags, and no build system."""
    PLACE.mkdir(parents=True, exist_ok=True)
    objects = [PLACE / f"{name}-{source}.o" for source in ("main", "other")]
    for source, target in zip((HERE / "main.cpp", HERE / "other.cpp"), objects):
        step("g++", [*ccache(), "g++", "-std=c++17", "-O0", *flags, "-c", source, "-o", target])
    step("link", ["g++", *objects, "-o", PLACE / name, *libraries])
    if "consumed" not in step("run", [PLACE / name]):
        raise Refused("the program did not end as it should")


def runtime_library():
    """What links the CUDA runtime."""
    cuda = cuda_include().parent
    libraries = next((p for p in (cuda / "lib64", cuda / "lib") if (p / "libcudart_static.a").exists()), None)
    if libraries is None:
        raise Refused(f"no libcudart_static.a under {cuda}")
    return [f"-L{libraries}", "-lcudart_static", "-lpthread", "-ldl", "-lrt"]


def bare():
    """g++ -I."""
    by_command("bare", [f"-I{INCLUDE}", f"-I{cuda_include()}"], runtime_library())


def one_header():
    """cmake/amalgamate.py makes one header of all, of which several files may be made of one program."""
    folder = PLACE / "amalgamated"
    (folder / "weir").mkdir(parents=True, exist_ok=True)
    made = step("amalgamate", [sys.executable, ROOT / "cmake/amalgamate.py", "weir/weir.hpp", "weir/interop/pmr.hpp"])
    if "#include <weir/" in made or made.count("#pragma once") != 1:
        raise Refused("the one header is not all")
    (folder / "weir/weir.hpp").write_text(made)
    by_command("one_header", [f"-I{folder}", f"-I{cuda_include()}"], runtime_library())


def pkg_config():
    """The installed weir.pc, where it was installed, and in a folder that was moved since."""
    prefix = install("prefix_of_pkg_config")
    moved = prefix.with_name("prefix_moved")
    shutil.rmtree(moved, ignore_errors=True)
    prefix.rename(moved)

    def says(*words):
        return step("pkg-config", ["pkg-config", f"--with-path={moved / 'share/pkgconfig'}", *words, "weir"]).split()
    if not says("--modversion")[0].startswith("0.") or "-I/other/include" not in says("--cflags", "--define-variable=cuda=/other"):
        raise Refused("weir.pc has no version, or takes no other CUDA toolkit")
    by_command("pkg_config", says("--cflags"), says("--libs"))


def conan_command():
    """How Conan is run here; [] where there is none. setup.sh puts it into build/conan."""
    own = ROOT / "build/conan"
    if (own / "bin/conan").exists():
        return ["env", f"PYTHONPATH={own}", sys.executable, own / "bin/conan"]
    return ["conan"] if shutil.which("conan") else []


def conan():
    """A package is made of the released archive, and a project finds it."""
    released.version()
    home, out = PLACE / "conan-home", PLACE / "conan-out"
    for each in (home, out):
        shutil.rmtree(each, ignore_errors=True)
    command = ["env", f"CONAN_HOME={home}", *conan_command()]
    step("conan", [*command, "profile", "detect"])
    ninja = ["-c", "tools.cmake.cmaketoolchain:generator=Ninja"]
    step("conan", [*command, "create", released.RELEASE / "conan", *ninja])
    if written := [*home.rglob("CMakeUserPresets.json")]:
        raise Refused(f"the recipe writes among the sources: {written}")
    out.mkdir() # Conan leaves presets for a user of CMake where it is called
    step("conan", [*command, "install", "--requires=weir/[*]", "-g", "CMakeToolchain", "-of", out, *ninja], cwd=out)
    with_cmake("find_package", f"-DCMAKE_TOOLCHAIN_FILE={out / 'conan_toolchain.cmake'}", build="conan")


def cuda_alone():
    """A project in CUDA alone takes weir in as a folder; where CMake finds no CUDA compiler there is nothing to try."""
    project = PLACE / "cuda_alone"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir(parents=True)
    (project / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.22)
project(alone LANGUAGES NONE)
include(CheckLanguage)
set(CMAKE_CUDA_ARCHITECTURES 90)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_RUNTIME_LIBRARY "$<IF:$<CONFIG:Debug>,Shared,Static>")
    add_subdirectory({ROOT} weir)
    add_executable(alone alone.cu)
    target_link_libraries(alone PRIVATE weir::weir)
endif()
""")
    (project / "alone.cu").write_text("#include <weir/weir.hpp>\nint main() {}\n")
    step("configure", ["cmake", "-G", "Ninja", "-S", project, "-B", project / "build"])


def sibling():
    """A project that turns its language on in another folder than the one that weir is added in."""
    project = PLACE / "sibling"
    shutil.rmtree(project, ignore_errors=True)
    (project / "own").mkdir(parents=True)
    (project / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.22)\nproject(all LANGUAGES NONE)\nadd_subdirectory(own)\n"
                                            f"add_subdirectory({ROOT} weir)\n")
    (project / "own/CMakeLists.txt").write_text("project(own LANGUAGES CXX)\n")
    step("configure", ["cmake", "-G", "Ninja", "-S", project, "-B", project / "build", "-DCMAKE_CXX_COMPILER=g++"])


def no_cuda_compiler():
    """A GPU and CUDA's headers, but no nvcc: the clone configures, for the simulated device."""
    build, tools = PLACE / "no_cuda_compiler", PLACE / "no_cuda_compiler-bin"
    shutil.rmtree(build, ignore_errors=True)
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: one'\n")
    (tools / "nvidia-smi").chmod(0o755)
    said = step("configure", ["cmake", "-G", "Ninja", "-S", ROOT, "-B", build, f"-DWEIR_CUDA_INCLUDE_DIR={cuda_include()}"],
                env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "CUDACXX": "/nowhere"})
    if "run on the simulated device" not in said:
        raise Refused(said)


def headers_only():
    """No toolkit to be found, but cuda_runtime_api.h: configures, and a translation unit compiles."""
    build = PLACE / "headers_only"
    shutil.rmtree(build, ignore_errors=True)
    step("configure", ["cmake", "-G", "Ninja", "-S", HERE / "add_subdirectory", "-B", build, f"-DWEIR={ROOT}",
                       "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON", f"-DWEIR_CUDA_INCLUDE_DIR={cuda_include()}",
                       "-DCMAKE_CXX_COMPILER=g++", *[f"-DCMAKE_CXX_COMPILER_LAUNCHER={word}" for word in ccache()]])
    target = next(line.split(":")[0] for line in step("targets", ["ninja", "-C", build, "-t", "targets", "all"]).splitlines()
                  if "other.cpp.o:" in line)
    step("compile", ["ninja", "-C", build, target])


def main():
    ways = {
        "add_subdirectory": lambda: with_cmake("add_subdirectory"),
        "FetchContent": lambda: with_cmake("fetch_content"),
        "find_package": installed,
        "the simulated device": simulated_device,
        "contract tests": contract_tests,
        **({"gdb": shown_by_gdb} if shutil.which("gdb") else {}),
        "two runtimes": two_runtimes,
        "no runtime": no_runtime,
        **({"a kernel on the simulated device, with CMake": simulated_kernel} if shutil.which("nvcc") else {}),
        "bare -I": bare,
        "one header": one_header,
        **({"pkg-config": pkg_config} if shutil.which("pkg-config") else {}),
        **({"Conan": conan} if conan_command() and released.in_git() else {}),
        **({"vcpkg": released.vcpkg, "Spack": released.spack, "Compiler Explorer": released.compiler_explorer,
            "Python's archive": released.python_archive} if released.in_git() else {}),
        "CUDA alone": cuda_alone,
        "a sibling's language": sibling,
        "headers only": headers_only,
        "no CUDA compiler": no_cuda_compiler,
        "no headers": no_headers,
        **WAYS,
    }
    simulated()

    def attempt(way):
        try:
            ways[way]()
            return f"consume: {way}", ""
        except Refused as refused:
            return f"consume: {way}", str(refused)

    if unknown := sorted({*sys.argv[1:]} - {*ways}):
        sys.exit(f"no way {', '.join(map(repr, unknown))}; there are: {', '.join(ways)}")
    close_with(at_once(attempt, sys.argv[1:] or list(ways)))


if __name__ == "__main__":
    main()
