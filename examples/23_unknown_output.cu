// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel that does not know how much it will write: it appends, and counts what finds no room; then it is launched again.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device.
#include <cstdio>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/stable.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const shown = (simulated_cuda::make_device_memory_visible(true), true); // there, Thrust's device is the host
#endif
constexpr std::size_t all_numbers = 4'000'000;

// Keeps the numbers above a mark. The threads of a warp move the end of what is kept with one atomic addition.
struct keep_above {
    unsigned const* numbers;
    unsigned mark;
    weir::stable::append_view<unsigned> kept;
    __host__ __device__ void operator()(std::size_t i) const {
        if (numbers[i] > mark)
            kept.push(numbers[i]);
    }
};

int main() try {
    weir::stream_ref const stream = cudaStreamPerThread;
    weir::device_pool pool;
    weir::stable::page_pool pages(weir::stable::page_pool_options{}.page_bytes(2 * weir::MiB));
    std::vector<unsigned> row(all_numbers);
    for (std::size_t i = 0; i < all_numbers; ++i)
        row[i] = static_cast<unsigned>(i * 2654435761u % 1000);
    weir::device_vector<unsigned> const numbers(pool, stream, row);

    weir::stable_vector<unsigned> kept(pages, stream, all_numbers); // addresses for all of them; memory for what there is
    weir::stable::append_end<unsigned> end(kept, pool);
    std::printf("above   kept     launches   held      (for all of them: %zu MiB)\n",
                all_numbers * sizeof(unsigned) / weir::MiB);
    for (unsigned const mark : {990u, 900u, 950u, 500u, 998u}) {
        kept.clear();
        unsigned const launches = fill_sync(kept, end, [&](auto view) {
            thrust::for_each_n(weir::interop::thrust::par_nosync(pool, stream), thrust::make_counting_iterator(std::size_t{0}),
                               all_numbers, keep_above{numbers.data(), mark, view});
        });
        std::printf("%4u  %7zu   %u          %zu MiB\n", mark, kept.size(), launches, kept.capacity_bytes() / weir::MiB);
    }
    kept.shrink_to_fit(); // the pages beyond the last size may go to other vectors now
    std::printf("then: %zu MiB\n", kept.capacity_bytes() / weir::MiB);
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
