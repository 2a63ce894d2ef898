#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What of examples/python can be tested without a GPU and without PyTorch.

usage: run.py [CASE...]

Python, g++, CUDA's headers and pybind11 are enough: the plug-in is built against the simulated device, which stands in for
cudart, and against a stand-in for PyTorch (stand_ins/). torch_calls.cpp then calls it as PyTorch does, and so does
torch_campaign.cpp, at random: a little here, and by hand for long ('build/python/torch_campaign 1000 2000'). Each case is a
process of its own. WEIR_TORCH, an interpreter that has PyTorch with CUDA: with_torch.py runs, too. gpu.py is for the rest.
"""

import ast
import json
import os
import pathlib
import re
import sys
import tarfile
import tempfile
import types
import warnings
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/checks"), str(ROOT / "examples/python"), str(HERE / "stand_ins")]
from workshop import BUILD, WARNINGS, ccache, close_with, cuda_include, run, say, tail, turn  # noqa: E402

FOLDER = BUILD / "python"
SIMULATED = FOLDER / "libcudart.so"  # by this name the plug-in's build finds it among what the process has loaded
MIB = 1 << 20


def simulated_device():
    """Builds the simulated device as a shared library: a complaint or ''."""
    sources = ROOT / "tests/simulated_cuda"
    listed = (sources / "CMakeLists.txt").read_text().split("STATIC")[1].split(")")[0].split()
    unit = FOLDER / "simulated_device.cpp"
    alone = "not_modelled.cpp" # defines functions that the others declare otherwise
    unit.write_text("".join(f'#include "{sources / each}"\n' for each in listed if each != alone))
    done = run(["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-pthread", f"-I{sources / 'include'}", f"-I{ROOT / 'include'}",
                "-isystem", cuda_include(), unit, sources / alone, "-ldl", "-o", SIMULATED])
    return tail(done.output) if done.code else ""


def stand_in_for_torch():
    """Lays out the headers and the library of the stand-in for PyTorch: a complaint or ''."""
    top, ours = FOLDER / "torch", HERE / "stand_ins/torch"
    (top / "lib").mkdir(parents=True, exist_ok=True)
    if not (top / "include").exists():
        os.symlink(ours / "include", top / "include")
    done = run(["g++", "-std=c++17", "-fPIC", "-shared", ours / "c10.cpp", "-o", top / "lib/libc10.so"])
    return tail(done.output) if done.code else ""


def loaded():
    """weir_plugin, in a process that has a CUDA runtime."""
    import ctypes
    import weir_plugin
    ctypes.CDLL(str(SIMULATED), mode=ctypes.RTLD_GLOBAL)
    return weir_plugin


def weir_torch():
    """weir_torch over the stand-in for PyTorch."""
    loaded()
    import torch
    torch.__file__ = str(FOLDER / "torch/__init__.py")  # its headers and its libc10 lie there
    import weir_torch
    return weir_torch


def refused(act, *parts):
    """act() has to raise weir's Error with these parts in its text."""
    from weir_plugin import Error
    try:
        act()
    except Error as error:
        for part in parts:
            assert part in str(error), f"'{part}' is not in: {error}"
        return
    raise AssertionError("nothing was refused")


# ---- cases ------------------------------------------------------------------------------------------------------------

def case_sizes():
    weir_plugin = loaded()
    for size, wanted in (("70 GiB", 70 << 30), ("1.5MiB", 3 << 19), ("2 kb", 2048), (4096, 4096), ("4096", 4096),
                         ("70G", 70 << 30), ("70GB", 70 << 30), ("512m", 512 << 20),
                         ("2T", 2 << 40), ("18446744073709551615", weir_plugin.NO_LIMIT), (None, weir_plugin.NO_LIMIT)):
        assert weir_plugin.bytes_of(size) == wanted, (size, weir_plugin.bytes_of(size))
    for size in ("", "many", "5 XB", "-1 GiB", "1 2", 0, -5, 0.5, float("nan"), b"1 GiB"):
        refused(lambda: weir_plugin.bytes_of(size), "is no size", "'70 GiB'")
    for limit in (70, "70", 0.9, 0, -5, "1 MiB"):
        refused(lambda: weir_plugin.limit_of(limit), f"a limit of {limit} bytes leaves no room", "'70 GiB'")
    assert weir_plugin.limit_of("70 GiB") == 70 << 30 and weir_plugin.limit_of(None) == weir_plugin.NO_LIMIT


def case_unknown_pool():
    for name in ("pool", "_pool", "", "Device", "device_pool_pool"):
        refused(lambda: loaded().load(name), f"no pool '{name}'", "device_pool, promised_device_pool, compact_device_pool")


def case_short_names():
    weir_plugin = loaded()
    for pool in weir_plugin.POOLS:
        assert weir_plugin.pool_of(pool) == weir_plugin.pool_of(pool.replace("_pool", "")) == pool
    known = (ROOT / "include/weir/make_pool.hpp").read_text()
    assert all(f'Required>("{pool[:-5]}")' in known for pool in weir_plugin.POOLS), "make_pool has other names"


def case_no_compiler():
    weir_plugin = loaded()
    os.environ["CXX"] = "no-such-compiler"
    refused(weir_plugin.build, "no compiler 'no-such-compiler'", "install g++")


def case_compiler_with_options():
    weir_plugin = loaded()
    os.environ["CXX"] = "env -u NOTHING g++ -DONE='a b'"
    refused(lambda: weir_plugin.build(flags=["-include", "no_such.hpp"]), "no_such.hpp",
            "env -u NOTHING g++ '-DONE=a b' -std")


def case_no_headers():
    weir_plugin = loaded()
    os.environ["WEIR_INCLUDE"] = "/nowhere"
    refused(weir_plugin.build, "no weir/weir.hpp in /nowhere", "WEIR_INCLUDE")
    del os.environ["WEIR_INCLUDE"]
    with tempfile.TemporaryDirectory() as place:
        here = weir_plugin.building.HERE = pathlib.Path(place).resolve() / "weir_plugin"
        for inside in ("weir_plugin/include", "include", "."):  # of a package; beside a copy, either way
            header = here.parent / inside / "weir/weir.hpp"
            header.parent.mkdir(parents=True)
            header.touch()
            assert weir_plugin.weir_include() == header.parents[1], weir_plugin.weir_include()
            header.unlink()
    weir_plugin.building.HERE = pathlib.Path("/app/weir_plugin")  # not deep enough for a repository
    refused(weir_plugin.build, "no weir/weir.hpp in the folders around /app/weir_plugin", "WEIR_INCLUDE")


def case_no_runtime():
    import weir_plugin  # in a process without one
    with tempfile.TemporaryDirectory() as place:
        top = pathlib.Path(place)
        weir_plugin.building._cuda_places = lambda: [top]
        for home, part in (("", "no libcudart.so; import"), (place, f"no libcudart.so, also not in CUDA_HOME, {place}; ")):
            os.environ["CUDA_HOME"] = home
            refused(weir_plugin.build, part, "set CUDA_HOME to a CUDA toolkit")
        (top / "lib64").mkdir()
        (top / "lib64/libcudart.so.13").write_text("no library")
        refused(weir_plugin.build, f"{place}/lib64/libcudart.so.13 cannot be loaded")


