# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Plays vcpkg for weir's port: 'cmake -DPORT=FOLDER -DPLACE=FOLDER -P vcpkg.cmake' installs into PLACE/packages. Its functions do
# what vcpkg's documentation says of those that the port calls, as far as the port needs.
cmake_minimum_required(VERSION 3.22)
set(CURRENT_PACKAGES_DIR ${PLACE}/packages)

function(do)
    execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE code)
    if(code OR said MATCHES "not used by the project")
        message(FATAL_ERROR "${ARGN}:\n${said}")
    endif()
endfunction()

function(vcpkg_download_distfile result)
    cmake_parse_arguments(PARSE_ARGV 1 with "" "FILENAME;SHA512" "URLS")
    file(DOWNLOAD ${with_URLS} ${PLACE}/${with_FILENAME} EXPECTED_HASH SHA512=${with_SHA512})
    set(${result} ${PLACE}/${with_FILENAME} PARENT_SCOPE)
endfunction()

function(vcpkg_extract_source_archive result)
    cmake_parse_arguments(PARSE_ARGV 1 with "" "ARCHIVE" "")
    file(ARCHIVE_EXTRACT INPUT ${with_ARCHIVE} DESTINATION ${PLACE}/sources)
    file(GLOB top ${PLACE}/sources/*) # its one folder is left out of the path
    set(${result} ${top} PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
    cmake_parse_arguments(PARSE_ARGV 0 with "" "SOURCE_PATH" "OPTIONS")
    do(${CMAKE_COMMAND} -G Ninja -S ${with_SOURCE_PATH} -B ${PLACE}/build -DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} ${with_OPTIONS})
endfunction()

function(vcpkg_cmake_install)
    do(${CMAKE_COMMAND} --build ${PLACE}/build --target install)
endfunction()

# To share/weir, where one folder less lies between a file and the prefix.
function(vcpkg_cmake_config_fixup)
    cmake_parse_arguments(PARSE_ARGV 0 with "" "CONFIG_PATH" "")
    file(GLOB files ${CURRENT_PACKAGES_DIR}/${with_CONFIG_PATH}/*)
    foreach(from IN LISTS files)
        get_filename_component(name ${from} NAME)
        file(READ ${from} text)
        string(REPLACE "\${CMAKE_CURRENT_LIST_DIR}/../../../" "\${CMAKE_CURRENT_LIST_DIR}/../../" text "${text}")
        string(REPLACE "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\nget_filename_component(_IMPORT_PREFIX"
            "get_filename_component(_IMPORT_PREFIX" text "${text}")
        file(WRITE ${CURRENT_PACKAGES_DIR}/share/weir/${name} "${text}")
    endforeach()
    file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/${with_CONFIG_PATH})
endfunction()

function(vcpkg_install_copyright)
    cmake_parse_arguments(PARSE_ARGV 0 with "" "" "FILE_LIST")
    file(COPY ${with_FILE_LIST} DESTINATION ${CURRENT_PACKAGES_DIR}/share/weir)
endfunction()

include(${PORT}/portfile.cmake)
