// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What happened to the memory, when, and where in the program?
//
// torch.cuda.memory._record_memory_history turns this on: each event becomes an entry of a ring, with the stack that PyTorch's
// own recorder gathers. The recorder takes Python's interpreter lock, so it is called before any lock of weir's is taken.
// Trackers, such as NCCL's that registers segments, are called for each entry, with the device's lock held, as PyTorch says.
//
// cost:      off: one relaxed load a call.

#include "version.hpp"

#include <atomic>
#include <c10/util/ApproximateClock.h>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weir_plugin::torch {

/// The last entries, up to a number. One thread at a time.
template <class Entry>
class ring {
public:
    void limit(std::size_t most) {
        most_ = most == 0 ? 1 : most;
        if (entries_.size() > most_)
            clear();
    }
    void add(Entry entry) {
        if (entries_.size() < most_) {
            entries_.push_back(std::move(entry));
            return;
        }
        entries_[oldest_] = std::move(entry);
        oldest_ = (oldest_ + 1) % entries_.size();
    }
    void clear() noexcept {
        entries_.clear();
        oldest_ = 0;
    }
    /// The entries, the oldest first.
    std::vector<Entry> list() const {
        std::vector<Entry> found;
        found.reserve(entries_.size());
        for (std::size_t i = 0; i < entries_.size(); ++i)
            found.push_back(entries_[(oldest_ + i) % entries_.size()]);
        return found;
    }

private:
    std::vector<Entry> entries_;
    std::size_t most_ = 1;
    std::size_t oldest_ = 0;
};

/// What the thread adds to its entries.
struct told_by_thread {
    std::vector<std::string> compiled; // what torch.compile builds now
    std::string metadata;
};
inline told_by_thread& told() {
    thread_local told_by_thread mine;
    return mine;
}

/// What chunks that come meanwhile are for: the thread's innermost allocation. There is nothing to destroy in it, so that it costs
/// the thread one address.
class allocation_scope {
public:
    allocation_scope(context const& of, cudaStream_t on) noexcept : where(of), stream(on), mine_(innermost()), before_(mine_) {
        mine_ = this;
    }
    allocation_scope(allocation_scope const&) = delete;
    allocation_scope& operator=(allocation_scope const&) = delete;
    ~allocation_scope() { mine_ = before_; }

    static allocation_scope const*& innermost() noexcept {
        thread_local allocation_scope const* now = nullptr;
        return now;
    }

    context const& where;
    cudaStream_t const stream;

private:
    allocation_scope const*& mine_; // of this thread
    allocation_scope const* const before_;
};

/// What all devices share. Any thread.
class history_settings {
public:
    /// As recordHistory. The caller then tells each device.
    void set(bool enabled, caching::CreateContextFn recorder, caching::RecordContext when,
             std::vector<std::string> const& skipped) {
        TORCH_CHECK(when == caching::RecordContext::NEVER || recorder,
                    "weir: memory history with stacks needs a recorder of them; PyTorch's own is what "
                    "torch.cuda.memory._record_memory_history passes");
        std::set<action> fresh;
        for (std::string const& each : skipped)
            fresh.insert(caching::parseTraceEntryAction(each));
        std::lock_guard<std::mutex> const lock(mutex_);
        skipped_ = std::move(fresh);
        recorder_.store(enabled ? recorder : nullptr, std::memory_order_release);
        level_.store(enabled ? static_cast<int>(when) : 0, std::memory_order_release);
        enabled_.store(enabled, std::memory_order_release);
    }
    static bool enabled() noexcept { return enabled_.load(std::memory_order_relaxed); }
    bool skips(action what) const {
        std::lock_guard<std::mutex> const lock(mutex_);
        return skipped_.count(what) != 0;
    }
    static bool keeps_stacks_of_entries() noexcept { return level_.load(std::memory_order_relaxed) >= 2; }

    /// The stack of this thread, if the history wants those of `what`. Call it without a lock. Throws what the recorder throws.
    static context gather(caching::RecordContext what) {
        return level_.load(std::memory_order_relaxed) < static_cast<int>(what) ? nullptr : recorded();
    }
    static context gather_for_free() noexcept {
        try {
            return gather(caching::RecordContext::ALL);
        } catch (...) { // a free does not fail for a stack
            return nullptr;
        }
    }

private:
    [[gnu::noinline]] static context recorded() {
        caching::CreateContextFn const recorder = recorder_.load(std::memory_order_acquire);
        return recorder ? recorder() : nullptr;
    }

    static inline std::atomic<bool> enabled_{false};
    static inline std::atomic<int> level_{0};
    static inline std::atomic<caching::CreateContextFn> recorder_{nullptr};
    mutable std::mutex mutex_;
    std::set<action> skipped_;
};
inline history_settings& settings_of_history() {
    static auto* const made = new history_settings();
    return *made;
}

/// The entries of one device. One thread at a time.
class history {
public:
    /// Whether anybody listens: else 'note' is not to be called. Any thread.
    bool listens() const noexcept { return history_settings::enabled() || is_tracked_.load(std::memory_order_relaxed); }

    /// What a tracker throws is told on stderr: the memory has changed hands already.
    void note(action what, int device, std::size_t address, std::size_t bytes, cudaStream_t stream, mempool id,
              context where) noexcept {
        add([&] {
            std::string compiled = told().compiled.empty() ? "N/A" : told().compiled.back();
            return caching::TraceEntry(what, static_cast<c10::DeviceIndex>(device), address, bytes, stream, id,
                                       c10::getApproximateTime(),
                                       settings_of_history().keeps_stacks_of_entries() ? std::move(where) : nullptr,
                                       std::move(compiled), told().metadata);
        });
    }
    /// The same of a text that the user put on a block.
    void note_annotation(action what, int device, std::size_t address, mempool id, std::string const& text) noexcept {
        add([&] {
            return caching::TraceEntry(what, static_cast<c10::DeviceIndex>(device), address, 0, nullptr, id,
                                       c10::getApproximateTime(), nullptr, "N/A", text);
        });
    }
    void track(caching::AllocatorTraceTracker tracker) {
        trackers_.push_back(std::move(tracker));
        is_tracked_.store(true, std::memory_order_relaxed);
    }
    void limit(std::size_t most) { entries_.limit(most); }
    void clear() noexcept { entries_.clear(); }
    std::vector<caching::TraceEntry> list() const { return entries_.list(); }

private:
    template <class Make>
    void add(Make const& make) noexcept {
        try {
            caching::TraceEntry entry = make();
            for (caching::AllocatorTraceTracker const& each : trackers_)
                each(entry);
            if (settings_of_history().enabled() && !settings_of_history().skips(entry.action_))
                entries_.add(std::move(entry));
        } catch (std::exception const& error) {
            std::fprintf(stderr, "weir: who listens to PyTorch's allocations failed: %s\n", error.what());
        } catch (...) {
            std::fputs("weir: who listens to PyTorch's allocations failed\n", stderr);
        }
    }

    ring<caching::TraceEntry> entries_;
    std::vector<caching::AllocatorTraceTracker> trackers_;
    std::atomic<bool> is_tracked_{false};
};

} // namespace weir_plugin::torch
