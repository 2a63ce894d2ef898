#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The checks that need no compiler, and proof that each of them can fail.

usage: checks.py

Runs floors, mirror, names and heads on the project, then each on a small tree with one mistake in it, which it must
report; a check that finds nothing there finds nothing anywhere. And what is named wrong on a command line is refused,
before anything is fetched for it, what the stages need is asked for before they run (needs.py), and whoever waits sees how far
they are (progress.py).
"""

import pathlib
import re
import sys
import tempfile

from needs import results as of_needs
from progress import results as of_progress
from workshop import CLOSING, ROOT, close, run

HERE = pathlib.Path(__file__).resolve().parent
LICENCE = "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n"
HEAD = LICENCE + "#pragma once\n\n// What is this?\n//\n// invariant: a\n// cost: b\n// not for: c\n\n"

GOOD = {
    "include/weir/weir.hpp": HEAD + "#include <weir/base/size.hpp>\n#include <weir/pool/pool.hpp>\n#include <weir/layer/limit.hpp>\n"
                                    "#include <weir/layer/zero.hpp>\n",
    "include/weir/base/size.hpp": HEAD + "#include <cstddef>\n",
    "include/weir/pool/pool.hpp": HEAD + "#include <weir/base/size.hpp>\n#include <weir/pool/pool/ladder.hpp>\n",
    "include/weir/pool/pool/ladder.hpp": HEAD,
    "include/weir/layer/limit.hpp": HEAD + "#include <weir/base/size.hpp>\n",
    "include/weir/layer/zero.hpp": HEAD,
    "tests/base/size.cpp": LICENCE + 'TEST_CASE("size: rounds") {}\n',
    "tests/pool/pool.cpp": LICENCE + 'TEST_CASE("pool: binds") {}\n',
    "tests/layer/limit.cpp": LICENCE + 'TEST_CASE("limit: limits") {}\n',
    "tests/layer/zero.cpp": LICENCE + 'TEST_CASE("zero: zeroes") {}\n',
}

# check, what is planted, a word of the complaint
MISTAKES = [
    ("floors", {"include/weir/base/size.hpp": HEAD + "#include <weir/pool/pool.hpp>\n"}, "no arrow"),
    ("floors", {"include/weir/layer/limit.hpp": HEAD + "#include <weir/layer/zero.hpp>\n"}, "no arrow"),
    ("floors", {"include/weir/layer/zero.hpp": HEAD + "#include <weir/pool/pool/ladder.hpp>\n"}, "no arrow"),
    ("floors", {"include/weir/pool/other.hpp": HEAD + "#include <weir/pool/pool/ladder.hpp>\n"}, "private to 'pool/pool'"),
    ("floors", {"include/weir/base/one.hpp": HEAD, "include/weir/layer/zero.hpp": HEAD + "#include <weir/base/one.hpp>\n"},
     "serves layer/zero only"),
    ("floors", {"include/weir/base/one.hpp": HEAD + "#include <weir/base/two.hpp>\n", "include/weir/base/two.hpp": HEAD},
     "serves nobody only"),
    ("floors", {"include/weir/layer/zero/one.hpp": HEAD + "namespace weir {\ninline namespace v0 {\nstruct one;\n}\n"}, "outside a namespace"),
    ("floors", {f"include/weir/layer/zero/n{number}.hpp": HEAD for number in range(17)}, "17 headers"),
    ("floors", {"include/weir/base/size.hpp": HEAD + "#include <cuda_runtime_api.h>\n"}, "no CUDA"),
    ("floors", {"include/weir/base/size.hpp": HEAD + "#include <string>\n"}, "compile time"),
    ("floors", {"include/weir/pool/pool.hpp": HEAD + "#include <thrust/sort.h>\n"}, "interop"),
    ("floors", {"include/weir/pool/pool.hpp": HEAD + '#include "options.hpp"\n'}, "write"),
    ("floors", {"include/weir/pool/pool.hpp": HEAD + "#include <iostream>\n"}, "compile time"),
    ("floors", {"include/weir/pool/pool.hpp": HEAD + "#include <weir/base/gone.hpp>\n"}, "does not exist"),
    ("floors", {"include/weir/upstream/gone.hpp": HEAD}, "does not reach"),
    ("floors", {"include/weir/tools/hammer.hpp": HEAD}, "no floor"),
    ("floors", {"include/weir/interop/both.hpp": HEAD + "#include <thrust/sort.h>\n#include <torch/all.h>\n"}, "one library"),
    ("mirror", {"tests/pool/pool.cpp": None}, "mirrored path"),
    ("mirror", {"tests/pool/pool.cpp": LICENCE}, "no TEST_CASE"),
    ("mirror", {"tests/pool/pool.cpp": LICENCE + 'TEST_CASE("binds") {}\n'}, "do not begin"),
    ("mirror", {"include/weir/layer/size.hpp": HEAD, "tests/layer/size.cpp": LICENCE + 'TEST_CASE("size: x") {}\n'}, "same file name"),
    ("mirror", {"include/weir/recipes/new_pool.hpp": HEAD, "include/weir/fwd.hpp": "using new_pool = int;\n",
                "tests/contract/recipes.cpp": "#define WEIR_TEST_RECIPES \\\n    weir::old_pool\n"}, "recipes.cpp: new_pool"),
    ("names", {"include/weir/base/size.hpp": HEAD + "namespace weir {\ninline namespace v0 {\n" +
               "".join(f"struct one{number};\n" for number in range(71)) + "} // namespace v0\n} // namespace weir\n"}, "71, more"),
    ("names", {"include/weir/base/size.hpp": HEAD + "".join(f"using has_{number} = int;\n" for number in range(41))}, "41, more"),
    ("names", {"CMakeLists.txt": "project(weir VERSION 9.8.7)\n", "include/weir/fwd.hpp": "#define WEIR_VERSION 200\n"}, "90807"),
    ("names", {"CMakeLists.txt": "project(weir VERSION 9.8.7)\n", "include/weir/fwd.hpp": "#define WEIR_VERSION 90807\n",
               "CITATION.cff": "version: 9.8.6\n"}, "CITATION.cff names the version ['9.8.6']"),
    ("heads", {"include/weir/base/size.hpp": HEAD[1:]}, "first line"),
    ("heads", {"include/weir/base/size.hpp": HEAD.replace("#pragma once\n", "")}, "pragma once"),
    ("heads", {"include/weir/base/size.hpp": LICENCE + "#pragma once\n\n// Short.\n"}, "head comment of 1 lines"),
    ("heads", {"include/weir/base/size.hpp": HEAD + "int x;\n" * 350}, "350 at most"),
    ("heads", {"include/weir/base/size.hpp": HEAD + "int x;" + " " * 123 + "\n"}, "129 columns"),
    ("heads", {"include/weir/base/size.hpp": HEAD + "void f() {\n    a ? b() : c();\n}\n"}, "no statement"),
    ("heads", {"include/weir/base/size.hpp": HEAD + 'static_assert(true, "`x`");\n'}, "backtick"),
    ("heads", {"tests/base/size.cpp": LICENCE + "// TO" "DO: more\n"}, "leaves something open"),
    ("heads", {"tests/base/size.cpp": LICENCE + "// As in tests/base/" "moved.cpp.\n"}, "names tests/base/moved.cpp"),
    ("heads", {"tests/base/size.sh": "#!/bin/sh\n"}, "first line"),
]

# a script and its arguments, a part of what it says; these are refused, those below taken (none runs a stage: this is one)
REFUSED = [
    (["tests/run.sh", "--nosuch"], "unrecognized arguments: --nosuch"),
    (["tests/run.sh", "--only", "nosuch"], "no stage 'nosuch'; there are: checks, "),
    (["tests/run.sh", "--list", "--only", ""], "no stage ''"),
    (["tests/run.sh", "--list", "--only", "gcc,"], "no stage ''"),
    (["tests/run.sh", "--list", "--ci", "--gpu"], "not allowed with argument"),
    (["tests/run.sh", "--list", "--gpu", "--only", "headers"], "no stage 'headers' of --gpu; there are: checks, gpu"),
    (["tests/headers/run.py", "nosuch.hpp"], "no header 'nosuch.hpp'"),
    (["tests/bugs/run.py", "nosuch"], "no bug 'nosuch'"),
]
TAKEN = [
    (["tests/run.sh", "--ci", "--only", "headers", "--list"], "nvcc; C++17 or 20"),
    (["tests/run.sh", "--only", "headers", "--list"], "nvcc; C++17, 20"),
    (["tests/run.sh", "--list"], "all tests, g++ C++17"),
]


def told(command):
    """What a script answers to these arguments where nothing was fetched yet, and whether it fetched something."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("cmake", "tests", "include"):
            (pathlib.Path(folder) / part).symlink_to(ROOT / part)  # run.sh takes the folder for its clone
        done = run(["sh" if command[0].endswith(".sh") else sys.executable, *command], cwd=folder, timeout=60)
        return done, "fetching" in done.output or (pathlib.Path(folder) / "build").exists()


