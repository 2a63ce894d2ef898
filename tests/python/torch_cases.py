# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of PyTorch's reference that have to do with device memory, for with_torch.py.

usage: torch_cases.py native|weir FILE [CASE...]

Each case returns what has to be the same with both allocators; what holds of weir alone it asserts with 'ours'. Tensors are made
by torch.empty: no kernel runs.
"""

import ctypes
import faulthandler
import gc
import json
import os
import pathlib
import sys
import tempfile
import threading
import traceback
import warnings

import torch

MIB = 1 << 20
kept_for_good = []
ours = sys.argv[1] == "weir"
if ours:
    import weir_torch
    weir_torch.use(limit="8 GiB")


def block(mib, **options):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda", **options)


def stat(name):
    return torch.cuda.memory_stats()[name]


def refused(act, *parts):
    """The text of the RuntimeError that act() raises, if it has all parts; else what happened."""
    try:
        act()
    except RuntimeError as error:
        return all(part in str(error) for part in parts) or str(error)
    return "nothing was refused"


def tiled(segments):
    """Whether the blocks of each segment lie side by side and fill it."""
    for each in segments:
        at = each["address"]
        for own in each["blocks"]:
            if own["address"] != at:
                return f"a block at {own['address']} and not {at}"
            at += own["size"]
        if at != each["address"] + each["total_size"]:
            return "a segment is longer than its blocks"
        if each["allocated_size"] != sum(own["size"] for own in each["blocks"] if own["state"] == "active_allocated"):
            return "the sum is another"
    return True


def live(pool=(0, 0)):
    """The sizes that were asked for, of a pool's live blocks."""
    return sorted(own["requested_size"] for each in torch.cuda.memory_snapshot() if each["segment_pool_id"] == pool
                  for own in each["blocks"] if own["state"] == "active_allocated")


def recorded(work, **options):
    torch.cuda.memory._record_memory_history(**options)
    try:
        work()
        return torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def actions(snapshot, *left_out):
    return [each["action"] for each in snapshot["device_traces"][0]
            if each["action"] not in ("segment_alloc", "segment_free", "segment_map", "segment_unmap", *left_out)]


# ---- figures

def case_allocated_and_reserved():
    before = torch.cuda.memory_allocated()
    held = block(3)
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated() > before
    del held
    return torch.cuda.memory_allocated() - before, torch.cuda.memory_allocated() == torch.accelerator.memory_allocated()


def case_memory_stats_keys():
    keys = sorted(torch.cuda.memory_stats())
    assert {"num_alloc_retries", "num_ooms", "active_bytes.all.peak", "inactive_split_bytes.all.current"} <= set(keys)
    return [each for each in keys if "private_pools" not in each]


def case_memory_stats_values():
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_stats()
    first, second = block(2), block(0.5)
    del second
    now = torch.cuda.memory_stats()
    names = [f"{what}.{kind}_pool.{which}" for what in ("allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes")
             for kind in ("small", "large") for which in ("current", "allocated", "freed")]
    found = {name: now[name] - before[name] for name in names}
    del first
    return found, torch.cuda.max_memory_allocated() - before["allocated_bytes.all.current"]


def case_reset_peak():
    block(50)
    torch.cuda.reset_peak_memory_stats()
    torch.accelerator.reset_peak_memory_stats()
    now = torch.cuda.memory_allocated()
    return torch.cuda.max_memory_allocated() == now, torch.accelerator.max_memory_allocated() == now


def case_reset_accumulated():
    block(1)
    torch.cuda.reset_accumulated_memory_stats()
    return [stat(name) for name in ("allocation.all.allocated", "allocation.all.freed", "num_ooms", "num_alloc_retries")]


def case_memory_summary():
    return "PyTorch CUDA memory summary" in torch.cuda.memory_summary(), "num_ooms" in torch.cuda.memory_stats_as_nested_dict()


def case_mem_get_info():
    free, total = torch.cuda.mem_get_info()
    return total, 0 < free <= total, torch.accelerator.get_memory_info()[1] == total


