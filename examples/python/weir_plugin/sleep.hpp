// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a device get its memory for a while, all of it or a tag's?
//
// invariant: a tag that cannot wake stays asleep as it was.
// order:     as the pools' 'suspend' and 'resume': both wait for all work, and nobody uses the memory in between.

#include "devices.hpp"

#include <cstddef>
#include <string>
#include <weir/base/error.hpp>
#include <weir/stable/sleeping_contents.hpp>

namespace weir_plugin {

/// Whether the tag sleeps on a device.
inline bool sleeps(tag_number tag, int device) {
    device_memory* const own = existing(device);
    auto* const its = own ? own->tags.find(tag) : nullptr;
    return its && its->pool.suspended();
}
inline void require_unused(tag_number tag) {
    if (tags().users(tag).load() != 0)
        throw weir::usage_error(("weir: tag '" + tags().name(tag) +
                                 "' is in use: leave every 'with' block of it first, on all threads")
                                    .c_str());
}

/// The tag's memory goes to the device. Returns how much; 0: it has none here. Throws weir::usage_error if it is in use or
/// sleeps, and what the host's memory throws.
inline std::size_t suspend_tag(device_memory& own, tag_number tag, weir::stable::contents how) {
    require_unused(tag);
    if (!own.tags.find(tag))
        return 0;
    if (sleeps(tag, own.memory.device_number()))
        throw weir::usage_error(("weir: tag '" + tags().name(tag) + "' sleeps already; weir_torch.resume('" + tags().name(tag) +
                                 "') wakes it")
                                    .c_str());
    std::size_t const given = own.tags.asleep(
        [&](weir::stable::sleep_group& group) { return group.suspend(tags().name(tag).c_str(), how); });
    tape().note(event_kind::suspend, own.memory.device_number(), {0, given});
    return given;
}

/// The opposite; nothing if it does not sleep. Throws weir::usage_error if there is no room, also after the other pools gave
/// their free memory back.
inline void resume_tag(device_memory& own, tag_number tag) {
    if (!sleeps(tag, own.memory.device_number()))
        return;
    auto const wake = [&] {
        return own.tags.asleep(
            [&](weir::stable::sleep_group& group) { return group.try_resume(tags().name(tag).c_str()); });
    };
    if (!wake() && !(make_room(own, tag) && wake()))
        throw weir::usage_error(
            ("weir: there is no room for tag '" + tags().name(tag) + "' to wake: it needs ").c_str() +
            weir::base::bytes_text(own.tags.find(tag)->pool.suspended_bytes()) + ", the limit leaves " +
            weir::base::bytes_text(own.limit.room()) + " and the device has " +
            weir::base::bytes_text(weir::runtime::device_free_bytes(own.memory.device_number())) +
            " free; nothing has changed: suspend another tag or free tensors, and call it again");
    tape().note(event_kind::resume, own.memory.device_number());
}

/// All memory of a device: the ordinary pool's and that of the tags that are awake. Returns what went back.
inline std::size_t suspend_all(device_memory& own, bool keep) {
    own.tags.visit([](tag_number tag, auto const&) { require_unused(tag); });
    std::size_t given = keep ? own.pool.suspend(pinned()) : own.pool.suspend();
    tape().note(event_kind::suspend, own.memory.device_number(), {0, given});
    try {
        own.tags.visit([&](tag_number tag, auto const& its) {
            if (!its.pool.suspended())
                given += suspend_tag(own, tag, keep ? weir::stable::contents::save : weir::stable::contents::drop);
        });
    } catch (...) {
        weir::base::try_twice([&] { return own.pool.try_resume(); });
        throw;
    }
    return given;
}
/// Wakes all. What finds no room sleeps on, and the call can be made again.
inline void resume_all(device_memory& own) {
    if (!own.pool.try_resume() && make_room(own, 0))
        static_cast<void>(own.pool.try_resume());
    own.pool.resume(); // says what is missing
    tape().note(event_kind::resume, own.memory.device_number());
    own.tags.visit([&](tag_number tag, auto const&) { resume_tag(own, tag); });
}

/// Host memory that no contents need goes back.
inline void give_host_memory_back() {
    pinned().settle();
    pinned().trim();
}

} // namespace weir_plugin
