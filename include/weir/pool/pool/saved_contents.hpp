// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where are the contents of memory kept while there is no memory behind its addresses?
//
// They are kept in blocks of a pool that the host reaches, piece by piece, so that the pool needs no block as large as all of
// them. Pinned memory is copied at the link's full speed, ordinary memory at a fraction of it.
//
// invariant: what was saved stays here until it is dropped, so a copy back that fails can be tried again.
// order:     copies run on a stream of their own, and are over when 'finish' or 'restore' returns. The caller knows that
//            nothing else uses the memory meanwhile. No call breaks a capture.
// cost:      the copies, and the host pool's calls.
// not for:   deciding what is worth saving.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/pool/pool/chunk_list.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace detail {

/// One thread at a time.
class saved_contents {
public:
    /// `keep`: the pool whose blocks keep the contents; it outlives them. `device`: the device of the memory. Throws
    /// cuda_error.
    saved_contents(pool_ref<memory_space::host> keep, int device) : keep_(keep), device_(device) {
        runtime::device_scope const there(device_);
        check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    saved_contents(saved_contents const&) = delete;
    saved_contents& operator=(saved_contents const&) = delete;
    /// Drops what is saved. If a copy failed on its way and CUDA does not tell whether it is over, the blocks are not freed.
    ~saved_contents() {
        bool const over = idle();
        base::try_twice([&] { return runtime::succeeded(cudaStreamDestroy(copies_)); });
        if (over)
            for (piece const& each : pieces_)
                keep_.deallocate(on_host, each.host, each.bytes, alignment);
    }

    /// Starts to copy the contents of `memory`. Throws what the pool's 'allocate' throws, cuda_error and std::bad_alloc.
    void save(base::range memory) {
        runtime::device_scope const there(device_);
        runtime::capture_mode_scope const relaxed;
        for (std::size_t at = memory.offset; at < memory.end(); at += most_bytes) {
            std::size_t const bytes = memory.end() - at < most_bytes ? memory.end() - at : most_bytes;
            pieces_.reserve_more(1);
            void* const host = keep_.allocate(on_host, bytes, alignment);
            pieces_.push_back(piece{at, bytes, host});
            under_way_ = true;
            check(cudaMemcpyAsync(host, reinterpret_cast<void*>(at), bytes, cudaMemcpyDeviceToHost, copies_),
                  "cudaMemcpyAsync");
        }
    }

    /// Blocks until the copies are made. Throws cuda_error.
    void finish() {
        runtime::capture_mode_scope const relaxed;
        check(cudaStreamSynchronize(copies_), "cudaStreamSynchronize");
        under_way_ = false;
    }

    /// Copies back what lies in chunks of `held`, and blocks until that is done. Throws cuda_error; ask 'idle' then.
    void restore(chunk_list const& held) {
        {
            runtime::device_scope const there(device_);
            runtime::capture_mode_scope const relaxed;
            for (piece const& each : pieces_)
                restore(each, held);
        }
        finish();
    }

    /// Blocks until no copy is under way any more. False: CUDA does not tell.
    bool idle() noexcept {
        if (under_way_) // it may be the call, and not the work, that fails
            base::try_twice([&] {
                finish();
                return true;
            });
        if (under_way_) { // the copied memory is taken away next
            try {
                runtime::wait_for_device(device_);
                under_way_ = false;
            } catch (...) {
            }
        }
        return !under_way_;
    }

private:
    static constexpr std::size_t most_bytes = 256 * MiB; // a piece
    static constexpr std::size_t alignment = 256;        // of a piece

    struct piece {
        std::size_t device = 0;
        std::size_t bytes = 0;
        void* host = nullptr;
    };

    void restore(piece const& saved, chunk_list const& held) {
        base::range const all{saved.device, saved.bytes};
        for (base::range part = held.next_part(all, all.offset); part; part = held.next_part(all, part.end())) {
            void* const to = reinterpret_cast<void*>(part.offset);
            void const* const from = static_cast<char*>(saved.host) + (part.offset - saved.device);
            under_way_ = true;
            check(cudaMemcpyAsync(to, from, part.bytes, cudaMemcpyHostToDevice, copies_), "cudaMemcpyAsync");
        }
    }

    pool_ref<memory_space::host> keep_;
    int device_;
    cudaStream_t copies_ = nullptr;
    base::growing_array<piece> pieces_;
    bool under_way_ = false;
};

} // namespace detail
} // namespace v0
} // namespace weir
