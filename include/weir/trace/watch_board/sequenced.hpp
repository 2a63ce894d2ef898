// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does another process read figures that belong together, without a lock that a dead process could keep?
//
// A number stands before them, which is odd while they are written (a sequence lock). Who reads looks at the number before
// and afterwards: if it was even, and is the same, nothing was written meanwhile. A writer that is killed in the midst leaves
// an odd number; readers are told so, and never wait.
//
// invariant: what 'read' returns was written by one 'write', or by none (all zeros).
// order:     one writer at a time. Each word is written with release and read with acquire: so who sees one word of a 'write'
//            sees its odd number, too.
// cost:      of a 'write': a store a word.
// not for:   figures that change with each call of a pool.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <weir/base/threads/atomic.hpp>

namespace weir {
inline namespace v0 {
namespace trace::detail {

/// `T`: whole 64-bit words that can be copied as bytes.
template <class T>
class alignas(64) sequenced {
    static_assert(sizeof(T) % sizeof(std::uint64_t) == 0, "weir: sequenced figures are whole words");

public:
    /// One thread at a time, of one process.
    void write(T const& figures) noexcept {
        std::uint64_t words[count];
        std::memcpy(words, &figures, sizeof words);
        std::uint64_t const before = number_.load(base::memory_order_relaxed);
        number_.store(before + 1, base::memory_order_relaxed);
        for (std::size_t i = 0; i < count; ++i)
            words_[i].word.store(words[i], base::memory_order_release);
        number_.store(before + 2, base::memory_order_release);
    }

    /// Any thread of any process. False: they are being written, or were when the writer ended; `figures` is as it was.
    [[nodiscard]] bool read(T& figures) const noexcept {
        std::uint64_t words[count];
        std::uint64_t const before = number_.load(base::memory_order_acquire);
        for (std::size_t i = 0; i < count; ++i)
            words[i] = words_[i].word.load(base::memory_order_acquire);
        if (before % 2 != 0 || number_.load(base::memory_order_relaxed) != before)
            return false;
        std::memcpy(&figures, words, sizeof words);
        return true;
    }

private:
    static constexpr std::size_t count = sizeof(T) / sizeof(std::uint64_t);
    struct place {
        base::atomic<std::uint64_t> word{0};
    };

    base::atomic<std::uint64_t> number_{0};
    place words_[count];
};

} // namespace trace::detail
} // namespace v0
} // namespace weir
