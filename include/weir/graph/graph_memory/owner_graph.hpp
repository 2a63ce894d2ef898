// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which graph does the memory belong to, and may that graph still use it?
//
// The memory belongs to the first capture that gets some of it, and so to that capture's graph. CUDA tells when the graph is
// over (graph_life.hpp). But if another graph got hold of a block, or CUDA did not say which capture freed it, then nobody
// knows when the last user is over. Only the program does, and says so with 'release'.
//
// invariant: where is_over() is true, no graph will use the memory any more.
// order:     as of graph_life.
// cost:      that of graph_life, once a capture.
// not for:   work outside of graphs: see last_uses.hpp.

#include <weir/base/error.hpp>
#include <weir/order/graph_life.hpp>
#include <weir/runtime/capture.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// One thread at a time.
class owner_graph {
public:
    /// Whether `now` is the capture that the memory belongs to.
    bool is(runtime::capture const& now) const noexcept { return now.id == owner_; }
    /// The same, or it belongs to none and may become that one's.
    bool may_be(runtime::capture const& now) const noexcept { return now.id != 0 && (owner_ == 0 || is(now)); }

    /// Throws usage_error unless it may be `now`'s.
    void require(runtime::capture const& now) const {
        if (now.id == 0)
            throw usage_error("weir: graph memory is for streams that are being captured into a graph; allocate from its pool "
                              "instead, or begin the capture first");
        if (owner_ != 0 && !is(now))
            throw usage_error("weir: this graph memory belongs to another capture; make one for each graph, or call "
                              "'release' or 'try_release' once that graph is gone");
    }

    /// From now on CUDA tells when the graph of `now` is over. Call this before the graph gets any memory. Throws as
    /// graph_life.
    void watch(runtime::capture const& now) {
        if (watched_ == now.id)
            return;
        life_ = order::graph_life(now.graph);
        watched_ = now.id;
    }

    /// The memory belongs to `now` from here on.
    void own(runtime::capture const& now) noexcept { owner_ = now.id; }
    /// Another graph uses some of it as well, and nobody knows until when.
    void note_another() noexcept { another_ = true; }
    /// It belongs to nobody again.
    void forget() noexcept {
        owner_ = 0;
        another_ = false;
    }

    /// Whether it is known that no graph will use the memory any more. Never blocks.
    bool is_over() const noexcept { return !another_ && watched_ == owner_ && life_.is_over(); }

private:
    unsigned long long owner_ = 0;   // the capture that the memory belongs to; 0: none
    unsigned long long watched_ = 0; // the capture whose graph life_ watches
    order::graph_life life_;
    bool another_ = false;
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
