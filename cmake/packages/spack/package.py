# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""weir for Spack, for a repository of your own: 'spack create --name weir' makes the folder, this file goes into it.

Written after Spack's documentation, and untried. The address of 'git' is where you clone from; a released version has its archive
in place of the branch: version("0.2.0", url="...", sha256="...").
"""

from spack.package import *


class Weir(CMakePackage):
    """CUDA memory pools that compose at compile time."""

    git = "https://example.com/weir.git"

    license("Apache-2.0 WITH LLVM-exception")

    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("cuda@12.8:")

    def cmake_args(self):
        return [self.define(f"WEIR_BUILD_{each}", False) for each in ("TESTS", "EXAMPLES", "BENCHES")]
