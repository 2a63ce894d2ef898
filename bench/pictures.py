#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws the pictures of a page of results: README.md's, and one for each question of the page.

    pictures.py [--check] [FOLDER]

Reads FOLDER/h200.csv (bench/results) and, for memory, the replay's table in h200.md beside it and the first line of the example's
trace, in which stands what PyTorch's allocator held when the trace was recorded. Writes h200_short.svg and h200/<question>.svg.
Each picture is linear from zero, sorted, at most 640 wide, has a legend, and follows a dark page. --check writes nothing and
says which pictures are not those of the figures. Standard library only.
"""
import csv
import gzip
import html
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRACE, TRACE_FILE = "prefetch_streams", ROOT / "examples/data/prefetch_streams.csv.gz"
WIDTH, LEFT, RIGHT = 640, 196, 84
ROW, BAR = 30, 18
STYLE = """
  text { font: 16px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600; font-size: 17px } .name { text-anchor: end }
  .note { font-size: 15px } .ground { fill: #fff } .weir { fill: #0b62c4 } .other { fill: #6b6b6b } .line { stroke: #6b6b6b }
  .spread { stroke: #1f2328; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) { text { fill: #e6e6e6 } .ground { fill: #0d1117 } .weir { fill: #5aa7ff }
    .other { fill: #a0a0a0 } .line { stroke: #a0a0a0 } .spread { stroke: #e6e6e6 } }
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
    """A bar a row of (name, value, least, greatest, ours), sorted; bars longer than 'zoom' are cut, and say so."""
    rows = sorted(rows, key=lambda row: row[1])
    most = min(rows[-1][1], zoom or rows[-1][1])
    scale = (WIDTH - LEFT - RIGHT) / most
    lines = [f'<text class="title" x="12" y="{top + 18}">{html.escape(title)}</text>']
    for at, (name, value, least, greatest, ours) in enumerate(rows):
        y = top + 30 + at * ROW
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
    lines = textwrap.wrap(title, 62)
    top = 18 + 22 * len(lines)
    body = [f'<text class="title" x="12" y="{24 + 22 * at}">{html.escape(line)}</text>' for at, line in enumerate(lines)]
    body += [f'<rect class="weir" x="12" y="{top}" width="14" height="14"/><text class="note" x="32" y="{top + 13}">weir</text>',
             f'<rect class="other" x="86" y="{top}" width="14" height="14"/><text class="note" x="106" y="{top + 13}">'
             'others; shorter is better</text>']
    top += 30
    for each in panels:
        top, lines = panel(top, *each)
        body += lines
    for note in notes:
        body.append(f'<text class="note" x="12" y="{top + 14}">{html.escape(note)}</text>')
        top += 22
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top + 8}" viewBox="0 0 {WIDTH} {top + 8}" role="img">'
            f'<title>{html.escape(title)}</title><style>{STYLE}</style><rect class="ground" width="{WIDTH}" height="{top + 8}"/>\n' +
            "\n".join(body) + "\n</svg>\n")


def read(path):
    """{question: {case: {pool: (median, least, greatest)}}}."""
    found = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["question"], {}).setdefault(row["case"], {})[row["pool"]] = tuple(
                float(row[f"{what}_ns"]) for what in ("median", "min", "max"))
    return found


def held(page):
    """{pool: held over asked} of the replay's first table, on TRACE."""
    table = page[page.index("## Replay of real traces"):].split("\n\n")[2].splitlines()
    column = [cell.strip().replace(" ", "_") for cell in table[0].strip("|").split("|")].index(TRACE)
    return {cells[0].strip(" `"): float(cells[column]) for cells in (line.strip("|").split("|") for line in table[2:])}


def recorded():
    """What PyTorch's allocator held over what it was asked for when the trace was recorded."""
    with gzip.open(TRACE_FILE, "rt") as file:
        state = dict(re.findall(r"(\w+)=(\d+)", file.readline()))
    return int(state["torch_peak_reserved"]) / int(state["torch_peak_allocated"])


def short(figures, page):
    """README.md's picture."""
    pairs = figures["pairs"]["256_B"]
    rmm = min((pool for pool in pairs if pool.startswith("rmm::")), key=lambda pool: pairs[pool][0])
    rows = [(pool.removeprefix("weir::"), *pairs[pool], pool.startswith("weir::")) for pool in
            ("weir::device_pool", "weir::promised_device_pool", rmm, "pytorch", "cudaMallocAsync")]
    rows = [("PyTorch's" if name == "pytorch" else name, *rest) for name, *rest in rows]
    of = held(page)
    memory = [("device_pool", of["device_pool"], None, None, True), ("cudaMallocAsync", of["driver_pool"], None, None, False),
              ("PyTorch's", recorded(), None, None, False)]
    if "promised_device_pool" in of:
        memory.append(("promised_device_pool", of["promised_device_pool"], None, None, True))
    others = [name for name in ("promised_device_pool", "rmm") if name not in of]
    return picture("An H200: time and memory", [
        ("Allocate and free 256 bytes: nanoseconds", rows, "ns"),
        ("Memory held over memory asked for, at the peak", memory, "times")],
        ["Memory: one training with prefetching; PyTorch's figure is its own", "from the recording, the others replay it."] +
        ([f"Not among the replay's: {', '.join(others).replace('rmm', 'RMM')}."] if others else []))


def of_question(question, cases):
    """One question's picture: a panel a case; bars of more than twice cudaMallocAsync's are cut."""
    panels = []
    for case, pools in cases.items():
        rows = [(pool.removeprefix("weir::").replace("CachingDeviceAllocator", "Caching").replace("device_memory_pool", "memory_pool"),
                 *each, pool.startswith("weir::"))
                for pool, each in pools.items() if pool not in ("malloc", "(harness)")]
        peer = pools.get("cudaMallocAsync")
        if rows:
            panels.append((f"{case.replace('_', ' ')}: ns", rows, "ns", 2 * peer[0] if peer else None))
    cut = any(row[1] > zoom for _, rows, _, zoom in panels if zoom for row in rows)
    return picture(SENTENCES[question], panels, ["\u2192: longer than the picture is wide"] if cut else [])


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    folder = pathlib.Path(words[0]) if words else ROOT / "bench/results"
    figures, page = read(folder / "h200.csv"), (folder / "h200.md").read_text()
    made = {"h200_short.svg": short(figures, page)}
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
