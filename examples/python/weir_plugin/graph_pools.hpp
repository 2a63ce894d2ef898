// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which memory may a CUDA graph of PyTorch's use, and until when?
//
// PyTorch names a pool by an id, says when a capture into it begins and ends, and when a graph that uses it is gone. Several
// graphs may share an id; they are then launched in the order of their captures. So each id has one pool of its own for each
// captured stream: bytes that were freed on a stream are free for later nodes of that stream, in this graph and the next.
// A block that another captured stream uses as well (record_stream) stays out until the capture ends. A block of the ordinary
// pool that a capture frees, or uses on a captured stream, is kept for the graph, which may use it at each launch.
//
// invariant: no byte of an id's pools goes to anyone else before its last graph is gone, its blocks are freed and the device
//            was waited for.
// cost:      a lock and a look-up for each free while an id is known; nothing before the first capture.
// not for:   graphs of one id that run at the same time: PyTorch does not allow it.

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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
    using stream_pool = weir::pool<weir::upstream::from_pool<Pool>, weir::recipe::general_placement, weir::reuse::immediate>;

public:
    /// `pool` outlives this object: the chunks come out of it.
    explicit graph_pools(Pool& pool) : pool_(pool) {}

    /// Whether a capture is under way, and whether any id is known. One relaxed load each.
    bool capturing() const noexcept { return captures_.load(std::memory_order_relaxed) != 0; }
    bool any() const noexcept { return known_.load(std::memory_order_relaxed) != 0; }

    /// A capture into the pool `id` begins on the streams that `filter` knows, until 'end'. Throws std::bad_alloc.
    void begin(pool_id id, stream_filter filter) {
        std::lock_guard<std::mutex> const lock(mutex_);
        ++graphs_[id].users;
        under_way_.emplace_back(id, std::move(filter));
        count();
    }
    void end(pool_id id) {
        std::lock_guard<std::mutex> const lock(mutex_);
        for (std::size_t i = under_way_.size(); i-- > 0;)
            if (under_way_[i].first == id) {
                under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
                break;
            }
        graph& own = graphs_[id];
        for (freed const& each : own.late)
            each.from->deallocate(weir::on_host, each.p, each.bytes);
        own.late.clear();
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
        std::unique_ptr<stream_pool>& from = own->pools[stream];
        if (!from)
            from = std::make_unique<stream_pool>(weir::upstream::from_pool<Pool>(pool_, weir::on_host),
                                                 weir::pool_options{}.name("graph").on_leak(weir::leak_action::ignore));
        p = from->try_allocate(stream, bytes);
        if (p)
            blocks_[p] = block{own, from.get(), stream, false};
        return true;
    }

    /// Takes a block back if it belongs to a graph, or if a graph may go on using it; false: it is the ordinary pool's.
    bool deallocate(cudaStream_t stream, void* p, std::size_t bytes) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto const found = blocks_.find(p);
        if (found == blocks_.end()) {
            graph* const user = graph_of(stream);
            if (user)
                user->kept.push_back({nullptr, p, bytes});
            return user != nullptr;
        }
        block const own = found->second;
        blocks_.erase(found);
        if (!own.from) // the ordinary pool's
            own.of->kept.push_back({nullptr, p, bytes});
        else if (own.shared && is_under_way(*own.of))
            own.of->late.push_back({own.from, p, bytes});
        else
            own.from->deallocate(weir::on_host, p, bytes);
        return true;
    }

    /// Notes that `stream` uses the block at `p`; false: the ordinary pool has to know.
    bool used_on(void* p, cudaStream_t stream) {
        std::lock_guard<std::mutex> const lock(mutex_);
        auto const found = blocks_.find(p);
        if (found != blocks_.end()) {
            found->second.shared |= stream != found->second.stream;
            return true;
        }
        graph* const user = graph_of(stream);
        if (user)
            blocks_[p] = block{user, nullptr, stream, false};
        return user != nullptr;
    }

    /// Gives back the memory of pools whose graphs are gone and whose blocks are freed, after all work on the device. Returns
    /// whether there was any. Does nothing while a capture is under way. Throws cuda_error.
    bool collect() {
        std::lock_guard<std::mutex> const lock(mutex_);
        std::vector<pool_id> over;
        if (under_way_.empty())
            for (auto const& [id, each] : graphs_)
                if (each.users == 0 && !has_blocks(each))
                    over.push_back(id);
        if (over.empty())
            return false;
        weir::runtime::wait_for_device(pool_.device());
        for (pool_id const& id : over) {
            for (freed const& each : graphs_[id].kept)
                pool_.deallocate(weir::on_host, each.p, each.bytes);
            graphs_.erase(id);
        }
        count();
        return true;
    }

private:
    struct freed {
        stream_pool* from;
        void* p;
        std::size_t bytes;
    };
    struct graph {
        std::size_t users = 0; // captures that began, and whose graphs are not gone
        std::map<cudaStream_t, std::unique_ptr<stream_pool>> pools;
        std::vector<freed> late; // until the capture ends
        std::vector<freed> kept; // of the ordinary pool, until the graphs are gone
    };
    struct block {
        graph* of;
        stream_pool* from; // null: the ordinary pool's
        cudaStream_t stream;
        bool shared; // with another stream
    };

    // The members below are called with the lock held.
    graph* graph_of(cudaStream_t stream) {
        if (under_way_.empty() || !stream || weir::runtime::is_legacy(stream) || !weir::runtime::is_capturing(stream))
            return nullptr;
        for (auto const& [id, filter] : under_way_)
            if (filter(stream))
                return &graphs_[id];
        return nullptr;
    }
    bool is_under_way(graph const& own) {
        for (auto const& each : under_way_)
            if (&graphs_[each.first] == &own)
                return true;
        return false;
    }
    bool has_blocks(graph const& own) const {
        for (auto const& each : blocks_)
            if (each.second.of == &own)
                return true;
        return false;
    }
    void count() noexcept {
        captures_.store(under_way_.size(), std::memory_order_relaxed);
        known_.store(graphs_.size(), std::memory_order_relaxed);
    }

    Pool& pool_;
    std::mutex mutex_; // guards the rest
    std::map<pool_id, graph> graphs_;
    std::vector<std::pair<pool_id, stream_filter>> under_way_;
    std::unordered_map<void*, block> blocks_; // handed out
    std::atomic<std::size_t> captures_{0};
    std::atomic<std::size_t> known_{0};
};

} // namespace weir_plugin
