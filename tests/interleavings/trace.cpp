// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Small programs over what others read while it is written: figures that belong together, and the ring of events.

#include "explore.hpp"

#include <cstdint>
#include <weir/trace/event_ring.hpp>
#include <weir/trace/watch_board/sequenced.hpp>

using interleavings::explore;
using interleavings::plan;
using interleavings::require;
using interleavings::threads;

namespace {

struct pair {
    std::uint64_t first = 0, second = 0;
};

} // namespace

TEST_CASE("interleavings: sequenced: what is read was written at once, and does not go back") {
    explore([] {
        weir::trace::detail::sequenced<pair> figures;
        std::uint64_t seen = 0;
        threads(
            [&] {
                for (std::uint64_t i : {1u, 2u})
                    figures.write({i, 10 * i});
            },
            [&] {
                for (int i = 0; i < 2; ++i)
                    if (pair now; figures.read(now)) {
                        require(now.second == 10 * now.first, "figures of two writes");
                        require(now.first >= seen, "an earlier write is read after a later one");
                        seen = now.first;
                    }
            });
        pair last;
        require(figures.read(last) && last.first == 2, "what was written last is not read");
    });
}

TEST_CASE("interleavings: event_ring: a drain has what was written before, also while a refusal looks at it") {
    weir::trace::event one;
    one.kind = weir::trace::event_kind::allocate;
    plan little;
    little.preemptions = 1; // both lock every lane
    little.random = 2000;
    explore(
        [&] {
            weir::trace::event_ring ring(1, weir::trace::clock(false));
            ring.write(one);
            std::size_t drained = 0;
            threads([&] { ring.visit([](weir::trace::event const&) {}); },
                    [&] { ring.drain([&](weir::trace::event*, std::size_t count) { drained += count; }); });
            require(drained == 1, "an event stayed behind");
        },
        little);
}
