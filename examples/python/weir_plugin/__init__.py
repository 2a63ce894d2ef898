# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds and loads the shared library through which Python's libraries allocate from a pool of weir's.

weir is headers, so there is nothing to install: g++ compiles plugin.cpp, once for each kind of pool and version, into the
user's cache folder. weir_torch, weir_cupy and weir_numba use this module, and so does whoever writes for a fourth library. All
of one process that name the same pool share it: a tensor and an array then come out of the same memory.

Environment: CXX, the compiler and its options (g++); WEIR_INCLUDE, weir's folder 'include', for a copy of this folder
elsewhere; CUDA_HOME, a CUDA toolkit; WEIR_CACHE, the folder for what is built (otherwise XDG_CACHE_HOME/weir or ~/.cache/weir).
"""

import ctypes
import fcntl
import hashlib
import importlib.util
import numbers
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import threading

HERE = pathlib.Path(__file__).resolve().parent
POOLS = ("device_pool", "promised_device_pool", "compact_device_pool")
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
         "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
NO_LIMIT = (1 << 64) - 1
LEAST_LIMIT = 2 << 20  # a page of the device's memory
OLDEST_CUDA = 12080
ALL_DEVICES = -1
FIGURES = ("requested_bytes", "peak_requested_bytes", "in_use_bytes", "reserved_bytes", "peak_reserved_bytes",
           "limit_bytes", "live_blocks", "chunks", "lost_bytes", "total_blocks")

_lock = threading.Lock()
_loaded = {}  # path of a library -> Plugin


class Error(RuntimeError):
    """What weir refuses, or what is missing to build it. The text says what to do."""


class OutOfMemory(Error, MemoryError):
    """There is no room. The text carries the pool's report."""


def bytes_of(size):
    """A size in bytes, from an int or a text such as '70 GiB'; None: no limit."""
    if size is None:
        return NO_LIMIT
    if isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", size)
        if not found or found[2].upper() not in UNITS:
            raise Error(f"weir: '{size}' is no size; write bytes, or a number and KiB, MiB, GiB or TiB, such as '70 GiB'")
        size = float(found[1]) * UNITS[found[2].upper()]
    if not isinstance(size, numbers.Real) or not 1 <= size <= NO_LIMIT:
        raise Error(f"weir: {size!r} is no size; write bytes, or a text such as '70 GiB', or None for no limit")
    return int(size)


def limit_of(limit):
    """A limit in bytes: as bytes_of, but what cannot be meant is refused, such as 70 for 70 GiB, or 0.9 for a share."""
    if limit is None:
        return NO_LIMIT
    if isinstance(limit, numbers.Real) and limit < LEAST_LIMIT or bytes_of(limit) < LEAST_LIMIT:
        raise Error(f"weir: a limit of {limit} bytes leaves no room; write it with its unit, such as '70 GiB', or leave it out "
                    "for no limit (for a share of the device there is torch.cuda.set_per_process_memory_fraction)")
    return bytes_of(limit)


def weir_include():
    """The folder that holds weir/weir.hpp."""
    named = os.environ.get("WEIR_INCLUDE")
    for place in [named] if named else [HERE.parents[2] / "include", HERE.parent / "include", HERE.parent]:
        if (pathlib.Path(place) / "weir/weir.hpp").exists():
            return pathlib.Path(place).resolve()
    raise Error(f"weir: there is no weir/weir.hpp in {named or 'the folders around ' + str(HERE)}; set WEIR_INCLUDE to the "
                "folder 'include' of weir")


def _cuda_places():
    """Folders that may hold CUDA's 'include' and 'lib', the likeliest first."""
    if os.environ.get("CUDA_HOME"):
        yield pathlib.Path(os.environ["CUDA_HOME"])
    wheels = importlib.util.find_spec("nvidia")
    for top in wheels.submodule_search_locations if wheels else []:
        yield from sorted(pathlib.Path(top).glob("cu[0-9]*"), reverse=True)
        yield pathlib.Path(top) / "cuda_runtime"
    compiler = shutil.which("nvcc")
    if compiler:
        yield pathlib.Path(compiler).resolve().parents[1]
    yield pathlib.Path("/usr/local/cuda")


def _version_text(version):
    return f"{version // 1000}.{version % 1000 // 10}"


def _version_of(runtime):
    """A CUDA runtime's version, 13000 for 13.0."""
    found = ctypes.c_int()
    ctypes.CDLL(str(runtime)).cudaRuntimeGetVersion(ctypes.byref(found))
    return found.value


