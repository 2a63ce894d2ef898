// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Whose memory is meant: which group does a capture, a block or an id belong to?
//
// The one graph without an id has a group of its own, which is always there. Each id has another from its first 'share' until
// all of its graphs are gone. Captures that joined a group stay known as its own until their graphs are over.
//
// invariant: no block lies in two groups. One capture takes blocks from one group.
// cost:      O(groups), which are few, and of each O(chunks) for a block.
// not for:   what a group does with its memory: see memory_group.hpp.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/shared.hpp>
#include <weir/graph/graph_memory/memory_group.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace graph::detail {

/// One thread at a time.
template <class Placement>
class memory_groups {
public:
    using group = memory_group<Placement>;

    /// Of a pool on `device`. Throws std::bad_alloc.
    explicit memory_groups(int device) : alone_(device, 0) {}

    /// Calls visit(group) for each.
    template <class Visit>
    void visit(Visit const& visit) {
        visit(alone_);
        for (base::shared<group>& each : shared_)
            visit(*each);
    }
    template <class Visit>
    void visit(Visit const& visit) const {
        visit(alone_);
        for (base::shared<group> const& each : shared_)
            visit(static_cast<group const&>(*each));
    }

    /// That of the graph without an id.
    group& alone() noexcept { return alone_; }
    /// That of the id `id`; null if there is none.
    group* find(std::uint64_t id) noexcept {
        for (base::shared<group> const& each : shared_)
            if (each->id() == id)
                return &*each;
        return nullptr;
    }
    /// The first group of an id for which pick(group) is true; null if there is none.
    template <class Pick>
    group* find_if(Pick const& pick) noexcept {
        for (base::shared<group> const& each : shared_)
            if (pick(*each))
                return &*each;
        return nullptr;
    }

    /// The group that the capture `now` takes blocks from. Throws usage_error if another capture came after it.
    group& of(runtime::capture const& now) {
        if (group* const own = find_if([&](group const& each) { return now.id != 0 && each.owners().is(now); }))
            return *own;
        if (find_if([&](group const& each) { return each.owners().has(now); }))
            throw usage_error("weir: another graph shares this one's memory since; capture such graphs one after another");
        return alone_;
    }
    /// The group that keeps what `stream` frees of the pool's. Never blocks.
    group& freeing(stream_ref stream) noexcept {
        if (shared_.empty())
            return alone_;
        runtime::capture const now = runtime::capture_if_known(stream);
        group* const own = find_if([&](group const& each) { return now.id != 0 && each.owners().has(now); });
        return own ? *own : alone_;
    }

    /// The graph of `now` shares the memory of the id `id` from here on. See memory_group::join.
    waits join(runtime::capture const& now, std::uint64_t id, int device) {
        if (group* const known = find(id))
            return known->join(now);
        shared_.reserve_more(1);
        auto fresh = base::shared<group>::make(device, id);
        waits before = fresh->join(now); // nothing was used yet
        shared_.push_back(std::move(fresh));
        return before;
    }
    /// Forgets a group of an id, which holds nothing any more.
    void erase(group& gone) noexcept {
        for (base::shared<group>& each : shared_)
            if (&*each == &gone)
                return static_cast<void>(shared_.erase(&each));
    }

private:
    group alone_;
    base::growing_array<base::shared<group>> shared_;
};

} // namespace graph::detail
} // namespace v0
} // namespace weir
