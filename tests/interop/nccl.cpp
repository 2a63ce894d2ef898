// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// With the stand-in for NCCL, on the simulated device.
#ifdef WEIR_SIMULATED_CUDA

#include <array>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <optional>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/recording.hpp>
#include <support/sentence.hpp>
#include <support/simulated_nccl.hpp>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <weir/container/vector.hpp>
#include <weir/interop/nccl.hpp>
#include <weir/multi_device.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes/device_pool.hpp>
#include <weir/upstream/device.hpp>

namespace {

namespace nccl = weir::interop::nccl;
namespace multi_device = weir::multi_device;
using support::scoped_stream;
using weir::MiB;

void check_silent(std::vector<std::string> const& said) {
    for (std::string const& each : said)
        CHECK(each == "");
}

// What each rank says of a body that has a communicator on a device of its own; "" where it says nothing.
template <class Body>
std::vector<std::string> said_by(int ranks, Body const& body) {
    multi_device::thread_ranks const place(ranks);
    std::vector<std::string> said(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int each = 0; each < ranks; ++each)
        threads.emplace_back([&, each] {
            try {
                CHECK(cudaSetDevice(each) == cudaSuccess);
                multi_device::thread_channel channel(place, each);
                nccl::communicator comm(channel);
                body(comm, channel);
            } catch (std::exception const& error) {
                said[static_cast<std::size_t>(each)] = error.what();
            }
        });
    for (std::thread& each : threads)
        each.join();
    return said;
}

std::vector<std::string> complaints() {
    return std::exchange(simulated_nccl::complaints(), {});
}

simulated_cuda::config devices(int count) {
    return simulated_cuda::config{}.late().with_devices(count);
}

constexpr std::uint64_t long_ns = 3'600'000'000'000;

} // namespace

TEST_CASE("nccl: collectives of containers, as work on their streams") {
    simulated_cuda::world const world(devices(3), support::report_all);
    std::vector<std::string> const said = said_by(3, [](nccl::communicator& comm, auto&) {
        CHECK(comm.ranks() == 3);
        CHECK(comm.device() == comm.rank());
        weir::device_pool pool(weir::pool_options{}.device(comm.device()));
        scoped_stream stream;
        int const rank = comm.rank();
        weir::device_vector<int> xs(pool, stream, std::vector<int>{rank, 10 + rank, 20 + rank});
        weir::device_vector<int> sums(pool, stream, 3), all(pool, stream, 9), part(pool, stream, 1);
        auto const held = [](weir::device_vector<int> const& of) { return of.to_host_sync<std::vector>(); };
        comm.all_reduce(stream, xs, sums);
        comm.synchronize(stream, long_ns);
        CHECK(held(sums) == std::vector<int>{3, 33, 63});
        comm.all_reduce(stream, xs, sums, ncclMax);
        CHECK(held(sums) == std::vector<int>{2, 12, 22});
        comm.all_gather(stream, xs, all);
        CHECK(held(all) == std::vector<int>{0, 10, 20, 1, 11, 21, 2, 12, 22});
        comm.reduce_scatter(stream, xs, part);
        CHECK(held(part) == std::vector<int>{3 + 30 * rank});
        comm.broadcast(stream, xs, 2);
        CHECK(held(xs) == std::vector<int>{2, 12, 22});
        // In a ring: each sends to the next.
        nccl::group ring;
        comm.send(stream, part, (rank + 1) % 3);
        comm.receive(stream, sums, (rank + 2) % 3); // as many, or they hang
        CHECK_SAYS(support::sentence_of<nccl::nccl_error>([&] { ring.end(); }), "the real one would hang");
    });
    check_silent(said);
    CHECK(complaints().empty());
}

