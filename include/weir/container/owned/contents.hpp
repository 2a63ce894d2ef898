// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do bytes get into a container's block and out of it, and who copies them?
//
// If the host cannot reach the memory (device), every copy is enqueued on the container's stream. If it can (pinned), the
// host copies at once. So a block of pinned memory must be one that no work in flight uses, and the stream orders only the
// block's free, because copy engines may still read it.
//
// invariant: what is copied lies within the size; no member changes the size.
// order:     what is enqueued here is on the container's stream. A copy from another container runs after that container's
//            stream's work so far and before its later work. A copy that the host makes is done when the call returns, and
//            waits for no stream.
// cost:      that of the copy; from a container of another stream also two events (owned/ordered_copy.hpp).
// not for:   copies that need another block first: see growing_bytes.

#include <cstddef>
#include <cstring>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/order/ordered_copy.hpp>
#include <weir/container/owned/pooled.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace container::detail {

/// What is copied into a container.
struct copy_source {
    void const* data;
    std::size_t size;          ///< in bytes
    order::placed_stream user; ///< the stream that works with it
    int device = any_device;   ///< where it lies; any_device: on no device, or on the host
};

/// A container's bytes. Members block the host only in these cases: their name ends in '_sync'; CUDA stages a copy from or to
/// memory that is not page-locked; or a copy failed half way, and its end is awaited. Offsets and sizes are in bytes.
/// `Owner`: who has the memory; it has what this uses of 'pooled'.
template <memory_space Space, class Owner = pooled<Space>>
class contents : public Owner {
protected:
    static constexpr bool by_host = base::host_accessible(Space);
    using Owner::Owner;

    /// The contents, for another container to copy.
    friend copy_source contents_source(contents const& from) {
        return {from.block_.data, from.block_.size, from.placed(), from.device()};
    }

    /// Overwrites the bytes from `offset` on with those of `value`, which may end after the call. Throws usage_error while the
    /// stream is captured, and cuda_error.
    template <class T>
    void write_value(std::size_t offset, T const& value) {
        require_source_lives();
        if constexpr (by_host) {
            copy(this->block_.data + offset, element<T>::address_of(value), sizeof(T));
        } else {
            T const here = value; // on the stack, which CUDA reads at once: `value` may be in pinned memory, read only later
            copy(this->block_.data + offset, element<T>::address_of(here), sizeof(T));
        }
    }

    /// The value at `offset`, read after blocking until the stream is done. Throws as 'read_sync'.
    template <class T>
    T value_sync_at(std::size_t offset) const {
        alignas(T) std::byte raw[sizeof(T)];
        read_sync(offset, raw, sizeof(T));
        return *reinterpret_cast<T const*>(raw);
    }

    /// Throws usage_error if a copy would be captured, as its source may end before the graph.
    void require_source_lives() const {
        if constexpr (!by_host)
            refuse_capture("keeps the address of the value, which does not live that long; copy from memory that outlives the "
                           "graph");
    }

    /// Copies `bytes` bytes from `offset` on to `target`.
    void read(std::size_t offset, void* target, std::size_t bytes) const {
        base::require_not_null(target, bytes);
        copy(target, this->block_.data + offset, bytes);
    }

    /// As 'read', then blocks until the stream is done. Throws cuda_error, and usage_error while the stream is captured.
    void read_sync(std::size_t offset, void* target, std::size_t bytes) const {
        refuse_capture("cannot be waited for; read after the graph has run");
        runtime::device_scope const here(this->home()); // the stream may be this device's default stream
        read(offset, target, bytes);
        synchronize(this->stream());
    }

    /// Overwrites the contents with zero bytes.
    void zero_bytes() {
        if (this->block_.size == 0)
            return;
        if constexpr (by_host) {
            std::memset(this->block_.data, 0, this->block_.size);
        } else {
            runtime::device_scope const here(this->home());
            check_cuda(cudaMemsetAsync(this->block_.data, 0, this->block_.size, this->stream().get()), "cudaMemsetAsync");
        }
    }

    /// Copies bytes to `to`, in this container's block or in a spare one of it.
    void copy(void* to, void const* from, std::size_t bytes) const {
        if (bytes == 0)
            return;
        if constexpr (by_host) {
            std::memmove(to, from, bytes);
        } else {
            runtime::device_scope const here(this->home());
            check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, this->stream().get()), "cudaMemcpyAsync",
                  order::if_no_such_memory);
        }
    }

    /// The same, in order with the work of the source's stream.
    void copy_in_order(void* to, copy_source const& from) const {
        if constexpr (by_host)
            copy(to, from.data, from.size);
        else
            order::copy_in_order(to, this->device(), this->placed(), from.data, from.device, from.user, from.size);
    }

private:
    void refuse_capture(char const* why) const {
        if (this->placed().is_captured())
            throw usage_error(text("weir: the container's stream is being captured into a graph, which ") + why);
    }
};

} // namespace container::detail
} // namespace v0
} // namespace weir
