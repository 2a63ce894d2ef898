// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime.h> // before the shield's macros
//
#include <staging/scene.hpp>

#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <weir/converting/converting_kernel.cuh>
#include <weir/recipes.hpp>

using namespace scene;
using weir::converting_view;
using weir::converting::converting_kernel;

#ifdef WEIR_SIMULATED_CUDA
// Nobody calls it; but where nothing is optimised away cuda_runtime.h does, in functions that nobody calls.
extern "C" cudaChannelFormatDesc cudaCreateChannelDesc(int, int, int, int, cudaChannelFormatKind) {
    return {};
}
#endif

namespace {

// On the simulated device the kernel has no body: this one stands in, and tells what was launched.
#ifdef WEIR_SIMULATED_CUDA
std::vector<std::pair<unsigned, unsigned>> launches; // numbers in a packet, blocks

template <unsigned Count, class Storage>
void stand_in() {
    namespace device = simulated_cuda;
    device::on_launch(
        weir::converting::detail::store_packets<Count, float, Storage>,
        [](device::launch_shape const& shape, converting_view<float, Storage> to, float const* from) {
            launches.emplace_back(Count, shape.grid.x);
            std::copy(from, from + to.size(), to.begin());
        },
        [](converting_view<float, Storage> to, float const* from) {
            return device::uses{}.reads(from, to.size()).writes(to.data(), to.size());
        });
}
#endif

template <class Storage>
void check_rows() {
    static constexpr unsigned packet = 16 / sizeof(Storage);
#ifdef WEIR_SIMULATED_CUDA
    stand_in<packet, Storage>();
    stand_in<1, Storage>();
#endif
    support::every_schedule([] {
        support::scoped_stream const s;
        ringed here(small(3));
        pinned_pool other;
        std::size_t const most = 100'000;
        std::vector<float> row(most + 4);
        for (std::size_t i = 0; i != row.size(); ++i)
            row[i] = static_cast<float>(i % 15) * 0.5f - 3.5f;
        memory const there(octets(reinterpret_cast<unsigned char const*>(row.data()),
                                  reinterpret_cast<unsigned char const*>(row.data() + row.size())));
        auto* const locked = static_cast<Storage*>(other.allocate(on_host, (most + 1) * sizeof(Storage)));
        std::vector<Storage> ordinary(most + 1);
        for (std::size_t const count : {std::size_t{1}, std::size_t{packet - 1}, std::size_t{packet}, std::size_t{3 * packet + 1},
                                        std::size_t{10'001}, most})
            for (std::size_t const skip : {0u, 1u, 4u}) // elements: aligned or not
                for (Storage* const to : {locked, locked + 1, ordinary.data()}) {
                    CAPTURE(count);
                    CAPTURE(skip);
                    converting_view<float, Storage> const view(to, count, 0.5f);
                    auto const* const from = reinterpret_cast<float const*>(there.at()) + skip;
                    weir::staging::copy_stored_to_host_async(here.ring, s, view, from, count, converting_kernel{}).wait();
                    CHECK(std::equal(view.begin(), view.end(), row.begin() + static_cast<long>(skip)));
                }
#ifdef WEIR_SIMULATED_CUDA
        launches.clear();
        weir::staging::copy_stored_to_host_async(here.ring, s, converting_view<float, Storage>(locked, most),
                                                 reinterpret_cast<float const*>(there.at()), most, converting_kernel{7})
            .wait();
        weir::staging::copy_stored_to_host_async(here.ring, s, converting_view<float, Storage>(locked, 300),
                                                 reinterpret_cast<float const*>(there.at(4)), 300, converting_kernel{})
            .wait();
        CHECK(launches == decltype(launches){{packet, 7}, {1, 2}});
#endif
        other.deallocate(on_host, locked, (most + 1) * sizeof(Storage));
    });
}

} // namespace

TEST_CASE("converting_kernel: rows of every length and alignment are stored, in packets where that can be") {
    check_rows<__half>();
    check_rows<__nv_bfloat16>();
    check_rows<__nv_fp8_e4m3>();
    check_rows<__nv_fp8_e5m2>();
}
