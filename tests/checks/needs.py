# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does each stage ask for what it needs, and does it say so at once where that is not to be had?

The commands that the stages' scripts name are held against the table of stages.py. And tests/run.sh is run where
nearly nothing is on the path.
"""

import ast
import contextlib
import io
import pathlib
import re
import shutil
import sys
import tempfile

from programs import asked
from stages import NEEDS, STAGES
from workshop import ROOT, run, tail

# A command that not every Debian has: the need that brings it.
COMMANDS = {name: name for name in ("g++", "clang++", "nvcc", "cmake", "ninja", "ccache", "gcovr", "valgrind", "git", "pkg-config")}
COMMANDS["ctest"] = "cmake"
EVERYWHERE = {"sh", "env"}
RUNS = {"run", "step", "call", "Popen"}  # functions that run a command


def named(text):
    """The commands that a Python script names, and a complaint where one of them cannot be known to be there."""
    found, wrong = set(), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in COMMANDS:
            found.add(node.value)
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in RUNS:
            for words in [[word.value for word in each.elts if isinstance(word, ast.Constant)]
                          for each in node.args if isinstance(each, ast.List) and isinstance(each.elts[0], ast.Constant)]:
                if words[0] not in COMMANDS and words[0] not in EVERYWHERE:
                    wrong.append(f"runs '{words[0]}', which no need brings")
                if words[0] == "cmake" and "-S" in words and "-G" not in words:
                    wrong.append("configures without '-G': CMake then takes make, which no stage asks for")
    return found, wrong


def sources(path):
    """A script and what it imports or starts of ours, with their texts; what they all share (workshop.py) is left out."""
    todo, seen = [path], {}
    while todo:
        each = todo.pop()
        if each in seen or each.name == "workshop.py" or not each.exists():
            continue
        text = seen[each] = each.read_text()
        if each.suffix == ".py":
            todo += [ROOT / f"tests/checks/{name}.py" for name in re.findall(r"^from (\w+) import", text, flags=re.M)]
            todo += [ROOT / name for name in re.findall(r'ROOT / "(bench/\w+\.sh)"', text)]
    return seen


def undeclared(needs, texts):
    """Complaint about commands in the texts (name -> text) that the needs do not bring, or ''."""
    brought = {need.removesuffix("-if-any") for need in needs}
    wrong = []
    for name, text in texts.items():
        if name.endswith(".py"):
            found, more = named(text)
        else:
            found, more = {*re.findall(r"[\w+]+", re.sub(r"^\s*#.*", "", text, flags=re.M))} & {*COMMANDS}, []
        more += [f"names '{word}', and its stage needs no {COMMANDS[word]}" for word in sorted(found)
                 if COMMANDS[word] not in brought]
        wrong += [f"{name} {each}" for each in more]
    return "\n".join(wrong)


# what a stage needs, a script of it, a part of the complaint
MISTAKES = [
    ("g++", 'run(["g++", "x.cpp"])\nstep("it", ["strace", "ls"])\n', "runs 'strace'"),
    ("g++ cmake", 'run(["cmake", "-S", place], timeout=5)\n', "without '-G'"),
    ("g++", 'for each in ("g++", "clang++"):\n    run([each, "-c"])\n', "its stage needs no clang++"),
    ("cmake", 'subprocess.run(["ctest"])\nrun(["ninja", "-C", place])\n', "its stage needs no ninja"),
]

# the stages asked for, what a machine has besides a shell, Python and nvcc, what is said, in this order; see off_path
ASKED = [
    ("lines", ["apt-get"], ["installing: g++\n", "lines was not run: there is no g++ here", "0 passed, 1 failed"]),
    ("refuse,reference", ["apt-get"], ["installing: g++ clang ccache cmake ninja-build doxygen\n"]),
    ("refuse", [], ["missing here: g++ clang ccache (Debian's names)", "refuse was not run: there is no g++ and no clang++ here"]),
    # Where CUDA lies elsewhere than on the path, 'lines' goes further.
    ("lines,refuse", ["g++"], ["missing here: clang", "[ 1/2] refuse", "refuse was not run", "[ 2/2] lines"]),
    ("gpu", ["g++", "cmake", "ninja"], ["gpu was not run: there is no", "gpu here"]),
]


def off_path(stages, has):
    """What these stages need and setup.sh looks for elsewhere than on the path, where on_little cannot hide it: a row that asks
    for it holds on some machines only."""
    words = (ROOT / "cmake/setup.sh").read_text().split("weir_has() {")[1].split("\n}")[0]
    elsewhere = {word for word, how in re.findall(r"^    ([\w+-]+)\) (.*) ;;$", words, flags=re.M)
                 if word not in ("nvcc", "cuda", "gpu") and not ("g++" in has and re.match("weir_(header|library) ", how))}
    return sorted({need.removesuffix("-if-any") for stage in stages.split(",") for need in NEEDS[stage].split()} & elsewhere)


def on_little(stages, has, said):
    """Complaint about tests/run.sh for these stages on a machine that has nearly nothing, or ''."""
    if elsewhere := off_path(stages, has):
        return f"depends on whether this machine has {' and '.join(elsewhere)}: ask for other stages"
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)  # run.sh takes it for its clone
        (place / "bin").mkdir()
        for name in ("sh", "date", "dirname", "env", "grep", "head", "mktemp", "rm", "sed", "sleep", "tail", "tr"):
            (place / "bin" / name).symlink_to(shutil.which(name))
        # The compilers compile nothing, and apt-get installs nothing; root is who runs it.
        for name, line in {"python3": f'exec {sys.executable} "$@"', "nvcc": f"echo '#$ TOP={place}'; exit 1", "id": "echo 0",
                           **{name: "exit 0" for name in has}}.items():
            (place / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
            (place / "bin" / name).chmod(0o755)
        for part in ("cmake", "tests", "include"):
            (place / part).symlink_to(ROOT / part)
        done = run(["env", "-i", f"PATH={place / 'bin'}", f"WEIR_BUILD_DIR={place / 'build'}",
                    "sh", "tests/run.sh", "--only", stages], cwd=place, timeout=60)
    at = 0
    for part in said:
        at = done.output.find(part, at)
        if at < 0:
            return f"does not say {part!r} in its place:\n{tail(done.output)}"
    return "" if done.code == 1 and "fetching" not in done.output else f"exit {done.code}:\n{tail(done.output)}"


def unreadable(command):
    """Complaint about a stage's command line that programs.py cannot read, or that names no folder of tests, or ''."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            options = asked(command[2:])
    except SystemExit:
        return f"programs.py cannot read '{' '.join(command[2:])}'"
    names = [*options.programs, *filter(None, options.without.split(","))]
    return "".join(f"tests/ has no folder {name}\n" for name in names if not (ROOT / "tests" / name).is_dir())


