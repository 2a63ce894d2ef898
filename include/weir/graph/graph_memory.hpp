// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do graphs keep the memory that they were captured with?
//
// A captured stream puts addresses into a graph, which uses them at each launch. So a block allocated in a capture is the
// graph's while that may be launched. Its chunks come out of a pool and go back when the owner says so ('release') or CUDA
// says that graph and executables are gone ('try_release'). Until then this is a pool like others (for containers, Thrust) on
// the streams of one capture. Bytes freed on a stream are handed out again for nodes that run behind the last free there:
// mostly its own later ones, or those of a stream that has waited for it since.
//
//     weir::graph_memory memory(pool);
//     cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
//     void* p = memory.allocate(stream, bytes);          // work on it, and free it:
//     memory.deallocate(stream, p, bytes);
//     cudaStreamEndCapture(stream, &graph);              // instantiate, launch, destroy; then
//     memory.release(stream);                            // the stream of the last launch; try_release asks CUDA first
//
// Several graphs name an id as their captures begin: memory.share(stream, id). Those of one id promise that they never run at
// the same time, and have the same bytes: each capture begins with all that is free. The last release by that id ends it.
//
// invariant: no byte of it goes to anyone else before it is released; within a capture, only behind the nodes that used it.
// order:     as in the graph. What is freed outside the captures is for the id's next capture, or the pool after the release.
// cost:      three or four questions to CUDA a call, and one more for each node that the stream captured since its last call;
//            two CUDA calls a capture, the pool's cost a chunk, and before a chunk of a capture of several streams at most a
//            question for each node; none of it breaks the capture.
// not for:   two graphs without ids: make one for each. Executables of one graph that run at the same time share its memory.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/graph/graph_memory/held_blocks.hpp>
#include <weir/graph/graph_memory/memory_group.hpp>
#include <weir/graph/graph_memory/memory_groups.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Any thread may call any member. But the first call for a capture, and each for which a stream lacks room beside others, name
/// its graph to CUDA (graph_life.hpp, branch_end.hpp): meanwhile no other thread may use that graph, also not through another
/// graph_memory. `Pool`: stream ordered. `Placement`: which bytes of a chunk.
template <class Pool, class Placement>
class graph_memory : public resource::pool_base<graph_memory<Pool, Placement>> {
    static_assert(contract::require_layered<Pool, stream_ref>());
    static_assert(Pool::stream_ordered,
                  "weir: graph memory goes back to its pool while the graph's last launch may use it, and this pool would hand "
                  "it out again at once; use a pool of 'weir::reuse::stream_ordered<>' or 'weir::reuse::after_event'");
    static_assert(contract::require_placement<Placement>());

public:
    static constexpr memory_space space = Pool::space;
    static constexpr bool thread_safe = Pool::thread_safe;
    static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = Pool::default_alignment;

    /// Holds nothing yet. `pool` outlives it. Throws std::bad_alloc.
    explicit graph_memory(Pool& pool) : pool_(&pool), groups_(pool.device()) {}
    graph_memory(graph_memory const&) = delete;
    graph_memory& operator=(graph_memory const&) = delete;

    /// As 'release' on the host for all graphs; reports live blocks on stderr. If the device fails, nobody gets again what it
    /// may still use.
    ~graph_memory() {
        memory_report const left = state();
        resource::tell_leaks("graph memory", leak_action::report, left.live_blocks, left.in_use_bytes);
        groups_.visit([&](group& each) {
            try {
                each.end_behind(on_host, true);
                while (graph::detail::waits const before = each.give_back(*pool_, on_host))
                    before->wait();
            } catch (...) {
            }
        });
    }

    /// The graph that `stream` is captured into has the memory of `id`, any number but 0, together with the other graphs that
    /// say so. The caller promises that no two run at the same time, and captures them one after the other. What one leaves in
    /// a block that stays allocated lasts until one runs that was captured earlier. Call this first in the capture; once more
    /// changes nothing. Waits on the host for what streams did before they freed blocks of `id` outside of captures, host
    /// functions among it, which may free blocks here meanwhile. Throws usage_error (a stream that is not captured, a graph
    /// that has memory already, a capture that another of `id` came after), cuda_error, std::bad_alloc. The graph shares
    /// nothing then; after the last two, no earlier one gets a block any more.
    void share(stream_ref stream, std::uint64_t id) {
        static_assert(group::can_share, "weir: graphs share memory by a placement with 'sibling', 'absorb' and 'lend', such as "
                                        "'weir::placement::best_fit<>'");
        runtime::capture const now = runtime::capture_of(stream);
        if (now.id == 0 || id == 0)
            throw usage_error("weir: graphs share memory by an id that is not 0, and while captured; begin the capture first");
        in_steps([&](bool) {
            group& of_capture = groups_.of(now);
            if (of_capture.id() == id)
                return waits{};
            if (of_capture.owners().is(now))
                throw usage_error("weir: this capture has graph memory already; name the graphs that it shares with before its "
                                  "first block");
            return groups_.join(now, id, pool_->device());
        });
    }

