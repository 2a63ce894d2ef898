# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""CuPy allocates from a pool of weir's:

    import weir_cupy
    weir_cupy.use("device_pool", limit="70 GiB")

An array's memory is for work on the stream that was CuPy's current one as it was made, and its free comes behind the work on
that stream, as in CuPy's own pool. The stream object is kept alive until then: a stream that ends earlier would leave a handle
that names nothing. Arrays of before stay where they are. With weir_torch.use of the same pool, which comes first, both
share one.
"""

from __future__ import annotations

from typing import Any, Optional

import cupy

import weir_plugin
from weir_plugin import Error, Plugin, Size, State  # noqa: F401

_used: Optional[Plugin] = None  # the plug-in that CuPy allocates from


class _Block:
    """The owner of a block; its end frees it."""

    __slots__ = ("plugin", "address", "size", "device", "stream")

    def __init__(self, plugin: Plugin, size: int, device: int, stream: Any) -> None:
        self.address = 0
        self.plugin, self.size, self.device, self.stream = plugin, size, device, stream
        self.address = plugin.allocate(size, device, stream.ptr)

    def __del__(self) -> None:
        if self.address:
            self.plugin.deallocate(self.address, self.size, self.device, self.stream.ptr)


class OutOfMemoryError(cupy.cuda.memory.OutOfMemoryError):
    """CuPy's own, with weir's report as its text."""

    def __init__(self, size: int, total: int, text: str) -> None:
        super().__init__(size, total)
        self.args = (text,)

    def __str__(self) -> str:
        return str(self.args[0])


def _allocate(size: int) -> cupy.cuda.MemoryPointer:
    """CuPy's allocator: memory of `size` bytes for CuPy's current device and stream. CuPy's CFunctionAllocator would not do: it
    takes null for an address, and its free is told no stream."""
    device = cupy.cuda.runtime.getDevice()
    plugin = _plugin()
    try:
        block = _Block(plugin, size, device, cupy.cuda.get_current_stream())
    except weir_plugin.OutOfMemory as error:
        raise OutOfMemoryError(size, plugin.state(device)["reserved_bytes"], str(error)) from None
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(block.address, size, block, device), 0)


def use(pool: str = "device_pool", limit: Size = None, name: str = "cupy") -> None:
    """Makes a pool of weir's CuPy's allocator, in every thread and on every device. Raises Error; see weir_plugin."""
    global _used
    _used = weir_plugin.join(pool, limit, name)
    cupy.cuda.set_allocator(_allocate)


def _plugin() -> Plugin:
    if _used is None:
        raise weir_plugin.Error("weir: CuPy does not allocate from weir; call weir_cupy.use first")
    return _used


def _index(device: Optional[int]) -> int:
    return int(cupy.cuda.runtime.getDevice() if device is None else device)


def state(device: Optional[int] = None) -> State:
    """The pool's figures as a dict, in bytes; device: CuPy's current one by default. See weir_plugin.Plugin.state."""
    return _plugin().state(_index(device))


def report(device: Optional[int] = None) -> str:
    """What the pool says of itself, with its ten largest blocks, as text."""
    return _plugin().report(_index(device))


def trim(keep: Size = 0, device: Optional[int] = None) -> int:
    """Gives free memory back until `keep` bytes are held (CuPy's free_all_blocks). Blocks. Returns the bytes given back."""
    return _plugin().trim(keep, _index(device))
