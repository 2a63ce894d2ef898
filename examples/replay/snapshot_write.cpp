// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "document.hpp"
#include "json.hpp"
#include "pickle.hpp"
#include "program.hpp"
#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

// PyTorch's memory_viz goes back from the end: each block must lie in a segment at every moment. Where the recording does not
// say what the pool held, or what it says does not hold all blocks, a segment is what blocks ever lay on, in steps of 2 MiB.

namespace replay {
namespace {

using weir::trace::event;
using weir::trace::event_kind;

constexpr std::uint64_t page = 2 * 1024 * 1024;
constexpr std::uint64_t most_address = std::uint64_t{1} << 53; // what JavaScript counts exactly

std::uint64_t taken_by(event const& one) {
    return std::max<std::uint64_t>(one.bytes + (one.extra_bytes == weir::trace::unknown_extra ? 0 : one.extra_bytes), 1);
}

/// Pieces of addresses, none on another: from the first to behind the last.
using pieces = std::map<std::uint64_t, std::uint64_t>;

void join(pieces& all, std::uint64_t from, std::uint64_t to) {
    auto at = all.upper_bound(from);
    if (at != all.begin() && std::prev(at)->second >= from)
        --at;
    while (at != all.end() && at->first <= to) {
        from = std::min(from, at->first);
        to = std::max(to, at->second);
        at = all.erase(at);
    }
    all[from] = to;
}
bool holds(pieces const& all, std::uint64_t from, std::uint64_t to) {
    auto const at = all.upper_bound(from);
    return at != all.begin() && std::prev(at)->second >= to;
}
void cut(pieces& all, std::uint64_t from, std::uint64_t to) {
    auto at = all.lower_bound(from);
    if (at != all.begin() && std::prev(at)->second > from)
        --at;
    while (at != all.end() && at->first < to) {
        auto const [first, end] = *at;
        at = all.erase(at);
        if (first < from)
            all[first] = from;
        if (end > to)
            all[to] = end;
    }
}

bool is_growth(event_kind what) {
    return what == event_kind::grow || what == event_kind::extend || what == event_kind::restore || what == event_kind::move_to;
}
bool is_shrinking(event_kind what) {
    return what == event_kind::give_back || what == event_kind::withdraw || what == event_kind::move_from;
}

class snapshot_writer {
public:
    explicit snapshot_writer(program const& of) : of_(of) {
        for (std::size_t i = 0; i < of.what.frames.size() + 1; ++i)
            stacks_.emplace_back();
    }

    value made(document& to) {
        to_ = &to;
        std::size_t devices = 1;
        for (weir::trace::source const& each : of_.what.sources)
            devices = std::max(devices, static_cast<std::size_t>(std::max(each.device, 0)) + 1);
        value const root = to.dictionary(), segments = to.list(), traces = to.list(), notes = to.list();
        for (std::size_t device = 0; device < devices; ++device) {
            value const trace = to.list();
            add_device(device, segments, trace);
            traces.own_list().push_back(trace);
        }
        for (event const& each : of_.what.events)
            if (each.kind == event_kind::begin_scope || each.kind == event_kind::end_scope)
                note(notes, each);
        put(root, "segments", segments);
        put(root, "device_traces", traces);
        put(root, "external_annotations", notes);
        put(root, "allocator_settings", to.dictionary());
        return root;
    }

private:
    struct block {
        event at;
        std::uint64_t from, to;
    };

    value name(char const* text) {
        auto const [found, is_new] = names_.try_emplace(text, nullptr);
        if (is_new)
            found->second = &to_->keep(text);
        return value(*found->second);
    }
    void put(value const& in, char const* as, value const& what) { in.own_dictionary().emplace_back(&name(as).text(), what); }
    void put(value const& in, char const* as, std::uint64_t what) { put(in, as, value::of(static_cast<std::int64_t>(what))); }

    std::size_t device_of(event const& one) const {
        return one.source < of_.what.sources.size()
                   ? static_cast<std::size_t>(std::max(of_.what.sources[one.source].device, 0))
                   : 0;
    }
    std::uint64_t handle_of(event const& one) const {
        return of_.what.streams[static_cast<std::size_t>(one.stream)] % most_address;
    }
    std::uint64_t us_of(event const& one) const { return of_.what.first.wall_ns / 1000 + of_.what.ns_of(one) / 1000; }
    // A block of a recording without addresses lies behind all others.
    std::uint64_t address_of(event const& one) {
        if (of_.has_addresses)
            return one.address % most_address;
        if (one.kind == event_kind::allocate) {
            placed_[one.address] = next_;
            next_ += (taken_by(one) + 511) / 512 * 512;
        }
        return placed_[one.address];
    }

    value frames_of(event const& one) {
        value& known = stacks_[one.site < stacks_.size() ? one.site : 0];
        if (!known.is_nothing())
            return known;
        known = to_->list();
        for (std::uint32_t at = one.site; at != 0; at = of_.what.frames[at - 1].caller) {
            weir::trace::frame const& frame = of_.what.frames[at - 1];
            value const made = to_->dictionary();
            put(made, "filename", to_->text(frame.file.c_str()));
            put(made, "line", frame.line);
            put(made, "name", to_->text(frame.function.c_str()));
            known.own_list().push_back(made);
        }
        return known;
    }

    value entry(char const* action, event const& one, std::uint64_t address, std::uint64_t bytes) {
        value const made = to_->dictionary();
        put(made, "action", name(action));
        put(made, "addr", address);
        put(made, "size", bytes);
        put(made, "stream", handle_of(one));
        put(made, "time_us", us_of(one));
        put(made, "frames", frames_of(one));
        return made;
    }

