// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What was this library built for? building.py reads the answer out of the file before the library is loaded: loading one that
// was built for another PyTorch may already fail, or worse, not fail.

extern "C" [[gnu::visibility("default")]] char const weir_built_for[] = "weir plug-in: " WEIR_PLUGIN_BUILT_FOR;
