// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: weir-bench-staging, a program of its own; needs weir, the CUDA runtime (or the simulated device) and threads.
//
// How fast do bytes travel between host and device, and how close is that to what the machine can do? A line a row, as
// 'row,unit,median,least,most' of WEIR_BENCH_REPEAT (3) repetitions after one that is not timed.
//
// link        plain copies of pinned memory, each way and both ways at once (then the sum of both); GB/s
// memcpy      host memory to host memory, by one thread and by eight (copy_threads)
// cudaMemcpy  ordinary memory, as CUDA itself does it
// staged      the same through a pinned_ring, alone and with 1, 3 and 7 helping threads
// small       100,000 pieces of 4 KiB: a loop of cudaMemcpyAsync, and copy_batch; us for all
// sum         data of 4 times the pool's limit, chunk by chunk, nothing comes back; 'naive': cudaMemcpy, kernel, wait
// transform   the same, and all comes back; GB/s each way
// managed     the kernel over managed memory that the host has written; within free memory
// convert     floats that become halves on the way; GB/s of floats. To the device, from ordinary memory: by the ring's threads, and
//             'memcpy_kernel': cudaMemcpy, then a kernel. To the host: by a kernel into pinned memory (with so many blocks) or
//             through the ring, 'kernel_copy': a kernel, then a copy, and 'copy_host': a copy, then the host (by eight threads)
// spill       passes over buffers of twice a budget, each changed or only read in place: GB/s of what the policy moves, both
//             ways together ('link/both_ways' is the bound where buffers are changed, 'link/to_device' where they are read;
//             the bound in time is the greater of the two ways); 'prefetched_2': each buffer is asked for two uses before its
//             own; 'managed': the same passes over managed memory, which is
//             prefetched to the device and, half the buffers later, to the host. 'fits': 1000 accesses of buffers that fit,
//             so the figure is nanoseconds an access
// sort        32-bit keys of 4 times a pool's limit: runs that fit, then buckets of a piece of each run (as
//             examples/17_sort_out_of_core.cu); GB/s both ways together, where each key crosses twice each way:
//             'link/both_ways' is the bound; 'runs': the first half alone; 'equal': all keys are one
//
//     WEIR_BENCH_MIB=1024     how much is moved, in MiB (simulated: 8)
//     WEIR_BENCH_REPEAT=3     repetitions
//     WEIR_BENCH_ONLY=staged  rows that begin so

#include "chunk_kernels.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>
#include <weir/staging.hpp>
#include <weir/weir.hpp>

