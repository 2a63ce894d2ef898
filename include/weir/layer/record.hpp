// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What did the users of a pool ask for, when, on which stream, and what did they get?
//
// The layer writes each call to a trace::recorder (trace/recorder.hpp), which outlives it: allocations and frees, refusals,
// uses on other streams, marks, and what is asked of the pool as a whole. From that the program can be replayed, and looked at.
//
//     weir::trace::recorder tape;
//     weir::layer::record<weir::device_pool> pool(tape);
//     tape.start();
//     // ... the program
//     weir::trace::dump(tape, "program.weir"); // <weir/trace/recording_file.hpp>
//
// The outermost layer knows the line that allocates: 'allocate' tells it ('try_allocate_at'). `Stacks` may find its callers,
// too (trace/call_stacks.hpp).
//
// invariant: the wrapped pool sees the same calls, whether the recorder is on or off.
// order:     a free is written before the wrapped pool sees it, an allocation after the pool handed the block out.
// cost:      off: a load and a branch a call. On: see trace/recorder.hpp.
// not for:   what 'inner()' does, or what the pool asks of its upstream.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/call_site.hpp>
#include <weir/base/size.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/trace/no_stacks.hpp>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/recorder.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if the wrapped pool allows it. `Stacks`: what an allocation says of its place in the program
/// (trace/no_stacks.hpp).
template <class Pool, class Stacks>
class record : public resource::layered<record<Pool, Stacks>, Pool>, private Stacks {
    using wrapper = resource::layered<record<Pool, Stacks>, Pool>;
    using kind = trace::event_kind;

public:
    using typename wrapper::pool_type;

    /// `to` outlives this layer. `arguments`: for the wrapped pool's constructor. Throws what that throws; std::bad_alloc.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit record(trace::recorder& to, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), recorder_(to), source_(to.add(described())) {}

    /// Where the events go.
    trace::recorder& recorder() noexcept { return recorder_; }

    /// As the wrapped pool's.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        return try_allocate_at(call_site::unknown(), stream, bytes, alignment);
    }
    /// The same, for the line `where`.
    [[nodiscard]] void* try_allocate_at(call_site const& where, stream_ref stream, std::size_t bytes,
                                        std::size_t alignment = wrapper::default_alignment) {
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (recorder_.is_on() && bytes != 0)
            note_allocation(where, stream, block, bytes, alignment);
        return block;
    }

    /// As the wrapped pool's.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (recorder_.is_on() && p)
            note(kind::free, stream, p, bytes, alignment);
        this->pool_.deallocate(stream, p, bytes, alignment);
    }
    using wrapper::deallocate;

    /// The wrapped pool's refusal, with the lines that hold most of its memory, as far as that was recorded.
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        refusal said = wrapper::refused(bytes, alignment);
        recorder_.visit_holders(
            source_, [&](trace::largest_holders const& most) { said.holders = most.said(recorder_.names()); });
        return said;
    }

    // As the wrapped pool's, each with an event.
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        this->pool_.used_on(p, stream);
        note(kind::used_on, stream, p);
    }
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void last_used_on(void* p, stream_ref stream) {
        this->pool_.last_used_on(p, stream);
        note(kind::last_used_on, stream, p);
    }
    std::size_t before_destroy(stream_ref stream) {
        note(kind::stream_ends, stream);
        return wrapper::before_destroy(stream);
    }
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() {
        std::uint64_t const number = ++marks_;
        note(kind::mark, on_host, nullptr, number);
        return marked<decltype(std::declval<P&>().mark())>{this->pool_.mark(), number};
    }
    template <class Mark, class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) {
        note(kind::rewind, on_host, nullptr, to.number);
        this->pool_.rewind(to.point);
    }
    template <class P = pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        note(kind::clear);
        this->pool_.clear();
    }
    template <class P = pool_type>
    auto settle() -> decltype(std::declval<P&>().settle()) {
        note(kind::settle);
        return this->pool_.settle();
    }
    template <class P = pool_type>
    auto trim(std::size_t keep_bytes = 0) -> decltype(std::declval<P&>().trim(keep_bytes)) {
        note(kind::trim, on_host, nullptr, keep_bytes);
        return this->pool_.trim(keep_bytes);
    }
    template <class P = pool_type>
    auto reserve(std::size_t bytes) -> decltype(std::declval<P&>().reserve(bytes)) {
        note(kind::reserve, on_host, nullptr, bytes);
        return this->pool_.reserve(bytes);
    }
    template <class P = pool_type>
    auto set_limit(std::size_t bytes) -> decltype(std::declval<P&>().set_limit(bytes)) {
        note(kind::set_limit, on_host, nullptr, bytes);
        return this->pool_.set_limit(bytes);
    }
    template <class... Kept, class P = pool_type>
    auto suspend(Kept&&... kept) -> decltype(std::declval<P&>().suspend(std::forward<Kept>(kept)...)) {
        std::size_t const given = this->pool_.suspend(std::forward<Kept>(kept)...);
        note(kind::suspend, on_host, nullptr, given);
        return given;
    }
    template <class Keep, class P = pool_type>
    auto suspend(Keep&& keep, std::initializer_list<live_block> wanted)
        -> decltype(std::declval<P&>().suspend(std::forward<Keep>(keep), wanted)) {
        std::size_t const given = this->pool_.suspend(std::forward<Keep>(keep), wanted);
        note(kind::suspend, on_host, nullptr, given);
        return given;
    }
    template <class P = pool_type>
    auto try_resume() -> decltype(std::declval<P&>().try_resume()) {
        bool const resumed = this->pool_.try_resume();
        if (resumed)
            note(kind::resume);
        return resumed;
    }

