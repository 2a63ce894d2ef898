// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "program.hpp"

#include "json.hpp"
#include "pickle.hpp"
#include "trace.hpp"
#include <algorithm>
#include <cctype>
#include <utility>
#include <weir/base/error.hpp>

namespace replay {

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
