// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool sleep as a member of a group?
//
// It is suspended and resumed. A pool does each of these whole or not at all, so the steps of a sleeper do it at once, and
// undoing is the opposite. A copy that is kept is good as long as the pool has the same blocks.
//
// invariant: if the opposite fails, too, the pool stays as the step made it: asleep, or awake. Its blocks are well then.
// order:     as the pool's 'suspend' and 'resume'.
// cost:      as theirs; undoing costs the same again.
// not for:   pools that cannot be suspended (see sleep_group.hpp).

#include <cstddef>
#include <weir/base/memory_space.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/stable/sleep_group/sleeper.hpp>
#include <weir/supply/saved_contents.hpp>
#include <weir/stable/sleeping_contents.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// A pool of a group. It must live as long as it is a member. `keep` must outlive the pool's sleep.
template <class Pool>
class pool_sleeper final : public sleeper {
public:
    explicit pool_sleeper(Pool& joins, pool_ref<memory_space::host> keep) noexcept : pool_(joins), keep_(keep) {}

    bool is(void const* object) const noexcept override { return &pool_ == object; }
    bool has_ended() const noexcept override { return false; }
    bool asleep() const noexcept override { return pool_.suspended(); }
    std::size_t bytes() const override { return asleep() ? pool_.suspended_bytes() : pool_.reserved_bytes(); }

    void prepare_sleep(contents how, pool_ref<memory_space::host> keep) override {
        how_ = how;
        keep_ = keep;
        suspend();
    }
    void undo_sleep() noexcept override {
        base::try_twice([&] { return pool_.try_resume(); });
    }
    void sleep() noexcept override {}

    void get_memory() override { pool_.resume(); }
    void fill() override {}
    void undo_wake() noexcept override {
        base::try_twice([&] { return suspend(), true; });
    }
    void wake() noexcept override {}

private:
    void suspend() {
        if (how_ == contents::constant)
            return static_cast<void>(pool_.suspend(keep_, supply::kept_in{kept_}));
        if (how_ == contents::drop)
            pool_.suspend();
        else
            pool_.suspend(keep_);
        kept_ = {};
    }

    Pool& pool_;
    pool_ref<memory_space::host> keep_;
    base::shared<supply::saved_contents> kept_; // of 'constant'; while the pool sleeps, it has this, too
    contents how_ = contents::save;
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
