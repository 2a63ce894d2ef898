#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Everything about Python that needs a GPU: what must hold, and the figures. A quarter of an hour on an H200.

usage: gpu.py FOLDER [--quick] [--only calls,cases,pairs,recovery,trees,long,sleep,record,memory,two_cards]
              [--workloads NAME,...] [--rounds 3] [--without-compact] [--record] [--minutes N]

--record: FOLDER gets a recording of each of weir's runs on two cards, which 'sh examples/run.sh replay' reads.

Writes FOLDER/python.json and FOLDER/python.txt as it goes, and prints the latter; the last line is 'N passed, N failed'. Needs
PyTorch with CUDA, g++ and CUDA's headers; what CuPy, Numba, JAX, accelerate or a second card are for is left out where they are
not there, and said. Each case and each measurement runs in a process of its own, forked from this one, which imports PyTorch and
never touches CUDA. Allocators take turns on each workload; each round turns their order.

Each part has the minutes of MINUTES, and what parts before it did not use; --minutes: all together. Each process has a limit,
too. What finds no time is said, and the tables show what was measured.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples/python")]
sys.path.append(str(HERE.parents[0] / "checks"))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # so that equal runs give equal losses

import torch  # noqa: E402

import call_by_call  # noqa: E402
import on_gpu  # noqa: E402
import recovery  # noqa: E402
import trees  # noqa: E402
import two_cards  # noqa: E402
import weir_plugin  # noqa: E402
import weir_torch  # noqa: E402
import workloads  # noqa: E402
import workshop  # noqa: E402
from sub_runs import Clock, SubRun, forked  # noqa: E402

MIB = 1 << 20
ALLOCATORS = ("default", "expandable", "device_pool", "compact_device_pool")
MINUTES = {"calls": 1.6, "cases": 3, "pairs": 0.5, "recovery": 1, "trees": 3.5, "long": 1.5, "sleep": 0.7, "record": 0.5,
           "memory": 4, "two_cards": 4}


def take(allocator, limit=None):
    """Makes the allocator this process's."""
    if allocator == "expandable":
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    elif allocator != "default":
        weir_torch.use(allocator, limit=limit)


def held(allocator, device=None):
    """The most bytes that were reserved."""
    if allocator in ("default", "expandable"):
        return torch.cuda.max_memory_reserved(device)
    return weir_torch.peak(device)["peak_reserved_bytes"]


def reserved_now(allocator):
    if allocator in ("default", "expandable"):
        return torch.cuda.memory_reserved()
    return weir_torch.state()["reserved_bytes"]


