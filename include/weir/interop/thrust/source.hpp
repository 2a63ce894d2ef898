// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pool and stream does something of Thrust's allocate from, and who may use the memory when?
//
// Thrust uses memory in three ways. An algorithm uses its temporary storage on the stream that its policy names. A container
// works on the default stream, whatever its allocator says. And the host touches what it can reach, at any time and without a
// stream. 'source' holds a pool and a stream, and knows how each of these is allocated and freed.
//
// invariant: bytes are freed on the stream, behind all uses that Thrust makes of them.
// order:     'allocate' is for work on the stream; 'allocate_for_container' for work on the stream and on the default stream,
//            and for the host if it reaches the memory.
// cost:      for containers two events a block, unless the default stream is the stream. Memory that the host reaches is
//            allocated on the host, which may wait for work that used it before.
// not for:   other libraries, which say on which stream they work.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <thrust/detail/config.h>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace thrust {
namespace detail {

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
inline constexpr bool runs_on_host = false;
#else
inline constexpr bool runs_on_host = true;
#endif

// Orders what is enqueued on `stream` from this call on after the work so far on a default stream. If CUDA cannot do that, it
// blocks until all work of the device is done (of every device, if none is named). While the default stream alone is captured,
// its graph may use the memory at each launch: `stream` becomes that stream, as the one to free the memory on. False if work
// may use the memory all the same: two graphs do, or CUDA goes on failing.
inline bool wait_for_default_stream(order::placed_stream& stream, order::placed_stream const& by_default) noexcept {
    bool in_graph = false;
    bool alone = false;
    auto const ask = [&] {
        in_graph = by_default.is_in_graph();
        alone = in_graph && !stream.is_in_graph();
        return true;
    };
    auto const order = [&] { return order_after(stream, by_default), true; };
    if (!base::try_twice(ask))
        return false;
    if (!alone && base::try_twice(order))
        return true;
    if (alone)
        stream = by_default;
    // Such a wait breaks no capture; a wait for the default stream would.
    return in_graph == alone && base::try_twice([&] { return runtime::wait_for_device(by_default.device), true; });
}

// A pool whose memory is used where memory of space `Reach` is, and a stream.
template <memory_space Reach>
class source {
public:
    // A default argument is compiled in the caller's file. So `by_default` is what the null stream means in the file that
    // makes the source.
    source(pool_ref<Reach> pool, stream_ref stream, stream_ref by_default = cudaStream_t{})
        : pool_(pool), on_one_device_(pool.device() != any_device),
          home_(on_one_device_ ? pool.device() : runtime::current_device()), stream_(stream, home_),
          default_stream_(by_default) {
        if (stream.is_host())
            throw usage_error("weir: Thrust runs on a stream, and 'on_host' is none; name one");
        if (base::host_accessible(Reach) && !pool.stream_ordered())
            throw usage_error("weir: this pool hands out at once what a container frees, also if work on the stream still uses "
                              "it; use a pool that is stream ordered, such as 'weir::pinned_pool'");
    }

    pool_ref<Reach> pool() const noexcept { return pool_; }
    stream_ref stream() const noexcept { return stream_.stream; }

protected:
    bool is_on_stream_of(source const& other) const noexcept { return stream_ == other.stream_; }

    void* allocate(std::size_t bytes, std::size_t alignment) const {
        base::require_power_of_two(alignment); // as the pool, which never sees a small one
        return pool_.allocate(used_at_once ? stream_ref(on_host) : stream_.stream, bytes, aligned(alignment));
    }
    void deallocate(void* p, std::size_t bytes, std::size_t alignment) const noexcept {
        deallocate_on(stream_, p, bytes, alignment);
    }

    // The same for memory that is used on the default stream.
    void* allocate_by_default(std::size_t bytes, std::size_t alignment) const {
        void* const p = allocate(bytes, alignment);
        try {
            order_after(order::placed_stream{default_stream_}, stream_);
        } catch (...) {
            deallocate(p, bytes, alignment);
            throw;
        }
        return p;
    }
    void deallocate_by_default(void* p, std::size_t bytes, std::size_t alignment) const noexcept {
        if (!p)
            return;
        // Nobody says which device's default stream was used: that of the current device, or that at home.
        order::placed_stream last = stream_;
        bool is_ordered = wait_for_default_stream(last, {default_stream_, any_device});
        int here = any_device;
        if (!runtime::succeeded(cudaGetDevice(&here)) || here != home_)
            is_ordered &= wait_for_default_stream(last, {default_stream_, home_});
        if (is_ordered) // or else the pool counts it as handed out: work may use it
            deallocate_on(last, p, bytes, alignment);
    }

    // The same for a container's memory.
    void* allocate_for_container(std::size_t bytes, std::size_t alignment) const {
        return used_at_once ? allocate(bytes, alignment) : allocate_by_default(bytes, alignment);
    }
    void deallocate_for_container(void* p, std::size_t bytes, std::size_t alignment) const noexcept {
        if (runs_on_host)
            deallocate(p, bytes, alignment);
        else
            deallocate_by_default(p, bytes, alignment);
    }

private:
    // Host code needs memory that no work in flight uses.
    static constexpr bool used_at_once = runs_on_host || base::host_accessible(Reach);

    // A pool without a device takes a default stream for the current device's; other pools take it for both devices'. If the
    // device cannot be made current, the pool counts the memory as handed out.
    void deallocate_on(order::placed_stream const& last, void* p, std::size_t bytes, std::size_t alignment) const noexcept {
        base::try_twice([&] {
            runtime::device_scope const there(on_one_device_ ? any_device : last.device);
            pool_.deallocate(last.stream, p, bytes, aligned(alignment));
            return true;
        });
    }
    std::size_t aligned(std::size_t alignment) const noexcept {
        return alignment > pool_.default_alignment() ? alignment : pool_.default_alignment();
    }

    pool_ref<Reach> pool_;
    bool on_one_device_;
    int home_; // the memory's device; if it lies on no device alone, that which was current
    order::placed_stream stream_;
    stream_ref default_stream_;
};

// The bytes of so many elements; if they do not fit the address space, so many that each pool refuses them as out of memory.
inline std::size_t bytes_of(std::size_t count, std::size_t size) noexcept {
    return base::multiply_overflows(count, size) ? SIZE_MAX : count * size;
}

} // namespace detail
} // namespace thrust
} // namespace interop
} // namespace v0
} // namespace weir
