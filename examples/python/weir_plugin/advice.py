# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What would have made a recorded program hold less: each change is tried on the recording before it is told.

examples/replay/advice_search looks for it, on weir's simulated device; this starts it, and says what it found in Python's words.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Iterator, List, NamedTuple, Tuple

from .building import build_search
from .recordings import Path
from .words import Error, Size, limit_of, pool_of

_MARK = b"\x89weir\r\n\x1a"


class Advice(NamedTuple):
    """One change that saves something, with its price as a replay of the recording gave it."""

    text: str  # the change, as the program would write it
    kind: str  # 'recipe', 'limit', 'slab', 'frames', 'part_end' or 'wait_first'
    in_python: bool  # else it is for a program of C++
    saved_bytes: int
    is_of_mean: bool  # they are saved on average, and not at the peak
    share: float  # of what is held at the peak, or on average: 0 to 1
    peak_bytes: int  # held with the change
    driver_calls: int  # so many more of these; less than 0: fewer
    waiting_calls: int  # calls that make the device or the host wait
    stream_waits: int  # a stream is made to wait for another one

    def __str__(self) -> str:
        where = "on average" if self.is_of_mean else "at the peak"
        return f"saves {_mib(self.saved_bytes)} {where} ({100 * self.share:.1f} %), for {_price(self)}: {self.text}"


class Advices(List[Advice]):
    """What was found for one recording, what saves most first. Printed, it is a text."""

    pool: str  # the changes are to this one
    peak_bytes: int  # what it holds as it is
    mean_bytes: int
    tried: List[str]  # each change in a few words
    untried: List[str]  # a sentence each: why, and what to do
    replays: int

    def __str__(self) -> str:
        first = (f"{self.pool} holds {_mib(self.peak_bytes)} at the peak and {_mib(self.mean_bytes)} on average; each change was "
                 f"tried, in {self.replays} replay{'' if self.replays == 1 else 's'}")
        none = [] if self or not self.tried else [f"nothing that was tried saves 2 % and 1 MiB: {', '.join(self.tried)}"]
        return "\n  ".join([first, *map(str, self), *none, *self.untried])

    __repr__ = __str__


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def _price(of: Advice) -> str:
    names = ("driver calls", "calls that wait", "waits of a stream for another")
    counts = list(zip((of.driver_calls, of.waiting_calls, of.stream_waits), names))
    more = [f"{count:,} more {name}" for count, name in counts if count > 0] or ["no more calls or waits"]
    fewer = [f"{-count:,} fewer {name}" for count, name in counts if count < 0]
    return ", ".join(more + fewer)


def _in_python(kind: str, text: str, limit_bytes: int) -> Tuple[str, bool]:
    """The change as a program of Python's writes it, if it can."""
    if kind == "recipe":
        return f"weir_torch.use('{text.rpartition(':')[2]}')", True
    if kind == "limit":
        return f"weir_torch.use(limit='{limit_bytes >> 20} MiB')" + text.partition(")")[2], True
    if kind == "part_end" and text.startswith("trim()"):
        return "weir_torch." + text, True
    return text + " (in C++)", False


def _parsed(lines: Iterator[List[str]]) -> Advices:
    out = Advices()
    out.tried, out.untried, now = [], [], [0] * 5
    for what, *fields in lines:
        if what == "refused":
            raise Error(f"weir: {fields[0]}")
        if what == "pool":
            out.pool, out.replays, now = fields[0], int(fields[1]), [int(each) for each in fields[2:]]
            out.peak_bytes, out.mean_bytes = now[:2]
        elif what == "advice":
            kind, text, saved, is_of_mean, limit_bytes, *then = fields
            before, figures = now[1 if int(is_of_mean) else 0], [int(each) for each in then]
            out.append(Advice(*_named(kind, text, int(limit_bytes)), int(saved), bool(int(is_of_mean)), int(saved) / max(before, 1),
                              figures[0], *(after - at for after, at in zip(figures[2:], now[2:]))))
        else:
            (out.tried if what == "tried" else out.untried).append(fields[0])
    return out


def _named(kind: str, text: str, limit_bytes: int) -> Tuple[str, str, bool]:
    said, in_python = _in_python(kind, text, limit_bytes)
    return said, kind, in_python


def advise(path: Path, pool: str, limit: Size = None) -> Advices:
    """See weir_torch.advise."""
    name, pool, limit_bytes = os.fspath(path), pool_of(pool), limit_of(limit)
    try:
        with open(path, "rb") as file:
            beginning = file.read(len(_MARK))
    except OSError as error:
        raise Error(f"weir: the recording {name} cannot be read ({error.strerror}); name a file that weir_torch.record wrote") from None
    if beginning != _MARK:
        raise Error(f"weir: {name} is no recording of weir's; name a file that weir_torch.record wrote ('sh examples/run.sh replay "
                    "--advice' reads PyTorch's snapshots and others, too)")
    command = [str(build_search()), str(pathlib.Path(name).resolve()), pool, str(limit_bytes)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
    found = [line.split("\t") for line in done.stdout.splitlines()]
    if done.returncode != 0 and not any(each[0] == "refused" for each in found):
        raise Error(f"weir: the search for advice ended with {done.returncode} and no answer; is there memory on the host for the "
                    f"recording {name}? Record a shorter part of the program")
    return _parsed(iter(found))
