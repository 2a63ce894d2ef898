// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Contexts, the choice of who goes on, and the search: see turns.hpp.
//
// invariant: a schedule is a function of its decisions: the same ones, the same steps. 'decide' checks it.
// cost:      a step that switches takes some 20 ns, one that does not some 5.

#include "turns.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <cxxabi.h>
#include <doctest/doctest.h>
#include <exception>
#include <map>
#include <memory>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define INTERLEAVINGS_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INTERLEAVINGS_ADDRESS_SANITIZER
#endif
#endif
#ifdef INTERLEAVINGS_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace interleavings {

namespace {

// ---- contexts ----------------------------------------------------------------------------------------------------

/// What the C++ library keeps for each thread about exceptions that are handled (__cxa_eh_globals of the Itanium ABI): a
/// thread may lose its turn in a handler.
struct handled_exceptions {
    void* caught = nullptr;
    unsigned int uncaught = 0;
};

/// A stack and a place in it. The one of the system's thread has no stack of its own here.
class context {
public:
    context() = default;
    explicit context(void (*run)()) : stack_(new char[stack_bytes]), run_(run) {
        getcontext(&start_);
        start_.uc_stack.ss_sp = stack_.get();
        start_.uc_stack.ss_size = stack_bytes;
        start_.uc_link = nullptr;
        makecontext(&start_, &enter, 0);
    }

    /// Goes on in `next`, and returns when somebody goes on here.
    void switch_to(context& next) {
        auto* const handled = reinterpret_cast<handled_exceptions*>(abi::__cxa_get_globals());
        handled_ = *handled;
        *handled = next.handled_;
        jump(next);
    }

private:
    static constexpr std::size_t stack_bytes = 256 * 1024;

    static void enter() {
#ifdef INTERLEAVINGS_ADDRESS_SANITIZER
        void const* bottom = nullptr;
        std::size_t bytes = 0;
        __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
        if (!left->stack_) {
            left->bottom_ = bottom;
            left->bytes_ = bytes;
        }
#endif
        entered->run_();
        std::abort(); // a context is left by switching
    }

#ifdef INTERLEAVINGS_ADDRESS_SANITIZER // which must be told, and knows swapcontext
    void jump(context& next) {
        left = this;
        entered = &next;
        __sanitizer_start_switch_fiber(&fake_stack_, next.stack_ ? next.stack_.get() : next.bottom_,
                                       next.stack_ ? stack_bytes : next.bytes_);
        swapcontext(&start_, &next.start_);
        __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
    }
    void* fake_stack_ = nullptr;
    void const* bottom_ = nullptr;
    std::size_t bytes_ = 0;
    static context* left;
#else // swapcontext asks the system for its signal mask each time; 25 times the cost
    void jump(context& next) {
        if (_setjmp(here_) != 0)
            return;
        entered = &next;
        if (next.run_ && !next.begun_) {
            next.begun_ = true;
            setcontext(&next.start_);
        }
        _longjmp(next.here_, 1);
    }
    jmp_buf here_{};
    bool begun_ = false;
#endif

    std::unique_ptr<char[]> stack_;
    void (*run_)() = nullptr;
    ucontext_t start_{};
    handled_exceptions handled_;
    static context* entered;
};

context* context::entered = nullptr;
#ifdef INTERLEAVINGS_ADDRESS_SANITIZER
context* context::left = nullptr;
#endif

// ---- the schedule ------------------------------------------------------------------------------------------------

struct thread {
    std::unique_ptr<context> on;
    void (*run)(void*) = nullptr;
    void* object = nullptr;
    bool ended = true;
    void const* waits_for = nullptr;
    char const* waits_how = "";
    void const* last_read = nullptr; // and nobody wrote it since
    bool able() const { return !ended && !waits_for; }
};

enum class mode { systematic, random, replay };

struct decision {
    std::uint8_t taken;
    std::uint8_t options;
};

constexpr std::size_t most_threads = 4;
constexpr std::size_t nobody = most_threads;
constexpr std::uint8_t choice_bit = 128; // in 'moves': a choice, and not a thread's turn

/// The one search that is under way.
struct scheduler {
    plan what;
    mode how = mode::systematic;
    std::function<void()> const* program = nullptr;

    // of the present schedule
    thread body; // the program itself
    thread crew[most_threads];
    std::size_t count = 0; // of the crew, in the present 'threads'
    std::size_t current = nobody;
    std::size_t steps = 0;
    int preemptions_left = 0;
    std::uint64_t random_state = 0;
    std::uint64_t restlessness = 0; // of 16
    std::vector<std::uint8_t> moves;
    std::vector<std::function<void()>> checks;
    std::string failure;

