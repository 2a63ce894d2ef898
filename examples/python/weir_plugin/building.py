# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the plug-in for a pool, and the program that looks for advice, or compiles them.

What is looked for is named by what it is built for and of: the pool, PyTorch's version, CUDA's version, the sources, CXX. Which
compiler there is and in which folders PyTorch and CUDA lie does not count, so that a plug-in which is built already needs no
compiler and no headers of CUDA.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import mmap
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Callable, Dict, Iterator, List, Sequence

from .words import Error, pool_of

HERE = pathlib.Path(__file__).resolve().parent
OLDEST_CUDA = 12080


def weir_include() -> pathlib.Path:
    """The folder that holds weir/weir.hpp: of an installed package, of weir's repository, or beside a copy of this folder."""
    named = os.environ.get("WEIR_INCLUDE")
    around = [HERE / "include", *(above / "include" for above in list(HERE.parents)[2:3]), HERE.parent / "include", HERE.parent]
    for place in [pathlib.Path(named)] if named else around:
        if (place / "weir/weir.hpp").exists():
            return place.resolve()
    raise Error(f"weir: there is no weir/weir.hpp in {named or 'the folders around ' + str(HERE)}; set WEIR_INCLUDE to the "
                "folder 'include' of weir")


def _cuda_places() -> Iterator[pathlib.Path]:
    """Folders that may hold CUDA's 'include' and 'lib', the likeliest first."""
    if os.environ.get("CUDA_HOME"):
        yield pathlib.Path(os.environ["CUDA_HOME"])
    wheels = importlib.util.find_spec("nvidia")
    for top in (wheels.submodule_search_locations or []) if wheels else []:
        yield from sorted(pathlib.Path(top).glob("cu[0-9]*"), reverse=True)
        yield pathlib.Path(top) / "cuda_runtime"
    compiler = shutil.which("nvcc")
    if compiler:
        yield pathlib.Path(compiler).resolve().parents[1]
    yield pathlib.Path("/usr/local/cuda")


def _version_text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _version_of(runtime: pathlib.Path) -> int:
    """A CUDA runtime's version, 13000 for 13.0. The runtime is loaded then."""
    found = ctypes.c_int()
    try:
        ctypes.CDLL(str(runtime)).cudaRuntimeGetVersion(ctypes.byref(found))
    except OSError as error:
        raise Error(f"weir: the CUDA runtime {runtime} cannot be loaded: {error}") from None
    return found.value


def _checked_version(runtime: pathlib.Path) -> int:
    version = _version_of(runtime)
    if version < OLDEST_CUDA:
        raise Error(f"weir: the CUDA runtime {runtime} is {_version_text(version)}, and weir needs "
                    f"{_version_text(OLDEST_CUDA)} or later; install a PyTorch or CuPy for a later CUDA")
    return version


def cuda_flags(runtime: pathlib.Path) -> List[str]:
    """The compiler's options for CUDA's headers, of the runtime's major version: functions change between those."""
    version = _checked_version(runtime)
    others: Dict[str, bool] = {}  # each is named once
    for place in _cuda_places():
        include = place / "include"
        both = (include, place.parent / "cuda_nvcc/include")  # the second: CUDA 12's wheels
        crt = next((each for each in both if (each / "crt/host_defines.h").exists()), None)
        if not (include / "cuda_runtime_api.h").exists():
            if str(place) == os.environ.get("CUDA_HOME"):
                others[f"; CUDA_HOME is {place}, which holds no include/cuda_runtime_api.h"] = True
            continue
        if crt is None:
            others[f"; {include} lacks crt/host_defines.h"] = True
            continue
        text = (include / "cuda_runtime_api.h").read_text(errors="replace")
        stated = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
        found = int(stated[1]) if stated else 0
        if found // 1000 == version // 1000:
            return ["-isystem", str(include)] + (["-isystem", str(crt)] if crt != include else [])
        others[f"; {include} has those of {_version_text(found)}"] = True
    wheels = "nvidia-cuda-nvcc-cu12 nvidia-cuda-runtime-cu12" if version < 13000 else "nvidia-cuda-crt nvidia-cuda-runtime"
    raise Error(f"weir: there are no headers of CUDA {version // 1000}, which this process uses ({runtime}){''.join(others)}. "
                f"Run 'pip install {wheels}', or set CUDA_HOME to a toolkit of that version")


