// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Survive running out of memory: a cache that gives way when the pool has no room.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <cstdio>
#include <deque>
#include <exception>
#include <weir/weir.hpp>

// Tiles of an image, kept as long as nobody needs their memory.
struct tile_cache {
    struct give_way { // whom the pool asks before it gives up
        bool operator()(weir::failed_allocation const& failed) const { return cache.drop(failed.bytes); }
        tile_cache& cache;
    };
    using pool_type = weir::layer::failure_handler<weir::device_pool, give_way>;

    // The oldest go, as many as have 'bytes' bytes. Freed on their stream: work that still uses them is safe. One thread uses
    // this cache; where several allocate, several may be here at once, and it needs a lock.
    bool drop(std::size_t bytes) {
        if (tiles.empty())
            return false; // nothing left; for more than the pool's limit nobody is asked
        for (std::size_t freed = 0; freed < bytes && !tiles.empty(); tiles.pop_front())
            freed += tiles.front().size();
        return true;
    }

    pool_type pool{give_way{*this}, weir::pool_options{}.limit(16 * weir::MiB).name("tiles")};
    std::deque<weir::device_buffer> tiles; // after the pool, so that they end before it
};

void survive(cudaStream_t stream) {
    tile_cache cache;
    for (int loaded = 1; loaded <= 5; ++loaded) {
        cache.tiles.push_back(weir::device_buffer(cache.pool, stream, 4 * weir::MiB)); // may drop others
        std::printf("tile %d is loaded, %zu in the cache\n", loaded, cache.tiles.size());
    }
    weir::device_buffer const frame(cache.pool, stream, 10 * weir::MiB);
    std::printf("a frame of %zu MiB, %zu in the cache\n", frame.size() / weir::MiB, cache.tiles.size());
    try {
        weir::device_buffer const poster(cache.pool, stream, 20 * weir::MiB);
    } catch (weir::out_of_memory const& error) {
        std::puts(error.what());
    }
}

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        survive(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