namespace {

using namespace weir_bench;
namespace staging = weir::staging;
using clock = std::chrono::steady_clock;

std::size_t number(char const* name, std::size_t otherwise) {
    char const* const set = std::getenv(name);
    return set ? static_cast<std::size_t>(std::atoll(set)) : otherwise;
}

#ifdef WEIR_BENCH_SIMULATED
constexpr std::size_t default_mebibytes = 8, small_pieces = 200;
#else
constexpr std::size_t default_mebibytes = 1024, small_pieces = 100'000;
#endif

class own_stream {
public:
    own_stream() { weir::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
    own_stream(own_stream const&) = delete;
    own_stream& operator=(own_stream const&) = delete;
    ~own_stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
    operator cudaStream_t() const { return stream_; }
    void drain() const { weir::check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

private:
    cudaStream_t stream_ = nullptr;
};

// Times a body and prints its row. `bytes`: what the figure is of; 0: microseconds.
class table {
public:
    // Whether it was measured.
    template <class Body>
    bool row(std::string const& name, std::size_t bytes, Body const& body) const {
        static char const* const only = std::getenv("WEIR_BENCH_ONLY");
        if (only && name.rfind(only, 0) != 0)
            return false;
        try {
            std::vector<double> found;
            for (std::size_t i = 0; i <= repetitions_; ++i) {
                clock::time_point const start = clock::now();
                body();
                double const seconds = std::chrono::duration<double>(clock::now() - start).count();
                if (i != 0)
                    found.push_back(bytes != 0 ? static_cast<double>(bytes) / seconds / 1e9 : seconds * 1e6);
            }
            std::sort(found.begin(), found.end());
            std::printf("%s,%s,%.2f,%.2f,%.2f\n", name.c_str(), bytes != 0 ? "GB/s" : "us", found[found.size() / 2],
                        found.front(), found.back());
            std::fflush(stdout);
            return true;
        } catch (std::exception const& error) {
            std::printf("%s,failed,%s\n", name.c_str(), error.what());
            ++failures;
            return false;
        }
    }
    mutable int failures = 0;

private:
    std::size_t repetitions_ = std::max<std::size_t>(number("WEIR_BENCH_REPEAT", 3), 1);
};

// What everything is measured with: ordinary memory twice, pinned memory twice, memory of the device.
struct scene {
    explicit scene(std::size_t size) : bytes(size), from(size / sizeof(float)), to(size / sizeof(float)) {
        for (std::size_t i = 0; i != from.size(); ++i)
            from[i] = static_cast<float>(i % 7);
        locked_from = static_cast<float*>(pinned.allocate_sync(bytes));
        locked_to = static_cast<float*>(pinned.allocate_sync(bytes));
        std::memcpy(locked_from, from.data(), bytes);
        std::memset(static_cast<void*>(locked_to), 0, bytes);
    }
    ~scene() {
        pinned.deallocate_sync(locked_from, bytes);
        pinned.deallocate_sync(locked_to, bytes);
    }
    std::size_t bytes;
    std::vector<float> from, to;
    weir::pinned_pool pinned;
    float* locked_from;
    float* locked_to;
    own_stream stream, other;
};

void copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    weir::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

void plain(table const& out, scene& s, void* there) {
    std::size_t const half = s.bytes / 2;
    auto* const device = static_cast<char*>(there);
    out.row("link/to_device", s.bytes, [&] {
        copy(device, s.locked_from, s.bytes, cudaMemcpyHostToDevice, s.stream);
        s.stream.drain();
    });
    out.row("link/to_host", s.bytes, [&] {
        copy(s.locked_to, device, s.bytes, cudaMemcpyDeviceToHost, s.stream);
        s.stream.drain();
    });
    out.row("link/both_ways", 2 * half, [&] {
        copy(device, s.locked_from, half, cudaMemcpyHostToDevice, s.stream);
        copy(s.locked_to, device + half, half, cudaMemcpyDeviceToHost, s.other);
        s.stream.drain();
        s.other.drain();
    });
    out.row("memcpy/1", s.bytes, [&] { std::memcpy(s.to.data(), s.from.data(), s.bytes); });
    staging::copy_threads helpers(7);
    out.row("memcpy/8", s.bytes, [&] { helpers.copy(s.to.data(), s.from.data(), s.bytes); });
    out.row("memcpy/1_to_pinned", s.bytes, [&] { std::memcpy(s.locked_to, s.from.data(), s.bytes); });
    out.row("memcpy/8_to_pinned", s.bytes, [&] { helpers.copy(s.locked_to, s.from.data(), s.bytes); });
    out.row("cudaMemcpy/to_device", s.bytes, [&] {
        weir::check_cuda(cudaMemcpy(device, s.from.data(), s.bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        weir::check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
    });
    out.row("cudaMemcpy/to_host", s.bytes, [&] {
        weir::check_cuda(cudaMemcpy(s.to.data(), device, s.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    });
}

void staged(table const& out, scene& s, void* there) {
    for (unsigned const count : {0u, 1u, 3u, 7u}) {
        staging::copy_threads helpers(count);
        staging::pinned_ring_options options;
        if (count != 0)
            options.threads(helpers);
        staging::pinned_ring ring(s.pinned, options);
        std::string const with = "/helpers_" + std::to_string(count);
        out.row("staged/to_device" + with, s.bytes, [&] {
            staging::copy_to_device_async(ring, s.stream, there, s.from.data(), s.bytes);
            s.stream.drain();
        });
        out.row("staged/to_host" + with, s.bytes, [&] {
            staging::copy_to_host_sync(ring, s.stream, s.to.data(), there, s.bytes);
        });
    }
}

void small(table const& out, scene& s, void* there) {
    constexpr std::size_t piece_bytes = 4 << 10;
    std::size_t const count = std::min(small_pieces, s.bytes / piece_bytes);
    auto* const device = static_cast<char*>(there);
    auto* const host = reinterpret_cast<char*>(s.from.data());
    auto* const locked = reinterpret_cast<char*>(s.locked_from);
    std::vector<staging::piece> up, scattered, down;
    for (std::size_t i = 0; i != count; ++i) {
        std::size_t const at = i * piece_bytes;
        up.push_back({device + at, host + at, piece_bytes});
        scattered.push_back({device + (i * 7919 % count) * piece_bytes, host + at, piece_bytes});
        down.push_back({reinterpret_cast<char*>(s.to.data()) + at, device + at, piece_bytes});
    }
    auto const loop = [&](char* at, bool to_device) {
        for (std::size_t i = 0; i != count; ++i)
            to_device ? copy(device + i * piece_bytes, at + i * piece_bytes, piece_bytes, cudaMemcpyHostToDevice, s.stream)
                      : copy(at + i * piece_bytes, device + i * piece_bytes, piece_bytes, cudaMemcpyDeviceToHost, s.stream);
        s.stream.drain();
    };
    out.row("small/loop_to_device", 0, [&] { loop(host, true); });
    out.row("small/loop_to_device_pinned", 0, [&] { loop(locked, true); });
    out.row("small/loop_to_host", 0, [&] { loop(reinterpret_cast<char*>(s.to.data()), false); });
    for (unsigned const threads : {0u, 7u}) {
        staging::copy_threads helpers(threads);
        staging::pinned_ring_options options;
        if (threads != 0)
            options.threads(helpers);
        staging::pinned_ring ring(s.pinned, options);
        std::string const with = "/helpers_" + std::to_string(threads);
        for (auto const& each : {std::make_pair("together", &up), std::make_pair("scattered", &scattered)})
            out.row(std::string("small/batch_to_device_") + each.first + with, 0, [&] {
                staging::copy_batch_to_device_async(ring, s.stream, each.second->data(), count);
                s.stream.drain();
            });
        out.row("small/batch_to_host" + with, 0, [&] {
            staging::copy_batch_to_host_sync(ring, s.stream, down.data(), count);
        });
    }
}

void streamed(table const& out, scene& s) {
    std::size_t const count = s.bytes / sizeof(float);
    weir::device_pool pool{weir::pool_options{}.limit(s.bytes / 4).name("quarter")};
    weir::device_pool of_total;
    weir::device_value<double> total(of_total, s.stream, 0.0);
    double expected = 0;
    for (float const each : s.from)
        expected += static_cast<double>(each);
    auto const add = [&](weir::stream_ref on, auto const& chunk) {
        weir::check_cuda(launch_sum(on.get(), chunk.data, chunk.size, total.data()), "launch_sum");
    };
    auto const scale = [](weir::stream_ref on, auto const& chunk) {
        weir::check_cuda(launch_scale(on.get(), chunk.data, chunk.size), "launch_scale");
    };
    auto const begin = [&] { weir::check_cuda(cudaMemsetAsync(total.data(), 0, sizeof(double), s.stream), "cudaMemsetAsync"); };
    auto const check_sum = [&] {
        double found = 0;
        copy(&found, total.data(), sizeof found, cudaMemcpyDeviceToHost, s.stream);
        s.stream.drain();
        if (found != expected)
            throw std::runtime_error("the sum is wrong");
    };
    auto const check_scaled = [&](float const* from, float const* to) {
        for (std::size_t i = 0; i < count; i += 4099)
            if (to[i] != 2 * from[i])
                throw std::runtime_error("the result is wrong");
    };
    for (unsigned const threads : {0u, 7u}) {
        staging::copy_threads helpers(threads);
        staging::pinned_ring_options options;
        if (threads != 0)
            options.threads(helpers);
        staging::pinned_ring ring(s.pinned, options);
        for (bool const pinned : {true, false}) {
            if (pinned && threads != 0)
                continue;
            float* const from = pinned ? s.locked_from : s.from.data();
            float* const to = pinned ? s.locked_to : s.to.data();
            std::string const with = pinned ? std::string("/pinned") : "/ordinary/helpers_" + std::to_string(threads);
            out.row("sum" + with, s.bytes, [&] {
                begin();
                staging::stream_chunks(ring, pool, s.stream, staging::from_memory(from, count), add);
                check_sum();
            });
            if (out.row("transform" + with, s.bytes, [&] {
                    staging::stream_chunks(ring, pool, s.stream, staging::from_memory(from, count),
                                           staging::to_memory(to, count), staging::streaming_options<>{}, scale);
                }))
                check_scaled(from, to);
        }
    }
    std::size_t const part = count / 16;
    weir::device_vector<float> chunk(pool, s.stream, part);
    auto const naive = [&](bool back) {
        for (std::size_t at = 0; at + part <= count; at += part) {
            weir::check_cuda(cudaMemcpy(chunk.data(), s.from.data() + at, chunk.size_bytes(), cudaMemcpyDefault), "cudaMemcpy");
            cudaError_t const launched = back ? launch_scale(s.stream, chunk.data(), part)
                                              : launch_sum(s.stream, chunk.data(), part, total.data());
            weir::check_cuda(launched, "launch");
            s.stream.drain();
            if (back)
                weir::check_cuda(cudaMemcpy(s.to.data() + at, chunk.data(), chunk.size_bytes(), cudaMemcpyDefault), "cudaMemcpy");
        }
    };
    out.row("sum/naive", s.bytes, [&] { begin(), naive(false), s.stream.drain(); });
    out.row("transform/naive", s.bytes, [&] { naive(true); });
    float* managed = nullptr;
    weir::check_cuda(cudaMallocManaged(reinterpret_cast<void**>(&managed), s.bytes, cudaMemAttachGlobal), "cudaMallocManaged");
    for (bool const back : {false, true})
        out.row(back ? "managed/transform" : "managed/sum", s.bytes, [&] { // the host writes first: half of the time is that
            std::memcpy(managed, s.from.data(), s.bytes);
            begin();
            weir::check_cuda(back ? launch_scale(s.stream, managed, count) : launch_sum(s.stream, managed, count, total.data()),
                        "launch");
            s.stream.drain();
            if (back)
                std::memcpy(s.to.data(), managed, s.bytes);
        });
    weir::check_cuda(cudaFree(managed), "cudaFree");
}

void converted(table const& out, scene& s, float* there) {
    using view = weir::converting_view<float, __half>;
    std::size_t const count = s.bytes / sizeof(float);
    weir::device_pool pool;
    weir::stored_vector<float, __half> halves(pool, s.stream, count);
    auto* const of_host = reinterpret_cast<__half*>(s.to.data());
    auto* const locked = reinterpret_cast<__half*>(s.locked_to);
    auto const check = [&](__half const* found) {
        for (std::size_t i = 0; i < count; i += 4099)
            if (static_cast<float>(found[i]) != s.from[i])
                throw std::runtime_error("the result is wrong");
    };
    auto const halve = [](unsigned blocks) {
        return [blocks](weir::stream_ref on, view to, float const* from) {
            weir::check_cuda(launch_halve(on.get(), to.data(), from, to.size(), blocks), "launch_halve");
        };
    };
    auto const back = [&] {
        copy(locked, halves.data(), halves.size_bytes(), cudaMemcpyDeviceToHost, s.stream);
        s.stream.drain();
    };
    constexpr unsigned all_blocks = 1056;
    out.row("convert/to_device/memcpy_kernel", s.bytes, [&] {
        weir::check_cuda(cudaMemcpy(there, s.from.data(), s.bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        halve(all_blocks)(s.stream, halves.view(), there);
        s.stream.drain();
    });
    staging::copy_threads seven(7);
    for (unsigned const threads : {0u, 1u, 3u, 7u}) {
        staging::copy_threads helpers(threads);
        staging::pinned_ring_options options;
        if (threads != 0)
            options.threads(helpers);
        staging::pinned_ring ring(s.pinned, options);
        std::string const with = "/helpers_" + std::to_string(threads);
        halves.zero_async();
        if (out.row("convert/to_device/ring" + with, s.bytes, [&] {
                staging::copy_converted_to_device_async(ring, s.stream, halves.view(), s.from.data(), count);
                s.stream.drain();
            }))
            back(), check(locked);
        out.row("convert/to_host/halves_of_device" + with, s.bytes, [&] {
            staging::copy_converted_to_host_async(ring, s.stream, s.to.data(), halves.view(), count).wait();
        });
        if (out.row("convert/to_host/ring" + with, s.bytes, [&] {
                staging::copy_stored_to_host_async(ring, s.stream, view(of_host, count), static_cast<float const*>(there), count,
                                                   halve(64))
                    .wait();
            }))
            check(of_host);
    }
    staging::pinned_ring ring(s.pinned);
    for (unsigned const blocks : {16u, 32u, 64u, 132u, 528u}) {
        std::memset(static_cast<void*>(locked), 0, halves.size_bytes());
        if (out.row("convert/to_host_pinned/kernel/blocks_" + std::to_string(blocks), s.bytes, [&] {
                staging::copy_stored_to_host_async(ring, s.stream, view(locked, count), static_cast<float const*>(there), count,
                                                   halve(blocks))
                    .wait();
            }))
            check(locked);
    }
    out.row("convert/to_host_pinned/kernel_copy", s.bytes, [&] {
        halve(all_blocks)(s.stream, halves.view(), there);
        back();
    });
    auto const copy_then_convert = [&] {
        copy(s.locked_to, there, s.bytes, cudaMemcpyDeviceToHost, s.stream);
        s.stream.drain();
        std::pair<float const*, __half*> ends(s.locked_to, of_host);
        staging::shared_work work;
        work.run = [](void* what, std::size_t begin, std::size_t end) {
            auto const& both = *static_cast<std::pair<float const*, __half*>*>(what);
            std::size_t const first = begin / sizeof(__half), last = end / sizeof(__half);
            weir::converting::detail::store_row(both.second + first, both.first + first, last - first, 1.0f);
        };
        work.what = &ends;
        work.bytes = halves.size_bytes();
        seven.start(work);
        seven.finish(work);
    };
    if (out.row("convert/to_host_pinned/copy_host", s.bytes, copy_then_convert))
        check(of_host);
}

// Passes over 16 buffers, 8 of which fit.
struct working_set {
    static constexpr std::size_t buffers = 16;
    explicit working_set(scene& on) : s(on), count(on.bytes / buffers / sizeof(float)), bytes(count * sizeof(float)) {}
    scene& s;
    std::size_t count, bytes;
    int doubled = 0; // how often

    void check(float const* found) const {
        for (std::size_t i = 0; i < count; i += 997)
            if (found[i] != std::ldexp(s.from[i], doubled))
                throw std::runtime_error("a buffer's contents are wrong");
    }
};

// `ahead`: how many buffers before their use are asked for.
template <class Victims>
void spilled_by(table const& out, scene& s, std::string const& policy, bool changes, std::size_t ahead = 0) {
    working_set work(s);
    weir::device_pool pool;
    weir::device_value<double> total(pool, s.stream, 0.0);
    staging::spill_set<Victims> set(pool, s.pinned, working_set::buffers / 2 * work.bytes);
    std::vector<staging::spillable<float>> all;
    std::uint64_t step = 0;
    auto const pass = [&] {
        for (auto& each : all) {
            each.set_next_use(step + working_set::buffers);
            auto const then = [&] { // while this one cannot leave
                if (ahead != 0)
                    static_cast<void>(all[(step + ahead) % working_set::buffers].prefetch(s.stream));
            };
            cudaError_t const launched = [&] {
                if (changes) {
                    auto const now = each.access(s.stream);
                    return then(), launch_scale(s.stream, now.data(), work.count);
                }
                auto const now = each.read(s.stream);
                return then(), launch_sum(s.stream, now.data(), work.count, total.data());
            }();
            ++step;
            weir::check_cuda(launched, "launch");
        }
        work.doubled += changes;
        s.stream.drain();
    };
    for (std::size_t i = 0; i != working_set::buffers; ++i) {
        all.emplace_back(set, work.count);
        auto const now = all[i].access(s.stream);
        copy(now.data(), s.locked_from, work.bytes, cudaMemcpyHostToDevice, s.stream);
    }
    pass(); // the pools get their memory
    pass();
    auto const before = set.state();
    pass();
    auto const after = set.state();
    std::size_t const moved = static_cast<std::size_t>(after.to_host_bytes - before.to_host_bytes + after.to_device_bytes -
                                                       before.to_device_bytes);
    std::string const name = "spill/" + policy + (changes ? "/changed" : "/read");
    std::printf("# %s moves %zu MiB in a pass over %zu MiB\n", name.c_str(), moved / weir::MiB, s.bytes / weir::MiB);
    out.row(name, moved, pass);
    for (auto& each : all) {
        copy(s.locked_to, each.read(s.stream).data(), work.bytes, cudaMemcpyDeviceToHost, s.stream);
        s.stream.drain();
        work.check(s.locked_to);
    }
}

void spilled(table const& out, scene& s) {
    for (bool const changes : {true, false}) {
        spilled_by<staging::least_recently_used>(out, s, "least_recently_used", changes);
        spilled_by<staging::by_next_use>(out, s, "by_next_use", changes);
        spilled_by<staging::by_next_use>(out, s, "by_next_use_prefetched_1", changes, 1);
        spilled_by<staging::by_next_use>(out, s, "by_next_use_prefetched_2", changes, 2);
    }
    working_set work(s);
    float* managed = nullptr;
    weir::check_cuda(cudaMallocManaged(reinterpret_cast<void**>(&managed), s.bytes, cudaMemAttachGlobal), "cudaMallocManaged");
    for (std::size_t i = 0; i != working_set::buffers; ++i)
        std::memcpy(managed + i * work.count, s.from.data(), work.bytes);
    auto const here = weir::memory_location::device(0);
    std::vector<weir::runtime::event> used;
    while (used.size() != working_set::buffers)
        used.emplace_back(0);
    auto const pass = [&] {
        for (std::size_t i = 0; i != working_set::buffers; ++i) {
            std::size_t const past = (i + working_set::buffers / 2) % working_set::buffers;
            float* const now = managed + i * work.count;
            used[past].make_wait(s.other);
            weir::runtime::prefetch(s.other, managed + past * work.count, work.bytes, weir::memory_location::host());
            weir::runtime::prefetch(s.stream, now, work.bytes, here);
            weir::check_cuda(launch_scale(s.stream, now, work.count), "launch_scale");
            used[i].record(s.stream);
        }
        ++work.doubled;
        s.stream.drain();
        s.other.drain();
    };
    pass();
    out.row("spill/managed/changed", 2 * s.bytes, pass); // as the least recently used move
    for (std::size_t i = 0; i != working_set::buffers; ++i)
        work.check(managed + i * work.count);
    weir::check_cuda(cudaFree(managed), "cudaFree");

    weir::device_pool pool;
    staging::spill_set<> set(pool, s.pinned, s.bytes);
    std::vector<staging::spillable<float>> all;
    for (std::size_t i = 0; i != working_set::buffers; ++i)
        all.emplace_back(set, 1000);
    auto const thousand = [&] {
        for (std::size_t i = 0; i != 1000; ++i)
            if (all[i % working_set::buffers].access(s.stream).data() == nullptr)
                throw std::runtime_error("no buffer");
    };
    thousand();
    out.row("spill/fits/1000_accesses", 0, thousand);
}

// Keys of four times a budget. Each of three streams takes every third run or bucket, so that one arrives while another is
// sorted and a third leaves.
class sorted_keys {
public:
    sorted_keys(scene& on, bool are_equal)
        : s_(on), count_(on.bytes / sizeof(unsigned)), run_size_((count_ + runs - 1) / runs),
          keys_(on.pinned, on.stream, count_), runs_(on.pinned, on.stream, count_),
          pool_(weir::pool_options{}.limit(on.bytes / 4).reserve(on.bytes / 4).name("budget")) {
        for (std::size_t i = 0; i != count_; ++i) {
            auto const mixed = static_cast<unsigned>(i * 2654435761u);
            keys_[i] = are_equal ? 7 : (mixed ^ mixed >> 15) * 2246822519u;
        }
        for (own_stream const& each : streams_)
            lanes_.emplace_back(pool_, each).reserve(run_size_);
    }

    void sort_runs() {
        for (std::size_t run = 0; run != runs; ++run)
            sort_pieces(run, {{keys_.data() + begin_of(run), keys_.data() + begin_of(run + 1)}}, runs_.data() + begin_of(run));
        drain();
    }
    void sort_buckets() {
        std::vector<unsigned const*> begin, end(runs);
        for (std::size_t run = 0; run != runs; ++run)
            begin.push_back(runs_.data() + begin_of(run));
        auto* to = reinterpret_cast<unsigned*>(s_.locked_to);
        auto const splitters = split();
        for (std::size_t bucket = 0; bucket != splitters.size(); ++bucket, begin = end) {
            std::vector<range> pieces;
            for (std::size_t run = 0; run != runs; ++run) {
                end[run] = end_of_bucket(run, splitters[bucket]);
                pieces.push_back({begin[run], end[run]});
            }
            to += sort_pieces(bucket, pieces, to);
        }
        drain();
    }
    void check() const {
        auto const* const found = reinterpret_cast<unsigned const*>(s_.locked_to);
        unsigned sum = 0, expected = 0;
        for (std::size_t i = 0; i != count_; ++i)
            sum += found[i] * found[i], expected += keys_[i] * keys_[i];
        if (!std::is_sorted(found, found + count_) || sum != expected)
            throw std::runtime_error("the keys are not sorted");
    }

private:
    using range = std::pair<unsigned const*, unsigned const*>;
    using splitter = std::pair<unsigned, unsigned const*>; // the last key of a bucket; where it lies tells it from its equals
    static constexpr std::size_t runs = 32, samples_of_run = 512;

    std::size_t begin_of(std::size_t run) const { return std::min(run * run_size_, count_); }

    std::size_t sort_pieces(std::size_t number, std::vector<range> const& pieces, unsigned* to) {
        auto& keys = lanes_[number % lanes_.size()];
        keys.resize(0);
        for (auto const& [begin, end] : pieces)
            keys.append(begin, static_cast<std::size_t>(end - begin));
        weir::check_cuda(launch_sort(keys.stream().get(), keys.data(), keys.size(), pool_), "launch_sort");
        keys.copy_to_async(to);
        return keys.size();
    }
    // A bucket has room for its samples and, of each run, for the keys between two samples.
    std::vector<splitter> split() const {
        std::size_t const step = std::max<std::size_t>(run_size_ / samples_of_run, 1);
        std::vector<splitter> samples, chosen;
        for (std::size_t run = 0; run != runs; ++run)
            for (std::size_t at = begin_of(run), end = begin_of(run + 1); at < end; at = std::min(at + step, end)) {
                unsigned const* const last = runs_.data() + std::min(at + step, end) - 1;
                samples.emplace_back(*last, last);
            }
        std::sort(samples.begin(), samples.end());
        std::size_t const of_bucket = run_size_ / step - runs;
        for (std::size_t next = 0; next != samples.size(); chosen.push_back(samples[next - 1]))
            next = std::min(next + of_bucket, samples.size());
        return chosen;
    }
    unsigned const* end_of_bucket(std::size_t run, splitter const& last) const {
        unsigned const *const begin = runs_.data() + begin_of(run), *const end = runs_.data() + begin_of(run + 1);
        if (end <= last.second)
            return std::upper_bound(begin, end, last.first);
        return begin > last.second ? std::lower_bound(begin, end, last.first) : last.second + 1;
    }
    void drain() const {
        for (own_stream const& each : streams_)
            each.drain();
    }

    scene& s_;
    std::size_t count_, run_size_;
    weir::pinned_vector<unsigned> keys_, runs_;
    own_stream streams_[3];
    weir::device_pool pool_;
    std::vector<weir::device_vector<unsigned>> lanes_;
};

void sorted(table const& out, scene& s) {
    for (bool const equal : {false, true}) {
        sorted_keys keys(s, equal);
        std::string const name = equal ? "sort/equal" : "sort/pinned";
        if (out.row(name, 4 * s.bytes, [&] { keys.sort_runs(), keys.sort_buckets(); }))
            keys.check();
        if (!equal)
            out.row("sort/runs", 2 * s.bytes, [&] { keys.sort_runs(); });
    }
}

int measure() {
    cudaDeviceProp properties{};
    weir::check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    std::size_t const bytes = number("WEIR_BENCH_MIB", default_mebibytes) * weir::MiB;
    std::printf("# device %s, %zu MiB\nrow,unit,median,least,most\n", properties.name, bytes / weir::MiB);
    table const out;
    scene s(bytes);
    {
        weir::device_pool pool;
        weir::device_buffer const there(pool, s.stream, bytes);
        s.stream.drain();
        void* const device = const_cast<void*>(there.data());
        plain(out, s, device);
        staged(out, s, device);
        small(out, s, device);
        copy(device, s.locked_from, s.bytes, cudaMemcpyHostToDevice, s.stream);
        s.stream.drain();
        converted(out, s, static_cast<float*>(device));
    }
    streamed(out, s);
    spilled(out, s);
    sorted(out, s);
    return out.failures == 0 ? 0 : 1;
}

} // namespace

int main() {
    try {
        return measure();
    } catch (std::exception const& error) {
        return std::fprintf(stderr, "weir-bench-staging: %s\n", error.what()), 1;
    }
}
