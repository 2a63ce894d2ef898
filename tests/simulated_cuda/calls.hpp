// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does every CUDA call do first and last?
//
// It lets other threads go on, takes the lock, is counted, may be made to fail, is refused by a missing
// device or driver and by a device that is lost, and gives the scheduler its turn; at the end it remembers
// the error for its thread and writes a line of the log. api() is that frame; the call's own text is its
// argument.
//
//     cudaError_t cudaFree(void* p) {
//         static call_site site{"cudaFree"};
//         return api(site, [&](world_state& world) { ... });
//     }
//
// cost: about 60 ns with nothing queued and no log.

#include "graph.hpp"
#include "state.hpp"

namespace simulated_device::inside {

/// One function of the API, and how often it was called in this world. Constant-initialised.
struct call_site {
    constexpr explicit call_site(char const* function, bool lost_device_matters = true, bool is_cuda = true)
        : name(function), sticky_matters(lost_device_matters), counted(is_cuda) {}
    char const* name;    ///< as CUDA documents it: what 'cuda' begins leaves its error behind, and a driver's call does not
    bool sticky_matters; ///< a lost or missing device refuses it
    bool counted;        ///< the library's call, and not the test's own
    std::uint64_t generation = 0;
    std::uint64_t count = 0;
    call_site* next = nullptr;
    bool known = false;
};

/// Takes the lock for a scope and tells the thread's state, so that host functions can run without it.
class locked {
public:
    locked();
    ~locked();
    locked(locked const&) = delete;
    locked& operator=(locked const&) = delete;
    world_state& world;
    thread_state& thread;

private:
    locked(std::unique_lock<std::mutex> lock, world_state& state);
    std::unique_lock<std::mutex> lock_;
    std::unique_lock<std::mutex>* outer_;
};

/// Calls the functions of user objects that have ended, or some, or none: when they are called is part of the schedule.
void call_destructors(world_state& world, bool all = false);
cudaError_t begin_call(locked& scope, call_site& site);
cudaError_t end_call(locked& scope, call_site& site, cudaError_t error);

/// While it lives, this thread is in a call, and what it asks of the host's memory is CUDA's own.
class call_under_way {
public:
    call_under_way() noexcept { ++depth; }
    call_under_way(call_under_way const&) = delete;
    call_under_way& operator=(call_under_way const&) = delete;
    ~call_under_way() { --depth; }
    inline static thread_local int depth = 0;
};

template <class Body>
cudaError_t api(call_site& site, Body&& body) {
    call_under_way const here;
    switch_point();
    locked scope;
    cudaError_t error = begin_call(scope, site);
    if (error == cudaSuccess)
        error = body(scope.world);
    return end_call(scope, site, error);
}

/// Which stream does a null handle name? The functions whose names end in _ptsz and _ptds mean the thread's
/// own.
enum class null_stream { legacy, per_thread };

/// The stream that a handle names; null: none does (reported if one did), and the call answers
/// cudaErrorInvalidResourceHandle. `of`: the device whose default stream is meant; no_device: the current one.
stream_record* find_stream(world_state& world, cudaStream_t handle, null_stream null, char const* who, int of = no_device);
event_record* find_event(world_state& world, cudaEvent_t handle, char const* who);
/// What the device of a stream answers if it is lost; else success.
cudaError_t lost(world_state& world, int device);
int current_device(world_state& world);
std::uint64_t calls_of(world_state const& world, char const* function);

/// The answer of a function that is not modelled, which is reported: cudaErrorNotSupported.
int not_modelled(char const* function);

/// Enqueues work that reads and writes these bytes, or captures it; tells the shadow.
cudaError_t submit(world_state& world, stream_record& stream, cudaGraphNodeType type, operation work,
                   std::vector<bytes> const& reads, std::vector<bytes> const& writes,
                   std::uint64_t* number = nullptr);
/// The same for a kernel, or what stands for one; complains of memory that its device does not reach. `stream` null: refused.
cudaError_t submit_kernel(world_state& world, stream_record* stream, std::vector<bytes> const& reads, std::vector<bytes> const& writes,
                          std::function<void()> body, char const* name, cudaError_t failure = cudaSuccess);

/// Where the bytes of an address are, for the simulator's own hands. Host addresses are their own.
char* bytes_of(world_state& world, void const* p);
allocation* find_allocation(world_state& world, void const* p, std::uintptr_t* base = nullptr);
/// Marks what holds these bytes as written, so that it is given back to the system when freed.
void mark_written(world_state& world, void const* p);
/// A device uses memory that is not open to it.
void complain_of_access(world_state& world, std::string const& who, int device, void const* p);
/// Mapped memory is open to the devices that cuMemSetAccess named, whatever cudaDeviceEnablePeerAccess said.
void expect_opened(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const& from);
/// Addresses that are still reserved, and physical memory that was never released.
std::vector<std::string> virtual_leaks(world_state& world);
/// Pools of every device give back what their thresholds do not keep.
void trim_pools(world_state& world, int device);
/// The live pool that a handle names, or null.
pool_record* find_pool(world_state& world, cudaMemPool_t handle, char const* who);
/// Gives wholly free chunks back to the device until no more than 'keep' bytes are reserved.
void give_back_chunks(world_state& world, pool_record& pool, std::uint64_t keep);
cudaError_t free_pooled(world_state& world, void* p, stream_record* stream);
void destroy_allocation(world_state& world, std::uintptr_t at, char const* how);
/// The same for a pool's allocation, whose bytes are free when that operation is over.
void end_pooled(world_state& world, std::uintptr_t at, char const* how, wait last, vector_clock clock);
/// The same for a graph's, after its last launch or free.
void end_graph_memory(world_state& world, std::uintptr_t at, char const* how);
/// What a pool does with the bytes of an allocation that is gone.
void release_pooled(world_state& world, allocation const& memory, std::uintptr_t at);

} // namespace simulated_device::inside

/// Exports Name_on(null_stream, ...) under the API's two names: with the legacy stream for a null handle, and
/// (Suffix _ptsz or _ptds) with the thread's own.
#define SIMULATED_CUDA_EXPORT(Name, Suffix, Parameters, ...)                                                 \
    SIMULATED_CUDA_EXPORT_AS(Name, Name##_on, Name##Suffix, Parameters, __VA_ARGS__)

/// The same for names that do not follow from another.
#define SIMULATED_CUDA_EXPORT_AS(Name, Function, NameOfThreads, Parameters, ...)                             \
    extern "C" cudaError_t Name Parameters {                                                                 \
        return simulated_device::inside::Function(simulated_device::inside::null_stream::legacy, __VA_ARGS__);   \
    }                                                                                                        \
    extern "C" cudaError_t NameOfThreads Parameters {                                                        \
        return simulated_device::inside::Function(simulated_device::inside::null_stream::per_thread,             \
                                                __VA_ARGS__);                                                \
    }
