# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts weir's headers and licence into the package as hatchling builds it, and what the search for advice is built of."""

import pathlib

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSIDE = {"include/weir": "weir_plugin/include/weir", "LICENSE": "weir_plugin/include/LICENSE",
          "examples/replay": "weir_plugin/include/replay", "tests/simulated_cuda": "weir_plugin/include/simulated_cuda"}


class Headers(BuildHookInterface):
    def initialize(self, version, build_data):
        """They lie in weir's repository, or already inside where an archive of sources was made from it. What is installed for
        editing finds the repository's own."""
        if version == "editable":
            return
        here = pathlib.Path(self.root)
        for outside, inside in INSIDE.items():
            places = [here / inside, *(above / outside for above in list(here.parents)[1:2])]
            found = next((each for each in places if each.exists()), None)
            if found is None:
                raise FileNotFoundError(f"weir: there is no {outside} around {here}; build this folder in weir's repository")
            build_data["force_include"][str(found)] = inside
