// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What becomes of buffers that do not all fit on the device?
//
// They share a budget. Those that are needed least now leave for host memory, and come back when they are accessed:
//
//     staging::spill_set<> set(pool, pinned, 8 * weir::GiB);         // a device pool, a host pool, the budget
//     staging::spillable<float> weights(set, count);                 // nothing is allocated yet
//     {
//         auto const now = weights.access(stream);                   // it is on the device, and stays there for this scope
//         step<<<blocks, threads, 0, stream>>>(now.data(), now.size());
//     }                                                              // it may leave behind that kernel
//
// 'read' accesses without writing: who was only read since it came leaves without a copy. 'prefetch' brings a buffer ahead of
// its access. A buffer can name a function that computes it again: then it is dropped, and nothing is copied. A set serves any
// number of threads, and of pools of one device. It frees memory for a pool that runs out ('handler').
//
// invariant: contents are on the device or on the host at any moment, also after a call that failed.
// order:     an access comes after all accesses that have ended; those that only read do not wait for each other. Copies wait
//            for the work that used the buffer, by events. The host waits only for host memory that is not page-locked, where
//            a stream's queue is full, and for the device in the place of a stream that is being captured.
// cost:      an access of a buffer that is on the device, by the stream that had it last: no CUDA call, two locks. While
//            buffers leave, an event is recorded at its end. On another stream: an event. On a thread's own default stream:
//            two. Moves: see spill/spill_mover.hpp.
// not for:   data that are passed through once: see streaming.hpp. Graphs, which would keep a buffer's address: a captured
//            stream is refused where the set notices.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/element.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/staging/spill/spill_core.hpp>
#include <weir/staging/spill/spill_ledger.hpp>
#include <weir/staging/spill/spill_record.hpp>
#include <weir/staging/spill_state.hpp>
#include <weir/staging/victims.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

namespace detail {

// A record whose contents are computed again.
template <class T, class Function>
struct computed_record final : spill_record {
    computed_record(pool_ref<memory_space::device> from, std::size_t size, std::size_t aligned, Function computes)
        : spill_record(from, size, aligned), function(std::move(computes)) {}
    bool is_computed() const noexcept override { return true; }
    void compute(stream_ref stream, void* data) override { function(stream, static_cast<T*>(data), bytes / sizeof(T)); }
    Function function;
};

} // namespace detail

/// A handler for layer::failure_handler: see 'spill_set::handler'.
class spill_handler {
public:
    static constexpr bool thread_safe = true;

    /// `failed`: a failed_allocation.
    template <class Failed>
    bool operator()(Failed const& failed) {
        return core_->spill(failed.bytes, &pool_) != 0;
    }

private:
    friend class any_spill_set;
    spill_handler(detail::spill_core& core, pool_ref<memory_space::device> pool) noexcept : core_(&core), pool_(pool) {}

    detail::spill_core* core_;
    pool_ref<memory_space::device> pool_;
};

/// A spill_set, whatever its policy. Any thread may call any member.
class any_spill_set {
public:
    any_spill_set(any_spill_set const&) = delete;
    any_spill_set& operator=(any_spill_set const&) = delete;

    /// The most bytes of the device that the buffers have at a time.
    std::size_t budget_bytes() { return state().budget_bytes; }
    /// Changes the budget. If it is lowered, buffers leave until the rest fits. Those that are being accessed stay; once they
    /// are not, they leave when others come, or at the next call. Returns the bytes that are in use beyond the budget. Throws
    /// cuda_error.
    std::size_t set_budget(std::size_t bytes) {
        core_.ledger().set_budget(bytes);
        if (std::size_t const excess = core_.ledger().excess())
            core_.spill(excess, nullptr);
        return core_.ledger().excess();
    }

    /// Buffers leave, the best victim first, until `bytes` have left or none can any more: the others are being accessed, or
    /// the host has no memory. Returns how many bytes left. Throws cuda_error.
    std::size_t spill(std::size_t bytes = SIZE_MAX) { return core_.spill(bytes, nullptr); }

