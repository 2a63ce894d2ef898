// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a failure handler have to fit its slot?
//
// optional:  'thread_safe': whether several threads may be inside the handler at once.
// cost:      compile time only.
// not for:   what handlers do: see layer/failure_handler.hpp.

#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

/// Checks a part for the slot of a failure handler.
template <class H, class Failed>
constexpr bool require_handler() {
    constexpr auto answers = [](auto& h, auto const& failed) -> when<all_are<bool, decltype(h(failed))>> {};
    static_assert(accepts<H, Failed const&>(answers),
                  "weir: the handler slot needs 'bool operator()(weir::failed_allocation const&)', true where another "
                  "try is worth it");
    static_assert(absent_or<bool const, has_thread_safe, H>,
                  "weir: the handler slot's handler has 'thread_safe', which must be 'static constexpr bool thread_safe'");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
