#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does the README's code compile, and print what the README says?

usage: readme.py [--show]

Every ```cpp block of README.md is compiled with g++ against the simulated device and run. Its '#include' lines go to
the top, the rest into main(), where 'stream' is a stream; a block that holds 'int main' is a program of its own, and
one after '<!-- snippet: declarations -->' stays outside of main(). A ```text block that follows is what it must
print, line for line; a line '...' there stands for any lines. The ```cmake block must be what tests/consume does,
and commands in ```sh blocks must name scripts that exist.
"""

import pathlib
import re
import shlex
import sys

from programs import libraries
from workshop import BUILD, ROOT, WARNINGS, at_once, ccache, close_with, head, include_flags, run

BLOCK = re.compile(r"(?:^<!-- snippet: (\w+) -->\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)


def program(code, kind):
    """A whole program around a snippet."""
    if "int main" in code:
        return code
    tops = "\n".join(line for line in code.splitlines() if line.startswith("#include"))
    rest = "\n".join(line for line in code.splitlines() if not line.startswith("#include"))
    before, inside = (rest, "") if kind == "declarations" else ("", rest)
    return (f"{tops}\n#include <cstdio>\n#include <simulated_cuda/simulated_cuda.hpp>\n{before}\nint main() {{\n"
            "    simulated_cuda::make_device_memory_visible(true); // Thrust's backend for plain C++ runs on the host\n"
            "    [[maybe_unused]] cudaStream_t stream = nullptr;\n    cudaStreamCreate(&stream);\n    {\n"
            f"{inside}\n    }}\n    cudaStreamDestroy(stream);\n}}\n")


def matches(printed, expected):
    """Line for line; '...' stands for any lines."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()) + r"[ ]*\n" for line in expected.splitlines())
    return re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n") is not None


def compile_and_run(number, code, kind, expected, linked):
    """Complaint about one snippet, or ''."""
    place = BUILD / "readme"
    place.mkdir(parents=True, exist_ok=True)
    source = place / f"snippet{number}.cpp"
    source.write_text(program(code, kind))
    warnings = [w for w in WARNINGS if w != "-Wshadow"] + ["-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Wno-unused-local-typedefs"]
    done = run([*ccache(), "g++", "-std=c++17", "-O1", *warnings, "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP",
                *include_flags(), f"-I{ROOT / 'tests'}", "-c", source, "-o", source.with_suffix(".o")], timeout=300)
    if done.code != 0:
        return f"does not compile:\n{head(done.output)}"
    done = run(["g++", source.with_suffix(".o"), *linked, "-pthread", "-ldl", "-o", source.with_suffix("")], timeout=120)
    if done.code != 0:
        return f"does not link:\n{head(done.output)}"
    done = run([source.with_suffix("")], timeout=60)
    if done.code != 0:
        return f"exit {done.code}:\n{head(done.output)}"
    if expected is not None and not matches(done.output, expected):
        return f"prints\n{done.output}\nand the README says\n{expected}"
    return ""


def commands(text):
    """Complaint about the commands of one sh block, or ''."""
    gone = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] in (["sh"], ["bash"], ["python3"]) and len(words) > 1 and not (ROOT / words[1]).exists():
            gone.append(words[1])
        if words[:2] == ["cmake", "--preset"] and f'"name": "{words[2]}"' not in (ROOT / "CMakePresets.json").read_text():
            gone.append(line)
    return f"names what does not exist: {gone}" if gone else ""


def main():
    text = (ROOT / "README.md").read_text()
    blocks = list(BLOCK.finditer(text))
    jobs = []
    linked = [] if "--show" in sys.argv else libraries("simulated_cuda")
    for number, (block, following) in enumerate(zip(blocks, blocks[1:] + [None]), 1):
        kind, language, code = block.groups()
        line = text[:block.start()].count("\n") + 1
        name = f"readme: {language} at line {line}"
        if language == "cpp":
            # Output belongs to the code when no heading stands between them.
            near = following is not None and following.group(2) == "text" and "\n#" not in text[block.end():following.start()]
            expected = following.group(3) if near else None
            jobs.append((name, lambda n=number, c=code, k=kind, e=expected: compile_and_run(n, c, k, e, linked)))
        elif language == "sh":
            jobs.append((name, lambda c=code: commands(c)))
        elif language == "cmake":
            used = "".join(p.read_text() for p in (ROOT / "tests/consume").rglob("CMakeLists.txt"))
            missing = [row for row in code.splitlines() if row.strip() and "GIT_" not in row and "your_" not in row and
                       re.sub(r"\s+GIT.*|\(.*", "", row.strip()) not in used]
            jobs.append((name, lambda m=missing: f"tests/consume does not do this: {m}" if m else ""))
    if "--show" in sys.argv:
        for number, block in enumerate(blocks, 1):
            if block.group(2) == "cpp":
                print(f"// ---- {number}\n{program(block.group(3), block.group(1))}")
        return
    close_with(at_once(lambda job: (job[0], job[1]()), jobs))


if __name__ == "__main__":
    main()
