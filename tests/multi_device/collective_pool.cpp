// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "machine.hpp"
#include "processes.hpp"
#include "ranks.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <vector>
#include <weir/container/vector.hpp>
#include <weir/multi_device.hpp>
#include <weir/upstream/device.hpp>

namespace {

namespace multi_device = weir::multi_device;
namespace upstream = weir::upstream;
using support::scoped_stream;
using weir::KiB;
using weir::MiB;
using best_fit = weir::placement::best_fit<>;
using pool_type = multi_device::collective_pool<>;
using simple_pool = multi_device::collective_pool<upstream::virtual_memory<upstream::registered_memory>, best_fit>;

// The only rank there is.
struct alone {
    multi_device::thread_ranks place{1};
    multi_device::thread_channel channel{place, 0};
};

// Work on a stream that writes these bytes.
void write(cudaStream_t stream, void* p, std::size_t bytes) {
    CHECK(cudaMemsetAsync(p, 1, bytes, stream) == cudaSuccess);
}

struct block {
    void* p;
    std::size_t bytes;
    std::size_t stream;
};

// What a rank does with its pool: a random program of one seed, of so many steps, but for what `change` makes of some step.
struct program {
    unsigned seed = 1;
    int steps = 100;
    int changed = -1; // on this rank, at step `at`: another size, one more call, one less, or another stream
    int at = -1;
    int kind = 0;

    template <class Pool>
    std::vector<std::size_t> run(Pool& pool, int rank) const {
        std::mt19937 draw(seed);
        std::vector<scoped_stream> streams(3);
        std::vector<block> held;
        std::vector<std::size_t> offsets;
        for (int step = 0; step < steps; ++step) {
            std::size_t const bytes = std::size_t{1} + (draw() % 4 == 0 ? draw() % MiB : draw() % (4 * KiB));
            std::size_t const on = draw() % streams.size();
            auto const which = static_cast<unsigned>(draw());
            unsigned const choice = draw() % 16;
            bool const differs = rank == changed && step == at;
            if (differs && kind == 2)
                continue;
            for (int times = differs && kind == 1 ? 2 : 1; times != 0; --times) {
                if (choice < 9 || held.empty()) {
                    std::size_t const asked = bytes + (differs && kind == 0 ? 4 * MiB : 0);
                    std::size_t const stream = differs && kind == 3 ? (on + 1) % streams.size() : on;
                    void* const p = pool.try_allocate(streams[stream], asked, 256);
                    offsets.push_back(p ? pool.offset_of(p) : 0);
                    if (p) {
                        write(streams[stream], p, asked);
                        held.push_back({p, asked, stream});
                    }
                } else if (choice < 15) {
                    block const freed = held[which % held.size()];
                    held.erase(held.begin() + static_cast<std::ptrdiff_t>(which % held.size()));
                    if (which % 3 == 0) // another stream may free it, behind its work
                        weir::order_after(streams[on], streams[freed.stream]);
                    pool.deallocate(streams[which % 3 == 0 ? on : freed.stream], freed.p, freed.bytes, 256);
                } else if (which % 8 == 0) {
                    pool.settle();
                } else {
                    // Nothing, but a rank's device may be ahead of another's.
                    CHECK(cudaStreamQuery(streams[on]) != cudaErrorInvalidValue);
                }
            }
        }
        for (block const& each : held)
            pool.deallocate(streams[each.stream], each.p, each.bytes, 256);
        held.clear();
        pool.settle(); // before its streams end
        return offsets;
    }
};

// What each rank says of a body that has its own pool, each on a device of its own; "" where it says nothing.
template <class Pool = pool_type, class Body>
std::vector<std::string> said_by(support::ranks& here, int devices, Body const& body, weir::pool_options const& options = {}) {
    std::vector<std::string> said(static_cast<std::size_t>(here.place().size()));
    here.run([&](multi_device::rank_channel& channel) {
        CHECK(cudaSetDevice(channel.rank() % devices) == cudaSuccess);
        try {
            Pool pool(channel, weir::pool_options(options).name("sums").on_leak(weir::leak_action::ignore));
            body(pool, channel.rank());
        } catch (std::exception const& error) {
            said[static_cast<std::size_t>(channel.rank())] = error.what();
        }
    });
    return said;
}

} // namespace

