// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What do all stable containers have in common: a span of addresses, pages behind its beginning, a stream, and who else uses
// them?
//
// The span is reserved as the container is made, for all that it may ever hold. Pages are put behind it from the first address
// on, and taken away from the end. The container's stream orders what is given back: an event on it tells the pool when the
// pages may go elsewhere. It waits for the other streams that use the container first.
//
// invariant: size <= capacity, a number of whole pages; the bytes up to the capacity have memory behind them.
// invariant: the address stays the same from the making to the end. A container that was moved from is empty and has none; it
//            gets a span as it grows.
// invariant: while the container sleeps, its capacity is 0, and nothing is behind its addresses that it may use. So whoever
//            would grow it comes to 'commit', which refuses.
// order:     'stream', 'set_stream', 'used_on' and 'last_used_on' are as in container/owned/pooled.hpp, for a pool that cannot
//            be told of other streams.
// cost:      a give-back: an event, and a record of some 100 bytes on the host.
// not for:   use from several threads at a time.

#include <cstddef>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/size.hpp>
#include <weir/base/swap.hpp>
#include <weir/base/text.hpp>
#include <weir/container/owned/marked_streams.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/stable/mapped/sleep_record.hpp>
#include <weir/stable/mapped/view_list.hpp>
#include <weir/stable/page_pool.hpp>

