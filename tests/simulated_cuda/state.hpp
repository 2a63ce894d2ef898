// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is a simulated machine made of?
//
// One world_state at a time, under one mutex. A stream is a queue of operations with numbers; an operation
// waits for pairs (stream, number) and nothing else, so an event is such a pair and a snapshot of a clock.
// Who may see what is settled when an operation is enqueued; when it runs is the scheduler's choice.
//
// invariant: stream.done <= stream.last, and exactly last - done operations are queued or running.
// invariant: stream.clock covers everything that is ordered before the stream's next operation, save what
//            the host learns in between.
// order:     everything here is touched with the lock held.

#include "address_space.hpp"
#include "clock.hpp"
#include "shadow.hpp"
#include <weir/simulated_device/control.hpp>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

namespace simulated_device::inside {
struct stream_record;
struct event_record;
struct pool_record;
} // namespace simulated_device::inside

// What handles point to: slots that are handed out again at once, last in first out.
struct CUstream_st {
    simulated_device::inside::stream_record* record = nullptr;
};
struct CUevent_st {
    simulated_device::inside::event_record* record = nullptr;
};
struct CUmemPoolHandle_st {
    simulated_device::inside::pool_record* record = nullptr;
};

namespace simulated_device::inside {

/// "Operation 'number' of 'stream' is over."
struct wait {
    stream_record* stream;
    std::uint64_t number;
};

struct operation {
    char const* what = "";
    std::uint64_t number = 0;
    std::vector<wait> waits;
    std::uint64_t gate = 0;
    cudaError_t failure = cudaSuccess;
    bool foreign = false; ///< the body is the test's: it runs with the lock released and may not call CUDA
    bool by_peers = false; ///< names the devices of its memory, and needs no access from its own
    std::function<void()> body;
};

enum class stream_kind { legacy, per_thread, created };

struct stream_record {
    std::uint64_t id = 0;
    std::size_t component = 0; ///< in clocks
    int device = 0;
    unsigned flags = 0;
    int priority = 0;
    stream_kind kind = stream_kind::created;
    bool destroyed = false;
    bool running = false;
    CUstream_st* handle = nullptr;
    std::deque<operation> queue;
    std::uint64_t last = 0;
    std::uint64_t done = 0;
    std::uint64_t noticed = 0;    ///< up to where the pools know that its work is over
    std::uint64_t settled_at = 0; ///< host step at which a destroyed stream was known to be over; 0: not
    vector_clock clock;
    std::shared_ptr<graph_state> capture; ///< null: not capturing
    std::vector<std::size_t> frontier;    ///< nodes that the next captured operation follows
    bool origin = false;                  ///< of its capture

