# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh
# What does a machine need before weir's tests or examples build, and where does it come from? Sourced by
# tests/run.sh and examples/run.sh.
#
# Debian's packages where apt-get is there; the CUDA toolkit's wheels into build/cuda where there is no nvcc (the
# compiler, the headers and the runtime: no driver, no GPU); for the tests the headers of each CUDA that weir compiles with into
# build/cuda-12.8 and so on, versions of CCCL into build/cccl, RMM into build/rmm, pybind11 into build/pybind11, hatchling into
# build/hatchling, and a file of PyTorch's into build/memory_viz. Nothing is installed that is there already, and everything said goes to stderr.
#
#     . cmake/setup.sh; weir_get g++ doctest nvcc ccache-if-any

weir_say() {
    printf '%s\n' "weir: $*" >&2
}

# weir_watch LOG COMMAND...: runs a command whose output goes into the file LOG, and shows on stderr for how long it has run and
# what it said last: on a terminal in a line that moves, elsewhere in a line every ten seconds. Returns the command's status.
weir_watch() {
    weir_watched=$1
    shift
    : >"$weir_watched"
    weir_show_last </dev/null >/dev/null &
    weir_watcher=$!
    "$@" >"$weir_watched" 2>&1 </dev/null
    weir_status=$?
    { kill $weir_watcher && wait $weir_watcher; } 2>/dev/null
    [ ! -t 2 ] || printf '\r\033[K' >&2
    return $weir_status
}

weir_show_last() {
    weir_began=$(date +%s)
    weir_due=10
    # Nothing that outlives the command, or this script, keeps stderr open.
    while sleep 1 2>/dev/null && kill -0 $$ 2>/dev/null; do
        weir_seconds=$(($(date +%s) - weir_began))
        weir_line="weir: $weir_seconds s: $(tail -c 2000 "$weir_watched" | tr '\r' '\n' | grep . | tail -n 1)"
        if [ -t 2 ]; then
            printf '\r\033[K%.78s' "$weir_line" >&2
        elif [ $weir_seconds -ge $weir_due ]; then
            printf '%.120s\n' "$weir_line" >&2
            weir_due=$((weir_seconds + 10))
        fi
    done
}

# weir_has NEED: whether it is here. A need is a command's name or one of the words below; so it is in weir_package.
weir_has() {
    case $1 in
    doctest) weir_header doctest/doctest.h ;;
    benchmark) weir_header benchmark/benchmark.h && weir_library benchmark ;;
    zlib) weir_header zlib.h && weir_library z ;;
    cli11) weir_header CLI/CLI.hpp ;;
    fmt) weir_header fmt/format.h ;;
    ncurses) weir_header curses.h && weir_library ncursesw ;;
    json) weir_header nlohmann/json.hpp ;;
    memory-viz) [ -f build/memory_viz/_memory_viz.py ] ;;
    googletest) weir_header gtest/gtest.h && weir_library gtest ;;
    valgrind) command -v valgrind >/dev/null && weir_header valgrind/callgrind.h ;;
    sanitizers) echo 'int main(){}' | clang++ -x c++ -fsanitize=address - -o /dev/null 2>/dev/null ;;
    pip) python3 -m pip --version >/dev/null 2>&1 ;;
    nvcc) weir_toolkit ;;
    cuda) weir_toolkit || [ -f "${CUDA_HOME:-/usr/local/cuda}/include/cuda_runtime_api.h" ] ;;
    oldest-cuda) [ -d "build/cuda-${weir_versions%% *}/include" ] ;;
    each-cuda) for weir_each in $weir_versions; do [ -d "build/cuda-$weir_each/include" ] || return 1; done ;;
    newest-clang++) weir_newest=$(weir_newest_clang) && command -v "$weir_newest" >/dev/null ;;
    conan) [ -x build/conan/bin/conan ] || command -v conan >/dev/null ;;
    cccl) for weir_each in $weir_cccl; do [ -d "build/cccl/${weir_each%%:*}" ] || return 1; done ;;
    rmm) [ -d build/rmm ] ;;
    python-header) python3 -c 'import os, sysconfig; os.stat(sysconfig.get_paths()["include"] + "/Python.h")' 2>/dev/null ;;
    pybind11) weir_has python-header && [ -d build/pybind11 ] ;;
    hatchling) [ -d build/hatchling ] || python3 -c 'import hatchling' 2>/dev/null ;;
    gpu) nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# weir_package NEED: Debian's name for what brings it, or fetches it; nothing where no package does, or nobody knows yet
