# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a program whose memory has a name, and sleeps by it."""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Union

import weir_plugin

Keep = Union[bool, str]
HOW = {False: 0, True: 1, "constant": 2}  # as weir_suspend_tag takes it


def _library(plugin: weir_plugin.Plugin) -> Any:
    if not hasattr(plugin.library, "weir_tag"):
        raise weir_plugin.Error("weir: this PyTorch has weir by the functions of CUDAPluggableAllocator, which know no tags; leave "
                                "the tag out, and suspend the whole pool")
    return plugin.library


def _error(plugin: weir_plugin.Plugin) -> weir_plugin.Error:
    return weir_plugin.Error(plugin.library.weir_error().decode())


class Tag:
    """What weir_torch.tag makes: within its 'with' block, the thread's tensors are the tag's."""

    def __init__(self, plugin: weir_plugin.Plugin, name: str) -> None:
        self.name = name
        self._plugin = plugin
        self._before: Optional[int] = None
        self._number = int(_library(plugin).weir_tag(name.encode()))
        if self._number < 0:
            raise _error(plugin)

    def __enter__(self) -> Tag:
        if self._before is not None:
            raise weir_plugin.Error(f"weir: this object for tag '{self.name}' is in use already; make another one with "
                                    f"weir_torch.tag('{self.name}') for a block within the block, or for another thread")
        before = int(self._plugin.library.weir_enter_tag(self._number))
        if before < 0:
            raise _error(self._plugin)
        self._before = before
        return self

    def __exit__(self, *_: object) -> None:
        before, self._before = self._before, None
        self._plugin.library.weir_leave_tag(self._number, before)


def suspend(plugin: weir_plugin.Plugin, name: str, keep: Keep, device: int) -> int:
    """See weir_torch.suspend."""
    if keep not in HOW:
        raise weir_plugin.Error(f"weir: keep={keep!r} is not known; write True, False, or 'constant' for what never changes")
    given = ctypes.c_ulonglong()
    if _library(plugin).weir_suspend_tag(name.encode(), device, HOW[keep], ctypes.byref(given)) != 0:
        raise _error(plugin)
    return int(given.value)


def resume(plugin: weir_plugin.Plugin, name: str, device: int) -> None:
    """See weir_torch.resume."""
    if _library(plugin).weir_resume_tag(name.encode(), device) != 0:
        raise _error(plugin)