TEST_CASE("collective_pool: the same calls get the same offsets on every rank, however far each one's device is") {
    for (unsigned seed = 1; seed <= 4; ++seed) {
        CAPTURE(seed);
        machine const here;
        support::ranks ranks(3);
        std::vector<std::vector<std::size_t>> offsets(3);
        std::vector<std::string> const said = said_by(ranks, here.count, [&](pool_type& pool, int rank) {
            pool.grow(4 * MiB);
            offsets[static_cast<std::size_t>(rank)] = program{seed, 150}.run(pool, rank);
            pool.grow(32 * MiB); // the calls so far are compared
            std::vector<std::size_t> const more = program{seed + 100, 150}.run(pool, rank);
            offsets[static_cast<std::size_t>(rank)].insert(offsets[static_cast<std::size_t>(rank)].end(), more.begin(), more.end());
            pool.agree();
            CHECK(pool.state().in_use_bytes == 0);
            CHECK(pool.state().lost_bytes == 0);
            CHECK(pool.try_allocate(weir::on_host, 31 * MiB) != nullptr); // all of a chunk is free again
        });
        CHECK(said == std::vector<std::string>(3));
        CHECK(offsets[0].size() > 150);
        CHECK(offsets[0] == offsets[1]);
        CHECK(offsets[0] == offsets[2]);
    }
}

TEST_CASE("collective_pool: memory freed on a stream is that stream's at once, and another stream waits for it on the device") {
    support::every_schedule([] {
        alone here;
        scoped_stream a, b;
        simple_pool pool(here.channel);
        pool.grow(2 * MiB);
        void* const first = pool.allocate(a, 2 * MiB);
        write(a, first, 2 * MiB);
        pool.deallocate(a, first, 2 * MiB);
#ifdef WEIR_SIMULATED_CUDA
        auto const events = [] { return simulated_cuda::calls("cudaEventRecord"); };
        auto const before = events();
#endif
        void* const again = pool.allocate(a, 2 * MiB);
        CHECK(again == first);
        write(a, again, 2 * MiB);
        pool.deallocate(a, again, 2 * MiB);
#ifdef WEIR_SIMULATED_CUDA
        CHECK(events() == before);
#endif
        void* const crossed = pool.allocate(b, 2 * MiB);
        CHECK(crossed == first);
        write(b, crossed, 2 * MiB); // the simulated device reports it if it is not ordered
        pool.deallocate(b, crossed, 2 * MiB);
        void* const of_host = pool.allocate_sync(2 * MiB); // after all work that used it
        CHECK(of_host == first);
        CHECK(cudaMemset(of_host, 2, 2 * MiB) == cudaSuccess);
        pool.deallocate_sync(of_host, 2 * MiB);
        CHECK(pool.state().lost_bytes == 0);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    });
}

TEST_CASE("collective_pool: free bytes of several streams join for a block that needs them all") {
    support::every_schedule([] {
        alone here;
        scoped_stream a, b, c;
        pool_type pool(here.channel);
        pool.grow(4 * MiB);
        std::vector<block> blocks;
        for (std::size_t i = 0; i < 4; ++i) {
            cudaStream_t const stream = i % 2 == 0 ? a : b;
            blocks.push_back({pool.allocate(stream, 1 * MiB), 1 * MiB, i});
            write(stream, blocks.back().p, 1 * MiB);
        }
        for (block const& each : blocks)
            pool.deallocate(each.stream % 2 == 0 ? a : b, each.p, each.bytes);
        void* const all = pool.allocate(c, 4 * MiB);
        write(c, all, 4 * MiB);
        pool.deallocate(c, all, 4 * MiB);
        // Small blocks leave slabs behind, which are broken up for a large one.
        std::vector<void*> small;
        while (void* const p = pool.try_allocate(a, 64, 64))
            small.push_back(p);
        for (void* const p : small)
            pool.deallocate(b, p, 64, 64);
        CHECK(pool.allocate(weir::on_host, 4 * MiB) == all);
        pool.deallocate(weir::on_host, all, 4 * MiB);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    });
}

TEST_CASE("collective_pool: uses on other streams end before the bytes are another's") {
    support::every_schedule([] {
        alone here;
        scoped_stream a, b;
        simple_pool pool(here.channel);
        pool.grow(2 * MiB);
        for (bool const last : {false, true}) {
            CAPTURE(last);
            void* const p = pool.allocate(a, 2 * MiB);
            write(a, p, 2 * MiB);
            weir::order_after(b, a);
            if (!last)
                pool.used_on(p, b);
            write(b, p, 2 * MiB);
            if (last)
                pool.last_used_on(p, b);
            pool.used_on(p, weir::on_host); // nothing to note
            pool.used_on(nullptr, b);
            pool.deallocate(last ? weir::stream_ref(a) : weir::stream_ref(weir::on_host), p, 2 * MiB);
            void* const again = pool.allocate(a, 2 * MiB);
            write(a, again, 2 * MiB);
            pool.deallocate(a, again, 2 * MiB);
        }
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    });
}

