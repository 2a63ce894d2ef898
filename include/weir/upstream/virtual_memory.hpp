// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where does device memory come from that grows in place and goes back in pieces?
//
// Addresses are reserved ahead, and memory is mapped behind them chunk by chunk. A pool asks for more right behind what it
// has, so that free ranges join across growth, and moves any chunk, with its memory, to where that is needed, or gives it
// back, without waiting for the device unless the pool asks for that. How many addresses are reserved, reservations.hpp
// says.
//
// A device that cannot map memory (or a driver that is too old) has chunks from cudaMalloc here, which never grow in
// place; 'extends' tells. Such chunks can be neither opened to other devices nor exported: who asks for that has none.
//
// invariant: a chunk is one mapping; what has no memory behind it is free in 'addresses'.
// order:     'release' and 'move' wait for nothing: the pool knows that no work uses the chunk, or calls
// 'wait_before_unmapping'.
// cost:      35 to 50 us a chunk, of 2 MiB or of 128; move and release about as much, and a wait where it was asked for. The
//            driver has room for some 524,000 mappings a process: 1 TiB of the smallest.
// not for:   memory that a library takes to be cudaMalloc's: cudaIpcGetMemHandle refuses it, GPUDirect RDMA may, and
//            cudaDeviceEnablePeerAccess does not open it ('enable_access_from' does).

#include <cstddef>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/upstream/virtual_memory/memory_map.hpp>
#include <weir/upstream/virtual_memory/reservations.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// Memory mapped behind reserved addresses of one device. Copyable: copies share the addresses; give each pool an upstream
/// of its own, so that none is in another's way when it grows. Any thread may call any member. `HandleTypes`: what a chunk
/// can be exported as to other processes, in bits of CUmemAllocationHandleType (cuMemRetainAllocationHandle names the memory at
/// an address, cuMemExportToShareableHandle exports it); a block may lie in several, and after 'resume' of a pool they are new.
template <unsigned HandleTypes>
class virtual_memory {
public:
    static constexpr std::size_t alignment = upstream::detail::memory_map::page_bytes;
    static constexpr memory_space space = memory_space::device;
    static constexpr std::size_t granularity = upstream::detail::memory_map::page_bytes;

    /// `device`: its number; any_device: the one that is current now. Throws usage_error where there is no such
    /// device, cuda_error, std::bad_alloc.
    explicit virtual_memory(int device = any_device)
        : state_(base::shared<state>::make(runtime::existing_device(device))) {}

    /// Chunks that are acquired from now on can be used by kernels of device `peer` as well; `acquire` throws usage_error
    /// where 'extends' is false. Call it before the pool gets its upstream. Throws usage_error where there is no such device,
    /// or it cannot use this one's memory (cudaDeviceCanAccessPeer); cuda_error, std::bad_alloc.
    virtual_memory& enable_access_from(int peer) {
        int const other = runtime::existing_peer(peer, device_number());
        base::lock_guard<base::mutex> const lock(state_->lock);
        state_->map.enable_access_from(other);
        return *this;
    }

    /// From now on this object's 'release' and 'move' first wait for all work on every device of the process, as cudaFree does
    /// on one; a wait that fails is a refusal. For reuse rules that look at no work; before the pool gets it.
    void wait_before_unmapping() noexcept { waits_ = true; }

    /// A chunk of `bytes` bytes, a multiple of the granularity, or null when the device has no room, or the process no
    /// addresses. Throws cuda_error, std::bad_alloc; usage_error where 'extends' is false, but other devices were let in or
    /// `HandleTypes` are named.
    void* acquire(std::size_t bytes) { return acquire(bytes, bytes); }

    /// `bytes` bytes in chunks of `piece_bytes` bytes, the last one perhaps less, side by side. Where 'extends' is false,
    /// in one.
    void* acquire(std::size_t bytes, std::size_t piece_bytes) {
        if (!extends())
            return allocated(bytes);
        base::lock_guard<base::mutex> const lock(state_->lock);
        state_->addresses.forget();
        if (!state_->prepare(bytes, piece_bytes))
            return nullptr;
        base::range place = state_->addresses.take(bytes);
        if (!place && state_->addresses.more(bytes)) {
            state_->make_room(bytes / piece_bytes);
            place = state_->addresses.take(bytes);
        }
        return place && state_->fill(place, piece_bytes) ? reinterpret_cast<void*>(place.offset) : nullptr;
    }

