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
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/base/usage.hpp>
#include <weir/contract/placement_slot.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/fwd.hpp>
#include <weir/graph/graph_memory/captured_streams.hpp>
#include <weir/graph/graph_memory/held_blocks.hpp>
#include <weir/graph/graph_memory/last_uses.hpp>
#include <weir/graph/graph_memory/owner_graph.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {

/// Any thread may call any member. But the first call for a capture names its graph to CUDA (graph_life.hpp): meanwhile no
/// other thread may use that graph, also not through another graph_memory. `Pool`: stream ordered. `Placement`: which bytes
/// of a chunk.
template <class Pool, class Placement>
class graph_memory : public resource::pool_base<graph_memory<Pool, Placement>> {
    static_assert(contract::require_layered<Pool, stream_ref>());
    static_assert(contract::returns<int, contract::has_device, Pool>,
                  "weir: the pool slot of graph_memory needs 'int device() const'");
    static_assert(Pool::stream_ordered,
                  "weir: graph memory goes back to its pool while the graph's last launch may use it, and this pool would hand "
                  "it out again at once; use a pool of 'weir::reuse::stream_ordered<>' or 'weir::reuse::after_event'");
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
        resource::tell_leaks("graph memory", leak_action::report, used_.blocks, used_.bytes);
        try {
            give_back(on_host, true);
        } catch (...) {
        }
    }

    /// A block of `bytes` bytes for work that is captured on `stream` from now on; null for zero bytes and if the pool has no
    /// room. Never blocks longer than the pool's 'allocate_sync'. Throws usage_error (alignment; a stream that is not captured,
    /// or into another graph), cuda_error, std::bad_alloc, and what the pool throws; no block is handed out then.
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
        {
            base::lock_guard<base::mutex> const lock(mutex_);
            base::range const block = take(stream, bytes, alignment, fresh);
            if (block || needed == 0)
                return reinterpret_cast<void*>(block.offset);
            wanted = held_.next_chunk_bytes(needed);
        } // without the lock: a handler of the pool may ask for what graph memory holds
        if (!fresh.get(wanted) && (wanted == needed || !fresh.get(needed)))
            return nullptr;
        base::lock_guard<base::mutex> const lock(mutex_);
        return reinterpret_cast<void*>(take(stream, bytes, alignment, fresh).offset);
    }

    /// Takes a block back, for later allocations on `stream` in the same capture. A block of the pool may be freed here too, by
    /// the capture that uses it last: it goes back to the pool at the release. After a free outside a capture the release waits
    /// for what `stream` did so far (a default stream means two: the pool's device's and the current device's). After one in
    /// another capture, or if CUDA fails twice, only 'release' gives back. Waits at most for room in a full queue.
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        if (!p)
            return;
        base::lock_guard<base::mutex> const lock(mutex_);
        base::range const block{reinterpret_cast<std::uintptr_t>(p), Placement::rounded(bytes, alignment)};
        if (!held_.owns(block.offset)) {
            if (!adopt(stream, graph::detail::held_block{p, bytes, alignment}))
                pool_->deallocate(stream, p, bytes, alignment);
            return;
        }
        used_.gave(block);
        used_.not_below_zero();
        take_back(stream, block);
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
        if (held_.count() != 0 && !owner_.is_over())
            return false;
        require_no_block();
        give_back(stream, held_.has_adopted()); // for earlier uses of the pool's blocks, which no launch had to wait for
        return true;
    }

    /// Bytes held from the pool.
    std::size_t reserved_bytes() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return held_.bytes();
    }
    /// Bytes handed out and not yet freed, rounding included.
    std::size_t in_use_bytes() const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return used_.bytes;
    }
    /// The device of the pool.
    int device() const { return pool_->device(); }
    /// Whether `p` lies in memory that is held.
    bool owns(void const* p) const noexcept {
        base::lock_guard<base::mutex> const lock(mutex_);
        return held_.owns(reinterpret_cast<std::uintptr_t>(p));
    }
    /// What is known of it now, the same as a line, and whether it can hand out a block and why not. Any thread.
    memory_report state() const {
        base::lock_guard<base::mutex> const lock(mutex_);
        return memory_report{"graph memory",           used_.bytes,  held_.bytes(),  SIZE_MAX,
                             streams_.largest_bytes(), used_.blocks, held_.count(), 0};
    }
    template <class P = Pool const>
    auto examine(memory_report& now) const noexcept -> decltype(std::declval<P&>().examine(now)) {
        return resource::examine(*pool_, now);
    }
    text report() const { return resource::report_text(state(), base::name_of(space)); }
    bool can_hold(std::size_t bytes, std::size_t alignment = default_alignment) const {
        std::size_t const needed = Placement::needs(bytes, alignment, default_alignment);
        return needed != 0 && resource::can_hold(*pool_, needed, default_alignment);
    }
    text refusal(std::size_t bytes, std::size_t alignment) const {
        std::size_t const needed = Placement::needs(bytes, alignment, default_alignment);
        return base::refusal_below_text(pool_->state(), pool_->refusal(needed == 0 ? SIZE_MAX : needed, default_alignment));
    }