TEST_CASE("collective_pool: default streams are those of its device, and a thread's own is waited for") {
    machine const here;
    if (here.count < 2)
        return;
    alone rank;
    simple_pool pool(rank.channel, weir::pool_options{}.device(1).reserve(2 * MiB));
    CHECK(pool.device() == 1);
    void* p = nullptr;
    {
        weir::runtime::device_scope const there(1);
        p = pool.allocate(cudaStreamLegacy, 2 * MiB);
        write(cudaStreamLegacy, p, 2 * MiB);
    }
    pool.deallocate(cudaStreamLegacy, p, 2 * MiB); // while device 0 is current
    weir::runtime::device_scope const there(1);
    scoped_stream a;
    p = pool.allocate(a, 2 * MiB);
    write(a, p, 2 * MiB);
    weir::order_after(cudaStreamPerThread, a);
    write(cudaStreamPerThread, p, 2 * MiB);
    pool.deallocate(cudaStreamPerThread, p, 2 * MiB);
    p = pool.allocate_sync(2 * MiB);
    CHECK(cudaMemset(p, 1, 2 * MiB) == cudaSuccess);
    pool.deallocate_sync(p, 2 * MiB);
    CHECK(pool.state().lost_bytes == 0);
}

TEST_CASE("collective_pool: what a captured stream frees is nobody's any more, and one that is captured lends nothing") {
    alone here;
    scoped_stream a, b;
    simple_pool pool(here.channel);
    pool.grow(2 * MiB);
    void* const p = pool.allocate(a, 1 * MiB);
    void* const q = pool.allocate(b, 1 * MiB);
    pool.deallocate(b, q, 1 * MiB);
    {
        support::capture capture(b);
        CHECK(pool.try_allocate(a, 1 * MiB, 256) == nullptr);
        CHECK(pool.try_allocate(a, 2 * MiB, 256) == nullptr);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(pool.try_allocate(b, 256)); }),
                   "weir: pool 'unnamed': memory of this pool cannot be allocated");
        pool.deallocate(b, p, 1 * MiB);
        CHECK(capture.unbroken());
    }
    CHECK(pool.state().lost_bytes == 1 * MiB);
    CHECK(pool.try_allocate(a, 2 * MiB, 256) == nullptr);
    void* const last = pool.allocate(a, 1 * MiB);
    CHECK(last == q);
    pool.deallocate(a, last, 1 * MiB);
}

TEST_CASE("collective_pool: growth adds a chunk and moves none, and allocation never grows") {
    alone here;
    scoped_stream a;
    pool_type pool(here.channel, weir::pool_options{}.name("sums").limit(8 * MiB));
    CHECK(pool.try_allocate(a, 256) == nullptr);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(a, 256)); }),
               "weir: out of memory: pool 'sums' cannot hand out 256 bytes: it holds no memory, and allocation never grows it; "
               "call 'grow' on every rank");
    pool.grow(0);
    CHECK(pool.reserved_bytes() == 0);
    pool.grow(3 * MiB);
    CHECK(pool.reserved_bytes() == 4 * MiB);
    void* const p = pool.allocate(a, 4 * MiB);
    CHECK(weir::base::is_aligned(reinterpret_cast<std::size_t>(p), 2 * MiB));
    std::size_t const offset = pool.offset_of(p);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { static_cast<void>(pool.allocate(a, 256)); }),
               "no free range is large enough, and allocation never grows the pool; call 'grow' on every rank");
    pool.grow(2 * MiB);
    CHECK(pool.offset_of(p) == offset);
    CHECK(pool.owns(p));
    CHECK_FALSE(pool.owns(&pool));
    CHECK(support::sentence_of<weir::usage_error>([&] { static_cast<void>(pool.offset_of(&pool)); }) ==
          "weir: this address is not in the pool 'sums'");
    {
        weir::device_vector<float> const xs(pool, a, 1000); // a container of it, in the second chunk
        CHECK(pool.offset_of(xs.data()) > offset + 4 * MiB);
    }
    // Chunks do not join, whatever their addresses.
    pool.deallocate(a, p, 4 * MiB);
    CHECK(pool.try_allocate(a, 6 * MiB, 256) == nullptr);
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { pool.grow(4 * MiB); }),
               "rank 0 would hold more than its limit; raise it on every rank, or grow by less");
    CHECK_THROWS_AS(pool.grow(SIZE_MAX), weir::out_of_memory);
    CHECK(pool.state().chunks == 2);
    CHECK(pool.state().limit_bytes == 8 * MiB);
    CHECK(pool.full_state().device_free_bytes != weir::memory_report::unknown);
    CHECK_SAYS(pool.report(), "pool 'sums'");
    CHECK(pool_type::rounded(1000, 256) == 1024);
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(pool.try_allocate(a, 1, 4 * MiB)); }),
               "weir: blocks of a collective pool are aligned to 2 MiB at most, as its chunks are");
    CHECK(pool.try_allocate(a, 0) == nullptr);
    pool.deallocate(a, nullptr, 0);
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(pool.try_allocate(cudaStreamPerThread, 1)); }),
               "weir: a thread's own default stream has no name");
}