def cuda_flags(runtime):
    """The compiler's options for CUDA's headers, of the runtime's major version: functions change between those."""
    version = _version_of(runtime)
    if version < OLDEST_CUDA:
        raise Error(f"weir: the CUDA runtime {runtime} is {_version_text(version)}, and weir needs "
                    f"{_version_text(OLDEST_CUDA)} or later; install a PyTorch or CuPy for a later CUDA")
    others = {}  # each is named once
    for place in _cuda_places():
        include = place / "include"
        both = (include, place.parent / "cuda_nvcc/include")  # the second: CUDA 12's wheels
        crt = next((each for each in both if (each / "crt/host_defines.h").exists()), None)
        if crt is None or not (include / "cuda_runtime_api.h").exists():
            continue
        text = (include / "cuda_runtime_api.h").read_text(errors="replace")
        found = int((re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text) or [0, 0])[1])
        if found // 1000 == version // 1000:
            return ["-isystem", str(include)] + (["-isystem", str(crt)] if crt != include else [])
        others[f"; {include} has those of {_version_text(found)}"] = True
    wheels = "nvidia-cuda-nvcc-cu12 nvidia-cuda-runtime-cu12" if version < 13000 else "nvidia-cuda-crt nvidia-cuda-runtime"
    raise Error(f"weir: there are no headers of CUDA {version // 1000}, which this process uses ({runtime}){''.join(others)}. "
                f"Run 'pip install {wheels}', or set CUDA_HOME to a toolkit of that version")


def cuda_runtime():
    """The CUDA runtime that the process uses already; otherwise one that is installed."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                if "/libcudart.so" in line:
                    return pathlib.Path(line.split(maxsplit=5)[5].strip())
    except OSError:
        pass
    for place in _cuda_places():
        for folder in ("lib", "lib64"):
            for found in sorted((place / folder).glob("libcudart.so*")):
                return found
    raise Error("weir: there is no libcudart.so; import PyTorch or CuPy first, or set CUDA_HOME to a CUDA toolkit")


def cache_folder():
    """Where libraries are kept, made if need be."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    top = os.environ.get("WEIR_CACHE") or os.path.join(home, "weir")
    try:
        os.makedirs(top, exist_ok=True)
    except OSError as error:
        raise Error(f"weir: the folder {top} for what is built cannot be made ({error.strerror}); set WEIR_CACHE to another "
                    "one") from None
    return pathlib.Path(top)


