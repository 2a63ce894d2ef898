# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which allocator suits a program? Runs it with PyTorch's and with weir's, and compares.

usage: python3 -m weir_torch.compare [OPTIONS] train.py ARGUMENTS...
       python3 -m weir_torch.compare [OPTIONS] -m MODULE ARGUMENTS...
       python3 -m weir_torch.compare [OPTIONS] -c CODE ARGUMENTS...

Each run is a process of its own that runs the program unchanged: PyTorch's default, its expandable segments, device_pool and
compact_device_pool take turns. Where the program calls weir_torch.use itself, that call is skipped. A step ends where an
optimizer's 'step' returns; the losses are the real numbers on which 'backward' is called outside of captures. A program without
either shows its memory and its time. Needed is the most memory that tensors took at a time, and held the most that the
allocator had from the device for them, on the device where that was most; processes that the program starts are not counted.
What the program prints is not shown, but for the last lines of one that fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import weir_plugin
from weir_torch import program
from weir_torch.__main__ import parser_of
from weir_torch.verdict import OWN, Row, name_of, row_of, verdict

ALLOCATORS = (*OWN, "device_pool", "compact_device_pool")
LOSSES = 5  # reading one waits for the device, so only the first are read
LINES = 15  # of what a failed run wrote
MIB = 1 << 20


class Enough(SystemExit):
    """As many steps as were asked for."""


# ---- in a run's process ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Seen:
    """What was noted of a program."""

    losses: List[str] = dataclasses.field(default_factory=list)
    ends: List[float] = dataclasses.field(default_factory=list)
    called_use: bool = False
    peaks: List[List[int]] = dataclasses.field(default_factory=list)  # [needed, held] of each device, before resets


def watch(seen: Seen, most_steps: int, progress: pathlib.Path) -> None:
    """Notes the ends of steps and the first losses from now on, and writes the number of steps into a file every second."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    backward = torch.Tensor.backward
    told = time.perf_counter()

    def noting(self: Any, *arguments: Any, **options: Any) -> Any:
        if (len(seen.losses) < LOSSES and self.numel() == 1 and not self.is_complex() and
                not (self.is_cuda and torch.cuda.is_current_stream_capturing())):
            seen.losses.append(f"{float(self.detach()):.6f}")
        return backward(self, *arguments, **options)

    def after_step(*_: Any) -> None:
        nonlocal told
        seen.ends.append(time.perf_counter())
        if seen.ends[-1] > told + 1:
            told = seen.ends[-1]
            progress.write_text(str(len(seen.ends)))
        if len(seen.ends) == most_steps:
            torch.cuda.synchronize()
            raise Enough()

    torch.Tensor.backward = noting  # type: ignore[method-assign,assignment]
    register_optimizer_step_post_hook(after_step)


def note_peaks(seen: Seen) -> None:
    """The most that each device's tensors took, and that was held for them, up to now."""
    import torch
    now = [[torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)]
           for device in range(torch.cuda.device_count())]
    seen.peaks = [[max(pair) for pair in zip(before, after)] for before, after in zip(seen.peaks or now, now)]


def keep_peaks(seen: Seen) -> None:
    """A program that sets its peaks back, for a log of its own, hides none here."""
    import torch
    import weir_torch

    def noted(reset: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any, **options: Any) -> Any:
            note_peaks(seen)
            return reset(*arguments, **options)
        return noting

    for place, name in ((torch._C, "_cuda_resetPeakMemoryStats"), (torch._C, "_accelerator_resetPeakStats"),
                        (weir_torch, "reset_peak")):
        if hasattr(place, name):
            setattr(place, name, noted(getattr(place, name)))


