// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pools does the campaign drive?
//
// Every stream-ordered recipe, and combinations that make the ladder's rungs be climbed often: a tuning under which
// a stream records an event after two frees, both handovers, one-part placements; a machine that maps no memory; the
// driver's pool, whose blocks the simulated device knows by itself. A pool is driven through one face, so that the
// program which drives it is compiled once.

#include <atomic>
#include <cstddef>
#include <memory>
#include <support/growth_numbers.hpp>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/driver/driver_pool.hpp>
#include <weir/growth/exact.hpp>
#include <weir/recipes.hpp>

namespace simulation {

/// A pool as the program sees it.
class pool_face {
public:
    virtual ~pool_face() = default;
    virtual void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment) = 0;
    virtual void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) = 0;
    virtual void used_on(void* p, weir::stream_ref stream) = 0;
    virtual void last_used_on(void* p, weir::stream_ref stream) = 0;
    virtual std::size_t trim(std::size_t keep_bytes) = 0;
    virtual void settle() = 0;
    virtual bool can_suspend() const = 0;
    /// `keep`: where to save what blocks hold; null: nowhere.
    virtual void suspend(weir::pinned_pool* keep) = 0;
    virtual void resume() = 0;
    virtual bool owns(void const* p) = 0;
    virtual int device() const = 0;
    virtual weir::memory_report state() = 0;
    /// What the pool counts for a block.
    virtual std::size_t rounded(std::size_t bytes, std::size_t alignment) const = 0;
    virtual std::size_t largest_alignment() const { return static_cast<std::size_t>(-1); }
    /// Whether it divides chunks, and the program must tell the device of its blocks, which CUDA does not know.
    virtual bool divides() const { return true; }
    /// Sentences of layer::guard so far.
    virtual unsigned violations() const = 0;
};

inline std::atomic<unsigned>& violation_count() {
    static std::atomic<unsigned> count{0};
    return count;
}

template <class Pool, class Placement>
class pool_of final : public pool_face {
public:
    explicit pool_of(std::size_t limit)
        : pool_(weir::pool_options{}.limit(limit).name("simulated").on_leak(weir::leak_action::ignore)) {
        violation_count() = 0;
        if constexpr (is_guarded<Pool>::value)
            pool_.on_violation([](char const*) { ++violation_count(); });
    }
    void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment) override {
        return pool_.try_allocate(stream, bytes, alignment);
    }
    void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) override {
        pool_.deallocate(stream, p, bytes, alignment);
    }
    void used_on(void* p, weir::stream_ref stream) override { pool_.used_on(p, stream); }
    void last_used_on(void* p, weir::stream_ref stream) override { pool_.last_used_on(p, stream); }
    std::size_t trim(std::size_t keep_bytes) override { return pool_.trim(keep_bytes); }
    void settle() override { pool_.settle(); }
    bool can_suspend() const override { return suspends<Pool>::value; }
    void suspend(weir::pinned_pool* keep) override {
        if constexpr (suspends<Pool>::value)
            keep ? pool_.suspend(*keep) : pool_.suspend();
    }
    void resume() override {
        if constexpr (suspends<Pool>::value)
            pool_.resume();
    }
    bool owns(void const* p) override { return pool_.owns(p); }
    int device() const override { return pool_.device(); }
    weir::memory_report state() override { return pool_.state(); }
    std::size_t rounded(std::size_t bytes, std::size_t alignment) const override {
        return Placement::rounded(bytes, alignment);
    }
    unsigned violations() const override { return violation_count(); }

private:
    template <class P>
    struct is_guarded : std::false_type {};
    template <class P>
    struct is_guarded<weir::layer::guard<P>> : std::true_type {};

    template <class P, class = void>
    struct suspends : std::false_type {};
    template <class P>
    struct suspends<P, std::void_t<decltype(std::declval<P&>().suspend())>> : std::true_type {};

    Pool pool_;
};