# which one.
weir_package() {
    case $1 in
    ninja) echo ninja-build ;;
    clang++) echo clang ;;
    doctest) echo doctest-dev ;;
    benchmark) echo libbenchmark-dev ;;
    zlib) echo zlib1g-dev ;;
    cli11) echo libcli11-dev ;;
    fmt) echo libfmt-dev ;;
    ncurses) echo libncurses-dev ;;
    json) echo nlohmann-json3-dev ;;
    heaptrack_print) echo heaptrack ;;
    googletest) echo libgtest-dev ;;
    sanitizers) clang++ -dumpversion 2>/dev/null | sed 's/^\([0-9]*\).*/libclang-rt-\1-dev/' ;;
    pip) echo python3-pip ;;
    newest-clang++) weir_newest_clang | sed 's/++//' ;;
    g++-[0-9]* | clang++-[0-9]*) weir_listed "$(echo "$1" | sed 's/^clang++/clang/')" ;;
    python-header) echo python3-dev ;;
    pybind11)
        weir_has python-header || weir_package python-header
        weir_has pip || weir_package pip
        ;;
    nvcc | cuda | oldest-cuda | each-cuda | cccl | rmm | conan | hatchling | memory-viz) weir_has pip || weir_package pip ;;
    gpu) ;;
    *) echo "$1" ;;
    esac
}

# A package's name, where there is one of that name; before apt-get has its lists nobody knows.
weir_listed() {
    apt-cache show "$1" 2>/dev/null | grep -m 1 -xF "Package: $1" | sed 's/^Package: //'
}

# The newest clang++ that Debian has, or where nobody can be asked, that is here.
weir_newest_clang() {
    { apt-cache search --names-only '^clang-[0-9]+$' 2>/dev/null || true; ls /usr/bin/clang++-[0-9]* 2>/dev/null; } |
        sed -n 's/.*clang[+]*-\([0-9]*\)\( .*\)*$/\1/p' | sort -n | sed -n '$s/^/clang++-/p' | grep .
}

# Without a compiler nobody knows all of its folders: then the usual ones have to do.
weir_header() {
    command -v g++ >/dev/null || { [ -f ".cache/include/$1" ] || [ -f "/usr/include/$1" ]; return; }
    printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | g++ -x c++ -E -I.cache/include - >/dev/null 2>&1
}

weir_library() {
    command -v g++ >/dev/null || return 0
    echo 'int main(){}' | g++ -x c++ - -o /dev/null -L.cache/lib "-l$1" 2>/dev/null
}

# weir_get NEED...: installs or fetches what is missing of them. 'NEED-if-any' helps, and one can do without.
# weir_lacking is then what one cannot do without and is missing still; returns 1 if that is anything.
weir_get() {
    weir_lacking=
    for weir_need; do
        weir_has "${weir_need%-if-any}" || weir_lacking="$weir_lacking $weir_need"
    done
    weir_tried=' '
    # shellcheck disable=SC2034
    for weir_round in 1 2; do # which package brings the sanitizers is known once clang++ is there
        weir_missing=
        for weir_need in $weir_lacking; do
            for weir_each in $(weir_package "${weir_need%-if-any}"); do
                case $weir_tried in *" $weir_each "*) ;; *) weir_missing="$weir_missing $weir_each" ;; esac
                weir_tried="$weir_tried$weir_each "
            done
        done
        # shellcheck disable=SC2086
        [ -z "$weir_missing" ] || weir_install $weir_missing
    done
    weir_missing=$weir_lacking
    weir_lacking=
    for weir_need in $weir_missing; do
        weir_has "${weir_need%-if-any}" || weir_fetch "${weir_need%-if-any}" || case $weir_need in
        *-if-any) ;;
        *) weir_lacking="$weir_lacking $weir_need" ;;
        esac
    done
    weir_lacking=${weir_lacking# }
    weir_cache
    [ -z "$weir_lacking" ]
}

# weir_install PACKAGE...: Debian's packages, or those of them that are to be had.
weir_install() {
    weir_as_root=
    if [ "$(id -u)" != 0 ]; then
        weir_as_root=sudo
    fi
    if ! command -v apt-get >/dev/null || { [ -n "$weir_as_root" ] && ! command -v sudo >/dev/null; }; then
        weir_say "missing here: $* (Debian's names); install them: this script cannot without apt-get and root or sudo"
        return
    fi
    weir_say "installing: $*"
    weir_log=$(mktemp)
    [ -n "${weir_updated:-}" ] || weir_apt update || tail -n 15 "$weir_log" >&2
    weir_updated=1
    # One that is not to be had keeps none of the others away.
    weir_apt install "$@" || for weir_each; do
        weir_apt install "$weir_each" && continue
        tail -n 5 "$weir_log" >&2
        weir_say "apt-get could not install '$weir_each'"
    done
    rm -f "$weir_log"
}

