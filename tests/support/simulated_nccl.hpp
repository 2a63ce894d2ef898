// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// NCCL on the simulated device: ranks are threads, or ranks of one thread. Include it in one file of a program.
//
// Every rank's calls meet. When all have come with the same call, it becomes work on each rank's stream: what it reads, a wait
// of every stream for every other one, and what it writes. So the simulated device reports whoever uses the memory before the
// collective's end. Where the real one would hang, since ranks make different calls, all wait, or one has ended, each rank gets
// ncclInvalidUsage, and ncclGetLastError says which call it was. What is wrong and cannot be an answer is a complaint.

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <map>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <set>
#include <simulated_cuda/simulated_cuda.hpp>
#include <string>
#include <utility>
#include <vector>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/driver_calls.hpp>

namespace simulated_nccl {

enum class kind { all_reduce, reduce_scatter, all_gather, broadcast, send, receive, window };
inline char const* const names[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "send", "receive", "window"};

// What a call came to; under the clique's lock.
struct ending {
    bool over = false;
    std::string wrong;
};

struct call {
    kind what;
    void const* from;
    void* to;
    std::size_t count;
    ncclDataType_t type;
    int op_or_peer; // the operation, the root, or the other rank
    cudaStream_t stream;
    std::shared_ptr<ending> end = {};

    std::string said() const {
        return std::string(names[static_cast<int>(what)]) + " of " + std::to_string(count) + " (type " + std::to_string(type) +
               ", " + std::to_string(op_or_peer) + ")";
    }
    bool is_pair() const { return what == kind::send || what == kind::receive; }
};

struct window {
    std::uintptr_t at;
    std::size_t bytes;
};

struct clique {
    std::mutex lock;
    std::condition_variable changed;
    std::vector<ncclComm*> members;
    std::size_t joined = 0;
    std::size_t ended = 0;
    bool of_one_thread = false;
    std::string dead; // why nothing works any more
};

} // namespace simulated_nccl

struct ncclComm {
    std::shared_ptr<simulated_nccl::clique> all;
    int rank = 0;
    int device = 0;
    std::vector<simulated_nccl::call> queue; // collectives that the others have not come to
    std::vector<simulated_nccl::call> pairs; // sends and receives that have no other end yet
    std::vector<simulated_nccl::window> windows;
    ncclResult_t asynchronous = ncclSuccess;
};
struct ncclWindow_vidmem {
    ncclComm* of;
    std::uintptr_t at;
};

