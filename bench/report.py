#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the JSON of bench runs into tables and a picture.

    report.py [--text] [--csv FILE] [--markdown FILE] [--svg FILE] [--title TEXT] [--replay FILE] [--readme FILE]
              [--before FILE] RUN...
    report.py --since PAGE...

RUN is Google Benchmark's JSON of weir-bench, or run.sh's raw.tar.gz, which holds such files; names are
question/case/pool. A figure is the median over the repetitions, with the least and the greatest; of a slow pool there
are fewer. A run that is cut or no run at all is left out, which stderr is told. --text prints a compact table: median and, in per cent of it, how far the repetitions lie apart. --replay
names what 'replay --csv TRACE...' printed on the same machine. A Markdown file that is there keeps what stands in it
from the line '## What to read into it' on: that part is written by hand. --readme puts the figures between the lines
'<!-- figures -->' and '<!-- end of figures -->' of a README. A Markdown file says how many commits
changed include/ after the run's, and what moved since the page before: since the CSV that git has of --csv with other
figures than these, or since --before's (moved.py says what counts). --since counts those commits anew for pages that are
there, writes the line into them, and prints it. What cannot be used is said in a sentence, exit code 1, and no file is
touched then. Standard library only.
"""
import argparse
import csv
import html
import io
import json
import math
import pathlib
import re
import statistics
import sys
import tarfile
import textwrap
import zlib

import moved
from pictures import SENTENCES as PICTURED

QUESTIONS = {
    "pairs": "Allocate and free a block of one size, one thread: ns a pair",
    "random_sizes": "Random sizes 1 KiB to 1 MiB, random lifetimes: ns a call",
    "fragmented": "Pair after 32,768 blocks of which every second was freed: ns a pair",
    "threads": "Threads, pairs of 4 KiB: wall ns over all pairs",
    "shapes": "The shapes of larson, xmalloc-test, sh6bench and mstress, 8 threads: wall ns over all calls",
    "handover": "Memory that changes streams: wall ns a block",
    "kernels": "8 kernels on each of 8 streams, with a temporary buffer each: wall ns",
    "streams": "10,000 streams that come and go: ns a call",
    "growth": "The first block, the first 2 GiB in blocks of 2 MiB, and the end of the pool: ns a block",
    "live_blocks": "Replacing one of many live blocks of 512 B to 4 KiB: ns a call",
    "side_by_side": "Pairs of 4 KiB on 64 pools in turn: ns a pair",
    "traces": "Traces of real programs at full speed: ns a call",
    "interop": "By another library's way: ns a pair of 256 B, or for the whole sort",
    "suspension": "Giving 16 GiB up and getting them back: ns for all",
}
OWN_STREAM = {  # cases on a default stream, and the same on streams of one's own
    ("pairs", "4_KiB_null_stream"): "4_KiB", ("pairs", "4_KiB_per_thread_stream"): "4_KiB",
    ("threads", "16_threads_per_thread_streams"): "16_threads_own_streams"}
PEER = "cudaMallocAsync"  # what no pool of weir's may be slower than; its driver_pool is the same thing
COUNTERS = {  # and what stands behind the figure
    "device_MiB": "MiB of device memory", "host_B_per_block": "host B a block", "host_B_half_freed": "with half freed",
    "host_B_per_stream": "host B a stream", "host_KiB_per_pool": "host KiB a pool", "destroy_ms": "ms to destroy",
    "percent_over_bare": "% over no allocation", "percent_slower": "% slower than early", "cold_ns": "ns cold",
    "Mcalls_per_s": "million a second", "percent_of_link": "% of the link's speed",
    "percent_of_pages": "% of the free pages", "percent_at_once": "% by trim alone"}
LESS_IS_BETTER = ("device_MiB", "host_B_per_block", "host_B_half_freed", "host_B_per_stream", "host_KiB_per_pool",
                  "destroy_ms", "percent_over_bare", "cold_ns")
SHARE = "WEIR_BENCH_SHARE is spent"  # what the harness says of a repetition that it left out
BY_HAND = "## What to read into it"
REPLAY = ("pool", "trace", "peak_requested_bytes", "peak_reserved_bytes", "ns_per_op", "driver_calls", "failures")
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


class Figure:
    def __init__(self):
        self.times = []
        self.counters = {}
        self.error = None

    @property
    def median(self):
        return statistics.median(self.times)


class Refused(Exception):
    """What was given cannot be used. The text is a sentence that says what to do."""


def say(sentence):
    print(f"report.py: {sentence}", file=sys.stderr)


def files_of(path):
    """(name, bytes) of a run's file, or of every file of JSON in an archive."""
    if not tarfile.is_tarfile(path):
        return [(path, pathlib.Path(path).read_bytes())]
    with tarfile.open(path) as archive:
        return [(member.name, archive.extractfile(member).read())
                for member in archive if member.isfile() and member.name.endswith(".json")]


