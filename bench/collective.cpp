// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: a program of its own, weir-bench-collective; needs weir, the CUDA runtime and NCCL 2.27 or later (or the simulated
// device and the stand-in for NCCL), and no Google Benchmark. Set NCCL_NVLS_ENABLE=0, so that figures are of the link.
//
// How fast is an all-reduce of registered memory, and what does a collective pool cost? Ranks are threads, one a device (all that
// there are, or as many as the first argument says). Microseconds an all-reduce of floats, out of place, the median of some
// rounds in which the kinds of memory take turns:
//
//     pool        weir::device_pool, which nobody registers
//     registered  multi_device::collective_pool with interop::nccl::windows
//     memalloc    ncclMemAlloc, not registered
//     window      ncclMemAlloc, with a window
//
// Then windows and chunks before and after, which must be the same; and nanoseconds a pair of allocate and free, beside
// device_pool. At last, with two devices or more, the speed of copies between the first two, each way: of sharded_vector's reshard
// (between pools that are open to each other, closed, and open one way) and of replicated's broadcast, beside cudaMemcpyPeerAsync of
// cudaMalloc's memory; and which way weir says that they take.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#ifdef WEIR_BENCH_SIMULATED
#include <support/simulated_nccl.hpp>
#endif
#include <weir/interop/nccl.hpp>
#include <weir/multi_device.hpp>
#include <weir/weir.hpp>