def case_fraction():
    before = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(0.25)
    now = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(1.0)
    return before, round(now, 6), refused(lambda: torch.cuda.set_per_process_memory_fraction(0.5, 99)) is not True


def case_backend():
    return len(torch.cuda.memory.get_allocator_backend()) > 0


def case_list_gpu_processes():
    try:
        return torch.cuda.list_gpu_processes()[:3] != ""
    except Exception as error:  # without its library
        return type(error).__name__


# ---- blocks

def case_raw_blocks():
    before = torch.cuda.memory_allocated()
    p = torch.cuda.caching_allocator_alloc(MIB)
    q = torch.cuda.caching_allocator_alloc(MIB, stream=torch.cuda.Stream())
    assert p != q
    torch.cuda.caching_allocator_delete(p)
    torch.cuda.caching_allocator_delete(q)
    return torch.cuda.memory_allocated() - before


def case_nothing():
    empty = torch.empty(0, device="cuda")
    return empty.data_ptr(), tuple(torch.empty((3, 0), device="cuda").shape)


def case_copies():
    first = torch.arange(1000).cuda()
    second = torch.empty_like(first)
    second.copy_(first)
    return second.cpu().sum().item(), first.cpu()[-1].item()


def case_resized_storage():
    held = block(1)
    held.untyped_storage().resize_(0)
    gone = torch.cuda.memory_allocated()
    held.untyped_storage().resize_(2 * MIB)
    return torch.cuda.memory_allocated() - gone


def case_record_stream():
    side = torch.cuda.Stream()
    held = block(4)
    held.record_stream(side)
    torch.arange(10).record_stream  # of the host: it is there
    del held
    torch.cuda.synchronize()
    return stat("allocation.all.current") - 0 >= 0


def case_streams():
    sides = [torch.cuda.Stream() for _ in range(3)]
    held = []
    for each in sides:
        with torch.cuda.stream(each):
            held.append(block(1))
    addresses = {each.data_ptr() for each in held}
    return len(addresses)


def case_caching_allocator_enable():
    torch.cuda.caching_allocator_enable(False)
    held = block(1)
    torch.cuda.caching_allocator_enable(True)
    del held
    return True


def case_threads():
    before, failed = torch.cuda.memory_allocated(), []

    def work(number):
        try:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for turn in range(50):
                    held = [block(0.01 * (number + turn % 7 + 1)) for _ in range(5)]
                    del held
        except Exception as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=work, args=(each,)) for each in range(4)]
    for each in threads:
        each.start()
    for _ in range(5):
        assert tiled(torch.cuda.memory_snapshot()) is True
    for each in threads:
        each.join()
    return failed, torch.cuda.memory_allocated() - before


def case_empty_cache():
    block(64)
    torch.cuda.empty_cache()
    first = torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < 64 * MIB
    block(64)
    torch.accelerator.empty_cache()
    return first, torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < 64 * MIB


def case_pinned():
    held = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    return held.is_pinned(), "allocation.current" in torch.cuda.host_memory_stats()


# ---- running out

def case_out_of_memory():
    before, found = stat("num_ooms"), []
    torch._C._cuda_attach_out_of_memory_observer(lambda *told: found.append(told[:2]))
    try:
        block(1000 << 10)
        text = ""
    except torch.OutOfMemoryError as error:
        text, arguments = str(error), len(error.args)
    assert text.startswith("CUDA out of memory. Tried to allocate 1000.00 GiB. GPU 0 has a total capacity of"), text
    if ours:
        for part in (" out of memory.", "weir's pool 'torch:0'", "at most 8.00 GiB", "limit=", "set_per_process_memory_fraction"):
            assert part in text, text
        assert "weir: " not in text and "pool_options" not in text, text
    return stat("num_ooms") - before, [list(each) for each in found], arguments


def case_observer_that_raises():
    raises = [True]

    def fails(*_):
        if raises:  # an observer stays for good
            raise KeyError("the observer's own")

    torch._C._cuda_attach_out_of_memory_observer(fails)
    before, found = torch.cuda.memory_allocated(), ""
    try:
        block(1000 << 10)
    except Exception as error:
        found = type(error).__name__
    raises.clear()
    return found, torch.cuda.memory_allocated() - before, block(1).numel()


