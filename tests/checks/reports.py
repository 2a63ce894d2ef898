#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do bench/run.sh and bench/report.py keep what was measured, and say in a sentence what they cannot use?

usage: reports.py

The benches themselves are a few lines of shell here, which answer in no time.
"""

import io
import json
import pathlib
import re
import shutil
import sys
import tarfile
import tempfile

from workshop import ROOT, close_with, run, tail

RUN, REPORT = ROOT / "bench/run.sh", ROOT / "bench/report.py"
# In place of weir-bench: answers every question but one that is named 'crash'.
PROGRAM = r'''#!/bin/sh
for each; do
    case $each in
    --benchmark_filter=^crash/) echo "Segmentation fault"; exit 139 ;;
    --benchmark_out=*) out=${each#*=} ;;
    esac
done
echo '{"context": {"device": "none"}, "benchmarks": [
    {"name": "pairs/256_B/weir::device_pool/x", "run_type": "iteration", "real_time": 7.5}]}' > "$out"
'''


def asked(place, questions, out):
    """Runs run.sh with the program above."""
    program = place / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return run(["env", f"WEIR_BENCH_QUESTIONS={questions}", "sh", RUN, program, out], cwd=place)


def expect(done, code, *parts):
    """Complaint about an exit code and what was said, or ''."""
    missing = [part for part in parts if part not in done.output]
    if done.code == code and not missing and "Traceback" not in done.output:
        return ""
    return f"exit {done.code}, not {code}, or not said: {missing}\n{tail(done.output)}"


def all_answered(place):
    done = asked(place, "pairs:5", place / "all/of/it")
    files = sorted(path.name for path in (place / "all/of/it").glob("*"))
    if files != ["raw.tar.gz", "report.md", "report.svg", "results.csv", "table.txt"]:
        return f"left {files}\n{tail(done.output)}"
    return expect(done, 0, "7.5")


def one_crashed(place):
    done = asked(place, "crash:5 pairs:5", place / "some")
    if "7.5" not in (place / "some/table.txt").read_text():
        return f"the other question's figures are lost:\n{tail(done.output)}"
    return expect(done, 1, "exit code 139", "7.5")


def no_folder(place):
    (place / "file").write_text("")
    done = asked(place, "pairs:5", place / "file/out")
    return expect(done, 2, f"run.sh: cannot write '{place}/file/out'; name another folder") or \
        ("the questions were asked all the same" if "pairs: " in done.output else "")


CASE = {"name": "pairs/256_B/weir::device_pool/x", "run_type": "iteration", "real_time": 7.5}
COLUMNS = "pool,trace,events,peak_requested_bytes,peak_reserved_bytes,ns_per_op,driver_calls,failures\n"
ROW = "device_pool,t,2,100,200,30.5,4,0\ncub,t,2,100,200,30.5,4,0\n"
README = "# A page\n<!-- figures -->\nold\n<!-- end of figures -->\n"
OUTPUTS = {"--csv": "out.csv", "--markdown": "out.md", "--svg": "out.svg"}


def packed(*files):
    """A raw.tar.gz of (name, text); None: a folder of that name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files:
            member = tarfile.TarInfo(name)
            member.size = len(text or "")
            member.type = tarfile.REGTYPE if text is not None else tarfile.DIRTYPE
            archive.addfile(member, io.BytesIO((text or "").encode()))
    return out.getvalue()


def good(*entries):
    """A run as JSON, with the usual entry in front."""
    return json.dumps({"context": {"device": "none"}, "benchmarks": [CASE, *entries]})


def odd(**values):
    """The same, and an entry that has these values instead."""
    return good({**CASE, "name": "a/b/odd", **values})


# name, run, what is said of it; the usual entry is reported all the same
LEFT_OUT = [
    ("no time", good({"name": "a/b/odd"}), "a/b/odd is left out: its real_time is missing"),
    ("no number", odd(real_time=float("nan")), "a/b/odd is left out: its real_time is nan"),
    ("an endless time", odd(real_time=10 ** 400), "a/b/odd is left out: its real_time is 1000"),
    ("no time passed", odd(real_time=0), "a/b/odd is left out: its real_time is 0"),
    ("a counter of text", odd(device_MiB="x"), "a/b/odd is left out: its device_MiB is x"),
    ("no name", good({"real_time": 1}), "an entry is left out: it has no name"),
    ("a short name", odd(name="odd"), "odd is left out: its name is not question/case/pool"),
    ("no entry", good(3), "an entry is left out: it has no name"),
    ("a folder in the archive", packed(("x.json", None), ("y.json", good())), ""),
    ("a cut file in the archive", packed(("x.json", good()[:-9]), ("y.json", good())), "x.json is left out: "),
    ("a list in the archive", packed(("x.json", "[1]"), ("y.json", good())), "x.json is left out: it is no JSON of Google"),
]

