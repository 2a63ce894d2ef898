// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is an operation put through, whatever it is an operation of?
//
// An act is an operation and the state that it starts from. 'strike_everywhere' makes each of its CUDA calls fail in
// turn: the k-th once, the k-th and all later ones, and those until the end, as after a fault of a kernel. 'starve_
// everywhere' lets the host run out of memory at each of its allocations. SQLite's tests do so.
//
// Whatever fails, the sweep holds it to the house's rules: an exception names the call that failed; an operation that
// did not throw did what it does without a fault, or found no room because CUDA said that there is none, or says that CUDA
// takes nothing back; an operation
// that threw can be repeated once nothing fails, and then does what it does without a fault; CUDA's record of errors is
// empty, and this thread's device and capture mode are what they were; nothing leaks that CUDA does not refuse to
// destroy. A scene says the rest:
//
//     Scene(limit)          the state, before 'prepare'
//     bool refused          whether the operation answered null
//     string reason         why
//     lost_bytes()          how many bytes are lost: freed, and never handed out again
//     remember()            before the operation
//     check_unchanged(undo) after it threw; 'undo': what it did before could be undone
//     check(may_lose)       everything is as its own books say, everything works, and all of it comes back;
//                           'may_lose': a free that found no host memory may have lost its bytes, or one to which CUDA
//                           never said whether a graph may use them; a scene's books tell whether it has
//     abandon()             ends everything while every call fails

#include <cstdint>
#include <cstdlib>
#include <doctest/doctest.h>
#include <iterator>
#include <simulated_cuda/simulated_cuda.hpp>
#include <string>
#include <support/broken_calls.hpp>
#include <support/failing_new.hpp>
#include <support/sanitized.hpp>
#include <sys/mman.h>
#include <vector>
#include <weir/base/error.hpp>

namespace faults {

namespace device = simulated_cuda;
using support::broken_calls;

enum class until { once, repaired, the_end };

struct fault {
    cudaError_t error;
    until how;

