// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the handler slot's handler has 'thread_safe', which must be 'static constexpr bool thread_safe'
#include <weir/contract/handler_slot.hpp>

struct my_handler {
    bool operator()(int const&) { return false; }
#ifdef REJECT
    bool thread_safe = true; // of an object, not of the type
#else
    static constexpr bool thread_safe = true;
#endif
};

static_assert(weir::contract::require_handler<my_handler, int>());
