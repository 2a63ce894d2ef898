#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the pictures of a page of results: README.md's, and one for each question of the page.

    pictures.py [--check] [FOLDER]

Reads FOLDER/h200.csv (bench/results) and, for memory, three things: the replay's table in h200.md beside it; what RMM's pools hold
after the same trace, in the CSV; and the first line of the example's trace, in which stands what PyTorch's allocator held
when the trace was recorded. A pool without a figure has a row that says so. Writes h200_short.svg and h200/<question>.svg.
Each picture is linear from zero, sorted, at most 640 wide, has a legend, follows a dark page, and can be read where a page shows
it 400 wide. --check writes nothing and
says which pictures are not those of the figures. Standard library only.
"""
import csv
import gzip
import html
import math
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRACE, TRACE_FILE = "prefetch_streams", ROOT / "examples/data/prefetch_streams.csv.gz"
PEER = "cudaMallocAsync"
WIDTH, LEFT, RIGHT = 640, 218, 76
ROW, BAR = 30, 18
STYLE = """
  text { font: 18px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 } .name { text-anchor: end }
  .ground { fill: #fff } .weir { fill: #0b62c4 } .other { fill: #6b6b6b }
  @media (prefers-color-scheme: dark) { text { fill: #e6e6e6 } .ground { fill: #0d1117 } .weir { fill: #5aa7ff }
    .other { fill: #a0a0a0 } }
"""
SENTENCES = {  # what a picture of one question shows
    "pairs": "Host time to allocate and free one block, one thread",
    "random_sizes": "Host time of a call: a random one of 10,000 live blocks is replaced",
    "fragmented": "Host time of a pair in a pool of 32,768 blocks of which every second was freed",
    "threads": "Wall time over all pairs of 4 KiB, by several threads",
    "shapes": "Wall time over all calls of 8 threads, in the shapes of four known benchmarks",
    "handover": "Wall time of a block that one stream frees and another takes",
    "kernels": "Wall time of 8 kernels on each of 8 streams, with a buffer each",
    "streams": "Host time of a call while 10,000 streams come and go",
    "growth": "Host time of a block while the pool grows",
    "live_blocks": "Host time of a call with many live blocks",
    "side_by_side": "Host time of a pair of 4 KiB on 64 pools in turn",
    "traces": "Host time of a call, real programs' allocations replayed at full speed",
    "suspension": "Time to give 16 GiB up and to get them back",
}


def number(x):
    return f"{x:.2f}" if x < 4 else f"{x:.0f}" if x < 1e4 else f"{x / 1e3:.0f}k" if x < 1e6 else f"{x / 1e6:.0f}M"


def panel(top, title, rows, unit, zoom=None):
    """A bar a row of (name, value or None, least, greatest, ours), sorted; bars longer than 'zoom' are cut, and say so."""
    rows = sorted(rows, key=lambda row: math.inf if row[1] is None else row[1])
    most = max(row[1] for row in rows if row[1] is not None)
    most = min(most, zoom or most)
    scale = (WIDTH - LEFT - RIGHT) / most
    lines = [f'<text class="title" x="12" y="{top + 18}">{html.escape(title)}</text>']
    for at, (name, value, least, greatest, ours) in enumerate(rows):
        y = top + 30 + at * ROW
        if value is None:
            lines += [f'<text class="name" x="{LEFT - 8}" y="{y + 15}">{html.escape(name)}</text>',
                      f'<text x="{LEFT}" y="{y + 15}">not measured</text>']
            continue
        arrow = " \u2192" if value > most else ""
        width = min(value, most) * scale
        said = f"{name}: {number(value)} {unit}" + (f", {number(least)} to {number(greatest)}" if least is not None else "")
        lines += [f'<text class="name" x="{LEFT - 8}" y="{y + 15}">{html.escape(name)}</text>',
                  f'<g><title>{html.escape(said)}</title><rect class="{"weir" if ours else "other"}" x="{LEFT}" y="{y}" '
                  f'width="{max(width, 1):.1f}" height="{BAR}"/></g>',
                  f'<text x="{LEFT + width + 8:.1f}" y="{y + 15}">{number(value)}{arrow}</text>']
    return top + 30 + len(rows) * ROW + 14, lines


def picture(title, panels, notes):
    """An SVG of panels, a legend and notes."""
    lines = textwrap.wrap(title, 58)
    top = 18 + 22 * len(lines)
    body = [f'<text class="title" x="12" y="{24 + 22 * at}">{html.escape(line)}</text>' for at, line in enumerate(lines)]
    body += [f'<rect class="weir" x="12" y="{top}" width="14" height="14"/><text x="32" y="{top + 13}">weir</text>',
             f'<rect class="other" x="94" y="{top}" width="14" height="14"/><text x="114" y="{top + 13}">'
             'others; shorter is better</text>']
    top += 30
    for each in panels:
        top, lines = panel(top, *each)
        body += lines
    for note in notes:
        body.append(f'<text x="12" y="{top + 14}">{html.escape(note)}</text>')
        top += 24
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top + 8}" viewBox="0 0 {WIDTH} {top + 8}" role="img">'
            f'<title>{html.escape(title)}</title><style>{STYLE}</style><rect class="ground" width="{WIDTH}" height="{top + 8}"/>\n' +
            "\n".join(body) + "\n</svg>\n")


def read(path):
    """{question: {case: {pool: (median, least, greatest)}}}, and the same with bytes of device memory where a pool has that figure."""
    found, bytes_of = {}, {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["question"], {}).setdefault(row["case"], {})[row["pool"]] = tuple(
                float(row[f"{what}_ns"]) for what in ("median", "min", "max"))
            if row.get("device_MiB"):
                bytes_of.setdefault(row["question"], {}).setdefault(row["case"], {})[row["pool"]] = float(row["device_MiB"]) * 2**20
    return found, bytes_of


def held(page):
    """{pool: held over asked} of the replay's first table, on TRACE."""
    table = page[page.index("## Replay of real traces"):].split("\n\n")[2].splitlines()
    column = [cell.strip().replace(" ", "_") for cell in table[0].strip("|").split("|")].index(TRACE)
    return {cells[0].strip(" `"): float(cells[column]) for cells in (line.strip("|").split("|") for line in table[2:])}


def trace_state():
    """What the trace's first line says of it: {name: number}."""
    with gzip.open(TRACE_FILE, "rt") as file:
        return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", file.readline())}


def best_of_rmm(pools):
    """(name, figure) of the pool of RMM's with the least figure; its name is RMM where none has one."""
    return min(((pool, figure) for pool, figure in pools.items() if pool.startswith("rmm::")), key=lambda each: each[1],
               default=("RMM", None))


def short(figures, bytes_of, page):
    """README.md's picture: the same five pools by time and by memory."""
    pairs = figures["pairs"]["256_B"]
    time = [(name, *(figure or (None, None, None)), ours) for name, figure, ours in (
        ("device_pool", pairs.get("weir::device_pool"), True), ("promised_device_pool", pairs.get("weir::promised_device_pool"), True),
        (*best_of_rmm(pairs), False), ("PyTorch's", pairs.get("pytorch"), False), (PEER, pairs.get(PEER), False))]
    of, state = held(page), trace_state()
    rmm, taken = best_of_rmm(bytes_of.get("traces", {}).get(TRACE, {}))
    memory = [(name, figure, None, None, ours) for name, figure, ours in (
        ("device_pool", of.get("device_pool"), True), ("promised_device_pool", of.get("promised_device_pool"), True),
        (rmm, taken and taken / state["peak_requested"], False),
        ("PyTorch's", state["torch_peak_reserved"] / state["torch_peak_allocated"], False), (PEER, of.get("driver_pool"), False))]
    return picture("An H200: time and memory", [
        ("Allocate and free 256 bytes: nanoseconds", time, "ns"),
        ("Memory held over memory asked for, at the peak", memory, "times")],
        ["Memory: a training step that prefetches. PyTorch's figure", "is its own of the recording, which the others replay."])


def of_question(question, cases):
    """One question's picture: a panel a case; bars of more than twice cudaMallocAsync's are cut."""
    panels = []
    for case, pools in cases.items():
        rows = [(pool.removeprefix("weir::").replace("CachingDeviceAllocator", "Caching").replace("device_memory_pool", "memory_pool"),
                 *each, pool.startswith("weir::"))
                for pool, each in pools.items() if pool not in ("malloc", "(harness)")]
        peer = pools.get(PEER)
        if rows:
            panels.append((f"{case.replace('_', ' ')}: ns", rows, "ns", 2 * peer[0] if peer else None))
    cut = any(row[1] > zoom for _, rows, _, zoom in panels if zoom for row in rows)
    return picture(SENTENCES[question], panels, ["\u2192: longer than the picture is wide"] if cut else [])


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    folder = pathlib.Path(words[0]) if words else ROOT / "bench/results"
    (figures, bytes_of), page = read(folder / "h200.csv"), (folder / "h200.md").read_text()
    made = {"h200_short.svg": short(figures, bytes_of, page)}
    made |= {f"h200/{question}.svg": of_question(question, cases) for question, cases in figures.items() if question in SENTENCES}
    stale = [name for name, text in made.items() if not (folder / name).exists() or (folder / name).read_text() != text]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"pictures.py: not of these figures: {', '.join(stale)}; run bench/pictures.py")
        return
    (folder / "h200").mkdir(exist_ok=True)
    for name, text in made.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
