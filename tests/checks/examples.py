#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does every example run, through the README's own command, and is each as short as it should be?

usage: examples.py [NAME...]

Runs 'sh examples/run.sh NAME' for all examples, and without a name, whose table and page are looked at; and one
trace as --csv, whose standard output must be nothing but the table. weir_top looks at a program that goes on, and is killed. And the path, examples/README.md, has a row for each
example, in the order of --help.
"""

import csv
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import browser
import page
from workshop import BUILD, ROOT, close_with, run, say, tail

LONGEST = 60  # lines of a numbered example
LONGER = {"17_sort_out_of_core": 170, "18_join": 170, "19_train_step": 200, "22_kv_cache": 150, "24_three_models": 150,
          "25_data_parallel": 150, "26_model_parallel": 150, "27_sharded_sort": 150}  # whole algorithms, and a table of several ways
COLUMNS = ("pool,trace,events,peak_requested_bytes,peak_reserved_bytes,ns_per_op,driver_calls,failures,"
           "waiting_calls,operations")


def example(name, place):
    """Runs one example; returns a complaint or ''."""
    say(name)
    done = run(["sh", ROOT / "examples/run.sh", name], cwd=place, timeout=600)
    last = (done.output.strip().splitlines() or [""])[-1]
    if done.code != 0 or not re.match(rf"{re.escape(name)}: done, on ", last):
        return f"exit {done.code}:\n{tail(done.output)}"
    sources = [p for p in (ROOT / "examples" / f"{name}.cpp", ROOT / "examples" / f"{name}.cu") if p.exists()]
    lines, longest = len(sources[0].read_text().splitlines()) if sources else 0, LONGER.get(name, LONGEST)
    if lines >= longest:
        return f"{lines} lines; under {longest} are due"
    return ""


def path(names):
    """The path's rows are the examples, in their order."""
    rows = re.findall(r"^\| \[(\w+)\]\(", (ROOT / "examples/README.md").read_text(), flags=re.M)
    return "" if rows == names else f"examples/README.md has rows for {rows}, and the examples are {names}"


def replay_page(place):
    """With no arguments: the table, and one page that needs nothing else."""
    place = pathlib.Path(place) / "page"  # record_and_replay has written one, too
    place.mkdir()
    done = run(["sh", ROOT / "examples/run.sh"], cwd=place, timeout=600)
    pages = list(place.rglob("*.html"))
    if done.code != 0 or "device_pool" not in done.output:
        return f"exit {done.code}:\n{tail(done.output)}"
    if len(pages) != 1:
        return f"{len(pages)} pages written where it ran, not one:\n{tail(done.output)}"
    text = pages[0].read_text()
    if "<svg" not in text and "<canvas" not in text:
        return "the page holds no picture"
    if re.search(r'(src|href)="(https?:)?//', text):
        return "the page needs something from elsewhere"
    return ""


