// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are numbers converted while they pass through a slot of a ring?
//
// A slot holds them as they are stored, in fewer bits: so these travel over the link. On one side of the slot they are
// elements. On the side of the host, the host converts where it would copy: to fill the slot, or to empty it. On the side of
// the device a kernel converts into the slot, where otherwise a copy would be enqueued.
//
// invariant: a part of a row begins and ends between two numbers: sizes of numbers are powers of two, and chunks are cut at
//            multiples of 'grain'.
// cost:      six words in each slot.
// not for:   users: see staging/converted_copy.hpp. Batches: a converted copy is one piece.

#include <cstddef>
#include <weir/base/size.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

/// Which conversion, or none. Sizes of pieces, chunks and slots are in bytes as stored.
struct conversion {
    /// By the host: `count` numbers between ordinary memory and a slot.
    void (*by_host)(void* to, void const* from, std::size_t count, double scale) = nullptr;
    /// By the device: enqueues on `stream` a kernel that stores `count` elements at `from`, memory of the device, to `to`.
    /// Throws cuda_error.
    void (*by_device)(void const* kernel, stream_ref stream, void* to, void const* from, std::size_t count) = nullptr;
    void const* kernel = nullptr; ///< passed on; used within the call only
    double scale = 1;             ///< passed on
    std::size_t element_bytes = 1;
    std::size_t stored_bytes = 1;

    static constexpr std::size_t grain = 256;

    explicit operator bool() const noexcept { return by_host || by_device; }
    std::size_t count(std::size_t bytes) const noexcept { return bytes / stored_bytes; }
    /// How far into the elements lies what is `bytes` bytes into the stored numbers?
    std::size_t in_elements(std::size_t bytes) const noexcept { return count(bytes) * element_bytes; }
    /// The same as seen from the host's side, and from the device's: elements on the side that converts.
    std::size_t on_host_side(std::size_t bytes) const noexcept { return by_host ? in_elements(bytes) : bytes; }
    std::size_t on_device_side(std::size_t bytes) const noexcept { return by_device ? in_elements(bytes) : bytes; }
    /// The size of a chunk, which is at most a slot's.
    std::size_t chunk_bytes(std::size_t wanted) const noexcept { return *this ? base::align_up(wanted, grain) : wanted; }
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
