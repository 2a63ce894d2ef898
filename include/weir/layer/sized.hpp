// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does somebody free a block who has its address and nothing else?
//
// The layer notes the bytes and the alignment of each block that it hands out: for C callbacks ('free(user, pointer)'), for
// libraries that give back an address alone, for owners that share memory.
//
//     weir::layer::sized<weir::device_pool> pool;
//     void* const p = pool.allocate(stream, bytes);
//     pool.deallocate(stream, p);
//
// invariant: an address that is no live block of this layer is not freed: a sentence on stderr, and std::abort if the pool's
//            options say so (violation_action).
// order:     as the wrapped pool.
// cost:      a lock and a hash look-up a call, and 50 bytes of host memory a block.
// not for:   owners that know the size, which free with it as from any pool.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/live_blocks.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class sized : public resource::layered<sized<Pool>, Pool> {
    using wrapper = resource::layered<sized<Pool>, Pool>;

public:
    /// `arguments`: for the wrapped pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit sized(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    sized() : wrapper(std::in_place) {}

    /// As the wrapped pool's, and notes the block. Throws std::bad_alloc, too, if the host has no memory for the note.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block)
            try {
                base::lock_guard<base::mutex> const lock(mutex_);
                sized_block noted;
                noted.address = block;
                noted.bytes = bytes;
                noted.alignment = alignment;
                blocks_.enter(noted);
            } catch (...) {
                this->pool_.deallocate(stream, block, bytes, alignment);
                throw;
            }
        return block;
    }

    /// As the wrapped pool's.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        static_cast<void>(taken_out(p)); // before another thread is handed the same address
        this->pool_.deallocate(stream, p, bytes, alignment);
    }
    /// The same with the bytes and the alignment of the allocation. Null does nothing.
    template <class Stream> // inlined because of null streams: see pool_base::allocate
    [[gnu::always_inline]] void deallocate(Stream const& stream, void* p) noexcept {
        free_block(stream, p);
    }
    /// The same for a block that nothing uses any more.
    void deallocate_sync(void* p) noexcept { free_block(on_host, p); }
    using wrapper::deallocate_sync;

    /// The bytes that the live block at `p` was asked with; 0 if there is none.
    std::size_t bytes_of(void const* p) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        sized_block const* const found = blocks_.find(p);
        return found ? found->bytes : 0;
    }

    /// As the wrapped pool's; the blocks that end are no longer noted.
    template <class P = typename wrapper::pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() {
        base::lock_guard<base::mutex> const lock(mutex_);
        return marked<decltype(std::declval<P&>().mark())>{this->pool_.mark(), blocks_.entered()};
    }
    template <class Mark, class P = typename wrapper::pool_type,
              class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) {
        if (this->ended_by([&](P& pool) { pool.rewind(to.point); }).live_blocks != 0)
            forget_after(to.entered);
    }
    template <class P = typename wrapper::pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        this->pool_.clear();
        forget_after(0);
    }

    /// Offers the live blocks to the list of the largest. See 'full_state'.
    void list_own(largest_blocks& list) const noexcept {
        wrapper::list_own(list);
        base::lock_guard<base::mutex> const lock(mutex_);
        blocks_.offer_to(list);
    }

private:
    struct sized_block : base::numbered_block {
        std::size_t alignment = 0;
    };
    template <class Point>
    struct marked {
        Point point;
        std::uint64_t entered; // how many blocks were noted before
    };

    // The block at `p`, which is no longer noted; one without an address if there is none.
    sized_block taken_out(void const* p) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        sized_block* const found = blocks_.find(p);
        return found ? blocks_.leave(*found) : sized_block{};
    }

    void free_block(stream_ref stream, void* p) noexcept {
        if (!p)
            return;
        sized_block const block = taken_out(p);
        if (block.address)
            this->pool_.deallocate(stream, p, block.bytes, block.alignment);
        else
            tell_("weir: layer::sized: an address is freed that is no live block of this layer: it was freed already, or comes "
                  "from elsewhere; it stays as it is");
    }

    using teller = void (*)(char const* sentence);
    // What the pool's options ask for. Throws as the pool's 'on_violation'.
    teller usual_teller() const {
        if (this->pool_.on_violation() == violation_action::abort)
            return &resource::tell_violation<violation_action::abort>;
        return &resource::tell_violation<violation_action::report>;
    }

    void forget_after(std::uint64_t entered) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        blocks_.leave_after(entered, [](auto const&) {});
    }

    mutable base::mutex mutex_;
    base::live_blocks<sized_block> blocks_;
    teller const tell_ = usual_teller();
};

} // namespace layer
} // namespace v0
} // namespace weir
