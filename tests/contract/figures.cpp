// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What reports, refusals and errors say while other threads allocate and free: figures that can be. A sum over threads that is off
// by a call must not become a difference below zero, which reads as 16 EiB.

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <random>
#include <string>
#include <support/every_schedule.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/layer/failure_handler.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/placement/best_fit.hpp>
#include <weir/recipes.hpp>
#include <weir/upstream/from_pool.hpp>

namespace {

namespace layer = weir::layer;
using weir::KiB;
using weir::MiB;

constexpr std::size_t pool_limit = 16 * MiB;
constexpr std::size_t tenant_limit = 1 * MiB;
constexpr std::size_t too_much = 64 * MiB; // more than any of them may have
constexpr double most = 1e12; // bytes of any device

// The greatest number of bytes that a sentence names, with the others in it.
double greatest_figure(std::string const& said) {
    double greatest = 0;
    for (char const* at = said.c_str(); *at != '\0';) {
        if (std::strncmp(at, "0x", 2) == 0) { // an address
            at += 2 + std::strspn(at + 2, "0123456789abcdef");
        } else if (std::isdigit(static_cast<unsigned char>(*at)) != 0) {
            char* end = nullptr;
            double figure = std::strtod(at, &end);
            if (std::strlen(end) > 2 && *end == ' ' && end[2] == 'i')
                for (char const* unit = "KMGTPE"; *unit != '\0' && (figure *= 1024, *unit != end[1]); ++unit) {
                }
            greatest = figure > greatest ? figure : greatest;
            at = end;
        } else {
            ++at;
        }
    }
    return greatest;
}

weir::pool_options small() {
    return weir::pool_options{}.limit(pool_limit).name("small");
}
weir::driver_pool_options small_driver() {
    weir::driver_pool_options options;
    options.limit(pool_limit);
    return options;
}

// A pool, made in place.
template <class Pool>
struct made {
    Pool pool{small()};
};
template <>
struct made<weir::driver_pool> {
    weir::driver_pool pool{small_driver()};
};
template <class Pool>
struct made<layer::limit<Pool>> {
    layer::limit<Pool> pool{tenant_limit, small()};
};
template <class Pool>
struct made<layer::statistics<layer::limit<Pool>>> {
    layer::statistics<layer::limit<Pool>> pool{tenant_limit, small()};
};
template <class A, class B>
struct made<layer::fallback<A, B>> {
    layer::fallback<A, B> pool{small(), small()};
};
using card = layer::guard<weir::recipes::device::parts>;
using tenant = layer::limit<card&>;
template <>
struct made<tenant> {
    card below{small()};
    tenant pool{weir::layer_options{}.name("tenant"), tenant_limit, below};
};
using cut_up = weir::pool<weir::upstream::from_pool<tenant>, weir::placement::best_fit<>, weir::reuse::stream_ordered<>>;
template <>
struct made<cut_up> {
    made<tenant> below;
    cut_up pool{weir::upstream::from_pool<tenant>(below.pool, weir::on_host)};
};

} // namespace

TEST_CASE("figures: the test reads what a sentence says") {
    CHECK(greatest_figure("12 bytes at 0xffffffff, limit 1.50 KiB, 3 blocks") == 1536);
    CHECK(greatest_figure("17592186044416 bytes (16 TiB)") == 17592186044416.0);
    CHECK(greatest_figure("15.99 EiB") > 1e19);
    CHECK(greatest_figure("none") == 0);
}

TEST_CASE_TEMPLATE("figures: what is said while threads allocate and free can be", Pool, weir::recipes::device::parts,
                   weir::recipes::pinned::parts, weir::driver_pool, layer::limit<weir::recipes::device::parts>,
                   layer::statistics<layer::limit<weir::recipes::promised_device::parts>>,
                   layer::synchronized<weir::recipes::frames::parts>, tenant, cut_up,
                   layer::fallback<weir::recipes::device::parts, card>) {
    constexpr int writers = 3, pairs = 300;
    support::scoped_stream const streams[writers]; // they outlive the pool, as identity::promised asks
    made<Pool> here;
    Pool& pool = here.pool;
    std::vector<std::thread> all;
    for (int i = 0; i < writers; ++i)
        all.emplace_back([&, i] {
            std::mt19937_64 draw(static_cast<unsigned>(i));
            std::vector<std::pair<void*, std::size_t>> mine;
            for (int pair = 0; pair < pairs; ++pair) {
                std::size_t const bytes = 1 + draw() % (400 * KiB); // so that the tenants are refused now and then
                if (void* const p = pool.try_allocate(streams[i], bytes, 16))
                    mine.emplace_back(p, bytes);
                while (mine.size() > 1 || (pair == pairs - 1 && !mine.empty())) {
                    pool.deallocate(streams[i], mine.back().first, mine.back().second, 16);
                    mine.pop_back();
                }
            }
        });
    std::vector<std::string> wrong;
    for (int round = 0; round < 100; ++round) {
        std::vector<std::string> said{std::string(pool.report()), std::string(pool.refused(300 * KiB, 256).reason),
                                      std::string(pool.refused(too_much, 256).reason)};
        for (std::size_t const bytes : {500 * KiB, too_much})
            try {
                pool.deallocate(streams[0], pool.allocate(streams[0], bytes), bytes);
            } catch (weir::out_of_memory const& error) {
                said.emplace_back(error.what());
            }
        for (std::string& each : said)
            if (greatest_figure(each) > most)
                wrong.push_back(std::move(each));
    }
    for (std::thread& each : all)
        each.join();
    CHECK_MESSAGE(wrong.empty(), wrong.size(), " sentences, as: ", wrong.empty() ? "" : wrong.front());
}