def case_cuda_headers():
    """Headers of the runtime's major version are taken, in one folder or in the two of CUDA 12's wheels; no others."""
    weir_plugin = loaded()
    with tempfile.TemporaryDirectory() as place:
        top = pathlib.Path(place)
        for folder, version in (("cuda_runtime", 12080), ("cu13", 13020), ("both", 12090), ("elsewhere/half", 13000)):
            (top / folder / "include").mkdir(parents=True)
            (top / folder / "include/cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n")
        for folder in ("cuda_nvcc", "cu13", "both"):
            (top / folder / "include/crt").mkdir(parents=True)
            (top / folder / "include/crt/host_defines.h").write_text("")
        runtime, places = top / "libcudart.so", []
        weir_plugin.building._cuda_places = lambda: [top / each for each in places]
        for version, listed, taken in ((12080, ["cuda_runtime"], ["cuda_runtime", "cuda_nvcc"]),
                                       (12080, ["cu13", "both"], ["both"]), (13050, ["both", "nowhere", "cu13"], ["cu13"])):
            weir_plugin.building._version_of = lambda _: version
            places[:] = listed
            wanted = [word for each in taken for word in ("-isystem", str(top / each / "include"))]
            assert weir_plugin.cuda_flags(runtime) == wanted, weir_plugin.cuda_flags(runtime)
        for version, listed, parts in ((13000, ["both"], ("headers of CUDA 13", "has those of 12.9", "nvidia-cuda-crt")),
                                       (12080, ["cu13"], ("headers of CUDA 12", "has those of 13.2", "nvidia-cuda-nvcc-cu12")),
                                       (13000, [], ("headers of CUDA 13", "CUDA_HOME")),
                                       (13000, ["elsewhere/half"], ("half/include lacks crt/host_defines.h",)),
                                       (13000, ["gone"], (f"CUDA_HOME is {top / 'gone'}, which holds no include/cuda",)),
                                       (12060, ["both"], ("is 12.6", "12.8 or later"))):
            weir_plugin.building._version_of = lambda _: version
            places[:] = listed
            os.environ["CUDA_HOME"] = str(top / "gone")
            refused(lambda: weir_plugin.cuda_flags(runtime), *parts)


def case_no_cache():
    weir_plugin = loaded()
    os.environ["WEIR_CACHE"] = str(SIMULATED / "inside of a file")
    refused(weir_plugin.build, "cannot be made", "WEIR_CACHE")
    with tempfile.TemporaryDirectory() as place:
        os.environ["WEIR_CACHE"] = place
        weir_plugin.building._digest = lambda *_: "known"
        (pathlib.Path(place) / "device_pool-known.lock").mkdir()  # nothing can be written to it
        refused(weir_plugin.build, "cannot be written", "WEIR_CACHE")
        built = pathlib.Path(place) / "device_pool-known.so"
        built.touch()
        assert weir_plugin.build() == built, "what is there is not taken"


def case_not_compiled():
    weir_plugin = loaded()
    refused(lambda: weir_plugin.build(flags=["-include", "no_such.hpp"]), "was not compiled", "no_such.hpp", "The command was")


def case_built_once():
    weir_plugin = loaded()
    flags = weir_torch()._flags()
    first = weir_plugin.build("device_pool", flags)
    before = first.stat().st_mtime_ns
    assert weir_plugin.build("device_pool", flags) == first and first.stat().st_mtime_ns == before, "it was compiled again"
    os.environ["PATH"] = os.environ["CUDA_HOME"] = "/nowhere"
    assert weir_plugin.build("device", flags) == first, "a compiler is needed for what is there"
    elsewhere = [word.replace(str(FOLDER), "/elsewhere") for word in flags]
    assert elsewhere != flags and weir_plugin.build("device", elsewhere) == first, "the folder of PyTorch counts"
    with tempfile.TemporaryDirectory() as place:
        folder, digest = pathlib.Path(place), weir_plugin.building._digest
        (folder / "a.hpp").write_text("int a;\n")
        marks = [digest(["g++"], [folder]), digest(["g++", "-O3"], [folder])]
        (folder / "a.hpp").write_text("int b;\n")
        marks += [digest(["g++"], [folder])]
        assert len(set(marks)) == 3, "an option or an edit is not seen"


def case_named_plugin():
    """WEIR_PLUGIN: what it names is taken if it is what is wanted, and nothing is built."""
    weir_plugin = loaded()
    weir = weir_torch()
    import torch
    built = weir.build("device")
    os.environ["PATH"] = os.environ["CUDA_HOME"] = os.environ["WEIR_CACHE"] = os.environ["WEIR_INCLUDE"] = "/nowhere"
    with tempfile.TemporaryDirectory() as place:
        named = pathlib.Path(place).resolve() / "named.so"
        os.environ["WEIR_PLUGIN"] = str(named)
        refused(weir.build, f"WEIR_PLUGIN names {named}, which cannot be read", "python3 -m weir_torch build")
        for content in ("", "something else"):
            named.write_text(content)
            refused(weir.build, "cannot be read" if not content else "no plug-in of weir")
        named.write_bytes(built.read_bytes())
        assert weir.build() == weir.build("device") == named
        refused(lambda: weir.build("compact_device"), "built for device_pool, PyTorch 2.11.0, CUDA 13",
                "one for compact_device_pool", "weir_torch build --pool compact_device_pool")
        refused(weir_plugin.build, "built for device_pool, PyTorch 2.11.0", "needs one for device_pool, no PyTorch")
        torch.__version__ = "2.11.1"
        refused(weir.use, "built for device_pool, PyTorch 2.11.0", "needs one for device_pool, PyTorch 2.11.1")
        assert torch.current is None
        torch.__version__ = "2.11.0"
        weir.use(limit="1 GiB")
        assert weir._used.path == named and weir.state()["limit_bytes"] == 1 << 30


def case_first_compile():
    """stderr tells of it and where it goes; of several processes one compiles, and nothing but the library stays."""
    weir_plugin = loaded()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        os.environ["WEIR_CACHE"] = str(folder / "cache")
        compiler = folder / "compiler"
        compiler.write_text(f'#!/bin/sh\necho compiled >>{folder}/log\nwhile [ $# -gt 1 ]; do shift; done\necho built >"$1"\n')
        compiler.chmod(0o755)
        os.environ["CXX"] = str(compiler)
        reader, writer = os.pipe()
        children = []
        for _ in range(4):
            if (child := os.fork()) == 0:
                os.dup2(writer, 2)
                os._exit(0 if weir_plugin.build("compact_device").read_text() == "built\n" else 1)
            children.append(child)
        os.close(writer)
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)
        with os.fdopen(reader) as source:
            said = source.read()
        assert said.startswith("weir: compiling the plug-in for compact_device_pool, no PyTorch, CUDA 13") and \
            said.endswith(f"it is kept in {folder}/cache\n") and said.count("\n") == 1, said
        assert (folder / "log").read_text() == "compiled\n"
        assert [each.suffix for each in (folder / "cache").iterdir()] == [".so"], list((folder / "cache").iterdir())


