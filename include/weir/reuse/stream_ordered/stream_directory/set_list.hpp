// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which sets of free bytes are there, in which order does a search visit them, and which one can a new stream take over?
//
// The list holds the host's set, a set for each stream, and behind some of these their older generation
// (older_generation.hpp). Sets are added and never removed, so anyone may walk the list without a lock.
//
// A set whose bytes no work uses can serve another stream, which then gets those bytes too. First in line are retired sets,
// whose streams are gone, then the set of the default stream that has not come here for longest, since its thread may have
// ended. Such a thread leaves its open bytes behind. If no set is wholly at rest, one counts too that would be without these
// and whose stream has not come while many others did.
//
// invariant: the newest set comes first and the host's last. An older generation comes after its stream's set.
// cost:      looking for a set to take over asks each set. After it was in vain, the number of sets must double first.
// not for:   finding a stream's set: that is stream_directory.hpp.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/reuse/stream_ordered/default_streams.hpp>

namespace weir {
inline namespace v0 {
namespace reuse::detail {

/// `Set`: a stream_set. Any thread may visit the sets at any time; one at a time may call the other members.
template <class Set>
class set_list {
    using locked = base::locked<Set>;

public:
    /// A place in the list, for a range-based 'for'.
    class place {
    public:
        explicit place(Set* at) noexcept : at_(at) {}
        Set& operator*() const noexcept { return *at_; }
        place& operator++() noexcept {
            at_ = at_->next.load(base::memory_order_acquire);
            return *this;
        }
        friend bool operator!=(place a, place b) noexcept { return a.at_ != b.at_; }

    private:
        Set* at_;
    };

    /// Begins with the host's set, which it takes over.
    explicit set_list(Set* host) noexcept : first_(host), host_(host) {}
    set_list(set_list const&) = delete;
    set_list& operator=(set_list const&) = delete;
    ~set_list() {
        for (Set* each = first_.load(base::memory_order_relaxed); each;)
            delete std::exchange(each, each->next.load(base::memory_order_relaxed));
    }

    place begin() const noexcept { return place(first_.load(base::memory_order_acquire)); }
    place end() const noexcept { return place(nullptr); }
    Set& host() const noexcept { return *host_; }

    /// Adds a set, which it takes over, at the front.
    void add(Set* fresh) noexcept {
        fresh->next.store(first_.load(base::memory_order_relaxed), base::memory_order_relaxed);
        first_.store(fresh, base::memory_order_release);
        ++count_;
    }
    /// Adds a set, which it takes over, right behind `owner`.
    void add_behind(Set& owner, Set* fresh) noexcept {
        fresh->next.store(owner.next.load(base::memory_order_relaxed), base::memory_order_relaxed);
        owner.next.store(fresh, base::memory_order_release);
    }

    /// Whether there are so many sets that it is time to look for one to take over.
    bool is_long() const noexcept { return count_ >= look_for_spare_at_; }
    /// A set that another stream can take over, once its open bytes are gone from it; null if there is none. That was so a
    /// moment ago, so ask again under its lock. `newcomers`: how many streams came here so far. Throws cuda_error.
    Set* find_spare(std::uint64_t newcomers) {
        Set* spare = first_in_line([](Set&) { return true; });
        if (spare && !locked(*spare)->is_at_rest())
            spare = first_in_line([](Set& each) { return locked(each)->is_at_rest(); });
        if (!spare)
            spare = first_in_line([&](Set& each) {
                return each.came_at.load(base::memory_order_relaxed) + count_ / 2 <= newcomers &&
                       locked(each)->rests_without_open();
            });
        if (!spare)
            look_for_spare_at_ = 2 * count_;
        return spare;
    }

private:
    // The first of the sets of which `serves(set)` is true.
    template <class Serves>
    Set* first_in_line(Serves const& serves) const {
        Set* best = nullptr;
        for (Set& each : *this) {
            if (best && best->key.load(base::memory_order_relaxed) == 0)
                break;
            std::uint64_t const key = each.key.load(base::memory_order_relaxed);
            std::uint64_t const came_at = each.came_at.load(base::memory_order_relaxed);
            bool const is_first = !best || key == 0 || came_at < best->came_at.load(base::memory_order_relaxed);
            if (&each != host_ && !each.is_older && (key == 0 || is_default_key(key)) && is_first && serves(each))
                best = &each;
        }
        return best;
    }

    base::atomic<Set*> first_;
    Set* const host_;
    std::size_t count_ = 1; // without older generations
    std::size_t look_for_spare_at_ = 16; // sets
};

} // namespace reuse::detail
} // namespace v0
} // namespace weir
