// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "program.hpp"

#include "json.hpp"
#include "pickle.hpp"
#include "trace.hpp"
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>

namespace replay {
namespace {

using weir::trace::event;
using weir::trace::event_kind;

// What one pool handed out, in order, so that a rewind finds what it ends.
struct handed_out {
    std::vector<event> blocks;
    std::unordered_map<std::uint64_t, std::size_t> live;  // address -> its place in `blocks`
    std::unordered_map<std::uint64_t, std::size_t> marks; // number -> how many blocks there were
};

// A rewind or a clear ends many blocks at once. Each of them gets a free, so that nobody else has to know.
void add_frees(weir::trace::recording& of) {
    auto const ends_many = [](event const& one) { return one.kind == event_kind::rewind || one.kind == event_kind::clear; };
    if (std::none_of(of.events.begin(), of.events.end(), ends_many))
        return;
    std::unordered_map<std::uint16_t, handed_out> pools; // by source
    weir::base::growing_array<event> all;
    for (event const& each : of.events) {
        handed_out& pool = pools[each.source];
        if (each.kind == event_kind::allocate) {
            pool.live[each.address] = pool.blocks.size();
            pool.blocks.push_back(each);
        } else if (each.kind == event_kind::free) {
            pool.live.erase(each.address);
        } else if (each.kind == event_kind::mark) {
            pool.marks[each.bytes] = pool.blocks.size();
        } else if (ends_many(each)) {
            // Behind a mark that was made before the recording lies all that is in it.
            auto const mark = each.kind == event_kind::rewind ? pool.marks.find(each.bytes) : pool.marks.end();
            std::size_t const kept = mark == pool.marks.end() ? 0 : mark->second;
            for (; pool.blocks.size() > kept; pool.blocks.pop_back()) {
                event ended = pool.blocks.back();
                auto const found = pool.live.find(ended.address);
                if (found == pool.live.end() || found->second != pool.blocks.size() - 1)
                    continue; // it was freed before
                pool.live.erase(found);
                ended.kind = event_kind::free;
                ended.ticks = each.ticks;
                ended.thread = each.thread;
                ended.site = 0;
                all.push_back(ended);
            }
        }
        all.push_back(each);
    }
    of.events = std::move(all);
}

} // namespace

program_maker::program_maker(std::uint64_t wall_ns) {
    made_.what.first = {0, 0, wall_ns};
    made_.what.last = {1, 1, wall_ns + 1};
}

std::uint64_t program_maker::stream(std::uint64_t handle) {
    auto const [found, is_new] = streams_.try_emplace(handle, made_.what.streams.size());
    if (is_new)
        made_.what.streams.push_back(handle);
    return found->second;
}

std::uint32_t program_maker::thread(std::uint64_t name) {
    auto const [found, is_new] = threads_.try_emplace(name, static_cast<std::uint32_t>(made_.what.threads.size()));
    if (is_new)
        made_.what.threads.push_back(static_cast<std::uint32_t>(name));
    return found->second;
}

std::uint16_t program_maker::source(std::string const& name, int device) {
    auto const [found, is_new] =
        sources_.try_emplace(name + ' ' + std::to_string(device), static_cast<std::uint16_t>(made_.what.sources.size()));
    if (is_new)
        made_.what.sources.push_back({weir::text(name.c_str()), device, weir::memory_space::device, UINT64_MAX});
    return found->second;
}

std::uint32_t program_maker::frame(std::uint32_t caller, std::string const& file, std::string const& function, std::uint32_t line) {
    auto const [found, is_new] = frames_.try_emplace({caller, line, file, function},
                                                     static_cast<std::uint32_t>(made_.what.frames.size() + 1));
    if (is_new)
        made_.what.frames.push_back({caller, line, weir::text(file.c_str()), weir::text(function.c_str())});
    return found->second;
}

void program_maker::add(weir::trace::event one) {
    if (!made_.what.events.empty())
        one.ticks = std::max(one.ticks, made_.what.events.back().ticks);
    made_.what.events.push_back(one);
}

program program_maker::made() {
    if (made_.what.streams.empty())
        stream(0);
    if (made_.what.threads.empty())
        thread(0);
    std::uint64_t const end = made_.what.events.empty() ? 1 : made_.what.events.back().ticks + 1;
    made_.what.last = {end, end, made_.what.first.wall_ns + end};
    return std::move(made_);
}

program read_weirs(std::string_view bytes, std::string const& path) {
    try {
        program made;
        made.what = weir::trace::read_recording(bytes.data(), bytes.size());
        made.remark = made.what.complaint.c_str();
        add_frees(made.what);
        return made;
    } catch (weir::usage_error const& error) {
        throw bad_input(path + ": " + error.what());
    }
}

std::string looks_like(std::string_view bytes) {
    auto const begins = [&](std::string_view with) { return bytes.substr(0, with.size()) == with; };
    std::string head(bytes.substr(0, 4096));
    std::transform(head.begin(), head.end(), head.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    auto const has = [&](char const* word) { return head.find(word) != std::string::npos; };
    if (begins("v 1") && has("\nx "))
        return "looks like heaptrack's, which heaptrack_print and heaptrack_gui open; a replay has no use for a profile of host "
               "memory: give a trace";
    if (begins("\x7f""ELF"))
        return "looks like a program; run it with a weir::layer::record, and give what weir::trace::dump wrote";
    if (begins("PK\x03\x04"))
        return "looks like a zip archive, as torch.save writes; give what torch.cuda.memory._dump_snapshot wrote";
    if (begins("\x28\xb5\x2f\xfd"))
        return "is packed by zstd; unpack it first: zstd -d FILE";
    if (begins("\xfd""7zXZ") || begins("BZh"))
        return "is packed by xz or bzip2; unpack it first";
    if (begins("SQLite format 3"))
        return "looks like a database, as Nsight Systems exports; it holds no allocation's free: record the program";
    if (has("<!doctype html") || has("<html"))
        return "looks like a page for a browser; open it there, and give the recording that it was made from";
    if (has("\"traceevents\""))
        return "looks like a profile for chrome://tracing, as torch.profiler exports; give what "
               "torch.cuda.memory._dump_snapshot wrote";
    if (bytes.substr(0, 512).find('\0') != std::string_view::npos)
        return "is no text, and none of the recordings that are known (weir's, PyTorch's snapshots)";
    return "";
}

} // namespace replay