def case_batch_is_halved():
    """What every remedy does: catch, halve, go on."""
    size, limit = 1 << 14, 0.02
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(limit)
    try:
        while True:
            try:
                block(size)
                break
            except RuntimeError as error:
                assert "CUDA out of memory." in str(error)
                size //= 2
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return size


def case_retries():
    """A block that another stream still uses is waited for before there is an error."""
    torch.cuda.reset_accumulated_memory_stats()
    refused(lambda: block(2000 << 10))
    return stat("num_alloc_retries") >= 0, stat("num_ooms")


def case_before_out_of_memory():
    if not ours:
        return [1, 0]
    kept, asked = [block(5 << 10)], []

    def free(size, device):
        asked.append((size >> 20, device))
        kept.clear()

    weir_torch.before_out_of_memory(free)
    held = block(6 << 10)
    del held
    weir_torch.before_out_of_memory(None)
    assert asked == [(6 << 10, 0)], asked
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        weir_torch.before_out_of_memory(lambda *_: 1 // 0)
        assert refused(lambda: block(20 << 10), "CUDA out of memory.") is True
        weir_torch.before_out_of_memory(None)
    assert "ZeroDivisionError" in str(told[-1].message), told
    return [len(asked), len(kept)]


# ---- graphs

def captured(work, **options):
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is empty: no kernel
        with torch.cuda.graph(graph, **options):
            held = work()
    return graph, held


def case_graph():
    before = torch.cuda.memory_allocated()
    graph, held = captured(lambda: [block(4), block(4)])
    pool = graph.pool()
    graph.replay()
    found = live(pool)
    del held
    torch.cuda.empty_cache()
    kept = any(each["segment_pool_id"] == pool for each in torch.cuda.memory_snapshot())
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    gone = not any(each["segment_pool_id"] == pool for each in torch.cuda.memory_snapshot())
    return found, kept, gone, torch.cuda.memory_allocated() - before


def case_graph_uses_again_what_it_freed():
    def work():
        for _ in range(10):
            block(10)
        return block(10)
    graph, held = captured(work)
    sizes = [each["total_size"] for each in torch.cuda.memory_snapshot() if each["segment_pool_id"] == graph.pool()]
    assert sum(sizes) <= 21 * MIB, sizes
    return live(graph.pool())


def case_graphs_share_a_pool():
    pool = torch.cuda.graph_pool_handle()
    first, a = captured(lambda: block(8), pool=pool)
    del a
    second, b = captured(lambda: block(8), pool=pool)
    held = sum(each["total_size"] for each in torch.cuda.memory_snapshot() if each["segment_pool_id"] == pool)
    assert held < 2 * 8 * MIB or not ours, held
    return live(pool)


def case_output_outlives_its_graph():
    graph, held = captured(lambda: block(4))
    pool = graph.pool()
    del graph
    gc.collect()
    torch.cuda.empty_cache()
    found = live(pool)
    del held
    torch.cuda.empty_cache()
    return found, live(pool)


def case_capture_that_failed():
    before = torch.cuda.memory_allocated()
    pool = torch.cuda.graph_pool_handle()
    try:
        captured(lambda: (block(16), torch.cuda.synchronize()), pool=pool)
        failed = False
    except RuntimeError:
        failed = True
    gc.collect()
    torch.cuda.synchronize()
    graph, held = captured(lambda: block(1))
    torch.cuda.empty_cache()
    if ours:
        assert not any(each["segment_pool_id"] == pool for each in torch.cuda.memory_snapshot()), "its memory stays"
    del graph, held
    return failed, torch.cuda.memory_allocated() - before


def case_side_stream_in_a_capture():
    side = torch.cuda.Stream()

    def work():
        held = block(4)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            held.record_stream(side)
        address = held.data_ptr()
        del held
        other = block(4)
        torch.cuda.current_stream().wait_stream(side)
        return other.data_ptr() != address
    return captured(work)[1]


# ---- private pools

def case_mem_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = block(64)  # whole chunks, which go back alone
    outside = block(4)
    found = live(pool.id), pool.use_count(), tiled(pool.snapshot()), len(pool.snapshot())
    del held
    before = torch.cuda.memory_reserved()
    del pool
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < before
    del outside
    return found


def case_mem_pool_keeps_its_memory():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = block(4)
        address = held.data_ptr()
        del held
        held = block(4)
        same = held.data_ptr() == address
    torch.cuda.empty_cache()
    return same, live(pool.id)


def case_mem_pool_goes_before_its_tensors():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = block(4)
    name = pool.id
    del pool
    gc.collect()
    found = live(name)
    del held
    torch.cuda.empty_cache()
    return found, live(name)


def case_no_split():
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        held = [block(4), block(4)]
        del held[0]
        held.append(block(2))
    return live(pool.id), tiled(pool.snapshot())


def case_use_on_oom():
    pool = torch.cuda.MemPool(use_on_oom=True)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        with torch.cuda.use_mem_pool(pool):
            block(700)
        held = block(600)
        return held.numel()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def case_mem_pool_over_another_allocator():
    before = torch.cuda.memory_allocated()
    pool = torch.cuda.MemPool(torch.cuda.memory.CUDAPluggableAllocator(str(plain_allocator()), "take", "give").allocator())
    with torch.cuda.use_mem_pool(pool):
        held = block(4)
    found = live(pool.id), tiled(pool.snapshot())
    del held, pool
    return found, torch.cuda.memory_allocated() - before


def plain_allocator():
    """A shared library with the two functions of CUDAPluggableAllocator over cudaMalloc."""
    import subprocess
    place = pathlib.Path(tempfile.mkdtemp()) / "plain.so"
    place.with_suffix(".c").write_text(
        "#include <stddef.h>\nint cudaMalloc(void**, size_t); int cudaFree(void*);\n"
        "void* take(size_t n, int device, void* stream) { void* p = 0; cudaMalloc(&p, n); return p; }\n"
        "void give(void* p, size_t n, int device, void* stream) { cudaFree(p); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", place.with_suffix(".c"), "-o", place], check=True)
    return place


