// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does the program read what it never wrote, or write to what it freed?
//
// The layer fills each block that is handed out with one byte pattern, and each that comes back with another. So what was
// never written shows as 0xcdcdcdcd, and what was freed as 0xdddddddd. Freed blocks are held back for a while; when they are
// more than 'held' bytes, the oldest go to the pool. A write to one of them breaks the pattern, and 'check' finds it. The fills
// are work on the block's stream, so no order of the program changes. It needs no tool, and slows no kernel.
//
//     weir::layer::poison<weir::device_pool> pool;
//     // ... the program
//     pool.check(); // a sentence on stderr for each freed block that was written to
//
// invariant: a held block belongs to nobody; its event is behind its fill. The pool sees its free once that is reached. Who
//            waits for that has no lock: it has taken the block out, and other threads allocate and free meanwhile.
// order:     the fill of a block comes before the work that uses it, and the fill at its free behind the work of its stream.
//            A block that was used on other streams, too, or that a captured stream frees, goes to the pool at once, unfilled.
// cost:      two memsets for a block, an event for a free; 'held' bytes stay taken. 'check' copies all of them to the host.
// not for:   finding which kernel it was: run the program under compute-sanitizer (examples/checking.md). A pool that is to be
//            suspended: 'release_held' comes before that.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <sched.h>
#include <type_traits>
#include <utility>
#include <weir/base/growing_array.hpp>
#include <weir/base/live_blocks.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/side_stream.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// What layer::poison fills with, and how long it holds freed blocks. Set in a chain.
class poison_options {
public:
    /// The byte of what is handed out; 0xcd by default.
    poison_options& handed_out(unsigned char byte) noexcept { return handed_out_ = byte, *this; }
    /// The byte of what was freed; 0xdd by default.
    poison_options& freed(unsigned char byte) noexcept { return freed_ = byte, *this; }
    /// The most bytes of freed blocks that are held back; 64 MiB by default. 0: none, and 'check' finds nothing.
    poison_options& held(std::size_t bytes) noexcept { return held_bytes_ = bytes, *this; }

    unsigned char handed_out() const noexcept { return handed_out_; }
    unsigned char freed() const noexcept { return freed_; }
    std::size_t held_bytes() const noexcept { return held_bytes_; }

private:
    unsigned char handed_out_ = 0xcd, freed_ = 0xdd;
    std::size_t held_bytes_ = 64 * MiB;
};

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class poison : public resource::layered<poison<Pool>, Pool> {
    using wrapper = resource::layered<poison<Pool>, Pool>;
    template <class First = void, class...>
    static constexpr bool is_set = std::is_same_v<std::decay_t<First>, poison_options>;

public:
    using typename wrapper::pool_type;
    static_assert(base::device_accessible(wrapper::space),
                  "weir: layer::poison fills blocks by work on their streams: it wraps a pool of memory that a device reaches "
                  "(device, pinned or managed), and no host pool");

    /// `arguments`: for the wrapped pool's constructor. Throws what that throws; cuda_error.
    template <class... Arguments,
              class = std::enable_if_t<wrapper::template makes_pool<Arguments...> && !is_set<Arguments...>>>
    explicit poison(Arguments&&... arguments) : poison(poison_options{}, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    poison() : poison(poison_options{}) {}
    /// The same with other patterns, or more or fewer bytes held back.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit poison(poison_options const& options, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), options_(options) {}
    /// Checks what is held, and gives it to the pool. What cannot be waited for stays handed out: the pool's end waits for it.
    ~poison() {
        static_cast<void>(base::try_twice([this] { return static_cast<void>(check()), true; }));
        static_cast<void>(base::try_twice([this] { return static_cast<void>(release_held()), true; }));
    }

    /// As the wrapped pool's, filled. If the pool has no room, what is held goes to it first, which waits.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        void* block = this->pool_.try_allocate(stream, bytes, alignment);
        if (!block && bytes != 0 && release_held() != 0)
            block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block)
            try {
                fill(stream, block, bytes, options_.handed_out());
            } catch (...) {
                this->pool_.deallocate(stream, block, bytes, alignment);
                throw;
            }
        return block;
    }

    /// Fills the block and holds it back. Waits for the oldest held blocks if there are too many.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (p && (forget_use(p) || !hold(stream, p, bytes, alignment)))
            this->pool_.deallocate(stream, p, bytes, alignment);
    }
    using wrapper::deallocate;

    /// Looks at every freed block that is held. Says in a sentence on stderr which were written to (pool_options::on_violation
    /// may ask for std::abort), and returns how many. Waits for the work up to their frees. Throws cuda_error, std::bad_alloc.
    std::size_t check() {
        std::size_t damaged = 0;
        held_block one;
        for (std::size_t from = 0, end = now(entered_); take(one, from, end, 0); from = one.number + 1) {
            bool found = false;
            with_no_lock(one, [&] { found = is_damaged(one); });
            damaged += found;
            put_back(one);
        }
        return damaged;
    }
    /// Gives what is held when it is called to the pool, unchecked, and waits for the work up to the frees. Returns the bytes
    /// that the pool got meanwhile, of this thread and of others. Throws cuda_error.
    std::size_t release_held() {
        std::size_t const before = now(given_bytes_), end = now(entered_);
        for (; release_down_to(0, end); sched_yield()) {
        }
        return now(given_bytes_) - before;
    }
    /// The bytes of freed blocks that are held back.
    std::size_t held_bytes() const noexcept { return now(held_bytes_); }

    // As the wrapped pool's; a block that is used elsewhere is not filled at its free, since that work may still use it.
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        note_use(p);
        this->pool_.used_on(p, stream);
    }
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void last_used_on(void* p, stream_ref stream) {
        note_use(p);
        this->pool_.last_used_on(p, stream);
    }
    // As the wrapped pool's, once it has what is held.
    template <class P = pool_type>
    auto settle() -> decltype(std::declval<P&>().settle()) {
        release_held();
        return this->pool_.settle();
    }
    template <class P = pool_type>
    auto trim(std::size_t keep_bytes = 0) -> decltype(std::declval<P&>().trim(keep_bytes)) {
        release_held();
        return this->pool_.trim(keep_bytes);
    }
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() { return this->pool_.mark(); }
    template <class Mark, class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) {
        release_held();
        this->pool_.rewind(to);
    }
    template <class P = pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        release_held();
        this->pool_.clear();
    }

