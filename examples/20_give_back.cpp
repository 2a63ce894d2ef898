// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Give back by a mark: a program loads with much memory, serves with little, and gives back what it has not needed lately.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <vector>
#include <weir/weir.hpp>

// The mark is the most that was in use in the last eight looks. Free memory beyond it and a quarter goes back at a look: so a
// step that needs more now and then keeps its memory, and what was got for a peak goes once eight looks did not need it.
class mark_keeper {
public:
    explicit mark_keeper(weir::device_pool& pool) : pool_(pool) {}

    // Call it where a step has the most memory. 'trim' may wait for the device only where no block is handed out.
    void look() {
        weir::memory_report const now = pool_.state();
        lately_[looks_++ % lately_.size()] = now.in_use_bytes;
        std::size_t const mark = *std::max_element(lately_.begin(), lately_.end()), kept = mark + mark / 4;
        if (now.reserved_bytes > kept)
            given_back_bytes_ += pool_.trim(kept); // what work still uses goes at a later look
    }
    std::size_t given_back_bytes() const { return given_back_bytes_; }

private:
    weir::device_pool& pool_;
    std::array<std::size_t, 8> lately_{};
    std::size_t looks_ = 0, given_back_bytes_ = 0;
};

int main() try {
    cudaStream_t stream = nullptr;
    weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
    {
        weir::device_pool pool;
        mark_keeper keeper(pool);
        for (std::size_t const buffers : {64u, 8u, 96u, 8u}) { // load, serve, load more, serve
            for (int step = 0; step < 10; ++step) {
                std::vector<weir::device_buffer> all;
                while (all.size() != buffers)
                    all.emplace_back(pool, stream, weir::MiB).zero_async();
                keeper.look();
                weir::synchronize(stream);
            }
            std::printf("steps of %zu MiB: %zu MiB reserved\n", buffers, pool.reserved_bytes() / weir::MiB);
        }
        std::printf("given back: %zu MiB\n", keeper.given_back_bytes() / weir::MiB);
    }
    weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
} catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
