#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Runs all benches in one go and prints the compact table last.
#
#     sh bench/run.sh [PROGRAM [FOLDER]]      default: build/gpu-release/bench/weir-bench, bench-out
#     sh bench/run.sh --smoke PROGRAM         a few seconds: shows that nothing fails, prints no times
#
# FOLDER gets table.txt, results.csv, report.md, report.svg and raw.tar.gz (Google Benchmark's JSON and logs).
# A question runs in a process of its own, all its pools interleaved, so that one that crashes leaves the others'
# figures whole. A pool that has had its share of a case, three seconds, is not asked again: its median is over fewer
# repetitions. A question has a deadline (under seven minutes in all): what exceeds it is skipped and reported. The
# million live blocks are a run of their own: seven repetitions of a fast pool take five seconds, one of a slow peer
# as many, and the deadline has room for the shares of all.
#
# Exit codes: 0, every question was answered; 1, one crashed or ended late, and the others' figures are there; 2,
# nothing was asked.
#
# WEIR_BENCH_REPETITIONS (7), WEIR_BENCH_MS (20), WEIR_BENCH_SHARE (3, seconds), WEIR_BENCH_QUESTIONS (all; each
# 'question[/case][:seconds[:share]]'), WEIR_BENCH_TRACES (a folder; the example's), WEIR_COMMIT (asked of git).
set -u

here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = --smoke ]; then
    program=${2:?run.sh: --smoke needs the program: weir-bench-simulated, or weir-bench where there is a GPU}
    WEIR_BENCH_SMOKE=1 exec "$program"
fi

export WEIR_BENCH_TRACES="${WEIR_BENCH_TRACES:-$here/../examples/data}"
program=${1:-$here/../build/gpu-release/bench/weir-bench}
out=${2:-bench-out}
if [ ! -x "$program" ]; then
    echo "run.sh: there is no program '$program'; build the target weir-bench (cmake --preset gpu-release &&" \
         "cmake --build --preset gpu-release --target weir-bench), or name it" >&2
    exit 2
fi
# Asked before the benches, whose minutes would be lost.
if ! mkdir -p "$out" 2>/dev/null || ! probe=$(mktemp "$out/.run.XXXXXX" 2>/dev/null); then
    echo "run.sh: cannot write '$out'; name another folder" >&2
    exit 2
fi
rm -f "$probe"
raw=$(mktemp -d) || exit 2
trap 'rm -rf "$raw"' EXIT
failed=0
commit=${WEIR_COMMIT:-$(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)}
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)

# question[/case]:seconds after which the rest of it is skipped[:seconds that one pool may have of a case]
for each in ${WEIR_BENCH_QUESTIONS:-pairs:35 random_sizes:25 fragmented:40 threads:25 shapes:40 handover:15 kernels:12 \
    streams:25 growth:15 suspension:60:40 live_blocks/1000:25 live_blocks/1000000:90:5 side_by_side:15 traces:60}; do
    IFS=: read -r question seconds share <<END
$each
END
    name=$(echo "$question" | tr / _)
    started=$(date +%s)
    WEIR_BENCH_DEADLINE=${seconds:=60} WEIR_BENCH_SHARE=${share:-${WEIR_BENCH_SHARE:-3}} timeout $((seconds + 30)) \
        "$program" \
        --benchmark_filter="^$question/" \
        --benchmark_repetitions="${WEIR_BENCH_REPETITIONS:-7}" \
        --benchmark_enable_random_interleaving=true \
        --benchmark_out="$raw/$name.json" --benchmark_out_format=json \
        --benchmark_context="commit=$commit,nvidia_driver=${driver:-none},command=sh bench/run.sh" \
        > "$raw/$name.log" 2>&1
    code=$?
    [ $code = 0 ] || failed=1
    echo "$question: $(($(date +%s) - started)) s$([ $code = 0 ] || echo ", exit code $code: $(tail -c 300 "$raw/$name.log")")"
done

python3 "$here/report.py" --text --csv "$out/results.csv" --markdown "$out/report.md" --svg "$out/report.svg" \
    --picture report.svg "$raw"/*.json > "$raw/table.txt"
code=$?
cat "$raw/table.txt"
if ! tar -C "$raw" -czf "$out/raw.tar.gz" . || ! cp "$raw/table.txt" "$out/table.txt"; then
    echo "run.sh: '$out' could not be written to its end; make room there" >&2
    code=1
fi
[ $code != 0 ] || code=$failed
exit $code
