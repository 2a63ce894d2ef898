// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a part have to fit its slot, and who tells its author?
//
// A part is plugged in as a template argument. Where it meets its neighbours, one of the 'require_' checks here
// runs at compile time, one clause at a time, and the sentence names the slot, the member that is missing and
// its signature. Optional members are found by the traits; a part that cannot do a thing leaves the member out,
// and absence is information.
//
// invariant: what a check demands is what the code behind the slot uses, and no more.
// cost:      compile time only.
// not for:   meaning: that a part keeps its promises is shown by the contract suites in tests/.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/hole_watch.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/resource.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/upstream_contract.hpp>
#include <weir/base/usage.hpp>

namespace weir {
inline namespace v0 {
namespace contracts {

// Placement.
template <class P>
using takes = when<std::is_same_v<decltype(std::declval<P&>().take(std::size_t{}, std::size_t{})), range>>;
template <class P>
using gives = decltype(std::declval<P&>().give(range{}));
template <class P>
using adds = decltype(std::declval<P&>().add(range{}));
template <class P>
using rounds = when<std::is_same_v<decltype(P::rounded(std::size_t{}, std::size_t{})), std::size_t>>;
template <class P>
using counts_free = size_type_of<decltype(std::declval<P const&>().free_bytes())>;
template <class P>
using splinters = decltype(P::is_small(0, 0), std::declval<P&>().take_at_hand(0, 0).bytes + std::declval<P const&>().splinter_bytes());
template <class P>
using knows_largest = size_type_of<decltype(std::declval<P const&>().largest())>;
template <class P>
using fences_chunks = decltype(std::declval<P&>().fence(range{}));
template <class P>
using removes = when<std::is_same_v<decltype(std::declval<P&>().remove(range{})), bool>>;
template <class P>
using knows_free = decltype(std::declval<P const&>().free_before(std::size_t{}), std::declval<P const&>().free_after(std::size_t{}),
                            std::declval<P&>().remove(range{}, std::size_t{}),
                            std::declval<P&>().for_each_free(std::size_t{}, std::declval<void (*)(range)>()));
template <class P>
using makes_sibling = when<std::is_same_v<decltype(std::declval<P const&>().sibling()), P>>;
template <class P>
using absorbs = decltype(std::declval<P&>().absorb(std::declval<P&>()));
template <class P>
using lends = when<std::is_same_v<decltype(std::declval<P&>().lend(std::size_t{}, std::size_t{})), range>>;
template <class P>
using marks = when<std::is_same_v<decltype(std::declval<P&>().rewind(std::declval<P&>().mark(usage{}), usage{})), usage>>;
template <class P>
using clears = decltype(std::declval<P&>().clear());
template <class P>
using says_needs = when<std::is_same_v<decltype(P::needs(std::size_t{}, std::size_t{}, std::size_t{})), std::size_t>>;

template <class Placement>
inline constexpr bool has_largest = holds<knows_largest, Placement>;
template <class Placement>
inline constexpr bool fences = holds<fences_chunks, Placement>;
template <class Placement>
inline constexpr bool has_remove = holds<removes, Placement>;
template <class Placement>
inline constexpr bool has_free_ranges = holds<knows_free, Placement>;
template <class Placement>
inline constexpr bool has_sibling = holds<makes_sibling, Placement>;
template <class Placement>
inline constexpr bool migrates = holds<absorbs, Placement>&& holds<lends, Placement>;
template <class Placement>
inline constexpr bool has_mark = holds<marks, Placement>;
template <class Placement>
inline constexpr bool has_clear = holds<clears, Placement>;
// Reuse.
template <class R, class Placement>
using binds = typename R::template over<Placement>;
template <class R>
using says_what_it_promises = when<is_constant_bool<decltype(R::thread_safe)> &&
                                   is_constant_bool<decltype(R::orders_streams)> &&
                                   is_constant_bool<decltype(R::waits_before_growing)>>;

// Reuse, as bound to a placement.
template <class R, class Stream>
using reuse_takes =
    when<std::is_same_v<decltype(std::declval<R&>().take(std::size_t{}, std::size_t{}, std::declval<Stream>())), range>>;
template <class R, class Stream>
using reuse_gives = when<noexcept(std::declval<R&>().give(range{}, std::declval<Stream>()))>;
template <class R, class Stream>
using reuse_adds = decltype(std::declval<R&>().add(range{}, std::declval<Stream>()));
template <class R>
using knows_devices = decltype(R(0));
template <class R>
using settles = decltype(std::declval<R&>().settle());
template <class R, class Stream>
using borrows = decltype(std::declval<R&>().borrow(std::size_t{}, std::size_t{}, std::declval<Stream>()));
template <class R>
using strands = decltype(std::declval<R&>().strand(range{}));
template <class R, class Stream>
using gathers = decltype(std::declval<R&>().gather(std::declval<Stream>(), bool{}));
template <class R, class Stream, class Placement>
using shows_free = decltype(std::declval<R&>().visit_usable(std::declval<Stream>(), std::declval<void (*)(Placement&)>()),
                            std::declval<R&>().visit_unused(std::declval<bool (*)(Placement&)>(), std::size_t{}));
template <class R>
using reclaims = decltype(std::declval<R&>().reclaim());
template <class R>
using waits = when<std::is_same_v<decltype(std::declval<R&>().wait()), bool>>;
template <class R>
using counts_unsettled = size_type_of<decltype(std::declval<R&>().unsettled_bytes())>;
template <class R>
using counts_uses = when<std::is_same_v<decltype(std::declval<R&>().used()), usage>>;
template <class R>
using ends_many = decltype(std::declval<R&>().placement(), std::declval<R&>().counts());
template <class T, class Block, class Stream>
using marks_users = decltype(std::declval<T&>().used_on(std::declval<Block>(), std::declval<Stream>()));
template <class T, class Block, class Stream>
using notes_last_uses = decltype(std::declval<T&>().last_used_on(std::declval<Block>(), std::declval<Stream>()));

// Growth.
template <class G>
using cuts_pieces = when<std::is_same_v<decltype(G::piece(std::size_t{}, holes{})), std::size_t> &&
                         std::is_same_v<decltype(G::moved_percent), unsigned const> && (G::moved_percent > 0) &&
                         std::is_same_v<decltype(G::apart::next(std::size_t{}, std::size_t{})), std::size_t>>;
template <class G>
using has_piece = decltype(&G::piece);
template <class G>
using grows = when<std::is_same_v<decltype(G::next(std::size_t{}, std::size_t{})), std::size_t>>;

// Pool. The host stands for a stream where no stream is known.
template <class P, class Stream>
using tries = when<std::is_same_v<
    decltype(std::declval<P&>().try_allocate(std::declval<Stream>(), std::size_t{}, std::size_t{})), void*>>;
template <class P, class Stream>
using frees = when<noexcept(std::declval<P&>().deallocate(std::declval<Stream>(), static_cast<void*>(nullptr),
                                                          std::size_t{}, std::size_t{}))>;
template <class P>
using says_default_alignment = when<is_power_of_two(P::default_alignment)>;
template <class P>
using says_what_its_users_may =
    when<is_constant_bool<decltype(P::thread_safe)> && is_constant_bool<decltype(P::stream_ordered)>>;
template <class P>
using tells = when<std::is_same_v<decltype(std::declval<P const&>().facts()), memory_report> &&
                   std::is_convertible_v<decltype(std::declval<P const&>().refusal(std::size_t{}, std::size_t{})), text>>;
template <class P>
using says_device = when<std::is_same_v<decltype(std::declval<P const&>().device()), int>>;
template <class P>
using marks_pool = decltype(std::declval<P&>().rewind(std::declval<P&>().mark()));
template <class P>
using knows_owner = when<std::is_same_v<decltype(std::declval<P const&>().owns(nullptr)), bool>>;
template <class P>
using trims = size_type_of<decltype(std::declval<P&>().trim())>;
template <class P>
using trims_to = when<std::is_convertible_v<decltype(std::declval<P&>().trim(std::size_t{})), std::size_t> &&
                      std::is_convertible_v<decltype(std::declval<P const&>().reserved_bytes()), std::size_t>>;

// Failure handler.
template <class H, class Failed>
using answers = when<std::is_same_v<decltype(std::declval<H&>()(std::declval<Failed const&>())), bool>>;
template <class H, class Failed>
using walks = when<std::is_same_v<
    decltype(std::declval<H&>().ask(std::declval<Failed const&>(), std::declval<void* (*)()>())), void*>>;
template <class H>
using says_thread_safe = when<is_constant_bool<decltype(H::thread_safe)>>;
template <class Pool>
inline constexpr bool has_owns = holds<knows_owner, Pool>;
template <class Pool, class Stream>
inline constexpr bool has_used_on = holds<marks_users, Pool, void*, Stream> && holds<notes_last_uses, Pool, void*, Stream>;

/// The placement slot.
template <class P>
constexpr bool require_placement() {
    static_assert(holds<takes, P>, "weir: the placement slot needs 'range take(std::size_t bytes, std::size_t alignment)'");
    static_assert(holds<gives, P>, "weir: the placement slot needs 'void give(range)'");
    static_assert(holds<adds, P>, "weir: the placement slot needs 'void add(range)'");
    static_assert(holds<rounds, P>, "weir: the placement slot needs 'static constexpr std::size_t "
                                    "rounded(std::size_t bytes, std::size_t alignment)'");
    static_assert(holds<says_needs, P>,
                  "weir: the placement slot needs 'static constexpr std::size_t needs(std::size_t bytes, std::size_t "
                  "alignment, std::size_t base_alignment)', the bytes of a chunk that surely has room for such a block");
    static_assert(holds<counts_free, P>, "weir: the placement slot needs 'std::size_t free_bytes() const'");
    return true;
}

/// The reuse slot, before it is bound to a placement.
template <class R, class Placement>
constexpr bool require_rule() {
    static_assert(holds<binds, R, Placement>, "weir: the reuse slot needs a nested 'template <class Placement> class over'");
    static_assert(holds<says_what_it_promises, R>,
                  "weir: the reuse slot needs 'static constexpr bool' members 'thread_safe', 'orders_streams' and "
                  "'waits_before_growing'");
    if constexpr (holds<binds, R, Placement> && holds<says_what_it_promises, R>)
        if constexpr (R::waits_before_growing)
            static_assert(holds<borrows, typename R::template over<Placement>, on_host_t>,
                          "weir: the reuse slot's rule says 'waits_before_growing', so its 'over' needs 'range "
                          "borrow(std::size_t bytes, std::size_t alignment, stream_ref)'");
    return true;
}

/// The reuse slot; `R` is the rule's 'over<Placement>'.
template <class R, class Stream>
constexpr bool require_reuse() {
    static_assert(holds<reuse_takes, R, Stream>, "weir: the reuse slot's 'over' needs 'range take(std::size_t bytes, "
                                                 "std::size_t alignment, stream_ref)'");
    static_assert(holds<reuse_gives, R, Stream>,
                  "weir: the reuse slot's 'over' needs 'void give(range, stream_ref) noexcept'");
    static_assert(holds<reuse_adds, R, Stream>, "weir: the reuse slot's 'over' needs 'void add(range, stream_ref)'");
    static_assert(holds<settles, R>, "weir: the reuse slot's 'over' needs 'void settle()'");
    static_assert(holds<knows_devices, R>, "weir: the reuse slot's 'over' needs a constructor 'over(int ordinal)'");
    static_assert(holds<counts_uses, R>, "weir: the reuse slot's 'over' needs 'usage used()'");
    static_assert(holds<marks_users, R, range, Stream> == holds<notes_last_uses, R, range, Stream>,
                  "weir: the reuse slot's 'over' needs both or none of 'void used_on(range, stream_ref)', which marks a stream for "
                  "whose work until the free 'give' waits, and 'void last_used_on(range, stream_ref)', for its work so far");
    if constexpr (holds<gathers, R, Stream>)
        static_assert(holds<reclaims, R>, "weir: the reuse slot's 'over' has 'gather', so it needs 'void reclaim()'");
    if constexpr (holds<gathers, R, Stream> && holds<borrows, R, Stream>) {
        static_assert(holds<waits, R>, "weir: the reuse slot's 'over' has 'gather' and 'borrow', so it needs 'bool "
                                       "wait()', true where something was in flight");
        static_assert(holds<counts_unsettled, R>,
                      "weir: the reuse slot's 'over' has 'gather' and 'borrow', so it needs 'std::size_t "
                      "unsettled_bytes()', which 'settle' would free");
    }
    return true;
}

/// The growth slot.
template <class G>
constexpr bool require_growth() {
    static_assert(holds<grows, G>,
                  "weir: the growth slot needs 'static std::size_t next(std::size_t needed_bytes, std::size_t "
                  "reserved_bytes)'; for weir's own policies, the default among them, include <weir/pool/growth.hpp>");
    static_assert(!holds<has_piece, G> || holds<cuts_pieces, G>,
                  "weir: the growth slot's policy has 'piece', which must be 'static std::size_t piece(std::size_t "
                  "reserved_bytes, weir::holes)', beside 'static constexpr unsigned moved_percent' of at least 1 (see "
                  "growth::by_holes) and a policy 'apart' for devices that cannot grow in place");
    return true;
}

/// The pool slot of layers, containers and adaptors.
template <class P, class Stream>
constexpr bool require_pool() {
    static_assert(holds<tries, P, Stream>, "weir: the pool slot needs 'void* try_allocate(stream_ref, std::size_t "
                                           "bytes, std::size_t alignment)', null when there is no room");
    static_assert(holds<frees, P, Stream>, "weir: the pool slot needs 'void deallocate(stream_ref, void*, std::size_t "
                                           "bytes, std::size_t alignment) noexcept'");
    static_assert(holds<says_space, P>, "weir: the pool slot needs 'static constexpr weir::memory_space space'");
    return true;
}

/// The pool slot of layers, which say of themselves what their pool says of itself.
template <class P, class Stream>
constexpr bool require_layered() {
    static_assert(require_pool<P, Stream>());
    static_assert(holds<says_default_alignment, P>,
                  "weir: the pool slot of a layer needs 'static constexpr std::size_t default_alignment', a power of two");
    static_assert(holds<says_what_its_users_may, P>,
                  "weir: the pool slot of a layer needs 'static constexpr bool' members 'thread_safe' and 'stream_ordered'");
    static_assert(holds<tells, P>,
                  "weir: the pool slot of a layer needs 'weir::memory_report facts() const' and 'weir::text "
                  "refusal(std::size_t bytes, std::size_t alignment) const', which out_of_memory says");
    return true;
}

/// The slot of a failure handler; a handler that is made of handlers has 'ask' instead.
template <class H, class Failed>
constexpr bool require_handler() {
    static_assert(holds<walks, H, Failed> || holds<answers, H, Failed>,
                  "weir: the handler slot needs 'bool operator()(weir::failed_allocation const&)', true where another "
                  "try is worth it");
    return true;
}

} // namespace contracts
} // namespace v0
} // namespace weir
