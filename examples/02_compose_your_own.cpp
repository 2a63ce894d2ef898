// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Compose your own pool: parts for its slots, layers around it, and an upstream of yours.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <cstdio>
#include <exception>
#include <weir/weir.hpp>

// An upstream of our own: pinned memory that tells what it is asked for.
class talking_upstream : public weir::upstream::pinned<> {
public:
    void* acquire(std::size_t bytes) {
        std::printf("  upstream: a chunk of %zu KiB\n", bytes / weir::KiB);
        return pinned::acquire(bytes);
    }
};

// Where chunks come from, which bytes of them, when bytes are used again, and how large the next chunk is.
using message_pool = weir::pool<talking_upstream, weir::placement::slab<1024>, weir::reuse::after_event,
                                weir::growth::fixed<64 * weir::KiB>>;

// Around it: what went through, and no more than 100 messages at a time.
using watched_pool = weir::layer::limit<weir::layer::statistics<message_pool>>;

void compose(cudaStream_t stream) {
    watched_pool pool(100 * 1000, weir::pool_options{}.name("messages"));

    void* messages[200] = {};
    int sent = 0;
    while (void* const message = pool.try_allocate(stream, 1000)) // null at the limit, and no exception
        messages[sent++] = message;
    std::printf("%d messages, then: %s\n", sent, pool.refused(1000, 16).reason.c_str());

    for (int i = 0; i < sent; ++i)
        pool.deallocate(stream, messages[i], 1000);
    weir::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    pool.deallocate(stream, pool.allocate(stream, 1000), 1000);

    auto const& seen = pool.inner(); // the layer inside: statistics
    std::printf("in all %zu blocks, %zu at the peak, %zu now\n", seen.total_blocks(), seen.peak_live_blocks(),
                seen.live_blocks());
}

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        compose(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
