// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <weir/base/size.hpp>
#include <weir/runtime/managed_memory.hpp>

using support::sentence_of;
using weir::runtime::advise;
using weir::check_cuda;
using weir::runtime::memory_advice;
using weir::memory_location;
using weir::MiB;
using weir::on_host;
using weir::runtime::prefetch;

static_assert(std::is_trivially_copyable_v<memory_advice> && !std::is_default_constructible_v<memory_advice>);

namespace {

constexpr std::size_t all = 4 * MiB;

// Managed memory, filled with ones.
struct bytes {
    unsigned char* p = nullptr;
    bytes() {
        void* at = nullptr;
        check_cuda(cudaMallocManaged(&at, all, cudaMemAttachGlobal), "cudaMallocManaged");
        p = static_cast<unsigned char*>(at);
        std::memset(p, 1, all);
    }
    bytes(bytes const&) = delete;
    bytes& operator=(bytes const&) = delete;
    ~bytes() { CHECK(cudaFree(p) == cudaSuccess); }
    bool are(unsigned char value, std::size_t from, std::size_t count) const {
        for (std::size_t i = from; i < from + count; ++i)
            if (p[i] != value)
                return false;
        return true;
    }
    int ask(cudaMemRangeAttribute attribute, std::size_t from = 0, std::size_t count = all) const {
        int answer = -99;
        check_cuda(cudaMemRangeGetAttribute(&answer, sizeof answer, attribute, p + from, count), "cudaMemRangeGetAttribute");
        return answer;
    }
};

} // namespace

TEST_CASE("managed_memory: a prefetch goes where it was told and changes no byte") {
    support::every_schedule([] {
        support::scoped_stream const s;
        bytes const memory;
        check_cuda(cudaMemsetAsync(memory.p, 2, 2 * MiB, s), "cudaMemsetAsync");
        prefetch(s, memory.p, all, memory_location::device(0));
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation) == 0);
        prefetch(s, memory.p, 2 * MiB, memory_location::host());
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation, 0, 2 * MiB) == cudaCpuDeviceId);
        CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation, 2 * MiB, 2 * MiB) == 0);
        prefetch(cudaStreamLegacy, memory.p, all, memory_location::host_node(0));
        prefetch(s, memory.p, all, memory_location::nearest_host_node());
        prefetch(s, memory.p, 0, memory_location::host());
        prefetch(on_host, nullptr, 0, memory_location::host());
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        CHECK(memory.are(2, 0, 2 * MiB));
        CHECK(memory.are(1, 2 * MiB, 2 * MiB));
    });
}

TEST_CASE("managed_memory: an advice holds for its bytes until its opposite is said") {
    support::every_schedule([] {
        bytes const memory;
        advise(memory.p, 2 * MiB, memory_advice::read_mostly());
        CHECK(memory.ask(cudaMemRangeAttributeReadMostly, 0, 2 * MiB) == 1);
        CHECK(memory.ask(cudaMemRangeAttributeReadMostly) == 0);
        advise(memory.p, all, memory_advice::not_read_mostly());
        CHECK(memory.ask(cudaMemRangeAttributeReadMostly, 0, 2 * MiB) == 0);

        CHECK(memory.ask(cudaMemRangeAttributePreferredLocation) == cudaInvalidDeviceId);
        advise(memory.p, all, memory_advice::preferred_location(memory_location::device(0)));
        CHECK(memory.ask(cudaMemRangeAttributePreferredLocation) == 0);
        advise(memory.p, all, memory_advice::preferred_location(memory_location::host()));
        CHECK(memory.ask(cudaMemRangeAttributePreferredLocation) == cudaCpuDeviceId);
        advise(memory.p, all, memory_advice::no_preferred_location());
        CHECK(memory.ask(cudaMemRangeAttributePreferredLocation) == cudaInvalidDeviceId);

        advise(memory.p, all, memory_advice::accessed_by(memory_location::device(0)));
        CHECK(memory.ask(cudaMemRangeAttributeAccessedBy) == 0);
        advise(memory.p, all, memory_advice::not_accessed_by(memory_location::device(0)));
        CHECK(memory.ask(cudaMemRangeAttributeAccessedBy) == cudaInvalidDeviceId);
        advise(memory.p, all, memory_advice::accessed_by(memory_location::host()));
        advise(memory.p, all, memory_advice::not_accessed_by(memory_location::host()));
        advise(memory.p, 0, memory_advice::read_mostly());
        CHECK(memory.are(1, 0, all));
    });
}

