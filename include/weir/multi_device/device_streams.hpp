// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// On which stream does a container of several devices work on each of them?
//
// One object names a stream for each device that CUDA sees. It makes them, or takes yours:
//
//     weir::multi_device::device_streams streams;                                   // one of its own on each device
//     weir::multi_device::device_streams yours([&](int device) { return my_streams[device]; });
//
// invariant: the stream of a number belongs to the device of that number; of a default stream, the one that the device has.
//            A stream of yours that belongs to another device is refused.
// order:     streams of two devices run side by side; whatever orders them says so (order_after).
// cost:      its own streams: one cudaStreamCreateWithFlags a device. Yours: a question to CUDA for each.
// not for:   several streams a device: make several of these.

#include <cstddef>
#include <type_traits>
#include <weir/base/growing_array.hpp>
#include <weir/base/shared.hpp>
#include <weir/multi_device/by_device/numbers.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/side_stream.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace multi_device {

/// Copies name the same streams. Any thread may call any member. Streams of its own end with the last copy; containers on them
/// end before.
class device_streams {
public:
    /// A stream of its own on each device, which the default streams do not wait for. Throws cuda_error, std::bad_alloc.
    device_streams() : device_streams([](int) { return on_host; }) {}

    /// `stream_of(i)` names the stream of device i, which outlives this; on_host: one of its own. Throws what it throws,
    /// usage_error for a stream of another device, cuda_error, std::bad_alloc.
    template <class StreamOf, class = std::enable_if_t<std::is_invocable_r_v<stream_ref, StreamOf const&, int>>>
    explicit device_streams(StreamOf const& stream_of) {
        int const count = runtime::device_count();
        streams_.reserve(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) {
            stream_ref const yours = stream_of(i);
            one each;
            if (yours.is_host())
                each.own = base::shared<runtime::side_stream>::make(i);
            else
                detail::require_stream_of(i, yours);
            each.stream = yours.is_host() ? each.own->get() : yours.get();
            streams_.push_back(each);
        }
    }

    /// How many devices there are.
    int size() const noexcept { return static_cast<int>(streams_.size()); }
    /// The stream of a device; any_device: of the current one. Throws usage_error if there is no such device, cuda_error.
    stream_ref operator[](int device) const { return streams_[detail::place_of(device, size())].stream; }

    /// Blocks until all work on these streams is done, also if one of them fails. Throws cuda_error, and usage_error if one is
    /// captured.
    void synchronize() const {
        detail::visit_all(0, size(), [this](int i) {
            runtime::device_scope const there(i); // the stream may be its default stream
            weir::synchronize((*this)[i]);
        });
    }

private:
    struct one {
        base::shared<runtime::side_stream> own; // nothing if the stream is the caller's
        cudaStream_t stream = nullptr;
    };
    base::growing_array<one> streams_;
};

} // namespace multi_device
} // namespace v0
} // namespace weir
