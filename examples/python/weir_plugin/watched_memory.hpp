// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which chunks does a pool hold at this moment?
//
// This is weir::upstream::virtual_memory, which keeps within a limit that pools share, and tells one function of each chunk that
// comes and goes. PyTorch's snapshots list
// the chunks, its history notes them, NCCL registers them, and a recording says what was held.
//
// invariant: a chunk is told of after it came, and before it goes: nobody is told of an address twice.
// cost:      a call a chunk.

#include "shared_limit.hpp"

#include <atomic>
#include <cstddef>
#include <weir/base/range.hpp>
#include <weir/trace/recorded_event.hpp>
#include <weir/upstream/virtual_memory.hpp>

#ifndef WEIR_PLUGIN_HANDLES
#define WEIR_PLUGIN_HANDLES 0
#endif

namespace weir_plugin {

using weir::trace::event_kind;

/// Called for each chunk of `device` that came, or goes. May be called with locks of the pool held: it calls no pool.
using chunk_watcher = void (*)(int device, weir::base::range chunk, event_kind what) noexcept;
inline std::atomic<chunk_watcher> chunks_told_to{nullptr};

class watched_memory : public weir::upstream::virtual_memory<weir::upstream::exported_memory<WEIR_PLUGIN_HANDLES>> {
    using memory = weir::upstream::virtual_memory<weir::upstream::exported_memory<WEIR_PLUGIN_HANDLES>>;

public:
    /// `of` outlives all copies of this object.
    watched_memory(int device, shared_limit& of) : memory(device), limit_(&of) {}

    void* acquire(std::size_t bytes) { return acquire(bytes, bytes); }
    void* acquire(std::size_t bytes, std::size_t piece_bytes) {
        void* const chunk = within_limit(bytes, [&] { return memory::acquire(bytes, piece_bytes); });
        if (chunk)
            tell_pieces(chunk, bytes, memory::extends() ? piece_bytes : bytes, event_kind::grow);
        return chunk;
    }
    bool extend(void* end, std::size_t bytes, std::size_t piece_bytes) {
        bool const done = within_limit(bytes, [&] { return memory::extend(end, bytes, piece_bytes); });
        if (done)
            tell_pieces(end, bytes, piece_bytes, event_kind::extend);
        return done;
    }
    bool release(void* chunk, std::size_t bytes) noexcept {
        leaves(chunk, bytes, event_kind::give_back);
        bool const done = memory::release(chunk, bytes);
        if (!done)
            stays(chunk, bytes, event_kind::grow);
        return done;
    }
    bool move(void* chunk, std::size_t bytes, void* to) noexcept {
        tell(chunk, bytes, event_kind::move_from);
        bool const done = memory::move(chunk, bytes, to);
        tell(done ? to : chunk, bytes, event_kind::move_to);
        return done;
    }
    bool withdraw(void* chunk, std::size_t bytes) noexcept {
        leaves(chunk, bytes, event_kind::withdraw);
        bool const done = memory::withdraw(chunk, bytes);
        if (!done)
            stays(chunk, bytes, event_kind::restore);
        return done;
    }
    bool restore(void* chunk, std::size_t bytes) {
        bool const done = within_limit(bytes, [&] { return memory::restore(chunk, bytes); });
        if (done)
            tell(chunk, bytes, event_kind::restore);
        return done;
    }

private:
    // What `get` answers, if the limit has room for `bytes` bytes; else what it answers where there is none.
    template <class Get>
    auto within_limit(std::size_t bytes, Get const& get) -> decltype(get()) {
        if (!limit_->take(bytes))
            return {};
        try {
            auto const got = get();
            got ? limit_->came() : limit_->give(bytes);
            return got;
        } catch (...) {
            limit_->give(bytes);
            throw;
        }
    }
    void leaves(void* chunk, std::size_t bytes, event_kind what) noexcept {
        tell(chunk, bytes, what);
        limit_->give(bytes);
    }
    void stays(void* chunk, std::size_t bytes, event_kind what) noexcept {
        limit_->again(bytes);
        tell(chunk, bytes, what);
    }
    void tell(void* chunk, std::size_t bytes, event_kind what) const noexcept {
        if (chunk_watcher const told = chunks_told_to.load(std::memory_order_acquire))
            told(memory::device_number(), {reinterpret_cast<std::size_t>(chunk), bytes}, what);
    }
    void tell_pieces(void* chunk, std::size_t bytes, std::size_t piece_bytes, event_kind what) const noexcept {
        for (std::size_t at = 0; at < bytes; at += piece_bytes)
            tell(static_cast<char*>(chunk) + at, piece_bytes < bytes - at ? piece_bytes : bytes - at, what);
    }

    shared_limit* limit_;
};

} // namespace weir_plugin