    // of the search
    std::vector<decision> decisions; // systematic: those to repeat, and then those that were made
    std::size_t decided = 0;
    std::vector<std::uint8_t> script; // replay
    std::size_t script_at = 0;
    context outside;

    bool tracing = false;
    std::vector<std::string> trace;
    std::map<void const*, std::size_t> names;

    std::uint64_t draw(std::uint64_t n) { // splitmix64, Steele, Lea and Flood 2014
        std::uint64_t z = random_state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return (z ^ (z >> 31)) % n;
    }

    std::size_t decide(std::size_t options) {
        if (options == 1)
            return 0;
        if (decided == decisions.size())
            decisions.push_back({0, static_cast<std::uint8_t>(options)});
        decision const now = decisions[decided++];
        if (now.options != options)
            inside::fail("the program is not the same each time: it must depend on nothing but its schedule");
        return now.taken;
    }

    /// The next schedule in the order of decisions; false: that was the last one.
    bool advance() {
        decisions.resize(decided);
        while (!decisions.empty() && decisions.back().taken + 1 == decisions.back().options)
            decisions.pop_back();
        if (decisions.empty())
            return false;
        ++decisions.back().taken;
        return true;
    }

    /// Who goes on now; 'nobody': none can. Whether the present thread could is option 0.
    std::size_t pick() {
        std::size_t able[most_threads];
        std::size_t n = 0;
        bool const stays = current != nobody && crew[current].able();
        if (stays)
            able[n++] = current;
        for (std::size_t i = 0; i < count; ++i)
            if (i != current && crew[i].able())
                able[n++] = i;
        if (n == 0)
            return nobody;
        std::size_t at = 0;
        if (how == mode::systematic) {
            at = decide(stays && preemptions_left == 0 ? 1 : n);
            if (stays && at != 0)
                --preemptions_left;
        } else if (how == mode::random) {
            if (!stays)
                at = draw(n);
            else if (n > 1 && draw(16) < restlessness)
                at = 1 + draw(n - 1);
        } else if (script_at < script.size()) {
            at = static_cast<std::size_t>(std::find(able, able + n, script[script_at++]) - able);
            if (at == n)
                inside::fail("the schedule names a thread that cannot go on: it is another program's");
        }
        moves.push_back(static_cast<std::uint8_t>(able[at]));
        return able[at];
    }

    std::size_t pick_value(std::size_t n) {
        std::size_t value = 0;
        if (how == mode::systematic)
            value = decide(n);
        else if (how == mode::random)
            value = draw(n);
        else if (script_at < script.size())
            value = script[script_at++] % choice_bit;
        moves.push_back(static_cast<std::uint8_t>(choice_bit | value));
        return value;
    }

    void count_step() {
        if (++steps > what.most_steps)
            inside::fail("a livelock: no end after " + std::to_string(what.most_steps) + " steps");
        inside::taking_turns = false;
        for (auto const& check : checks)
            check();
        inside::taking_turns = true;
    }

    void hand_over(std::size_t next) {
        if (next == current)
            return;
        context& from = current == nobody ? *body.on : *crew[current].on;
        current = next;
        from.switch_to(next == nobody ? *body.on : *crew[next].on);
        inside::taking_turns = current != nobody;
    }

    /// The present thread can go on no more, or not yet.
    void give_away() {
        std::size_t const next = pick();
        if (next == nobody) {
            std::string sentence;
            for (std::size_t i = 0; i < count; ++i)
                if (!crew[i].ended)
                    sentence += std::string(sentence.empty() ? "" : ", ") + "thread " + std::to_string(i) +
                                " waits for " + crew[i].waits_how + " (" + name_of(crew[i].waits_for) + ")";
            if (!sentence.empty())
                inside::fail("a deadlock: " + sentence);
        }
        hand_over(next);
    }

    std::string name_of(void const* where) {
        return where ? "a" + std::to_string(names.emplace(where, names.size()).first->second) : "-";
    }
    void tell(std::string line) {
        trace.push_back("  thread " + std::to_string(current) + ": " + std::move(line));
    }

    /// One schedule, from the beginning.
    void run() {
        if (!body.on) {
            body.on = std::make_unique<context>(&run_body);
            for (thread& each : crew)
                each.on = std::make_unique<context>(&run_thread);
        }
        count = 0;
        current = nobody;
        steps = decided = script_at = 0;
        moves.clear();
        checks.clear();
        failure.clear();
        trace.clear();
        names.clear();
        outside.switch_to(*body.on);
        inside::taking_turns = false;
        if (!failure.empty()) { // abandoned: the stacks are of no more use
            body.on.reset();
            for (thread& each : crew)
                each.on.reset();
        }
    }

