// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a failure handler have to fit its slot?
//
// optional:  'thread_safe': whether several threads may be inside the handler at once.
// cost:      compile time only.
// not for:   what handlers do: see layer/failure_handler.hpp.

#include <type_traits>
#include <utility>
#include <weir/contract/holds.hpp>

namespace weir {
inline namespace v0 {
namespace contract {

template <class H, class Failed>
using answers = when<std::is_same_v<decltype(std::declval<H&>()(std::declval<Failed const&>())), bool>>;
template <class H, class Failed>
using walks = when<std::is_same_v<
    decltype(std::declval<H&>().ask(std::declval<Failed const&>(), std::declval<void* (*)()>())), void*>>;
template <class H>
using says_thread_safe = when<is_constant_bool<decltype(H::thread_safe)>>;

/// Checks a part for the slot of a failure handler. A handler that is made of other handlers has 'ask' instead of a call
/// operator.
template <class H, class Failed>
constexpr bool require_handler() {
    static_assert(holds<walks, H, Failed> || holds<answers, H, Failed>,
                  "weir: the handler slot needs 'bool operator()(weir::failed_allocation const&)', true where another "
                  "try is worth it");
    return true;
}

} // namespace contract
} // namespace v0
} // namespace weir
