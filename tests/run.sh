#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Every test of weir, on a machine with or without a GPU. Installs what is missing, builds, runs, and ends with one
# line: 'N passed, N failed'.
#
# usage: sh tests/run.sh [--all | --ci | --quick | --gpu] [--only STAGE[,STAGE...]] [--list]
#   --all    every stage (the default); on the simulated device
#   --ci     in short: g++'s tests are mostly those that count lines, clang++'s those of the sanitizers, the thread
#            sanitizer's where threads meet; and an eighth of the planted bugs, half of nvcc's headers, by the commit
#   --quick  the checks, all tests under g++, and the umbrella under nvcc
#   --gpu    all tests on the GPU of this machine
#   --only   the named stages, whole or as --ci has them;  --list names them
cd "$(dirname "$0")/.." || exit 1
. cmake/setup.sh

case " $* " in
*" -h "* | *" --help "*)
    sed -n '3,12s/^# \{0,1\}//p' tests/run.sh
    exit 0
    ;;
esac

weir_packages 'python3:python3' || exit 1
# What is asked for has to make sense before anything is installed or fetched for it.
weir_stages=$(python3 tests/checks/stages.py --list "$@") || exit
case " $* " in
*" --list "*)
    printf '%s\n' "$weir_stages"
    exit 0
    ;;
esac

weir_packages 'g++:g++' 'cmake:cmake' 'ninja:ninja-build' 'ccache:ccache' || weir_poor=1
weir_packages 'header doctest/doctest.h:doctest-dev' || weir_poor=1
case " $* " in
*" --gpu "*) ;;
*)
    weir_packages 'clang++:clang' 'gcovr:gcovr' 'valgrind:valgrind' 'header benchmark/benchmark.h:libbenchmark-dev' \
        'header zlib.h:zlib1g-dev' 'header CLI/CLI.hpp:libcli11-dev' || weir_poor=1
    weir_clang=$(clang++ -dumpversion 2>/dev/null | cut -d. -f1)
    weir_packages "sanitizers clang++:libclang-rt-$weir_clang-dev" || weir_poor=1
    ;;
esac
weir_cuda || weir_poor=1
case " $* " in
*oldest*) weir_oldest_cuda || weir_poor=1 ;;
*" --gpu "* | *" --quick "* | *" --only"*) ;;
*) weir_oldest_cuda || weir_poor=1 ;;
esac
if [ -n "${weir_poor:-}" ]; then
    weir_say "going on without what is missing; the stages that need it will say so"
fi
exec python3 tests/checks/stages.py "$@"