def skip_use(seen: Seen, ours: bool) -> None:
    """What the program asks of weir_torch is answered for whichever allocator there is."""
    import torch
    import weir_torch

    def use(*_: Any, **__: Any) -> None:
        seen.called_use = True

    def none(*_: Any, **__: Any) -> int:
        return 0

    def state(device: Any = None) -> Any:
        index = torch.cuda.current_device() if device is None else device
        requested, reserved = torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)
        peaks = {"peak_requested_bytes": torch.cuda.max_memory_allocated(index),
                 "peak_reserved_bytes": torch.cuda.max_memory_reserved(index)}
        return {**dict.fromkeys(weir_plugin.FIGURES, 0), "requested_bytes": requested, "in_use_bytes": requested,
                "reserved_bytes": reserved, **peaks, "limit_bytes": None}

    weir_torch.use = use
    if not ours:
        weir_torch.state = state
        weir_torch.peak = lambda device=None: {name: value for name, value in state(device).items() if name.startswith("peak")}
        weir_torch.report = lambda device=None: torch.cuda.memory_summary(device)
        weir_torch.reset_peak = lambda device=None: torch.cuda.reset_peak_memory_stats(device)
        weir_torch.trim = weir_torch.suspend = none
        weir_torch.resume = lambda device=None: None


def check(pools: Sequence[str]) -> None:
    """Raises Error where no run could begin. Builds the plug-ins, so that no run has to."""
    import weir_torch
    if weir_torch.torch is not None and not weir_torch.torch.cuda.is_available():
        raise weir_plugin.Error("weir: PyTorch finds no GPU here (torch.cuda.is_available() is False), and 'compare' measures "
                                "what a program holds on one")
    weir_torch._require_torch()
    for pool in pools:
        weir_torch.build(pool)


def run_one(allocator: str, limit: weir_plugin.Size, most_steps: int, folder: pathlib.Path, words: List[str]) -> None:
    """What a run's process does."""
    import torch
    import weir_torch
    ours = allocator not in OWN
    if ours:
        weir_torch.use(allocator, limit=limit)
    seen = Seen()
    skip_use(seen, ours)
    keep_peaks(seen)
    watch(seen, most_steps, folder / "steps")
    error, began = None, time.perf_counter()
    try:
        program.run(words)
    except SystemExit as end:
        if not isinstance(end, Enough) and end.code:
            error = f"it ended with {end.code}"
    except Exception as failure:
        traceback.print_exc()
        error = f"{type(failure).__name__}: {failure}".splitlines()[0]
    seconds = time.perf_counter() - began
    note_peaks(seen)
    needed, held = max(seen.peaks, key=lambda pair: pair[1], default=[0, 0])
    later = [1e3 * (b - a) for a, b in zip(seen.ends, seen.ends[1:])][len(seen.ends) // 4:]
    (folder / "answer.json").write_text(json.dumps({
        "needed_mib": needed / MIB, "held_mib": held / MIB, "seconds": seconds, "steps": len(seen.ends), "losses": seen.losses,
        "step_ms": statistics.median(later) if later else None, "error": error, "called_use": seen.called_use}))


# ---- in the process that compares --------------------------------------------------------------------------------------


class Line:
    """Tells how far a run is: on a terminal in a line that moves, elsewhere in a line every ten seconds, and at its end."""

    def __init__(self, label: str) -> None:
        self.label, self.moves = label, sys.stderr.isatty()
        self.began = self.told = time.monotonic()

    def show(self, said: str, ends: bool = False) -> None:
        now = time.monotonic()
        if not self.moves and not ends and now < self.told + 10:
            return
        self.told = now
        print(f"{chr(13) + chr(27) + '[K' if self.moves else ''}{self.label}: {said}, {now - self.began:.0f} s",
              end="" if self.moves and not ends else "\n", file=sys.stderr, flush=True)


def environment_of(allocator: str) -> Dict[str, str]:
    environment = dict(os.environ)
    if allocator == "expandable":
        given = environment.get("PYTORCH_ALLOC_CONF") or environment.pop("PYTORCH_CUDA_ALLOC_CONF", "")
        environment["PYTORCH_ALLOC_CONF"] = ",".join(filter(None, (given, "expandable_segments:True")))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(pathlib.Path(__file__).resolve().parents[1]),
                                                              environment.get("PYTHONPATH"))))
    return environment


