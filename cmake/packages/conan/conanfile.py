# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""weir for Conan 2. cmake/release.py fills in what stands between '@'; then 'conan create' of this folder, and
'self.requires("weir/VERSION")'.

The package holds what 'cmake --install' installs. Consumers find it by weir's own package configuration, which looks for the CUDA
toolkit of their machine, since Conan has none: they use CMakeToolchain, and need no file of CMakeDeps'.
"""

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import get


class Weir(ConanFile):
    name = "weir"
    version = "@version@"
    description = "CUDA memory pools that compose at compile time"
    license = "Apache-2.0 WITH LLVM-exception"
    topics = ("cuda", "memory", "allocator", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

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