def cuda_runtime() -> pathlib.Path:
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
    home = os.environ.get("CUDA_HOME")
    raise Error(f"weir: there is no libcudart.so{f', also not in CUDA_HOME, {home}' if home else ''}; import PyTorch or CuPy "
                "first, or set CUDA_HOME to a CUDA toolkit")


def cache_folder() -> pathlib.Path:
    """Where libraries are kept, made if need be."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    top = os.environ.get("WEIR_CACHE") or os.path.join(home, "weir")
    try:
        os.makedirs(top, exist_ok=True)
    except OSError as error:
        raise Error(f"weir: the folder {top} for what is built cannot be made ({error.strerror}); set WEIR_CACHE to another "
                    "one") from None
    return pathlib.Path(top)


def _digest(parts: Sequence[object], folders: Sequence[pathlib.Path]) -> str:
    """Names these words together with the C++ that lies in the folders."""
    seen = hashlib.sha256(repr(parts).encode())
    for folder in folders:
        for path in sorted(folder.rglob("*.[ch]pp")):
            inside = path.relative_to(folder).as_posix()
            if not inside.startswith("include/"):  # weir's own headers, in an installed package: they are a folder of their own
                seen.update(inside.encode() + b"\0" + path.read_bytes())
    return seen.hexdigest()[:16]


def _without_folders(flags: Sequence[str]) -> List[str]:
    """What lies in a folder has its version beside it; and once PyTorch is loaded, nobody looks into its folder again."""
    return [word for word in flags if os.sep not in word]


def _built_for(pool: str, flags: Sequence[str], version: int) -> str:
    """What a plug-in must have been built for to be taken, in words. The last one stands for the sources beside weir's headers,
    and for options: they make the functions that are called here."""
    torch = [word.partition("=")[2] for word in flags if word.startswith("-DWEIR_PLUGIN_TORCH=")]
    return (f"{pool}, {'PyTorch ' + torch[0] if torch else 'no PyTorch'}, CUDA {version // 1000}, "
            f"sources {_digest(_without_folders(flags), [HERE])[:8]}")


def _named(path: str, wanted: str) -> pathlib.Path:
    """WEIR_PLUGIN's file, if it is what is wanted."""
    found = None
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = re.search(rb"weir plug-in: ([ -~]+)\0", content)
            said = found[1].decode() if found else ""
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise Error(f"weir: WEIR_PLUGIN names {path}, which cannot be read ({error}); 'python3 -m weir_torch build' makes such "
                    "a file and prints its name") from None
    if said != wanted:
        raise Error(f"weir: WEIR_PLUGIN names {path}, which is {'built for ' + said if said else 'no plug-in of weir'}; this "
                    f"process needs one for {wanted}. Build that with 'python3 -m weir_torch build --pool "
                    f"{wanted.partition(',')[0]}', or unset WEIR_PLUGIN")
    return pathlib.Path(path).resolve()


def build(pool: str = "device_pool", flags: Sequence[str] = ()) -> pathlib.Path:
    """The path of the library for a pool: WEIR_PLUGIN, or one of before; otherwise it is compiled, which stderr then says.

    flags: more options of the compiler and linker, and more sources, such as PyTorch's folders. Blocks for about ten seconds
    the first time; of several processes one compiles. Raises Error.
    """
    pool = pool_of(pool)
    runtime = cuda_runtime()
    version = _checked_version(runtime)
    wanted = _built_for(pool, flags, version)
    if os.environ.get("WEIR_PLUGIN"):
        return _named(os.environ["WEIR_PLUGIN"], wanted)
    include = weir_include()
    compiler = _compiler()
    name = _digest([wanted, compiler, version, platform.machine(), platform.libc_ver()], [include / "weir"])
    library = cache_folder() / f"{pool}-{name}.so"
    if library.exists():
        return library
    _require(compiler, "the plug-in", "build it elsewhere with 'python3 -m weir_torch build' and set WEIR_PLUGIN to its file")
    command = [*compiler, "-std=c++17", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
               f"-DWEIR_PLUGIN_POOL={pool}", f'-DWEIR_PLUGIN_BUILT_FOR="{wanted}"', f"-I{include}", *cuda_flags(runtime),
               str(HERE / "plugin.cpp"), str(HERE / "origin.cpp"), *flags, str(runtime), f"-Wl,-rpath,{runtime.parent}"]
    return _made_once(library, "the plug-in", f"weir: compiling the plug-in for {wanted}, once, in about ten seconds",
                      lambda fresh: _run([*command, "-o", str(fresh)], "the plug-in"))


