// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: weir: the placement slot's placement has 'is_small', which must be 'static bool is_small(std::size_t bytes,
// std::size_t alignment)', so it needs 'range take_at_hand(std::size_t bytes, std::size_t alignment)'
// expect: weir: the placement slot's placement has 'largest', which must be 'std::size_t largest() const'
// expect: weir: the placement slot's placement has 'remove', which must be 'bool remove(range)'
// expect: weir: the placement slot's placement has 'fence', so it needs 'void for_each_free(std::size_t least_bytes, Visit)'
// expect: weir: the placement slot needs both or none of 'void absorb(Placement&)' and 'range lend(std::size_t bytes,
// expect: weir: the placement slot's placement has 'mark', so it needs 'usage rewind(Mark, usage)'
#include <weir/contract/placement_slot.hpp>

struct my_placement {
    weir::base::range take(std::size_t, std::size_t) { return {}; }
    weir::base::range take_at_hand(std::size_t, std::size_t) { return {}; }
    void give(weir::base::range) {}
    void add(weir::base::range) {}
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) { return bytes; }
    static constexpr std::size_t needs(std::size_t bytes, std::size_t, std::size_t) { return bytes; }
    static constexpr bool is_small(std::size_t, std::size_t) { return false; }
    static constexpr std::size_t granularity = 1;
    std::size_t free_bytes() const { return 0; }
    std::size_t free_before(std::size_t) const { return 0; }
    std::size_t free_after(std::size_t) const { return 0; }
    bool remove(weir::base::range, std::size_t) { return false; }
    void for_each_free(std::size_t, void (*)(weir::base::range)) {}
    void fence(weir::base::range) {}
    weir::base::range squeeze(std::size_t, std::size_t) { return {}; }
    static std::size_t squeeze_needs(std::size_t bytes, std::size_t, std::size_t) { return bytes; }
    void expect_at_most(std::size_t) {}
    int mark(weir::base::usage) { return 0; }
    void clear() {}
    void absorb(my_placement&) {}
#ifdef REJECT
    double largest() const { return 0; }
    void remove(weir::base::range) {}
    void rewind(int) {}
#else
    std::size_t splinter_bytes() const { return 0; }
    std::size_t largest() const { return 0; }
    bool remove(weir::base::range) { return false; }
    weir::base::range lend(std::size_t, std::size_t) { return {}; }
    weir::base::usage rewind(int, weir::base::usage now) { return now; }
#endif
};
#ifdef REJECT
struct lacks_free_after : my_placement {
    void free_after(std::size_t) const {}
};
static_assert(weir::contract::require_placement<lacks_free_after>());
#endif

static_assert(weir::contract::require_placement<my_placement>());
