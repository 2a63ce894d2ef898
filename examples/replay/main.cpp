// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Replays the allocations of a real program through weir's pools and CUDA's, and compares them.
//
//     replay                                    the trace that ships with the examples, all pools, a table and a page
//     replay program.weir                       a program that was recorded (layer::record)
//     replay snapshot.pickle                    what PyTorch's torch.cuda.memory._dump_snapshot wrote
//     replay --write program.json program.weir  nothing is replayed: the recording as PyTorch's memory_viz reads it
//     replay --beside before.weir after.weir    which call sites grew from one recording to the other
//     replay --advice program.weir              what would make the program hold less, each change replayed first
//     replay --fits 40G program.weir            whether 40 GiB serve the program, and the least that does
//     replay --csv a.csv b.csv.gz               two traces, as a table for a program to read
//     replay --pool device_pool --limit 8G      one pool, which may hold at most 8 GiB
//
// A trace that cannot be read is refused with a sentence; the others are replayed all the same. Exit codes:
// 0, all was replayed (refused allocations are in the table); 1, CUDA failed in a replay, or a result could
// not be written; 2, something that was given cannot be used, and the sentence on stderr says what.
//
// Sources: examples/replay/*.cpp. cub_caching.cpp and thrust_pool.cpp include CCCL, and on a GPU want nvcc.
// Libraries: the CUDA runtime (or the simulated device), zlib, CLI11 (headers); nlohmann-json (headers) to read JSON. WEIR_EXAMPLES_DIR: this
// folder's parent.

#include "advice.hpp"
#include "beside.hpp"
#include "convert.hpp"
#include "device.hpp"
#include "fits.hpp"
#include "hand_overs.hpp"
#include "page.hpp"
#include "page_file.hpp"
#include "progress_bar.hpp"
#include "report.hpp"
#include "runner.hpp"
#include "text.hpp"
#include "trace.hpp"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <new>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