    /// A block of `bytes` bytes for work that is captured behind the present end of `stream`; null for zero bytes and if the
    /// pool has no room. Never blocks longer than the pool's 'allocate_sync'. Throws usage_error (alignment; a stream that is
    /// not captured, or into another graph), cuda_error, std::bad_alloc, and what the pool throws; no block is handed out then.
    [[nodiscard]] void* try_allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
        base::require_power_of_two(alignment);
        if (bytes == 0)
            return nullptr;
        if (stream.is_host())
            throw usage_error("weir: graph memory is for a graph's own work, and pinned containers allocate on the host; take "
                              "them from its pool");
        std::size_t const needed = Placement::needs(bytes, alignment, default_alignment); // 0: no chunk can be as large
        std::size_t wanted = 0;
        fresh_chunk fresh(*pool_);
        runtime::capture const now = runtime::capture_of(stream);
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            group& own = groups_.of(now);
            base::range const block = own.take(now, stream, bytes, alignment, fresh.block);
            if (block || needed == 0)
                return reinterpret_cast<void*>(block.offset);
            wanted = own.held().next_chunk_bytes(needed);
        } // without the lock: a handler of the pool may ask for what graph memory holds
        if (!fresh.get(wanted) && (wanted == needed || !fresh.get(needed)))
            return nullptr;
        base::lock_guard<base::mutex> const lock(mutex_);
        return reinterpret_cast<void*>(groups_.of(now).take(now, stream, bytes, alignment, fresh.block).offset);
    }

    /// Takes a block back, for later allocations in the same capture, on `stream` or on one that waits for it after its last
    /// free. A block of the pool may be freed here too, by the capture that uses it last: it goes back to the pool at the
    /// release. After a free outside a capture the release, or the id's next capture, waits for what `stream` did so far (a
    /// default stream means two: the pool's device's and the current device's); after one in a host function, or in a capture
    /// that has broken, for all work. After one in another capture, or if CUDA fails twice, only 'release' gives back. Waits
    /// at most for room in a full queue.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        base::lock_guard<base::mutex> const lock(mutex_);
        base::range const block{reinterpret_cast<std::uintptr_t>(p), Placement::rounded(bytes, alignment)};
        bool is_ours = false;
        groups_.visit([&](group& each) {
            if (!is_ours && each.held().owns(block.offset)) {
                is_ours = true;
                each.take_back(stream, block);
            }
        });
        if (!is_ours && !groups_.freeing(stream).adopt(stream, graph::detail::held_block{p, bytes, alignment}))
            pool_->deallocate(stream, p, bytes, alignment);
    }

    /// Gives everything of the graph without an id back to the pool, behind what `stream` did so far (the last launch or,
    /// without one, earlier uses of the pool's blocks) and what other streams did before they freed blocks outside the capture.
    /// The graph must not be launched again; another capture may begin. Waits on the host for all devices in use if `stream` is
    /// the host or CUDA failed. Throws usage_error while `stream` is captured or a block is handed out, cuda_error; nothing
    /// goes back then.
    void release(stream_ref stream) {
        require_no_capture(stream);
        in_steps([&](bool first) {
            require_no_block(groups_.alone());
            return gone(groups_.alone(), stream, first, stream.is_host());
        });
    }

    /// One of the graphs that share `id` is not launched again; its last launch was on `stream`. The last release gives all
    /// back as the one above does, or leaves that to 'collect' if a block is handed out. If another capture frees that one, its
    /// graph may use it, and nobody knows how long: then call this once more when that is gone. Throws usage_error while
    /// `stream` is captured and if no graph shares `id`, cuda_error; then the graph still counts.
    void release(stream_ref stream, std::uint64_t id) {
        require_no_capture(stream);
        in_steps([&](bool first) {
            group* const own = groups_.find(id);
            if (!own || !own->awaits_release()) // it may wait for 'collect'
                throw usage_error("weir: no graph shares memory by this id any more; release it once for each 'share'");
            if (own->graphs() <= 1 && own->used().blocks == 0)
                return gone(*own, stream, first, stream.is_host());
            own->leave(stream);
            return waits{};
        });
    }

    /// The same if nothing is left of the graph that could use the memory: neither the graph nor a copy nor an executable, and
    /// no launch under way (graph_life.hpp); also if nothing is held. False: something is left, and nothing has changed; that
    /// may last for some time after the last launch. Waits on the host, for all devices in use, if the capture freed blocks of
    /// the pool or CUDA failed. Throws as release. With an `id`: of all graphs that share it, also of one that holds nothing
    /// yet; none of them is released later.
    bool try_release(stream_ref stream, std::uint64_t id = 0) {
        require_no_capture(stream);
        bool is_over = true;
        in_steps([&](bool first) {
            group* const own = id == 0 ? &groups_.alone() : groups_.find(id);
            is_over = !own || (id == 0 && own->held().count() == 0) || own->owners().are_over();
            if (!own || !is_over)
                return waits{};
            require_no_block(*own);
            bool const after_all = own->held().has_adopted(); // earlier uses of the pool's blocks, for which no launch waited
            return gone(*own, stream, first, after_all);
        });
        return is_over;
    }

    /// Gives back the memory of ids whose graphs were all released while blocks were handed out, and whose blocks have been
    /// freed since, none of them by another capture. Returns how many bytes. Waits on the host for what uses them. Throws
    /// cuda_error; the rest stays then.
    std::size_t collect() {
        std::size_t given = 0;
        in_steps([&](bool) {
            while (group* const own = groups_.find_if([](group const& each) {
                return each.graphs() == 0 && each.used().blocks == 0 && !each.owners().have_another();
            })) {
                std::size_t const bytes = own->held().bytes();
                if (waits before = gone(*own, on_host, false, false))
                    return before;
                given += bytes;
            }
            return waits{};
        });
        return given;
    }

    /// How many graphs share `id` and were not released.
    std::size_t graphs(std::uint64_t id) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        std::size_t count = 0;
        groups_.visit([&](group const& each) { count += id == each.id() ? each.graphs() : 0; });
        return count;
    }
    /// The device of the pool.
    int device() const { return pool_->device(); }
    /// Whether `p` lies in memory that is held.
    bool owns(void const* p) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        bool found = false;
        groups_.visit([&](group const& each) { found |= each.held().owns(reinterpret_cast<std::uintptr_t>(p)); });
        return found;
    }
    /// What is known of it now, the same as a line, and whether it can hand out a block and why not. Any thread.
    memory_report state() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        memory_report now{"graph memory", 0, 0, SIZE_MAX, 0, 0, 0, 0};
        groups_.visit([&](group const& each) {
            now.in_use_bytes += each.used().bytes;
            now.reserved_bytes += each.held().bytes();
            if (each.largest_bytes() > now.largest_free_bytes)
                now.largest_free_bytes = each.largest_bytes();
            now.live_blocks += each.used().blocks;
            now.chunks += each.held().count();
        });
        return now;
    }
    void examine(memory_report& now) const { pool_->examine(now); }
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const {
        std::size_t const needed = Placement::needs(bytes, alignment, default_alignment);
        return needed != 0 && pool_->can_hold(needed, default_alignment);
    }
    refusal refused(std::size_t bytes, std::size_t alignment) const {
        std::size_t const needed = Placement::needs(bytes, alignment, default_alignment);
        text const reason = pool_->refused(needed == 0 ? SIZE_MAX : needed, default_alignment).reason;
        return {this->full_state(), base::refusal_below_text(pool_->state(), reason)};
    }

