// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which memory may a CUDA graph of PyTorch's use, and until when?
//
// PyTorch names a pool by an id, says when a capture into it begins and ends, and when a graph that uses it is gone. Several
// graphs may share an id; they are then launched in the order of their captures. That is what weir::graph_memory's 'share' is
// for; here is which capture has which id, and what record_stream asks for. A block that another captured stream uses as well
// stays out until the next capture, and one that work outside of captures uses until the next capture into the id has waited
// for the device. A block that is not the graph's own, of the ordinary pool or of another id, and that a capture frees, or uses
// on a captured stream, is kept for the graph, which may use it at each launch. So it goes back after all graphs that use it. A
// block that was recorded on a stream whose capture is under way at the free waits for the capture's end: there is no event to
// record before.
//
// invariant: no byte of an id's memory goes to anyone else before its last graph is gone, its blocks are freed and the device
//            was waited for.
// cost:      a lock and a look-up for each free while an id is known or a block is recorded on a stream; nothing before.
// not for:   graphs of one id that run at the same time: PyTorch does not allow it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>
#include <weir/weir.hpp>

namespace weir_plugin {

using pool_id = std::pair<unsigned long long, unsigned long long>; // c10::MempoolId_t
using stream_filter = std::function<bool(cudaStream_t)>;

/// The graphs' memory on one device. Any thread may call any member.
template <class Pool>
class graph_pools {
public:
    /// `pool` outlives this object: the chunks come out of it.
    explicit graph_pools(Pool& pool) : pool_(pool), memory_(pool) {}

    /// Whether a capture is under way, and whether there is anything that a free has to ask for. One relaxed load each.
    bool capturing() const noexcept { return captures_.load(std::memory_order_relaxed) != 0; }
    bool any() const noexcept { return known_.load(std::memory_order_relaxed) != 0; }

    /// A capture into the pool `id` begins on the streams that `filter` knows, until 'end'. Throws std::bad_alloc, cuda_error.
    void begin(pool_id id, stream_filter filter) {
        std::lock_guard<std::mutex> const lock(mutex_);
        graph& own = graphs_[id];
        own.number = own.number == 0 ? ++numbers_ : own.number;
        if (!own.outside.empty())
            weir::runtime::wait_for_device(weir::any_device);
        own.outside.clear();
        give_waiting();
        under_way_.emplace_back(id, std::move(filter));
        ++own.users;
        count();
    }
    void end(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        for (std::size_t i = under_way_.size(); i-- > 0;)
            if (under_way_[i].first == id) {
                under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
                break;
            }
        give_waiting();
        count();
    }
    /// A graph that used the pool `id` is gone. 'collect' gives the memory back.
    void release(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto const found = graphs_.find(id);
        if (found != graphs_.end() && found->second.users != 0)
            --found->second.users;
    }

    /// A block for work that is captured on `stream`. False if `stream` is not captured into a known pool; true otherwise, and
    /// `p` is null if there is no room. Throws what the pool throws.
    bool allocate(cudaStream_t stream, std::size_t bytes, void*& p) {
        std::lock_guard<std::mutex> const lock(mutex_);
        graph* const own = graph_of(stream);
        if (!own)
            return false;
        memory_.share(stream, own->number);
        p = memory_.try_allocate(stream, bytes);
        if (p)
            blocks_[p] = block{own, stream, false, {}, {}};
        return true;
    }

    /// Takes a block back if it belongs to a graph, or if a graph may go on using it; false: it is the ordinary pool's.
    bool deallocate(cudaStream_t stream, void* p, std::size_t bytes) {
        std::lock_guard<std::mutex> const lock(mutex_);
        block own = noted(p);
        graph* user = nullptr; // nobody, also where CUDA does not answer: the ordinary pool asks again
        weir::base::try_twice([&] { return user = graph_of(stream), true; });
        if (user && user != own.of)
            own.users.insert(user);
        blocks_.erase(p);
        count();
        if (!own.of && own.users.empty()) {
            if (!is_captured(own.marks))
                return false;
            own.marks.insert(stream); // which must not be captured either at the free
        }
        bool const waits = !own.users.empty() || (own.of && (own.shared || !own.marks.empty()));
        weir::stream_ref const behind = waits ? weir::on_host : weir::stream_ref(stream);
        std::shared_ptr<freed> const held(new freed{*this, own.of != nullptr, own.marks, behind, p, bytes}, give_back{});
        for (graph* const each : own.users)
            each->kept.push_back(held);
        if (own.of && !own.marks.empty())
            own.of->outside.push_back(held);
        return true;
    }

    /// Notes that `stream` uses the block at `p`; false: the ordinary pool has to know.
    bool used_on(void* p, cudaStream_t stream) {
        std::lock_guard<std::mutex> const lock(mutex_);
        block own = noted(p);
        graph* const user = graph_of(stream);
        if (!user)
            own.marks.insert(stream);
        else if (own.of == user)
            own.shared |= stream != own.stream;
        else
            own.users.insert(user);
        bool const ours = own.of || user;
        blocks_[p] = std::move(own);
        count();
        return ours;
    }

