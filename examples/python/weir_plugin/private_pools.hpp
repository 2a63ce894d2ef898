// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which memory may a CUDA graph or a MemPool of PyTorch's use, and until when?
//
// PyTorch names a private pool by an id, says when allocations go into it and on which streams, and when a graph or a MemPool
// that uses it is gone. Several graphs may share an id; they are launched in the order of their captures. A block that another
// stream uses as well stays out until that work is done; inside of captures, until the next capture. A block that is not the
// graph's own, of the ordinary pool or of another id, and that a capture frees, or uses on a captured stream, is kept for the
// graph, which may use it at each launch. So it goes back after all graphs that use it. A block that was recorded on a stream
// whose capture is under way at the free waits for the capture's end: there is no event to record before.
//
// invariant: no byte of an id's memory goes to anyone else before its last user is gone, its blocks are freed and the device
//            was waited for.
// cost:      a lock and a look-up for each free while an id is known or a block is recorded on a stream; nothing before.
// not for:   graphs of one id that run at the same time: PyTorch does not allow it.

#include "block_notes.hpp"
#include "private_pool.hpp"
#include "routes.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>
#include <weir/weir.hpp>

namespace weir_plugin {

/// The private pools of one device. Any thread may call any member.
template <class Pool>
class private_pools {
    using own_pool = private_pool<private_pools, Pool>;
    using freed = typename own_pool::freed;

public:
    /// Told when a chunk begins to be an id's, and when it ends to be one. Called with the lock held.
    using chunk_watch = std::function<void(pool_id id, weir::base::range chunk, bool came)>;

    /// `pool`, where chunks come from, outlives it.
    explicit private_pools(Pool& pool) : pool_(pool) {}

    /// Whether allocations go into a private pool now, and whether there is anything that a free has to ask for. One relaxed
    /// load each.
    bool routing() const noexcept { return routes_.load(std::memory_order_relaxed) != 0; }
    bool any() const noexcept { return known_.load(std::memory_order_relaxed) != 0; }

    void watch_chunks(chunk_watch watch) {
        std::lock_guard<std::mutex> const lock(mutex_);
        watch_ = std::move(watch);
    }

    /// Somebody uses the pool `id`, until 'release'; `source`: where its chunks come from, if this is the first one. Throws
    /// std::bad_alloc.
    void hold(pool_id id, chunk_source source = {}) {
        std::lock_guard<std::mutex> const lock(mutex_);
        ++made(id, std::move(source)).users;
        count();
    }
    /// Allocations on the streams that `filter` knows go into the pool `id`, until 'end'. Throws std::bad_alloc, cuda_error.
    void begin(pool_id id, stream_filter filter) {
        std::lock_guard<std::mutex> const lock(mutex_);
        drop_failed();
        own_pool& own = made(id, {});
        own.give_reached();
        give_waiting();
        own.memory.note_outside();
        under_way_.begin(own, std::move(filter));
        ++own.users;
        count();
    }
    void end(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        own_pool* const own = find(id);
        if (auto life = under_way_.end(own))
            own->graphs.push_back(std::move(*life));
        give_waiting();
        count();
    }
    /// Who called 'hold' or 'begin' is gone. 'collect' gives the memory back.
    void release(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (own_pool* const own = find(id); own && own->users != 0)
            own->release();
    }
    /// How many use it; 0 also if there is no such pool.
    std::size_t users(pool_id id) const {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto const found = pools_.find(id);
        return found == pools_.end() ? 0 : found->second->users;
    }
    /// Whether others may have its free bytes when there is no room; and that blocks get whole chunks. False: no such pool.
    bool lend_when_full(pool_id id, bool lends) {
        std::lock_guard<std::mutex> const lock(mutex_);
        own_pool* const own = find(id);
        return own && (own->lends = lends, true);
    }
    bool never_split(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        own_pool* const own = find(id);
        return own && (own->memory.never_split(), true);
    }

