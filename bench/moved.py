# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What moved between two runs of the benches, and how old a page of results is; report.py asks.

The machine of a run is shared, so some minutes of it may be slower than they were. How much, the pools say that are not weir's:
the median of what their medians take now over what they took then is the machine's share of a question, and the times of
that question, which ran by turns with theirs, are held against it. A time moved if its median and its least both changed by
more than TIME beside the machine's share, in the same direction; one of the two alone is the machine. Memory has no such
share: it moved if it changed by more than BYTES. The figures before are those of the CSV that was committed last and is not
this run's; git has them.
"""
import csv
import io
import pathlib
import re
import statistics
import subprocess

TIME, BYTES = 1.2, 1.02
MEMORY = {"device_MiB": "MiB of device memory", "host_B_per_block": "host B a block", "host_B_half_freed": "host B, half freed",
          "host_B_per_stream": "host B a stream", "host_KiB_per_pool": "host KiB a pool"}
NOT_A_POOL = ("(harness)",)  # too short to say how fast the machine is
SINCE = "- commits that changed include/ since: "
COMMIT = re.compile(r"^- weir's commit: (\S+)$", re.M)
HELD = "## Replay of real traces"


def git(folder, *words):
    """What git says there, or None."""
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def commit_of(page):
    found = COMMIT.search(page)
    return found[1] if found else ""


def since(page, path):
    """The page with a line that says how many commits changed include/ after the page's, as git counts today; and that line."""
    folder, commit = pathlib.Path(path).resolve().parent, commit_of(page)
    top = git(folder, "rev-parse", "--show-toplevel")
    later = f"{commit.removesuffix('-dirty')}..HEAD"
    count = commit and top and git(top.strip(), "rev-list", "--count", later, "--", "include")
    head = count and git(folder, "rev-parse", "--short=8", "HEAD")
    line = f"{SINCE}{count.strip()}, counted at {head.strip()}" if head else f"{SINCE}not known, no git has the commit"
    page = re.sub(f"^{re.escape(SINCE)}.*\n", "", page, flags=re.M)
    return (COMMIT.sub(lambda found: f"{found[0]}\n{line}", page, count=1) if commit else page), line.removeprefix("- ")


def committed(path, table):
    """(CSV, page) as they were when the CSV at 'path' was committed last with other figures than 'table', or None."""
    path = pathlib.Path(path).resolve()
    for commit in (git(path.parent, "log", "--format=%H", "--", path.name) or "").split():
        then = git(path.parent, "show", f"{commit}:./{path.name}")
        if then and then != table:
            return then, git(path.parent, "show", f"{commit}:./{path.stem}.md") or ""
    return None


def given(path):
    """(CSV, page) of a CSV that somebody kept; its page is beside it, or there is none."""
    page = pathlib.Path(path).with_suffix(".md")
    return pathlib.Path(path).read_text(encoding="utf-8"), page.read_text(encoding="utf-8") if page.is_file() else ""


def figures_of(table):
    """{(question/case, pool): row} of a CSV of report.py's."""
    found = {}
    for row in csv.DictReader(io.StringIO(table, newline="")):
        numbers = {column: float(text) for column, text in row.items() if text and column not in ("question", "case", "pool")}
        if min(numbers["median_ns"], numbers["min_ns"]) <= 0:
            raise ValueError("a time of nothing")
        found[f"{row['question']}/{row['case']}", row["pool"]] = numbers
    if not found:
        raise ValueError("no rows")
    return found


def held_of(page):
    """{(replay/trace, pool): held over asked} of the replay's first table in a page; {} for none."""
    if HELD not in page:
        return {}
    table = [line.strip("|").split("|") for line in page[page.index(HELD):].split("\n\n")[2].splitlines()]
    traces = [cell.strip().replace(" ", "_") for cell in table[0][1:]]
    return {(f"replay/{trace}", cells[0].strip(" `")): float(cell)
            for cells in table[2:] for trace, cell in zip(traces, cells[1:]) if cell.strip() != "-"}