def runs_in(paths):
    """(name, run) for every file of JSON, also of those in an archive, in the order of their names."""
    found = []
    for path in paths:
        try:
            files = files_of(path)
        except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
            say(f"{path} is left out: {error}")
            continue
        for name, text in files:
            where = path if name == path else f"{path}: {name}"
            try:
                run = json.loads(text)
            except (ValueError, RecursionError) as error:
                say(f"{where} is left out: {error}")
                continue
            if isinstance(run, dict) and isinstance(run.get("context", {}), dict) and isinstance(run.get("benchmarks", []), list):
                found.append((name, where, run))
            else:
                say(f"{where} is left out: it is no JSON of Google Benchmark's")
    return [(where, run) for _, where, run in sorted(found, key=lambda each: each[0])]


def is_figure(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e18 < value < 1e18  # no NaN either


def fault_of(entry):
    """Why an entry of a run cannot be used, or ''."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return "it has no name"
    if entry["name"].count("/") < 2:
        return "its name is not question/case/pool"
    if not is_figure(entry.get("family_index", 0)):
        return "its family_index is no number"
    if entry.get("error_occurred"):
        return ""
    if not is_figure(entry.get("real_time")) or entry["real_time"] <= 0:
        return f"its real_time is {entry.get('real_time', 'missing')}"
    return next((f"its {counter} is {entry[counter]}" for counter in COUNTERS if not is_figure(entry.get(counter, 0))), "")


def read(paths):
    """{question: {case: {pool: Figure}}} in the order of the program, and the context of the first file."""
    entries, context = [], {}
    for where, run in runs_in(paths):
        context = context or {key: str(value) for key, value in run.get("context", {}).items()}
        for entry in run.get("benchmarks", []):
            if isinstance(entry, dict) and entry.get("run_type") == "aggregate":
                continue
            if fault := fault_of(entry):
                say(f"{where}: {entry.get('name', 'an entry') if isinstance(entry, dict) else 'an entry'} is left out: {fault}")
            else:
                entries.append(entry)
    # Interleaved runs are written in the order in which they ended; families are numbered as they were registered.
    asked = list(QUESTIONS)
    entries.sort(key=lambda entry: (asked.index(q) if (q := entry["name"].split("/")[0]) in asked else len(asked),
                                    entry.get("family_index", 0)))
    figures = {}
    for entry in entries:
        question, case, pool = entry["name"].split("/")[:3]
        figure = figures.setdefault(question, {}).setdefault(case, {}).setdefault(pool, Figure())
        if entry.get("error_occurred"):
            if entry.get("error_message") != SHARE:
                figure.error = str(entry.get("error_message", "failed"))
            continue
        figure.times.append(entry["real_time"])
        for counter in COUNTERS:
            if counter in entry:
                figure.counters.setdefault(counter, []).append(entry[counter])
    return figures, context


def pools_of(cases):
    return list(dict.fromkeys(pool for case in cases.values() for pool in case))


def number(x):
    if x < 10:
        return f"{x:.1f}"
    return f"{x:,.0f}"


def title_of(case):
    return case.replace("_", " ")


def over_own_stream(question, name, cases, pool):
    """How many times a median is that of the same pool on streams of one's own, as text; '' where that is not asked."""
    own = cases.get(OWN_STREAM.get((question, name)), {}).get(pool)
    return f", {cases[name][pool].median / own.median:.2f} x own stream" if own and own.times else ""


def rows(figures):
    for question, cases in figures.items():
        for case, pools in cases.items():
            for pool, figure in pools.items():
                yield question, case, pool, figure


def text(figures, context, out):
    if context.get("device") == "simulated":
        print("\non the simulated device: these times mean nothing", file=out)
    if context.get("weir_build") == "debug":
        print("\nweir was built without NDEBUG: these are not its figures", file=out)
    for question, cases in figures.items():
        print(f"\n{QUESTIONS.get(question, question)}", file=out)
        table = [[""] + [title_of(case) for case in cases]]
        for pool in pools_of(cases):
            cells = [pool]
            for name, case in cases.items():
                figure = case.get(pool)
                if figure is None or not figure.times:
                    cells.append("-" if figure is None else "failed")
                    continue
                spread = (max(figure.times) - min(figure.times)) / figure.median * 100
                cell = f"{number(figure.median)} ~{spread:.0f}%" + over_own_stream(question, name, cases, pool)
                for counter in COUNTERS:
                    if counter in figure.counters:
                        cell += f", {number(statistics.median(figure.counters[counter]))} {COUNTERS[counter]}"
                cells.append(cell)
            table.append(cells)
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        for row in table:
            print(f"{row[0]:<{widths[0]}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:])),
                  file=out)
    slower = [f"{question}/{case}/{pool} {figure.median / peer.median:.2f}x"
              for question, case, pool, figure in rows(figures)
              if pool.startswith("weir::") and pool != "weir::driver_pool" and figure.times
              and (peer := figures[question][case].get(PEER)) and peer.times and figure.median > peer.median]
    print(f"\nslower than {PEER}: {', '.join(slower) or 'none of weir, in no case'}", file=out)
    errors = {}
    for question, case, pool, figure in rows(figures):
        if figure.error:
            errors.setdefault(figure.error, []).append(f"{question}/{case}/{pool}")
    for error, names in errors.items():
        more = ", ..." if len(names) > 3 else ""
        print(f"\nfailed {len(names)}: {error}: {', '.join(names[:3])}{more}"[:400], file=out)


def as_csv(figures):
    file = io.StringIO()
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["question", "case", "pool", "median_ns", "min_ns", "max_ns", "repetitions", *COUNTERS])
    for question, case, pool, figure in rows(figures):
        if figure.times:
            out.writerow([question, case, pool, f"{figure.median:.4g}", f"{min(figure.times):.4g}",
                          f"{max(figure.times):.4g}", len(figure.times)] +
                         [f"{statistics.median(figure.counters[c]):.4g}" if c in figure.counters else "" for c in COUNTERS])
    return file.getvalue()


