// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which devices may use mapped memory, and which of them does it have to be open to?
//
// The list begins with the memory's own device. Then come those that the program asked for, and at last those that it only
// wished for: a wish is given up where CUDA refuses it.
//
// invariant: no device stands there twice.
// not for:   opening the memory: memory_map does that.

#include <cstddef>
#include <weir/base/growing_array.hpp>
#include <weir/base/swap.hpp>

namespace weir {
inline namespace v0 {
namespace upstream::detail {

// The driver's types as cuda.h lays them out.
struct driver_location {
    int type = 1; // CU_MEM_LOCATION_TYPE_DEVICE
    int id = 0;
};
struct memory_access {
    driver_location location;
    int flags = 3; // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
inline memory_access access_of(int device) noexcept {
    memory_access access;
    access.location.id = device;
    return access;
}

/// One thread at a time.
class memory_readers {
public:
    /// `own`: the device of the memory. Throws std::bad_alloc.
    explicit memory_readers(int own) { list_.push_back(access_of(own)); }

    memory_access const* data() const noexcept { return list_.data(); }
    std::size_t size() const noexcept { return list_.size(); }
    /// How many of them, the first ones, are no mere wishes.
    std::size_t required() const noexcept { return required_; }

    /// Where a device stands; the list's size if it does not.
    std::size_t place_of(int device) const noexcept {
        std::size_t at = 0;
        while (at != list_.size() && list_.data()[at].location.id != device)
            ++at;
        return at;
    }

    /// Makes room for one more, so that 'add' does not throw. Throws std::bad_alloc.
    void make_room() { list_.reserve(list_.size() + 1); }
    /// Adds a device that was not there, as a wish.
    void add(memory_access reader) noexcept { list_.push_back(reader); }
    /// A device that stands there is no mere wish from now on.
    void require(int device) noexcept {
        std::size_t const at = place_of(device);
        if (at > required_)
            base::swap_values(list_[at], list_[required_]);
        if (at >= required_)
            ++required_;
    }
    /// False if there are none.
    bool give_up_wishes() noexcept {
        bool const more = list_.size() > required_;
        while (list_.size() > required_)
            list_.pop_back();
        return more;
    }

private:
    base::growing_array<memory_access> list_;
    std::size_t required_ = 1;
};

} // namespace upstream::detail
} // namespace v0
} // namespace weir