TEST_CASE("collective_pool: a stream of another device is refused") {
    machine const here;
    if (here.count < 2)
        return;
    alone rank;
    pool_type pool(rank.channel, weir::pool_options{}.reserve(2 * MiB));
    std::optional<scoped_stream> other;
    {
        weir::runtime::device_scope const there(1);
        other.emplace();
    }
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(pool.try_allocate(*other, 256)); }),
               "weir: a collective pool's memory is for streams of its own device");
}

TEST_CASE("collective_pool: a pool that ends with blocks says so") {
    alone here;
    CHECK(support::standard_error_of([&] {
              pool_type pool(here.channel, weir::pool_options{}.name("sums").reserve(2 * MiB));
              static_cast<void>(pool.allocate_sync(1024));
              CHECK(pool.on_violation() == weir::violation_action::report);
              CHECK(pool.on_leak() == weir::leak_action::report);
          }) == "weir: pool 'sums' ends with 1024 bytes in 1 block still handed out; free it, or end its container, before the "
                "pool\n");
}

namespace {
// Refuses the second chunk of rank 1, and fails for the third.
class rationed : public upstream::device {
public:
    using device::device;
    void* acquire(std::size_t bytes) {
        int const before = chunks_++;
        if (device_number() == 1 && before == 2)
            throw weir::usage_error("weir: rank 1 is out of order");
        return device_number() == 1 && before == 1 ? nullptr : device::acquire(bytes);
    }

private:
    int chunks_ = 0;
};

// Notes what it is told; enters no second chunk on rank 1.
struct noted_chunks : multi_device::chunk_registration {
    explicit noted_chunks(int of) : rank(of) {}
    void enter(void* chunk, std::size_t bytes) override {
        if (rank == 1 && said == "+4")
            throw weir::usage_error("weir: not this one");
        said += "+" + std::to_string(bytes / MiB);
        entered.push_back(chunk);
    }
    void leave(void* chunk, std::size_t bytes) noexcept override {
        said += "-" + std::to_string(bytes / MiB);
        CHECK(entered.back() == chunk);
        entered.pop_back();
    }
    int rank;
    std::string said;
    std::vector<void*> entered;
};
} // namespace

TEST_CASE("collective_pool: where one rank has no room none has grown, and each says which rank it was") {
    machine const here;
    if (here.count < 2)
        return;
    support::ranks ranks(2);
    std::vector<std::string> const said =
        said_by<multi_device::collective_pool<rationed, best_fit>>(ranks, 2, [](auto& pool, int rank) {
            pool.grow(2 * MiB);
            std::string const told = support::sentence_of<weir::out_of_memory>([&] { pool.grow(4 * MiB); });
            CHECK(pool.reserved_bytes() == 2 * MiB);
            std::string more;
            try {
                pool.grow(4 * MiB);
            } catch (std::exception const& error) {
                more = error.what();
            }
            CHECK_SAYS(more, rank == 1 ? "weir: rank 1 is out of order" : "rank 1 could not get its chunk; its own exception says why");
            CHECK(pool.reserved_bytes() == 2 * MiB);
            pool.grow(4 * MiB); // later there is room
            CHECK(pool.reserved_bytes() == 6 * MiB);
            throw weir::usage_error(told);
        });
    for (std::string const& each : said)
        CHECK_SAYS(each, "cannot hand out 4194304 bytes (4 MiB): rank 1 has no room on its device; free something there, or grow by "
                         "less on every rank");
}

