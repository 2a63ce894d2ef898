# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch allocates from a pool of weir's:

    import weir_torch
    weir_torch.use("device_pool", limit="70 GiB")     # before the first CUDA call

`use` makes it PyTorch's allocator for the process; `pool` makes a torch.cuda.MemPool over it instead, for a part of a program.
torch.cuda.memory_allocated, memory_reserved, their max_..., memory_stats, memory_summary and reset_peak_memory_stats then tell
the pool's figures; `state` and `report` here have more. torch.cuda.empty_cache, set_per_process_memory_fraction,
Tensor.record_stream, torch.cuda.graph and make_graphed_callables work. README.md says what does not.
"""

from __future__ import annotations

import pathlib
import warnings
from typing import Any, Callable, ContextManager, Dict, List, Optional, Union, overload

try:
    import torch
except ModuleNotFoundError as _error:  # 'python3 -m weir_torch --help' does without
    if _error.name != "torch":
        raise
    torch = None  # type: ignore[assignment]

import weir_plugin
from weir_plugin import Advices, Error, Size, State, recordings
from weir_torch import allocator as _class
from weir_torch import tags

Device = Union[int, str, "torch.device", None]

TESTED = ("2.11", "2.12", "2.13", "2.14", "2.15")
# What PyTorch lets a plug-in set, and the function of ours for it.
SETTERS = {
    "set_reset_fn": "empty_cache",
    "set_memory_fraction_fn": "set_memory_fraction",
    "set_record_stream_fn": "record_stream",
    "set_begin_allocate_to_pool": "begin_capture",
    "set_end_allocate_to_pool_fn": "end_capture",
    "set_release_pool": "release_capture",
}

_used: Any = None  # the plug-in that is PyTorch's allocator
_recording: Optional[recordings.Recording] = None  # the one that 'record' began last


def _flags() -> List[str]:
    """What the compiler needs to throw PyTorch's own exception."""
    top = pathlib.Path(torch.__file__).resolve().parent
    if not (top / "include/c10/util/Exception.h").exists():
        raise Error("weir: this PyTorch came without its headers (torch/include); without them a plug-in cannot throw its "
                    "OutOfMemoryError. Install PyTorch's own wheel")
    return ["-isystem", str(top / "include"), f"-DWEIR_PLUGIN_TORCH={torch.__version__}",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            f"-L{top / 'lib'}", "-lc10", f"-Wl,-rpath,{top / 'lib'}"]


def _require_torch() -> None:
    if torch is None:
        raise Error("weir: there is no PyTorch here; install it, with CUDA, for this Python")
    if torch.version.cuda is None:
        raise Error(f"weir: PyTorch {torch.__version__} is built without CUDA; weir_torch needs one with it")
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in TESTED:
        warnings.warn(f"weir_torch is tested with PyTorch {' and '.join(TESTED)}; this is {torch.__version__}, which may call "
                      "allocators in another way. If a first run is fine, silence this with warnings.filterwarnings",
                      stacklevel=3)


def _allocator(plugin: weir_plugin.Plugin, allocate: str) -> Any:
    return torch.cuda.memory.CUDAPluggableAllocator(str(plugin.path), allocate, "weir_deallocate")


def use(pool: str = "device_pool", limit: Size = None, name: str = "torch", shares: bool = False) -> None:
    """Makes a pool of weir's PyTorch's allocator on every device, for the whole process.

    pool: 'device_pool' suits most programs, 'compact_device_pool' holds least, 'promised_device_pool' is fastest (it asks that
    streams never end, and PyTorch's do not). limit: the most that each device's pool may hold, in bytes or as '70 GiB'; None:
    no limit. name: in reports. shares: tensors can be sent to other processes (torch.multiprocessing). Call it before the first
    CUDA call of PyTorch, and before weir_cupy.use and weir_numba.use, in each process; a second call with the same pool does no
    harm. The first time it compiles for about ten seconds. Raises Error.
    """
    global _used
    _require_torch()
    pool = weir_plugin.pool_of(pool)
    if _used is not None:
        if _used.pool != pool:
            raise Error(f"weir: PyTorch allocates from {_used.pool} already, and its allocator is chosen once a process; name "
                        f"{_used.pool}, or start a new process (in a notebook: restart the kernel)")
        if limit is not None:
            _used.configure(limit, name)
        return
    if torch.cuda.is_initialized():
        raise Error("weir: PyTorch has used CUDA already, and its allocator is chosen before that; move weir_torch.use to the "
                    "program's beginning (in a notebook: restart the kernel and call it first), or use weir_torch.pool for a "
                    "part of it")
    plugin, is_class = _class.with_class(lambda flags: weir_plugin.load(pool, limit, name, flags), _flags(), shares)
    if is_class:
        _class.install(plugin)
        _used = plugin
        return
    allocator = _allocator(plugin, "weir_allocate")
    inner = allocator.allocator()
    missing = [setter for setter in SETTERS if not hasattr(inner, setter)]
    if missing:
        raise Error(f"weir: PyTorch {torch.__version__} has no {', '.join(missing)} for plug-ins; weir_torch is for PyTorch "
                    f"{' and '.join(TESTED)}")
    for setter, function in SETTERS.items():
        getattr(inner, setter)(plugin.address(function))
    torch.cuda.memory.change_current_allocator(allocator)
    _used = plugin
    _used.allocator = allocator  # PyTorch holds the functions, not the library
    _answer_statistics()