namespace simulated_nccl {

inline std::vector<std::string>& complaints() {
    static std::vector<std::string> all;
    return all;
}
inline std::mutex& global_lock() {
    static std::mutex one;
    return one;
}
inline std::map<std::string, std::shared_ptr<clique>>& cliques() {
    static std::map<std::string, std::shared_ptr<clique>> all;
    return all;
}
inline thread_local std::string last_error;
inline thread_local int group_depth = 0;
inline thread_local std::vector<std::pair<ncclComm*, call>> grouped;

inline void complain(std::string const& what) {
    std::lock_guard<std::mutex> const guard(global_lock());
    complaints().push_back(what);
}
inline ncclResult_t refuse(std::string const& why, ncclResult_t as = ncclInvalidUsage) {
    last_error = why;
    return as;
}

/// The communicator's next question for errors gets this answer.
inline void fail_later(ncclComm* comm, ncclResult_t error) {
    comm->asynchronous = error;
}

inline std::size_t bytes_of(ncclDataType_t type) {
    return type <= ncclUint8 ? 1 : type <= ncclUint32 || type == ncclFloat32 ? 4 : type == ncclFloat16 || type == ncclBfloat16 ? 2 : 8;
}

template <class T>
void add_to(unsigned char* to, unsigned char const* from, std::size_t count, int op) {
    for (std::size_t i = 0; i < count; ++i) {
        T a, b;
        std::memcpy(&a, to + i * sizeof(T), sizeof a);
        std::memcpy(&b, from + i * sizeof(T), sizeof b);
        a = static_cast<T>(op == ncclMax ? std::max(a, b) : op == ncclMin ? std::min(a, b) : op == ncclProd ? a * b : a + b);
        std::memcpy(to + i * sizeof(T), &a, sizeof a);
    }
}
inline void add_to(std::vector<unsigned char>& to, std::vector<unsigned char> const& from, ncclDataType_t type, int op) {
    std::size_t const count = to.size() / bytes_of(type);
    (type == ncclFloat32   ? add_to<float>
     : type == ncclFloat64 ? add_to<double>
     : type == ncclInt64   ? add_to<long long>
                           : add_to<int>)(to.data(), from.data(), count, op);
}

// Whether the memory at an address was made by cuMemCreate and is mapped.
inline bool is_mapped(std::uintptr_t at) {
    decltype(::cuMemRetainAllocationHandle)* retain = nullptr;
    decltype(::cuMemRelease)* release = nullptr;
    weir::runtime::detail::driver_functions::find("cuMemRetainAllocationHandle", retain);
    weir::runtime::detail::driver_functions::find("cuMemRelease", release);
    CUmemGenericAllocationHandle memory = 0;
    return retain(&memory, reinterpret_cast<void*>(at)) == CUDA_SUCCESS && release(memory) == CUDA_SUCCESS;
}

// The window in which an address lies, and its offset there; "none".
inline std::string place_of(ncclComm const& comm, void const* p) {
    auto const at = reinterpret_cast<std::uintptr_t>(p);
    for (std::size_t i = 0; i < comm.windows.size(); ++i)
        if (at - comm.windows[i].at < comm.windows[i].bytes) {
            if (!is_mapped(comm.windows[i].at))
                return "of a window whose memory was given back";
            return "offset " + std::to_string(at - comm.windows[i].at) + " of window " + std::to_string(i);
        }
    return "no window";
}

inline std::size_t read_bytes(call const& of, std::size_t ranks) {
    return of.count * bytes_of(of.type) * (of.what == kind::reduce_scatter ? ranks : 1);
}
inline std::size_t written_bytes(call const& of, std::size_t ranks) {
    return of.count * bytes_of(of.type) * (of.what == kind::all_gather ? ranks : 1);
}

// Every stream waits for every other one.
inline void meet(std::vector<std::pair<int, cudaStream_t>> const& streams) {
    for (auto const& [device, stream] : streams) {
        weir::runtime::device_scope const there(device);
        cudaEvent_t passed = nullptr;
        static_cast<void>(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming));
        static_cast<void>(cudaEventRecord(passed, stream));
        for (auto const& [other_device, other] : streams) {
            weir::runtime::device_scope const here(other_device);
            static_cast<void>(cudaStreamWaitEvent(other, passed, 0));
        }
        static_cast<void>(cudaEventDestroy(passed));
    }
}

// What they all write, from what they all read.
inline std::vector<unsigned char> result_of(std::vector<std::vector<unsigned char>> const& read, call const& of, std::size_t rank) {
    std::vector<unsigned char> all;
    if (of.what == kind::broadcast)
        return read[static_cast<std::size_t>(of.op_or_peer)];
    if (of.what == kind::all_gather) {
        for (auto const& each : read)
            all.insert(all.end(), each.begin(), each.end());
        return all;
    }
    all = read[0];
    for (std::size_t i = 1; i < read.size(); ++i)
        add_to(all, read[i], of.type, of.op_or_peer);
    if (of.what == kind::all_reduce)
        return all;
    std::size_t const part = all.size() / read.size();
    auto const begin = all.begin() + static_cast<std::ptrdiff_t>(rank * part);
    return {begin, begin + static_cast<std::ptrdiff_t>(part)};
}

