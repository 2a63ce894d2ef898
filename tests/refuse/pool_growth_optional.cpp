// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the growth slot's policy has 'piece', which must be 'static std::size_t piece(std::size_t reserved_bytes,
// expect: weir: the growth slot's policy has 'piece', so it needs 'static constexpr unsigned moved_percent' of at least 1 (see
// growth::by_holes) and a policy 'apart' for devices that cannot grow in place
#include <weir/contract/growth_slot.hpp>
#include <weir/growth/exact.hpp>

struct cuts_into_doubles : weir::growth::exact {
#ifdef REJECT
    static double piece(std::size_t, weir::base::holes) { return 1; }
#else
    static std::size_t piece(std::size_t, weir::base::holes) { return 1; }
#endif
    static constexpr unsigned moved_percent = 1;
    using apart = weir::growth::exact;
};
struct lacks_apart : weir::growth::exact {
    static std::size_t piece(std::size_t, weir::base::holes) { return 1; }
    static constexpr unsigned moved_percent = 1;
#ifndef REJECT
    using apart = weir::growth::exact;
#endif
};

static_assert(weir::contract::require_growth<cuts_into_doubles>() && weir::contract::require_growth<lacks_apart>());
