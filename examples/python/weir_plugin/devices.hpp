// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What memory does each device have, and how is a block had from it?
//
// Each device has a pool of its own, which is made at its first allocation and never ends, since tensors may outlive everything
// else in a Python process. Its kind is chosen when this is compiled: -DWEIR_PLUGIN_POOL=device_pool. The settings stand here
// too: a limit and a fraction for each device. A part of the program with a tag has a pool of its own beside it.
//
// cost:      the pool's, and that of layer::statistics; on a machine of several devices a question for the current one.
// not for:   the functions and classes by which libraries call: plugin.cpp, torch/allocator.hpp.

#include "private_pools.hpp"
#include "recording.hpp"
#include "tags.hpp"
#include "watched_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <weir/weir.hpp>

#ifndef WEIR_PLUGIN_POOL
#define WEIR_PLUGIN_POOL device_pool
#endif

namespace weir_plugin {

/// The recipe's pool, over memory that is watched.
template <class Pool>
struct watched_pool;
template <class Memory, class Placement, class Reuse, class Growth>
struct watched_pool<weir::pool<Memory, Placement, Reuse, Growth>> {
    using type = weir::pool<watched_memory, Placement, Reuse, Growth>;
    using placement = Placement;
};
using pool_parts = watched_pool<weir::WEIR_PLUGIN_POOL::parts>;
using counted_pool = weir::layer::statistics<pool_parts::type>;

/// What one device has.
struct device_memory {
    device_memory(int device, weir::pool_options const& options)
        : limit(options.limit_bytes()), memory(device, limit), pool(memory, options) {}

    /// Lets kernels of `other` use the memory as they use cudaMalloc's, where the device can: PyTorch copies so.
    void open_to(int other) {
        int reaches = 0;
        if (memory.extends() && other != memory.device_number())
            weir::check_cuda(cudaDeviceCanAccessPeer(&reaches, other, memory.device_number()), "cudaDeviceCanAccessPeer");
        if (reaches == 0)
            return;
        memory.enable_access_from(other);
        tags.visit([&](tag_number, auto& its) { its.memory.enable_access_from(other); });
    }
    /// act(pool) for each that is awake.
    template <class Act>
    void visit_awake(Act const& act) {
        visit([&](counted_pool& each) {
            if (!each.suspended())
                act(each);
        });
    }
    /// act(pool) for each.
    template <class Act>
    void visit(Act const& act) {
        act(pool);
        tags.visit([&](tag_number, auto& its) { act(its.pool); });
    }
    /// The pool of a tag that has blocks here, or the ordinary one.
    counted_pool& pool_of(tag_number tag) noexcept { return tag == 0 ? pool : tags.find(tag)->pool; }