def state(context):
    for key, label in (("device", "GPU"), ("nvidia_driver", "driver"), ("cuda_driver", "CUDA of the driver"),
                       ("cuda_runtime", "CUDA runtime"), ("processor", "processor"), ("num_cpus", "cores"),
                       ("compiler", "compiler"), ("commit", "weir's commit"), ("date", "date"),
                       ("command", "command")):
        if key in context:
            yield label, str(context[key])
    for key in context:
        if key.startswith("version/"):
            yield f"version of `{key[len('version/'):]}`", str(context[key])


def markdown(figures, context, title, picture, path, replayed, before):
    """The page; the part by hand is that of the file that is there. 'before': the CSV and the page before, or None."""
    there = text_of(path, "a Markdown file") if pathlib.Path(path).is_file() else ""
    kept = there[there.index(BY_HAND):] if BY_HAND in there else ""
    out = io.StringIO()
    print(f"# {title or context.get('device', 'bench')}\n", file=out)
    print("Medians of host-side nanoseconds over the repetitions (least to greatest); method: README.md.", file=out)
    if context.get("weir_build") == "debug":
        print("\n**weir was built without NDEBUG: these are not its figures.**", file=out)
    if context.get("device") == "simulated":
        print("\n**On the simulated device: these times mean nothing.**", file=out)
    print(file=out)
    for label, value in state(context):
        print(f"- {label}: {value}", file=out)
    for question, cases in figures.items():
        print(f"\n## {QUESTIONS.get(question, question)}\n", file=out)
        if picture and question in PICTURED:
            print(f"![{PICTURED[question]}]({picture}/{question}.svg)\n", file=out)
        print("| pool | " + " | ".join(title_of(case) for case in cases) + " |", file=out)
        print("|---|" + "---:|" * len(cases), file=out)
        for pool in pools_of(cases):
            cells = []
            for name, case in cases.items():
                figure = case.get(pool)
                if figure is None or not figure.times:
                    cells.append("-" if figure is None else "failed")
                    continue
                cell = f"{number(figure.median)} ({number(min(figure.times))} to {number(max(figure.times))})"
                cell += over_own_stream(question, name, cases, pool)
                for counter in COUNTERS:
                    if counter in figure.counters:
                        cell += f"; {number(statistics.median(figure.counters[counter]))} {COUNTERS[counter]}"
                cells.append(cell)
            print(f"| `{pool}` | " + " | ".join(cells) + " |", file=out)
    print_errors(figures, out)
    print_behind(figures, replayed, out)
    if replayed:
        print_replay(replayed, out)
    try:
        print(moved.section(before, as_csv(figures), out.getvalue()), end="", file=out)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        say(f"what moved is left out: the figures before are none of report.py's: {error!r}")
    if kept:
        print("\n" + kept.strip(), file=out)
    return moved.since(out.getvalue(), path)[0]