def median_step(times, kinds):
    """Of the last two thirds. Steps of so many kinds take turns: of all kinds together, then."""
    turns = [statistics.fmean(times[i:i + kinds]) for i in range(0, len(times) - kinds + 1, kinds)]
    return statistics.median(turns[len(turns) // 3:])


def measure(allocator, steps, generator, kinds=1):
    """Runs a workload: its losses, the time of each step, and what was held."""
    warnings.simplefilter("ignore")
    take(allocator)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.zeros(1, device="cuda")
    base = torch.cuda.mem_get_info()[0]
    losses, times, began = [], [], time.perf_counter()
    for loss in generator(steps):
        torch.cuda.synchronize()
        now = time.perf_counter()
        times.append(1e3 * (now - began))
        losses.append(float(loss))
        began = time.perf_counter()
    return {"held_mib": held(allocator) / MIB, "device_mib": (base - torch.cuda.mem_get_info()[0]) / MIB,
            "step_ms": median_step(times, kinds), "losses": [f"{loss:.6f}" for loss in losses]}


def measure_long(allocator, steps):
    warnings.simplefilter("ignore")
    take(allocator)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    held_at, losses, began = {}, {}, time.perf_counter()
    marks = [steps * part // 10 for part in range(1, 11)]
    for step, loss in enumerate(workloads.long_run(steps), 1):
        if step in marks:
            torch.cuda.synchronize()
            held_at[step], losses[step] = reserved_now(allocator) / MIB, f"{float(loss):.6f}"
    return {"held_mib": list(held_at.values()), "losses": list(losses.values()),
            "step_ms": 1e3 * (time.perf_counter() - began) / steps}


def build_pairs():
    library = weir_plugin.cache_folder() / f"pairs-{torch.__version__}.so"
    top = pathlib.Path(torch.__file__).resolve().parent
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20", "-O2", "-fPIC", "-shared",
               *weir_plugin.cuda_flags(weir_plugin.cuda_runtime()), "-isystem", str(top / "include"), str(HERE / "pairs.cpp"),
               f"-L{top / 'lib'}", "-lc10_cuda", "-lc10",
               f"-Wl,-rpath,{top / 'lib'}", "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return library


def measure_pairs(library, allocator, rounds, pairs):
    """Nanoseconds of a pair on the null stream, as PyTorch's own code asks for it: the median of the rounds, by size."""
    import ctypes
    take(allocator)
    torch.zeros(1, device="cuda")
    code = ctypes.CDLL(str(library))
    code.pairs.restype, code.pairs.argtypes = ctypes.c_double, (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
    return {bytes_: statistics.median([code.pairs(pairs, bytes_, None) for _ in range(rounds + 1)][1:])
            for bytes_ in (512, 64 << 10, 4 << 20)}


def measure_recovery(allocator, limit=4 << 30):
    warnings.simplefilter("ignore")
    take(allocator, limit)
    if allocator in ("default", "expandable"):
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
    return recovery.largest_batches()


class Book:
    """What was found, as lines of text and as data."""

    def __init__(self, folder):
        self.folder, self.data, self.passed, self.failed = folder, {}, 0, 0
        self.clock = Clock()
        (folder / "python.txt").write_text("")

    def say(self, text=""):
        with open(self.folder / "python.txt", "a") as sink:
            sink.write(text + "\n")
        print(text, flush=True)

    def save(self):
        self.data["seconds"] = round(self.clock.passed())
        (self.folder / "python.json").write_text(json.dumps(self.data, indent=1))

    def judge(self, holds, text):
        self.passed, self.failed = self.passed + bool(holds), self.failed + (not holds)
        self.say(f"  {'holds ' if holds else 'FAILED'} {text}")

    def has_time(self, what):
        """Whether there is time for it; else says so."""
        if self.clock.left() >= 3:
            return True
        self.say(f"  {what}: left out for want of time")
        return False

    def forked(self, work, limit_s):
        return forked(work, self.clock.left(limit_s))


def run_calls(book, folder):
    """torch_cases.py with PyTorch's allocator and with weir's: both answer the same."""
    book.say("calls of PyTorch's reference, beside its own allocator")
    os.environ["PYTHONPATH"] = str(HERE.parents[1] / "examples/python")
    found = book.data["calls"] = {}
    for allocator in ("native", "weir"):
        began = time.monotonic()
        found[allocator], left, complaint = call_by_call.answers(
            lambda words: workshop.run([sys.executable, *words], timeout=max(1, book.clock.left())), allocator, folder, [])
        book.say(f"  {allocator}: {len(found[allocator])} answers in {time.monotonic() - began:.0f} s"
                 + (f"; no time left for {', '.join(left)}" if left else ""))
        if complaint:
            book.judge(False, f"torch_cases.py {allocator}: {complaint}")
    for name, complaint in call_by_call.verdicts(found):
        ends = (found["native"][name].get("failed") or "").startswith(call_by_call.ENDED)
        note = "PyTorch's own ends the process" if ends else ""
        book.judge(not complaint, f"{name:<34} {complaint or note}")


def begun(book, case):
    def work():
        if not case.own:
            take(case.pool, case.limit)
        return case.function()
    return SubRun(work, book.clock.left(case.limit_s))


def ended(book, case, run):
    result, error = run.finish()
    book.data.setdefault("cases", {})[case.name] = error or result or "holds"
    book.judge(error is None, f"{case.name:<28} {run.seconds:5.1f} s  {error.strip() if error else result or ''}")


def run_cases(book):
    """Six side by side, those that may take longest first; then those that want quiet."""
    book.say("cases")
    running = []
    for case in sorted(on_gpu.CASES, key=lambda case: (case.quiet, -case.limit_s)):
        while running and (case.quiet or len(running) == 6):
            for pair in [pair for pair in running if pair[1].is_over()]:
                running.remove(pair)
                ended(book, *pair)
            time.sleep(0.02)
        if book.has_time(case.name):
            running.append((case, begun(book, case)))
    for pair in running:
        ended(book, *pair)


def run_pairs(book, quick):
    book.say("\na pair of allocation and free on the null stream, host nanoseconds")
    library, found = build_pairs(), {}
    for allocator in ("default", *weir_plugin.POOLS):
        rounds, pairs = (3, 2000) if quick else (15, 20000)
        found[allocator], error = book.forked(lambda: measure_pairs(library, allocator, rounds, pairs), 60)
        if error:
            return book.judge(False, f"{allocator}: {error.strip()}")
    book.data["pairs_ns"] = found
    for bytes_ in found["default"]:
        book.say(f"  {int(bytes_):>8} B  " + "  ".join(f"{name} {each[bytes_]:.0f}" for name, each in found.items()))
    for bytes_, own in found["default"].items():
        ours = found["device_pool"][bytes_]
        book.judge(ours <= 0.5 * own, f"{bytes_} B: device_pool takes at most half of PyTorch's own ({ours / own:.2f})")


def run_trees(book, quick, rounds):
    """Graph trees: compiled once, so that each allocator runs the same kernels; then measured."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS"] = "ATEN"  # the others compile for minutes, and allocate as much
    steps, order = 2 * trees.KINDS if quick else 20 * trees.KINDS, ("default", "expandable", "device_pool")

    def work(mode, allocator="default", count=trees.KINDS):
        return lambda: measure(allocator, count, lambda n: trees.trained_and_asked(mode, n), trees.KINDS)

    book.say("\ngraph trees")
    found = book.data["trees"] = {mode: {name: [] for name in order} for mode in trees.MODES}
    for mode, run in [(mode, SubRun(work(mode), book.clock.left(120))) for mode in trees.MODES]:
        error = run.finish()[1]
        book.say(f"  {mode} compiled in {run.seconds:.0f} s")
        if error:
            book.judge(False, f"{mode}: PyTorch's own allocator: {error.strip()}")
            del found[mode]
    for number in range(1 if quick else rounds):
        for mode, allocator in [(mode, name) for mode in list(found) for name in order[number % 3:] + order[:number % 3]]:
            if not book.has_time(f"round {number + 1}, {mode}, {allocator}"):
                continue
            run = SubRun(work(mode, allocator, steps), book.clock.left(60))
            result, error = run.finish()
            if error:
                book.judge(False, f"{mode} with {allocator}: {error.strip()}")
                continue
            found[mode][allocator].append(result)
            book.say(f"  round {number + 1}, {mode:<16}{allocator:<12}{result['step_ms']:8.3f} ms a step "
                     f"({run.seconds:.0f} s)")
    book.say("\ngraph trees: MiB held, ms a step in each round")
    for mode, each in found.items():
        for name, runs in each.items():
            book.say(f"  {mode:<16}{name:<14}{max((r['held_mib'] for r in runs), default=0):8,.0f}   "
                     + " ".join(f"{r['step_ms']:.3f}" for r in runs))
        judge_trees(book, mode, each, quick)


def judge_trees(book, mode, each, quick):
    if not all(each.values()):
        return book.judge(False, f"{mode}: a run is missing")
    held = {name: max(r["held_mib"] for r in runs) for name, runs in each.items()}
    best = min(held["default"], held["expandable"])
    book.judge(held["device_pool"] <= 1.1 * best,
               f"{mode}: held {held['device_pool'] / best:.2f} times what PyTorch's better allocator does")
    judge_times(book, mode, each, quick)
    judge_losses(book, mode, each)


def judge_times(book, name, each, quick):
    """A step takes no longer than with PyTorch's better allocator, or as long as with its own in some run."""
    own = [r["step_ms"] for allocator in ("default", "expandable") for r in each[allocator]]
    ours = statistics.median(r["step_ms"] for r in each["device_pool"])
    best = min(statistics.median(r["step_ms"] for r in each[allocator]) for allocator in ("default", "expandable"))
    if not quick:
        book.judge(ours <= max(1.01 * best, max(own)),
                   f"{name}: a step takes {100 * (ours / best - 1):+.1f} % against PyTorch's best; its runs spread "
                   f"{100 * (max(own) / min(own) - 1):.1f} %")


def run_recovery(book):
    book.say("\nwithin 4 GiB, a smaller batch after each out-of-memory error")
    found = book.data["recovery"] = {}
    for allocator in ("default", "expandable", "device_pool"):
        found[allocator], error = book.forked(lambda: measure_recovery(allocator), 90)
        if error:
            return book.judge(False, f"{allocator}: {error.strip()}")
        book.say(f"  {allocator:<14}accelerate {found[allocator]['accelerate']}, largest {found[allocator]['largest']} "
                 f"(by {found[allocator]['rule']})")
    for name in ("accelerate", "largest"):
        own = max((found[each][name] or 0) for each in ("default", "expandable"))
        book.judge((found["device_pool"][name] or 0) >= own, f"{name}: {found['device_pool'][name]}, PyTorch's own {own}")
    book.judge(found["device_pool"]["again"], "the largest batch fits again, and one of 1 after it")


def run_memory(book, quick, names, rounds, allocators):
    found = {name: {allocator: [] for allocator in allocators} for name in names}
    left_out = 0
    for number in range(1 if quick else rounds):
        for name in names:
            _, steps, few, generator = workloads.WORKLOADS[name]
            order = allocators if number == 0 else allocators[:3]  # the later rounds are for times
            turn = number % len(order)
            for allocator in order[turn:] + order[:turn]:
                if book.clock.left() < 3:
                    left_out += 1
                    continue
                result, error = book.forked(lambda: measure(allocator, few if quick else steps, generator), 90)
                if error:
                    book.judge(False, f"{name} with {allocator}: {error.strip()}")
                else:
                    found[name][allocator].append(result)
    book.data["memory"] = found
    book.say("\nmost memory reserved, MiB (median time of a step, ms)")
    book.say(f"  {'':<30}" + "".join(f"{allocator:>24}" for allocator in allocators))
    for name, each in found.items():
        cells = [f"{max(r['held_mib'] for r in runs):,.0f} ({statistics.median(r['step_ms'] for r in runs):.2f})"
                 if runs else "-" for runs in each.values()]
        book.say(f"  {workloads.WORKLOADS[name][0]:<30}" + "".join(f"{cell:>24}" for cell in cells))
    if left_out:
        book.say(f"  {left_out} runs of the later rounds were left out for want of time")
    for name, each in found.items():
        judge_workload(book, name, each, quick)


def judge_workload(book, name, each, quick):
    if not all(each[allocator] for allocator in ("default", "expandable", "device_pool")):
        return book.judge(False, f"{name}: a run is missing")
    most = {allocator: max(r["held_mib"] for r in runs) for allocator, runs in each.items() if runs}
    book.judge(most["device_pool"] <= max(1.01 * most["expandable"], most["expandable"] + 32),
               f"{name}: held {100 * (most['device_pool'] / most['expandable'] - 1):+.1f} % against expandable segments")
    if name == "gpt2_varying":
        book.judge(most["device_pool"] <= 0.85 * most["default"],
                   f"{name}: held {100 * (most['device_pool'] / most['default'] - 1):+.1f} % against the default")
    if name == "prefetching" and "compact_device_pool" in most:
        book.judge(most["compact_device_pool"] <= 0.8 * most["expandable"], f"{name}: compact_device_pool held "
                   f"{100 * (most['compact_device_pool'] / most['expandable'] - 1):+.1f} % against expandable segments")
    judge_times(book, name, each, quick)
    judge_losses(book, name, each)


def judge_losses(book, name, each):
    """Equal to PyTorch's own; where its own runs differ, as near to them as they are to one another."""
    def apart(one, other):
        return max(abs(float(a) - float(b)) for a, b in zip(one, other))
    own = [r["losses"] for allocator in ("default", "expandable") for r in each[allocator]]
    ours = [r["losses"] for allocator in ("device_pool", "compact_device_pool") for r in each.get(allocator, [])]
    spread = max(apart(one, other) for one in own for other in own)
    farthest = max(min(apart(one, other) for other in own) for one in ours)
    text = f"{name}: losses {', '.join(own[0][:3])} ... {own[0][-1]}"
    if spread == 0:
        book.judge(farthest == 0, f"{text}, {'equal' if farthest == 0 else f'and {farthest:.6f} off'}")
    else:
        book.judge(farthest <= spread, f"{text}; PyTorch's own runs differ by up to {spread:.6f}, ours from them by {farthest:.6f}")


def run_long(book, quick):
    steps = 300 if quick else 10000
    book.say(f"\n{steps:,} steps of a small model with two side streams: MiB held at each tenth")
    found = book.data["long"] = {}
    for allocator in ("default", "device_pool", "compact_device_pool"):
        result, error = book.forked(lambda: measure_long(allocator, steps), 120)
        if error:
            book.judge(False, f"{allocator}: {error.strip()}")
            continue
        found[allocator] = result
        book.say(f"  {allocator:<22}" + " ".join(f"{mib:6.0f}" for mib in result["held_mib"]) +
                 f"   {result['step_ms']:.3f} ms")
    for allocator, each in found.items():
        if allocator != "default" and "default" in found:
            book.judge(each["held_mib"][-1] <= each["held_mib"][1], f"{allocator}: nothing grows after a fifth of the steps")
            book.judge(each["losses"] == found["default"]["losses"],
                       f"{allocator}: the losses are PyTorch's own: {each['losses'][-1]}")


def timed(act):
    """Seconds until act() is over on the device, too."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def measure_sleep(bytes_, rounds):
    """Seconds of sleeping and waking of one tag beside another one, and of copies by hand; free memory before and after rounds."""
    take("device_pool")
    count = bytes_ >> 28
    with weir_torch.tag("weights"):
        weights = [torch.full((64 << 20,), float(each), device="cuda") for each in range(count)]  # 256 MiB each
    with weir_torch.tag("cache"):
        cache = torch.arange(64 << 20, device="cuda", dtype=torch.float32)
    found = {}
    for name, keep in (("constant, first", "constant"), ("constant, second", "constant"), ("kept, first", True),
                       ("kept, second", True), ("dropped", False)):
        found[name] = {"sleep": timed(lambda: weir_torch.suspend("weights", keep=keep))}
        assert bool((cache[-3:] == torch.arange(len(cache) - 3, len(cache), device="cuda")).all())
        found[name]["wake"] = timed(lambda: weir_torch.resume("weights"))
        if keep:
            for number, each in enumerate(weights):
                assert bool((each == number).all()), f"{name}: weights[{number}] are not what they were"
    copies = []
    found["by hand"] = {"sleep": timed(lambda: copies.extend(each.cpu() for each in weights))}
    found["by hand"]["wake"] = timed(lambda: [each.cuda() for each in copies])
    del copies, weights
    weir_torch.trim()
    weir_torch.suspend("cache")
    weir_torch.resume("cache")
    before = torch.cuda.mem_get_info()[0]
    for _ in range(rounds):
        weir_torch.suspend("cache", keep=False)
        weir_torch.resume("cache")
    return {"seconds": found, "lost_bytes": before - torch.cuda.mem_get_info()[0]}


def run_sleep(book, quick):
    gib = 1 if quick else 6
    book.say(f"\na tag of {gib} GiB sleeps and wakes, seconds")
    result, error = book.forked(lambda: measure_sleep(gib << 30, 20 if quick else 1000), 60)
    book.data["sleep"] = result
    if error:
        return book.judge(False, error.strip())
    for name, each in result["seconds"].items():
        book.say(f"  {name:<18}{each['sleep']:8.3f} {each['wake']:8.3f}")
    for name, what, most in (("constant, first", "sleep", 0.6), ("constant, second", "sleep", 0.2), ("constant, second", "wake", 0.2),
                             ("kept, first", "wake", 0.2)):
        took = result["seconds"][name][what]
        book.judge(took <= most * gib / 6 + 0.05 * quick, f"{name}: {what} takes {took:.3f} s, and at most {most * gib / 6:.3f} was "
                   "asked for")
    book.judge(result["lost_bytes"] == 0, f"after sleeping and waking {20 if quick else 1000} times {result['lost_bytes']} bytes "
               "less are free")


def measure_record(library, rounds, pairs):
    """What recording costs a pair: [name, median nanoseconds, median of the difference to the same round's 'off'] of pairs as
    PyTorch's own code asks for them, and of torch.empty's, whose lines it can write. In each round all take turns, so that a machine
    that drifts shows in all of them; the order of turns differs by the round. Beside them the file: nanoseconds to write an event,
    bytes of it."""
    import ctypes
    take("device_pool")
    code = ctypes.CDLL(str(library))
    code.pairs.restype, code.pairs.argtypes = ctypes.c_double, (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)

    def of_empty(count):
        began = time.perf_counter_ns()
        for _ in range(count):
            torch.empty(512, dtype=torch.uint8, device="cuda")
        return (time.perf_counter_ns() - began) / count

    def of_code(count):
        return code.pairs(count, 512, None)

    ways = [(of_code, "PyTorch's code, off", None), (of_code, "PyTorch's code, on without lines", False),
            (of_code, "PyTorch's code, off again", None), (of_empty, "torch.empty, off", None),
            (of_empty, "torch.empty, on without lines", False), (of_empty, "torch.empty, on", True)]
    seen, writing = {name: [] for _, name, _ in ways}, {}
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place) / "pairs.weir"
        with weir_torch.record(path, stacks=False):
            of_code(600_000)  # once around in its memory, which comes as it is used first
        for number in range(rounds):
            turn = number % len(ways)
            for pair, name, stacks in ways[turn:] + ways[:turn]:
                count = pairs if pair is of_code else pairs // 4
                made = None if stacks is None else weir_torch.record(path, stacks=stacks)
                pair(count // 10)
                seen[name].append(pair(count))
                if made:
                    began = time.perf_counter_ns()
                    made.end()
                    events = 2 * (count + count // 10)
                    writing[stacks] = [(time.perf_counter_ns() - began) / events, path.stat().st_size / events]
    off = {pair: seen[name] for pair, name, _ in ways[::3]}
    return {"pairs": [[name, statistics.median(seen[name]), statistics.median([a - b for a, b in zip(seen[name], off[pair])])]
                      for pair, name, _ in ways], "file": writing}


def run_record(book, quick):
    book.say("\na pair of allocation and free, host nanoseconds, by whether somebody records (and the difference to 'off')")
    library = build_pairs()
    result, error = book.forked(lambda: measure_record(library, 6 if quick else 30, 400 if quick else 8000), 30)
    book.data["record"] = result
    if error:
        return book.judge(False, error.strip())
    for name, each, more in result["pairs"]:
        book.say(f"  {name:<34}{each:10.1f} {more:+10.1f}")
    for kind, (nanoseconds, bytes_) in result["file"].items():
        book.say(f"  the file {'with' if kind == 'true' else 'without'} lines: {nanoseconds:.0f} ns to write an event, {bytes_:.1f} bytes")
    cost, drift = (next(more for name, _, more in result["pairs"] if name == wanted)
                   for wanted in ("PyTorch's code, on without lines", "PyTorch's code, off again"))
    book.judge(cost <= 90, f"recording a pair costs at most 90 ns, lines aside ({cost:.0f}; off and off again differ by {drift:.0f})")


def ranks(book, work, limit_s=60):
    """work(rank, store) in a process for each card: (what they returned, None), or (None, what went wrong)."""
    with tempfile.TemporaryDirectory() as place:
        store = pathlib.Path(place) / "store"
        runs = [SubRun(lambda: work(rank, store), book.clock.left(limit_s)) for rank in range(two_cards.RANKS)]
        ended = [run.finish() for run in runs]
    errors = [f"rank {rank}: {error.strip()}" for rank, (_, error) in enumerate(ended) if error]
    return (None, "\n".join(errors)) if errors else ([result for result, _ in ended], None)


def recorded(book, wanted, name, allocator):
    """With --record, a recording of what weir does, for 'replay'; else nothing."""
    if not wanted or allocator in ("default", "expandable"):
        return contextlib.nullcontext()
    return weir_torch.record(book.folder / f"{name}.weir")


def run_two_cards(book, quick, rounds, record):
    book.say("\ntwo cards")
    if (forked(lambda: torch.cuda.device_count())[0] or 0) < two_cards.RANKS:
        return book.say("  left out: there is one card here")
    for case in [each for each in on_gpu.CASES if each.name in ("several_devices", "tensors_for_other_processes")]:
        ended(book, case, begun(book, case))
    for what in (two_cards.gathered, two_cards.registered_segments, two_cards.registered_pool):
        theirs = None
        for allocator in ("default", "device_pool"):
            if not book.has_time(f"{what.__name__}, {allocator}"):
                break
            answers, error = ranks(book, lambda rank, store: (take(allocator), what(rank, store))[1])
            wrong = error or "; ".join(f"{found} and not {wanted}" for found, wanted in answers if found != wanted)
            if allocator == "default":
                theirs = wrong
                book.say(f"         {what.__name__:<20} PyTorch's own {'fails: ' + wrong if wrong else 'holds'}")
            else:
                book.judge(not wrong or theirs, f"{what.__name__:<20} {wrong}")
    found = {}
    for number in range(1 if quick else rounds):
        order = ALLOCATORS if number == 0 else ALLOCATORS[:3]  # the later rounds are for times
        turn = number % len(order)
        for kind, allocator in [(kind, name) for kind in ("fsdp2", "fsdp1") for name in order[turn:] + order[:turn]]:
            if not book.has_time(f"round {number + 1}, {kind}, {allocator}"):
                continue
            began = time.monotonic()

            def work(rank, store):
                take(allocator)
                with recorded(book, record, f"{kind}-{allocator}-round{number + 1}-rank{rank}", allocator):
                    return two_cards.measure(rank, store, kind, 6 if quick else 30, lambda device: held(allocator, device))

            answers, error = ranks(book, work)
            if error:
                book.judge(False, f"{kind} with {allocator}: {error}")
                continue
            result = two_cards.together(answers)
            found.setdefault(kind, {name: [] for name in ALLOCATORS})[allocator].append(result)
            book.say(f"  round {number + 1}, {kind}, {allocator:<20}{result['held_mib']:8,.0f} MiB a card, "
                     f"{result['step_ms']:7.2f} ms a step ({time.monotonic() - began:.0f} s)")
    book.data["two_cards"] = found
    for kind, each in found.items():
        book.say(f"  {kind}: most MiB held a card: " + ", ".join(
            f"{name} {max(r['held_mib'] for r in runs):,.0f}" for name, runs in each.items() if runs))
        judge_workload(book, kind, each, quick)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(MINUTES))
    parser.add_argument("--workloads", default=",".join(workloads.WORKLOADS))
    parser.add_argument("--without-compact", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float)
    options = parser.parse_args()
    folder = pathlib.Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    book = Book(folder)
    own, only = weir_torch._flags(), options.only.split(",")
    wanted = [("device_pool", own + weir_torch.allocator.flags())]
    wanted += [("device_pool", own + weir_torch.allocator.flags(shares=True))]
    wanted += [("compact_device_pool", own + weir_torch.allocator.flags())]
    if only != ["two_cards"]:
        wanted += [("device_pool", own), ("device_pool", [])]  # for weir_torch.pool, and for CuPy
        wanted += [("promised_device_pool", own + weir_torch.allocator.flags())]
    built = forked(lambda: build(wanted), 150)[1]  # it starts threads
    book.data["torch"], book.data["cuda"] = torch.__version__, torch.version.cuda
    book.data["device"] = forked(lambda: torch.cuda.get_device_name())[0]
    book.say(f"{book.data['device']}, PyTorch {torch.__version__}; plug-ins built in {book.clock.passed():.0f} s\n")
    if built:
        book.judge(False, f"a plug-in was not built: {built}")
    stages = {"calls": lambda: run_calls(book, folder), "cases": lambda: run_cases(book),
              "pairs": lambda: run_pairs(book, options.quick),
              "long": lambda: run_long(book, options.quick),
              "sleep": lambda: run_sleep(book, options.quick), "record": lambda: run_record(book, options.quick),
              "trees": lambda: run_trees(book, options.quick, options.rounds), "recovery": lambda: run_recovery(book),
              "two_cards": lambda: run_two_cards(book, options.quick, options.rounds, options.record),
              "memory": lambda: run_memory(book, options.quick, options.workloads.split(","), options.rounds,
                                           ALLOCATORS[:3] if options.without_compact else ALLOCATORS)}
    scale = options.minutes / sum(MINUTES[name] for name in only) if options.minutes else 1
    for name in only:
        book.clock.allow(scale * MINUTES[name])
        try:
            stages[name]()
        except Exception:
            book.judge(False, f"{name}: {traceback.format_exc()}")
        book.save()
        book.say(f"  {name}: at {book.clock.passed():.0f} s\n")
    book.say(f"{book.passed} passed, {book.failed} failed")
    sys.exit(1 if book.failed else 0)


def build(wanted):
    with concurrent.futures.ThreadPoolExecutor() as threads:  # each waits for a compiler
        list(threads.map(lambda each: weir_plugin.build(*each), wanted))


if __name__ == "__main__":
    main()
