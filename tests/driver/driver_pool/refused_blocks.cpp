// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/fault_sweep.hpp>
#include <thread>
#include <utility>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/driver/driver_pool/refused_blocks.hpp>

using weir::any_device;
using weir::check_cuda;
using weir::MiB;
using weir::driver::detail::refused_block;
using weir::driver::detail::refused_blocks;

namespace {

void* taken(cudaStream_t stream) {
    void* p = nullptr;
    check_cuda(cudaMallocAsync(&p, 1 * MiB, stream), "cudaMallocAsync");
    return p;
}

void none_unknown(void const*) {
    FAIL_CHECK("CUDA knows them all");
}

} // namespace

TEST_CASE("refused_blocks: what is kept goes back once the work that uses it is over") {
    support::every_schedule([] {
        support::scoped_stream const s, other, host;
        for (int device : {0, any_device}) {
            refused_blocks blocks;
            CHECK(blocks.empty());
            refused_block plain{taken(s), 1 * MiB, {}}, used{taken(s), 2 * MiB, {}};
            check_cuda(cudaMemsetAsync(plain.begin, 1, 1 * MiB, s), "cudaMemsetAsync");
            weir::runtime::event passed(0);
            check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
            check_cuda(cudaMemsetAsync(used.begin, 1, 1 * MiB, other), "cudaMemsetAsync");
            passed.record(static_cast<cudaStream_t>(other));
            used.uses.push_back(std::move(passed));
            blocks.keep(std::move(plain));
            blocks.keep(std::move(used));
            CHECK_FALSE(blocks.empty());
            CHECK(blocks.bytes() == 3 * MiB);
            blocks.offer(device, host, none_unknown);
            CHECK(blocks.empty());
            CHECK(blocks.bytes() == 0);
        }
    }); // the world reports what leaked, and what was freed too early
}

TEST_CASE("refused_blocks: an address that CUDA hands out again is forgotten, and one that it does not know is told") {
    support::every_schedule([] {
        support::scoped_stream const s;
        refused_blocks blocks;
        void* const live = taken(s);
        void* const gone = taken(s);
        check_cuda(cudaFreeAsync(gone, s), "cudaFreeAsync");
        blocks.forget(live);
        blocks.keep({live, 1 * MiB, {}});
        blocks.keep({gone, 2 * MiB, {}});
        CHECK(blocks.has(live));
        CHECK(blocks.has(gone));
        CHECK_FALSE(blocks.has(&blocks));
        blocks.forget(live);
        CHECK_FALSE(blocks.has(live));
        CHECK(blocks.bytes() == 2 * MiB);
        void const* told = nullptr;
        blocks.offer(0, s, [&](void const* begin) { told = begin; });
        CHECK(told == gone);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        CHECK(blocks.empty());
        CHECK(blocks.bytes() == 0);
        check_cuda(cudaFreeAsync(live, s), "cudaFreeAsync"); // nobody did
    });
}

TEST_CASE("refused_blocks: where CUDA hands nothing out, nothing is forgotten, and a block that was is not counted twice") {
    refused_blocks blocks;
    char first = 0, second = 0;
    blocks.keep(refused_block{&first, 10, {}});
    blocks.keep(refused_block{&second, 20, {}});
    blocks.forget(&second);
    blocks.forget_new([]() -> void* { return nullptr; });
    CHECK_FALSE(blocks.empty());
    CHECK(blocks.bytes() == 10);
    CHECK(blocks.has(&first));
    CHECK_FALSE(blocks.has(&second));
}

TEST_CASE("refused_blocks: a block that the host has no memory to note is not counted") {
    if (!support::host_memory_can_fail)
        return;
    refused_blocks blocks;
    {
        support::failing_new const fails(0);
        blocks.keep(refused_block{nullptr, 1 * MiB, {}});
    }
    CHECK(blocks.empty());
    CHECK(blocks.bytes() == 0);
}

TEST_CASE("refused_blocks: threads keep blocks and look for them at a time") {
    refused_blocks blocks;
    std::atomic<int> wrong{0};
    std::vector<std::thread> crew;
    std::vector<char> memory(4 * 100);
    for (std::size_t t = 0; t < 4; ++t)
        crew.emplace_back([&, t] {
            for (std::size_t i = 0; i < 100; ++i) {
                char* const mine = &memory[t * 100 + i];
                blocks.keep({mine, 3, {}});
                if (!blocks.has(mine) || blocks.has(&blocks))
                    wrong.fetch_add(1);
            }
        });
    for (std::thread& each : crew)
        each.join();
    CHECK(wrong.load() == 0);
    CHECK(blocks.bytes() == 4 * 100 * 3);
}

#ifdef WEIR_SIMULATED_CUDA
namespace {

// A block of CUDA's pool on device 0 that device 1 may use as well.
void* taken_for_both(cudaStream_t stream) {
    void* const p = taken(stream);
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    cudaMemPool_t pool = nullptr;
    check_cuda(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
    cudaMemAccessDesc both{};
    both.location = {cudaMemLocationTypeDevice, 1};
    both.flags = cudaMemAccessFlagsProtReadWrite;
    check_cuda(cudaMemPoolSetAccess(pool, &both, 1), "cudaMemPoolSetAccess");
    return p;
}

} // namespace

TEST_CASE("refused_blocks: whatever device is waited for, so is every use that is known, on another one too") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream const host;
    refused_block block{taken_for_both(host), 1 * MiB, {}};
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    {
        support::scoped_stream const there;
        check_cuda(cudaMemsetAsync(block.begin, 1, 1 * MiB, there), "cudaMemsetAsync");
        weir::runtime::event passed(1);
        passed.record(static_cast<cudaStream_t>(there));
        block.uses.push_back(std::move(passed));
        refused_blocks blocks;
        blocks.keep(std::move(block));
        CHECK(simulated_cuda::pending() != 0);
        blocks.offer(0, host, none_unknown);
        CHECK(simulated_cuda::pending() == 0);
        CHECK(blocks.empty());
    }
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
}

TEST_CASE("refused_blocks: any_device waits for the work of every device") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
    support::scoped_stream const host;
    void* const p = taken_for_both(host);
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    {
        support::scoped_stream const there;
        check_cuda(cudaMemsetAsync(p, 1, 1 * MiB, there), "cudaMemsetAsync");
        refused_blocks blocks;
        blocks.keep({p, 1 * MiB, {}});
        blocks.offer(any_device, host, none_unknown);
        CHECK(blocks.empty());
        CHECK(weir::runtime::current_device() == 1);
    }
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
}

TEST_CASE("refused_blocks: every call may fail: what CUDA has not taken is still here") {
    struct state {
        support::scoped_stream s;
        refused_blocks blocks;
        state() { blocks.keep({taken(s), 1 * MiB, {}}); }
    };
    std::uint64_t runs = 0;
    for (int device : {0, any_device})
        runs += support::fault_sweep([] { return std::make_unique<state>(); },
                                     [&](state& x) { x.blocks.offer(device, x.s, none_unknown); },
                                     [&](state& x, support::struck const& fault) {
                                         CHECK((x.blocks.empty() || fault.threw || fault.hit("cudaFreeAsync")));
                                         CHECK(x.blocks.bytes() == (x.blocks.empty() ? 0 : 1 * MiB));
                                         x.blocks.offer(device, x.s, none_unknown);
                                         CHECK(x.blocks.empty());
                                     });
    CHECK(runs > 10);
}
#endif