TEST_CASE("managed_memory: what is not managed is refused with CUDA's error") {
    support::every_schedule([] {
        support::scoped_stream const s;
        void* p = nullptr;
        check_cuda(cudaMalloc(&p, 1 * MiB), "cudaMalloc");
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { prefetch(s, p, 1 * MiB, memory_location::host()); }),
                   "weir: cudaMemPrefetchAsync failed with cudaErrorInvalidValue (1): the memory must be managed");
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { advise(p, 1 * MiB, memory_advice::read_mostly()); }),
                   "weir: cudaMemAdvise failed with cudaErrorInvalidValue (1): the memory must be managed");
        bytes const memory;
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { prefetch(s, memory.p, all, memory_location::device(12345)); }),
                   "weir: cudaMemPrefetchAsync failed with");
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        check_cuda(cudaFree(p), "cudaFree");
    });
}

TEST_CASE("managed_memory: pages move in the order of a stream, and in no graph") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        bytes const memory;
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { prefetch(on_host, memory.p, all, memory_location::host()); }),
                   "weir: pages move in the order of a stream; name the one");
        support::capture graph(s);
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { prefetch(s, memory.p, all, memory_location::host()); }),
                   "weir: managed memory can be neither prefetched nor discarded on a stream that is being captured");
        auto const use = [&] {
            prefetch(other, memory.p, all, memory_location::device(0));
            advise(memory.p, all, memory_advice::read_mostly());
        };
        use();
        std::thread(use).join();
        CHECK(graph.unbroken());
        check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    });
}

#if CUDART_VERSION >= 13000
TEST_CASE("managed_memory: what is discarded can be written again, and its neighbours stay") {
    support::every_schedule([] {
        support::scoped_stream const s;
        bytes const memory;
        check_cuda(cudaMemsetAsync(memory.p, 2, all, s), "cudaMemsetAsync");
        weir::runtime::discard(s, memory.p, 2 * MiB);
        prefetch(s, memory.p, 1 * MiB, memory_location::device(0)); // see 'discard'
        check_cuda(cudaMemsetAsync(memory.p, 3, 1 * MiB, s), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(memory.are(3, 0, 1 * MiB));
        CHECK(memory.are(2, 2 * MiB, 2 * MiB));
#ifdef WEIR_SIMULATED_CUDA
        CHECK_FALSE(memory.are(2, 1 * MiB, 1 * MiB)); // it spoils the rest, as a GPU may
#endif
        weir::runtime::discard_and_prefetch(s, memory.p + 2 * MiB, 2 * MiB, memory_location::device(0));
        check_cuda(cudaMemsetAsync(memory.p + 2 * MiB, 4, 2 * MiB, s), "cudaMemsetAsync");
        check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize");
        CHECK(memory.ask(cudaMemRangeAttributeLastPrefetchLocation, 2 * MiB, 2 * MiB) == 0);
        CHECK(memory.are(3, 0, 1 * MiB));
        CHECK(memory.are(4, 2 * MiB, 2 * MiB));
        weir::runtime::discard(s, memory.p, 0);
        weir::runtime::discard_and_prefetch(s, memory.p, 0, memory_location::host());
        weir::runtime::discard(cudaStreamPerThread, memory.p, all);
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    });
}

TEST_CASE("managed_memory: nothing is discarded on the host, on the legacy stream, or in a graph") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        bytes const memory;
        for (bool both : {false, true}) {
            auto const discard = [&](weir::stream_ref on) {
                if (both)
                    weir::runtime::discard_and_prefetch(on, memory.p, all, memory_location::host());
                else
                    weir::runtime::discard(on, memory.p, all);
            };
            CHECK_SAYS(sentence_of<weir::usage_error>([&] { discard(on_host); }), "name the one that uses the memory next");
            CHECK_SAYS(sentence_of<weir::usage_error>([&] { discard(cudaStreamLegacy); }),
                       "weir: CUDA discards nothing on the legacy default stream");
            CHECK(memory.are(1, 0, all));
        }
        support::capture graph(s);
        CHECK_SAYS(sentence_of<weir::usage_error>([&] { weir::runtime::discard(s, memory.p, all); }), "being captured into a graph");
        auto const use = [&] {
            weir::runtime::discard(other, memory.p, all);
            weir::runtime::discard_and_prefetch(other, memory.p, all, memory_location::host());
        };
        use();
        CHECK(graph.unbroken());
        check_cuda(cudaStreamSynchronize(other), "cudaStreamSynchronize");
        void* p = nullptr;
        check_cuda(cudaMalloc(&p, 1 * MiB), "cudaMalloc");
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { weir::runtime::discard(s, p, 1 * MiB); }),
                   "weir: cudaMemDiscardBatchAsync failed with");
        CHECK_SAYS(sentence_of<weir::cuda_error>([&] { weir::runtime::discard_and_prefetch(s, p, 1 * MiB, memory_location::host()); }),
                   "weir: cudaMemDiscardAndPrefetchBatchAsync failed with");
        check_cuda(cudaFree(p), "cudaFree");
    });
}
#endif