# name, run: nothing is left, and nothing is written
NOTHING = [
    ("a cut archive", packed(("y.json", odd(x="y" * 99999)))[:200]),
    ("a damaged archive", bytes(each if at < 150 else 255 for at, each in enumerate(packed(("y.json", good()))))),
    ("a list", "[1]"),
    ("null", "null"),
    ("entries that are none", '{"benchmarks": 3}'),
    ("bytes", b"\xff\xfe\x00"),
]

# name, arguments, files, what is said; nothing is written
SIMULATED, NO_MEMORY = "device_pool,t,2,100,200,,4,0\n", "device_pool,t,2,0,200,3,4,0\n"
NO_FIGURE = "device_pool,t,2,100,200,nan,4,0\n"
REFUSED = [
    ("the simulated device", ["--replay", "r"], {"r": COLUMNS + SIMULATED}, "r, line 2: the replay ran on the simulated"),
    ("a trace of nothing", ["--replay", "r"], {"r": COLUMNS + NO_MEMORY}, "r, line 2: the trace 't' asks for no memory"),
    ("no figure", ["--replay", "r"], {"r": COLUMNS + NO_FIGURE}, "r, line 2: ns_per_op is nan"),
    ("half a row", ["--replay", "r"], {"r": COLUMNS + "device_pool,t,2\n"}, "r, line 2: "),
    ("another header", ["--replay", "r"], {"r": "pool,trace\na,b\n"}, "r has no column 'peak_requested_bytes'; give"),
    ("no rows", ["--replay", "r"], {"r": COLUMNS}, "r has no rows; give"),
    ("an empty replay", ["--replay", "r"], {"r": ""}, "r has no column 'pool'; give"),
    ("no replay", ["--replay", "r"], {}, "r cannot be read: "),
    ("one pool for the README", ["--replay", "r", "--readme", "README"], {"r": COLUMNS + ROW.splitlines()[0]},
     "the replay of 't' has no cub; replay it through all pools"),
    ("no README", ["--readme", "gone"], {}, "gone cannot be read: "),
    ("a README without the lines", ["--readme", "plain"], {"plain": "# A page\n"}, "plain has no lines '<!-- figures -->'"),
    ("no folder for the table", ["--csv", "nowhere/out.csv"], {}, "nowhere/out.csv cannot be written: "),
    ("no figures before", ["--before", "gone"], {}, "gone cannot be read: "),
    ("a folder for the page", ["--markdown", "."], {}, ". cannot be written: "),
]


def reported(place, run_file, *arguments):
    """Runs report.py on such a file; its outputs hold 'old' before."""
    (place / "run").write_bytes(run_file if isinstance(run_file, bytes) else run_file.encode())
    for name in OUTPUTS.values():
        (place / name).write_text("old")
    (place / "README").write_text(README)
    outputs = [word for option, name in OUTPUTS.items() if option not in arguments for word in (option, name)]
    return run([sys.executable, REPORT, "--text", *outputs, *arguments, "run"], cwd=place)


def unwritten(place, done):
    """Complaint where an output was not written, or the usual entry is not in it."""
    lost = [name for name in OUTPUTS.values() if "256" not in (place / name).read_text()]
    return f"no figures in {lost}:\n{tail(done.output)}" if lost else ""


def touched(place):
    """Complaint where something was written."""
    changed = [name for name in OUTPUTS.values() if (place / name).read_text() != "old"]
    return f"{changed} written" if changed else "" if (place / "README").read_text() == README else "the README was written"


def refused(done, sentence):
    """Complaint where it is not sentences and exit 1."""
    lines = done.output.splitlines()
    return expect(done, 1, sentence) or ("" if all(line.startswith("report.py: ") for line in lines) else tail(done.output))