def results():
    """(name, complaint) of everything here."""
    found = [(f"needs: {stage.name}", undeclared(NEEDS[stage.name].split(), {
        str(path.relative_to(ROOT)): text for path, text in sources(ROOT / stage.command[1]).items()}))
        for stage in {stage.name: stage for stage in STAGES if stage.name != "checks"}.values()]
    found += [(f"needs: reads what {stage.name} asks for", unreadable(stage.command))
              for stage in STAGES if stage.command[1].endswith("/programs.py")]
    for command in (["gcc", "--parts", "2"], ["gcc", "no_folder"]):
        said = unreadable(["python3", "programs.py", *command])
        found.append((f"needs: sees that {' '.join(command)} is wrong", "" if said else "it says nothing"))
    for needs, text, word in MISTAKES:
        said = undeclared(needs.split(), {"script.py": text})
        found.append((f"needs: sees a mistake ({word})", "" if word in said else f"{text}it says: {said}"))
    said = on_little("refuse,consume", ["apt-get"], [])
    found.append(("needs: sees what depends on the machine", "" if "has conan and doctest and googletest" in said else f"it says: {said}"))
    return found + [(f"needs: {stages} where there is {' and '.join(has) or 'nothing'}", on_little(stages, has, said))
                    for stages, has, said in ASKED]


if __name__ == "__main__":
    for name, complaint in results():
        print(name, complaint or "ok", sep=": ")