private:
    using group = graph::detail::memory_group<Placement>;
    using waits = graph::detail::waits;

    // A chunk on its way from the pool. It goes back if it does not become one of those that are held.
    struct fresh_chunk {
        explicit fresh_chunk(Pool& from) noexcept : pool(from) {}
        fresh_chunk(fresh_chunk const&) = delete;
        fresh_chunk& operator=(fresh_chunk const&) = delete;
        ~fresh_chunk() {
            if (block.p)
                pool.deallocate(on_host, block.p, block.bytes, block.alignment);
        }
        bool get(std::size_t bytes) {
            block = {pool.try_allocate(on_host, bytes, default_alignment), bytes, default_alignment};
            return block.p != nullptr;
        }

        Pool& pool;
        graph::detail::held_block block;
    };

    void require_no_capture(stream_ref stream) const {
        graph::detail::visit_meant(stream, device(), [&] {
            if (runtime::is_capturing(stream))
                throw usage_error(
                    "weir: graph memory goes back after its graph, but this stream is captured; end the capture first");
        });
    }

    // Calls step(first), with the lock held, until it answers that there is nothing to wait for. What it answers is waited for
    // without the lock: meanwhile a host function may free a block here.
    template <class Step>
    void in_steps(Step const& step) {
        waits before;
        bool first = true;
        do {
            if (before)
                before->wait();
            base::lock_guard<base::mutex> const lock(mutex_);
            before = step(std::exchange(first, false));
        } while (before);
    }

    // The members below are called with the lock held.
    static void require_no_block(group const& own) {
        if (own.used().blocks != 0)
            throw usage_error("weir: graph memory cannot go back while a block is handed out; free it, or end its container");
    }
    // Gives everything of a group back behind what `stream` did, or says what is to be waited for before another try.
    waits gone(group& own, stream_ref stream, bool first, bool after_all_work) {
        if (first)
            own.end_behind(stream, after_all_work);
        waits before = own.give_back(*pool_, stream);
        if (!before)
            groups_.erase(own);
        return before;
    }

    Pool* pool_;
    mutable base::mutex mutex_; // guards the rest
    graph::detail::memory_groups<Placement> groups_;
};

template <class Pool>
graph_memory(Pool&) -> graph_memory<Pool>;

} // namespace v0
} // namespace weir
