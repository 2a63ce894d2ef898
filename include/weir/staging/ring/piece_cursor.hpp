// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How are many small copies treated as one long one?
//
// A batch is a list of pieces, each with a target, a source and a size. Laid end to end, they are one row of bytes. A chunk of
// that row, as large as a slot of the ring, may begin and end in the middle of a piece. 'piece_cursor' cuts the row into
// chunks; 'visit_pieces' goes through a part of a chunk, piece by piece. A plain copy is a batch of one piece.
//
// invariant: the chunks of a row are the row: no byte is left out, and none comes twice.
// cost:      a step for each piece.
// not for:   pieces that overlap: the order of their copies is not said.

#include <cstddef>
#include <cstring>
#include <weir/base/error.hpp>
#include <weir/staging/piece.hpp>
#include <weir/staging/ring/conversion.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

namespace detail {

/// From where to where a copy goes.
enum class direction : unsigned char { to_device, to_host };

/// A part of a row of pieces: the `bytes` bytes that begin `skip_bytes` bytes into the piece at `first`. With a conversion: of
/// one piece.
struct piece_span {
    piece const* first = nullptr;
    std::size_t skip_bytes = 0;
    std::size_t bytes = 0;
    conversion how{};
};

inline void* moved(void* p, std::size_t bytes) noexcept {
    return static_cast<char*>(p) + bytes;
}
inline void const* moved(void const* p, std::size_t bytes) noexcept {
    return static_cast<char const*>(p) + bytes;
}

/// Calls visit(to, from, at, bytes) for each part of a piece among the bytes from `begin` to before `end` of the span. `at`:
/// how far into the span it begins.
template <class Visit>
void visit_pieces(detail::piece_span const& span, std::size_t begin, std::size_t end, Visit const& visit) {
    std::size_t at = 0;
    std::size_t skip = span.skip_bytes;
    for (piece const* each = span.first; at < end; ++each) {
        std::size_t const left = each->bytes - skip;
        std::size_t const bytes = left < end - at ? left : end - at;
        if (bytes != 0 && at + bytes > begin) {
            std::size_t const cut = begin > at ? begin - at : 0;
            visit(detail::moved(each->to, skip + cut), detail::moved(each->from, skip + cut), at + cut, bytes - cut);
        }
        at += bytes;
        skip = 0;
    }
}

/// Copies, by the host, the bytes from `begin` to before `end` of the span between ordinary memory and a slot that holds the
/// whole span; or converts them.
inline void copy_by_host(detail::piece_span const& span, std::byte* slot, direction way, std::size_t begin,
                         std::size_t end) noexcept {
    if (span.how.by_host) {
        std::size_t const at = span.how.in_elements(span.skip_bytes + begin), count = span.how.count(end - begin);
        if (way == direction::to_device)
            span.how.by_host(slot + begin, detail::moved(span.first->from, at), count, span.how.scale);
        else
            span.how.by_host(detail::moved(span.first->to, at), slot + begin, count, span.how.scale);
        return;
    }
    detail::visit_pieces(span, begin, end, [&](void* to, void const* from, std::size_t at, std::size_t bytes) {
        if (way == direction::to_device)
            std::memcpy(slot + at, from, bytes);
        else
            std::memcpy(to, slot + at, bytes);
    });
}

/// Cuts a row of pieces into chunks.
class piece_cursor {
public:
    piece_cursor(piece const* first, std::size_t count) noexcept : now_(first), end_(first + count) {}

    /// The next chunk: of `most` bytes, or of what is left. Of no bytes: all were handed out.
    detail::piece_span next(std::size_t most) noexcept {
        while (now_ != end_ && skip_bytes_ == now_->bytes)
            step();
        detail::piece_span chunk{now_, skip_bytes_, 0, {}};
        while (now_ != end_ && chunk.bytes != most) {
            std::size_t const left = now_->bytes - skip_bytes_;
            std::size_t const bytes = left < most - chunk.bytes ? left : most - chunk.bytes;
            chunk.bytes += bytes;
            skip_bytes_ += bytes;
            if (skip_bytes_ == now_->bytes)
                step();
        }
        return chunk;
    }

private:
    void step() noexcept {
        ++now_;
        skip_bytes_ = 0;
    }

    piece const* now_;
    piece const* end_;
    std::size_t skip_bytes_ = 0;
};

/// The bytes of all pieces, but no more than SIZE_MAX. Throws usage_error for a null address of a piece that has bytes.
inline std::size_t bytes_of(piece const* first, std::size_t count) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i != count; ++i) {
        base::require_not_null(first[i].to, first[i].bytes);
        base::require_not_null(first[i].from, first[i].bytes);
        sum = sum + first[i].bytes < sum ? static_cast<std::size_t>(-1) : sum + first[i].bytes;
    }
    return sum;
}

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
