// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Compiled twice for one program, with and without per-thread default streams: in each a null stream is the file's own.
#include "probe.hpp"

#include <cstdio>
#include <simulated_cuda/simulated_cuda.hpp>
#include <weir/interop/thrust.hpp>

namespace {

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
constexpr char here[] = "the per-thread file";
cudaStream_t const meant = cudaStreamPerThread;
#else
constexpr char here[] = "the legacy file";
cudaStream_t const meant = cudaStreamLegacy;
#endif

// As the streams of other libraries are.
struct wrapper {
    cudaStream_t get() const { return nullptr; }
};

int mistaken = 0;

void expect(char const* what, weir::stream_ref stream) {
    if (stream == meant)
        return;
    std::printf("%s: '%s' takes null for %s\n", here, what, weir::runtime::is_legacy(stream) ? "legacy" : "per thread");
    ++mistaken;
}

template <class Stream>
void ask(Stream const& null) {
    probe pool;
    weir::layer::statistics<weir::layer::limit<probe&>> layers(weir::GiB, pool);
    weir::pool_ref<weir::memory_space::device> const any = pool;
    pool.told = nullptr;
    void* const p = pool.try_allocate(null, 8);
    expect("try_allocate", pool.told);
    pool.deallocate(null, p, 8);
    expect("deallocate", pool.told);
    static_cast<void>(pool.allocate(null, 8));
    expect("allocate", pool.told);
    static_cast<void>(layers.allocate(null, 8));
    expect("a layer's allocate", pool.told);
    layers.used_on(p, null);
    expect("a layer's used_on", pool.told);
    static_cast<void>(any.allocate(null, 8));
    expect("a reference's allocate", pool.told);
    weir::device_buffer const buffer(pool, null, 8);
    expect("a container", pool.told);
}

// A Thrust vector's memory is for work on the default stream, which is to wait for the pool's.
void ask_thrust() {
    struct allocator : weir::interop::thrust::allocator<char> {
        using weir::interop::thrust::allocator<char>::allocator;
        using weir::interop::thrust::detail::source<weir::memory_space::device>::allocate_by_default;
    };
    simulated_cuda::world world(simulated_cuda::config{}.late());
    cudaStream_t stream = nullptr;
    weir::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    weir::check_cuda(simulated_cuda::launch(stream, {}, {}), "launch");
    probe pool;
    static_cast<void>(allocator(pool, stream).allocate_by_default(8, 1));
    for (cudaStream_t const one : {cudaStreamLegacy, cudaStreamPerThread})
        if (cudaStreamQuery(one) == cudaErrorNotReady)
            expect("Thrust's allocator", one);
    world.forgive();
}

} // namespace

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
int mistaken_in_per_thread_file() {
#else
int mistaken_in_legacy_file() {
#endif
    ask(cudaStream_t{});
    ask(wrapper{});
    ask_thrust();
    return mistaken;
}

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
int main() {
    if (mistaken_in_legacy_file() + mistaken_in_per_thread_file() == 0)
        std::puts("null is what each file means by it");
}
#endif
