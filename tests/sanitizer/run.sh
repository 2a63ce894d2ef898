#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Does compute-sanitizer find wrong accesses inside of a pool's chunks, and nothing else?
#
# usage: sh tests/sanitizer/run.sh      on a machine with a GPU, nvcc and compute-sanitizer; some two minutes
#
# Prints a line a program, then 'found N of 12, silent M of 12', and whether CUDA's own pools are silent under
# '--track-stream-ordered-races all'. Says why and ends with 0 where compute-sanitizer is missing, or cannot attach.

cd "$(dirname "$0")/../.." || exit 1
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
[ -n "$tool" ] || { echo "skipped: no compute-sanitizer here"; exit 0; }
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
[ -n "$nvcc" ] || { echo "skipped: no nvcc here"; exit 0; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for each in accesses stream_order; do
    "$nvcc" -std=c++17 -O1 -lineinfo -arch=native -Iinclude "tests/sanitizer/$each.cu" -o "$place/$each" || exit 1
done
# A question to CUDA before there is a context is no error of the program.
options="--tool memcheck --report-api-errors no"
"$tool" --help 2>&1 | grep -q -- '--nvtx' && options="$options --nvtx yes"

# checked PROGRAM...: runs it under the tool; 'errors' is the count of the tool's last line, empty if it came to none.
checked() {
    "$tool" $options "$@" >"$place/said" 2>&1
    errors=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' "$place/said" | tail -n 1)
}

checked "$place/accesses" right 0
if [ -z "$errors" ]; then
    echo "skipped: compute-sanitizer cannot attach here:"
    tail -n 3 "$place/said"
    exit 0
fi

found=0
silent=0
number=0
while [ $number -lt 12 ]; do
    checked "$place/accesses" wrong $number
    name=$(sed -n 's/^wrong: //p' "$place/said")
    if grep -q 'Invalid __global__' "$place/said"; then
        found=$((found + 1))
        echo "found: $name"
    else
        echo "NOT FOUND: $name (errors: ${errors:-none})"
    fi
    checked "$place/accesses" right $number
    if [ "$errors" = 0 ]; then
        silent=$((silent + 1))
    else
        echo "NOT SILENT: $name"
        grep -m 5 '=========' "$place/said"
    fi
    number=$((number + 1))
done

options="--tool memcheck --track-stream-ordered-races all"
checked "$place/stream_order"
echo "driver_pool and cuda_mr: ${errors:-no} errors under --track-stream-ordered-races all"
[ "$errors" = 0 ] || grep -m 10 '=========' "$place/said"

echo "found $found of 12, silent $silent of 12"
[ "$found" = 12 ] && [ "$silent" = 12 ] && [ "$errors" = 0 ]