def case_functions():
    weir_plugin = loaded()
    plugin = weir_plugin.load("device_pool", "64 MiB", "tested", weir_torch()._flags())
    assert plugin.state() == {**dict.fromkeys(weir_plugin.FIGURES, 0), "limit_bytes": 64 * MIB}, plugin.state()
    assert plugin.report() == "nothing was allocated yet"
    first, second = plugin.allocate(1000, 0, 0), plugin.allocate(10 * MIB, 0)
    now = plugin.state()
    assert now["requested_bytes"] == 10 * MIB + 1000 and now["live_blocks"] == 2 and now["limit_bytes"] == 64 * MIB, now
    assert "pool 'tested:0' (device)" in plugin.report() and "10 MiB at 0x" in plugin.report(), plugin.report()
    assert plugin.allocate(0, 0, 0) == 0
    try:
        plugin.allocate(100 * MIB, 0, 0)
        raise AssertionError("more than the limit was handed out")
    except weir_plugin.OutOfMemory as error:
        assert "weir: out of memory: pool 'tested:0'" in str(error) and isinstance(error, MemoryError), error
    refused(lambda: plugin.allocate(1000, 7, 0), "no device 7")
    refused(lambda: plugin.configure("32 MiB"), "before the first allocation")
    plugin.deallocate(first, 1000, 0, 0)
    plugin.deallocate(second, 10 * MIB, 0, 1)
    assert plugin.peak()["peak_requested_bytes"] == 10 * MIB + 1000, plugin.peak()
    held = plugin.state()["reserved_bytes"]
    assert plugin.peak()["peak_reserved_bytes"] == held, plugin.peak()
    assert plugin.trim() == held and plugin.state()["reserved_bytes"] == 0, plugin.report()
    plugin.reset_peak()
    assert set(plugin.peak().values()) == {0}, plugin.peak()
    assert weir_plugin.join("device_pool") is plugin and weir_plugin.load("device_pool", flags=weir_torch()._flags()) is plugin


def case_suspend():
    weir_plugin = loaded()
    plugin = weir_plugin.load("device_pool", flags=weir_torch()._flags())
    assert plugin.state()["limit_bytes"] is None, plugin.state()
    block = plugin.allocate(8 * MIB, 0, 0)
    assert plugin.state()["limit_bytes"] is None, plugin.state()
    assert plugin.suspend() >= 8 * MIB and "suspended" in plugin.report(), plugin.report()
    refused(lambda: plugin.allocate(1000, 0, 0), "the pool is suspended")
    plugin.resume()
    assert plugin.suspend(keep=False) >= 8 * MIB
    plugin.resume()
    plugin.deallocate(block, 8 * MIB, 0, 0)


def read_recording(path):
    """A recording's events: (kind, bytes, stream, frames of Python), the innermost frame first as (file, function)."""
    program = FOLDER / "read_recording"
    if not program.exists():
        done = run(["g++", "-std=c++17", "-O0", *WARNINGS, f"-I{ROOT / 'include'}", HERE / "read_recording.cpp", "-o", program])
        assert done.code == 0, done.output
    done = run([program, path])
    assert done.code == 0, done.output
    lines = done.output.splitlines()
    assert " 0 lost, ''," in lines[0], lines[0]
    for kind, _, size, _, stream, *frames in map(str.split, lines[1:]):
        yield int(kind), int(size), stream, [(each.split(":")[0].rpartition("/")[2], each.split(":")[-1]) for each in frames]


def case_recording():
    plugin = loaded().load("device_pool", "64 MiB", "tested", weir_torch()._flags())
    path = FOLDER / "recording.weir"
    before = plugin.allocate(1000, 0, 0)
    with plugin.record(path) as made:
        first = plugin.allocate(3000, 0, 2)
        refused(lambda: plugin.allocate(100 * MIB, 0, 0), "out of memory")
        made.flush()
        assert len(list(read_recording(path))) == 2
        refused(lambda: plugin.record(path), "a recording already", "recording.weir")
        plugin.deallocate(first, 3000, 0, 2)
        plugin.library.weir_scope(b"step", 1)
    plugin.deallocate(before, 1000, 0, 0)  # when it has ended
    allocate, free, refuse, scope = 1, 2, 3, 25
    events = list(read_recording(path))
    assert [each[:3] for each in events] == [(allocate, 3000, "2"), (refuse, 100 * MIB, "1"), (free, 3000, "2"),
                                             (scope, 0, "0")], events
    assert events[0][3][:2] == [("__init__.py", "allocate"), ("run.py", "case_recording")], events[0]
    assert events[1][3][:3] == [("__init__.py", "allocate"), ("run.py", "<lambda>"), ("run.py", "refused")], events[1]
    bare = plugin.record(path, stacks=False)
    plugin.deallocate(plugin.allocate(10 * MIB, 0), 10 * MIB, 0, 0)
    bare.end()
    bare.end()  # it has ended
    assert [each for each in read_recording(path) if each[0] in (allocate, free)] == [(allocate, 10 * MIB, "0", []), (free, 10 * MIB, "1", [])]
    refused(lambda: plugin.record(FOLDER / "no such/folder"), "cannot be made", "another path")
    full = plugin.record("/dev/full")
    refused(full.flush, "cannot be written to")
    refused(full.end, "cannot be written to")
    plugin.record(path).end()  # and it goes on


def case_use():
    weir = weir_torch()
    import torch
    refused(weir.state, "call weir_torch.use first")
    refused(lambda: weir.use(shares=True), "need PyTorch 2.11 or later, with its headers", "'.cpu()'")
    weir.use("device_pool", limit="1 GiB")
    assert torch.current.names == ("weir_allocate", "weir_deallocate"), torch.current.names
    wanted = {setter: weir._used.address(function) for setter, function in weir.SETTERS.items()}
    assert torch.current.inner.set == wanted and all(wanted.values()), torch.current.inner.set
    weir.use("device_pool", limit="2 GiB")
    refused(lambda: weir.use("compact_device_pool"), "device_pool already", "restart the kernel")
    weir.use()  # and without a limit: it stays
    refused(weir.pool, "weir_torch.use")
    assert weir.state()["requested_bytes"] == 0 and weir.trim() == 0
    weir._used.allocate(1000, 0, 0)
    assert weir.state()["limit_bytes"] == 2 << 30, weir.report()
    weir.use("device_pool")  # leaves the limit as it is
    assert weir.peak()["peak_requested_bytes"] == 1000, weir.peak()
    weir.reset_peak()
    given = weir.suspend()
    assert given >= 2 * MIB, f"{given}; {weir.report()}"
    weir.resume()
    weir.use("device_pool", limit="2 GiB")
    assert weir.state("cuda:0") == weir.state(0) == weir.state("cuda") == weir.state(), weir.state()
    refused(lambda: weir.state("cpu"), "cpu is no device", "'cuda:0'")


