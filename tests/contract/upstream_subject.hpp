// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How the upstream contract makes an upstream. One that is not made from nothing has a specialisation of 'subject' in the file
// that lists it. The cases are in upstream_suite.hpp.

namespace upstream_contract {

/// Makes an upstream, and holds what it lives on.
template <class Upstream>
struct subject {
    Upstream upstream;
};

} // namespace upstream_contract
