// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does 'replay' read what other tools record, and do other tools read what it writes?
//
// heaptrack_print, and PyTorch's _memory_viz.py in build/memory_viz with python3, open the files where they are to be had.

#include "../../examples/replay/contender.hpp"
#include "../../examples/replay/convert.hpp"
#include "../../examples/replay/document.hpp"
#include "../../examples/replay/json.hpp"
#include "../../examples/replay/page.hpp"
#include "../../examples/replay/pickle.hpp"
#include "../../examples/replay/program.hpp"
#include "../../examples/replay/recorded_trace.hpp"
#include "../../examples/replay/trace.hpp"
#include "../../examples/replay/verdict.hpp"
#include <array>
#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

using weir::trace::event;
using weir::trace::event_kind;

bool contains(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

std::string complaint(std::string const& bytes, std::string const& name = "in") {
    try {
        static_cast<void>(replay::parse_trace(bytes, name));
    } catch (replay::bad_input const& error) {
        return error.what();
    }
    return "";
}

/// 'a0+100 f0' and so on: what a replay would do.
std::string in_short(replay::trace const& t) {
    std::string out;
    for (replay::event const& each : t.events)
        out += (out.empty() ? "" : " ") + std::string(each.is_free ? "f" : "a") + std::to_string(each.block) +
               (each.is_free ? "" : "+" + std::to_string(each.bytes)) + "@" + std::to_string(each.stream);
    return out;
}

/// A program with call sites, a scope and chunks; one block is live at its end.
replay::program sample(bool has_chunks = true) {
    replay::program_maker maker(1'000'000'000'000'000);
    std::uint32_t const outer = maker.frame(0, "main.cpp", "main", 3);
    std::uint32_t const inner = maker.frame(outer, "a \"b\"\n<c>.cpp", "train<float>", 70000);
    std::uint64_t ticks = 0;
    auto const add = [&](event_kind kind, std::uint64_t address, std::uint64_t bytes, std::uint32_t site, std::uint64_t stream = 7) {
        event one;
        one.kind = kind;
        one.address = address;
        one.bytes = bytes;
        one.site = site;
        one.stream = maker.stream(stream);
        one.thread = maker.thread(5);
        one.source = maker.source("pool", 0);
        one.extra_bytes = kind == event_kind::allocate ? 24 : 0;
        one.ticks = ticks += 2'000'000;
        maker.add(one);
    };
    std::uint64_t const chunk = std::uint64_t{1} << 30;
    if (has_chunks)
        add(event_kind::grow, chunk, 4096, 0);
    add(event_kind::begin_scope, 0, 0, maker.frame(0, "", "step", 0));
    add(event_kind::allocate, chunk, 1000, outer);
    add(event_kind::allocate, chunk + 1024, 2024, inner, 9);
    add(event_kind::refuse, 0, 50000, inner);
    add(event_kind::free, chunk, 1000, 0, 9);
    add(event_kind::allocate, chunk, 500, inner);
    add(event_kind::free, chunk, 500, 0);
    add(event_kind::end_scope, 0, 0, maker.frame(0, "", "step", 0));
    return maker.made();
}

/// A folder of this test's own.
struct folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("weir-formats-" + std::to_string(::getpid()));
    folder() { std::filesystem::create_directory(path); }
    ~folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    std::string file(char const* name, std::string const& content) const {
        std::ofstream(path / name, std::ios::binary) << content;
        return (path / name).string();
    }
};

/// What a command prints; "" if it fails.
std::string printed(std::string const& command) {
    std::FILE* const pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string out;
    std::array<char, 4096> buffer;
    while (std::size_t const count = std::fread(buffer.data(), 1, buffer.size(), pipe))
        out.append(buffer.data(), count);
    return ::pclose(pipe) == 0 ? out : "";
}

std::string const snapshot_in_json =
    R"({"segments": [{"device": 0, "address": 4096, "total_size": 8192, "stream": 3, "blocks": [
          {"size": 512, "requested_size": 100, "state": "active_allocated", "frames": []},
          {"size": 512, "state": "inactive"}, {"size": 1024, "state": "active_allocated"}, {"size": 6144, "state": "inactive"}]}],
        "device_traces": [[
          {"action": "free_requested", "addr": 4608, "size": 300, "stream": 3, "time_us": 50},
          {"action": "free_completed", "addr": 4608, "size": 300, "stream": 3, "time_us": 51},
          {"action": "segment_alloc", "addr": 4096, "size": 8192, "stream": 3, "time_us": 51},
          {"action": "later_invention", "addr": 1, "time_us": 52},
          {"action": "oom", "size": 999, "device_free": 0, "stream": 3, "time_us": 53},
          {"action": "alloc", "addr": 4096, "size": 100, "stream": 4, "time_us": 60, "frames": [
            {"filename": "b.py", "name": "inner", "line": 2}, {"filename": "a.py", "name": "outer", "line": 1}]}]]})";

} // namespace

