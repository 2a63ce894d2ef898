// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Every CUDA call that a public operation of a pool makes fails: the k-th once, the k-th and all later ones, and those
// until the end of the pool, as after a fault of a kernel. SQLite's tests do so with every allocation.

#include "scene.hpp"

using namespace faults;
using stage::checked;
using stage::closing;
using stage::fitted;
using stage::grow_first;
using stage::promised;
using stage::sized;
using stage::wait_first;
using weir::reuse::stream_ordered;

namespace {

enum class until { once, repaired, the_end };

struct fault {
    cudaError_t error;
    until how;
};

constexpr fault every_fault[] = {{cudaErrorInvalidValue, until::once},
                                 {cudaErrorMemoryAllocation, until::once},
                                 {cudaErrorUnknown, until::repaired},
                                 {cudaErrorMemoryAllocation, until::repaired},
                                 {cudaErrorIllegalAddress, until::the_end}};

/// The functions that failed, of a log whose lines are 'number thread function answer'.
std::vector<std::string> failed_functions(std::string const& log, char const* error) {
    std::vector<std::string> found;
    std::string const ending = std::string(" ") + error + "\n";
    for (std::size_t at = log.find(ending); at != std::string::npos; at = log.find(ending, at + 1))
        found.push_back(log.substr(log.rfind(' ', at - 1) + 1, at - log.rfind(' ', at - 1) - 1));
    return found;
}

bool contains(std::vector<std::string> const& functions, std::string const& one) {
    for (std::string const& each : functions)
        if (each == one)
            return true;
    return false;
}

/// Runs an act with its k-th call broken; false if it makes fewer calls.
template <class Pool>
bool strike(act<Pool> const& what, fault const& how, std::uint64_t k) {
    device::world world(device::config{}.late().with_log(), [](auto const&) {});
    std::vector<std::string> broken;
    {
        auto s = std::make_unique<scene<Pool>>(what.limit);
        what.prepare(*s);
        static_cast<void>(cudaGetLastError());
        std::size_t const logged = device::log().size();
        std::uint64_t const failed = device::failed_calls();
        device::fail_call(k, how.error, how.how == until::once ? device::lasting::once : device::lasting::for_ever);
        bool threw = false;
        try {
            what.attempt(*s);
        } catch (weir::cuda_error const& error) {
            threw = true;
            CHECK(error.code() == static_cast<int>(how.error));
            broken = failed_functions(device::log().substr(logged), cudaGetErrorName(how.error));
            CHECK_MESSAGE(contains(broken, error.call()), "the error does not name the call that failed: ", error.what());
        } catch (weir::usage_error const& error) {
            FAIL_CHECK(error.what());
        }
        static_cast<void>(threw);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        if (device::failed_calls() == failed) {
            device::clear_faults();
            s->pool.reset();
            world.forgive();
            return false;
        }
        broken = failed_functions(device::log().substr(logged), cudaGetErrorName(how.error));
        if (how.how == until::the_end) { // nothing runs any more; the pool must end all the same
            s->pool.reset();
            device::clear_faults();
            s->live.clear();
        } else {
            device::clear_faults();
            static_cast<void>(cudaGetLastError());
            s->check(what.limit);
        }
    }
    for (device::report const& each : world.finish()) {
        // What CUDA refuses to destroy or to take back at the very end stays.
        bool const refused = each.kind == device::finding::leak &&
                             (how.how == until::the_end ||
                              (contains(broken, "cudaEventDestroy") && each.sentence.find("event") == 0));
        CHECK_MESSAGE(refused, each.sentence);
    }
    return true;
}

template <class Pool>
void strike_everywhere() {
    std::size_t strikes = 0;
    for (act<Pool> const& what : every_act<Pool>())
        for (fault const& how : every_fault)
            for (std::uint64_t k = 1; k < 1000; ++k) {
                CAPTURE(std::string(what.name));
                CAPTURE(std::string(cudaGetErrorName(how.error)));
                CAPTURE(static_cast<int>(how.how));
                CAPTURE(k);
                if (!strike(what, how, k))
                    break;
                ++strikes;
            }
    CHECK(strikes > 100);
}

} // namespace

