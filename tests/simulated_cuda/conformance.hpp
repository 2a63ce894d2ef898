// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does one probe run on the simulator and on a GPU?
//
// A probe is a test case that asks the CUDA runtime one question. Linked with cudart it runs once, on the
// GPU. Linked with the simulator (WEIR_SIMULATED_CUDA) it runs in a fresh world under every schedule, and the
// world must have nothing to report at its end. Work is held in flight by a gate: on a GPU a host function
// that spins until it is opened.
//
// invariant: while a gate is closed a probe allocates and frees nothing, makes no module load (warm_up has
// done
//            so) and puts no host function behind another stream: on a GPU each may wait for the gate.
// order:     gates are opened before the probe ends, also when an assertion threw.

#include <cuda_runtime_api.h>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#ifdef WEIR_SIMULATED_CUDA
#include "simulated_cuda/simulated_cuda.hpp"
#endif

namespace conformance {

#define CUDA_IS(expected, call) CHECK(std::string(cudaGetErrorName(call)) == cudaGetErrorName(expected))
#define CUDA_OK(call) CUDA_IS(cudaSuccess, call)
#define CUDA_MUST(call) REQUIRE(std::string(cudaGetErrorName(call)) == "cudaSuccess")

class stream {
public:
    explicit stream(unsigned flags = cudaStreamNonBlocking) {
        CUDA_MUST(cudaStreamCreateWithFlags(&handle_, flags));
    }
    ~stream() { destroy(); }
    stream(stream const&) = delete;
    stream& operator=(stream const&) = delete;
    operator cudaStream_t() const { return handle_; }
    void destroy() {
        if (handle_ != nullptr)
            CUDA_OK(cudaStreamDestroy(handle_));
        handle_ = nullptr;
    }

private:
    cudaStream_t handle_ = nullptr;
};

class event {
public:
    explicit event(unsigned flags = cudaEventDisableTiming) {
        CUDA_MUST(cudaEventCreateWithFlags(&handle_, flags));
    }
    ~event() { destroy(); }
    event(event const&) = delete;
    event& operator=(event const&) = delete;
    operator cudaEvent_t() const { return handle_; }
    void destroy() {
        if (handle_ != nullptr)
            CUDA_OK(cudaEventDestroy(handle_));
        handle_ = nullptr;
    }

private:
    cudaEvent_t handle_ = nullptr;
};

/// Device memory that is freed at the end.
class device_bytes {
public:
    explicit device_bytes(std::size_t bytes) { CUDA_MUST(cudaMalloc(&at_, bytes)); }
    ~device_bytes() { CUDA_OK(cudaFree(at_)); }
    device_bytes(device_bytes const&) = delete;
    device_bytes& operator=(device_bytes const&) = delete;
    operator void*() const { return at_; }
    char* at(std::size_t offset) const { return static_cast<char*>(at_) + offset; }

private:
    void* at_ = nullptr;
};

class pinned_bytes {
public:
    explicit pinned_bytes(std::size_t bytes) {
        CUDA_MUST(cudaMallocHost(&at_, bytes));
        std::memset(at_, 0, bytes);
    }
    ~pinned_bytes() { CUDA_OK(cudaFreeHost(at_)); }
    pinned_bytes(pinned_bytes const&) = delete;
    pinned_bytes& operator=(pinned_bytes const&) = delete;
    operator void*() const { return at_; }
    unsigned char& operator[](std::size_t index) const { return static_cast<unsigned char*>(at_)[index]; }

private:
    void* at_ = nullptr;
};

/// Holds what follows on a stream until it is opened.
class gate {
public:
#ifdef WEIR_SIMULATED_CUDA
    explicit gate(cudaStream_t stream) {
        CUDA_MUST(gate_.close(stream));
    }
    void open() {
        gate_.open();
    }
#else
    explicit gate(cudaStream_t stream) : opened_(new std::atomic<bool>(false)) {
        // The flag outlives the gate: the host function may look once more after it was opened.
        static std::vector<std::unique_ptr<std::atomic<bool>>> flags;
        flags.emplace_back(opened_);
        CUDA_MUST(cudaLaunchHostFunc(stream, spin, opened_));
    }
    void open() {
        opened_->store(true, std::memory_order_release);
    }
#endif
    ~gate() {
        open();
    }
    gate(gate const&) = delete;
    gate& operator=(gate const&) = delete;

private:
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::gate gate_;
#else
    static void spin(void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load(std::memory_order_acquire))
            std::this_thread::yield();
    }
    std::atomic<bool>* opened_;
#endif
};

