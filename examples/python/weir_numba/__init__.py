# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numba's device arrays come from a pool of weir's:

    import weir_numba
    weir_numba.use("device_pool", limit="70 GiB")     # before the first CUDA call of Numba

Numba tells a memory manager no stream. So a block is one that no enqueued work uses, and its free comes behind the work on the
legacy default stream, for which all of Numba's own streams wait and which waits for them. Other streams that were created
non-blocking are not covered: synchronize before an array that they use ends.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from numba import cuda
from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

import weir_plugin
from weir_plugin import Error, Plugin, Size, State  # noqa: F401

LEGACY_STREAM = 1  # cudaStreamLegacy

_used: Optional[Plugin] = None  # the plug-in that Numba allocates from


class MemoryManager(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):
    """One context's memory, for Numba's interface of external memory managers."""

    def initialize(self) -> None:
        pass

    @property
    def interface_version(self) -> int:
        return 1

    def memalloc(self, size: int) -> MemoryPointer:
        plugin, device = _plugin(), self.context.device.id
        address = plugin.allocate(size, device)

        def finalize() -> None:
            plugin.deallocate(address, size, device, LEGACY_STREAM)

        return MemoryPointer(self.context, ctypes.c_void_p(address), size, finalizer=finalize)

    def get_memory_info(self) -> MemoryInfo:
        free, total = cuda.cudadrv.driver.driver.cuMemGetInfo()
        return MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise weir_plugin.Error("weir: memory of its pools cannot be shared by a CUDA IPC handle; share a copy of Numba's own")


def use(pool: str = "device_pool", limit: Size = None, name: str = "numba") -> None:
    """Makes a pool of weir's Numba's memory manager. Raises Error; see weir_plugin."""
    global _used
    if _used is None and any(each.primary_context is not None for each in cuda.cudadrv.driver.driver.devices.values()):
        raise weir_plugin.Error("weir: Numba has used CUDA already; move weir_numba.use to the program's beginning")
    _used = weir_plugin.join(pool, limit, name)
    cuda.set_memory_manager(MemoryManager)


def _plugin() -> Plugin:
    if _used is None:
        raise weir_plugin.Error("weir: Numba does not allocate from weir; call weir_numba.use first")
    return _used


def state(device: int = 0) -> State:
    """The pool's figures as a dict, in bytes. See weir_plugin.Plugin.state."""
    return _plugin().state(device)


def report(device: int = 0) -> str:
    """What the pool says of itself, with its ten largest blocks, as text."""
    return _plugin().report(device)


def trim(keep: Size = 0, device: int = 0) -> int:
    """Gives free memory back until `keep` bytes are held. Blocks. Returns the bytes given back."""
    return _plugin().trim(keep, device)
