// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every upstream must do is in tests/contract/upstream.cpp; here is what touching, placing and registering add.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <sys/mman.h>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>
#include <weir/contract/upstream_slot.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/upstream/registered_host.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::KiB;
using weir::MiB;
using weir::upstream::registered_host;

static_assert(registered_host::space == weir::memory_space::pinned);
static_assert(weir::contract::returns<bool, weir::contract::has_release, registered_host>);
static_assert(!weir::contract::holds<weir::contract::has_device_number, registered_host>);

namespace {

bool all_pages_are_there(void* chunk, std::size_t bytes) {
    std::vector<unsigned char> pages(bytes / 4096);
    REQUIRE(mincore(chunk, bytes, pages.data()) == 0);
    for (unsigned char const page : pages)
        if ((page & 1) == 0)
            return false;
    return true;
}

std::size_t threads_of_this_process() {
    std::size_t count = 0;
    DIR* const tasks = opendir("/proc/self/task");
    REQUIRE(tasks != nullptr);
    while (dirent const* const each = readdir(tasks))
        count += each->d_name[0] != '.';
    closedir(tasks);
    return count;
}

// In pages of the system.
[[maybe_unused]] std::size_t mapped_pages() {
    std::size_t all = 0;
    std::FILE* const file = std::fopen("/proc/self/statm", "r");
    REQUIRE(file != nullptr);
    REQUIRE(std::fscanf(file, "%zu", &all) == 1);
    std::fclose(file);
    return all;
}

} // namespace

TEST_CASE("registered_host: chunks are page-locked, for every device, and their pages are there") {
    support::every_schedule([] {
        registered_host upstream;
        for (std::size_t const bytes : {64 * KiB, 4 * MiB + 64 * KiB, 9 * MiB}) {
            void* const chunk = upstream.acquire(bytes);
            REQUIRE(chunk != nullptr);
            CHECK(reinterpret_cast<std::uintptr_t>(chunk) % registered_host::usual_alignment == 0);
            CHECK(all_pages_are_there(chunk, bytes));
            for (void* const each : {chunk, static_cast<void*>(static_cast<char*>(chunk) + bytes - 1)}) {
                cudaPointerAttributes attributes{};
                check_cuda(cudaPointerGetAttributes(&attributes, each), "cudaPointerGetAttributes");
                CHECK(attributes.type == cudaMemoryTypeHost);
                unsigned flags = 0;
                check_cuda(cudaHostGetFlags(&flags, each), "cudaHostGetFlags");
                CHECK((flags & cudaHostAllocPortable) != 0);
            }
            CHECK(upstream.release(chunk, bytes));
        }
    });
}

TEST_CASE("registered_host: copies of every device see the host's bytes, and work is waited for before memory goes") {
    support::every_schedule([] {
        registered_host upstream;
        for (int device = 0; device < weir::runtime::device_count(); ++device) {
            weir::runtime::device_scope const there(device);
            support::scoped_stream const s;
            auto* const chunk = static_cast<unsigned char*>(upstream.acquire(64 * KiB));
            void* p = nullptr;
            check_cuda(cudaMalloc(&p, 64 * KiB), "cudaMalloc");
            std::memset(chunk, 5, 32 * KiB);
            check_cuda(cudaMemcpyAsync(p, chunk, 32 * KiB, cudaMemcpyDefault, s), "cudaMemcpyAsync");
            check_cuda(cudaMemcpyAsync(chunk + 32 * KiB, p, 32 * KiB, cudaMemcpyDefault, s), "cudaMemcpyAsync");
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            CHECK(chunk[64 * KiB - 1] == 5);
            check_cuda(cudaMemsetAsync(chunk, 6, 64 * KiB, s), "cudaMemsetAsync");
            CHECK(upstream.release(chunk, 64 * KiB)); // the memset may not have begun
            check_cuda(cudaFree(p), "cudaFree");
        }
    });
}

TEST_CASE("registered_host: whatever is wished for, chunks are whole, and no thread stays") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    void* const ready = registered_host{}.acquire(64 * KiB); // CUDA's own threads have begun
    CHECK(registered_host{}.release(ready, 64 * KiB));
    std::size_t const before = threads_of_this_process();
    for (unsigned const threads : {1u, 2u, 7u, 256u})
        for (bool const huge : {false, true}) {
            registered_host upstream = registered_host{}.threads(threads).huge_pages(huge);
            std::size_t const bytes = 21 * MiB;
            void* const chunk = upstream.acquire(bytes);
            REQUIRE(chunk != nullptr);
            CHECK(threads_of_this_process() == before);
            CHECK(all_pages_are_there(chunk, bytes));
            CHECK(upstream.release(chunk, bytes));
        }
}

TEST_CASE("registered_host: wishes that cannot be are refused with a sentence") {
    registered_host upstream;
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { upstream.threads(0); }),
               "weir: upstream::registered_host touches pages with 1 to 256 threads, not 0; 4 to 16 are enough");
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { upstream.threads(257); }), "1 to 256 threads, not 257");
    for (int const node : {-1, 1024})
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { upstream.numa_node(node); }), "takes a node's number, 0 to 1023");
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    CHECK_SAYS(sentence_of<weir::usage_error>([&] { static_cast<void>(registered_host{}.numa_node(1023).acquire(64 * KiB)); }),
               "prefer memory of NUMA node 1023; name a node that it has");
}

