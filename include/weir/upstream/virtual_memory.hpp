// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where does device memory come from that grows in place and goes back in pieces?
//
// CUDA can reserve addresses without memory, and map memory behind them later, chunk by chunk. A pool asks for more memory
// right behind what it has, so that free ranges join across growth. It can also move a chunk: the memory is taken away from
// the chunk's addresses and mapped behind others, where it is needed. It can give a chunk back. Neither waits for the device,
// unless the pool asks for that. reservations.hpp says how many addresses are reserved.
//
// A device that cannot map memory (or has too old a driver) gets its chunks from cudaMalloc, and they never grow in place;
// 'extends' is false then. Some virtual GPUs refuse only when a chunk is mapped; a device that refuses the first one counts as
// one that cannot. If the caller asked for memory that is open to other devices, or can be exported, 'acquire' throws then.
//
// invariant: each chunk is one mapping; addresses with no memory behind them are free in 'addresses', except those of chunks
//            that were withdrawn.
// order:     'release' and 'move' wait for nothing. Either the pool knows that no work uses the chunk, or it called
//            'wait_before_unmapping' first.
// cost:      a chunk costs 35 to 50 us, whether it has 2 MiB or 128 MiB; move and release cost about as much, and a wait if
//            it was asked for. The driver has room for about 524,000 mappings in a process: 1 TiB of the smallest chunks.
// not for:   memory that a library takes to be cudaMalloc's: cudaIpcGetMemHandle refuses it, GPUDirect RDMA may refuse it,
//            and cudaDeviceEnablePeerAccess does not open it ('enable_access_from' does).

#include <cstddef>
#include <cuda_runtime_api.h>
#include <type_traits>
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
#include <weir/runtime/give_back.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/upstream/memory_tuning.hpp>
#include <weir/upstream/virtual_memory/memory_map.hpp>
#include <weir/upstream/virtual_memory/reservations.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// Memory mapped behind reserved addresses of one device. Copyable. Copies share the addresses, so give each pool an upstream
/// of its own; otherwise pools are in each other's way when they grow. Any thread may call any member.
/// `Tuning`: what the memory is made as. cuMemRetainAllocationHandle gets the handle of the memory at an address, which
/// cuMemExportToShareableHandle exports. A block may lie in several chunks. After a pool's 'resume' its chunks are new ones.
template <class Tuning>
class virtual_memory {
    static_assert(std::is_base_of_v<virtual_memory_tuning, Tuning>,
                  "weir: upstream::virtual_memory takes a tuning that is derived from 'weir::upstream::virtual_memory_tuning'");

public:
    static constexpr std::size_t alignment = upstream::detail::memory_map::page_bytes;
    static constexpr memory_space space = memory_space::device;
    static constexpr std::size_t granularity = upstream::detail::memory_map::page_bytes;

    /// `device`: its number; any_device: the device that is current at this call. Throws usage_error if there is no such
    /// device; cuda_error; std::bad_alloc.
    explicit virtual_memory(int device = any_device) : state_(base::shared<state>::make(runtime::existing_device(device))) {}

    /// Lets kernels of device `peer` use all chunks, those that are here and those to come, also those of a pool that has a
    /// copy of this upstream. Each such device adds about 30 us to a chunk and 60 us to a move (two H100; what is here is
    /// opened in 45 us a chunk), so call it for devices that use the memory. Any thread. If 'extends' is false, `acquire`
    /// throws usage_error afterwards. Throws usage_error if there is no such device, or it cannot use this device's memory
    /// (cudaDeviceCanAccessPeer); std::bad_alloc; cuda_error. After a throw the chunks are open to whom they were open before.
    virtual_memory& enable_access_from(int peer) {
        static_assert(!Tuning::own_device_alone, "weir: this memory is open to its own device alone, as its tuning says");
        int const other = runtime::existing_peer(peer, device_number());
        locked().map.enable_access_from(other);
        return *this;
    }

    /// The same as a wish: false, and all is as it was, if that cannot be or CUDA refuses. Chunks to come that CUDA refuses to
    /// open end the wish, as do those of cudaMalloc. Throws usage_error (no such device), std::bad_alloc, cuda_error.
    template <class T = Tuning, class = std::enable_if_t<!T::own_device_alone>>
    bool try_enable_access_from(int peer) {
        peer = runtime::existing_device(peer);
        return runtime::can_reach(peer, device_number()) && locked().map.try_enable_access_from(peer);
    }

    /// After this call, this object's 'release' and 'move' first wait for all work on every device of the process, as
    /// cudaFree waits for all work on one device. If the wait fails, they refuse. This is for reuse rules that do not check
    /// whether work is done. It must be called before the pool gets the upstream.
    void wait_before_unmapping() noexcept { waits_ = true; }

