// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which part of a device's memory has a name, and sleeps by it?
//
// What a thread allocates within 'with weir_torch.tag("cache"):' comes from a pool of the tag's own, so that no page has blocks of
// two tags. On each device the pool is made at the tag's first block. All tags and the ordinary pool have one limit
// (shared_limit.hpp). The pools of a device are a sleep_group, in which each has its tag's name.
//
// invariant: a tag has one number in the process, and one pool a device, which never ends.
// cost:      without tags one relaxed load an allocation; with them a thread's variable more.
// not for:   what a CUDA graph or a MemPool allocates: that is the private pool's, whatever the tag.

#include "watched_memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/stable/sleep_group.hpp>
#include <weir/weir.hpp>

namespace weir_plugin {

/// What suspended pools keep their contents in: pinned_pool, whose pages more threads touch, as a sleep waits for them. It never
/// ends, as they do not.
inline weir::recipes::pinned::parts& pinned() {
    static auto* const made = [] {
        unsigned const threads = std::clamp(std::thread::hardware_concurrency(), 4u, 16u);
        return new weir::recipes::pinned::parts(weir::upstream::registered_host{}.threads(threads),
                                                weir::pool_options{}.name("suspended"));
    }();
    return *made;
}

/// A tag's number; 0 is the ordinary pool's, which has no name.
using tag_number = unsigned;
constexpr tag_number most_tags = 64;

/// The tags of the process. Any thread may call any member.
class tag_names {
public:
    /// The number of the tag, which is made if need be. Throws weir::usage_error if there are too many.
    tag_number number(std::string const& name) {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (tag_number const known = find(name))
            return known;
        if (names_.size() + 1 == most_tags)
            throw weir::usage_error(("weir: there are " + std::to_string(names_.size()) +
                                     " tags already, and each has pools of its own; use one of them for '" + name + "', too")
                                        .c_str());
        names_.push_back(name);
        count_.store(static_cast<tag_number>(names_.size()), std::memory_order_release);
        return count();
    }
    /// The number of a tag that is there. Throws weir::usage_error.
    tag_number known(std::string const& name) const {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (tag_number const found = find(name))
            return found;
        std::string all;
        for (std::string const& each : names_)
            all += (all.empty() ? "there are '" : ", '") + each + "'";
        throw weir::usage_error(("weir: there is no tag '" + name + "'; " +
                                 (all.empty() ? "'with weir_torch.tag(...):' makes one, and there is none" : all))
                                    .c_str());
    }
    std::string name(tag_number of) const {
        std::lock_guard<std::mutex> const lock(mutex_);
        return names_[of - 1];
    }
    /// How many there are: they have the numbers 1 to count().
    tag_number count() const noexcept { return count_.load(std::memory_order_acquire); }

    /// How many threads allocate for the tag now.
    std::atomic<int>& users(tag_number of) noexcept { return users_[of]; }

private:
    tag_number find(std::string const& name) const noexcept {
        for (std::size_t i = 0; i < names_.size(); ++i)
            if (names_[i] == name)
                return static_cast<tag_number>(i + 1);
        return 0;
    }

    mutable std::mutex mutex_; // guards the names
    std::vector<std::string> names_;
    std::atomic<tag_number> count_{0};
    std::array<std::atomic<int>, most_tags> users_{};
};
inline tag_names& tags() {
    static auto* const made = new tag_names();
    return *made;
}

/// The tag that the calling thread allocates for.
inline tag_number& tag_of_thread() noexcept {
    thread_local tag_number now = 0;
    return now;
}

/// A tag's memory on one device.
template <class Pool>
struct tagged_memory {
    tagged_memory(int device, shared_limit& of, weir::pool_options const& options)
        : memory(device, of), pool(memory, options) {}

    watched_memory memory;
    Pool pool;
};

/// The tags' pools of one device.
template <class Pool>
class tagged_pools {
public:
    /// A tag's pool; null: it has no block here yet. Any thread.
    tagged_memory<Pool>* find(tag_number of) const noexcept { return all_[of].load(std::memory_order_acquire); }
    /// Keeps a new one. One thread at a time. Throws std::bad_alloc.
    tagged_memory<Pool>& add(tag_number of, std::unique_ptr<tagged_memory<Pool>> fresh) {
        asleep([&](weir::stable::sleep_group& group) { group.join(tags().name(of).c_str(), fresh->pool); });
        all_[of].store(fresh.get(), std::memory_order_release);
        return *fresh.release();
    }
    /// act(tag, its memory) for each. Any thread.
    template <class Act>
    void visit(Act const& act) const {
        for (tag_number each = 1; each <= tags().count(); ++each)
            if (auto* const own = find(each))
                act(each, *own);
    }
    /// act(the sleep_group), one thread at a time.
    template <class Act>
    auto asleep(Act const& act) {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (!group_)
            group_.emplace(pinned());
        return act(*group_);
    }

private:
    std::array<std::atomic<tagged_memory<Pool>*>, most_tags> all_{};
    std::mutex mutex_; // guards the group
    std::optional<weir::stable::sleep_group> group_;
};

} // namespace weir_plugin
