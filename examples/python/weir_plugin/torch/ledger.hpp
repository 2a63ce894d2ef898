// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is known of one device's memory, all under one lock?
//
// The blocks that PyTorch has, the chunks that they lie in, the statistics and the history. Each event changes all of them at
// once, so that a snapshot is of one moment.
//
// invariant: no pool is called with the lock held, so it may be taken with any lock of a pool held.
// cost:      an allocation or a free takes the lock once.

#include "../devices.hpp"
#include "history.hpp"
#include "live_tensors.hpp"
#include "statistics.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>
#include <weir/base/range.hpp>

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
public:
    ledger() = default;
    ledger(ledger const&) = delete;
    ledger& operator=(ledger const&) = delete;

    /// A block was handed out. Returns what is allocated and reserved now. Throws std::bad_alloc before any change.
    std::pair<std::size_t, std::size_t> allocated(live_tensor const& fresh, context const& where) {
        std::lock_guard<std::mutex> const lock(mutex_);
        tensors_.add(fresh, where);
        statistics_.allocated(fresh.requested_bytes, fresh.bytes);
        note(action::ALLOC, fresh.address, fresh.bytes, fresh.stream, fresh.pool, where);
        return {statistics_.allocated_bytes(), statistics_.reserved_bytes()};
    }
    /// PyTorch frees the block at `p`. False: it is none of this device.
    bool freed(void const* p, context const& where, live_tensor& gone, std::pair<std::size_t, std::size_t>& now) {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (!tensors_.take(p, gone))
            return false;
        statistics_.freed(gone.requested_bytes, gone.bytes);
        now = {statistics_.allocated_bytes(), statistics_.reserved_bytes()};
        note(action::FREE_REQUESTED, gone.address, gone.bytes, gone.stream, gone.pool, where);
        note(action::FREE_COMPLETED, gone.address, gone.bytes, gone.stream, gone.pool, where);
        return true;
    }
    /// What is known of the block at `p`. False: it is none of this device.
    bool find(void const* p, live_tensor& found, context* where = nullptr) const {
        std::lock_guard<std::mutex> const lock(mutex_);
        live_tensor const* const known = tensors_.find(p);
        if (!known)
            return false;
        found = *known;
        if (where)
            *where = tensors_.context_of(known->address);
        return true;
    }

    /// A chunk of the pool came, or goes.
    void pool_chunk(weir::base::range bytes, bool came) { change(pool_chunks_, bytes, {0, 0}, came, true); }
    /// The same of a private pool. Most of its chunks lie in the pool's; those that do not count as held.
    void private_chunk(mempool id, weir::base::range bytes, bool came) {
        std::unique_lock<std::mutex> lock(mutex_);
        auto before = pool_chunks_.upper_bound(bytes.offset);
        bool const ours = before != pool_chunks_.begin() && (--before)->first + before->second.bytes > bytes.offset;
        lock.unlock();
        change(private_chunks_, bytes, id, came, !ours);
    }

    /// There was no room.
    void refused(std::size_t device_free_bytes, std::size_t bytes, cudaStream_t stream, mempool id, context const& where) {
        std::lock_guard<std::mutex> const lock(mutex_);
        statistics_.out_of_memory();
        note(action::OOM, device_free_bytes, bytes, stream, id, where);
    }
    void retried() {
        std::lock_guard<std::mutex> const lock(mutex_);
        statistics_.retried();
    }
    void annotated([[maybe_unused]] void const* p, [[maybe_unused]] std::string const& text) {
#if TORCH_VERSION_MINOR >= 14
        std::lock_guard<std::mutex> const lock(mutex_);
        if (live_tensor const* const known = tensors_.find(p); known && history_.listens())
            history_.note_annotation(action::ANNOTATE, device_, known->address, known->pool, text);
#endif
    }

    /// act(statistics), act(history), act(tensors, pool chunks, private chunks), with the lock held.
    template <class Act>
    auto with_statistics(Act const& act) {
        std::lock_guard<std::mutex> const lock(mutex_);
        return act(statistics_);
    }
    template <class Act>
    auto with_history(Act const& act) {
        std::lock_guard<std::mutex> const lock(mutex_);
        return act(history_);
    }
    template <class Act>
    auto with_blocks(Act const& act) {
        std::lock_guard<std::mutex> const lock(mutex_);
        return act(tensors_, pool_chunks_, private_chunks_);
    }
    void note_snapshot(mempool id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        note(action::SNAPSHOT, 0, statistics_.allocated_bytes(), nullptr, id, nullptr);
    }
    void forget_contexts() {
        std::lock_guard<std::mutex> const lock(mutex_);
        tensors_.forget_contexts();
        for (chunks* const each : {&pool_chunks_, &private_chunks_})
            for (auto& [address, known] : *each)
                known.where = nullptr;
    }

    int device_ = 0;

private:
    void note(action what, std::size_t address, std::size_t bytes, cudaStream_t stream, mempool id, context const& where) {
        if (history_.listens())
            history_.note(what, device_, address, bytes, stream, id, where);
    }

    void change(chunks& of, weir::base::range bytes, mempool id, bool came, bool is_held) {
        std::lock_guard<std::mutex> const lock(mutex_);
        told_by_thread const& now = told();
        if (came)
            of[bytes.offset] = chunk{bytes.bytes, id, numbers_++, now.where};
        else
            of.erase(of.lower_bound(bytes.offset), of.lower_bound(bytes.end()));
        if (is_held)
            statistics_.chunk(bytes.bytes, came);
        if (id != mempool{0, 0})
            statistics_.private_chunk(id, bytes.bytes, came);
        note(came ? action::SEGMENT_ALLOC : action::SEGMENT_FREE, bytes.offset, bytes.bytes, now.stream, id, now.where);
    }

    mutable std::mutex mutex_; // guards the rest
    live_tensors tensors_;
    chunks pool_chunks_;
    chunks private_chunks_;
    statistics statistics_;
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