# What examples/replay/advice_search is made of beside its own file.
_SEARCH = ("advice", "fits", "lives", "own_parts", "program", "recorded_trace", "runner", "text", "tried_pool", "weir_pools")


def _beside_headers(name: str, above: str) -> pathlib.Path:
    """A folder of C++ that an installed package has beside weir's headers, and weir's repository in the folder `above`."""
    for place in (HERE / "include" / name, *(top / above / name for top in list(HERE.parents)[2:3])):
        if place.exists():
            return place.resolve()
    raise Error(f"weir: there is no folder {name} around {HERE}, which the search for advice is built of; install the package "
                "weir-torch, or use this folder where weir's repository has it")


def build_search() -> pathlib.Path:
    """The program that looks for advice, compiled if need be, which stderr then says. Blocks for up to a minute the first time. It
    runs on weir's simulated device, and needs no GPU. Raises Error."""
    include, replay, device = weir_include(), _beside_headers("replay", "examples"), _beside_headers("simulated_cuda", "tests")
    runtime = cuda_runtime()
    compiler, search = _compiler(), replay / "advice_search/main.cpp"
    name = _digest([compiler, _checked_version(runtime), platform.machine(), platform.libc_ver()],
                   [include / "weir", replay, device, device / "include"])
    program = cache_folder() / f"advice-{name}"
    if program.exists():
        return program
    _require(compiler, "the search for advice", "take the recording to another machine, and call weir_torch.advise there")
    sources = [search, *(replay / f"{each}.cpp" for each in _SEARCH)]
    command = [*compiler, "-std=c++17", "-O1", "-DNDEBUG", "-DWEIR_SIMULATED_CUDA=1", "-pthread", f"-I{include}", f"-I{replay}",
               "-isystem", str(device / "include"), *cuda_flags(runtime)]

    def make(fresh: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory(dir=fresh.parent) as place:
            sources.extend(_units_of_device(device, pathlib.Path(place)))
            objects = [f"{place}/{number}.o" for number in range(len(sources))]
            with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:  # each waits for a compiler
                list(threads.map(lambda one: _run([*command, "-c", str(one[0]), "-o", one[1]], "the search for advice"),
                                 zip(sources, objects)))
            _run([*command, *objects, "-ldl", "-o", str(fresh)], "the search for advice")

    return _made_once(program, "the search for advice", "weir: compiling the search for advice, once, in up to a minute", make)


def _units_of_device(device: pathlib.Path, place: pathlib.Path) -> List[pathlib.Path]:
    """What is compiled for the simulated device: one file of nearly all, which takes a fifth of the time. CMake's list says which."""
    listed = (device / "CMakeLists.txt").read_text().split("STATIC")[1].split(")")[0].split()
    alone = "not_modelled.cpp"  # defines functions that the others declare otherwise
    whole = place / "simulated_device.cpp"
    whole.write_text("".join(f'#include "{device / each}"\n' for each in listed if each != alone))
    return [whole, device / alone]


def _compiler() -> List[str]:
    return shlex.split(os.environ.get("CXX", "")) or ["g++"]


def _require(compiler: List[str], what: str, otherwise: str) -> None:
    if not shutil.which(compiler[0]):
        raise Error(f"weir: there is no compiler '{compiler[0]}' to build {what} with; install g++, or set CXX to another, or "
                    f"{otherwise}")


def _made_once(library: pathlib.Path, what: str, telling: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """The library, which make(a name for it) makes if it is not there: as a whole or not at all, and in one process."""
    fresh = library.with_suffix(f".{os.getpid()}")
    try:
        with _locked(library.with_suffix(".lock")):
            if not library.exists():
                print(f"{telling}; it is kept in {library.parent}", file=sys.stderr, flush=True)
                try:
                    make(fresh)
                    os.replace(fresh, library)
                finally:
                    fresh.unlink(missing_ok=True)
    except OSError as error:
        raise Error(f"weir: {what} cannot be written to {library.parent} ({error.strerror}); set WEIR_CACHE to another "
                    "folder") from None
    return library


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """One process at a time, so that one compiles and the others find the library. Without locks, as on some file systems of
    clusters, each compiles for itself, which does no harm."""
    with open(path, "w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()  # whoever waits for it still finds the library, and so does who comes now


def _run(command: List[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise Error(f"weir: {what} was not compiled:\n" + "\n".join(done.stderr.splitlines()[:20]) +
                    "\nThe command was:\n" + shlex.join(command))