/// So many fills of 64 MiB keep a GPU at work for milliseconds; the simulated device is at work as its schedule has it.
#ifdef WEIR_SIMULATED_CUDA
inline constexpr int many_fills = 8;
#else
inline constexpr int many_fills = 200;
#endif

/// Asks until the answer is not 'not ready'.
inline cudaError_t wait_by_asking(cudaEvent_t which) {
    cudaError_t answer = cudaErrorNotReady;
    while (answer == cudaErrorNotReady)
        answer = cudaEventQuery(which);
    static_cast<void>(cudaGetLastError());
    return answer;
}

inline unsigned char first_byte(void const* device) {
    unsigned char value = 0;
    CUDA_OK(cudaMemcpy(&value, device, 1, cudaMemcpyDeviceToHost));
    return value;
}

inline bool two_devices() {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 1)
        return true;
    MESSAGE("skipped: there is one device");
    return false;
}

inline cudaStreamCaptureStatus status_of(cudaStream_t which) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CUDA_OK(cudaStreamIsCapturing(which, &status));
    return status;
}

/// Loads all that loads lazily, so that nothing does behind a closed gate.
inline void warm_up() {
    int count = 0;
    CUDA_MUST(cudaGetDeviceCount(&count));
    for (int device = count; device-- > 0;) {
        CUDA_MUST(cudaSetDevice(device));
        device_bytes memory(1 << 16);
        pinned_bytes host(1 << 16);
        stream work;
        event done;
        CUDA_MUST(cudaMemsetAsync(memory, 1, 1 << 16, work));
        CUDA_MUST(cudaMemcpyAsync(host, memory, 1 << 16, cudaMemcpyDeviceToHost, work));
        CUDA_MUST(cudaMemcpyAsync(memory, host, 1 << 16, cudaMemcpyHostToDevice, work));
        CUDA_MUST(cudaMemcpyAsync(memory, memory.at(1 << 12), 64, cudaMemcpyDeviceToDevice, work));
        CUDA_MUST(cudaEventRecord(done, work));
        CUDA_MUST(cudaEventRecord(done, cudaStreamPerThread));
        CUDA_MUST(cudaEventRecord(done, cudaStreamLegacy));
        void* pooled = nullptr;
        CUDA_MUST(cudaMallocAsync(&pooled, 256, work));
        CUDA_MUST(cudaFreeAsync(pooled, work));
        CUDA_MUST(cudaDeviceSynchronize());
    }
}

inline void run(void (*probe)()) {
#ifdef WEIR_SIMULATED_CUDA
    using simulated_cuda::config;
    std::vector<config> worlds{config{}.eager(), config{}.late()};
    for (std::uint64_t seed = 1; seed <= 6; ++seed)
        worlds.push_back(config{}.random(seed));
    for (config const& settings : worlds) {
        CAPTURE(static_cast<int>(settings.mode));
        CAPTURE(settings.seed);
        simulated_cuda::world world(config(settings).with_devices(2).with_memory(std::size_t(8) << 30));
        warm_up();
        probe();
        for (simulated_cuda::report const& wrong : world.finish())
            FAIL_CHECK(wrong.sentence);
    }
#else
    static bool const warm = (warm_up(), true);
    static_cast<void>(warm);
    CUDA_MUST(cudaSetDevice(0));
    static_cast<void>(cudaGetLastError());
    probe();
    CUDA_OK(cudaDeviceSynchronize());
#endif
}

/// A probe: PROBE("what is so") { ... }
#define PROBE(name) PROBE_NAMED(name, DOCTEST_ANONYMOUS(probe_))
#define PROBE_NAMED(name, function)                                                                          \
    static void function();                                                                                  \
    TEST_CASE("conformance: " name) {                                                                        \
        conformance::run(function);                                                                          \
    }                                                                                                        \
    static void function()

} // namespace conformance