# ---- checkpoints, as cudagraph_trees makes them

def case_checkpoint():
    pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    first, held = captured(lambda: (block(4), block(12), block(8))[:2], pool=pool, stream=side)
    addresses = [each.data_ptr() for each in held]
    state = torch._C._cuda_getCheckpointState(0, pool)
    second, more = captured(lambda: block(20), pool=pool, stream=side)
    steps = [live(pool), torch._C._cuda_checkPoolLiveAllocations(0, pool, {*addresses, more.data_ptr()}),
             torch._C._cuda_checkPoolLiveAllocations(0, pool, set(addresses))]
    del held, more
    steps.append(live(pool))
    for _ in range(2):
        torch._C._cuda_setCheckpointPoolState(0, state, [], [])
        steps += [live(pool), torch._C._cuda_checkPoolLiveAllocations(0, pool, set(addresses))]
        for each in addresses:
            torch._C._cuda_cudaCachingAllocator_raw_delete(each)
        steps += [live(pool), torch._C._cuda_checkPoolLiveAllocations(0, pool, set())]
    third, again = captured(lambda: (block(4), block(12)), pool=pool, stream=side)
    steps.append(live(pool))
    del again, first, second, third
    gc.collect()
    torch.cuda.empty_cache()
    steps.append(refused(lambda: torch._C._cuda_setCheckpointPoolState(0, state, [], [])) != "nothing was refused")
    return steps


def case_checkpoint_with_live_storages():
    pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    first, held = captured(lambda: [block(4), block(12)], pool=pool, stream=side)
    state = torch._C._cuda_getCheckpointState(0, pool)
    addresses = [each.data_ptr() for each in held]
    del held
    steps = [live(pool)]
    storages = [torch._C._construct_storage_from_data_pointer(each, torch.device("cuda:0"), MIB) for each in addresses]
    torch._C._cuda_setCheckpointPoolState(0, state, [], [each._cdata for each in storages])
    steps += [live(pool), [torch._C._has_Standard_Deleter(each._cdata) for each in storages]]
    del storages
    gc.collect()
    steps.append(live(pool))
    return steps


