// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// One of each that gdb shows; see shown_by_gdb in run.py.

#include <cstdlib>
#include <weir/graph/graph_memory.hpp>
#include <weir/multi_device.hpp>
#include <weir/weir.hpp>

int main() {
    cudaStream_t a = nullptr;
    if (cudaStreamCreate(&a) != cudaSuccess)
        return 1;
    weir::device_pool pool(weir::pool_options{}.name("frames").limit(weir::GiB));
    weir::device_vector<float> const xs(pool, a, 100);
    weir::device_buffer const bytes(pool, a, 3000);
    weir::pool<weir::upstream::device, weir::placement::arena, weir::reuse::immediate> scratch;
    weir::pool<weir::upstream::device, weir::placement::best_fit<>, weir::reuse::after_event> waiting;
    void* const p = scratch.allocate(a, 5000);
    void* const q = waiting.allocate(a, 5000);
    weir::driver_pool cudas(weir::driver_pool_options{}.name("cudas"));
    void* const r = cudas.allocate(a, 5000);
    weir::layer::statistics<weir::device_pool&> const counted(pool);
    weir::layer::limit<weir::device_pool&> const tenant(weir::layer_options{}.name("tenant"), weir::MiB, pool);
    weir::layer::fallback<weir::device_pool&, weir::driver_pool&> const both(pool, cudas);
    weir::graph_memory const memory(pool);
    weir::any_device_pool const any = weir::make_pool("device", weir::pool_options{}.name("by name"));
    weir::device_pool_ref const ref(pool);
    weir::device_value<double> const sum(pool, a);
    weir::multi_device::per_device<weir::device_pool> each;
    static_cast<void>(each.find(0));
    weir::memory_report const state = pool.state();
    weir::base::range const part{4096, 512};
    weir::stream_ref const host = weir::on_host, legacy = cudaStreamLegacy;
    if (p && q && r && host.is_host() && legacy != host && part.bytes != 0 && ref.device() == 0)
        std::abort();
    return static_cast<int>(counted.live_blocks());
}
