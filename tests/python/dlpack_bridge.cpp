// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What would a binding of a C++ program look like that hands vectors to Python and takes arrays from it?
//
// The least one: plain functions, which on_gpu.py calls and wraps into capsules. 'versioned' says which of DLPack's two structs
// is meant; without it JAX would understand nothing.

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>
#include <weir/interop/dlpack.hpp>
#include <weir/weir.hpp>

namespace dlpack = weir::interop::dlpack;

namespace {

// On device 0, whichever is current: JAX makes another one current on a machine of several.
weir::device_pool& pool() {
    static auto* const made = new weir::device_pool(weir::pool_options{}.name("bridge").device(0));
    return *made;
}

cudaStream_t stream() {
    static cudaStream_t const made = [] {
        weir::runtime::device_scope const there(0);
        cudaStream_t fresh = nullptr;
        weir::check_cuda(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        return fresh;
    }();
    return made;
}

} // namespace

extern "C" void* bridge_give(int rows, int columns, std::int64_t consumer, int versioned) {
    std::vector<float> host(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
    std::iota(host.begin(), host.end(), 0.0f);
    dlpack::managed_tensor* const array = dlpack::export_vector(weir::device_vector<float>(pool(), stream(), host),
                                                                dlpack::consumer_stream(consumer), {rows, columns});
    return versioned ? static_cast<void*>(array) : dlpack::without_version(array);
}

extern "C" std::int64_t bridge_stream() {
    return reinterpret_cast<std::intptr_t>(stream());
}

extern "C" double bridge_sum(void* array, int versioned, void** address) {
    auto* const whole = versioned ? static_cast<dlpack::managed_tensor*>(array)
                                  : dlpack::with_version(static_cast<dlpack::unversioned_tensor*>(array));
    dlpack::imported_vector<float const> const ours(whole, stream());
    *address = const_cast<float*>(ours.data());
    std::vector<float> host(ours.size());
    weir::check_cuda(cudaMemcpyAsync(host.data(), ours.data(), host.size() * sizeof(float), cudaMemcpyDefault, stream()),
                "cudaMemcpyAsync");
    weir::synchronize(stream());
    return std::accumulate(host.begin(), host.end(), 0.0);
}

extern "C" std::int64_t bridge_blocks() {
    return static_cast<std::int64_t>(pool().state().live_blocks);
}