def case_restoration_that_is_refused():
    """PyTorch refuses a checkpoint beside whose tensors others live, and frees what the allocator gave it for the rest: what it
    frees twice is told of on stderr, and nothing ends."""
    pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    first, held = captured(lambda: [block(4), block(12)], pool=pool, stream=side)
    state = torch._C._cuda_getCheckpointState(0, pool)
    second, more = captured(lambda: block(20), pool=pool, stream=side)
    text = refused(lambda: torch._C._cuda_setCheckpointPoolState(0, state, [], []), "stale tensors")
    if not ours:
        kept_for_good.append((held, more))  # it counts them freed, and would fail at their ends
        return text, [], True
    del held, more
    gc.collect()
    found = live(pool)
    third, again = captured(lambda: block(4), pool=pool, stream=side)
    return text, found, live(pool) == [4 * MIB]


# ---- history

def case_snapshot():
    held = [block(1), block(0.001), block(30)]
    found = torch.cuda.memory_snapshot()
    return tiled(found), [each in live() for each in (MIB, int(0.001 * MIB), 30 * MIB)], sorted(found[0]), sorted(found[0]["blocks"][0])


def case_history():
    def work():
        held = block(3)
        del held
    found = recorded(work)
    trace = [each for each in found["device_traces"][0] if each["action"] == "alloc"]
    assert any("torch_cases.py" in frame["filename"] for frame in trace[0]["frames"]), trace[0]["frames"][:3]
    assert trace[0]["time_us"] > 1_500_000_000_000_000, trace[0]
    return actions(found), sorted(trace[0]), trace[0]["size"]


def case_history_is_bounded():
    found = recorded(lambda: [block(1) for _ in range(50)], max_entries=10, context=None, stacks="python")
    return len(found["device_traces"][0]), sorted(found)


def case_history_twice_and_off():
    torch.cuda.memory._record_memory_history(max_entries=5)
    found = recorded(lambda: block(1), context="alloc", stacks="python")
    return actions(found), torch.cuda.memory._snapshot()["device_traces"][0]


def case_history_of_states_only():
    global kept

    def work():
        global kept
        kept = block(1)

    found = recorded(work, context="state", stacks="python")
    framed = [own for each in found["segments"] for own in each["blocks"] if own["state"] == "active_allocated" and own.get("frames")]
    entries = [each for each in found["device_traces"][0] if each["action"] == "alloc" and each.get("frames")]
    del kept
    return len(framed), len(entries)


def case_history_with_annotations():
    def work():
        with torch.profiler.record_function("named"):
            block(1)
    found = recorded(work)
    return any("named" in str(each) for each in found["external_annotations"]), sorted(found)


def case_history_skips():
    found = recorded(lambda: block(1), skip_actions=["free_requested", "free_completed"])
    return actions(found)


def case_out_of_memory_in_history():
    found = recorded(lambda: refused(lambda: block(3000 << 10), "out of memory"))
    return actions(found)


def case_user_metadata():
    if not hasattr(torch.cuda.memory, "_set_memory_metadata"):
        return None

    def work():
        torch.cuda.memory._set_memory_metadata("mine")
        block(1)
        torch.cuda.memory._set_memory_metadata("")
    found = recorded(work)
    return [each.get("user_metadata") for each in found["device_traces"][0] if each["action"] == "alloc"]


def case_dump_snapshot():
    """What is dumped is opened by PyTorch's own viewer."""
    from torch.cuda import _memory_viz as viewer
    place = pathlib.Path(tempfile.mkdtemp()) / "dump.pickle"
    torch.cuda.memory._record_memory_history()
    held = [block(2), block(3)]
    graph, output = captured(lambda: block(4))
    del held[0]
    torch.cuda.memory._dump_snapshot(str(place))
    torch.cuda.memory._record_memory_history(enabled=None)
    import pickle
    data = pickle.loads(place.read_bytes())
    return [len(draw(data)) > 100 for draw in (viewer.trace_plot, viewer.segment_plot, viewer.segsum, viewer.trace)]