TEST_CASE("collective_pool: a registration is told of each chunk, and of none that not all ranks have") {
    machine const here;
    support::ranks ranks(2);
    std::vector<std::string> said(2), told(2);
    ranks.run([&](multi_device::rank_channel& channel) {
        auto const rank = static_cast<std::size_t>(channel.rank());
        CHECK(cudaSetDevice(channel.rank() % here.count) == cudaSuccess);
        noted_chunks chunks(channel.rank());
        {
            pool_type pool(channel, weir::pool_options{}.reserve(4 * MiB), &chunks);
            try {
                pool.grow(2 * MiB);
            } catch (std::exception const& error) {
                said[rank] = error.what();
            }
            CHECK(pool.reserved_bytes() == 4 * MiB);
        }
        told[rank] = chunks.said;
    });
    CHECK_SAYS(said[0], "rank 1 could not register its chunk; its own exception says why");
    CHECK(said[1] == "weir: not this one");
    CHECK(told == std::vector<std::string>{"+4+2-2-4", "+4-4"});
}

TEST_CASE("collective_pool: ranks that went different ways say which call was the first") {
    machine const here;
    using body = std::function<void(pool_type&, int)>;
    struct row {
        char const* says;
        body does;
    };
    char const* const advice = "; make the same calls in the same order on every rank, whatever each one's work is";
    for (row const& each : {
             row{"call 2 is 'allocate 1000 bytes at a multiple of 256 on the host, which got offset 2097152' on rank 0 and "
                 "'allocate 2000 bytes (1.95 KiB) at a multiple of 256 on the host, which got offset 2097152' on rank 1",
                 [](pool_type& pool, int rank) { static_cast<void>(pool.allocate_sync(rank == 1 ? 2000 : 1000)); }},
             row{"call 2 is 'agree' on rank 0 and 'grow by 2097152 bytes (2 MiB)' on rank 2",
                 [](pool_type& pool, int rank) {
                     if (rank == 2)
                         pool.grow(2 * MiB);
                 }},
             row{"call 2 is 'agree' on rank 0 and 'settle' on rank 1",
                 [](pool_type& pool, int rank) {
                     if (rank == 1)
                         pool.settle();
                 }},
             row{"call 3 is 'deallocate 512 bytes at offset 2097152 on the host' on rank 0 and 'agree' on rank 2",
                 [](pool_type& pool, int rank) {
                     void* const p = pool.allocate_sync(512);
                     if (rank != 2)
                         pool.deallocate_sync(p, 512);
                 }},
             row{"call 3 is 'use what is at offset 2097152 on stream 0' on rank 0 and 'agree' on rank 1",
                 [](pool_type& pool, int rank) {
                     scoped_stream a;
                     void* const p = pool.allocate_sync(512);
                     if (rank == 0)
                         pool.used_on(p, a);
                     CHECK(cudaStreamSynchronize(a) == cudaSuccess);
                     pool.agree();
                 }},
             row{"call 2 is 'allocate 8388608 bytes (8 MiB) at a multiple of 256 on stream 0, which was refused' on rank 0 and "
                 "'agree' on rank 1",
                 [](pool_type& pool, int rank) {
                     scoped_stream a;
                     if (rank != 1)
                         CHECK(pool.try_allocate(a, 8 * MiB, 256) == nullptr);
                 }},
             row{"the ranks of pool 'sums' differ before call 39, rank 1 from rank 0; calls that old are not kept, so call 'agree' "
                 "more often to see which it is",
                 [](pool_type& pool, int rank) {
                     pool.deallocate_sync(pool.allocate_sync(rank == 1 ? 256 : 512), rank == 1 ? 256 : 512);
                     for (int i = 0; i < 49; ++i)
                         pool.deallocate_sync(pool.allocate_sync(256), 256);
                 }},
             row{"the ranks of pool 'sums' differ before call 3, rank 1 from rank 0; calls that old are not kept, so call 'agree' "
                 "more often to see which it is",
                 [](pool_type& pool, int rank) {
                     for (int i = 0; i < 70 && rank == 0; ++i)
                         static_cast<void>(pool.allocate_sync(256));
                 }},
         }) {
        CAPTURE(each.says);
        support::ranks ranks(3);
        std::vector<std::string> const said = said_by(ranks, here.count, [&](pool_type& pool, int rank) {
            pool.grow(4 * MiB);
            each.does(pool, rank);
            pool.agree();
        });
        CHECK_SAYS(said[0], std::string(each.says) + advice);
        CHECK(said[1] == said[0]);
        CHECK(said[2] == said[0]);
    }
}

