// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What does a recording of the plug-in's say? One line an event: its kind, device, bytes, address and stream, and where in Python.
//
// usage: read_recording FILE

#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>
#include <weir/trace/recording.hpp>

int main(int, char** words) {
    std::ifstream in(words[1], std::ios::binary);
    std::vector<char> const bytes((std::istreambuf_iterator<char>(in)), {});
    weir::trace::recording const read = weir::trace::read_recording(bytes.data(), bytes.size());
    std::printf("%zu events, %llu lost, '%s', pool '%s'\n", read.events.size(), static_cast<unsigned long long>(read.lost),
                read.complaint.c_str(), read.sources.empty() ? "" : read.sources[0].name.c_str());
    for (weir::trace::event const& each : read.events) {
        std::printf("%d %d %llu %llx %llx", static_cast<int>(each.kind), read.sources[each.source].device,
                    static_cast<unsigned long long>(each.bytes), static_cast<unsigned long long>(each.address),
                    static_cast<unsigned long long>(read.streams[static_cast<std::size_t>(each.stream)]));
        for (std::uint32_t at = each.site; at != 0; at = read.frames[at - 1].caller)
            std::printf(" %s:%u:%s", read.frames[at - 1].file.c_str(), read.frames[at - 1].line,
                        read.frames[at - 1].function.c_str());
        std::printf("\n");
    }
}