    /// A handler that makes room in the set's pool, or in `pool`, when it runs out: buffers of that pool leave. For
    /// layer::failure_handler; the set outlives it. The pool is the one that the buffers are made from, and the layer is
    /// outside: weir::layer::failure_handler all(set.handler(), pool).
    ///
    /// A handler of yours below the set, which a buffer on its way in or out calls: it may call all members of the set, and
    /// spill buffers, ask about them and end them. What is on the move then stays as it is. It may access what is on the device
    /// and brings nothing there (usage_error).
    spill_handler handler() noexcept { return {core_, core_.pool()}; }
    spill_handler handler(pool_ref<memory_space::device> pool) noexcept { return {core_, pool}; }

    spill_state state() { return core_.ledger().state(); }
    /// The same as a line to print.
    text report() {
        spill_state const now = state();
        auto const sum = [](std::uint64_t bytes) { return base::bytes_text(static_cast<std::size_t>(bytes)); };
        return "spill_set: " + base::count_text(now.buffers, " buffer") + ", in use " + base::bytes_text(now.in_use_bytes) +
               " of " + base::bytes_text(now.budget_bytes) + ", accessed " + base::bytes_text(now.accessed_bytes) +
               "; to host " + sum(now.to_host_bytes) + ", to device " + sum(now.to_device_bytes) + ", left without a copy " +
               sum(now.uncopied_bytes) + ", computed " + sum(now.computed_bytes);
    }

protected:
    any_spill_set(pool_ref<memory_space::device> pool, pool_ref<memory_space::host> host, std::size_t budget_bytes,
                  detail::leaves_before compare, void const* policy)
        : core_(pool, host, budget_bytes, compare, policy) {}
    ~any_spill_set() = default;

private:
    template <class T>
    friend class spillable;

    detail::spill_core core_;
};

/// Buffers under one budget. `Victims`: which of them leaves first; see spill/victims.hpp. Pools and set outlive the buffers.
/// A set that ends before its buffers says so on stderr; they lose their contents, and can only end after that.
template <class Victims>
class spill_set : public any_spill_set {
    static_assert(detail::chooses_victims<Victims>,
                  "weir: a spill_set's policy needs 'bool operator()(spill_candidate const& a, spill_candidate const& b) "
                  "const', true where a leaves before b; weir::staging::least_recently_used is one");

public:
    /// `pool`: where the buffers' memory comes from. `host`: where the memory comes from for those that leave. A buffer that
    /// left keeps its host memory until it ends, or others need it. A pinned pool is copied to at the speed of the link and
    /// beside the host's work; with a host_pool the host waits for each copy. Both pools serve as many threads as the set. The
    /// set frees memory on streams of its own. Its end waits for the work that uses such memory if a pool must know that
    /// before a stream ends (promised_device_pool: the set calls its 'settle'); of others it waits for none. Throws
    /// usage_error for a pool that hands out at once what is freed, unless the device does not reach its memory; cuda_error.
    spill_set(pool_ref<memory_space::device> pool, pool_ref<memory_space::host> host, std::size_t budget_bytes,
              Victims victims = {})
        : any_spill_set(pool, host, budget_bytes, &leaves_before, &victims_), victims_(std::move(victims)) {}
    /// Refused with a sentence: a pool that hands out at once what is freed.
    template <class Pool, class Host,
              class = std::enable_if_t<resource::detail::is_immediate<Pool>() || resource::detail::is_immediate<Host>()>>
    spill_set(Pool& pool, Host& host, std::size_t budget_bytes, Victims victims = {})
        : spill_set(pool_ref<memory_space::device>(pool), pool_ref<memory_space::host>(host), budget_bytes,
                    std::move(victims)) {
        static_assert(!resource::detail::is_immediate<Pool>() && !resource::detail::is_immediate<Host>(),
                      "weir: a spill_set frees memory behind work that uses it, and this pool hands out at once what is freed; "
                      "use pools that are stream ordered, such as 'weir::device_pool' and 'weir::pinned_pool'");
    }

private:
    static bool leaves_before(void const* policy, spill_candidate const& a, spill_candidate const& b) {
        return (*static_cast<Victims const*>(policy))(a, b);
    }

