// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recorded_trace.hpp"

#include "text.hpp"
#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
#include <weir/trace/recording.hpp>

namespace replay {
namespace {

using weir::trace::event_kind;
using weir::trace::recording;

constexpr std::size_t most_streams = 256;

/// Makes a trace of a recording's events.
class maker {
public:
    maker(program const& from, std::string const& path) : from_(from.what), remark_(from.remark), path_(path) {}

    trace made() {
        for (weir::trace::event const& each : from_.events) {
            bool const ends_at_address = each.kind == event_kind::allocate || each.kind == event_kind::free;
            auto const found = ends_at_address ? live_.find(each.address) : live_.end();
            if (found != live_.end()) {
                end(found->second, each);
                live_.erase(found);
            } else if (each.kind == event_kind::free) {
                ++unknown_frees_;
            }
            if (each.kind == event_kind::allocate)
                begin(each);
            count_held(each);
            if (each.kind == event_kind::begin_scope)
                open_[each.thread].push_back({each.site, each.thread, made_.events.size(), 0, 0});
            else if (each.kind == event_kind::end_scope)
                end_part(each);
        }
        if (made_.events.empty())
            throw bad_input(path_ + ": the recording has no allocations; record the program again, with the recorder started");
        made_.streams = streams_.size();
        made_.remark = remark();
        // A recording that began late lacks chunks: then nobody knows.
        if (most_held_bytes_ != 0 && most_held_bytes_ >= made_.peak_requested_bytes && !lacks_chunks_)
            made_.held = held_then{pools_text() + ", as recorded", most_held_bytes_};
        return std::move(made_);
    }

private:
    struct live_block {
        std::uint32_t block;
        std::uint64_t bytes;
        std::uint8_t stream;
    };

    void count_held(weir::trace::event const& at) {
        bool const comes = at.kind == event_kind::grow || at.kind == event_kind::extend || at.kind == event_kind::restore ||
                           at.kind == event_kind::move_to;
        bool const goes = at.kind == event_kind::give_back || at.kind == event_kind::withdraw || at.kind == event_kind::move_from;
        lacks_chunks_ = lacks_chunks_ || (goes && at.bytes > held_bytes_);
        held_bytes_ += comes ? at.bytes : 0;
        held_bytes_ -= goes ? std::min(at.bytes, held_bytes_) : 0;
        most_held_bytes_ = std::max(most_held_bytes_, held_bytes_);
        if (at.kind == event_kind::allocate && at.source != last_source_ && at.source < from_.sources.size()) {
            last_source_ = at.source;
            std::string const name = from_.sources[at.source].name.c_str();
            if (std::find(pools_.begin(), pools_.end(), name) == pools_.end())
                pools_.push_back(name);
        }
    }
    void begin(weir::trace::event const& at) {
        std::uint8_t const stream = stream_of(at);
        auto const block = static_cast<std::uint32_t>(made_.blocks++);
        live_[at.address] = {block, at.bytes, stream};
        made_.origins.push_back({at.site, at.thread});
        add({at.bytes, block, stream, stream, false}, at);
        live_bytes_ += at.bytes;
        made_.peak_requested_bytes = std::max(made_.peak_requested_bytes, live_bytes_);
    }
    void end(live_block const& of, weir::trace::event const& at) {
        // Where the free itself is not there, the block ends on its own stream.
        add({of.bytes, of.block, at.kind == event_kind::free ? stream_of(at) : of.stream, of.stream, true}, at);
        live_bytes_ -= of.bytes;
        if (std::uint32_t& thread = made_.origins[of.block].thread; thread != at.thread)
            thread = origin::several;
    }
    void end_part(weir::trace::event const& at) {
        std::vector<named_part>& open = open_[at.thread];
        while (!open.empty() && open.back().name != at.site) // its end was lost
            open.pop_back();
        if (open.empty())
            return; // its begin was
        open.back().end = made_.events.size();
        open.back().end_us = from_.ns_of(at) / 1000;
        made_.parts.push_back(open.back());
        open.pop_back();
    }
    void add(event const& one, weir::trace::event const& at) {
        made_.events.push_back(one);
        made_.microseconds.push_back(from_.ns_of(at) / 1000);
    }

    std::uint8_t stream_of(weir::trace::event const& at) {
        constexpr std::uint64_t per_thread = 2; // cudaStreamPerThread: a stream of each thread
        bool const of_thread = from_.streams[static_cast<std::size_t>(at.stream)] == per_thread;
        auto const [found, is_first] =
            streams_.try_emplace({at.stream, of_thread ? at.thread + 1 : 0}, static_cast<std::uint8_t>(streams_.size()));
        if (is_first && streams_.size() > most_streams)
            throw bad_input(path_ + ": the recording has more than the " + std::to_string(most_streams) +
                            " streams that a replay can have; record a part of the program");
        return found->second;
    }

    // 'frames', '2 pools'.
    std::string pools_text() const {
        return pools_.size() > 1 ? count_text(pools_.size(), "pool") : pools_.empty() ? "" : pools_.front();
    }

    std::string remark() const {
        std::string said = remark_;
        auto const add = [&said](std::uint64_t count, char const* one, char const* several) {
            if (count != 0)
                said += (said.empty() ? "" : "; ") + count_text(count, one, several);
        };
        add(from_.lost, "event was lost before it could be written (flush more often, or give the recorder more room)",
            "events were lost before they could be written (flush more often, or give the recorder more room)");
        add(from_.unknown, "event is of a kind that this weir does not know", "events are of kinds that this weir does not know");
        add(unknown_frees_, "free is of a block whose allocation is not in the recording",
            "frees are of blocks whose allocation is not in the recording");
        if (pools_.size() > 1)
            said += (said.empty() ? "" : "; ") + ("the blocks of " + pools_text()) + " are replayed together, through one: '" + pools_[0] +
                    "', '" + pools_[1] + (pools_.size() > 2 ? "', ..." : "'");
        return said;
    }

    recording const& from_;
    std::string const& remark_;
    std::string const& path_;
    trace made_;
    std::unordered_map<std::uint64_t, live_block> live_; // by address
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint8_t> streams_;
    std::unordered_map<std::uint32_t, std::vector<named_part>> open_; // by thread
    std::uint64_t live_bytes_ = 0;
    std::uint64_t unknown_frees_ = 0;
    std::uint64_t held_bytes_ = 0, most_held_bytes_ = 0;
    bool lacks_chunks_ = false;
    std::vector<std::string> pools_;
    std::uint64_t last_source_ = UINT64_MAX;
};

} // namespace

trace trace_of(program const& of, std::string const& path) {
    return maker(of, path).made();
}

program program_of(trace const& of) {
    program_maker maker;
    for (std::size_t i = 0; i < of.events.size(); ++i) {
        weir::trace::event one;
        one.kind = of.events[i].is_free ? event_kind::free : event_kind::allocate;
        one.ticks = (of.microseconds[i] - of.microseconds.front()) * 1000;
        one.address = of.events[i].block + 1u;
        one.bytes = of.events[i].bytes;
        one.stream = maker.stream(of.events[i].stream);
        one.thread = maker.thread(0);
        one.source = maker.source(of.name, 0);
        maker.add(one);
    }
    program made = maker.made();
    made.has_addresses = false;
    return made;
}

} // namespace replay
