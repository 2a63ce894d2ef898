// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does memory get behind an address, and away from it?
//
// The driver reserves addresses without memory, makes memory without an address, and maps the one behind the other in
// pages of 2 MiB. The runtime has no such functions; the driver's are looked up through it, so there is nothing more to
// link. Their types are declared here in the few words that are needed: <cuda.h> takes a tenth of a second to compile,
// and tests/runtime/memory_map.cpp holds these against it.
//
// invariant: a call that fails leaves nothing reserved, made or mapped; 'map' and 'move' say where CUDA does not let it.
// order:     'unmap' waits for nothing: the caller knows that no work uses the bytes. No call needs a context or breaks a
//            capture (seen on CUDA 13).
// cost:      map: 36 us for 2 MiB, 45 us for 64 MiB, most of it to make the memory accessible; move: 45 us, whatever the
//            size; unmap: 35 us for 2 MiB, 60 us for 64 MiB. None waits for work on the device.
// not for:   deciding which addresses: see upstream::virtual_memory.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/driver_calls.hpp>

namespace weir {
inline namespace v0 {
namespace upstream::detail {


// The driver's types as cuda.h lays them out.
struct driver_location {
    int type = 1; // CU_MEM_LOCATION_TYPE_DEVICE
    int id = 0;
};
struct memory_properties {
    int type = 1; // CU_MEM_ALLOCATION_TYPE_PINNED
    int handle_types = 0;
    driver_location location;
    void* windows = nullptr;
    struct {
        unsigned char compression = 0;
        unsigned char gpu_direct_rdma = 0;
        unsigned short usage = 0;
        unsigned char reserved[4] = {};
    } flags;
};
struct memory_access {
    driver_location location;
    int flags = 3; // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

// The driver's functions; CUresult is an int to its callers, CUdeviceptr and a memory handle are 64 bits.
struct memory_calls {
    int (*granularity)(std::size_t*, memory_properties const*, int) = nullptr;
    int (*reserve)(unsigned long long*, std::size_t, std::size_t, unsigned long long, unsigned long long) = nullptr;
    int (*unreserve)(unsigned long long, std::size_t) = nullptr;
    int (*create)(unsigned long long*, std::size_t, memory_properties const*, unsigned long long) = nullptr;
    int (*release)(unsigned long long) = nullptr;
    int (*map)(unsigned long long, std::size_t, std::size_t, unsigned long long, unsigned long long) = nullptr;
    int (*unmap)(unsigned long long, std::size_t) = nullptr;
    int (*set_access)(unsigned long long, std::size_t, memory_access const*, std::size_t) = nullptr;
    int (*retain)(unsigned long long*, void*) = nullptr;

    memory_calls() noexcept {
        runtime::detail::driver_functions::find("cuMemGetAllocationGranularity", granularity);
        runtime::detail::driver_functions::find("cuMemAddressReserve", reserve);
        runtime::detail::driver_functions::find("cuMemAddressFree", unreserve);
        runtime::detail::driver_functions::find("cuMemCreate", create);
        runtime::detail::driver_functions::find("cuMemRelease", release);
        runtime::detail::driver_functions::find("cuMemMap", map);
        runtime::detail::driver_functions::find("cuMemUnmap", unmap);
        runtime::detail::driver_functions::find("cuMemSetAccess", set_access);
        runtime::detail::driver_functions::find("cuMemRetainAllocationHandle", retain);
    }
    explicit operator bool() const noexcept {
        return granularity && reserve && unreserve && create && release && map && unmap && set_access && retain;
    }
};


/// Maps memory of one device. Copyable. Any thread may call any member; none breaks a capture.
class memory_map {
public:
    /// The bytes of a page: addresses and sizes are multiples of it.
    static constexpr std::size_t page_bytes = 2 * MiB;

    /// `device`: its number; `handle_types`: what the memory may be exported as (CUmemAllocationHandleType; 0: nothing).
    /// Throws std::bad_alloc.
    memory_map(int device, unsigned handle_types) : device_(device) {
        properties_.handle_types = static_cast<int>(handle_types);
        properties_.location.id = device;
        readers_.push_back(access_of(device));
        std::size_t least = 0;
        supported_ = calls_ && runtime::detail::ask_driver(calls_.granularity, &least, &properties_, 0) == 0 && least != 0 &&
                     page_bytes % least == 0;
    }

    /// Whether the device can map memory.
    bool supported() const noexcept { return supported_; }
    int device_number() const noexcept { return device_; }

    /// Whether another device was allowed.
    bool has_peers() const noexcept { return readers_.size() > 1; }

    /// Memory that is mapped or moved from now on can be used by kernels of device number `device` as well; its own always may.
    /// Throws std::bad_alloc.
    void enable_access_from(int device) {
        if (device != device_)
            readers_.push_back(access_of(device));
    }

    /// Addresses without memory, of `bytes` bytes; an empty range where there are no more. Throws cuda_error.
    base::range reserve(std::size_t bytes) const {
        unsigned long long at = 0;
        int const result = runtime::detail::ask_driver(calls_.reserve, &at, bytes, page_bytes, 0ull, 0ull);
        return lacks_memory(result, "cuMemAddressReserve") ? base::range{} : base::range{static_cast<std::size_t>(at), bytes};
    }

    /// Gives addresses back, behind which nothing is mapped. Where CUDA refuses, nobody could give them back later: once more.
    void unreserve(base::range addresses) const noexcept {
        if (runtime::detail::ask_driver(calls_.unreserve, address_of(addresses), addresses.bytes) != 0)
            static_cast<void>(runtime::detail::ask_driver(calls_.unreserve, address_of(addresses), addresses.bytes));
    }

    /// Puts fresh memory behind `addresses`, in one piece; false where the device has no more. Throws cuda_error. Then
    /// there is none behind them, unless CUDA refuses to take it away again: 'stuck' says so, and 'unmap' may be tried
    /// later.
    bool map(base::range addresses, bool& stuck) const {
        unsigned long long memory = 0;
        stuck = false;
        if (lacks_memory(runtime::detail::ask_driver(calls_.create, &memory, addresses.bytes, &properties_, 0ull),
                         "cuMemCreate"))
            return false;
        int const mapped = put(memory, addresses);
        if (lacks_memory(mapped, "cuMemMap"))
            return false;
        int const opened = open(addresses);
        stuck = opened != 0 && !unmap(addresses);
        return !lacks_memory(opened, "cuMemSetAccess");
    }

    /// Puts the memory behind `from`, which one 'map' or 'move' put there, behind `to`, as many bytes without any. False:
    /// CUDA refused, and it is where it was; 'stuck' says that it is behind `to` as well, as for 'map'.
    bool move(base::range from, base::range to, bool& stuck) const noexcept {
        unsigned long long memory = 0;
        stuck = false;
        if (runtime::detail::ask_driver(calls_.retain, &memory, reinterpret_cast<void*>(from.offset)) != 0 ||
            put(memory, to) != 0)
            return false;
        if (open(to) == 0 && unmap(from))
            return true;
        stuck = !unmap(to);
        return false;
    }

    /// Takes the memory behind `addresses`, which one 'map' or 'move' put there, away, which frees it. False: CUDA refused.
    bool unmap(base::range addresses) const noexcept {
        return runtime::detail::ask_driver(calls_.unmap, address_of(addresses), addresses.bytes) == 0;
    }

private:
    // The mapping keeps the memory from now on; without one, it goes. Nobody could let go of it later: once more.
    int put(unsigned long long memory, base::range addresses) const noexcept {
        int const mapped =
            runtime::detail::ask_driver(calls_.map, address_of(addresses), addresses.bytes, std::size_t{0}, memory, 0ull);
        if (runtime::detail::ask_driver(calls_.release, memory) != 0)
            static_cast<void>(runtime::detail::ask_driver(calls_.release, memory));
        return mapped;
    }
    int open(base::range addresses) const noexcept {
        return runtime::detail::ask_driver(calls_.set_access, address_of(addresses), addresses.bytes, readers_.data(),
                                           readers_.size());
    }

    static memory_access access_of(int device) noexcept {
        memory_access access;
        access.location.id = device;
        return access;
    }
    static unsigned long long address_of(base::range addresses) noexcept { return addresses.offset; }

    // True where a call found no memory or addresses; throws for any other failure. Numbers are cudaError_t's here.
    static bool lacks_memory(int result, char const* call) {
        return runtime::out_of_room(static_cast<cudaError_t>(result), call);
    }

    memory_calls calls_;
    memory_properties properties_;
    base::growing_array<memory_access> readers_;
    int device_;
    bool supported_ = false;
};

} // namespace upstream::detail
} // namespace v0
} // namespace weir