private:
    template <class Point>
    struct marked {
        Point point;
        std::uint64_t number;
    };

    trace::source described() const {
        memory_report const now = this->pool_.state();
        return {now.name, this->pool_.device(), wrapper::space, now.limit_bytes};
    }

    // Not inlined, so that a call that nobody records stays short.
    [[gnu::noinline]] void note_allocation(call_site const& where, stream_ref stream, void const* block, std::size_t bytes,
                                           std::size_t alignment) noexcept {
        recorder_.write(event_of(block ? kind::allocate : kind::refuse, stream, block, bytes, alignment),
                        [&](trace::event& one) { one.site = Stacks::site_of(recorder_.names(), where); });
    }
    [[gnu::noinline]] void note(kind what, stream_ref stream = on_host, void const* p = nullptr, std::size_t bytes = 0,
                                std::size_t alignment = 1) noexcept {
        recorder_.write(event_of(what, stream, p, bytes, alignment));
    }
    trace::event event_of(kind what, stream_ref stream, void const* p, std::size_t bytes,
                          std::size_t alignment) const noexcept {
        trace::event one;
        one.kind = what;
        one.address = reinterpret_cast<std::uintptr_t>(p);
        one.bytes = bytes;
        one.stream = reinterpret_cast<std::uintptr_t>(stream.get());
        one.source = source_;
        one.extra_bytes = p && bytes != 0 ? extra_bytes(bytes, alignment) : 0;
        one.log2_alignment = static_cast<std::uint8_t>(base::floor_log2(alignment | 1));
        return one;
    }
    static std::uint32_t extra_bytes(std::size_t bytes, std::size_t alignment) noexcept {
        std::size_t const extra = pool_type::rounded(bytes, alignment) - bytes;
        return extra < trace::unknown_extra ? static_cast<std::uint32_t>(extra) : trace::unknown_extra;
    }

    trace::recorder& recorder_;
    std::uint16_t const source_;
    std::uint64_t marks_ = 0; // one thread at a time marks
};

} // namespace layer
} // namespace v0
} // namespace weir
