// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a program run with no pool at all, for tools that know CUDA's allocations and nothing else?
//
// Each block is an allocation of its own of the upstream's: cudaMalloc and cudaFree for upstream::device. It is a pool to its
// users, so only the line that makes the pool changes:
//
//     weir::driver::unpooled<> pool; // in place of weir::device_pool
//
// invariant: a block is exactly as large as what was asked for, and no two are of one allocation.
// order:     a free waits for the whole device, as cudaFree does, so the block's work is over on every stream.
// cost:      what CUDA takes: some 50 us an allocation and a free; a lock and a look-up.
// not for:   programs that nobody checks. A block that a captured stream frees stays allocated until the pool ends.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/live_blocks.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace driver {

/// `Upstream`: upstream::device, upstream::pinned<> or upstream::managed, whose 'release' waits. Any thread may call any
/// member.
template <class Upstream>
class unpooled : public resource::pool_base<unpooled<Upstream>> {
    static_assert(contract::require_upstream<Upstream>());
    static_assert(base::device_accessible(Upstream::space) && !contract::holds<contract::has_extends, Upstream>,
                  "weir: driver::unpooled needs an upstream whose 'release' waits for the device: upstream::device, "
                  "upstream::pinned<> or upstream::managed");

public:
    static constexpr memory_space space = Upstream::space;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = true;
    static constexpr bool streams_may_end = true;
    static constexpr std::size_t default_alignment = Upstream::alignment;

    /// Throws as the upstream's constructor.
    explicit unpooled(pool_options options = {})
        : upstream_(contract::upstream_on<Upstream>(options.device())), options_(std::move(options)) {}
    unpooled(unpooled const&) = delete; // weir: pools are neither copied nor moved: hold them in a std::unique_ptr
    unpooled& operator=(unpooled const&) = delete;
    ~unpooled() {
        resource::tell_leaks(options_.name().c_str(), options_.on_leak(), blocks_.size() - freed_blocks_, 0);
        for (block const& each : blocks_)
            static_cast<void>(upstream_.release(const_cast<void*>(each.address), each.bytes));
    }

    /// A block for any stream; null if the device has no room, above the limit, or for an alignment that CUDA does not give.
    /// Blocks, also in a capture, whose graph knows nothing of it. Throws cuda_error, std::bad_alloc.
    [[nodiscard]] void* try_allocate(stream_ref, std::size_t bytes, std::size_t alignment = default_alignment) {
        base::lock_guard<base::mutex> const lock(mutex_);
        if (bytes == 0 || alignment > default_alignment || bytes > options_.limit_bytes() - held_bytes_)
            return nullptr;
        blocks_.reserve(blocks_.size() + 1);
        block one;
        one.address = upstream_.acquire(bytes);
        one.bytes = bytes;
        if (one.address) {
            blocks_.enter(one);
            held_bytes_ += bytes;
        }
        return const_cast<void*>(one.address);
    }

    /// Waits for the device, unless the stream is captured.
    void deallocate(stream_ref stream, void* p, std::size_t, std::size_t = default_alignment) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        block* const found = blocks_.find(p);
        if (!found)
            return;
        if (runtime::may_be_captured(runtime::capture_state_of(stream)) || !upstream_.release(p, found->bytes)) {
            ++freed_blocks_; // goes back at the pool's end
            return;
        }
        held_bytes_ -= blocks_.leave(*found).bytes;
    }
    using resource::pool_base<unpooled>::deallocate;

    /// Nothing need be known: each free waits for all streams.
    void used_on(void*, stream_ref) noexcept {}
    void last_used_on(void*, stream_ref) noexcept {}
    void settle() noexcept {}

    memory_report state() const {
        base::lock_guard<base::mutex> const lock(mutex_);
        memory_report now;
        now.name = options_.name();
        now.in_use_bytes = now.reserved_bytes = held_bytes_;
        now.limit_bytes = options_.limit_bytes();
        now.live_blocks = blocks_.size() - freed_blocks_;
        now.chunks = blocks_.size();
        return now;
    }
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        char const* const why = alignment > default_alignment ? "CUDA aligns an allocation to no more; ask for less"
                                : bytes > options_.limit_bytes() - state().reserved_bytes
                                    ? "its limit leaves no room; free something, or raise it"
                                    : "the device has no room; free something";
        return {this->full_state(), why};
    }
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const noexcept {
        return bytes <= options_.limit_bytes() && alignment <= default_alignment;
    }
    static constexpr std::size_t rounded(std::size_t bytes, std::size_t) noexcept { return bytes; }
    int device() const noexcept { return contract::device_number_of(upstream_); }
    violation_action on_violation() const noexcept { return options_.on_violation(); }
    leak_action on_leak() const noexcept { return options_.on_leak(); }

private:
    using block = base::numbered_block;

    Upstream upstream_;
    pool_options const options_;
    mutable base::mutex mutex_;
    base::live_blocks<block> blocks_;
    std::size_t held_bytes_ = 0;
    std::size_t freed_blocks_ = 0; // of blocks_
};

} // namespace driver
} // namespace v0
} // namespace weir
