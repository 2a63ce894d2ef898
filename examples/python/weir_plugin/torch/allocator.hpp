// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How is a pool of weir's PyTorch's own allocator?
//
// PyTorch asks one object for everything that has to do with device memory: this class is that object. Each member is short;
// what it does stands in the files beside it.
//
// invariant: the deleter of every block is the same function; it throws nothing.
// not for:   pinned host memory, which stays PyTorch's.

#include "annotations.hpp"
#include "blocks.hpp"
#include "checkpoint.hpp"
#include "other_processes.hpp"

#include <atomic>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace weir_plugin::torch {

class allocator final : public cuda_caching::CUDAAllocator {
    using device_index = c10::DeviceIndex;

public:
    // ---- blocks
    c10::DataPtr allocate(std::size_t bytes) override {
        auto const device = static_cast<device_index>(current_device());
        void* const p = allocate_block(device, c10::cuda::getCurrentCUDAStream(device).stream(), bytes);
        return {p, p, &free_block, c10::Device(c10::DeviceType::CUDA, device)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
    void copy_data(void* to, void const* from, std::size_t bytes) const override {
        weir::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c10::cuda::getCurrentCUDAStream().stream()),
                         "cudaMemcpyAsync");
    }
    void* raw_alloc(std::size_t bytes) override {
        auto const device = static_cast<device_index>(current_device());
        return allocate_block(device, c10::cuda::getCurrentCUDAStream(device).stream(), bytes);
    }
    void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
        return allocate_block(current_device(), stream, bytes);
    }
    void raw_delete(void* p) override { free_block(p); }
    void recordStream(c10::DataPtr const& block, c10::cuda::CUDAStream stream) override {
        if (block.get() && block.get_deleter() == &free_block)
            record_block(block.get(), stream.stream());
    }
    void* getBaseAllocation(void* p, std::size_t* bytes) override {
        live_tensor known;
        if (device_of_block([&](int each) { return ledger_of(each).find(p, known); }) < 0)
            throw weir::usage_error("weir: this address is no live block of PyTorch's, so it has no base");
        if (bytes)
            *bytes = known.bytes;
        return p;
    }
#if TORCH_VERSION_MINOR >= 13
    c10::DataPtr allocateWithAddress(std::size_t, void*) override {
        throw weir::usage_error("weir: a block cannot be had at an address that the program chooses; allocate, and copy");
    }
#endif

    // ---- settings
    void init(int) override {
        initialized_.store(true, std::memory_order_release);
    }
    bool initialized() override {
        return initialized_.load(std::memory_order_acquire);
    }
    void enable(bool value) override {
        enabled_.store(value, std::memory_order_relaxed);
    }
    bool isEnabled() const override {
        return enabled_.load(std::memory_order_relaxed);
    }
    std::string name() override {
        return "weir";
    }
    double getMemoryFraction(device_index device) override {
        return memory_fraction(device);
    }
    void setMemoryFraction(double fraction, device_index device) override {
        set_memory_fraction(fraction, device);
    }
    std::vector<cuda_caching::StreamSegmentSize> getExpandableSegmentSizes(device_index) override {
        return {};
    }
    void enablePeerAccess(device_index device, device_index other) override {
        memory_of_tensors(device).open_to(other); // PyTorch: memory of 'device', for 'other'
    }
    cudaError_t memcpyAsync(void* to, int to_device, void const* from, int from_device, std::size_t bytes, cudaStream_t stream,
                            bool reachable) override {
        if (reachable || to_device == from_device)
            return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
        return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
    }

    // ---- figures
    caching::DeviceStats getDeviceStats(device_index device) override {
        std::size_t const waited = waits(device);
        return ledger_of(known(device)).with_statistics([&](statistics const& s) { return s.state(waited); });
    }
    void resetAccumulatedStats(device_index device) override {
        std::size_t const waited = waits(device);
        ledger_of(known(device)).with_statistics([&](statistics& s) { s.reset_accumulated(waited); });
    }
    void resetPeakStats(device_index device) override {
        ledger_of(known(device)).with_statistics([](statistics& s) { s.reset_peak(); });
        if (device_memory* const own = existing(device))
            reset_peaks(*own);
    }
    void cacheInfo(device_index device, std::size_t* largest) override {
        std::size_t fresh = weir::runtime::device_free_bytes(device);
        std::size_t cached = 0;
        if (device_memory* const own = existing(known(device))) {
            weir::memory_report const now = own->pool.state();
            cached = now.largest_free_bytes == weir::memory_report::unknown ? 0 : now.largest_free_bytes;
            fresh = std::min(fresh, own->limit.room());
        }
        *largest = std::max({*largest, fresh, cached});
    }
    void emptyCache(mempool id) override {
        visit(-1, [&](device_memory& own) {
            if (id == mempool{0, 0})
                trim(own, 0);
            else
                own.graphs.collect();
        });
    }

    // ---- history
    cuda_caching::SnapshotInfo snapshot(mempool id, bool include_traces) override;
    bool isHistoryEnabled() override {
        return settings_of_history().enabled();
    }
    void recordHistory(bool enabled, caching::CreateContextFn recorder, std::size_t most, caching::RecordContext when,
                       bool clears, std::vector<std::string> const& skipped) override {
        settings_of_history().set(enabled, recorder, when, skipped);
        for (ledger& each : ledgers()) {
            each.with_history([&](history& own) {
                own.limit(most);
                if (!enabled || clears)
                    own.clear();
            });
            if (!enabled)
                each.forget_contexts();
        }
        annotations().limit(most);
        if (!enabled || clears)
            annotations().clear();
    }
    void recordAnnotation(std::vector<std::pair<std::string, std::string>> const& words) override {
        if (settings_of_history().enabled())
            annotations().add(c10::cuda::current_device(), words);
    }
    void pushCompileContext(std::string& words) override {
        told().compiled.push_back(words);
    }
    void popCompileContext() override {
        if (!told().compiled.empty())
            told().compiled.pop_back();
    }
    void setUserMetadata(std::string const& words) override {
        told().metadata = words;
    }
    std::string getUserMetadata() override {
        return told().metadata;
    }
