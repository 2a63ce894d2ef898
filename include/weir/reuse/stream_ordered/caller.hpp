// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What must a call know of the stream that it names?
//
// Each call of the rule looks at its stream once, at its entry. What it finds is a small value, which is handed down to
// whoever needs it: the directory finds the stream's set by the key, and tells by the id whether the handle still names the
// set's stream. No one else asks CUDA which stream this is. There is one exception: before an event is recorded, the set asks
// again ('close' in stream_set.hpp), since the event must not end up on another stream or in a graph.
//
// A default stream has no handle of its own; default_streams.hpp tells which one is meant, under either policy. The legacy
// stream is never captured itself, so nobody is asked about that until a call needs more than its own set ('in_full').
//
// invariant: streams that live at the same time have different keys. The stream was not captured at the entry; under
//            'promised' the caller answers for that, and 'in_full' asks.
// cost:      'checked': one question to CUDA for a free, two otherwise. 'promised': none. A default stream: one for which it is
//            (12 ns), and with 'checked' another for a thread's own (25 ns).
// not for:   keeping: it is true only for the call that made it.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/base/range.hpp>
#include <weir/fwd.hpp>
#include <weir/reuse/identity.hpp>
#include <weir/reuse/stream_ordered/default_streams.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/driver_calls.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// Who wants to hear nothing of a block that comes from another stream.
struct nobody_told {
    void operator()(base::range, bool) const noexcept {}
};

/// The stream of a call, or the host. `Identity`: how streams are told apart.
template <class Identity>
class caller {
public:
    /// For a call that hands out or adds bytes. Asks what Identity asks: whether the stream is captured, and for its id, by
    /// which it differs from an earlier one of the same handle. Throws usage_error for a captured stream, cuda_error.
    [[gnu::always_inline]] explicit caller(stream_ref name) : caller(name, true) {}
    /// For a free: the same without the id, since a set may keep a block even if its stream's handle names another stream
    /// by now.
    [[gnu::always_inline]] static caller that_frees(stream_ref name) { return caller(name, false); }

    stream_ref stream() const noexcept { return is_host() ? stream_ref(on_host) : stream_ref(handle_); }
    bool is_host() const noexcept { return handle_ == nullptr; }
    /// Whether this is the host or a default stream.
    bool is_special() const noexcept { return runtime::is_default_handle(handle_); }
    /// Nonzero, except for the host: the stream's set is looked up by it.
    std::uint64_t key() const noexcept {
        return is_special() && !is_host() ? id_ : reinterpret_cast<std::uintptr_t>(handle_);
    }
    /// The stream's id, or 'unknown'; a default stream's key.
    unsigned long long id() const noexcept { return id_; }
    /// Whether this is another stream than the one that had the same key and the id `former`. False if nobody asked.
    bool differs_from(unsigned long long former) const noexcept { return Identity::asks && id_ != unknown && id_ != former; }

    /// The same, but everything was asked that the head names: for those who make a set, or take bytes from another
    /// stream's. Throws usage_error for a captured stream, cuda_error.
    caller in_full() const {
        caller full = *this;
        if (is_host())
            return full;
        if (!Identity::asks || runtime::is_legacy(stream()))
            runtime::require_no_capture(stream());
        if (id_ == unknown)
            full.id_ = Identity::id(stream());
        return full;
    }

    /// Stands for an id that was not asked for.
    static constexpr unsigned long long unknown = ~0ull;

private:
    // In a call by value this fits into two registers.
    [[gnu::always_inline]] caller(stream_ref name, bool asks_id) : handle_(name.get()) {
        if (is_special()) {
            id_ = id_of_special(name);
            return;
        }
        Identity::require_no_capture(name);
        if (Identity::asks && asks_id)
            id_ = Identity::id(name);
    }

    // Not inlined, so that the usual path stays short.
    [[gnu::noinline]] static unsigned long long id_of_special(stream_ref name) {
        if (name.is_host())
            return unknown;
        if (runtime::is_per_thread(name))
            Identity::require_no_capture(name);
        return reuse::detail::key_of_default(name);
    }

    cudaStream_t handle_; // null for the host
    unsigned long long id_ = unknown;
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
