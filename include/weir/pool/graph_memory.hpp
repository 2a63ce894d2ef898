// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a graph keep the memory that it was captured with?
//
// A captured stream puts addresses into a graph, which uses them at each launch. So a block allocated in a capture is the
// graph's while that may be launched. Its chunks come out of a pool and go back when the owner says so ('release') or CUDA says
// that graph and executables are gone ('try_release'). Until then this is a pool like others (for containers, Thrust) on the
// streams of one capture. Bytes freed on a stream are handed out again on that one only: its nodes run in order.
//
//     weir::graph_memory memory(pool);
//     cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
//     void* p = memory.allocate(stream, bytes);          // work on it, and free it:
//     memory.deallocate(stream, p, bytes);
//     cudaStreamEndCapture(stream, &graph);              // instantiate, launch, destroy; then
//     memory.release(stream);                            // the stream of the last launch; try_release asks CUDA first
//
// invariant: no byte of it goes to anyone else before it is released; bytes never change streams.
// order:     as in the graph. What is freed outside the capture is not handed out again before the release.
// cost:      two questions to CUDA a call, two CUDA calls a capture, the pool's cost a chunk; none of it breaks the capture.
// not for:   two graphs: make one for each. Executables of one graph that run at the same time share its memory.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/pool/graph_memory/graph_life.hpp>
#include <weir/pool/graph_memory/last_uses.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/resource/resource.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Any thread may call any member. But the first call for a capture names its graph to CUDA (graph_life.hpp): meanwhile no
/// other thread may use that graph, also not through another graph_memory. `Placement`: which bytes of a chunk.
template <class Pool, class Placement>
class graph_memory : public resource<graph_memory<Pool, Placement>> {
    static_assert(contract::require_layered<Pool, stream_ref>());
    static_assert(contract::returns<int, contract::has_device, Pool>,
                  "weir: the pool slot of graph_memory needs 'int device() const'");
    static_assert(contract::require_placement<Placement>());

public:
    static constexpr memory_space space = Pool::space;
    static constexpr bool thread_safe = Pool::thread_safe;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = Pool::default_alignment;

    /// Holds nothing yet. `pool` outlives it.
    explicit graph_memory(Pool& pool) : pool_(&pool) {}
    graph_memory(graph_memory const&) = delete;
    graph_memory& operator=(graph_memory const&) = delete;

    /// As 'release' on the host; reports live blocks on stderr. If the device fails, nobody gets again what it may still use.
    ~graph_memory() {
        tell_leaks("graph memory", leak_action::report, used_.blocks, used_.bytes);
        try {
            give_back(on_host, true);
        } catch (...) {
        }
    }

