# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A recording of what happens to the memory, while it is being made: a file that examples/replay reads."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import TYPE_CHECKING, Iterator, Optional, Union

if TYPE_CHECKING:
    from . import Plugin

Path = Union[str, "os.PathLike[str]"]


class Recording:
    """Begins one; as a context manager it ends with the block, and otherwise by `end`, or as Python ends. Any thread."""

    def __init__(self, plugin: Plugin, path: Path, stacks: bool = True) -> None:
        """The file is made anew. stacks: each allocation says its line of Python and who called it. Raises Error if the file
        cannot be made, or if a recording is being made already."""
        self._plugin: Optional[Plugin] = plugin
        self.path = os.fspath(path)
        self._process = os.getpid()
        plugin._call("record", os.fsencode(path), int(stacks))
        atexit.register(self._end_quietly)

    def flush(self) -> None:
        """Writes what came so far to the file, which can be read then. Raises Error if that cannot be done: nothing is lost."""
        if self._plugin is not None:
            self._plugin._call("flush_recording")

    def end(self) -> None:
        """Ends it and writes the rest; nothing if it has ended. Raises Error if something could not be written."""
        plugin, self._plugin = self._plugin, None
        if plugin is not None:
            atexit.unregister(self._end_quietly)
            plugin._call("record", None, 0)

    def _end_quietly(self) -> None:
        if os.getpid() == self._process:  # a process that was forked from it has the file, too, and must not write there
            with contextlib.suppress(Exception):  # as Python ends nobody would catch it
                self.end()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@contextlib.contextmanager
def scope(plugin: Plugin, name: str) -> Iterator[None]:
    """A part of the program that has a name in recordings."""
    plugin.library.weir_scope(name.encode(), 1)
    try:
        yield
    finally:
        plugin.library.weir_scope(name.encode(), 0)