def build(pool: str = "device_pool", shares: bool = False) -> pathlib.Path:
    """The file of the plug-in that `use` takes here, compiled if need be; WEIR_PLUGIN may name it where there is no compiler.
    No GPU is needed. Raises Error."""
    _require_torch()
    return _class.with_class(lambda flags: weir_plugin.build(pool, flags), _flags(), shares)[0]


def _answer_statistics() -> None:
    """torch.cuda.memory_allocated and its like tell the pool's figures. PyTorch makes them out of two functions of torch._C,
    which throw for a plug-in."""
    def stats(index: int) -> Dict[str, Any]:
        now: Any = state(index)
        pairs = {"allocated_bytes": "requested_bytes", "requested_bytes": "requested_bytes", "reserved_bytes": "reserved_bytes"}
        found = {name: {"all": {"current": now[ours], "peak": now["peak_" + ours]}} for name, ours in pairs.items()}
        return {**found, "allocation": {"all": {"current": now["live_blocks"], "allocated": now["total_blocks"]}}}

    def summary(device: Device = None, abbreviated: bool = False) -> str:
        return report(device)

    for place, name, ours in ((torch._C, "_cuda_memoryStats", stats), (torch._C, "_cuda_resetPeakMemoryStats", reset_peak),
                              (torch.cuda, "memory_summary", summary), (torch.cuda.memory, "memory_summary", summary)):
        if hasattr(place, name):
            setattr(place, name, ours)


def pool(pool: str = "device_pool", limit: Size = None, name: str = "torch pool", **options: Any) -> torch.cuda.MemPool:
    """A torch.cuda.MemPool whose segments come from a pool of weir's, for torch.cuda.use_mem_pool.

    PyTorch goes on caching and counting, and its own memory goes on beside it. What tensors of the MemPool free comes back to
    weir when the MemPool is deleted (README.md). Any time, but not together with `use`. MemPools
    that name the same pool share its memory and its limit. `.weir` of what is returned has state(), report(), trim() and so on;
    see weir_plugin.Plugin. options: MemPool's own. Raises Error.
    """
    _require_torch()
    if _used is not None:
        raise Error("weir: PyTorch allocates from weir already (weir_torch.use), and has MemPools only without that; leave out "
                    "one of the two")
    plugin = weir_plugin.load(pool, limit, name, _flags())
    allocator = _allocator(plugin, "weir_try_allocate_sync")  # null where there is no room: PyTorch raises its own error
    made = torch.cuda.MemPool(allocator.allocator(), **options)
    made.weir, made.weir_allocator = plugin, allocator
    return made


def _plugin() -> weir_plugin.Plugin:
    if _used is None:
        raise Error("weir: PyTorch does not allocate from weir; call weir_torch.use first (what weir_torch.pool made has these "
                    "functions in its '.weir')")
    plugin: weir_plugin.Plugin = _used
    return plugin


def _index(device: Device) -> int:
    if isinstance(device, int):
        return device
    if device is not None:
        named = torch.device(device)
        if named.type != "cuda":
            raise Error(f"weir: {device} is no device of CUDA's; write 'cuda:0', 0 or None for the current one")
        if named.index is not None:
            return named.index
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0


def state(device: Device = None) -> State:
    """The pool's figures as a dict; device: the current one by default. Its keys: see weir_plugin.Plugin.state."""
    return _plugin().state(_index(device))


def report(device: Device = None) -> str:
    """What the pool says of itself, with its ten largest blocks, as text."""
    return _plugin().report(_index(device))


def peak(device: Device = None) -> Dict[str, int]:
    """peak_requested_bytes and peak_reserved_bytes since the last reset_peak: max_memory_allocated and max_memory_reserved."""
    return _plugin().peak(_index(device))


def reset_peak(device: Device = None) -> None:
    """The peaks become what is in use now."""
    _plugin().reset_peak(_index(device))