#ifdef WEIR_SIMULATED_CUDA
#if CUDART_VERSION >= 13000
TEST_CASE("managed_memory: a discard is a write: work that is not ordered with it is reported") {
    simulated_cuda::world world(simulated_cuda::config{}.late());
    support::scoped_stream const s, other;
    bytes const memory;
    check_cuda(cudaMemsetAsync(memory.p, 2, all, other), "cudaMemsetAsync");
    weir::runtime::discard(s, memory.p, all);
    CHECK(simulated_cuda::reports(simulated_cuda::finding::use_in_flight).size() == 1);
    simulated_cuda::clear_reports();
    prefetch(other, memory.p, all, memory_location::host()); // which may go beside anything
    CHECK(simulated_cuda::reports().empty());
}
#endif

TEST_CASE("managed_memory: every call may fail, with an error that names it") {
    struct state {
        support::scoped_stream s;
        bytes memory;
        ~state() { check_cuda(cudaStreamSynchronize(s), "cudaStreamSynchronize"); }
    };
    auto const prepare = [] { return std::make_unique<state>(); };
    auto const nothing = [](state&, support::struck const&) {};
    std::uint64_t runs = 0;
    runs += support::fault_sweep(
        prepare, [](state& x) { prefetch(x.s, x.memory.p, all, memory_location::host()); },
        [](state& x, support::struck const& fault) {
            if (fault.hit("cudaMemPrefetchAsync"))
                CHECK(x.memory.ask(cudaMemRangeAttributeLastPrefetchLocation) == cudaInvalidDeviceId);
        });
    runs += support::fault_sweep(
        prepare, [](state& x) { advise(x.memory.p, all, memory_advice::read_mostly()); },
        [](state& x, support::struck const& fault) {
            CHECK(x.memory.ask(cudaMemRangeAttributeReadMostly) == !fault.threw);
        });
    CHECK(runs > 8);
#if CUDART_VERSION >= 13000
    runs += support::fault_sweep(prepare, [](state& x) { weir::runtime::discard(x.s, x.memory.p, all); }, nothing);
    runs += support::fault_sweep(
        prepare, [](state& x) { weir::runtime::discard_and_prefetch(x.s, x.memory.p, all, memory_location::host()); }, nothing);
    CHECK(runs > 20);
#endif
    static_cast<void>(nothing);
}
#endif
