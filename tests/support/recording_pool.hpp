// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A pool that hands out fresh bytes only, remembers every call, and fails when it is told to.
//
// It takes one piece of memory when it is made and calls CUDA no more while it allocates, so that a test
// which counts or breaks CUDA calls counts those of the part under test. On a free it overwrites the block on
// the block's last stream: whoever reads too late reads poison. On the simulated device each hand-out and
// free is noted, so that a block which was freed too early, or on the wrong stream, is reported at the call
// that did it.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace support {

/// One call of a recording pool.
struct recorded {
    void* p = nullptr;
    std::size_t bytes = 0;
    std::size_t alignment = 0;
    weir::stream_ref stream = cudaStream_t{};
};

template <class Derived, weir::memory_space Space>
class recording : public weir::resource::pool_base<Derived> {
public:
    static constexpr weir::memory_space space = Space;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 256;

    explicit recording(std::size_t bytes = std::size_t{4} << 20) : bytes_(bytes) {
        void* p = nullptr;
        if (Space == weir::memory_space::device)
            weir::check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
        else if (Space == weir::memory_space::managed)
            weir::check_cuda(cudaMallocManaged(&p, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
        else
            weir::check_cuda(cudaHostAlloc(&p, bytes, 0), "cudaHostAlloc");
        memory_ = static_cast<std::byte*>(p);
    }
    recording(recording const&) = delete;
    recording& operator=(recording const&) = delete;
    ~recording() {
        CHECK_MESSAGE(live_.empty(), "blocks that were never freed: " << live_.size());
        if (Space == weir::memory_space::pinned)
            static_cast<void>(cudaFreeHost(memory_));
        else
            static_cast<void>(cudaFree(memory_));
    }

    void* try_allocate(weir::stream_ref stream, std::size_t bytes,
                       std::size_t alignment = default_alignment) {
        if (bytes == 0)
            return nullptr;
        allocations.push_back({nullptr, bytes, alignment, stream});
        if (fail_at != 0 && --fail_at == 0) {
            fail_at = fails > 1 ? 1 : 0;
            fails -= fails > 1;
            return nullptr;
        }
        std::size_t const at = weir::base::align_up(used_, alignment);
        if (at + bytes > bytes_)
            return nullptr;
        used_ = at + bytes;
        void* const p = memory_ + at;
        allocations.back().p = p;
        live_[p] = allocations.back();
#ifdef WEIR_SIMULATED_CUDA
        if (stream.is_host())
            simulated_cuda::note_allocate_host(p, bytes);
        else
            simulated_cuda::note_allocate(p, bytes, stream.get());
#endif
        return p;
    }

    void deallocate(weir::stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = default_alignment) noexcept {
        auto const found = live_.find(p);
        CHECK_MESSAGE(found != live_.end(), "a block was freed that is not live");
        if (found == live_.end())
            return;
        CHECK(found->second.bytes == bytes);
        CHECK(found->second.alignment == alignment);
        live_.erase(found);
        frees.push_back({p, bytes, alignment, stream});
        static_cast<Derived*>(this)->before_free(stream, p);
        if (poisons && Space == weir::memory_space::device && !stream.is_host())
            static_cast<void>(cudaMemsetAsync(p, 0xDD, bytes, stream.get()));
#ifdef WEIR_SIMULATED_CUDA
        if (stream.is_host())
            simulated_cuda::note_free_host(p, bytes);
        else
            simulated_cuda::note_free(p, bytes, stream.get());
#endif
    }

    weir::memory_report state() const {
        weir::memory_report report;
        report.name = "recording";
        report.reserved_bytes = report.limit_bytes = bytes_;
        return report;
    }
    weir::refusal refused(std::size_t, std::size_t) const { return {this->full_state(), "the test made it fail"}; }
    int device() const {
        return 0;
    }

    std::size_t live_blocks() const {
        return live_.size();
    }
    std::size_t live_bytes() const {
        std::size_t sum = 0;
        for (auto const& each : live_)
            sum += each.second.bytes;
        return sum;
    }

    /// The k-th allocation from now on finds no room; 0: none.
    std::size_t fail_at = 0;
    std::size_t fails = 1; ///< and so many in a row
    /// Whether frees overwrite their block, on their stream: one CUDA call each.
    bool poisons = true;
    std::vector<recorded> allocations; // also those that failed, with a null pointer
    std::vector<recorded> frees;

    void before_free(weir::stream_ref, void*) noexcept {}

private:
    std::size_t bytes_;
    std::byte* memory_ = nullptr;
    std::size_t used_ = 0;
    std::map<void*, recorded> live_;
};

/// Has no 'used_on': a container has to order its own stream.
template <weir::memory_space Space = weir::memory_space::device>
class recording_pool : public recording<recording_pool<Space>, Space> {
public:
    using recording<recording_pool<Space>, Space>::recording;
};

/// Has 'used_on': a free waits for what it marked, and for the events that 'last_used_on' recorded.
template <weir::memory_space Space = weir::memory_space::device>
class following_pool : public recording<following_pool<Space>, Space> {
public:
    using recording<following_pool<Space>, Space>::recording;

    void used_on(void* p, weir::stream_ref stream) {
        if (starved)
            throw std::bad_alloc();
        uses.push_back({p, 0, 0, stream});
        marks_[p].push_back(stream);
    }
    void last_used_on(void* p, weir::stream_ref stream) {
        weir::runtime::event passed(weir::runtime::device_of(stream));
        passed.record(stream);
        last_uses.push_back({p, 0, 0, stream});
        events_[p].push_back(std::move(passed));
    }
    void before_free(weir::stream_ref stream, void* p) noexcept {
        for (weir::stream_ref each : marks_[p])
            weir::order_after(stream, each);
        for (weir::runtime::event const& each : events_[p])
            static_cast<void>(cudaStreamWaitEvent(stream.get(), each.get(), 0));
        marks_.erase(p);
        events_.erase(p);
    }

    std::vector<recorded> uses;
    std::vector<recorded> last_uses;
    bool starved = false; ///< it finds no host memory for a mark

private:
    std::map<void*, std::vector<weir::stream_ref>> marks_;
    std::map<void*, std::vector<weir::runtime::event>> events_;
};

} // namespace support
