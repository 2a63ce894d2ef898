# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What users write, a pool's name or a size, and what they are told where that cannot be meant."""

from __future__ import annotations

import numbers
import re
from typing import Union

Size = Union[int, float, str, None]

POOLS = ("device_pool", "promised_device_pool", "compact_device_pool")
NO_LIMIT = (1 << 64) - 1
LEAST_LIMIT = 2 << 20  # a page of the device's memory
UNITS = {"": 1, "B": 1}  # as examples/replay takes them: powers of 1024, however they are written
for _power, _prefix in enumerate("KMGT", 1):
    UNITS[_prefix] = UNITS[_prefix + "B"] = UNITS[_prefix + "IB"] = 1 << 10 * _power


class Error(RuntimeError):
    """What weir refuses, or what is missing to build it. The text says what to do."""

    __module__ = "weir_plugin"


class OutOfMemory(Error, MemoryError):
    """There is no room. The text carries the pool's report."""

    __module__ = "weir_plugin"


def pool_of(name: str) -> str:
    """A pool's whole name; it may be written as make_pool has it: 'device' for 'device_pool'."""
    for pool in POOLS:
        if name in (pool, pool[:-len("_pool")]):
            return pool
    raise Error(f"weir: there is no pool '{name}' for Python; there are: {', '.join(POOLS)}, also without the '_pool'")


def bytes_of(size: Size) -> int:
    """A size in bytes, from an int or a text such as '70 GiB', '70GB' or '70G', which are all 70 * 2**30; None: no limit."""
    if size is None:
        return NO_LIMIT
    given = size
    if isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", size)
        if not found or found[2].upper() not in UNITS:
            raise Error(f"weir: '{size}' is no size; write bytes, or a number and KiB, MiB, GiB or TiB (or K, M, G, T), such "
                        "as '70 GiB'")
        given = (float if "." in found[1] else int)(found[1]) * UNITS[found[2].upper()]
    if not isinstance(given, numbers.Real) or not 1 <= given <= NO_LIMIT:
        raise Error(f"weir: {size!r} is no size; write bytes, or a text such as '70 GiB', or None for no limit")
    return int(given)


def limit_of(limit: Size) -> int:
    """A limit in bytes: as bytes_of, but what cannot be meant is refused, such as 70 for 70 GiB, or 0.9 for a share."""
    if limit is None:
        return NO_LIMIT
    if isinstance(limit, numbers.Real) and limit < LEAST_LIMIT or bytes_of(limit) < LEAST_LIMIT:
        raise Error(f"weir: a limit of {limit} bytes leaves no room; write it with its unit, such as '70 GiB', or leave it out "
                    "for no limit (for a share of the device there is torch.cuda.set_per_process_memory_fraction)")
    return bytes_of(limit)