def print_errors(figures, out):
    """What did not run, and what ran less often than the rest."""
    errors = {}
    for question, case, pool, figure in rows(figures):
        if figure.error:
            errors.setdefault((figure.error, bool(figure.times)), {}).setdefault(f"{question}/{case}", []).append(pool)
    for (error, has_times), cases in errors.items():
        what = "Of fewer repetitions (the CSV says of how many)" if has_times else "Not run"
        print(f"\n{what}: {error}: " + "; ".join(
            f"{case}: " + ", ".join(f"`{pool}`" for pool in pools) for case, pools in cases.items()), file=out)


def print_behind(figures, replayed, out):
    """Every figure of a pool of weir's that is worse than PEER's."""
    lines, same = [], []
    for question, case, pool, figure in rows(figures):
        peer = figures[question][case].get(PEER)
        if not pool.startswith("weir::") or not figure.times or not peer or not peer.times:
            continue
        if pool == "weir::driver_pool":
            same.append(figure.median / peer.median)
            continue
        where = f"{question}/{case}"
        if figure.median > peer.median:
            lines.append((where, "ns", pool, figure.median, peer.median))
        for counter in LESS_IS_BETTER:
            if counter in figure.counters and counter in peer.counters:
                own, other = (statistics.median(f.counters[counter]) for f in (figure, peer))
                if own > other:
                    lines.append((where, COUNTERS[counter], pool, own, other))
    for trace, pools in replayed.items():
        other = pools.get("driver_pool")
        for pool in ("device_pool", "compact_device_pool", "composed_pool"):
            if other and (own := pools.get(pool)):
                if own["ns"] > other["ns"]:
                    lines.append((f"replay/{trace}", "ns an operation", pool, own["ns"], other["ns"]))
                if own["held"] > other["held"]:
                    lines.append((f"replay/{trace}", "reserved over requested", pool, own["held"], other["held"]))
    print(f"\n## Where a pool of weir's is behind {PEER}\n", file=out)
    if lines:
        print(f"Every median that is worse than {PEER}'s: slower, or more memory held. In the replay, which is below, that is\n"
              "`driver_pool`.\n", file=out)
        print(f"| where | what | pool | its | {PEER}'s | times |\n|---|---|---|---:|---:|---:|", file=out)
    else:
        print("In no case.", file=out)
    together = {}  # pools of one figure in one line
    for where, what, pool, own, other in lines:
        together.setdefault((where, what, own, other), []).append(f"`{pool}`")
    for (where, what, own, other), pools in together.items():
        digits = (lambda x: f"{x:.3f}") if what.startswith("reserved") else number
        print(f"| {where} | {what} | {', '.join(pools)} | {digits(own)} | {digits(other)} | " +
              (f"{own / other:.2f} |" if other > 0 else "- |"), file=out)
    if same:
        print(f"\n`weir::driver_pool`, the same pool of CUDA's behind a guard, is above it in {sum(r > 1 for r in same)} of "
              f"{len(same)} medians: {min(same):.2f} to {max(same):.2f} times.", file=out)


