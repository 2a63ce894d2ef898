#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Do the benches for the GPU compile and link with every peer that can be had here?

usage: peers.py

weir-bench and weir-bench-staging are built for the real device and not run: that takes a GPU. Their peers: the toolkit's CUB and
Thrust; CCCL's pool, with each version under build/cccl that has one; RMM, which cmake/setup.sh fetches into build/rmm; and
PyTorch, where Python has it. What is not here is said.
"""

import importlib.util
import pathlib

from workshop import BUILD, JOBS, ROOT, WARNINGS, at_once, ccache, close_with, cuda_include, head, run, tail

PLACE = BUILD / "peers"


class Plugin:
    """Peers of one package: the folder that holds it, and what CMake is told of it."""

    def __init__(self, name, top, source, includes, libraries):
        self.name = name
        self.source = f"plugins/{source}.cpp"
        self.includes = [top / each for each in includes]
        self.libraries = [top / each for each in libraries]
        self.here = all(each.exists() for each in self.includes + self.libraries)


def plugins():
    """The plug-ins of bench/README.md whose packages are here; what is not is said."""
    rmm, torch = BUILD / "rmm", importlib.util.find_spec("torch")
    found = [Plugin("rmm", rmm, "rmm_pools", ["librmm/include", "librmm/include/rapids", "rapids_logger/include"],
                    ["librmm/lib64/librmm.so", "rapids_logger/lib64/librapids_logger.so"]),
             Plugin("pytorch", pathlib.Path(torch.origin).parents[1] if torch and torch.origin else BUILD / "pytorch", "pytorch_pools",
                    ["torch/include", "torch/include/torch/csrc/api/include"], ["torch/lib/libc10_cuda.so", "torch/lib/libc10.so"])]
    for each in found:
        if not each.here:
            print(f"left out: {each.name} (not on this machine)")
    return [each for each in found if each.here]


def versions():
    """name -> folder of each CCCL that has a pool, the newest last."""
    found = [place.parents[1] for place in (BUILD / "cccl").rglob("cuda/memory_pool")]
    return {place.relative_to(BUILD / "cccl").parts[0]: place for place in sorted(found)}


def with_version(name, place):
    """Complaint about CCCL's pool with one version, or ''."""
    done = run([*ccache(), "g++", "-std=c++17", "-O0", *WARNINGS, "-DWEIR_BENCH_CCCL_POOL", f"-I{ROOT / 'include'}", "-isystem", place,
                "-isystem", cuda_include(), "-c", ROOT / "bench/peers/cccl_pool.cpp", "-o", PLACE / f"cccl_pool-{name}.o"])
    return "" if done.code == 0 else f"does not compile:\n{head(done.output)}"


def benches(found, cccl):
    """Complaint about the benches for the GPU with these plug-ins, or ''."""
    settings = {"WEIR_BENCH_CCCL": cccl}
    if found:
        settings |= {"WEIR_BENCH_PLUGIN": f"plugins/{'_and_'.join(each.name for each in found)}.hpp",
                     "WEIR_BENCH_PLUGIN_SOURCES": ";".join(each.source for each in found),
                     "WEIR_BENCH_PLUGIN_INCLUDE_DIRS": ";".join(str(place) for each in found for place in each.includes),
                     # Their libraries name a runtime that nobody needs who does not run the program.
                     "WEIR_BENCH_PLUGIN_LIBRARIES": ";".join([str(file) for each in found for file in each.libraries] +
                                                             ["-Wl,--allow-shlib-undefined"])}
    build = PLACE / "build"
    done = run(["cmake", "--preset", "gpu-release", "-B", build, "-DWEIR_BUILD_EXAMPLES=OFF",
                *[f"-D{name}={what}" for name, what in settings.items()]], cwd=ROOT)
    if done.code == 0:
        done = run(["cmake", "--build", build, "-j", JOBS, "--target", "weir-bench", "weir-bench-staging", "--", "-k", "0"], timeout=2400)
    return "" if done.code == 0 else tail(done.output)


def main():
    PLACE.mkdir(parents=True, exist_ok=True)
    found, cccl = plugins(), versions()
    print(f"peers: CUB, Thrust, CCCL {', '.join(cccl)}{''.join(', ' + each.name for each in found)}")
    results = at_once(lambda each: (f"peers: the pool of CCCL {each[0]}", with_version(*each)), list(cccl.items()))
    # RMM brings the CCCL that it was made with.
    place = next((each.includes[1] for each in found if each.name == "rmm"), None) or [*cccl.values()][-1]
    close_with(results + [("peers: the benches for the GPU", benches(found, place))])


if __name__ == "__main__":
    main()
