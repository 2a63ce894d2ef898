#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Prints instructions per pair for each hot pair: callgrind over the program weir-instructions.
#
#     sh bench/instructions.sh PROGRAM                 print the table
#     sh bench/instructions.sh PROGRAM --check FILE    and fail if a pool grew over 3 % heavier than FILE says
#     sh bench/instructions.sh PROGRAM --write FILE    and write FILE
#
# FILE says which compiler its counts are of, and may hold those of several: only the same one's are compared.
# The committed figures are bench/results/instructions.csv, of -O2 -DNDEBUG.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
program=${1:?instructions.sh: name the program, build/<preset>/bench/weir-instructions}
shift
if ! command -v valgrind > /dev/null; then
    echo "instructions.sh: there is no valgrind; install it (Debian: apt-get install valgrind)" >&2
    exit 2
fi
dumps=$(mktemp -d)
trap 'rm -rf "$dumps"' EXIT
valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file="$dumps/dump" "$program" > "$dumps/log" 2>&1 || {
    tail -20 "$dumps/log" >&2
    echo "instructions.sh: '$program' failed under valgrind" >&2
    exit 1
}
python3 "$here/instructions.py" --compiler "$(sed -n 's/^compiler: //p' "$dumps/log")" "$@" "$dumps"/dump.*