# What stands for the program that looks for advice. 'then' has the peak, the mean, driver calls, calls that wait, and streams' waits.
SEARCH = """#!/bin/sh
[ -s "$1" ] && [ "$2" = device_pool ] || { printf 'refused\\tno allocations\\n'; exit 1; }
printf 'pool\\tdevice_pool\\t17\\t104857600\\t52428800\\t10\\t5\\t3\\n'
printf 'advice\\tlimit\\tweir::pool_options{}.limit(60 MiB), as fast\\t41943040\\t0\\t62914560\\t62914560\\t1\\t10\\t5\\t1\\n'
printf 'advice\\trecipe\\tweir::compact_device_pool\\t31457280\\t0\\t0\\t73400320\\t1\\t1210\\t6\\t3\\n'
printf "advice\\tpart_end\\ttrim() where 'step' ends\\t26214400\\t1\\t0\\t104857600\\t1\\t10\\t5\\t3\\n"
printf 'tried\\tlimits\\nuntried\\tweir::frame_pool was not tried: %s\\n' "$3"
"""


def case_advice():
    """weir_torch.advise: what it refuses, what it builds and how often, and what it says."""
    weir = weir_torch()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        os.environ["WEIR_CACHE"] = str(folder / "cache")
        other, cut = folder / "other.weir", folder / "cut.weir"
        other.write_text("no recording")
        cut.write_bytes(b"\x89weir\r\n\x1a")
        os.environ["CXX"] = "no-such-compiler"
        refused(weir.advise, "nothing was recorded here", "weir_torch.record('run.weir')")
        refused(lambda: weir.advise(folder / "gone.weir"), "gone.weir cannot be read (No such file", "weir_torch.record wrote")
        refused(lambda: weir.advise(other), "other.weir is no recording of weir's", "replay --advice")
        refused(lambda: weir.advise(cut, "pinned"), "no pool 'pinned'")
        refused(lambda: weir.advise(cut, limit=5), "leaves no room")
        refused(lambda: weir.advise(cut), "no compiler 'no-such-compiler' to build the search for advice", "install g++")
        compiler, search = folder / "compiler", folder / "search"
        search.write_text(SEARCH)
        compiler.write_text(f'#!/bin/sh\necho "$@" >>{folder}/log\nwhile [ $# -gt 1 ]; do shift; done\ncp {search} "$1"\nchmod +x "$1"\n')
        compiler.chmod(0o755)
        os.environ["CXX"] = str(compiler)
        refused(lambda: weir.advise(cut, "compact_device"), "no allocations")
        found = weir.advise(cut, limit="128 MiB")
        commands = (folder / "log").read_text().splitlines()
        assert len(commands) == 14 and " -c " not in commands[-1], commands
        assert [each.name for each in (folder / "cache").iterdir()] == [weir.weir_plugin.building.build_search().name]
        assert len(found) == 3 and found[0].kind == "limit" and found[0].saved_bytes == 40 * MIB and found[0].stream_waits == -2
        assert str(found) == ("device_pool holds 100.0 MiB at the peak and 50.0 MiB on average; each change was tried, in 17 replays\n  "
                              "saves 40.0 MiB at the peak (40.0 %), for no more calls or waits, 2 fewer waits of a stream for another: "
                              "weir_torch.use(limit='60 MiB'), as fast\n  "
                              "saves 30.0 MiB at the peak (30.0 %), for 1,200 more driver calls, 1 more calls that wait: "
                              "weir_torch.use('compact_device_pool')\n  "
                              "saves 25.0 MiB on average (50.0 %), for no more calls or waits: weir_torch.trim() where 'step' ends\n  "
                              f"weir::frame_pool was not tried: {128 * MIB}"), str(found)
        search.write_text("#!/bin/sh\nexit 9\n")
        os.environ["CXX"] = f"{compiler} -DANOTHER"
        refused(lambda: weir.advise(cut), "ended with 9 and no answer")


def case_advice_of_the_last_recording():
    """Which recording, pool and limit count where none is named."""
    weir = weir_torch()
    weir.weir_plugin.advise = lambda path, pool, limit: (os.path.getsize(path) > 100, os.path.basename(path), pool, limit)
    assert weir.advise(__file__) == (True, "run.py", "device_pool", None)
    weir.use(limit="64 MiB")
    with tempfile.TemporaryDirectory() as place:
        with weir.record(os.path.join(place, "one.weir")):
            weir._plugin().allocate(MIB, 0, 0)
            assert weir.advise() == (True, "one.weir", "device_pool", 64 * MIB), "it is not written, or 'use' does not count"
        weir.record(os.path.join(place, "two.weir"))
        weir.record(None)
        assert weir.advise(limit="1G")[1:] == ("two.weir", "device_pool", "1G")
        assert weir.advise(pool="compact_device", path="/dev/null")[1:] == ("null", "compact_device", 64 * MIB)


def case_advice_is_built():
    """The same with the real search."""
    plugin = loaded().load("device_pool", None, "tested", weir_torch()._flags())
    path = FOLDER / "advice.weir"
    os.environ["CXX"] = " ".join([*ccache(), "g++"])
    with plugin.record(path):
        for number in range(8):
            held = [(plugin.allocate(size * MIB, 0, 0), size * MIB) for size in (40, 3, 40 - 4 * number)]
            for address, size in held:
                plugin.deallocate(address, size, 0, 0)
    found = weir_torch().weir_plugin.advise(path, "device")
    assert found.pool == "device_pool" and found.peak_bytes >= 83 * MIB and found.replays >= 4, found  # as it is, two recipes, a limit
    assert {"limits", "weir::compact_device_pool"} <= set(found.tried), found.tried
    assert any("handover::wait_first was not tried: the program has one stream" in each for each in found.untried), found
    plugin.record(path).end()
    refused(lambda: weir_torch().weir_plugin.advise(path, "device"), "has no allocations", "record the program again")


def case_statistics():
    """What PyTorch makes memory_allocated and its like of; without `use` it is PyTorch's own."""
    weir = weir_torch()
    import torch
    before = torch._C._cuda_memoryStats
    weir.pool()
    assert torch._C._cuda_memoryStats is before
    weir = weir_torch()
    weir.use("compact_device_pool")
    block = weir._used.allocate(1000, 0, 0)
    weir._used.deallocate(weir._used.allocate(2000, 0, 0), 2000, 0, 0)
    now, reserved = torch._C._cuda_memoryStats(0), weir.state()["reserved_bytes"]
    assert now["allocated_bytes"] == {"all": {"current": 1000, "peak": 3000}}, now
    assert now["reserved_bytes"] == {"all": {"current": reserved, "peak": reserved}} and reserved > 0, now
    assert now["allocation"] == {"all": {"current": 1, "allocated": 2}}, now
    torch._C._cuda_resetPeakMemoryStats(0)
    assert torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"] == 1000
    assert torch.cuda.memory_summary() == torch.cuda.memory.memory_summary(0, abbreviated=True) == weir.report()
    weir._used.deallocate(block, 1000, 0, 0)


