# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pool as PyTorch's own allocator: a class that is compiled against the headers of the PyTorch that is installed.

PyTorch asks such a class for everything: memory, graphs, figures, snapshots, other processes. A PyTorch with which it does not
compile has the six functions of CUDAPluggableAllocator instead (weir_torch.use), and then raises for most of these.
"""

import ctypes
import pathlib
import warnings

import weir_plugin

OLDEST, NEWEST = (2, 11), (2, 15)  # tested
CXX20_SINCE = (2, 14)
FREES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_int)

_frees = None  # what C calls, as long as it may


def _version():
    import torch
    return tuple(int(each) for each in torch.__version__.split(".")[:2])


def flags():
    """What the compiler needs for the class beside the options for PyTorch's exception; none where there is no such class."""
    import torch
    top = pathlib.Path(torch.__file__).resolve().parent
    if _version() < OLDEST or not (top / "include/c10/cuda/CUDACachingAllocator.h").exists():
        return []
    return ["-DWEIR_PLUGIN_TORCH_CLASS", "-lc10_cuda"] + (["-std=c++20"] if _version() >= CXX20_SINCE else [])


def load(pool, limit, name, others):
    """The plug-in with the class: itself and True. Where PyTorch has no such class, or it does not compile: the plug-in without
    it, and False. `others`: the options for PyTorch's exception. Raises weir_plugin.Error."""
    import torch
    own = flags()
    if own:
        try:
            return weir_plugin.load(pool, limit, name, others + own), True
        except weir_plugin.Error as error:
            if _version() <= NEWEST or "was not compiled" not in str(error):
                raise
            warnings.warn(f"weir_torch does not compile as an allocator of PyTorch {torch.__version__}'s own kind, which is "
                          f"newer than it knows ({'.'.join(map(str, NEWEST))}); it uses the functions of CUDAPluggableAllocator "
                          f"in its place, so snapshots, MemPool and other processes do not work. {error}", stacklevel=4)
    return weir_plugin.load(pool, limit, name, others), False


def install(plugin):
    """Makes the class PyTorch's allocator. Raises weir_plugin.Error."""
    import torch
    if plugin.library.weir_install(torch.__version__.encode()) != 0:
        raise weir_plugin.Error(plugin.library.weir_error().decode())


def before_out_of_memory(plugin, frees):
    """See weir_torch.before_out_of_memory."""
    global _frees
    if not hasattr(plugin.library, "weir_before_out_of_memory"):
        raise weir_plugin.Error("weir: this PyTorch has weir by the functions of CUDAPluggableAllocator, which ask nobody before an "
                                "allocation fails; catch torch.OutOfMemoryError")

    def ask(size, device):
        try:
            frees(size, device)
        except BaseException as error:  # C cannot pass it on
            warnings.warn(f"weir: what was to free memory failed: {error!r}")
        return 1

    called = FREES() if frees is None else FREES(ask)
    plugin.library.weir_before_out_of_memory(called)
    _frees = called