    /// A chunk of `bytes` bytes, which must be a multiple of the granularity. Null when the device has no room, or the
    /// process has no addresses left. Throws cuda_error; std::bad_alloc; usage_error if 'extends' is false and handle types
    /// are named or 'enable_access_from' was called.
    void* acquire(std::size_t bytes) { return acquire(bytes, bytes); }

    /// `bytes` bytes side by side, in chunks of `piece_bytes` bytes; the last chunk may be smaller. If 'extends' is false, it
    /// is a single chunk. Otherwise as above.
    void* acquire(std::size_t bytes, std::size_t piece_bytes) {
        void* const chunk = extends() ? mapped(bytes, piece_bytes) : nullptr;
        return chunk || extends() ? chunk : allocated(bytes);
    }

    /// The same right behind `end`, which must be the end of a chunk. False if the addresses there are not free, or the
    /// device has no room.
    bool extend(void* end, std::size_t bytes, std::size_t piece_bytes) {
        base::range const place{reinterpret_cast<std::size_t>(end), bytes};
        if (!extends())
            return false;
        guard const lock(state_->lock);
        return state_->prepare(bytes, piece_bytes) && state_->addresses.take_at(place) && state_->fill(place, piece_bytes);
    }

    /// Gives a chunk back. No work may use it any more, unless 'wait_before_unmapping' was called. False if CUDA refused; the
    /// chunk is then still the caller's.
    bool release(void* chunk, std::size_t bytes) noexcept {
        if (!extends())
            return runtime::gave_back([&] { return cudaFree(chunk); });
        try {
            await_work();
            guard const lock(state_->lock);
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

    /// Takes the memory of a chunk away from its addresses and puts it behind `to`, which must be the end of another chunk.
    /// No work may use the chunk, as for 'release'. The old addresses are free afterwards. False if the new addresses are not
    /// free, or CUDA refused; the chunk is then where it was. (Its memory may be at the new addresses as well, until CUDA
    /// unmaps it there; those addresses are used for nothing else until then.)
    bool move(void* chunk, std::size_t bytes, void* to) noexcept {
        base::range const from{reinterpret_cast<std::size_t>(chunk), bytes};
        base::range const place{reinterpret_cast<std::size_t>(to), bytes};
        try {
            await_work();
            guard const lock(state_->lock);
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

    /// Takes the memory of a chunk away, but keeps the chunk's addresses for 'restore' or 'abandon'. No work may use the
    /// chunk. False if CUDA refused; nothing has changed then.
    bool withdraw(void* chunk, std::size_t bytes) noexcept {
        guard const lock(state_->lock);
        state_->release_stuck();
        return state_->map.unmap({reinterpret_cast<std::size_t>(chunk), bytes});
    }
    /// The same for what a 'restore' that failed may have left behind a withdrawn chunk, mostly nothing.
    bool clear(void* chunk, std::size_t bytes) noexcept { return withdraw(chunk, bytes); }

    /// Puts fresh memory behind a chunk that was withdrawn. False if the device has no room. Throws std::bad_alloc;
    /// cuda_error, also if chunks come from cudaMalloc.
    bool restore(void* chunk, std::size_t bytes) {
        base::range const place{reinterpret_cast<std::size_t>(chunk), bytes};
        bool in_doubt = false;
        guard const lock(state_->lock);
        static_cast<void>(state_->map.unmap(place)); // an earlier call may have left memory there; mostly there is none
        return state_->map.map(place, in_doubt);
    }

    /// Addresses with no memory behind them, as those of a chunk that was withdrawn; `bytes` must be a multiple of the
    /// granularity. Null if the process has no more, or 'extends' is false. Throws cuda_error; std::bad_alloc.
    void* take_addresses(std::size_t bytes) {
        if (!extends())
            return nullptr;
        guard const lock(state_->lock);
        return reinterpret_cast<void*>(state_->take(bytes, 1).offset);
    }

    /// Takes the memory of a chunk away and puts it behind `to`, addresses of 'take_addresses' or of a chunk that was
    /// withdrawn. The chunk counts as withdrawn then. No work may use it. False if CUDA refused, or the host has no memory: the
    /// chunk is where it was. (Its memory may be behind `to` as well; 'withdraw' it there.)
    bool remap(void* chunk, std::size_t bytes, void* to) noexcept {
        guard const lock(state_->lock);
        bool in_doubt = false;
        return state_->map.move(base::range{reinterpret_cast<std::size_t>(chunk), bytes},
                                base::range{reinterpret_cast<std::size_t>(to), bytes}, in_doubt);
    }

    /// Gives up the addresses of a chunk that was withdrawn, or of whole pages of such a chunk. If the host has no memory to
    /// note that they are free, they are never used again.
    void abandon(void* pages, std::size_t bytes) noexcept {
        try {
            guard const lock(state_->lock);
            state_->addresses.make_room(state_->stuck.size() + 1);
            state_->addresses.give(base::range{reinterpret_cast<std::size_t>(pages), bytes});
        } catch (...) { // the addresses stay unused: nothing is behind them, and there are many
        }
    }

    /// How many bytes of addresses lie between `end`, where a chunk ends, and the end of its reservation. 'extend' and 'move'
    /// could use them if no chunk is in the way.
    std::size_t addresses_behind(void const* end) const noexcept {
        guard const lock(state_->lock);
        return state_->addresses.behind(reinterpret_cast<std::size_t>(end));
    }

    /// Whether the last 'acquire' failed because the process had no addresses left.
    bool out_of_addresses() const noexcept { return extends() && state_->addresses.ran_out(); }

    /// All bytes that the device has; SIZE_MAX: CUDA does not say. Makes a CUDA call.
    std::size_t most_bytes() const noexcept { return runtime::device_total_bytes(device_number()); }

    /// Whether chunks can grow in place on this device. If not, they come from cudaMalloc. It is known for sure when the first
    /// 'acquire' has returned. Any thread.
    bool extends() const noexcept { return state_->map.supported(); }
    /// What chunks can be exported as; known as 'extends' is (memory_tuning.hpp).
    unsigned handle_types() const noexcept { return locked().map.handle_types(); }
    /// Whether kernels of any other device, or of device number `device`, can use the memory, chunks to come included.
    bool has_peers() const noexcept { return locked().map.has_peers(); }
    bool is_open_to(int device) const noexcept { return locked().map.is_open_to(device); }
    /// The number of the device.
    int device_number() const noexcept { return state_->map.device_number(); }

private:
    using guard = base::lock_guard<base::mutex>;
    struct locked_map {
        guard const lock;
        upstream::detail::memory_map& map;
    };
    struct state {
        explicit state(int device) : map(device, upstream::detail::memory_wish::of<Tuning>()) {}
        state(state const&) = delete;
        state& operator=(state const&) = delete;
        ~state() { release_stuck(); }

        // Called before a place is taken. False if the device seems to lack room. Without this check, a request for many
        // chunks would fail only after it took all that the device has, and others would find no memory meanwhile.
        bool prepare(std::size_t bytes, std::size_t piece_bytes) {
            release_stuck();
            if (piece_bytes < bytes && runtime::device_free_bytes(map.device_number()) < bytes)
                return false;
            make_room(bytes / piece_bytes);
            return true;
        }

        // Makes room in the lists, so that undoing a failed call never allocates.
        void make_room(std::size_t pieces) {
            stuck.reserve(stuck.size() + pieces + 1);
            addresses.make_room(stuck.size() + pieces + 2); // a place that is stuck keeps its own room
        }

        // Addresses for up to `pieces` chunks; an empty range if the process has no more.
        base::range take(std::size_t bytes, std::size_t pieces) {
            addresses.forget();
            base::range place = addresses.take(bytes);
            if (!place && addresses.more(bytes)) {
                make_room(pieces);
                place = addresses.take(bytes);
            }
            return place;
        }

        // Maps memory behind a place that was taken. If that fails, the place is free again.
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

        // Undoes 'fill'. If CUDA refuses to unmap a piece, it goes on the list 'stuck' and belongs to nobody until it can be
        // unmapped.
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
        base::growing_array<base::range> stuck; // mapped only because CUDA refused to unmap them; nobody uses them
    };

    void await_work() const {
        if (waits_)
            runtime::wait_for_device(any_device); // of every device, since a copy between devices may use the memory too
    }

    void* mapped(std::size_t bytes, std::size_t piece_bytes) {
        guard const lock(state_->lock);
        state_->addresses.forget();
        if (!state_->prepare(bytes, piece_bytes))
            return nullptr;
        base::range const place = state_->take(bytes, bytes / piece_bytes);
        return place && state_->fill(place, piece_bytes) ? reinterpret_cast<void*>(place.offset) : nullptr;
    }

    locked_map locked() const noexcept { return {guard(state_->lock), state_->map}; }
    void* allocated(std::size_t bytes) {
        locked().map.require_own_device_alone();
        runtime::device_scope const current(device_number());
        runtime::capture_mode_scope const relaxed;
        void* chunk = nullptr;
        return runtime::out_of_room(cudaMalloc(&chunk, bytes), "cudaMalloc") ? nullptr : chunk;
    }

    base::shared<state> state_;
    bool waits_ = false;
};

} // namespace upstream
} // namespace v0
} // namespace weir