def read_replay(path):
    """{trace: {pool: {held, ns, calls, failures}}} of what 'replay --csv' printed; {} for no path."""
    found = {}
    if not path:
        return found
    try:
        table = csv.DictReader(io.StringIO(text_of(path, "a table of the replay's"), newline=""), strict=True)
        lines = [(table.line_num, row) for row in table]
    except csv.Error as error:
        raise Refused(f"{path} is no CSV: {error}; give what 'replay --csv TRACE...' printed") from None
    if missing := [column for column in REPLAY if column not in (table.fieldnames or ())]:
        raise Refused(f"{path} has no column '{missing[0]}'; give what 'replay --csv TRACE...' printed")
    for line, row in lines:
        try:
            if row["ns_per_op"] == "":
                raise Refused(f"{path}, line {line}: the replay ran on the simulated device, whose times mean nothing; "
                              "give one that ran on a GPU")
            if (asked := int(row["peak_requested_bytes"])) <= 0:
                raise Refused(f"{path}, line {line}: the trace '{row['trace']}' asks for no memory; leave it out")
            each = {"held": int(row["peak_reserved_bytes"]) / asked, "ns": float(row["ns_per_op"]),
                    "calls": int(row["driver_calls"]), "failures": int(row["failures"])}
            if not is_figure(each["ns"]):
                raise ValueError(f"ns_per_op is {row['ns_per_op']}")
        except (TypeError, ValueError, OverflowError) as error:  # None where a row ends early
            raise Refused(f"{path}, line {line}: {error}; give what 'replay --csv TRACE...' printed") from None
        found.setdefault(row["trace"], {})[row["pool"]] = each
    if not found:
        raise Refused(f"{path} has no rows; give what 'replay --csv TRACE...' printed")
    return found


def print_replay(replayed, out):
    failures = sum(each["failures"] for pools in replayed.values() for each in pools.values())
    print("\n## Replay of real traces: peak reserved over peak requested\n", file=out)
    print(f"`replay --csv TRACE...` (`examples/replay`), same machine and commit; allocations refused: {failures}. `cub` has its "
          "defaults here: it keeps 6 MB at most.", file=out)
    for what, show, intro in (("held", lambda x: f"{x:.3f}", ""),
                              ("ns", lambda x: f"{x:,.0f}", "The same: nanoseconds an operation, from a cold pool, growth included."),
                              ("calls", lambda x: f"{x:,}", "The same: driver calls.")):
        print(f"\n{intro}\n" if intro else "", file=out)
        print("| pool | " + " | ".join(title_of(trace) for trace in replayed) + " |\n|---|" + "---:|" * len(replayed), file=out)
        for pool in dict.fromkeys(pool for pools in replayed.values() for pool in pools):
            print(f"| `{pool}` | " + " | ".join(show(pools[pool][what]) if pool in pools else "-" for pools in replayed.values()) +
                  " |", file=out)


