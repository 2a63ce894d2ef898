// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do standard containers get their memory from a pool, and a pool its chunks from a std::pmr::memory_resource?
//
// 'resource' is a pool behind the interface of <memory_resource>. The host must reach the pool's memory: host, pinned and
// managed pools do. With a pinned pool a std::pmr::vector is a buffer that copies run from at full speed:
//
//     weir::interop::pmr::resource staging(pinned, stream);
//     {
//         std::pmr::vector<float> xs(n, 1.0f, &staging);
//         cudaMemcpyAsync(there, xs.data(), n * sizeof(float), cudaMemcpyDefault, stream);
//     } // freed behind the copy, and nobody waits
//
// 'upstream' is the other way round: any memory_resource is where a pool gets its chunks from.
//
// invariant: a resource refers to its pool, and an upstream to its memory_resource; these outlive them and their memory.
// order:     the host may use fresh memory at once. With a stream, a free comes after the work that was enqueued there before;
//            without one, whoever frees promises that no enqueued work uses the memory.
// cost:      a virtual call and an indirect call on top of the pool's own.
// not for:   a stream with a pool that hands out at once what is freed (host_pool, node_pool): that is refused. Work on more
//            than one stream: tell the pool of the others ('pool().used_on') before the free.

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace pmr {

/// A pool as a memory_resource. Any thread may call any member if the pool is thread-safe.
class resource final : public std::pmr::memory_resource {
public:
    /// Memory of `pool`, a host, pinned or managed pool. `stream`: behind whose work memory is freed, and which lives until the
    /// last free; a default stream is that of the current device; 'on_host', the default: no enqueued work uses what is freed.
    /// Throws usage_error if there is a stream and the pool is not stream ordered: it would hand out again what the stream's
    /// work still uses; cuda_error.
    explicit resource(pool_ref<memory_space::host> pool, stream_ref stream = on_host)
        : pool_(pool), stream_(order::placed_stream::now(stream)) {
        if (!stream.is_host() && !pool.stream_ordered())
            throw usage_error("weir: this pool hands out at once what is freed, also if work on the stream still uses it; use "
                              "a pool that is stream ordered, such as 'weir::pinned_pool', or name no stream and wait for "
                              "that work before the free");
    }
    resource(resource const&) = delete;
    resource& operator=(resource const&) = delete;

    pool_ref<memory_space::host> pool() const noexcept { return pool_; }
    stream_ref stream() const noexcept { return stream_.stream; }

private:
    // Memory that no enqueued work uses. Throws out_of_memory, a std::bad_alloc, if the pool has no room, and what else its
    // 'allocate' throws. No bytes have an address too, which a pool's null is not.
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
        return pool_.allocate(on_host, bytes + (bytes == 0), alignment);
    }
    // If the device of a default stream cannot be made current, the pool counts the memory as handed out.
    void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) noexcept override {
        base::try_twice([&] {
            runtime::device_scope const there(stream_.device);
            pool_.deallocate(stream_.stream, p, bytes + (bytes == 0), alignment);
            return true;
        });
    }

    // Whether each may free what the other allocated. Where they free on different streams, neither waits for the other's.
    bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
        if (this == &other)
            return true;
#ifdef __cpp_rtti
        if (auto const* const same = dynamic_cast<resource const*>(&other))
            return pool_ == same->pool_ && stream_ == same->stream_;
#endif
        return false;
    }

    pool_ref<memory_space::host> pool_;
    order::placed_stream stream_;
};

/// Chunks of a memory_resource, for the upstream slot of a pool. `Space`: what its memory is. Copyable. Any thread may call any
/// member if the memory_resource allows it.
template <memory_space Space = memory_space::host>
class upstream {
public:
    static constexpr std::size_t alignment = 256;
    static constexpr memory_space space = Space;

    /// `from` outlives this object and the pools over it.
    explicit upstream(std::pmr::memory_resource* from = std::pmr::get_default_resource()) noexcept : from_(from) {}

    /// A chunk of `bytes` bytes, or null where the memory_resource throws std::bad_alloc. Throws what else it throws.
    void* acquire(std::size_t bytes) {
        if (bytes > PTRDIFF_MAX) // resources round up, and would wrap around
            return nullptr;
        try {
            return from_->allocate(bytes, alignment);
        } catch (std::bad_alloc const&) {
            return nullptr;
        }
    }

    /// Gives a chunk back.
    void release(void* chunk, std::size_t bytes) noexcept { from_->deallocate(chunk, bytes, alignment); }

private:
    std::pmr::memory_resource* from_;
};

} // namespace pmr
} // namespace interop
} // namespace v0
} // namespace weir