def case_tracker_that_throws():
    """A tracker such as NCCL's: its error is told on stderr, and no block is lost."""
    if not ours:
        return [0, True, MIB, True]
    code = ctypes.CDLL(str(tracker()))
    code.attach()
    before, fails = torch.cuda.memory_allocated(), ctypes.c_int.in_dll(code, "fails")
    fails.value = 1
    held = block(30)
    del held
    torch.cuda.empty_cache()
    fails.value = 0
    return [torch.cuda.memory_allocated() - before, ctypes.c_int.in_dll(code, "seen").value >= 3, block(1).numel(),
            tiled(torch.cuda.memory_snapshot())]


def tracker():
    """A shared library whose tracker throws while 'fails' is set."""
    import subprocess
    import weir_plugin
    place, top = pathlib.Path(tempfile.mkdtemp()) / "tracker.so", pathlib.Path(torch.__file__).parent
    place.with_suffix(".cpp").write_text("""
        #include <c10/cuda/CUDACachingAllocator.h>
        #include <stdexcept>
        extern "C" { int fails = 0, seen = 0; }
        extern "C" void attach() {
            c10::cuda::CUDACachingAllocator::get()->attachAllocatorTraceTracker([](auto const&) {
                ++seen;
                if (fails)
                    throw std::runtime_error("the tracker's own");
            });
        }""")
    subprocess.run(["g++", "-std=c++20", "-O0", "-shared", "-fPIC", "-isystem", top / "include",
                    *weir_plugin.cuda_flags(weir_plugin.cuda_runtime()), place.with_suffix(".cpp"), f"-L{top / 'lib'}",
                    "-lc10_cuda", "-lc10", "-o", place], check=True)
    return place


def case_profiler():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as found:
        held = block(5)
        del held
    events = [each for each in found.profiler.kineto_results.events() if each.name() == "[memory]"]
    return [each.nbytes() for each in events]


def case_sanitizer_trace():
    from torch.cuda import _gpu_trace as trace
    found = []
    trace.register_callback_for_memory_allocation(lambda p: found.append("allocated"))
    trace.register_callback_for_memory_deallocation(lambda p: found.append("freed"))
    torch._C._activate_gpu_trace()
    block(1)
    return found


def case_freed_twice():
    """A block that is freed twice by its address is told of, and ends nothing."""
    p = torch.cuda.caching_allocator_alloc(MIB)
    torch.cuda.caching_allocator_delete(p)
    if ours:
        torch.cuda.caching_allocator_delete(p)
    return stat("allocation.all.current") >= 0


# ---- others

def case_autograd():
    """A tape over host tensors still works with the allocator in place."""
    held = torch.ones(10, requires_grad=True)
    (held * 2).sum().backward()
    return held.grad.tolist()


def case_tensor_for_another_process():
    """What is not built is refused with a sentence, where the tensor is sent."""
    if not ours:
        return True
    import torch.multiprocessing as processes
    reader, writer = processes.Pipe()
    return refused(lambda: writer.send(block(1)), "weir: a tensor of weir's cannot be sent", "shares=True", "'.cpu()'")


def case_plugin_of_another_version():
    if not ours:
        return True
    code = weir_torch._used.library
    assert code.weir_install(b"2.99.0") == -1
    code.weir_error.restype = ctypes.c_char_p
    text = code.weir_error().decode()
    assert "this is 2.99.0; build it again" in text, text
    assert code.weir_install(torch.__version__.encode()) == -1 and b"has used CUDA already" in code.weir_error()
    return True


def case_pool_is_weirs():
    if ours:
        assert torch.cuda.memory.get_allocator_backend() == "weir"
        assert weir_torch.state()["reserved_bytes"] == torch.cuda.memory_reserved(), weir_torch.report()
        assert "torch:0" in weir_torch.report()
    return True


def case_suspend():
    if not ours:
        return [True, True]
    held, (graph, output) = block(8), captured(lambda: block(8))
    addresses = held.data_ptr(), output.data_ptr()
    given = weir_torch.suspend()
    assert given >= 16 * MIB and torch.cuda.memory_reserved() == 0, (given, torch.cuda.memory_reserved())
    assert tiled(torch.cuda.memory_snapshot()) is True
    text = refused(lambda: block(1), "CUDA out of memory.", "weir_torch.resume")
    weir_torch.resume()
    graph.replay()
    return [text, (held.data_ptr(), output.data_ptr()) == addresses and tiled(torch.cuda.memory_snapshot())]


