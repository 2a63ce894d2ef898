# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pool as PyTorch's own allocator: a class that is compiled against the headers of the PyTorch that is installed.

PyTorch asks such a class for everything: memory, graphs, figures, snapshots, other processes. A PyTorch with which it does not
compile has the six functions of CUDAPluggableAllocator instead (weir_torch.use), and then raises for most of these.
"""

from __future__ import annotations

import ctypes
import pathlib
import warnings
from typing import Any, Callable, List, Optional, Tuple, TypeVar

import weir_plugin

OLDEST, NEWEST = (2, 11), (2, 15)  # tested
CXX20_SINCE = (2, 14)
FREES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_int)

Made = TypeVar("Made")

_frees: Any = None  # what C calls, as long as it may


def _version() -> Tuple[int, ...]:
    import torch
    return tuple(int(each) for each in torch.__version__.split(".")[:2])


def flags(shares: bool = False) -> List[str]:
    """What the compiler needs for the class beside the options for PyTorch's exception; none where there is no such class.
    shares: its memory can go to other processes, by descriptors."""
    import torch
    top = pathlib.Path(torch.__file__).resolve().parent
    if _version() < OLDEST or not (top / "include/c10/cuda/CUDACachingAllocator.h").exists():
        return []
    return (["-DWEIR_PLUGIN_TORCH_CLASS", "-lc10_cuda"] + (["-std=c++20"] if _version() >= CXX20_SINCE else []) +
            (["-DWEIR_PLUGIN_HANDLES=1"] if shares else []))


def with_class(make: Callable[[List[str]], Made], others: List[str], shares: bool = False) -> Tuple[Made, bool]:
    """What make(flags) makes with the class, and True. Where PyTorch has no such class, or it does not compile: without it, and
    False. `others`: the options for PyTorch's exception. Raises weir_plugin.Error."""
    import torch
    own = flags(shares)
    if own:
        try:
            return make(others + own), True
        except weir_plugin.Error as error:
            if _version() <= NEWEST or shares or "was not compiled" not in str(error):
                raise
            warnings.warn(f"weir_torch does not compile as an allocator of PyTorch {torch.__version__}'s own kind, which is "
                          f"newer than it knows ({'.'.join(map(str, NEWEST))}); it uses the functions of CUDAPluggableAllocator "
                          f"in its place, so snapshots, MemPool and other processes do not work. {error}", stacklevel=4)
    if shares:
        raise weir_plugin.Error(f"weir: tensors for other processes need PyTorch {'.'.join(map(str, OLDEST))} or later, with its "
                                "headers; leave out shares=True, and send copies on the host ('.cpu()')")
    return make(others), False


def install(plugin: weir_plugin.Plugin) -> None:
    """Makes the class PyTorch's allocator. Raises weir_plugin.Error."""
    import torch
    if plugin.library.weir_install(torch.__version__.encode()) != 0:
        raise weir_plugin.Error(plugin.library.weir_error().decode())


def before_out_of_memory(plugin: weir_plugin.Plugin, frees: Optional[Callable[[int, int], object]]) -> None:
    """See weir_torch.before_out_of_memory."""
    global _frees
    if not hasattr(plugin.library, "weir_before_out_of_memory"):
        raise weir_plugin.Error("weir: this PyTorch has weir by the functions of CUDAPluggableAllocator, which ask nobody before an "
                                "allocation fails; catch torch.OutOfMemoryError")

    def ask(size: int, device: int) -> int:
        try:
            if frees is not None:
                frees(size, device)
        except BaseException as error:  # C cannot pass it on
            warnings.warn(f"weir: what was to free memory failed: {error!r}")
        return 1

    called = FREES() if frees is None else FREES(ask)
    plugin.library.weir_before_out_of_memory(called)
    _frees = called
