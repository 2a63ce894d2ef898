// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A directory of stream sets without a pool, by either identity, for the tests of what it is made of.

#include <cstddef>
#include <weir/base/size.hpp>
#include <weir/base/threads/spin_lock.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/reuse/stream_ordered/stream_directory.hpp>
#include <weir/reuse/tuning.hpp>

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
struct directory {
    using sets_type = weir::reuse::detail::stream_directory<weir::placement::best_fit<512>, Identity, tuning>;
    using set = typename sets_type::set;
    using caller = typename sets_type::caller;
    explicit directory(int device = 0) : sets(device) {}
    auto enter(weir::stream_ref stream) { return sets.enter(caller(stream)); }
    // The set of a stream, entered and left: as a call that allocates finds it, and as a free does.
    set* at(weir::stream_ref stream) { return enter(stream).get(); }
    set* at_free(weir::stream_ref stream) { return sets.enter(caller::that_frees(stream)).get(); }
    std::size_t count() const {
        std::size_t sum = 0;
        for (set& each : sets)
            static_cast<void>(each), ++sum;
        return sum;
    }
    sets_type sets;
};
inline weir::base::no_lock nobody; // moves bytes meanwhile

using checked = directory<weir::identity::checked>;
using promised = directory<weir::identity::promised>;

} // namespace directories