TEST_CASE("collective_pool: ranks that call different pools of one channel, or something that is no pool, are told so") {
    machine const here;
    support::ranks ranks(2);
    std::vector<std::string> pools(2), other(2), agreed(2);
    ranks.run([&](multi_device::rank_channel& channel) {
        CHECK(cudaSetDevice(channel.rank() % here.count) == cudaSuccess);
        auto const rank = static_cast<std::size_t>(channel.rank());
        pool_type a(channel, weir::pool_options{}.name("a")), b(channel, weir::pool_options{}.name("b"));
        pools[rank] = support::sentence_of<weir::usage_error>([&] { (rank == 0 ? a : b).grow(2 * MiB); });
        CHECK(a.reserved_bytes() + b.reserved_bytes() == 0);
        other[rank] = support::sentence_of<weir::usage_error>([&] {
            std::array<char, 128> mine{};
            std::array<char, 256> all{};
            if (rank == 0)
                b.agree();
            else
                static_cast<void>(channel.exchange(mine.data(), mine.size(), all.data()));
        });
        pool_type c(channel);
        c.grow(2 * MiB); // the channel is as good as before
        agreed[rank] = std::to_string(c.reserved_bytes());
    });
    CHECK(pools[0] == "weir: the ranks call different pools of one channel: rank 0 'grow by 2097152 bytes (2 MiB)' of pool 1 and "
                      "rank 1 'grow by 2097152 bytes (2 MiB)' of pool 2, in the order in which each made them; make the same calls "
                      "in the same order on every rank, whatever each one's work is");
    CHECK(pools[1] == pools[0]);
    CHECK_SAYS(other[0], " bytes and rank 1 128: they make different calls, such as one that grows a pool and one that makes a "
                         "communicator; make the same calls in the same order on every rank");
    CHECK(other[1] == other[0]);
    CHECK(agreed == std::vector<std::string>(2, "2097152"));
}

TEST_CASE("collective_pool: a rank that does not come is named at the deadline, and nothing hangs") {
    machine const here;
    support::ranks ranks(3);
    ranks.absent(1);
    std::vector<std::string> const said = said_by(ranks, here.count, [&](pool_type& pool, int) { pool.grow(4 * MiB); });
    CHECK_SAYS(said[0], "weir: rank 1 of pool 'sums' did not come to 'grow' before the deadline: it has ended, or does something "
                        "else; this was call 1 of rank 0; end all ranks and begin anew");
    CHECK_SAYS(said[2], "this was call 1 of rank 2");
}

#ifdef WEIR_SIMULATED_CUDA // CUDA does not live through a fork
TEST_CASE("collective_pool: ranks that are processes get the same offsets, and one that dies is named by the others") {
    std::string const path = support::fresh_path();
    std::vector<std::size_t> own, other(200);
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    support::child dies([&] {
        machine const here;
        multi_device::process_channel channel(path.c_str(), 1, 2);
        pool_type pool(channel, weir::pool_options{}.reserve(8 * MiB));
        std::vector<std::size_t> offsets = program{7, 100}.run(pool, 1);
        pool.agree();
        offsets.resize(200);
        return ::write(pipe_ends[1], offsets.data(), 1600) == 1600 ? 0 : 1;
    });
    support::knowing_channel channel(path.c_str(), 0, 2);
    {
        machine const here;
        pool_type pool(channel, weir::pool_options{}.name("sums").reserve(8 * MiB));
        own = program{7, 100}.run(pool, 0);
        pool.agree();
        CHECK(read(pipe_ends[0], other.data(), 1600) == 1600);
        CHECK(dies.code() == 0);
        channel.one_has_ended = true;
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { pool.grow(2 * MiB); }),
                   "weir: rank 1 of pool 'sums' did not come to 'grow' before the deadline: it has ended, or does something else");
        CHECK(pool.reserved_bytes() == 8 * MiB);
    }
    CHECK(own.size() > 50);
    own.resize(200);
    CHECK(own == other);
    close(pipe_ends[0]), close(pipe_ends[1]);
}
#endif