def case_cupy_before_pytorch():
    """A plug-in without PyTorch's exception was there first; the other way round it is shared."""
    weir = weir_torch()
    first = weir.weir_plugin.join("device_pool")
    refused(weir.use, "has a device_pool already", "weir_torch.use before weir_cupy.use")
    weir.use("compact_device_pool")
    assert weir.weir_plugin.join("compact_device_pool") is weir._used and weir.weir_plugin.join("device_pool") is first


def case_program_words():
    """Which words are options and which the program's; a '--' of the program's stays."""
    weir_torch()
    from weir_torch import program
    for words, own, named in (("a.py --pool x -m y", "", "a.py --pool x -m y"), ("--pool x a.py -h", "--pool x", "a.py -h"),
                              ("--pool=x -m mod -- -c", "--pool=x", "-m mod -- -c"), ("-mmod a", "", "-m mod a"),
                              ("-c pass -- b", "", "-c pass -- b"), ("--limit 1G -- a.py -- b", "--limit 1G", "a.py -- b"),
                              ("--shares a.py --shares", "--shares", "a.py --shares"),
                              ("-h a.py", "-h", "a.py"), ("--pool", "--pool", ""), ("-- -m mod", "", "-m mod"), ("", "", "")):
        assert program.split(words.split()) == (own.split(), named.split()), (words, program.split(words.split()))
    for words, wrong in (("", "no program is named"), ("-m", "no program is named"), ("-c", "no program is named"),
                         ("-m no_such_module", "no module no_such_module"), ("-m no_such.module", "no module no_such.module"),
                         ("-m json.tool", ""), ("-c pass", ""), ("gone.py", "no program gone.py"), (__file__, "")):
        said = program.missing(words.split())
        assert wrong in said and bool(wrong) == bool(said), (words, said)
    for words, name in (("a/b.py c", "b.py"), ("-m mod c", "-m mod"), ("-c pass", "-c pass")):
        assert program.title(words.split()) == name


def case_run_a_program():
    """python3 -m weir_torch: a file, a module or a text runs as python3 runs it."""
    weir = weir_torch()
    import torch
    from weir_torch.__main__ import main as start
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "beside.py").write_text("word = 'beside'\n")
        told = "import beside, sys, torch\ntorch.told = beside.word, sys.argv[1:], __name__\nname = sys.argv[0]\n"
        (folder / "program.py").write_text(told)
        for words, text in ((["--pool", "pinned", "program.py"], "no pool 'pinned'"), (["gone.py"], "no program"),
                            (["--limit", "5", "program.py"], "leaves no room")):
            try:
                start([*words[:-1], str(folder / words[-1])])
                raise AssertionError(f"{words} was not refused")
            except SystemExit as end:
                assert text in str(end.code), end.code
        assert torch.current is None
        for words, beginning in ((["--pool", "device", "--limit", "1G", str(folder / "program.py")], folder / "program.py"),
                                 (["-m", "program"], folder / "program.py"), (["-c", told], "-c")):
            start([*words, "--limit", "--", "2"])
            assert torch.told == ("beside", ["--limit", "--", "2"], "__main__"), torch.told
        start(["-c", "import sys, torch; torch.told = sys.argv[0], sys.modules['__main__'].__dict__ is globals()"])
        assert torch.told == ("-c", True), torch.told
        assert weir.state()["limit_bytes"] == 1 << 30, weir.state()


def case_command_line():
    """--help without PyTorch; what 'build' prints; and what is refused without it."""
    weir = weir_torch()
    none = FOLDER / "no_torch"
    none.mkdir(exist_ok=True)
    (none / "torch.py").write_text("raise ModuleNotFoundError('nothing', name='torch')\n")  # wherever this runs
    os.environ["PYTHONPATH"] = f"{none}:{ROOT / 'examples/python'}"
    for module, words, code, parts in (
            ("weir_torch", ["--help"], 0, ["-m MODULE", "--limit SIZE", "build [--pool POOL]", "advise [--pool POOL]", "--shares"]),
            ("weir_torch", ["advise", "/gone.weir"], 1, ["the recording /gone.weir cannot be read"]),
            ("weir_torch.compare", ["-h"], 0, ["--timeout SECONDS", "--allocators NAMES"]),
            ("weir_torch", ["-c", "pass"], 1, ["there is no PyTorch here"]),
            ("weir_torch", ["build"], 1, ["there is no PyTorch here"]),
            ("weir_torch.compare", ["-c", "pass"], 1, ["there is no PyTorch here"])):
        done = run([sys.executable, "-m", module, *words])
        assert done.code == code and all(part in done.output for part in parts), (module, words, done.code, done.output)
        assert code == 0 or done.output.count("\n") == 1, done.output
    import contextlib
    import io
    from weir_torch.__main__ import main
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        main(["build", "--pool", "device"])
        for words in (["build", "x.py"], ["build", "--limit", "1G"], ["advise"], ["advise", "a", "b"], ["advise", "--shares", "a"]):
            try:
                main(words)
                raise AssertionError(f"{words} was taken")
            except SystemExit as end:
                assert end.code == 2, end
    assert out.getvalue() == f"{weir.build()}\n" and err.getvalue().count("nothing else") == 5, (out.getvalue(), err.getvalue())


def case_compare_words():
    weir_torch()
    import xml.dom.minidom
    from weir_torch import compare
    runs = [{"needed_mib": 50000.0, "held_mib": held, "seconds": 3.0, "steps": 2, "losses": ["2.5", "1.5"], "step_ms": step,
             "error": None} for held, step in ((70000.0, 1234.5), (60000.0, 1230.5))]
    first = compare.row_of("default", runs)
    assert (first.needed_mib, first.held_mib, first.time_text, first.losses) == (50000, 70000, "1232.50 ms", "2.5 1.5"), first
    rows = [first, compare.row_of("expandable", [{**runs[0], "error": "no room", "step_ms": None}]),
            compare.row_of("device_pool", [{"error": "no room", "wrote": "much"}]),
            compare.row_of("compact_device_pool", [{**runs[0], "needed_mib": 0.0, "held_mib": 0.0}])]
    assert (rows[1].time_text, rows[1].error, rows[2].held_mib, rows[2].time_text) == ("3.0 s in all", "no room", None, "-")
    lines = compare.table(rows).splitlines()
    assert len(lines) == 5 and "50,000      70,000" in lines[1] and lines[3].endswith("FAILED: no room"), lines
    assert lines[4].endswith("allocated no device memory"), lines
    drawn = compare.picture(rows, "<" + 90 * "&" + "train.py")
    xml.dom.minidom.parseString(drawn)
    assert drawn.count("<text") == 9 and "70,000 MiB, 1232.50 ms<" in drawn and drawn.count("&amp;") == 39, drawn
    for words in ("--rounds 0 x.py", "--steps -1 x.py", "--limit 70 x.py", "--timeout -1 x.py", "--timeout nan x.py",
                  "--allocators default,pinned x.py", "", "--rounds", "-m"):
        try:
            compare.main(words.split())
            raise AssertionError(f"'{words}' was taken")
        except SystemExit as end:
            assert end.code == 2 or words == "-m" and "no program is named" in end.code, (words, end)
    options = compare.parsed("--steps 5 --allocators expandable,device,device_pool x.py --steps 7".split())
    assert (options.steps, options.words) == (5, ["x.py", "--steps", "7"]), options
    assert options.allocators == ["expandable", "device_pool"], options