TEST_CASE("nccl: ranks that send to one another do so in a group") {
    simulated_cuda::world const world(devices(2), support::report_all);
    check_silent(said_by(2, [](nccl::communicator& comm, auto&) {
              weir::device_pool pool(weir::pool_options{}.device(comm.device()));
              scoped_stream stream;
              weir::device_vector<double> mine(pool, stream, std::vector<double>{1.5 * comm.rank()});
              weir::device_vector<double> theirs(pool, stream, 1);
              {
                  nccl::group both;
                  comm.send(stream, mine, 1 - comm.rank());
                  comm.receive(stream, theirs, 1 - comm.rank());
                  both.end();
              }
              CHECK(theirs.to_host_sync<std::vector>() == std::vector<double>{1.5 * (1 - comm.rank())});
              {
                  nccl::group ends_by_itself;
                  comm.send(stream, mine, 1 - comm.rank());
                  comm.receive(stream, theirs, 1 - comm.rank());
              }
              CHECK_SAYS(support::sentence_of<nccl::nccl_error>([&] { comm.send(stream, mine, 1 - comm.rank()); }),
                         "and all others wait as well: the real one would hang");
              comm.synchronize(stream, long_ns);
          }));
    CHECK(complaints().empty());
}

TEST_CASE("nccl: one thread with several devices calls in a group") {
    simulated_cuda::world const world(devices(2), support::report_all);
    weir::base::growing_array<nccl::communicator> ranks = nccl::communicator::all(std::array<int, 2>{0, 1});
    multi_device::per_device<weir::device_pool> pools;
    multi_device::device_streams const streams;
    std::vector<weir::device_vector<float>> xs;
    for (int i = 0; i < 2; ++i)
        xs.emplace_back(pools[i], streams[i], std::vector<float>{1.0f + static_cast<float>(i)});
    nccl::group together;
    for (std::size_t i = 0; i < 2; ++i)
        ranks[i].all_reduce(streams[static_cast<int>(i)], xs[i], xs[i]);
    together.end();
    for (weir::device_vector<float> const& each : xs)
        CHECK(each.to_host_sync<std::vector>() == std::vector<float>{3});
    CHECK_SAYS(support::sentence_of<nccl::nccl_error>([&] { ranks[0].all_reduce(streams[0], xs[0], xs[0]); }),
               "for a rank of its own thread; make the calls in a group");
    CHECK(support::sentence_of<weir::usage_error>([] { static_cast<void>(nccl::communicator::all(std::array<int, 2>{1, 1})); }) ==
          "weir: device 1 is named twice; each rank has a device of its own");
    CHECK_THROWS_AS(static_cast<void>(nccl::communicator::all(std::array<int, 1>{7})), weir::usage_error);
    CHECK(complaints().empty());
}

TEST_CASE("nccl: a collective in a captured graph runs at each launch, on what is there then") {
    simulated_cuda::world const world(devices(1), support::report_all);
    check_silent(said_by(1, [](nccl::communicator& comm, auto&) {
              scoped_stream stream;
              weir::device_pool pool;
              weir::device_vector<int> xs(pool, stream, std::vector<int>{1, 2}), sums(pool, stream, std::vector<int>{7, 7});
              support::recording graph(stream);
              comm.all_reduce(stream, xs, sums);
              graph.end();
              CHECK(sums.to_host_sync<std::vector>() == std::vector<int>{7, 7}); // captured, and not run
              for (int first : {3, 5}) {
                  xs.assign(std::vector<int>{first, 2});
                  graph.launch(stream);
                  CHECK(sums.to_host_sync<std::vector>() == std::vector<int>{first, 2});
              }
          }));
    CHECK(complaints().empty());
}

TEST_CASE("nccl: collectives of two ranks in one captured graph, whichever device is current") {
    simulated_cuda::world const world(devices(2), support::report_all);
    weir::base::growing_array<nccl::communicator> ranks = nccl::communicator::all(std::array<int, 2>{0, 1});
    multi_device::per_device<weir::device_pool> pools;
    multi_device::device_streams const streams;
    for (int const current : {0, 1}) {
        CAPTURE(current);
        CHECK(cudaSetDevice(current) == cudaSuccess);
        multi_device::sharded_vector<int> xs(pools, streams, 2);
        xs.scatter(std::vector<int>{1, 2});
        weir::order_after(streams[0], streams[1]);
        support::recording graph(streams[0]);
        weir::order_after(streams[1], streams[0]);
        nccl::group together;
        for (int i : {0, 1})
            ranks[static_cast<std::size_t>(i)].all_reduce(streams[i], xs[i], xs[i]);
        together.end();
        weir::order_after(streams[0], streams[1]);
        graph.end();
        for (int const sum : {3, 6}) {
            graph.launch(streams[0]);
            weir::order_after(streams[1], streams[0]);
            CHECK(xs.to_host_sync<std::vector>() == std::vector<int>{sum, sum});
        }
    }
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(complaints().empty());
}

