// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do vectors that never move get their memory from?
//
// From a pool of pages: physical memory in pieces of one size. A stable_vector reserves addresses for all that it may ever
// hold, and the pool maps pages behind them as the vector grows. So it grows without a copy, and its address stays: kernels'
// arguments and captured graphs remain valid. A page that a vector gives back goes to another one by mapping it anew. It is
// free for that once the work that used it is over; an event on the vector's stream tells.
//
//     weir::stable::page_pool pages(weir::stable::page_pool_options{}.limit(8 * weir::GiB));
//     weir::stable_vector<float> xs(pages, stream);
//     float* const more = xs.append(1000);               // 1000 floats behind the others, which stayed where they were
//
// invariant: no mapping is changed while work that was ordered before the page's give-back uses it. What a vector lost when it
//            shrank must not be used by work that is enqueued later, as with any container.
// invariant: reserved_bytes <= limit; a failed call leaves vectors, their pages and who may use them as they were.
// order:     growing is the host's doing and is in no stream's order; so it may be done while a graph is captured, which then
//            finds the memory there. What is given back while a stream is captured stays the pool's until the graph is gone.
// cost:      35 to 50 us for each page that is made or moved. Growing into pages that were given back by the same vector, or by
//            one that ended and had as many elements at most, makes no driver call.
// not for:   many small blocks: each vector has whole pages of its own. A device that cannot map memory.

#include <cstddef>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/shared.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/stable/page_pool/page_core.hpp>
#include <weir/stable/page_pool_options.hpp>

namespace weir {
inline namespace v0 {
namespace stable {

namespace detail {
class mapped_span;
} // namespace detail

/// Pages of one device's memory. A copy is another name for the same pool, and so is the one that a vector keeps: the pool ends
/// with the last of them, and then waits for work that uses what was given back. Any thread may call any member.
class page_pool {
public:
    static constexpr memory_space space = memory_space::device;

    /// Holds no memory yet. Throws usage_error for a page size that is none, a device that there is not, and a device that
    /// cannot map memory; cuda_error; std::bad_alloc.
    explicit page_pool(page_pool_options const& options = {}) : core_(base::shared<detail::page_core>::make(options)) {}

    /// Lets kernels of device `peer` use all pages, those that are there and those to come. See
    /// upstream::virtual_memory::enable_access_from, also for what it throws.
    page_pool& enable_access_from(int peer) {
        core_->enable_access_from(peer);
        return *this;
    }

    /// Gives pages that no work uses back to the device until the pool holds at most `kept_bytes` bytes. Returns how many bytes
    /// went. Never waits. Throws cuda_error.
    std::size_t trim(std::size_t kept_bytes = 0) { return core_->trim(kept_bytes); }

    /// Blocks until no work uses what was given back before the call, except what graphs may use. Throws cuda_error.
    void settle() { core_->settle(); }

    /// The size of a page, in bytes.
    std::size_t page_bytes() const noexcept { return core_->page_bytes(); }
    std::size_t limit_bytes() const noexcept { return core_->options().limit_bytes(); }
    /// The number of the device.
    int device() const noexcept { return core_->device(); }
    text const& name() const noexcept { return core_->options().name(); }

    /// What is in use by vectors, held, and lost to graphs; a block is a vector that is awake, a chunk a page.
    /// 'unsettled_bytes': given back, and work may still use them. Never blocks. Throws cuda_error, std::bad_alloc.
    memory_report state() const { return core_->state(); }
    std::size_t in_use_bytes() const { return state().in_use_bytes; }
    std::size_t reserved_bytes() const { return state().reserved_bytes; }
    /// The same as text, in a line, with how many vectors sleep. Throws as 'state'.
    text report() const {
        std::size_t const asleep = core_->asleep();
        return resource::report_text(state(), base::name_of(space)) +
               (asleep == 0 ? text() : ", " + base::number_text(asleep) + " asleep");
    }

    friend bool operator==(page_pool const& a, page_pool const& b) noexcept { return a.core_ == b.core_; }
    friend bool operator!=(page_pool const& a, page_pool const& b) noexcept { return !(a == b); }

private:
    friend class detail::mapped_span;

    base::shared<detail::page_core> core_;
};

} // namespace stable
} // namespace v0
} // namespace weir
