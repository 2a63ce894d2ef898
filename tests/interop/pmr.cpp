// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <array>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <limits>
#include <list>
#include <map>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <support/every_schedule.hpp>
#include <support/peers.hpp>
#include <support/recording_pool.hpp>
#include <support/sentence.hpp>
#include <unordered_map>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/growth/exact.hpp>
#include <weir/interop/pmr.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes.hpp>
#include <weir/resource/any_pool.hpp>
#include <weir/reuse/immediate.hpp>

namespace pmr = weir::interop::pmr;
using weir::check_cuda;
using weir::KiB;
using weir::memory_space;
using weir::MiB;

namespace {

struct host : weir::any_host_pool {
    host() : any_pool(std::in_place_type<weir::layer::synchronized<weir::host_pool>>) {}
};
struct pinned_inside : weir::any_host_pool {
    pinned_inside() : any_pool(std::in_place_type<weir::pinned_pool>) {}
};

// Ordinary memory that is counted, with a limit, or an exception of its own in place of the memory.
class counted final : public std::pmr::memory_resource {
public:
    std::size_t chunks = 0, bytes = 0, most = SIZE_MAX;
    bool broken = false;

private:
    void* do_allocate(std::size_t size, std::size_t alignment) override {
        if (broken)
            throw std::runtime_error("broken");
        if (size > most - bytes)
            throw std::bad_alloc();
        void* const p = std::pmr::new_delete_resource()->allocate(size, alignment);
        ++chunks, bytes += size;
        return p;
    }
    void do_deallocate(void* p, std::size_t size, std::size_t alignment) override {
        --chunks, bytes -= size;
        std::pmr::new_delete_resource()->deallocate(p, size, alignment);
    }
    bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};

using small_pool = weir::pool<pmr::upstream<>, weir::placement::best_fit<64>, weir::reuse::immediate, weir::growth::exact>;

bool is_aligned(void* p, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(p) % alignment == 0; }

} // namespace

TEST_CASE_TEMPLATE("pmr: standard containers live in a pool", Pool, weir::host_pool, weir::pinned_pool, weir::managed_pool,
                   host, pinned_inside, small_pool) {
    support::every_schedule([] {
        Pool pool;
        {
            pmr::resource memory(pool);
            std::pmr::vector<int> numbers(&memory);
            std::pmr::map<int, std::pmr::string> names(&memory);
            std::pmr::unordered_map<std::pmr::string, std::pmr::list<int>> lists(&memory);
            for (int i = 0; i < 1000; ++i) {
                numbers.push_back(i);
                names.emplace(i, std::string(static_cast<std::size_t>(i % 50), 'x'));
                lists[std::pmr::string(std::to_string(i % 7), &memory)].push_back(i);
            }
            CHECK(pool.state().live_blocks > 2000); // the nodes, and what they hold
            CHECK(names.at(49).get_allocator().resource() == &memory);
            CHECK(numbers[999] == 999);
            CHECK(names.at(49) == std::pmr::string(49, 'x'));
            CHECK(lists.at("6").size() == 142);
            std::pmr::unsynchronized_pool_resource over(&memory);
            std::pmr::vector<std::pmr::string> more(&over);
            for (int i = 0; i < 100; ++i)
                more.emplace_back(100, 'y');
            CHECK(more[99] == std::pmr::string(100, 'y'));
        }
        CHECK(pool.state().live_blocks == 0);
    });
}

TEST_CASE_TEMPLATE("pmr: any alignment, and no bytes have an address", Pool, weir::host_pool, weir::pinned_pool, small_pool) {
    support::every_schedule([] {
        Pool pool;
        pmr::resource memory(pool);
        struct block {
            void* p;
            std::size_t bytes, alignment;
        };
        std::vector<block> blocks;
        for (std::size_t alignment = 1; alignment <= 64 * KiB; alignment *= 2)
            for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100}, 5 * KiB}) {
                void* const p = memory.allocate(bytes, alignment);
                REQUIRE(p != nullptr);
                CHECK(is_aligned(p, alignment));
                for (block const& each : blocks)
                    CHECK(each.p != p);
                std::memset(p, 1, bytes);
                blocks.push_back({p, bytes, alignment});
            }
        struct alignas(512) wide {
            char bytes[512];
        };
        std::pmr::vector<wide> wides(3, &memory);
        CHECK(is_aligned(wides.data(), 512));
        std::size_t volatile const three = 3; // which the compiler does not see
        CHECK_THROWS_AS(static_cast<void>(memory.allocate(8, three)), weir::usage_error);
        for (block const& each : blocks)
            memory.deallocate(each.p, each.bytes, each.alignment);
    });
}