TEST_CASE("formats: a snapshot of PyTorch's is what was there at first, and what came then") {
    if (!replay::reads_json()) {
        MESSAGE("left out: nlohmann-json was not there to build with");
        return;
    }
    replay::trace const t = replay::parse_trace(snapshot_in_json, "a/snap.json");
    CHECK(t.name == "snap");
    // Block 0 lay at 4608 and was freed; block 1 is live from before the history to the end.
    CHECK(in_short(t) == "a0+300@0 a1+1024@0 f0@0 a2+100@1");
    CHECK(t.remark == "1 event is of a kind that this weir does not know");
    CHECK(t.microseconds.back() == 10);
    REQUIRE(t.of != nullptr);
    event const& last = t.of->what.events.end()[-1];
    weir::trace::frame const inner = t.of->what.frames[last.site - 1];
    CHECK(inner.function == "inner");
    CHECK(t.of->what.frames[inner.caller - 1].file == "a.py");
}

TEST_CASE("formats: a snapshot that says nothing is refused with a sentence") {
    if (!replay::reads_json())
        return;
    CHECK(contains(complaint(R"({"segments": [], "device_traces": [[]]})"), "has no history; call"));
    CHECK(contains(complaint("[]"), "before 2.0"));
    CHECK(contains(complaint(R"({"segments": []})"), "is no snapshot of torch.cuda.memory"));
    CHECK(contains(complaint(R"({"segments": [], "device_traces": [[{"action": "alloc"}]]})"), "has no 'addr'; it was written by another"));
    for (std::size_t end = 1; end < snapshot_in_json.size(); end += 7) {
        CAPTURE(end);
        CHECK(contains(complaint(snapshot_in_json.substr(0, end)), "the JSON ends too early or is none"));
    }
}

TEST_CASE("formats: what is written for PyTorch is read again as the same program") {
    std::string const expected = "a0+1000@0 a1+2024@1 f0@1 a2+500@0 f2@0";
    for (bool const has_chunks : {true, false}) {
        replay::program const of = sample(has_chunks);
        replay::trace const t = replay::parse_trace(replay::as_snapshot_pickle(of), "a.pickle");
        CHECK(in_short(t) == expected);
        if (replay::reads_json())
            CHECK(in_short(replay::parse_trace(replay::as_snapshot_json(of), "a.json")) == expected);
        for (event const& each : t.of->what.events)
            if (each.kind == event_kind::grow)
                CHECK(each.bytes == (has_chunks ? 4096 : 2 * 1024 * 1024));
        CHECK(in_short(replay::parse_trace(replay::converted(t, "b.csv"), "b.csv")) == expected);
    }
}

TEST_CASE("formats: a pickle that is damaged anywhere is refused, or is another snapshot") {
    std::string const whole = replay::as_snapshot_pickle(sample());
    for (std::size_t end = 3; end < whole.size(); end += 5) {
        CAPTURE(end);
        CHECK(contains(complaint(whole.substr(0, end)), "the file was cut"));
    }
    for (std::size_t at = 2; at < whole.size(); ++at)
        for (char const flip : {'\x01', '\x55', '\xff'}) {
            std::string damaged = whole;
            damaged[at] = static_cast<char>(damaged[at] ^ flip);
            static_cast<void>(complaint(damaged)); // whatever it says, nothing falls over
        }
    CHECK(contains(complaint("\x80\x13."), "later protocol"));
    CHECK(contains(complaint("\x80\x04h\x07."), "refers to what is not there"));
    CHECK(contains(complaint("\x80\x04!."), "the instruction 33"));
    // What a pickle wants to be called is not called.
    CHECK(contains(complaint(std::string("\x80\x02" "cos\nsystem\nX\x04\0\0\0exit\x85R.", 25)), "is no snapshot"));
}