// A channel of a user's own that fails at some exchange.
namespace {
struct failing_channel : multi_device::rank_channel {
    int rank() const noexcept override { return 0; }
    int ranks() const noexcept override { return 1; }
    int exchange(void const* mine, std::size_t bytes, void* all) override {
        if (left-- == 0)
            throw weir::usage_error("weir: the line is dead");
        if (left == -2)
            return 0;
        std::memcpy(all, mine, bytes);
        return -1;
    }
    int left = 0;
};
} // namespace

TEST_CASE("collective_pool: a channel that fails in the middle of a growth leaves the pool as it was") {
    for (int exchanges = 0; exchanges < 4; ++exchanges) {
        CAPTURE(exchanges);
        failing_channel channel;
        noted_chunks chunks(0);
        pool_type pool(channel, {}, &chunks);
        channel.left = exchanges;
        CHECK(support::sentence_of<weir::usage_error>([&] { pool.grow(2 * MiB); }) == "weir: the line is dead");
        CHECK(pool.reserved_bytes() == 0);
        CHECK(chunks.said == (exchanges == 3 ? "+2-2" : ""));
        channel.left = 100;
        pool.grow(2 * MiB);
        CHECK(pool.reserved_bytes() == 2 * MiB);
    }
}

TEST_CASE("collective_pool: where one rank's host has no memory no rank has grown, and all can try again") {
    if (!support::host_memory_can_fail)
        return;
    int failures = 0;
    for (bool failed = true; failed; ++failures) {
        CAPTURE(failures);
        machine const here;
        support::ranks ranks(2);
        multi_device::thread_ranks const place(2);
        std::array<std::string, 2> said;
        std::array<std::size_t, 2> held{};
        ranks.run([&](multi_device::rank_channel const& at) {
            auto const rank = static_cast<std::size_t>(at.rank());
            std::atomic<int> nobody{0};
            support::patient_channel channel(place, at.rank(), nobody, INT_MAX);
            pool_type pool(channel, weir::pool_options{}.device(static_cast<int>(rank) % here.count));
            try {
                support::failing_new const soon(rank == 1 ? failures : -1);
                pool.grow(4 * MiB);
            } catch (weir::out_of_memory const&) {
                said[rank] = "another";
            } catch (std::bad_alloc const&) {
                said[rank] = "own";
            }
            held[rank] = pool.reserved_bytes();
            pool.grow(2 * MiB);
        });
        failed = said[1] == "own";
        CHECK(said[0] == (failed ? "another" : ""));
        CHECK(held[0] == (failed ? 0 : 4 * MiB));
        CHECK(held[1] == held[0]);
    }
    CHECK(failures > 4);
}

TEST_CASE("collective_pool: where the host has no memory a growth changes nothing, and can be tried again") {
    if (!support::host_memory_can_fail)
        return;
    int failures = 0;
    for (long left = 0;; ++left) {
        CAPTURE(left);
        alone here;
        noted_chunks chunks(0);
        pool_type pool(here.channel, {}, &chunks);
        bool failed = false;
        try {
            support::failing_new const soon(left);
            pool.grow(4 * MiB);
        } catch (std::bad_alloc const&) {
            failed = true;
        }
        CHECK(pool.reserved_bytes() == (failed ? 0 : 4 * MiB));
        if (failed)
            pool.grow(4 * MiB);
        pool.deallocate_sync(pool.allocate_sync(4 * MiB), 4 * MiB);
        if (!failed)
            break;
        ++failures;
    }
    CHECK(failures > 4);
}

TEST_CASE("collective_pool: after the warm-up a step registers nothing and asks the driver for nothing") {
    alone here;
    scoped_stream a, b;
    noted_chunks chunks(0);
    pool_type pool(here.channel, weir::pool_options{}.reserve(8 * MiB), &chunks);
    auto const step = [&] {
        std::vector<block> held;
        for (std::size_t const bytes : {64 * KiB, std::size_t{300}, 1 * MiB, 5 * KiB})
            held.push_back({pool.allocate(a, bytes), bytes, 0});
        for (block const& each : held)
            pool.deallocate(a, each.p, each.bytes);
    };
    auto const step_on_two = [&] { // what one has freed is the other's: an event on this one, and a wait of that one
        void* const p = pool.allocate(a, 6 * MiB);
        pool.deallocate(a, p, 6 * MiB);
        CHECK(pool.allocate(b, 6 * MiB) == p);
        pool.deallocate(b, p, 6 * MiB);
    };
    step(), step_on_two(), step();
#ifdef WEIR_SIMULATED_CUDA
    auto const questions = [] { return simulated_cuda::calls("cudaStreamIsCapturing"); }; // which only look at the stream
    auto const orders = [] { return simulated_cuda::calls("cudaEventRecord") + simulated_cuda::calls("cudaStreamWaitEvent"); };
    auto const others = [&] { return simulated_cuda::calls() - questions(); };
    auto const before = others();
    for (int i = 0; i < 20; ++i)
        step();
    CHECK(others() == before);
    auto const ordered = orders();
    for (int i = 0; i < 20; ++i)
        step_on_two();
    CHECK(orders() - ordered <= 80); // two a handover
    for (char const* const call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cudaMalloc",
                                   "cudaFree", "cudaStreamSynchronize", "cudaDeviceSynchronize"}) {
        CAPTURE(call);
        auto const at = simulated_cuda::calls(call);
        step(), step_on_two();
        CHECK(simulated_cuda::calls(call) == at);
    }
