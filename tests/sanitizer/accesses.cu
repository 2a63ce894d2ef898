// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Twelve small programs, each with one wrong access of a kernel, and the same without it. run.sh runs them under
// compute-sanitizer.
//
// usage: accesses right|wrong NUMBER    (right all: every right one)

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <exception>
#include <optional>
#include <weir/container/vector.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/interop/nvtx.hpp>
#include <weir/placement/arena.hpp>
#include <weir/pool/scope.hpp>
#include <weir/reuse/immediate.hpp>

namespace {

namespace nvtx = weir::interop::nvtx;

__global__ void write(char* p, long long at) { p[at] = 1; }
__global__ void read(char const* p, long long at, char* to) { *to = p[at]; }
template <class T>
__global__ void fill(T* p, long long count) {
    for (long long each = threadIdx.x; each < count; each += blockDim.x)
        p[each] = 1;
}

struct stream {
    cudaStream_t handle = nullptr;
    stream() { weir::check_cuda(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
    ~stream() { static_cast<void>(cudaStreamDestroy(handle)); }
    void wait() const { weir::check_cuda(cudaStreamSynchronize(handle), "cudaStreamSynchronize"); }
};

// A program's streams and pool, which has other blocks, too.
template <class Pool>
struct setting {
    Pool pool;
    stream a, b;
    char* before = static_cast<char*>(pool.allocate(a.handle, 1024));
    char* p = static_cast<char*>(pool.allocate(a.handle, 1024));
    char* behind = static_cast<char*>(pool.allocate(a.handle, 1024));

    ~setting() {
        pool.deallocate(a.handle, before, 1024);
        end();
        pool.deallocate(a.handle, behind, 1024);
    }
    void end() { pool.deallocate(a.handle, std::exchange(p, nullptr), 1024); }
};
using device = setting<nvtx::checked_device_pool>;

void past_the_end(bool wrong) {
    device on;
    write<<<1, 1, 0, on.a.handle>>>(on.p, wrong ? 1024 : 1023);
    on.a.wait();
}
void past_an_odd_end(bool wrong) { // within what the pool rounds up to
    device on;
    char* const p = static_cast<char*>(on.pool.allocate(on.a.handle, 1000));
    write<<<1, 1, 0, on.a.handle>>>(p, wrong ? 1000 : 999);
    on.a.wait();
    on.pool.deallocate(on.a.handle, p, 1000);
}
void before_the_start(bool wrong) {
    device on;
    write<<<1, 1, 0, on.a.handle>>>(on.p, wrong ? -1 : 0);
    on.a.wait();
}
void write_after_the_free(bool wrong) {
    device on;
    char* const p = on.p;
    if (!wrong)
        write<<<1, 1, 0, on.a.handle>>>(p, 0);
    on.end();
    if (wrong)
        write<<<1, 1, 0, on.a.handle>>>(p, 0);
    on.a.wait();
}
void read_after_the_free(bool wrong) {
    device on;
    char* const p = on.p;
    weir::check_cuda(cudaMemsetAsync(p, 0, 1024, on.a.handle), "cudaMemsetAsync");
    if (!wrong)
        read<<<1, 1, 0, on.a.handle>>>(p, 0, on.before);
    on.end();
    if (wrong)
        read<<<1, 1, 0, on.a.handle>>>(p, 0, on.before);
    on.a.wait();
}
void into_a_neighbour(bool wrong) { // the loop runs into the next block
    device on;
    fill<<<1, 32, 0, on.a.handle>>>(on.p, wrong ? 1500 : 1024);
    on.a.wait();
}
void stale_after_a_scope(bool wrong) {
    nvtx::checked_memory memory;
    using chunks = nvtx::checked_chunks<weir::upstream::device>;
    using frames = nvtx::checked_blocks<weir::pool<chunks, weir::placement::arena, weir::reuse::immediate>>;
    frames pool(memory, chunks(memory), weir::pool_options{});
    stream a;
    char* p = static_cast<char*>(pool.allocate(a.handle, 1024));
    {
        weir::scope<frames> const frame(pool);
        char* const inner = static_cast<char*>(pool.allocate(a.handle, 1024));
        write<<<1, 1, 0, a.handle>>>(inner, 0);
        p = wrong ? inner : p;
    }
    write<<<1, 1, 0, a.handle>>>(p, 0);
    a.wait();
    pool.clear();
}
void stale_after_a_container(bool wrong) {
    device on;
    std::optional<weir::device_vector<char>> xs(std::in_place, on.pool, on.a.handle, 1024);
    char* const p = xs->data();
    if (wrong)
        xs.reset();
    write<<<1, 1, 0, on.a.handle>>>(p, 0);
    on.a.wait();
}
void stale_after_growing(bool wrong) {
    device on;
    weir::device_vector<char> xs(on.pool, on.a.handle, 1024);
    char* const p = xs.data();
    xs.resize(1 << 20);
    write<<<1, 1, 0, on.a.handle>>>(wrong ? p : xs.data(), 0);
    on.a.wait();
}
void elements_too_wide(bool wrong) { // as many elements, of another type
    device on;
    if (wrong)
        fill<<<1, 32, 0, on.a.handle>>>(reinterpret_cast<long long*>(on.p), 1024 / 4);
    else
        fill<<<1, 32, 0, on.a.handle>>>(reinterpret_cast<int*>(on.p), 1024 / 4);
    on.a.wait();
}
void freed_on_another_stream(bool wrong) { // b's work comes after the free, and was never told
    device on;
    char* const p = on.p;
    if (!wrong) {
        write<<<1, 1, 0, on.b.handle>>>(p, 0);
        on.pool.used_on(p, on.b.handle);
    }
    on.end();
    if (wrong)
        write<<<1, 1, 0, on.b.handle>>>(p, 0);
    on.b.wait();
}
void past_a_pinned_end(bool wrong) {
    setting<nvtx::checked_pinned_pool> on;
    write<<<1, 1, 0, on.a.handle>>>(on.p, wrong ? 1024 : 1023);
    on.a.wait();
}

struct {
    char const* name;
    void (*run)(bool wrong);
} const programs[] = {
    {"past the end", past_the_end},
    {"past an end that is no multiple of 256", past_an_odd_end},
    {"before the start", before_the_start},
    {"a write after the free", write_after_the_free},
    {"a read after the free", read_after_the_free},
    {"into a neighbour", into_a_neighbour},
    {"a stale pointer after a scope", stale_after_a_scope},
    {"a stale pointer after a container's end", stale_after_a_container},
    {"a stale pointer after a container grew", stale_after_growing},
    {"elements too wide", elements_too_wide},
    {"on another stream after the free", freed_on_another_stream},
    {"past the end of pinned memory", past_a_pinned_end},
};

} // namespace

int main(int count, char** words) {
    bool const wrong = count == 3 && std::strcmp(words[1], "wrong") == 0;
    int const which = count == 3 && std::strcmp(words[2], "all") != 0 ? std::atoi(words[2]) : -1;
    try {
        for (int each = 0; each != 12; ++each)
            if (which == each || (which == -1 && !wrong)) {
                std::printf("%s: %s\n", wrong ? "wrong" : "right", programs[each].name);
                std::fflush(stdout);
                programs[each].run(wrong);
            }
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what()); // the tool has ended the kernel
        return wrong ? 0 : 1;
    }
}
