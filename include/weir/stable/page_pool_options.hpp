// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What may a user choose about a pool of pages?
//
// How large a page is, how much memory the pool may hold, on which device, and its name. Options are set in a chain:
// page_pool_options{}.page_bytes(2 * MiB).limit(8 * GiB).name("cache").
//
// cost:      a text and a few words, copied once.
// not for:   what one vector may choose: that is an argument of its constructor.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace stable {

/// What a page_pool is told when it is made: the size of its pages, its limit, device and name.
class page_pool_options {
public:
    /// The size of a page in bytes, 16 MiB by default: a power of two from 2 to 64 MiB. A vector holds whole pages. Larger
    /// pages cost fewer driver calls, which take 35 to 50 us a page of any of these sizes; smaller ones waste less of a short
    /// vector.
    page_pool_options& page_bytes(std::size_t bytes) noexcept { return page_bytes_ = bytes, *this; }
    /// The most bytes of memory that the pool may hold; SIZE_MAX, the default: no limit.
    page_pool_options& limit(std::size_t bytes) noexcept { return limit_bytes_ = bytes, *this; }
    /// The number of the device; any_device, the default: the device that is current when the pool is made.
    page_pool_options& device(int number) noexcept { return device_ = number, *this; }
    /// The pool's name in reports and errors; 'pages' by default.
    page_pool_options& name(text name) { return name_ = std::move(name), *this; }

    std::size_t page_bytes() const noexcept { return page_bytes_; }
    std::size_t limit_bytes() const noexcept { return limit_bytes_; }
    int device() const noexcept { return device_; }
    text const& name() const noexcept { return name_; }

private:
    std::size_t page_bytes_ = 16 * MiB;
    std::size_t limit_bytes_ = SIZE_MAX;
    int device_ = any_device;
    text name_ = "pages";
};

} // namespace stable
} // namespace v0
} // namespace weir
