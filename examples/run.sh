#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Builds and runs an example of weir, on the GPU or, where there is none, on the simulated device. Installs what is
# missing. With no arguments: replays a real trace through weir's pools and CUDA's.
#
# usage: sh examples/run.sh [NAME [ARGUMENT...]]
#   WEIR_DEVICE=simulated (or =gpu) before it: runs there, whatever nvidia-smi says
#   NAME: 'replay' or a name below or its beginning, with or without the number; ARGUMENTs go to the example ('replay --help')
weir_from=$PWD
cd "$(dirname "$0")/.." || exit 1

# In the order of their numbers, whatever language they are in.
weir_names() {
    for weir_path in examples/*; do
        [ -d "$weir_path" ] && weir_path=$weir_path/
        weir_name=${weir_path#examples/}
        case $weir_name in
        data/) ;;
        */) ls "examples/$weir_name"*.c[pu]* >/dev/null 2>&1 && echo "${weir_name%/}" ;;
        *.cpp | *.cu) echo "${weir_name%.*}" ;;
        esac
    done
}

# The first sentence of a source's head comment.
weir_about() {
    for weir_path in "examples/$1.cpp" "examples/$1.cu" "examples/$1/main.cpp" "examples/$1/$1.cpp"; do
        [ -f "$weir_path" ] && sed -n '/^\/\/ SPDX/d; /^\/\/ \{0,1\}[^ ]/{s/^\/\/ *//p;q;}' "$weir_path" && return
    done
}

case ${1:-} in
-h | --help)
    sed -n '3,8s/^# \{0,1\}//p' examples/run.sh
    weir_names | while read -r weir_name; do printf '  %-24s %s\n' "$weir_name" "$(weir_about "$weir_name")"; done
    exit 0
    ;;
'' | -*) weir_wanted=replay ;;
*)
    weir_wanted=$1
    shift
    ;;
esac

weir_name=
for weir_each in $(weir_names); do
    case $weir_each in
    "$weir_wanted"* | [0-9][0-9]_"$weir_wanted"*) weir_name=$weir_each && break ;;
    esac
done
if [ -z "$weir_name" ]; then
    echo "weir: no example is called '$weir_wanted'; 'sh examples/run.sh --help' lists them" >&2
    exit 2
fi

weir_device=${WEIR_DEVICE:-}
case $weir_device in
'' | simulated | gpu) ;;
*)
    echo "weir: WEIR_DEVICE is '$weir_device'; it must be 'simulated' or 'gpu', or not be set" >&2
    exit 2
    ;;
esac

. cmake/setup.sh
weir_build=${WEIR_BUILD_DIR:-build}/release
weir_why=
# What shows tests without a GPU runs without one.
grep -qs '^#include <weir/simulated_device.hpp>' "examples/$weir_name.cpp" && weir_device=simulated
if [ -z "$weir_device" ]; then
    weir_device=gpu
    nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' || { weir_device=simulated && weir_why='no GPU here: '; }
fi
if [ "$weir_device" = gpu ]; then
    weir_device=real
    weir_where='the GPU'
else
    weir_where="the simulated device (${weir_why}its times mean nothing)"
fi
weir_compiler=cuda
[ $weir_device = simulated ] || weir_compiler=nvcc
weir_screen=
[ "$weir_name" != weir_top ] || weir_screen=ncurses-if-any
# shellcheck disable=SC2086
if ! weir_get g++ cmake ninja zlib cli11 $weir_screen $weir_compiler; then
    weir_say "'$weir_name' was not built: there is no $(echo "$weir_lacking" | sed 's/ / and no /g') here"
    exit 1
fi
weir_make() {
    cmake --preset release -B "$weir_build" -DWEIR_DEVICE=$weir_device && cmake --build "$weir_build" --target "example-$weir_name"
}
weir_log=$(mktemp)
weir_say "building '$weir_name' for ${weir_where%% (*}"
if ! weir_watch "$weir_log" weir_make; then
    tail -n 40 "$weir_log" >&2
    weir_say "the build of '$weir_name' failed; all of it is in $weir_log"
    exit 1
fi
rm -f "$weir_log"
case $weir_build in
/*) weir_program=$weir_build/examples/$weir_name ;;
*) weir_program=$PWD/$weir_build/examples/$weir_name ;;
esac

# The last line says what happened; a table for a program to read stays pure.
weir_out=1
for weir_each; do
    case $weir_each in --csv | --csv=*) weir_out=2 ;; esac
done
cd "$weir_from" || exit 1
"$weir_program" "$@"
weir_code=$?
if [ $weir_code = 0 ]; then
    echo "$weir_name: done, on $weir_where" >&$weir_out || weir_code=1
else
    echo "$weir_name: failed with exit code $weir_code, on $weir_where" >&$weir_out
fi
exit $weir_code
