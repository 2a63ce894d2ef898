// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "convert.hpp"

#include "program.hpp"
#include "recorded_trace.hpp"
#include <cstddef>

namespace replay {
namespace {

bool ends_with(std::string const& text, std::string const& ending) {
    return text.size() > ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

std::string as_trace_csv(trace const& what) {
    std::string out = "# events=" + std::to_string(what.events.size()) + "\nop,id,bytes,stream,t_us\n";
    for (std::size_t i = 0; i < what.events.size(); ++i) {
        event const& each = what.events[i];
        out += (each.is_free ? "f," : "a,") + std::to_string(each.block) + ',' + std::to_string(each.bytes) + ',' +
               std::to_string(each.stream) + ',' + std::to_string(what.microseconds[i]) + '\n';
    }
    return out;
}

} // namespace

std::vector<std::string> const& known_endings() {
    static std::vector<std::string> const all{".json", ".pickle", ".heaptrack", ".csv"};
    return all;
}

std::string converted(trace const& what, std::string const& path) {
    if (ends_with(path, ".csv"))
        return as_trace_csv(what);
    program made_of_it;
    if (!what.of)
        made_of_it = program_of(what);
    program const& of = what.of ? *what.of : made_of_it;
    if (ends_with(path, ".json"))
        return as_snapshot_json(of);
    if (ends_with(path, ".pickle"))
        return as_snapshot_pickle(of);
    if (ends_with(path, ".heaptrack"))
        return as_heaptrack(of);
    throw bad_input("'" + path + "' does not say by its ending what is to be written: .json or .pickle for PyTorch's memory_viz, "
                    ".heaptrack for heaptrack_print and heaptrack_gui, .csv for a table");
}

} // namespace replay