def of_report(place):
    """(name, complaint) of report.py's cases."""
    for name, run_file, sentence in LEFT_OUT:
        done = reported(place, run_file)
        yield name, expect(done, 0, sentence) or unwritten(place, done)
    for name, run_file in NOTHING:
        yield name, refused(reported(place, run_file), "the files hold no results") or touched(place)
    for name, arguments, files, sentence in REFUSED:
        (place / "r").unlink(missing_ok=True)
        for each, text in files.items():
            (place / each).write_text(text)
        yield name, refused(reported(place, good(), *arguments), sentence) or touched(place)
    own, null = ({**CASE, "name": f"pairs/{case}/weir::device_pool/x", "real_time": ns}
                 for case, ns in (("4_KiB", 20), ("4_KiB_null_stream", 50)))
    done = reported(place, good(own, null))
    yield "over a stream of one's own", expect(done, 0, "50 ~0%, 2.50 x own stream") or \
        ("" if "2.50 x own stream" in (place / "out.md").read_text() else "the Markdown has no ratio")
    yield "no stream of one's own", "" if "own stream" not in reported(place, good(null)).output else "a ratio of nothing"
    (place / "r").write_text(COLUMNS + ROW)
    done = reported(place, good(), "--replay", "r", "--readme", "README")
    figures = "| t | 2.000 | - | 2.000 | - |" in (place / "README").read_text()
    yield "all of it", expect(done, 0, "7.5") or unwritten(place, done) or ("" if figures else "the README has no figures")


# pool, then, now (median, least, MiB), what a page says of it; the machine takes twice as long as it took
MOVED = [
    ("weir::slower", (10, 9, 100), (30, 27, 100), "| pairs/256_B | ns | `weir::slower` | 10 | 30 | 1.50 |"),
    ("weir::quicker", (10, 9, 100), (10, 9, 100), "| pairs/256_B | ns | `weir::quicker` | 10 | 10 | 0.50 |"),
    ("weir::late_once", (10, 9, 100), (30, 18, 100), None),
    ("weir::heavier", (10, 9, 100), (20, 18, 103), "| MiB of device memory | `weir::heavier` | 100 | 103 | 1.03 |"),
    ("weir::as_heavy", (10, 9, 100), (20, 18, 101), None),
    ("weir::gone", (10, 9, 100), None, "No longer here: pairs/256_B: `weir::gone`."),
    ("weir::new", None, (10, 9, 100), "New here: pairs/256_B: `weir::new`."),
    ("cudaMallocAsync", (10, 9, 100), (20, 18, 100), None),
]
HELD = "device_pool,t,2,100,{},30.5,4,0\ncub,t,2,100,200,30.5,4,0\n"


def run_of(at, commit):
    """A run of MOVED's pools as JSON; 'at' is 1 for then, 2 for now."""
    entries = [{"name": f"pairs/256_B/{row[0]}/x", "real_time": time, "device_MiB": row[at][2]}
               for row in MOVED if row[at] for time in (row[at][0], row[at][0], row[at][1])]
    return json.dumps({"context": {"commit": commit}, "benchmarks": entries})


def page_of(place, at, commit, held, *arguments):
    (place / f"{at}.json").write_text(run_of(at, commit))
    (place / "replay").write_text(COLUMNS + HELD.format(held))
    return run([sys.executable, REPORT, "--replay", "replay", "--markdown", "page.md", *arguments, f"{at}.json"], cwd=place)


def moves(place):
    """What moved is said, once with the figures of --before, once with those that git has; also when they are committed."""
    if not shutil.which("git"):
        return
    git = lambda *words: run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *words], cwd=place)
    git("init", "-q")
    (place / "include").mkdir()
    git("commit", "-q", "--allow-empty", "-m", "begun")
    begun = git("rev-parse", "--short", "HEAD").output.strip()
    page_of(place, 1, begun, 110, "--csv", "page.csv")
    (place / "page.md").write_text((place / "page.md").read_text() + "\n## What to read into it\n\nBy hand.\n")
    for name in ("then.csv", "then.md"):
        (place / name).write_text((place / f"page.{name[5:]}").read_text())
    (place / "include/x").write_text("")
    git("add", ".")
    git("commit", "-q", "-m", "a page, and a header that came after it")
    said = [row[3] for row in MOVED if row[3]] + [
        f"## What moved since the page before ({begun})", "Of 5 times", "is 2.00, and 2.00 to 2.00 in single", "Up: worse than before: 3.",
        "Down: better than before: 1.", "| replay/t | held over asked | `device_pool` | 1.100 | 1.300 | 1.18 |",
        "- commits that changed include/ since: 1, counted at ", "By hand."]
    for what, arguments in (("--before", ["--before", "then.csv"]), ("git's", ["--csv", "page.csv"]), ("git's, committed", ["--csv", "page.csv"])):
        done = page_of(place, 2, begun, 130, *arguments)
        text = (place / "page.md").read_text()
        missing = [part for part in said if text.count(part) != 1]
        silent = [row[0] for row in MOVED if not row[3] and f"`{row[0]}`" in text[text.index("## What moved"):]]
        yield f"moved: {what}", expect(done, 0) or (f"not said once: {missing}; said: {silent}\n{text}" if missing or silent else "")
        if what == "git's":
            git("commit", "-q", "-a", "-m", "the next page")
    (place / "include/x").write_text("changed")
    git("commit", "-q", "-a", "-m", "a header again")
    since = run([sys.executable, REPORT, "--since", "page.md"], cwd=place)
    yield "--since", expect(since, 0, "page.md: commits that changed include/ since: 2, counted at ") or \
        ("" if (place / "page.md").read_text().count("include/ since: 2,") == 1 else "the page has the line not once")
    (place / "other").write_text("# A page\n")
    yield "--since: no page of results", refused(run([sys.executable, REPORT, "--since", "other"], cwd=place), "other has no line ")
    (place / "bad.csv").write_text("question,case,pool\na,b,c\n")
    yield "moved: no figures", expect(page_of(place, 2, "ffffffff", 130, "--before", "bad.csv"), 0, "what moved is left out: ") or \
        ("" if "since: not known" in (place / "page.md").read_text() else "a commit that is not there is counted from")


