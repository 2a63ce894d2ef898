// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// The bytes below every container, with all of their members open, and what tests fill them with.

#include <cstddef>
#include <cstring>
#include <doctest/doctest.h>
#include <support/recording_pool.hpp>
#include <vector>
#include <weir/container/owned/growing_bytes.hpp>

using octets = std::vector<unsigned char>;

template <weir::memory_space Space>
struct open_bytes : weir::container::detail::growing_bytes<Space> {
    using base = weir::container::detail::growing_bytes<Space>;
    using pool_type = support::recording_pool<Space>;

    open_bytes(weir::pool_ref<Space> pool, weir::stream_ref stream, std::size_t bytes, std::size_t alignment = 1)
        : base(pool, stream, bytes, alignment) {}
    open_bytes(weir::pool_ref<Space> pool, weir::stream_ref stream, octets const& with) : open_bytes(pool, stream, 0) {
        assign_bytes(with);
    }

    std::byte* data() const { return this->block_.data; }
    std::size_t size() const { return this->block_.size; }
    std::size_t capacity() const { return this->block_.capacity; }
    octets contents() const {
        octets host(size());
        if (Space == weir::memory_space::device)
            this->read_sync(0, host.data(), host.size());
        else if (size() != 0)
            std::memcpy(host.data(), data(), size());
        return host;
    }

    using base::append_bytes;
    using base::assign_bytes;
    void append_bytes(octets const& from) { append_bytes(from.data(), from.size()); }
    void assign_bytes(octets const& from) { assign_bytes(from.data(), from.size()); }
    using base::read;
    using base::read_sync;
    using base::reserve_bytes;
    using base::resize_bytes;
    using base::value_sync_at;
    using base::write_value;
    using base::zero_bytes;
};

using device_bytes = open_bytes<weir::memory_space::device>;
using pinned_bytes = open_bytes<weir::memory_space::pinned>;

inline octets counting(std::size_t count, unsigned from = 0) {
    octets host(count);
    for (std::size_t i = 0; i < count; ++i)
        host[i] = static_cast<unsigned char>(from + i);
    return host;
}

inline octets joined(octets a, octets const& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