// All ranks have come: `calls` are theirs. Returns what is wrong.
inline std::string perform(clique& all, std::vector<call> const& calls) {
    std::size_t const ranks = calls.size();
    call const& first = calls[0];
    for (std::size_t i = 1; i < ranks; ++i)
        if (calls[i].what != first.what || calls[i].count != first.count || calls[i].type != first.type ||
            (calls[i].op_or_peer != first.op_or_peer && first.what != kind::window))
            return "rank 0 calls " + first.said() + " and rank " + std::to_string(i) + " calls " + calls[i].said() +
                   ": the real one would hang";
    if (first.what == kind::window) {
        for (std::size_t i = 0; i < ranks; ++i)
            all.members[i]->windows.push_back({reinterpret_cast<std::uintptr_t>(calls[i].to), calls[i].count});
        return "";
    }
    for (std::size_t i = 0; i < ranks; ++i) {
        for (auto const& [own, theirs] : {std::pair(calls[i].from, first.from), std::pair<void const*, void const*>(calls[i].to, first.to)}) {
            std::string const place = place_of(*all.members[i], own);
            if (place != place_of(*all.members[0], theirs) || place.find("given back") != std::string::npos)
                return "rank " + std::to_string(i) + " names " + place + ", rank 0 " + place_of(*all.members[0], theirs);
        }
    }
    auto const read = std::make_shared<std::vector<std::vector<unsigned char>>>(ranks);
    std::vector<std::pair<int, cudaStream_t>> streams;
    for (std::size_t i = 0; i < ranks; ++i) {
        weir::runtime::device_scope const there(all.members[i]->device);
        std::size_t const bytes = read_bytes(calls[i], ranks);
        void const* const from = calls[i].from;
        streams.push_back({all.members[i]->device, calls[i].stream});
        simulated_cuda::launch(calls[i].stream, {{from, bytes}}, {}, [=] {
            auto const* const at = static_cast<unsigned char const*>(simulated_cuda::backing(from));
            (*read)[i].assign(at, at + bytes);
        }, "what a collective reads");
    }
    meet(streams);
    for (std::size_t i = 0; i < ranks; ++i) {
        weir::runtime::device_scope const there(all.members[i]->device);
        call const own = calls[i];
        simulated_cuda::launch(own.stream, {}, {{own.to, written_bytes(own, ranks)}}, [=] {
            std::vector<unsigned char> const result = result_of(*read, own, i);
            std::memcpy(simulated_cuda::backing(own.to), result.data(), result.size());
        }, "what a collective writes");
    }
    return "";
}

// A send and its receive.
inline std::string carry(ncclComm& from, call const& send, ncclComm& to, call const& receive) {
    if (send.count != receive.count || send.type != receive.type)
        return "rank " + std::to_string(from.rank) + " sends " + std::to_string(send.count) + " and rank " + std::to_string(to.rank) +
               " receives " + std::to_string(receive.count) + ": the real one would hang";
    std::size_t const bytes = read_bytes(send, 1);
    auto const read = std::make_shared<std::vector<unsigned char>>();
    {
        weir::runtime::device_scope const there(from.device);
        void const* const source = send.from;
        simulated_cuda::launch(send.stream, {{source, bytes}}, {}, [=] {
            auto const* const at = static_cast<unsigned char const*>(simulated_cuda::backing(source));
            read->assign(at, at + bytes);
        }, "what a send reads");
    }
    meet({{from.device, send.stream}, {to.device, receive.stream}});
    weir::runtime::device_scope const there(to.device);
    void* const target = receive.to;
    simulated_cuda::launch(receive.stream, {}, {{target, bytes}},
                           [=] { std::memcpy(simulated_cuda::backing(target), read->data(), bytes); }, "what a receive writes");
    return "";
}

// Under the lock: performs all that has come together. Sets `dead` where ranks disagree.
inline void perform_ready(clique& all) {
    while (all.dead.empty() && std::all_of(all.members.begin(), all.members.end(), [](ncclComm* each) { return each && !each->queue.empty(); })) {
        std::vector<call> calls;
        for (ncclComm* const each : all.members) {
            calls.push_back(each->queue.front());
            each->queue.erase(each->queue.begin());
        }
        all.dead = perform(all, calls);
        for (call const& each : calls)
            *each.end = {true, all.dead};
        all.changed.notify_all();
    }
    for (ncclComm* const from : all.members)
        for (std::size_t i = 0; from && all.dead.empty() && i < from->pairs.size();) {
            call const send = from->pairs[i];
            ncclComm* const to = send.what == kind::send ? all.members[static_cast<std::size_t>(send.op_or_peer)] : nullptr;
            auto const other = !to ? decltype(from->pairs)::iterator()
                                   : std::find_if(to->pairs.begin(), to->pairs.end(), [&](call const& each) {
                                         return each.what == kind::receive && each.op_or_peer == from->rank;
                                     });
            if (!to || other == to->pairs.end()) {
                ++i;
                continue;
            }
            call const receive = *other;
            to->pairs.erase(other);
            from->pairs.erase(std::find_if(from->pairs.begin(), from->pairs.end(), [&](call const& each) {
                return each.what == kind::send && each.op_or_peer == to->rank;
            }));
            all.dead = carry(*from, send, *to, receive);
            *send.end = *receive.end = {true, all.dead};
            all.changed.notify_all();
            i = 0;
        }
}