namespace weir {
inline namespace v0 {
namespace stable::detail {

/// The base class of stable containers. Not copyable. A move takes memory, pool and stream along.
class mapped_span {
public:
    /// Where the memory can be used.
    static constexpr memory_space space = memory_space::device;

    /// The pool that the pages come from and go back to. The container keeps it alive.
    page_pool pool() const noexcept { return pool_; }

    /// The stream that the container's own work is enqueued on, and that orders what it gives back.
    stream_ref stream() const noexcept { return stream_.stream; }

    /// The same stream, together with its device if it is a default stream. For 'order_after', and for whoever
    /// copies the elements: throws usage_error while the container sleeps.
    order::placed_stream const& placed() const {
        require_awake();
        return stream_;
    }

    /// Changes to `stream`, which is made to wait for the work that is enqueued on the present stream so far, also if the
    /// container holds no memory yet. What is given back from now on comes behind the work on `stream`. The former stream is
    /// like any other then: later work there that uses the container has to be announced ('used_on'). If the present stream is
    /// being captured, `stream` joins the capture, as whatever waits for captured work. Waits at most for room in a full queue.
    /// Throws cuda_error; usage_error for the host; usage_error if `stream` is being captured while the present stream is not,
    /// or into another graph. If it throws, the stream is unchanged.
    void set_stream(stream_ref stream) {
        order::placed_stream const later = placed_on(stream);
        order_after(later, stream_);
        stream_ = later;
    }

    /// Says that work on another stream uses the container. Each later give-back, when it shrinks and when it ends, waits for
    /// all work that was enqueued on `stream` by then: the container's own stream does. One call is enough, before or after the
    /// launches. `stream` must live until the container ends. Waits at most for room in a full queue. Throws usage_error if
    /// `stream` is being captured, unless the own stream is in the same capture; cuda_error; std::bad_alloc.
    void used_on(stream_ref stream) {
        if (!stream.is_host()) // whose uses are over when it gives back
            users_.add(stream_, order::placed_stream::now(stream));
    }

    /// The same for the work that is enqueued on `stream` so far: the own stream waits for it at once. Call it after the last
    /// launch there. The stream may end sooner than the container, unless 'used_on' names it as well. Throws usage_error if one
    /// of the two is being captured and the other is not, or into another graph; cuda_error.
    void last_used_on(stream_ref stream) {
        if (stream.is_host())
            return;
        if (!runtime::is_legacy(stream) && !stream_.is_in_graph())
            runtime::require_no_capture(stream); // which the own stream would become part of
        order_after(stream_, order::placed_stream::now(stream));
    }

    /// The most bytes that the container can hold.
    std::size_t max_bytes() const noexcept { return max_bytes_; }

    /// Whether a sleep_group has put the container to sleep. Then its capacity is 0, no work may use its memory, and members
    /// that would grow it, shrink it or copy throw usage_error. 'data' and the size are as they were.
    bool suspended() const noexcept { return sleep_ && sleep_->asleep; }
    /// Throws usage_error while the container sleeps.
    void require_awake() const {
        if (suspended())
            throw usage_error("weir: this stable container sleeps as '" + sleep_->name +
                              "', so it has no memory; call 'resume' of its sleep_group first");
    }

protected:
    /// The container's contents are the first `size` of `capacity` bytes.
    struct block {
        std::byte* data = nullptr;
        std::size_t size = 0;
        std::size_t capacity = 0;
    };

    /// `max_bytes`: rounded up to whole pages; 0: as much as the device has, or the pool's limit admits. Throws usage_error if
    /// `stream` is the host, out_of_memory if the process has no addresses left, cuda_error, std::bad_alloc.
    mapped_span(page_pool const& pool, stream_ref stream, std::size_t max_bytes)
        : pool_(pool), stream_(placed_on(stream)), max_bytes_(max_bytes != 0 ? max_bytes : usual_bytes()) {
        max_bytes_ = whole_pages(max_bytes_ < base::most_addresses ? max_bytes_ : base::most_addresses);
        open();
    }
    mapped_span(mapped_span&& other) noexcept
        : pool_(other.pool_), stream_(other.stream_), max_bytes_(other.max_bytes_), users_(std::move(other.users_)),
          span_(std::move(other.span_)), spare_(std::move(other.spare_)), sleep_(std::move(other.sleep_)),
          block_(std::exchange(other.block_, block())) {
        note_place();
        other.views_.end_all();
    }
    mapped_span& operator=(mapped_span&& other) noexcept {
        views_.end_all();
        mapped_span taken(std::move(other));
        base::swap_values(pool_, taken.pool_);
        base::swap_values(stream_, taken.stream_);
        base::swap_values(max_bytes_, taken.max_bytes_);
        base::swap_values(users_, taken.users_);
        base::swap_values(span_, taken.span_);
        base::swap_values(spare_, taken.spare_);
        base::swap_values(sleep_, taken.sleep_);
        base::swap_values(block_, taken.block_);
        note_place();
        taken.note_place();
        return *this;
    }
    ~mapped_span() {
        views_.end_all();
        if (sleep_) {
            sleep_->container = nullptr;
            if (suspended() && sleep_->has_pages)
                block_.capacity = sleep_->bytes;
        }
        if (!span_)
            return;
        if (suspended())
            core().note_sleep(false);
        give_back_beyond(0, {});
        close();
    }

    /// Makes the capacity at least `bytes`, which is more than it is. The size stays. Throws usage_error if that is more than
    /// 'max_bytes', and what page_core::commit throws; nothing has changed then.
    void commit(std::size_t bytes) {
        require_awake();
        if (bytes > max_bytes_)
            throw usage_error("weir: a stable container of at most " + base::exact_bytes_text(max_bytes_) + " cannot hold " +
                              base::exact_bytes_text(bytes) + "; name more as it is made");
        bool const is_moved_from = !span_;
        if (is_moved_from)
            open();
        std::size_t const capacity = whole_pages(bytes);
        try {
            core().commit(*span_, block_.capacity, capacity);
        } catch (...) {
            if (is_moved_from)
                close();
            throw;
        }
        block_.capacity = capacity;
    }

    /// A record for 'give_back_beyond'. Throws std::bad_alloc.
    static base::shared<last_use> spare_record() { return base::shared<last_use>::make(); }

    /// Gives back the pages that no byte in front of `bytes` needs, behind the work that is on the stream. `next`: a record
    /// that was not used; none if nothing is given back later. Waits at most for room in a full queue, unless CUDA fails.
    void give_back_beyond(std::size_t bytes, base::shared<last_use> next) noexcept {
        std::size_t const kept = whole_pages(bytes);
        if (kept >= block_.capacity)
            return;
        stream_ref const last = users_.make_wait(stream_);
        if (last == stream_.stream)
            spare_->note(stream_);
        else
            spare_->note_graph(last);
        core().give(*span_, kept, block_.capacity, spare_);
        spare_ = std::move(next);
        block_.capacity = kept;
    }

    /// Whether 'give_back_beyond' would give something back.
    bool has_pages_beyond(std::size_t bytes) const noexcept { return whole_pages(bytes) < block_.capacity; }

    int device() const noexcept { return pool_.device(); }
    /// The device to make current for calls that use the contents. Throws usage_error while the container sleeps.
    int home() const {
        require_awake();
        return device();
    }

private:
    friend class container_sleeper; // calls what follows
    template <class>
    friend class stable::append_end; // enters 'views_'

    // Joins a group under a name; the answer is what both know. Throws usage_error if it is in one; std::bad_alloc.
    base::shared<sleep_record> join(text const& name) {
        if (sleep_)
            throw usage_error("weir: this stable container has joined a sleep_group already, as '" + sleep_->name +
                              "'; let it 'leave' that one first");
        sleep_ = base::shared<sleep_record>::make();
        sleep_->name = name;
        note_place();
        return sleep_;
    }
    void leave() noexcept { sleep_ = {}; }

    base::range contents_range() const noexcept { return {reinterpret_cast<std::size_t>(block_.data), block_.size}; }

    // No work uses the contents, and until 'wake' none may.
    void fall_asleep() noexcept {
        sleep_->bytes = std::exchange(block_.capacity, 0);
        sleep_->asleep = true;
        sleep_->has_pages = true;
        core().note_sleep(true);
        lose_pages();
    }
    // Puts pages behind the addresses of a container that sleeps. Throws what page_core::commit throws; nothing has changed.
    void get_pages() {
        if (!sleep_->has_pages && sleep_->bytes != 0)
            core().commit(*span_, 0, sleep_->bytes);
        sleep_->has_pages = true;
    }
    void lose_pages() noexcept {
        if (std::exchange(sleep_->has_pages, false) && sleep_->bytes != 0)
            core().give_ready(*span_, sleep_->bytes);
    }
    void wake() noexcept {
        core().note_sleep(false);
        sleep_->asleep = sleep_->has_pages = false;
        block_.capacity = std::exchange(sleep_->bytes, 0);
    }

    void note_place() noexcept {
        if (sleep_)
            sleep_->container = this;
    }

    page_core& core() const noexcept { return *pool_.core_; }

    std::size_t whole_pages(std::size_t bytes) const noexcept { return base::align_up(bytes, pool_.page_bytes()); }
    std::size_t usual_bytes() const noexcept {
        std::size_t const all = core().most_bytes() < base::most_addresses ? core().most_bytes() : unknown_device_bytes;
        std::size_t const most = all < pool_.limit_bytes() ? all : pool_.limit_bytes();
        return most != 0 ? most : 1;
    }

    void open() {
        base::shared<last_use> spare = spare_record();
        span_ = core().open(max_bytes_);
        spare_ = std::move(spare);
        block_.data = reinterpret_cast<std::byte*>(span_->addresses.offset);
    }

    void close() noexcept {
        core().close(span_);
        span_ = {};
        block_ = block();
    }

    // A default stream is that of the memory's device.
    order::placed_stream placed_on(stream_ref stream) const {
        if (stream.is_host())
            throw usage_error("weir: a container gives its memory back on a stream, and 'on_host' is none; name the stream "
                              "whose work uses the container last, or cudaStreamLegacy");
        return {stream, pool_.device()};
    }

    static constexpr std::size_t unknown_device_bytes = 64 * GiB; // if CUDA does not say what the device has

    page_pool pool_;
    order::placed_stream stream_;
    std::size_t max_bytes_;
    container::detail::marked_streams users_;
    base::shared<span> span_;      // none: the container was moved from
    base::shared<last_use> spare_; // for the next give-back, so that the end allocates nothing
    base::shared<sleep_record> sleep_; // none: it joined no group
    view_list views_;                  // of this object: a move takes none along

protected:
    block block_;
};

} // namespace stable::detail
} // namespace v0
} // namespace weir
