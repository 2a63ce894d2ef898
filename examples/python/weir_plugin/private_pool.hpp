// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What belongs to one private pool?
//
// Its memory, who uses it, its freed blocks that other streams still use, and blocks that are not its own and that its graphs
// go on using. Those are kept until the pool ends.
//
// order:     a freed block that other streams use outside of captures is free when they have reached its free.

#include "private_memory.hpp"

#include <cstddef>
#include <memory>
#include <set>
#include <utility>
#include <vector>
#include <weir/order/graph_life.hpp>
#include <weir/runtime/capture.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/event.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir_plugin {

using pool_id = std::pair<unsigned long long, unsigned long long>; // c10::MempoolId_t

/// A block that was freed, and what may still use it. It goes back once nobody holds this any more.
template <class Owner, class Pool, class Ordinary>
struct freed_block {
    Owner& owner;
    Ordinary& home;               // the ordinary pool that it is of, if it is of one
    Pool* of;                     // null: an ordinary pool's
    bool shared;                  // with another stream of its captures
    bool captured;                // freed in a capture
    std::set<cudaStream_t> marks; // other streams that use it, outside of captures
    weir::stream_ref stream;
    void* p;
    std::size_t bytes;
};

/// `Ordinary`: the pools that blocks are of which are no private pool's. One thread at a time.
template <class Owner, class Ordinary>
class private_pool {
public:
    using freed = freed_block<Owner, private_pool, Ordinary>;

    private_pool(pool_id name, int device, chunk_source given)
        : id(name), memory(device), source(std::move(given)), device_(device) {}

    pool_id const id;
    private_memory memory;
    chunk_source source;                      // empty: the ordinary pool
    std::size_t users = 0;                    // captures and MemPools that began, and are not gone
    std::size_t blocks = 0;                   // handed out, or freed and still in use
    bool lends = false;                       // its free bytes to others, when there is no room
    std::vector<std::shared_ptr<freed>> kept; // others' blocks, until the users are gone

    std::vector<weir::order::graph_life> graphs; // of captures that ended, until they are gone

    /// Who began or held is gone.
    void release() noexcept {
        --users;
        ++released_;
    }
    /// Where a capture failed, its user is gone with its graph, and nobody says so (PyTorch 2.13). Others are released before
    /// their graphs go: so it is known how many graphs at least were of no release.
    void drop_failed() noexcept {
        for (std::size_t i = graphs.size(); i-- > 0;)
            if (graphs[i].is_over()) {
                graphs.erase(graphs.begin() + static_cast<std::ptrdiff_t>(i));
                ++gone_;
            }
        for (; gone_ > released_ && users != 0; has_failed_ = true)
            release();
    }
    /// Whether nobody uses it. If a capture failed, no other graph is there either: a release that came late was not its.
    bool is_unused() const noexcept { return users == 0 && (!has_failed_ || graphs.empty()); }

    /// Whether blocks that were freed wait for something.
    bool keeps() const noexcept { return !kept.empty() || !used_.empty(); }

    /// Takes back a block of its own. Throws cuda_error, std::bad_alloc; the bytes then stay unused.
    void take_back(freed& gone) {
        weir::base::range const bytes{reinterpret_cast<std::size_t>(gone.p), private_memory::rounded(gone.bytes)};
        if (!gone.marks.empty())
            return wait_for_marks(gone, bytes);
        if (gone.shared && gone.captured)
            memory.give_to_next(bytes);
        else
            memory.give(gone.stream.get(), gone.captured, bytes);
        --blocks;
    }
    /// Takes back the blocks whose other uses are over; with `waits`, all, and blocks for it. Breaks no capture. Throws
    /// cuda_error, std::bad_alloc; the rest stays for the next call.
    void give_reached(bool waits = false) {
        if (used_.empty())
            return;
        if (waits)
            wait();
        weir::runtime::capture_mode_scope const relaxed;
        for (std::size_t i = used_.size(); i-- > 0;) {
            bool over = waits || !used_[i].untold;
            for (weir::runtime::event const& each : used_[i].until)
                over = over && (waits || each.reached());
            if (!over)
                continue;
            memory.give(used_[i].stream, true, used_[i].bytes); // what was outside of captures was waited for
            --blocks;
            used_.erase(used_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

private:
    struct used_block {
        cudaStream_t stream;
        weir::base::range bytes;
        std::vector<weir::runtime::event> until;
        bool untold; // no event tells of some use: only a wait for all devices does
    };

    void wait() {
        bool untold = false;
        weir::runtime::capture_mode_scope const relaxed;
        for (used_block const& each : used_) {
            untold = untold || each.untold;
            for (weir::runtime::event const& event : each.until)
                event.synchronize();
        }
        if (untold)
            weir::runtime::wait_for_device(weir::any_device);
    }
    void wait_for_marks(freed& gone, weir::base::range bytes) {
        if (!gone.captured)
            gone.marks.insert(gone.stream.get());
        used_.reserve(used_.size() + 1);
        used_block used{gone.stream.get(), bytes, {}, false};
        for (cudaStream_t each : gone.marks)
            try {
                bool const is_clear = !weir::runtime::is_default_stream(each) || !weir::runtime::may_have_several_devices();
                weir::runtime::event end(is_clear ? weir::runtime::device_of(each) : device_);
                if (is_clear)
                    end.record(each);
                used.until.push_back(std::move(end));
                used.untold = used.untold || !is_clear; // a default stream of which device?
            } catch (...) {
                used.untold = true;
            }
        used_.push_back(std::move(used));
    }

    int device_;
    std::vector<used_block> used_;
    std::size_t gone_ = 0, released_ = 0; // graphs; users
    bool has_failed_ = false;             // some capture
};

} // namespace weir_plugin
