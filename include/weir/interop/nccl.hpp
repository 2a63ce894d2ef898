// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do ranks add, gather and send what lies in weir's containers, with NCCL?
//
// A communicator is one rank's handle of NCCL's. Its collectives take containers, or anything with 'data' and 'size', and a
// stream; sizes that do not fit are refused before NCCL sees them. 'windows' registers each chunk of a collective pool once:
//
//     weir::interop::nccl::communicator ranks(channel);      // on each rank, with its device current
//     weir::interop::nccl::windows windows(ranks);
//     weir::multi_device::collective_pool<> pool(channel, weir::pool_options{}.reserve(256 * weir::MiB), &windows);
//     weir::device_vector<float> sums(pool, stream, n);
//     ranks.all_reduce(stream, sums, sums);
//     ranks.synchronize(stream, 10'000'000'000);             // ends a hang after ten seconds, with a sentence
//
// Before NCCL's 2.27 there are no windows; 'windows' then registers nothing, and collectives work all the same. NCCL is linked
// only by programs that include this header.
//
// invariant: a failed communicator is aborted, and is of no more use; its destructor then ends nothing that waits for others.
// order:     a collective is work on its stream, like a kernel: after what was enqueued before it, also in a captured graph.
// cost:      NCCL's.
// not for:   windows in a capture: register before it begins.

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <cuda_runtime_api.h>
#if !__has_include(<nccl.h>)
#error "weir: interop/nccl.hpp needs NCCL's nccl.h: install libnccl-dev or PyPI's nvidia-nccl-cu13, and name the folder"
#endif
#include <nccl.h>
#include <sched.h>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/interop/nccl/nccl_error.hpp>
#include <weir/multi_device/chunk_registration.hpp>
#include <weir/multi_device/rank_channel.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace nccl {

/// One rank of a communicator. Movable. One thread at a time.
class communicator {
public:
    /// The rank of the channel, on the current device. A collective call: rank 0 tells the others NCCL's id by the channel, so
    /// that a rank that does not come is named at the channel's deadline, before NCCL waits for it. Throws usage_error for
    /// that, nccl_error (two ranks on one device), cuda_error.
    explicit communicator(multi_device::rank_channel& channel)
        : device_(runtime::current_device()), rank_(channel.rank()), ranks_(channel.ranks()) {
        ncclUniqueId own{};
        if (rank_ == 0)
            check_nccl(ncclGetUniqueId(&own), "ncclGetUniqueId");
        base::growing_array<ncclUniqueId> all(static_cast<std::size_t>(ranks_));
        int const absent = channel.exchange(&own, sizeof own, all.data());
        if (absent >= 0)
            throw usage_error("weir: rank " + base::number_text(static_cast<std::size_t>(absent)) +
                              " did not come to make the communicator before the deadline; end all ranks and begin anew");
        check_nccl(ncclCommInitRank(&comm_, ranks_, all[0], rank_), "ncclCommInitRank");
    }

    /// A rank for each of these devices, in their order: for one thread with several devices, which makes collectives of all of
    /// them in a 'group'. Throws usage_error for a device that there is not, or that is named twice; nccl_error, cuda_error.
    template <class Devices>
    static base::growing_array<communicator> all(Devices const& devices) {
        base::growing_array<int> numbers;
        for (int const each : devices) {
            for (int const other : numbers)
                if (other == each)
                    throw usage_error("weir: device " + base::number_text(static_cast<std::size_t>(each)) +
                                      " is named twice; each rank has a device of its own");
            numbers.push_back(runtime::existing_device(each));
        }
        base::growing_array<ncclComm_t> handles(numbers.size());
        base::growing_array<communicator> made;
        made.reserve(numbers.size());
        auto const count = static_cast<int>(numbers.size());
        check_nccl(ncclCommInitAll(handles.data(), count, numbers.data()), "ncclCommInitAll");
        for (int i = 0; i < count; ++i) {
            auto const at = static_cast<std::size_t>(i);
            made.push_back(communicator(handles[at], numbers[at], i, count));
        }
        return made;
    }

    communicator(communicator&& other) noexcept
        : comm_(std::exchange(other.comm_, nullptr)), device_(other.device_), rank_(other.rank_), ranks_(other.ranks_) {}
    communicator(communicator const&) = delete;
    communicator& operator=(communicator const&) = delete;
    /// Ends it, together with the other ranks. The windows and their pools end before.
    ~communicator() {
        if (comm_)
            static_cast<void>(ncclCommDestroy(comm_));
    }

