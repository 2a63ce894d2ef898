// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do chunks of page-locked host memory come from, if they are large and must be there soon?
//
// cudaHostAlloc gets the pages one after the other, in one thread: 4 GiB take 1.7 s on an H200's host. Here a few threads make
// the system hand out huge pages together, and then cudaHostRegister locks them: 0.3 s with 4 threads. The threads live only
// while 'acquire' does. Work on any device uses the memory as it uses cudaHostAlloc's (cudaHostRegisterPortable).
//
//     weir::pool<weir::upstream::registered_host, ...> pool(weir::upstream::registered_host{}.threads(16).numa_node(0));
//
// invariant: a failed call leaves nothing mapped or registered, and no thread.
// order:     'release' waits for the devices, as cudaFreeHost does.
// cost:      see above. 1 MiB takes 0.4 to 0.5 ms, cudaHostAlloc's 0.86; giving 4 GiB back 0.08 s, cudaHostAlloc's 0.47.
// not for:   write-combined memory: see upstream::pinned. Memory that a child process uses after a fork: it does not have it.
//            The pages are the process's own, so the limit of its container counts them; where that leaves no room, or the
//            platform cannot register memory, a chunk is cudaHostAlloc's, which no such limit counts. It takes 128 KiB more
//            there than the pool counts.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/check.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/give_back.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/upstream/registered_host/touched_pages.hpp>

namespace weir {
inline namespace v0 {
namespace upstream {

/// mmap, pages touched by threads, and cudaHostRegister. Copyable. Any thread may call 'acquire' and 'release'; set the options
/// before the pool gets the upstream.
class registered_host {
public:
    static constexpr std::size_t alignment = 64 * KiB;
    static constexpr memory_space space = memory_space::pinned;
    static constexpr std::size_t granularity = 64 * KiB;
    static constexpr std::size_t usual_alignment = upstream::detail::touched_pages::huge_page; // of all but cudaHostAlloc's

    /// How many threads touch the pages of a chunk, the calling one included; 4 by default. 16 are nearly twice as fast on a
    /// large host. Throws usage_error for 0 and above 256.
    registered_host& threads(unsigned count) {
        if (count == 0 || count > upstream::detail::page_options::most_threads)
            throw usage_error("weir: upstream::registered_host touches pages with 1 to 256 threads, not " +
                              base::number_text(count) + "; 4 to 16 are enough");
        pages_.threads = count;
        return *this;
    }

    /// The NUMA node whose memory is preferred, as a rule that of the device's bus; by default each page lies where the thread
    /// runs that touches it. If the node is full, others serve. Throws usage_error for a number that no node has; 'acquire'
    /// does if the system has no such node, or does not let the process choose.
    registered_host& numa_node(int number) {
        if (number < 0 || number >= upstream::detail::page_options::most_nodes)
            throw usage_error("weir: upstream::registered_host::numa_node takes a node's number, 0 to 1023; leave it out if "
                              "any node will do");
        pages_.numa_node = number;
        return *this;
    }

    /// Whether the system should make chunks of 2 MiB or more of huge pages (madvise), which it does as far as it has them and
    /// its settings let it; true by default.
    registered_host& huge_pages(bool wanted) noexcept {
        pages_.huge = wanted;
        return *this;
    }

    /// A chunk of `bytes` bytes, or null when the host has no room or cannot lock that much. Blocks. Throws usage_error if the
    /// NUMA node cannot be had, cuda_error.
    void* acquire(std::size_t bytes) {
        bool unable = bytes <= upstream::detail::available_host_bytes() &&
                      bytes > upstream::detail::room_in_groups(); // the system would end the process
        void* const chunk = unable ? nullptr : upstream::detail::touched_pages::map(bytes, pages_);
        if (!chunk)
            return unable ? allocated(bytes) : nullptr;
        try {
            runtime::capture_mode_scope const relaxed;
            cudaError_t const answer = cudaHostRegister(chunk, bytes, cudaHostRegisterPortable);
            unable = answer == cudaErrorNotSupported;
            if (unable ? runtime::succeeded(answer) : !runtime::out_of_room(answer, "cudaHostRegister"))
                return chunk;
        } catch (...) {
            upstream::detail::touched_pages::unmap(chunk, bytes);
            throw;
        }
        upstream::detail::touched_pages::unmap(chunk, bytes);
        return unable ? allocated(bytes) : nullptr;
    }

    /// Gives a chunk back. Waits for all work on every device in use. Returns false if CUDA refused; the chunk is then still
    /// the caller's.
    bool release(void* chunk, std::size_t bytes) noexcept {
        if (is_allocated(chunk))
            return runtime::gave_back([&] { return cudaFreeHost(static_cast<void**>(chunk)[-1]); });
        try {
            runtime::wait_for_device(any_device); // the pages may go to another process at once
        } catch (...) {
            return false;
        }
        if (!runtime::gave_back([&] { return cudaHostUnregister(chunk); }))
            return false;
        upstream::detail::touched_pages::unmap(chunk, bytes);
        return true;
    }

    /// All memory that the host has, in bytes; SIZE_MAX: not known.
    std::size_t most_bytes() const noexcept { return runtime::host_total_bytes(); }

private:
    // A chunk of cudaHostAlloc's. It starts at no huge page, by which 'release' knows it, and its address lies before it.
    static void* allocated(std::size_t bytes) {
        runtime::capture_mode_scope const relaxed;
        void* all = nullptr;
        if (runtime::out_of_room(cudaHostAlloc(&all, bytes + 2 * alignment, cudaHostAllocPortable), "cudaHostAlloc"))
            return nullptr;
        std::uintptr_t at = base::align_up(reinterpret_cast<std::uintptr_t>(all) + sizeof all, alignment);
        at += at % usual_alignment == 0 ? alignment : 0;
        void* const chunk = reinterpret_cast<void*>(at);
        static_cast<void**>(chunk)[-1] = all;
        return chunk;
    }
    static bool is_allocated(void* chunk) noexcept { return reinterpret_cast<std::uintptr_t>(chunk) % usual_alignment != 0; }

    upstream::detail::page_options pages_;
};

} // namespace upstream
} // namespace v0
} // namespace weir
