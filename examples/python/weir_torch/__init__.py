# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch allocates from a pool of weir's:

    import weir_torch
    weir_torch.use("device_pool", limit="70 GiB")     # before the first CUDA call

`use` makes it PyTorch's allocator for the process; `pool` makes a torch.cuda.MemPool over it instead, for a part of a program.
PyTorch's own statistics (torch.cuda.memory_stats and what is made of them) know nothing of a plug-in and throw under `use`;
`state`, `report`, `peak` and `reset_peak` here take their place. torch.cuda.empty_cache, set_per_process_memory_fraction,
Tensor.record_stream, torch.cuda.graph and make_graphed_callables work. README.md says what does not.
"""

import pathlib
import warnings

import torch

import weir_plugin
from weir_plugin import Error

TESTED = ("2.11",)
# What PyTorch lets a plug-in set, and the function of ours for it.
SETTERS = {
    "set_reset_fn": "empty_cache",
    "set_memory_fraction_fn": "set_memory_fraction",
    "set_record_stream_fn": "record_stream",
    "set_begin_allocate_to_pool": "begin_capture",
    "set_end_allocate_to_pool_fn": "end_capture",
    "set_release_pool": "release_capture",
}

_used = None  # the plug-in that is PyTorch's allocator


def _flags():
    """What the compiler needs to throw PyTorch's own exception."""
    top = pathlib.Path(torch.__file__).resolve().parent
    if not (top / "include/c10/util/Exception.h").exists():
        raise Error("weir: this PyTorch came without its headers (torch/include); without them a plug-in cannot throw its "
                    "OutOfMemoryError. Install PyTorch's own wheel")
    return ["-isystem", str(top / "include"), f"-DWEIR_PLUGIN_TORCH={torch.__version__}",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            f"-L{top / 'lib'}", "-lc10", f"-Wl,-rpath,{top / 'lib'}"]


def _require_torch():
    if torch.version.cuda is None:
        raise Error(f"weir: PyTorch {torch.__version__} is built without CUDA; weir_torch needs one with it")
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in TESTED:
        warnings.warn(f"weir_torch is tested with PyTorch {' and '.join(TESTED)}; this is {torch.__version__}. That the "
                      "functions which it sets are there is checked; that PyTorch calls them with the same arguments is not",
                      stacklevel=3)


def _allocator(plugin, allocate):
    return torch.cuda.memory.CUDAPluggableAllocator(str(plugin.path), allocate, "weir_deallocate")


def use(pool="device_pool", limit=None, name="torch"):
    """Makes a pool of weir's PyTorch's allocator on every device, for the whole process.

    pool: 'device_pool' suits most programs, 'compact_device_pool' holds least, 'promised_device_pool' is fastest (PyTorch's
    streams never end, as it asks). limit: the most that each device's pool may hold, in bytes or as '70 GiB'. name: in reports.
    Call it before the first CUDA call of PyTorch, and before weir_cupy.use and weir_numba.use. The first time it compiles for
    about ten seconds. Raises Error.
    """
    global _used
    _require_torch()
    if _used is not None:
        if _used.pool != pool:
            raise Error(f"weir: PyTorch allocates from {_used.pool} already, and its allocator is chosen once a process")
        if limit is not None:
            _used.configure(limit, name)
        return
    if torch.cuda.is_initialized():
        raise Error("weir: PyTorch has used CUDA already, and its allocator is chosen before that; move weir_torch.use to the "
                    "program's beginning, or use weir_torch.pool for a part of it")
    plugin = weir_plugin.load(pool, limit, name, _flags())
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


def pool(pool="device_pool", limit=None, name="torch pool", **options):
    """A torch.cuda.MemPool whose segments come from a pool of weir's; see torch.cuda.use_mem_pool. PyTorch goes on caching and
    counting, and its own memory goes on beside it. Any time. options: MemPool's own. Raises Error. Not together with `use`."""
    _require_torch()
    if _used is not None:
        raise Error("weir: PyTorch allocates from weir already (weir_torch.use); MemPool is a part of PyTorch's own allocator")
    plugin = weir_plugin.load(pool, limit, name, _flags())
    allocator = _allocator(plugin, "weir_try_allocate_sync")  # null, and PyTorch gives its cache back and asks again
    made = torch.cuda.MemPool(allocator.allocator(), **options)
    made.weir, made.weir_allocator = plugin, allocator
    return made


def _plugin():
    if _used is None:
        raise Error("weir: PyTorch does not allocate from weir; call weir_torch.use first (of a MemPool ask its '.weir')")
    return _used


def _index(device):
    if device is None:
        return torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return torch.cuda.current_device() if index is None else index


def state(device=None):
    """The pool's figures as a dict, in bytes; device: the current one by default. See weir_plugin.Plugin.state."""
    return _plugin().state(_index(device))


def report(device=None):
    """What the pool says of itself, with its ten largest blocks, as text."""
    return _plugin().report(_index(device))


def peak(device=None):
    """peak_requested_bytes and peak_reserved_bytes since the last reset_peak: max_memory_allocated and max_memory_reserved."""
    return _plugin().peak(_index(device))


def reset_peak(device=None):
    """The peaks become what is in use now."""
    _plugin().reset_peak(_index(device))


def trim(keep=0, device=None):
    """As torch.cuda.empty_cache, but up to `keep` bytes stay. Blocks. Returns the bytes that went back to the device."""
    return _plugin().trim(keep, _index(device))


def suspend(keep=True, device=None):
    """Gives the device all memory of the pool and keeps every tensor's address. keep: the contents go to pinned host memory;
    False: they are lost. Until `resume` no tensor may be used. Blocks until all work is done. Returns the bytes given back."""
    return _plugin().suspend(keep, _index(device))


def resume(device=None):
    """Ends `suspend`: tensors are as they were. Blocks. Raises Error if the device has no room."""
    _plugin().resume(_index(device))