    /// A block for work on `stream`. False if no private pool takes what is allocated there now; true otherwise, with its id,
    /// and `p` is null if there is no room. Throws what the pool throws.
    bool allocate(cudaStream_t stream, std::size_t bytes, void*& p, pool_id* id = nullptr) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto* const way = under_way_.of(stream);
        if (!way)
            return false;
        unsigned long long const capture = capture_number(stream);
        bool const is_new = capture != 0 && way->capture != capture;
        way->target->give_reached(is_new);
        if (is_new)
            way->life = life_of_graph(stream);
        if (capture != 0) {
            way->stream = stream;
            way->capture = capture;
        }
        p = taken(*way->target, stream, capture, bytes);
        if (id)
            *id = way->target->id;
        return true;
    }
    /// A block for work on `stream`, which is not captured, out of the free bytes of a pool that lends them; null: none has
    /// room. Waits for the device. Throws cuda_error, std::bad_alloc.
    void* borrow(cudaStream_t stream, std::size_t bytes, pool_id& id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (capture_number(stream) != 0)
            return nullptr;
        for (auto const& [name, each] : pools_)
            if (each->lends && each->memory.chunks().size() != 0) {
                weir::runtime::wait_for_device(weir::any_device);
                each->give_reached();
                if (weir::base::range const got = each->memory.take_any(bytes)) {
                    id = name;
                    return noted(*each, stream, got);
                }
            }
        return nullptr;
    }

    /// Takes a block back if it belongs to an id, or if a graph may go on using it; false: it is that of `home`, the ordinary
    /// pool that it is of if it is of one.
    bool deallocate(cudaStream_t stream, void* p, std::size_t bytes, Pool& home) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto own = blocks_.known(p);
        own_pool* user = nullptr; // nobody, also where CUDA does not answer: the ordinary pool asks again
        weir::base::try_twice([&] { return user = under_way_.of_graph(stream), true; });
        if (user && user != own.of)
            own.users.insert(user);
        blocks_.erase(p);
        count();
        if (!own.of && own.users.empty()) {
            if (!are_captured(own.marks))
                return false;
            own.marks.insert(stream); // which must not be captured either at the free
        }
        // What is kept goes back after a wait for the device.
        weir::stream_ref const behind =
            own.of || own.users.empty() ? weir::stream_ref(stream) : weir::stream_ref(weir::on_host);
        std::shared_ptr<freed> const held(
            new freed{*this, home, own.of, own.shared, user != nullptr, std::move(own.marks), behind, p, bytes}, give_back{});
        for (own_pool* const each : own.users)
            each->kept.push_back(held);
        return true;
    }

    /// Notes that `stream` uses the block at `p`; false: the ordinary pool has to know.
    bool used_on(void* p, cudaStream_t stream) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto own = blocks_.known(p);
        own_pool* const user = under_way_.of_graph(stream);
        if (!user && own.of && stream == own.stream)
            return true;
        if (!user)
            own.marks.insert(stream);
        else if (own.of == user)
            own.shared |= stream != own.stream;
        else
            own.users.insert(user);
        bool const ours = own.of || user;
        blocks_.set(p, std::move(own));
        count();
        return ours;
    }

    /// Gives back the memory of pools whose users are gone and whose blocks are freed, after all work on the devices. Returns
    /// whether there was any. Throws cuda_error.
    bool collect() {
        std::lock_guard<std::mutex> const lock(mutex_);
        drop_failed();
        bool any = give_waiting();
        for (auto const& [id, each] : pools_) // first what each keeps: that may be another one's
            if (each->is_unused() && (each->blocks == 0 || each->keeps())) {
                weir::runtime::wait_for_device(weir::any_device); // what is kept may be used on any of them
                each->kept.clear();
                each->give_reached(true);
                any = true;
            }
        for (auto each = pools_.begin(); each != pools_.end();)
            if (each->second->is_unused() && each->second->blocks == 0) {
                give_back_all(*each->second);
                each = pools_.erase(each);
            } else {
                ++each;
            }
        count();
        return any;
    }

    /// The live blocks of an id.
    std::vector<live_block> live(pool_id id) const {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto const found = pools_.find(id);
        return found == pools_.end() ? std::vector<live_block>() : blocks_.of(found->second.get());
    }

    /// What a pool has at one moment, for 'restore'.
    struct checkpoint {
        private_memory::checkpoint free;
        std::vector<live_block> live;
    };
    /// Waits on the host for what uses freed blocks of the pool. Throws usage_error if nobody uses the pool, cuda_error.
    checkpoint save(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        own_pool& own = settled(id);
        return {own.memory.save(), blocks_.of(&own)};
    }
    /// The blocks of then are live again at their addresses, and those that are live now are not; returns these. Throws as
    /// 'save'; nothing has changed then.
    std::vector<live_block> restore(pool_id id, checkpoint const& saved) {
        std::lock_guard<std::mutex> const lock(mutex_);
        own_pool& own = settled(id);
        std::vector<live_block> ended = blocks_.of(&own);
        own.memory.restore(saved.free);
        for (live_block const& each : ended)
            blocks_.erase(each.p);
        own.blocks = 0;
        for (live_block const& each : saved.live)
            noted(own, each.stream, {reinterpret_cast<std::size_t>(each.p), each.bytes});
        count();
        return ended;
    }

