// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a buffer get from the device to the host and back, in order with all work that uses it?
//
// Two streams of its own carry the copies, one each way, so that both ways of the link are busy at once. The stream to the
// host waits for the buffer's users and copies. The stream to the device waits for that copy, and on it the device block is
// freed, and the block for the next one that comes is allocated. So the pool hands the same memory over at once, however far
// the host is ahead of the device, and need not grow. The next user waits for the event behind the way back. The host waits
// only where CUDA does: for host memory that is not page-locked, and where a stream's queue is full. A buffer that comes back
// keeps its host block for the next time, so that going round and round takes no host memory.
//
// invariant: a member that throws leaves the contents where they were. What it enqueued by then is in order with all that
//            comes later, and nothing is given back under it.
// order:     the stream to the device comes after all copies out that succeeded. A host block is allocated for the stream to
//            the host, and freed on that to the device.
// cost:      out: an event and a wait for each stream that used the buffer, a copy, a record, a wait. In: an allocation, a
//            copy, a record.
// not for:   deciding who moves: see spill_core.hpp. Several threads at one buffer: the record's lock is held.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/side_stream.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/staging/spill/spill_record.hpp>

namespace weir {
inline namespace v0 {
namespace staging {
namespace detail {

/// Several threads may move different buffers at once.
class spill_mover {
public:
    spill_mover(int device, pool_ref<memory_space::host> host)
        : device_(device), host_(host), to_host_(device), to_device_(device) {}

    int device() const noexcept { return device_; }
    pool_ref<memory_space::host> host() const noexcept { return host_; }
    /// The streams stay when this ends: a pool still knows them.
    void keep_streams() noexcept {
        to_host_.keep();
        to_device_.keep();
    }
    order::placed_stream placed(stream_ref stream) const noexcept { return {stream, device_}; }

    /// Takes the buffer off the device. `spare_host_memory()`: gives some host memory back, and says whether it did; it is
    /// asked when the host pool has none. Returns the bytes that are copied. Throws std::bad_alloc if the host has no memory,
    /// cuda_error; the buffer is where it was.
    template <class Spare>
    std::size_t leave(spill_record& of, Spare const& spare_host_memory) {
        runtime::device_scope const there(device_);
        runtime::capture_mode_scope const relaxed;
        bool const copies = of.needs_copy();
        if (copies)
            copy_out(of, spare_host_memory);
        else
            of.uses.join(placed(to_device_.get()));
        free_device(of, to_device_.get());
        return copies ? of.bytes : 0;
    }

    /// Gives a buffer that is away device memory, and its contents if it has any. `on`: the stream for the function that
    /// computes them. `allocate(stream)`: device memory, or throws. Returns the bytes that are copied. Throws also what the
    /// function throws; cuda_error; the buffer is where it was.
    template <class Allocate>
    std::size_t arrive(spill_record& of, order::placed_stream const& on, Allocate const& allocate) {
        runtime::device_scope const there(device_);
        of.uses.reserve();
        of.device = allocate(to_device_.get());
        try {
            bring_contents(of);
            if (of.is_computed())
                compute(of, on);
            else
                of.uses.set_pending();
        } catch (...) { // what is enqueued there comes before the memory's next use
            release_device(of);
            throw;
        }
        return of.is_current ? of.bytes : 0;
    }

    /// Gives the host block back, which the contents need no more.
    void drop_host(spill_record& of) noexcept {
        of.is_current = false;
        if (of.host)
            free_host(of, to_device_.get());
    }

    /// Gives all memory of a buffer back, whose accesses have ended.
    void release(spill_record& of) noexcept {
        if (of.device)
            release_device(of);
        drop_host(of);
    }

private:
    bool host_is_ordered() const noexcept { return base::device_accessible(host_.space()); }

    template <class Spare>
    void* allocate_host(std::size_t bytes, Spare const& spare_host_memory) {
        for (;;)
            try {
                return host_is_ordered() ? host_.allocate(to_host_.get(), bytes) : host_.allocate(on_host, bytes);
            } catch (std::bad_alloc const&) {
                if (!spare_host_memory())
                    throw;
            }
    }
    // Of memory that is not page-locked CUDA is done with the host's bytes when a copy's call returns.
    void free_host(spill_record& of, stream_ref stream) noexcept {
        host_.deallocate(host_is_ordered() ? stream : stream_ref(on_host), of.host, of.bytes);
        of.host = nullptr;
    }

    // Frees the device memory behind all that uses it: on the user's stream if there is only one, and the pool lets that end
    // at any time.
    void release_device(spill_record& of) noexcept {
        order::placed_stream const* sole = nullptr;
        if (of.pool.streams_may_end())
            base::try_twice([&] { return sole = of.uses.sole_stream(), true; });
        stream_ref const last = sole ? sole->stream : stream_ref(to_device_.get());
        bool const is_ordered = sole || base::try_twice([&] {
            runtime::device_scope const there(device_);
            of.uses.join(placed(last));
            return true;
        }) || base::try_twice([&] { return runtime::wait_for_device(device_), true; });
        if (is_ordered) // or else the pool counts it as handed out: work may use it
            return free_device(of, last);
        of.device = nullptr;
        of.uses.clear();
    }

    // A pool without a device takes a default stream for that of the current one.
    void free_device(spill_record& of, stream_ref stream) noexcept {
        auto const free = [&] { return of.pool.deallocate(stream, of.device, of.bytes, of.alignment), true; };
        if (!base::try_twice([&] {
                runtime::device_scope const there(of.pool.device() == any_device ? device_ : any_device);
                return free();
            }))
            free();
        of.device = nullptr;
        of.uses.clear();
    }

    template <class Spare>
    void copy_out(spill_record& of, Spare const& spare_host_memory) {
        order::placed_stream const out = placed(to_host_.get());
        of.uses.reserve();
        bool const is_fresh = !of.host;
        if (is_fresh)
            of.host = allocate_host(of.bytes, spare_host_memory);
        bool has_joined = false;
        try {
            of.uses.join(out);
            has_joined = true;
            check_cuda(cudaMemcpyAsync(of.host, of.device, of.bytes, cudaMemcpyDeviceToHost, out.stream.get()),
                       "cudaMemcpyAsync");
            of.uses.add_reader(out); // if the next calls fail, the copy is under way, and the buffer stays
            of.uses.moved.record(out.stream);
            of.uses.moved.make_wait(to_device_.get());
        } catch (...) {
            if (is_fresh || has_joined) // else it stays: what it was copied from last time may be under way
                free_host(of, out.stream);
            throw;
        }
        of.is_current = true;
    }

    // Copies what the host has of a buffer; and records 'moved' when the device memory can be used.
    void bring_contents(spill_record& of) {
        runtime::capture_mode_scope const relaxed;
        stream_ref const stream = to_device_.get();
        if (!of.uses.moved)
            of.uses.moved = runtime::event(device_);
        if (of.is_current)
            check_cuda(cudaMemcpyAsync(of.device, of.host, of.bytes, cudaMemcpyHostToDevice, stream.get()), "cudaMemcpyAsync");
        of.uses.moved.record(stream);
    }

    void compute(spill_record& of, order::placed_stream const& on) {
        of.uses.moved.make_wait(on.stream);
        of.uses.add_reader(on); // if the function fails, what it enqueued is under way
        of.compute(on.stream, of.device);
        runtime::event unused;
        of.uses.begin(on, true, 1, device_, unused); // as an access that is over
    }

    int device_;
    pool_ref<memory_space::host> host_;
    runtime::side_stream to_host_;
    runtime::side_stream to_device_;
};

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