weir_apt() {
    # shellcheck disable=SC2086
    weir_watch "$weir_log" $weir_as_root env DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends \
        -o DPkg::Lock::Timeout=120 "$@"
}

# weir_wheels FOLDER WHEEL...: PyPI's wheels into FOLDER, which is emptied first.
weir_wheels() {
    rm -rf "$1"
    weir_pip --no-deps --target "$@"
}

# weir_pip ARGUMENT...: 'pip install' with these arguments. Returns 1, and what it said last, if it fails.
weir_pip() {
    weir_log=$(mktemp)
    weir_watch "$weir_log" python3 -m pip install --disable-pip-version-check --root-user-action=ignore --progress-bar off "$@" || {
        tail -n 15 "$weir_log" >&2
        rm -f "$weir_log"
        return 1
    }
    rm -f "$weir_log"
}

# weir_fetch NEED: what pip brings. Returns 1 if it does not, or is not to be had.
weir_fetch() {
    weir_has pip || return 1
    case $1 in
    cuda | nvcc)
        [ -z "${weir_unfetched:-}" ] || return 1
        weir_say "no nvcc here: fetching the CUDA toolkit's wheels into build/cuda"
        # The wheels are one release: nvcc's parts must match one another.
        if ! weir_wheels build/cuda 'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*' \
            'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' 'nvidia-nvtx==13.0.*'; then
            weir_say "pip could not fetch the CUDA toolkit; install one, or set CUDA_HOME to a folder that holds" \
                "include/cuda_runtime_api.h"
            weir_unfetched=1 # asked once: pip takes its time to find no network
            return 1
        fi
        # A wheel holds neither of these links; nvcc, FindCUDAToolkit and the linker look for them.
        ln -sfn libcudart.so.13 "$weir_fetched/lib/libcudart.so"
        ln -sfn lib "$weir_fetched/lib64"
        weir_toolkit
        ;;
    oldest-cuda) weir_headers "${weir_versions%% *}" ;;
    each-cuda) for weir_each in $weir_versions; do weir_headers "$weir_each" || return 1; done ;;
    conan)
        weir_say "fetching Conan into build/conan"
        rm -rf build/conan
        weir_pip --target build/conan conan
        ;;
    pybind11)
        weir_say "fetching pybind11 into build/pybind11"
        weir_has python-header && weir_wheels build/pybind11.part 'pybind11==3.*' && mv build/pybind11.part build/pybind11
        ;;
    hatchling)
        weir_say "fetching hatchling into build/hatchling"
        rm -rf build/hatchling.part
        weir_pip --target build/hatchling.part hatchling && mv build/hatchling.part build/hatchling
        ;;
    memory-viz)
        # One file of PyTorch's wheel; the wheel for macOS is the smallest, and nothing of it is run but that file.
        weir_say "fetching PyTorch's _memory_viz.py into build/memory_viz"
        rm -rf build/memory_viz.part
        weir_log=$(mktemp)
        if ! weir_watch "$weir_log" python3 -m pip download --disable-pip-version-check --progress-bar off --no-deps \
            --only-binary=:all: --platform macosx_11_0_arm64 --python-version 3.11 --dest build/memory_viz.part 'torch==2.11.*'; then
            tail -n 5 "$weir_log" >&2
            rm -f "$weir_log"
            return 1
        fi
        python3 -c 'import glob, sys, zipfile; zipfile.ZipFile(glob.glob(sys.argv[1])[0]).extract(sys.argv[2], sys.argv[3])' \
            'build/memory_viz.part/*.whl' torch/cuda/_memory_viz.py build/memory_viz.part || return 1
        mkdir -p build/memory_viz
        mv build/memory_viz.part/torch/cuda/_memory_viz.py build/memory_viz/
        rm -rf build/memory_viz.part
        rm -f "$weir_log"
        ;;
    rmm)
        weir_say "fetching RMM into build/rmm"
        weir_wheels build/rmm.part 'librmm-cu13==26.*' rapids-logger && mv build/rmm.part build/rmm
        ;;
    cccl)
        weir_say "fetching the versions of CCCL that weir is tested with into build/cccl"
        for weir_each in $weir_cccl; do
            weir_place=build/cccl/${weir_each%%:*}
            # The folder has its name when all is there.
            [ -d "$weir_place" ] || { weir_wheels "$weir_place.part" "${weir_each#*:}" && mv "$weir_place.part" "$weir_place"; } || {
                weir_say "pip could not fetch CCCL ${weir_each%%:*}"
                return 1
            }
        done
        ;;
    *) return 1 ;;
    esac
}