TEST_CASE("faults: stream_ordered, checked, growth first") {
    strike_everywhere<pool<stream_ordered<checked, grow_first>, sized>>();
    strike_everywhere<pool<stream_ordered<checked, grow_first, closing>, fitted>>();
}

TEST_CASE("faults: stream_ordered, checked, waits first") {
    strike_everywhere<pool<stream_ordered<checked, wait_first>, fitted>>();
    strike_everywhere<pool<stream_ordered<checked, wait_first, closing>, sized>>();
}

TEST_CASE("faults: stream_ordered, promised") {
    strike_everywhere<pool<stream_ordered<promised, grow_first, closing>, sized>>();
    strike_everywhere<pool<stream_ordered<promised, wait_first>, sized>>();
}

TEST_CASE("faults: stream_ordered, managed memory of no device") {
    strike_everywhere<pool<stream_ordered<checked>, sized, weir::upstream::managed>>();
}

TEST_CASE("faults: after_event") {
    strike_everywhere<pool<weir::reuse::after_event, sized>>();
    strike_everywhere<pool<weir::reuse::after_event, fitted, weir::upstream::pinned<>>>();
}

TEST_CASE("faults: immediate") {
    strike_everywhere<pool<weir::reuse::immediate, sized>>();
    strike_everywhere<pool<weir::reuse::immediate, fitted, weir::upstream::pinned<>>>();
}

#define WEIR_SOME_POOLS                                                                                                \
    pool<stream_ordered<checked>, sized>, pool<weir::reuse::after_event, fitted>,                                      \
        pool<weir::reuse::after_event, fitted, weir::upstream::pinned<>>,                                              \
        pool<stream_ordered<promised>, sized, weir::upstream::managed>, pool<weir::reuse::immediate, sized>

TEST_CASE_TEMPLATE("faults: a pool that cannot be made", Pool, WEIR_SOME_POOLS) {
    for (fault const& how : every_fault)
        for (std::uint64_t k = 1; k < 1000; ++k) {
            CAPTURE(std::string(cudaGetErrorName(how.error)));
            CAPTURE(k);
            device::world const world(device::config{}.late(), support::report_all);
            device::fail_call(k, how.error, how.how == until::once ? device::lasting::once : device::lasting::for_ever);
            try {
                Pool const made(weir::pool_options{}.limit(64 * MiB));
                static_cast<void>(made);
            } catch (weir::cuda_error const& error) {
                CHECK(error.code() == static_cast<int>(how.error));
            }
            bool const struck = device::failed_calls() != 0;
            device::clear_faults();
            if (!struck)
                break;
        }
}

TEST_CASE_TEMPLATE("faults: a pool whose end fails", Pool, WEIR_SOME_POOLS) {
    for (fault const& how : every_fault)
        for (std::uint64_t k = 1; k < 1000; ++k) {
            CAPTURE(std::string(cudaGetErrorName(how.error)));
            CAPTURE(k);
            device::world world(device::config{}.late().with_log(), [](auto const&) {});
            {
                scene<Pool> s(64 * MiB);
                clutter(s);
                device::fail_call(k, how.error, how.how == until::once ? device::lasting::once : device::lasting::for_ever);
                s.pool.reset();
                s.live.clear();
                device::clear_faults();
            }
            bool const struck = device::failed_calls() != 0;
            std::vector<std::string> const broken = failed_functions(device::log(), cudaGetErrorName(how.error));
            for (device::report const& each : world.finish()) {
                bool const refused = each.kind == device::finding::leak &&
                                     (how.how != until::once || contains(broken, "cudaEventDestroy"));
                CHECK_MESSAGE(refused, each.sentence);
            }
            if (!struck)
                break;
        }
}

#endif
