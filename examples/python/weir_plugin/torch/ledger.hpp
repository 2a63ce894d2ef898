// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is known of one device's memory, all of one moment?
//
// The blocks that PyTorch has, the chunks that they lie in, the statistics and the history. A mutex is for chunks, the history
// and snapshots; within it, or alone, a spin lock is for the blocks and the statistics. While somebody listens to each block, an
// event takes both, and changes all at once. Whoever holds the mutex sees no chunk come or go, so each block lies in a known one.
//
// invariant: the mutex is taken first; no pool is called with either held, so they may be taken with any lock of a pool held.
// cost:      an allocation or a free takes the spin lock once, and the mutex while somebody listens. A snapshot holds both while
//            it copies the notes of the blocks.

#include "../devices.hpp"
#include "history.hpp"
#include "live_tensors.hpp"
#include "statistics.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>
#include <weir/base/range.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/threads/spin_lock.hpp>

namespace weir_plugin::torch {

/// A piece of memory that the device gave, or that a private pool has.
struct chunk {
    std::size_t bytes = 0;
    mempool pool{0, 0};
    std::int32_t number = 0; // chunks are numbered as they come
    context where;
};
using chunks = std::map<std::size_t, chunk>; // by address

/// Any thread may call any member.
class ledger {
    using quick_guard = weir::base::lock_guard<weir::base::spin_lock>;

public:
    struct totals {
        std::size_t allocated_bytes = 0;
        std::size_t reserved_bytes = 0;
    };

    ledger() = default;
    ledger(ledger const&) = delete;
    ledger& operator=(ledger const&) = delete;

    /// act(statistics), act(history), act(pool chunks, private chunks), with the lock of these held.
    template <class Act>
    auto with_statistics(Act const& act) {
        quick_guard const lock(quick_);
        return act(statistics_);
    }
    template <class Act>
    auto with_history(Act const& act) {
        std::lock_guard<std::mutex> const lock(mutex_);
        return act(history_);
    }
    template <class Act>
    auto with_chunks(Act const& act) {
        std::lock_guard<std::mutex> const lock(mutex_);
        return act(pool_chunks_, private_chunks_);
    }
    /// A copy of the notes of all blocks; also within 'with_chunks'. Throws std::bad_alloc.
    std::vector<live_tensor> blocks() const {
        quick_guard const lock(quick_);
        return tensors_.list();
    }
    std::unordered_map<std::size_t, context> contexts_of_blocks() const {
        quick_guard const lock(quick_);
        return tensors_.contexts();
    }

    /// A block was handed out. Returns what is allocated and reserved now. Throws std::bad_alloc before any change.
    totals allocated(live_tensor const& fresh, context const& where) {
        return history_.listens() ? allocated_aloud(fresh, where) : add(fresh, where);
    }
    /// PyTorch frees the block at `p`. False: it is none of this device.
    bool freed(void const* p, context const& where, live_tensor& gone, totals& now) {
        return history_.listens() ? freed_aloud(p, where, gone, now) : take(p, gone, now);
    }
    /// What is known of the block at `p`. False: it is none of this device.
    bool find(void const* p, live_tensor& found, context* where = nullptr) const {
        quick_guard const lock(quick_);
        live_tensor const* const known = tensors_.find(p);
        if (!known)
            return false;
        found = *known;
        if (where)
            *where = tensors_.context_of(known->address);
        return true;
    }

    /// A chunk of the pool came, or goes.
    void pool_chunk(weir::base::range bytes, event_kind what) {
        std::lock_guard<std::mutex> const lock(mutex_);
        change(pool_chunks_, bytes, {0, 0}, comes(what), true);
        if (is_recorded_)
            tape().note(what, device_, bytes);
    }
    /// The same of a private pool. Most of its chunks lie in the pool's; those that do not count as held.
    void private_chunk(mempool id, weir::base::range bytes, bool came) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto before = pool_chunks_.upper_bound(bytes.offset);
        bool const ours = before != pool_chunks_.begin() && (--before)->first + before->second.bytes > bytes.offset;
        change(private_chunks_, bytes, id, came, !ours);
    }

    /// There was no room.
    void refused(std::size_t device_free_bytes, std::size_t bytes, cudaStream_t stream, mempool id, context const& where,
                 std::uint32_t site) {
        std::lock_guard<std::mutex> const lock(mutex_);
        with_statistics([](statistics& s) { s.out_of_memory(); });
        if (is_recorded_)
            tape().note(event_kind::refuse, device_, nullptr, bytes, bytes, stream, site);
        note(action::OOM, device_free_bytes, bytes, stream, id, where);
    }
    void retried() {
        with_statistics([](statistics& s) { s.retried(); });
    }
    void annotated([[maybe_unused]] void const* p, [[maybe_unused]] std::string const& text) {
#if TORCH_VERSION_MINOR >= 14
        std::lock_guard<std::mutex> const lock(mutex_);
        live_tensor known;
        if (history_.listens() && find(p, known))
            history_.note_annotation(action::ANNOTATE, device_, known.address, known.pool, text);
#endif
    }

