// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a stable container sleep?
//
// Its contents are copied to the host, and its pages become free for others of its page pool. Its addresses stay. To wake, it
// gets pages behind them again: its own if nobody took them, else others or fresh ones. A copy that is kept is good for the
// next sleep as long as it is of the same bytes.
//
// invariant: the copy lives until the contents are back, so a waking that fails can be tried again.
// order:     as sleeper.
// cost:      a page that nobody took comes back without a driver call, another one in 35 to 50 us; and the copies.
// not for:   bytes behind the size, which kernels may have written: they are not saved.

#include <cstddef>
#include <utility>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/text.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/stable/mapped/mapped_span.hpp>
#include <weir/stable/mapped/sleep_record.hpp>
#include <weir/stable/sleep_group/sleeper.hpp>
#include <weir/stable/sleeping_contents.hpp>
#include <weir/supply/saved_contents.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// A vector or buffer of a group.
class container_sleeper final : public sleeper {
public:
    /// Throws usage_error if `joins` is in a group; std::bad_alloc.
    container_sleeper(text const& name, mapped_span& joins) : record_(joins.join(name)) {}
    container_sleeper(container_sleeper const&) = delete;
    container_sleeper& operator=(container_sleeper const&) = delete;
    /// A container that sleeps stays asleep for good.
    ~container_sleeper() override {
        if (!has_ended() && !asleep())
            where().leave();
    }

    bool is(void const* object) const noexcept override { return record_->container == object; }
    bool has_ended() const noexcept override { return !record_->container; }
    bool asleep() const noexcept override { return record_->asleep; }
    std::size_t bytes() const override { return asleep() ? record_->bytes : where().block_.capacity; }

    void prepare_sleep(contents how, pool_ref<memory_space::host> keep) override {
        how_ = how;
        base::range const now = where().contents_range();
        if (how == contents::drop || now.bytes == 0 || (how == contents::constant && kept_ && kept_range_ == now))
            return;
        auto fresh = base::shared<supply::saved_contents>::make(keep, where().device());
        fresh->add(now);
        fresh->save();
        fresh->finish();
        fresh_ = std::move(fresh);
    }
    void undo_sleep() noexcept override { fresh_ = {}; }
    void sleep() noexcept override {
        base::range const now = where().contents_range();
        if (how_ == contents::drop || now.bytes == 0)
            kept_ = {};
        else if (fresh_)
            kept_ = std::move(fresh_);
        fresh_ = {};
        kept_range_ = now;
        where().fall_asleep();
    }

    void get_memory() override { where().get_pages(); }
    void fill() override {
        if (kept_)
            kept_->restore();
    }
    void undo_wake() noexcept override {
        if (!kept_ || kept_->idle()) // else the pages stay for the next try
            where().lose_pages();
    }
    void wake() noexcept override {
        where().wake();
        if (how_ != contents::constant)
            kept_ = {};
    }

private:
    mapped_span& where() const noexcept { return *record_->container; }

    base::shared<sleep_record> record_;
    base::shared<supply::saved_contents> kept_;
    base::range kept_range_; // that is in 'kept_'
    base::shared<supply::saved_contents> fresh_; // while it falls asleep
    contents how_ = contents::save;
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