def started(words: Sequence[str], allocator: str, folder: pathlib.Path, line: Line,
            timeout: float) -> Tuple[Optional[int], List[str]]:
    """Runs this module in a process of its own: its exit status (None: it was ended after `timeout` seconds; 0: no limit), and
    the lines that it wrote."""
    steps, wrote = folder / "steps", folder / "wrote"
    with open(wrote, "wb") as sink:
        child = subprocess.Popen([sys.executable, "-m", "weir_torch.compare", *words], env=environment_of(allocator),
                                 stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
        status = None
        try:
            while status is None and not 0 < timeout < time.monotonic() - line.began:
                try:
                    status = child.wait(1)
                except subprocess.TimeoutExpired:
                    line.show(f"{steps.read_text() or 0} steps" if steps.exists() else "running")
        finally:  # also when somebody presses Ctrl-C; and what the program itself started ends with it
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
    return status, wrote.read_text(errors="replace").strip().splitlines()


def run(allocator: str, options: argparse.Namespace, label: str = "") -> Dict[str, Any]:
    """One run in a process of its own, as a dict."""
    line = Line(label or allocator)
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        words = [f"--one={allocator}", f"--folder={folder}", f"--steps={options.steps}",
                 *([f"--limit={options.limit}"] if options.limit else []), "--", *options.words]
        status, lines = started(words, allocator, folder, line, options.timeout)
        answer = folder / "answer.json"
        if status is None:
            found: Dict[str, Any] = {"error": f"it was ended after {options.timeout:g} s (--timeout)"}
        elif answer.exists():
            found = json.loads(answer.read_text())
        else:
            found = {"error": lines[-1] if lines and status else f"it ended by itself, with status {status}"}
    found["wrote"] = "\n".join(lines[-LINES:])
    line.show("failed" if found["error"] else f"held {found['held_mib']:,.0f} MiB", ends=True)
    return found


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'allocator':<22}{'needed, MiB':>13}{'held, MiB':>12}{'a step':>16}   first losses"]
    for row in rows:
        needed, held = ("-" if mib is None else f"{mib:,.0f}" for mib in (row.needed_mib, row.held_mib))
        said = f"{row.losses}{'  FAILED: ' + row.error if row.error else ''}"
        if row.held_mib == 0 and not row.error:
            said = "allocated no device memory"
        lines.append(f"{row.allocator:<22}{needed:>13}{held:>12}{row.time_text:>16}   {said}")
    return "\n".join(lines)


