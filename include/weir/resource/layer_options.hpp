// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a layer get a name?
//
// As a pool does, by options that are set in a chain: layer_options{}.name("tenant a"). They come first of what a layer is made
// from. A layer without them has the name of the pool below.
//
// cost:      a text, copied once.
// not for:   what the pool below is made from: see pool_options.

#include <utility>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {

/// What a layer is told when it is made: its name.
class layer_options {
public:
    /// The layer's name in reports and errors.
    layer_options& name(text name) {
        name_ = std::move(name);
        return *this;
    }
    text const& name() const noexcept { return name_; }

private:
    text name_; // empty: the name of the pool below
};

} // namespace v0
} // namespace weir