    static void run_body();
    static void run_thread();
};

scheduler& now() {
    static scheduler only;
    return only;
}

template <class Function>
void guarded(Function const& function, char const* who) {
    std::string threw;
    try {
        function();
        return;
    } catch (std::exception const& error) {
        threw = error.what();
    } catch (...) {
        threw = "no std::exception";
    }
    inside::fail(std::string(who) + " threw: " + threw);
}

void scheduler::run_body() {
    for (scheduler& s = now();;) {
        guarded(*s.program, "the program");
        s.body.on->switch_to(s.outside);
    }
}

void scheduler::run_thread() {
    for (scheduler& s = now();;) {
        inside::taking_turns = true;
        thread& self = s.crew[s.current];
        guarded([&] { self.run(self.object); }, "a thread");
        inside::taking_turns = false;
        self.ended = true;
        s.give_away();
    }
}

// ---- a schedule in words -------------------------------------------------------------------------------------------

std::string text_of(std::vector<std::uint8_t> const& moves) {
    std::string text;
    for (std::size_t i = 0; i < moves.size();) {
        std::size_t same = i + 1;
        if (moves[i] & choice_bit) {
            text += " =" + std::to_string(moves[i] % choice_bit);
        } else {
            while (same < moves.size() && moves[same] == moves[i])
                ++same;
            text += " " + std::to_string(moves[i]) + "*" + std::to_string(same - i);
        }
        i = same;
    }
    return text.empty() ? text : text.substr(1);
}

std::vector<std::uint8_t> moves_of(std::string const& text) {
    std::vector<std::uint8_t> moves;
    for (char const* at = text.c_str(); *at;) {
        char* end = nullptr;
        if (*at == '=') {
            moves.push_back(static_cast<std::uint8_t>(choice_bit | std::strtoul(at + 1, &end, 10)));
        } else {
            auto const who = static_cast<std::uint8_t>(std::strtoul(at, &end, 10));
            moves.insert(moves.end(), *end == '*' ? std::strtoul(end + 1, &end, 10) : 1, who);
        }
        at = end == at ? at + 1 : end;
    }
    return moves;
}

void report(scheduler& s, outcome& result) {
    result.failure = s.failure;
    result.schedule = text_of(s.moves);
    // Once more, and this time it is told.
    s.script = s.moves;
    s.how = mode::replay;
    s.tracing = true;
    s.run();
    s.tracing = false;
    if (s.failure != result.failure)
        result.failure += " (replayed: " + (s.failure.empty() ? "nothing" : s.failure) + ")";
    std::size_t const told = std::min<std::size_t>(s.trace.size(), 60);
    if (told < s.trace.size())
        result.trace = "  ...\n";
    for (std::size_t i = s.trace.size() - told; i < s.trace.size(); ++i)
        result.trace += s.trace[i] + "\n";
}

bool run_one(scheduler& s, outcome& result, std::uint64_t& counter) {
    s.run();
    ++counter;
    result.longest = std::max(result.longest, s.steps);
    if (s.failure.empty())
        return true;
    report(s, result);
    return false;
}

std::uint64_t systematic_in_all = 0;
std::uint64_t random_in_all = 0;

} // namespace

// ---- what the threads call -----------------------------------------------------------------------------------------

