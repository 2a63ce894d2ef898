// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where are the contents of memory kept while there is no memory behind its addresses?
//
// They are kept in blocks of a pool that the host reaches. What is to be saved is listed first, so that all of it shares a few
// large blocks of nearly the same size: such blocks get chunks of their own, and a fresh pool gets no more than is saved. No
// block is larger than some 256 MiB; where the pool has no room for that, blocks are smaller. Pinned memory is copied at the
// link's full speed, ordinary memory at a fraction of it.
//
// invariant: what was saved stays here until it is dropped, so a copy back that fails can be tried again.
// order:     copies run on a stream of their own, and are over when 'finish' or 'restore' returns. The caller knows that
//            nothing else uses the memory meanwhile. No call breaks a capture.
// cost:      the copies, and the host pool's calls.
// not for:   deciding what is worth saving.

#include <cstddef>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/supply/chunk_list.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// One thread at a time.
class saved_contents {
public:
    /// `keep`: the pool whose blocks keep the contents; it outlives them. `device`: the device of the memory. Throws
    /// cuda_error.
    saved_contents(pool_ref<memory_space::host> keep, int device) : keep_(keep), device_(device) {
        runtime::device_scope const current(device_);
        check_cuda(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    saved_contents(saved_contents const&) = delete;
    saved_contents& operator=(saved_contents const&) = delete;
    /// Drops what is saved. If a copy failed on its way and CUDA does not tell whether it is over, the blocks are not freed.
    ~saved_contents() {
        bool const over = idle();
        base::try_twice([&] { return runtime::succeeded(cudaStreamDestroy(copies_)); });
        if (over)
            for (block const& each : blocks_)
                keep_.deallocate(on_host, each.host, each.bytes, alignment);
    }

    /// Lists `memory` among what 'save' copies. Throws std::bad_alloc.
    void add(base::range memory) {
        listed_.push_back(memory);
        lacking_ += memory.bytes;
    }

    /// Gets room for the contents of all that was listed, and starts to copy them; once. Throws what the pool's 'allocate'
    /// throws, cuda_error and std::bad_alloc.
    void save() {
        get_room();
        runtime::device_scope const current(device_);
        runtime::capture_mode_scope const relaxed;
        visit_parts([&](base::range part, char* host) {
            under_way_ = true;
            check_cuda(cudaMemcpyAsync(host, reinterpret_cast<void*>(part.offset), part.bytes, cudaMemcpyDeviceToHost, copies_),
                  "cudaMemcpyAsync");
        });
    }

    /// Blocks until the copies are made. Throws cuda_error.
    void finish() {
        runtime::capture_mode_scope const relaxed;
        check_cuda(cudaStreamSynchronize(copies_), "cudaStreamSynchronize");
        under_way_ = false;
    }

    /// Whether these ranges, in this order, are what was saved.
    bool is_of(base::growing_array<base::range> const& ranges) const noexcept {
        if (ranges.size() != listed_.size())
            return false;
        for (std::size_t i = 0; i != ranges.size(); ++i)
            if (!(ranges[i] == listed_[i]))
                return false;
        return true;
    }

    /// Copies back what lies in chunks of `held`, and blocks until that is done. Throws cuda_error; ask 'idle' then.
    void restore(chunk_list const& held) {
        restore_parts([&](base::range saved, char const* host) {
            for (base::range part = held.next_part(saved, saved.offset); part; part = held.next_part(saved, part.end()))
                copy_back(part, host + (part.offset - saved.offset));
        });
    }
    /// The same for all that was saved.
    void restore() {
        restore_parts([&](base::range saved, char const* host) { copy_back(saved, host); });
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
    static constexpr std::size_t most_bytes = 256 * MiB; // a block, but for the first, which has what the others do not
    static constexpr std::size_t step_bytes = 64 * KiB;  // blocks but the first are multiples of it, as pinned chunks are
    static constexpr std::size_t alignment = 256;        // of a block

    struct block {
        char* host = nullptr;
        std::size_t bytes = 0;
    };

    void get_room() {
        std::size_t const count = lacking_ / most_bytes + 1;
        std::size_t const each = lacking_ / count / step_bytes * step_bytes;
        for (std::size_t wanted = lacking_ - (count - 1) * each; lacking_ != 0;) {
            blocks_.reserve_more(1);
            try {
                void* const host = keep_.allocate(on_host, wanted, alignment);
                blocks_.push_back(block{static_cast<char*>(host), wanted});
            } catch (out_of_memory const&) {
                if (wanted <= step_bytes)
                    throw;
                wanted = base::align_up(wanted / 2, step_bytes); // what is free may lie in pieces
                continue;
            }
            lacking_ -= wanted;
            wanted = count != 1 && wanted > each ? each : wanted;
            wanted = wanted < lacking_ ? wanted : lacking_;
        }
    }

    // Calls visit(part, host) for each part of what is listed that lies in one block, at `host`.
    template <class Visit>
    void visit_parts(Visit const& visit) const {
        block const* in = blocks_.begin();
        std::size_t used = 0; // of that block
        for (base::range const& each : listed_)
            for (std::size_t at = each.offset; at != each.end();) {
                std::size_t const left = each.end() - at;
                std::size_t const bytes = left < in->bytes - used ? left : in->bytes - used;
                visit(base::range{at, bytes}, in->host + used);
                at += bytes;
                used += bytes;
                if (used == in->bytes) {
                    ++in;
                    used = 0;
                }
            }
    }

    // Calls visit(part, host), which copies back, for each part, and blocks until the copies are made.
    template <class Visit>
    void restore_parts(Visit const& visit) {
        {
            runtime::device_scope const current(device_);
            runtime::capture_mode_scope const relaxed;
            visit_parts(visit);
        }
        finish();
    }
    void copy_back(base::range part, char const* host) {
        under_way_ = true;
        check_cuda(cudaMemcpyAsync(reinterpret_cast<void*>(part.offset), host, part.bytes, cudaMemcpyHostToDevice, copies_),
              "cudaMemcpyAsync");
    }

    pool_ref<memory_space::host> keep_;
    int device_;
    cudaStream_t copies_ = nullptr;
    base::growing_array<base::range> listed_;
    base::growing_array<block> blocks_; // in the order of the list
    std::size_t lacking_ = 0;           // bytes that are listed and have no block
    bool under_way_ = false;
};

/// Where a copy stays when the contents are back, for the next suspension: 'pool.suspend(keep, kept_in{copy})'. If `copy` is
/// of the same memory then, nothing is copied, as the caller says that nothing has been written since.
struct kept_in {
    base::shared<saved_contents>& copy;
};

} // namespace supply
} // namespace v0
} // namespace weir
