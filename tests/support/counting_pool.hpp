// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// The least pool that a layer can stand on: blocks of the host's heap, every call counted, room and failures as the test
// says. It needs no CUDA. Any thread may use it.

#include <atomic>
#include <cstddef>
#include <doctest/doctest.h>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/runtime/stream.hpp>

namespace support {

struct pool_failure {};

template <weir::memory_space Space = weir::memory_space::host>
class counting_pool : public weir::resource::pool_base<counting_pool<Space>> {
public:
    static constexpr weir::memory_space space = Space;
    static constexpr bool thread_safe = true;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 16;

    explicit counting_pool(std::size_t room_bytes = SIZE_MAX, std::string name = "counting")
        : room_bytes_(room_bytes), name_(std::move(name)) {}
    ~counting_pool() {
        for (auto const& each : live_)
            ::operator delete(each.first, std::align_val_t{each.second.second});
    }

    void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        std::lock_guard<std::mutex> const lock(mutex_);
        ++allocations;
        last_stream = stream;
        if (throw_at != 0 && --throw_at == 0)
            throw pool_failure{};
        if (bytes == 0 || bytes > room_bytes_ || in_use_ > room_bytes_ - bytes)
            return nullptr;
        void* const p = ::operator new(bytes, std::align_val_t{alignment < 16 ? 16 : alignment});
        try {
            live_[p] = {bytes, alignment < 16 ? 16 : alignment};
        } catch (...) { // the host has no memory for the test's own books
            ::operator delete(p, std::align_val_t{alignment < 16 ? 16 : alignment});
            throw;
        }
        in_use_ += bytes;
        return p;
    }

    void deallocate(weir::stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = default_alignment) noexcept {
        std::lock_guard<std::mutex> const lock(mutex_);
        last_stream = stream;
        if (!p)
            return;
        ++frees;
        auto const found = live_.find(p);
        CHECK_MESSAGE(found != live_.end(), "a block was freed that is not live");
        if (found == live_.end())
            return;
        CHECK(found->second.first == bytes);
        CHECK(found->second.second == (alignment < 16 ? 16 : alignment));
        in_use_ -= bytes;
        ::operator delete(p, std::align_val_t{found->second.second});
        live_.erase(found);
    }

    bool owns(void const* p) const {
        std::lock_guard<std::mutex> const lock(mutex_);
        return live_.count(const_cast<void*>(p)) != 0;
    }
    void used_on(void* p, weir::stream_ref stream) {
        last_used = p;
        last_stream = stream;
    }
    void last_used_on(void* p, weir::stream_ref stream) {
        last_used = p;
        last_stream = stream;
        ++last_uses;
    }
    void settle() { ++settled; }
    std::size_t trim(std::size_t keep_bytes = 0) {
        std::size_t const before = reserved_bytes;
        if (reserved_bytes > keep_bytes)
            reserved_bytes = keep_bytes;
        return before - reserved_bytes;
    }

    weir::memory_report state() const {
        std::lock_guard<std::mutex> const lock(mutex_);
        return weir::memory_report{name_, in_use_, reserved_bytes, room_bytes_, largest_free_bytes, live_.size(), 2};
    }
    weir::refusal refused(std::size_t bytes, std::size_t) const { return {this->full_state(), name_ + " has no " + std::to_string(bytes)}; }
    int device() const { return 5; }
    std::string const& name() const { return name_; }

    std::size_t live_blocks() const {
        std::lock_guard<std::mutex> const lock(mutex_);
        return live_.size();
    }

    int allocations = 0;
    int frees = 0;
    int settled = 0;
    int throw_at = 0; ///< the k-th allocation from now on throws pool_failure; 0: none
    std::size_t reserved_bytes = 0;
    std::size_t largest_free_bytes = 7;
    void* last_used = nullptr;
    int last_uses = 0; ///< of 'last_used_on'
    weir::stream_ref last_stream = weir::on_host;

private:
    mutable std::mutex mutex_;
    std::map<void*, std::pair<std::size_t, std::size_t>> live_;
    std::size_t in_use_ = 0;
    std::size_t room_bytes_;
    std::string name_;
};

} // namespace support