    /// The same right behind `end`, where a chunk ends; false where the addresses are not free, or the device has no room.
    bool extend(void* end, std::size_t bytes, std::size_t piece_bytes) {
        base::range const place{reinterpret_cast<std::size_t>(end), bytes};
        if (!extends())
            return false;
        base::lock_guard<base::mutex> const lock(state_->lock);
        return state_->prepare(bytes, piece_bytes) && state_->addresses.take_at(place) && state_->fill(place, piece_bytes);
    }

    /// Gives a chunk back, which no work uses (or see 'wait_before_unmapping'). False: CUDA refused it, and it is still the
    /// caller's.
    bool release(void* chunk, std::size_t bytes) noexcept {
        try {
            if (!extends()) {
                runtime::capture_mode_guard const relaxed;
                return runtime::succeeded(cudaFree(chunk));
            }
            await_work();
            base::lock_guard<base::mutex> const lock(state_->lock);
            base::range const place{reinterpret_cast<std::size_t>(chunk), bytes};
            state_->release_stuck();
            state_->addresses.make_room(state_->stuck.size() + 1);
            if (!state_->map.unmap(place))
                return false;
            state_->addresses.give(place);
            return true;
        } catch (...) {
            return false;
        }
    }

    /// Puts the memory of a chunk, which no work uses (as for 'release'), behind other addresses, right behind a chunk's end;
    /// the old addresses are free then. False where the new ones are not, or CUDA refused: the chunk is as it was (and perhaps
    /// also there, until CUDA takes it away again).
    bool move(void* chunk, std::size_t bytes, void* to) noexcept {
        base::range const from{reinterpret_cast<std::size_t>(chunk), bytes};
        base::range const place{reinterpret_cast<std::size_t>(to), bytes};
        try {
            await_work();
            base::lock_guard<base::mutex> const lock(state_->lock);
            state_->release_stuck();
            state_->make_room(1);
            if (!state_->addresses.take_at(place))
                return false;
            bool in_doubt = false;
            bool const done = state_->map.move(from, place, in_doubt);
            if (in_doubt)
                state_->stuck.push_back(place);
            else
                state_->addresses.give(done ? from : place);
            return done;
        } catch (...) {
            return false;
        }
    }

    /// Takes the memory of a chunk, which no work uses, away and keeps the chunk's addresses. False: CUDA refused, and it is
    /// as it was.
    bool withdraw(void* chunk, std::size_t bytes) noexcept {
        base::lock_guard<base::mutex> const lock(state_->lock);
        state_->release_stuck();
        return state_->map.unmap(base::range{reinterpret_cast<std::size_t>(chunk), bytes});
    }

    /// Puts fresh memory behind a chunk that was withdrawn; false where the device has no room. Throws cuda_error, also
    /// where chunks are cudaMalloc's.
    bool restore(void* chunk, std::size_t bytes) {
        base::range const place{reinterpret_cast<std::size_t>(chunk), bytes};
        bool in_doubt = false;
        base::lock_guard<base::mutex> const lock(state_->lock);
        static_cast<void>(state_->map.unmap(place)); // what an earlier call could not undo; mostly nothing
        return state_->map.map(place, in_doubt);
    }

    /// Gives up the addresses of a chunk that was withdrawn, or of whole pages of it. Where the host has no memory to note that
    /// they are free, they are not used again.
    void abandon(void* pages, std::size_t bytes) noexcept {
        try {
            base::lock_guard<base::mutex> const lock(state_->lock);
            state_->addresses.make_room(state_->stuck.size() + 1);
            state_->addresses.give(base::range{reinterpret_cast<std::size_t>(pages), bytes});
        } catch (...) { // nothing is behind them, and there are many
        }
    }

    /// How many bytes of addresses 'extend' and 'move' could have behind `end`, where a chunk ends, while no chunk is in the
    /// way.
    std::size_t addresses_behind(void const* end) const noexcept {
        base::lock_guard<base::mutex> const lock(state_->lock);
        return state_->addresses.behind(reinterpret_cast<std::size_t>(end));
    }

    /// Whether the last 'acquire' had no chunk because the process had no addresses for it.
    bool out_of_addresses() const noexcept { return state_->addresses.ran_out(); }

