// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is known to have happened before a point of a stream or of the host?
//
// A vector clock (Fidge 1988, Mattern 1989): for every stream the number of its operations that are over
// before this point, and the host's count of its own steps as component 0. An operation with number n of
// stream s happened before a point whose clock says at least n for s.
//
// invariant: components are sorted by stream; a missing one is zero.
// cost:      linear in the streams that were met; streams that are destroyed and waited for are pruned.
// not for:   ordering among host threads: the host is one component, as its calls come one at a time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace simulated_device::inside {

class vector_clock {
public:
    std::uint64_t of(std::size_t component) const {
        auto const at = find(component);
        return at != parts_.end() && at->first == component ? at->second : 0;
    }

    void raise(std::size_t component, std::uint64_t value) {
        auto const at = parts_.begin() + (find(component) - parts_.cbegin());
        if (at == parts_.end() || at->first != component)
            parts_.insert(at, {component, value});
        else if (at->second < value)
            at->second = value;
    }

    void join(vector_clock const& other) {
        std::size_t mine = 0;
        for (auto const& [component, value] : other.parts_) {
            while (mine < parts_.size() && parts_[mine].first < component)
                ++mine;
            if (mine == parts_.size() || parts_[mine].first != component)
                parts_.insert(parts_.begin() + static_cast<std::ptrdiff_t>(mine), {component, value});
            else if (parts_[mine].second < value)
                parts_[mine].second = value;
        }
    }

    /// Drops the components for which 'retired' says yes.
    template <class Retired>
    void prune(Retired const& retired) {
        parts_.erase(std::remove_if(parts_.begin(), parts_.end(),
                                    [&](auto const& part) { return retired(part.first); }),
                     parts_.end());
    }

    std::size_t size() const { return parts_.size(); }

private:
    using parts = std::vector<std::pair<std::size_t, std::uint64_t>>;

    parts::const_iterator find(std::size_t component) const {
        return std::lower_bound(parts_.begin(), parts_.end(), component,
                                [](auto const& part, std::size_t key) { return part.first < key; });
    }

    parts parts_;
};

} // namespace simulated_device::inside
