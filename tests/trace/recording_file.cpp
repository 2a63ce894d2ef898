// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <csignal>
#include <cstdio>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <support/failing_new.hpp>
#include <sys/resource.h>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/trace/recording.hpp>
#include <weir/trace/recording_file.hpp>

using weir::trace::event;
using weir::trace::event_kind;
using weir::trace::recorder;
using weir::trace::recording;
using weir::trace::recording_file;

namespace {

/// A name for a file that ends with the test.
struct temporary_file {
    std::string path = (std::filesystem::temp_directory_path() / ("weir-recording-" + std::to_string(::getpid()))).string();
    ~temporary_file() { std::filesystem::remove(path); }

    recording read() const {
        std::ifstream in(path, std::ios::binary);
        std::vector<char> const bytes((std::istreambuf_iterator<char>(in)), {});
        return weir::trace::read_recording(bytes.data(), bytes.size());
    }
};

event allocation(std::uint64_t number, std::uint32_t site = 0) {
    event one;
    one.kind = event_kind::allocate;
    one.address = number << 9;
    one.bytes = number;
    one.site = site;
    return one;
}

template <class Call>
std::string sentence_of(Call const& call) {
    try {
        call();
    } catch (weir::usage_error const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("recording_file: dump writes what the recorder holds") {
    temporary_file const file;
    recorder tape;
    tape.add({"the pool", 0, weir::memory_space::device, UINT64_MAX});
    weir::trace::dump(tape, file.path); // never started
    CHECK(file.read().events.empty());
    CHECK(file.read().complaint == "");
    tape.start();
    std::uint32_t const site = tape.names().number_of(weir::call_site::of("a.cpp", "f", 3));
    for (std::uint64_t i = 0; i < 100; ++i)
        tape.write(allocation(i, site));
    weir::trace::dump(tape, file.path);
    recording const read = file.read();
    CHECK(read.complaint == "");
    REQUIRE(read.events.size() == 100);
    for (std::size_t i = 0; i < 100; ++i)
        CHECK(read.events[i].bytes == i);
    CHECK(read.sources[0].name == "the pool");
    CHECK(read.frames[read.events[0].site - 1].line == 3);
    CHECK(read.first.ticks <= read.events[0].ticks);
    CHECK(read.events[99].ticks <= read.last.ticks);
}

TEST_CASE("recording_file: grows by each flush, and is whole after each") {
    temporary_file const file;
    recorder tape(64);
    tape.start();
    recording_file grows(tape, file.path);
    std::uint64_t next = 0;
    for (int turn = 0; turn < 10; ++turn) {
        for (int i = 0; i < 30; ++i, ++next)
            tape.write(allocation(next % 40, tape.names().number_of_scope(std::to_string(next / 100).c_str())));
        grows.flush();
        recording const read = file.read();
        CHECK(read.complaint == "");
        CHECK(read.events.size() == next);
        CHECK(read.lost == 0);
        CHECK(read.events.back().bytes == (next - 1) % 40);
        CHECK(read.frames[read.events.back().site - 1].function == std::to_string((next - 1) / 100));
    }
    for (int i = 0; i < 1000; ++i)
        tape.write(allocation(1));
    grows.flush();
    recording const read = file.read();
    CHECK(read.lost == tape.lost());
    CHECK(read.events.size() + read.lost == next + 1000);
}

TEST_CASE("recording_file: many events make several segments") {
    temporary_file const file;
    recorder tape;
    tape.start();
    std::mt19937_64 random(3);
    for (int i = 0; i < 150000; ++i)
        tape.write(allocation(random() >> 12));
    weir::trace::dump(tape, file.path);
    CHECK(std::filesystem::file_size(file.path) > 2 * 1024 * 1024);
    CHECK(file.read().events.size() == 150000);
}

TEST_CASE("recording_file: a path that cannot be written is refused with a sentence") {
    recorder tape;
    CHECK(sentence_of([&] { recording_file const file(tape, "/nowhere/x.weir"); }) ==
          "weir: the recording '/nowhere/x.weir' cannot be made (No such file or directory); give another path");
}

TEST_CASE("recording_file: a dump takes nothing from the next one, or from a file that grows") {
    temporary_file const file;
    recorder tape(4096);
    tape.start();
    for (std::uint64_t next = 1; next <= 1000; ++next) {
        tape.write(allocation(next));
        if (next % 300 == 0) {
            weir::trace::dump(tape, file.path);
            CHECK(file.read().events.size() == next);
        }
    }
    recording_file grows(tape, file.path);
    grows.flush();
    CHECK(file.read().events.size() == 1000);
    weir::trace::dump(tape, file.path);
    CHECK(file.read().events.empty());
}

TEST_CASE("recording_file: a full disk gets a sentence, and the next flush goes on, and the next dump has it all") {
    temporary_file const file;
    recorder tape;
    tape.start();
    for (std::uint64_t i = 0; i < 10000; ++i)
        tape.write(allocation(i));
    recording_file grows(tape, file.path);
    struct {
        void (*write)(recorder&, recording_file&, std::string const&);
        char const* said;
        std::size_t events;
    } const cases[] = {
        {[](recorder& from, recording_file&, std::string const& path) { weir::trace::dump(from, path); },
         "make room and dump again", 10001},
        {[](recorder&, recording_file& to, std::string const&) { to.flush(); }, "make room and flush again", 10002},
    };
    for (auto const& each : cases) {
        auto* const before = std::signal(SIGXFSZ, SIG_IGN);
        rlimit room{};
        REQUIRE(getrlimit(RLIMIT_FSIZE, &room) == 0);
        rlimit const little{1000, room.rlim_max};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &little) == 0);
        std::string const said = sentence_of([&] { each.write(tape, grows, file.path); });
        REQUIRE(setrlimit(RLIMIT_FSIZE, &room) == 0);
        std::signal(SIGXFSZ, before);
        CHECK(said.find("cannot be written to (File too large); ") != std::string::npos);
        CHECK(said.find(each.said) != std::string::npos);
        CHECK(file.read().complaint == "the recording was cut off: 0 events before that can be read");
        tape.write(allocation(10000));
        each.write(tape, grows, file.path);
        recording const read = file.read();
        CHECK(read.complaint == "");
        CHECK(read.events.size() == each.events);
        std::filesystem::resize_file(file.path, 0);
    }
}

TEST_CASE("recording_file: without host memory events are lost and counted, and the next flush goes on") {
    if (!support::host_memory_can_fail)
        return;
    temporary_file const file;
    for (long successes = 0;; ++successes) {
        recorder tape(4000);
        tape.start();
        recording_file grows(tape, file.path);
        std::uint32_t const site = tape.names().number_of_scope("here");
        for (std::uint64_t i = 0; i < 3000; ++i)
            tape.write(allocation(i, site));
        bool failed = false;
        try {
            support::failing_new const fails(successes);
            grows.flush();
        } catch (std::bad_alloc const&) {
            failed = true;
        }
        tape.write(allocation(5000, site));
        grows.flush();
        recording const read = file.read();
        CHECK(read.complaint == "");
        CHECK(read.events.size() + read.lost == 3001);
        CHECK(read.events.back().bytes == 5000);
        CHECK(read.frames[read.events.back().site - 1].function == "here");
        if (!failed)
            break;
    }
}
