// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What happens before PyTorch is told that there is no room, and what does it say?
//
// First PyTorch's own callbacks run, which give back what other processes had, then the program's (before_out_of_memory of
// weir_torch). The sentence begins as PyTorch's own does, so that whoever looks for it finds it, and goes on with what the pool
// holds and what can be done about it in Python.

#include "ledger.hpp"

#include <algorithm>
#include <atomic>
#include <c10/util/Exception.h>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace weir_plugin::torch {

/// The program's own: returns whether it freed anything. Called without a lock.
using before_out_of_memory = int (*)(std::size_t bytes, int device);
inline std::atomic<before_out_of_memory> program_frees{nullptr};

/// Observers of PyTorch. Any thread.
class oom_observers {
public:
    void add(cuda_caching::OutOfMemoryObserver observer) {
        std::lock_guard<std::mutex> const lock(mutex_);
        all_.push_back(std::move(observer));
    }
    /// Calls each of them, without a lock: they take Python's. Throws what they throw.
    void tell(int device, std::size_t bytes, std::size_t most_bytes, std::size_t free_bytes) const {
        std::unique_lock<std::mutex> lock(mutex_);
        std::vector<cuda_caching::OutOfMemoryObserver> const now = all_;
        lock.unlock();
        for (cuda_caching::OutOfMemoryObserver const& each : now)
            each(device, bytes, most_bytes, free_bytes);
    }

private:
    mutable std::mutex mutex_;
    std::vector<cuda_caching::OutOfMemoryObserver> all_;
};
inline oom_observers& observers() {
    static auto* const made = new oom_observers();
    return *made;
}

/// Runs what may free memory; whether any of it says that it did. Calls no more than it needs: `again` tries the allocation.
template <class Again>
bool free_what_others_keep(std::size_t bytes, int device, Again const& again) {
    bool freed = false;
    for (std::string const& each : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
        freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(each)->Execute();
    if (freed && again())
        return true;
    thread_local bool is_inside = false; // what the program does there may allocate, too
    before_out_of_memory const ask = program_frees.load(std::memory_order_acquire);
    if (!ask || is_inside)
        return false;
    is_inside = true;
    int const done = ask(bytes, device);
    is_inside = false;
    return done != 0 && again();
}

/// As PyTorch writes sizes: '100.00 MiB'.
inline std::string size_text(std::size_t bytes) {
    constexpr char const* units[] = {"KiB", "MiB", "GiB"};
    if (bytes <= 1024)
        return std::to_string(bytes) + " bytes";
    double size = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    for (; size > 1024 && unit < 2; ++unit)
        size /= 1024;
    char text[40];
    std::snprintf(text, sizeof text, "%.2f %s", size, units[unit]);
    return text;
}

/// The largest tensors, as a sentence; empty if there are none.
inline std::string largest_text(ledger& of) {
    constexpr std::size_t most = 5;
    std::vector<live_tensor> all = of.blocks();
    std::size_t const shown = std::min(most, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(),
                      [](live_tensor const& a, live_tensor const& b) { return a.requested_bytes > b.requested_bytes; });
    std::string said;
    for (std::size_t i = 0; i < shown; ++i)
        said += (i == 0 ? " The largest of " + std::to_string(all.size()) + " tensors: " : std::string(", ")) +
                size_text(all[i].requested_bytes) + (all[i].site == 0 ? "" : " (" + tape().site_text(all[i].site) + ")");
    return said.empty() ? said : said + ".";
}

/// The whole sentence.
inline std::string refusal_text(device_memory& own, int device, std::size_t bytes, tag_number tag) {
    std::size_t const total = weir::runtime::device_total_bytes(device);
    std::size_t const free = weir::runtime::device_free_bytes(device);
    counted_pool& pool = pool_for(own, tag);
    weir::memory_report const now = pool.state();
    auto const [allocated, reserved] = ledger_of(device).with_statistics(
        [](statistics const& s) { return std::make_pair(s.allocated_bytes(), s.reserved_bytes()); });
    bool const limited = now.limit_bytes < total;
    std::string said = "CUDA out of memory. Tried to allocate " + size_text(bytes) + ". GPU " + std::to_string(device) +
                       " has a total capacity of " + size_text(total) + " of which " + size_text(free) +
                       " is free. weir's pool '" + now.name.c_str() + "' holds " + size_text(reserved) + ", of which " +
                       size_text(allocated) + " is allocated by PyTorch. ";
    if (pool.suspended())
        said += tag == 0 ? "The pool is suspended: call weir_torch.resume first."
                         : "Tag '" + tags().name(tag) + "' sleeps: call weir_torch.resume('" + tags().name(tag) + "') first.";
    else if (limited && bytes > now.limit_bytes)
        said += "The pool may hold at most " + size_text(now.limit_bytes) +
                ", so this never has room: raise the limit "
                "(weir_torch.use(limit=...), torch.cuda.set_per_process_memory_fraction).";
    else if (limited && bytes > now.limit_bytes - std::min({now.limit_bytes, allocated, reserved}))
        said += "The pool may hold at most " + size_text(now.limit_bytes) +
                ": free tensors, or raise the limit "
                "(weir_torch.use(limit=...), torch.cuda.set_per_process_memory_fraction).";
    else if (limited && reserved + bytes > now.limit_bytes)
        said += "The pool may hold at most " + size_text(now.limit_bytes) + ", and what it has free is in pieces of at most " +
                size_text(now.largest_free_bytes) +
                ", or is still used by a CUDA graph: free tensors, or raise the limit "
                "(weir_torch.use(limit=...), torch.cuda.set_per_process_memory_fraction).";
    else if (bytes > total)
        said += "The device has less than that in all.";
    else
        said += "The device has no room for more: free tensors, or let other processes and pools give back what they hold "
                "(weir_torch.trim, torch.cuda.empty_cache, weir_torch.before_out_of_memory).";
    return said + largest_text(ledger_of(device));
}

} // namespace weir_plugin::torch