TEST_CASE("nccl: threads with communicators of their own do not meet") {
    simulated_cuda::world const world(devices(4), support::report_all);
    std::vector<std::string> said(2);
    std::vector<std::thread> threads;
    for (int t : {0, 1})
        threads.emplace_back([&, t] {
            try {
                std::array<int, 2> const own{2 * t, 2 * t + 1};
                weir::base::growing_array<nccl::communicator> ranks = nccl::communicator::all(own);
                multi_device::per_device<weir::device_pool> pools;
                multi_device::device_streams const streams;
                std::vector<weir::device_vector<int>> xs;
                for (int const each : own)
                    xs.emplace_back(pools[each], streams[each], std::vector<int>{1, t});
                for (int round = 0; round < 5; ++round) {
                    nccl::group together;
                    for (std::size_t i : {0u, 1u})
                        ranks[i].all_reduce(streams[own[i]], xs[i], xs[i]);
                    together.end();
                }
                for (weir::device_vector<int> const& each : xs)
                    CHECK(each.to_host_sync<std::vector>() == std::vector<int>{32, 32 * t});
            } catch (std::exception const& error) {
                said[static_cast<std::size_t>(t)] = error.what();
            }
        });
    for (std::thread& each : threads)
        each.join();
    check_silent(said);
    CHECK(complaints().empty());
}

TEST_CASE("nccl: a collective pool's chunks are windows, registered once each, and its blocks lie at one offset on all ranks") {
    simulated_cuda::world const world(devices(3), support::report_all);
    check_silent(said_by(3, [](nccl::communicator& comm, multi_device::rank_channel& channel) {
              scoped_stream stream;
              nccl::windows windows(comm);
              CHECK(nccl::windows::exist);
              {
                  multi_device::collective_pool<> pool(channel, weir::pool_options{}.reserve(2 * MiB), &windows);
                  pool.grow(4 * MiB);
                  CHECK(windows.size() == 2);
                  weir::device_vector<float> const one(pool, stream, std::vector<float>(100000, 1.0f));
                  for (int step = 0; step < 3; ++step) {
                      weir::device_vector<float> sums(pool, stream, 100000);
                      comm.all_reduce(stream, one, sums);
                      CHECK(sums.to_host_sync<std::vector>()[99999] == 3.0f);
                  }
                  CHECK(windows.size() == 2);
                  // What lies at another offset on one rank is found.
                  void* const skewed = comm.rank() == 1 ? pool.allocate(stream, 1000) : nullptr;
                  weir::device_vector<float> other(pool, stream, 100);
                  CHECK_SAYS(support::sentence_of<nccl::nccl_error>([&] { comm.all_reduce(stream, other, other); }), "of window");
                  pool.deallocate(stream, skewed, 1000);
              }
              CHECK(windows.size() == 0);
          }));
    CHECK(complaints().empty()); // such as a window whose memory went before it
}

TEST_CASE("nccl: memory that cannot be registered is refused on every rank, and no rank has grown") {
    simulated_cuda::world const world(devices(2), support::report_all);
    using plain = multi_device::collective_pool<weir::upstream::device, weir::placement::best_fit<>>;
    check_silent(said_by(2, [](nccl::communicator& comm, multi_device::rank_channel& channel) {
              nccl::windows windows(comm);
              plain pool(channel, {}, &windows);
              CHECK_SAYS(support::sentence_of<nccl::nccl_error>([&] { pool.grow(2 * MiB); }),
                         "weir: ncclCommWindowRegister failed: an error (4): a window's memory is cuMemCreate's");
              CHECK(pool.reserved_bytes() == 0);
              CHECK(windows.size() == 0);
          }));
    CHECK(complaints().empty());
}

