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

#include "devices.hpp"
#include "sleep.hpp"

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
#ifdef WEIR_PLUGIN_TORCH_CLASS
#include "torch/allocator.hpp"
#endif
#if __has_include(<c10/util/Exception.h>)
#include <c10/util/Exception.h>
#define WEIR_PLUGIN_THROW(said) throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, said)
#else
#include <stdexcept>
#define WEIR_PLUGIN_THROW(said) throw std::runtime_error(said)
#endif

using namespace weir_plugin;

namespace {

thread_local std::string error_text;
thread_local std::string report_text;

std::string refusal_text(device_memory& own, std::size_t bytes) {
    return std::string(refusal(own, bytes).what()) + "\n" + own.pool.full_report().c_str();
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

// What goes past PyTorch's class: its ledger writes down what PyTorch has.
void note_block(event_kind what, int device, void* p, std::size_t bytes, weir::stream_ref stream) noexcept {
    if (!tape().is_on() || bytes == 0)
        return;
    std::uint32_t const site = what == event_kind::free ? 0 : tape().site();
    tape().note(what, device, p, bytes, pool_parts::placement::rounded(bytes, counted_pool::default_alignment), stream, site);
    if (what != event_kind::free)
        tape().flush_if_due();
}

void* take_or_tell(std::size_t bytes, int device, weir::stream_ref stream) noexcept {
    void* p = nullptr;
    static_cast<void>(guarded([&] {
        device_memory& own = memory_of(device, peers::all);
        weir::runtime::device_scope const there(several_devices() ? device : weir::any_device);
        p = take(own, bytes, stream);
        note_block(p ? event_kind::allocate : event_kind::refuse, device, p, bytes, stream);
        if (!p && bytes != 0)
            error_text = refusal_text(own, bytes);
    }));
    return p;
}

} // namespace

#define WEIR_PLUGIN_API extern "C" [[gnu::visibility("default")]]

/// What is the limit of each device's pool in bytes (SIZE_MAX: none), and its name? Before the first allocation.
WEIR_PLUGIN_API int weir_configure(std::size_t limit, char const* name) {
    return guarded([&] {
        std::lock_guard<std::mutex> const lock(all().mutex);
        visit(-1, [&](device_memory&) {
            if (limit != all().limit_bytes)
                throw weir::usage_error("weir: the pool is in use, and its limit is set before the first allocation, by the "
                                        "first 'use'; PyTorch's set_per_process_memory_fraction may come at any time");
        });
        all().limit_bytes = limit;
        all().pool_name = name;
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
    note_block(p ? event_kind::allocate : event_kind::refuse, device, p, bytes, stream);
    if (!p && bytes != 0)
        WEIR_PLUGIN_THROW(refusal_text(own, bytes));
    return p;
}

/// The free of what any of these functions allocated, on the stream that the block was for. Throws nothing.
WEIR_PLUGIN_API void weir_deallocate(void* p, std::size_t bytes, int device, cudaStream_t stream) {
    device_memory* const own = existing(device);
    if (!p || !own)
        return;
    note_block(event_kind::free, device, p, bytes, stream);
    std::optional<weir::runtime::device_scope> there; // if none can be had, a default stream is that of both devices
    weir::base::try_twice([&] { return there.emplace(several_devices() ? device : weir::any_device), true; });
    static_cast<void>(guarded([&] { give(*own, p, bytes, stream); }));
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
    if (p)
        static_cast<void>(record_stream(p, stream));
}

/// PyTorch's empty_cache: waits until freed memory is unused, and gives free memory back to the devices.
WEIR_PLUGIN_API void weir_empty_cache() {
    visit(-1, [](device_memory& own) { trim(own, 0); });
}

/// PyTorch's set_per_process_memory_fraction: what the pool of `device` may hold. Throws if more than that is in use, and for
/// what is no fraction.
WEIR_PLUGIN_API void weir_set_memory_fraction(double fraction, int device) {
    set_memory_fraction(fraction, device);
}

/// PyTorch's captures. The types are c10's: see private_pools.hpp.
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
/// blocks in all. Of tags' pools, too: their peaks of requested bytes are added. A device without a pool has zeroes.
WEIR_PLUGIN_API int weir_state(int device, unsigned long long* figures) {
    return guarded([&] {
        std::fill_n(figures, 10, 0ULL);
        device_memory* const own = existing(device);
        if (!own)
            return;
        own->visit([&](counted_pool const& each) {
            weir::memory_report const now = each.state();
            unsigned long long const its[] = {each.requested_bytes(), each.peak_requested_bytes(), now.in_use_bytes,
                                              now.reserved_bytes, 0, 0, now.live_blocks, now.chunks, now.lost_bytes,
                                              each.total_blocks()};
            for (std::size_t i = 0; i < 10; ++i)
                figures[i] += its[i];
        });
        figures[4] = tags().count() == 0 ? own->pool.peak_reserved_bytes() : own->limit.peak();
        figures[5] = own->limit.limit();
    });
}

/// What the pool says of itself, with its largest blocks; null: see 'weir_error'. Until this thread's next call.
WEIR_PLUGIN_API char const* weir_report(int device) {
    int const failed = guarded([&] {
        device_memory* const own = existing(device);
        report_text = own ? own->pool.full_report().c_str() : "nothing was allocated yet";
        if (own)
            own->tags.visit([](tag_number, auto& its) { report_text += std::string("\n") + its.pool.full_report().c_str(); });
    });
    return failed ? nullptr : report_text.c_str();
}

/// The peaks become what is in use and reserved now.
WEIR_PLUGIN_API int weir_reset_peak(int device) {
    return guarded([&] { visit(device, [](device_memory& own) { reset_peaks(own); }); });
}

/// Waits until freed memory is unused, and gives free memory back until `keep` bytes are held. `given`: what went back.
WEIR_PLUGIN_API int weir_trim(int device, std::size_t keep, unsigned long long* given) {
    return guarded([&] {
        *given = 0;
        visit(device, [&](device_memory& own) { *given += trim(own, keep); });
    });
}

/// Gives all memory back and keeps every address; with `keep` the contents go to pinned host memory. No work may use it.
WEIR_PLUGIN_API int weir_suspend(int device, int keep, unsigned long long* given) {
    return guarded([&] {
        *given = 0;
        visit(device, [&](device_memory& own) { *given += suspend_all(own, keep != 0); });
    });
}

/// Ends 'weir_suspend': the contents are back at their addresses, and the host has its memory.
WEIR_PLUGIN_API int weir_resume(int device) {
    return guarded([&] {
        visit(device, [](device_memory& own) { resume_all(own); });
        give_host_memory_back();
    });
}

namespace {

void tell_of_chunk(int device, weir::base::range chunk, event_kind what) noexcept {
#ifdef WEIR_PLUGIN_TORCH_CLASS
    try {
        weir_plugin::torch::ledger_of(device).pool_chunk(chunk, what);
    } catch (...) { // a snapshot may lack a chunk; that is no failure
    }
#else
    tape().note(what, device, chunk);
#endif
}
// From the beginning, since functions above may get chunks before 'weir_install'.
[[maybe_unused]] bool const chunks_are_told = (chunks_told_to.store(&tell_of_chunk), true);

void record_blocks([[maybe_unused]] bool wanted) {
#ifdef WEIR_PLUGIN_TORCH_CLASS
    for (weir_plugin::torch::ledger& each : weir_plugin::torch::ledgers())
        each.record(wanted);
#endif
}

} // namespace

/// From now on what happens to the memory is written to a new file at `path`; with `stacks` also where in Python. Null: no more.
WEIR_PLUGIN_API int weir_record(char const* path, int stacks) {
    return guarded([&] {
        if (!path)
            record_blocks(false);
        path ? tape().begin(path, stacks != 0) : tape().end();
        if (path)
            record_blocks(true);
    });
}
/// Writes to that file what is not in it yet.
WEIR_PLUGIN_API int weir_flush_recording() {
    return guarded([] { tape().flush(); });
}
/// A part of the program of that name begins in the recording, or ends.
WEIR_PLUGIN_API void weir_scope(char const* name, int begins) {
    tape().scope(begins ? event_kind::begin_scope : event_kind::end_scope, name);
}

#ifdef WEIR_PLUGIN_TORCH_CLASS
/// Makes weir PyTorch's allocator for the process. `version`: PyTorch's, as it tells it now.
WEIR_PLUGIN_API int weir_install(char const* version) {
    return guarded([&] {
        std::string const built = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + ".";
        if (std::string(version).compare(0, built.size(), built) != 0)
            throw weir::usage_error(weir::text("weir: this plug-in was built for PyTorch ") + built.c_str() +
                                    "x, and this is " + version + "; build it again");
        namespace caching = c10::cuda::CUDACachingAllocator;
        caching::CUDAAllocator* const before = caching::allocator.load();
        if (before && before->initialized())
            throw weir::usage_error("weir: PyTorch has used CUDA already, and its allocator is chosen before that");
        static auto* const made = new weir_plugin::torch::allocator(); // never ends, as the tensors that it frees
        caching::allocator.store(made);
        c10::SetAllocator(c10::DeviceType::CUDA, made, 255); // torch.accelerator asks there
    });
}

/// The number of a tag, which is made if need be; -1: see 'weir_error'.
WEIR_PLUGIN_API int weir_tag(char const* name) {
    int number = -1;
    static_cast<void>(guarded([&] { number = static_cast<int>(tags().number(name)); }));
    return number;
}
/// From now on the calling thread's tensors are the tag's. Returns what they were before, for 'weir_leave_tag'; -1: it sleeps.
WEIR_PLUGIN_API int weir_enter_tag(int number) {
    auto const tag = static_cast<tag_number>(number);
    int before = -1;
    static_cast<void>(guarded([&] {
        for (int device = 0; device < most_devices; ++device)
            if (sleeps(tag, device))
                throw weir::usage_error(("weir: tag '" + tags().name(tag) + "' sleeps: call weir_torch.resume('" +
                                         tags().name(tag) + "') first")
                                            .c_str());
        before = static_cast<int>(std::exchange(tag_of_thread(), tag));
        tags().users(tag).fetch_add(1);
    }));
    return before;
}
WEIR_PLUGIN_API void weir_leave_tag(int number, int before) {
    tag_of_thread() = static_cast<tag_number>(before);
    tags().users(static_cast<tag_number>(number)).fetch_sub(1);
}

/// As 'weir_suspend' of a tag alone. `how`: 0 drops the contents, 1 keeps them, 2 keeps them and the copy: they never change.
WEIR_PLUGIN_API int weir_suspend_tag(char const* name, int device, int how, unsigned long long* given) {
    using weir::stable::contents;
    return guarded([&] {
        *given = 0;
        tag_number const tag = tags().known(name);
        contents const kept[] = {contents::drop, contents::save, contents::constant};
        visit(device, [&](device_memory& own) { *given += suspend_tag(own, tag, kept[how]); });
    });
}
WEIR_PLUGIN_API int weir_resume_tag(char const* name, int device) {
    return guarded([&] {
        tag_number const tag = tags().known(name);
        visit(device, [&](device_memory& own) { resume_tag(own, tag); });
        give_host_memory_back();
    });
}

/// `free`: asked before an out-of-memory error, without a lock; returns whether it freed anything. Null: nobody.
WEIR_PLUGIN_API void weir_before_out_of_memory(int (*free)(std::size_t bytes, int device)) {
    weir_plugin::torch::program_frees.store(free);
}
#endif
