# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A port for vcpkg, as an overlay: 'vcpkg install weir --overlay-ports=cmake/packages/vcpkg' in a clone, whose sources it takes; with
# WEIR_ARCHIVE in the environment it takes a released archive instead ('git archive --prefix=weir/ v0.2.0').
# Written after vcpkg's documentation, and untried.
if(DEFINED ENV{WEIR_ARCHIVE})
    vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "$ENV{WEIR_ARCHIVE}")
else()
    get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
endif()

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS -DWEIR_BUILD_TESTS=OFF -DWEIR_BUILD_EXAMPLES=OFF -DWEIR_BUILD_BENCHES=OFF -DWEIR_INSTALL=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/weir)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug" "${CURRENT_PACKAGES_DIR}/lib") # headers alone
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
