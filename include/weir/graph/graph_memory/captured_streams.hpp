// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which bytes may each stream of a capture have?
//
// A graph runs the nodes of one captured stream in their order. So bytes freed on such a stream are free for its later nodes,
// but not for those of another stream, which may run at the same time. Each stream has a placement of its own.
//
// invariant: bytes that one stream had never reach another.
// cost:      O(streams) a look-up; a capture has a handful.
// not for:   streams outside the capture.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/base/growing_array.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// One thread at a time.
template <class Placement>
class captured_streams {
public:
    captured_streams() = default;
    captured_streams(captured_streams const&) = delete;
    captured_streams& operator=(captured_streams const&) = delete;
    ~captured_streams() { clear(); }

    /// The free bytes of `stream`. Throws std::bad_alloc when it is new.
    Placement& free_of(stream_ref stream) {
        for (entry const& each : streams_)
            if (each.stream == stream.get())
                return *each.free;
        streams_.reserve_more(1);
        streams_.push_back(entry{stream.get(), new Placement()});
        return *streams_.back().free;
    }

    /// The largest free range of any stream; SIZE_MAX: not known.
    std::size_t largest_bytes() const noexcept {
        std::size_t most = contract::holds<contract::has_largest, Placement> ? 0 : SIZE_MAX;
        if constexpr (contract::holds<contract::has_largest, Placement>)
            for (entry const& each : streams_)
                most = each.free->largest() > most ? each.free->largest() : most;
        return most;
    }

    /// Forgets all streams and what is free on them.
    void clear() noexcept {
        for (entry const& each : streams_)
            delete each.free;
        streams_.clear();
    }

private:
    struct entry {
        cudaStream_t stream = nullptr;
        Placement* free = nullptr;
    };

    base::growing_array<entry> streams_;
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
