# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Which CUDA does weir stand on? Used by weir's own build and by its installed package.
#
# Makes two INTERFACE targets: weir::cuda-headers (the folder of cuda_runtime_api.h) and weir::cuda-runtime
# (the runtime library). A machine with only the headers still configures: what then links weir::weir brings
# its own runtime library. With no headers either, or none where it was told to look, it makes no
# target and says why in weir_no_cuda.
#
# WEIR_CUDA_INCLUDE_DIR  the folder of cuda_runtime_api.h, where there is no toolkit to find
# WEIR_CUDA_RUNTIME      static, shared or none; by default what CMAKE_CUDA_RUNTIME_LIBRARY says in one of these words, else
#                        static
#
# The libraries are named by path: an imported target of find_package would be unknown in the folder of a
# project that adds weir as a subfolder.

set(weir_no_cuda "")
if(TARGET weir::cuda-headers)
    return()
endif()

find_package(CUDAToolkit QUIET)
find_path(WEIR_CUDA_INCLUDE_DIR cuda_runtime_api.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda PATH_SUFFIXES include
    DOC "The folder of cuda_runtime_api.h")
if(NOT WEIR_CUDA_INCLUDE_DIR)
    string(CONCAT weir_no_cuda "found no cuda_runtime_api.h; install the CUDA toolkit (its headers suffice to compile), "
        "or set WEIR_CUDA_INCLUDE_DIR to the folder that holds it")
    return()
endif()
if(NOT EXISTS "${WEIR_CUDA_INCLUDE_DIR}/cuda_runtime_api.h")
    # A folder that was named is taken by find_path without a look.
    string(CONCAT weir_no_cuda "WEIR_CUDA_INCLUDE_DIR is '${WEIR_CUDA_INCLUDE_DIR}', which holds no cuda_runtime_api.h; "
        "set it to the folder that does, or unset it (-UWEIR_CUDA_INCLUDE_DIR) to have one looked for")
    return()
endif()

set(weir_runtime_setting WEIR_CUDA_RUNTIME)
if(NOT DEFINED WEIR_CUDA_RUNTIME)
    set(weir_runtime_setting CMAKE_CUDA_RUNTIME_LIBRARY)
    string(TOLOWER "${CMAKE_CUDA_RUNTIME_LIBRARY}" WEIR_CUDA_RUNTIME)
    if(NOT WEIR_CUDA_RUNTIME MATCHES "^(static|shared|none)$") # or a generator expression, which nobody knows yet
        set(WEIR_CUDA_RUNTIME static)
    endif()
endif()

add_library(weir::cuda-headers INTERFACE IMPORTED GLOBAL)
target_include_directories(weir::cuda-headers SYSTEM INTERFACE "${WEIR_CUDA_INCLUDE_DIR}")

add_library(weir::cuda-runtime INTERFACE IMPORTED GLOBAL)
# CMake stops at what is no generator expression, and shows it. The property is weir::simulated_device's.
set_target_properties(weir::cuda-runtime PROPERTIES INTERFACE_LINK_OPTIONS "$<$<BOOL:$<TARGET_PROPERTY:WEIR_SIMULATED_DEVICE>>:\
$<weir: a program has one CUDA runtime. Link weir::weir or weir::simulated_device, not both. A library that both kinds of program \
link is linked with weir::headers>>")
if(WEIR_CUDA_RUNTIME STREQUAL "static" AND TARGET CUDA::cudart_static)
    get_target_property(weir_cudart CUDA::cudart_static IMPORTED_LOCATION)
    target_link_libraries(weir::cuda-runtime INTERFACE "${weir_cudart}")
    if(UNIX)
        target_link_libraries(weir::cuda-runtime INTERFACE pthread ${CMAKE_DL_LIBS} rt)
    endif()
elseif(WEIR_CUDA_RUNTIME STREQUAL "shared" AND TARGET CUDA::cudart)
    get_target_property(weir_cudart CUDA::cudart IMPORTED_LOCATION)
    target_link_libraries(weir::cuda-runtime INTERFACE "${weir_cudart}")
elseif(WEIR_CUDA_RUNTIME STREQUAL "none")
    message(STATUS "weir: weir::weir brings no CUDA runtime library, because ${weir_runtime_setting} is '${${weir_runtime_setting}}'")
else()
    if(NOT WEIR_CUDA_RUNTIME MATCHES "^(static|shared)$")
        message(FATAL_ERROR "weir: WEIR_CUDA_RUNTIME is '${WEIR_CUDA_RUNTIME}'; use static, shared or none")
    endif()
    message(STATUS "weir: found CUDA's headers but no ${WEIR_CUDA_RUNTIME} runtime library; weir::weir brings none")
endif()
