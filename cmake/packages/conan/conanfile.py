# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""weir for Conan 2: 'conan create cmake/packages' in a clone, then 'self.requires("weir/0.2.0")'.

The package holds what 'cmake --install' installs. Consumers find it by weir's own package configuration, which looks for the CUDA
toolkit of their machine, since Conan has none: they use CMakeToolchain, and need no file of CMakeDeps'.
"""

import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load


class Weir(ConanFile):
    name = "weir"
    description = "CUDA memory pools that compose at compile time"
    license = "Apache-2.0 WITH LLVM-exception"
    topics = ("cuda", "memory", "allocator", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def set_version(self):
        project = load(self, pathlib.Path(self.recipe_folder).parents[1] / "CMakeLists.txt")
        self.version = re.search(r"project\(weir VERSION ([\d.]+)", project).group(1)

    def export_sources(self):
        clone = pathlib.Path(self.recipe_folder).parents[1]
        for each in ("CMakeLists.txt", "LICENSE", "cmake/*.cmake", "cmake/*.in", "cmake/weir_gdb.py", "include/*", "tests/simulated_cuda/*"):
            copy(self, each, clone, self.export_sources_folder)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False # nothing is written where the sources lie
        for each in ("TESTS", "EXAMPLES", "BENCHES"):
            toolchain.cache_variables[f"WEIR_BUILD_{each}"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure() # finds the CUDA toolkit or says what is missing

    def package(self):
        CMake(self).install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.builddirs = ["lib/cmake/weir"]
        self.cpp_info.set_property("cmake_find_mode", "none")
