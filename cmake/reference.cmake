# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The reference, made from the headers' comments: 'cmake --build build --target weir-reference' writes build/reference/html.
#
# There is a target where Doxygen is installed. It fails if Doxygen warns.

find_package(Doxygen 1.9 QUIET)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT TARGET Doxygen::doxygen OR NOT TARGET Python3::Interpreter)
    return()
endif()

set(DOXYGEN_PROJECT_NAME weir)
set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/reference)
set(DOXYGEN_FILE_PATTERNS *.hpp *.cuh *.dox)
set(DOXYGEN_EXTENSION_MAPPING cuh=C++)
set(DOXYGEN_STRIP_FROM_PATH ${PROJECT_SOURCE_DIR}/include)
set(DOXYGEN_STRIP_FROM_INC_PATH ${PROJECT_SOURCE_DIR}/include)
set(DOXYGEN_INPUT_FILTER "\"\\\"${Python3_EXECUTABLE}\\\" \\\"${CMAKE_CURRENT_LIST_DIR}/reference.py\\\"\"")
set(DOXYGEN_VERBATIM_VARS DOXYGEN_INPUT_FILTER)
set(DOXYGEN_ALIASES "heading{1}=^^@par \\1^^")
set(DOXYGEN_JAVADOC_AUTOBRIEF YES) # a comment's first sentence stands in the list of members
set(DOXYGEN_INLINE_INHERITED_MEMB YES) # containers have theirs from classes that nobody names
set(DOXYGEN_HIDE_UNDOC_CLASSES YES)
set(DOXYGEN_EXTRACT_STATIC YES) # weir::default_stream
set(DOXYGEN_PREDEFINED CUDART_VERSION=13000 CCCL_VERSION=3002000) # what newer versions have is shown, too
file(GLOB weir_guides CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.md)
list(FILTER weir_guides EXCLUDE REGEX "/README\\.md$")
set(DOXYGEN_HTML_EXTRA_FILES ${weir_guides}) # the guides, which reference.dox links
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_WARN_IF_UNDOCUMENTED NO) # what parts say to each other has no '///'
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
set(DOXYGEN_QUIET YES)
doxygen_add_docs(weir-reference ${PROJECT_SOURCE_DIR}/include/weir ${CMAKE_CURRENT_LIST_DIR}/reference.dox
    COMMENT "The reference pages")
