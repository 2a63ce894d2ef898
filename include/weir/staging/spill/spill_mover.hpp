// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a buffer get from the device to the host and back, in order with all work that uses it?
//
// Two streams of its own carry the copies, one each way, so that both ways of the link are busy at once. The stream to the
// host waits for the buffer's users, copies, and gives the device block back; whoever gets that memory comes after the copy by
// the pool's own rules. The stream to the device waits for the event behind that copy, and the next user waits for the event
// behind the way back. The host waits for nothing, except where CUDA itself does: for host memory that is not page-locked.
//
// invariant: a member that throws leaves the contents where they were. What it enqueued by then is in order with all that comes
//            later, and nothing is given back under it.
// order:     the host block is written by the stream to the host, after its allocation there; it is freed on the stream to the
//            device, which has waited for that.
// cost:      out: an event and a wait for each stream that used the buffer, an allocation, a copy, a record. In: an
//            allocation, a copy, a record. Host memory for a buffer stays while the device's copy is only read.
// not for:   deciding who moves: see spill_core.hpp. Several threads at one buffer: the record's lock is held.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/threads/atomic.hpp>
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
    order::placed_stream placed(stream_ref stream) const noexcept { return {stream, device_}; }

    /// Takes the buffer off the device. `spare_host_memory()`: gives some host memory back, and says whether it did; it is
    /// asked when the host pool has none. Returns the bytes that are copied. Throws std::bad_alloc if the host has no memory,
    /// cuda_error; the buffer is where it was.
    template <class Spare>
    std::size_t leave(spill_record& of, Spare const& spare_host_memory) {
        runtime::device_scope const there(device_);
        runtime::capture_mode_scope const relaxed;
        bool const copies = of.needs_host_memory();
        if (copies) {
            if (!of.uses.moved)
                of.uses.moved = runtime::event(device_);
            of.uses.reserve();
            of.host = allocate_host(of.bytes, spare_host_memory);
        }
        try {
            of.uses.join(placed(to_host_.get()));
            if (copies)
                copy_out(of);
        } catch (...) {
            if (copies)
                free_host(of, to_host_.get());
            throw;
        }
        free_device(of, to_host_.get());
        of.device = nullptr;
        of.uses.clear();
        return copies ? of.bytes : 0;
    }

    /// Gives a buffer that is away device memory, and its contents if it has any. `on`: the stream that will use it, for
    /// memory that has no contents yet, and for the function that computes them. `allocate(stream)`: device memory, or throws.
    /// Returns the bytes that are copied. Throws also what the function throws; cuda_error; the buffer is where it was.
    template <class Allocate>
    std::size_t arrive(spill_record& of, order::placed_stream const& on, Allocate const& allocate) {
        bool const copies = of.is_current;
        stream_ref const stream = copies ? stream_ref(to_device_.get()) : on.stream;
        runtime::device_scope const there(device_);
        void* const data = allocate(stream);
        try {
            if (copies)
                copy_in(of, data);
            else if (of.is_computed())
                compute(of, on, data);
        } catch (...) { // what is enqueued there comes before the memory's next use
            of.pool.deallocate(stream, data, of.bytes, of.alignment);
            throw;
        }
        of.device = data;
        return copies ? of.bytes : 0;
    }

    /// Gives the host block back, which the contents need no more.
    void drop_host(spill_record& of) noexcept {
        of.is_current = false;
        if (!of.host)
            return;
        bool const is_over = of.device || base::try_twice([&] { // what arrived has waited for the copy out
            runtime::device_scope const there(device_);
            of.uses.moved.make_wait(to_device_.get());
            return true;
        }) || base::try_twice([&] {
            runtime::capture_mode_scope const relaxed;
            of.uses.moved.synchronize();
            return true;
        });
        if (is_over) // or else the pool counts it as handed out: the copy may be under way
            free_host(of, to_device_.get());
        of.host = nullptr;
    }

    /// Gives all memory of a buffer back, whose accesses have ended.
    void release(spill_record& of) noexcept {
        if (of.device) {
            order::placed_stream const* const sole = of.uses.sole_stream();
            stream_ref const last = sole ? sole->stream : stream_ref(to_host_.get());
            bool const is_ordered = sole || base::try_twice([&] {
                runtime::device_scope const there(device_);
                of.uses.join(placed(last));
                return true;
            }) || base::try_twice([&] { return runtime::wait_for_device(device_), true; });
            if (is_ordered) // as above
                free_device(of, last);
        }
        drop_host(of);
        of.device = nullptr;
        of.uses.clear();
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

    // A pool without a device takes a default stream for that of the current one.
    void free_device(spill_record& of, stream_ref stream) noexcept {
        auto const free = [&] { return of.pool.deallocate(stream, of.device, of.bytes, of.alignment), true; };
        if (!base::try_twice([&] {
                runtime::device_scope const there(of.pool.device() == any_device ? device_ : any_device);
                return free();
            }))
            free();
    }

    void copy_out(spill_record& of) {
        stream_ref const stream = to_host_.get();
        check(cudaMemcpyAsync(of.host, of.device, of.bytes, cudaMemcpyDeviceToHost, stream.get()), "cudaMemcpyAsync");
        try {
            of.uses.moved.record(stream);
        } catch (...) {
            of.uses.add_reader(placed(stream)); // the copy is under way, and the buffer stays
            throw;
        }
        of.is_current = true;
    }

    void copy_in(spill_record& of, void* data) {
        runtime::capture_mode_scope const relaxed;
        stream_ref const stream = to_device_.get();
        of.uses.moved.make_wait(stream);
        check(cudaMemcpyAsync(data, of.host, of.bytes, cudaMemcpyHostToDevice, stream.get()), "cudaMemcpyAsync");
        of.uses.moved.record(stream);
        of.uses.set_pending();
    }

    void compute(spill_record& of, order::placed_stream const& on, void* data) {
        of.computed_by.store(base::this_thread(), base::memory_order_relaxed);
        struct computed {
            spill_record& of;
            ~computed() { of.computed_by.store(0, base::memory_order_relaxed); }
        } const scope{of};
        of.compute(on.stream, data);
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
