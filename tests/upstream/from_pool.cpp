// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp; here is what a chunk is to the pool below, and in which order
// it changes hands.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/capture.hpp>
#include <string>
#include <support/every_schedule.hpp>
#include <support/sentence.hpp>
#include <type_traits>
#include <weir/contract/upstream_slot.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/layer/failure_handler.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/limit.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/slab.hpp>
#include <weir/driver/driver_pool.hpp>
#include <weir/pool/pool.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/from_pool.hpp>
#include <weir/upstream/virtual_memory.hpp>

using weir::check_cuda;
using weir::MiB;
using weir::upstream::from_pool;

namespace {

using card_pool = weir::pool<weir::upstream::device, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>;
using frame_pool =
    weir::pool<from_pool<card_pool>, weir::placement::arena, weir::reuse::immediate, weir::growth::exact>;

// Says neither a limit nor a device.
struct bare_pool : weir::resource::pool_base<bare_pool> {
    static constexpr weir::memory_space space = weir::memory_space::pinned;
    static constexpr std::size_t default_alignment = 64;
    void* try_allocate(weir::stream_ref, std::size_t, std::size_t);
    void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept;
    weir::memory_report state() const;
    weir::refusal refused(std::size_t, std::size_t) const;
};
static_assert(from_pool<bare_pool>::space == weir::memory_space::pinned && from_pool<bare_pool>::alignment == 64);
static_assert(weir::contract::require_upstream<from_pool<bare_pool>>());

void fill(void* p, int value, std::size_t bytes, cudaStream_t stream) {
    check_cuda(cudaMemsetAsync(p, value, bytes, stream), "cudaMemsetAsync");
}

} // namespace