def _fingerprint(command, folders, others=()):
    """Names what comes out of the command: it, the compiler's version and the files that it may read. Of other libraries'
    headers a file that changes with the version is enough."""
    seen = hashlib.sha256(repr(command).encode())
    try:
        seen.update(subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        raise Error(f"weir: there is no compiler '{command[0]}' to build the plug-in with; install g++, or set CXX to "
                    "another") from None
    for folder in folders:
        for path in sorted(folder.rglob("*.[ch]pp")):
            seen.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    for path in others:
        seen.update(path.read_bytes())
    return seen.hexdigest()[:16]


def build(pool="device_pool", flags=()):
    """Compiles the library for a pool unless that was done before; returns its path.

    flags: more options of the compiler and linker, such as PyTorch's folders. Blocks for about ten seconds the first time; of
    several processes one compiles. Raises Error.
    """
    if pool not in POOLS:
        raise Error(f"weir: there is no pool '{pool}' for Python; there are: {', '.join(POOLS)}")
    include = weir_include()
    runtime = cuda_runtime()
    headers = cuda_flags(runtime)
    compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    command = [*compiler, "-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
               f"-DWEIR_PLUGIN_POOL={pool}", f"-I{include}", *headers,
               str(HERE / "plugin.cpp"), *flags, str(runtime), f"-Wl,-rpath,{runtime.parent}"]
    folder = cache_folder()
    name = _fingerprint(command, [include / "weir", HERE], [pathlib.Path(headers[1]) / "cuda_runtime_api.h"])
    library = folder / f"{pool}-{name}.so"
    if library.exists():
        return library
    try:
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile(command, library)
    except OSError as error:
        raise Error(f"weir: the plug-in cannot be written to {folder} ({error.strerror}); set WEIR_CACHE to another folder"
                    ) from None
    return library


def _compile(command, library):
    """What comes out is there as a whole or not at all."""
    fresh = library.with_suffix(f".{os.getpid()}")
    try:
        done = subprocess.run(command + ["-o", str(fresh)], capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise Error("weir: the plug-in was not compiled:\n" + "\n".join(done.stderr.splitlines()[:20]) +
                        "\nThe command was:\n" + " ".join(command))
        os.replace(fresh, library)
    finally:
        fresh.unlink(missing_ok=True)


class Plugin:
    """A loaded library. `device`: a device's number; ALL_DEVICES where a method says so. Any thread."""

    def __init__(self, path, pool):
        self.path = path
        self.pool = pool
        self.limit = None
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise Error(f"weir: the plug-in was built and cannot be loaded: {error}") from None
        size, number, pointer = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
        figures = ctypes.POINTER(ctypes.c_ulonglong)
        for name, result, arguments in (
                ("configure", number, (size, ctypes.c_char_p)), ("error", ctypes.c_char_p, ()),
                ("try_allocate", pointer, (size, number, pointer)), ("try_allocate_sync", pointer, (size, number, pointer)),
                ("deallocate", None, (pointer, size, number, pointer)), ("state", number, (number, figures)),
                ("report", ctypes.c_char_p, (number,)), ("reset_peak", number, (number,)),
                ("trim", number, (number, size, figures)), ("suspend", number, (number, number, figures)),
                ("resume", number, (number,))):
            function = getattr(self.library, "weir_" + name)
            function.restype, function.argtypes = result, arguments

    def address(self, name):
        """The address of the function weir_NAME, for a library that calls it itself."""
        return ctypes.cast(getattr(self.library, "weir_" + name), ctypes.c_void_p).value

    def _call(self, name, *arguments):
        if getattr(self.library, "weir_" + name)(*arguments) != 0:
            raise Error(self.library.weir_error().decode())

    def _given(self, name, *arguments):
        given = ctypes.c_ulonglong()
        self._call(name, *arguments, ctypes.byref(given))
        return given.value

    def configure(self, limit=None, name="python"):
        """The most bytes that each device's pool may hold, and its name in reports. Before the first allocation."""
        self._call("configure", limit_of(limit), name.encode())
        self.limit = None if limit is None else bytes_of(limit)

    def allocate(self, size, device, stream=None):
        """The address of a block for work on `stream` (a handle; None: one that no enqueued work uses). Raises OutOfMemory."""
        if stream is None:
            found = self.library.weir_try_allocate_sync(size, device, None)
        else:
            found = self.library.weir_try_allocate(size, device, stream)
        if not found and size:
            text = self.library.weir_error().decode()
            raise (OutOfMemory if "out of memory" in text else Error)(text)
        return found or 0

    def deallocate(self, address, size, device, stream):
        """Frees a block on `stream`, behind the work that is enqueued there. Never blocks."""
        self.library.weir_deallocate(address, size, device, stream)

    def state(self, device=0):
        """A dict of figures; zeroes before the first allocation on the device.

        requested_bytes: what was asked for and is not freed; in_use_bytes: the same with rounding; reserved_bytes: what is held
        from the device; peak_requested_bytes and peak_reserved_bytes: their greatest values since the last reset_peak;
        limit_bytes: the most that may be reserved, None without a limit; live_blocks: blocks that are not freed; total_blocks:
        all that were ever allocated; chunks: pieces that the device gave; lost_bytes: what is not handed out again.
        """
        figures = (ctypes.c_ulonglong * len(FIGURES))()
        self._call("state", device, figures)
        now = dict(zip(FIGURES, figures))
        if now["limit_bytes"] in (0, NO_LIMIT):  # 0: this device has no pool yet
            now["limit_bytes"] = self.limit if now["limit_bytes"] == 0 else None
        return now

    def peak(self, device=0):
        """The most bytes that were requested and reserved since the last reset_peak."""
        now = self.state(device)
        return {name: now[name] for name in ("peak_requested_bytes", "peak_reserved_bytes")}

    def reset_peak(self, device=ALL_DEVICES):
        """The peaks become what is in use now."""
        self._call("reset_peak", device)

    def report(self, device=0):
        """What the pool says of itself, with its largest blocks."""
        found = self.library.weir_report(device)
        if found is None:
            raise Error(self.library.weir_error().decode())
        return found.decode()

    def trim(self, keep=0, device=ALL_DEVICES):
        """Gives free memory back to the device until `keep` bytes are held. Blocks until freed memory is unused. Returns the
        bytes given back."""
        return self._given("trim", device, bytes_of(keep) if keep else 0)

    def suspend(self, keep=True, device=ALL_DEVICES):
        """Gives all memory back to the device; every address stays valid. keep: contents go to pinned host memory, or are lost.
        No work may use the memory before `resume`. Blocks. Returns the bytes given back."""
        return self._given("suspend", device, int(keep))

    def resume(self, device=ALL_DEVICES):
        """Ends `suspend`. Blocks. Raises Error if the device has no room; call it again once there is."""
        self._call("resume", device)


def load(pool="device_pool", limit=None, name="python", flags=()):
    """The plug-in for a pool, built if need be and loaded once a process. Raises Error, also where the process has one for the
    same pool that was built with other flags: there would be two pools."""
    limit_of(limit)
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


def join(pool="device_pool", limit=None, name="python"):
    """As `load`, but if PyTorch loaded a plug-in for this pool, that one: both then allocate from the same memory."""
    with _lock:
        found = next((each for each in _loaded.values() if each.pool == pool), None)
    if found is None:
        return load(pool, limit, name)
    if limit is not None:
        found.configure(limit, name)
    return found
