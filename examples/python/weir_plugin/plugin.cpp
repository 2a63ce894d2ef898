// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How do PyTorch, CuPy and Numba allocate from a pool of weir's?
//
// They call plain functions of a shared library, and this is its one source. weir_plugin/__init__.py builds it at first use,
// for one kind of pool: -DWEIR_PLUGIN_POOL=device_pool. Each device has a pool of its own, which is made at its first
// allocation and never ends, since tensors may outlive everything else in a Python process.
//
// Functions for PyTorch throw, as it asks of an allocator; where its headers are on the path, running out of memory is its own
// exception. All others report a failure and keep its text for 'weir_error'.
//
// order:     a block is for work on its stream; its free comes after the work on that stream, and on each stream that
//            'weir_record_stream' named, up to the free.
// cost:      the pool's, and that of layer::statistics; on a machine of several devices a question for the current one.

#include "graph_pools.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <weir/weir.hpp>
#if __has_include(<c10/util/Exception.h>)
#include <c10/util/Exception.h>
#define WEIR_PLUGIN_THROW(said) throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, said)
#else
#include <stdexcept>
#define WEIR_PLUGIN_THROW(said) throw std::runtime_error(said)
#endif

#ifndef WEIR_PLUGIN_POOL
#define WEIR_PLUGIN_POOL device_pool
#endif

using weir_plugin::pool_id;
using weir_plugin::stream_filter;

namespace {

using counted_pool = weir::layer::statistics<weir::WEIR_PLUGIN_POOL>;
using mapped_memory = weir::upstream::virtual_memory<>;

constexpr int most_devices = 64;

/// What one device has.
struct device_memory {
    device_memory(int device, weir::pool_options const& options) : memory(device), pool(memory, options) {}

    /// Lets kernels of `other` use the memory as they use cudaMalloc's, where the device can: PyTorch copies so.
    void open_to(int other) {
        int reaches = 0;
        if (memory.extends() && other != memory.device_number())
            weir::check_cuda(cudaDeviceCanAccessPeer(&reaches, other, memory.device_number()), "cudaDeviceCanAccessPeer");
        if (reaches != 0)
            memory.enable_access_from(other);
    }

    mapped_memory memory;
    counted_pool pool;
    weir_plugin::graph_pools<counted_pool> graphs{pool};
    std::atomic<bool> is_open_to_all{false};
};

/// Whose kernels may use the memory of a device.
enum class peers {
    with_memory, ///< those of devices that have memory of weir's too; each such device costs 30 to 60 us a chunk
    all
};

std::atomic<device_memory*> devices[most_devices];
std::mutex settings_mutex; // guards what follows, and who makes a device's memory
std::size_t limit_bytes = SIZE_MAX;
std::map<int, double> fractions; // by device: what was set before the device's memory was made
std::string pool_name = "python";
thread_local std::string error_text;
thread_local std::string report_text;

bool several_devices() {
    static bool const several = weir::runtime::device_count() > 1;
    return several;
}

int known(int device) {
    if (device < 0 || device >= most_devices)
        throw weir::usage_error(("weir: there is no device " + std::to_string(device)).c_str());
    return weir::runtime::existing_device(device);
}

device_memory* existing(int device) {
    return device < 0 || device >= most_devices ? nullptr : devices[device].load(std::memory_order_acquire);
}

std::size_t share(double fraction, int device) {
    return static_cast<std::size_t>(fraction * static_cast<double>(weir::runtime::device_total_bytes(device)));
}

void open_to_all(device_memory& own) {
    for (int other = 0; other < weir::runtime::device_count(); ++other)
        own.open_to(other);
    own.is_open_to_all.store(true, std::memory_order_release);
}

// Makes the memory of a device, or opens what is there.
[[gnu::noinline]] device_memory& make_memory(int device, peers open) {
    known(device);
    std::lock_guard<std::mutex> const lock(settings_mutex);
    weir::runtime::device_scope const there(device);
    device_memory* const made = existing(device);
    if (made && open == peers::all)
        open_to_all(*made);
    if (made)
        return *made;
    auto const fraction = fractions.find(device);
    std::size_t const allowed = fraction == fractions.end() ? SIZE_MAX : share(fraction->second, device);
    auto options =
        weir::pool_options{}.device(device).limit(std::min(limit_bytes, allowed)).on_leak(weir::leak_action::ignore);
    options.name(weir::text((pool_name + ":" + std::to_string(device)).c_str()));
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
    devices[device].store(fresh.get(), std::memory_order_release);
    return *fresh.release();
}

device_memory& memory_of(int device, peers open) {
    device_memory* const made = existing(device);
    bool const ready = made && (open == peers::with_memory || made->is_open_to_all.load(std::memory_order_acquire));
    return ready ? *made : make_memory(device, open);
}

void* try_take(device_memory& own, std::size_t bytes, weir::stream_ref stream) {
    void* p = nullptr;
    if (own.graphs.capturing() && !stream.is_host() && own.graphs.allocate(stream.get(), bytes, p))
        return p;
    return own.pool.try_allocate(stream, bytes);
}

void* take(device_memory& own, std::size_t bytes, weir::stream_ref stream) {
    void* const p = try_take(own, bytes, stream);
    return p || bytes == 0 || !own.graphs.collect() ? p : try_take(own, bytes, stream);
}

std::string refusal(device_memory& own, std::size_t bytes) {
    constexpr std::size_t alignment = counted_pool::default_alignment;
    std::string const said = weir::out_of_memory(bytes, own.pool.refused(bytes, alignment)).what();
    return said + "\n" + own.pool.full_report().c_str();
}

// Calls act(); 0, or -1 with the text in 'weir_error'.
template <class Act>
int guarded(Act const& act) noexcept {
    try {
        act();
        return 0;
    } catch (std::exception const& error) {
        error_text = error.what();
    } catch (...) {
        error_text = "weir: an unknown exception";
    }
    return -1;
}

void* take_or_tell(std::size_t bytes, int device, weir::stream_ref stream) noexcept {
    void* p = nullptr;
    static_cast<void>(guarded([&] {
        device_memory& own = memory_of(device, peers::all);
        weir::runtime::device_scope const there(several_devices() ? device : weir::any_device);
        p = take(own, bytes, stream);
        if (!p && bytes != 0)
            error_text = refusal(own, bytes);
    }));
    return p;
}

// What is suspended lies here; it never ends, as the pools do not.
weir::pinned_pool& pinned() {
    static auto* const made = new weir::pinned_pool(weir::pool_options{}.name("suspended"));
    return *made;
}

template <class Visit>
void visit(int device, Visit const& act) {
    for (int each = 0; each < most_devices; ++each)
        if (device_memory* const own = existing(each); own && (device < 0 || device == each))
            act(*own);
}

} // namespace