namespace replay {
namespace {

constexpr int success = 0, failed = 1, unusable = 2;

struct arguments {
    std::vector<std::string> traces;
    std::vector<contender const*> pools;
    run_options run;
    std::string html = "weir-replay.html"; ///< empty: no page
    std::vector<std::string> write; ///< files to be written instead of a replay
    std::string beside; ///< the recording before; empty: none
    std::size_t fits_bytes = 0; ///< 0: nobody asks
    bool advice = false;
    bool csv = false;
    bool list = false;
};

void say(std::exception const& error) {
    std::fprintf(stderr, "replay: %s\n", printable(error.what()).c_str());
}

/// Whether all that was printed went out; a sentence on stderr where it did not.
bool was_said() {
    if (std::fflush(stdout) == 0 && !std::ferror(stdout))
        return true;
    std::fputs("replay: the standard output could not be written to its end; make room there\n", stderr);
    return false;
}

contender const& pool_named(std::string const& name) {
    std::string names;
    for (contender const& each : contenders()) {
        if (each.name == name)
            return each;
        names += (names.empty() ? "" : ", ") + std::string(each.name);
    }
    throw bad_input("there is no pool '" + name + "'; choose among " + names);
}

/// The first of weir's pools that was asked for, or null.
contender const* advised_pool(arguments const& arguments) {
    auto const found = std::find_if(arguments.pools.begin(), arguments.pools.end(), [](contender const* each) { return each->is_weirs; });
    return found == arguments.pools.end() ? nullptr : *found;
}

/// Throws CLI::ParseError, also for --help, and bad_input.
arguments parsed(int argc, char** argv) {
    CLI::App app{
        "Replays the allocations of a real program through weir's pools and CUDA's, and compares them.",
        "replay"};
    arguments out;
    std::vector<std::string> names;
    std::string limit, fits;
    bool no_html = false;
    app.add_option(
           "TRACE", out.traces,
           "Recordings of weir's; snapshots of PyTorch's memory, as pickle or JSON; RMM's logs; lifetimes, 'id,lower,upper,size'; or "
           "CSV, 'op,id,bytes,stream,t_us'; gzip'd or not. Without one: the trace that ships here")
        ->type_name("");
    app.add_flag("--csv", out.csv, "Print CSV and nothing else; no page unless --html is given");
    app.add_option("--pool", names, "Only this pool (again for more); --list names them")
        ->type_name("NAME")
        ->allow_extra_args(false);
    CLI::Option const* const limited =
        app.add_option("--limit", limit,
                       "The most that a pool may hold from the driver: 512M, 8G, ... (CUDA rounds driver_pool's up)")
            ->type_name("BYTES");
    app.add_option("--passes", out.run.timed_passes,
                   "Timed passes, at most; by default 5, and none begins after a second")
        ->type_name("N")
        ->check(CLI::Range(1, 1000));
    CLI::Option const* const html =
        app.add_option("--html", out.html, "Where the page is written; by default weir-replay.html")
            ->type_name("FILE");
    app.add_flag("--no-html", no_html, "Write no page");
    app.add_option("--write", out.write,
                   "Replay nothing, but write the trace to this file (again for more). Its ending says for whom: .json and .pickle "
                   "for PyTorch's memory_viz, .heaptrack for heaptrack_print, .csv for a table")
        ->type_name("FILE")
        ->allow_extra_args(false);
    app.add_flag("--advice", out.advice,
                 "Also try what would make the program hold less with device_pool, or with the first of weir's pools that --pool names: "
                 "another recipe, a limit, pools for parts of it, ...; the terminal and the page say what each saves and costs");
    app.add_option("--fits", fits, "Say whether so much memory serves each trace through the pools, and the least that does; no page")
        ->type_name("BYTES");
    app.add_option("--beside", out.beside, "Compare each trace with this earlier one, by call site: which grew, and by how much")
        ->type_name("TRACE");
    app.add_flag("--list", out.list, "Name the pools");
    app.failure_message([](CLI::App const*, CLI::Error const& error) {
        return std::string("replay: ") + error.what() + "; 'replay --help' lists what there is\n";
    });
    try {
        app.parse(argc, argv);
    } catch (CLI::ParseError const& error) {
        int const code = app.exit(error);
        throw CLI::RuntimeError(code != 0 ? unusable : was_said() ? success : failed);
    }

    if (out.traces.empty())
        out.traces = {WEIR_EXAMPLES_DIR "/data/prefetch_streams.csv.gz"};
    for (std::string const& name : names) {
        contender const* const pool = &pool_named(name);
        if (std::find(out.pools.begin(), out.pools.end(), pool) == out.pools.end())
            out.pools.push_back(pool);
    }
    if (names.empty())
        for (contender const& each : contenders())
            out.pools.push_back(&each);
    if (limited->count() != 0)
        out.run.limit_bytes = bytes_from(limit);
    if (!fits.empty())
        out.fits_bytes = bytes_from(fits);
    if (names.empty() && !fits.empty())
        out.pools = {&pool_named("device_pool")};
    if (out.advice && !advised_pool(out))
        throw bad_input("--advice is about weir's pools, and --pool names none of them; name one of them, or leave --pool out");
    if (out.html.empty() || out.html.front() == '-')
        throw bad_input("--html needs the name of a file, and '" + out.html + "' looks like none");
    if (no_html || (out.csv && html->count() == 0))
        out.html.clear();
    return out;
}

/// The traces that can be used; a sentence on stderr for each of the others.
std::vector<trace> traces_from(std::vector<std::string> const& paths) {
    std::vector<trace> out;
    for (std::string const& path : paths) {
        try {
            out.push_back(read_trace(path));
            if (!out.back().remark.empty())
                std::fprintf(stderr, "replay: %s: %s\n", printable(path).c_str(), printable(out.back().remark).c_str());
        } catch (bad_input const& error) {
            say(error);
        } catch (std::bad_alloc const&) {
            say(bad_input("'" + path + "' is more than this machine's memory holds; replay a part of it"));
        }
    }
    return out;
}

int list_pools() {
    for (contender const& each : contenders())
        std::printf("%-14s %s\n", each.name.data(), each.what.data());
    return was_said() ? success : failed;
}

bool looks_at_idle(arguments const& arguments) {
    return std::any_of(arguments.pools.begin(), arguments.pools.end(), [](contender const* each) { return each->name == "device_pool"; });
}

/// Why memory is free: in the recorded program's pool, and in device_pool if that one is asked for.
void add_idle(comparison& to, arguments const& arguments, progress_bar& progress) {
    to.idle.push_back(idle_of_recording(*to.what));
    if (!looks_at_idle(arguments))
        return;
    progress.begin(printable(to.what->name) + ": free memory");
    try {
        to.idle.push_back(idle_of_replay(*to.what, arguments.run.limit_bytes, [&](double part) { progress.show(part); }));
    } catch (std::exception const& error) {
        progress.wipe();
        std::fprintf(stderr, "replay: why memory is free in %s could not be seen: %s\n", printable(to.what->name).c_str(), error.what());
    }
    progress.end();
}

/// What is tried on a trace; none: it broke off, which a sentence on stderr says.
std::optional<advices> advices_for(trace const& trace, contender const& pool, arguments const& arguments, progress_bar& progress) {
    std::optional<advices> out;
    std::string const step = printable(trace.name) + ": advice";
    progress.begin(step);
    try {
        out = advise(pool, trace, arguments.run.limit_bytes, [&](std::string const& what, double part) {
            progress.say(step + ", " + printable(what));
            progress.show(part);
        });
    } catch (std::exception const& error) {
        progress.wipe();
        std::fprintf(stderr, "replay: advice for %s broke off: %s\n", printable(trace.name).c_str(), error.what());
    }
    progress.end();
    progress.wipe();
    return out;
}

/// `trace` through each pool; a sentence on stderr for a pool that broke off, which is then not in the
/// answer.
comparison replay_all(trace const& trace, arguments const& arguments, progress_bar& progress) {
    comparison out{&trace, {}};
    for (contender const* const pool : arguments.pools) {
        progress.begin(printable(trace.name) + ": " + std::string(pool->name));
        try {
            out.results.push_back(
                run(*pool, trace, arguments.run, [&](double part) { progress.show(part); }));
        } catch (std::exception const& error) {
            progress.wipe();
            std::fprintf(stderr, "replay: %s on %s broke off: %s\n", pool->name.data(), printable(trace.name).c_str(),
                         error.what());
        }
        progress.end();
    }
    if (!arguments.csv || !arguments.html.empty())
        add_idle(out, arguments, progress);
    progress.wipe();
    return out;
}

/// Writes one trace to each of the files.
int write_all(arguments const& arguments) {
    if (arguments.traces.size() != 1)
        throw bad_input("--write writes one trace, and here are " + std::to_string(arguments.traces.size()) +
                        "; give one at a time");
    std::vector<trace> const traces = traces_from(arguments.traces);
    if (traces.empty())
        return unusable;
    for (std::string const& path : arguments.write) {
        std::string const content = converted(traces.front(), path);
        if (!page_file(path, arguments.traces, false).write(content)) {
            std::fprintf(stderr, "replay: '%s' could not be written to its end; make room there\n", path.c_str());
            return failed;
        }
        std::printf("written: %s\n", path.c_str());
    }
    return was_said() ? success : failed;
}

/// A line for each trace and pool.
int say_what_fits(arguments const& arguments) {
    std::vector<trace> const traces = traces_from(arguments.traces);
    if (traces.empty())
        return unusable;
    static_cast<void>(open_device());
    progress_bar progress(traces.size() * arguments.pools.size());
    for (trace const& each : traces)
        for (contender const* const pool : arguments.pools) {
            progress.begin(printable(each.name) + ": the least for " + std::string(pool->name));
            std::uint64_t const least = least_limit(*pool, each, [&](double part) { progress.show(part); });
            progress.end();
            progress.wipe();
            std::printf("%s through %s: %s\n", printable(each.name).c_str(), pool->name.data(), fit_text(least, arguments.fits_bytes).c_str());
        }
    return !was_said() ? failed : traces.size() < arguments.traces.size() ? unusable : success;
}

std::vector<std::string> read_files(arguments const& arguments) {
    std::vector<std::string> out = arguments.traces;
    if (!arguments.beside.empty())
        out.push_back(arguments.beside);
    return out;
}

int compare(arguments arguments) {
    std::vector<trace> const traces = traces_from(arguments.traces);
    if (traces.empty())
        return unusable;
    device_facts const device = open_device();
    arguments.run.timed = !device.is_simulated;
    std::optional<page_file> page;
    if (!arguments.html.empty())
        page.emplace(arguments.html, read_files(arguments));

    constexpr std::size_t in_terminal = 12, on_page = 200; // call sites
    std::optional<trace> before;
    if (!arguments.beside.empty())
        before = read_trace(arguments.beside);
    contender const* const advised = arguments.advice && (!arguments.csv || page) ? advised_pool(arguments) : nullptr;
    bool all_well = true;
    std::vector<comparison> comparisons;
    progress_bar progress(traces.size() * (arguments.pools.size() + looks_at_idle(arguments) + (advised != nullptr)));
    std::fputs(arguments.csv ? csv_header().c_str() : "", stdout);
    for (trace const& each : traces) {
        comparison& done = comparisons.emplace_back(replay_all(each, arguments, progress));
        all_well = all_well && done.results.size() == arguments.pools.size();
        std::fputs((arguments.csv ? as_csv(done) : as_table(done, device) + holders_text(each) + hand_overs_text(each) + as_table(done.idle) + '\n').c_str(), stdout);
        if (advised) {
            std::optional<advices> const found = advices_for(each, *advised, arguments, progress);
            all_well = all_well && found;
            done.advice = found ? as_card(*found, each) : "";
            std::fputs(arguments.csv || !found ? "" : (as_text(*found) + '\n').c_str(), stdout);
        }
        if (before) {
            std::vector<site_change> const changes = changes_between(*before, each);
            done.beside = as_card(changes, *before, each, on_page);
            std::fputs(arguments.csv ? "" : (as_table(changes, *before, each, in_terminal) + '\n').c_str(), stdout);
        }
        std::fflush(stdout);
    }
    if (!arguments.csv)
        std::fputs(footnotes(arguments.run).c_str(), stdout);
    if (page && !page->write(as_page(comparisons, device, arguments.run))) {
        all_well = false;
        std::fprintf(stderr, "replay: '%s' could not be written to its end; make room there\n",
                     arguments.html.c_str());
    } else if (page && !arguments.csv) {
        std::printf("the picture: %s\n", arguments.html.c_str());
    }

    all_well = was_said() && all_well;
    std::string const wrong = complaints();
    if (!wrong.empty())
        std::fprintf(stderr, "replay: the simulated device found fault:\n%s", first_lines(wrong, 10).c_str());
    if (traces.size() < arguments.traces.size())
        return unusable;
    return all_well && wrong.empty() ? success : failed;
}

// A closed stdout or stderr (>&-) would be the number of the next file that is opened, and the output would go there.
void take_closed_streams() {
    int number = 0;
    do
        number = ::open("/dev/null", O_RDONLY); // where writing fails, as it should
    while (number >= 0 && number <= 2);
    if (number > 2)
        ::close(number);
}

} // namespace
} // namespace replay

int main(int argc, char** argv) {
    replay::take_closed_streams();
    try {
        replay::arguments const arguments = replay::parsed(argc, argv);
        return arguments.list              ? replay::list_pools()
               : !arguments.write.empty()   ? replay::write_all(arguments)
               : arguments.fits_bytes != 0 ? replay::say_what_fits(arguments)
                                            : replay::compare(arguments);
    } catch (CLI::RuntimeError const& said) {
        return said.get_exit_code();
    } catch (replay::bad_input const& error) {
        replay::say(error);
        return replay::unusable;
    } catch (std::exception const& error) {
        replay::say(error);
        return replay::failed;
    }
}