TEST_CASE("registered_host: memory of a node, where the system lets a process choose") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    registered_host upstream = registered_host{}.numa_node(0);
    void* chunk = nullptr;
    std::string const said = sentence_of<weir::usage_error>([&] { chunk = upstream.acquire(64 * KiB); });
    if (chunk) {
        CHECK(all_pages_are_there(chunk, 64 * KiB));
        CHECK(upstream.release(chunk, 64 * KiB));
    } else {
        CHECK_SAYS(said, "does not let this process prefer memory of NUMA node 0"); // as in some containers
    }
}

TEST_CASE("registered_host: more than the host has is null, and no error is left behind") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world;
#endif
    registered_host upstream;
    CHECK(upstream.most_bytes() > 64 * MiB);
    for (std::size_t const bytes : {std::size_t{1} << 60, SIZE_MAX & ~(64 * KiB - 1)}) {
        CHECK(upstream.acquire(bytes) == nullptr);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
}

TEST_CASE("registered_host: the limits of a container and of all groups around it say how much room there is") {
    namespace files = std::filesystem;
    files::path const place = files::temp_directory_path() / ("weir_groups_" + std::to_string(getpid()));
    auto const write = [&](char const* name, char const* what) {
        files::create_directories((place / name).parent_path());
        std::ofstream(place / name) << what << "\n";
    };
    write("memory.max", "9000"); // of a container that does not see where it lies itself
    write("memory.current", "1000");
    write("job/memory.max", "5000");
    write("job/memory.current", "900");
    write("job/step/memory.max", "max");
    write("job/step/memory.current", "800");
    write("full/memory.max", "10");
    write("full/memory.current", "20");
    write("memory/old/memory.limit_in_bytes", "700");
    write("memory/old/memory.usage_in_bytes", "100");
    struct row {
        char const* list;
        std::size_t room;
    };
    for (row const& each : {row{"0::/job/step", 4100}, row{"0::/", 8000}, row{"0::/elsewhere/that/is/not/seen", 8000},
                            row{"0::/full", 0}, row{"5:cpu:/job\n4:memory:/old", 600}, row{"5:cpu:/job", SIZE_MAX},
                            row{"nothing", SIZE_MAX}}) {
        CAPTURE(each.list);
        write("list", each.list);
        CHECK(weir::upstream::detail::room_in_groups((place / "list").c_str(), place.c_str()) == each.room);
    }
    CHECK(weir::upstream::detail::room_in_groups((place / "none").c_str(), place.c_str()) == SIZE_MAX);
    files::remove_all(place);
}

TEST_CASE("registered_host: neither acquire nor release breaks a capture, from any thread") {
    support::every_schedule([] {
        support::scoped_stream const s;
        registered_host upstream;
        support::capture graph(s);
        auto const both = [&] {
            void* const chunk = upstream.acquire(64 * KiB);
            CHECK(chunk != nullptr);
            CHECK(upstream.release(chunk, 64 * KiB));
        };
        both();
        std::thread(both).join();
        CHECK(graph.unbroken());
    });
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("registered_host: where the platform cannot register memory, chunks are cudaHostAlloc's") {
    simulated_cuda::world const world;
    simulated_cuda::fail_call("cudaHostRegister", 1, cudaErrorNotSupported, simulated_cuda::lasting::for_ever);
    registered_host upstream;
    for (std::size_t const bytes : {64 * KiB, 4 * MiB}) {
        auto* const chunk = static_cast<unsigned char*>(upstream.acquire(bytes));
        REQUIRE(chunk != nullptr);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        CHECK(reinterpret_cast<std::uintptr_t>(chunk) % registered_host::alignment == 0);
        cudaPointerAttributes attributes{};
        for (std::size_t const at : {std::size_t{0}, bytes - 1})
            check_cuda(cudaPointerGetAttributes(&attributes, chunk + at), "cudaPointerGetAttributes");
        CHECK(attributes.type == cudaMemoryTypeHost);
        std::memset(chunk, 1, bytes);
        CHECK(upstream.release(chunk, bytes));
    }
    simulated_cuda::fail_call("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
    CHECK(upstream.acquire(64 * KiB) == nullptr);
    CHECK(simulated_cuda::calls("cudaFreeHost") == 2);
}

TEST_CASE("registered_host: every call may fail: nothing is left behind then, and what was refused can be given back later") {
    constexpr std::size_t bytes = 32 * MiB;
    struct state {
        registered_host upstream;
        void* chunk = upstream.acquire(bytes);
        std::size_t const before = mapped_pages();
        void* other = nullptr;
        bool released = false;
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto runs = support::fault_sweep(prepare, [](state& x) { x.other = x.upstream.acquire(bytes); },
                                     [](state& x, support::struck const& fault) {
                                         CHECK((x.other == nullptr) == fault.threw);
                                         if (!x.other)
                                             CHECK(mapped_pages() < x.before + bytes / 2 / 4096);
                                         else
                                             CHECK(x.upstream.release(x.other, bytes));
                                         CHECK(x.upstream.release(x.chunk, bytes));
                                         CHECK(mapped_pages() < x.before - bytes / 2 / 4096);
                                     });
    runs += support::fault_sweep(prepare, [](state& x) { x.released = x.upstream.release(x.chunk, bytes); },
                                 [](state& x, support::struck const& fault) {
                                     CHECK_FALSE(fault.threw);
                                     if (!x.released)
                                         CHECK(x.upstream.release(x.chunk, bytes));
                                 });
    CHECK(runs >= 12);
    simulated_cuda::world const world;
    std::size_t const before = mapped_pages();
    simulated_cuda::fail_call("cudaHostRegister", 1, cudaErrorMemoryAllocation);
    CHECK(registered_host{}.acquire(bytes) == nullptr); // the host locks no more
    CHECK(mapped_pages() < before + bytes / 2 / 4096);
}
#endif