README_ROWS = (  # what bench/README.md shows: question, case, in words
    ("pairs", "256_B", "a pair of 256 B on one stream"),
    ("pairs", "32_MiB", "a pair of 32 MiB on one stream"),
    ("random_sizes", "10000_live", "a call, random sizes to 1 MiB, 10,000 live"),
    ("threads", "16_threads_own_streams", "a pair of 4 KiB, 16 threads, own streams (wall)"),
    ("handover", "producer_consumer", "a block that changes threads and streams"),
)
NO_STREAMS = "thrust::disjoint_pool"


def for_readme(figures, context, replayed):
    """The README's tables: the best peer of each row by name, and memory."""
    median = lambda question, case, pool: (f := figures.get(question, {}).get(case, {}).get(pool)) and f.times and f.median
    shown = lambda ns: number(ns) if ns else "-"
    paragraph = lambda words: textwrap.fill(words, 119, break_long_words=False, break_on_hyphens=False)
    lines = [paragraph(
        f"Host-side nanoseconds, medians of one run on an {context.get('device', '?').replace('NVIDIA ', '')} (driver "
        f"{context.get('nvidia_driver', '?')}, CUDA {context.get('cuda_runtime', '?')}, weir {context.get('commit', '?')}; "
        f"`{context.get('command', '?')}`), all pools in the same run. [results/h200.md](results/h200.md) has the "
        "spread, more pools, more questions, and a list of all figures in which a pool of weir's is behind cudaMallocAsync."), "",
        f"| | `device_pool` | `promised_device_pool` | {PEER} | the best other peer that orders streams |", "|---|---:|---:|---:|---|"]
    apart = []
    for question, case, words in README_ROWS:
        others = {pool: figure.median for pool, figure in figures.get(question, {}).get(case, {}).items()
                  if kind(pool) in ("peer", "plugin") and pool not in (PEER, NO_STREAMS) and figure.times}
        best = min(others, key=others.get, default=None)
        lines.append(f"| {words} | {shown(median(question, case, 'weir::device_pool'))} | "
                     f"{shown(median(question, case, 'weir::promised_device_pool'))} | {shown(median(question, case, PEER))} | " +
                     (f"{number(others[best])} `{best}` |" if best else "- |"))
        own, thrust = (median(question, case, pool) for pool in ("weir::immediate", NO_STREAMS))
        if own and thrust:
            apart.append((number(own), number(thrust)))
    if apart:
        listed = lambda i: ", ".join(each[i] for each in apart[:-1]) + " and " + apart[-1][i]
        lines += ["", paragraph(
            f"For one thread and no streams `{NO_STREAMS}` takes {listed(1)} ns in the first {len(apart)} rows, and a pool of "
            f"weir's with `reuse::immediate` {listed(0)}.")]
    if replayed:
        pools = ("device_pool", "driver_pool", "cub", "thrust")
        for trace, of in replayed.items():
            if missing := [pool for pool in ("device_pool", "cub") if pool not in of]:
                raise Refused(f"the README compares device_pool with cub, and the replay of '{trace}' has no {missing[0]}; "
                              "replay it through all pools")
        lines += ["", paragraph("Memory held at the peak over memory asked for at the peak, on traces of five real programs "
                                "(`replay --csv TRACE...`, same machine):"), "",
                  "| | `device_pool` | cudaMallocAsync (`driver_pool`) | `cub::CachingDeviceAllocator` | `thrust::disjoint_pool` |",
                  "|---|---:|---:|---:|---:|"]
        for trace, of in replayed.items():
            lines.append(f"| {trace} | " + " | ".join(f"{of[pool]['held']:.3f}" if pool in of else "-" for pool in pools) + " |")
        span = lambda pool: (f"{min(of[pool]['ns'] for of in replayed.values()):,.0f} to "
                             f"{max(of[pool]['ns'] for of in replayed.values()):,.0f}")
        lines += ["", paragraph(
            f"CUB holds little here because by default it caches at most 6 MB, and pays in time: {span('cub')} ns an operation, "
            f"`device_pool` {span('device_pool')} (cold, growth included). In the first table CUB's cache is unlimited.")]
    return "\n".join(lines)