// The graph that a stream is captured into, as a number; 0: none.
inline unsigned long long graph_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    static_cast<void>(cudaStreamGetCaptureInfo(stream, &status, &id));
    return status == cudaStreamCaptureStatusActive ? id : 0;
}

// The calls of some ranks of one thread, together: enqueues them, and waits until the others have come.
inline ncclResult_t make(std::vector<std::pair<ncclComm*, call>> const& calls) {
    if (calls.empty())
        return ncclSuccess;
    clique& all = *calls[0].first->all;
    std::unique_lock<std::mutex> guard(all.lock);
    if (!all.dead.empty())
        return refuse(all.dead);
    for (auto const& [comm, each] : calls)
        for (auto const& [other, its] : calls)
            if (comm == other && each.stream && its.stream && graph_of(each.stream) != graph_of(its.stream))
                return refuse("a communicator's calls in a group are all captured into one graph, or none of them is");
    std::set<ncclComm*> own;
    std::vector<std::shared_ptr<ending>> ends;
    for (auto const& [comm, each] : calls) {
        own.insert(comm);
        auto& list = each.is_pair() ? comm->pairs : comm->queue;
        list.push_back(each);
        ends.push_back(list.back().end = std::make_shared<ending>());
    }
    perform_ready(all);
    auto const are_over = [&] { return std::all_of(ends.begin(), ends.end(), [](auto const& each) { return each->over; }); };
    // Who has calls that are not over waits in here. Where all do, nobody comes any more.
    auto const all_wait = [&] {
        return std::all_of(all.members.begin(), all.members.end(),
                           [](ncclComm* each) { return !each || !each->queue.empty() || !each->pairs.empty(); });
    };
    while (!are_over()) {
        if (all.dead.empty() && (all_wait() || (all.of_one_thread && own.size() != all.members.size())))
            all.dead = "rank " + std::to_string((*own.begin())->rank) + " waits in " + calls[0].second.said() +
                       (all.of_one_thread ? " for a rank of its own thread; make the calls in a group"
                        : all.ended != 0  ? ", and a rank has ended: the real one would hang"
                                          : ", and all others wait as well: the real one would hang");
        if (all.dead.empty()) {
            all.changed.wait(guard);
            continue;
        }
        for (ncclComm* const each : all.members)
            for (auto* const list : {each ? &each->queue : nullptr, each ? &each->pairs : nullptr}) {
                for (std::size_t i = 0; list && i < list->size(); ++i)
                    *(*list)[i].end = {true, all.dead};
                if (list)
                    list->clear();
            }
        all.changed.notify_all();
    }
    for (auto const& each : ends)
        if (!each->wrong.empty())
            return refuse(each->wrong);
    return ncclSuccess;
}

inline ncclResult_t take(ncclComm* comm, call const& one) {
    if (group_depth != 0) {
        grouped.push_back({comm, one});
        return ncclSuccess;
    }
    return make({{comm, one}});
}