namespace {

namespace nccl = weir::interop::nccl;
using clock_type = std::chrono::steady_clock;

#ifdef WEIR_BENCH_SIMULATED
constexpr int rounds = 1, warm = 1, most_calls = 2, pairs = 100;
constexpr std::size_t largest = 64 * weir::KiB;
#else
constexpr int rounds = 9, warm = 20, most_calls = 500, pairs = 100000;
constexpr std::size_t largest = 64 * weir::MiB;
#endif
constexpr std::size_t smallest = 1 * weir::KiB;

// Two buffers of floats: what an all-reduce reads and writes.
struct memory {
    float* from = nullptr;
    float* to = nullptr;
    std::size_t count = 0;
};
struct view {
    float* first;
    std::size_t count;
    float* data() const { return first; }
    std::size_t size() const { return count; }
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

#ifndef WEIR_BENCH_SIMULATED
// A buffer of NCCL's own, with a window if `of` is to have one.
class nccl_buffer {
public:
    nccl_buffer(nccl::communicator& of, std::size_t bytes, bool has_window) : of_(of) {
        nccl::check_nccl(ncclMemAlloc(&p_, bytes), "ncclMemAlloc");
        if (has_window)
            nccl::check_nccl(ncclCommWindowRegister(of.get(), p_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
                             "ncclCommWindowRegister", of.get());
    }
    nccl_buffer(nccl_buffer const&) = delete;
    nccl_buffer& operator=(nccl_buffer const&) = delete;
    ~nccl_buffer() {
        if (window_)
            static_cast<void>(ncclCommWindowDeregister(of_.get(), window_));
        static_cast<void>(ncclMemFree(p_));
    }
    float* data() const { return static_cast<float*>(p_); }

private:
    nccl::communicator& of_;
    void* p_ = nullptr;
    ncclWindow_t window_ = nullptr;
};
#endif

class rank_bench {
public:
    rank_bench(weir::multi_device::rank_channel& channel, nccl::communicator& comm) : channel_(channel), comm_(comm) {
        weir::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    rank_bench(rank_bench const&) = delete;
    rank_bench& operator=(rank_bench const&) = delete;
    ~rank_bench() { static_cast<void>(cudaStreamDestroy(stream_)); }

    void run() {
        weir::device_pool plain(weir::pool_options{}.device(comm_.device()));
        nccl::windows windows(comm_);
        {
            weir::multi_device::collective_pool<> pool(
                channel_, weir::pool_options{}.reserve(2 * largest + 64 * weir::MiB), &windows);
            std::size_t const windows_before = windows.size();
            std::size_t const chunks_before = pool.state().chunks;
            all_reduce(plain, pool);
            say("windows %zu before, %zu after; chunks %zu before, %zu after\n", windows_before, windows.size(), chunks_before,
                pool.state().chunks);
            say("\n%-12s %14s %14s\n", "a pair of", "collective_pool", "device_pool");
            for (std::size_t const bytes : {std::size_t{256}, 4 * weir::KiB, 64 * weir::KiB, 1 * weir::MiB}) {
                double const collective = pair_ns(pool, bytes), single = pair_ns(plain, bytes);
                say("%9zu B %12.1f ns %12.1f ns\n", bytes, collective, single);
            }
            pool.agree();
            pool.settle();
        }
    }

private:
    template <class... Arguments>
    void say(char const* format, Arguments... arguments) const {
        if (channel_.rank() == 0)
            std::printf(format, arguments...);
    }

    void all_reduce(weir::device_pool& plain, weir::multi_device::collective_pool<>& pool) {
        say("%-12s %12s %12s %12s %12s  us an all-reduce\n", "bytes", "pool", "registered", "memalloc", "window");
        for (std::size_t bytes = smallest; bytes <= largest; bytes *= 4) {
            std::size_t const count = bytes / sizeof(float);
            weir::device_vector<float> a(plain, stream_, count), b(plain, stream_, count);
            weir::device_vector<float> c(pool, stream_, count), d(pool, stream_, count);
            for (auto* const each : {&a, &b, &c, &d})
                each->zero_async();
            std::vector<memory> kinds{{a.data(), b.data(), count}, {c.data(), d.data(), count}};
#ifndef WEIR_BENCH_SIMULATED
            nccl_buffer const e(comm_, bytes, false), f(comm_, bytes, false), g(comm_, bytes, true), h(comm_, bytes, true);
            kinds.push_back({e.data(), f.data(), count});
            kinds.push_back({g.data(), h.data(), count});
#endif
            std::vector<std::vector<double>> us(kinds.size());
            int const calls = std::max(most_calls / 25, most_calls / (1 + static_cast<int>(bytes / weir::MiB)));
            for (int round = 0; round < rounds; ++round)
                for (std::size_t i = 0; i < kinds.size(); ++i)
                    us[i].push_back(all_reduce_us(kinds[i], calls));
            say("%-12zu", bytes);
            for (std::vector<double> const& each : us)
                say(" %12.2f", median(each));
            say("%s", "\n");
        }
    }

    double all_reduce_us(memory const& of, int calls) {
        view const from{of.from, of.count};
        view to{of.to, of.count};
        for (int i = 0; i < warm; ++i)
            comm_.all_reduce(stream_, from, to);
        weir::synchronize(stream_);
        std::vector<char> all(static_cast<std::size_t>(channel_.ranks()));
        char const own = 0;
        static_cast<void>(channel_.exchange(&own, 1, all.data())); // they begin together
        auto const began = clock_type::now();
        for (int i = 0; i < calls; ++i)
            comm_.all_reduce(stream_, from, to);
        weir::synchronize(stream_);
        return std::chrono::duration<double, std::micro>(clock_type::now() - began).count() / calls;
    }

    template <class Pool>
    double pair_ns(Pool& pool, std::size_t bytes) const {
        std::vector<double> ns;
        for (int round = 0; round < rounds; ++round) {
            auto const began = clock_type::now();
            for (int i = 0; i < pairs; ++i)
                pool.deallocate(stream_, pool.allocate(stream_, bytes), bytes);
            ns.push_back(std::chrono::duration<double, std::nano>(clock_type::now() - began).count() / pairs);
        }
        return median(ns);
    }

    weir::multi_device::rank_channel& channel_;
    nccl::communicator& comm_;
    cudaStream_t stream_ = nullptr;
};

// Pools of which one alone is open to the other devices.
class one_way_pools {
public:
    explicit one_way_pools(int open) {
        for (int i = 0; i < weir::runtime::device_count(); ++i) {
            weir::upstream::virtual_memory<> memory(i);
            for (int other = 0; i == open && other < weir::runtime::device_count(); ++other)
                static_cast<void>(memory.try_enable_access_from(other));
            pools_.push_back(std::make_unique<weir::device_pool>(memory));
        }
    }
    weir::device_pool& operator[](int device) const { return *pools_[static_cast<std::size_t>(device)]; }

private:
    std::vector<std::unique_ptr<weir::device_pool>> pools_;
};

// Copies between devices 0 and 1, each way.
class peer_bench {
    static constexpr std::size_t bytes = 4 * largest, count = bytes / sizeof(float);
    using route = weir::multi_device::route;

public:
    void run() {
        void* plain[2] = {};
        for (int device : {0, 1}) {
            weir::runtime::device_scope const there(device);
            weir::check_cuda(cudaMalloc(&plain[device], bytes), "cudaMalloc");
        }
        std::printf("\n%-26s %8s %8s %8s  %s\n", "copies, GB/s", "0 to 1", "1 to 0", "of it", "way");
        measure(
            "cudaMemcpyPeerAsync",
            [&](int to) {
                int const from = 1 - to;
                weir::check_cuda(cudaMemcpyPeerAsync(plain[to], to, plain[from], from, bytes, streams_[to]), "cudaMemcpyPeerAsync");
            },
            [&] { return weir::multi_device::route_of(plain[1], 1, plain[0], 0); });
        for (void* const each : plain)
            weir::check_cuda(cudaFree(each), "cudaFree");
        using weir::multi_device::peer_access;
        using pools = weir::multi_device::per_device<weir::device_pool>;
        pools open, closed({}, peer_access::none);
        one_way_pools const first(0), second(1);
        reshard("reshard, open", open);
        reshard("reshard, closed", closed);
        reshard("reshard, 0 open to 1", first);
        reshard("reshard, 1 open to 0", second);
        weir::multi_device::replicated<float> copies(open, streams_, count);
        measure("broadcast, open", [&](int to) { copies.broadcast_async(1 - to); }, [&] { return copies.last_route(0, 1); },
                copies.devices() - 1);
    }

private:
    template <class Pools>
    void reshard(char const* name, Pools& pools) {
        weir::multi_device::sharded_vector<float> shards(pools, streams_, {count});
        measure(
            name, [&](int to) { to == 0 ? shards.reshard({count}) : shards.reshard({0, count}); },
            [&] { return shards.last_route(0, 1); });
    }

