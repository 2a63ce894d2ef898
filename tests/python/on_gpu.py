# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What must hold on a GPU: each function is a case, run in a process of its own by gpu.py, and fails by an exception.

A case named here with `own=True` runs with PyTorch's own allocator; the others with weir_torch.use. A case may return a text
that is shown beside it.
"""

import contextlib
import ctypes
import gc
import importlib.util
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types

import torch

import weir_plugin

CASES = []
MIB = 1 << 20


def case(own=False, limit=None, pool="device_pool", quiet=False, limit_s=30):
    """quiet: it measures time or the device's free memory, so nothing runs beside it. limit_s: what it may take."""
    def note(function):
        CASES.append(types.SimpleNamespace(name=function.__name__, function=function, own=own, limit=limit, pool=pool, quiet=quiet,
                                           limit_s=limit_s))
        return function
    return note


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def weir():
    import weir_torch
    return weir_torch


def used_on_a_side_stream(records, first):
    """Whether a side stream still sees a tensor that was freed, and its memory taken again, while the stream slept."""
    side, kept = torch.cuda.Stream(), []
    for i in range(20):
        x = torch.full((1 << 20,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        if records and first:
            x.record_stream(side)
        with torch.cuda.stream(side):
            torch.cuda._sleep(5_000_000)
            kept.append(x + 0)
        if records and not first:
            x.record_stream(side)
        del x
        torch.full((1 << 20,), -1.0, device="cuda")
    torch.cuda.synchronize()
    return all(bool((y == i).all()) for i, y in enumerate(kept))


@case()
def record_stream():
    require(used_on_a_side_stream(True, False), "a tensor was overwritten though record_stream named the stream after its use")
    require(used_on_a_side_stream(True, True), "a tensor was overwritten though record_stream named the stream before its use")
    seen = used_on_a_side_stream(False, False)
    return "without record_stream " + ("nothing was overwritten: this case shows nothing" if seen else "it is overwritten")


@case()
def streams_and_threads():
    wrong = []

    def work(seed):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for i in range(400):
                    size = 1000 * (seed * 37 + i * 101 % 1009 + 1)
                    x = torch.full((size,), seed, dtype=torch.int32, device="cuda")
                    y = x * 3
                    del x
                    if i % 50 == 0 and not bool((y == 3 * seed).all()):
                        wrong.append((seed, i))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    require(not wrong, f"{wrong[:3]}")


def captured(function, pool=None):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        out = function()
    return graph, out


@case()
def graphs():
    source = torch.zeros(1 << 20, device="cuda")

    def work():
        x = source * 2
        for _ in range(4):
            x = x + torch.ones_like(x)
        return x

    graph, out = captured(work)
    for i in range(5):
        source.fill_(i)
        noise = [torch.full((n << 18,), -1.0, device="cuda") for n in range(1, 9)]
        graph.replay()
        del noise
        require(bool((out == 2 * i + 4).all()), f"replay {i} gave {out[0].item()}")
    second, more = captured(lambda: work().sum(), pool=graph.pool())
    source.fill_(7)
    graph.replay()
    second.replay()
    require(bool((out == 18).all()) and more.item() == 18 * (1 << 20), f"graphs with one pool: {out[0].item()}, {more.item()}")
    held = weir().state()["in_use_bytes"]
    del graph, second, out, more
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    left = weir().state()["in_use_bytes"]
    require(left < held, f"the graphs' memory is still in use: {left} of {held} bytes")
    return f"the graphs held {(held - left) / MIB:.0f} MiB"


@case()
def graph_that_outgrows_its_memory():
    source = torch.zeros(10 << 18, device="cuda")

    def work():
        x = torch.cat([source + 1] * 4)  # 40 MiB, which no later block fits into
        last = x[-1].clone()
        del x
        return torch.cat([source + 2] * 8), last

    graph, out = captured(work)
    for i in range(5):
        source.fill_(i)
        noise = [torch.full((10 << 18,), -1.0, device="cuda") for _ in range(8)]
        torch.cuda.synchronize()
        graph.replay()
        require(all(bool((each == -1).all()) for each in noise), f"replay {i} wrote into memory of others")
        require(bool((out[0] == i + 2).all()) and out[1].item() == i + 1, f"replay {i} gave {out[0][0].item()}, {out[1]}")


@case()
def graph_with_two_streams():
    source, side = torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()

    def work():
        x = source + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            y = x * 10
        x.record_stream(side)
        del x
        z = torch.full((1 << 20,), -1.0, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        return y + z

    graph, out = captured(work)
    for i in range(5):
        source.fill_(i)
        graph.replay()
        require(bool((out == 10 * i + 9).all()), f"replay {i} gave {out[0].item()}")


@case()
def freed_in_a_capture():
    kept = []

    def work():
        x = kept.pop() if kept else torch.ones(1 << 20, device="cuda")
        return x * 2

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kept.append(torch.full((1 << 20,), 3.0, device="cuda"))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = work()
    with torch.cuda.stream(stream):
        noise = [torch.full((1 << 20,), -1.0, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    require(bool((out == 6).all()), f"the graph's input was handed out again: {out[0].item()}")
    require(len(noise) == 8 and weir().state()["lost_bytes"] == 0, f"lost: {weir().state()['lost_bytes']}")


@case()
def graphed_callables():
    def losses(graphed):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if graphed:
            model = torch.cuda.make_graphed_callables(model, (torch.randn(64, 256, device="cuda"),))
        torch.manual_seed(2)
        found = []
        for _ in range(20):
            loss = model(torch.randn(64, 256, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            found.append(loss.item())
        return found

    plain, graphed = losses(False), losses(True)
    require(plain == graphed, f"{plain[:3]} and {graphed[:3]}")


@case()
def many_graphs_do_not_grow():
    source, held = torch.ones(1 << 20, device="cuda"), []
    for _ in range(12):
        graph, out = captured(lambda: source * 2 + 1)
        graph.replay()
        torch.cuda.synchronize()
        del graph, out
        gc.collect()
        held.append(weir().state()["reserved_bytes"])
    require(held[-1] <= held[2] + 8 * MIB, f"{[each // MIB for each in held]} MiB")


@case(limit="1 GiB")
def out_of_memory():
    x = torch.ones(100 << 18, device="cuda")
    try:
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text = str(error)
    for word in ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0", "at most 1024.00 MiB", "The largest of", "100.00 MiB"):
        require(word in text, f"'{word}' is not in: {text}")
    require(bool((x + 1 == 2).all()), "the pool is not usable after a refusal")
    return text.splitlines()[0][:110]


@case()
def memory_fraction():
    torch.cuda.set_per_process_memory_fraction(0.5)
    total = torch.cuda.mem_get_info()[1]
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    require(weir().state()["limit_bytes"] == total // 2, "the fraction before the first tensor is not the limit")
    torch.cuda.set_per_process_memory_fraction(float(64 * MIB) / total)
    try:
        torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
        raise AssertionError("more than the fraction was handed out")
    except torch.OutOfMemoryError as error:
        require("fraction" in str(error), str(error))
    y = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    try:
        torch.cuda.set_per_process_memory_fraction(float(8 * MIB) / total)
        raise AssertionError("a limit below what is in use was taken")
    except RuntimeError as error:
        require("below what is in use" in str(error), str(error))
    del x, y


@case(quiet=True)
def empty_cache_and_suspend():
    x = torch.arange(64 << 18, device="cuda", dtype=torch.float32)
    junk = [torch.empty(32 << 20, dtype=torch.uint8, device="cuda") for _ in range(20)]
    del junk
    before = weir().state()["reserved_bytes"]
    torch.cuda.empty_cache()
    after = weir().state()["reserved_bytes"]
    require(after < before, f"empty_cache gave nothing back: {after} of {before}")
    free, address, wanted = torch.cuda.mem_get_info()[0], x.data_ptr(), x.cpu()
    given = weir().suspend()
    after = torch.cuda.mem_get_info()[0]
    page = 2 * MIB  # CUDA's own, for the pinned memory
    require(after >= free + given - page, f"{free} bytes were free and {given} were given back; {after} are free")
    weir().resume()
    require(x.data_ptr() == address and bool((x.cpu() == wanted).all()), "the contents are not what they were")
    weir().reset_peak()
    require(weir().peak()["peak_reserved_bytes"] == weir().state()["reserved_bytes"], "reset_peak")
    require("pool 'torch:0'" in weir().report(), weir().report())
    return f"suspend gave {given / MIB:.0f} MiB back"


@case(quiet=True)
def several_devices():
    if torch.cuda.device_count() < 2:
        return "one device here"
    def numbers(device, count=2 * MIB):
        return torch.arange(count, device=f"cuda:{device}")

    early = numbers(0)  # before the other device has memory of weir's
    began = time.perf_counter()
    small = [torch.empty(32 * MIB, dtype=torch.uint8, device="cuda:0") for _ in range(8)]
    alone = 1e3 * (time.perf_counter() - began)
    second, late = numbers(1), numbers(0)
    began = time.perf_counter()
    small += [torch.empty(32 * MIB, dtype=torch.uint8, device="cuda:0") for _ in range(8)]
    opened = 1e3 * (time.perf_counter() - began)
    for source, device in ((early, 1), (late, 1), (second, 0)):
        there = source[::2].to(f"cuda:{device}", torch.float16)  # which a kernel copies
        require(bool((there.cpu()[:1000] == 2 * torch.arange(1000)).all()), f"a copy to device {device} that changes the type")
    with torch.cuda.device(0):
        del second
    require(weir().state(1)["total_blocks"] > 0, "the second device")
    return f"8 x 32 MiB took {alone:.1f} ms, and {opened:.1f} ms where the other device has memory too"


@case(own=True)
def mem_pool():
    made = weir().pool("device_pool", limit="1 GiB")
    outside = torch.ones(MIB, device="cuda")
    with torch.cuda.use_mem_pool(made):
        x = torch.ones(64 << 18, device="cuda")
    y = torch.ones(64 << 18, device="cuda")
    inside = made.weir.state()
    require(64 * MIB <= inside["requested_bytes"] < 128 * MIB, f"{inside}")
    require(torch.cuda.memory_allocated() >= 132 * MIB, "PyTorch does not count")
    require(bool((x + y == 2).all()) and outside.sum() == MIB, "the contents")
    try:
        with torch.cuda.use_mem_pool(made):
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        raise AssertionError("more than the limit was handed out")
    except torch.OutOfMemoryError:
        pass
    del x
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=made.id):
        out = y * 3
    graph.replay()
    require(bool((out == 3).all()), "a graph into the pool")
    before = made.weir.state()["in_use_bytes"]
    plugin = made.weir
    del graph, out, made
    gc.collect()
    torch.cuda.empty_cache()
    plugin.trim()
    require(plugin.state()["reserved_bytes"] == 0, f"the MemPool is gone, and its memory stays: {plugin.report()}")
    return f"the pool held {before / MIB:.0f} MiB"


@case()
def statistics():
    """PyTorch's own questions are answered with the pool's figures."""
    x = torch.ones(64 << 18, device="cuda")
    now = weir().state()
    require(torch.cuda.memory_allocated() == now["in_use_bytes"] >= 64 * MIB, f"{torch.cuda.memory_allocated()}, {now}")
    require(torch.cuda.memory_reserved() == now["reserved_bytes"], f"{torch.cuda.memory_reserved()}, {now}")
    y = torch.ones(64 << 18, device="cuda")
    del y
    require(torch.cuda.max_memory_allocated() >= 128 * MIB, f"{torch.cuda.max_memory_allocated()}")
    torch.cuda.reset_peak_memory_stats()
    require(torch.cuda.max_memory_allocated("cuda:0") == now["in_use_bytes"], f"{torch.cuda.memory_stats()}")
    require("memory summary" in torch.cuda.memory_summary() and x.sum() == 64 << 18, torch.cuda.memory_summary())


@case()
def cudnn_searches():
    """cuDNN's benchmark asks for the largest block that is to be had."""
    torch.backends.cudnn.benchmark = True
    try:
        torch.nn.functional.conv2d(torch.randn(2, 3, 64, 64, device="cuda"), torch.randn(8, 3, 3, 3, device="cuda"))
        torch.cuda.synchronize()
    finally:
        torch.backends.cudnn.benchmark = False


@case(limit_s=110)
def compile_reduce_overhead():
    """torch.compile with graph trees: inference of several shapes, and training."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
    fast = torch.compile(model, mode="reduce-overhead", dynamic=False)
    for turn in range(12):
        x = torch.randn(16 << turn % 3, 64, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        if turn % 2 == 0:
            with torch.no_grad():
                require(torch.allclose(fast(x), model(x), atol=1e-2), "inference gives something else")
            continue
        fast(x).square().mean().backward()
        ours = [each.grad.clone() for each in model.parameters()]
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        require(all(torch.allclose(a, each.grad, atol=1e-2) for a, each in zip(ours, model.parameters())), "other gradients")
        model.zero_grad(set_to_none=True)
    return f"held {torch.cuda.memory_reserved() >> 20} MiB"


@case(limit="4 GiB")
def dead_cycles():
    """Tensors in dead cycles of objects are freed before an allocation fails, if the program says how."""
    class Node:
        pass

    weir().before_out_of_memory(lambda *_: gc.collect())
    gc.disable()
    try:
        for made in range(100):
            node = Node()
            node.itself, node.held = node, torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
            del node
    except torch.OutOfMemoryError:
        raise AssertionError(f"only {made} of 100 cycles of 400 MiB were made within 4 GiB") from None
    finally:
        gc.enable()
        weir().before_out_of_memory(None)
    return f"100 of 400 MiB, {torch.cuda.memory_stats()['num_alloc_retries']} times asked"


@case(own=True, quiet=True)
def first_use():
    """With a plug-in that is built, in a process that imported PyTorch."""
    program = ("import time, torch; began = time.perf_counter(); import weir_torch; weir_torch.use(); "
               "print(time.perf_counter() - began)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    seconds = float(done.stdout)
    require(seconds <= 0.1, f"it took {seconds:.2f} s")
    return f"{1e3 * seconds:.0f} ms"


@case()
def remedies():
    """What finds out-of-memory errors in other libraries finds weir's."""
    found = []
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:
        if importlib.util.find_spec("accelerate"):
            from accelerate.utils.memory import should_reduce_batch_size
            require(should_reduce_batch_size(error), f"accelerate does not know: {error}")
            found.append("accelerate")
        for module in ("lightning.pytorch.utilities.memory", "pytorch_lightning.utilities.memory"):
            if importlib.util.find_spec(module.split(".")[0]):
                rules = importlib.import_module(module)
                require(rules.is_oom_error(error), f"{module} does not know: {error}")
                found.append(module.split(".")[0])
    return ", ".join(found) or "neither accelerate nor Lightning is here"


@case(limit="2 GiB")
def smaller_batches():
    """accelerate's own remedy goes on with a smaller batch."""
    if missing("accelerate"):
        return "left out: no accelerate here"
    from accelerate.utils import find_executable_batch_size
    tried = []

    @find_executable_batch_size(starting_batch_size=100)
    def work(batch):
        tried.append(batch)
        return torch.zeros(batch, 32 * MIB, dtype=torch.uint8, device="cuda").shape[0]

    found = work()
    require(found == tried[-1] and 32 <= found <= 64 and len(tried) > 1, f"{tried}")
    return f"batches of {tried}, of which 64 have room"


def missing(*names):
    """The first of these libraries that is not here, or None."""
    return next((name for name in names if importlib.util.find_spec(name) is None), None)


def weir_cupy_used(limit):
    import weir_cupy
    weir_cupy.use("device_pool", limit=limit)
    return weir_cupy


@case(own=True, limit_s=60)
def cupy_alone():
    if missing("cupy"):
        return "left out: no CuPy here"
    import cupy
    pool = weir_cupy_used("1 GiB")
    x = cupy.arange(1 << 20, dtype=cupy.float32)
    require(pool.state()["requested_bytes"] >= 4 * MIB, "the array is not in the pool")
    streams, kept = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)], []
    for i in range(100):
        with streams[i % 2]:
            kept.append((i, (cupy.full(1 << 18, float(i), dtype=cupy.float32) * 2).sum()))
    for stream in streams:
        stream.synchronize()
    require(all(float(total) == 2.0 * i * (1 << 18) for i, total in kept), "sums on two streams")
    with cupy.cuda.Stream(non_blocking=True):
        y = cupy.ones(1000)
    gc.collect()  # y keeps its stream
    del y
    try:
        cupy.empty(2 << 30, dtype=cupy.uint8)
        raise AssertionError("more than the limit was handed out")
    except cupy.cuda.memory.OutOfMemoryError as error:
        require("weir: out of memory" in str(error) and "limit 1 GiB" in str(error), str(error))
    del x, kept
    require(pool.state()["live_blocks"] == 0, f"{pool.report()}")
    return f"CuPy {cupy.__version__}; trim gave {pool.trim() / MIB:.0f} MiB back"


@case()
def cupy_beside_pytorch():
    if missing("cupy"):
        return "left out: no CuPy here"
    import cupy
    import weir_cupy
    weir_cupy.use("device_pool")
    before = weir().state()["live_blocks"]
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    y = cupy.from_dlpack(x) * 2
    z = torch.from_dlpack(y)
    require(weir().state()["live_blocks"] >= before + 2, "CuPy does not share PyTorch's pool")
    require(bool((z == 2 * x).all()) and z.data_ptr() == y.data.ptr, "through DLPack")


@case(own=True, limit_s=60)
def numba_alone():
    if missing("numba"):
        return "left out: no Numba here"
    import numpy
    import weir_numba
    weir_numba.use("device_pool", limit="1 GiB")
    from numba import cuda
    for i in range(50):
        x = cuda.to_device(numpy.full(100_000, i, dtype=numpy.float64), stream=cuda.stream())
        require((x.copy_to_host() == i).all(), "contents")
    require(weir_numba.state()["total_blocks"] >= 50, "the arrays are not in the pool")
    require(weir_numba.state()["reserved_bytes"] < 64 * MIB, weir_numba.report())


@case(own=True, limit_s=100)
def compare():
    """weir_torch.compare on a program that trains: its verdict."""
    program = """if True:
        import torch, weir_torch
        weir_torch.use("compact_device", limit="1G")
        model = torch.nn.Linear(512, 512).cuda()
        steps = torch.optim.SGD(model.parameters(), 1e-3)
        for n in range(1, 20):
            model(torch.ones(1000 * n, 512, device="cuda")).square().mean().backward()
            steps.step()
            torch.cuda.reset_peak_memory_stats()
        print(weir_torch.state()["reserved_bytes"])"""
    command = [sys.executable, "-m", "weir_torch.compare", "--allocators", "default,device", "--picture", os.devnull]
    done = subprocess.run([*command, "-c", program], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    lines = [line for line in done.stdout.splitlines() if line.startswith("device_pool holds ")]
    require(done.returncode == 0 and len(lines) == 1 and "that call was skipped" in done.stdout, done.stdout + done.stderr)
    return "\n" + done.stdout.rstrip()


def printed(words, program, *arguments, limit_s=60):
    """What a program printed that python3 started with these words before its name; all that it started ends with it."""
    with tempfile.TemporaryDirectory() as place:
        path, wrote = pathlib.Path(place) / "program.py", pathlib.Path(place) / "wrote"
        path.write_text(program)
        with open(wrote, "wb") as sink:
            child = subprocess.Popen([sys.executable, *words, str(path), *arguments], stdout=sink, stderr=subprocess.STDOUT,
                                     start_new_session=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
            try:
                status = child.wait(limit_s)
            except subprocess.TimeoutExpired:
                status = f"none after {limit_s} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        said = wrote.read_text(errors="replace")
    require(status == 0, f"{' '.join(words)} {' '.join(arguments)}: exit status {status}: {said[-3000:]}")
    return said


def launched(words, program):
    """The same by a launcher, with -m weir_torch."""
    return printed([*words, "-m", "weir_torch", "--limit", "1G"], program)


@case(own=True, limit_s=100)
def launchers():
    """torchrun, and accelerate where it is here."""
    program = """import torch
print(torch.cuda.memory.get_allocator_backend(), torch.ones(3, device="cuda").sum().item(), torch.cuda.memory_reserved() > 0)"""
    ways = {"torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]}
    if not missing("accelerate"):
        ways["accelerate"] = ["-m", "accelerate.commands.launch", "--num_processes", "1", "--num_machines", "1",
                              "--mixed_precision", "no", "--dynamo_backend", "no"]
    for name, words in ways.items():
        said = launched(words, program)
        require("weir 3.0 True" in said, f"{name}: {said}")
    return ", ".join(ways)


@case(own=True, limit_s=100)
def tensors_for_other_processes():
    """torch.multiprocessing, both ways between two processes with weir, and from PyTorch's own allocator to weir; of two cards,
    where they are here."""
    program = """import sys, torch, torch.multiprocessing as processes

def receive(uses, tensors, answers):
    import weir_torch
    weir_torch.use(shares=True)
    for value in (3.0, 4.0):
        x = tensors.get()
        assert bool((x == value).all()), x
        x += 1  # the sender sees it
        torch.cuda.synchronize()
        del x
        answers.put("done")
    if torch.cuda.device_count() > 1:
        x = tensors.get()
        for kind in (torch.float32, torch.float16):  # copied, and by a kernel
            there = x.to("cuda:0", kind)
            assert x.device.index == 1 and bool((there == 5).all()), there
        del x
        answers.put("done")
    if uses:
        y = torch.full((5 << 20,), 7.0, device="cuda")
        answers.put(y)
        tensors.get()

if __name__ == "__main__":
    uses = sys.argv[1] == "weir"
    if uses:
        import weir_torch
        weir_torch.use(shares=True)
    processes = processes.get_context("spawn")
    tensors, answers = processes.Queue(), processes.Queue()
    child = processes.Process(target=receive, args=(uses, tensors, answers))
    child.start()
    for value, count in ((3.0, 1000), (4.0, 40 << 20)):
        x = torch.full((count,), value, device="cuda")
        tensors.put(x)
        assert answers.get(timeout=40) == "done" and bool((x == value + 1).all()), x
    if torch.cuda.device_count() > 1:
        x = torch.full((9 << 20,), 5.0, device="cuda:1")
        tensors.put(x)
        assert answers.get(timeout=40) == "done"
    if uses:
        y = answers.get(timeout=40)
        assert bool((y == 7).all()), y
        del y
        tensors.put("enough")
    child.join(20)
    torch.cuda.empty_cache()
    print("all came", child.exitcode, torch.cuda.memory_allocated() >> 20)
"""
    for allocator in ("weir", "default"):
        said = printed([], program, allocator)
        require("all came 0" in said, f"from {allocator}: {said[-3000:]}")


@case(own=True, limit_s=100)
def nccl_registers_memory():
    """NCCL's hook, which hears of each segment; and its registration of a MemPool."""
    head = """import os, torch, torch.distributed as dist
os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "{hook}"
before = torch.ones(1 << 20, device="cuda")
dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
dist.all_reduce(before)
"""
    segments = """for i in range(1, 20):
    last = torch.full((i << 20,), 2.0, device="cuda")
    dist.all_reduce(last)
    if i < 19:
        del last
        torch.cuda.empty_cache()
"""
    pool = """backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    last = torch.full((19 << 20,), 2.0, device="cuda")
backend.register_mem_pool(pool)
dist.all_reduce(last)
backend.deregister_mem_pool(pool)
"""
    tail = "print('sums', before.mean().item(), last.mean().item())\ndist.destroy_process_group()"
    for hook, middle in ((1, segments), (0, pool)):
        said = launched(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"],
                        head.format(hook=hook) + middle + tail)
        require("sums 1.0 2.0" in said, said)


class Bridge:
    """tests/python/dlpack_bridge.cpp: a program with vectors of weir's, and what Python sees of one."""

    def __init__(self):
        library = weir_plugin.cache_folder() / "dlpack_bridge.so"
        runtime = weir_plugin.cuda_runtime()
        done = subprocess.run([*shlex.split(os.environ.get("CXX", "g++")), "-std=c++17", "-O1", "-DNDEBUG", "-fPIC", "-shared",
                               "-pthread", f"-I{weir_plugin.weir_include()}", *weir_plugin.cuda_flags(runtime),
                               str(pathlib.Path(__file__).with_name("dlpack_bridge.cpp")), str(runtime),
                               f"-Wl,-rpath,{runtime.parent}", "-o", str(library)], capture_output=True, text=True)
        require(done.returncode == 0, done.stderr[-2000:])
        self.code = ctypes.CDLL(str(library))
        self.code.bridge_give.restype, self.code.bridge_give.argtypes = ctypes.c_void_p, (
            ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int)
        self.code.bridge_sum.restype, self.code.bridge_sum.argtypes = ctypes.c_double, (
            ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
        self.code.bridge_stream.restype = self.code.bridge_blocks.restype = ctypes.c_int64
        self.address = None

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        return make(self.code.bridge_give(100, 50, 1 if stream is None else int(stream), int(versioned)), self.name, None)

    def sum(self, array):
        """The sum of an array of another library, and its address, as the bridge sees them."""
        find, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
        find.restype, find.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
        try:
            capsule = array.__dlpack__(stream=self.code.bridge_stream(), max_version=(1, 0))
        except TypeError:
            capsule = array.__dlpack__(stream=self.code.bridge_stream())
        versioned = '"dltensor_versioned"' in repr(capsule)
        pointer = find(capsule, b"dltensor_versioned" if versioned else b"dltensor")
        self.used = b"used_dltensor_versioned" if versioned else b"used_dltensor"
        rename(capsule, self.used)
        address = ctypes.c_void_p()
        found = self.code.bridge_sum(pointer, int(versioned), ctypes.byref(address))
        return found, address.value, "version 1" if versioned else "before version 1"


@case(own=True, limit_s=60)
def dlpack_pytorch():
    bridge = Bridge()
    x = torch.from_dlpack(bridge)
    require(x.shape == (100, 50) and x.is_cuda and float(x.sum()) == 12497500.0, f"{x.shape}, {float(x.sum())}")
    given = bridge.name.decode()
    require(bridge.code.bridge_blocks() == 1, "a block is missing")
    with torch.cuda.stream(torch.cuda.Stream()):
        y = torch.full((1000,), 3.0, device="cuda")
        total, address, version = bridge.sum(y)
    require(total == 3000.0 and address == y.data_ptr(), f"{total}")
    del x
    require(bridge.code.bridge_blocks() == 0, "the vector was not given back")
    return f"takes {given}, gives {version}"


@case(own=True, limit_s=60)
def dlpack_cupy():
    if missing("cupy"):
        return "left out: no CuPy here"
    import cupy
    bridge = Bridge()
    x = cupy.from_dlpack(bridge)
    require(x.shape == (100, 50) and float(x.sum()) == 12497500.0, "what CuPy took")
    given = bridge.name.decode()
    y = cupy.full(1000, 3.0, dtype=cupy.float32)
    total, address, version = bridge.sum(y)
    require(total == 3000.0 and address == y.data.ptr, f"{total}")
    del x
    require(bridge.code.bridge_blocks() == 0, "the vector was not given back")
    return f"takes {given}, gives {version}"


@case(own=True, limit_s=60)
def dlpack_jax():
    if missing("jax"):
        return "left out: no JAX here"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    if jax.default_backend() != "gpu":
        return f"left out: this JAX runs on {jax.default_backend()}"
    bridge = Bridge()
    x = jax.dlpack.from_dlpack(bridge)
    require(x.shape == (100, 50) and float(x.sum()) == 12497500.0, "what JAX took")
    given, address_before = bridge.name.decode(), x.unsafe_buffer_pointer()
    y = jax.numpy.full(1000, 3.0, dtype=jax.numpy.float32)
    total, address, version = bridge.sum(y)
    require(total == 3000.0 and address == y.unsafe_buffer_pointer(), f"{total}")
    del x
    gc.collect()
    return f"takes {given}, gives {version}; JAX's array lay at {address_before:#x}; {bridge.code.bridge_blocks()} blocks left"