TEST_CASE("nccl: ranks that disagree, or end, are told so") {
    simulated_cuda::world world(devices(2), support::report_all);
    struct row {
        char const* says;
        void (*does)(nccl::communicator&, weir::device_vector<int>&, cudaStream_t);
    };
    for (row const& each : {
             row{"rank 0 calls all-reduce of 4 (type 2, 0) and rank 1 calls all-reduce of 4 (type 2, 2): the real one would hang",
                 [](auto& comm, auto& xs, auto s) { comm.all_reduce(s, xs, xs, comm.rank() == 1 ? ncclMax : ncclSum); }},
             row{"rank 0 calls broadcast of 4 (type 2, 0) and rank 1 calls all-reduce of 4 (type 2, 0)",
                 [](auto& comm, auto& xs, auto s) {
                     if (comm.rank() == 0)
                         comm.broadcast(s, xs, 0);
                     else
                         comm.all_reduce(s, xs, xs);
                 }},
             row{"rank 0 waits in all-reduce of 4 (type 2, 0), and a rank has ended: the real one would hang",
                 [](auto& comm, auto& xs, auto s) {
                     if (comm.rank() == 0)
                         comm.all_reduce(s, xs, xs);
                     comm.abort();
                 }},
         }) {
        CAPTURE(each.says);
        std::vector<std::string> const said = said_by(2, [&](nccl::communicator& comm, auto&) {
            weir::device_pool pool(weir::pool_options{}.device(comm.device()));
            scoped_stream stream;
            weir::device_vector<int> xs(pool, stream, std::vector<int>(4, 1));
            each.does(comm, xs, stream);
        });
        CHECK_SAYS(said[0], "failed: invalid usage (5): ");
        CHECK_SAYS(said[0], each.says);
    }
    CHECK(complaints().empty());
}

TEST_CASE("nccl: a stream that takes too long, or an error that comes later, aborts") {
    simulated_cuda::world const world(devices(1), support::report_all);
    scoped_stream stream;
    weir::device_pool pool;
    weir::device_vector<int> xs(pool, stream, 4);
    for (bool const fails : {false, true}) {
        CAPTURE(fails);
        check_silent(said_by(1, [&](nccl::communicator& comm, auto&) {
                  simulated_cuda::gate gate;
                  CHECK(gate.close(stream) == cudaSuccess);
                  comm.all_reduce(stream, xs, xs);
                  comm.check();
                  if (fails)
                      simulated_nccl::fail_later(comm.get(), ncclRemoteError);
                  int turns = 0;
                  std::string const told =
                      support::sentence_of<nccl::nccl_error>([&] { comm.synchronize_while(stream, [&] { return turns++ < 3; }); });
                  CHECK_SAYS(told, fails ? "weir: a collective failed: an error (6)"
                                         : "weir: a collective of rank 0 took longer than its limit and was aborted; a rank has "
                                           "ended, or makes other calls than this one");
                  CHECK(turns == (fails ? 0 : 4));
                  CHECK(comm.get() == nullptr);
                  CHECK(support::sentence_of<weir::usage_error>([&] { comm.all_reduce(stream, xs, xs); }) ==
                        "weir: the communicator was aborted; make a new one");
                  CHECK_THROWS_AS(comm.check(), weir::usage_error);
                  comm.abort(); // once more changes nothing
                  gate.open();
                  weir::synchronize(stream);
              }));
    }
    CHECK(nccl::nccl_error("weir: text").code() == ncclInProgress);
}

TEST_CASE("nccl: what is wrong is said before NCCL is called") {
    simulated_cuda::world const world(devices(1), support::report_all);
    check_silent(said_by(1, [](nccl::communicator& comm, auto&) {
              scoped_stream stream;
              weir::device_pool pool;
              weir::device_vector<int> three(pool, stream, 3), two(pool, stream, 2);
              auto const says = [](auto const& call) { return support::sentence_of<weir::usage_error>(call); };
              CHECK(says([&] { comm.all_reduce(stream, three, two); }) ==
                    "weir: all_reduce needs as many elements in both containers");
              CHECK(says([&] { comm.all_gather(stream, three, two); }) ==
                    "weir: all_gather needs as many times the elements in 'to' as there are ranks");
              CHECK(says([&] { comm.reduce_scatter(stream, three, two); }) ==
                    "weir: reduce_scatter needs as many times the elements in 'from' as there are ranks");
              cudaGraph_t graph = nullptr;
              CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
              CHECK_SAYS(says([&] { comm.synchronize(stream, long_ns); }), "weir: the host cannot wait for a stream");
              CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
              CHECK(cudaGraphDestroy(graph) == cudaSuccess);
          }));
    struct late : multi_device::rank_channel {
        int rank() const noexcept override { return 1; }
        int ranks() const noexcept override { return 2; }
        int exchange(void const*, std::size_t, void*) override { return 0; }
    } channel;
    CHECK(support::sentence_of<weir::usage_error>([&] { nccl::communicator none(channel); }) ==
          "weir: rank 0 did not come to make the communicator before the deadline; end all ranks and begin anew");
}