#endif
    CHECK(chunks.said == "+8");
    CHECK(pool.state().chunks == 1);
}

TEST_CASE("collective_pool: random disagreements end in the right sentence on every rank, and none in a hang") {
    char const* const given = std::getenv("WEIR_DISAGREEMENTS"); // 1000 for a long campaign
    int const campaigns = given ? std::atoi(given) : 50;
    int told = 0;
    for (int campaign = 0; campaign < campaigns; ++campaign) {
        CAPTURE(campaign);
        machine const here;
        std::mt19937 draw(static_cast<unsigned>(campaign));
        int const count = 2 + static_cast<int>(draw() % 3);
        program const each{static_cast<unsigned>(draw()), 50, static_cast<int>(draw() % static_cast<unsigned>(count)), static_cast<int>(draw() % 50),
                           static_cast<int>(draw() % 4)};
        support::ranks ranks(count);
        std::vector<std::string> const said = said_by(ranks, here.count, [&](pool_type& pool, int rank) {
            pool.grow(8 * MiB);
            static_cast<void>(each.run(pool, rank));
            pool.grow(2 * MiB);
        });
        for (std::string const& one : said)
            CHECK(one == said[0]);
        if (!said[0].empty()) { // a step that asks the device only may be left out
            ++told;
            CHECK_SAYS(said[0], "weir: the ranks of pool 'sums' differ");
            std::string const changed = "rank " + std::to_string(each.changed == 0 ? 1 : each.changed);
            CHECK_SAYS(said[0], changed);
        }
    }
    CHECK(told > campaigns / 2);
}

TEST_CASE("collective_pool: whatever call of CUDA's fails, blocks are as they were and no byte is anybody's twice") {
    struct state {
        alone here;
        scoped_stream a, b;
        simple_pool pool{here.channel, weir::pool_options{}.reserve(4 * MiB)};
        void* kept = pool.allocate(b, 1 * MiB);
        void* used = pool.allocate(a, 1 * MiB);
        void* got = nullptr;
        state() {
            void* const freed = pool.allocate(a, 2 * MiB);
            write(a, freed, 2 * MiB);
            pool.deallocate(a, freed, 2 * MiB);
            pool.used_on(used, b);
        }
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto const calls = support::each_fault(
        prepare, [](state& now) { now.got = now.pool.allocate(now.b, 2 * MiB); },
        [](state& now, bool failed) {
            CHECK(failed == (now.got == nullptr));
            if (failed)
                now.got = now.pool.allocate(now.b, 2 * MiB); // as if nothing had been
            write(now.b, now.got, 2 * MiB);
            now.pool.deallocate(now.b, now.got, 2 * MiB);
            now.pool.deallocate(now.a, now.used, 1 * MiB);
            now.pool.deallocate(now.b, now.kept, 1 * MiB);
            CHECK(now.pool.state().lost_bytes == 0);
        });
    auto const frees = support::each_fault(
        prepare, [](state& now) { now.pool.deallocate(now.a, now.used, 1 * MiB); },
        [](state& now, bool failed) {
            CHECK_FALSE(failed);
            now.pool.deallocate(now.b, now.kept, 1 * MiB);
            // What nobody knows the last use of is lost.
            CHECK(now.pool.state().in_use_bytes == 0);
            CHECK((now.pool.state().lost_bytes == 0 || now.pool.state().lost_bytes == 1 * MiB));
        });
#ifdef WEIR_SIMULATED_CUDA
    CHECK(calls > 4);
    CHECK(frees > 2);
#else
    static_cast<void>(calls), static_cast<void>(frees);
#endif
}
