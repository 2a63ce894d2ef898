// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a part of the program, such as a training step, show in a recording by its name?
//
//     weir::trace::named_scope const step(tape, "forward");
//
// What the thread allocates while the object lives belongs to the scope. Scopes nest.
//
// order:     scopes of one thread end in the opposite order of their beginnings.
// cost:      two events, and a lock for the name; off: two loads.
// not for:   one peak for each scope: that is in no recording, but can be found in it.

#include <cstdint>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/recorder.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// A scope of the calling thread, in which it begins and ends.
class [[nodiscard]] named_scope {
public:
    /// `to` outlives this object. `name` is copied.
    named_scope(recorder& to, char const* name) noexcept
        : recorder_(to), name_(to.is_on() ? to.names().number_of_scope(name) : 0) {
        if (name_ != 0)
            recorder_.write(of(event_kind::begin_scope));
    }
    named_scope(named_scope const&) = delete;
    named_scope& operator=(named_scope const&) = delete;
    ~named_scope() {
        if (name_ != 0) // it was on when the scope began
            recorder_.write_end(of(event_kind::end_scope));
    }

private:
    event of(event_kind what) const noexcept {
        event one;
        one.kind = what;
        one.site = name_;
        return one;
    }

    recorder& recorder_;
    std::uint32_t const name_;
};

} // namespace trace
} // namespace v0
} // namespace weir