inline ncclResult_t join(ncclComm** out, std::shared_ptr<clique> const& all, int rank, int device) {
    for (ncclComm* const each : all->members)
        if (each && each->device == device)
            return refuse("two ranks are on device " + std::to_string(device));
    auto* const made = new ncclComm;
    made->all = all;
    ++all->joined;
    made->rank = rank;
    made->device = device;
    all->members[static_cast<std::size_t>(rank)] = *out = made;
    return ncclSuccess;
}

} // namespace simulated_nccl

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int count = 0;
    std::lock_guard<std::mutex> const guard(simulated_nccl::global_lock());
    *id = {};
    std::string const name = "clique " + std::to_string(++count);
    std::memcpy(id->internal, name.data(), name.size());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    std::shared_ptr<simulated_nccl::clique> all;
    {
        std::lock_guard<std::mutex> const guard(simulated_nccl::global_lock());
        std::shared_ptr<simulated_nccl::clique>& found = simulated_nccl::cliques()[id.internal];
        if (!found) {
            found = std::make_shared<simulated_nccl::clique>();
            found->members.resize(static_cast<std::size_t>(ranks));
        }
        all = found;
    }
    int device = 0;
    static_cast<void>(cudaGetDevice(&device));
    std::unique_lock<std::mutex> guard(all->lock);
    ncclResult_t const result = simulated_nccl::join(comm, all, rank, device);
    if (result != ncclSuccess)
        all->dead = simulated_nccl::last_error;
    all->changed.notify_all();
    all->changed.wait(guard, [&] { return !all->dead.empty() || all->joined == all->members.size(); });
    if (all->dead.empty())
        return ncclSuccess;
    if (result == ncclSuccess) {
        all->members[static_cast<std::size_t>(rank)] = nullptr;
        delete std::exchange(*comm, nullptr);
    }
    return simulated_nccl::refuse(all->dead);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* numbers) {
    auto const all = std::make_shared<simulated_nccl::clique>();
    all->of_one_thread = devices > 1;
    all->members.resize(static_cast<std::size_t>(devices));
    for (int i = 0; i < devices; ++i)
        if (ncclResult_t const result = simulated_nccl::join(comms + i, all, i, numbers[i]); result != ncclSuccess)
            return result;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (simulated_nccl::group_depth != 0)
        simulated_nccl::complain("a communicator ends inside a group: ncclGroupEnd is missing");
    if (!comm->windows.empty())
        simulated_nccl::complain("a communicator ends before its windows");
    return ncclCommAbort(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    std::shared_ptr<simulated_nccl::clique> const all = comm->all;
    std::lock_guard<std::mutex> const guard(all->lock);
    ++all->ended;
    all->members[static_cast<std::size_t>(comm->rank)] = nullptr;
    all->changed.notify_all();
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    *error = std::exchange(comm->asynchronous, ncclSuccess);
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) { return result == ncclInvalidUsage ? "invalid usage" : "an error"; }
const char* ncclGetLastError(ncclComm_t) { return simulated_nccl::last_error.c_str(); }

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* p, size_t bytes, ncclWindow_t* window, int) {
    if (!simulated_nccl::is_mapped(reinterpret_cast<std::uintptr_t>(p)))
        return simulated_nccl::refuse("a window's memory is cuMemCreate's", ncclInvalidArgument);
    ncclResult_t const result =
        simulated_nccl::take(comm, {simulated_nccl::kind::window, nullptr, p, bytes, ncclInt8, 0, nullptr});
    if (result == ncclSuccess)
        *window = new ncclWindow_vidmem{comm, reinterpret_cast<std::uintptr_t>(p)};
    return result;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    std::lock_guard<std::mutex> const guard(comm->all->lock);
    if (!simulated_nccl::is_mapped(window->at))
        simulated_nccl::complain("a window's memory was given back before the window");
    for (std::size_t i = comm->windows.size(); i-- > 0;)
        if (comm->windows[i].at == window->at)
            comm->windows.erase(comm->windows.begin() + static_cast<std::ptrdiff_t>(i));
    delete window;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    return simulated_nccl::take(comm, {simulated_nccl::kind::all_reduce, from, to, count, type, op, stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    return simulated_nccl::take(comm, {simulated_nccl::kind::reduce_scatter, from, to, count, type, op, stream});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return simulated_nccl::take(comm, {simulated_nccl::kind::all_gather, from, to, count, type, 0, stream});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return simulated_nccl::take(comm, {simulated_nccl::kind::broadcast, from, to, count, type, root, stream});
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return simulated_nccl::take(comm, {simulated_nccl::kind::send, from, nullptr, count, type, peer, stream});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return simulated_nccl::take(comm, {simulated_nccl::kind::receive, nullptr, to, count, type, peer, stream});
}

ncclResult_t ncclGroupStart() {
    ++simulated_nccl::group_depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (simulated_nccl::group_depth == 0)
        return simulated_nccl::refuse("there is no group to end");
    if (--simulated_nccl::group_depth != 0)
        return ncclSuccess;
    return simulated_nccl::make(std::exchange(simulated_nccl::grouped, {}));
}
}
