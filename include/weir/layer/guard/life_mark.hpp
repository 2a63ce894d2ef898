// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Has the pool ended that this call is made on?
//
// Whoever outlives a pool may call it nevertheless. The pool's members are gone by then, and a look-up in what they were may
// never end. A container has a mark of its own that tells it (resource/pool_life.hpp); other callers have the pool's address
// alone. For them, this mark is the last that a guard writes, and the first that it reads: a word that says 'over' as long as
// nobody uses the pool's own memory for something else, which is mostly so for global and local objects.
//
// invariant: a pool that lives never reads 'over'.
// cost:      a load.
// not for:   a pool whose memory went back to the heap and is in use again: the word is another's then.

#include <cstdint>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace layer::detail {

class life_mark {
public:
    /// Whether 'end' was called, also after the end of this object.
    bool is_over() const noexcept { return word_ == over; }
    void end() noexcept { word_ = over; }

private:
    static constexpr std::uint64_t alive = 0x6C6976657C776569; // no number that memory holds by accident
    static constexpr std::uint64_t over = ~alive;
    std::uint64_t volatile word_ = alive; // or the compiler leaves out what is written to an object that ends
};

} // namespace layer::detail
} // namespace v0
} // namespace weir
