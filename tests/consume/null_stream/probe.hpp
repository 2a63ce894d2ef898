// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A pool that only remembers which stream it was last told of, and what both kinds of file say of it.

#include <weir/weir.hpp>

/// A user's own pool: what it hands out is never used.
class probe : public weir::resource::pool_base<probe> {
public:
    static constexpr weir::memory_space space = weir::memory_space::device;
    static constexpr bool thread_safe = false;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 256;

    void* try_allocate(weir::stream_ref stream, std::size_t, std::size_t = default_alignment) {
        told = stream.get();
        return room;
    }
    void deallocate(weir::stream_ref stream, void*, std::size_t, std::size_t = default_alignment) noexcept { told = stream.get(); }
    void used_on(void*, weir::stream_ref stream) { told = stream.get(); }
    void last_used_on(void*, weir::stream_ref stream) { told = stream.get(); }
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {full_state(), "no"}; }

    cudaStream_t told = nullptr;

private:
    alignas(256) char room[256];
};

/// Asks a probe in every way that takes a stream; each returns how many of them took null for the wrong stream, and prints which.
int mistaken_in_legacy_file();
int mistaken_in_per_thread_file();
