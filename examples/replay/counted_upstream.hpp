// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do weir's pools come to be counted?
//
// An upstream is anything with 'acquire', 'release', 'alignment' and 'space'. 'counted' is one that passes on
// what another answers and enters it in a ledger. 'count_upstream' takes a finished pool type apart and puts
// it together again over a counted upstream: what is measured is the recipe as it ships, with all its other
// parts.

#include "ledger.hpp"
#include <utility>
#include <weir/weir.hpp>

namespace replay {

template <class Upstream>
class counted : public Upstream {
public:
    explicit counted(ledger& book, Upstream upstream = Upstream{})
        : Upstream(std::move(upstream)), book_(&book) {}

    void* acquire(std::size_t bytes) {
        void* const chunk = Upstream::acquire(bytes);
        book_->asked(bytes, chunk != nullptr);
        return chunk;
    }

    void release(void* chunk, std::size_t bytes) noexcept {
        book_->gave_back(bytes);
        Upstream::release(chunk, bytes);
    }

private:
    ledger* book_;
};

template <class Pool>
struct count_upstream;

template <class Upstream, class Placement, class Reuse, class Growth>
struct count_upstream<weir::pool<Upstream, Placement, Reuse, Growth>> {
    using type = weir::pool<counted<Upstream>, Placement, Reuse, Growth>;
};

template <template <class> class Layer, class Pool>
struct count_upstream<Layer<Pool>> {
    using type = Layer<typename count_upstream<Pool>::type>;
};

/// `Pool` over a counted upstream; layers around it stay.
template <class Pool>
using counted_pool = typename count_upstream<Pool>::type;

} // namespace replay