def numbered(mib, number):
    held = block(mib)
    held.copy_(torch.full((int(mib * MIB),), number, dtype=torch.uint8))
    return held


def is_numbered(held, number):
    return bool((held.cpu() == number).all())


def weirs_refusal(act):
    """What weir's Error says that act() raises."""
    try:
        act()
    except weir_torch.Error as error:
        return str(error)
    return "nothing was refused"


def case_tags():
    """Tags sleep one by one, and others' tensors are none of their business."""
    if not ours:
        return True
    before, plain = weir_torch.state()["reserved_bytes"], numbered(3, 3)
    with weir_torch.tag("weights"):
        weights, small = numbered(8, 1), numbered(0.01, 2)
        with weir_torch.tag("cache"):
            cache = numbered(6, 4)
        weights_too = numbered(2, 5)
    addresses = [each.data_ptr() for each in (weights, small, weights_too, cache)]
    assert len({each // (2 * MIB) for each in (small.data_ptr(), cache.data_ptr(), plain.data_ptr())}) == 3  # no page in common
    assert "torch:0 weights" in weir_torch.report() and torch.cuda.memory_reserved() == weir_torch.state()["reserved_bytes"]
    given = weir_torch.suspend("weights", keep="constant")
    assert given >= 10 * MIB and torch.cuda.memory_reserved() == weir_torch.state()["reserved_bytes"]
    assert is_numbered(cache, 4) and is_numbered(plain, 3) and tiled(torch.cuda.memory_snapshot()) is True
    assert weir_torch.suspend("cache", keep=False) >= 6 * MIB and is_numbered(plain, 3)
    weir_torch.resume("weights")
    assert is_numbered(weights, 1) and is_numbered(small, 2) and is_numbered(weights_too, 5)
    weir_torch.suspend("weights", keep="constant")  # copies nothing
    weir_torch.suspend()
    assert torch.cuda.memory_reserved() == 0
    weir_torch.resume()
    assert is_numbered(weights, 1) and is_numbered(plain, 3)
    cache.copy_(weights[:6 * MIB])
    weir_torch.suspend("cache")
    weir_torch.resume("cache")
    weir_torch.resume("cache")  # it does not sleep
    assert is_numbered(cache, 1) and addresses == [each.data_ptr() for each in (weights, small, weights_too, cache)]
    del weights, small, weights_too, cache, plain
    weir_torch.trim()
    return weir_torch.state()["reserved_bytes"] <= before or weir_torch.report()


def case_tags_have_one_limit():
    if not ours:
        return [True, True]
    with weir_torch.tag("large"):
        large = block(5 << 10)
    assert refused(lambda: block(4 << 10), "CUDA out of memory", "at most 8.00 GiB: free tensors") is True
    del large
    plain = block(6 << 10)  # what the tag had free goes to others
    with weir_torch.tag("large"):
        one = block(1 << 10)
    weir_torch.suspend("large", keep=False)
    more = block(1.5 * 1024)
    text = weirs_refusal(lambda: weir_torch.resume("large"))
    assert "no room for tag 'large' to wake: it needs 1 GiB" in text and "nothing has changed" in text, text
    assert "sleeps: call weir_torch.resume" in weirs_refusal(lambda: weir_torch.tag("large").__enter__())
    del more
    weir_torch.resume("large")
    del plain, one
    weir_torch.trim()
    return [torch.cuda.memory_reserved() == weir_torch.state()["reserved_bytes"], stat("num_ooms") > 0]


def case_tags_in_graphs():
    """What a graph takes is its own; what it frees of a tag goes back to the tag's pool."""
    if not ours:
        return True
    with weir_torch.tag("of graphs"):
        held = [block(4)]
        graph, output = captured(lambda: (held.clear(), block(2))[1])
    weir_torch.suspend("of graphs", keep=False)
    assert "of graphs" in weir_torch.report()
    weir_torch.resume("of graphs")
    graph.replay()
    del graph, output
    torch.cuda.empty_cache()
    found = [each for each in weir_torch.report().splitlines() if "of graphs" in each]
    return "no block" in found[0] or "0 B in use" in found[0] or found


def case_tags_that_cannot_be():
    if not ours:
        return True
    one = weir_torch.tag("one")
    with one:
        assert "in use already" in weirs_refusal(one.__enter__)
        assert "'one' is in use" in weirs_refusal(lambda: weir_torch.suspend("one"))
        held = block(1)
        assert "'one' is in use" in weirs_refusal(weir_torch.suspend)
    for act in (weir_torch.suspend, weir_torch.resume):
        text = weirs_refusal(lambda: act("nobody's"))
        assert "no tag 'nobody's'" in text and "'one'" in text, text
    assert "'constant' for what never changes" in weirs_refusal(lambda: weir_torch.suspend("one", keep="always"))
    assert "for a tag" in weirs_refusal(lambda: weir_torch.suspend(keep="constant"))
    weir_torch.suspend("one")
    assert "sleeps already" in weirs_refusal(lambda: weir_torch.suspend("one"))
    with weir_torch.tag("two"):
        assert "'one' sleeps" in weirs_refusal(weir_torch.tag("one").__enter__)
        del held  # of a tag that sleeps
    weir_torch.resume("one")
    assert "64" not in weirs_refusal(lambda: [weir_torch.tag(f"many {each}") for each in range(20)])
    assert "63 tags already" in weirs_refusal(lambda: [weir_torch.tag(f"many {each}") for each in range(64)])
    return True


def case_recording():
    """What it says event by event is run.py's affair."""
    if not ours:
        return True
    early, path = block(5), tempfile.mktemp(suffix=".weir")
    with weir_torch.record(path) as made, weir_torch.scope("a step of it"):
        held, (graph, output) = block(3), captured(lambda: block(7))
        del held
        assert refused(lambda: block(100 << 10), "The largest of", "7.00 MiB (torch_cases.py:") is True
        made.flush()
        size = os.path.getsize(path)
        weir_torch.suspend()
        weir_torch.resume()
    with open(path, "rb") as file:
        whole = file.read()
    assert whole.startswith(b"\x89weir") and 100 < size < len(whole), (size, len(whole))
    for name in (b"torch_cases.py", b"case_recording", b"<lambda>", b"a step of it", b"torch:0"):
        assert name in whole, name
    weir_torch.record(path, stacks=False)
    block(3)
    weir_torch.record(None)
    weir_torch.record(None)  # it has ended
    os.remove(path)
    del early, graph, output
    return True


def case_recording_by_threads():
    """While threads allocate, recordings begin and end."""
    if not ours:
        return True
    path, stop, failed = tempfile.mktemp(suffix=".weir"), threading.Event(), []

    def work():
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                while not stop.is_set():
                    held = [block(0.01 * each) for each in range(1, 5)]
                    del held
        except Exception as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for _ in range(5):
        with weir_torch.record(path) as made:
            for _ in range(20):
                block(1)
            made.flush()
    stop.set()
    for each in threads:
        each.join()
    os.remove(path)
    return not failed or failed


ENDED = "it ended the process"
CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def keep(found):
    """In the file, as a whole: this process may be cut off at any time."""
    fresh = pathlib.Path(sys.argv[2] + ".new")
    fresh.write_text(json.dumps(found))
    fresh.replace(sys.argv[2])


def main():
    wanted, found = sys.argv[3:], {}
    torch.cuda.init()
    for name, function in CASES.items():
        if wanted and name not in wanted:
            continue
        found[name] = {"answer": None, "failed": ENDED}
        keep(found)
        faulthandler.dump_traceback_later(40, exit=True)
        try:
            found[name] = {"answer": json.loads(json.dumps(function()))}
        except Exception:
            found[name] = {"answer": None, "failed": traceback.format_exc()}
        gc.collect()
    faulthandler.cancel_dump_traceback_later()
    keep(found)
    if not ours:
        os._exit(0)  # what it counts freed already, and is 'kept_for_good', would fail now


main()
