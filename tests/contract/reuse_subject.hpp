// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What the reuse contract asks of a rule over a placement. One that does not do all of it has a specialisation of 'usual' in
// the file that lists it. The cases are in reuse_suite.hpp.

#include <cstddef>
#include <weir/base/size.hpp>

namespace reuse_contract {

using weir::KiB;
using weir::MiB;

/// A rule and a placement under it: what a file lists.
template <class Rule, class Placement>
struct bound {
    using rule = Rule;
    using placement = Placement;
    using over = typename Rule::template over<Placement>;
};

/// What a bound rule does.
template <class Bound>
struct usual {
    static constexpr std::size_t most_alignment = 64 * KiB; ///< of a block
    static constexpr bool host_gets_back_at_once = true;    ///< what the host freed, before any 'settle'
};

} // namespace reuse_contract