def pairs_of(then, now):
    """What both have: (question/case, pool, row then, row now)."""
    return [(*name, then[name], row) for name, row in now.items() if name in then]


def machine(pairs):
    """{question: what the others' medians take now over what they took then, their median}; '' is the question of all."""
    shares = {}
    for where, pool, then, now in pairs:
        if not pool.startswith("weir::") and pool not in NOT_A_POOL:
            for question in ("", where.split("/")[0]):
                shares.setdefault(question, []).append(now["median_ns"] / then["median_ns"])
    return {question: statistics.median(each) for question, each in shares.items()}


def moved(pairs, shares, held_then, held_now):
    """(where, what, pool, then, now, times) of weir's pools, the machine's share taken out of the times."""
    for where, pool, then, now in pairs:
        if not pool.startswith("weir::"):
            continue
        share = shares.get(where.split("/")[0], shares.get("", 1))
        median, least = (now[what] / then[what] / share for what in ("median_ns", "min_ns"))
        if min(median, least) > TIME or max(median, least) < 1 / TIME:
            yield where, "ns", pool, then["median_ns"], now["median_ns"], median
        for counter, words in MEMORY.items():
            old, new = then.get(counter, 0), now.get(counter, 0)
            if old > 0 and new > 0 and not 1 / BYTES <= new / old <= BYTES:
                yield where, words, pool, old, new, new / old
    for (where, pool), new in held_now.items():
        old = held_then.get((where, pool), 0)
        if pool.endswith("pool") and pool != "driver_pool" and old and not 1 / BYTES <= new / old <= BYTES:
            yield where, "held over asked", pool, old, new, new / old


def show(x):
    return f"{x:.3f}" if x < 10 else f"{x:,.0f}"


def section(before, table, page):
    """The part of 'page', whose CSV is 'table', that says what moved since 'before': a CSV and its page, or None."""
    if not before:
        return ""
    then, now = figures_of(before[0]), figures_of(table)
    pairs = pairs_of(then, now)
    shares = machine(pairs)
    found = list(moved(pairs, shares, held_of(before[1]), held_of(page)))
    ours = sum(pool.startswith("weir::") for _, pool, _, _ in pairs)
    times = sum(what == "ns" for _, what, *_ in found)
    lines = [f"\n## What moved since the page before ({commit_of(before[1]) or 'of an unknown commit'})\n",
             f"Of {ours} times of weir's pools that both pages have, {times} moved: their median and their least both changed "
             f"by more\nthan {TIME:g} times beside the machine's share. " +
             (f"That share, the median of what other pools' medians\ntake now over what they took then, is {shares['']:.2f}, and "
              f"{min(shares.values()):.2f} to {max(shares.values()):.2f} in single questions. " if shares else
              "No other pool is in both, so nothing is\nknown of it. ") +
             f"Memory moved if it changed by more than {(BYTES - 1) * 100:.0f} %."]
    for heading, rows in (("Up: worse than before", sorted((row for row in found if row[5] > 1), key=lambda row: -row[5])),
                          ("Down: better than before", sorted((row for row in found if row[5] < 1), key=lambda row: row[5]))):
        lines.append(f"\n{heading}: {len(rows) or 'nothing'}.")
        if rows:
            lines.append("\n| where | what | pool | before | now | times |\n|---|---|---|---:|---:|---:|")
            lines += [f"| {where} | {what} | `{pool}` | {show(old)} | {show(new)} | {times:.2f} |"
                      for where, what, pool, old, new, times in rows]
    for words, some, rest in (("New here", now, then), ("No longer here", then, now)):
        of = {}
        for where, pool in sorted(some.keys() - rest.keys()):
            of.setdefault(where, []).append(f"`{pool}`")
        known = {where for where, _ in rest}
        said = [f"{where}: {', '.join(pools) if where in known else 'all'}" for where, pools in of.items()]
        if said:
            lines.append(f"\n{words}: {'; '.join(said)}.")
    return "\n".join(lines) + "\n"
