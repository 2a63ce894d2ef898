// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does 'replay' refuse what it cannot use, count right, and find weir's pools sound on a real trace?
//
// Sources beside this file: examples/replay/*.cpp without main.cpp. Libraries: the simulated device, zlib,
// CCCL (headers). Definition: WEIR_EXAMPLES_DIR, the path of examples/.

#include "../../examples/replay/beside.hpp"
#include "../../examples/replay/contender.hpp"
#include "../../examples/replay/curve.hpp"
#include "../../examples/replay/device.hpp"
#include "../../examples/replay/ledger.hpp"
#include "../../examples/replay/page.hpp"
#include "../../examples/replay/page_file.hpp"
#include "../../examples/replay/progress_bar.hpp"
#include "../../examples/replay/report.hpp"
#include "../../examples/replay/runner.hpp"
#include "../../examples/replay/text.hpp"
#include "../../examples/replay/trace.hpp"
#include "../../examples/replay/verdict.hpp"
#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
#include <zlib.h>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace {

std::string const header = "op,id,bytes,stream,t_us\n";

/// What reading `text` complains of; "" when it does not.
std::string complaint(std::string const& text) {
    try {
        static_cast<void>(replay::parse_trace(text, "in.csv"));
    } catch (replay::bad_input const& error) {
        return error.what();
    }
    return "";
}

std::string complaint_of_file(std::string const& path) {
    try {
        static_cast<void>(replay::read_trace(path));
    } catch (replay::bad_input const& error) {
        return error.what();
    }
    return "";
}

