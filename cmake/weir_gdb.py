# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""gdb shows weir's pools, containers and sizes by what they hold, in a running program and in a core file.

    (gdb) source /usr/local/share/weir/weir_gdb.py        or this line in ~/.gdbinit
    (gdb) print pool
    $1 = pool 'frames' on device 0: 12 MiB in 3 blocks in use, 32 MiB in 1 chunk reserved, limit 1 GiB
    (gdb) print xs
    $2 = device_vector of 100 float (400 B) at 0x7f3a40000000, stream 0x5581c0

It reads the program's memory and calls none of its functions. A pool that another thread changes at that moment may show what
was true a moment ago. 'print -raw-values -- pool' shows the members.
"""

import re

import gdb
import gdb.printing

UNKNOWN = 2**64 - 1
UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def size_text(count):
    """A number of bytes as weir's own reports write it: two decimals, cut off, and left out when they are zeros."""
    for unit, name in UNITS:
        if count >= unit:
            hundredths = count % unit * 100 // unit
            return f"{count // unit}{f'.{hundredths:02}' if hundredths else ''} {name}"
    return f"{count} B"


def counted(count, word):
    return f"{count} {word}{'' if count == 1 else 's'}"


def name_text(text):
    """The characters of a weir::text."""
    held = text["held_"]["held_"]
    return held["object"]["first_"].string() if held else ""


def has(value, member):
    """Whether a class has a member, of its own or of a base class."""
    try:
        value[member]
        return True
    except (gdb.error, RuntimeError):
        return False


def stream_text(handle):
    address = int(handle)
    return {0: "the default stream", 1: "the legacy default stream", 2: "the thread's default stream"}.get(address, f"stream {address:#x}")


class Shown:
    """What is shown of a value: its 'said', or that the compiler keeps it nowhere."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        try:
            return self.said()
        except gdb.error as error:
            return f"<{error}>"


class Text(Shown):
    def display_hint(self):
        return "string"

    def said(self):
        return name_text(self.value)


class Atomic(Shown):
    def said(self):
        return self.value["value_"]


class Range(Shown):
    """base::range: a part of an address space."""

    def said(self):
        return f"{size_text(int(self.value['bytes']))} at {int(self.value['offset']):#x}"


class Report(Shown):
    """memory_report: what 'state()' returns."""

    def said(self):
        def of(member):
            count = int(self.value[member])
            return "unknown" if count == UNKNOWN else size_text(count)

        limit = int(self.value["limit_bytes"])
        return (f"pool '{name_text(self.value['name'])}': {of('in_use_bytes')} in {counted(int(self.value['live_blocks']), 'block')} in use, "
                f"{of('reserved_bytes')} in {counted(int(self.value['chunks']), 'chunk')} reserved, "
                f"limit {'none' if limit == UNKNOWN else size_text(limit)}")


def usage_of(rule):
    """(bytes, blocks) in use, of whichever rule of reuse."""
    if has(rule, "used_"):
        return int(rule["used_"]["bytes"]), int(rule["used_"]["blocks"])
    each, sums = rule["sets_"]["sets_"]["first_"]["value_"], [0, 0]
    while each:
        counts = each["used_"]
        sums[0] += int(counts["taken_bytes"]) - int(counts["given_bytes"])
        sums[1] += int(counts["taken_blocks"]) - int(counts["given_blocks"])
        each = each["next"]["value_"]
    return tuple(one % 2**64 for one in sums)


def below(value):
    """The pool that a recipe, a graph_memory or layers one around the other hold."""
    while not has(value, "options_") and (has(value, "pool_") or has(value, "held_")):
        value = value["pool_"] if has(value, "pool_") else inside(value)
        code = value.type.strip_typedefs().code
        if code == gdb.TYPE_CODE_PTR:
            value = value.dereference()
        elif code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            value = value.referenced_value()
    return value


def inside(any_pool):
    """The pool that an any_pool owns."""
    held = any_pool["held_"]
    return held.cast(held.dynamic_type)["pool"]


def pool_text(value):
    """A pool of any kind, in a sentence."""
    pool = below(value)
    if has(pool, "first_") and has(pool, "second_"):
        return f"{pool_text(pool['first_'])}; then {pool_text(pool['second_'])}"
    if has(pool, "supply_"):
        return Pool(pool).said()
    if has(pool, "blocks_"):
        return DriverPool(pool).said()
    return str(pool.type)


class Pool(Shown):
    """weir::pool, alone or in a recipe."""

    def said(self):
        self.value = below(self.value)
        options, held = self.value["options_"], self.value["supply_"]["held_"]
        in_use, blocks = usage_of(self.value["rule_"])
        limit, device = int(held["limit_bytes_"]["value_"]), int(self.value["device_"])
        chunks = int(held["chunks_"]["by_address_"]["size_"])
        place = f" on device {device}" if device >= 0 else ""
        asleep = ", suspended" if self.value["supply_"]["suspended_"]["value_"] else ""
        return (f"pool '{name_text(options['name_'])}'{place}: {size_text(in_use)} in {counted(blocks, 'block')} in use, "
                f"{size_text(int(held['bytes_']['value_']))} in {counted(chunks, 'chunk')} reserved, "
                f"limit {'none' if limit == UNKNOWN else size_text(limit)}{asleep}")


class DriverPool(Shown):
    """weir::driver_pool and its kin: CUDA keeps the bytes' books."""

    def said(self):
        self.value = below(self.value)
        blocks = int(self.value["blocks_"]["live_blocks_"]["value_"])
        return f"CUDA's pool '{name_text(self.value['options_']['name_'])}': {counted(blocks, 'block')} in use"


