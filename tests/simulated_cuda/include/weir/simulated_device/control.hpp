// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a test tell the simulated device, and what does the simulated device tell the test?
//
// Linked in place of cudart, the simulated device answers the CUDA runtime's calls on the host. This is its other
// face: a world is configured and reset, work with known reads and writes is launched, a pool's hand-outs are
// noted, calls are made to fail, schedules are chosen, and what went wrong is read back as sentences.
//
//     simulated_device::world world{simulated_device::config{}.random(7)};   // fresh; checked at the end
//     cudaStream_t a;  cudaStreamCreate(&a);
//     void* p = pool.allocate(a, 256);          simulated_device::note_allocate(p, 256, a);
//     simulated_device::launch(a, {}, {{p, 256}}); // a kernel that writes 256 bytes at p
//     simulated_device::note_free(p, 256, a);     pool.deallocate(a, p, 256);   // note before the call: see
//     below
//
// invariant: decisions depend on the seed and on the order of API calls alone: same seed, same log.
// invariant: what is ordered is known when a call is made (vector clocks over streams and the host), so a
//            mistake is reported at the call that made it, under every schedule, and not only when it bites.
// order:     note_free goes BEFORE the pool's deallocate and note_allocate AFTER its allocate, so that bytes
//            are never live twice in the notes of several threads.
// cost:      a call takes well under a microsecond; memory is committed when it is written.
// not for:   times. cudaEventElapsedTime answers 0.

#include "stream_name.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace simulated_device {

/// When does enqueued work run?
enum class schedule {
    eager,      ///< when it is enqueued, as far as what it waits for permits
    late,       ///< only when a call has to wait for it (and after 64 fruitless queries in a row)
    random,     ///< a seeded generator decides at every call
    exhaustive, ///< explore() decides
};

/// A world: its machine and its schedule. Everything has a default; setters return the object.
struct config {
    schedule mode = schedule::eager;
    std::uint64_t seed = 1;
    int devices = 1;
    std::size_t memory_bytes = std::size_t(80) << 30; ///< of each device; costs nothing until written
    std::size_t pinned_bytes = std::size_t(64) << 30; ///< limit of pinned and managed memory together
    std::size_t address_bytes = std::size_t(16) << 40; ///< of the process, for virtual memory; what the system lacks is cut
    int driver_version = 13000; ///< of an older major version than the runtime's: cudaErrorInsufficientDriver
    std::size_t mappings = 524'288;                   ///< the most that cuMemMap makes in a process
    bool virtual_memory = true;                       ///< whether devices can map memory
    bool peers = true;                                ///< whether devices reach each other's memory
    bool device_memory_visible = false; ///< the host may touch device addresses (Thrust's host backend)
    bool log = false;                   ///< keep the log
    bool strict = true;                 ///< bytes given back on a stream count as used by all it was given
    unsigned watchdog_seconds = 20;     ///< a wait that nothing can end is reported after this long

    config& eager() {
        mode = schedule::eager;
        return *this;
    }
    config& late() {
        mode = schedule::late;
        return *this;
    }
    config& random(std::uint64_t s) {
        mode = schedule::random;
        seed = s;
        return *this;
    }
    config& with_devices(int n) {
        devices = n;
        return *this;
    }
    config& with_memory(std::size_t bytes) {
        memory_bytes = bytes;
        return *this;
    }
    config& with_addresses(std::size_t bytes) {
        address_bytes = bytes;
        return *this;
    }
    /// cuMemMap refuses what would be one mapping more than that, as out of memory; a real process has some 524,000.
    config& with_mappings(std::size_t most) {
        mappings = most;
        return *this;
    }
    /// No device can map memory: cuMemGetAllocationGranularity says that it is not supported.
    config& without_virtual_memory() {
        virtual_memory = false;
        return *this;
    }
    /// No device reaches another's memory: copies between them go by cudaMemcpyPeer.
    config& without_peers() {
        peers = false;
        return *this;
    }
    config& with_driver(int version) {
        driver_version = version;
        return *this;
    }
    config& with_log() {
        log = true;
        return *this;
    }
    config& visible() {
        device_memory_visible = true;
        return *this;
    }
};

