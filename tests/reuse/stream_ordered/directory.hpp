// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A directory of stream sets without a pool, by either identity, for the tests of what it is made of.

#include <cstddef>
#include <weir/base/size.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/reuse/stream_ordered/stream_directory.hpp>
#include <weir/reuse/stream_ordered/stream_set.hpp>
#include <weir/reuse/stream_ordered/tuning.hpp>

namespace directories {

using weir::KiB;
using weir::MiB;

struct tuning : weir::reuse::stream_ordered_tuning {
    static constexpr unsigned recent_blocks = 8;
    static constexpr std::size_t recent_bytes = 1 * MiB;
    static constexpr unsigned young_frees = 0;
    static constexpr std::size_t aside_bytes = 1 * MiB;
};

template <class Identity>
using set_of = weir::reuse::detail::stream_set<weir::placement::best_fit<512>, Identity, tuning>;

template <class Identity>
struct directory {
    using set = set_of<Identity>;
    explicit directory(int device = 0) : sets(device, make) {}
    static set* make() { return new set(weir::placement::best_fit<512>()); }
    // The set of a stream, entered and left.
    set* at(weir::stream_ref stream, bool verify = true) { return sets.enter(stream, verify, make).get(); }
    std::size_t count() const {
        std::size_t sum = 0;
        for (set* each = sets.first(); each; each = decltype(sets)::following(*each))
            ++sum;
        return sum;
    }
    weir::reuse::detail::stream_directory<set, Identity> sets;
};
inline weir::base::no_lock nobody; // moves bytes meanwhile

using checked = directory<weir::identity::checked>;
using promised = directory<weir::identity::promised>;

} // namespace directories