TEST_CASE("nccl: the stand-in complains of a missing group end, and of use before a collective's end") {
    simulated_cuda::world world(devices(2));
    check_silent(said_by(1, [](nccl::communicator&, auto&) { CHECK(ncclGroupStart() == ncclSuccess); }));
    CHECK(complaints() == std::vector<std::string>{"a communicator ends inside a group: ncclGroupEnd is missing"});
    CHECK(ncclGroupEnd() == ncclInvalidUsage); // of this thread there is none
    check_silent(said_by(2, [](nccl::communicator& comm, auto&) {
              weir::device_pool pool(weir::pool_options{}.device(comm.device()));
              scoped_stream stream, other;
              weir::device_vector<int> xs(pool, stream, std::vector<int>(4, 1));
              comm.all_reduce(stream, xs, xs);
              CHECK(cudaMemsetAsync(xs.data(), 0, 16, other) == cudaSuccess);
              CHECK(cudaDeviceSynchronize() == cudaSuccess);
          }));
    bool found = false;
    for (simulated_cuda::report const& each : world.finish())
        found = found || each.kind == simulated_cuda::finding::use_in_flight;
    CHECK(found);
}

TEST_CASE("nccl: types have NCCL's names") {
    CHECK(nccl::data_type<float> == ncclFloat32);
    CHECK(nccl::data_type<double> == ncclFloat64);
    CHECK(nccl::data_type<signed char> == ncclInt8);
    CHECK(nccl::data_type<unsigned char> == ncclUint8);
    CHECK(nccl::data_type<int> == ncclInt32);
    CHECK(nccl::data_type<unsigned> == ncclUint32);
    CHECK(nccl::data_type<long> == ncclInt64);
    CHECK(nccl::data_type<unsigned long long> == ncclUint64);
}

namespace {

// Two ranks that are threads of this test, and talk by sockets: each with a pool on a device of its own. What rank 0 says.
template <class Body>
std::string said_by_first(std::uint64_t deadline_ns, Body const& body) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    std::string said;
    auto const be = [&](multi_device::rank_channel& channel) {
        CHECK(cudaSetDevice(channel.rank()) == cudaSuccess);
        return support::sentence_of<std::exception>([&] {
            multi_device::collective_pool<> pool(channel, weir::pool_options{}.name("sums"));
            body(pool, channel);
        });
    };
    std::thread other([&] {
        multi_device::socket_channel channel(ends[1], 1, 2);
        static_cast<void>(be(channel));
        close(ends[1]); // it has ended
    });
    multi_device::socket_channel channel(std::array<int, 1>{ends[0]}, deadline_ns);
    said = be(channel);
    close(ends[0]);
    other.join();
    return said;
}

std::string said_of_wrong(void (*body)(nccl::communicator&, multi_device::rank_channel&)) {
    return said_by(2, body)[0];
}

} // namespace

