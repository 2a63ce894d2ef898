// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What may a user choose about a stream of chunks, and what is told while it runs?
//
// The size and number of chunks, a flag that cancels, and a callable that is told of the progress. The defaults need no
// tuning. Options are set in a chain: streaming_options{}.depth(4).cancel_on(flag).
//
// cost:      a few words, copied once.
// not for:   copying threads: those are the ring's.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/size.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// How far a stream of chunks has come. A chunk is done when its compute has run, and its results are in the sink.
struct streaming_progress {
    std::size_t done_chunks = 0;
    std::size_t done_count = 0;          ///< elements
    std::size_t total_count = SIZE_MAX;  ///< elements of the source; SIZE_MAX: it does not know
    std::size_t chunk_bytes = 0;         ///< the size of a chunk that was chosen
    bool cancelled = false;              ///< the flag was seen before the end of the source was
};

namespace detail {
struct untold {
    void operator()(streaming_progress const&) const noexcept {}
};
} // namespace detail

/// What 'stream_chunks' is told: the size and number of chunks, a flag that cancels, and who hears of the progress.
template <class Progress>
class streaming_options {
public:
    streaming_options() = default;

    /// The size of a chunk in bytes. 0, the default: 16 MiB, or less where the source or the pool has less, at least 64 KiB;
    /// of a small pool that may be all, so name a size if compute allocates from it. A named size is taken or refused.
    streaming_options& chunk_bytes(std::size_t bytes) noexcept { return chunk_bytes_ = bytes, *this; }
    /// How many chunks are on the device at a time, 4 by default: one arrives, one is computed, one leaves, and one is ready
    /// when the host is late. 1 to 64.
    streaming_options& depth(std::size_t chunks) noexcept { return depth_ = chunks, *this; }
    /// A flag, such as a std::atomic<bool>: once its 'load()' is true no chunk is read any more, and those that were read are
    /// finished. It stays until 'stream_chunks' returns.
    template <class Flag>
    streaming_options& cancel_on(Flag const& flag) noexcept {
        flag_ = &flag;
        load_ = [](void const* p) -> bool { return static_cast<Flag const*>(p)->load(); };
        return *this;
    }
    template <class Flag>
    streaming_options& cancel_on(Flag const&&) = delete;
    /// `told(streaming_progress const&)` is called after each chunk that is done, by the thread that called 'stream_chunks'.
    /// What it throws, 'stream_chunks' throws.
    template <class Told>
    streaming_options<Told> progress(Told told) const {
        streaming_options<Told> with(std::move(told));
        with.chunk_bytes_ = chunk_bytes_;
        with.depth_ = depth_;
        with.flag_ = flag_;
        with.load_ = load_;
        return with;
    }

    std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
    std::size_t depth() const noexcept { return depth_; }
    /// Whether the flag of 'cancel_on' is set.
    bool is_cancelled() const { return load_ && load_(flag_); }
    /// Calls what 'progress' was given.
    void tell(streaming_progress const& now) { told_(now); }

private:
    template <class>
    friend class streaming_options;
    explicit streaming_options(Progress told) : told_(std::move(told)) {}

    std::size_t chunk_bytes_ = 0;
    std::size_t depth_ = 4;
    void const* flag_ = nullptr;
    bool (*load_)(void const* flag) = nullptr;
    Progress told_{};
};

} // namespace staging
} // namespace v0
} // namespace weir