/// What the simulator found wrong.
enum class finding {
    use_before_allocation, ///< of an address that no driver allocation holds and none held
    use_after_free,        ///< of memory given back to the driver, or of a block given back to its pool
    use_in_flight,         ///< two unordered accesses, at least one a write or of another life of the bytes
    reuse_in_flight,       ///< a pool handed out bytes whose former use is not ordered before the new one
    out_of_bounds,         ///< of a pool's bytes that it has not handed out
    handed_out_twice,      ///< a pool handed out bytes that are live
    early_free,            ///< a block was given back, and nothing orders work that uses it before that
    bad_free,              ///< a block noted as freed that is not live, or not of that size
    graph_conflict,   ///< bytes of a live graph handed out, or a graph launched over bytes handed to others
    destroyed_handle, ///< a stream, event or pool was used after its destruction
    wrong_device,     ///< a call that mixes devices as CUDA forbids
    host_access,      ///< the host called CUDA from a host function
    deadlock,         ///< a wait that nothing can end
    kernel_launch,    ///< of a kernel for which nothing stands in (see on_launch)
    not_modelled,     ///< a function of CUDA's was called that is not modelled
    leak,             ///< something still alive when the world ended
};

/// One finding, in words.
struct report {
    finding kind;
    std::string sentence;
};

/// Bytes that simulated work reads or writes.
struct bytes {
    void const* at = nullptr;
    std::size_t count = 0;
};

// ---- the world ------------------------------------------------------------------------------------------

/// Ends the present world and begins another: no allocation, stream, event, report or fault is left. Call it
/// while no other thread is in a CUDA call and every gate is of no more interest. What was reported and not
/// cleared is kept for the end of the program.
void reset(config const& configuration = {});

/// The configuration in force.
config const& configuration();

/// What was reported since reset, oldest first.
std::vector<report> reports();

/// Reports of one kind.
std::vector<report> reports(finding kind);

/// Forgets what was reported since reset: it is dealt with, and the end of the program says nothing of it.
void clear_reports();

/// What was reported in any world, and neither cleared nor handed over by one, is written to stderr when the program ends,
/// with a count. Whether the program then ends with exit status 1; it does unless this says otherwise.
void fail_at_exit(bool fails);

/// What is alive now: driver allocations, streams, events, pools, graphs, registrations; one sentence each.
std::vector<report> leaks();

/// Reports and leaks as text, one a line; empty when all is well. 'INFO(simulated_device::complaints())'.
std::string complaints();

/// The log since reset (config::log): one line a call and a line for each piece of work that ran.
std::string log();

/// Adds a line to the log.
void log(std::string const& line);

/// Resets at construction; at destruction drains all work and hands reports and leaks to the handler, which
/// by default writes them to stderr and aborts.
class world {
public:
    explicit world(config const& configuration = {},
                   std::function<void(std::vector<report> const&)> handler = {});
    ~world();
    world(world const&) = delete;
    world& operator=(world const&) = delete;

    /// Runs the work that is left, and returns the mistakes that were reported and what is still alive. Call it last, when
    /// pools and streams have ended. The caller judges what it returns: neither the destructor nor the end of the program says
    /// anything of it.
    std::vector<report> finish();

    /// What is wrong is of no interest, neither at this world's end nor at the program's.
    void forgive() { finished_ = true; }

private:
    std::function<void(std::vector<report> const&)> handler_;
    bool finished_ = false;
};

// ---- work -----------------------------------------------------------------------------------------------

/// Enqueues a kernel that reads and writes these bytes. 'body' runs when the scheduler picks the kernel; it
/// may touch memory through backing(). Captured on a capturing stream. Returns what a launch would.
cudaError_t launch(stream_name stream, std::initializer_list<bytes> reads,
                   std::initializer_list<bytes> writes, std::function<void()> body = {},
                   char const* name = "kernel");

/// The same for sets of bytes that are made at run time.
cudaError_t launch(stream_name stream, std::vector<bytes> const& reads, std::vector<bytes> const& writes,
                   std::function<void()> body = {}, char const* name = "kernel");

/// Enqueues a kernel that fails when it runs; its device then answers 'error' to every call until
/// cudaDeviceReset (a deferred, sticky error).
cudaError_t launch_failing(stream_name stream, cudaError_t error);

/// A stream's work stops at a gate until it is opened. Copies refer to one gate.
class gate {
public:
    gate();
    /// Enqueues the gate on a stream; not in capture.
    cudaError_t close(stream_name stream);
    /// Opens it for ever. Any thread.
    void open();

private:
    std::uint64_t name_;
};

/// Where the simulator keeps the bytes of a device address: readable and writable by the host at any time.
void* backing(void const* device_address);

/// The device on which the memory at this address lies; negative: on none, as pinned and managed memory.
int device_of(void const* p);

/// Shows device memory to the host at its own addresses, or hides it.
void make_device_memory_visible(bool visible);

/// Runs all that can run (all devices).
void drain();