TEST_CASE("formats: PyTorch's own reader opens what is written for it") {
    std::string const reader = WEIR_EXAMPLES_DIR "/../build/memory_viz/_memory_viz.py";
    if (!std::filesystem::exists(reader) || std::system("python3 -c '' 2>/dev/null") != 0) {
        MESSAGE("left out: PyTorch's _memory_viz.py, or python3, is not here");
        return;
    }
    folder const here;
    std::string const pickle = here.file("a.pickle", replay::as_snapshot_pickle(sample()));
    std::string const said = printed("python3 '" + reader + "' trace " + pickle);
    CHECK(contains(said, "a = cudaMalloc(1073741824, 4.0KiB)\nb = a[0:1000.0B]\nc = a[1024:2.0KiB]\nraise OutOfMemoryError # "
                         "48.8KiB requested"));
    CHECK(contains(said, "del b # 1000.0B\n# free completed for b 1000.0B\nd = a[0:500.0B]\ndel d"));
    CHECK(contains(printed("python3 '" + reader + "' stats " + pickle), "total_reserved: 4.0KiB\ntotal_allocated: 2.0KiB"));
    std::string const json = here.file("a.json", replay::as_snapshot_json(sample()));
    CHECK(printed("python3 -c 'import json, pickle, sys; print(json.load(open(sys.argv[1])) == pickle.load(open(sys.argv[2], "
                  "\"rb\")))' " +
                  json + " " + pickle) == "True\n");
    // And Python's own pickles are read, of each protocol.
    for (char const* const protocol : {"2", "3", "4", "5"}) {
        std::string const other = (here.path / "b.pickle").string();
        printed("python3 -c 'import pickle, sys; pickle.dump(pickle.load(open(sys.argv[1], \"rb\")), open(sys.argv[2], \"wb\"), " +
                std::string(protocol) + ")' " + pickle + " " + other);
        CHECK(in_short(replay::read_trace(other)) == "a0+1000@0 a1+2024@1 f0@1 a2+500@0 f2@0");
    }
}

TEST_CASE("formats: heaptrack_print opens what is written for it") {
    std::string const text = replay::as_heaptrack(sample());
    CHECK(contains(text, "\nt 1 0\na 3e8 1\n+ 0\n"));
    if (std::system("command -v heaptrack_print >/dev/null 2>&1") != 0) {
        MESSAGE("left out: heaptrack_print is not here");
        return;
    }
    folder const here;
    std::string const said = printed("heaptrack_print " + here.file("a.heaptrack", text));
    CHECK(contains(said, "calls to allocation functions: 3 "));
    CHECK(contains(said, "peak heap memory consumption: 3.02K"));
    CHECK(contains(said, "total memory leaked: 2.02K"));
    CHECK(contains(said, "at a \"b\" <c>.cpp:70000"));
}

TEST_CASE("formats: RMM's log") {
    std::string const log = "Thread,Time,Action,Pointer,Size,Stream\n"
                            "17,23:59:59:999990,allocate,0x7f0000000000,1000,0x2\n"
                            "18,00:00:00:000010,allocate failure,0x0,5000,3\n"
                            "18,00:00:00:000020,allocate,0x7f0000000400,300,3\n"
                            "18,00:00:00:000021,dance,0x7f0000000400,300,3\n"
                            "17,00:00:00:000030,free,0x7f0000000000,1000,0x2\n";
    replay::trace const t = replay::parse_trace(log, "rmm.log");
    CHECK(t.name == "rmm");
    CHECK(in_short(t) == "a0+1000@0 a1+300@1 f0@0");
    CHECK(t.microseconds == std::vector<std::uint64_t>{0, 30, 40});
    CHECK(t.remark == "1 event is of a kind that this weir does not know");
    CHECK(replay::parse_trace(log + "17,00:00:00:0", "rmm.log").remark.find("the last line was cut off, and is left out") == 0);
    CHECK(contains(complaint(log + "17,noon,free,0x0,5,0\n"), "in, line 7: Time is 'noon', which is no whole number"));
    CHECK(contains(complaint(log + "17,1:2,free,0x0,5,0\n"), "which is no time of the day"));
    CHECK(contains(complaint(log + "17,free\n"), "the row has 2 fields, and the first line names 6"));
    CHECK(contains(complaint("Time,Action,Pointer\n"), "expected the columns"));
}

TEST_CASE("formats: lifetimes") {
    replay::trace const t = replay::parse_trace("id,lower,upper,size\nb1,0,3,100\nb2,3,5,70\nb3,1,4,8\nb4,2,2,9\n", "a.csv");
    CHECK(in_short(t) == "a0+100@0 a1+8@0 f0@0 a2+70@0 f1@0 f2@0");
    CHECK(t.peak_requested_bytes == 108);
    CHECK(in_short(replay::parse_trace("size,hint,end,begin\n5,0,2,1\n", "a.csv")) == "a0+5@0 f0@0"); // columns in any order
    CHECK(contains(complaint("id,lower,upper,size\n1,5,4,1\n"), "line 2: the life ends at 4, before it begins at 5"));
    CHECK(contains(complaint("id,lower,upper,size\n1,0,1,18446744073709551615\n"), "no longer fit 64 bits"));
    CHECK(contains(complaint("id,lower,upper,size\n1,0\n"), "the row has 2 fields"));
    // What has no addresses lies end to end in a snapshot.
    CHECK(in_short(replay::parse_trace(replay::converted(t, "b.pickle"), "b.pickle")) == in_short(t));
}