    /// Gives back the memory of pools whose graphs are gone and whose blocks are freed, after all work on the devices. Returns
    /// whether there was any. Throws cuda_error.
    bool collect() {
        std::lock_guard<std::mutex> const lock(mutex_);
        bool const any = give_waiting();
        std::vector<pool_id> over;
        for (auto const& [id, each] : graphs_)
            if (each.users == 0 && !has_blocks(each))
                over.push_back(id);
        if (over.empty())
            return any;
        weir::runtime::wait_for_device(weir::any_device); // what is kept may be used on any of them
        for (pool_id const& id : over) {
            graph& gone = graphs_[id];
            forget(gone);
            gone.outside.clear();
            while (memory_.graphs(gone.number) != 0)
                memory_.release(weir::on_host, gone.number);
            graphs_.erase(id); // what it keeps goes back as it goes
        }
        memory_.collect(); // of ids whose blocks other graphs had kept
        count();
        return true;
    }

private:
    struct graph;
    // A block that was freed. It goes back once nobody holds this any more, and no stream that it is recorded on is captured.
    struct freed {
        graph_pools& pools;
        bool of_graph; // or of the ordinary pool
        std::set<cudaStream_t> marks;
        weir::stream_ref stream;
        void* p;
        std::size_t bytes;
    };
    struct give_back {
        void operator()(freed* gone) const noexcept { gone->pools.give(std::unique_ptr<freed>(gone)); }
    };
    using held_blocks = std::vector<std::shared_ptr<freed>>;
    struct graph {
        std::size_t users = 0; // captures that began, and whose graphs are not gone
        std::uint64_t number = 0;
        held_blocks outside; // own blocks, until the next one has waited
        held_blocks kept;    // others' blocks, until the graphs are gone
    };
    struct block {
        graph* of = nullptr; // null: the ordinary pool's
        cudaStream_t stream = nullptr;
        bool shared = false;          // with another stream of its captures
        std::set<graph*> users;       // others that use it
        std::set<cudaStream_t> marks; // other streams that use it, outside of captures
    };

    // The members below are called with the lock held.
    void give(std::unique_ptr<freed> gone) noexcept {
        if (!gone->of_graph && is_captured(gone->marks))
            return waiting_.push_back(std::move(gone));
        if (gone->of_graph)
            memory_.deallocate(gone->stream, gone->p, gone->bytes);
        else
            pool_.deallocate(gone->stream, gone->p, gone->bytes);
    }
    // Whether any could go.
    bool give_waiting() noexcept {
        std::vector<std::unique_ptr<freed>> now;
        now.swap(waiting_);
        for (std::unique_ptr<freed>& each : now)
            give(std::move(each));
        return waiting_.size() < now.size();
    }
    static bool is_captured(std::set<cudaStream_t> const& marks) noexcept {
        for (cudaStream_t each : marks)
            if (weir::base::try_twice(
                    [&] { return each && !weir::runtime::is_legacy(each) && weir::runtime::is_capturing(each); }))
                return true;
        return false;
    }
    graph* graph_of(cudaStream_t stream) {
        if (under_way_.empty() || !stream || weir::runtime::is_legacy(stream) || !weir::runtime::is_capturing(stream))
            return nullptr;
        for (std::size_t i = under_way_.size(); i-- > 0;) // the latest first: a capture that failed has no 'end'
            if (under_way_[i].second(stream))
                return &graphs_[under_way_[i].first];
        return nullptr;
    }
    block noted(void* p) const {
        auto const found = blocks_.find(p);
        return found == blocks_.end() ? block{} : found->second;
    }
    // Before a graph goes: no block names it any more.
    void forget(graph& gone) {
        for (auto each = blocks_.begin(); each != blocks_.end();) {
            bool const named = each->second.users.erase(&gone) != 0;
            bool const plain = !each->second.of && each->second.users.empty() && each->second.marks.empty();
            each = named && plain ? blocks_.erase(each) : std::next(each);
        }
    }
    bool has_blocks(graph const& own) const {
        for (auto const& each : blocks_)
            if (each.second.of == &own)
                return true;
        return false;
    }
    void count() noexcept {
        captures_.store(under_way_.size(), std::memory_order_relaxed);
        known_.store(graphs_.size() + blocks_.size(), std::memory_order_relaxed);
    }

    Pool& pool_;
    weir::graph_memory<Pool, weir::recipes::general_placement> memory_;
    std::mutex mutex_;                            // guards the rest
    std::uint64_t numbers_ = 0;                   // of ids
    std::vector<std::unique_ptr<freed>> waiting_; // for the ends of captures
    std::map<pool_id, graph> graphs_;
    std::vector<std::pair<pool_id, stream_filter>> under_way_;
    std::unordered_map<void*, block> blocks_; // graphs' own, and others' that they use
    std::atomic<std::size_t> captures_{0};
    std::atomic<std::size_t> known_{0};
};

} // namespace weir_plugin
