# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What weir_torch and its compare need of PyTorch, for tests where there is none: it notes what it is given."""

import os
import types

__version__ = "2.11.0"
version = types.SimpleNamespace(cuda="13.0")
initialized = False
capturing = False
current = None  # the allocator that was made PyTorch's
needed, held = 3 << 20, 5 << 20  # the peaks of PyTorch's own


def compiled_with_cxx11_abi():
    return True


class Inner:
    """A plug-in's setters; `set` holds the addresses by the setters' names."""

    lacks = ()

    def __init__(self):
        self.set = {}

    def __getattr__(self, name):
        if not name.startswith("set_") or name in Inner.lacks:
            raise AttributeError(name)
        return lambda address: self.set.__setitem__(name, address)


class CUDAPluggableAllocator:
    def __init__(self, path, allocate, deallocate):
        self.path, self.names, self.inner = path, (allocate, deallocate), Inner()

    def allocator(self):
        return self.inner


class MemPool:
    def __init__(self, allocator, **options):
        self.allocator, self.options = allocator, options


def change_current_allocator(allocator):
    global current
    current = allocator


class device:
    def __init__(self, name):
        self.type, _, index = name.partition(":")
        self.index = int(index) if index else None


class Tensor:
    """A number, or several of one kind."""

    is_cuda = True

    def __init__(self, *numbers):
        self.numbers = numbers

    def numel(self):
        return len(self.numbers)

    def is_complex(self):
        return isinstance(self.numbers[0], complex)

    def detach(self):
        assert not capturing, "a captured stream was waited for"
        return self

    def __float__(self):
        return float(self.numbers[0])

    def backward(self):
        pass


def for_no_plugin(*_):
    raise RuntimeError("CUDAPluggableAllocator does not yet support this")


def reset_peaks(*_):
    global needed, held
    if current is not None:
        for_no_plugin()
    needed, held = 1 << 20, 2 << 20


_C = types.SimpleNamespace(_cuda_memoryStats=for_no_plugin, _cuda_resetPeakMemoryStats=reset_peaks)
cuda = types.SimpleNamespace(
    is_initialized=lambda: initialized, is_available=lambda: os.environ.get("STAND_IN_GPUS") != "0", current_device=lambda: 0,
    MemPool=MemPool, device_count=lambda: 1, is_current_stream_capturing=lambda: capturing, synchronize=lambda: None,
    memory_allocated=lambda device=None: 1 << 20, memory_reserved=lambda device=None: 2 << 20,
    max_memory_allocated=lambda device=None: min(needed, held), max_memory_reserved=lambda device=None: held,
    reset_peak_memory_stats=lambda device=None: _C._cuda_resetPeakMemoryStats(device),
    memory_summary=lambda device=None: "PyTorch's own",
    memory=types.SimpleNamespace(
        CUDAPluggableAllocator=CUDAPluggableAllocator, change_current_allocator=change_current_allocator,
        memory_summary=for_no_plugin))