def case_compare_verdict():
    weir_torch()
    from weir_torch.verdict import Row, verdict

    def row(allocator, held, *times, error="", has_steps=True):
        return Row(allocator, held, held, list(times), has_steps, "", error)
    default, expandable = row("default", 1000.0, 10.0, 10.1), row("expandable", 565.0, 10.0, 10.1)
    half = "device_pool holds 50 % less than PyTorch's default"
    for rows, wanted in (
            ([default, row("device_pool", 560.0, 10.1, 10.2)],
             "device_pool holds 44 % less than PyTorch's default and is as fast."),
            ([default, expandable, row("device_pool", 560.0, 10.1, 10.2)],
             "device_pool holds 44 % less than PyTorch's default and is as fast; it holds as much as PyTorch's expandable "
             "segments and is as fast."),
            ([expandable, row("device_pool", 678.0, 11.0, 11.1)],
             "device_pool holds 20 % more than PyTorch's expandable segments and is 10 % slower."),
            ([row("default", 1000.0, 10.0), row("device_pool", 500.0, 5.0)],
             f"{half} and is 50 % faster (in a single round)."),
            ([row("default", 1000.0, 10.0, 12.0), row("device_pool", 500.0, 12.5, 12.6)],  # the rounds of one differ by as much
             f"{half} and is as fast."),
            ([row("default", 1000.0, 10.0, has_steps=False), row("device_pool", 500.0, 10.9, has_steps=False)],
             f"{half} and is as fast."),
            ([default, row("device_pool", 500.0, 10.9, has_steps=False)], f"{half}."),
            ([default, row("compact_device_pool", 250.0, 10.0), row("device_pool", 500.0, 10.0)],
             f"{half} and is as fast; compact_device_pool holds 50 % less than device_pool and is as fast."),
            ([row("default", None, error="no room"), row("device_pool", 500.0, 10.0)],
             "device_pool runs what PyTorch's default fails at."),
            ([default, expandable, row("device_pool", None, error="no room")],
             "device_pool failed, and PyTorch's default and PyTorch's expandable segments did not."),
            ([row("default", None, error="no"), row("device_pool", None, error="no")],
             "device_pool failed, and so did PyTorch's allocators."),
            ([row("default", 0.0, 1.0), row("device_pool", 0.0, 1.0)],
             "The program allocated no device memory: there is nothing to compare."),
            ([default, expandable], "No pool of weir's was run, so there is no verdict."),
            ([row("device_pool", 500.0, 10.0)], "No allocator of PyTorch's was run, so there is no verdict.")):
        assert verdict(rows) == wanted, f"{verdict(rows)}\nand not\n{wanted}"
    from readme import matches
    from weir_torch.compare import table
    rows = [row("default", 22946.0, 165.0, 175.0), row("expandable", 12732.0, 177.0, 201.0),
            row("device_pool", 12746.0, 153.0, 183.0)]
    for each in rows:
        each.needed_mib = 0.0  # left out there
    page = (ROOT / "examples/python/README.md").read_text()
    sample = re.search(r"<!-- sample: compare -->\n```text\n(.*?)```", page, re.S)[1]
    printed = f"{table(rows)}\n{verdict(rows)}\nthe picture is in weir-compare.svg\n"
    assert matches(printed, sample), printed


def case_mem_pool():
    weir = weir_torch()
    made = weir.pool("device_pool", limit="1 GiB", no_split=True)
    assert made.options == {"no_split": True} and made.weir_allocator.names == ("weir_try_allocate_sync", "weir_deallocate")
    assert made.weir.state()["requested_bytes"] == 0


def case_use_too_late():
    weir = weir_torch()
    import torch
    torch.initialized = True
    refused(weir.use, "has used CUDA already", "restart the kernel", "weir_torch.pool")


def case_other_versions_of_pytorch():
    weir = weir_torch()
    import torch
    torch.version.cuda = None
    refused(weir.use, "without CUDA")
    torch.version.cuda = "13.0"
    torch.Inner.lacks = ("set_record_stream_fn",)
    refused(weir.use, "no set_record_stream_fn", "PyTorch 2.11")
    torch.Inner.lacks = ()
    torch.__version__ = "2.99.1"
    weir.weir_plugin._loaded.clear()  # as in another process
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        weir.use()
    assert len(told) == 1 and "2.15; this is 2.99.1" in str(told[0].message), told


def case_pytorch_without_headers():
    weir = weir_torch()
    import torch
    torch.__file__ = "/nowhere/torch/__init__.py"
    refused(weir.use, "without its headers")


def case_pybind11_module():
    """The binding of README.md: its capsule's fields, and who owns the array."""
    weir_plugin = loaded()
    import ctypes
    import sysconfig
    sys.path.append(str(BUILD / "pybind11"))
    import pybind11
    built = run(["g++", "-std=c++17", "-O1", *WARNINGS, "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG",
                 f"-I{ROOT / 'include'}", "-isystem", pybind11.get_include(), "-isystem", sysconfig.get_paths()["include"],
                 *weir_plugin.cuda_flags(SIMULATED), HERE / "pybind11_module.cpp", SIMULATED, "-o", FOLDER / "mymodule.so"])
    assert built.code == 0, built.output
    sys.path.insert(0, str(FOLDER))
    import mymodule
    array = mymodule.Array(3)
    assert array.__dlpack_device__() == (2, 0)
    for call in (lambda: array.__dlpack__(), lambda: array.__dlpack__(stream=1, max_version=None)):
        try:
            call()
            raise AssertionError("an old consumer was served")
        except BufferError as error:
            assert "version 1" in str(error)
    capsule = array.__dlpack__(stream=1, max_version=(1, 0), dl_device=None, copy=None)
    find = ctypes.pythonapi.PyCapsule_GetPointer
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    words = (ctypes.c_uint64 * 10).from_address(find(capsule, b"dltensor_versioned"))
    # version; owner, deleter, flags, address; kind of memory and device; dimensions and type; shape, strides, offset
    assert words[0] == 1 and words[3] == 0 and words[5] == 2 and words[6] == 1 | (2 | 32 << 8 | 1 << 16) << 32, list(words)
    assert [ctypes.c_int64.from_address(words[each]).value for each in (7, 8)] == [3, 1] and words[9] == 0, list(words)
    assert mymodule.live_blocks() == 1
    del capsule
    assert mymodule.live_blocks() == 0, "a capsule that nobody takes keeps the array"
    try:
        array.__dlpack__(max_version=(1, 0))
        raise AssertionError("the array was given twice")
    except BufferError as error:
        assert "given away" in str(error)
    assert mymodule.first_of(mymodule.Array(5)) == 2.0 and mymodule.live_blocks() == 0
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    kept = mymodule.Array(1).__dlpack__(max_version=(1, 0))
    major_version = ctypes.c_uint32.from_address(find(kept, b"dltensor_versioned"))
    major_version.value = 2
    for given, kind in ((make(1, b"dltensor", None), ValueError), (kept, RuntimeError)):  # Python's own refusal, and weir's
        try:
            mymodule.first_of(type("Other", (), {"__dlpack__": lambda self, **_: given})())
            raise AssertionError(f"{given} was taken")
        except kind:
            pass
    major_version.value = 1
    del kept, given
    assert mymodule.live_blocks() == 0, "what was refused is not the capsule's"