#define WEIR_PLUGIN_API extern "C" [[gnu::visibility("default")]]

/// What is the limit of each device's pool in bytes (SIZE_MAX: none), and its name? Before the first allocation.
WEIR_PLUGIN_API int weir_configure(std::size_t limit, char const* name) {
    return guarded([&] {
        std::lock_guard<std::mutex> const lock(settings_mutex);
        visit(-1, [&](device_memory&) {
            if (limit != limit_bytes)
                throw weir::usage_error("weir: the pool is in use, and its limit is set before the first allocation, by the "
                                        "first 'use'; PyTorch's set_per_process_memory_fraction may come at any time");
        });
        limit_bytes = limit;
        pool_name = name;
    });
}

/// The text of this thread's last failure.
WEIR_PLUGIN_API char const* weir_error() {
    return error_text.c_str();
}

/// PyTorch's allocation: a block for work on `stream`. Throws where there is no room, and for what weir refuses.
WEIR_PLUGIN_API void* weir_allocate(std::size_t bytes, int device, cudaStream_t stream) {
    device_memory& own = memory_of(device, peers::with_memory);
    weir::runtime::device_scope const there(several_devices() ? device : weir::any_device);
    void* const p = take(own, bytes, stream);
    if (!p && bytes != 0)
        WEIR_PLUGIN_THROW(refusal(own, bytes));
    return p;
}

/// The free of what any of these functions allocated, on the stream that the block was for. Throws nothing.
WEIR_PLUGIN_API void weir_deallocate(void* p, std::size_t bytes, int device, cudaStream_t stream) {
    device_memory* const own = existing(device);
    if (!p || !own)
        return;
    std::optional<weir::runtime::device_scope> there; // if none can be had, a default stream is that of both devices
    weir::base::try_twice([&] { return there.emplace(several_devices() ? device : weir::any_device), true; });
    static_cast<void>(guarded([&] {
        if (!own->graphs.any() || !own->graphs.deallocate(stream, p, bytes))
            own->pool.deallocate(stream, p, bytes);
    }));
}

/// As weir_allocate, and null with the text in 'weir_error' instead of an exception.
WEIR_PLUGIN_API void* weir_try_allocate(std::size_t bytes, int device, cudaStream_t stream) {
    return take_or_tell(bytes, device, stream);
}

/// The same for a block that no enqueued work uses, whichever stream uses it first: PyTorch's MemPool and Numba.
WEIR_PLUGIN_API void* weir_try_allocate_sync(std::size_t bytes, int device, cudaStream_t) {
    return take_or_tell(bytes, device, weir::on_host);
}

/// PyTorch's record_stream: work on `stream`, before or after this call, uses the block at `p`. Throws as used_on.
WEIR_PLUGIN_API void weir_record_stream(void* p, cudaStream_t stream) {
    if (!p)
        return;
    for (auto& each : devices)
        if (device_memory* const own = each.load(std::memory_order_acquire); own && own->pool.owns(p)) {
            if (!own->graphs.used_on(p, stream))
                own->pool.used_on(p, stream);
            return;
        }
}