TEST_CASE("nccl: bad input gets a sentence") {
    struct row {
        char const* what;
        char const* says;
        std::string (*said)();
    };
    constexpr static std::uint64_t for_ever = UINT64_MAX;
    for (row const& each : {
             row{"a rank that dies",
                 "weir: rank 1 of pool 'sums' did not come to 'grow' before the deadline: it has ended, or does something else; this "
                 "was call 1 of rank 0; end all ranks and begin anew",
                 [] {
                     return said_by_first(for_ever, [](auto& pool, auto& channel) {
                         if (channel.rank() == 0)
                             pool.grow(2 * MiB);
                     });
                 }},
             row{"a rank that never comes",
                 "weir: rank 1 did not come to make the communicator before the deadline; end all ranks and begin anew",
                 [] {
                     int ends[2];
                     REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
                     multi_device::socket_channel channel(std::array<int, 1>{ends[0]}, 0);
                     std::string const said = support::sentence_of<weir::usage_error>([&] { nccl::communicator none(channel); });
                     close(ends[0]), close(ends[1]);
                     return said;
                 }},
             row{"sizes that differ between ranks",
                 "weir: the ranks of pool 'sums' differ: call 1 is 'grow by 2097152 bytes (2 MiB)' on rank 0 and 'grow by 4194304 "
                 "bytes (4 MiB)' on rank 1; make the same calls in the same order on every rank, whatever each one's work is",
                 [] {
                     return said_by_first(for_ever,
                                          [](auto& pool, auto& channel) { pool.grow(channel.rank() == 0 ? 2 * MiB : 4 * MiB); });
                 }},
             row{"records whose sizes differ",
                 "weir: rank 0 exchanges 4 bytes and rank 1 8: they make different calls, such as one that grows a pool and one "
                 "that makes a communicator; make the same calls in the same order on every rank",
                 [] {
                     return said_by_first(for_ever, [](auto&, auto& channel) {
                         char record[8] = {}, all[16];
                         static_cast<void>(channel.exchange(record, channel.rank() == 0 ? 4 : 8, all));
                     });
                 }},
             row{"sizes that differ in a collective", "weir: all_reduce needs as many elements in both containers",
                 [] {
                     return said_of_wrong([](nccl::communicator& comm, auto&) {
                         std::vector<int> const three(3);
                         std::vector<int> two(2);
                         comm.all_reduce(weir::default_stream, three, two);
                     });
                 }},
             row{"a device named twice", "weir: device 1 is named twice; each rank has a device of its own",
                 [] {
                     return support::sentence_of<weir::usage_error>(
                         [] { static_cast<void>(nccl::communicator::all(std::array<int, 2>{1, 1})); });
                 }},
             row{"two ranks on one device", "weir: ncclCommInitRank failed: invalid usage (5): two ranks are on device 0",
                 [] {
                     multi_device::thread_ranks const place(2);
                     std::string said[2];
                     auto const be = [&](int rank) {
                         CHECK(cudaSetDevice(0) == cudaSuccess);
                         multi_device::thread_channel channel(place, rank);
                         said[rank] = support::sentence_of<nccl::nccl_error>([&] { nccl::communicator none(channel); });
                     };
                     std::thread other([&] { be(1); });
                     be(0);
                     other.join();
                     CHECK(said[1] == said[0]);
                     return said[0];
                 }},
             row{"memory that cannot be registered",
                 "weir: ncclCommWindowRegister failed: an error (4): a window's memory is cuMemCreate's",
                 [] {
                     return said_of_wrong([](nccl::communicator& comm, multi_device::rank_channel& channel) {
                         nccl::windows windows(comm);
                         multi_device::collective_pool<weir::upstream::device, weir::placement::best_fit<>> pool(channel, {}, &windows);
                         pool.grow(2 * MiB);
                     });
                 }},
             row{"a collective on a captured stream beside one that is not captured",
                 "weir: ncclGroupEnd failed: invalid usage (5): a communicator's calls in a group are all captured into one graph, or "
                 "none of them is",
                 [] {
                     return said_by(1, [](nccl::communicator& comm, auto&) {
                         weir::device_pool pool;
                         scoped_stream captured, other;
                         weir::device_vector<int> xs(pool, captured, 4), ys(pool, other, 4);
                         support::capture const graph(captured);
                         nccl::group both;
                         comm.all_reduce(captured, xs, xs);
                         comm.all_reduce(other, ys, ys);
                         both.end();
                     })[0];
                 }},
             row{"a wait for a captured stream",
                 "weir: the host cannot wait for a stream that is being captured into a graph; end the capture first",
                 [] {
                     return said_by(1, [](nccl::communicator& comm, auto&) {
                         scoped_stream stream;
                         support::capture const graph(stream);
                         comm.synchronize(stream, long_ns);
                     })[0];
                 }},
         }) {
        CAPTURE(each.what);
        simulated_cuda::world const world(devices(2), support::report_all);
        CHECK(each.said() == each.says);
        CHECK(complaints().empty());
    }
}

#endif
