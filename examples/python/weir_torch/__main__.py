# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a PyTorch program unchanged, with weir_torch.use called before it.

usage: python3 -m weir_torch [--pool POOL] [--limit SIZE] [--shares] train.py ARGUMENTS...
       python3 -m weir_torch [--pool POOL] [--limit SIZE] [--shares] -m MODULE ARGUMENTS...
       python3 -m weir_torch [--pool POOL] [--limit SIZE] [--shares] -c CODE ARGUMENTS...
       python3 -m weir_torch build [--pool POOL] [--shares]
       python3 -m weir_torch advise [--pool POOL] [--limit SIZE] RECORDING

With several processes: torchrun --nproc-per-node 8 -m weir_torch train.py ARGUMENTS...
                        accelerate launch -m weir_torch train.py ARGUMENTS...
A process that the program starts itself, as torch.multiprocessing.spawn does, calls weir_torch.use itself.

'build' compiles what the first run would, for this PyTorch, and prints the file's name: for a container's image, or a machine
without a compiler, which then finds it in the same WEIR_CACHE or by WEIR_PLUGIN=FILE. It needs no GPU. 'advise' says what would
have made a program hold less that weir_torch.record wrote down; it needs no GPU either. (A program of yours that is called 'build'
or 'advise' is './build'.)
"""

from __future__ import annotations

import argparse
import sys
from typing import List

import weir_plugin
import weir_torch
from weir_torch import program


def parser_of(about: str, name: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=name, description=about, formatter_class=argparse.RawDescriptionHelpFormatter,
                                   usage=argparse.SUPPRESS, allow_abbrev=False)


def main(words: List[str]) -> None:
    builds, advises = words[:1] == ["build"], words[:1] == ["advise"]
    parser = parser_of(__doc__ or "", "python3 -m weir_torch")
    parser.add_argument("--pool", default="device_pool", help=f"{', '.join(weir_plugin.POOLS)}, also without the '_pool'; the "
                        "first if left out")
    parser.add_argument("--limit", metavar="SIZE", help="the most that each device's pool may hold, such as 70G or '70 GiB'")
    parser.add_argument("--shares", action="store_true", help="tensors can be sent to other processes")
    own, named = program.split(words[1:] if builds or advises else words)
    options = parser.parse_args(own)
    try:
        if builds:
            if named or options.limit:
                parser.error("'build' takes --pool and --shares, and nothing else")
            print(weir_torch.build(options.pool, options.shares))
            return
        if advises:
            if len(named) != 1 or options.shares:
                parser.error("'advise' takes a recording, --pool and --limit, and nothing else")
            print(weir_torch.advise(named[0], options.pool, options.limit))
            return
        if wrong := program.missing(named):
            sys.exit(wrong)
        weir_torch.use(options.pool, limit=options.limit, shares=options.shares)
    except weir_plugin.Error as error:
        sys.exit(str(error))
    program.run(named)


if __name__ == "__main__":
    main(sys.argv[1:])
