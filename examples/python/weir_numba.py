# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numba's device arrays come from a pool of weir's:

    import weir_numba
    weir_numba.use("device_pool", limit="70 GiB")     # before the first CUDA call of Numba

Numba tells a memory manager no stream. So a block is one that no enqueued work uses, and its free comes behind the work on the
legacy default stream, for which all of Numba's own streams wait and which waits for them. Other streams that were created
non-blocking are not covered: synchronize before an array that they use ends.
"""

import ctypes

from numba import cuda
from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

import weir_plugin
from weir_plugin import Error  # noqa: F401

LEGACY_STREAM = 1  # cudaStreamLegacy

_used = None  # the plug-in that Numba allocates from


class MemoryManager(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):
    """One context's memory, for Numba's interface of external memory managers."""

    def initialize(self):
        pass

    @property
    def interface_version(self):
        return 1

    def memalloc(self, size):
        plugin, device = _plugin(), self.context.device.id
        address = plugin.allocate(size, device)

        def finalize():
            plugin.deallocate(address, size, device, LEGACY_STREAM)

        return MemoryPointer(self.context, ctypes.c_void_p(address), size, finalizer=finalize)

    def get_memory_info(self):
        free, total = cuda.cudadrv.driver.driver.cuMemGetInfo()
        return MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory):
        raise weir_plugin.Error("weir: memory of its pools cannot be shared by a CUDA IPC handle; share a copy of Numba's own")


def use(pool="device_pool", limit=None, name="numba"):
    """Makes a pool of weir's Numba's memory manager. Raises Error; see weir_plugin."""
    global _used
    if _used is None and any(each.primary_context is not None for each in cuda.cudadrv.driver.driver.devices.values()):
        raise weir_plugin.Error("weir: Numba has used CUDA already; move weir_numba.use to the program's beginning")
    _used = weir_plugin.join(pool, limit, name)
    cuda.set_memory_manager(MemoryManager)


def _plugin():
    if _used is None:
        raise weir_plugin.Error("weir: Numba does not allocate from weir; call weir_numba.use first")
    return _used


def state(device=0):
    """The pool's figures as a dict, in bytes. See weir_plugin.Plugin.state."""
    return _plugin().state(device)


def report(device=0):
    """What the pool says of itself, with its ten largest blocks, as text."""
    return _plugin().report(device)


def trim(keep=0, device=0):
    """Gives free memory back until `keep` bytes are held. Blocks. Returns the bytes given back."""
    return _plugin().trim(keep, device)