    /// A block of `bytes` bytes for work that is captured on `stream` from now on; null for zero bytes and if the pool has no
    /// room. Never blocks longer than the pool's 'allocate_sync'. Throws usage_error (alignment; a stream that is not captured,
    /// or into another graph), cuda_error, std::bad_alloc, and what the pool throws; no block is handed out then.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        require_power_of_two(alignment);
        if (bytes == 0)
            return nullptr;
        if (stream.is_host())
            throw usage_error("weir: graph memory is for a graph's own work, and pinned containers allocate on the host; take "
                              "them from its pool");
        std::size_t const needed = Placement::needs(bytes, alignment, default_alignment);
        chunk fresh;
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            base::range const block = take(stream, bytes, alignment, fresh);
            if (block || needed == 0)
                return reinterpret_cast<void*>(block.offset);
            fresh.bytes = chunk_for(needed);
        } // without the lock: a handler of the pool may ask for what graph memory holds
        fresh.p = pool_->try_allocate(on_host, fresh.bytes, default_alignment);
        if (!fresh.p && needed < fresh.bytes)
            fresh.p = pool_->try_allocate(on_host, fresh.bytes = needed, default_alignment);
        if (!fresh.p)
            return nullptr;
        base::lock_guard<base::mutex> const lock(mutex_);
        return reinterpret_cast<void*>(take(stream, bytes, alignment, fresh).offset);
    }

    /// Takes a block back, for later allocations on `stream` in the same capture. A block of the pool may be freed here too, by
    /// the capture that uses it last: it goes back to the pool at the release. After a free outside a capture the release waits
    /// for what `stream` did so far. After one in another capture, or if CUDA fails, only 'release' gives back, no longer
    /// 'try_release'. Never blocks on a device.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        base::lock_guard<base::mutex> const lock(mutex_);
        base::range const block{reinterpret_cast<std::uintptr_t>(p), Placement::rounded(bytes, alignment)};
        if (!owned(block.offset)) {
            if (!adopt(stream, p, bytes, alignment))
                pool_->deallocate(stream, p, bytes, alignment);
            return;
        }
        used_.gave(block);
        used_.not_below_zero();
        bool own = false;
        try { // the per-thread streams of all threads have one name
            if (!runtime::is_capturing(stream))
                outside_.note(stream);
            else if (own = runtime::capture_of(stream).id == capture_; !own)
                elsewhere_ = true;
            else if (!runtime::is_per_thread(stream))
                of(stream).give(block);
        } catch (...) { // the legacy stream is never captured itself; captures only make its calls fail
            elsewhere_ = elsewhere_ || (!own && !runtime::is_legacy(stream));
            outside_.note_unknown();
        }
    }

    /// Gives everything back to the pool, behind what `stream` did so far (the last launch or, without one, earlier uses of the
    /// pool's blocks) and what other streams did before they freed blocks outside the capture. The graph must not be launched
    /// again; another capture may begin. Waits on the host for all devices in use if `stream` is the host or CUDA failed.
    /// Throws usage_error while `stream` is captured or a block is handed out, cuda_error; nothing goes back then.
    void release(stream_ref stream) {
        require_no_capture(stream);
        base::lock_guard<base::mutex> const lock(mutex_);
        require_no_block();
        give_back(stream, stream.is_host());
    }

    /// The same if nothing is left of the graph that could use the memory: neither the graph nor a copy nor an executable, and
    /// no launch under way (graph_life.hpp); also if nothing is held. False: something is left, and nothing has changed; that
    /// may last for some time after the last launch. Waits on the host, for all devices in use, if the capture freed blocks of
    /// the pool or CUDA failed. Throws as release.
    bool try_release(stream_ref stream) {
        require_no_capture(stream);
        base::lock_guard<base::mutex> const lock(mutex_);
        if (!chunks_.empty() && (elsewhere_ || watched_ != capture_ || !life_.is_over()))
            return false;
        require_no_block();
        give_back(stream, held_bytes() != got_bytes_); // for earlier uses of the pool's blocks, which no launch had to wait for
        return true;
    }

    /// Bytes held from the pool.
    std::size_t reserved_bytes() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return held_bytes();
    }
    /// Bytes handed out and not yet freed, rounding included.
    std::size_t in_use_bytes() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return used_.bytes;
    }
    /// The device of the pool.
    int device() const noexcept { return pool_->device(); }
    /// Whether `p` lies in memory that is held.
    bool owns(void const* p) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return owned(reinterpret_cast<std::uintptr_t>(p));
    }
    /// What is known of it now, the same as a line, and whether it can hand out a block and why not. Any thread.
    memory_report state() const {
        base::lock_guard<base::mutex> const lock(mutex_);
        return memory_report{"graph memory",  used_.bytes,  held_bytes(),   SIZE_MAX,
                             largest_bytes(), used_.blocks, chunks_.size(), 0};
    }
    template <class P = Pool const>
    auto examine(memory_report& now) const noexcept -> decltype(std::declval<P&>().examine(now)) {
        return pool_->examine(now);
    }
    text report() const { return report_text(state(), base::name_of(space)); }
    bool can_hold(std::size_t bytes, std::size_t alignment) const {
        std::size_t const needed = Placement::needs(bytes, alignment, default_alignment); // 0: no chunk can be as large
        return needed != 0 && weir::can_hold(*pool_, needed, default_alignment);
    }
    text refusal(std::size_t bytes, std::size_t alignment) const {
        std::size_t const needed = Placement::needs(bytes, alignment, default_alignment);
        return refusal_below_text(pool_->state(), pool_->refusal(needed == 0 ? SIZE_MAX : needed, default_alignment));
    }