def in_readme(text, path):
    """The README with the text between the two lines."""
    new, places = re.subn(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{text}\n{END}",
                          text_of(path, "a README"), flags=re.S)
    if places != 1:
        raise Refused(f"{path} has no lines '{BEGIN}' and '{END}', or has them twice; put them where the figures belong")
    return new


STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #333 } .title { font-weight: 600; font-size: 12px }
  .head { font-weight: 600; font-size: 16px } .axis, .value { fill: #767676; font-size: 10px }
  .grid { stroke: #e4e4e4 } .weir { fill: #0b62c4; stroke: #0b62c4 } .peer { fill: #777; stroke: #777 }
  .plugin { fill: #b35900; stroke: #b35900 } .scale { fill: #bbb; stroke: #bbb } .name { text-anchor: end }
  .ground { fill: #fff } text.weir { stroke: none; font-weight: 600 }
  @media (prefers-color-scheme: dark) { text { fill: #ddd } .ground { fill: #16181c } .grid { stroke: #333 }
    .weir { fill: #5aa7ff; stroke: #5aa7ff } .peer { fill: #a0a0a0; stroke: #a0a0a0 } .axis, .value { fill: #999 }
    .plugin { fill: #ff9d45; stroke: #ff9d45 } .scale { fill: #666; stroke: #666 } }
"""
TOOLKIT = ("cudaMallocAsync", "cudaMalloc", "cuda::", "cub::", "thrust::")


def kind(pool):
    if pool.startswith("weir::"):
        return "weir"
    if pool in ("malloc", "(harness)"):
        return "scale"
    return "peer" if pool.startswith(TOOLKIT) else "plugin"


def svg(figures, context, title):
    """A panel a case: a dot at the median, a line from the least to the greatest, decades as the scale."""
    columns, panel_width, label_width, row_height = 3, 416, 190, 15
    panels = []
    for question, cases in figures.items():
        for case, pools in cases.items():
            measured = {pool: figure for pool, figure in pools.items() if figure.times}
            if measured:
                panels.append((f"{question.replace('_', ' ')}: {title_of(case)}", measured))
    body, top = [], 64
    for first in range(0, len(panels), columns):
        line = panels[first:first + columns]
        height = max(len(measured) for _, measured in line) * row_height + 56
        for column, (name, measured) in enumerate(line):
            left = 16 + column * panel_width
            low = math.floor(math.log10(max(min(min(f.times) for f in measured.values()), 0.1)))
            high = math.ceil(math.log10(max(max(f.times) for f in measured.values()) * 1.01))
            span = panel_width - label_width - 70
            scale = span / max(high - low, 1)

            def x(ns, left=left, low=low, scale=scale):
                return left + label_width + (math.log10(max(ns, 10 ** low)) - low) * scale

            body.append(f'<text class="title" x="{left}" y="{top}">{html.escape(name)}, ns</text>')
            bottom = top + 12 + len(measured) * row_height
            for decade in range(low, high + 1):
                at = x(10 ** decade)
                body.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top + 8}" y2="{bottom}"/>')
                label = f"{10 ** (decade % 3)}{('', 'k', 'M', 'G')[decade // 3]}" if 0 <= decade < 12 else f"{10.0 ** decade:g}"
                body.append(f'<text class="axis" text-anchor="middle" x="{at:.1f}" y="{bottom + 12}">{label}</text>')
            for row, (pool, figure) in enumerate(measured.items()):
                y = top + 19 + row * row_height
                css = kind(pool)
                least, greatest = min(figure.times), max(figure.times)
                body.append(f'<text class="name{" weir" if css == "weir" else ""}" x="{left + label_width - 8}" '
                            f'y="{y + 4}">{html.escape(pool)}</text>')
                body.append(f'<g class="{css}"><title>{html.escape(pool)}: median {number(figure.median)} ns, '
                            f'{number(least)} to {number(greatest)}, {len(figure.times)} repetitions</title>'
                            f'<line x1="{x(least):.1f}" x2="{x(greatest):.1f}" y1="{y}" y2="{y}" stroke-width="2"/>'
                            f'<circle cx="{x(figure.median):.1f}" cy="{y}" r="3.5" stroke="none"/></g>')
                body.append(f'<text class="value" x="{max(x(greatest), x(figure.median)) + 8:.1f}" y="{y + 4}">'
                            f'{number(figure.median)}</text>')
        top += height
    width = 16 + columns * panel_width
    subtitle = (f"{context.get('device', '')}, CUDA {context.get('cuda_runtime', '?')}: median and range of the "
                "repetitions, logarithmic; farther left is faster")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" '
            f'viewBox="0 0 {width} {top}"><style>{STYLE}</style>'
            f'<rect class="ground" width="{width}" height="{top}"/>'
            f'<text class="head" x="16" y="24">{html.escape(title or "weir and its peers")}</text>'
            f'<text class="axis" x="16" y="40">{html.escape(subtitle)}</text>\n' + "\n".join(body) + "\n</svg>\n")


def text_of(path, what):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}; name {what}") from None


def before_of(given, figures):
    """The CSV and the page before, or None."""
    if not given.before:
        return moved.committed(given.csv, as_csv(figures)) if given.csv else None
    try:
        return moved.given(given.before)
    except (OSError, ValueError) as error:
        raise Refused(f"{given.before} cannot be read: {error}; name the CSV of the page before") from None


def write(texts):
    """Writes {path: text}; asks for every file before the first one is changed."""
    path, made = "", []
    texts = {path: text.encode("utf-8", "replace") for path, text in texts.items()}
    try:
        for path in texts:
            is_new = not pathlib.Path(path).exists()
            with open(path, "ab"):
                made += [path] if is_new else []
        for path, text in texts.items():
            with open(path, "wb") as file:
                made = []
                file.write(text)
    except OSError as error:
        for each in made:
            pathlib.Path(each).unlink()
        raise Refused(f"{path} cannot be written: {error}; name another file") from None


def main():
    parser = argparse.ArgumentParser(description="Turns the JSON of bench runs into tables and a picture.")
    parser.add_argument("--text", action="store_true", help="print the compact table")
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--svg", metavar="FILE")
    parser.add_argument("--picture", metavar="PATH", help="how the Markdown names the folder of the pictures")
    parser.add_argument("--title", default="")
    parser.add_argument("--replay", metavar="FILE", help="what 'replay --csv TRACE...' printed")
    parser.add_argument("--readme", metavar="FILE", help="a README whose figures are to be these")
    parser.add_argument("--before", metavar="FILE", help="the CSV of the page before, its page beside it; else git is asked")
    parser.add_argument("--since", action="store_true", help="counts anew in the pages RUN... how many commits changed include/")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    given = parser.parse_args()
    try:
        if given.since:
            pages = {path: moved.since(text_of(path, "a page of report.py's"), path) for path in given.runs}
            if strange := [path for path in pages if not moved.commit_of(pages[path][0])]:
                raise Refused(f"{strange[0]} has no line '- weir's commit: '; give a page of report.py's")
            write({path: page for path, (page, _) in pages.items()})
            for path, (_, line) in pages.items():
                print(f"{path}: {line}")
            return 0
        figures, context = read(given.runs)
        if not figures:
            raise Refused("the files hold no results; give the JSON of weir-bench, or run.sh's raw.tar.gz")
        replayed = read_replay(given.replay)
        texts = {}
        if given.csv:
            texts[given.csv] = as_csv(figures)
        if given.svg:
            texts[given.svg] = svg(figures, context, given.title)
        if given.markdown:
            texts[given.markdown] = markdown(figures, context, given.title, given.picture, given.markdown, replayed, before_of(given, figures))
        if given.readme:
            texts[given.readme] = in_readme(for_readme(figures, context, replayed), given.readme)
        table = io.StringIO()
        text(figures, context, table)
        write(texts)
    except Refused as refused:
        say(refused)
        return 1
    if given.text:
        sys.stdout.write(table.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