#if TORCH_VERSION_MINOR >= 14
    bool supportsUserMetadata() override {
        return true;
    }
    void annotateMemory(void const* p, std::string const& words) override {
        live_tensor known;
        int const device = device_of_block([&](int each) { return ledger_of(each).find(p, known); });
        if (device >= 0)
            ledger_of(device).annotated(p, words);
    }
#endif
#if TORCH_VERSION_MINOR >= 12
    context getContextForPointer(void const* p) override {
        live_tensor known;
        context where;
        device_of_block([&](int each) { return ledger_of(each).find(p, known, &where); });
        return where;
    }
    void attachOomRejectionObserver(cuda_caching::OomRejectionObserver) override {} // weir rejects nothing beforehand
#endif
    void attachOutOfMemoryObserver(cuda_caching::OutOfMemoryObserver observer) override {
        observers().add(std::move(observer));
    }
    void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override {
        for (ledger& each : ledgers())
            each.with_history([&](history& own) { own.track(tracker); });
    }

    // ---- private pools
    void beginAllocateToPool(device_index device, mempool id, std::function<bool(cudaStream_t)> filter) override {
        memory_of_tensors(device).graphs.begin(id, std::move(filter));
    }
    void endAllocateToPool(device_index device, mempool id) override {
        memory_of_tensors(device).graphs.end(id);
    }
    void releasePool(device_index device, mempool id) override {
        memory_of_tensors(device).graphs.release(id);
    }
    int getPoolUseCount(device_index device, mempool id) override {
        return static_cast<int>(memory_of_tensors(device).graphs.users(id));
    }
    void createOrIncrefPool(device_index device, mempool id, std::shared_ptr<CUDAAllocator> from) override {
        chunk_source source;
        if (from)
            source = {[from](std::size_t bytes, weir::stream_ref) { return from->raw_alloc(bytes); },
                      [from](void* p, std::size_t) { from->raw_delete(p); }};
        memory_of_tensors(device).graphs.hold(id, std::move(source));
    }
    void setUseOnOOM(device_index device, mempool id, bool use) override {
        static_cast<void>(memory_of_tensors(device).graphs.lend_when_full(id, use));
    }
    void setNoSplit(device_index device, mempool id) override {
        static_cast<void>(memory_of_tensors(device).graphs.never_split(id));
    }
    bool checkPoolLiveAllocations(device_index device, mempool id, std::unordered_set<void*> const& expected) override {
        auto const live = memory_of_tensors(device).graphs.live(id);
        std::size_t found = 0;
        for (auto const& each : live)
            found += expected.count(each.p);
        return found == expected.size() && found == live.size();
    }
    std::shared_ptr<cuda_caching::AllocatorState> getCheckpointState(device_index device, mempool id) override {
        return save_checkpoint(memory_of_tensors(device), id);
    }
    cuda_caching::CheckpointDelta setCheckpointPoolState(device_index device,
                                                         std::shared_ptr<cuda_caching::AllocatorState> state) override {
        return restore_checkpoint(memory_of_tensors(device), device, *state);
    }

    // ---- other processes
    cuda_caching::ShareableHandle shareIpcHandle(void* p) override {
        return share(p);
    }
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
        return open_shared(handle);
    }

private:
    static std::size_t waits(int device) {
        std::size_t all = 0;
        if (device_memory* const own = existing(known(device)))
            own->visit([&](counted_pool const& each) { all += each.state().waits; });
        return all;
    }

    c10::ApproximateClockToUnixTimeConverter clock_; // it compares what it measured at first and at last
    std::atomic<bool> initialized_{false};
    std::atomic<bool> enabled_{true};
};

inline cuda_caching::SnapshotInfo allocator::snapshot(mempool id, bool include_traces) {
    cuda_caching::SnapshotInfo found;
    auto const microseconds = [convert = clock_.makeConverter()](c10::approx_time_t at) { return convert(at) / 1000; };
    for (int device = 0; device < weir::runtime::device_count() && device < most_devices; ++device) {
        ledger& own = ledger_of(device);
        add_segments(device, own, id, found.segments);
        std::vector<caching::TraceEntry> entries;
        if (include_traces)
            entries = own.with_history([](history const& all) { return all.list(); });
        own.note_snapshot(id);
        for (caching::TraceEntry& each : entries)
            each.time_.t_ = microseconds(each.time_.approx_t_);
        found.device_traces.push_back(std::move(entries));
    }
    found.external_annotations = annotations().list(microseconds);
    found.config_metadata = {};
    found.config_metadata.max_split_size = SIZE_MAX;
    found.config_metadata.expandable_segments = false;
    found.config_metadata.last_allocator_settings = "weir";
    return found;
}

} // namespace weir_plugin::torch
