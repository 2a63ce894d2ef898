// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a pool hold from its upstream?
//
// It holds chunks, which it acquires within a limit and gives back when nobody uses them. An upstream may refuse to take a
// chunk back, since CUDA can fail there as anywhere. Such a chunk is set aside: nobody gets it, and it is offered to the
// upstream again later, so that nothing leaks. The destructor offers every chunk, and those that are refused then once more.
//
// invariant: but for 'restore', bytes() grows to at most the limit; every chunk is in one list or the other (held, or set
//            aside) until the upstream has taken it.
// order:     members that change something are for one thread at a time. Members that only ask are for any thread at any time,
//            unless they say otherwise; none of them waits for the driver.
// cost:      the upstream's calls; owns: a lock and a binary search.
// not for:   knowing which bytes of a chunk are in use.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/range.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/threads/atomic.hpp>
#include <weir/base/threads/counters.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/contract/upstream_slot.hpp>
#include <weir/supply/chunk_list.hpp>

namespace weir {
inline namespace v0 {
namespace supply {

/// `Lock`: guards the list of chunks; no_lock where one thread uses the pool at a time.
template <class Upstream, class Lock>
class held_chunks {
public:
    /// `limit_bytes`: the most to hold; SIZE_MAX: no limit.
    held_chunks(Upstream upstream, std::size_t limit_bytes)
        : upstream_(std::move(upstream)), limit_bytes_(limit_bytes) {}
    held_chunks(held_chunks const&) = delete;
    held_chunks& operator=(held_chunks const&) = delete;
    ~held_chunks() {
        while (chunks_.size() != 0)
            release(chunks_[chunks_.size() - 1]);
        offer_again();
    }

    /// Chunks are multiples of this many bytes.
    static constexpr std::size_t granularity() noexcept {
        if constexpr (contract::holds<contract::has_granularity, Upstream>)
            return Upstream::granularity;
        else
            return Upstream::alignment;
    }

    /// How many bytes more the limit allows to hold.
    std::size_t room_bytes() const noexcept {
        std::size_t const most = limit_bytes(), held = bytes();
        return most > held ? most - held : 0;
    }
    /// Whether the limit allows to hold `bytes` bytes more.
    bool has_room(std::size_t bytes) const noexcept { return bytes <= room_bytes(); }

    /// A new chunk of `bytes` bytes, a multiple of the granularity; an empty range if the limit or the upstream has no room.
    /// Throws what the upstream throws, usage_error if the chunk is less aligned than the upstream promises, and
    /// std::bad_alloc; then nothing new is held.
    base::range acquire(std::size_t bytes) {
        return hold(bytes, bytes, [&] { return upstream_.acquire(bytes); });
    }

    /// The same, but cut into chunks of `piece_bytes` bytes, side by side; one chunk if the upstream cannot on this device.
    template <class U = Upstream, class = std::enable_if_t<contract::holds<contract::has_extends, U>>>
    base::range acquire(std::size_t bytes, std::size_t piece_bytes) {
        return hold(bytes, piece_bytes, [&] { return upstream_.acquire(bytes, piece_bytes); });
    }

    /// The same, but right behind `end`, the end of a chunk. An empty range also if something else is at that address.
    template <class U = Upstream, class = std::enable_if_t<contract::holds<contract::has_extends, U>>>
    base::range extend(std::size_t end, std::size_t bytes, std::size_t piece_bytes) {
        void* const at = reinterpret_cast<void*>(end);
        return hold(bytes, piece_bytes, [&] { return upstream_.extend(at, bytes, piece_bytes) ? at : nullptr; });
    }

    /// Moves a chunk, of which nobody uses any byte, to the addresses right behind `end`, the end of another chunk. False: it
    /// stays where it was.
    template <class U = Upstream, class = std::enable_if_t<contract::holds<contract::has_extends, U>>>
    bool move(base::range chunk, std::size_t end) noexcept {
        if (!upstream_.move(reinterpret_cast<void*>(chunk.offset), chunk.bytes, reinterpret_cast<void*>(end)))
            return false;
        base::lock_guard<Lock> const lock(lock_);
        chunks_.remove(chunk);
        chunks_.add(base::range{end, chunk.bytes}); // in the room that it left
        return true;
    }

    /// Gives back all chunks that lie in `bytes`. Nobody uses any byte of them.
    void release_within(base::range bytes) noexcept {
        for (base::range const* each = chunks_.from(bytes.offset); each != chunks_.end() && bytes.contains(*each);)
            release(*each); // the next one takes its place
    }

    /// Gives a chunk back, of which nobody uses any byte. False: the upstream refused, and the chunk was set aside.
    bool release(base::range chunk) noexcept {
        {
            base::lock_guard<Lock> const lock(lock_);
            chunks_.remove(chunk);
        }
        if (try_release(chunk))
            return true;
        base::lock_guard<Lock> const lock(lock_);
        refused_.push_back(chunk);
        return false;
    }

    /// Forgets all chunks, which work may use: the upstream never gets them back.
    void leave() noexcept {
        while (chunks_.size() != 0)
            chunks_.remove(chunks_[chunks_.size() - 1]);
    }

    /// Offers the upstream once more what was set aside. Whether it took any.
    bool offer_again() noexcept {
        bool any = false;
        for (std::size_t i = refused_.size(); i-- > 0;) {
            if (!try_release(refused_[i]))
                continue;
            base::lock_guard<Lock> const lock(lock_);
            refused_.erase(refused_.begin() + static_cast<std::ptrdiff_t>(i));
            any = true;
        }
        return any;
    }

    /// Takes a chunk's memory away and keeps its addresses; nobody uses any byte of it. False: the upstream refused, and the
    /// chunk has memory as before. withdrawn_chunks.hpp knows which chunks are without.
    bool withdraw(base::range chunk) noexcept {
        if (!upstream_.withdraw(reinterpret_cast<void*>(chunk.offset), chunk.bytes))
            return false;
        bytes_.fetch_sub(chunk.bytes, base::memory_order_relaxed);
        return true;
    }
    /// Gives it memory again. False: the upstream has no room. Throws what the upstream throws.
    bool restore(base::range chunk) {
        if (!upstream_.restore(reinterpret_cast<void*>(chunk.offset), chunk.bytes))
            return false;
        base::lock_guard<Lock> const lock(lock_);
        count(chunk.bytes);
        return true;
    }
    /// Whether nothing is behind a chunk that is without memory: a 'restore' that failed may have left some, and this tries to
    /// take that away. It counts for nobody: 'withdraw' would count the chunk a second time.
    bool clear(base::range chunk) noexcept {
        return upstream_.clear(reinterpret_cast<void*>(chunk.offset), chunk.bytes);
    }
    /// Whether pages may be cut out of a chunk that is without memory; if so, makes room in the lists for that.
    bool prepare_cut(base::range chunk) noexcept {
        if (!clear(chunk))
            return false;
        try {
            base::lock_guard<Lock> const lock(lock_);
            chunks_.reserve(1);
            refused_.reserve(refused_.size() + chunks_.size() + 1);
            return true;
        } catch (...) {
            return false;
        }
    }
    /// What is left of a chunk before and behind a cut.
    struct rests {
        base::range sides[2];
    };
    /// Gives up the addresses of `pages`. The rests of the chunk are chunks from then on. Call 'prepare_cut' first.
    rests cut(base::range chunk, base::range pages) noexcept {
        rests const left{{{chunk.offset, pages.offset - chunk.offset}, {pages.end(), chunk.end() - pages.end()}}};
        upstream_.abandon(reinterpret_cast<void*>(pages.offset), pages.bytes);
        base::lock_guard<Lock> const lock(lock_);
        chunks_.remove(chunk);
        for (base::range const& rest : left.sides)
            if (rest)
                chunks_.add(rest);
        return left;
    }

    /// Chunks in order of address. For the thread that acquires and releases.
    chunk_list const& chunks() const noexcept { return chunks_; }
    /// The i-th chunk in order of size, the smallest first. For the thread that acquires and releases.
    base::range operator[](std::size_t i) const noexcept { return chunks_[i]; }
    /// How many chunks the pool can use. For the thread that acquires and releases.
    std::size_t size() const noexcept { return chunks_.size(); }

    /// How many chunks are held, with those that were set aside.
    std::size_t count() const noexcept {
        base::lock_guard<Lock> const lock(lock_);
        return chunks_.size() + refused_.size();
    }
    /// Bytes of chunks that were set aside.
    std::size_t refused_bytes() const noexcept {
        base::lock_guard<Lock> const lock(lock_);
        std::size_t sum = 0;
        for (base::range const& each : refused_)
            sum += each.bytes;
        return sum;
    }
    /// Bytes of all chunks that have memory, with those that were set aside.
    std::size_t bytes() const noexcept { return bytes_.load(base::memory_order_relaxed); }
    /// The most that were held since reset_peak.
    std::size_t peak_bytes() const noexcept { return peak_bytes_.load(base::memory_order_relaxed); }
    void reset_peak() noexcept {
        base::lock_guard<Lock> const lock(lock_); // so that no chunk is counted between the two
        peak_bytes_.store(bytes(), base::memory_order_relaxed);
    }
    /// Allocations that found no room at first and then waited for freed memory: noted by whoever waits.
    std::size_t waits() const noexcept { return waits_.load(base::memory_order_relaxed); }
    void note_wait() noexcept { waits_.fetch_add(1, base::memory_order_relaxed); }
    /// The most bytes to hold. A new limit takes nothing back.
    std::size_t limit_bytes() const noexcept { return limit_bytes_.load(base::memory_order_relaxed); }
    void limit_bytes(std::size_t most) noexcept { limit_bytes_.store(most, base::memory_order_relaxed); }
    /// Whether `address` lies in a chunk that the pool can use.
    bool owns(std::size_t address) const noexcept {
        base::lock_guard<Lock> const lock(lock_);
        return chunks_.owns(address);
    }
    Upstream const& upstream() const noexcept { return upstream_; }
    /// Whether the upstream can grow in place on this device (it may be able to on others).
    template <class U = Upstream, class = std::enable_if_t<contract::holds<contract::has_extends, U>>>
    bool extends() const noexcept {
        return upstream_.extends();
    }

    /// The most bytes that the upstream can ever hand out, as far as is known. The upstream is asked until it knows; that is
    /// mostly one call.
    std::size_t most_bytes() const noexcept {
        std::size_t most = most_bytes_.load(base::memory_order_relaxed);
        if constexpr (contract::holds<contract::has_most_bytes, Upstream>)
            if (most == SIZE_MAX)
                most_bytes_.store(most = upstream_.most_bytes(), base::memory_order_relaxed);
        return most < base::most_addresses ? most : base::most_addresses;
    }
    /// Whether the upstream could ever hand out a chunk of `bytes` bytes, as far as is known.
    bool can_acquire(std::size_t bytes) const noexcept {
        if (bytes > most_bytes())
            return false;
        if constexpr (contract::holds<contract::has_can_acquire, Upstream>)
            return upstream_.can_acquire(bytes);
        else
            return true;
    }
    /// How many bytes of addresses behind `end`, the end of a chunk, can have memory.
    std::size_t addresses_behind(std::size_t end) const noexcept {
        if constexpr (contract::holds<contract::has_extends, Upstream>)
            return upstream_.addresses_behind(reinterpret_cast<void const*>(end));
        else
            return SIZE_MAX - end;
    }
    /// Whether the upstream refused last time because addresses had run out, and not memory.
    bool out_of_addresses() const noexcept {
        if constexpr (contract::holds<contract::has_extends, Upstream>)
            return upstream_.out_of_addresses();
        else
            return false;
    }

private:
    // Takes in `bytes` bytes at the address that `get` returns (null: there is no room), in chunks of `piece_bytes`.
    template <class Get>
    base::range hold(std::size_t bytes, std::size_t piece_bytes, Get const& get) {
        if (bytes == 0 || !has_room(bytes))
            return base::range{};
        {
            base::lock_guard<Lock> const lock(lock_);
            chunks_.reserve((bytes - 1) / piece_bytes + 1);
            refused_.reserve(refused_.size() + chunks_.size() + (bytes - 1) / piece_bytes + 1); // 'release' never allocates
        }
        void* const memory = get();
        if (!memory)
            return base::range{};
        if constexpr (contract::holds<contract::has_extends, Upstream>)
            piece_bytes = extends() ? piece_bytes : bytes; // it may have found out just now
        base::range const all{reinterpret_cast<std::uintptr_t>(memory), bytes};
        {
            base::lock_guard<Lock> const lock(lock_);
            for (std::size_t at = 0; at < bytes; at += piece_bytes)
                chunks_.add(base::range{all.offset + at, bytes - at < piece_bytes ? bytes - at : piece_bytes});
            count(bytes);
        }
        if (!base::is_aligned(all.offset, Upstream::alignment))
            refuse_misaligned(all);
        return all;
    }

    // Needs the lock.
    void count(std::size_t more) noexcept {
        std::size_t const now = bytes_.fetch_add(more, base::memory_order_relaxed) + more;
        base::raise(peak_bytes_, now);
    }

    // No block might fit into it, however often the upstream is asked.
    [[noreturn, gnu::noinline]] void refuse_misaligned(base::range chunk) {
        release_within(chunk);
        throw usage_error(text("weir: the upstream (") + base::name_of(Upstream::space) + " memory) handed out a chunk at " +
                          base::address_text(reinterpret_cast<void const*>(chunk.offset)) +
                          ", which is no multiple of its 'alignment' of " + base::number_text(Upstream::alignment) +
                          "; lower that constant, or let 'acquire' keep it");
    }

    bool try_release(base::range chunk) noexcept {
        void* const memory = reinterpret_cast<void*>(chunk.offset);
        if constexpr (contract::returns<bool, contract::has_release, Upstream>) {
            if (!upstream_.release(memory, chunk.bytes))
                return false;
        } else {
            upstream_.release(memory, chunk.bytes);
        }
        bytes_.fetch_sub(chunk.bytes, base::memory_order_relaxed);
        return true;
    }

    Upstream upstream_;
    base::atomic<std::size_t> limit_bytes_;
    mutable Lock lock_; // guards the two lists
    chunk_list chunks_;
    base::growing_array<base::range> refused_;
    base::atomic<std::size_t> bytes_{0};
    base::atomic<std::size_t> peak_bytes_{0};
    base::atomic<std::size_t> waits_{0};
    mutable base::atomic<std::size_t> most_bytes_{SIZE_MAX}; // of the upstream; SIZE_MAX: not asked yet, or it does not know
};

} // namespace supply
} // namespace v0
} // namespace weir
