#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""weir as PyTorch's allocator, beside PyTorch's own, call by call and without a GPU.

usage: with_torch.py PYTHON [CASE...]

PYTHON is an interpreter that has PyTorch. It runs torch_cases.py twice on the simulated device, which stands in for libcudart;
the driver's library is one whose functions do nothing. Kernels do not run (what launches one is told that it was launched: 2.11
fills its generator's state before each capture), but memory, streams, graphs and copies do. What a case answers has to be the same with both allocators, and what it asserts of weir has to hold. gpu.py is for the rest.
"""

import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[0] / "checks")]
from call_by_call import answers, verdicts  # noqa: E402
from run import FOLDER, ROOT, SIMULATED, simulated_device  # noqa: E402
from readme import matches  # noqa: E402
from workshop import close_with, run, tail  # noqa: E402

SILENT_LAUNCHES = FOLDER / "silent_launches.so"


def silent_driver(python):
    """Builds a libcuda whose functions return 0: those that PyTorch's libraries name. A complaint or ''."""
    found = run([python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"])
    top, folder = pathlib.Path(found.output.strip().splitlines()[-1]), FOLDER / "silent_driver"
    made_for = folder / "made_for"
    if made_for.exists() and made_for.read_text() == str(top):
        return ""
    if not (top / "include/c10/cuda/driver_api.h").exists():
        return f"{python} has no PyTorch with its headers:\n{tail(found.output)}"
    names = set(re.findall(r"_\((cu[A-Z]\w+),", (top / "include/c10/cuda/driver_api.h").read_text()))
    for library in [*top.glob("lib/*.so*"), *top.parent.glob("nvidia/*/lib/*.so*"), *top.parent.glob("nvidia/*/lib/**/*.so*")]:
        names |= set(re.findall(r" U (cu[A-Z]\w+)", run(["nm", "-D", "--undefined-only", library]).output))
    names -= {name for name in names if re.match("cu(FFT|File|Blas)", name)}
    names |= {"cuInit", "cuDriverGetVersion", "cuDevicePrimaryCtxGetState", "cuGetProcAddress_v2"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libcuda.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names)))
    done = run(["gcc", "-O0", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", folder / "libcuda.c", "-o", folder / "libcuda.so.1"])
    if not done.code:
        made_for.write_text(str(top))
    return tail(done.output) if done.code else ""


def silent_launches():
    """Builds what launches kernels in the runtime's place, and does nothing."""
    unit = FOLDER / "silent_launches.c"
    names = ("cudaLaunchKernel", "__cudaLaunchKernel", "cudaLaunchKernelExC")
    unit.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in names))
    done = run(["gcc", "-O0", "-fPIC", "-shared", unit, "-o", SILENT_LAUNCHES])
    if done.code:
        raise SystemExit(tail(done.output))


def with_simulated_device(command):
    """Runs a command of an interpreter that finds what stands in for CUDA."""
    if not SILENT_LAUNCHES.exists():
        silent_launches()
    places = {"LD_PRELOAD": f"{SILENT_LAUNCHES}:{SIMULATED}", "LD_LIBRARY_PATH": str(FOLDER / "silent_driver"),
              "PYTHONPATH": str(ROOT / "examples/python"), "WEIR_CACHE": str(FOLDER / "cache")}
    before = {name: os.environ.get(name) for name in places}
    os.environ.update(places)
    try:
        return run(command)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def sample_of_the_page(python):
    """Whether the error that README.md shows is what is said: a complaint or ''."""
    program = ("import torch, weir_torch\nweir_torch.use(limit='64 MiB')\n"
               "held = [torch.empty(size, dtype=torch.uint8, device='cuda') for size in (40 << 20, 1000)]\n"
               "try: torch.empty(100 << 20, dtype=torch.uint8, device='cuda')\nexcept torch.OutOfMemoryError as error: print(error)")
    done = with_simulated_device([python, "-c", program])
    page = (ROOT / "examples/python/README.md").read_text()
    sample = re.search(r"<!-- sample: error -->\n```text\n(.*?)```", page, flags=re.S)[1]
    said = done.output.splitlines()[-1] if done.output else ""  # what it says of a compilation stands before
    return "" if done.code == 0 and matches(said, sample) else f"{done.output}and not\n{sample}"


def shares(python):
    """torch_shares.py: a complaint or ''."""
    done = with_simulated_device([python, HERE / "torch_shares.py"])
    return "" if done.code == 0 and "all holds" in done.output else tail(done.output, 30)


def results(python, cases):
    FOLDER.mkdir(parents=True, exist_ok=True)
    complaint = ("" if SIMULATED.exists() else simulated_device()) or silent_driver(python)
    if complaint:
        return [("what stands in for CUDA", complaint)]
    found, ends = {}, []
    for allocator in ("native", "weir"):
        found[allocator], left, complaint = answers(lambda words: with_simulated_device([python, *words]), allocator, FOLDER, cases)
        complaint = f"no time left for {', '.join(left)}" if left else complaint
        ends += [(f"torch_cases.py {allocator}", complaint)] if complaint else []
    told = [] if cases else [("the page's sample", sample_of_the_page(python)), ("torch_shares.py", shares(python))]
    return ends + told + list(verdicts(found))


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    close_with(results(sys.argv[1], sys.argv[2:]))


if __name__ == "__main__":
    main()
