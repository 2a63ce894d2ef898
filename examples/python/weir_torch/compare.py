# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which allocator suits a program? Runs it with PyTorch's and with weir's, and compares.

usage: python3 -m weir_torch.compare [--steps N] [--rounds N] [--limit SIZE] [--picture FILE] train.py ARGUMENTS...

Each run is a process of its own that runs the program unchanged: PyTorch's default, its expandable segments, device_pool and
compact_device_pool take turns. The program does not call weir_torch.use itself. A step ends where an optimizer's 'step'
returns; the losses are the real numbers on which 'backward' is called outside of captures. A program without either shows its
memory and its time. Held is the most memory that the allocator had from the device, on the device where that was most;
processes that the program starts are not counted. What the program prints is not shown, but for the last lines of one that
fails.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import weir_plugin
from weir_torch.__main__ import run_program

ALLOCATORS = ("default", "expandable", "device_pool", "compact_device_pool")
LOSSES = 5  # reading one waits for the device, so only the first are read
LINES = 15  # of what a failed run wrote
MIB = 1 << 20


class Enough(SystemExit):
    """As many steps as were asked for."""


def watch(most_steps):
    """Notes the ends of steps and the first losses from now on."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    found = {"losses": [], "ends": []}
    backward = torch.Tensor.backward

    def noting(self, *arguments, **options):
        if (len(found["losses"]) < LOSSES and self.numel() == 1 and not self.is_complex() and
                not (self.is_cuda and torch.cuda.is_current_stream_capturing())):
            found["losses"].append(f"{float(self.detach()):.6f}")
        return backward(self, *arguments, **options)

    def after_step(*_):
        found["ends"].append(time.perf_counter())
        if len(found["ends"]) == most_steps:
            torch.cuda.synchronize()
            raise Enough()

    torch.Tensor.backward = noting
    register_optimizer_step_post_hook(after_step)
    return found


def refuse(*_, **__):
    raise weir_plugin.Error("weir: the program calls weir_torch.use, and here 'compare' chooses the allocator; leave that call "
                            "out")


def run_one(allocator, limit, most_steps, answer, words):
    """What a run's process does."""
    import torch
    import weir_torch
    ours = allocator not in ("default", "expandable")
    if ours:
        weir_torch.use(allocator, limit=limit)
    weir_torch.use = refuse
    found, began = watch(most_steps), time.perf_counter()
    error = None
    try:
        run_program(words)
    except SystemExit as end:
        if not isinstance(end, Enough) and end.code:
            error = f"it ended with {end.code}"
    except Exception as failure:
        traceback.print_exc()
        error = f"{type(failure).__name__}: {failure}".splitlines()[0]
    devices = range(torch.cuda.device_count())
    if ours:
        held = max((weir_torch.peak(device)["peak_reserved_bytes"] for device in devices), default=0)
    else:
        held = max((torch.cuda.max_memory_reserved(device) for device in devices), default=0)
    ends = found["ends"]
    later = [1e3 * (b - a) for a, b in zip(ends, ends[1:])][len(ends) // 4:]
    pathlib.Path(answer).write_text(json.dumps({
        "held_mib": held / MIB, "seconds": time.perf_counter() - began, "steps": len(ends), "losses": found["losses"],
        "step_ms": statistics.median(later) if later else None, "error": error}))


def run(allocator, options):
    """One run in a process of its own, as a dict."""
    environment = dict(os.environ)
    if allocator == "expandable":
        given = environment.get("PYTORCH_ALLOC_CONF") or environment.pop("PYTORCH_CUDA_ALLOC_CONF", "")
        environment["PYTORCH_ALLOC_CONF"] = ",".join(filter(None, (given, "expandable_segments:True")))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(pathlib.Path(__file__).resolve().parents[1]),
                                                              environment.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder:
        answer = pathlib.Path(folder) / "answer.json"
        done = subprocess.run([sys.executable, "-m", "weir_torch.compare", "--one", allocator, str(answer),
                               "--steps", str(options.steps), *(["--limit", options.limit] if options.limit else []),
                               options.program, *options.arguments], env=environment, capture_output=True, text=True,
                              errors="replace")
        lines = (done.stderr or done.stdout).strip().splitlines()
        found = {"error": lines[-1] if lines and done.returncode else f"it ended by itself, with status {done.returncode}"}
        if answer.exists():
            found = json.loads(answer.read_text())
        return {**found, "wrote": "\n".join(lines[-LINES:])}


def row_of(allocator, runs):
    """(allocator, held MiB, time of a step in ms or of the whole in s, losses, error) over the rounds."""
    error = next((each["error"] for each in runs if each.get("error")), "")
    known = [each for each in runs if "held_mib" in each]
    if not known:
        return allocator, None, "-", "", error
    steps = [each["step_ms"] for each in known if each["step_ms"] is not None]
    whole = statistics.median(each["seconds"] for each in known)
    time_text = f"{statistics.median(steps):.2f} ms" if steps else f"{whole:.1f} s in all"
    return allocator, max(each["held_mib"] for each in known), time_text, " ".join(known[0]["losses"]), error


def table(rows):
    lines = [f"{'allocator':<22}{'held, MiB':>12}{'a step':>16}   first losses"]
    for allocator, held, time_text, losses, error in rows:
        held_text = "-" if held is None else f"{held:,.0f}"
        lines.append(f"{allocator:<22}{held_text:>12}{time_text:>16}   {losses}{'  FAILED: ' + error if error else ''}")
    return "\n".join(lines)


def picture(rows, title):
    """A bar for what each allocator held, as SVG."""
    most = max((held or 0 for _, held, *_ in rows), default=0) or 1
    short = title if len(title) <= 50 else "..." + title[-47:]
    safe = short.replace("&", "&amp;").replace("<", "&lt;")
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{60 + 34 * len(rows)}" font-family="sans-serif" '
             f'font-size="14"><rect width="100%" height="100%" fill="#ffffff"/>'
             f'<text x="16" y="28">{safe}: memory held, and the time of a step</text>']
    for i, (allocator, held, time_text, _, error) in enumerate(rows):
        y, width = 46 + 34 * i, 380 * (held or 0) / most
        colour = "#2f7d5b" if allocator.endswith("_pool") else "#8a94a0"
        label = "failed" if held is None else f"{held:,.0f} MiB, {time_text}{', failed' if error else ''}"
        parts.append(f'<text x="16" y="{y + 17}">{allocator}</text><rect x="190" y="{y}" width="{width:.0f}" height="24" '
                     f'fill="{colour}"/><text x="{198 + width:.0f}" y="{y + 17}">{label}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def parsed(words):
    parser = argparse.ArgumentParser(prog="python3 -m weir_torch.compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="end the program after so many steps; 0: let it run")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs of each allocator; 1 if left out")
    parser.add_argument("--limit", metavar="SIZE", help="the limit of weir's pools, such as '70 GiB'")
    parser.add_argument("--picture", default="weir-compare.svg", metavar="FILE", help="weir-compare.svg if left out")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("program", help="train.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    options = parser.parse_args(words)
    if options.rounds < 1 or options.steps < 0:
        parser.error("--rounds is at least 1, and --steps at least 0")
    try:
        weir_plugin.limit_of(options.limit)
    except weir_plugin.Error as error:
        parser.error(f"--limit: {error}")
    return options


def main():
    options = parsed(sys.argv[1:])
    if options.one:
        return run_one(options.one[0], options.limit, options.steps, options.one[1], [options.program, *options.arguments])
    if not pathlib.Path(options.program).exists():
        sys.exit(f"weir: there is no program {options.program}")
    runs = {allocator: [] for allocator in ALLOCATORS}
    for number in range(options.rounds):
        for allocator in ALLOCATORS[number % len(ALLOCATORS):] + ALLOCATORS[:number % len(ALLOCATORS)]:
            print(f"round {number + 1} of {options.rounds}: {allocator} ...", file=sys.stderr, flush=True)
            runs[allocator].append(run(allocator, options))
    rows = [row_of(allocator, each) for allocator, each in runs.items()]
    print(table(rows))
    failed = next(((allocator, each) for allocator, runs_of_it in runs.items() for each in runs_of_it if each["error"]), None)
    if failed:
        print(f"the last lines that the run with {failed[0]} wrote:\n{failed[1]['wrote']}", file=sys.stderr)
    if len({losses for _, _, _, losses, error in rows if not error}) > 1:
        print("the losses differ: a program whose results vary from run to run shows that with one allocator as well")
    pathlib.Path(options.picture).write_text(picture(rows, pathlib.Path(options.program).name))
    print(f"the picture is in {options.picture}")
    sys.exit(1 if any(error for *_, error in rows) else 0)


if __name__ == "__main__":
    main()