def judge(check, planted):
    """Output and exit status of a check on the good tree with 'planted' in it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD, **planted}.items():
            if text is not None:
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return run([sys.executable, HERE / f"{check}.py", folder])


def main():
    passed = failed = 0
    for check in ("floors", "mirror", "names", "heads"):
        done = run([sys.executable, HERE / f"{check}.py", ROOT])
        good, bad = map(int, (CLOSING.findall(done.output) or [("0", "1")])[-1])
        passed, failed = passed + good, failed + bad
        print(CLOSING.sub("", done.output).strip() + "\n" if bad else f"{check}: {good} files", flush=True)
        done = judge(check, {})
        if done.code != 0:
            failed += 1
            print(f"FAILED {check} complains about a tree with no mistake:\n{done.output}")
    for check, planted, word in MISTAKES:
        done = judge(check, planted)
        if done.code == 0 or not re.search(re.escape(word), done.output):
            failed += 1
            print(f"FAILED {check} does not see: {list(planted)} ({word}):\n{done.output}")
        else:
            passed += 1
    for command, words, due in [(*each, False) for each in REFUSED] + [(*each, True) for each in TAKEN]:
        done, has_fetched = told(command)
        if (done.code == 0) == due and words in done.output and "Traceback" not in done.output and not has_fetched:
            passed += 1
        else:
            failed += 1
            fetched = ", fetched something" if has_fetched else ""
            print(f"FAILED {' '.join(command)}: exit {done.code}{fetched}, '{words}' is due:\n{done.output}")
    for name, complaint in of_needs() + of_progress():
        passed, failed = passed + (not complaint), failed + bool(complaint)
        print(f"FAILED {name}:\n{complaint}\n" if complaint else "", end="")
    close(passed, failed)


if __name__ == "__main__":
    main()