    shared_limit limit; // of all pools
    watched_memory memory;
    counted_pool pool;
    tagged_pools<counted_pool> tags;
    private_pools<counted_pool> graphs{pool};
    std::atomic<bool> is_open_to_all{false};
};

/// Whose kernels may use the memory of a device.
enum class peers {
    with_memory, ///< those of devices that have memory of weir's too; each such device costs 30 to 60 us a chunk
    all
};

/// All of the process.
struct devices_and_settings {
    std::atomic<device_memory*> devices[most_devices];
    std::mutex mutex; // guards what follows, and who makes a device's memory
    std::size_t limit_bytes = SIZE_MAX;
    std::map<int, double> fractions; // by device: what was set
    std::string pool_name = "python";
};
inline devices_and_settings& all() {
    static auto* const made = new devices_and_settings(); // never ends: tensors may be freed at the very end
    return *made;
}

inline bool several_devices() {
    static bool const several = weir::runtime::device_count() > 1;
    return several;
}

inline int known(int device) {
    if (device < 0 || device >= most_devices)
        throw weir::usage_error(("weir: there is no device " + std::to_string(device)).c_str());
    return weir::runtime::existing_device(device);
}

inline device_memory* existing(int device) {
    return device < 0 || device >= most_devices ? nullptr : all().devices[device].load(std::memory_order_acquire);
}

/// Calls act(memory) for each device that has memory, or for the one.
template <class Act>
void visit(int device, Act const& act) {
    for (int each = 0; each < most_devices; ++each)
        if (device_memory* const own = existing(each); own && (device < 0 || device == each))
            act(*own);
}

inline std::size_t share(double fraction, int device) {
    return static_cast<std::size_t>(fraction * static_cast<double>(weir::runtime::device_total_bytes(device)));
}

inline void open_to_all(device_memory& own) {
    for (int other = 0; other < weir::runtime::device_count(); ++other)
        own.open_to(other);
    own.is_open_to_all.store(true, std::memory_order_release);
}

// Makes the memory of a device, or opens what is there.
[[gnu::noinline]] inline device_memory& make_memory(int device, peers open) {
    known(device);
    devices_and_settings& now = all();
    std::lock_guard<std::mutex> const lock(now.mutex);
    weir::runtime::device_scope const there(device);
    device_memory* const made = existing(device);
    if (made && open == peers::all)
        open_to_all(*made);
    if (made)
        return *made;
    auto const fraction = now.fractions.find(device);
    std::size_t const allowed = fraction == now.fractions.end() ? SIZE_MAX : share(fraction->second, device);
    auto options =
        weir::pool_options{}.device(device).limit(std::min(now.limit_bytes, allowed)).on_leak(weir::leak_action::ignore);
    options.name(weir::text((now.pool_name + ":" + std::to_string(device)).c_str()));
    auto fresh = std::make_unique<device_memory>(device, options);
    for (int other = 0; other < std::min(most_devices, weir::runtime::device_count()); ++other) {
        device_memory* const its = existing(other);
        if (its) {
            its->open_to(device);
            fresh->open_to(other);
        }
    }
    if (open == peers::all)
        open_to_all(*fresh);
    tape().describe(device, options.name().c_str(), options.limit_bytes());
    now.devices[device].store(fresh.get(), std::memory_order_release);
    return *fresh.release();
}

inline device_memory& memory_of(int device, peers open) {
    device_memory* const made = existing(device);
    bool const ready = made && (open == peers::with_memory || made->is_open_to_all.load(std::memory_order_acquire));
    return ready ? *made : make_memory(device, open);
}

// The pool of a tag, made at its first block.
[[gnu::noinline]] inline counted_pool& make_tagged(device_memory& own, tag_number tag) {
    std::lock_guard<std::mutex> const lock(all().mutex);
    if (auto* const made = own.tags.find(tag))
        return made->pool;
    int const device = own.memory.device_number();
    weir::runtime::device_scope const there(device);
    auto options = weir::pool_options{}.device(device).limit(own.limit.limit()).on_leak(weir::leak_action::ignore);
    own.limit.share();
    options.name(own.pool.name() + " " + tags().name(tag).c_str());
    auto& fresh = own.tags.add(tag, std::make_unique<tagged_memory<counted_pool>>(device, own.limit, options));
    for (int other = 0; other < std::min(most_devices, weir::runtime::device_count()); ++other)
        if (other != device && (existing(other) || own.is_open_to_all.load(std::memory_order_relaxed)))
            own.open_to(other);
    return fresh.pool;
}
inline counted_pool& pool_for(device_memory& own, tag_number tag) {
    return tag == 0 || own.tags.find(tag) ? own.pool_of(tag) : make_tagged(own, tag);
}

/// The tag that this thread allocates for; 0: none.
inline tag_number current_tag() noexcept {
    return tags().count() == 0 ? 0 : tag_of_thread();
}

/// Gets the free memory of the other pools than that of `tag`; whether there was any. Waits until it is unused.
inline bool make_room(device_memory& own, tag_number tag) {
    std::size_t given = 0;
    counted_pool const* const needs = tags().count() == 0 ? &own.pool : &pool_for(own, tag);
    own.visit_awake([&](counted_pool& each) {
        if (&each == needs)
            return;
        each.settle();
        given += each.trim();
    });
    return given != 0;
}

/// A block for work on `stream`, of a tag if no private pool takes it, and the private pool that it is of; null: there is no room
/// now.
inline void* try_take(device_memory& own, std::size_t bytes, weir::stream_ref stream, pool_id* id = nullptr,
                      tag_number tag = 0) {
    void* p = nullptr;
    if (own.graphs.routing() && !stream.is_host() && own.graphs.allocate(stream.get(), bytes, p, id))
        return p;
    return pool_for(own, tag).try_allocate(stream, bytes);
}
/// The same; the memory of private pools that are gone, and then what other tags have free, goes back before it gives up.
inline void* take(device_memory& own, std::size_t bytes, weir::stream_ref stream, pool_id* id = nullptr, tag_number tag = 0) {
    void* p = try_take(own, bytes, stream, id, tag);
    if (!p && bytes != 0 && own.graphs.collect())
        p = try_take(own, bytes, stream, id, tag);
    if (!p && bytes != 0 && make_room(own, tag))
        p = try_take(own, bytes, stream, id, tag);
    return p;
}

/// Takes a block back, of a tag's pool or of the ordinary one if it is no private pool's. Throws what makes a device current.
inline void give(device_memory& own, void* p, std::size_t bytes, cudaStream_t stream, tag_number tag = 0) {
    counted_pool& home = own.pool_of(tag);
    if (!own.graphs.any() || !own.graphs.deallocate(stream, p, bytes, home))
        home.deallocate(stream, p, bytes);
}

/// Notes that work on `stream` uses the block at `p`; false: it is no memory of weir's. Throws as used_on.
inline bool record_stream(void* p, cudaStream_t stream) {
    for (auto& each : all().devices)
        if (device_memory* const own = each.load(std::memory_order_acquire); own && own->pool.owns(p)) {
            if (!own->graphs.used_on(p, stream))
                own->pool.used_on(p, stream);
            tape().note(event_kind::used_on, own->memory.device_number(), p, 0, 0, stream);
            return true;
        }
    return false;
}

/// Waits until freed memory is unused, and gives free memory back until `keep` bytes are held. Returns what went back.
inline std::size_t trim(device_memory& own, std::size_t keep) {
    tape().note(event_kind::trim, own.memory.device_number(), {0, keep});
    own.graphs.collect();
    std::size_t given = 0, tagged = 0;
    own.tags.visit([&](tag_number, auto& its) {
        if (its.pool.suspended())
            return;
        its.pool.settle();
        given += its.pool.trim();
        tagged += its.pool.reserved_bytes();
    });
    own.pool.settle();
    return given + own.pool.trim(keep - std::min(keep, tagged));
}

/// The peaks of all pools become what they have now.
inline void reset_peaks(device_memory& own) {
    own.visit([](counted_pool& each) { each.reset_peaks(); });
    own.limit.reset_peak();
}

/// What the pool of `device` may hold, from now on. Throws if more than that is in use, and for what is no fraction.
inline void set_memory_fraction(double fraction, int device) {
    known(device);
    if (!(fraction >= 0 && fraction <= 1))
        throw weir::usage_error("weir: a memory fraction is from 0 to 1");
    std::lock_guard<std::mutex> const lock(all().mutex);
    device_memory* const own = existing(device);
    if (!own) {
        all().fractions[device] = fraction;
        return;
    }
    std::size_t const wanted = std::min(share(fraction, device), all().limit_bytes);
    std::size_t const before = own->limit.limit();
    auto const set_limit = [own](std::size_t bytes) {
        own->limit.set_limit(bytes);
        own->visit([&](counted_pool& each) { each.set_limit(bytes); });
    };
    set_limit(wanted);
    try {
        trim(*own, wanted);
        std::size_t needed = 0;
        own->visit([&](counted_pool const& each) { needed += each.reserved_bytes() + each.suspended_bytes(); });
        if (needed > wanted)
            throw weir::usage_error(
                weir::text("weir: a limit of ") + weir::base::bytes_text(wanted) +
                " is below what is in use; free tensors first, or set it before the first one: " + own->pool.report());
        all().fractions[device] = fraction;
        tape().note(event_kind::set_limit, device, {0, wanted});
    } catch (...) {
        set_limit(before);
        throw;
    }
}
/// What was set last; 1: nothing.
inline double memory_fraction(int device) {
    std::lock_guard<std::mutex> const lock(all().mutex);
    auto const found = all().fractions.find(known(device));
    return found == all().fractions.end() ? 1 : found->second;
}

/// Why `bytes` bytes find no room now.
inline weir::out_of_memory refusal(device_memory& own, std::size_t bytes) {
    constexpr std::size_t alignment = counted_pool::default_alignment;
    return {bytes, own.pool.refused(bytes, alignment)};
}

} // namespace weir_plugin