    Victims victims_;
};

/// Keeps a buffer on the device while it lives. Movable. It ends in the thread that began it if its stream is that thread's
/// own default stream. The buffer may end before.
template <class T>
class [[nodiscard]] access_scope {
public:
    access_scope(access_scope&& other) noexcept
        : core_(other.core_), record_(std::exchange(other.record_, nullptr)), stream_(other.stream_),
          at_end_(std::move(other.at_end_)), data_(std::exchange(other.data_, nullptr)) {}
    access_scope& operator=(access_scope&&) = delete;
    /// The work that the stream has by now may use the buffer, later work may not.
    ~access_scope() {
        if (record_ && record_->is_late)
            detail::spill_core::end_late(*record_, false);
        else if (record_)
            core_->finish(*record_, stream_, !std::is_const_v<T>, std::move(at_end_));
    }

    /// For work on the access's stream. Null if there are no elements, and after a move.
    T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return record_ ? record_->bytes / sizeof(T) : 0; }
    std::size_t size_bytes() const noexcept { return record_ ? record_->bytes : 0; }
    stream_ref stream() const noexcept { return stream_; }

private:
    friend class spillable<std::remove_const_t<T>>;
    access_scope(detail::spill_core& core, detail::spill_record& record, stream_ref stream)
        : core_(&core), stream_(stream), data_(static_cast<T*>(core.begin(record, stream, !std::is_const_v<T>, at_end_))) {
        record_ = &record;
    }

    detail::spill_core* core_;
    detail::spill_record* record_ = nullptr;
    stream_ref stream_;
    runtime::event at_end_;
    T* data_;
};

/// A buffer of elements that may leave the device while nobody accesses it. Movable. Any thread may access it; it is moved and
/// ended by one that is alone with it. It ends without waiting: its memory goes back behind the work that uses it.
///
/// A stream that accessed the buffer, or computed it, lives until the buffer was then accessed for writing by another one, was
/// spilled, or has ended. If it is being captured when an access ends, or later, whoever moves or ends the buffer waits for the
/// device; nothing becomes a part of the graph. A buffer of no elements knows no stream.
template <class T>
class spillable {
public:
    /// `count` elements, not initialised. Nothing is allocated before the first access. `pool`: the set's, or another one of
    /// its device; a promised_device_pool outlives the set. Throws usage_error for a pool of another device, for one that hands
    /// out at once what is freed, or if there cannot be so many elements; std::bad_alloc.
    spillable(any_spill_set& set, std::size_t count) : spillable(set, set.core_.pool(), count) {}
    spillable(any_spill_set& set, pool_ref<memory_space::device> pool, std::size_t count)
        : spillable(set, pool, [&] {
              return new detail::spill_record(pool, container::detail::element<T>::bytes_of(count), alignment(pool));
          }) {}

    /// `count` elements that `compute(stream_ref, T* data, std::size_t count)` computes on that stream: at the first access,
    /// and at the first one after they left the device, which drops them. It computes the same each time. The thread that
    /// accesses the buffer calls it. It may access other buffers but not this one (usage_error), and waits for no thread that
    /// needs it. What it throws, the access throws. Such a buffer is only read.
    template <class Compute, class = decltype(std::declval<Compute&>()(std::declval<stream_ref>(), static_cast<T*>(nullptr),
                                                                       std::size_t{}))>
    spillable(any_spill_set& set, std::size_t count, Compute compute)
        : spillable(set, set.core_.pool(), [&] {
              std::size_t const bytes = container::detail::element<T>::bytes_of(count);
              return new detail::computed_record<T, Compute>(set.core_.pool(), bytes, alignment(set.core_.pool()),
                                                             std::move(compute));
          }) {}

