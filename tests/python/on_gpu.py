# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What must hold on a GPU: each function is a case, run in a process of its own by gpu.py, and fails by an exception.

A case named here with `own=True` runs with PyTorch's own allocator; the others with weir_torch.use. A case may return a text
that is shown beside it.
"""

import gc
import threading

import torch

CASES = []
MIB = 1 << 20


def case(own=False, limit=None, pool="device_pool"):
    def note(function):
        CASES.append((function.__name__, function, own, limit, pool))
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
    for word in ("weir: out of memory", "limit 1 GiB", "the largest live blocks", "100 MiB"):
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


@case()
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
    require(torch.cuda.mem_get_info()[0] >= free + given, "the device did not get the memory")
    weir().resume()
    require(x.data_ptr() == address and bool((x.cpu() == wanted).all()), "the contents are not what they were")
    weir().reset_peak()
    require(weir().peak()["peak_reserved_bytes"] == weir().state()["reserved_bytes"], "reset_peak")
    require("pool 'torch:0'" in weir().report(), weir().report())
    return f"suspend gave {given / MIB:.0f} MiB back"


@case()
def several_devices():
    if torch.cuda.device_count() < 2:
        return "one device here"
    first, second = torch.ones(1000, device="cuda:0"), torch.ones(1000, device="cuda:1")
    third = second.to("cuda:0") + first
    with torch.cuda.device(0):
        del second
    require(bool((third == 2).all()) and weir().state(1)["total_blocks"] > 0, "the second device")


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
    del graph, out, made
    gc.collect()
    torch.cuda.empty_cache()
    return f"the pool held {before / MIB:.0f} MiB"


@case()
def what_throws():
    """What PyTorch refuses with any plug-in: README.md lists it."""
    found = []
    for name, call in (("memory_stats", torch.cuda.memory_stats), ("memory_snapshot", torch.cuda.memory_snapshot),
                       ("MemPool", torch.cuda.MemPool), ("cudnn.benchmark", benchmark),
                       ("max_memory_allocated", torch.cuda.max_memory_allocated)):
        try:
            call()
            found.append(f"{name}: works")
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}")
    return ", ".join(found)


def benchmark():
    torch.backends.cudnn.benchmark = True
    try:
        torch.nn.functional.conv2d(torch.randn(2, 3, 64, 64, device="cuda"), torch.randn(8, 3, 3, 3, device="cuda"))
        torch.cuda.synchronize()
    finally:
        torch.backends.cudnn.benchmark = False


@case()
def compile_reduce_overhead():
    """torch.compile without graph trees, which need checkpoints of the pool; with them it is expected to refuse."""
    if not hasattr(torch, "compile"):
        return "there is no torch.compile"
    import torch._inductor.config as inductor
    inductor.triton.cudagraph_trees = False
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
    x = torch.randn(32, 64, device="cuda")
    with torch.no_grad():
        fast = torch.compile(model, mode="reduce-overhead")
        for _ in range(4):
            out = fast(x)
        require(torch.allclose(out, model(x), atol=1e-2), "torch.compile gives something else")
    return "mode='reduce-overhead' with cudagraph_trees = False runs"
