// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// On which memory and streams does a stream of chunks run?
//
// One block of the user's pool is cut into chunks. It comes once, in the order of the user's stream, and goes back there. Two
// streams of its own carry the copies, so that both ways of the link are busy while the user's stream computes.
//
// invariant: the block goes back only if all work that may use it is over, or is on the user's stream. If CUDA cannot say
//            that, the pool counts it as handed out.
// cost:      an allocation, and two streams.
// not for:   users: see staging/streaming.hpp.

#include <cstddef>
#include <cstdint>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/side_stream.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

/// Sizes in bytes. `room`: a chunk, rounded up to 256.
class chunk_memory {
public:
    /// The largest chunk of which `depth` can be counted.
    static constexpr std::size_t most_bytes(std::size_t depth) noexcept { return (SIZE_MAX / depth) & ~std::size_t{255}; }

    /// `depth` chunks of `bytes`, or of less, but not less than `least_bytes`, if the pool has no room for so much. Throws
    /// out_of_memory, which says how much is needed; cuda_error.
    chunk_memory(pool_ref<memory_space::device> pool, stream_ref stream, int device, std::size_t depth, std::size_t bytes,
                 std::size_t least_bytes)
        : pool_(pool), stream_(stream), device_(device), to_device_(device), to_host_(device), depth_(depth), bytes_(bytes) {
        runtime::device_scope const there(device_); // a default stream is that of the ring's device
        data_ = allocate(least_bytes);
        try {
            order_after({to_device_.get(), device_}, {stream_, device_});
        } catch (...) { // nothing uses it yet
            pool_.deallocate(stream_, data_, in_all());
            throw;
        }
    }
    chunk_memory(chunk_memory const&) = delete;
    chunk_memory& operator=(chunk_memory const&) = delete;
    ~chunk_memory() {
        static_cast<void>(base::try_twice([this] {
            runtime::device_scope const there(device_);
            bool const is_captured = runtime::is_capturing(stream_); // what is freed on such a stream may be kept for its graph
            if (!is_drained_ && !drain(is_captured))
                return false;
            pool_.deallocate(is_captured ? stream_ref(on_host) : stream_, data_, in_all());
            return true;
        }));
    }

    stream_ref to_device() const noexcept { return to_device_.get(); }
    stream_ref to_host() const noexcept { return to_host_.get(); }
    std::size_t bytes() const noexcept { return bytes_; }
    std::byte* chunk(std::size_t i) const noexcept { return data_ + i * room(); }

    /// What is left is on the user's stream.
    void all_copies_are_over() noexcept { is_drained_ = true; }

private:
    // Blocks until no copy is under way, and no work of the user's stream either. False if CUDA cannot say so.
    bool drain(bool is_captured) const {
        bool over = true;
        for (stream_ref const each : {to_device(), to_host(), is_captured ? to_host() : stream_})
            over = base::try_twice([&] { return synchronize(each), true; }) && over;
        return over && (!is_captured || base::try_twice([&] { return runtime::wait_for_device(device_), true; }));
    }

    std::size_t room() const noexcept { return base::align_up(bytes_, 256); }
    std::size_t in_all() const noexcept { return room() * depth_; }

    std::byte* allocate(std::size_t least_bytes) {
        for (;;)
            try {
                return static_cast<std::byte*>(pool_.allocate(stream_, in_all()));
            } catch (out_of_memory const& error) {
                if (bytes_ <= least_bytes)
                    refuse(error);
                bytes_ = bytes_ / 2 < least_bytes ? least_bytes : bytes_ / 2;
            }
    }
    [[noreturn]] void refuse(out_of_memory const& error) const {
        refusal why = error.refused();
        why.reason = "streaming needs at least " + base::bytes_text(in_all()) + " at once, " +
                     base::count_text(depth_, " chunk") + " of " + base::bytes_text(bytes_) +
                     (pool_.can_hold(1) ? "; ask for smaller chunks or less depth" : "") + "; the pool said: " + why.reason;
        throw out_of_memory(in_all(), why);
    }

    pool_ref<memory_space::device> pool_;
    stream_ref stream_;
    int device_;
    runtime::side_stream to_device_;
    runtime::side_stream to_host_;
    std::size_t depth_;
    std::size_t bytes_;
    std::byte* data_ = nullptr;
    bool is_drained_ = false;
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