/// Runs up to 'count' ready pieces of work, as the schedule chooses; returns how many ran.
std::size_t run(std::size_t count);

/// Pieces of work enqueued and not finished.
std::size_t pending();

// ---- what a pool does -----------------------------------------------------------------------------------

/// A pool handed out these bytes, for use on 'stream' from here on. Reports reuse in flight, bytes that are
/// live, bytes outside driver memory, bytes of a live graph. Zero bytes: nothing.
void note_allocate(void const* p, std::size_t count, stream_name stream);
/// The same for the host: every former use must have been waited for.
void note_allocate_host(void const* p, std::size_t count);
/// The bytes were given back to the pool; uses enqueued on 'stream' so far may be in flight. What is live stays so while
/// no memory is mapped behind its addresses, and may be given back meanwhile. Not 'strictly': the stream's other work does
/// not count as uses (config::strict).
void note_free(void const* p, std::size_t count, stream_name stream, bool strictly = true);
/// The same, and reports work on other streams that uses the block and that 'stream' does not come after (early_free), save
/// what was noted with the two below. Not in a capture: what is freed there belongs to its graph.
void note_checked_free(void const* p, std::size_t count, stream_name stream);
/// The pool was told that work on 'stream' uses the block at 'p': its free waits for all that the stream was given by then, or,
/// for a last use, by now. Where no live block is noted: nothing.
void note_used_on(void const* p, stream_name stream);
void note_last_used_on(void const* p, stream_name stream);
/// The bytes were given back and no use is in flight, except those that the pool was told of; else early_free.
void note_free_host(void const* p, std::size_t count);
/// The host has seen what the functions did that were called for user objects: the launches that kept those are over for it.
void note_ends();
/// The host itself reads or writes pinned or managed memory here.
void note_host_read(void const* p, std::size_t count);
void note_host_write(void const* p, std::size_t count);

/// While one lives, this thread's copies are a pool's own, which saves what it holds: they may touch bytes that it has
/// not handed out. All else is judged as ever.
class housekeeping {
public:
    housekeeping();
    ~housekeeping();
    housekeeping(housekeeping const&) = delete;
    housekeeping& operator=(housekeeping const&) = delete;
};

// ---- faults ---------------------------------------------------------------------------------------------

/// For how long does a fault last?
enum class lasting { once, for_ever };

/// The k-th counted API call from now on (k from 1) fails with 'error', before it had any effect.
/// cudaGetLastError, cudaPeekAtLastError and the names of errors are not counted and do not fail.
void fail_call(std::uint64_t k, cudaError_t error, lasting how = lasting::once);
/// The k-th call from now on of this function ("cudaMalloc"; the _ptsz and _ptds forms count as the plain
/// one).
void fail_call(char const* function, std::uint64_t k, cudaError_t error, lasting how = lasting::once);
/// No fault is pending any more.
void clear_faults();
/// API calls so far.
std::uint64_t calls();
/// Calls of one function so far.
std::uint64_t calls(char const* function);
/// Calls that a fault made fail.
std::uint64_t failed_calls();
/// The host memory that cudaHostRegister locked and that is not unregistered, by address.
std::vector<bytes> registered();
/// Whether this thread is in one of CUDA's calls: memory that it asks the host for then is CUDA's own. For an 'operator new'
/// that fails when a test says so.
bool in_cuda_call() noexcept;
/// The device answers 'error' to every call from now on, until cudaDeviceReset.
void inject_sticky(cudaError_t error, int device = 0);

// ---- schedules ------------------------------------------------------------------------------------------

/// Runs 'body' once for each sequence of the scheduler's choices, at most 'bound' times, each in a fresh
/// world (of 'configuration', exhaustive). Returns how many ran; all were, if that is below 'bound'.
/// Stops after a run that reported something: reports() and log() are then of that run.
std::uint64_t explore(config const& configuration, std::uint64_t bound, std::function<void()> const& body);

/// A choice of 0 to n - 1 by the schedule (seeded; enumerated by explore).
std::size_t choose(std::size_t n);

/// Runs the functions as threads of which one runs at a time; at every API call, gate, yield and contended
/// std::mutex or sched_yield the seed decides who goes on. Returns when all ended. Under the thread sanitizer
/// they run freely. A deadlock among them is reported.
void run_threads(std::vector<std::function<void()>> const& functions);

/// A place where run_threads may switch.
void yield();

/// From now on this thread calls 'hook' wherever run_threads could switch, and not run_threads' own turnstile: for tests
/// that hand turns over themselves. No lock of the simulator is held then. Null: no more.
void at_switch_points(void (*hook)());

} // namespace simulated_device
