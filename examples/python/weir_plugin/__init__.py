# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds and loads the shared library through which Python's libraries allocate from a pool of weir's.

weir is headers: g++ compiles plugin.cpp, once for each kind of pool and version, into the user's cache folder. weir_torch,
weir_cupy and weir_numba use this module, and so does whoever writes for a fourth library. All of one process that name the same
pool share it: a tensor and an array then come out of the same memory.

Environment: WEIR_PLUGIN, a library that is built already; CXX, the compiler and its options (g++); WEIR_INCLUDE, weir's folder
'include', for a copy of this folder elsewhere; CUDA_HOME, a CUDA toolkit; WEIR_CACHE, the folder for what is built (otherwise
XDG_CACHE_HOME/weir or ~/.cache/weir).
"""

from __future__ import annotations

import ctypes
import pathlib
import threading
from typing import Dict, Optional, Sequence, TypedDict, cast

from .advice import Advice, Advices, advise
from .building import build, cache_folder, cuda_flags, cuda_runtime, weir_include
from .recordings import Path, Recording
from .words import NO_LIMIT, POOLS, Error, OutOfMemory, Size, bytes_of, limit_of, pool_of

__all__ = ["ALL_DEVICES", "Advice", "Advices", "Error", "FIGURES", "NO_LIMIT", "OutOfMemory", "POOLS", "Plugin", "Recording", "Size", "State",
           "advise", "build", "bytes_of", "cache_folder", "cuda_flags", "cuda_runtime", "join", "limit_of", "load", "pool_of", "weir_include"]

ALL_DEVICES = -1


class State(TypedDict):
    """A pool's figures on one device, in the order in which the library writes them."""

    requested_bytes: int  # what was asked for and is not freed
    peak_requested_bytes: int  # the greatest value since the last reset_peak
    in_use_bytes: int  # requested, with rounding
    reserved_bytes: int  # what is held from the device
    peak_reserved_bytes: int
    limit_bytes: Optional[int]  # the most that may be reserved; None: no limit
    live_blocks: int  # blocks that are not freed
    chunks: int  # pieces that the device gave
    lost_bytes: int  # what is not handed out again
    total_blocks: int  # all that were ever allocated


FIGURES = tuple(State.__annotations__)
_lock = threading.Lock()
_loaded: Dict[pathlib.Path, Plugin] = {}


