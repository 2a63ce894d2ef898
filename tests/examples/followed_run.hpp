// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a program hold that follows an advice?
//
// The trace's allocations and frees are made by weir's pools, and CUDA is asked what is gone, not the pools and
// not replay's ledger. A slab is followed for blocks of some sizes, since its size is a template argument.

#include "../../examples/replay/advice.hpp"
#include "../../examples/replay/own_parts.hpp"
#include <algorithm>
#include <cuda_runtime_api.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/fixed.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/order/order_after.hpp>
#include <weir/placement/arena.hpp>
#include <weir/placement/slab.hpp>
#include <weir/pool/pool.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes/general_placement.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/runtime/check.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace advice_tests {

// The recipes' parts, and not the recipes: weir_pools.cpp has those as another version of weir, and a program has those of one.
template <class Handover, class Growth>
using mapped_pool = weir::pool<weir::upstream::virtual_memory<>, weir::recipes::general_placement,
                               weir::reuse::stream_ordered<weir::identity::checked, Handover>, Growth>;
struct compact_whole : weir::growth::paged_tuning {
    static constexpr std::size_t usual_chunks = 128;
    static constexpr std::size_t least_bytes = 2 * weir::MiB;
};
struct compact_filled : compact_whole {
    static constexpr std::size_t usual_chunks = 256;
};
struct compact_holed : compact_whole {
    static constexpr std::size_t usual_chunks = 512;
};
struct compact_growth : weir::growth::by_holes_tuning {
    using whole = weir::growth::paged<compact_whole>;
    using filled = weir::growth::paged<compact_filled>;
    using holed = weir::growth::paged<compact_holed>;
    static constexpr unsigned moved_percent = 200;
};
struct frame_growth : weir::growth::geometric_tuning {
    static constexpr unsigned share_percent = 100;
    static constexpr std::size_t exact_bytes = 256 * weir::MiB;
};
using device_pool = mapped_pool<weir::handover::grow_first, weir::growth::by_holes<>>;
using compact_device_pool = mapped_pool<weir::handover::wait_first, weir::growth::by_holes<compact_growth>>;
using wait_first_pool = mapped_pool<weir::handover::wait_first, weir::growth::by_holes<>>;
using frame_pool = weir::pool<weir::upstream::device, weir::placement::arena, weir::reuse::immediate, weir::growth::geometric<frame_growth>>;

struct held {
    std::uint64_t peak_bytes = 0;
    double mean_bytes = 0; ///< over the trace's time
    std::uint64_t refused = 0;
};

inline std::uint64_t free_bytes() {
    std::size_t free = 0, total = 0;
    weir::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
}