    void note_snapshot(mempool id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        note(action::SNAPSHOT, 0, with_statistics([](statistics const& s) { return s.allocated_bytes(); }), nullptr, id,
             nullptr);
    }
    void forget_contexts() {
        std::lock_guard<std::mutex> const lock(mutex_);
        quick_guard const quick(quick_);
        tensors_.forget_contexts();
        for (chunks* const each : {&pool_chunks_, &private_chunks_})
            for (auto& [address, known] : *each)
                known.where = nullptr;
    }

    /// From now on blocks and chunks are written to the recording, those that are there first; or no longer.
    void record(bool wanted) {
        std::lock_guard<std::mutex> const lock(mutex_);
        quick_guard const quick(quick_);
        is_recorded_ = wanted;
        if (!wanted)
            return;
        for (auto const& [address, each] : pool_chunks_)
            tape().note(event_kind::grow, device_, {address, each.bytes});
        tensors_.visit([this](live_tensor const& each) { record(event_kind::allocate, each); });
    }

    int device_ = 0;

private:
    void record(event_kind what, live_tensor const& of) const noexcept {
        tape().note(what, device_, reinterpret_cast<void*>(of.address), of.requested_bytes, of.bytes, of.stream, of.site);
    }
    totals add(live_tensor const& fresh, context const& where) {
        quick_guard const lock(quick_);
        tensors_.add(fresh, where);
        statistics_.allocated(fresh.requested_bytes, fresh.bytes);
        if (is_recorded_)
            record(event_kind::allocate, fresh);
        return {statistics_.allocated_bytes(), statistics_.reserved_bytes()};
    }
    bool take(void const* p, live_tensor& gone, totals& now) {
        quick_guard const lock(quick_);
        if (!tensors_.take(p, gone))
            return false;
        statistics_.freed(gone.requested_bytes, gone.bytes);
        if (is_recorded_)
            record(event_kind::free, gone);
        now = {statistics_.allocated_bytes(), statistics_.reserved_bytes()};
        return true;
    }
    [[gnu::noinline]] totals allocated_aloud(live_tensor const& fresh, context const& where) {
        std::lock_guard<std::mutex> const lock(mutex_);
        totals const now = add(fresh, where);
        note(action::ALLOC, fresh.address, fresh.bytes, fresh.stream, fresh.pool, where);
        return now;
    }
    [[gnu::noinline]] bool freed_aloud(void const* p, context const& where, live_tensor& gone, totals& now) {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (!take(p, gone, now))
            return false;
        note(action::FREE_REQUESTED, gone.address, gone.bytes, gone.stream, gone.pool, where);
        note(action::FREE_COMPLETED, gone.address, gone.bytes, gone.stream, gone.pool, where);
        return true;
    }
    void note(action what, std::size_t address, std::size_t bytes, cudaStream_t stream, mempool id, context const& where) {
        if (history_.listens())
            history_.note(what, device_, address, bytes, stream, id, where);
    }

    // With the mutex held.
    void change(chunks& of, weir::base::range bytes, mempool id, bool came, bool is_held) {
        allocation_scope const* const now = allocation_scope::innermost();
        context const where = now ? now->where : nullptr;
        if (came)
            of[bytes.offset] = chunk{bytes.bytes, id, numbers_++, where};
        else
            of.erase(of.lower_bound(bytes.offset), of.lower_bound(bytes.end()));
        with_statistics([&](statistics& s) {
            if (is_held)
                s.chunk(bytes.bytes, came);
            if (id != mempool{0, 0})
                s.private_chunk(id, bytes.bytes, came);
        });
        note(came ? action::SEGMENT_ALLOC : action::SEGMENT_FREE, bytes.offset, bytes.bytes, now ? now->stream : nullptr, id,
             where);
    }

    mutable weir::base::spin_lock quick_; // guards the next two
    live_tensors tensors_;
    statistics statistics_;
    bool is_recorded_ = false;   // whoever writes it has both locks
    mutable std::mutex mutex_; // guards the rest
    chunks pool_chunks_;
    chunks private_chunks_;
    history history_;
    std::int32_t numbers_ = 0;
};

/// One for each device, whether it has memory or not.
inline std::array<ledger, most_devices>& ledgers() {
    static auto* const made = [] {
        auto* const fresh = new std::array<ledger, most_devices>();
        for (int each = 0; each < most_devices; ++each)
            (*fresh)[static_cast<std::size_t>(each)].device_ = each;
        return fresh;
    }();
    return *made;
}
inline ledger& ledger_of(int device) {
    return ledgers()[static_cast<std::size_t>(device)];
}

} // namespace weir_plugin::torch