private:
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

    // Calls visit() for each stream that the name means: a default stream means the current device's and, made current here,
    // that of the pool's device. Throws cuda_error, and what `visit` throws.
    template <class Visit>
    void visit_meant(stream_ref stream, Visit const& visit) const {
        visit();
        if (runtime::is_default_stream(stream) && !stream.is_host() && device() != any_device &&
            runtime::current_device() != device()) {
            runtime::device_scope const there(device());
            visit();
        }
    }

    void require_no_capture(stream_ref stream) const {
        visit_meant(stream, [&] {
            if (runtime::is_capturing(stream))
                throw usage_error(
                    "weir: graph memory goes back after its graph, but this stream is captured; end the capture first");
        });
    }

    // The members below are called with the lock held.
    void require_no_block() const {
        if (used_.blocks != 0)
            throw usage_error("weir: graph memory cannot go back while a block is handed out; free it, or end its container");
    }

    // A block for the capture of `stream`, whose free bytes `fresh` joins if there is one.
    base::range take(stream_ref stream, std::size_t bytes, std::size_t alignment, fresh_chunk& fresh) {
        runtime::capture const now = runtime::capture_of(stream);
        owner_.require(now);
        owner_.watch(now); // before anything of the graph's is held
        Placement& free = streams_.free_of(stream);
        if (fresh.block.p) {
            held_.reserve();
            free.add(fresh.block.bytes_of());
            held_.add_chunk(std::exchange(fresh.block, {}));
        }
        base::range const block = free.take(bytes, alignment);
        if (block) {
            owner_.own(now);
            used_.took(block);
        }
        return block;
    }

    // Takes back a block of a chunk.
    void take_back(stream_ref stream, base::range block) noexcept {
        if (note_uses(stream) && !runtime::is_per_thread(stream)) // which is the name of a stream of each thread
            try {
                streams_.free_of(stream).give(block);
            } catch (...) { // no host memory: the bytes stay unused until the release
            }
    }

    // Finds out who may use what was freed on `stream` until when. Whether only the owner's graph does.
    bool note_uses(stream_ref stream) noexcept {
        bool own = true;
        if (!base::try_twice([&] { return visit_meant(stream, [&] { own &= note_use(stream); }), true; }))
            own = note_unknown_use(stream);
        return own;
    }
    bool note_use(stream_ref stream) noexcept {
        runtime::capture_state const now = runtime::capture_state_of(stream);
        if (now == runtime::capture_state::none)
            return outside_.note(stream), false;
        return (runtime::may_be_captured(now) && owner_.is(runtime::capture_if_known(stream))) || note_unknown_use(stream);
    }
    // The legacy stream is never captured itself; captures only make its calls fail. The answer: not only the owner's graph.
    bool note_unknown_use(stream_ref stream) noexcept {
        if (!runtime::is_legacy(stream))
            owner_.note_another();
        outside_.note_unknown();
        return false;
    }

    // Keeps a block of the pool that a captured stream frees, since the graph may use it at each launch. False: the pool takes
    // it back, and if another graph may use it, keeps it from others.
    bool adopt(stream_ref stream, graph::detail::held_block block) noexcept {
        if (runtime::is_legacy(stream))
            return false;
        try {
            held_.reserve();
        } catch (...) { // the host has no memory
            return false;
        }
        bool owned = false;
        bool const answered = base::try_twice([&] {
            visit_meant(stream, [&] {
                runtime::capture const now = runtime::capture_of(stream);
                if (!owner_.may_be(now))
                    return;
                owner_.own(now);
                owned = true;
                owner_.watch(now); // where it fails, a later call does
            });
            return true;
        });
        if (answered && !owned)
            return false;
        held_.adopt(block);
        note_uses(stream);
        return true;
    }

    void give_back(stream_ref stream, bool after_all_work) {
        if (after_all_work && held_.count() != 0)
            outside_.note_unknown();
        streams_.clear();
        outside_.make_wait(stream); // before anything goes back
        held_.give_back(*pool_, stream);
        used_ = base::usage{};
        owner_.forget();
    }

    Pool* pool_;
    mutable base::mutex mutex_; // guards the rest
    graph::detail::owner_graph owner_;
    graph::detail::held_blocks held_;
    graph::detail::captured_streams<Placement> streams_;
    graph::detail::last_uses outside_; // what streams did before frees outside the capture
    base::usage used_;
};

template <class Pool>
graph_memory(Pool&) -> graph_memory<Pool>;

} // namespace v0
} // namespace weir
