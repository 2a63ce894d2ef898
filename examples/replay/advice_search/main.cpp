// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What would make a recorded program of Python's hold less?
//
// The search of advice.hpp on one recording of weir's, for weir_torch.advise, which builds this program on the user's machine. So it
// needs no library: no other formats, no packed files, no page. It runs on the simulated device, which counts a pool's calls and
// bytes as a GPU does, and leaves the GPU's memory to whoever uses it.
//
// usage: advice_search RECORDING POOL LIMIT
//
// LIMIT: in bytes. What is found is written as lines whose fields stand between tabs: 'pool', its figures; 'advice', a change that
// saves something; 'tried', one that was tried; 'untried', a sentence. Where nothing can be found: 'refused' and a sentence. The bar on
// stderr shows how far it is, where that is a terminal.

#include "advice.hpp"
#include "progress_bar.hpp"
#include "recorded_trace.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>
#include <weir/order/order_after.hpp>
#include <weir/simulated_device/control.hpp>

namespace replay {
namespace {

trace read(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    std::string const bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file)
        throw bad_input(path + ": it cannot be read");
    program made = read_weirs(bytes, path);
    trace out = trace_of(made, path);
    out.name = path.substr(path.find_last_of('/') + 1);
    out.of = std::make_shared<program const>(std::move(made));
    return out;
}

char const* name_of(advice_kind kind) {
    switch (kind) {
    case advice_kind::recipe: return "recipe";
    case advice_kind::limit: return "limit";
    case advice_kind::slab: return "slab";
    case advice_kind::frames: return "frames";
    case advice_kind::part_end: return "part_end";
    case advice_kind::wait_first: return "wait_first";
    }
    return "";
}

void write(replayed const& of) {
    for (std::uint64_t const each : {of.peak_bytes, of.mean_bytes, of.driver_calls, of.waiting_calls, of.stream_waits})
        std::printf("\t%" PRIu64, each);
}

void write(advices const& found) {
    std::printf("pool\t%s\t%u", found.pool.c_str(), found.replays);
    write(found.now);
    std::printf("\n");
    for (advice const& each : found.worth_it) {
        std::printf("advice\t%s\t%s\t%" PRIu64 "\t%d\t%zu", name_of(each.kind), printable(each.what).c_str(), each.saved_bytes,
                    each.is_of_mean ? 1 : 0, each.bytes);
        write(each.then);
        std::printf("\n");
    }
    for (std::string const& each : found.tried)
        std::printf("tried\t%s\n", printable(each).c_str());
    for (std::string const& each : found.untried)
        std::printf("untried\t%s\n", printable(each).c_str());
}

void search_for(std::string const& path, std::string const& pool, std::size_t limit_bytes) {
    trace const of = read(path);
    simulated_device::reset(simulated_device::config{}.with_memory(std::size_t{1} << 40)); // more than any program was recorded on
    progress_bar progress(1);
    progress.begin("advice");
    for (contender const& each : contenders())
        if (each.name == pool) {
            advices const found = advise(each, of, limit_bytes, [&](std::string const& what, double part) {
                progress.say("advice, " + printable(what));
                progress.show(part);
            });
            progress.wipe();
            if (!of.remark.empty())
                std::printf("untried\t%s\n", printable(of.remark).c_str());
            return write(found);
        }
    throw bad_input("there is no pool '" + pool + "'");
}

} // namespace

void put_after(cudaStream_t later, cudaStream_t earlier) {
    weir::order_after(later, earlier);
}

std::vector<contender> const& contenders() {
    static std::vector<contender> const all{
        {"device_pool", "", open_device_pool, true, false, true},
        {"compact_device_pool", "", open_compact_device_pool, true, false, true},
        {"promised_device_pool", "", open_promised_device_pool, true, false, true},
    };
    return all;
}

} // namespace replay

int main(int argc, char** argv) {
    if (argc != 4)
        return 2;
    try {
        replay::search_for(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
        return 0;
    } catch (std::exception const& error) {
        std::printf("refused\t%s\n", replay::printable(error.what()).c_str());
        return 1;
    }
}