    int rank() const noexcept { return rank_; }
    int ranks() const noexcept { return ranks_; }
    int device() const noexcept { return device_; }
    /// NCCL's handle; null after an abort.
    ncclComm_t get() const noexcept { return comm_; }

    // Collectives. All ranks call the same one, with the same sizes, in the same order. `from` and `to` are containers of this
    // rank's device, or anything with 'data' and 'size'; in place where they are one. `stream`: the host does not wait. Each
    // throws usage_error for sizes that do not fit, and for a communicator that was aborted; nccl_error.

    /// `to[i]` is the sum (or what `op` says) of all ranks' `from[i]`.
    template <class From, class To>
    void all_reduce(stream_ref stream, From const& from, To& to, ncclRedOp_t op = ncclSum) {
        require(from.size() == to.size(), "all_reduce needs as many elements in both containers");
        call("ncclAllReduce", [&](ncclComm_t comm) {
            return ncclAllReduce(from.data(), to.data(), from.size(), type_of_both<From, To>(), op, comm, stream);
        });
    }
    /// `to` is all ranks' `from`, one behind the other.
    template <class From, class To>
    void all_gather(stream_ref stream, From const& from, To& to) {
        require(to.size() == from.size() * count(), "all_gather needs as many times the elements in 'to' as there are ranks");
        call("ncclAllGather", [&](ncclComm_t comm) {
            return ncclAllGather(from.data(), to.data(), from.size(), type_of_both<From, To>(), comm, stream);
        });
    }
    /// `to` is this rank's part of the sum of all ranks' `from`.
    template <class From, class To>
    void reduce_scatter(stream_ref stream, From const& from, To& to, ncclRedOp_t op = ncclSum) {
        require(from.size() == to.size() * count(),
                "reduce_scatter needs as many times the elements in 'from' as there are ranks");
        call("ncclReduceScatter", [&](ncclComm_t comm) {
            return ncclReduceScatter(from.data(), to.data(), to.size(), type_of_both<From, To>(), op, comm, stream);
        });
    }
    /// All ranks' `xs` are those of rank `root`.
    template <class Range>
    void broadcast(stream_ref stream, Range& xs, int root) {
        call("ncclBroadcast", [&](ncclComm_t comm) {
            return ncclBroadcast(xs.data(), xs.data(), xs.size(), type_of_both<Range, Range>(), root, comm, stream);
        });
    }
    /// Sends to a rank that receives as many, or receives from one that sends. Two ranks that both send first need a 'group'.
    template <class Range>
    void send(stream_ref stream, Range const& xs, int to) {
        call("ncclSend", [&](ncclComm_t comm) {
            return ncclSend(xs.data(), xs.size(), type_of_both<Range, Range>(), to, comm, stream);
        });
    }
    template <class Range>
    void receive(stream_ref stream, Range& xs, int from) {
        call("ncclRecv", [&](ncclComm_t comm) {
            return ncclRecv(xs.data(), xs.size(), type_of_both<Range, Range>(), from, comm, stream);
        });
    }

    /// Throws nccl_error if something went wrong since (another rank ended, a link failed), and aborts then. Never blocks.
    void check() {
        require(comm_ != nullptr, "the communicator was aborted; make a new one");
        ncclResult_t failed = ncclSuccess;
        check_nccl(ncclCommGetAsyncError(comm_, &failed), "ncclCommGetAsyncError", comm_);
        if (failed == ncclSuccess || failed == ncclInProgress)
            return;
        nccl_error const error("a collective", failed, comm_);
        abort();
        throw error;
    }

    /// Blocks until all work on `stream` is done. If something goes wrong, or it takes longer than `limit_ns` nanoseconds (as
    /// where ranks wait for one that makes another call), aborts and throws nccl_error. Throws usage_error for a captured
    /// stream, cuda_error.
    void synchronize(stream_ref stream, std::uint64_t limit_ns) {
        std::uint64_t const began = nanoseconds();
        synchronize_while(stream, [&] { return nanoseconds() - began < limit_ns; });
    }
    /// The same; waits on while keeps_on() says so.
    template <class KeepsOn>
    void synchronize_while(stream_ref stream, KeepsOn const& keeps_on) {
        if (runtime::is_capturing(stream))
            throw usage_error("weir: the host cannot wait for a stream that is being captured into a graph; end the capture "
                              "first");
        runtime::device_scope const there(device_);
        while (true) {
            cudaError_t const now = cudaStreamQuery(stream);
            if (now != cudaErrorNotReady)
                return check_cuda(now, "cudaStreamQuery");
            check();
            if (!keeps_on())
                break;
            sched_yield();
        }
        abort();
        throw nccl_error("weir: a collective of rank " + base::number_text(static_cast<std::size_t>(rank_)) +
                         " took longer than its limit and was aborted; a rank has ended, or makes other calls than this one");
    }

