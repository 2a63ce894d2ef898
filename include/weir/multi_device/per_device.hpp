// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a program that uses several devices get a pool on each?
//
// One object holds a pool for each device that CUDA sees. A pool is made when it is first asked for, by whichever thread asks
// first, or all at once. Ask by number, or for the pool of the thread's current device:
//
//     weir::multi_device::per_device<weir::device_pool> pools(weir::pool_options{}.limit(8 * weir::GiB));
//     weir::device_vector<float> xs(pools.current(), stream, n);
//     weir::device_vector<float> ys(pools[1], other_stream, n);
//
// The pools open their memory to each other, so that copies between them take the link, and kernels of one device may use
// memory of another: when a device's pool is made, it and those that are there let each other in, with all that they have and
// will have. Where devices cannot reach each other, or CUDA refuses, the memory stays closed, and copies go through the host
// ('is_open' says so, and 'last_route' of the containers which way a copy took). Say peer_access::none if no device is to use
// another's memory.
//
// invariant: the pool of a device stays where it is until this object ends. Everything that holds memory of it ends before.
// order:     as the pools' own. Asking orders nothing.
// cost:      a comparison and an acquiring load for a pool that is there; 'current' also asks CUDA which device is current (23
//            ns). A device whose pool nobody asks for costs nothing there. Each device that memory is open to adds about 30 us
//            to a chunk, 60 us to one that moves, and something to each launch.
// not for:   one pool whose memory several devices use: see upstream/virtual_memory.hpp.

#include <cstddef>
#include <type_traits>
#include <weir/base/growing_array.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/fwd.hpp>
#include <weir/multi_device/by_device/numbers.hpp>
#include <weir/multi_device/per_device/opened_pool.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/devices.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// Whether the pools of a per_device open their memory to each other.
enum class peer_access : unsigned char {
    where_possible, ///< those that can: pools over upstream::virtual_memory, driver_pool
    none            ///< each is its own device's alone
};

/// `Pool`: any pool or layer that is made from options with a 'device'; `Options`: these options. Any thread may call any
/// member at any time, as far as the pools themselves allow what is then done with them.
template <class Pool, class Options>
class per_device {
    static_assert(std::is_constructible_v<Pool, Options const&>,
                  "weir: multi_device::per_device makes each pool from options that name its device; for a pool with others "
                  "than 'weir::pool_options' name their type: 'per_device<weir::driver_pool, weir::driver_pool_options>'");

public:
    /// The pools will be made with `options`, but each for its own device. Throws cuda_error, std::bad_alloc.
    explicit per_device(Options const& options = {}, peer_access access = peer_access::where_possible)
        : per_device([&](int) { return options; }, access) {}

    /// The pool of device i will be made with `options_of(i)`, but for that device. It is called for each device at once.
    /// Throws what it throws, cuda_error, std::bad_alloc.
    template <class OptionsOf, class = std::enable_if_t<std::is_invocable_r_v<Options, OptionsOf const&, int>>>
    explicit per_device(OptionsOf const& options_of, peer_access access = peer_access::where_possible) : access_(access) {
        int const count = runtime::device_count();
        pools_.resize(static_cast<std::size_t>(count));
        options_.reserve(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i)
            options_.push_back(Options(options_of(i)).device(i));
    }
    per_device(per_device const&) = delete;
    per_device& operator=(per_device const&) = delete;
    /// Ends the pools, the last device's first.
    ~per_device() {
        for (std::size_t i = pools_.size(); i-- > 0;)
            delete pools_[i].made.load(base::memory_order_relaxed);
    }

    /// How many devices there are.
    int size() const noexcept { return static_cast<int>(pools_.size()); }

    /// The pool of a device (any_device: the current one), which is made if this is the first call for it. Other threads that
    /// ask for a new pool wait meanwhile. Throws usage_error if there is no such device, cuda_error, and what the pool's
    /// constructor throws; then the pool is not there (but others may be open to its device), and the next call tries again.
    Pool& operator[](int device) {
        std::size_t const at = detail::place_of(device, size());
        held* const made = pools_[at].made.load(base::memory_order_acquire);
        return made ? made->pool : make(at);
    }
    /// The pool of this thread's current device, as of any_device. Throws as operator[].
    Pool& current() { return (*this)[any_device]; }

    /// The pool of a device if it is there already, else null. Throws usage_error if there is no such device, cuda_error.
    Pool* find(int device) const {
        held* const made = pools_[detail::place_of(device, size())].made.load(base::memory_order_acquire);
        return made ? &made->pool : nullptr;
    }

    /// Whether this object has opened the pool of device `owner` to device `user`, with all that it has and will have. No for
    /// memory of cudaMalloc, which the program opens (cudaDeviceEnablePeerAccess). Throws as find.
    bool is_open(int owner, int user) const {
        std::size_t const from = detail::place_of(owner, size()), to = detail::place_of(user, size());
        base::lock_guard<base::mutex> const lock(mutex_);
        held const* const made = pools_[from].made.load(base::memory_order_relaxed);
        return made && (from == to || made->is_open_to(static_cast<int>(to)));
    }

    /// Makes the pools that are not there yet, so that no later call has to. Throws as operator[].
    void make_all() {
        for (int i = 0; i < size(); ++i)
            static_cast<void>((*this)[i]);
    }

    /// Calls visit(Pool&) for each pool that is there, in the devices' order. Throws what it throws.
    template <class Visit>
    void visit(Visit&& visit) const {
        for (int i = 0; i < size(); ++i)
            if (Pool* const made = find(i))
                visit(*made);
    }

private:
    using held = detail::opened_pool<Pool, Options>;
    struct slot {
        base::atomic<held*> made{nullptr};
        slot() = default;
        slot(slot&& other) noexcept : made(other.made.load(base::memory_order_relaxed)) {} // before there are other threads
    };

    [[gnu::noinline]] Pool& make(std::size_t at) {
        base::lock_guard<base::mutex> const lock(mutex_);
        held* made = pools_[at].made.load(base::memory_order_relaxed);
        if (!made) {
            made = new held(options_[at]);
            try {
                open_both_ways(*made, at);
            } catch (...) {
                delete made;
                throw;
            }
            pools_[at].made.store(made, base::memory_order_release);
        }
        return made->pool;
    }
    void open_both_ways([[maybe_unused]] held& fresh, [[maybe_unused]] std::size_t at) const {
        if constexpr (held::can_open) {
            for (std::size_t i = 0; access_ == peer_access::where_possible && i < pools_.size(); ++i)
                if (held* const other = pools_[i].made.load(base::memory_order_relaxed)) {
                    fresh.open_to(static_cast<int>(i));
                    other->open_to(static_cast<int>(at));
                }
        }
    }

    mutable base::mutex mutex_; // held while a pool is made
    peer_access const access_;
    base::growing_array<Options> options_;
    base::growing_array<slot> pools_;
};

} // namespace multi_device
} // namespace v0
} // namespace weir
