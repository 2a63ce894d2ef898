// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "counted_weir.hpp"
#include "counted_session.hpp"
#include "tried_pool.hpp"

#include <optional>
#include <unordered_set>

namespace replay {
namespace {

/// placement::slab whose size is known when the program runs. One at a time: the size is the class's.
class chosen_slab {
    using range = weir::base::range;

public:
    static constexpr std::size_t granularity = 512;
    static inline std::size_t block_bytes = 2 * granularity; ///< a multiple of it, and more

    static constexpr std::size_t rounded(std::size_t bytes, std::size_t alignment) noexcept {
        if (bytes == 0 || alignment > granularity)
            return 0;
        return bytes <= granularity ? granularity : bytes > block_bytes ? 0 : block_bytes; // the compiler asks for one byte
    }
    static std::size_t needs(std::size_t bytes, std::size_t alignment, std::size_t base_alignment) noexcept {
        return weir::base::with_slack(rounded(bytes, alignment), granularity, base_alignment);
    }
    range take(std::size_t bytes, std::size_t alignment) noexcept {
        if (rounded(bytes, alignment) == 0 || free_.empty())
            return {};
        std::size_t const offset = free_.back();
        free_.pop_back();
        return {offset, block_bytes};
    }
    void give(range block) { free_.push_back(block.offset); }
    void add(range fresh) {
        for (std::size_t at = first_in(fresh) + blocks_in(fresh) * block_bytes; at != first_in(fresh);)
            free_.push_back(at -= block_bytes); // the first is handed out first
    }
    bool remove(range wanted) noexcept {
        std::size_t found = 0, kept = 0;
        for (std::size_t const offset : free_)
            found += wanted.contains(offset);
        if (found != blocks_in(wanted))
            return false;
        for (std::size_t const offset : free_)
            if (!wanted.contains(offset))
                free_[kept++] = offset;
        free_.resize(kept);
        return true;
    }
    chosen_slab sibling() const { return {}; }
    void absorb(chosen_slab& other) {
        if (&other == this)
            return;
        free_.insert(free_.end(), other.free_.begin(), other.free_.end());
        other.free_.clear();
    }
    range lend(std::size_t bytes, std::size_t alignment) noexcept { return take(bytes, alignment); }
    std::size_t free_bytes() const noexcept { return free_.size() * block_bytes; }
    std::size_t largest() const noexcept { return free_.empty() ? 0 : block_bytes; }

private:
    static std::size_t first_in(range of) noexcept { return weir::base::align_up(of.offset, granularity); }
    static std::size_t blocks_in(range of) noexcept { return first_in(of) > of.end() ? 0 : (of.end() - first_in(of)) / block_bytes; }

    std::vector<std::size_t> free_;
};

using slab_pool = weir::pool<weir::upstream::virtual_memory<>, chosen_slab, weir::reuse::stream_ordered<>,
                             weir::growth::fixed<4 * weir::MiB>>;
using wait_first = weir::recipes::general_device_pool<
    weir::reuse::stream_ordered<weir::identity::checked, weir::handover::wait_first>>;

class steered_session final : public session_of<steered_session> {
public:
    steered_session(std::unique_ptr<session> base, trace const& what, plan const& how)
        : what_(what), how_(how), base_(std::move(base)), book_(*base_->shared_book()) {
        chosen_slab::block_bytes = how.slab_bytes != 0 ? how.slab_bytes : chosen_slab::block_bytes;
        if (!how.apart.empty() && how.slab_bytes != 0)
            slab_.emplace(count_upstream<slab_pool>::upstream(book_), weir::pool_options{}.name("slab"));
        else if (!how.apart.empty())
            frames_.emplace(count_upstream<weir::frame_pool>::upstream(book_), weir::pool_options{}.name("frames"));
    }

    std::optional<std::uint64_t> before(std::size_t event) override {
        std::optional<std::uint64_t> when;
        for (; next_ != how_.borders.size() && how_.borders[next_].event <= event; ++next_)
            if (pass(how_.borders[next_]))
                when = how_.borders[next_].us;
        goes_apart_ = !how_.apart.empty() && how_.apart[what_.events[event].block];
        return when;
    }

    void* allocate(cudaStream_t stream, std::size_t bytes) {
        if (!goes_apart_)
            return base_->watched_allocate(stream, bytes);
        void* const block = slab_ ? slab_->try_allocate(stream, bytes) : frames_->try_allocate(stream, bytes);
        if (block)
            apart_.insert(block);
        return block;
    }
    void deallocate(cudaStream_t stream, void* p, std::size_t bytes) noexcept {
        if (apart_.erase(p) == 0)
            base_->watched_deallocate(stream, p, bytes);
        else if (slab_)
            slab_->deallocate(stream, p, bytes);
        else
            frames_->deallocate(stream, p, bytes);
    }
    void order_free(cudaStream_t freeing, cudaStream_t allocating) override { base_->order_free(freeing, allocating); }

    std::size_t handed_out_bytes() const override {
        return base_->handed_out_bytes() + (slab_ ? slab_->in_use_bytes() : frames_ ? frames_->in_use_bytes() : 0);
    }
    std::size_t reserved_bytes() const override { return book_.reserved_bytes(); }
    ledger const& book() const override { return book_; }

private:
    using frames = counted_pool<weir::frame_pool>;

    /// Whether the pool settled or was trimmed there.
    bool pass(border const& here) {
        if (frames_ && !here.is_end) {
            marks_.push_back(frames_->mark());
        } else if (frames_ && !marks_.empty()) {
            frames_->rewind(marks_.back());
            marks_.pop_back();
        }
        if (!here.is_end || !(how_.settles || how_.trims))
            return false;
        if (how_.settles)
            base_->settle();
        if (how_.trims)
            base_->trim();
        return true;
    }

    trace const& what_;
    plan const& how_;
    std::unique_ptr<session> base_;
    ledger& book_;
    std::optional<counted_pool<slab_pool>> slab_;
    std::optional<frames> frames_;
    std::vector<decltype(std::declval<frames&>().mark())> marks_;
    std::unordered_set<void*> apart_;
    std::size_t next_ = 0;
    bool goes_apart_ = false;
};

} // namespace

contender steered(contender const& base, trace const& what, plan const& how) {
    return {base.name, base.what,
            [open = base.open, &what, &how](std::size_t limit_bytes) -> std::unique_ptr<session> {
                return std::make_unique<steered_session>(open(limit_bytes), what, how);
            },
            true};
}

contender const& wait_first_pool() {
    static contender const pool{"wait_first", "device_pool with handover::wait_first",
                                [](std::size_t limit_bytes) -> std::unique_ptr<session> {
                                    return std::make_unique<pool_over_upstream<wait_first>>(
                                        weir::pool_options{}.limit(limit_bytes).name("wait_first"));
                                },
                                true};
    return pool;
}

} // namespace replay