def case_compare_runs():
    weir = weir_torch()
    from weir_torch import compare
    os.environ["PYTHONPATH"] = str(HERE / "stand_ins")
    options = types.SimpleNamespace(steps=2, limit=None, timeout=0, words=[])
    head = "import os, sys, torch\nfrom torch.optim.optimizer import Optimizer\nTensor, step = torch.Tensor, Optimizer().step\n"
    step = "Tensor(1.5).backward(); Tensor(1j).backward(); Tensor(1.0, 2.0).backward(); step()\n"
    asks = "; ".join(f"weir_torch.{name}()" for name in ("peak", "reset_peak", "report", "trim", "suspend", "resume"))
    peaks = {"error": None, "held_mib": 5.0, "needed_mib": 3.0}
    rows = (("steps and losses", 3 * step, {"steps": 2, "losses": ["1.500000"] * 2, **peaks}),
            ("arguments", "assert sys.argv[1:] == ['--steps', '--', '--one'], sys.argv", {"error": None, "steps": 0}),
            ("a capture", "torch.capturing = True; Tensor(1.0).backward()", {"error": None, "losses": []}),
            ("an error", step + "raise ValueError('no\\nidea')", {"error": "ValueError: no", "steps": 1}),
            ("exit 0", "sys.exit(0)", {"error": None}),
            ("exit 3", "sys.exit(3)", {"error": "it ended with 3"}),
            ("its own end", "print('done', flush=True); os._exit(0)", {"error": "it ended by itself, with status 0"}),
            ("bytes", "sys.stdout.buffer.write(bytes([255]))", {"error": None}),
            ("elsewhere", "os.chdir('/')", {"error": None}),
            ("peaks set back",
             "torch.cuda.reset_peak_memory_stats(); assert torch.cuda.max_memory_reserved() < 5 << 20", peaks),
            ("weir_torch by itself", "import weir_torch; weir_torch.use(limit='1G')\n"
             f"{asks}; print(weir_torch.state()['reserved_bytes'])",
             {"error": None, "called_use": True, "wrote": str(2 << 20)}),
            ("no weir_torch", "", {"error": None, "called_use": False}),
            ("no end", "import signal\nprint('begun', flush=True)\nwhile True: signal.pause()",
             {"error": "it was ended after 0.01 s (--timeout)"}))
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for number, (name, text, wanted) in enumerate(rows):
            program = f"program {number}.py"
            pathlib.Path(program).write_text(head + text)
            options.words, options.timeout = [program, "--steps", "--", "--one"], 0.01 if name == "no end" else 0
            found = compare.run("default", options)
            assert wanted.items() <= found.items(), (name, found)
        os.environ["PYTHONPATH"] += f":{ROOT / 'examples/python'}"
        command = [sys.executable, "-m", "weir_torch.compare", "--allocators", "expandable,default"]
        for words, code, parts in (
                (["program 0.py"], 0, ["No pool of weir", "3           5", "1.500000 1.500000", "the picture is in"]),
                (["program 10.py"], 0, ["that call was skipped"]),
                (["-c", "import torch; torch.held = 0"], 0, ["allocated no device memory"]),
                (["--rounds", "2", "-m", "json.gone"], 1, ["no module json.gone"]),
                (["program 5.py"], 1, ["FAILED: it ended with 3"])):
            done = run([*command, *words])
            assert done.code == code and all(part in done.output for part in parts), (words, done.code, done.output)
        os.environ["STAND_IN_GPUS"] = "0"
        done = run([*command, "program 0.py"])
        assert done.code == 1 and done.output.startswith("weir: PyTorch finds no GPU here"), done.output
        assert "round" not in done.output, done.output


def modules():
    """The files of Python that are installed."""
    return sorted(path for path in (ROOT / "examples/python").glob("weir_*/*.py"))


def case_package():
    """What pyproject.toml says of the package; and each function that a user may call says its types."""
    told = (ROOT / "examples/python/pyproject.toml").read_text()
    version = re.search(r"project\(weir VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert f'version = "{version}"' in told and 'name = "weir-torch"' in told, told
    for folder in {path.parent for path in modules()}:
        assert (folder / "py.typed").exists(), f"{folder} has no py.typed"
    for path in modules():
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.FunctionDef):
                arguments = each.args.posonlyargs + each.args.args + each.args.kwonlyargs
                bare = [one.arg for one in arguments if not one.annotation and one.arg != "self"]
                assert not bare and each.returns, f"{path.name}: {each.name} does not say the types of {bare or 'its result'}"


def sentences():
    """What the modules say, with '...' where something is put in."""
    for path in modules():
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "..." for part in each.values)
            elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value


def sentences_of_cpp():
    """All that the plug-in's C++ says, in one text: literals that lie side by side are one."""
    whole = "".join(path.read_text() for path in sorted((ROOT / "examples/python").glob("weir_plugin/**/*.[ch]pp"))
                    if "include" not in path.parts)
    literals = re.findall(r'"(?:[^"\n]*"\s*")*[^"\n]*"', re.sub(r"//.*", "", whole))
    return "\n".join(re.sub(r'"\s*"', "", each) for each in literals)


