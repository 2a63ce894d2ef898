# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# What weir's own tests, examples and benches are built with. No user of the library ever sees this file.
#
# weir-flags    warnings, sanitizers, coverage
# weir-device   weir with a CUDA runtime under it: the simulated one, or the real one
# weir-cccl     Thrust and CUB, for the few files that name them

set(WEIR_SANITIZE "" CACHE STRING "Sanitizers of weir's own programs: 'address,undefined', 'thread' or nothing")
option(WEIR_COVERAGE "Count which lines weir's own programs reach" OFF)
option(WEIR_WERROR "Make every warning in weir's own programs an error" OFF)
set(WEIR_DEVICE "" CACHE STRING "What weir's own programs run on: 'simulated' or 'real'; empty: real if a GPU answers and there is nvcc")
set_property(CACHE WEIR_DEVICE PROPERTY STRINGS "" simulated real)

if(WEIR_DEVICE STREQUAL "")
    execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE weir_gpus ERROR_QUIET RESULT_VARIABLE weir_no_gpu)
    set_property(CACHE WEIR_DEVICE PROPERTY VALUE simulated)
    if(NOT weir_no_gpu AND weir_gpus MATCHES "GPU 0")
        include(CheckLanguage)
        check_language(CUDA)
        if(CMAKE_CUDA_COMPILER)
            set_property(CACHE WEIR_DEVICE PROPERTY VALUE real)
        else()
            message(STATUS "weir: there is a GPU, and no CUDA compiler")
        endif()
    endif()
endif()
if(NOT WEIR_DEVICE MATCHES "^(simulated|real)$")
    message(FATAL_ERROR "weir: WEIR_DEVICE is '${WEIR_DEVICE}'; it must be 'simulated' or 'real'")
endif()
message(STATUS "weir: tests, examples and benches run on the ${WEIR_DEVICE} device")

find_program(WEIR_CCACHE ccache)
mark_as_advanced(WEIR_CCACHE)
if(WEIR_CCACHE)
    foreach(language IN ITEMS CXX CUDA)
        if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
            set(CMAKE_${language}_COMPILER_LAUNCHER ${WEIR_CCACHE})
        endif()
    endforeach()
endif()

if(NOT CMAKE_CXX_STANDARD)
    set(CMAKE_CXX_STANDARD 17)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD ${CMAKE_CXX_STANDARD})
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Debug)
endif()

add_library(weir-flags INTERFACE)
set(weir_warnings -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow)
if(WEIR_WERROR)
    list(APPEND weir_warnings -Werror)
endif()
string(REPLACE ";" "," weir_warnings_of_host "${weir_warnings}")
target_compile_options(weir-flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${weir_warnings}> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(WEIR_SANITIZE)
    set(weir_sanitizers -fsanitize=${WEIR_SANITIZE} -fno-omit-frame-pointer)
    if(WEIR_SANITIZE MATCHES "undefined")
        list(APPEND weir_sanitizers -fno-sanitize-recover=undefined)
        if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
            list(APPEND weir_sanitizers -fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/sanitizers-ignore.txt)
        endif()
    endif()
    target_compile_options(weir-flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${weir_sanitizers}>)
    target_link_options(weir-flags INTERFACE -fsanitize=${WEIR_SANITIZE})
endif()
if(WEIR_COVERAGE)
    # Threads that count together lose some, and what the compiler derives from such counts may be zero where lines ran. Where one
    # thread runs at a time, counts without atomic updates take a quarter of the time.
    set(one_thread $<BOOL:$<TARGET_PROPERTY:WEIR_COUNTS_IN_ONE_THREAD>>)
    target_compile_options(weir-flags INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:--coverage> $<$<COMPILE_LANGUAGE:CXX>:-fprofile-update=$<IF:${one_thread},single,atomic>>)
    target_link_options(weir-flags INTERFACE --coverage)
endif()

find_path(WEIR_CCCL_INCLUDE_DIR thrust/version.h HINTS ${WEIR_CUDA_INCLUDE_DIR} PATH_SUFFIXES cccl
    NO_DEFAULT_PATH DOC "The folder of thrust/ and cub/")
mark_as_advanced(WEIR_CCCL_INCLUDE_DIR)
add_library(weir-cccl INTERFACE)
if(WEIR_CCCL_INCLUDE_DIR)
    target_include_directories(weir-cccl SYSTEM INTERFACE ${WEIR_CCCL_INCLUDE_DIR})
endif()

# Both devices have a target, so that a machine without a GPU compiles for one; 'weir-device' is the chosen one.
add_library(weir-simulated INTERFACE)
target_link_libraries(simulated_cuda PRIVATE weir-flags)
target_compile_options(simulated_cuda PRIVATE $<$<CONFIG:Debug>:-O1>) # all tests run through it
# By the file, so that an edit compiles one, and no call is inlined that bench/instructions counts.
set_target_properties(simulated_cuda PROPERTIES UNITY_BUILD OFF)
target_link_libraries(weir-simulated INTERFACE simulated_cuda)
target_include_directories(weir-simulated INTERFACE tests) # "simulated_cuda/simulated_cuda.hpp"

add_library(weir-device INTERFACE)
if(WEIR_DEVICE STREQUAL "real")
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
        execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
            OUTPUT_VARIABLE weir_capability ERROR_QUIET)
        if(weir_capability MATCHES "([0-9]+)\\.([0-9]+)")
            set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
        endif()
    endif()
    enable_language(CUDA)
    target_link_libraries(weir-device INTERFACE weir)
else()
    target_link_libraries(weir-device INTERFACE weir-simulated)
endif()

# weir_program(name source...): an executable of ours on weir-device.
#
# A source that names Thrust, CUB or libcu++, or that ends in .cu, is compiled by nvcc on the real device and by
# the C++ compiler on the simulated one, with Thrust's backend for C++. Nobody else pays for their headers.
function(weir_program name)
    foreach(source IN LISTS ARGN)
        file(STRINGS ${source} names_cccl REGEX "#include <(thrust|cub|cuda|weir/kernel)/|#include <weir/interop/(thrust|cub|cuda_mr)")
        if(names_cccl OR source MATCHES "\\.cu$")
            if(WEIR_DEVICE STREQUAL "real")
                set_source_files_properties(${source} PROPERTIES LANGUAGE CUDA)
            else()
                set_source_files_properties(${source} PROPERTIES LANGUAGE CXX)
            endif()
            set(with_cccl ON)
        endif()
    endforeach()
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE weir-flags weir-device)
    if(with_cccl)
        target_link_libraries(${name} PRIVATE weir-cccl)
    endif()
    if(WEIR_DEVICE STREQUAL "real")
        set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY Static)
        target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda --expt-relaxed-constexpr>)
    endif()
endfunction()