private:
    static constexpr std::size_t usual_chunk_bytes = 2 * MiB; // what small blocks share
    struct chunk {
        void* p = nullptr;
        std::size_t bytes = 0;
        std::size_t alignment = default_alignment;
    };
    struct stream_free {
        cudaStream_t stream = nullptr;
        Placement* free = nullptr;
    };

    void require(runtime::capture const& now) const {
        if (now.id == 0)
            throw usage_error("weir: graph memory is for streams that are being captured into a graph; allocate from its pool "
                              "instead, or begin the capture first");
        if (capture_ != 0 && now.id != capture_)
            throw usage_error("weir: this graph memory belongs to another capture; make one for each graph, or call "
                              "'release' or 'try_release' once that graph is gone");
    }
    static void require_no_capture(stream_ref stream) {
        if (runtime::is_capturing(stream))
            throw usage_error(
                "weir: graph memory goes back after its graph, but this stream is captured; end the capture first");
    }
    void require_no_block() const {
        if (used_.blocks != 0)
            throw usage_error("weir: graph memory cannot go back while a block is handed out; free it, or end its container");
    }

    void watch(runtime::capture const& now) {
        if (watched_ == now.id)
            return;
        life_ = detail::graph_life(now.graph);
        watched_ = now.id;
    }

    // Keeps a block of the pool that a captured stream frees, since the graph may use it at each launch. False: it does not.
    bool adopt(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
        if (runtime::is_legacy(stream))
            return false;
        unsigned long long known = 0;
        try {
            runtime::capture const now = runtime::capture_of(stream);
            if (now.id == 0 || (capture_ != 0 && now.id != capture_))
                return false;
            known = now.id;
            watch(now);
        } catch (...) { // only 'release' gives it back, unless the graph is known and a later call watches it
        }
        try {
            chunks_.push_back(chunk{p, bytes, alignment});
        } catch (...) { // the pool keeps it from others for ever
            return false;
        }
        elsewhere_ = elsewhere_ || known == 0;
        known == 0 ? outside_.note_unknown() : void(capture_ = known);
        return true;
    }
    std::size_t held_bytes() const noexcept {
        std::size_t sum = 0;
        for (chunk const& each : chunks_)
            sum += each.bytes;
        return sum;
    }
    std::size_t largest_bytes() const noexcept {
        std::size_t most = contract::holds<contract::has_largest, Placement> ? 0 : SIZE_MAX; // not known
        if constexpr (contract::holds<contract::has_largest, Placement>)
            for (stream_free const& each : frees_)
                most = each.free->largest() > most ? each.free->largest() : most;
        return most;
    }
    bool owned(std::size_t address) const noexcept {
        for (chunk const& each : chunks_)
            if (base::range{reinterpret_cast<std::uintptr_t>(each.p), each.bytes}.contains(address))
                return true;
        return false;
    }
    // The free bytes of a stream. A capture has a handful of streams.
    Placement& of(stream_ref stream) {
        for (stream_free const& each : frees_)
            if (each.stream == stream.get())
                return *each.free;
        frees_.reserve(frees_.size() + 1);
        frees_.push_back(stream_free{stream.get(), new Placement()});
        return *frees_.back().free;
    }
    // A block for the capture of `stream`. A chunk in `fresh` is held from then on, or goes back if this throws. With the lock.
    base::range take(stream_ref stream, std::size_t bytes, std::size_t alignment, chunk& fresh) {
        try {
            runtime::capture const now = runtime::capture_of(stream); // under the lock: soon after, its graph is named
            require(now);
            watch(now); // before anything of the graph's is held
            Placement& free = of(stream);
            if (fresh.p) {
                chunks_.reserve_more(1);
                free.add(base::range{reinterpret_cast<std::uintptr_t>(fresh.p), fresh.bytes});
                chunks_.push_back(fresh);
                got_bytes_ += fresh.bytes;
                fresh.p = nullptr;
            }
            base::range const block = free.take(bytes, alignment);
            if (block) {
                capture_ = now.id;
                used_.took(block);
            }
            return block;
        } catch (...) {
            if (fresh.p)
                pool_->deallocate(on_host, fresh.p, fresh.bytes, fresh.alignment);
            throw;
        }
    }

    // Chunks grow with what was got, so that sizes that rise from block to block do not each leave a chunk behind.
    std::size_t chunk_for(std::size_t needed) const noexcept {
        std::size_t const usual = got_bytes_ / 2 > usual_chunk_bytes ? got_bytes_ / 2 : usual_chunk_bytes;
        return needed > usual ? needed : usual;
    }

    void give_back(stream_ref stream, bool after_all_work) {
        if (after_all_work && !chunks_.empty())
            outside_.note_unknown();
        for (stream_free const& each : frees_)
            delete each.free;
        frees_.clear();
        outside_.make_wait(stream); // before anything goes back
        for (chunk const& each : chunks_)
            pool_->deallocate(stream, each.p, each.bytes, each.alignment);
        chunks_.clear();
        got_bytes_ = 0;
        used_ = base::usage{};
        capture_ = 0;
        elsewhere_ = false;
    }

    Pool* pool_;
    mutable base::mutex mutex_; // guards the rest
    detail::last_uses outside_; // what streams did before frees outside the capture
    unsigned long long capture_ = 0; // the capture that the memory belongs to; 0: none
    unsigned long long watched_ = 0; // the capture whose graph life_ watches
    detail::graph_life life_;
    bool elsewhere_ = false; // another graph may use it
    base::growing_array<chunk> chunks_;
    std::size_t got_bytes_ = 0; // of chunks, but for blocks of the pool that were freed here
    base::growing_array<stream_free> frees_;
    base::usage used_;
};

template <class Pool>
graph_memory(Pool&) -> graph_memory<Pool>;

} // namespace v0
} // namespace weir
