# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""weir for Spack, for a repository of your own: 'spack create --name weir' makes the folder, this file goes into it once
cmake/release.py has filled in what stands between '@'.

Written after Spack's documentation. The tests build the archive with what stands here, and not with Spack.
"""

from spack.package import *


class Weir(CMakePackage):
    """CUDA memory pools that compose at compile time."""

    url = "@address@/@archive@"

    license("Apache-2.0 WITH LLVM-exception")

    version("@version@", sha256="@sha256@")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("cuda@12.8:")

    def cmake_args(self):
        return [self.define(f"WEIR_BUILD_{each}", False) for each in ("TESTS", "EXAMPLES", "BENCHES")]