/// A program's memory: most of its blocks come from `Rest`, some from a pool of their own.
template <class Rest, class Own>
class followed_run {
public:
    followed_run(replay::trace const& of, Rest& rest, Own& own, std::vector<bool> const& apart)
        : of_(of), rest_(rest), own_(own), apart_(apart) {
        for (std::size_t i = 0; i < of.streams; ++i)
            weir::check_cuda(cudaStreamCreateWithFlags(&streams_.emplace_back(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    ~followed_run() {
        for (cudaStream_t const each : streams_)
            static_cast<void>(cudaStreamDestroy(each));
    }
    followed_run(followed_run const&) = delete;
    followed_run& operator=(followed_run const&) = delete;

    /// `at_border` is called where a part of the program begins or ends.
    template <class AtBorder>
    held go(std::vector<replay::border> const& borders, AtBorder&& at_border) {
        std::uint64_t const before = free_bytes(), first = of_.microseconds.front();
        held out;
        std::uint64_t now = 0, last = first;
        auto const until = [&](std::uint64_t us) {
            out.mean_bytes += static_cast<double>(now) * static_cast<double>(std::max(us, last) - last);
            last = std::max(us, last);
        };
        std::vector<void*> blocks(of_.blocks, nullptr);
        std::size_t next = 0;
        for (std::size_t i = 0; i < of_.events.size(); ++i) {
            replay::event const& e = of_.events[i];
            for (; next != borders.size() && borders[next].event <= i; ++next) {
                at_border(borders[next]);
                if (borders[next].is_end) {
                    until(borders[next].us);
                    now = before - free_bytes();
                }
            }
            cudaStream_t const stream = streams_[e.stream];
            if (!e.is_free) {
                blocks[e.block] = is_apart(e) ? own_.try_allocate(stream, e.bytes) : rest_.try_allocate(stream, e.bytes);
                out.refused += blocks[e.block] == nullptr && e.bytes != 0;
            } else if (void* const block = std::exchange(blocks[e.block], nullptr)) {
                if (e.stream != e.allocated_on)
                    weir::order_after(stream, streams_[e.allocated_on]);
                give_back(e, stream, block);
            }
            until(of_.microseconds[i]);
            now = before - free_bytes();
            out.peak_bytes = std::max(out.peak_bytes, now);
        }
        for (replay::event const& e : of_.events)
            if (void* const block = e.is_free ? nullptr : std::exchange(blocks[e.block], nullptr))
                give_back(e, streams_[e.stream], block);
        out.mean_bytes /= static_cast<double>(std::max<std::uint64_t>(last - first, 1));
        return out;
    }

private:
    bool is_apart(replay::event const& e) const { return !apart_.empty() && apart_[e.block]; }
    void give_back(replay::event const& e, cudaStream_t stream, void* block) {
        if (is_apart(e))
            own_.deallocate(stream, block, e.bytes);
        else
            rest_.deallocate(stream, block, e.bytes);
    }

    replay::trace const& of_;
    Rest& rest_;
    Own& own_;
    std::vector<bool> const apart_;
    std::vector<cudaStream_t> streams_;
};

template <class Pool>
held run_with(replay::trace const& of, weir::pool_options const& options = {}) {
    Pool pool(options);
    return followed_run<Pool, Pool>(of, pool, pool, {}).go({}, [](replay::border const&) {});
}

template <std::size_t Bytes>
held run_with_slab(replay::trace const& of, replay::one_size const& size) {
    using slab = weir::pool<weir::upstream::virtual_memory<>, weir::placement::slab<Bytes>, weir::reuse::stream_ordered<>,
                            weir::growth::fixed<4 * weir::MiB>>;
    device_pool rest;
    slab own;
    return followed_run<device_pool, slab>(of, rest, own, size.blocks).go({}, [](replay::border const&) {});
}

inline std::optional<held> run_with_slab_of(replay::trace const& of, std::size_t bytes) {
    for (replay::one_size const& each : replay::sizes_in(of, 16)) {
        if (each.slab_bytes != bytes)
            continue;
        switch (bytes) {
        case 33 * 1024: return run_with_slab<33 * 1024>(of, each);
        case 2048: return run_with_slab<2048>(of, each);
        default: return {};
        }
    }
    return {};
}

inline held run_with_frames(replay::trace const& of, replay::frame_sites const& sites) {
    device_pool rest;
    frame_pool own;
    std::vector<std::unique_ptr<weir::scope<frame_pool>>> scopes;
    return followed_run<device_pool, frame_pool>(of, rest, own, sites.blocks).go(sites.borders, [&](replay::border const& at) {
        if (at.is_end)
            scopes.pop_back();
        else
            scopes.push_back(std::make_unique<weir::scope<frame_pool>>(own));
    });
}

inline held run_with_ends(replay::trace const& of, replay::part_ends const& part, bool settles, bool trims) {
    device_pool pool;
    return followed_run<device_pool, device_pool>(of, pool, pool, {}).go(part.borders, [&](replay::border const& at) {
        if (at.is_end && settles)
            pool.settle();
        if (at.is_end && trims)
            pool.trim();
    });
}

/// What the program holds that follows the advice; none: it cannot be followed here.
inline std::optional<held> follow(replay::trace const& of, replay::advice const& what) {
    auto const says = [&](std::string const& text) { return what.what.find(text) != std::string::npos; };
    switch (what.kind) {
    case replay::advice_kind::recipe:
        return run_with<compact_device_pool>(of);
    case replay::advice_kind::limit:
        return run_with<device_pool>(of, weir::pool_options{}.limit(what.bytes));
    case replay::advice_kind::slab:
        return run_with_slab_of(of, what.bytes);
    case replay::advice_kind::frames:
        for (replay::frame_sites const& each : replay::frames_in(of, 16))
            if (says(each.sites.front()) && (each.part.empty() ? !says("weir::scope") : says("'" + each.part + "'")))
                return run_with_frames(of, each);
        return {};
    case replay::advice_kind::part_end:
        for (replay::part_ends const& each : replay::ends_in(of, std::vector<std::uint64_t>(of.events.size()), 16))
            if (says("'" + each.part + "'"))
                return run_with_ends(of, each, says("settle()"), says("trim()"));
        return {};
    case replay::advice_kind::wait_first:
        return run_with<wait_first_pool>(of);
    }
    return {};
}

} // namespace advice_tests