class Layer(Shown):
    def said(self):
        kind = re.search(r"layer::\w+", str(self.value.type.strip_typedefs()))[0]
        own = name_text(self.value["own_name_"]) if has(self.value, "own_name_") else ""
        bound = size_text(int(self.value["requested_"]["limit_"]["value_"])) if kind == "layer::limit" else ""
        return f"{kind}{f' {own!r}' if own else ''}{f' of {bound}' if bound else ''} over {pool_text(self.value)}"


class Other(Shown):
    """What stands for a pool, or takes its memory."""

    def said(self):
        kind = re.search(r"graph_memory|any_pool", str(self.value.type.strip_typedefs()))[0]
        return f"{kind} over {pool_text(self.value)}"


class PoolRef(Shown):
    """pool_ref: its table of calls is a variable whose name has the pool's type."""

    def said(self):
        symbol = gdb.execute(f"info symbol {int(self.value['calls_'])}", to_string=True)
        found = re.search(r"pool_calls<(.*)>::table", symbol)
        if not found:
            return f"pool_ref to {int(self.value['pool_']):#x}"
        return f"pool_ref to {pool_text(self.value['pool_'].cast(gdb.lookup_type(found[1]).pointer()).dereference())}"


class Container(Shown):
    """A buffer or a vector."""

    def said(self):
        whole = self.value.type.strip_typedefs()
        kind = re.sub(r"^.*::", "", re.sub(r"<.*", "", str(whole)))
        block = self.value["block_"]
        size, data = int(block["size"]), int(block["data"])
        element = None if kind.endswith("buffer") else whole.template_argument(0)
        what = f"{size // element.sizeof} {element} ({size_text(size)})" if element else size_text(size)
        return f"{kind} of {what} at {data:#x}, {stream_text(self.value['stream_']['stream']['stream_'])}"


class PerDevice(Shown):
    """multi_device::per_device: its pools, by device."""

    def said(self):
        return f"pools of {counted(int(self.value['pools_']['size_']), 'device')}"

    def children(self):
        slots = self.value["pools_"]
        for device in range(int(slots["size_"])):
            pool = slots["first_"][device]["made"]["value_"]
            yield f"[{device}]", pool.dereference() if pool else "not made yet"


class StreamRef(Shown):
    def said(self):
        return "on_host" if self.value["is_host_"] else stream_text(self.value["stream_"])


def printers():
    found = gdb.printing.RegexpCollectionPrettyPrinter("weir")
    for name, pattern, printer in (
            ("text", r"text$", Text),
            ("atomic", r"base::atomic<.*>$", Atomic),
            ("range", r"base::range$", Range),
            ("memory_report", r"memory_report$", Report),
            ("driver_pool", r"driver_pool_of<.*>$", DriverPool),
            ("pool", r"(pool|recipes::pool_of)<.*>$", Pool),
            ("pool_ref", r"pool_ref<.*>$", PoolRef),
            ("other", r"(graph_memory|any_pool)<.*>$", Other),
            ("layer", r"layer::\w+<.*>$", Layer),
            ("container", r"(device|pinned|managed|host)_(vector|buffer|value)(<.*>)?$", Container),
            ("per_device", r"multi_device::per_device<.*>$", PerDevice),
            ("stream_ref", r"stream_ref$", StreamRef)):
        found.add_printer(name, r"^weir::(v0::)?" + pattern, printer)
    return found


gdb.printing.register_pretty_printer(None, printers(), replace=True)