bool contains(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

/// A folder of this test's own, gone at its end.
class folder {
public:
    folder() {
        std::string name = (std::filesystem::temp_directory_path() / "weir-replay-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    folder(folder const&) = delete;
    folder& operator=(folder const&) = delete;

    std::string file(std::string const& name, std::string const& bytes) const {
        std::string const path = path_ + "/" + name;
        std::ofstream(path, std::ios::binary) << bytes;
        return path;
    }
    std::string packed(std::string const& name, std::string const& text) const {
        std::string const path = path_ + "/" + name;
        gzFile const file = gzopen(path.c_str(), "wb");
        REQUIRE(file != nullptr);
        REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) ==
                static_cast<int>(text.size()));
        REQUIRE(gzclose(file) == Z_OK);
        return path;
    }
    std::string const& path() const { return path_; }

private:
    std::string path_;
};

std::string bytes_of(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A trace of `count` events on `streams` streams that makes sense, with sizes from 1 byte to 4 MiB. Of every `elsewhere`
/// frees one is on another stream than the allocation; 0: none.
std::string random_trace(std::uint64_t seed, int count, unsigned streams, unsigned elsewhere = 0) {
    std::mt19937_64 random(seed);
    struct block {
        int id;
        std::uint64_t bytes;
        std::uint64_t stream;
    };
    std::vector<block> live;
    std::ostringstream out;
    out << "# name=random events=" << count << '\n' << header;
    for (int i = 0; i < count; ++i) {
        if (live.empty() || (live.size() < 60 && random() % 2)) {
            block const b{i, (random() % (std::uint64_t{1} << (1 + random() % 22))) + 1, random() % streams};
            live.push_back(b);
            out << "a," << b.id << ',' << b.bytes << ',' << b.stream << ',' << i * 3 << '\n';
        } else {
            std::size_t const at = random() % live.size();
            bool const moves = elsewhere != 0 && random() % elsewhere == 0;
            out << "f," << live[at].id << ',' << live[at].bytes << ',' << (live[at].stream + moves) % streams << ','
                << i * 3 << '\n';
            live[at] = live.back();
            live.pop_back();
        }
    }
    return out.str();
}

replay::result run_quietly(replay::contender const& pool, replay::trace const& trace,
                           replay::run_options const& options) {
    return replay::run(pool, trace, options, [](double) {});
}

replay::run_options untimed(std::size_t limit_bytes = replay::no_limit) {
    replay::run_options options;
    options.limit_bytes = limit_bytes;
    options.timed = false;
    return options;
}

/// The simulated device in a state of its own; on a GPU nothing.
struct fresh_device {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world world;
#endif
    fresh_device() {
        static_cast<void>(replay::open_device());
    }
};

} // namespace

// ---- the reader
// --------------------------------------------------------------------------------------------

TEST_CASE("replay: a small trace is read") {
    replay::trace const t = replay::parse_trace("# name=small events=6 note=x\n" + header +
                                                    "a,7,100,5,0\n"
                                                    "a,9,50,2,4\n"
                                                    "f,7,100,5,9\n"
                                                    "a,7,70,5,10\n"
                                                    "f,9,50,2,11\n"
                                                    "f,7,70,5,12\n",
                                                "some/where/small.csv.gz");
    CHECK(t.name == "small");
    CHECK(t.events.size() == 6);
    CHECK(t.blocks == 3); // an id that comes again is another block
    CHECK(t.streams == 2);
    CHECK(t.peak_requested_bytes == 150);
    CHECK(t.microseconds == std::vector<std::uint64_t>{0, 4, 9, 10, 11, 12});
    CHECK(t.events[0].block == 0);
    CHECK(t.events[1].block == 1);
    CHECK(t.events[2].block == 0);
    CHECK(t.events[3].block == 2);
    CHECK(t.events[5].block == 2);
    CHECK(t.events[0].stream == 0);
    CHECK(t.events[1].stream == 1);
    CHECK_FALSE(t.events[1].is_free);
    CHECK(t.events[2].is_free);
    CHECK(t.events[3].bytes == 70);
}

TEST_CASE("replay: a free knows on which stream its block was allocated") {
    replay::trace const t = replay::parse_trace(header + "a,1,5,9,0\na,2,5,7,0\nf,1,5,7,1\na,1,5,7,1\nf,2,5,7,1\n"
                                                         "f,1,5,9,1\n",
                                                "x.csv");
    std::vector<int> on, allocated_on;
    for (replay::event const& e : t.events) {
        on.push_back(e.stream);
        allocated_on.push_back(e.allocated_on);
    }
    CHECK(on == std::vector<int>{0, 1, 1, 1, 1, 0});
    CHECK(allocated_on == std::vector<int>{0, 1, 0, 1, 1, 1}); // an id that comes again is another block
}

TEST_CASE("replay: what a trace may have") {
    CHECK(complaint(header + "a,0,8,0,0\n") == "");                    // blocks that outlive it
    CHECK(complaint(header + "a,0,0,0,0\nf,0,0,0,0\n") == "");         // zero bytes
    CHECK(complaint("# one\n# two\n" + header + "a,0,8,0,0\n") == ""); // more state
    CHECK(complaint("# no state at all\n" + header + "a,0,8,0,0\n") == "");
    CHECK(complaint("op,id,bytes,stream,t_us\r\na,0,8,0,0\r\n") == ""); // another system's line ends
    CHECK(complaint("\xef\xbb\xbf" + header + "a,0,8,0,0\n") == "");    // a byte order mark
    CHECK(complaint(header + "a,18446744073709551615,18446744073709551615,0,18446744073709551615\n") == "");
}

TEST_CASE("replay: every refused line says where it is and what to do") {
    struct bad {
        char const* rows;
        char const* where;
        char const* what;
    };
    bad const cases[] = {
        {"a,0,8,0,0\nf,1,8,0,1\n", "in.csv, line 3: ", "frees block 1, which was never allocated"},
        {"a,0,8,0,0\nf,0,8,0,1\nf,0,8,0,2\n",
         "in.csv, line 4: ", "frees block 0 a second time, after line 3"},
        {"a,0,8,0,0\na,0,8,0,1\n", "in.csv, line 3: ", "allocates block 0, which is live since line 2"},
        {"a,0,8,0,0\nf,0,9,0,1\n", "in.csv, line 3: ", "as 9 bytes, but line 2 allocated 8"},
        {"a,0,8,0,5\nf,0,8,0,4\n", "in.csv, line 3: ", "t_us goes back from 5 to 4"},
        {"b,0,8,0,0\n", "in.csv, line 2: ", "op is 'b'"},
        {"alloc,0,8,0,0\n", "in.csv, line 2: ", "op is 'alloc'"},
        {",0,8,0,0\n", "in.csv, line 2: ", "op is ''"},
        {"a,0,8,0\n", "in.csv, line 2: ", "has 4 fields and not the 5 of 'op,id,"},
        {"a,0,8,0,0,0\n", "in.csv, line 2: ", "has 6 fields and not the 5 of"},
        {"\n", "in.csv, line 2: ", "has 1 field and not the 5 of"},
        {"a,0,-8,0,0\n", "in.csv, line 2: ", "bytes is '-8'; it must be a whole number, 0 or more"},
        {"a,-1,8,0,0\n", "in.csv, line 2: ", "id is '-1'"},
        {"a,0,8,-1,0\n", "in.csv, line 2: ", "stream is '-1'"},
        {"a,0,8,0,-3\n", "in.csv, line 2: ", "t_us is '-3'"},
        {"a,0,8.5,0,0\n", "in.csv, line 2: ", "bytes is '8.5'"},
        {"a,0, 8,0,0\n", "in.csv, line 2: ", "bytes is ' 8'"},
        {"a,0,0x8,0,0\n", "in.csv, line 2: ", "bytes is '0x8'"},
        {"a,0,,0,0\n", "in.csv, line 2: ", "bytes is ''"},
        {"a,0,18446744073709551616,0,0\n", "in.csv, line 2: ", "does not fit 64 bits"},
        {"a,99999999999999999999999,8,0,0\n",
         "in.csv, line 2: ", "id is '99999999999999999999999', which does not"},
        {"a,0,18446744073709551615,0,0\na,1,1,0,0\n",
         "in.csv, line 3: ", "all live blocks together no longer fit"},
        {"", "in.csv, line 1: ", "the trace has no events"},
        {"a,0,8,0,0\na,1,8,0,", "in.csv, line 3: ", "the last line has no end"},
    };
    for (bad const& each : cases) {
        CAPTURE(each.rows);
        std::string const said = complaint(header + each.rows);
        CAPTURE(said);
        CHECK(contains(said, each.where));
        CHECK(contains(said, each.what));
        CHECK(contains(said, ";")); // what is wrong; what to do
    }
}

TEST_CASE("replay: headers and state that are refused") {
    CHECK(contains(complaint(""), "in.csv: the file is empty"));
    CHECK(contains(complaint("\xef\xbb\xbf"), "in.csv: the file is empty"));
    CHECK(contains(complaint("\xef\xbb\xbf\xef\xbb\xbf" + header), "expected the header")); // one is enough
    CHECK(contains(complaint("op,id,bytes\na,0,8\n"), "in.csv, line 1: expected the header"));
    CHECK(contains(complaint("a,0,8,0,0\n"), "found 'a,0,8,0,0'"));
    CHECK(contains(complaint("# events=1\n"), "expected the header"));
    CHECK(contains(complaint("\n"), "found ''"));
    CHECK(
        contains(complaint("<xml>" + std::string(200, 'x') + "</xml>\n"), "...'")); // long lines are cut
    CHECK(contains(complaint(std::string("\x7f\x01 binary\n")), "'?? binary'"));
    CHECK(contains(complaint("# events=three\n" + header + "a,0,8,0,0\n"), "events= is 'three'"));
    CHECK(contains(complaint("# events=3\n" + header + "a,0,8,0,0\n"), "after 1 of the 3 events"));
    CHECK(contains(complaint("# events=1\n" + header + "a,0,8,0,0\nf,0,8,0,0\n"), "after 2 of the 1 events"));
    for (char const* const state : {"#events=9", "# a,events=9", "# a=1;events=9;b", "#\tevents=9\tb=2", "# a, events=9, b",
                                    "# events=1 events=9", "# all_events=7 events=9 of_events=8"}) {
        CAPTURE(state);
        CHECK(contains(complaint(std::string(state) + '\n' + header + "a,0,8,0,0\n"), "after 1 of the 9 events"));
    }
    CHECK(complaint("# all_events=9 no-events=x\n" + header + "a,0,8,0,0\n") == ""); // other state
}

TEST_CASE("replay: at most 256 streams") {
    std::string rows = header;
    for (int i = 0; i < 256; ++i)
        rows += "a," + std::to_string(i) + ",8," + std::to_string(1000 - i) + ",0\n";
    CHECK(complaint(rows) == "");
    CHECK(contains(complaint(rows + "a,256,8,7,0\n"), "line 258: stream 7 is one more than the 256"));
}

TEST_CASE("replay: files, packed or not") {
    folder const here;
    std::string const text = random_trace(1, 2000, 3);
    replay::trace const plain = replay::read_trace(here.file("plain.csv", text));
    replay::trace const packed = replay::read_trace(here.packed("packed.csv.gz", text));
    CHECK(plain.name == "plain");
    CHECK(packed.name == "packed");
    CHECK(plain.events.size() == 2000);
    CHECK(packed.events.size() == 2000);
    CHECK(plain.peak_requested_bytes == packed.peak_requested_bytes);
    CHECK(replay::read_trace(here.packed("odd.name", text)).name ==
          "odd.name"); // the content says that it is packed

    CHECK(contains(complaint_of_file(here.path() + "/none.csv"), "/none.csv: cannot open it (No such file"));
    CHECK(contains(complaint_of_file(""), "an empty name; give the path"));
    CHECK(contains(complaint_of_file(here.path()), "cannot read it (Is a directory)"));
    CHECK(contains(complaint_of_file(here.file("empty.csv", "")), "/empty.csv: the file is empty"));
    CHECK(contains(complaint_of_file(here.file("empty.csv.gz", "")), "/empty.csv.gz: the file is empty"));
}

TEST_CASE("replay: a file that was cut anywhere is refused") {
    folder const here;
    std::string const text = random_trace(2, 400, 2);
    for (std::size_t keep = 1; keep < text.size(); keep += 17) {
        CAPTURE(keep);
        CHECK(complaint(text.substr(0, keep)) != "");
    }
    std::string const whole = bytes_of(here.packed("whole.csv.gz", text));
    for (std::size_t keep = 3; keep < whole.size(); keep += 13) {
        CAPTURE(keep);
        std::string const said = complaint_of_file(here.file("cut.csv.gz", whole.substr(0, keep)));
        CAPTURE(said);
        CHECK(said != "");
        if (keep > 200) {
            CHECK(contains(said, "the gzip'd file ends too early, so it was cut; copy it again"));
            CHECK(contains(said, "cut.csv.gz, line "));
        }
    }
}

TEST_CASE("replay: a packed file that was damaged anywhere is refused") {
    folder const here;
    std::string const text = random_trace(3, 400, 2);
    std::string const whole = bytes_of(here.packed("whole.csv.gz", text));
    for (std::size_t at = 18; at < whole.size();
         at += 11) { // after the header, which has bytes that say nothing
        CAPTURE(at);
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
        CHECK(complaint_of_file(here.file("damaged.csv.gz", damaged)) != "");
    }
}

TEST_CASE("replay: what stands behind a packed trace's end is refused, unless it is packed as well") {
    folder const here;
    std::string const text = random_trace(2, 400, 2);
    std::string const whole = bytes_of(here.packed("whole.csv.gz", text));
    for (std::string const& garbage : {std::string("x"), std::string("a,0,8,0,0\n"), std::string(1, '\0'),
                                       std::string("\x1f"), std::string(100000, 'x')}) {
        CAPTURE(garbage.size());
        std::string const said = complaint_of_file(here.file("more.csv.gz", whole + garbage));
        CAPTURE(said);
        CHECK(contains(said, "/more.csv.gz, line 403: behind the end of the gzip'd trace are " +
                                 std::to_string(garbage.size()) +
                                 " bytes that are no part of it; copy it again"));
    }
    std::size_t const middle = text.find('\n', text.size() / 2) + 1;
    std::string const first = bytes_of(here.packed("first.csv.gz", text.substr(0, middle)));
    std::string const second = bytes_of(here.packed("second.csv.gz", text.substr(middle)));
    CHECK(replay::read_trace(here.file("both.csv.gz", first + second)).events.size() == 400);
    CHECK(
        contains(complaint_of_file(here.file("both.csv.gz", first + second.substr(0, 2))), "so it was cut"));
}

// ---- numbers and text
// --------------------------------------------------------------------------------------

TEST_CASE("replay: numbers for people") {
    CHECK(replay::with_commas(0) == "0");
    CHECK(replay::with_commas(999) == "999");
    CHECK(replay::with_commas(1000) == "1,000");
    CHECK(replay::with_commas(18446744073709551615u) == "18,446,744,073,709,551,615");
    CHECK(replay::in_bytes(0) == "0 B");
    CHECK(replay::in_bytes(1023) == "1023 B");
    CHECK(replay::in_bytes(670425096) == "639.4 MiB");
    CHECK(replay::in_bytes(std::uint64_t{5} << 30) == "5.00 GiB");
    CHECK(replay::in_bytes(1023900) == "999.9 KiB");
    CHECK(replay::in_bytes(1024000) == "0.98 MiB"); // four digits at most
    CHECK(replay::in_bytes(~std::uint64_t{0}) == "16.0 EiB");
    CHECK(replay::with_digits(1.0703, 3) == "1.070");
}

TEST_CASE("replay: what a file says never reaches the terminal as something to obey") {
    CHECK(replay::printable("a\u00e4\u20ac z~") == "a\u00e4\u20ac z~");
    CHECK(replay::printable(std::string("\0\n\x1b[31m\x7f", 8)) == "\\x00\\x0a\\x1b[31m\\x7f");
    CHECK(replay::printable("\u009b\u00a0\x9b\xe2\x82") == "\\xc2\\x9b\u00a0\\x9b\\xe2\\x82"); // CSI, in two bytes and in one
    std::string const log = "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00:000001,allocate,0x1,\x1b]0;owned\a,0\n";
    CHECK(contains(complaint(log), "Size is '\\x1b]0;owned\\x07', which is no whole number"));
    replay::trace const t = replay::parse_trace(header + "a,0,8,0,0\n", "a\x1b[2Jb.csv");
    CHECK(replay::as_table({&t, {}}, {"a device", true}).substr(0, 12) == "a\\x1b[2Jb: 1");
    CHECK(contains(replay::as_table({{"\x1b[2J.cpp:3", {}, {}}}, t, t, 1), "  \\x1b[2J.cpp:3\n"));
}

TEST_CASE("replay: limits as people write them") {
    CHECK(replay::bytes_from("1000") == 1000);
    CHECK(replay::bytes_from("1000B") == 1000);
    CHECK(replay::bytes_from("64K") == 64 * weir::KiB);
    CHECK(replay::bytes_from("512M") == 512 * weir::MiB);
    CHECK(replay::bytes_from("512m") == 512 * weir::MiB);
    CHECK(replay::bytes_from("8G") == 8 * weir::GiB);
    CHECK(replay::bytes_from("8GiB") == 8 * weir::GiB);
    CHECK(replay::bytes_from("8GB") == 8 * weir::GiB);
    CHECK(replay::bytes_from("8 GiB") == 8 * weir::GiB);
    CHECK(replay::bytes_from("1T") == 1024 * weir::GiB);
    for (char const* const bad :
         {"", "0", "0G", "G", "-1", "8X", "8  G", "8 ", "1.5G", "8GG", "8iB", "eight", "+8", " 8"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(static_cast<void>(replay::bytes_from(bad)), replay::bad_input);
    }
    CHECK_THROWS_WITH_AS(static_cast<void>(replay::bytes_from("99999999999G")),
                         doctest::Contains("do not fit 64 bits"), replay::bad_input);
    CHECK_THROWS_WITH_AS(static_cast<void>(replay::bytes_from("18446744073709551616")),
                         doctest::Contains("do not fit 64 bits"), replay::bad_input);
}

TEST_CASE("replay: the progress bar keeps to the terminal's width") {
    auto const columns = [](std::string const& line) {
        std::size_t count = 0;
        for (char const c : line)
            count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
        return count;
    };
    std::string const what = "a_trace_with_quite_a_long_name: composed_pool";
    CHECK(contains(replay::progress_line(200, 50, what), "\u2588\u2591"));
    CHECK(contains(replay::progress_line(200, 50, what), "\u2591  50 %  " + what));
    CHECK(columns(replay::progress_line(200, 50, what)) == 40 + what.size());
    CHECK_FALSE(contains(replay::progress_line(200, 0, what), "\u2588"));
    CHECK_FALSE(contains(replay::progress_line(200, 100, what), "\u2591"));
    for (std::size_t width = 20; width < 40 + what.size(); ++width)
        for (int const percent : {0, 7, 50, 100}) {
            CAPTURE(width);
            CHECK(columns(replay::progress_line(width, percent, what)) == width);
        }
    CHECK(columns(replay::progress_line(0, 50, what)) == 20);
    std::string const cut =
        replay::progress_line(20, 50, "\u00e4\u00f6\u00fc"); // no half of a character is left
    CHECK(columns(cut) == 20);
    CHECK(cut.substr(cut.size() - 4) == "\u00e4\u00f6");
}

TEST_CASE("replay: a curve of columns loses no peak") {
    replay::trace const t =
        replay::parse_trace(header + "a,0,10,0,0\na,1,90,0,1\nf,1,90,0,2\na,2,5,0,100\n", "x.csv");
    std::vector<std::uint64_t> const requested = replay::requested_bytes(t);
    CHECK(requested == std::vector<std::uint64_t>{10, 100, 10, 15});
    std::vector<std::uint64_t> const by_time = replay::highest(t, replay::axis::time, requested, 10);
    CHECK(by_time == std::vector<std::uint64_t>{100, 10, 10, 10, 10, 10, 10, 10, 10, 15});
    std::vector<std::uint64_t> const by_event = replay::highest(t, replay::axis::events, requested, 2);
    CHECK(by_event == std::vector<std::uint64_t>{100, 100}); // 100 still held where the second column begins
    CHECK(replay::highest(t, replay::axis::events, requested, 8) ==
          std::vector<std::uint64_t>{10, 10, 100, 100, 100, 10, 15, 15});

    CHECK(replay::sums(t, replay::axis::time, {1, 0, 2, 5}, 10) == std::vector<std::uint64_t>{3, 0, 0, 0, 0, 0, 0, 0, 0, 5});
    CHECK(replay::sums(t, replay::axis::events, {1, 0, 2, 5}, 2) == std::vector<std::uint64_t>{1, 7});

    replay::trace const one = replay::parse_trace(header + "a,0,10,0,0\n", "x.csv"); // no time passes
    CHECK(replay::highest(one, replay::axis::time, {10}, 3) == std::vector<std::uint64_t>{10, 10, 10});
}

TEST_CASE("replay: the ledger counts pages of 2 MiB") {
    replay::ledger book;
    CHECK(book.reserved_bytes() == 0);
    book.asked(1, true);
    CHECK(book.reserved_bytes() == 2 * weir::MiB);
    book.asked(512 * weir::KiB, true); // shares the page
    book.asked(1 * weir::MiB, true);
    CHECK(book.reserved_bytes() == 2 * weir::MiB);
    book.asked(1 * weir::MiB, true); // begins the next one
    CHECK(book.reserved_bytes() == 4 * weir::MiB);
    book.asked(2 * weir::MiB, true); // has its own
    CHECK(book.reserved_bytes() == 6 * weir::MiB);
    book.asked(2 * weir::MiB + 1, true);
    CHECK(book.reserved_bytes() == 10 * weir::MiB);
    book.asked(64 * weir::GiB, false);
    CHECK(book.reserved_bytes() == 10 * weir::MiB);
    CHECK(book.calls() == 7);
    for (std::size_t const bytes :
         {2 * weir::MiB + 1, 1 * weir::MiB, std::size_t{1}, 512 * weir::KiB, 1 * weir::MiB, 2 * weir::MiB})
        book.gave_back(bytes);
    CHECK(book.reserved_bytes() == 0);
    CHECK(book.calls() == 13);

    replay::ledger limited(4 * weir::MiB);
    CHECK(limited.admits(4 * weir::MiB));
    CHECK_FALSE(limited.admits(4 * weir::MiB + 1));
    CHECK_FALSE(limited.admits(replay::no_limit));
    limited.asked(2 * weir::MiB, true);
    CHECK(limited.admits(100));
    limited.asked(100, true);
    CHECK(limited.admits(100));                 // room in the shared page
    CHECK_FALSE(limited.admits(2 * weir::MiB)); // but for no further page
    CHECK(limited.calls() == 5);                // refused requests were made
    CHECK(limited.waiting_calls() == 5);        // each of cudaMalloc
    limited.called(replay::memory_call);
    limited.called(replay::wait_alone);
    CHECK(limited.calls() == 6);
    CHECK(limited.waiting_calls() == 6);
}

TEST_CASE("replay: the table, the CSV and the page say the same") {
    replay::trace const t =
        replay::parse_trace(header + "a,0,10485760,0,0\na,1,1000,0,1\n", "a \"b\",<c>.csv");
    replay::result r;
    r.pool = &replay::contenders()[0];
    r.peak = {1, 10486760, 10486784, 12 * weir::MiB};
    r.reserved_bytes = {10 * weir::MiB, 12 * weir::MiB};
    r.calls_at = {1000, 234};
    r.waiting_calls_at = {0, 567};
    r.driver_calls = 1234;
    r.waiting_calls = 567;
    r.operations = 8910;
    r.failures = 2;
    replay::comparison const c{&t, {r}};

    CHECK(replay::csv_header() ==
          "pool,trace,events,peak_requested_bytes,peak_reserved_bytes,ns_per_op,driver_calls,failures,waiting_calls,"
          "operations\n");
    CHECK(replay::as_csv(c) == "device_pool,\"a \"\"b\"\",<c>\",2,10486760,12582912,,1234,2,567,8910\n");
    std::string const table = replay::as_table(c, {"a device", true});
    CHECK(contains(table, "2 events on 1 stream, 10.0 MiB requested at the peak; on a device"));
    CHECK(contains(table, "12.0 MiB        1.200                 -         1,234              567         2"));

    std::string const page = replay::as_page({c}, {"a <device>", true}, untimed(8 * weir::GiB));
    CHECK(contains(page, "Replay of a &quot;b&quot;,&lt;c&gt;"));
    CHECK(contains(page, "a &lt;device&gt;"));
    CHECK(contains(page, "1.200"));
    CHECK(contains(page, "1,234"));
    CHECK(contains(page, "567<span class=\"of\">in 8,910 operations"));
    CHECK(contains(page, "\"calls\":[[1000,0,"));  // at the trace's begin and end
    CHECK(contains(page, ",567]]"));
    CHECK(contains(page, "<path class=\"wait\" d=\"M545 "));
    CHECK(contains(page, "--own:1.0000"));
    CHECK_FALSE(contains(page, ">ns per operation</th>")); // where there are no times
    CHECK(contains(page, "No pool could hold more than 8.00 GiB") == false);
    CHECK(contains(
        page,
        "no pool could hold more than 8.00 GiB, but <code>driver_pool</code>, whose limit CUDA rounds up"));
    for (std::string const& notes : {page, replay::footnotes(untimed(8 * weir::GiB))}) {
        CAPTURE(notes);
        for (char const* const call :
             {"cudaMalloc", "cudaFree", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemRelease",
              "cuMemUnmap", "cudaMallocFromPoolAsync", "cudaStreamSynchronize", "cudaFreeAsync", "up by tens of MiB"})
            CHECK(contains(notes, call));
    }
    CHECK_FALSE(contains(replay::footnotes(untimed()), "up by tens of MiB")); // where no limit was given
    CHECK(contains(replay::footnotes(untimed()), "the simulation's idea of CUDA's pool"));
    CHECK_FALSE(contains(page, "<c>"));
    for (char const* const foreign : {"http:", "https:", "src=", "url(", "@import", "<link"})
        CHECK_FALSE(contains(page, foreign));

    replay::result timed = r;
    timed.ns_per_operation = 123.46;
    replay::comparison const with_time{&t, {timed}};
    CHECK(contains(replay::as_csv(with_time), ",12582912,123.5,1234,2,567,8910\n"));
    CHECK(contains(replay::as_page({with_time}, {"a device", false}, untimed()), ">ns per operation</th>"));
    CHECK(contains(replay::as_table(with_time, {"a device", false}), "123"));
}

TEST_CASE("replay: a pool that refused something is the best of no column") {
    replay::trace const t = replay::parse_trace(header + "a,0,8,0,0\n", "small.csv");
    auto const row = [&](std::size_t pool, std::uint64_t calls, std::uint64_t failures) {
        replay::result r;
        r.pool = &replay::contenders()[pool];
        r.peak.reserved_bytes = calls * 2 * weir::MiB;
        r.reserved_bytes = {r.peak.reserved_bytes};
        r.driver_calls = calls;
        r.failures = failures;
        return r;
    };
    auto const page = [&](std::uint64_t failures) {
        return replay::as_page({{&t, {row(0, 31, failures), row(1, 47, 0)}}}, {"a device", true}, untimed());
    };
    std::string const calls = "<td data-name=\"driver calls\"";
    CHECK(contains(page(0), calls + " class=\"best\">31</td>"));
    CHECK(contains(page(0), calls + ">47</td>"));
    CHECK(contains(page(2), calls + ">31</td>"));
    CHECK(contains(page(2), calls + " class=\"best\">47</td>"));
    CHECK(contains(page(2), "<td data-name=\"failures\" class=\"bad\">2</td>"));
}

TEST_CASE("replay: a chart's own scale ends at its own top") {
    replay::trace const t = replay::parse_trace(header + "a,0,1048576,0,0\n", "small.csv");
    std::vector<replay::result> results(2);
    for (std::size_t i = 0; i < results.size(); ++i) {
        results[i].pool = &replay::contenders()[i];
        results[i].peak.reserved_bytes = (i == 0 ? 2 : 10) * weir::MiB;
        results[i].reserved_bytes = {results[i].peak.reserved_bytes};
        results[i].calls_at = results[i].waiting_calls_at = {0};
    }
    std::string const page = replay::as_page({{&t, results}}, {"a device", true}, untimed());
    CHECK(contains(page, "--own:5.0000"));
    CHECK(contains(page, "--own:1.0000"));
}

TEST_CASE("replay: the verdict follows the figures, also against weir") {
    replay::trace const t = replay::parse_trace(header + "a,0,1000,0,0\n", "small.csv");
    struct figures {
        char const* pool;
        std::uint64_t reserved_bytes, waiting_calls, failures;
        double ns; // 0: no time
    };
    auto const said = [&](std::vector<figures> const& all, bool is_simulated = false) {
        replay::comparison c{&t, {}};
        for (figures const& each : all)
            for (replay::contender const& pool : replay::contenders())
                if (pool.name == each.pool) {
                    replay::result& r = c.results.emplace_back();
                    r.pool = &pool;
                    r.peak.reserved_bytes = each.reserved_bytes;
                    r.waiting_calls = each.waiting_calls;
                    r.operations = 1234;
                    r.failures = each.failures;
                    if (each.ns > 0)
                        r.ns_per_operation = each.ns;
                }
        REQUIRE(c.results.size() == all.size());
        return replay::verdict(c, is_simulated);
    };
    figures const weirs{"device_pool", 1100, 5, 0, 100};
    struct {
        std::vector<figures> results;
        bool is_simulated;
        char const* sentence;
    } const cases[] = {
        {{weirs, {"cub", 1200, 6, 0, 200}}, false,
         "No other pool is better than device_pool in anything: it holds 1.100 \u00d7 what was requested, and makes 5 "
         "calls that wait in 1,234 operations."},
        {{weirs, {"cub", 1100, 5, 0, 103}}, false, "No other pool is better than device_pool in anything: "}, // all alike
        {{weirs, {"cub", 1000, 4, 0, 50}}, false,
         "cub is ahead of device_pool here: cub holds less (1.000 \u00d7 requested against 1.100), waits less often "
         "(4 calls against 5) and is faster (50 ns an operation against 100)."},
        {{weirs, {"cub", 1100, 4, 0, 100}, {"thrust", 1000, 5, 0, 96}, {"cudaMalloc", 1000, 9, 0, 999}}, false,
         "cub and thrust are ahead of device_pool here: cub waits less often (4 calls against 5); thrust holds less "
         "(1.000 \u00d7 requested against 1.100)."},
        {{weirs, {"cudaMalloc", 1000, 900, 0, 0}, {"cub", 1200, 6, 0, 200}}, false,
         "No other pool is ahead of device_pool in everything: cudaMalloc holds less (1.000 \u00d7 requested against 1.100) "
         "but waits more often (900 calls against 5); cub is better in nothing."},
        {{weirs, {"driver_pool", 1000, 0, 0, 50}}, false, "driver_pool is ahead of device_pool here: "},
        {{weirs, {"driver_pool", 1000, 0, 0, 0}}, true, // what it holds is a guess there, for and against
         "There is no other pool to compare device_pool with (not compared: what driver_pool would hold on a GPU is not "
         "known)."},
        {{weirs, {"cub", 1000, 4, 2, 50}, {"thrust", 1200, 5, 0, 100}}, false,
         "operations (not compared: cub refused allocations)."},
        {{{"device_pool", 900, 0, 3, 10}, {"cub", 1000, 4, 0, 50}, {"thrust", 1200, 5, 1, 9}}, false,
         "device_pool refused 3 allocations here, and cub none."},
        {{{"device_pool", 900, 0, 3, 10}, {"cub", 1000, 4, 1, 50}}, false, "and no other pool that was asked served them all."},
        {{weirs, {"compact_device_pool", 1000, 0, 0, 9}}, false, "There is no other pool to compare device_pool with."},
        {{{"composed_pool", 1100, 5, 0, 100}, {"cub", 1000, 4, 0, 50}}, false, "cub is ahead of composed_pool here"},
        {{{"cub", 1000, 4, 0, 50}}, false, "No pool of weir\u2019s was asked"},
    };
    for (auto const& each : cases) {
        std::string const sentence = said(each.results, each.is_simulated);
        CAPTURE(sentence);
        CHECK(contains(sentence, each.sentence));
        CHECK(sentence.find(". ") == std::string::npos); // one sentence
        CHECK(sentence.back() == '.');
    }
}

TEST_CASE("replay: a file's name that is no UTF-8 leaves the page sound") {
    std::string const replacement = "\xef\xbf\xbd";
    struct {
        char const* name;
        std::string on_page;
    } const cases[] = {
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\x8a", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\x8a"},       // two, three, four bytes
        {"a\xe4z", "a" + replacement + "z"},                                                        // Latin-1
        {"a\xe2\x82", "a" + replacement + replacement},                                             // cut
        {"\xc0\xaf", replacement + replacement},                                                    // '/' in two bytes
        {"\xe0\x80\xaf", replacement + replacement + replacement},                                  // in three
        {"\xed\xa0\x80", replacement + replacement + replacement},                                  // a surrogate
        {"\xf4\x90\x80\x80", replacement + replacement + replacement + replacement},                // beyond U+10FFFF
        {"\xff\x80<", replacement + replacement + "&lt;"},
    };
    for (auto const& each : cases) {
        replay::trace const t = replay::parse_trace(header + "a,0,8,0,0\n", std::string(each.name) + ".csv");
        CHECK(contains(replay::as_page({{&t, {}}}, {"a device", true}, untimed()), "Replay of " + each.on_page + "</h1>"));
    }
}

TEST_CASE("replay: the page's bars hold what no device has") {
    replay::trace const t = replay::parse_trace(header + "a,0,18446744073709551615,0,0\n", "all.csv");
    replay::result r;
    r.pool = &replay::contenders()[0];
    r.reserved_bytes = {0};
    r.failures = 1;
    std::string const page = replay::as_page({{&t, {r}}}, {"a device", true}, untimed());
    CHECK(contains(page, "class=\"mark\" style=\"left:80.000%\"")); // the bars' scale ends a quarter beyond it
}

TEST_CASE("replay: a trace is never taken for the page's name") {
    folder const here;
    std::string const trace = here.file("mine.csv", "a trace");
    std::string const odd = here.file("odd.name", "a trace");
    std::filesystem::create_symlink(odd, here.path() + "/page.html");
    std::filesystem::create_symlink(trace, here.path() + "/link.html");
    auto const refused = [&](std::string const& name, std::vector<std::string> const& traces) {
        CAPTURE(name);
        CHECK_THROWS_WITH_AS(replay::page_file(here.path() + "/" + name, traces),
                             doctest::Contains(("--html is followed by the page's name, and '" + here.path() + "/" + name +
                                                "' looks like a trace; name the page first")
                                                   .c_str()),
                             replay::bad_input);
    };
    refused("mine.csv", {});             // 'replay --csv --html mine.csv'
    refused("mine.csv", {odd});          // 'replay --html *.csv'
    refused("new.csv", {});              // also where there is none
    refused("new.csv.gz", {});
    refused("NEW.CSV", {});
    refused("odd.name", {trace, odd});   // whatever its name is
    refused("page.html", {odd});         // by another one
    refused("link.html", {trace});
    for (std::string const& each : {trace, odd})
        CHECK(bytes_of(each) == "a trace");
    CHECK_THROWS_WITH_AS(replay::page_file(here.path() + "/nowhere/page.html", {}),
                         doctest::Contains("/nowhere/page.html'; name another file with --html, or use --no-html"),
                         replay::bad_input);
    CHECK_THROWS_WITH_AS(replay::page_file(here.path(), {}), doctest::Contains("cannot write '"), replay::bad_input);
}

TEST_CASE("replay: a page that is not written to its end leaves the old one") {
    folder const here;
    std::string const old = here.file("page.html", "the old page");
    std::string const neighbour = here.file("page.html.part", "somebody's");
    auto const files = [&] {
        return std::distance(std::filesystem::directory_iterator(here.path()), std::filesystem::directory_iterator());
    };
    { replay::page_file const broken_off(old, {}); }
    CHECK(bytes_of(old) == "the old page");
    CHECK(files() == 2);
    CHECK(replay::page_file(old, {}).write("the new page"));
    CHECK(bytes_of(old) == "the new page");
    CHECK(bytes_of(neighbour) == "somebody's");
    CHECK(files() == 2);

    std::string const fresh = here.path() + "/fresh.html";
    CHECK(replay::page_file(fresh, {}).write("a page"));
    CHECK(bytes_of(fresh) == "a page");

    std::filesystem::create_symlink(old, here.path() + "/link.html");
    CHECK(replay::page_file(here.path() + "/link.html", {}).write("through the link"));
    CHECK(bytes_of(old) == "through the link");
    CHECK(std::filesystem::is_symlink(here.path() + "/link.html"));

    if (std::filesystem::exists("/dev/full")) { // a device is written to, and nothing is moved to it
        CHECK_FALSE(replay::page_file("/dev/full", {}).write("a page"));
        CHECK(std::filesystem::is_character_file("/dev/full"));
    }
}

// ---- pools
// -------------------------------------------------------------------------------------------------

TEST_CASE("replay: every pool replays, counts and gives everything back") {
    replay::trace const t = replay::parse_trace(random_trace(4, 3000, 3), "random.csv");
    for (replay::contender const& pool : replay::contenders()) {
        CAPTURE(pool.name);
        fresh_device const device;
        replay::result const r = run_quietly(pool, t, untimed());
        CHECK(r.failures == 0);
        CHECK(r.peak.reserved_bytes >= t.peak_requested_bytes);
        CHECK(r.peak.reserved_bytes % (2 * weir::MiB) == 0);
        CHECK(r.peak.live_bytes <= t.peak_requested_bytes);
        CHECK(r.peak.handed_out_bytes >= r.peak.live_bytes);
        CHECK(r.peak.handed_out_bytes <= r.peak.reserved_bytes);
        CHECK(r.driver_calls > 0);
        CHECK(r.driver_calls <= t.events.size() * 2);
        CHECK(std::accumulate(r.calls_at.begin(), r.calls_at.end(), std::uint64_t{0}) == r.driver_calls);
        CHECK(std::accumulate(r.waiting_calls_at.begin(), r.waiting_calls_at.end(), std::uint64_t{0}) == r.waiting_calls);
        CHECK(r.calls_at.size() == t.events.size());
        CHECK(r.waiting_calls_at.size() == t.events.size());
        CHECK(r.operations == t.events.size());
        CHECK(r.reserved_bytes.size() == t.events.size());
        CHECK(*std::max_element(r.reserved_bytes.begin(), r.reserved_bytes.end()) == r.peak.reserved_bytes);
        CHECK(r.reserved_bytes[r.peak.at_event] == r.peak.reserved_bytes);
        CHECK_FALSE(r.ns_per_operation);
    }
}

TEST_CASE("replay: a pool of weir's holds little more than the trace that is shipped asks for") {
    replay::trace const t = replay::read_trace(WEIR_EXAMPLES_DIR "/data/prefetch_streams.csv.gz");
    // Of all it needs; and with a limit 3 % above what the trace asks for at most.
    auto const ratio = [&](std::string const& name, std::size_t limit = replay::no_limit) {
        for (replay::contender const& pool : replay::contenders())
            if (pool.name == name) {
                fresh_device const device;
                replay::result const r = run_quietly(pool, t, untimed(limit));
                CHECK(r.failures == 0);
                return static_cast<double>(r.peak.reserved_bytes) / static_cast<double>(t.peak_requested_bytes);
            }
        FAIL("there is no pool of that name");
        return 0.0;
    };
    CHECK(ratio("device_pool") < 1.07); // the README's figures; a trace replays alike each time
    CHECK(ratio("compact_device_pool") < 1.025);
    for (char const* const name : {"device_pool", "compact_device_pool"}) {
        CAPTURE(name);
        CHECK(ratio(name, t.peak_requested_bytes / 100 * 103) <= 1.03);
    }
}

TEST_CASE("replay: timed passes give a time") {
    replay::trace const t = replay::parse_trace(random_trace(5, 500, 2), "random.csv");
    fresh_device const device;
    for (replay::contender const& pool : replay::contenders()) {
        CAPTURE(pool.name);
        replay::run_options options;
        options.timed_passes = 2;
        double last = -1;
        replay::result const r = replay::run(pool, t, options, [&](double part) {
            CHECK(part >= last);
            last = part;
        });
        CHECK(last == 1);
        CHECK(r.failures == 0);
        REQUIRE(r.ns_per_operation);
        CHECK(*r.ns_per_operation > 0);
    }
}

TEST_CASE("replay: under a limit allocations fail, and the replay goes on") {
    replay::trace const t = replay::parse_trace(random_trace(6, 3000, 2), "random.csv");
    std::size_t const limit = weir::base::align_up(t.peak_requested_bytes / 2, 2 * weir::MiB);
    for (replay::contender const& pool : replay::contenders()) {
        CAPTURE(pool.name);
        fresh_device const device;
        replay::result const r = run_quietly(pool, t, untimed(limit));
        CHECK(r.failures < t.events.size());
        CHECK(r.peak.reserved_bytes > 0);
        if (pool.name != "driver_pool") { // CUDA rounds a pool's maximum up, by tens of MiB
            CHECK(r.failures > 0);
            CHECK(r.peak.reserved_bytes <= limit);
        }
    }
}

TEST_CASE("replay: a block that no device has is a failure, not the end") {
    std::string const rows = header + "a,0,1000,0,0\na,1,1152921504606846976,0,1\na,2,0,0,2\nf,2,0,0,3\n"
                                      "f,1,1152921504606846976,0,4\nf,0,1000,0,5\n";
    replay::trace const t = replay::parse_trace(rows, "huge.csv");
    for (replay::contender const& pool : replay::contenders()) {
        CAPTURE(pool.name);
        fresh_device const device;
        replay::result const r = run_quietly(pool, t, untimed());
        CHECK(r.failures == 1);
        CHECK(r.operations >= 3); // of the refused block neither; some pools have no block of no bytes to free
        CHECK(r.operations <= 4);
        CHECK(r.peak.live_bytes == 1000);
    }
}

TEST_CASE("replay: the first lines of many") {
    CHECK(replay::first_lines("", 2) == "");
    CHECK(replay::first_lines("a\nb\n", 2) == "a\nb\n");
    CHECK(replay::first_lines("a\nb\nc\n", 2) == "a\nb\n... and 1 more\n");
    CHECK(replay::first_lines("a\nb", 2) == "a\nb");
}

#ifdef WEIR_SIMULATED_CUDA

TEST_CASE("replay: a block that another stream frees is ordered before it is free") {
    std::string const rows = random_trace(9, 2000, 4, 3);
    replay::trace const t = replay::parse_trace(rows, "elsewhere.csv");
    REQUIRE(std::any_of(t.events.begin(), t.events.end(),
                        [](replay::event const& e) { return e.stream != e.allocated_on; }));
    for (replay::contender const& pool : replay::contenders()) {
        CAPTURE(pool.name);
        simulated_cuda::world world(simulated_cuda::config{}.random(3));
        replay::run_options options;
        options.timed_passes = 1; // the loop that is timed as well as the one that watches
        CHECK(run_quietly(pool, t, options).failures == 0);
        std::vector<simulated_cuda::report> const found = world.finish();
        CHECK_MESSAGE(found.empty(), (found.empty() ? std::string() : found.front().sentence));
    }
}

TEST_CASE("replay: a block that two streams use is handed to nobody who does not wait for both") {
    replay::trace const t = replay::parse_trace(random_trace(10, 1500, 4, 3), "elsewhere.csv");
    for (replay::contender const& pool : replay::contenders()) {
        if (pool.name == "thrust") // knows no streams
            continue;
        bool const is_watched = pool.name == "driver_pool"; // by the device itself: it is CUDA's
        for (bool const handed_over : {false, true}) { // whether the stream that frees used it too
            CAPTURE(pool.name);
            CAPTURE(handed_over);
            simulated_cuda::world world(simulated_cuda::config{}.random(4));
            {
                std::vector<cudaStream_t> streams(t.streams);
                for (cudaStream_t& stream : streams)
                    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
                std::unique_ptr<replay::session> const session = pool.open(replay::no_limit);
                replay::block_table blocks(t.blocks, nullptr);
                for (replay::event const& e : t.events) {
                    cudaStream_t const stream = streams[e.stream], first = streams[e.allocated_on];
                    void*& block = blocks[e.block];
                    std::size_t const used = std::min<std::size_t>(e.bytes, 64);
                    if (!e.is_free) {
                        block = session->watched_allocate(stream, e.bytes);
                        REQUIRE(block != nullptr);
                        if (!is_watched)
                            simulated_cuda::note_allocate(block, e.bytes, stream);
                        simulated_cuda::launch(stream, {}, {{block, used}});
                        continue;
                    }
                    if (stream != first) {
                        if (handed_over) {
                            replay::put_after(stream, first);
                            simulated_cuda::launch(stream, {}, {{block, used}});
                        }
                        session->order_free(stream, first);
                    }
                    if (!is_watched)
                        simulated_cuda::note_free(block, e.bytes, stream);
                    session->watched_deallocate(stream, block, e.bytes);
                    block = nullptr;
                }
                for (cudaStream_t const stream : streams)
                    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
                for (replay::event const& e : t.events)
                    if (!e.is_free && blocks[e.block]) {
                        if (!is_watched)
                            simulated_cuda::note_free(blocks[e.block], e.bytes, streams[e.stream]);
                        session->watched_deallocate(streams[e.stream], blocks[e.block], e.bytes);
                    }
                for (cudaStream_t const stream : streams) {
                    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
                    REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
                }
            }
            std::vector<simulated_cuda::report> const found = world.finish();
            CHECK_MESSAGE(found.empty(), (found.empty() ? std::string() : found.front().sentence));
        }
    }
}

TEST_CASE("replay: no GPU and an old driver are sentences") {
    {
        simulated_cuda::world world(simulated_cuda::config{}.with_devices(0));
        CHECK_THROWS_WITH_AS(static_cast<void>(replay::open_device()),
                             doctest::Contains("no GPU is visible; check"), replay::bad_input);
        CHECK_THROWS_WITH_AS(static_cast<void>(replay::open_device()),
                             doctest::Contains("'WEIR_DEVICE=simulated sh examples/run.sh'"),
                             replay::bad_input);
        world.forgive();
    }
    simulated_cuda::world world(simulated_cuda::config{}.with_driver(CUDART_VERSION / 1000 * 1000 - 10));
    CHECK_THROWS_WITH_AS(static_cast<void>(replay::open_device()),
                         doctest::Contains("driver is older than the CUDA runtime"), replay::bad_input);
    CHECK_THROWS_WITH_AS(static_cast<void>(replay::open_device()),
                         doctest::Contains("'WEIR_DEVICE=simulated sh examples/run.sh'"), replay::bad_input);
    world.forgive();
}

namespace {

/// How many calls that wait the device saw.
std::uint64_t waits_seen() {
    std::uint64_t all = 0;
    for (char const* const call :
         {"cudaMalloc", "cudaFree", "cudaMallocManaged", "cudaHostAlloc", "cudaFreeHost", "cudaHostRegister",
          "cudaHostUnregister", "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"})
        all += simulated_cuda::calls(call);
    return all;
}

} // namespace

TEST_CASE("replay: driver calls are the calls that the device saw") {
    replay::trace const t = replay::parse_trace(random_trace(7, 2000, 3), "random.csv");
    for (replay::contender const& pool : replay::contenders()) {
        CAPTURE(pool.name);
        std::uint64_t counted = 0, seen = 0, counted_waits = 0, seen_waits = 0;
        {
            simulated_cuda::world world;
            std::unique_ptr<replay::session> const session = pool.open(replay::no_limit);
            std::vector<cudaStream_t> streams(t.streams);
            for (cudaStream_t& stream : streams)
                REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
            auto const calls = [] {
                return simulated_cuda::calls("cudaMalloc") + simulated_cuda::calls("cudaFree") +
                       simulated_cuda::calls("cudaMallocManaged") +
                       simulated_cuda::calls("cudaMallocFromPoolAsync") +
                       simulated_cuda::calls("cudaFreeAsync") + simulated_cuda::calls("cuMemCreate") +
                       simulated_cuda::calls("cuMemMap") + simulated_cuda::calls("cuMemRelease") +
                       simulated_cuda::calls("cuMemSetAccess") + simulated_cuda::calls("cuMemUnmap") +
                       simulated_cuda::calls("cuMemRetainAllocationHandle");
            };
            std::uint64_t const before = calls(), waits_before = waits_seen();
            replay::block_table blocks(t.blocks, nullptr);
            CHECK(session->run(t.events, streams, blocks) == t.events.size());
            CHECK(session->watched_allocate(streams[0], 1024 * weir::GiB) == nullptr); // more than there is
            simulated_cuda::fail_call("cuMemCreate", 3,
                                      cudaErrorMemoryAllocation); // what was mapped before goes back
            for (std::size_t const bytes : {0 * weir::MiB, 512 * weir::MiB})
                if (void* const block = session->watched_allocate(streams[0], bytes))
                    session->watched_deallocate(streams[0], block, bytes);
            simulated_cuda::clear_faults();
            counted = session->book().calls();
            seen = calls() - before;
            counted_waits = session->book().waiting_calls();
            seen_waits = waits_seen() - waits_before;
            for (replay::event const& e : t.events)
                if (!e.is_free && blocks[e.block])
                    session->watched_deallocate(streams[e.stream], blocks[e.block], e.bytes);
            world.forgive();
        }
        CHECK(counted == seen);
        CHECK(counted_waits == seen_waits);
        CHECK(counted > 0);
    }
}

TEST_CASE("replay: a pool that waits for its streams is seen waiting") {
    for (replay::contender const& pool : replay::contenders()) {
        if (!pool.is_weirs)
            continue;
        CAPTURE(pool.name);
        simulated_cuda::world world(simulated_cuda::config{}.late());
        std::vector<cudaStream_t> streams(3);
        for (cudaStream_t& stream : streams)
            REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        {
            std::unique_ptr<replay::session> const session = pool.open(128 * weir::MiB);
            for (cudaStream_t const stream : {streams[0], streams[1]}) {
                void* const block = session->watched_allocate(stream, 64 * weir::MiB);
                REQUIRE(block != nullptr);
                simulated_cuda::launch(stream, {}, {{block, 64}});
                session->watched_deallocate(stream, block, 64 * weir::MiB);
            }
            std::uint64_t const before = session->book().waiting_calls(), seen_before = waits_seen();
            void* const both = session->watched_allocate(streams[2], 128 * weir::MiB);
            REQUIRE(both != nullptr);
            CHECK(session->book().waiting_calls() > before);
            CHECK(session->book().waiting_calls() - before == waits_seen() - seen_before);
            session->watched_deallocate(streams[2], both, 128 * weir::MiB);
        }
        for (cudaStream_t const stream : streams)
            REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
        CHECK(world.finish().empty());
    }
}

TEST_CASE("replay: CUDA failing in the middle ends the replay, and nothing is lost") {
    replay::trace const t = replay::parse_trace(random_trace(8, 300, 2), "random.csv");
    for (replay::contender const& pool : replay::contenders()) {
        CAPTURE(pool.name);
        simulated_cuda::world world;
        bool const maps = pool.name == "device_pool" || pool.name == "compact_device_pool" || pool.name == "promised_device_pool";
        char const* const call = pool.name == "driver_pool" ? "cudaMallocFromPoolAsync"
                                 : maps                     ? "cuMemCreate"
                                                            : "cudaMalloc";
        simulated_cuda::fail_call(call, 1, cudaErrorUnknown);
        CHECK_THROWS(static_cast<void>(run_quietly(pool, t, untimed())));
        simulated_cuda::clear_faults();
        simulated_cuda::drain();
        CHECK(world.finish().empty()); // no leak
    }
}

TEST_CASE("replay: weir's pools are sound on the trace that ships, whatever the schedule") {
    replay::trace const t = replay::read_trace(WEIR_EXAMPLES_DIR "/data/prefetch_streams.csv.gz");
    CHECK(t.events.size() == 16836);
    CHECK(t.streams == 3);
    CHECK(t.peak_requested_bytes == 670425096);
    for (std::string const name : {"device_pool", "compact_device_pool", "promised_device_pool", "composed_pool"})
        for (unsigned const seed : {1u, 2u}) {
            CAPTURE(name);
            CAPTURE(seed);
            simulated_cuda::world world(simulated_cuda::config{}.random(seed));
            {
                std::vector<cudaStream_t> streams(t.streams);
                for (cudaStream_t& stream : streams)
                    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
                replay::block_table blocks(t.blocks, nullptr);
                for (replay::contender const& pool : replay::contenders()) {
                    if (pool.name != name)
                        continue;
                    std::unique_ptr<replay::session> const session = pool.open(replay::no_limit);
                    for (replay::event const& e : t.events) {
                        cudaStream_t const stream = streams[e.stream];
                        void*& block = blocks[e.block];
                        if (!e.is_free) {
                            block = session->watched_allocate(stream, e.bytes);
                            REQUIRE(block != nullptr);
                            simulated_cuda::note_allocate(block, e.bytes, stream);
                            simulated_cuda::launch(stream, {}, {{block, std::min<std::size_t>(e.bytes, 64)}});
                        } else {
                            simulated_cuda::note_free(block, e.bytes, stream);
                            session->watched_deallocate(stream, block, e.bytes);
                            block = nullptr;
                        }
                    }
                    for (cudaStream_t const stream : streams)
                        REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
                }
                for (cudaStream_t const stream : streams)
                    REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
            }
            std::vector<simulated_cuda::report> const found = world.finish();
            CHECK_MESSAGE(found.empty(), (found.empty() ? std::string() : found.front().sentence));
        }
}

#endif