private:
    // Blocks are numbered as they come. One that a thread took out, or gave to the pool, keeps its place until it is the first.
    struct held_block {
        void* p = nullptr;
        std::size_t bytes = 0, alignment = 0;
        runtime::event filled{};
        std::size_t number = 0;
        enum { is_held, is_taken, is_given } state = is_held;
    };
    static constexpr std::size_t piece_bytes = 64 * KiB; // of what is looked at

    void fill(stream_ref stream, void* p, std::size_t bytes, unsigned char byte) {
        bool const nobodys = stream.is_host();
        stream_ref const on = nobodys ? stream_ref(own_) : stream;
        check_cuda(cudaMemsetAsync(p, byte, bytes, on.get()), "cudaMemsetAsync");
        if (nobodys)
            synchronize(on);
    }

    // Whether the block is held now; false: it was not filled, or nobody knows when that is over.
    bool hold(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
        if (bytes > options_.held_bytes() || runtime::may_be_captured(runtime::capture_state_of(stream)))
            return false;
        bool is_held = false; // what fails later is the waiting for others
        try {
            held_block one{p, bytes, alignment, runtime::event(this->pool_.device())};
            fill(stream, p, bytes, options_.freed());
            one.filled.record(stream.is_host() ? stream_ref(own_) : stream);
            enter(std::move(one));
            is_held = true;
            release_down_to(options_.held_bytes());
        } catch (...) { // the device failed, or the host has no memory
        }
        return is_held;
    }
    void enter(held_block one) {
        base::lock_guard<base::mutex> const lock(mutex_);
        std::size_t const bytes = one.bytes;
        one.number = entered_;
        held_.push_back(std::move(one));
        held_bytes_ += bytes;
        ++entered_;
    }

    // Gives blocks to the pool until no more than so many bytes are held, or none of those before number `end`. Whether one of
    // these is still there, since another thread has taken it out, or brought it back.
    bool release_down_to(std::size_t most, std::size_t end = SIZE_MAX) {
        for (held_block one; take(one, 0, end, most); give(one))
            with_no_lock(one, [&] { wait_for(one); });
        base::lock_guard<base::mutex> const lock(mutex_);
        return first_ != held_.size() && held_[first_].number < end;
    }
    // The first block from number `from` to before `end` is this thread's alone, if more than `most` bytes are held; 0: always.
    bool take(held_block& one, std::size_t from, std::size_t end, std::size_t most) {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (first_ == held_.size() || (most != 0 && held_bytes_ <= most))
            return false;
        std::size_t const first = held_[0].number;
        std::size_t at = from > first + first_ ? from - first : first_;
        while (at < held_.size() && held_[at].state != held_block::is_held)
            ++at;
        if (at >= held_.size() || held_[at].number >= end)
            return false;
        one = std::move(held_[at]); // the place has its number still
        held_[at].state = held_block::is_taken;
        held_bytes_ -= one.bytes;
        return true;
    }
    // Does what may wait with a block that was taken out. If it throws, the block is held as before.
    template <class Waiting>
    void with_no_lock(held_block& one, Waiting const& waiting) {
        try {
            waiting();
        } catch (...) {
            put_back(one);
            throw;
        }
    }
    void put_back(held_block& one) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        held_bytes_ += one.bytes;
        held_[one.number - held_[0].number] = std::move(one);
    }
    void give(held_block& one) noexcept {
        this->pool_.deallocate(on_host, one.p, one.bytes, one.alignment);
        base::lock_guard<base::mutex> const lock(mutex_);
        given_bytes_ += one.bytes;
        held_[one.number - held_[0].number].state = held_block::is_given;
        while (first_ != held_.size() && held_[first_].state == held_block::is_given)
            ++first_;
        if (first_ * 2 <= held_.size())
            return;
        for (std::size_t at = first_; at != held_.size(); ++at)
            held_[at - first_] = std::move(held_[at]);
        for (; first_ != 0; --first_)
            held_.pop_back();
    }
    static void wait_for(held_block const& one) {
        runtime::capture_mode_scope const relaxed;
        one.filled.synchronize();
    }

    bool is_damaged(held_block const& block) {
        wait_for(block); // and not on own_, where others would wait behind it
        base::growing_array<unsigned char> seen;
        for (std::size_t at = 0; at < block.bytes; at += piece_bytes) {
            std::size_t const count = block.bytes - at < piece_bytes ? block.bytes - at : piece_bytes;
            while (seen.size() < count)
                seen.push_back(0);
            check_cuda(cudaMemcpyAsync(seen.data(), static_cast<unsigned char const*>(block.p) + at, count, cudaMemcpyDefault,
                                       own_.get()),
                       "cudaMemcpyAsync");
            synchronize(own_);
            for (std::size_t each = 0; each != count; ++each)
                if (seen[each] != options_.freed()) {
                    tell(block, at + each);
                    return true;
                }
        }
        return false;
    }
    void tell(held_block const& block, std::size_t at) const {
        text const said = "weir: layer::poison: the block at " + base::address_text(block.p) + " of " +
                          base::exact_bytes_text(block.bytes) + " was written to after its free: byte " +
                          base::number_text(at) +
                          " is the first that changed; run the program under compute-sanitizer with a checked pool";
        bool const aborts = this->pool_.on_violation() == violation_action::abort;
        (aborts ? &resource::tell_violation<violation_action::abort>
                : &resource::tell_violation<violation_action::report>)(said.c_str());
    }

    void note_use(void* p) {
        if (!p)
            return;
        base::lock_guard<base::mutex> const lock(mutex_);
        base::numbered_block one;
        one.address = p;
        used_elsewhere_.enter(one);
    }
    std::size_t now(std::size_t const& count) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return count;
    }
    bool forget_use(void* p) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        base::numbered_block* const found = used_elsewhere_.find(p);
        return found && used_elsewhere_.leave(*found).address;
    }

    poison_options const options_;
    runtime::side_stream const own_{this->pool_.device()};
    mutable base::mutex mutex_;
    base::growing_array<held_block> held_; // those before first_ were given; the oldest first
    std::size_t first_ = 0, held_bytes_ = 0, given_bytes_ = 0, entered_ = 0;
    base::live_blocks<> used_elsewhere_;
};

} // namespace layer
} // namespace v0
} // namespace weir