def before_out_of_memory(frees: Optional[Callable[[int, int], object]]) -> None:
    """Before an allocation fails, frees(size, device) is called, which frees what the program can do without: gc.collect, caches of
    its own. Then the allocation is tried once more. The last one that was named counts; None: nobody is called. Any thread that
    allocates calls it, and one that allocates in it is not asked again. What it raises becomes a warning. Call `use` first."""
    _class.before_out_of_memory(_plugin(), frees)


def trim(keep: Size = 0, device: Device = None) -> int:
    """As torch.cuda.empty_cache, but up to `keep` bytes stay. Blocks. Returns the bytes that went back to the device."""
    return _plugin().trim(keep, _index(device))


def tag(name: str) -> tags.Tag:
    """Within 'with weir_torch.tag("cache"):' what the thread allocates is of that name: it comes from a pool of its own, under the
    same limit, so that the name can sleep alone (suspend, resume). Blocks may lie in each other; the innermost counts. What
    backward passes allocate has no tag, as their threads are PyTorch's, nor has what a CUDA graph or a MemPool does. Raises
    Error on entry while the tag sleeps. Call `use` first."""
    return tags.Tag(_plugin(), name)


def suspend(tag: Union[str, bool, None] = None, keep: tags.Keep = True, device: Device = None) -> int:
    """Gives the device all memory of the pool, or of one tag, and keeps every tensor's address. keep: the contents go to pinned
    host memory; False: they are lost; 'constant', of a tag: they are kept, and so is the copy, since nothing writes them. A
    later sleep with 'constant' copies nothing unless the tag has other tensors by then. Until `resume` no tensor of these may
    be used, and none made. Blocks until all work is done and copied. Returns the bytes given back. Raises Error for a tag that
    nobody made, that sleeps, or that a 'with' block uses."""
    if isinstance(tag, bool):  # 'keep', when there were no tags
        tag, keep = None, tag
    if tag is not None:
        return tags.suspend(_plugin(), tag, keep, _index(device))
    if keep == "constant":
        raise Error("weir: keep='constant' is for a tag: weir_torch.suspend('weights', keep='constant')")
    return _plugin().suspend(bool(keep), _index(device))


def resume(tag: Optional[str] = None, device: Device = None) -> None:
    """Ends `suspend` of a tag, or of all that sleeps: tensors are as they were. Blocks. Raises Error if the device or the limit has
    no room: then that tag, or that part, sleeps on, and the call can be made again."""
    if tag is not None:
        return tags.resume(_plugin(), tag, _index(device))
    _plugin().resume(_index(device))


@overload
def record(path: recordings.Path, stacks: bool = True) -> recordings.Recording: ...
@overload
def record(path: None) -> None: ...
def record(path: Optional[recordings.Path], stacks: bool = True) -> Optional[recordings.Recording]:
    """Writes what happens to the memory to a new file, from now on, for 'sh examples/run.sh replay PATH': each tensor's size,
    time, stream, and with `stacks` the line of Python that asked and its callers; and what the pool holds. It begins with the
    tensors that are there. It ends with the block if it is used with 'with', by record(None), or as Python ends.

    Any time after `use`, for all devices; one at a time. The file grows: a quarter of a million events are written by the
    allocation that comes then, and `flush` of what is returned writes at once. Raises Error if the file cannot be made or
    written to."""
    global _recording
    if path is None:
        if _recording is not None:
            _recording.end()
        return None
    _recording = _plugin().record(path, stacks)
    return _recording


def advise(path: Optional[recordings.Path] = None, pool: Optional[str] = None, limit: Size = None) -> Advices:
    """What would have made the recorded program hold less: another pool, a limit, trim() where a scope ends, and what only C++
    can do. Each change is replayed on the recording first, and what is told saves 2 % and 1 MiB at least. A list, whose members
    have text, saved_bytes, and the price of it: driver_calls, waiting_calls, stream_waits more than now; print it.

    path: a file of `record`; None: the last one of this process, up to now. pool, limit: what the program runs with; as `use`
    was called, or 'device_pool' without a limit. No GPU is needed, and none used: it runs on weir's simulated device, for some
    seconds and up to 36 replays; stderr shows how far it is. The first time it compiles for up to a minute. Raises Error."""
    if path is None:
        if _recording is None:
            raise Error("weir: nothing was recorded here; call weir_torch.record('run.weir') before the part of the program that "
                        "you ask about, or name a recording: weir_torch.advise('run.weir')")
        _recording.flush()
        path = _recording.path
    if _used is not None:
        pool, limit = pool or _used.pool, _used.limit if limit is None else limit
    return weir_plugin.advise(path, pool or "device_pool", limit)


def scope(name: str) -> ContextManager[None]:
    """A part of the program, such as a step, that has this name in a recording: 'with weir_torch.scope("step 1"):'."""
    return recordings.scope(_plugin(), name)
