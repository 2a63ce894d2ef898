// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A collective pool is a pool. Allocation never grows it, so that here the only rank there is grows it where it has no room.

#include "pool_subject.hpp"
#include <algorithm>
#include <weir/layer/failure_handler.hpp>
#include <weir/multi_device.hpp>

namespace pool_contract {
namespace multi_device = weir::multi_device;

struct grower {
    multi_device::collective_pool<>* pool;
    bool operator()(weir::failed_allocation const& failed) const {
        if (failed.attempt != 0)
            return false;
        try {
            pool->grow(std::max(failed.bytes, 4 * MiB));
            return true;
        } catch (weir::out_of_memory const&) {
            return false;
        }
    }
};
using grown = weir::layer::failure_handler<multi_device::collective_pool<>&, grower>;

template <>
struct subject<grown> {
    static constexpr std::size_t largest_bytes = SIZE_MAX;
    static constexpr std::size_t largest_alignment = 2 * MiB;
    static constexpr bool frees = true;
    subject() : subject(SIZE_MAX) {}
    explicit subject(std::size_t limit_bytes) : below(channel, weir::pool_options{}.name("subject").limit(limit_bytes)) {}

private:
    multi_device::thread_ranks place{1};
    multi_device::thread_channel channel{place, 0};
    multi_device::collective_pool<> below;

public:
    grown pool{grower{&below}, below};
};

// The pool knows a stream by its handle, which is the same for each thread's own.
template <>
inline constexpr bool knows_thread_streams<grown> = false;

} // namespace pool_contract

#define WEIR_TEST_POOLS pool_contract::grown

#include "pool_suite.hpp"
