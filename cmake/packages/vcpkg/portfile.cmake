# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A port for vcpkg. cmake/release.py fills in what stands between '@'; then 'vcpkg install weir --overlay-ports=' and this folder.
# Written after vcpkg's documentation. The tests play it with functions of vcpkg's names (tests/consume/vcpkg.cmake).
vcpkg_download_distfile(ARCHIVE
    URLS "@address@/@archive@"
    FILENAME "@archive@"
    SHA512 @sha512@)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS -DWEIR_BUILD_TESTS=OFF -DWEIR_BUILD_EXAMPLES=OFF -DWEIR_BUILD_BENCHES=OFF -DWEIR_INSTALL=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/weir)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug" "${CURRENT_PACKAGES_DIR}/lib") # headers alone
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