    bool blocking() const { return kind != stream_kind::legacy && (flags & cudaStreamNonBlocking) == 0; }
};

struct event_record {
    CUevent_st* handle = nullptr;
    unsigned flags = 0;
    int device = 0;
    std::uint64_t id = 0;
    std::size_t place = 0;           ///< among the live ones
    stream_record* stream = nullptr; ///< of the last record; null: never recorded
    std::uint64_t number = 0;
    vector_clock clock;
    std::shared_ptr<graph_state> capture; ///< last recorded in this capture
    std::vector<std::size_t> frontier;
};

/// A driver allocation, or host memory made known to the driver.
enum class memory_kind { device, pinned, managed, registered, pooled, mapped, imported };

/// What was advised of a stretch of managed memory.
struct advised {
    std::uintptr_t end = 0;
    bool read_mostly = false;
    cudaMemLocation preferred{cudaMemLocationTypeInvalid, 0};
    cudaMemLocation prefetched{cudaMemLocationTypeInvalid, 0};
    std::set<int> accessed_by; ///< devices; cudaCpuDeviceId: the host
};

struct allocation {
    std::size_t bytes = 0; ///< as asked for
    memory_kind kind = memory_kind::device;
    int device = 0;
    unsigned flags = 0;
    bool written = false;
    pool_record* pool = nullptr;
    bool of_graph = false;            ///< a capture made it
    std::weak_ptr<graph_state> graph; ///< of that capture
    bool launched = false;            ///< of a graph: a launch made it, and nothing freed it since
    wait last{nullptr, 0};            ///< of a graph: its last launch or free
    vector_clock last_clock;
    std::uint64_t number = 0;
    std::uintptr_t source = 0; ///< imported: where the exporter has it
    std::set<int> opened_to;   ///< mapped: devices that may use it
    std::map<std::uintptr_t, advised> advice; ///< managed: by first byte
};

struct device_state {
    std::unique_ptr<device_space> space;
    stream_record* legacy = nullptr;
    std::vector<stream_record*> blocking; ///< live, or with work still queued
    vector_clock blocking_past;           ///< of blocking streams that are gone from the list
    std::set<int> peers;
    pool_record* default_pool = nullptr;
    pool_record* current_pool = nullptr;
    cudaError_t sticky = cudaSuccess;
    unsigned flags = 0;
    bool ready = false; ///< has the context that the first call made with the device current makes
};

/// Where a driver's pool has its memory.
enum class pool_kind { device, host, managed };

/// A driver's pool. Its free blocks remember the point of the stream that freed them.
struct pool_record {
    struct free_block {
        std::size_t bytes = 0;
        stream_record* stream = nullptr; ///< null: never used
        std::uint64_t number = 0;
        vector_clock clock;
    };
    CUmemPoolHandle_st* handle = nullptr;
    pool_kind kind = pool_kind::device;
    int device = 0;
    cudaMemLocation location{}; ///< as asked for
    std::uint64_t id = 0;      ///< what an export names
    bool exported = false;     ///< as a whole, without which no block of it is
    int handle_types = 0;      ///< as what it may be exported
    std::uint64_t source = 0;  ///< imported: the exporter's id
    std::unique_ptr<pool_record> graphs; ///< what graphs own that allocate from this pool; the device counts it, and not the pool
    bool is_default = false;
    bool destroyed = false;
    std::size_t maximum = 0;
    std::uint64_t threshold = 0;
    int follow_events = 1;
    int opportunistic = 1;
    int internal = 1;
    std::uint64_t used = 0;
    std::uint64_t used_high = 0;
    std::uint64_t reserved = 0;
    std::uint64_t reserved_high = 0;
    std::size_t live = 0;
    std::map<std::uintptr_t, std::size_t> chunks;
    std::map<std::uintptr_t, free_block> free;
    std::map<int, cudaMemAccessFlags> accessible;
};

/// The pools of a place and a kind of memory, as cudaMemGetMemPool tells them.
struct place_pools {
    pool_record* given = nullptr; ///< by default
    pool_record* current = nullptr;
};

/// A user object without owners.
struct ended_object {
    void* data = nullptr;
    cudaHostFn_t destroy = nullptr;
    vector_clock past; ///< launches that kept it
};

/// One simulated runtime.
struct world_state {
    explicit world_state(config const& configuration);
    ~world_state();

    bool ending = false; ///< the world itself is being taken down
    std::set<cudaUserObject_t> user_objects;   ///< those with an owner
    std::deque<ended_object> ended_objects; ///< whose functions have not been called yet
    vector_clock ended;                     ///< launches that kept those whose functions were called
    config settings;
    std::uint64_t generation = 0;
    std::vector<device_state> devices;
    std::unique_ptr<region> host_region;    ///< pinned and managed memory
    std::unique_ptr<region> virtual_region; ///< addresses for virtual memory; made when first asked for
    std::size_t host_used = 0;

    std::map<std::uintptr_t, allocation> allocations;
    std::uint64_t allocation_count = 0;
    shadow knowledge;

    std::vector<std::unique_ptr<stream_record>> streams; ///< all there ever were; component - 1 is the index
    std::vector<stream_record*> active;                  ///< with work queued or running
    std::vector<std::unique_ptr<event_record>> live_events;
    std::uint64_t events_made = 0;
    std::vector<std::unique_ptr<pool_record>> pools;
    std::map<std::array<int, 3>, place_pools> places; ///< by allocation type and location; but for devices' own memory
    std::uint64_t threads = 0;
    std::uint64_t next_id = 1;
    std::uint64_t next_capture = 1;
    std::uint64_t next_gate = 1;
    std::uint64_t next_pool = 1;
    std::set<std::uint64_t> closed_gates;
    std::vector<std::shared_ptr<graph_state>> captures; ///< in progress
    std::vector<std::weak_ptr<graph_state>> graphs;     ///< captured, maybe alive
    std::set<cudaGraph_t> graph_handles;
    std::set<cudaGraphExec_t> exec_handles;

    vector_clock host;
    std::uint64_t host_step = 1;

    std::vector<report> reports;
    std::size_t dealt_with = 0; ///< of them, the first so many: a test has taken them over
    std::string log;

    // calls and faults
    struct fault {
        std::string function; ///< empty: any
        std::uint64_t at;
        cudaError_t error;
        lasting how;
    };
    std::vector<fault> faults;
    std::uint64_t step = 0;  ///< calls of any kind: what reports and the log count by
    std::uint64_t calls = 0; ///< of CUDA
    std::uint64_t failed_calls = 0;

