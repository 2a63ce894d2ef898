// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which streams does a block need, and has one of them ended?
//
// It needs the stream on which it is to be freed, and those that it is marked for ('used_on'): its free asks CUDA about them,
// which crashes on a destroyed stream. So the program says that a stream ends, and each live block notes whether it needs it.
// Blocks that come later need another stream, even if CUDA gave it the same handle.
//
// order:     one thread at a time.
// cost:      64 bytes of host memory, and 16 for a mark.

#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace layer::detail {

/// How a sentence names a stream.
inline text stream_text(stream_ref stream) {
    if (stream.is_host())
        return "the host";
    if (runtime::is_default_stream(stream))
        return runtime::is_per_thread(stream) ? "a thread's default stream" : "the legacy default stream";
    return "stream " + base::address_text(stream.get());
}

class needed_streams {
public:
    /// The block is to be freed on `stream`, as far as is known.
    void free_on(stream_ref stream) noexcept { free_on_ = stream, has_ended_ = false; }
    /// The block is marked for `stream`. Throws std::bad_alloc.
    void mark(stream_ref stream) {
        if (!is_marked(stream))
            marks_.push_back(stream);
    }

    bool have(stream_ref stream) const noexcept { return free_on_ == stream || is_marked(stream); }
    /// `stream` ends. Returns whether the block needs it.
    bool end(stream_ref stream) noexcept {
        has_ended_ |= free_on_ == stream;
        if (is_marked(stream))
            ended_mark_ = stream;
        return have(stream);
    }
    /// A stream that has ended, and about which a free on `stream` would ask CUDA; the host: none.
    stream_ref missed_by_free_on(stream_ref stream) const noexcept {
        return has_ended_ && free_on_ == stream ? stream : ended_mark_;
    }

    /// 'stream 0x1, marked for stream 0x2'.
    text sentence() const {
        text said = stream_text(free_on_);
        for (stream_ref const each : marks_)
            said = said + ", marked for " + stream_text(each);
        return said;
    }

private:
    bool is_marked(stream_ref stream) const noexcept {
        for (stream_ref const each : marks_)
            if (each == stream)
                return true;
        return false;
    }

    stream_ref free_on_ = on_host;
    stream_ref ended_mark_ = on_host;
    bool has_ended_ = false; // free_on_
    base::growing_array<stream_ref> marks_;
};

} // namespace layer::detail
} // namespace v0
} // namespace weir