    /// Ends all that is under way, without waiting for other ranks; the communicator is of no more use. Never throws.
    void abort() noexcept {
        if (comm_)
            static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
    }

private:
    communicator(ncclComm_t comm, int device, int rank, int ranks) noexcept
        : comm_(comm), device_(device), rank_(rank), ranks_(ranks) {}

    std::size_t count() const noexcept { return static_cast<std::size_t>(ranks_); }
    static std::uint64_t nanoseconds() noexcept {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
    }
    static void require(bool holds, char const* sentence) {
        if (!holds)
            throw usage_error(text("weir: ") + sentence);
    }
    template <class From, class To>
    static constexpr ncclDataType_t type_of_both() noexcept {
        static_assert(std::is_same_v<detail::element_of<From>, detail::element_of<To>>,
                      "weir: a collective's containers hold elements of one type");
        return data_type<detail::element_of<From>>;
    }
    template <class Call>
    void call(char const* name, Call const& made) {
        require(comm_ != nullptr, "the communicator was aborted; make a new one");
        runtime::device_scope const there(device_);
        check_nccl(made(comm_), name, comm_);
    }

    ncclComm_t comm_ = nullptr;
    int device_;
    int rank_;
    int ranks_;
};

/// Calls that NCCL takes together: between begin and 'end' nothing is waited for. For one thread that has several ranks, and
/// for ranks that send to one another.
class group {
public:
    /// Throws nccl_error.
    group() { check_nccl(ncclGroupStart(), "ncclGroupStart"); }
    group(group const&) = delete;
    group& operator=(group const&) = delete;
    /// Ends the group if 'end' was not called, as where something threw; nobody hears of failures then.
    ~group() {
        if (!ended_)
            static_cast<void>(ncclGroupEnd());
    }
    /// All of it is enqueued. Throws nccl_error.
    void end() {
        ended_ = true;
        check_nccl(ncclGroupEnd(), "ncclGroupEnd");
    }

private:
    bool ended_ = false;
};

/// A window of NCCL's for each chunk of a collective pool.
class windows : public multi_device::chunk_registration {
public:
    /// Whether this NCCL has windows (2.27 and later).
    static constexpr bool exist = NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0);

    /// `of` outlives this, and this the pool.
    explicit windows(communicator& of) noexcept : of_(of) {}

    /// How many chunks are registered. NCCL may take a registration and make no window of it, where it could use none: these do
    /// not count.
    std::size_t size() const noexcept { return windows_.size() - without_; }

    /// Throws nccl_error: memory that NCCL cannot register, such as cudaMalloc's; std::bad_alloc.
    void enter([[maybe_unused]] void* chunk, [[maybe_unused]] std::size_t bytes) override {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
        runtime::device_scope const there(of_.device());
        windows_.reserve_more(1);
        ncclWindow_t made = nullptr;
        check_nccl(ncclCommWindowRegister(of_.get(), chunk, bytes, &made, NCCL_WIN_COLL_SYMMETRIC), "ncclCommWindowRegister",
                   of_.get());
        windows_.push_back({chunk, made});
        without_ += made ? 0 : 1;
#endif
    }
    void leave([[maybe_unused]] void* chunk, std::size_t) noexcept override {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
        for (one& each : windows_) {
            if (each.chunk != chunk)
                continue;
            if (each.window && of_.get()) // an abort ended them
                static_cast<void>(ncclCommWindowDeregister(of_.get(), each.window));
            without_ -= each.window ? 0 : 1;
            windows_.erase(&each);
            return;
        }
#endif
    }

private:
    struct one {
        void* chunk;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
        ncclWindow_t window;
#endif
    };
    communicator& of_;
    base::growing_array<one> windows_;
    std::size_t without_ = 0;
};

} // namespace nccl
} // namespace interop
} // namespace v0
} // namespace weir