def replay_csv(place):
    """--csv: nothing but the table on standard output."""
    traces = sorted((ROOT / "examples").rglob("*.csv*"))
    if not traces:
        return "no trace ships with the examples"
    done = subprocess.run(["sh", str(ROOT / "examples/run.sh"), "replay", "--csv", str(traces[0])], cwd=place, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    rows = list(csv.reader(io.StringIO(done.stdout)))
    if done.returncode != 0 or not rows or ",".join(rows[0]) != COLUMNS:
        return f"exit {done.returncode}: the first line is not '{COLUMNS}':\n{tail(done.stdout + done.stderr)}"
    if any(len(row) != len(rows[0]) for row in rows):
        return f"rows of different lengths:\n{tail(done.stdout)}"
    if not any(row[0].endswith("device_pool") for row in rows):
        return f"no row for device_pool:\n{tail(done.stdout)}"
    return ""


def bad_input(place):
    """A file that is not there: one sentence, an exit code, no crash."""
    done = run(["sh", ROOT / "examples/run.sh", "replay", "nowhere.csv"], cwd=place, timeout=600)
    if done.code in (None, 0) or done.code < 0 or "nowhere.csv" not in done.output:
        return f"exit {done.code}:\n{tail(done.output)}"
    return ""


def trace_for_page(place):
    """A trace where the page's name belongs: refused, and left as it is."""
    trace = pathlib.Path(place) / "mine.csv"
    trace.write_text("op,id,bytes,stream,t_us\na,0,8,0,0\n")
    before = trace.read_text()
    done = run(["sh", ROOT / "examples/run.sh", "replay", "--csv", "--html", trace], cwd=place, timeout=600)
    if trace.read_text() != before:
        return f"the trace was written over:\n{tail(done.output)}"
    return "" if done.code == 2 and "looks like a trace" in done.output else f"exit {done.code}:\n{tail(done.output)}"


def full(place, argument, where="> /dev/full"):
    """What cannot be printed is told, and is no success."""
    done = run(["sh", "-c", f'sh "$0" replay "$1" {where}', ROOT / "examples/run.sh", argument], cwd=place, timeout=600)
    told = "standard output could not be written" in done.output
    return "" if done.code == 1 and told else f"exit {done.code}:\n{tail(done.output)}"


def page_in_browser(place):
    """Two recordings side by side, on a page that a browser opens."""
    folder = pathlib.Path(place) / "browser"
    folder.mkdir()
    for name, extra in (("before", 2), ("after", 3)):
        (folder / f"{name}.json").write_text(page.snapshot(extra * page.MIB))
    done = run(["sh", ROOT / "examples/run.sh", "replay", "--pool", "device_pool", "--advice", "--beside", "before.json", "after.json"], cwd=folder,
               timeout=600)
    if done.code != 0 or "after beside before" not in done.output:
        return f"exit {done.code}:\n{tail(done.output)}"
    try:
        return "\n".join(page.looked_at(folder / "weir-replay.html"))
    except OSError as error:
        return f"{browser.found()}: {error}"


def living(place):
    """weir_top beside a program that runs: figures, a dump, and what it says once that was killed. Both are built."""
    folder, file = BUILD / "release/examples", pathlib.Path(place) / "living.dump"

    def top(*words):
        return run([folder / "weir_top", *words], cwd=place, timeout=60)

    watched = subprocess.Popen([folder / "29_watch", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            row = re.search(rf"^{watched.pid} +29_watch +1 pool +(weir\.\S+)$", top().output, flags=re.M)
            if row or watched.poll() is not None:
                break
            time.sleep(0.1)
        if not row:
            return f"it does not list the board of process {watched.pid}:\n{tail(top().output)}"
        once = top("--once", "--every", "0.2", str(watched.pid))
        pool = re.search(r"^batches \(device 0\) +([\d.]+) MiB +[\d.]+ MiB +([\d.]+) MiB +[\d.]+ MiB +\S+ \S+ +(\d+) +(\S+) +(\S+) +\S+ [KMGT]iB +\d+ +\S+$",
                         once.output, flags=re.M)
        rows = re.findall(r"^  stream 0x\w+ +[\d.]+ [KM]?i?B +(\d\S*) +(\d\S*) +\S+ \S+$", once.output, flags=re.M)
        if once.code != 0 or not pool or not 16 <= float(pool[1]) <= float(pool[2]) or not 1 <= int(pool[3]) <= 3 or pool[4] in "0-" or len(rows) != 2:
            return f"exit {once.code}, and not the figures of 29_watch:\n{tail(once.output)}"
        dump = top("--dump", file, str(watched.pid))
        if dump.code != 0 or "the report of 1 pool" not in dump.output or not file.read_text().startswith("pool 'batches'"):
            return f"exit {dump.code}, no dump:\n{tail(dump.output)}"
        nowhere = top("--dump", "/nowhere/at/all", str(watched.pid))
        if nowhere.code != 1 or "cannot be written" not in nowhere.output:
            return f"exit {nowhere.code} for a dump that cannot be written:\n{tail(nowhere.output)}"
    finally:
        watched.kill()
        watched.wait()
    segment = pathlib.Path("/dev/shm") / row[1]
    ended = [top("--once", str(watched.pid)), top("--once", row[1])]
    segment.unlink(missing_ok=True)
    ended += [top("--once", str(watched.pid))]
    told = [f"('29_watch') has ended and left its board behind: rm {segment}"] * 2 + [f"process {watched.pid} has no board here"]
    return "\n".join(f"exit {done.code}, and not '{due}':\n{done.output}" for done, due in zip(ended, told)
                     if done.code != 2 or due not in done.output)


def main():
    listed = run(["sh", ROOT / "examples/run.sh", "--help"])
    names = sys.argv[1:] or re.findall(r"^  (\S+)(?:  | *$)", listed.output.split("ARGUMENT...]]\n")[-1], flags=re.M)
    names = [name for name in names if not name.startswith("NAME")]
    env_build = os.environ.get("WEIR_BUILD_DIR", "")
    if env_build and not env_build.startswith("/"):
        os.environ["WEIR_BUILD_DIR"] = str(BUILD)
    results = []
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            if name != "replay":
                results.append((f"examples: {name}", example(name, place)))
        if {"29_watch", "weir_top"} <= set(names):
            results.append(("examples: weir_top beside a program", living(place)))
        if not sys.argv[1:]:
            results.append(("examples: the path", path(names)))
        if not sys.argv[1:] or "replay" in sys.argv[1:]:
            results.append(("examples: replay with no arguments", replay_page(place)))
            results.append(("examples: replay --csv", replay_csv(place)))
            results.append(("examples: replay of no file", bad_input(place)))
            results.append(("examples: replay --html TRACE", trace_for_page(place)))
            if browser.found():
                results.append(("examples: replay's page in a browser", page_in_browser(place)))
            else:
                print("examples: no browser here (Debian: chromium), so that nobody opened replay's page")
            if os.path.exists("/dev/full"):
                results += [(f"examples: replay {each} with no room", full(place, each)) for each in ("--list", "--help")]
            results.append(("examples: replay --list to nobody", full(place, "--list", ">&-")))
    print(f"examples: {', '.join(names)}")
    close_with(results)


if __name__ == "__main__":
    main()
