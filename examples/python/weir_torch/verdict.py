# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the runs of `compare` come to, in one sentence."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Dict, List, Optional, Sequence

OWN = {"default": "PyTorch's default", "expandable": "PyTorch's expandable segments"}
ALIKE_HELD = 0.01
ALIKE_STEP = 0.03  # of the times of steps; or the rounds' own spread, where that is more
ALIKE_WHOLE = 0.1  # of the time of a whole program, which begins and ends with other work


@dataclasses.dataclass
class Row:
    """An allocator over the rounds. None: no run of it got so far."""

    allocator: str
    needed_mib: Optional[float]
    held_mib: Optional[float]
    times: List[float]  # of each round: a step's in ms, or the whole program's in s
    has_steps: bool
    losses: str
    error: str

    @property
    def time(self) -> float:
        return statistics.median(self.times)

    @property
    def time_text(self) -> str:
        if not self.times:
            return "-"
        return f"{self.time:.2f} ms" if self.has_steps else f"{self.time:.1f} s in all"

    @property
    def spread(self) -> float:
        return max(self.times) / min(self.times) - 1 if min(self.times) > 0 else 0


def name_of(allocator: str) -> str:
    return OWN.get(allocator, allocator)


def row_of(allocator: str, runs: Sequence[Dict[str, Any]]) -> Row:
    error = next((each["error"] for each in runs if each.get("error")), "")
    known = [each for each in runs if "held_mib" in each]
    if not known:
        return Row(allocator, None, None, [], False, "", error)
    steps = [each["step_ms"] for each in known if each["step_ms"] is not None]
    return Row(allocator, max(each["needed_mib"] for each in known), max(each["held_mib"] for each in known),
               steps or [each["seconds"] for each in known], bool(steps), " ".join(known[0]["losses"]), error)


def clause(row: Row, other: Row) -> str:
    """'holds 44 % less than PyTorch's default and is as fast'."""
    assert row.held_mib is not None and other.held_mib
    less = 1 - row.held_mib / other.held_mib
    held = "as much as" if abs(less) < ALIKE_HELD else f"{100 * abs(less):.0f} % {'less' if less > 0 else 'more'} than"
    if row.has_steps != other.has_steps:
        return f"holds {held} {name_of(other.allocator)}"
    slower = row.time / other.time - 1 if other.time > 0 else 0
    alike = max(ALIKE_STEP if row.has_steps else ALIKE_WHOLE, row.spread, other.spread)
    if abs(slower) <= alike:
        return f"holds {held} {name_of(other.allocator)} and is as fast"
    pace = f"{100 * abs(slower):.0f} % {'slower' if slower > 0 else 'faster'}"
    return f"holds {held} {name_of(other.allocator)} and is {pace}{' (in a single round)' if len(row.times) == 1 else ''}"


def verdict(rows: Sequence[Row]) -> str:
    ours = [row for row in rows if row.allocator not in OWN]
    own = [row for row in rows if row.allocator in OWN]
    if not any(row.held_mib or row.error for row in rows):
        return "The program allocated no device memory: there is nothing to compare."
    if not ours or not own:
        return f"{'No allocator of PyTorch' if ours else 'No pool of weir'}'s was run, so there is no verdict."
    subject = next((row for row in ours if row.allocator == "device_pool"), ours[0])
    runs = [row for row in own if not row.error and row.held_mib]
    if subject.error:
        others = " and ".join(name_of(row.allocator) for row in runs)
        return f"{subject.allocator} failed, and " + (f"{others} did not." if runs else "so did PyTorch's allocators.")
    said = [clause(subject, row) for row in runs]
    said += [f"runs what {name_of(row.allocator)} fails at" for row in own if row.error]
    more = [f"; {row.allocator} {clause(row, subject)}" for row in ours
            if subject.held_mib and row.held_mib and not row.error and row.held_mib < (1 - ALIKE_HELD) * subject.held_mib]
    return f"{subject.allocator} {'; it '.join(said)}{''.join(more)}."