    // copy(to) copies `times` times as many bytes from the other device to that one.
    template <class Copy, class Way>
    void measure(char const* name, Copy const& copy, Way const& way, int times = 1) {
        std::vector<double> rates[2];
        for (int round = 0; round < rounds; ++round) {
            double ns[2] = {};
            for (int i = -1; i < warm; ++i)
                for (int const to : {1, 0}) {
                    auto const began = clock_type::now();
                    copy(to);
                    streams_.synchronize();
                    ns[to] += i < 0 ? 0 : std::chrono::duration<double, std::nano>(clock_type::now() - began).count();
                }
            for (int const to : {0, 1})
                rates[to].push_back(static_cast<double>(bytes) * times * warm / ns[to]);
        }
        double const there = median(rates[1]), back = median(rates[0]);
        link_ = link_ == 0 ? there + back : link_;
        char const* const ways[] = {"none", "same", "link", "host", "as CUDA decides"};
        std::printf("%-26s %8.1f %8.1f %7.0f%%  %s\n", name, there, back, 100 * (there + back) / link_,
                    ways[static_cast<int>(way())]);
    }

    weir::multi_device::device_streams streams_;
    double link_ = 0;
};

} // namespace

int main(int argc, char** argv) {
#ifdef WEIR_BENCH_SIMULATED
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(2));
#endif
    int const count = argc > 1 ? std::atoi(argv[1]) : weir::runtime::device_count();
    weir::multi_device::thread_ranks const place(count);
    std::vector<std::thread> threads;
    std::vector<std::string> failures(static_cast<std::size_t>(count));
    for (int rank = 0; rank < count; ++rank)
        threads.emplace_back([&, rank] {
            try {
                weir::check_cuda(cudaSetDevice(rank), "cudaSetDevice");
                weir::multi_device::thread_channel channel(place, rank);
                nccl::communicator comm(channel);
                rank_bench(channel, comm).run();
            } catch (std::exception const& error) {
                failures[static_cast<std::size_t>(rank)] = error.what();
            }
        });
    for (std::thread& each : threads)
        each.join();
    try {
        if (weir::runtime::device_count() > 1)
            peer_bench().run();
    } catch (std::exception const& error) {
        failures.push_back(error.what());
    }
    int failed = 0;
    for (std::string const& each : failures)
        if (!each.empty())
            failed = std::fprintf(stderr, "%s\n", each.c_str());
    return failed == 0 ? 0 : 1;
}
