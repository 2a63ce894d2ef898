// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Under a sanitizer, operator new of more than there is ends the program unless it is told to answer null, as the
// contract of upstream::host expects.

extern "C" char const* __asan_default_options();
extern "C" char const* __tsan_default_options();

extern "C" char const* __asan_default_options() {
    return "allocator_may_return_null=1";
}
extern "C" char const* __tsan_default_options() {
    return "allocator_may_return_null=1";
}
