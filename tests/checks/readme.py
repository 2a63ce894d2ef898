#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does the code of README.md and of the guides compile, and print what they say?

usage: readme.py [--show] [PAGE...]

The pages are README.md and examples/*.md. All ```cpp blocks of a page are one program, which g++ compiles once and
which runs on the simulated device:
  - '#include' lines go to the top.
  - A block that holds 'int main' is a function of its own, called where the block stands.
  - A block after the line '<!-- snippet: declarations -->' stays outside of functions.
  - A block after '<!-- snippet: of PATH -->' is a part of that file, word for word, which something else compiles.
  - A block after '<!-- snippet: not compiled -->' is left out: the other side of a comparison, say.
  - Any other block runs where it stands, in braces of its own, and 'stream' is a stream. The first such block has no
    braces, so that the later ones of its page see its names.
A ```text block that follows a block, before the next heading or code, is what that one must print, line for line; '...'
there stands for any text, and as a line for any lines. The rows of ```cmake blocks must be what tests/consume does, commands in ```sh blocks
must name scripts and examples that exist, a sentence that troubleshooting.md quotes must stand in the headers, links must lead to files and headings, and README.md is one page.
"""

import pathlib
import re
import shlex
import sys

from programs import libraries
from workshop import BUILD, ROOT, WARNINGS, at_once, ccache, close_with, head, include_flags, run

BLOCK = re.compile(r"(?:^<!-- snippet: ([\w ./]+) -->\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
LONGEST = 150  # lines of README.md
MARK = "---- the snippet at line "
PAGES = ["README.md", "cmake/README.md", "examples/python/README.md",
         *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "examples").glob("*.md"))]


class Snippet:
    """A block of C++: its line, its code, how it is compiled, and what it must print (None: anything)."""

    def __init__(self, line, kind, code, expected):
        self.line = line
        self.code = code
        self.kind = "program" if kind is None and "int main" in code else kind
        self.expected = expected


def blocks_of(text):
    """(line of the fence, kind, language, code, match) of every block of a page."""
    return [(text[:match.start(3)].count("\n"), *match.groups(), match) for match in BLOCK.finditer(text)]


def snippets(text):
    """The blocks of a page that are compiled."""
    blocks = blocks_of(text)
    found = []
    for (line, kind, language, code, match), after in zip(blocks, blocks[1:] + [None]):
        if language != "cpp" or kind == "not compiled" or (kind or "").startswith("of "):
            continue
        near = after is not None and after[2] == "text" and "\n#" not in text[match.end():after[4].start()]
        found.append(Snippet(line, kind, code, after[3] if near else None))
    return found


def program(page, parts):
    """One program of all snippets of a page; errors name the page's own lines."""
    def at(part, code):
        return f'#line {part.line + 1} "{page}"\n{code}'

    includes, outside, inside, opened = [], [], [], False
    for part in parts:
        code = re.sub(r"^#include.*$", "", part.code, flags=re.M)
        includes += [row for row in part.code.splitlines() if row.startswith("#include") and row not in includes]
        inside.append(f'    std::puts("{MARK}{part.line}");')
        if part.kind == "declarations":
            outside.append(at(part, code))
        elif part.kind == "program":
            code = re.sub(r"\breturn (\d+);", r"std::exit(\1);", code)
            outside.append(at(part, re.sub(r"\bint main\(", f"static void main_{part.line}(", code)))
            inside.append(f"    main_{part.line}();")
        else:
            inside += [at(part, code)] if not opened else ["    {", at(part, code), "    }"]
            opened = True
    begin = ["    cudaStream_t stream = nullptr;", "    cudaStreamCreate(&stream);", "    {"] if opened else []
    end = ["    }", "    cudaStreamDestroy(stream);"] if opened else []
    if any("thrust/" in row for row in includes):  # Thrust's backend for plain C++ runs on the host
        begin.insert(0, "    simulated_device::make_device_memory_visible(true);")
    return "\n".join([*includes, "#include <cstdio>", "#include <weir/simulated_device.hpp>", *outside, '#line 1 "around it"',
                      "int main() {", "    std::setvbuf(stdout, nullptr, _IONBF, 0);", *begin, *inside, *end, "}", ""])


def matches(printed, expected):
    """Line for line; '...' stands for any text, as a line for any lines."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"[ ]*\n"
                      for line in expected.splitlines())
    return re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n") is not None


def compile_and_run(page, parts, linked):
    """(name, complaint) of each snippet of a page."""
    source = BUILD / "readme" / (page.replace("/", "_") + ".cpp")
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(program(page, parts))
    warnings = [w for w in WARNINGS if w != "-Wshadow"] + [f"-Wno-unused-{what}" for what in
                                                           ("variable", "but-set-variable", "local-typedefs", "function")]
    done = run([*ccache(), "g++", "-std=c++17", "-O0", *warnings, "-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP",
                *include_flags(), f"-I{ROOT / 'tests'}",
                f"-I{ROOT / 'tests/simulated_cuda/include'}", "-c", source, "-o", source.with_suffix(".o")], timeout=300)
    if done.code != 0:
        return [(f"readme: {page}", f"does not compile:\n{head(done.output)}")]
    done = run(["g++", source.with_suffix(".o"), *linked, "-pthread", "-ldl", "-o", source.with_suffix("")], timeout=120)
    if done.code != 0:
        return [(f"readme: {page}", f"does not link:\n{head(done.output)}")]
    done = run([source.with_suffix("")], timeout=60, cwd=source.parent)
    printed = dict(re.findall(rf"^{MARK}(\d+)\n(.*?)(?=^{MARK}|\Z)", done.output, flags=re.M | re.S))
    results = [(f"readme: {page}", f"exit {done.code}:\n{head(done.output)}" if done.code != 0 else "")]
    for part in parts:
        said = printed.get(str(part.line), "")
        wrong = part.expected is not None and not matches(said, part.expected)
        results.append((f"readme: {page}:{part.line}", f"prints\n{said}\nand the page says\n{part.expected}" if wrong else ""))
    return results


def commands(text):
    """Complaint about the commands of one sh block, or ''."""
    gone = []
    examples = " ".join(p.stem for p in (ROOT / "examples").iterdir())
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        named = words[1:2]
        if words[:2] == ["python3", "-m"]:
            module = "examples/python/" + words[2].replace(".", "/")
            named = [module + ("/__main__.py" if (ROOT / module).is_dir() else ".py")]
        if words[:1] in (["sh"], ["bash"], ["python3"]) and named and not (ROOT / named[0]).exists():
            gone.append(named[0])
        if words[1:2] == ["examples/run.sh"] and len(words) > 2 and not words[2].startswith("-") and words[2] not in examples:
            gone.append(line)
        if words[:2] == ["cmake", "--preset"] and f'"name": "{words[2]}"' not in (ROOT / "CMakePresets.json").read_text():
            gone.append(line)
    return f"names what does not exist: {gone}" if gone else ""


def parses(text):
    """Complaint about one python block, or ''."""
    try:
        compile(text, "page", "exec")
        return ""
    except SyntaxError as error:
        return str(error)


def settings(text):
    """Complaint about one cmake block, or ''."""
    used = "".join(p.read_text() for p in (ROOT / "tests/consume").rglob("CMakeLists.txt"))
    missing = [row for row in text.splitlines() if row.strip() and "GIT_" not in row and
               re.sub(r"\s+GIT.*|\(.*", "", row.strip()) not in used]
    return f"tests/consume does not do this: {missing}" if missing else ""


def anchors(text):
    """The names of a page's headings in links."""
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, flags=re.M)}


def links(page, text):
    """Complaint about links that lead nowhere, or ''."""
    gone = []
    for target in [first or second for first, second in LINK.findall(BLOCK.sub("", text))]:
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        if "://" not in target and (not path.exists() or anchor and anchor not in anchors(path.read_text())):
            gone.append(target)
    return f"links that lead nowhere: {gone}" if gone else ""


def sentences(text):
    """Complaint about a quoted message of a troubleshooting page that no header says, or ''; '...' stands for what is filled in."""
    said = ""
    for path in sorted((ROOT / "include/weir").rglob("*.[hc][pu]*")):
        code = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M)
        said += re.sub(r'"\s*\n\s*"', "", code)
    rows = [row.split("|")[1].strip() for row in text.splitlines() if row.startswith("| '")]
    gone = [part for row in rows for part in re.split(r"\.\.\.", row[1:-1]) if part.strip() and part not in said]
    return f"no header says: {gone}" if gone else "" if rows else "there is no sentence"


def judge(page, linked):
    """(name, complaint) of everything on a page."""
    text = (ROOT / page).read_text()
    results = [(f"readme: links of {page}", links(page, text))]
    if page == "README.md":
        lines = text.count("\n")
        results.append(("readme: one page", f"{lines} lines; {LONGEST} at most" if lines > LONGEST else ""))
    if page == "examples/troubleshooting.md":
        results.append(("readme: its sentences", sentences(text)))
    for line, kind, language, code, _ in blocks_of(text):
        if (kind or "").startswith("of "):
            path = ROOT / kind.split()[1]
            same = path.exists() and code in path.read_text()
            results.append((f"readme: {page}:{line}", "" if same else f"is no part of {path}"))
        if judged := {"sh": commands, "cmake": settings, "python": parses}.get(language):
            results.append((f"readme: {page}:{line}", judged(code)))
    parts = snippets(text)
    return results + (compile_and_run(page, parts, linked) if parts else [])


def main():
    pages = [word for word in sys.argv[1:] if word != "--show"] or PAGES
    if "--show" in sys.argv:
        for page in pages:
            print(f"// ---- {page}\n{program(page, snippets((ROOT / page).read_text()))}")
        return
    linked = libraries("simulated_cuda")
    close_with([result for results in at_once(lambda page: judge(page, linked), pages) for result in results])


if __name__ == "__main__":
    main()