    /// What the device has in all, in bytes; SIZE_MAX: CUDA does not say. A call of CUDA's.
    std::size_t most_bytes() const noexcept { return runtime::device_total_bytes(device_number()); }

    /// Whether chunks can grow in place on this device; else they are cudaMalloc's.
    bool extends() const noexcept { return state_->map.supported(); }
    /// Whether kernels of other devices can use the memory.
    bool has_peers() const noexcept {
        base::lock_guard<base::mutex> const lock(state_->lock);
        return state_->map.has_peers();
    }
    /// The number of the device.
    int device_number() const noexcept { return state_->map.device_number(); }

private:
    struct state {
        explicit state(int device) : map(device, HandleTypes) {}
        state(state const&) = delete;
        state& operator=(state const&) = delete;
        ~state() { release_stuck(); }

        // Before a place is taken. Whether the device seems to have room: in many chunks, a request in vain would take all
        // that it has for a while, and others would go without.
        bool prepare(std::size_t bytes, std::size_t piece_bytes) {
            release_stuck();
            if (piece_bytes < bytes && runtime::device_free_bytes(map.device_number()) < bytes)
                return false;
            make_room(bytes / piece_bytes);
            return true;
        }

        // So that undoing never allocates.
        void make_room(std::size_t pieces) {
            stuck.reserve(stuck.size() + pieces + 1);
            addresses.make_room(stuck.size() + pieces + 2); // places that are stuck keep theirs
        }

        // Maps memory behind a place that was taken; where that fails, the place is free again.
        bool fill(base::range place, std::size_t piece_bytes) {
            std::size_t filled = 0;
            bool in_doubt = false;
            try {
                while (filled < place.bytes && map.map(piece(place, filled, piece_bytes), in_doubt))
                    filled += piece(place, filled, piece_bytes).bytes;
            } catch (...) {
                empty(place, filled, piece_bytes, in_doubt);
                throw;
            }
            if (filled != place.bytes)
                empty(place, filled, piece_bytes, in_doubt);
            return filled == place.bytes;
        }

        // Undoes it. What CUDA refuses to unmap is nobody's until it can be.
        void empty(base::range place, std::size_t filled, std::size_t piece_bytes, bool in_doubt) noexcept {
            for (std::size_t at = 0; at < place.bytes; at += piece_bytes) {
                base::range const each = piece(place, at, piece_bytes);
                if (at < filled ? !map.unmap(each) : at == filled && in_doubt)
                    stuck.push_back(each);
                else
                    addresses.give(each);
            }
        }

        void release_stuck() noexcept {
            for (std::size_t i = stuck.size(); i-- > 0;) {
                if (!map.unmap(stuck[i]))
                    continue;
                addresses.give(stuck[i]);
                stuck.erase(stuck.begin() + i);
            }
        }

        static base::range piece(base::range place, std::size_t at, std::size_t piece_bytes) noexcept {
            std::size_t const rest = place.bytes - at;
            return base::range{place.offset + at, rest < piece_bytes ? rest : piece_bytes};
        }


        base::mutex lock; // guards the rest
        upstream::detail::memory_map map;
        upstream::detail::reservations addresses{map};
        base::growing_array<base::range> stuck; // mapped, since CUDA refused to unmap them, but nobody's
    };

    void await_work() const {
        if (waits_)
            runtime::wait_for_device(any_device); // also of a copy by peers
    }

    // What cudaMalloc cannot do is said here: else a kernel of another device would fail, and much later.
    void* allocated(std::size_t bytes) {
        if (has_peers())
            throw usage_error("weir: this device cannot map memory, so chunks cannot be opened to other devices; leave "
                              "'enable_access_from' out, or use upstream::device and cudaDeviceEnablePeerAccess");
        if (HandleTypes != 0)
            throw usage_error("weir: this device cannot map memory, so its chunks cannot be exported by handle; use "
                              "virtual_memory<> or upstream::device, and cudaIpcGetMemHandle");
        runtime::device_guard const guard(device_number());
        runtime::capture_mode_guard const relaxed;
        void* chunk = nullptr;
        return runtime::out_of_room(cudaMalloc(&chunk, bytes), "cudaMalloc") ? nullptr : chunk;
    }

    base::shared<state> state_;
    bool waits_ = false;
};

} // namespace upstream
} // namespace v0
} // namespace weir