    spillable(spillable&& other) noexcept : core_(other.core_), record_(std::exchange(other.record_, nullptr)) {}
    spillable& operator=(spillable&& other) noexcept {
        spillable taken(std::move(other));
        base::swap_values(core_, taken.core_);
        base::swap_values(record_, taken.record_);
        return *this;
    }
    ~spillable() {
        if (record_ && record_->is_late)
            detail::spill_core::end_late(*record_, true);
        else if (record_)
            core_->end(*record_);
    }

    /// Elements; 0 after a move.
    std::size_t size() const noexcept { return record_ ? record_->bytes / sizeof(T) : 0; }
    std::size_t size_bytes() const noexcept { return record_ ? record_->bytes : 0; }

    /// Brings the buffer to the device if it is not there, and keeps it there for the scope, for work on `stream` that reads
    /// and writes it: a stream of the pool's device; of any device if the pool's memory lies on none alone. Throws
    /// out_of_memory, which says how much is needed at least, if not enough of the others can leave, or if the pool can never
    /// hold it; usage_error for the host, another device's stream, a captured stream, a buffer that is computed, one that was
    /// moved from, and in a handler that a move has called; cuda_error; std::bad_alloc. Then nothing is lost.
    access_scope<T> access(stream_ref stream) {
        if (record().is_computed())
            throw usage_error("weir: what is written to a buffer that is computed again would be lost; 'read' it, or let the "
                              "function write");
        return {*core_, record(), stream};
    }
    /// The same for work that only reads.
    access_scope<T const> read(stream_ref stream) { return {*core_, record(), stream}; }

    /// Brings the buffer to the device beside all streams, so that an access soon finds it there. `stream`: where a function
    /// computes it, if it has one. False if there is no room; true if it is there or on its way, or was never accessed, so that
    /// there is nothing to bring. Throws usage_error, cuda_error, std::bad_alloc, as 'access'; what the function throws.
    bool prefetch(stream_ref stream) { return core_->prefetch(record(), stream); }

    /// Takes the buffer off the device. Whether it is off: not if it is being accessed, if the host has no memory, or if it is
    /// on the move and the caller is a handler or a function that the set has called. Throws cuda_error; the buffer is on the
    /// device then.
    bool spill() { return core_->spill(record()); }

    /// Whether the buffer is on the device, or on its way there.
    bool is_on_device() const { return core_->ledger().is_on_device(record()); }

    /// Declares when the buffer is needed next, as a number of any clock that counts up, such as a step: for by_next_use.
    void set_next_use(std::uint64_t when) { core_->ledger().declare(record(), &detail::spill_record::next_use, when); }
    /// Declares what it costs to have the buffer again, in a unit that all buffers share: for by_cost_and_size. By default a
    /// buffer costs its bytes.
    void set_cost(double of_return) { core_->ledger().declare(record(), &detail::spill_record::cost, of_return); }

private:
    template <class Make, class = decltype(std::declval<Make&>()())>
    spillable(any_spill_set& set, pool_ref<memory_space::device> pool, Make make) : core_(&set.core_) {
        core_->admit(pool);
        record_ = make();
        core_->ledger().enter(*record_);
    }
    static std::size_t alignment(pool_ref<memory_space::device> pool) noexcept {
        return alignof(T) > pool.default_alignment() ? alignof(T) : pool.default_alignment();
    }
    detail::spill_record& record() const {
        if (!record_)
            throw usage_error("weir: this buffer was moved from; use the one that it was moved to");
        if (record_->is_late)
            throw usage_error("weir: this buffer's spill_set has ended; end the buffer before the set");
        return *record_;
    }

    detail::spill_core* core_;
    detail::spill_record* record_ = nullptr;
};

} // namespace staging
} // namespace v0
} // namespace weir