class Plugin:
    """A loaded library. `device`: a device's number; ALL_DEVICES where a method says so. Any thread."""

    def __init__(self, path: pathlib.Path, pool: str) -> None:
        self.path = path
        self.pool = pool
        self.limit: Optional[int] = None
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise Error(f"weir: the plug-in {path} cannot be loaded ({error}); delete it, and it is built anew") from None
        size, number, pointer = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
        figures = ctypes.POINTER(ctypes.c_ulonglong)
        for name, result, arguments in (
                ("configure", number, (size, ctypes.c_char_p)), ("error", ctypes.c_char_p, ()),
                ("try_allocate", pointer, (size, number, pointer)), ("try_allocate_sync", pointer, (size, number, pointer)),
                ("deallocate", None, (pointer, size, number, pointer)), ("state", number, (number, figures)),
                ("report", ctypes.c_char_p, (number,)), ("reset_peak", number, (number,)),
                ("trim", number, (number, size, figures)), ("suspend", number, (number, number, figures)),
                ("resume", number, (number,)), ("record", number, (ctypes.c_char_p, number)),
                ("flush_recording", number, ()), ("scope", None, (ctypes.c_char_p, number))):
            function = getattr(self.library, "weir_" + name)
            function.restype, function.argtypes = result, arguments

    def address(self, name: str) -> int:
        """The address of the function weir_NAME, for a library that calls it itself."""
        return ctypes.cast(getattr(self.library, "weir_" + name), ctypes.c_void_p).value or 0

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self.library, "weir_" + name)(*arguments) != 0:
            raise Error(self.library.weir_error().decode())

    def _given(self, name: str, *arguments: object) -> int:
        given = ctypes.c_ulonglong()
        self._call(name, *arguments, ctypes.byref(given))
        return int(given.value)

    def configure(self, limit: Size = None, name: str = "python") -> None:
        """The most bytes that each device's pool may hold, and its name in reports. Before the first allocation."""
        self._call("configure", limit_of(limit), name.encode())
        self.limit = None if limit is None else bytes_of(limit)

    def allocate(self, size: int, device: int, stream: Optional[int] = None) -> int:
        """The address of a block for work on `stream` (a handle; None: one that no enqueued work uses). Raises OutOfMemory."""
        if stream is None:
            found = self.library.weir_try_allocate_sync(size, device, None)
        else:
            found = self.library.weir_try_allocate(size, device, stream)
        if not found and size:
            text = self.library.weir_error().decode()
            raise (OutOfMemory if "out of memory" in text else Error)(text)
        return found or 0

    def deallocate(self, address: int, size: int, device: int, stream: int) -> None:
        """Frees a block on `stream`, behind the work that is enqueued there. Never blocks."""
        self.library.weir_deallocate(address, size, device, stream)

    def state(self, device: int = 0) -> State:
        """The pool's figures; zeroes before the first allocation on the device."""
        figures = (ctypes.c_ulonglong * len(FIGURES))()
        self._call("state", device, figures)
        now = cast(State, dict(zip(FIGURES, figures)))
        if now["limit_bytes"] in (0, NO_LIMIT):  # 0: this device has no pool yet
            now["limit_bytes"] = self.limit if now["limit_bytes"] == 0 else None
        return now

    def peak(self, device: int = 0) -> Dict[str, int]:
        """The most bytes that were requested and reserved since the last reset_peak."""
        now = self.state(device)
        return {"peak_requested_bytes": now["peak_requested_bytes"], "peak_reserved_bytes": now["peak_reserved_bytes"]}

    def reset_peak(self, device: int = ALL_DEVICES) -> None:
        """The peaks become what is in use now."""
        self._call("reset_peak", device)

    def report(self, device: int = 0) -> str:
        """What the pool says of itself, with its largest blocks."""
        found = self.library.weir_report(device)
        if found is None:
            raise Error(self.library.weir_error().decode())
        return str(found.decode())

    def trim(self, keep: Size = 0, device: int = ALL_DEVICES) -> int:
        """Gives free memory back to the device until `keep` bytes are held. Blocks until freed memory is unused. Returns the
        bytes given back."""
        return self._given("trim", device, bytes_of(keep) if keep else 0)

    def suspend(self, keep: bool = True, device: int = ALL_DEVICES) -> int:
        """Gives all memory back to the device; every address stays valid. keep: contents go to pinned host memory, or are lost.
        No work may use the memory before `resume`. Blocks. Returns the bytes given back."""
        return self._given("suspend", device, int(keep))

    def resume(self, device: int = ALL_DEVICES) -> None:
        """Ends `suspend`. Blocks. Raises Error if the device has no room; call it again once there is."""
        self._call("resume", device)

    def record(self, path: Path, stacks: bool = True) -> Recording:
        """Writes what happens to the memory of all devices to a file, from now on; see Recording."""
        return Recording(self, path, stacks)


def load(pool: str = "device_pool", limit: Size = None, name: str = "python", flags: Sequence[str] = ()) -> Plugin:
    """The plug-in for a pool, built if need be and loaded once a process. Raises Error, also where the process has one for the
    same pool that was built with other flags: there would be two pools."""
    limit_of(limit)
    pool = pool_of(pool)
    path = build(pool, flags)
    with _lock:
        if path not in _loaded:
            if any(each.pool == pool for each in _loaded.values()):
                raise Error(f"weir: this process has a {pool} already, and PyTorch shares only one that was made for it; call "
                            "weir_torch.use before weir_cupy.use and weir_numba.use, or name another pool")
            _loaded[path] = Plugin(path, pool)
            _loaded[path].configure(limit, name)
        elif limit is not None:
            _loaded[path].configure(limit, name)
        return _loaded[path]


def join(pool: str = "device_pool", limit: Size = None, name: str = "python") -> Plugin:
    """As `load`, but if PyTorch loaded a plug-in for this pool, that one: both then allocate from the same memory."""
    pool = pool_of(pool)
    with _lock:
        found = next((each for each in _loaded.values() if each.pool == pool), None)
    if found is None:
        return load(pool, limit, name)
    if limit is not None:
        found.configure(limit, name)
    return found
