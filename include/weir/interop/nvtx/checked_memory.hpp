// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a checking tool know of the memory inside of a pool's chunks?
//
// compute-sanitizer knows what cudaMalloc gave out, and sees no borders inside of it. NVTX has words for them: a chunk is a
// 'heap', of which nothing may be used, until a 'region' of it is registered, which is a block. This object says these words
// and remembers which chunks there are, so that a region is told with its heap.
//
// invariant: a region is registered once, lies in a registered heap, and is taken back once and before its heap.
// cost:      with no tool attached a lock, a search through the chunks, and calls that return at once.
// not for:   deciding when a block's last use is over: see nvtx::checked_blocks.

#include <cstddef>
#include <cstdint>
#include <nvtx3/nvToolsExtMem.h>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace nvtx {

/// An NVTX domain and the chunks that were told to it. It outlives what is made from it. Any thread may call any member.
class checked_memory {
public:
    /// `name`: that of the domain, which tools show.
    explicit checked_memory(char const* name = "weir") noexcept : domain_(nvtxDomainCreateA(name)) {}
    checked_memory(checked_memory const&) = delete;
    checked_memory& operator=(checked_memory const&) = delete;
    ~checked_memory() { nvtxDomainDestroy(domain_); }

    /// A chunk came: from now on a tool allows the use of registered regions of it alone. Throws std::bad_alloc.
    void enter_chunk(void const* chunk, std::size_t bytes) {
        base::lock_guard<base::mutex> const lock(mutex_);
        chunks_.reserve_more(1 + leaving_);
        tell_chunk(chunk, bytes);
    }
    /// It is about to go, as its regions did before. Then it is gone, or it could not go, and is entered again.
    void leave_chunk(void const* chunk) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        known_chunk* const found = chunk_of(chunk);
        if (is_told(found->heap))
            nvtxMemHeapUnregister(domain_, found->heap);
        *found = chunks_.back();
        chunks_.pop_back();
        ++leaving_;
    }
    void chunk_is_gone() noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        --leaving_;
    }
    void enter_again(void const* chunk, std::size_t bytes) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        --leaving_;
        tell_chunk(chunk, bytes);
    }

    /// A block may be used from now on. Returns false, and tells nothing, if it lies in no chunk that is known here.
    bool enter_block(void const* block, std::size_t bytes, char const* name) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        known_chunk const* const found = chunk_of(block);
        if (!found)
            return false;
        if (!is_told(found->heap)) // no tool
            return true;
        nvtxMemVirtualRangeDesc_t const range{bytes, block};
        nvtxMemRegionsRegisterBatch_t told{};
        told.extCompatID = NVTX_EXT_COMPATID_MEM;
        told.structSize = sizeof told;
        told.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
        told.heap = found->heap;
        told.regionCount = 1;
        told.regionDescElementSize = sizeof range;
        told.regionDescElements = &range;
        nvtxMemRegionsRegister(domain_, &told);
        nvtxMemRegionNameDesc_t named{};
        named.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
        named.nameType = NVTX_MESSAGE_TYPE_ASCII;
        named.region.pointer = block;
        named.name.ascii = name;
        nvtxMemRegionsNameBatch_t names{};
        names.extCompatID = NVTX_EXT_COMPATID_MEM;
        names.structSize = sizeof names;
        names.regionCount = 1;
        names.regionElementSize = sizeof named;
        names.regionElements = &named;
        nvtxMemRegionsName(domain_, &names);
        return true;
    }
    /// Nothing may use the block any more. `block` was entered.
    void leave_block(void const* block) noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        known_chunk const* const found = chunk_of(block);
        if (!found || !is_told(found->heap))
            return;
        nvtxMemRegionRef_t which{};
        which.pointer = block;
        nvtxMemRegionsUnregisterBatch_t told{};
        told.extCompatID = NVTX_EXT_COMPATID_MEM;
        told.structSize = sizeof told;
        told.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
        told.refCount = 1;
        told.refElementSize = sizeof which;
        told.refElements = &which;
        nvtxMemRegionsUnregister(domain_, &told);
    }

    /// Whether a tool listens to what is told of a chunk that came by now.
    bool has_tool() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return !chunks_.empty() && is_told(chunks_[0].heap);
    }

private:
    struct known_chunk {
        std::uintptr_t begin;
        std::size_t bytes;
        nvtxMemHeapHandle_t heap; // null, or that of no tool: nobody listens
    };

    static std::uintptr_t address_of(void const* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

    // NVTX_MEM_HEAP_HANDLE_NO_TOOL casts a number to a pointer by static_cast, which C++ does not take.
    static bool is_told(nvtxMemHeapHandle_t heap) noexcept {
        return heap != nullptr && heap != reinterpret_cast<nvtxMemHeapHandle_t>(std::intptr_t{-1});
    }

    // There is room in chunks_.
    void tell_chunk(void const* chunk, std::size_t bytes) {
        nvtxMemVirtualRangeDesc_t const range{bytes, chunk};
        nvtxMemHeapDesc_t told{};
        told.extCompatID = NVTX_EXT_COMPATID_MEM;
        told.structSize = sizeof told;
        told.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
        told.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
        told.typeSpecificDescSize = sizeof range;
        told.typeSpecificDesc = &range;
        told.messageType = NVTX_MESSAGE_TYPE_ASCII;
        told.message.ascii = "a chunk of weir's";
        chunks_.push_back({address_of(chunk), bytes, nvtxMemHeapRegister(domain_, &told)});
    }

    known_chunk* chunk_of(void const* p) noexcept {
        for (known_chunk& each : chunks_)
            if (address_of(p) - each.begin < each.bytes)
                return &each;
        return nullptr;
    }

    nvtxDomainHandle_t const domain_; // null with no tool
    mutable base::mutex mutex_;
    base::growing_array<known_chunk> chunks_; // with room for those that are leaving
    std::size_t leaving_ = 0;
};

} // namespace nvtx
} // namespace interop
} // namespace v0
} // namespace weir