TEST_CASE("from_pool: the pool's limit and device are the upstream's, through layers too") {
    support::every_schedule([] {
        weir::layer::limit<card_pool> card(3 * MiB, weir::pool_options{}.device(0));
        from_pool chunks(card, weir::on_host);
        CHECK(std::is_same_v<decltype(chunks), from_pool<weir::layer::limit<card_pool>>>);
        CHECK(chunks.can_acquire(3 * MiB));
        CHECK_FALSE(chunks.can_acquire(3 * MiB + 1));
        CHECK(chunks.device_number() == 0);
        void* const first = chunks.acquire(2 * MiB);
        CHECK(first != nullptr);
        CHECK(card.requested_bytes() == 2 * MiB);
        CHECK(chunks.acquire(2 * MiB) == nullptr);
        chunks.release(first, 2 * MiB);
        CHECK(card.requested_bytes() == 0);
        weir::pool<from_pool<decltype(card)>, weir::placement::arena, weir::reuse::immediate> frame(chunks);
        CHECK(frame.device() == 0);
        CHECK_FALSE(frame.can_hold(4 * MiB, 256));
        CHECK_THROWS_AS(static_cast<void>(frame.allocate(weir::on_host, 4 * MiB)), weir::out_of_memory);
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("from_pool: a limit that CUDA does not tell is no limit here, and no end of the program") {
    simulated_cuda::world const world;
    card_pool first;
    weir::driver_pool second;
    weir::layer::fallback<card_pool&, weir::driver_pool&> both(first, second);
    from_pool chunks(both, weir::on_host);
    CHECK_FALSE(chunks.can_acquire(SIZE_MAX / 4));
    weir::layer::limit<decltype(both)&> tenant(MiB, both);
    from_pool told(tenant, weir::on_host);
    for (std::uint64_t k = 1; k <= 4; ++k) {
        simulated_cuda::fail_call("cudaMemPoolGetAttribute", k, cudaErrorUnknown);
        static_cast<void>(chunks.can_acquire(MiB));
        CHECK_FALSE(told.can_acquire(MiB + 1));
        simulated_cuda::clear_faults();
    }
}

TEST_CASE("from_pool: what the pool below can never hand out is refused at once, in the words of that pool") {
    using over_card = weir::pool<from_pool<card_pool>, weir::placement::best_fit<>, weir::reuse::immediate>;
    simulated_cuda::world const world(simulated_cuda::config{}.with_memory(64 * MiB));
    card_pool card(weir::pool_options{}.name("card"));
    over_card mine(from_pool(card, weir::on_host));
    mine.reserve(MiB);
    CHECK(mine.can_hold(32 * MiB, 256));
    CHECK_FALSE(mine.can_hold(65 * MiB, 256));
    int asked = 0;
    auto const count = [&](weir::failed_allocation const&) { return ++asked, false; };
    weir::layer::failure_handler careful(count, mine);
    CHECK(careful.try_allocate(weir::on_host, 65 * MiB) == nullptr);
    CHECK(asked == 0);
    CHECK(mine.reserved_bytes() == MiB); // nothing went back for it
    CHECK_SAYS(mine.refused(65 * MiB, 256).reason,
               "no free range is large enough, and for another chunk of 65 MiB there is no room: its pool 'card' (1 MiB in use, ");
    CHECK_SAYS(mine.refused(65 * MiB, 256).reason, "refuses: it needs a chunk of 69206016 bytes (66 MiB), and of device memory there can be");

    using nodes = weir::pool<weir::upstream::device, weir::placement::slab<1024>, weir::reuse::immediate>;
    nodes small;
    weir::pool<from_pool<nodes>, weir::placement::best_fit<>, weir::reuse::immediate> over_nodes(from_pool(small, weir::on_host));
    CHECK(over_nodes.can_hold(500, 256));
    CHECK_FALSE(over_nodes.can_hold(2000, 256)); // no block below is as large
    CHECK_SAYS(over_nodes.refused(2000, 256).reason, "refuses: no block of this pool can have that size");
}

TEST_CASE("from_pool: while the pool below is suspended, nobody is asked to free something") {
    using mapped = weir::pool<weir::upstream::virtual_memory<>, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>;
    simulated_cuda::world const world;
    mapped card;
    weir::pool<from_pool<mapped>, weir::placement::best_fit<>, weir::reuse::immediate> mine(from_pool(card, weir::on_host));
    CHECK(mine.can_hold(1000, 256));
    card.suspend();
    CHECK_FALSE(mine.can_hold(1000, 256));
    CHECK_SAYS(mine.refused(1000, 256).reason, "is suspended");
    CHECK(support::sentence_of<weir::out_of_memory>([&] { mine.reserve(1000); }).find("and its pool 'unnamed' (0 B in use, ") !=
          std::string::npos);
    card.resume();
    CHECK(mine.can_hold(1000, 256));
}
#endif

TEST_CASE("from_pool: a request's frame counts as the card's memory, and its chunks go on in the order of its stream") {
    support::every_schedule([] {
        support::scoped_stream const request, other;
        card_pool card(weir::pool_options{}.limit(8 * MiB));
        void* before = card.allocate(request, 8 * MiB);
        fill(before, 1, 8 * MiB, request);
        card.deallocate(request, before, 8 * MiB);
        {
            frame_pool frame(from_pool(card, request));
            void* const p = frame.allocate(request, 6 * MiB); // in flight still, but on the frame's own stream
            CHECK(p == before);
            CHECK(card.in_use_bytes() == frame.reserved_bytes());
            fill(p, 2, 6 * MiB, request);
            CHECK(card.try_allocate(other, 6 * MiB) == nullptr);
            frame.deallocate(request, p, 6 * MiB);
        } // nothing waits: the work is still in flight
        CHECK(card.in_use_bytes() == 0);
        void* const next = card.allocate(other, 8 * MiB); // behind the frame's work
        fill(next, 3, 8 * MiB, other);
        card.deallocate(other, next, 8 * MiB);
        check_cuda(cudaStreamSynchronize(request), "cudaStreamSynchronize");
        check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    });
}

TEST_CASE("from_pool: on the host chunks are nobody's, so a pool over them serves any stream") {
    support::every_schedule([] {
        support::scoped_stream const first, second;
        card_pool card(weir::pool_options{}.limit(8 * MiB));
        void* const before = card.allocate(first, 8 * MiB);
        fill(before, 1, 8 * MiB, first);
        card.deallocate(first, before, 8 * MiB);
        {
            weir::pool<from_pool<card_pool>, weir::placement::best_fit<>, weir::reuse::stream_ordered<>> shared(
                from_pool(card, weir::on_host));
            void* const p = shared.allocate(second, 6 * MiB);
            CHECK(p == before);
            fill(p, 2, 6 * MiB, second);
            shared.deallocate(second, p, 6 * MiB);
        } // waits for the work, as every stream-ordered pool does
        void* const next = card.allocate(first, 8 * MiB);
        fill(next, 3, 8 * MiB, first);
        card.deallocate(first, next, 8 * MiB);
        check_cuda(cudaStreamSynchronize(first), "cudaStreamSynchronize");
    });
}

TEST_CASE_TEMPLATE("from_pool: a captured stream gets no chunk and gives none to others; captures elsewhere do not matter", Pool,
                   card_pool, weir::driver_pool) {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        Pool card;
        from_pool chunks(card, s);
        void* const chunk = chunks.acquire(2 * MiB);
        {
            support::capture captured(other);
            chunks.release(chunks.acquire(4 * MiB), 4 * MiB);
            CHECK(captured.unbroken());
        }
        CHECK(card.state().lost_bytes == 0);
        {
            support::capture captured(s);
            CHECK_THROWS_AS(static_cast<void>(chunks.acquire(2 * MiB)), weir::usage_error);
            fill(chunk, 1, 2 * MiB, s);
            chunks.release(chunk, 2 * MiB); // the graph may use it at each launch
            CHECK(card.state().lost_bytes == 2 * MiB);
            CHECK(captured.unbroken());
        }
        from_pool next(card, weir::on_host);
        void* const fresh = next.acquire(2 * MiB);
        CHECK(fresh != chunk);
        next.release(fresh, 2 * MiB);
    });
}
