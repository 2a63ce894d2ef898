// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What layer::watch writes is in tests/layer/watch.cpp; every order of a writer and a reader in tests/interleavings/trace.cpp.

#include "../../examples/weir_top/board_view.hpp"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <memory>
#include <new>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <support/sentence.hpp>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <vector>
#include <weir/trace/recording.hpp>
#include <weir/trace/watch_board.hpp>

using weir::trace::board_head;
using weir::trace::board_layout;
using weir::trace::board_pool;
using weir::trace::dump_state;
using weir::trace::pool_figures;
using weir::trace::watch_board;
using weir_top::board_view;

namespace {

std::string segment_of(watch_board const& board) { return std::string(board.segment()).substr(1); }

std::string temporary(char const* name) { return "/tmp/weir-board-" + std::to_string(::getpid()) + "-" + name; }

std::string contents(std::string const& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Says the number of the answer in all its figures.
struct fake_pool final : weir::trace::watched_pool {
    explicit fake_pool(watch_board& on, bool any = true) : board(on), any_thread_may(any), place(on.join(*this)) {}
    ~fake_pool() { board.leave(*this); }
    void publish(board_pool& to) const override {
        if (fails)
            throw std::runtime_error("no answer");
        board.poll(); // whoever comes in the midst of an answer leaves the question
        pool_figures now;
        std::strcpy(now.name, "fake");
        now.time_ns = now.in_use_bytes = now.reserved_bytes = now.given_bytes = now.streams = ++answer;
        to.figures.write(now);
        to.answers.fetch_add(1, weir::base::memory_order_release);
    }
    weir::text report() const override { return "all is well"; }
    weir::trace::recorder* tape() const noexcept override { return recorder; }
    bool any_thread() const noexcept override { return any_thread_may; }

    watch_board& board;
    bool any_thread_may, fails = false;
    mutable std::uint64_t answer = 0;
    weir::trace::recorder* recorder = nullptr;
    board_pool* place;
};

std::uint64_t answers(board_view const& view, std::size_t at = 0) { return view.read().at(at).answers; }

/// A segment of the test's own, which is not there any more afterwards.
struct crafted {
    crafted(std::string with, std::size_t bytes) : name(std::move(with)) {
        int const file = ::shm_open(("/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
        REQUIRE(file >= 0);
        REQUIRE(::ftruncate(file, static_cast<off_t>(bytes)) == 0);
        memory = ::mmap(nullptr, sizeof(board_layout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        ::close(file);
        REQUIRE(memory != MAP_FAILED);
    }
    ~crafted() {
        ::munmap(memory, sizeof(board_layout));
        ::shm_unlink(("/" + name).c_str());
    }
    board_layout& layout() const { return *static_cast<board_layout*>(memory); }
    std::string complaint() const {
        try {
            board_view const view(name);
        } catch (weir_top::unusable const& error) {
            return error.what();
        }
        return "";
    }
    std::string name;
    void* memory = nullptr;
};

/// Runs body() in a child, which ends with what that returns. Returns its exit code; -1 if it did not exit.
template <class Body>
int in_child(Body const& body) {
    pid_t const child = ::fork();
    if (child == 0)
        ::_exit(body());
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace

TEST_CASE("watch_board: a segment of this process, for its user alone, until the board ends") {
    std::string name;
    {
        watch_board board("a program\nof two lines and of a name that is longer than the 63 characters that fit");
        watch_board second;
        name = segment_of(board);
        CHECK(name.find("weir." + std::to_string(::getpid()) + ".") == 0);
        CHECK(name != segment_of(second));
        struct stat about {};
        REQUIRE(::stat(("/dev/shm/" + name).c_str(), &about) == 0);
        CHECK((about.st_mode & 0777) == 0600);
        CHECK(static_cast<std::size_t>(about.st_blocks) * 512 >= sizeof(board_layout)); // so no page is missing later on
        board_view const view(name);
        CHECK(view.process() == static_cast<std::uint64_t>(::getpid()));
        CHECK(view.is_alive());
        CHECK(view.name() == "a program?of two lines and of a name that is longer than the 63");
        CHECK(view.read().empty());
        CHECK(weir_top::segments(std::to_string(::getpid())).size() == 2);
        CHECK(in_child([&] { return board.~watch_board(), 0; }) == 0); // of a fork: the segment stays its parent's
        CHECK(::stat(("/dev/shm/" + name).c_str(), &about) == 0);
    }
    CHECK_THROWS_WITH_AS(board_view{name}, doctest::Contains("its program has ended"), weir_top::unusable);
}

TEST_CASE("watch_board: a pool answers once it was asked, and each in its own call") {
    watch_board board;
    board_view view(segment_of(board));
    fake_pool pool(board), other(board), alone(board, false);
    board.poll();
    board.answer(&pool);
    CHECK(answers(view) == 0); // nobody asked
    view.ask();
    board.answer(&pool);
    board.answer(&pool);
    CHECK(answers(view) == 1);
    CHECK(answers(view, 1) == 0);
    board.poll();
    CHECK(answers(view) == 1);
    CHECK(answers(view, 1) == 1);
    CHECK(answers(view, 2) == 0); // another thread may be in it
    board.answer(&alone);
    CHECK(answers(view, 2) == 1);
    CHECK(view.read()[0].figures.in_use_bytes == 1);
    CHECK(weir_top::printable(view.read()[0].figures.name) == "fake");
    view.ask();
    pool.fails = true;
    board.poll();
    CHECK(answers(view) == 1);
    CHECK(answers(view, 1) == 2);
}

TEST_CASE("watch_board: places are given to other pools, and pools without one are counted") {
    watch_board board;
    board_view const view(segment_of(board));
    std::vector<std::unique_ptr<fake_pool>> pools;
    for (std::size_t i = 0; i < weir::trace::most_board_pools + 2; ++i)
        pools.push_back(std::make_unique<fake_pool>(board));
    CHECK(view.read().size() == weir::trace::most_board_pools);
    CHECK(view.pools_without_place() == 2);
    CHECK(pools.back()->place == nullptr);
    board_view(segment_of(board)).ask();
    board.poll();
    CHECK(answers(view, 3) == 1);
    std::uint32_t const life = view.read()[3].life;
    pools.back().reset();
    pools[3].reset();
    CHECK(view.read().size() == weir::trace::most_board_pools - 1);
    CHECK(view.pools_without_place() == 1);
    pools[3] = std::make_unique<fake_pool>(board);
    CHECK(view.read()[3].place == 3);
    CHECK(view.read()[3].life == life + 2);
    CHECK(answers(view, 3) == 0); // and nothing of what the earlier pool said
    CHECK(view.read()[3].figures.time_ns == 0);
}

TEST_CASE("watch_board: in a child of a fork its parent's board stays as it is") {
    watch_board board;
    board_view view(segment_of(board));
    auto pool = std::make_unique<fake_pool>(board);
    view.ask();
    CHECK(in_child([&] {
              board.poll();
              board.answer(pool.get());
              pool.reset(); // as 'exit' does with what is static
              fake_pool const another(board);
              return another.place == nullptr ? 0 : 1;
          }) == 0);
    REQUIRE(view.read().size() == 1);
    CHECK(answers(view) == 0);
    CHECK(view.pools_without_place() == 0);
    board.poll();
    CHECK(answers(view) == 1);
}

TEST_CASE("watch_board: a dump is written by the program, and says what it is") {
    watch_board board;
    board_view view(segment_of(board));
    std::string const path = temporary("dump");
    {
        fake_pool pool(board), other(board);
        view.ask_dump(path);
        CHECK(view.dump_now() == dump_state::asked);
        SUBCASE("by poll") {
            board.poll();
            CHECK(contents(path) == "all is well\nall is well\n");
        }
        SUBCASE("in an allocation: the other pool may not be asked") {
            board.answer(&pool);
            CHECK(contents(path) == "all is well\na pool that was not asked: it answers in its own allocations\n");
            board.answer(&other);
            view.ask_dump(path);
            board.answer(&pool);
            CHECK(contents(path) == "all is well\npool 'fake' (before): 1 B in use in 0 blocks, 1 B reserved\n");
            pool_figures endless; // somebody else wrote there
            std::memset(static_cast<void*>(&endless), 'x', sizeof endless);
            other.place->figures.write(endless);
            view.ask_dump(path);
            board.answer(&pool);
            CHECK(contents(path).find("pool '" + std::string(63, 'x') + "' (before)") != std::string::npos);
        }
        CHECK(view.dump_now() == dump_state::written);
        CHECK(view.dump_said() == "the report of 2 pools");
        view.ask_dump("/nowhere/at/all");
        board.poll();
        CHECK(view.dump_now() == dump_state::failed);
        CHECK(view.dump_said() == "weir: the dump '/nowhere/at/all' cannot be written (No such file or directory); give another path");
    }
    weir::trace::recorder tape(100);
    fake_pool pool(board);
    pool.recorder = &tape;
    view.ask_dump(path);
    board.poll();
    CHECK(contents(path) == "all is well\n"); // never started
    tape.start();
    weir::trace::event one;
    one.kind = weir::trace::event_kind::allocate;
    one.bytes = 77;
    tape.write(one);
    view.ask_dump(path);
    board.poll();
    CHECK(view.dump_said() == "a recording");
    std::string const file = contents(path);
    weir::trace::recording const read = weir::trace::read_recording(file.data(), file.size());
    REQUIRE(read.events.size() == 1);
    CHECK(read.events[0].bytes == 77);
    view.ask_dump(path + "/below");
    board.poll();
    CHECK(view.dump_said().find("cannot be made (Not a directory)") != std::string::npos);
    CHECK_THROWS_AS(view.ask_dump(std::string(2000, 'x')), weir_top::unusable);
    ::unlink(path.c_str());
}

TEST_CASE("watch_board: a dump that cannot be written is told with its reason, and the program does not wait") {
    watch_board board;
    board_view view(segment_of(board));
    fake_pool pool(board);
    std::string const path = temporary("no-dump");
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    for (std::string const& each : {path, std::string("/tmp")}) {
        view.ask_dump(each);
        board.poll();
        CHECK(view.dump_said() == "weir: the dump '" + each + "' cannot be written (it is no file); give another path");
    }
    ::unlink(path.c_str());
    rlimit before{}, few{5, 0}; // there is room for the first bytes
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    few.rlim_max = before.rlim_max;
    auto const handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &few) == 0);
    errno = 0;
    view.ask_dump(path);
    board.poll();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, handler);
    CHECK(view.dump_said() == "weir: the dump '" + path + "' cannot be written (File too large); give another path");
    ::unlink(path.c_str());
}

TEST_CASE("watch_board: two watchers do not ask for a dump at once, and a dead one keeps nobody away") {
    watch_board board;
    board_view view(segment_of(board));
    auto const by_another = [&] {
        return in_child([&] {
            try {
                view.ask_dump("/tmp/x");
            } catch (weir_top::unusable const&) {
                return 1;
            }
            return 0; // without 'end_dump', as if it were killed
        });
    };
    view.ask_dump("/nowhere/x");
    CHECK(by_another() == 1);
    view.end_dump();
    CHECK(by_another() == 0);
    view.ask_dump("/nowhere/x");
    board.poll();
    CHECK(view.dump_now() == dump_state::failed);
}

TEST_CASE("watch_board: who reads while it is written sees whole figures") {
    watch_board board;
    fake_pool pool(board);
    std::atomic<bool> done{false}, mixed{false};
    std::thread reader([&] {
        board_view view(segment_of(board));
        pool_figures seen;
        for (std::uint64_t last = 0; !done; last = seen.in_use_bytes) {
            view.ask();
            if (!pool.place->figures.read(seen)) // the writer's own memory, as the thread sanitizer sees it
                continue;
            pool_figures const shared = view.read().at(0).figures;
            if (seen.in_use_bytes != seen.streams || shared.in_use_bytes != shared.streams || seen.in_use_bytes < last)
                mixed = true;
        }
    });
    for (int i = 0; i < 3000; ++i)
        i % 2 == 0 ? board.poll() : board.answer(&pool);
    done = true;
    reader.join();
    CHECK_FALSE(mixed);
}

TEST_CASE("watch_board: a board goes by its process, its own name, or its segment's") {
    std::string const process = std::to_string(::getpid()), once = "once " + process, twice = "twice " + process, gone = "gone " + process;
    watch_board board(once.c_str()), other(twice.c_str()), again(twice.c_str());
    auto const left_behind = [](crafted const& segment, std::string const& name) {
        board_head& head = segment.layout().head;
        std::memcpy(head.mark, weir::trace::board_mark, sizeof head.mark);
        std::strcpy(head.name, name.c_str());
        head.version = weir::trace::board_version;
        head.process_start = 5;
        head.is_ready.store(1, weir::base::memory_order_release);
    };
    crafted const dead("weir.0." + process + "a", sizeof(board_layout)), namesake("weir.0." + process + "b", sizeof(board_layout));
    crafted const newer("weir.0." + process + "c", sizeof(board_layout)), commands("weir.0.\x1b[2J" + process, sizeof(board_layout));
    left_behind(dead, gone);
    left_behind(namesake, once);
    left_behind(newer, gone);
    left_behind(commands, gone);
    newer.layout().head.version = 7;
    CHECK(weir_top::segment_of(once) == segment_of(board)); // and not that of the dead one
    CHECK(weir_top::segment_of(gone) == dead.name);
    CHECK(weir_top::segment_of(segment_of(other)) == segment_of(other));
    CHECK_FALSE(board_view(dead.name).is_alive());
    dead.layout().head.process_start = 0;
    CHECK_FALSE(board_view(dead.name).is_alive()); // as that of no process
    struct {
        std::string given, complaint;
    } const cases[] = {
        {process, "process " + process + " has several boards; name one by the last column of the list: weir." + process + "."},
        {twice, "several boards are called '" + twice + "'; name one by"},
        {"nobody " + process, "no board here is called 'nobody " + process + "'; 'weir_top' alone lists those that there are (not all could be read: "},
        {"99999999999", "process 99999999999 has no board here, and none is called so; 'weir_top' alone lists"},
    };
    for (auto const& each : cases) {
        CAPTURE(each.given);
        std::string const said = support::sentence_of<weir_top::unusable>([&] { static_cast<void>(weir_top::segment_of(each.given)); });
        CHECK(said.find(each.complaint) == 0);
    }
}

TEST_CASE("watch_board: a process that is killed as it writes is told of, and nobody waits for it") {
    int pipes[2];
    REQUIRE(::pipe(pipes) == 0);
    pid_t const child = ::fork();
    if (child == 0) {
        watch_board board("short-lived");
        fake_pool const pool(board);
        std::string const name = segment_of(board) + "\n";
        bool const told = ::write(pipes[1], name.data(), name.size()) == static_cast<ssize_t>(name.size());
        while (told)
            pool.publish(*pool.place);
        ::_exit(1);
    }
    char said[100] = {};
    REQUIRE(::read(pipes[0], said, sizeof said - 1) > 0);
    std::string const name(said, std::strcspn(said, "\n"));
    board_view const view(name);
    CHECK(view.is_alive());
    REQUIRE(::kill(child, SIGKILL) == 0);
    siginfo_t info;
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
    CHECK_FALSE(view.is_alive()); // although nobody has asked for its exit code yet
    static_cast<void>(view.read());
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK_FALSE(view.is_alive());
    CHECK(view.ended_text() == "the process " + std::to_string(child) + " ('short-lived') has ended and left its board behind: rm /dev/shm/" + name);
    // In the midst of a write, whichever moment the signal chose.
    crafted const torn("weir-test-" + std::to_string(::getpid()), sizeof(board_layout));
    board_layout& layout = torn.layout();
    std::memcpy(layout.head.mark, weir::trace::board_mark, sizeof layout.head.mark);
    layout.head.version = weir::trace::board_version;
    layout.head.is_ready.store(1, weir::base::memory_order_release);
    layout.pools[0].life.store(1, weir::base::memory_order_release);
    reinterpret_cast<std::uint64_t&>(layout.pools[0].figures) = 7; // an odd number: see sequenced.hpp
    board_view const half(torn.name);
    REQUIRE(half.read().size() == 1);
    CHECK(half.read()[0].torn);
    for (int i : {0, 1})
        ::close(pipes[i]);
    ::unlink(("/dev/shm/" + name).c_str());
}

TEST_CASE("watch_board: a process whose first thread has ended lives while another does") {
    pid_t const child = ::fork();
    if (child == 0) {
        std::thread([] { ::pause(); }).detach();
        ::syscall(SYS_exit, 0); // of this thread
    }
    siginfo_t info;
    std::string const stat = "/proc/" + std::to_string(child) + "/stat";
    while (contents(stat).find(") Z ") == std::string::npos)
        std::this_thread::yield();
    std::uint64_t const start = weir::trace::detail::process_start(static_cast<std::uint64_t>(child));
    REQUIRE(::kill(child, SIGKILL) == 0);
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED) == 0);
    CHECK(start != 0);
    CHECK(weir::trace::detail::process_start(static_cast<std::uint64_t>(child)) == 0);
}

TEST_CASE("watch_board: what is no board that can be read is a sentence") {
    std::string const name = "weir-test-" + std::to_string(::getpid());
    CHECK_THROWS_WITH_AS(board_view{name}, doctest::Contains("there is no board"), weir_top::unusable);
    CHECK_THROWS_WITH_AS(board_view{std::string(300, 'x')}, doctest::Contains("cannot be opened: "), weir_top::unusable);
    CHECK(crafted(name, 5).complaint().find("is no board of weir's") != std::string::npos);
    crafted const segment(name, sizeof(board_layout));
    CHECK(segment.complaint().find("is no board of weir's") != std::string::npos); // no mark
    board_layout& layout = segment.layout();
    std::memcpy(layout.head.mark, weir::trace::board_mark, sizeof layout.head.mark);
    layout.head.version = 7;
    CHECK(segment.complaint() == "the board '" + name + "' is of version 7, and this weir_top reads version 1; use the one that comes "
                                 "with the program's weir");
    layout.head.version = weir::trace::board_version;
    CHECK(segment.complaint().find("or its program is making it at this moment") != std::string::npos);
    layout.head.is_ready.store(1, weir::base::memory_order_release);
    CHECK(segment.complaint() == "");
    layout.head.process = static_cast<std::uint64_t>(::getpid()); // of this number, and begun at another time
    CHECK_FALSE(board_view(name).is_alive());
    if (::geteuid() == 0) { // root may become another user
        int const code = in_child([&] {
            if (::seteuid(65534) != 0)
                return 2;
            return segment.complaint() == "the board '" + name + "' belongs to another user; run weir_top as that user" ? 0 : 1;
        });
        CHECK(code == 0);
    }
}

TEST_CASE("watch_board: where the system gives no shared memory, that is a sentence, and nothing is left") {
    alignas(watch_board) static unsigned char memory[sizeof(watch_board)]; // the name tells the address
    auto const sentence = [] {
        return support::sentence_of<weir::usage_error>([] { reinterpret_cast<watch_board*>(new (memory) watch_board("x"))->~watch_board(); });
    };
    char name[100];
    std::snprintf(name, sizeof name, "/dev/shm/weir.%d.%p", static_cast<int>(::getpid()), static_cast<void*>(memory));
    REQUIRE(::mkdir(name, 0700) == 0);
    CHECK(sentence().find("weir: a watch_board gets no shared memory (shm_open: File exists)") == 0);
    REQUIRE(::rmdir(name) == 0);
    rlimit before{}, none{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    none.rlim_max = before.rlim_max;
    auto const handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
    std::string const full = sentence();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, handler);
    CHECK(full.find("weir: a watch_board gets no shared memory (posix_fallocate: File too large)") == 0);
    struct stat about {};
    CHECK(::stat(name, &about) != 0);
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    none.rlim_max = before.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    std::string const without = sentence();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(without == "weir: a watch_board needs /proc, which tells when this process began; mount it");
}
