// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a checking tool learn which bytes of a pool may be used?
//
// The layer tells nvtx::checked_memory of each block: it is a region of as many bytes as were asked for, with the pool's name
// and the line that asked. Behind each block the layer keeps a zone that is no region, so that an access past the end, or
// before the start of the next, meets no neighbour. A free waits for the work that uses the block, takes the region back, and
// only then gives the block to the pool: an access to a freed block is one to no region.
//
// invariant: a block is a region from its allocation until the last use that was enqueued before its free is over.
// order:     'deallocate' waits on the host for its stream, and for the whole device if the block is used on others, too.
// cost:      that wait; a lock, a look-up and the tool's own time a call; 'zone_bytes' a block.
//            A block that a captured stream frees stays a region, and taken, until the pool ends, which waits for the device.
//            The streams that 'used_on' named for it may end before.
// not for:   programs that nobody checks.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/call_site.hpp>
#include <weir/base/live_blocks.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/interop/nvtx/checked_memory.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace nvtx {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class checked_blocks : public resource::layered<checked_blocks<Pool>, Pool> {
    using wrapper = resource::layered<checked_blocks<Pool>, Pool>;

public:
    using typename wrapper::pool_type;

    /// Bytes behind each block that belong to nobody.
    static constexpr std::size_t zone_bytes = 256;

    /// `memory`: knows the chunks of the pool (nvtx::checked_chunks), and outlives this layer. `arguments`: for the wrapped
    /// pool's constructor.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit checked_blocks(checked_memory& memory, Arguments&&... arguments)
        : wrapper(std::in_place, std::forward<Arguments>(arguments)...), memory_(memory) {}
    /// Blocks that are still handed out are no regions any more. Waits for the device if a captured stream freed one.
    ~checked_blocks() {
        bool is_in_a_graph = false;
        for (checked_block const& each : blocks_)
            is_in_a_graph |= each.is_freed;
        if (is_in_a_graph)
            wait_for_all();
        blocks_.leave_after(0, [this](checked_block const& each) {
            memory_.leave_block(each.address);
            if (each.is_freed)
                this->pool_.deallocate(on_host, const_cast<void*>(each.address), each.bytes + zone_bytes, each.alignment);
        });
    }

    /// As the wrapped pool's. Throws std::bad_alloc, too, if the host has no memory for the note.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        return try_allocate_at(call_site::unknown(), stream, bytes, alignment);
    }
    /// The same, for the line `where`, which the tool shows.
    [[nodiscard]] void* try_allocate_at(call_site const& where, stream_ref stream, std::size_t bytes,
                                        std::size_t alignment = wrapper::default_alignment) {
        if (bytes == 0 || bytes > SIZE_MAX - zone_bytes)
            return nullptr;
        void* const p = this->pool_.try_allocate_at(where, stream, bytes + zone_bytes, alignment);
        if (p)
            try {
                checked_block one;
                one.address = p;
                one.bytes = bytes;
                one.alignment = alignment;
                text const name = where.line == 0 ? text(this->pool_.name())
                                                  : text(this->pool_.name()) + ", " + where.file + ":" +
                                                        base::number_text(where.line);
                base::lock_guard<base::mutex> const lock(mutex_);
                blocks_.enter(one);
                static_cast<void>(memory_.enter_block(p, bytes, name.c_str()));
            } catch (...) {
                this->pool_.deallocate(stream, p, bytes + zone_bytes, alignment);
                throw;
            }
        return p;
    }

    /// As the wrapped pool's, once the block's work is over, for which it waits.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        if (!p)
            return;
        if (runtime::may_be_captured(runtime::capture_state_of(stream)))
            return keep(p);
        wait_for(stream, p);
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            if (checked_block* const found = blocks_.find(p)) {
                memory_.leave_block(p);
                static_cast<void>(blocks_.leave(*found));
            }
        }
        this->pool_.deallocate(stream, p, bytes + zone_bytes, alignment);
    }
    using wrapper::deallocate;

    // As the wrapped pool's, noted for the free, which waits for the device: the pool need not know the stream until then, and
    // does not ask for it when it may have ended.
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void used_on(void* p, stream_ref stream) {
        last_used_on(p, stream);
    }
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_used_on, P, void*, stream_ref>>>
    void last_used_on(void* p, stream_ref stream) {
        this->pool_.last_used_on(p, stream);
        note_use(p);
    }
    /// As the wrapped pool's; waits for the device, after which the blocks that end are no regions any more.
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() {
        base::lock_guard<base::mutex> const lock(mutex_);
        return marked<decltype(std::declval<P&>().mark())>{this->pool_.mark(), blocks_.entered()};
    }
    template <class Mark, class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) {
        wait_for_all();
        if (this->ended_by([&](P& pool) { pool.rewind(to.point); }).live_blocks != 0)
            end_after(to.entered);
    }
    template <class P = pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        wait_for_all();
        this->pool_.clear();
        end_after(0);
    }

    static std::size_t rounded(std::size_t bytes, std::size_t alignment) {
        return pool_type::rounded(bytes + zone_bytes, alignment);
    }
    /// As the wrapped pool's.
    bool can_hold(std::size_t bytes, std::size_t alignment = wrapper::default_alignment) const {
        return bytes <= SIZE_MAX - zone_bytes && wrapper::can_hold(bytes + zone_bytes, alignment);
    }
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        return wrapper::refused(bytes <= SIZE_MAX - zone_bytes ? bytes + zone_bytes : bytes, alignment);
    }

private:
    struct checked_block : base::numbered_block {
        std::size_t alignment = 0;
        bool is_used_elsewhere = false; // on a second stream
        bool is_freed = false;          // by a captured stream
    };
    template <class Point>
    struct marked {
        Point point;
        std::uint64_t entered; // how many blocks were handed out before
    };

    void note_use(void* p) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (checked_block* const found = blocks_.find(p))
            found->is_used_elsewhere = true;
    }
    void keep(void* p) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (checked_block* const found = blocks_.find(p))
            found->is_freed = true;
    }
    bool is_used_elsewhere(void* p) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        checked_block const* const found = blocks_.find(p);
        return found && found->is_used_elsewhere;
    }

    void wait_for(stream_ref stream, void* p) noexcept {
        if (is_used_elsewhere(p))
            return wait_for_all();
        try {
            synchronize(stream);
        } catch (...) { // it is no stream any more, or the device has failed
            wait_for_all();
        }
    }
    // If it fails twice, the device has failed: nothing runs there.
    void wait_for_all() noexcept {
        static_cast<void>(base::try_twice([this] { return runtime::wait_for_device(this->pool_.device()), true; }));
    }
    void end_after(std::uint64_t entered) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        blocks_.leave_after(entered, [this](checked_block const& each) { memory_.leave_block(each.address); });
    }

    checked_memory& memory_;
    mutable base::mutex mutex_;
    base::live_blocks<checked_block> blocks_;
};

} // namespace nvtx
} // namespace interop
} // namespace v0
} // namespace weir
