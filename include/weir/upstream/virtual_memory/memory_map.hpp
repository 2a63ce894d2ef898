// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is memory put behind an address, and taken away from it?
//
// The driver can reserve addresses without memory, create memory without an address, and map the memory behind the addresses,
// in pages of 2 MiB. The runtime has no such functions. The driver's functions are looked up through the runtime, so there is
// nothing more to link. The few types that they need are declared here, because <cuda.h> takes a tenth of a second to
// compile. tests/upstream/virtual_memory/memory_map.cpp compares these declarations with it.
//
// invariant: a call that fails leaves nothing reserved, created or mapped. If CUDA does not let 'map' or 'move' undo what
//            they did, they say so.
// order:     'unmap' waits for nothing: the caller must know that no work uses the bytes. No call needs a context or breaks a
//            capture (seen on CUDA 13).
// cost:      map: 36 us for 2 MiB, 45 us for 64 MiB, most of it to make the memory accessible; move: 45 us, whatever the
//            size; unmap: 35 us for 2 MiB, 60 us for 64 MiB. None waits for work on the device.
// not for:   choosing the addresses: see upstream::virtual_memory.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/address_map.hpp>
#include <weir/base/error.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/upstream/virtual_memory/memory_readers.hpp>

namespace weir {
inline namespace v0 {
namespace upstream::detail {

// The driver's types as cuda.h lays them out; those that name a device are in memory_readers.hpp.
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
// What memory is made as. What is wished for is left out if the device refuses the first memory that is made so.
struct memory_wish {
    unsigned handle_types = 0;        // CUmemAllocationHandleType: what it can be exported as
    unsigned wished_handle_types = 0; // the same, wished for
    bool wished_rdma = false;         // network cards may read and write it: wished for
    bool recommended_pages = false;   // the pages that CUDA recommends, in place of the smallest

    template <class Tuning>
    static constexpr memory_wish of() noexcept {
        return {Tuning::handle_types, Tuning::wished_handle_types, Tuning::wished_rdma, Tuning::recommended_pages};
    }
};

// The driver's functions. In their signatures CUresult is an int, and CUdeviceptr and a memory handle are 64-bit numbers.
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

    // Throws cuda_error if a look-up fails: that is not to say that the driver has no such function.
    memory_calls() {
        find("cuMemGetAllocationGranularity", granularity);
        find("cuMemAddressReserve", reserve);
        find("cuMemAddressFree", unreserve);
        find("cuMemCreate", create);
        find("cuMemRelease", release);
        find("cuMemMap", map);
        find("cuMemUnmap", unmap);
        find("cuMemSetAccess", set_access);
        find("cuMemRetainAllocationHandle", retain);
    }
    explicit operator bool() const noexcept {
        return granularity && reserve && unreserve && create && release && map && unmap && set_access && retain;
    }

private:
    template <class Function>
    static void find(char const* name, Function& function) {
        check_cuda(runtime::detail::driver_functions::find(name, function), "cudaGetDriverEntryPointByVersion");
    }
};

/// Maps memory of one device. One thread at a time, but for the const members; none breaks a capture.
class memory_map {
public:
    /// The bytes of a page: addresses and sizes are multiples of it.
    static constexpr std::size_t page_bytes = 2 * MiB;

    /// `device`: its number; `wish`: what the memory is made as. Throws std::bad_alloc; cuda_error if CUDA fails in place of
    /// saying whether the device can map memory.
    memory_map(int device, memory_wish const& wish) : wish_(wish), readers_(device), device_(device) {
        properties_.handle_types = static_cast<int>(wish.handle_types | wish.wished_handle_types);
        properties_.flags.gpu_direct_rdma = wish.wished_rdma;
        properties_.location.id = device;
        std::size_t const least = calls_ ? least_page_bytes() : 0;
        supported_.store(least != 0 && page_bytes % least == 0, base::memory_order_relaxed);
    }

    /// Whether the device can map memory, as far as is known: some virtual GPUs refuse only when 'reserve' or 'map' tries it.
    /// Any thread.
    bool supported() const noexcept { return supported_.load(base::memory_order_relaxed); }
    int device_number() const noexcept { return device_; }

    /// What the memory can be exported as, and whether network cards may use it, as far as is known: the first 'map' may show
    /// that the device lacks what was wished for.
    unsigned handle_types() const noexcept { return static_cast<unsigned>(properties_.handle_types); }
    bool has_rdma() const noexcept { return properties_.flags.gpu_direct_rdma != 0; }

    /// Whether kernels of that device can use what is mapped, and what will be; and whether those of any other device can.
    bool is_open_to(int device) const noexcept { return readers_.place_of(device) < open_to(); }
    bool has_peers() const noexcept { return open_to() > 1; }

    /// Lets kernels of device number `device` use what is mapped, and what will be. This object's own device can always use
    /// it. Throws std::bad_alloc and cuda_error; then the devices that may use it are those of before (unless CUDA also fails
    /// to close what it had opened).
    void enable_access_from(int device) {
        if (readers_.place_of(device) == readers_.size())
            check_cuda(let_in(access_of(device)), "cuMemSetAccess");
        readers_.require(device);
    }
    /// The same as a wish: false, and nothing has changed, if CUDA refuses. Where CUDA refuses it for memory to come, or for
    /// memory that moves, it is given up.
    bool try_enable_access_from(int device) {
        if (readers_.place_of(device) != readers_.size())
            return is_open_to(device);
        cudaError_t const answer = supported() ? let_in(access_of(device)) : cudaErrorNotSupported;
        if (!runtime::refuses_peers(answer))
            check_cuda(answer, "cuMemSetAccess");
        return answer == cudaSuccess;
    }

    /// Memory from cudaMalloc cannot be opened to peers or exported here. Throws usage_error if either has to be: without this
    /// check, a kernel of another device would fail much later.
    void require_own_device_alone() const {
        if (readers_.required() > 1)
            throw usage_error("weir: this device cannot map memory, so chunks cannot be opened to other devices; leave "
                              "'enable_access_from' out, or use upstream::device and cudaDeviceEnablePeerAccess");
        if (wish_.handle_types != 0)
            throw usage_error("weir: this device cannot map memory, so its chunks cannot be exported by handle; use "
                              "virtual_memory<> or upstream::device, and cudaIpcGetMemHandle");
    }

    /// Reserves `bytes` bytes of addresses, with no memory behind them; an empty range if there are no more, or if this shows
    /// that the device cannot map memory. Throws cuda_error.
    base::range reserve(std::size_t bytes) const {
        unsigned long long at = 0;
        int const result = runtime::detail::ask_driver(calls_.reserve, &at, bytes, page_bytes, 0ull, 0ull);
        return is_refused(result, "cuMemAddressReserve") ? base::range{} : base::range{static_cast<std::size_t>(at), bytes};
    }

    /// Gives addresses back; nothing may be mapped behind them. If CUDA refuses, the call is tried once more, because nobody
    /// could do it later.
    void unreserve(base::range addresses) const noexcept {
        base::try_twice(
            [&] { return runtime::detail::ask_driver(calls_.unreserve, address_of(addresses), addresses.bytes) == 0; });
    }

    /// Puts fresh memory behind `addresses`, as one mapping. False if the device has no more, or if this shows that it cannot
    /// map memory. Throws cuda_error, std::bad_alloc. After false or an exception there is no memory behind the addresses,
    /// unless CUDA refused to unmap it: then 'stuck' is true, and 'unmap' may be tried later.
    bool map(base::range addresses, bool& stuck) {
        unsigned long long memory = 0;
        stuck = false;
        mapped_.reserve(mapped_.size() + 1);
        if (is_refused(create(memory, addresses.bytes), "cuMemCreate"))
            return false;
        int const mapped = put(memory, addresses);
        if (is_refused(mapped, "cuMemMap"))
            return false;
        int const opened = open(addresses);
        stuck = opened != 0 && !unmap(addresses);
        if (is_refused(opened, "cuMemSetAccess"))
            return false;
        return proven_ = true;
    }

    /// Takes the memory away from `from`, where one 'map' or 'move' put it, and puts it behind `to`, a range of the same size
    /// with no memory behind it. False if CUDA refused, or the host has no memory; the memory is then where it was. If 'stuck'
    /// is true as well, it is also still mapped behind `to`.
    bool move(base::range from, base::range to, bool& stuck) noexcept {
        unsigned long long memory = 0;
        stuck = false;
        try {
            mapped_.reserve(mapped_.size() + 1);
        } catch (...) {
            return false;
        }
        if (runtime::detail::ask_driver(calls_.retain, &memory, reinterpret_cast<void*>(from.offset)) != 0 ||
            put(memory, to) != 0)
            return false;
        if (open(to) == 0 && unmap(from))
            return true;
        stuck = !unmap(to);
        return false;
    }

    /// Takes away the memory behind `addresses`, where one 'map' or 'move' put it, and thereby frees it. False if CUDA
    /// refused.
    bool unmap(base::range addresses) noexcept {
        bool const done = runtime::detail::ask_driver(calls_.unmap, address_of(addresses), addresses.bytes) == 0;
        if (done)
            mapped_.erase(address_of(addresses));
        return done;
    }

private:
    // Makes memory as it was wished for, or without what the device lacks.
    int create(unsigned long long& memory, std::size_t bytes) noexcept {
        int result = 0;
        do
            result = runtime::detail::ask_driver(calls_.create, &memory, bytes, &properties_, 0ull);
        while (says_no(result) && gives_up_a_wish());
        return result;
    }
    // One wish after the other, the rarest first; false if there is none left, or memory was made with it.
    bool gives_up_a_wish() noexcept {
        auto const required = static_cast<int>(wish_.handle_types);
        bool const more_handles = properties_.handle_types != required;
        if (proven_ || (!more_handles && !has_rdma()))
            return false;
        if (more_handles)
            properties_.handle_types = required;
        else
            properties_.flags.gpu_direct_rdma = 0;
        return true;
    }
    static bool says_no(int result) noexcept {
        return result == cudaErrorNotSupported || result == cudaErrorNotPermitted || result == cudaErrorInvalidValue;
    }

    // The device's own page size; 0 if it cannot map such memory. An answer that is no refusal is asked for once more.
    std::size_t least_page_bytes() {
        std::size_t least = 0;
        for (int tries = 0;;) {
            int const answer =
                runtime::detail::ask_driver(calls_.granularity, &least, &properties_, wish_.recommended_pages ? 1 : 0);
            if (answer == cudaSuccess)
                return least;
            if (!says_no(answer) && tries++ != 0)
                check_cuda(static_cast<cudaError_t>(answer), "cuMemGetAllocationGranularity");
            if (says_no(answer) && !gives_up_a_wish())
                return 0;
        }
    }

    // After this the mapping alone keeps the memory alive; if the mapping failed, the memory is freed. A release that CUDA
    // refuses is tried once more, because nobody could do it later. In 'mapped_' there must be room.
    int put(unsigned long long memory, base::range addresses) noexcept {
        int const mapped =
            runtime::detail::ask_driver(calls_.map, address_of(addresses), addresses.bytes, std::size_t{0}, memory, 0ull);
        base::try_twice([&] { return runtime::detail::ask_driver(calls_.release, memory) == 0; });
        if (mapped == 0)
            mapped_.insert(address_of(addresses), static_cast<unsigned>(addresses.bytes / page_bytes));
        return mapped;
    }
    // To all readers, or to those that are no mere wishes.
    int open(base::range addresses) noexcept {
        int answer = 0;
        do
            answer = runtime::detail::ask_driver(calls_.set_access, address_of(addresses), addresses.bytes, readers_.data(),
                                                 readers_.size());
        while (runtime::refuses_peers(static_cast<cudaError_t>(answer)) && readers_.give_up_wishes());
        return answer;
    }

    // Opens what is mapped to another device; if CUDA does not open all, closes it again.
    cudaError_t let_in(memory_access reader) {
        readers_.make_room();
        std::size_t opened = 0;
        int const answer = set_access_of(reader, mapped_.size(), opened);
        if (answer == cudaSuccess) {
            readers_.add(reader);
        } else {
            reader.flags = 0; // CU_MEM_ACCESS_FLAGS_PROT_NONE
            base::try_twice([&] {
                std::size_t closed = 0;
                return set_access_of(reader, opened, closed) == cudaSuccess;
            });
        }
        return static_cast<cudaError_t>(answer);
    }
    // Says to the first `count` mappings who may use them, until CUDA fails. Counts in `done` to how many it did.
    int set_access_of(memory_access const& reader, std::size_t count, std::size_t& done) const {
        int answer = cudaSuccess;
        mapped_.visit([&](unsigned long long at, unsigned pages) {
            if (done != count && answer == cudaSuccess && (answer = set_access(at, pages, reader)) == cudaSuccess)
                ++done;
        });
        return answer;
    }
    int set_access(unsigned long long at, unsigned pages, memory_access const& reader) const noexcept {
        return runtime::detail::ask_driver(calls_.set_access, at, std::size_t{pages} * page_bytes, &reader, std::size_t{1});
    }
    // How many of the readers can use the memory, if it is cudaMalloc's after all.
    std::size_t open_to() const noexcept { return supported() ? readers_.size() : readers_.required(); }

    static unsigned long long address_of(base::range addresses) noexcept { return addresses.offset; }

    // True if a call found no memory or no addresses, or if it shows that the device cannot map memory at all. That is so if
    // nothing was ever mapped and CUDA says 'not supported' or 'not permitted', not about export or other devices. Throws for
    // any other failure. The driver's error numbers equal the cudaError_t values here.
    bool is_refused(int result, char const* call) const {
        if (!proven_ && readers_.required() == 1 && properties_.handle_types == 0 &&
            (result == cudaErrorNotSupported || result == cudaErrorNotPermitted)) {
            supported_.store(false, base::memory_order_relaxed);
            return true;
        }
        return runtime::out_of_room(static_cast<cudaError_t>(result), call);
    }

    memory_calls calls_;
    memory_wish wish_;
    memory_properties properties_;
    memory_readers readers_;
    base::address_map mapped_; // each mapping's address, and its pages
    int device_;
    bool proven_ = false; // something was mapped
    mutable base::atomic<bool> supported_{false};
};

} // namespace upstream::detail
} // namespace v0
} // namespace weir