def case_page():
    """README.md's sentences are said, and its samples are what is printed."""
    from readme import matches
    page = (ROOT / "examples/python/README.md").read_text()
    said, compiled = list(sentences()), sentences_of_cpp()
    quoted = [found[1] for found in re.findall(r"(['\"])(weir: [^|]*?)\1(?=,| \|)", page)]
    assert len(quoted) > 10, quoted
    for each in quoted:
        assert any(each in one for one in said) or all(part in compiled for part in each.split("...")), f"nobody says: {each}"
    samples = dict(re.findall(r"<!-- sample: ([\w ]+) -->\n```text\n(.*?)```", page, flags=re.S))
    for part in re.split(r"\d+(?:\.\d+)? (?:GiB|MiB|bytes)|\.\.\. GiB|torch:0|\b\d\b|\. ",
                         samples["error"].strip()):  # the rest of it is with_torch.py's
        assert part.strip("., ") in compiled, f"nobody says: {part}"
    plugin = loaded().load("device_pool", "64 MiB", "torch", weir_torch()._flags())
    for size in (40 * MIB, 1000):
        plugin.allocate(size, 0, 0)
    assert matches(plugin.report() + "\n", samples["report"]), plugin.report()
    refused(lambda: plugin.allocate(100 * MIB, 0, 0), "weir: out of memory")
    try:
        plugin.allocate(100 * MIB, 0, 0)
    except MemoryError as error:
        assert matches(f"{error}\n", samples["their error"]), error


def case_wheel():
    """'pip install' of the folder, and of the archive of sources that is made from it, is whole: headers inside, and what was
    built for the repository's modules is found by the installed ones."""
    sys.path.append(str(BUILD / "hatchling"))
    try:
        from hatchling import build
    except ImportError as error:
        return print(f"left out: there is no hatchling here to build a wheel with ({error})")
    flags = weir_torch()._flags()
    built = loaded().build("device_pool", flags)
    with tempfile.TemporaryDirectory() as place:
        top = pathlib.Path(place)
        os.chdir(ROOT / "examples/python")
        wheel = top / build.build_wheel(place)
        with tarfile.open(top / build.build_sdist(place)) as archive:
            archive.extractall(top / "sources")
        os.chdir(next((top / "sources").iterdir()))
        (top / "again").mkdir()
        again = top / "again" / build.build_wheel(str(top / "again"))
        names = [zipfile.ZipFile(each).namelist() for each in (wheel, again)]
        assert sorted(names[0]) == sorted(names[1]), set(names[0]) ^ set(names[1])
        headers = {f"weir_plugin/{path.relative_to(ROOT)}" for path in (ROOT / "include").rglob("*.[ch]*")}
        ours = ROOT / "examples/python"
        inside = {path.relative_to(ours).as_posix() for path in ours.glob("weir_*/**/*")
                  if path.suffix in (".py", ".cpp", ".hpp", ".typed")}
        wanted = headers | inside | {"weir_plugin/include/LICENSE"}
        replay, device = ROOT / "examples/replay", ROOT / "tests/simulated_cuda"
        wanted |= {f"weir_plugin/include/replay/{path.relative_to(replay)}" for path in replay.rglob("*.[ch]pp")} | {
            f"weir_plugin/include/simulated_cuda/{path.relative_to(device)}" for path in device.rglob("*.[ch]*")}
        assert wanted <= set(names[0]), wanted - set(names[0])
        zipfile.ZipFile(wheel).extractall(top / "installed")
        ask = (f"import ctypes, weir_plugin; ctypes.CDLL({str(SIMULATED)!r}); print(weir_plugin.weir_include()); "
               f"print(weir_plugin.build('device', {flags!r})); b = weir_plugin.building; "
               "print(b._beside_headers('replay', 'examples'), b._beside_headers('simulated_cuda', 'tests'))")
        done = run([sys.executable, "-c", ask], cwd="/", env={**os.environ, "PYTHONPATH": str(top / "installed")})
        own = f"{(top / 'installed').resolve()}/weir_plugin/include"
        assert done.output == f"{own}\n{built}\n{own}/replay {own}/simulated_cuda\n", (done.output, built)


def case_calls_that_were_cut_off():
    """What PyTorch's calls answer where one ends the process, and then the clock does."""
    import call_by_call
    import workshop
    call_by_call.NAMES[:], ended = ["a", "b", "c", "d", "e"], {"answer": None, "failed": call_by_call.ENDED}

    def ran(words):
        _, _, file, first, *_ = words
        now = {"a": {"answer": 1}, "b": ended} if first == "a" else {"c": {"answer": 2}, "d": ended}
        file.write_text(json.dumps(now))
        return workshop.Ran(-11, "a fault") if first == "a" else workshop.Ran(None, "(ended after 9 s)")

    with tempfile.TemporaryDirectory() as place:
        found, left, complaint = call_by_call.answers(ran, "weir", pathlib.Path(place), [])
    assert left == ["d", "e"] and complaint == "" and list(found) == ["a", "b", "c"], (found, left, complaint)
    assert found["b"]["failed"] == call_by_call.ENDED + ":\na fault", found


CASES = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}


def caller(name):
    """Builds a program that calls the plug-in as PyTorch does: its path and ''; or None and a complaint."""
    loaded()
    library = weir_torch().weir_plugin.build("device_pool", weir_torch()._flags())
    program = FOLDER / name
    done = run(["g++", "-std=c++17", "-O0", *WARNINGS, "-pthread", f"-I{ROOT / 'include'}", "-isystem",
                ROOT / "tests/simulated_cuda/include", "-isystem", HERE / "stand_ins/torch/include", "-isystem", cuda_include(),
                HERE / f"{name}.cpp", library, SIMULATED, FOLDER / "torch/lib/libc10.so", "-o", program])
    return (None, tail(done.output)) if done.code else (program, "")


def result(name, command):
    say(name)
    done = run(command)
    if not done.code and done.output.startswith("left out: "):
        print(f"{name} was {done.output}", end="", flush=True)
    return name, tail(done.output) or f"exit status {done.code}" if done.code else ""


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["WEIR_CACHE"] = str(FOLDER / "cache")
    if sys.argv[1:2] == ["--in-this-process"]:
        return CASES[sys.argv[2]]()
    wanted = sys.argv[1:]
    complaint = simulated_device() or stand_in_for_torch()
    if complaint:
        close_with([("what stands in for CUDA and PyTorch", complaint)])
    results, commands = [], {}
    for name in ("torch_calls", "torch_campaign"):
        program, complaint = caller(name)
        if complaint:
            results.append((f"{name}.cpp", complaint))
        elif name == "torch_calls":
            commands |= {case: [program, case] for case in run([program]).output.split()}
        else:
            commands[name] = [program]
    commands |= {name: [sys.executable, __file__, "--in-this-process", name] for name in CASES}
    if not wanted and turn(6):
        del commands["advice_is_built"]
        print("advice_is_built is left out: it compiles for a minute, on each sixth commit ('run.py advice_is_built')", flush=True)
    results += [result(name, command) for name, command in commands.items() if not wanted or name in wanted]
    if not wanted and os.environ.get("WEIR_TORCH"):
        import with_torch
        results += with_torch.results(os.environ["WEIR_TORCH"], [])
    elif not wanted:
        print("with_torch.py is left out: WEIR_TORCH names no Python that has PyTorch", flush=True)
    close_with(results)


if __name__ == "__main__":
    main()