namespace inside {

bool taking_turns = false;

void step(char const* what, void const* where) {
    if (!taking_turns)
        return;
    scheduler& s = now();
    s.count_step();
    s.hand_over(s.pick());
    s.crew[s.current].last_read = nullptr;
    if (s.tracing)
        s.tell(what + (where ? " " + s.name_of(where) : ""));
}

void saw(void const* where, std::uint64_t value) {
    if (!taking_turns)
        return;
    scheduler& s = now();
    s.crew[s.current].last_read = where;
    if (s.tracing)
        s.trace.back() += " is " + std::to_string(value);
}

void wrote(void const* where, std::uint64_t value) {
    if (!taking_turns)
        return;
    scheduler& s = now();
    for (std::size_t i = 0; i < s.count; ++i) {
        if (s.crew[i].waits_for == where)
            s.crew[i].waits_for = nullptr;
        if (s.crew[i].last_read == where)
            s.crew[i].last_read = nullptr;
    }
    if (s.tracing)
        s.trace.back() += " becomes " + std::to_string(value);
    s.count_step();
    s.hand_over(s.pick());
}

void wait_for(void const* where, char const* what) {
    if (!taking_turns)
        fail(std::string("the program itself waits for ever for ") + what);
    scheduler& s = now();
    s.count_step();
    thread& self = s.crew[s.current];
    self.waits_for = where;
    self.waits_how = what;
    if (s.tracing)
        s.tell(std::string("waits for ") + what + " " + s.name_of(where));
    s.give_away();
}

void wait_for_write_of_last_read() {
    scheduler& s = now();
    if (!taking_turns)
        fail("the program itself spins for ever");
    if (void const* const where = s.crew[s.current].last_read)
        wait_for(where, "an atomic to change");
}

// Systematic schedules would have no end if a loop could fail as often as it liked.
bool fails_spuriously() {
    scheduler& s = now();
    if (!taking_turns || s.how == mode::systematic)
        return false;
    if (s.how == mode::random && s.draw(8) != 0)
        return false;
    if (s.how == mode::replay && (s.script_at == s.script.size() || s.script[s.script_at] != (choice_bit | 127)))
        return false;
    s.script_at += s.how == mode::replay;
    s.moves.push_back(choice_bit | 127);
    return true;
}

std::size_t present_thread() {
    std::size_t const current = now().current;
    return current == nobody ? 0 : current;
}

void fail(std::string sentence) {
    scheduler& s = now();
    s.failure = std::move(sentence);
    taking_turns = false;
    context& from = s.current == nobody ? *s.body.on : *s.crew[s.current].on;
    from.switch_to(s.outside);
    std::abort(); // nobody comes back
}

void begin_threads() {
    now().count = 0;
}

void add_thread(void (*run)(void*), void* object) {
    scheduler& s = now();
    if (s.count == most_threads)
        fail("too many threads");
    thread& fresh = s.crew[s.count++];
    fresh.run = run;
    fresh.object = object;
    fresh.ended = false;
    fresh.waits_for = fresh.last_read = nullptr;
}

void run_threads() {
    now().give_away(); // and back when the last one has ended
}

} // namespace inside

void require(bool holds, char const* sentence) {
    if (!holds)
        inside::fail(sentence);
}

void yield() {
    inside::step("yield", nullptr);
}

std::size_t choose(std::size_t n) {
    return now().pick_value(n);
}

void always(std::function<void()> check) {
    now().checks.push_back(std::move(check));
}

// ---- the search ----------------------------------------------------------------------------------------------------

outcome search(std::function<void()> const& program, plan const& what) {
    scheduler& s = now();
    outcome result;
    s.what = what;
    s.program = &program;
    s.how = mode::systematic;
    for (int bound = 0; bound <= what.preemptions; ++bound) {
        result.systematic = 0;
        s.decisions.clear();
        do {
            s.preemptions_left = bound;
            if (!run_one(s, result, result.systematic))
                return result;
        } while (s.advance());
    }
    s.how = mode::random;
    for (std::uint64_t i = 0; i < what.random; ++i) {
        s.random_state = (what.seed << 32) + i;
        s.restlessness = std::uint64_t{1} << s.draw(4);
        if (!run_one(s, result, result.random))
            return result;
    }
    return result;
}

outcome replay(std::function<void()> const& program, std::string const& schedule, plan const& what) {
    scheduler& s = now();
    outcome result;
    std::uint64_t one = 0;
    s.what = what;
    s.program = &program;
    s.how = mode::replay;
    s.script = moves_of(schedule);
    run_one(s, result, one);
    return result;
}

bool in_short() {
#ifdef INTERLEAVINGS_ADDRESS_SANITIZER
    return true;
#else
    return std::getenv("WEIR_QUICK") != nullptr;
#endif
}

void explore(std::function<void()> const& program, plan const& what) {
    if (left_out) {
        MESSAGE("left out: interleavings under the thread sanitizer");
        return;
    }
    std::clock_t const began = std::clock();
    plan here = what;
    if (in_short())
        here.random /= 10;
    if (char const* const times = std::getenv("WEIR_INTERLEAVINGS")) {
        here.random *= std::strtoull(times, nullptr, 10);
        ++here.preemptions;
    }
    char const* const schedule = std::getenv("WEIR_SCHEDULE");
    outcome const found = schedule ? replay(program, schedule, here) : search(program, here);
    systematic_in_all += found.systematic;
    random_in_all += found.random;
    char seconds[16];
    std::snprintf(seconds, sizeof seconds, "%.1f", static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC);
    std::string const text = std::to_string(found.systematic) + " schedules with at most " +
                             std::to_string(here.preemptions) + " preemptions" + (found.failure.empty() ? " (all)" : "") +
                             ", " + std::to_string(found.random) + " random ones; " + std::to_string(found.longest) +
                             " steps at most; " + seconds + " s; " + std::to_string(systematic_in_all) + " and " +
                             std::to_string(random_in_all) + " so far";
    MESSAGE(text);
    CHECK_MESSAGE(found.failure.empty(), found.failure, "\n  WEIR_SCHEDULE='", found.schedule, "'\n", found.trace);
}

} // namespace interleavings
