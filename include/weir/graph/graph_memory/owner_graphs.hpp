// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which graphs does the memory belong to, and may one of them still use it?
//
// The memory belongs to the first capture that gets some of it, and so to that capture's graph, or to the graphs of all
// captures that joined. CUDA tells when a graph is over (graph_life.hpp). But if another graph got hold of a block, or CUDA did
// not say which capture freed it, then nobody knows when the last user is over. Only the program does, and says so with
// 'release'.
//
// invariant: where are_over() is true, no graph will use the memory any more. One capture at a time takes blocks.
// order:     as of graph_life.
// cost:      that of graph_life, once a capture.
// not for:   work outside of graphs: see last_uses.hpp.

#include <cstddef>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/order/graph_life.hpp>
#include <weir/runtime/capture.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// One thread at a time.
class owner_graphs {
public:
    /// Whether `now` is the capture that may take blocks.
    bool is(runtime::capture const& now) const noexcept { return now.id == owner_; }
    /// The same, or it belongs to none and may become that one's.
    bool may_be(runtime::capture const& now) const noexcept { return now.id != 0 && (owner_ == 0 || is(now)); }
    /// Whether `now` is one of the captures that joined.
    bool has(runtime::capture const& now) const noexcept {
        for (watched const& each : watched_)
            if (each.id == now.id)
                return true;
        return false;
    }

    /// Throws usage_error unless it may be `now`'s.
    void require(runtime::capture const& now) const {
        if (now.id == 0)
            throw usage_error("weir: graph memory is for streams that are being captured into a graph; allocate from its pool "
                              "instead, or begin the capture first");
        if (owner_ != 0 && !is(now))
            throw usage_error("weir: this graph memory belongs to another capture; make one for each graph, name graphs that "
                              "never run at the same time with 'share', or call 'release' or 'try_release' once that graph is "
                              "gone");
    }

    /// From now on CUDA tells when the graph of `now`, the only owner, is over. Call this before the graph gets any memory.
    /// Throws as graph_life.
    void watch(runtime::capture const& now) {
        if (has(now))
            return;
        watched_.reserve_more(1);
        order::graph_life life(now.graph);
        watched_.clear();
        watched_.push_back({now.id, std::move(life)});
    }

    /// The memory belongs to `now` from here on.
    void own(runtime::capture const& now) noexcept { owner_ = now.id; }

    /// It belongs to `now` as well, and from here on `now` takes blocks. Throws as graph_life, before any change.
    void join(runtime::capture const& now) {
        watched_.reserve_more(1);
        order::graph_life life(now.graph);
        for (std::size_t i = watched_.size(); i-- > 0;)
            if (watched_[i].life.is_over())
                watched_.erase(&watched_[i]);
        watched_.push_back({now.id, std::move(life)});
        own(now);
    }

    /// Another graph uses some of it as well, and nobody knows until when.
    void note_another() noexcept { another_ = true; }
    /// Whether there is such a graph.
    bool have_another() const noexcept { return another_; }
    /// It belongs to nobody again.
    void forget() noexcept {
        owner_ = 0;
        another_ = false;
    }

    /// Whether it is known that no graph will use the memory any more. Never blocks.
    bool are_over() const noexcept {
        for (watched const& each : watched_)
            if (!each.life.is_over())
                return false;
        return !another_ && (owner_ == 0 || has(runtime::capture{owner_, nullptr})); // where it failed, nobody watches
    }

private:
    struct watched {
        unsigned long long id = 0; // of its capture
        order::graph_life life;
    };

    unsigned long long owner_ = 0; // the capture that takes blocks; 0: none
    base::growing_array<watched> watched_;
    bool another_ = false;
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