private:
    struct give_back {
        void operator()(freed* gone) const noexcept { gone->owner.give(std::unique_ptr<freed>(gone)); }
    };

    // The members below are called with the lock held.
    own_pool* find(pool_id id) {
        auto const found = pools_.find(id);
        return found == pools_.end() ? nullptr : found->second.get();
    }
    own_pool& made(pool_id id, chunk_source source) {
        std::unique_ptr<own_pool>& own = pools_[id];
        if (!own)
            own = std::make_unique<own_pool>(id, pool_.device(), std::move(source));
        return *own;
    }
    chunk_source source_of(own_pool const& own) {
        if (own.source.get)
            return own.source;
        return {[this](std::size_t bytes, weir::stream_ref stream) { return pool_.try_allocate(stream, bytes); },
                [this](void* p, std::size_t bytes) { pool_.deallocate(weir::on_host, p, bytes); }};
    }
    void tell(pool_id id, weir::base::range chunk, bool came) {
        if (watch_)
            watch_(id, chunk, came);
    }
    void give_back_all(own_pool& gone) {
        blocks_.forget(gone);
        for (weir::base::range const& each : gone.memory.chunks())
            tell(gone.id, each, false);
        gone.memory.give_back(source_of(gone));
    }
    void* taken(own_pool& own, cudaStream_t stream, unsigned long long capture, std::size_t bytes) {
        std::size_t const before = own.memory.chunks().size();
        weir::base::range const got = own.memory.take(stream, capture, bytes, source_of(own));
        for (std::size_t i = before; i < own.memory.chunks().size(); ++i)
            tell(own.id, own.memory.chunks()[i], true);
        return got ? noted(own, stream, got) : nullptr;
    }
    void* noted(own_pool& own, cudaStream_t stream, weir::base::range taken) {
        void* const p = reinterpret_cast<void*>(taken.offset);
        blocks_.set(p, {&own, taken.bytes, stream, false, {}, {}});
        ++own.blocks;
        count();
        return p;
    }

    void give(std::unique_ptr<freed> gone) noexcept {
        if (are_captured(gone->marks))
            return waiting_.push_back(std::move(gone));
        if (!gone->of)
            return gone->home.deallocate(gone->stream, gone->p, gone->bytes);
        try {
            gone->of->take_back(*gone);
        } catch (...) { // the bytes stay unused, and the pool until the process ends
        }
    }
    // The pool of that id, with no freed block that something still uses.
    own_pool& settled(pool_id id) {
        own_pool* const own = find(id);
        if (!own || own->users == 0)
            throw weir::usage_error(
                "weir: there is no private pool of that id any more, so it has no checkpoint; keep a graph or "
                "the MemPool that uses it");
        give_waiting();
        own->give_reached(true);
        if (blocks_.of(own).size() != own->blocks)
            throw weir::usage_error("weir: this private pool has no checkpoint now, since graphs of another pool, or a capture "
                                    "under way, still use blocks that were freed; end those first");
        return *own;
    }
    // Whether any could go.
    bool give_waiting() noexcept {
        std::vector<std::unique_ptr<freed>> now;
        now.swap(waiting_);
        for (std::unique_ptr<freed>& each : now)
            give(std::move(each));
        return waiting_.size() < now.size();
    }
    static bool are_captured(std::set<cudaStream_t> const& marks) noexcept {
        for (cudaStream_t each : marks)
            if (weir::base::try_twice([&] { return is_captured(each); }))
                return true;
        return false;
    }
    // PyTorch does not tell of the end of a capture that failed, or that nobody uses its pool any more.
    void drop_failed() {
        for (auto const& [id, each] : pools_)
            each->drop_failed();
        under_way_.drop_failed([](own_pool& its) { its.users -= its.users == 0 ? 0U : 1U; });
        count();
    }
    void count() noexcept {
        routes_.store(under_way_.size(), std::memory_order_relaxed);
        known_.store(pools_.size() + blocks_.size(), std::memory_order_relaxed);
    }

    Pool& pool_;
    mutable std::mutex mutex_; // guards the rest
    chunk_watch watch_;
    std::vector<std::unique_ptr<freed>> waiting_; // for the ends of captures
    std::map<pool_id, std::unique_ptr<own_pool>> pools_;
    routes<own_pool> under_way_;
    block_notes<own_pool> blocks_; // those of ids, and others that they use
    std::atomic<std::size_t> routes_{0}, known_{0};
};

} // namespace weir_plugin
