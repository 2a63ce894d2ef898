#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What of examples/python can be tested without a GPU and without PyTorch.

usage: run.py [CASE...]

Python, g++, CUDA's headers and pybind11 are enough: the plug-in is built against the simulated device, which stands in for
cudart, and against a stand-in for PyTorch (stand_ins/). torch_calls.cpp then calls it as PyTorch does, and so does
torch_campaign.cpp, at random: a little here, and by hand for long ('build/python/torch_campaign 1000 2000'). Each case is a
process of its own. WEIR_TORCH, an interpreter that has PyTorch with CUDA: with_torch.py runs, too. gpu.py is for the rest.
"""

import os
import pathlib
import sys
import tempfile
import types
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/checks"), str(ROOT / "examples/python"), str(HERE / "stand_ins")]
from workshop import BUILD, WARNINGS, close_with, cuda_include, run, say, tail  # noqa: E402

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
    for size, wanted in (("70 GiB", 70 << 30), ("1.5MiB", 3 << 19), ("2 kb", 2000), (4096, 4096), ("4096", 4096),
                         (None, weir_plugin.NO_LIMIT)):
        assert weir_plugin.bytes_of(size) == wanted, (size, weir_plugin.bytes_of(size))
    for size in ("", "many", "5 XB", "-1 GiB", "1 2", 0, -5, 0.5, float("nan"), b"1 GiB"):
        refused(lambda: weir_plugin.bytes_of(size), "is no size", "'70 GiB'")
    for limit in (70, "70", 0.9, 0, -5, "1 MiB"):
        refused(lambda: weir_plugin.limit_of(limit), f"a limit of {limit} bytes leaves no room", "'70 GiB'")
    assert weir_plugin.limit_of("70 GiB") == 70 << 30 and weir_plugin.limit_of(None) == weir_plugin.NO_LIMIT


def case_unknown_pool():
    refused(lambda: loaded().load("pool"), "no pool 'pool'", "device_pool, promised_device_pool, compact_device_pool")


def case_no_compiler():
    weir_plugin = loaded()
    os.environ["CXX"] = "no-such-compiler"
    refused(weir_plugin.build, "no compiler 'no-such-compiler'", "install g++")


def case_compiler_with_options():
    weir_plugin = loaded()
    os.environ["CXX"] = "env -u NOTHING g++ -DONE='a b'"
    refused(lambda: weir_plugin.build(flags=["-include", "no_such.hpp"]), "no_such.hpp", "env -u NOTHING g++ -DONE=a b -std")


def case_no_headers():
    weir_plugin = loaded()
    os.environ["WEIR_INCLUDE"] = "/nowhere"
    refused(weir_plugin.build, "no weir/weir.hpp in /nowhere", "WEIR_INCLUDE")


def case_cuda_headers():
    """Headers of the runtime's major version are taken, in one folder or in the two of CUDA 12's wheels; no others."""
    weir_plugin = loaded()
    with tempfile.TemporaryDirectory() as place:
        top = pathlib.Path(place)
        for folder, version in (("cuda_runtime", 12080), ("cu13", 13020), ("both", 12090)):
            (top / folder / "include").mkdir(parents=True)
            (top / folder / "include/cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n")
        for folder in ("cuda_nvcc", "cu13", "both"):
            (top / folder / "include/crt").mkdir(parents=True)
            (top / folder / "include/crt/host_defines.h").write_text("")
        runtime, places = top / "libcudart.so", []
        weir_plugin._cuda_places = lambda: [top / each for each in places]
        for version, listed, taken in ((12080, ["cuda_runtime"], ["cuda_runtime", "cuda_nvcc"]),
                                       (12080, ["cu13", "both"], ["both"]), (13050, ["both", "nowhere", "cu13"], ["cu13"])):
            weir_plugin._version_of = lambda _: version
            places[:] = listed
            wanted = [word for each in taken for word in ("-isystem", str(top / each / "include"))]
            assert weir_plugin.cuda_flags(runtime) == wanted, weir_plugin.cuda_flags(runtime)
        for version, listed, parts in ((13000, ["both"], ("headers of CUDA 13", "has those of 12.9", "nvidia-cuda-crt")),
                                       (12080, ["cu13"], ("headers of CUDA 12", "has those of 13.2", "nvidia-cuda-nvcc-cu12")),
                                       (13000, [], ("headers of CUDA 13", "CUDA_HOME")),
                                       (12060, ["both"], ("is 12.6", "12.8 or later"))):
            weir_plugin._version_of = lambda _: version
            places[:] = listed
            refused(lambda: weir_plugin.cuda_flags(runtime), *parts)


def case_no_cache():
    weir_plugin = loaded()
    os.environ["WEIR_CACHE"] = str(SIMULATED / "inside of a file")
    refused(weir_plugin.build, "cannot be made", "WEIR_CACHE")
    with tempfile.TemporaryDirectory() as place:
        os.environ["WEIR_CACHE"] = place
        (pathlib.Path(place) / "lock").mkdir()  # nothing can be written to it
        refused(weir_plugin.build, "cannot be written", "WEIR_CACHE")
        weir_plugin._fingerprint = lambda *_: "known"
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
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "a.hpp").write_text("int a;\n")
        marks = [weir_plugin._fingerprint(["g++"], [folder]), weir_plugin._fingerprint(["g++", "-O3"], [folder])]
        (folder / "a.hpp").write_text("int b;\n")
        marks += [weir_plugin._fingerprint(["g++"], [folder]), weir_plugin._fingerprint(["g++"], [folder], [folder / "a.hpp"])]
        assert len(set(marks)) == 4, "an option or an edit is not seen"


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


def case_use():
    weir = weir_torch()
    import torch
    refused(weir.state, "call weir_torch.use first")
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


def case_run_a_program():
    """python3 -m weir_torch, and what 'compare' does in a process of its own."""
    weir = weir_torch()
    import torch
    from weir_torch.__main__ import main as start
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "beside.py").write_text("word = 'beside'\n")
        (folder / "program.py").write_text("import beside, sys, torch\ntorch.told = beside.word, sys.argv[1:], __name__\n")
        for words, text in ((["--pool", "device", "program.py"], "no pool 'device'"), (["gone.py"], "no program"),
                            (["--limit", "5", "program.py"], "leaves no room")):
            try:
                start([*words[:-1], str(folder / words[-1])])
                raise AssertionError(f"{words} was not refused")
            except SystemExit as end:
                assert text in str(end.code), end.code
        assert torch.current is None
        start(["--limit", "1 GiB", str(folder / "program.py"), "--limit", "2"])
        assert torch.told == ("beside", ["--limit", "2"], "__main__") and weir.state()["limit_bytes"] == 1 << 30, torch.told


def case_compare_words():
    weir_torch()
    import xml.dom.minidom
    from weir_torch import compare
    runs = [{"held_mib": held, "seconds": 3.0, "steps": 2, "losses": ["2.5", "1.5"], "step_ms": step, "error": None}
            for held, step in ((70000.0, 1234.5), (60000.0, 1230.5))]
    first = compare.row_of("default", runs)
    assert first == ("default", 70000.0, "1232.50 ms", "2.5 1.5", ""), first
    rows = [first, compare.row_of("expandable", [{**runs[0], "error": "no room", "step_ms": None}]),
            compare.row_of("device_pool", [{"error": "no room", "wrote": "much"}])]
    assert rows[1] == ("expandable", 70000.0, "3.0 s in all", "2.5 1.5", "no room"), rows
    assert rows[2] == ("device_pool", None, "-", "", "no room"), rows
    lines = compare.table(rows).splitlines()
    assert len(lines) == 4 and "70,000" in lines[1] and lines[3].endswith("FAILED: no room"), lines
    drawn = compare.picture(rows, "<" + 90 * "&" + "train.py")
    xml.dom.minidom.parseString(drawn)
    assert drawn.count("<text") == 7 and "70,000 MiB, 1232.50 ms<" in drawn and drawn.count("&amp;") == 39, drawn
    for words in (["--rounds", "0", "x.py"], ["--steps", "-1", "x.py"], ["--limit", "70", "x.py"], []):
        try:
            compare.parsed(words)
            raise AssertionError(f"{words} was taken")
        except SystemExit as end:
            assert end.code == 2, end
    options = compare.parsed(["--steps", "5", "x.py", "--steps", "7"])
    assert (options.steps, options.program, options.arguments) == (5, "x.py", ["--steps", "7"]), options
    refused(compare.refuse, "leave that call out")


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
    from weir_torch import compare
    os.environ["PYTHONPATH"] = str(HERE / "stand_ins")
    options = types.SimpleNamespace(steps=2, limit=None, program="", arguments=["--steps", "7", "--one"])
    head = "import os, sys, torch\nfrom torch.optim.optimizer import Optimizer\nTensor, step = torch.Tensor, Optimizer().step\n"
    step = "Tensor(1.5).backward(); Tensor(1j).backward(); Tensor(1.0, 2.0).backward(); step()\n"
    rows = (("steps and losses", 3 * step, {"steps": 2, "losses": ["1.500000"] * 2, "error": None, "held_mib": 5.0}),
            ("arguments", "assert sys.argv[1:] == ['--steps', '7', '--one'], sys.argv", {"error": None, "steps": 0}),
            ("a capture", "torch.capturing = True; Tensor(1.0).backward()", {"error": None, "losses": []}),
            ("an error", step + "raise ValueError('no\\nidea')", {"error": "ValueError: no", "steps": 1}),
            ("exit 0", "sys.exit(0)", {"error": None}),
            ("exit 3", "sys.exit(3)", {"error": "it ended with 3"}),
            ("its own end", "print('done', flush=True); os._exit(0)", {"error": "it ended by itself, with status 0"}),
            ("bytes", "sys.stdout.buffer.write(bytes([255]))", {"error": None}),
            ("elsewhere", "os.chdir('/')", {"error": None}),
            ("weir_torch by itself", "import weir_torch; weir_torch.use()",
             {"error": "Error: weir: the program calls weir_torch.use, and here 'compare' chooses the allocator; leave that "
                       "call out"}))
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for number, (name, text, wanted) in enumerate(rows):
            options.program = f"program {number}.py"
            pathlib.Path(options.program).write_text(head + text)
            found = compare.run("default", options)
            assert wanted.items() <= found.items(), (name, found)


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
    results += [result(name, command) for name, command in commands.items() if not wanted or name in wanted]
    if not wanted and os.environ.get("WEIR_TORCH"):
        import with_torch
        results += with_torch.results(os.environ["WEIR_TORCH"], [])
    elif not wanted:
        print("with_torch.py is left out: WEIR_TORCH names no Python that has PyTorch", flush=True)
    close_with(results)


if __name__ == "__main__":
    main()
