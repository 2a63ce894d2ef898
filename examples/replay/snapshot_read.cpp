// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "document.hpp"
#include "json.hpp"
#include "pickle.hpp"
#include "program.hpp"
#include "trace.hpp"
#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

namespace replay {
namespace {

using weir::trace::event_kind;

/// A snapshot has the state at its end, and what led there; so what was there before is found by going back.
class snapshot_reader {
public:
    snapshot_reader(value const& root, std::string const& path) : root_(root), path_(path), maker_(began(root) * 1000) {}

    program read() {
        if (root_.is_list())
            refuse("this snapshot is of a PyTorch before 2.0, which kept no history; take it with a newer one");
        value const traces = root_["device_traces"];
        if (!traces.is_list() || !root_["segments"].is_list())
            refuse("this is no snapshot of torch.cuda.memory: it lacks 'segments' or 'device_traces'; give what "
                   "torch.cuda.memory._dump_snapshot wrote");
        std::vector<value::list const*> devices;
        for (value const& each : traces.elements())
            devices.push_back(&each.elements());
        if (std::all_of(devices.begin(), devices.end(), [](value::list const* each) { return each->empty(); }))
            refuse("this snapshot has no history; call torch.cuda.memory._record_memory_history() at the program's start");
        for (std::size_t device = 0; device < devices.size(); ++device)
            put_what_was_there(device, *devices[device]);
        put_events(devices);
        program made = maker_.made();
        made.what.unknown = unknown_;
        return made;
    }

private:
    struct piece {
        std::uint64_t bytes;
        std::uint64_t stream;
        std::uint32_t site;
    };

    [[noreturn]] void refuse(std::string const& sentence) const { throw bad_input(path_ + ": " + sentence); }

    static std::uint64_t began(value const& root) {
        std::uint64_t first = UINT64_MAX;
        value const devices = root["device_traces"];
        for (value const& device : devices.elements())
            if (!device.elements().empty())
                first = std::min(first, device.elements().front()["time_us"].number());
        return first == UINT64_MAX ? 0 : first;
    }

    std::uint64_t address_of(value const& one, char const* name) const {
        value const at = one[name];
        if (at.what() != value::type::integer)
            refuse(std::string("an entry of the snapshot has no '") + name +
                   "'; it was written by another version of PyTorch than is known here, or damaged");
        return at.number();
    }

    std::uint32_t site_of(value const& one) {
        value const frames = one["frames"];
        if (frames.elements().empty())
            return 0;
        auto const [found, is_new] = sites_.try_emplace(&frames.elements(), 0);
        if (is_new) {
            std::uint32_t caller = 0;
            for (std::size_t i = frames.elements().size(); i-- != 0;) { // the innermost comes first
                value const& each = frames.elements()[i];
                caller = maker_.frame(caller, each["filename"].text(), each["name"].text(),
                                      static_cast<std::uint32_t>(each["line"].number()));
            }
            found->second = caller;
        }
        return found->second;
    }

    weir::trace::event event_of(event_kind kind, std::size_t device, std::uint64_t address, piece const& what) {
        weir::trace::event one;
        one.kind = kind;
        one.address = address;
        one.bytes = what.bytes;
        one.stream = maker_.stream(what.stream);
        one.thread = maker_.thread(0);
        one.source = maker_.source("PyTorch", static_cast<int>(device));
        one.site = what.site;
        if (kind == event_kind::allocate)
            one.extra_bytes = static_cast<std::uint32_t>((512 - what.bytes % 512) % 512); // the least that it rounds up to
        return one;
    }

    void put_what_was_there(std::size_t device, value::list const& history) {
        std::map<std::uint64_t, piece> segments, blocks; // at the end, and by and by earlier
        value const every = root_["segments"];
        for (value const& segment : every.elements()) {
            if (segment["device"].number() != device)
                continue;
            std::uint64_t at = address_of(segment, "address");
            std::uint64_t const stream = segment["stream"].number();
            segments[at] = {segment["total_size"].number(), stream, 0};
            value const inside = segment["blocks"];
            for (value const& block : inside.elements()) {
                if (block["state"].text() == "active_allocated") {
                    value const asked = block["requested_size"];
                    blocks[at] = {(asked.is_nothing() ? block["size"] : asked).number(), stream, site_of(block)};
                }
                at += block["size"].number();
            }
        }
        for (std::size_t i = history.size(); i-- != 0;) {
            value const& one = history[i];
            std::string const action = one["action"].text();
            std::uint64_t const at = one["addr"].number();
            piece const what{one["size"].number(), one["stream"].number(), 0};
            if (action == "alloc")
                blocks.erase(at);
            else if (action == "free_requested")
                blocks[at] = what;
            else if (action == "segment_alloc")
                segments.erase(at);
            else if (action == "segment_free")
                segments[at] = what;
        }
        if (is_mapped_in_pieces(history))
            segments.clear();
        for (auto const& [at, what] : segments)
            maker_.add(event_of(event_kind::grow, device, at, what));
        for (auto const& [at, what] : blocks)
            maker_.add(event_of(event_kind::allocate, device, at, what));
    }
    // Of segments that are mapped piece by piece the history says what came, but not what was there.
    static bool is_mapped_in_pieces(value::list const& history) {
        return std::any_of(history.begin(), history.end(),
                           [](value const& one) { return one["action"].text().rfind("segment_map", 0) == 0; });
    }

    void put_events(std::vector<value::list const*> const& devices) {
        std::vector<std::size_t> at(devices.size(), 0);
        std::uint64_t const begin = began(root_);
        std::uint64_t count = 0;
        for (;;) {
            std::size_t next = devices.size(); // the device whose event is the earliest
            for (std::size_t i = 0; i < devices.size(); ++i)
                if (at[i] < devices[i]->size() &&
                    (next == devices.size() || (*devices[i])[at[i]]["time_us"].number() <
                                                   (*devices[next])[at[next]]["time_us"].number()))
                    next = i;
            if (next == devices.size())
                return;
            value const& one = (*devices[next])[at[next]++];
            std::uint64_t const us = one["time_us"].number();
            put_event(next, one, us >= begin && us != 0 ? us - begin : count);
            ++count;
        }
    }
    void put_event(std::size_t device, value const& one, std::uint64_t us) {
        static std::map<std::string, event_kind> const kinds{
            {"alloc", event_kind::allocate},          {"free_requested", event_kind::free}, {"segment_alloc", event_kind::grow},
            {"segment_map", event_kind::grow},        {"segment_free", event_kind::give_back},
            {"segment_unmap", event_kind::give_back}, {"oom", event_kind::refuse},          {"free_completed", event_kind::none},
            {"snapshot", event_kind::none}};
        auto const kind = kinds.find(one["action"].text());
        if (kind == kinds.end()) {
            ++unknown_;
            return;
        }
        if (kind->second == event_kind::none)
            return;
        weir::trace::event made =
            event_of(kind->second, device, kind->second == event_kind::refuse ? 0 : address_of(one, "addr"),
                     {one["size"].number(), one["stream"].number(), site_of(one)});
        made.ticks = us * 1000;
        maker_.add(made);
    }

    value const root_;
    std::string const& path_;
    program_maker maker_;
    std::unordered_map<value::list const*, std::uint32_t> sites_;
    std::uint64_t unknown_ = 0;
};

} // namespace

program read_snapshot(std::string_view bytes, std::string const& path) {
    document all;
    if (looks_like_pickle(bytes))
        read_pickle(bytes, path, all);
    else
        read_json(bytes, path, all);
    return snapshot_reader(all.root, path).read();
}

} // namespace replay