def contrast(one, other):
    """WCAG's contrast ratio of two colours that are written #rgb or #rrggbb."""
    def luminance(colour):
        digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
        parts = (int(digits[at:at + 2], 16) / 255 for at in (0, 2, 4))
        return sum(share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
                   for share, part in zip((0.2126, 0.7152, 0.0722), parts))
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def picture(place):
    """README.md's picture can be read where it is 400 wide, on light and dark pages, and a pool without a figure says so."""
    old = (ROOT / "bench/results/h200.csv").read_text()
    bare = "".join(line for line in old.splitlines(True) if not line.startswith("traces,prefetch_streams,rmm::"))
    columns = old.splitlines()[0].split(",")
    row = dict.fromkeys(columns, "") | {"question": "traces", "case": "prefetch_streams", "pool": "rmm::x", "median_ns": 1, "min_ns": 1,
                                        "max_ns": 1, "repetitions": 7, "device_MiB": 1000}
    (place / "h200.md").write_text((ROOT / "bench/results/h200.md").read_text())
    for what, table, said in (("without RMM's memory", bare, ">not measured</text>"),
                              ("with it", f"{bare}{','.join(str(row[each]) for each in columns)}\n", "<title>rmm::x: 1.56 times</title>")):
        (place / "h200.csv").write_text(table)
        done = run([sys.executable, ROOT / "bench/pictures.py", place])
        text = (place / "h200_short.svg").read_text() if done.code == 0 else ""
        yield what, expect(done, 0) or ("" if said in text else f"not said: {said}\n{text}")
    light, dark = text[text.index("<style>"):text.index("</style>")].split("@media (prefers-color-scheme: dark)")
    for what, style in (("light", light), ("dark", dark)):
        colours = dict(re.findall(r"(text|ground|weir|other) {[^}]*fill: #(\w+)", style))
        faint = {name: colour for name, colour in colours.items() if name != "ground" and contrast(colour, colours["ground"]) < 4.5}
        yield f"contrast, {what}", f"too faint: {faint}" if faint or len(colours) != 4 else ""
    width = int(re.search(r'<svg [^>]*width="(\d+)"', text)[1])
    sizes = [int(size) * 400 / width for size in re.findall(r"font(?:-size)?: (\d+)px", text)]
    yield "sizes", "" if width <= 640 and sizes and min(sizes) >= 11 else f"{width} wide, text of {sizes} pixels at 400"


def results():
    """(name, complaint) of everything here."""
    found = []
    for check in (all_answered, one_crashed, no_folder):
        with tempfile.TemporaryDirectory() as folder:
            found.append((f"reports: {check.__name__}", check(pathlib.Path(folder))))
    found.append(("reports: pictures", expect(run([sys.executable, ROOT / "bench/pictures.py", "--check"]), 0)))
    with tempfile.TemporaryDirectory() as folder:
        old = pathlib.Path(folder)
        for name in ("h200.csv", "h200.md"):
            (old / name).write_text((ROOT / "bench/results" / name).read_text())
        found.append(("reports: no pictures", expect(run([sys.executable, ROOT / "bench/pictures.py", "--check", old]), 1, "h200_short.svg")))
    with tempfile.TemporaryDirectory() as folder:
        found += [(f"reports: {name}", complaint) for name, complaint in of_report(pathlib.Path(folder))]
    with tempfile.TemporaryDirectory() as folder:
        found += [(f"reports: picture {name}", complaint) for name, complaint in picture(pathlib.Path(folder))]
    with tempfile.TemporaryDirectory() as folder:
        found += [(f"reports: {name}", complaint) for name, complaint in moves(pathlib.Path(folder))]
    return found


if __name__ == "__main__":
    close_with(results())
