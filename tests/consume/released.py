# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does what cmake/release.py writes build, where there is nothing but what it wrote? See run.py.

All of it is of the last commit: what is not committed is not seen. Conan itself builds its recipe where pip has it; vcpkg's port is
played by vcpkg.cmake, and Spack's recipe by the words of Spack's that it uses, below: the archive is fetched by the address in the
recipe, held against its checksum and configured with its options, and a project finds what they install.
"""

import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys
import tarfile
import threading
import types
import urllib.request
import zipfile

from linking import HERE, PLACE, Refused, step
from workshop import BUILD, ROOT, cuda_include, run

RELEASE = PLACE / "release"
WRITING = threading.Lock()


def in_git():
    """Whether there is a commit to make an archive of."""
    return shutil.which("git") is not None and run(["git", "-C", ROOT, "rev-parse", "HEAD"]).code == 0


@functools.cache
def written():
    """Writes the release: its version."""
    shutil.rmtree(RELEASE, ignore_errors=True)
    env = {**os.environ, "PYTHONPATH": str(BUILD / "hatchling")}
    step("release", [sys.executable, ROOT / "cmake/release.py", RELEASE], env=env)
    for each in RELEASE.rglob("*"):
        if each.is_file() and each.suffix not in (".gz", ".hpp") and (left := re.findall(r"@\w+@", each.read_text())):
            raise Refused(f"{each} still says {left}")
    sums = dict(reversed(line.split("  ")) for line in (RELEASE / "sha256sums.txt").read_text().splitlines())
    if sums != {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in RELEASE.glob("weir*-*.*")} or len(sums) < 2:
        raise Refused(f"sha256sums.txt has {sums}")
    return re.search(r"weir-([\d.]+)\.tar\.gz", " ".join(path.name for path in RELEASE.iterdir()))[1]


def version():
    """The release's, which the first that asks writes."""
    with WRITING:
        return written()


def emptied(name):
    folder = PLACE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def found(prefix):
    """A project finds what a recipe installed, and its version."""
    project = emptied(f"finds-{prefix.parent.name}")
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(finds LANGUAGES CXX)\nfind_package(weir REQUIRED COMPONENTS simulated_device)\n"
        "get_target_property(at weir::headers INTERFACE_INCLUDE_DIRECTORIES)\nlist(GET at 0 at)\n"
        "if(NOT EXISTS ${at}/weir/weir.hpp)\nmessage(FATAL_ERROR \"nothing in ${at}\")\nendif()\nmessage(STATUS \"it is ${weir_VERSION}\")\n")
    said = step("configure", ["cmake", "-G", "Ninja", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}"])
    if f"it is {version()}\n" not in said:
        raise Refused(f"another version than {version()}:\n{said}")


def vcpkg():
    """The port, played."""
    place, released = emptied("vcpkg"), version()
    if json.loads((RELEASE / "vcpkg/vcpkg.json").read_text())["version"] != released:
        raise Refused("vcpkg.json names another version")
    step("port", ["cmake", f"-DPORT={RELEASE / 'vcpkg'}", f"-DPLACE={place}", "-P", HERE / "vcpkg.cmake"])
    found(place / "packages")


def spack_words(noted):
    """A module with the words of Spack's that the recipe uses; what they are told goes into 'noted'."""
    module = types.ModuleType("spack.package")
    for word in ("license", "version", "depends_on"):
        setattr(module, word, lambda *told, word=word, **more: noted.setdefault(word, []).append((told[0], more)))

    class CMakePackage:
        def define(self, option, value):
            return f"-D{option}:BOOL={'ON' if value else 'OFF'}"
    module.CMakePackage = CMakePackage
    return module


def spack():
    """The recipe, played."""
    version()
    noted, names, place = {}, {}, emptied("spack")
    text = (RELEASE / "spack/package.py").read_text().replace("from spack.package import *", "")
    exec(compile(text, "package.py", "exec"), {**vars(spack_words(noted))}, names)
    (released, more), = noted["version"]
    with urllib.request.urlopen(names["Weir"].url) as answer:
        archive = answer.read()
    if released != version() or hashlib.sha256(archive).hexdigest() != more["sha256"]:
        raise Refused("another version, or another checksum")
    (place / "archive").write_bytes(archive)
    with tarfile.open(place / "archive") as whole:
        whole.extractall(place)
    sources = place / f"weir-{released}"
    least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", (sources / "CMakeLists.txt").read_text())[1]
    cuda = int(re.search(r"CUDART_VERSION < (\d+)", (sources / "include/weir/runtime/check.hpp").read_text())[1])
    for need in (f"cmake@{least}:", f"cuda@{cuda // 1000}.{cuda % 1000 // 10}:"):
        if need not in dict(noted["depends_on"]):
            raise Refused(f"it does not depend on '{need}'")
    said = step("configure", ["cmake", "-G", "Ninja", "-S", sources, "-B", place / "build", f"-DCMAKE_INSTALL_PREFIX={place / 'prefix'}",
                              *names["Weir"]().cmake_args()])
    if "not used by the project" in said:
        raise Refused(said)
    step("install", ["cmake", "--install", place / "build"])
    found(place / "prefix")


def compiler_explorer():
    """The one header of the archive lies where the two files say, and compiles there alone."""
    version()
    place = emptied("compiler_explorer")
    told = (RELEASE / "compiler_explorer/libraries.yaml").read_text()
    said = dict(re.findall(r"^ +(\w+): \"?([^\"\n]+)\"?$", told, re.M))
    target = re.search(r'targets:\n +- "([^"]+)"', told)[1]
    folder, url, path = (each.replace("{{name}}", target) for each in (said["dir"], said["url"], f"{said['dir']}/{said['filename']}"))
    (place / folder).mkdir(parents=True)
    with urllib.request.urlopen(url) as answer:
        (place / path).write_bytes(answer.read())
    properties = dict(re.findall(r"^([\w.]+)=(.*)$", (RELEASE / "compiler_explorer/c++.amazon.properties").read_text(), re.M))
    key = f"libs.weir.versions.{properties['libs.weir.versions']}"
    include = properties[f"{key}.path"].replace("/opt/compiler-explorer", str(place))
    if properties[f"{key}.version"] != version() or not (pathlib.Path(include) / "weir/weir.hpp").exists():
        raise Refused(f"no weir/weir.hpp in {include}")
    step("g++", ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror",
                 f"-I{include}", "-isystem", cuda_include(), HERE / "main.cpp"])


def python_archive():
    """Python's archive makes a package that is whole, where nothing of the repository is."""
    archive = RELEASE / f"weir_torch-{version()}.tar.gz"
    if not archive.exists():
        print("left out: there is no hatchling here to write the Python package's archive with")
        return
    place = emptied("python_archive")
    with tarfile.open(archive) as whole:
        whole.extractall(place)
    env = {**os.environ, "PYTHONPATH": str(BUILD / "hatchling")}
    step("wheel", [sys.executable, "-c", f"from hatchling import build; build.build_wheel({str(place)!r})"],
         cwd=place / f"weir_torch-{version()}", env=env)
    names = zipfile.ZipFile(next(place.glob("*.whl"))).namelist()
    for each in ("weir_torch/__init__.py", "weir_plugin/plugin.cpp", "weir_plugin/include/weir/weir.hpp", "weir_plugin/include/LICENSE"):
        if each not in names:
            raise Refused(f"the package has no {each}")
