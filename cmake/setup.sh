# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh
# What does a machine need before weir's tests or examples build, and where does it come from? Sourced by
# tests/run.sh and examples/run.sh.
#
# Debian's packages where apt-get is there; the CUDA toolkit's wheels into build/cuda where there is no nvcc (the
# compiler, the headers and the runtime: no driver, no GPU); for the tests the headers of the oldest CUDA that weir compiles
# with into build/cuda-12.8. Nothing is installed that is there already, and everything said goes to stderr.
#
#     . cmake/setup.sh; weir_packages 'g++:g++' 'header doctest/doctest.h:doctest-dev'; weir_cuda

weir_say() {
    printf '%s\n' "weir: $*" >&2
}

# weir_has TEST: 'NAME' (a command), 'header PATH', 'library NAME' (g++ links it), 'sanitizers CXX'.
weir_has() {
    case $1 in
    header\ *) echo "#include <${1#header }>" | g++ -x c++ -std=c++17 -fsyntax-only -I.cache/include - 2>/dev/null ;;
    library\ *) echo 'int main(){}' | g++ -x c++ - -o /dev/null "-l${1#library }" 2>/dev/null ;;
    sanitizers\ *) echo 'int main(){}' | "${1#sanitizers }" -x c++ -fsanitize=address - -o /dev/null 2>/dev/null ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# weir_packages 'TEST:PACKAGE'...: installs the packages of the tests that fail. Returns 1 if any is still missing.
weir_packages() {
    weir_missing=
    for weir_pair; do
        weir_has "${weir_pair%%:*}" || weir_missing="$weir_missing ${weir_pair#*:}"
    done
    [ -n "$weir_missing" ] || return 0
    weir_as_root=
    if [ "$(id -u)" != 0 ]; then
        weir_as_root=sudo
    fi
    if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$weir_as_root" ] && ! command -v sudo >/dev/null 2>&1; }; then
        weir_say "missing, and not mine to install here:$weir_missing (Debian's names)"
        return 1
    fi
    weir_say "installing:$weir_missing"
    export DEBIAN_FRONTEND=noninteractive
    weir_log=$(mktemp)
    # shellcheck disable=SC2086
    if ! { $weir_as_root apt-get update && $weir_as_root apt-get install -y --no-install-recommends $weir_missing; } \
        >"$weir_log" 2>&1 </dev/null; then
        tail -n 15 "$weir_log" >&2
        weir_say "apt-get could not install:$weir_missing"
        rm -f "$weir_log"
        return 1
    fi
    rm -f "$weir_log"
    for weir_pair; do
        if ! weir_has "${weir_pair%%:*}"; then
            weir_say "'${weir_pair%%:*}' is still missing after installing ${weir_pair#*:}"
            return 1
        fi
    done
}

# weir_wheels FOLDER WHEEL...: PyPI's wheels into FOLDER, which is emptied first.
weir_wheels() {
    weir_packages 'python3:python3' || return 1
    python3 -m pip --version >/dev/null 2>&1 || weir_packages 'pip3:python3-pip' || return 1
    rm -rf "$1"
    python3 -m pip install --quiet --no-deps --disable-pip-version-check --root-user-action=ignore --target "$@" >&2 </dev/null
}

# weir_oldest_cuda: the headers of the oldest CUDA that weir compiles with into build/cuda-12.8/include. Returns 1 if they
# are not to be had.
weir_oldest_cuda() {
    weir_oldest=build/cuda-12.8
    [ ! -d $weir_oldest/include ] || return 0
    weir_say "fetching the headers of CUDA 12.8 into $weir_oldest"
    # The folder has its name when all is there.
    if ! { weir_wheels $weir_oldest 'nvidia-cuda-runtime-cu12==12.8.*' 'nvidia-cuda-nvcc-cu12==12.8.*' &&
        mv $weir_oldest/nvidia/cuda_nvcc/include/crt $weir_oldest/nvidia/cuda_runtime/include/crt &&
        mv $weir_oldest/nvidia/cuda_runtime/include $weir_oldest/include && rm -rf $weir_oldest/nvidia*; }; then
        weir_say "could not fetch the headers of CUDA 12.8, which the stage 'oldest' of the tests needs"
        return 1
    fi
}

# weir_cuda: puts a CUDA toolkit's nvcc on PATH and sets CUDA_HOME. Returns 1 if there is none to be had.
weir_cuda() {
    weir_toolkit=build/cuda/nvidia/cu13
    # The compiler says itself where its toolkit is: what is on PATH may be a link or a wrapper.
    weir_top=
    for weir_nvcc in "${CUDA_HOME:-/nowhere}/bin/nvcc" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
        [ -n "$weir_top" ] || weir_top=$("${weir_nvcc:-/nowhere}" --dryrun -x cu -c /dev/null 2>&1 </dev/null | sed -n 's/^#\$ TOP=//p' | head -n 1)
    done
    if [ -n "$weir_top" ]; then
        CUDA_HOME=$(cd "$weir_top" && pwd -P)
    else
        if [ ! -x "$weir_toolkit/bin/nvcc" ] || [ ! -e "$weir_toolkit/lib64" ]; then
            weir_say "no nvcc here: fetching the CUDA toolkit's wheels into build/cuda"
            # The wheels are one release: nvcc's parts must match one another.
            if ! weir_wheels build/cuda 'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*' \
                'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*'; then
                weir_say "pip could not fetch the CUDA toolkit; install one, or set CUDA_HOME to a folder that holds include/cuda_runtime_api.h"
                return 1
            fi
            # A wheel holds neither of these links; nvcc, FindCUDAToolkit and the linker look for them.
            ln -sfn libcudart.so.13 "$weir_toolkit/lib/libcudart.so"
            ln -sfn lib "$weir_toolkit/lib64"
        fi
        CUDA_HOME=$PWD/$weir_toolkit
    fi
    PATH=$CUDA_HOME/bin:$PATH
    # CMake looks here first, whatever else is installed.
    CUDAToolkit_ROOT=$CUDA_HOME
    export PATH CUDA_HOME CUDAToolkit_ROOT
}

# ccache finds in one clone what another compiled.
CCACHE_BASEDIR=$PWD
CCACHE_NOHASHDIR=1
CCACHE_SLOPPINESS=time_macros,include_file_mtime,include_file_ctime
export CCACHE_BASEDIR CCACHE_NOHASHDIR CCACHE_SLOPPINESS