    // Whether the recording's own chunks hold each block at every moment.
    bool chunks_hold_all(std::size_t device) {
        pieces held;
        bool any = false;
        for (event const& each : of_.what.events) {
            if (device_of(each) != device)
                continue;
            if (is_growth(each.kind))
                join(held, each.address, each.address + each.bytes);
            else if (is_shrinking(each.kind))
                cut(held, each.address, each.address + each.bytes);
            else if (each.kind == event_kind::allocate && !holds(held, each.address, each.address + taken_by(each)))
                return false;
            any = any || each.kind == event_kind::allocate;
        }
        return any && of_.has_addresses;
    }

    void add_device(std::size_t device, value const& segments, value const& trace) {
        bool const has_chunks = chunks_hold_all(device);
        pieces held;
        std::map<std::uint64_t, block> live;
        auto const add = [&](value const& one) { trace.own_list().push_back(one); };
        auto const end_of = [&](std::map<std::uint64_t, block>::iterator at, event const& when) {
            add(entry("free_requested", when, at->first, at->second.at.bytes));
            add(entry("free_completed", when, at->first, at->second.at.bytes));
            return live.erase(at);
        };
        for (event const& each : of_.what.events) {
            if (device_of(each) != device)
                continue;
            if (has_chunks && is_growth(each.kind)) {
                held[each.address] = each.address + each.bytes;
                add(entry("segment_alloc", each, each.address, each.bytes));
            } else if (has_chunks && is_shrinking(each.kind)) {
                release(held, each, add);
            } else if (each.kind == event_kind::allocate) {
                std::uint64_t const from = address_of(each), to = from + taken_by(each);
                auto below = live.lower_bound(from); // what the recording lost the free of
                if (below != live.begin() && std::prev(below)->second.to > from)
                    --below;
                while (below != live.end() && below->first < to)
                    below = end_of(below, each);
                add(entry("alloc", each, from, each.bytes));
                live[from] = {each, from, to};
                if (!has_chunks)
                    join(held, from / page * page, (to + page - 1) / page * page);
            } else if (each.kind == event_kind::free) {
                if (auto const found = live.find(address_of(each)); found != live.end())
                    end_of(found, each);
            } else if (each.kind == event_kind::refuse) {
                value const one = entry("oom", each, 0, each.bytes);
                put(one, "device_free", 0);
                add(one);
            }
        }
        for (auto const& [from, to] : held)
            segments.own_list().push_back(segment(device, from, to, live));
    }
    // Each segment goes back as it came, whatever part of it the recording says went first.
    template <class Add>
    void release(pieces& held, event const& one, Add const& add) {
        std::uint64_t const end = one.address + one.bytes;
        auto at = held.upper_bound(one.address);
        if (at != held.begin() && std::prev(at)->second > one.address)
            --at;
        while (at != held.end() && at->first < end) {
            auto const [from, to] = *at;
            at = held.erase(at);
            add(entry("segment_free", one, from, to - from));
            if (from < one.address) {
                held[from] = one.address;
                add(entry("segment_alloc", one, from, one.address - from));
            }
            if (to > end) {
                held[end] = to;
                add(entry("segment_alloc", one, end, to - end));
            }
        }
    }

    value segment(std::size_t device, std::uint64_t from, std::uint64_t to, std::map<std::uint64_t, block> const& live) {
        value const made = to_->dictionary(), blocks = to_->list();
        std::uint64_t at = from, active = 0, requested = 0, stream = 0;
        auto const add = [&](std::uint64_t end, event const* of) {
            value const one = to_->dictionary();
            put(one, "address", at);
            put(one, "size", end - at);
            put(one, "requested_size", of ? of->bytes : 0);
            put(one, "state", name(of ? "active_allocated" : "inactive"));
            put(one, "frames", of ? frames_of(*of) : to_->list());
            blocks.own_list().push_back(one);
            at = end;
        };
        for (auto each = live.lower_bound(from); each != live.end() && each->first < to; ++each) {
            if (each->first > at)
                add(each->first, nullptr);
            add(std::min(each->second.to, to), &each->second.at);
            active += each->second.to - each->second.from;
            requested += each->second.at.bytes;
            stream = handle_of(each->second.at);
        }
        if (at < to)
            add(to, nullptr);
        put(made, "device", device);
        put(made, "address", from);
        put(made, "total_size", to - from);
        put(made, "allocated_size", active);
        put(made, "active_size", active);
        put(made, "requested_size", requested);
        put(made, "stream", stream);
        put(made, "segment_type", name("large"));
        put(made, "is_expandable", value::of(false));
        put(made, "frames", to_->list());
        put(made, "blocks", blocks);
        return made;
    }

    void note(value const& notes, event const& one) {
        if (one.site == 0)
            return;
        value const made = to_->dictionary();
        put(made, "device", device_of(one));
        put(made, "stage", name(one.kind == event_kind::begin_scope ? "START" : "END"));
        put(made, "name", to_->text(of_.what.frames[one.site - 1].function.c_str()));
        put(made, "time_us", us_of(one));
        notes.own_list().push_back(made);
    }

    program const& of_;
    document* to_ = nullptr;
    std::map<std::string, std::string const*> names_;
    std::vector<value> stacks_; // by the number of the innermost frame
    std::map<std::uint64_t, std::uint64_t> placed_;
    std::uint64_t next_ = page;
};

} // namespace

std::string as_snapshot_json(program const& of) {
    document all;
    return as_json(snapshot_writer(of).made(all)) + '\n';
}

std::string as_snapshot_pickle(program const& of) {
    document all;
    return as_pickle(snapshot_writer(of).made(all));
}

} // namespace replay