/// PyTorch's empty_cache: waits until freed memory is unused, and gives free memory back to the devices.
WEIR_PLUGIN_API void weir_empty_cache() {
    visit(-1, [](device_memory& own) {
        own.graphs.collect();
        own.pool.settle();
        own.pool.trim();
    });
}

/// PyTorch's set_per_process_memory_fraction: what the pool of `device` may hold. Throws if more than that is in use, and for
/// what is no fraction.
WEIR_PLUGIN_API void weir_set_memory_fraction(double fraction, int device) {
    known(device);
    if (!(fraction >= 0 && fraction <= 1))
        throw weir::usage_error("weir: a memory fraction is from 0 to 1");
    std::lock_guard<std::mutex> const lock(settings_mutex);
    device_memory* const own = existing(device);
    if (!own) {
        fractions[device] = fraction;
        return;
    }
    std::size_t const wanted = std::min(share(fraction, device), limit_bytes);
    std::size_t const before = own->pool.limit_bytes();
    own->pool.set_limit(wanted);
    try {
        own->graphs.collect();
        own->pool.settle();
        own->pool.trim(wanted);
        if (own->pool.reserved_bytes() + own->pool.suspended_bytes() > wanted)
            throw weir::usage_error(weir::text("weir: a limit of ") + weir::base::bytes_text(wanted) +
                                    " is below what is in use; free tensors first, or set it before the first one: " +
                                    own->pool.report());
    } catch (...) {
        own->pool.set_limit(before);
        throw;
    }
}

/// PyTorch's captures. The types are c10's: see graph_pools.hpp.
WEIR_PLUGIN_API void weir_begin_capture(int device, pool_id id, stream_filter filter) {
    memory_of(device, peers::with_memory).graphs.begin(id, std::move(filter));
}
WEIR_PLUGIN_API void weir_end_capture(int device, pool_id id) {
    memory_of(device, peers::with_memory).graphs.end(id);
}
WEIR_PLUGIN_API void weir_release_capture(int device, pool_id id) {
    memory_of(device, peers::with_memory).graphs.release(id);
}

/// Ten figures: requested, peak requested, in use, reserved, peak reserved and limit bytes, live blocks, chunks, lost bytes,
/// blocks in all. A device without a pool has zeroes.
WEIR_PLUGIN_API int weir_state(int device, unsigned long long* figures) {
    return guarded([&] {
        std::fill_n(figures, 10, 0ULL);
        if (device_memory* const own = existing(device)) {
            weir::memory_report const now = own->pool.state();
            unsigned long long const all[] = {own->pool.requested_bytes(), own->pool.peak_requested_bytes(), now.in_use_bytes,
                                              now.reserved_bytes,          own->pool.peak_reserved_bytes(),  now.limit_bytes,
                                              now.live_blocks,             now.chunks,                       now.lost_bytes,
                                              own->pool.total_blocks()};
            std::copy(std::begin(all), std::end(all), figures);
        }
    });
}

/// What the pool says of itself, with its largest blocks; null: see 'weir_error'. Until this thread's next call.
WEIR_PLUGIN_API char const* weir_report(int device) {
    int const failed = guarded([&] {
        device_memory* const own = existing(device);
        report_text = own ? own->pool.full_report().c_str() : "nothing was allocated yet";
    });
    return failed ? nullptr : report_text.c_str();
}

/// The peaks become what is in use and reserved now.
WEIR_PLUGIN_API int weir_reset_peak(int device) {
    return guarded([&] {
        visit(device, [](device_memory& own) { own.pool.reset_peaks(); });
    });
}

/// Waits until freed memory is unused, and gives free memory back until `keep` bytes are held. `given`: what went back.
WEIR_PLUGIN_API int weir_trim(int device, std::size_t keep, unsigned long long* given) {
    return guarded([&] {
        *given = 0;
        visit(device, [&](device_memory& own) {
            own.graphs.collect();
            own.pool.settle();
            *given += own.pool.trim(keep);
        });
    });
}

/// Gives all memory back and keeps every address; with `keep` the contents go to pinned host memory. No work may use it.
WEIR_PLUGIN_API int weir_suspend(int device, int keep, unsigned long long* given) {
    return guarded([&] {
        *given = 0;
        visit(device, [&](device_memory& own) { *given += keep ? own.pool.suspend(pinned()) : own.pool.suspend(); });
    });
}

/// Ends 'weir_suspend': the contents are back at their addresses, and the host has its memory.
WEIR_PLUGIN_API int weir_resume(int device) {
    return guarded([&] {
        visit(device, [](device_memory& own) { own.pool.resume(); });
        pinned().settle();
        pinned().trim();
    });
}
