// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a call finds out at its entry, and how often it asks CUDA for that.

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <weir/reuse/identity.hpp>
#include <weir/reuse/stream_ordered/caller.hpp>
#include <weir/reuse/stream_ordered/default_streams.hpp>
#include <weir/runtime/stream.hpp>

using weir::on_host;
using weir::identity::checked;
using weir::identity::promised;
using weir::runtime::id_of;
template <class Identity>
using caller = weir::reuse::detail::caller<Identity>;

TEST_CASE_TEMPLATE("caller: names its stream, and finds the key by which its set is looked up", Identity, checked, promised) {
    support::every_schedule([] {
        support::scoped_stream const s;
        for (cudaStream_t const each : {static_cast<cudaStream_t>(s), cudaStreamLegacy, cudaStreamPerThread}) {
            for (auto const& found : {caller<Identity>(each), caller<Identity>::that_frees(each)}) {
                CHECK(found.stream() == weir::stream_ref(each));
                CHECK(found.key() == (weir::runtime::is_default_stream(each)
                                          ? weir::reuse::detail::key_of_default(each)
                                          : reinterpret_cast<std::uintptr_t>(each)));
            }
        }
        CHECK(caller<Identity>(on_host).stream() == on_host);
        CHECK(caller<Identity>(on_host).key() == 0);
    });
}

TEST_CASE("caller: tells another stream of the same handle apart once it has asked for the id, and never before") {
    support::every_schedule([] {
        support::scoped_stream const s, other;
        unsigned long long const former = id_of(other);
        CHECK(caller<checked>(s).differs_from(former));
        CHECK_FALSE(caller<checked>(s).differs_from(id_of(s)));
        CHECK_FALSE(caller<checked>::that_frees(s).differs_from(former));
        CHECK(caller<checked>::that_frees(s).in_full().differs_from(former));
        CHECK_FALSE(caller<promised>(s).in_full().differs_from(former));
        CHECK_FALSE(caller<checked>(on_host).in_full().differs_from(former));
    });
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("caller: asks CUDA as rarely as its head says") {
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
    support::scoped_stream const s;
    static_cast<void>(caller<promised>(cudaStreamPerThread)); // the thread's first call asks for the id
    enum call { takes, frees, in_full };
    struct {
        bool asks;
        weir::stream_ref stream;
        call which;
        std::uint64_t captures, ids; // how often CUDA is asked whether the stream is captured, and for its id
    } const rows[] = {
        {true, s, takes, 1, 1},
        {true, s, frees, 1, 0},
        {true, s, in_full, 1, 1},
        {false, s, takes, 0, 0},
        {false, s, frees, 0, 0},
        {false, s, in_full, 1, 0},
        {true, cudaStreamLegacy, takes, 0, 0},
        {true, cudaStreamLegacy, frees, 0, 0},
        {true, cudaStreamLegacy, in_full, 1, 0},
        {false, cudaStreamLegacy, in_full, 1, 0},
        {true, cudaStreamPerThread, takes, 1, 0},
        {true, cudaStreamPerThread, frees, 1, 0},
        {false, cudaStreamPerThread, takes, 0, 0},
        {false, cudaStreamPerThread, in_full, 1, 0},
        {true, on_host, in_full, 0, 0},
        {false, on_host, takes, 0, 0},
    };
    auto const find = [](auto identity, weir::stream_ref stream, call which) {
        using found = caller<decltype(identity)>;
        static_cast<void>(which == takes   ? found(stream)
                          : which == frees ? found::that_frees(stream)
                                           : found::that_frees(stream).in_full());
    };
    for (auto const& row : rows) {
        CAPTURE(&row - rows);
        std::uint64_t const captures = simulated_cuda::calls("cudaStreamIsCapturing");
        std::uint64_t const ids = simulated_cuda::calls("cudaStreamGetId");
        row.asks ? find(checked(), row.stream, row.which) : find(promised(), row.stream, row.which);
        CHECK(simulated_cuda::calls("cudaStreamIsCapturing") - captures == row.captures);
        CHECK(simulated_cuda::calls("cudaStreamGetId") - ids == row.ids);
    }
}

#endif
