// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does Nsight Systems show what a pool holds, and where it took its time?
//
// The layer has two counters with the pool's name: the bytes that were asked for and not yet freed, and the bytes that the
// pool holds. Each call that changes one sends a sample of it. What may take long ('settle', 'trim', 'reserve') is a range,
// and so is an allocation; a refusal is a mark.
//
// invariant: the wrapped pool sees the same calls, whether a tool listens or not.
// cost:      with no tool attached an atomic addition and a branch a call. With one: two or three calls of the tool's.
// not for:   a recording that can be replayed: layer::record.

#include <cstddef>
#include <cstdint>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <type_traits>
#include <utility>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/layered.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace nvtx {

/// Any thread may call any member if the wrapped pool allows it.
template <class Pool>
class counted : public resource::layered<counted<Pool>, Pool> {
    using wrapper = resource::layered<counted<Pool>, Pool>;

public:
    using typename wrapper::pool_type;

    /// `arguments`: for the wrapped pool's constructor. The counters and ranges have the pool's name.
    template <class... Arguments, class = std::enable_if_t<wrapper::template makes_pool<Arguments...>>>
    explicit counted(Arguments&&... arguments) : wrapper(std::in_place, std::forward<Arguments>(arguments)...) {}
    template <class P = Pool, class = std::enable_if_t<std::is_default_constructible_v<P>>>
    counted() : wrapper(std::in_place) {}
    ~counted() { nvtxDomainDestroy(domain_); }

    /// As the wrapped pool's.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes,
                                     std::size_t alignment = wrapper::default_alignment) {
        if (!has_tool()) {
            void* const block = this->pool_.try_allocate(stream, bytes, alignment);
            if (block)
                requested_.fetch_add(bytes, base::memory_order_relaxed);
            return block;
        }
        return allocate_told(stream, bytes, alignment);
    }

    /// As the wrapped pool's.
    void deallocate(stream_ref stream, void* p, std::size_t bytes,
                    std::size_t alignment = wrapper::default_alignment) noexcept {
        this->pool_.deallocate(stream, p, bytes, alignment);
        if (p)
            sample(requested_counter_, requested_.fetch_sub(bytes, base::memory_order_relaxed) - bytes);
    }
    using wrapper::deallocate;

    // As the wrapped pool's, each in a range.
    template <class P = pool_type>
    auto settle() -> decltype(std::declval<P&>().settle()) {
        range const shown(*this, "settle");
        return this->pool_.settle();
    }
    template <class P = pool_type>
    auto trim(std::size_t keep_bytes = 0) -> decltype(std::declval<P&>().trim(keep_bytes)) {
        range const shown(*this, "trim");
        return this->pool_.trim(keep_bytes);
    }
    template <class P = pool_type>
    auto reserve(std::size_t bytes) -> decltype(std::declval<P&>().reserve(bytes)) {
        range const shown(*this, "reserve");
        return this->pool_.reserve(bytes);
    }
    /// As the wrapped pool's; the blocks that end no longer count.
    template <class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    auto mark() {
        return marked<decltype(std::declval<P&>().mark())>{this->pool_.mark(), requested_bytes()};
    }
    template <class Mark, class P = pool_type, class = std::enable_if_t<contract::holds<contract::has_mark, P>>>
    void rewind(Mark const& to) {
        if (this->ended_by([&](P& pool) { pool.rewind(to.point); }).live_blocks != 0)
            count_anew(to.requested_bytes);
    }
    template <class P = pool_type, class = decltype(std::declval<P&>().clear())>
    void clear() {
        this->pool_.clear();
        count_anew(0);
    }

    /// The bytes that were asked for, of the blocks that are live.
    std::uint64_t requested_bytes() const noexcept { return requested_.load(base::memory_order_relaxed); }
    /// Whether a tool listens.
    bool has_tool() const noexcept { return requested_counter_ != NVTX_COUNTER_ID_NONE; }

private:
    template <class Point>
    struct marked {
        Point point;
        std::uint64_t requested_bytes;
    };

    // A range of the thread's, with a sample of what the pool holds at its end.
    class range {
    public:
        range(counted const& of, char const* what) noexcept : of_(of) {
            nvtxEventAttributes_t told = described(what);
            static_cast<void>(nvtxDomainRangePushEx(of_.domain_, &told));
        }
        range(range const&) = delete;
        range& operator=(range const&) = delete;
        ~range() {
            static_cast<void>(nvtxDomainRangePop(of_.domain_));
            of_.sample_reserved();
        }

    private:
        counted const& of_;
    };

    static nvtxEventAttributes_t described(char const* what) noexcept {
        nvtxEventAttributes_t told{};
        told.version = NVTX_VERSION;
        told.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        told.messageType = NVTX_MESSAGE_TYPE_ASCII;
        told.message.ascii = what;
        return told;
    }

    [[gnu::noinline]] void* allocate_told(stream_ref stream, std::size_t bytes, std::size_t alignment) {
        range const shown(*this, "allocate");
        void* const block = this->pool_.try_allocate(stream, bytes, alignment);
        if (block) {
            sample(requested_counter_, requested_.fetch_add(bytes, base::memory_order_relaxed) + bytes);
        } else if (bytes != 0) {
            nvtxEventAttributes_t told = described("refused");
            told.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
            told.payload.ullValue = bytes;
            nvtxDomainMarkEx(domain_, &told);
        }
        return block;
    }

    std::uint64_t counter(char const* what) const {
        text const shown = text(this->pool_.name()) + ": " + what;
        nvtxCounterAttr_t told{};
        told.structSize = sizeof told;
        told.schemaId = NVTX_PAYLOAD_ENTRY_TYPE_INT64;
        told.name = shown.c_str();
        told.description = "bytes";
        return nvtxCounterRegister(domain_, &told);
    }
    void sample(std::uint64_t which, std::uint64_t value) const noexcept {
        if (has_tool())
            nvtxCounterSampleInt64(domain_, which, static_cast<std::int64_t>(value));
    }
    void sample_reserved() const noexcept {
        try {
            sample(reserved_counter_, this->pool_.reserved_bytes());
        } catch (...) { // the pool does not tell; its next call will
        }
    }
    void count_anew(std::uint64_t bytes) noexcept {
        requested_.store(bytes, base::memory_order_relaxed);
        sample(requested_counter_, bytes);
    }

    nvtxDomainHandle_t const domain_ = nvtxDomainCreateA("weir"); // null with no tool
    std::uint64_t const requested_counter_ = counter("requested");
    std::uint64_t const reserved_counter_ = counter("reserved");
    base::atomic<std::uint64_t> requested_{0};
};

} // namespace nvtx
} // namespace interop
} // namespace v0
} // namespace weir