def picture(rows: Sequence[Row], title: str) -> str:
    """A bar for what each allocator held, as SVG."""
    most = max((row.held_mib or 0 for row in rows), default=0) or 1
    short = title if len(title) <= 50 else "..." + title[-47:]
    safe = short.replace("&", "&amp;").replace("<", "&lt;")
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{60 + 34 * len(rows)}" font-family="sans-serif" '
             f'font-size="14"><rect width="100%" height="100%" fill="#ffffff"/>'
             f'<text x="16" y="28">{safe}: memory held, and the time of a step</text>']
    for i, row in enumerate(rows):
        y, width = 46 + 34 * i, 380 * (row.held_mib or 0) / most
        colour = "#2f7d5b" if row.allocator.endswith("_pool") else "#8a94a0"
        label = "failed" if row.held_mib is None else \
            f"{row.held_mib:,.0f} MiB, {row.time_text}{', failed' if row.error else ''}"
        parts.append(f'<text x="16" y="{y + 17}">{row.allocator}</text><rect x="190" y="{y}" width="{width:.0f}" height="24" '
                     f'fill="{colour}"/><text x="{198 + width:.0f}" y="{y + 17}">{label}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def allocators_of(names: str) -> List[str]:
    """--allocators as a list of whole names, each once. Raises Error."""
    found: List[str] = []
    for name in names.split(","):
        if name not in OWN:
            try:
                name = weir_plugin.pool_of(name)
            except weir_plugin.Error:
                raise weir_plugin.Error(f"weir: there is no allocator '{name}' to compare; there are: "
                                        f"{', '.join((*OWN, *weir_plugin.POOLS))}") from None
        if name not in found:
            found.append(name)
    return found


def parsed(words: List[str]) -> argparse.Namespace:
    parser = parser_of(__doc__ or "", "python3 -m weir_torch.compare")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="end the program after so many steps; 0: let it run")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs of each allocator; 1 if left out")
    parser.add_argument("--allocators", default=",".join(ALLOCATORS), metavar="NAMES", help=f"which to run, with commas: "
                        f"{', '.join((*OWN, *weir_plugin.POOLS))}; all but promised_device_pool if left out")
    parser.add_argument("--limit", metavar="SIZE", help="the limit of weir's pools, such as 70G or '70 GiB'")
    parser.add_argument("--timeout", type=float, default=0, metavar="SECONDS", help="end a run that takes longer; 0: none")
    parser.add_argument("--picture", default="weir-compare.svg", metavar="FILE", help="weir-compare.svg if left out")
    for hidden in ("--one", "--check", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    own, named = program.split(words)
    options = parser.parse_args(own)
    if options.rounds < 1 or options.steps < 0 or not options.timeout >= 0:
        parser.error("--rounds is at least 1, --steps and --timeout at least 0")
    options.words = named
    try:
        options.allocators = allocators_of(options.allocators)
        weir_plugin.limit_of(options.limit)
    except weir_plugin.Error as error:
        parser.error(str(error))
    if options.check is None and not named:
        parser.error(program.missing(named))
    return options


def compared(options: argparse.Namespace) -> Dict[str, List[Dict[str, Any]]]:
    """The runs of each allocator. Raises SystemExit where none can begin."""
    pools = [name for name in options.allocators if name not in OWN]
    with tempfile.TemporaryDirectory() as place:
        line = Line("what the runs need")
        status, lines = started([f"--check={','.join(pools)}"], "", pathlib.Path(place), line, 0)
        if status != 0:
            said = [] if status == 1 and lines else [f"weir: the process that looks what is here ended with status {status}"]
            sys.exit("\n".join(lines[-LINES:] + said))
    runs: Dict[str, List[Dict[str, Any]]] = {allocator: [] for allocator in options.allocators}
    for number in range(options.rounds):
        turn = number % len(options.allocators)
        for allocator in options.allocators[turn:] + options.allocators[:turn]:
            runs[allocator].append(run(allocator, options, f"round {number + 1} of {options.rounds}, {name_of(allocator)}"))
    return runs


def main(words: List[str]) -> None:
    options = parsed(words)
    if options.check is not None:
        try:
            return check([name for name in options.check.split(",") if name])
        except weir_plugin.Error as error:
            sys.exit(str(error))
    if options.one:
        return run_one(options.one, options.limit, options.steps, pathlib.Path(options.folder), options.words)
    if wrong := program.missing(options.words):
        sys.exit(wrong)
    runs = compared(options)
    rows = [row_of(allocator, each) for allocator, each in runs.items()]
    print(table(rows))
    print(verdict(rows))
    failed = next(((allocator, each) for allocator, runs_of_it in runs.items() for each in runs_of_it if each["error"]), None)
    if failed:
        print(f"the last lines that the run with {failed[0]} wrote:\n{failed[1]['wrote']}", file=sys.stderr)
    if any(each.get("called_use") for runs_of_it in runs.values() for each in runs_of_it):
        print("the program calls weir_torch.use itself; here that call was skipped, as 'compare' chooses the allocator")
    if len({row.losses for row in rows if not row.error}) > 1:
        print("the losses differ: a program whose results vary from run to run shows that with one allocator as well")
    pathlib.Path(options.picture).write_text(picture(rows, program.title(options.words)))
    print(f"the picture is in {options.picture}")
    sys.exit(1 if any(row.error for row in rows) else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
