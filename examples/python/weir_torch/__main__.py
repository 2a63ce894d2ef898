# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a PyTorch program unchanged, with weir_torch.use called before it.

usage: python3 -m weir_torch [--pool POOL] [--limit SIZE] train.py ARGUMENTS...

With several processes: torchrun --nproc-per-node 8 -m weir_torch train.py ARGUMENTS...
A process that the program starts itself, as torch.multiprocessing.spawn does, calls weir_torch.use itself.
"""

import argparse
import pathlib
import runpy
import sys

import weir_plugin
import weir_torch


def run_program(words):
    """What `python3 train.py ARGUMENTS...` does, in this process; `words` are the program and its arguments."""
    sys.argv = list(words)
    sys.path.insert(0, str(pathlib.Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")


def main(words):
    parser = argparse.ArgumentParser(prog="python3 -m weir_torch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--pool", default="device_pool", help=f"{', '.join(weir_plugin.POOLS)}; the first if left out")
    parser.add_argument("--limit", metavar="SIZE", help="the most that each device's pool may hold, such as '70 GiB'")
    parser.add_argument("program", help="train.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    options = parser.parse_args(words)
    if not pathlib.Path(options.program).exists():
        sys.exit(f"weir: there is no program {options.program}")
    try:
        weir_torch.use(options.pool, limit=options.limit)
    except weir_plugin.Error as error:
        sys.exit(str(error))
    run_program([options.program, *options.arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