TEST_CASE("formats: a file that nobody knows gets a sentence that says what it looks like") {
    struct {
        std::string bytes;
        char const* said;
    } const all[] = {{"v 10400 3\nX ./a\n", "heaptrack_print and heaptrack_gui open"},
                     {"\x7f" "ELF\2\1", "a program"},
                     {"PK\3\4xx", "torch.save"},
                     {"\x28\xb5\x2f\xfd", "zstd -d"},
                     {"BZh9", "unpack it first"},
                     {"SQLite format 3", "Nsight"},
                     {"<!DOCTYPE html><p>", "a browser"},
                     {R"({"traceEvents": []})", "chrome://tracing"},
                     {std::string("ab\0c", 4), "none of the recordings that are known"}};
    for (auto const& each : all) {
        CAPTURE(each.bytes);
        CHECK(contains(complaint(each.bytes), each.said));
    }
}

TEST_CASE("formats: only known endings are written") {
    CHECK_THROWS_WITH_AS(static_cast<void>(replay::converted(replay::trace{}, "a.xml")),
                         doctest::Contains("does not say by its ending"), replay::bad_input);
}

TEST_CASE("formats: the page says who holds the peak, how long blocks live, and where they lie") {
    replay::program const of = sample();
    replay::trace t = replay::trace_of(of, "a");
    t.of = std::make_shared<replay::program const>(of);
    replay::result r;
    r.pool = &replay::contenders()[0];
    r.peak.reserved_bytes = 8192;
    r.reserved_bytes.assign(t.events.size(), 8192);
    std::string const page = replay::as_page({{&t, {r}}}, {"a device", true}, {});
    // At the peak, before the free: 2024 bytes of the inner call, 1000 of the outer one.
    CHECK(contains(page, "<code>a &quot;b&quot;\n&lt;c&gt;.cpp:70000, train&lt;float&gt;</code></th><td data-name=\"live then\">1.98 "
                         "KiB</td><td data-name=\"of the peak\">66.9 %"));
    CHECK(contains(page, "<code>main.cpp:3, main</code></th><td data-name=\"live then\">1000 B"));
    CHECK(contains(page, "1 ms to 10 ms</th><td data-name=\"blocks\">2<"));
    CHECK(contains(page, "to the end</th><td data-name=\"blocks\">1<"));
    // And on the terminal, where a line is a line.
    CHECK(replay::holders_text(t) == "  at the peak 1.98 KiB (66.9 %) in 1 block held by a \"b\"\\x0a<c>.cpp:70000, train<float>\n"
                                     "  at the peak 1000 B (33.1 %) in 1 block held by main.cpp:3, main\n");
    t.of = nullptr;
    CHECK(replay::holders_text(t).empty());
    // In the script, too, names stay text.
    CHECK(contains(page, "\"sites\":[\"not known\",\"a \\u0022b\\u0022\\u000a\\u003cc>.cpp:70000, train\\u003cfloat>\","));
    CHECK(contains(page, "\"bytes\":2097152,"));
    // Three blocks, the largest first, from 8 and 6 ms on; the third covers a cell of its own in the third level only.
    CHECK(contains(page, "\"levels\":[2,2,3,3],"));
    CHECK(contains(page, "class=\"blocks\">QB8AAHAXAA"));
    // What the recorded pool held, in the table and first in the sentence.
    CHECK(contains(page, "<th scope=\"row\">pool, as recorded<"));
    CHECK(contains(replay::point_of({&t, {r}}), "device_pool: 2.71 \u00d7 and never waits; pool, as recorded: 1.35 \u00d7."));
    CHECK(contains(page, "<line class=\"recorded\""));
}

TEST_CASE("formats: what the recorded program held, where the file says it") {
    std::string const rows = "op,id,bytes,stream,t_us\na,0,8,0,0\n";
    replay::trace const t = replay::parse_trace("# torch_peak_reserved=4096 conf=\n" + rows, "a.csv");
    REQUIRE(t.held.has_value());
    CHECK(t.held->peak_bytes == 4096);
    CHECK(t.held->who == "PyTorch, as recorded");
    CHECK_FALSE(replay::parse_trace(rows, "a.csv").held.has_value());
    CHECK(contains(complaint("# torch_peak_reserved=much\n" + rows), "torch_peak_reserved= is 'much'"));
    CHECK_FALSE(replay::trace_of(sample(false), "a").held.has_value());
}
