#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The tests of weir, on a machine with or without a GPU. Installs what is missing, builds, runs, and ends with one
# line: 'N passed, N failed'. Without an argument: the checks, every test under g++ on the simulated device (campaigns and
# sweeps in short), the README's snippets, and Python's plug-in; a quarter of an hour on two cores.
#
# usage: sh tests/run.sh [--all | --ci | --gpu] [--only STAGE[,STAGE...]] [--list]
#   --all    every stage; on the simulated device
#   --ci     in short: g++'s tests are mostly those that count lines, clang++'s those of the sanitizers, the thread
#            sanitizer's where threads meet; and a sixteenth of the planted bugs, a sixth of the headers' ways, by the commit
#   --gpu    all tests on the GPU of this machine
#   --only   the named stages, whole or as --ci has them;  --list names them
cd "$(dirname "$0")/.." || exit 1
. cmake/setup.sh

case " $* " in
*" -h "* | *" --help "*)
    sed -n '3,14s/^# \{0,1\}//p' tests/run.sh
    exit 0
    ;;
esac

if ! weir_get python3; then
    weir_say "nothing was run: the tests need python3"
    exit 1
fi
# What is asked for has to make sense before anything is installed or fetched for it.
weir_stages=$(python3 tests/checks/stages.py --list "$@") || exit
case " $* " in
*" --list "*)
    printf '%s\n' "$weir_stages"
    exit 0
    ;;
esac

# shellcheck disable=SC2046
weir_get $(python3 tests/checks/stages.py --needs "$@") ||
    weir_say "the stages that need what is missing fail at once, and the others are run"
exec python3 tests/checks/stages.py --lacking "$weir_lacking" "$@"
