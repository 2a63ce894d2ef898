// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do weir's pools come to be counted?
//
// An upstream is anything with 'acquire', 'release', 'alignment' and 'space'. 'counted' is one that passes on
// what another answers and enters it in a ledger. 'count_upstream' takes a finished pool type apart and puts
// it together again over a counted upstream: what is measured is the recipe as it ships, with all its other
// parts. What it holds is counted here; how often it calls the driver, where it does (counted_driver.hpp).

#include "ledger.hpp"
#include <type_traits>
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
        if (chunk)
            book_->got(bytes);
        return chunk;
    }

    auto release(void* chunk, std::size_t bytes) noexcept {
        book_->lost(bytes);
        return Upstream::release(chunk, bytes);
    }

protected:
    ledger* book_;
};

/// The same of an upstream that grows in place, where memory comes in pieces.
template <class Upstream>
class counted_in_place : public counted<Upstream> {
public:
    using counted<Upstream>::counted;
    using counted<Upstream>::acquire;

    void* acquire(std::size_t bytes, std::size_t piece_bytes) {
        void* const chunks = Upstream::acquire(bytes, piece_bytes);
        if (chunks)
            got(bytes, piece_bytes);
        return chunks;
    }
    bool extend(void* end, std::size_t bytes, std::size_t piece_bytes) {
        bool const extended = Upstream::extend(end, bytes, piece_bytes);
        if (extended)
            got(bytes, piece_bytes);
        return extended;
    }

private:
    void got(std::size_t bytes, std::size_t piece_bytes) noexcept {
        for (std::size_t at = 0; at < bytes; at += piece_bytes)
            this->book_->got(bytes - at < piece_bytes ? bytes - at : piece_bytes);
    }
};

template <class Upstream>
using counted_upstream = std::conditional_t<weir::contract::holds<weir::contract::has_extends, Upstream>,
                                            counted_in_place<Upstream>, counted<Upstream>>;

template <class Pool>
struct count_upstream;

template <class Upstream, class Placement, class Reuse, class Growth>
struct count_upstream<weir::pool<Upstream, Placement, Reuse, Growth>> {
    using upstream = counted_upstream<Upstream>;
    using type = weir::pool<upstream, Placement, Reuse, Growth>;
};

template <template <class> class Layer, class Pool>
struct count_upstream<Layer<Pool>> {
    using upstream = typename count_upstream<Pool>::upstream;
    using type = Layer<typename count_upstream<Pool>::type>;
};

template <class Recipe, bool Guarded>
struct count_upstream<weir::recipes::pool_of<Recipe, Guarded>>
    : count_upstream<typename weir::recipes::pool_of<Recipe, Guarded>::parts> {};

/// `Pool` over a counted upstream; layers around it stay.
template <class Pool>
using counted_pool = typename count_upstream<Pool>::type;

} // namespace replay