    // the schedule
    std::uint64_t random_state = 1;
    unsigned keenness = 4;     ///< of 8: how readily work runs by itself in random mode
    unsigned restlessness = 4; ///< of 8: how readily threads of run_threads switch at a call
    unsigned fruitless_queries = 0;
    std::vector<std::size_t> script;       ///< explore: choices to repeat
    std::vector<std::size_t> script_sizes; ///< explore: of how many each was one
    std::size_t script_at = 0;

    void complain(finding kind, std::string sentence);
    /// Nothing that was reported so far is the end of the program's business.
    void deal_with_reports() { dealt_with = reports.size(); }
    void say(std::string const& line);
    bool logging() const { return settings.log; }
};

/// Handles of streams and events: the last one given back is the next one handed out.
CUstream_st* take_stream_handle();
CUevent_st* take_event_handle();
void give_handle(CUstream_st* handle);
void give_handle(CUevent_st* handle);
bool is_handle(CUstream_st const* handle);
bool is_handle(CUevent_st const* handle);
/// All handles are free, and the first ones come first again.
void reset_handles();

/// The lock of the one world.
std::mutex& world_mutex();
/// The one world; made on first use. Lock held.
world_state& the_world();
/// Whether reports that nobody dealt with make the program end with an error. Lock held.
void fail_at_end(bool fails);
/// Replaces it. Lock held.
void replace_world(config const& configuration);

/// What a thread is to the runtime. Starts afresh in every world.
struct thread_state {
    std::uint64_t generation = 0;
    std::uint64_t number = 0; ///< in order of appearance in this world
    int device = 0;
    cudaError_t last_error = cudaSuccess;
    cudaError_t error_before = cudaSuccess; ///< what the last error was before it
    cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
    stream_record* own_streams[64] = {}; ///< per-thread default streams, by device; static objects end after a thread's own
    bool in_host_function = false;
    unsigned housekeeping = 0; ///< its copies are a pool's own
    std::unique_lock<std::mutex>* lock = nullptr; ///< while in a call
};
thread_state& this_thread(world_state& world);

/// "stream 4", "host", "device 0 + 0x200": names that are the same in every run of a seed.
std::string name_of(stream_record const& stream);
std::string name_of_address(world_state const& world, void const* p);

// ---- streams and the schedule (scheduler.cpp) ----------------------------------------------------------

stream_record& make_stream(world_state& world, int device, unsigned flags, int priority, stream_kind kind);
/// Settles the order of an operation now, judges its uses of memory, and queues it. Returns its number.
std::uint64_t enqueue(world_state& world, stream_record& stream, operation work,
                      std::vector<bytes> const& reads = {}, std::vector<bytes> const& writes = {});
/// What is ordered before the stream's next operation.
vector_clock next_clock(world_state const& world, stream_record const& stream);
/// Joins what comes next on a stream with a point in another.
void order_after(world_state& world, stream_record& stream, stream_record* other, std::uint64_t number,
                 vector_clock const& clock, std::vector<wait>& waits);
/// Runs a body; a foreign one with the lock released and CUDA forbidden to it.
void run_body(world_state& world, bool foreign, std::function<void()> const& body);
/// The scheduler's turn at a call.
void schedule_turn(world_state& world);
/// Something may have become ready: in eager mode it runs.
void settle_eagerly(world_state& world);
/// Runs up to 'count' ready operations.
std::size_t run_some(world_state& world, std::size_t count);
/// Runs what it takes for this operation to be over; false: nothing can end the wait (reported).
bool wait_until(world_state& world, stream_record& stream, std::uint64_t number, char const* who);
/// After 64 queries in vain some work runs even in late mode.
void note_fruitless_query(world_state& world);
/// The host learns of everything on a stream.
void host_joins(world_state& world, stream_record& stream);
/// Everything on a device is over, and the host knows.
bool wait_for_device(world_state& world, int device, char const* who);
std::size_t decide(world_state& world, std::size_t n);
void host_steps(world_state& world);
/// Wakes threads that wait for work of others.
void wake_waiters();

// ---- threads that take turns (turnstile.cpp) -------------------------------------------------------------

/// A place to switch; may block while others run. No lock held.
void switch_point();
/// The caller cannot go on until others have: switches if it may; false: it is not one of run_threads.
bool step_aside(bool& stuck);

} // namespace simulated_device::inside
