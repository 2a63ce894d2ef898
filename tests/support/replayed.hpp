// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A recording, played once more: each call that layer::record wrote down is made on another pool, on streams of its own.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <map>
#include <memory>
#include <support/every_schedule.hpp>
#include <utility>
#include <vector>
#include <weir/runtime/stream.hpp>
#include <weir/trace/recording.hpp>

namespace support {

/// What a pool handed out: the addresses as they were recorded, and those of the replay; 0 where it refused.
struct both_addresses {
    std::vector<std::uint64_t> recorded, replayed;
};

/// `streams`: those of the replay, by their numbers in the recording; the host's are not used.
template <class Pool>
both_addresses replayed(weir::trace::recording const& from, Pool& pool, std::vector<std::unique_ptr<scoped_stream>> const& streams) {
    using weir::trace::event_kind;
    both_addresses all;
    std::map<std::uint64_t, void*> live;
    for (weir::trace::event const& each : from.events) {
        auto const number = static_cast<std::size_t>(each.stream);
        bool const on_host = from.streams[number] == 0;
        weir::stream_ref const stream = on_host ? weir::stream_ref(weir::on_host) : weir::stream_ref(*streams[number]);
        std::size_t const alignment = std::size_t{1} << each.log2_alignment;
        switch (each.kind) {
        case event_kind::allocate:
        case event_kind::refuse: {
            void* const p = pool.try_allocate(stream, each.bytes, alignment);
            all.recorded.push_back(each.address);
            all.replayed.push_back(reinterpret_cast<std::uintptr_t>(p));
            live[each.address] = p;
            break;
        }
        case event_kind::free:
            pool.deallocate(stream, live.at(each.address), each.bytes, alignment);
            live.erase(each.address);
            break;
        case event_kind::used_on:
            pool.used_on(live.at(each.address), stream);
            break;
        case event_kind::last_used_on:
            pool.last_used_on(live.at(each.address), stream);
            break;
        case event_kind::settle:
            pool.settle();
            break;
        case event_kind::trim:
            static_cast<void>(pool.trim(each.bytes));
            break;
        case event_kind::set_limit:
            pool.set_limit(each.bytes);
            break;
        default:
            break;
        }
    }
    return all;
}

} // namespace support