    void arm(std::uint64_t k) const {
        device::fail_call(k, error, how == until::once ? device::lasting::once : device::lasting::for_ever);
    }
};

inline constexpr fault every_fault[] = {{cudaErrorInvalidValue, until::once},
                                        {cudaErrorMemoryAllocation, until::once},
                                        {cudaErrorUnknown, until::repaired},
                                        {cudaErrorMemoryAllocation, until::repaired},
                                        {cudaErrorIllegalAddress, until::the_end}};

/// All of them; the first and the last where a sanitizer watches, which takes ten times as long.
inline std::vector<fault> faults_to_try() {
    if (support::sanitized)
        return {every_fault[0], every_fault[4]};
    return {std::begin(every_fault), std::end(every_fault)};
}

/// Whether the k-th call fails in this way too. In short (WEIR_QUICK) each call has one or two of the ways, which take turns.
inline bool has_turn(std::size_t way, std::uint64_t k) {
    static bool const quick = std::getenv("WEIR_QUICK") != nullptr;
    return !quick || (way + k) % 3 == 0;
}

inline constexpr std::size_t no_limit = static_cast<std::size_t>(-1);

template <class Scene>
struct act {
    char const* name;
    std::size_t limit;
    void (*prepare)(Scene&);
    void (*attempt)(Scene&);
    bool frees = false; ///< it cannot say that the host has no memory
};

/// Fails unless `error` is of a call that failed.
inline void check_names(weir::cuda_error const& error, broken_calls const& broken, cudaError_t expected) {
    CHECK(error.code() == static_cast<int>(expected));
    CHECK_MESSAGE(broken.have(error.call()), "the error does not name the call that failed: ", error.what());
    CHECK(std::string(error.what())
              .find(std::string("weir: ") + error.call() + " failed with " + cudaGetErrorName(expected) +
                    " (") == 0);
}

/// Fails unless this thread's device and capture mode are the usual ones and no error is on its record.
inline void check_thread(int current) {
    support::enough_memory const here;
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    int now = -1;
    CHECK(cudaGetDevice(&now) == cudaSuccess);
    CHECK_MESSAGE(now == current, "another device was left current: ", now);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    CHECK_MESSAGE(mode == cudaStreamCaptureModeGlobal, "the thread's capture mode was left at ",
                  static_cast<int>(mode));
}

/// Gives the system what upstream::registered_host keeps for ever, since CUDA did not unlock it: a sweep would keep gigabytes.
/// Its chunks start at huge pages, which memory of the heap does not.
inline void unmap_what_stays_locked() {
    for (device::bytes const& each : device::registered())
        if (reinterpret_cast<std::uintptr_t>(each.at) % (2 * weir::MiB) == 0)
            CHECK(munmap(const_cast<void*>(each.at), each.count) == 0);
}

/// What an act does when nothing fails: whether it is refused.
template <class Scene>
bool rehearse(act<Scene> const& what) {
    device::world const world(device::config{}.late(), [](auto const& reports) {
        for (device::report const& each : reports)
            FAIL_CHECK(each.sentence);
    });
    Scene s(what.limit);
    what.prepare(s);
    s.remember();
    what.attempt(s);
    bool const refused = s.refused;
    s.check(false);
    return refused;
}

/// Runs an act with its k-th call broken, while device `current` is current; false if it makes fewer calls.
template <class Scene>
bool strike(act<Scene> const& what, fault const& how, std::uint64_t k, bool refused, int current) {
    device::world world(device::config{}.late().with_log().with_devices(current + 1), [](auto const&) {});
    std::size_t logged = 0;
    bool struck = false;
    {
        Scene s(what.limit);
        what.prepare(s);
        CHECK(cudaSetDevice(current) == cudaSuccess);
        s.remember();
        static_cast<void>(cudaGetLastError());
        logged = device::log().size();
        std::uint64_t const failed = device::failed_calls();
        how.arm(k);
        bool threw = false;
        bool no_room = false;
        try {
            what.attempt(s);
        } catch (weir::cuda_error const& error) {
            threw = true;
            check_names(error, broken_calls(how.error, logged, how.how != until::once), how.error);
        } catch (weir::out_of_memory const& error) {
            threw = true;
            no_room = true;
            s.reason = error.reason();
        } catch (weir::usage_error const& error) {
            FAIL_CHECK(error.what());
        }
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        struck = device::failed_calls() != failed;
        if (struck && how.how == until::the_end) { // nothing runs any more; everything must end all the same
            s.abandon();
            device::clear_faults();
        } else {
            device::clear_faults();
            if (no_room || (!threw && s.refused != refused)) {
                broken_calls const broken(how.error, logged, how.how != until::once);
                CHECK_MESSAGE(((how.error == cudaErrorMemoryAllocation && broken.have_no_room()) ||
                               s.reason.find("the upstream refuses to take") != std::string::npos),
                              "an error was taken for a lack of room: ", s.reason,
                              "; failed: ", broken.text());
            }
            if (how.how == until::once) // else nothing could be put back
                check_thread(current);
            CHECK(cudaSetDevice(current) == cudaSuccess);
            bool const may_lose = how.how == until::repaired && broken_calls(how.error, logged, how.how != until::once).have("cudaStreamIsCapturing");
            if (threw) {
                CHECK(struck);
                s.check_unchanged(how.how == until::once);
                s.refused = false;
                what.attempt(s);
                if (s.refused != refused) { // what is lost leaves no room
                    CHECK((may_lose && s.refused && s.lost_bytes() != 0));
                    CHECK_MESSAGE(s.reason.find("the pool's limit leaves no room for") != std::string::npos,
                                  "another reason than what is lost: ", s.reason);
                }
            }
            s.check(may_lose);
        }
    }
    for (device::report const& each : world.finish())
        CHECK_MESSAGE((broken_calls(how.error, logged, how.how != until::once).explain(each) ||
                       (struck && how.how == until::the_end && each.kind == device::finding::leak)),
                      each.sentence);
    unmap_what_stays_locked();
    return struck;
}

/// Returns how often a call failed.
template <class Scene>
std::size_t strike_everywhere(std::vector<act<Scene>> const& acts, int current = 0) {
    std::size_t strikes = 0;
    for (act<Scene> const& what : acts) {
        CAPTURE(std::string(what.name));
        bool const refused = rehearse(what);
        std::vector<fault> const ways = faults_to_try();
        for (fault const& how : ways)
            for (std::uint64_t k = 1; k < 1000; ++k) {
                if (!has_turn(static_cast<std::size_t>(&how - ways.data()), k))
                    continue;
                CAPTURE(std::string(cudaGetErrorName(how.error)));
                CAPTURE(static_cast<int>(how.how));
                CAPTURE(k);
                if (!strike(what, how, k, refused, current))
                    break;
                ++strikes;
            }
    }
    return strikes;
}

/// Runs an act with no host memory after `k` allocations; false if it needs no more.
template <class Scene>
bool starve(act<Scene> const& what, long k) {
    device::world const world(device::config{}.late(), [](auto const& reports) {
        for (device::report const& each : reports)
            FAIL_CHECK(each.sentence);
    });
    Scene s(what.limit);
    what.prepare(s);
    s.remember();
    bool starved = false;
    bool threw = false;
    {
        support::failing_new const fails(k);
        try {
            what.attempt(s);
        } catch (std::bad_alloc const&) {
            threw = true;
        }
        starved = support::allocations_left == 0;
    }
    check_thread(0);
    if (threw)
        s.check_unchanged(true);
    s.check(starved && !threw && what.frees);
    return starved;
}

/// Returns how often an allocation failed.
template <class Scene>
std::size_t starve_everywhere(std::vector<act<Scene>> const& acts) {
    std::size_t runs = 0;
    for (act<Scene> const& what : acts)
        for (long k = 0; k < 1000; ++k) {
            CAPTURE(std::string(what.name));
            CAPTURE(k);
            if (!starve(what, k))
                break;
            ++runs;
        }
    return runs;
}

/// The beginning or the end of something: `run(armed)` makes a state, calls `armed()`, and goes on to break.
template <class Run>
void strike_life(Run run) {
    std::vector<fault> const ways = faults_to_try();
    for (fault const& how : ways)
        for (std::uint64_t k = 1; k < 1000; ++k) {
            if (!has_turn(static_cast<std::size_t>(&how - ways.data()), k))
                continue;
            CAPTURE(std::string(cudaGetErrorName(how.error)));
            CAPTURE(static_cast<int>(how.how));
            CAPTURE(k);
            device::world world(device::config{}.late().with_log(), [](auto const&) {});
            std::size_t logged = 0;
            std::uint64_t failed = 0;
            try {
                run([&] {
                    logged = device::log().size();
                    failed = device::failed_calls();
                    how.arm(k);
                });
            } catch (weir::cuda_error const& error) {
                check_names(error, broken_calls(how.error, logged, how.how != until::once), how.error);
            }
            bool const struck = device::failed_calls() != failed;
            device::clear_faults();
            CHECK(cudaPeekAtLastError() == cudaSuccess);
            broken_calls const broken(how.error, logged, how.how != until::once);
            for (device::report const& each : world.finish()) // what CUDA refuses for ever stays
                CHECK_MESSAGE((broken.explain(each) ||
                               (struck && how.how != until::once && each.kind == device::finding::leak)),
                              each.sentence);
            unmap_what_stays_locked();
            if (how.how == until::once)
                check_thread(0);
            if (!struck)
                break;
        }
}

} // namespace faults
