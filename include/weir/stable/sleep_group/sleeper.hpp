// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a sleep_group ask of its members, whatever they are?
//
// Members of one name fall asleep together or not at all, and wake so. Therefore each of the two is done in steps: the first
// ones may fail and are undone then, by all members that had done them; the last one cannot fail.
//
// invariant: a step that throws has changed nothing of its member.
// order:     one thread at a time. Before 'prepare_sleep' the group has waited until no work uses any member.
// cost:      a virtual call a step.
// not for:   which members share a name: that is the group's.

#include <cstddef>
#include <weir/base/memory_space.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/stable/sleeping_contents.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// A member of a group. One thread at a time.
class sleeper {
public:
    sleeper() = default;
    sleeper(sleeper const&) = delete;
    sleeper& operator=(sleeper const&) = delete;
    virtual ~sleeper() = default;

    /// Whether this is what `object` stands for.
    virtual bool is(void const* object) const noexcept = 0;
    /// Whether the member has ended.
    virtual bool has_ended() const noexcept = 0;
    virtual bool asleep() const noexcept = 0;
    /// The bytes that it holds, or that it will get as it wakes.
    virtual std::size_t bytes() const = 0;

    /// Saves the contents to `keep`. Throws what its 'allocate' throws, cuda_error, std::bad_alloc.
    virtual void prepare_sleep(contents how, pool_ref<memory_space::host> keep) = 0;
    virtual void undo_sleep() noexcept = 0;
    virtual void sleep() noexcept = 0;

    /// Gets memory. Throws out_of_memory, cuda_error, std::bad_alloc.
    virtual void get_memory() = 0;
    /// Copies the contents back, after 'get_memory'. Throws cuda_error.
    virtual void fill() = 0;
    virtual void undo_wake() noexcept = 0;
    virtual void wake() noexcept = 0;
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
