// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Any parts that fit make a pool: compositions that no recipe names. A new part joins one of them, or adds a line.

#include "pool_subject.hpp"
#include <support/growth_numbers.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/fixed.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/placement/slab.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/host.hpp>
#include <weir/upstream/managed.hpp>
#include <weir/upstream/pinned.hpp>
#include <weir/upstream/span.hpp>

namespace pool_contract {
namespace growth = weir::growth;
namespace placement = weir::placement;
namespace reuse = weir::reuse;
namespace upstream = weir::upstream;
using weir::memory_space;

using best_fit_alone = weir::pool<upstream::device, placement::best_fit<>, reuse::stream_ordered<>, growth::exact>;
using bins_alone = weir::pool<upstream::device, placement::bins<>, reuse::stream_ordered<>, growth::fixed<4 * MiB>>;
using small_threshold =
    weir::pool<upstream::pinned<cudaHostAllocPortable>,
               placement::by_size<4 * KiB, placement::bins<64>, placement::best_fit<4096>>,
               reuse::stream_ordered<weir::identity::checked, weir::handover::wait_first>, growth::exact>;
using managed_by_event = weir::pool<upstream::managed, placement::best_fit<>, reuse::after_event, growth::exact>;
using slabs_by_event = weir::pool<upstream::device, placement::slab<4096>, reuse::after_event>;
using on_device_span =
    weir::pool<upstream::span<memory_space::device>,
               placement::by_size<64 * KiB, placement::bins<>, placement::best_fit<>>, reuse::stream_ordered<>,
               support::geometric_of<4 * MiB, 50, 8 * MiB>>;
using heap_arena = weir::pool<upstream::host, placement::arena, reuse::immediate, growth::exact>;
using heap_exact = weir::pool<upstream::host, placement::by_size<64 * KiB, placement::bins<16>, placement::best_fit<64>>,
                              reuse::immediate, growth::exact>;

template <std::size_t Bytes, std::size_t Alignment, bool Frees>
struct bounds {
    static constexpr std::size_t largest_bytes = Bytes;
    static constexpr std::size_t largest_alignment = Alignment;
    static constexpr bool frees = Frees;
};

template <>
struct subject<bins_alone> : bounds<1 * MiB, 1 * MiB, true> {
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(weir::pool_options{}.limit(limit_bytes)) {}
    bins_alone pool;
};
template <>
struct subject<slabs_by_event> : bounds<4096, 4096, true> {
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(weir::pool_options{}.limit(limit_bytes)) {}
    slabs_by_event pool;
};
template <>
struct subject<heap_arena> : bounds<SIZE_MAX, SIZE_MAX / 2 + 1, false> {
    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(weir::pool_options{}.limit(limit_bytes)) {}
    heap_arena pool;
};
template <>
struct subject<on_device_span> : bounds<SIZE_MAX, SIZE_MAX / 2 + 1, true> {
    subject() : subject(SIZE_MAX) {}
    explicit subject(std::size_t limit_bytes)
        : pool(upstream::span<memory_space::device>(memory.p, memory.bytes), weir::pool_options{}.limit(limit_bytes)) {}

private:
    struct lent {
        static constexpr std::size_t bytes = 128 * MiB;
        lent() { weir::check_cuda(cudaMalloc(&p, bytes), "cudaMalloc"); }
        lent(lent const&) = delete;
        lent& operator=(lent const&) = delete;
        ~lent() { static_cast<void>(cudaFree(p)); }
        void* p = nullptr;
    };
    lent memory;

public:
    on_device_span pool;
};

} // namespace pool_contract

#define WEIR_TEST_POOLS                                                                                                \
    pool_contract::best_fit_alone, pool_contract::bins_alone, pool_contract::small_threshold,                          \
        pool_contract::managed_by_event, pool_contract::slabs_by_event, pool_contract::on_device_span,                 \
        pool_contract::heap_arena, pool_contract::heap_exact

#include "pool_suite.hpp"