# weir_headers VERSION: the headers of that CUDA into build/cuda-VERSION/include. Returns 1 if they are not to be had.
weir_headers() {
    weir_place=build/cuda-$1
    [ ! -d "$weir_place/include" ] || return 0
    weir_say "fetching the headers of CUDA $1 into $weir_place"
    case $1 in
    12.*)
        weir_wheels "$weir_place" "nvidia-cuda-runtime-cu12==$1.*" "nvidia-cuda-nvcc-cu12==$1.*" &&
            mv "$weir_place/nvidia/cuda_nvcc/include/crt" "$weir_place/nvidia/cuda_runtime/include/crt" &&
            mv "$weir_place/nvidia/cuda_runtime/include" "$weir_place/include"
        ;;
    *)
        weir_wheels "$weir_place" "nvidia-cuda-runtime==$1.*" "nvidia-cuda-crt==$1.*" &&
            mv "$weir_place/nvidia/cu${1%%.*}/include" "$weir_place/include" # the folder has its name when all is there
        ;;
    esac || {
        weir_say "pip could not fetch the headers of CUDA $1"
        return 1
    }
    rm -rf "$weir_place"/nvidia*
}

# weir_toolkit: puts a CUDA toolkit's nvcc on PATH and sets CUDA_HOME. Returns 1 if there is none here.
weir_toolkit() {
    # The compiler says itself where its toolkit is: what is on PATH may be a link or a wrapper.
    weir_top=
    for weir_nvcc in "${CUDA_HOME:-/nowhere}/bin/nvcc" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
        [ -n "$weir_top" ] || weir_top=$("${weir_nvcc:-/nowhere}" --dryrun -x cu -c /dev/null 2>&1 </dev/null |
            sed -n 's/^#\$ TOP=//p' | head -n 1)
    done
    if [ -n "$weir_top" ]; then
        CUDA_HOME=$(cd "$weir_top" && pwd -P)
    elif [ -x "$weir_fetched/bin/nvcc" ] && [ -e "$weir_fetched/lib64" ]; then
        CUDA_HOME=$PWD/$weir_fetched
    else
        return 1
    fi
    case $PATH in "$CUDA_HOME/bin:"*) ;; *) PATH=$CUDA_HOME/bin:$PATH ;; esac
    # CMake looks here first, whatever else is installed.
    CUDAToolkit_ROOT=$CUDA_HOME
    export PATH CUDA_HOME CUDAToolkit_ROOT
}

# weir_cuda: the same, and fetches one where there is none. Returns 1 if it cannot.
weir_cuda() {
    weir_get nvcc
}

# weir_cache: a folder for ccache where its own cannot be written: without one, or a home, it compiles nothing.
weir_cache() {
    command -v ccache >/dev/null || return 0
    weir_folder=$(ccache --get-config cache_dir 2>/dev/null)
    if [ -z "$weir_folder" ] || ! mkdir -p "$weir_folder" 2>/dev/null || [ ! -w "$weir_folder" ]; then
        CCACHE_DIR=$PWD/build/ccache
        HOME=${HOME:-/}
        export CCACHE_DIR HOME
    fi
}

weir_fetched=build/cuda/nvidia/cu13
# The versions of CUDA that weir is tested with the headers of, the oldest first.
weir_versions='12.8 12.9 13.0 13.1 13.2 13.3 13.4 13.5'
# Each version of CCCL and the wheel that it comes in.
weir_cccl='2.8:nvidia-cuda-cccl-cu12==12.9.* 3.0:nvidia-cuda-cccl==13.0.* 3.1:nvidia-cuda-cccl==13.1.* '
weir_cccl="$weir_cccl 3.2:nvidia-cuda-cccl==13.2.* 3.3:nvidia-cuda-cccl==13.3.3.* 3.4:nvidia-cuda-cccl==13.3.4.*"
weir_cccl="$weir_cccl 3.5:nvidia-cuda-cccl==13.3.5.*"
# ccache finds in one clone what another compiled.
CCACHE_BASEDIR=$PWD
CCACHE_NOHASHDIR=1
CCACHE_SLOPPINESS=time_macros,include_file_mtime,include_file_ctime
export CCACHE_BASEDIR CCACHE_NOHASHDIR CCACHE_SLOPPINESS