TEST_CASE_TEMPLATE("pmr: without room there is a bad_alloc, and containers are as they were", Pool, weir::host_pool,
                   weir::pinned_pool) {
    support::every_schedule([] {
        Pool pool(weir::pool_options{}.limit(4 * MiB));
        pmr::resource memory(pool);
        std::pmr::vector<int> numbers(1000, 7, &memory);
        std::size_t const blocks = pool.state().live_blocks;
        CHECK_THROWS_AS(numbers.reserve(8 * MiB), std::bad_alloc);
        CHECK_THROWS_AS(numbers.reserve(8 * MiB), weir::out_of_memory); // with the pool's own words
        CHECK(numbers == std::pmr::vector<int>(1000, 7));
        CHECK(pool.state().live_blocks == blocks);
        CHECK_THROWS_AS(static_cast<void>(memory.allocate(std::size_t{PTRDIFF_MAX})), std::bad_alloc);
        numbers.push_back(8);
        CHECK(numbers.back() == 8);
    });
}

TEST_CASE("pmr: resources are equal where each may free the other's memory") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        weir::pinned_pool pool, other;
        pmr::resource const plain(pool), same(pool), elsewhere(other), on_a(pool, a), also_on_a(pool, a), on_b(pool, b);
        struct {
            std::pmr::memory_resource const &first, &second;
            bool equal;
        } const table[] = {
            {plain, plain, true},     {plain, same, true}, {on_a, also_on_a, true}, {plain, elsewhere, false},
            {on_a, on_b, false},      {plain, on_a, false}, {plain, *std::pmr::new_delete_resource(), false},
        };
        for (auto const& row : table) {
            CHECK(row.first.is_equal(row.second) == row.equal);
            CHECK(row.second.is_equal(row.first) == row.equal);
            CHECK((row.first == row.second) == row.equal);
        }
        CHECK(on_a.stream() == weir::stream_ref(a));
        CHECK(on_a.pool() == weir::host_pool_ref(pool));
    });
}

TEST_CASE("pmr: a move takes the memory along between equal resources, and copies it between others") {
    support::every_schedule([] {
        weir::pinned_pool pool, other;
        pmr::resource one(pool), same(pool), elsewhere(other);
        std::pmr::vector<int> numbers(1000, 7, &one);
        int const* const where = numbers.data();
        std::pmr::vector<int> taken(&same), copied(&elsewhere);
        taken = std::move(numbers);
        CHECK(taken.data() == where);
        copied = std::move(taken);
        CHECK(copied.data() != where);
        CHECK(copied == std::pmr::vector<int>(1000, 7));
        CHECK(other.state().live_blocks == 1);
    });
}

TEST_CASE("pmr: fresh memory is the host's at once, and a free goes to the stream that was named") {
    support::every_schedule([] {
        support::scoped_stream const s;
        support::recording_pool<memory_space::pinned> pool;
        pmr::resource behind(pool, s), at_once(pool);
        void* const p = behind.allocate(100, 32);
        void* const q = at_once.allocate(0, 1);
        for (auto const& each : pool.allocations)
            CHECK(each.stream == weir::stream_ref(weir::on_host));
        CHECK(pool.allocations[0].bytes == 100);
        CHECK(pool.allocations[0].alignment == 32);
        behind.deallocate(p, 100, 32); // the pool checks bytes and alignment
        at_once.deallocate(q, 0, 1);
        REQUIRE(pool.frees.size() == 2);
        CHECK(pool.frees[0].stream == weir::stream_ref(s));
        CHECK(pool.frees[1].stream == weir::stream_ref(weir::on_host));
    });
}

TEST_CASE("pmr: a buffer may end while its copy is on the way") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::device_pool device;
        weir::pinned_pool pinned;
        pmr::resource staging(pinned, s);
        std::size_t const count = 1000, bytes = count * sizeof(int);
        std::array<void*, 8> there{};
        for (std::size_t round = 0; round < there.size(); ++round) {
            there[round] = device.allocate(s, bytes);
            std::pmr::vector<int> const numbers(count, static_cast<int>(round), &staging); // never what is on the way
            check_cuda(cudaMemcpyAsync(there[round], numbers.data(), bytes, cudaMemcpyDefault, s), "cudaMemcpyAsync");
        }
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        for (std::size_t round = 0; round < there.size(); ++round) {
            std::vector<int> back(count);
            check_cuda(cudaMemcpy(back.data(), there[round], bytes, cudaMemcpyDefault), "cudaMemcpy");
            CHECK(back == std::vector<int>(count, static_cast<int>(round)));
            device.deallocate(s, there[round], bytes);
        }
    });
}