/// CUDA counts what is in use at its own times and in its own units, and says of no address whose it is.
class driver_pool_face final : public pool_face {
public:
    explicit driver_pool_face(weir::driver_pool_options options) : pool_(std::move(options)) {}
    void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment) override {
        return pool_.try_allocate(stream, bytes, alignment);
    }
    void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) override {
        pool_.deallocate(stream, p, bytes, alignment);
    }
    void used_on(void* p, weir::stream_ref stream) override { pool_.used_on(p, stream); }
    void last_used_on(void* p, weir::stream_ref stream) override { pool_.last_used_on(p, stream); }
    std::size_t trim(std::size_t keep_bytes) override { return pool_.trim(keep_bytes); }
    void settle() override { pool_.settle(); }
    bool can_suspend() const override { return false; }
    void suspend(weir::pinned_pool*) override {}
    void resume() override {}
    bool owns(void const*) override { return true; }
    int device() const override { return pool_.device(); }
    weir::memory_report state() override {
        for (int tries = 0; tries < 64; ++tries) // it asks CUDA, whose calls fail once
            try {
                return pool_.state();
            } catch (weir::cuda_error const&) {
            }
        return pool_.state();
    }
    std::size_t rounded(std::size_t bytes, std::size_t) const override { return bytes; }
    std::size_t largest_alignment() const override { return weir::driver_pool::default_alignment; }
    bool divides() const override { return false; }
    unsigned violations() const override { return 0; }

private:
    weir::driver_pool pool_;
};

/// A pool to drive, and what it asks of its users and of the machine.
struct contestant {
    char const* name;
    bool asks; ///< else it is identity::promised: streams end as the promise allows, and nothing of theirs is captured
    std::unique_ptr<pool_face> (*make)(std::size_t limit);
    bool maps = true; ///< whether the device can map memory
};

template <class Pool, class Placement = weir::recipes::general_placement>
std::unique_ptr<pool_face> make(std::size_t limit) {
    return std::make_unique<pool_of<Pool, Placement>>(limit);
}

inline std::unique_ptr<pool_face> make_driver_pool(std::size_t limit) {
    weir::driver_pool_options options;
    options.name("simulated");
    options.on_leak(weir::leak_action::ignore);
    options.limit(limit == static_cast<std::size_t>(-1) ? 0 : limit);
    return std::make_unique<driver_pool_face>(options);
}

/// Events at nearly every free: the upper rungs find something.
struct hasty : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 2;
    static constexpr std::size_t recent_bytes = 64 * weir::KiB;
    static constexpr std::size_t aside_bytes = 64 * weir::KiB;
};

using weir::identity::checked;
using weir::identity::promised;
using weir::reuse::stream_ordered;
template <class Upstream, class Reuse, class Placement = weir::recipes::general_placement,
          class Growth = weir::growth::geometric<>>
using plain = weir::pool<Upstream, Placement, Reuse, Growth>;
using device_memory = weir::upstream::device;
using mapped_memory = weir::upstream::virtual_memory<>;
using pages = support::paged_of<512, 2 * weir::MiB, 64 * weir::MiB>;
using one_size_of_chunk = weir::growth::fixed<2 * weir::MiB>;
using fits_alone = weir::placement::best_fit<>;

inline std::vector<contestant> const& contestants() {
    static std::vector<contestant> const all{
        {"device_pool", true, &make<weir::device_pool>},
        {"compact_device_pool", true, &make<weir::compact_device_pool>},
        {"promised_device_pool", false, &make<weir::promised_device_pool>},
        {"managed_pool", true, &make<weir::managed_pool>},
        {"pinned_pool", true, &make<weir::pinned_pool>},
        {"after_event", true, &make<plain<device_memory, weir::reuse::after_event>>},
        {"hasty", true,
         &make<plain<device_memory, stream_ordered<checked, weir::handover::grow_first, hasty>,
                     weir::recipes::general_placement, one_size_of_chunk>>},
        {"hasty_compact", true,
         &make<plain<device_memory, stream_ordered<checked, weir::handover::wait_first, hasty>,
                     weir::recipes::general_placement, one_size_of_chunk>>},
        {"hasty_promised_compact", false,
         &make<plain<device_memory, stream_ordered<promised, weir::handover::wait_first, hasty>,
                     weir::recipes::general_placement, weir::growth::exact>>},
        {"hasty_pages", true,
         &make<plain<mapped_memory, stream_ordered<checked, weir::handover::grow_first, hasty>,
                     weir::recipes::general_placement, pages>>},
        {"hasty_fits", true,
         &make<plain<device_memory, stream_ordered<checked, weir::handover::grow_first, hasty>, fits_alone>,
               fits_alone>},
        {"unmapped_device_pool", true, &make<weir::device_pool>, false},
        {"driver_pool", true, &make_driver_pool},
    };
    return all;
}

} // namespace simulation