TEST_CASE("pmr: a default stream is that of the device which was current, also where another one is at the free") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
#endif
    if (!support::two_peers())
        return;
    constexpr std::size_t bytes = 3 * weir::MiB / 2; // two of them do not fit
    weir::pinned_pool pool(weir::pool_options{}.limit(2 * weir::MiB));
    weir::device_pool away;
    weir::device_buffer target(away, cudaStreamLegacy, bytes);
    weir::interop::pmr::resource from(pool, cudaStreamLegacy);
    void* const p = from.allocate(bytes);
    std::memset(p, 7, bytes);
    weir::check_cuda(cudaMemcpyAsync(target.data(), p, bytes, cudaMemcpyDefault, cudaStreamLegacy), "cudaMemcpyAsync");
    {
        weir::runtime::device_scope const other(1);
        from.deallocate(p, bytes);
        void* const next = pool.allocate(weir::on_host, bytes);
        std::memset(next, 1, bytes);
        pool.deallocate(weir::on_host, next, bytes);
    }
    std::vector<char> seen(bytes);
    weir::check_cuda(cudaMemcpy(seen.data(), target.data(), bytes, cudaMemcpyDefault), "cudaMemcpy");
    CHECK(seen == std::vector<char>(bytes, 7));
}

TEST_CASE("pmr: a pool that hands out at once what is freed is no pool to free behind a stream") {
    support::every_schedule([] {
        support::scoped_stream const s;
        weir::node_pool nodes;
        weir::host_pool plain;
        host owned;
        pinned_inside ordered;
        for (weir::host_pool_ref const each :
             {weir::host_pool_ref(nodes), weir::host_pool_ref(plain), weir::host_pool_ref(owned)}) {
            CHECK(support::sentence_of<weir::usage_error>([&] { pmr::resource(each, s); }) ==
                  "weir: this pool hands out at once what is freed, also if work on the stream still uses it; use a pool that "
                  "is stream ordered, such as 'weir::pinned_pool', or name no stream and wait for that work before the free");
            CHECK_NOTHROW(pmr::resource{each});
        }
        CHECK_NOTHROW(pmr::resource(ordered, s));
    });
}

TEST_CASE("pmr: a pool gets its chunks from a memory_resource, and gives all of them back") {
    counted memory;
    {
        small_pool pool(pmr::upstream<>(&memory), weir::pool_options{}.name("above"));
        void* const p = pool.allocate_sync(10 * KiB);
        CHECK(memory.chunks == 1);
        CHECK(memory.bytes == pool.reserved_bytes());
        pool.deallocate_sync(p, 10 * KiB);
        CHECK(pool.trim() != 0);
        CHECK(memory.chunks == 0);
        pool.deallocate_sync(pool.allocate_sync(20 * KiB), 20 * KiB);
        CHECK(memory.chunks == 1);
    }
    CHECK(memory.chunks == 0);
    CHECK(memory.bytes == 0);
}

TEST_CASE("pmr: a memory_resource that has no more makes the pool say so, and what else it throws goes through") {
    counted memory;
    memory.most = 64 * KiB;
    small_pool pool{pmr::upstream<>(&memory)};
    void* const p = pool.allocate_sync(10 * KiB);
    CHECK(pool.try_allocate(weir::on_host, 60 * KiB) == nullptr);
    CHECK_THROWS_AS(static_cast<void>(pool.allocate_sync(60 * KiB)), weir::out_of_memory);
    CHECK(pool.try_allocate(weir::on_host, SIZE_MAX / 2) == nullptr);
    memory.broken = true;
    CHECK_THROWS_AS(static_cast<void>(pool.allocate_sync(20 * KiB)), std::runtime_error);
    memory.broken = false;
    CHECK(pool.state().live_blocks == 1);
    pool.deallocate_sync(p, 10 * KiB);

    pmr::upstream<> bare(&memory);
    CHECK(bare.acquire(std::size_t{PTRDIFF_MAX} + 1) == nullptr);
    CHECK(bare.acquire(memory.most + 1) == nullptr);
}

TEST_CASE("pmr: an upstream is what its memory is") {
    CHECK(pmr::upstream<>::space == memory_space::host);
    support::every_schedule([] { // pinned memory, through the standard's interface and back
        weir::pinned_pool card_side;
        pmr::resource through(card_side);
        using above = weir::pool<pmr::upstream<memory_space::pinned>, weir::placement::best_fit<>, weir::reuse::after_event>;
        support::scoped_stream const s;
        above pool{pmr::upstream<memory_space::pinned>(&through)};
        weir::pinned_buffer const buffer(pool, s, 1000);
        CHECK(pool.state().live_blocks == 1);
        CHECK(card_side.state().live_blocks == 1);
    });
    std::array<unsigned char, 32 * KiB> here{};
    std::pmr::monotonic_buffer_resource stack(here.data(), here.size(), std::pmr::null_memory_resource());
    small_pool pool{pmr::upstream<>(&stack)};
    auto* const p = static_cast<unsigned char*>(pool.allocate_sync(KiB));
    CHECK((p >= here.data() && p < here.data() + here.size()));
    CHECK(pool.try_allocate(weir::on_host, 64 * KiB) == nullptr);
    pool.deallocate_sync(p, KiB);
}
