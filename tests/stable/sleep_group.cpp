// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <random>
#include <stable/scene.hpp>
#include <weir/weir.hpp>

using namespace scene;
using weir::stable::append_end;
using weir::stable::contents;
using weir::stable::sleep_group;

namespace {

// Two names that share the pages of one.
struct sleepers {
    static constexpr std::size_t size = ints + 10; // of a vector, which has two pages

    scoped_stream const stream;
    weir::host_pool keep;
    page_pool pages;
    stable_vector<int> weights, cache;
    std::optional<sleep_group> group;
    int const* const data = weights.data();

    explicit sleepers(std::size_t limit_pages = 2, std::size_t count = size)
        : pages(small().limit(limit_pages * page)), weights(pages, stream, 4 * ints), cache(pages, stream, 4 * ints) {
        group.emplace(keep);
        group->join("weights", weights);
        group->join("cache", cache);
        weights.reserve(size);
        weights.append(counting(count));
    }

    // The weights are awake, and what they were.
    void check_weights() {
        CHECK_FALSE(weights.suspended());
        CHECK(weights.data() == data);
        CHECK(weights.capacity() == 2 * ints);
        CHECK(weights.to_host_sync<std::vector>() == counting(weights.size()));
    }
    // Uses all pages for another vector, which then gives them back.
    void disturb() {
        cache.append(2 * ints);
        write(stream, cache.data(), 100);
        cache.shrink(2 * ints);
    }
};

constexpr std::size_t few = 1000; // elements

// Whether the host keeps the weights.
bool keeps(sleepers const& x) {
    return x.keep.in_use_bytes() >= sleepers::size * sizeof(int);
}

} // namespace

TEST_CASE("sleep_group: whoever sleeps gives its pages to others, and wakes where and as it was") {
    support::every_schedule([] {
        sleepers x;
        for (int round = 0; round < 3; ++round) {
            write(x.stream, x.weights.data(), 4, 0); // still under way: what is saved has it
            CHECK(x.group->suspend("weights") == 2 * page);
            CHECK(x.group->suspended("weights"));
            CHECK_FALSE(x.group->suspended("cache"));
            CHECK(x.group->suspended_bytes("weights") == 2 * page);
            CHECK(x.weights.data() == x.data);
            CHECK(x.weights.size() == sleepers::size);
            CHECK(in_use(x.pages) == 0);
            CHECK(keeps(x));
            if (round == 1)
                x.disturb(); // else its own pages are still there
            if (round == 2)
                CHECK(x.pages.trim() == 2 * page);
            x.group->resume("weights");
            x.check_weights();
            CHECK(reserved(x.pages) == 2);
            CHECK_FALSE(keeps(x));
            x.group->resume("weights"); // which are awake
        }
        x.weights.append(ints / 2);
    });
}

TEST_CASE("sleep_group: contents are saved, kept or dropped") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_log(), support::report_all);
#endif
    struct round {
        contents how;
        std::size_t copies; // away and back
        bool kept;
    };
    sleepers x;
    for (round const& each : {round{contents::save, 2, false}, {contents::constant, 2, true}, {contents::constant, 1, true},
                              {contents::save, 2, false}, {contents::constant, 2, true}, {contents::constant, 1, true},
                              {contents::drop, 0, false}, {contents::constant, 2, true}}) {
        weir::synchronize(x.stream);
#ifdef WEIR_SIMULATED_CUDA
        std::size_t const before = calls_of("cudaMemcpyAsync");
#endif
        x.group->suspend("weights", each.how);
        x.disturb();
        x.group->resume("weights");
#ifdef WEIR_SIMULATED_CUDA
        CHECK(calls_of("cudaMemcpyAsync") == before + each.copies);
#endif
        CHECK(keeps(x) == each.kept);
        if (each.how == contents::drop)
            x.weights.assign(counting(sleepers::size));
        x.check_weights();
    }
    // A copy of other bytes is none of these.
    x.weights.append({int{sleepers::size}});
    x.group->suspend("weights", contents::constant);
    x.pages.trim();
    x.group->resume("weights");
    CHECK(x.weights.element_sync(sleepers::size) == sleepers::size);
    x.weights.clear();
    x.group->suspend("weights", contents::constant);
    CHECK_FALSE(keeps(x));
    x.group->resume("weights");
}

TEST_CASE("sleep_group: what sleeps is not used, where the host sees it, and stays as it was") {
    support::every_schedule([] {
        sleepers x(6);
        weir::device_pool pool;
        append_end<int> end(x.weights, pool);
        x.weights.keep_ahead(10);
        x.cache.append({1, 2});
        x.group->suspend("weights");
        std::vector<int> host(sleepers::size);
        using action = void (*)(sleepers&, std::vector<int>&);
        for (action const& each : std::initializer_list<action>{
                 [](sleepers& s, auto&) { s.weights.append(1); },
                 [](sleepers& s, auto& from) { s.weights.append(from); },
                 [](sleepers& s, auto&) { s.weights.append(s.cache); },
                 [](sleepers& s, auto&) { s.cache.append(s.weights); },
                 [](sleepers& s, auto& from) { s.weights.assign(from); },
                 [](sleepers& s, auto&) { s.weights.resize(1); },
                 [](sleepers& s, auto&) { s.weights.reserve(1); },
                 [](sleepers& s, auto&) { s.weights.commit_ahead(1); },
                 [](sleepers& s, auto&) { s.weights.shrink(1); },
                 [](sleepers& s, auto&) { s.weights.shrink_to_fit(); },
                 [](sleepers& s, auto&) { s.weights.zero_async(); },
                 [](sleepers& s, auto&) { s.weights.set_element_async(0, 1); },
                 [](sleepers& s, auto&) { static_cast<void>(s.weights.element_sync(0)); },
                 [](sleepers& s, auto& to) { s.weights.copy_to_async(to.data()); },
                 [](sleepers& s, auto& to) { s.weights.copy_to_sync(to.data()); }})
            CHECK(support::sentence_of<weir::usage_error>([&] { each(x, host); }) ==
                  "weir: this stable container sleeps as 'weights', so it has no memory; call 'resume' of its sleep_group first");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { end.view(); }), "sleeps as 'weights'");
        CHECK(x.weights.capacity() == 0);
        CHECK(x.weights.size() == sleepers::size);
        x.group->resume("weights");
        x.check_weights();

        x.group->suspend("weights");
        x.weights.resize(0); // needs no memory
        x.group->resume("weights");
        CHECK(x.weights.empty());
        CHECK(x.weights.capacity() == 2 * ints);
    });
}

TEST_CASE("sleep_group: a name that nobody has, and members that come, go, move and end") {
    support::every_schedule([] {
        sleepers x(6);
        auto const said = [](auto const& call) { return support::sentence_of<weir::usage_error>(call); };
        CHECK(said([&] { x.group->suspend("wieghts"); }) ==
              "weir: nobody has joined the sleep_group as 'wieghts'; the names are 'weights', 'cache'");
        CHECK(said([&] { sleep_group(x.keep).resume("a"); }) ==
              "weir: nobody has joined the sleep_group as 'a'; nobody has joined it at all");
        CHECK_SAYS(said([&] { x.group->join("a", x.weights); }), "has joined the sleep_group already, as 'weights'");
        CHECK_SAYS(said([&] { sleep_group(x.keep).join("a", x.weights); }), "has joined a sleep_group already, as 'weights'");

        std::optional<stable_buffer> more(std::in_place, x.pages, x.stream);
        CHECK_SAYS(said([&] { x.group->leave(*more); }), "has not joined");
        x.group->join("weights", *more);
        CHECK(x.group->suspend("weights", contents::drop) == 2 * page);
        CHECK_SAYS(x.pages.report(), "0 B in use in 1 block, "); // what sleeps has given its block up
        CHECK_SAYS(x.pages.report(), ", 2 asleep");
        CHECK_SAYS(said([&] { x.group->suspend("weights"); }), "'weights' is asleep already; call 'resume' first");
        CHECK_SAYS(said([&] { x.group->leave(*more); }), "sleeps as 'weights'; 'resume' that name");
        more.reset();
        CHECK_SAYS(x.pages.report(), ", 1 asleep");
        x.group->resume("weights");
        CHECK(x.pages.state().live_blocks == 2);
        CHECK(std::string(x.pages.report()).find("asleep") == std::string::npos);

        // One that joins while others sleep is put to sleep by the next call, and it wakes with them.
        x.group->suspend("cache");
        more.emplace(x.pages, x.stream);
        more->append(page);
        x.group->join("cache", *more);
        CHECK(x.group->suspend("cache") == page);
        stable_buffer moved = std::move(*more);
        CHECK(moved.suspended());
        CHECK_FALSE(more->suspended());
        stable_buffer assigned(x.pages, x.stream);
        assigned = std::move(moved);
        CHECK(x.group->suspended_bytes("cache") == page);
        x.group->resume("cache");
        CHECK(assigned.capacity() == page);
        CHECK(x.group->suspend("cache") == page);
        assigned = stable_buffer(x.pages, x.stream); // what slept has ended
        CHECK(x.group->suspended_bytes("cache") == 0);
        x.group->resume("cache");
        assigned.append(1);

        x.group->leave(x.weights);
        CHECK_SAYS(said([&] { x.group->suspend("weights"); }), "the names are 'cache'");
        x.group->join("weights", x.weights);
        x.group->suspend("weights");
        x.group.reset(); // and the contents with it
        CHECK_FALSE(keeps(x));
        CHECK_SAYS(said([&] { x.weights.append(1); }), "sleeps as 'weights'");
        x.cache.append(1); // awake: free to join again
        sleep_group(x.keep).join("cache", x.cache);
        sleep_group(x.keep).join("cache", x.cache);
    });
}

TEST_CASE("sleep_group: a resume without room changes nothing, and can be called again") {
    support::every_schedule([] {
        sleepers x(3);
        stable_vector<int> other(x.pages, x.stream, 4 * ints);
        other.append(1);
        x.group->join("weights", other);
        x.group->suspend("weights");
        x.cache.append(ints);
        CHECK_FALSE(x.group->try_resume("weights")); // the first one finds room, the second does not
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { x.group->resume("weights"); }), "the limit leaves no room");
        CHECK(in_use(x.pages) == 1);
        CHECK(x.weights.suspended());
        CHECK(other.suspended());
        x.cache.shrink(ints);
        CHECK(x.group->try_resume("weights"));
        x.check_weights();
        CHECK(other.size() == 1);
    });
}

TEST_CASE("sleep_group: a graph is good again when what it uses has woken") {
    support::every_schedule([] {
        sleepers x;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t run = nullptr;
        check_cuda(cudaStreamBeginCapture(x.stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        write(x.stream, x.weights.data(), 4, 9);
        check_cuda(cudaStreamEndCapture(x.stream, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&run, graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaGraphLaunch(run, x.stream), "cudaGraphLaunch");
        x.group->suspend("weights"); // waits for the launch
        x.disturb();
        x.group->resume("weights");
        CHECK(x.weights.element_sync(0) == 0x09090909);
        x.weights.set_element_async(0, 1);
        check_cuda(cudaGraphLaunch(run, x.stream), "cudaGraphLaunch");
        CHECK(x.weights.element_sync(0) == 0x09090909);
        CHECK(x.weights.element_sync(1) == 1);
        check_cuda(cudaGraphExecDestroy(run), "cudaGraphExecDestroy");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    });
}

TEST_CASE("sleep_group: no work uses the memory that goes, not on streams that nobody named") {
    support::every_schedule([] {
        sleepers x;
        scoped_stream const other;
        weir::synchronize(x.stream);
        write(other, x.weights.data() + 1, 4, 5);
        x.group->suspend("weights");
        x.disturb();
        x.group->resume("weights");
        CHECK(x.weights.element_sync(1) == 0x05050505);
    });
}

TEST_CASE("sleep_group: pools and vectors of one name sleep and wake together") {
    support::every_schedule([] {
        sleepers x;
        weir::layer::statistics<weir::compact_device_pool> pool;
        weir::layer::limit<weir::host_pool> little(1);
        {
            weir::device_vector<int> table(pool, x.stream, counting(1000));
            x.group->join("weights", pool);
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { x.group->join("a", pool); }), "already, as 'weights'");
            for (contents const how : {contents::save, contents::constant, contents::drop}) {
                CHECK(x.group->suspend("weights", how) > 2 * page);
                CHECK(pool.suspended());
                CHECK(pool.reserved_bytes() == 0);
                CHECK(x.group->suspended_bytes("weights") > 2 * page);
                x.disturb();
                x.group->resume("weights");
                if (how == contents::drop)
                    continue;
                CHECK(table.to_host_sync<std::vector>() == counting(1000));
                x.check_weights();
            }
            x.group->leave(pool);
            x.group->leave(x.weights);
        }
        // The host has no room for the last one of them.
        sleep_group group(little);
        weir::device_vector<int> table(pool, x.stream, counting(1000));
        x.weights.shrink(x.weights.size());
        group.join("a", x.weights);
        group.join("a", pool);
        CHECK_THROWS_AS(group.suspend("a"), weir::out_of_memory);
        CHECK_FALSE(pool.suspended());
        CHECK_FALSE(x.weights.suspended());
        group.leave(pool);
        group.join("b", pool);
        stable_vector<int> full(x.pages, x.stream, ints);
        full.append({1});
        group.join("b", full);
        CHECK_THROWS_AS(group.suspend("b"), weir::out_of_memory);
        CHECK_FALSE(pool.suspended());
        CHECK(table.element_sync(999) == 999);
    });
}

TEST_CASE("sleep_group: 1,000 sleeps and wakes leave as much memory free as before" * doctest::test_suite("fills the card")) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}, support::report_all);
#endif
    scoped_stream const s;
    weir::pinned_pool keep;
    page_pool pages(small());
    weir::compact_device_pool pool;
    stable_vector<int> weights(pages, s, 4 * ints), cache(pages, s, 4 * ints);
    weir::device_vector<int> table(pool, s, counting(100));
    weights.append(counting(100));
    cache.append(2 * ints);
    sleep_group group(keep);
    group.join("weights", weights);
    group.join("weights", pool);
    group.join("cache", cache);
    std::size_t before = 0, after = 0, all = 0;
    for (int round = 0; round <= 1000; ++round) {
        group.suspend("weights", round % 3 == 0 ? contents::constant : contents::save);
        group.suspend("cache", contents::drop);
        if (round % 2 == 0)
            pages.trim();
        group.resume(round % 4 < 2 ? "weights" : "cache"); // what is needed first
        group.resume(round % 4 < 2 ? "cache" : "weights");
        if (round == 10)
            check_cuda(cudaMemGetInfo(&before, &all), "cudaMemGetInfo");
    }
    check_cuda(cudaMemGetInfo(&after, &all), "cudaMemGetInfo");
    CHECK(after == before);
    CHECK(weights.to_host_sync<std::vector>() == counting(100));
    CHECK(table.to_host_sync<std::vector>() == counting(100));
}

TEST_CASE("sleep_group: random sleeping, waking, growing and ending keeps every element") {
    for (unsigned seed = 1; seed <= 3; ++seed) {
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::config how;
        simulated_cuda::world const world(seed == 1 ? how.late() : how.random(seed), support::report_all);
#endif
        std::mt19937 random(seed);
        auto const below = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
        scoped_stream const s;
        weir::host_pool keep;
        page_pool pages(small().limit(6 * page));
        sleep_group group(keep);
        struct subject {
            weir::text name;
            stable_vector<int> xs;
            std::vector<int> model{};
            bool asleep = false;
        };
        std::vector<std::unique_ptr<subject>> all;
        for (std::size_t i = 0; i < 4; ++i) {
            all.push_back(std::make_unique<subject>(
                subject{weir::text("name ") + weir::base::number_text(i), stable_vector<int>(pages, s, 3 * ints)}));
            group.join(all.back()->name, all.back()->xs);
        }
        for (int step = 0; step < 150; ++step) {
            subject& one = *all[below(all.size())];
            CAPTURE(seed);
            CAPTURE(step);
            CHECK(one.xs.suspended() == one.asleep);
            if (below(3) != 0) {
                if (one.asleep)
                    one.asleep = !group.try_resume(one.name);
                else
                    group.suspend(one.name, below(2) == 0 ? contents::save : contents::constant), one.asleep = true;
            } else if (one.asleep) {
                CHECK_THROWS_AS(one.xs.append(1), weir::usage_error);
            } else if (below(8) == 0) {
                one.xs = stable_vector<int>(pages, s, 3 * ints);
                one.model.clear();
                group.join(one.name, one.xs);
            } else if (one.model.size() > ints / 2 && below(2) == 0) {
                one.xs.shrink(ints / 2);
                one.model.resize(one.model.size() - ints / 2);
            } else if (one.model.size() < 2 * ints) {
                std::vector<int> const more = counting(ints / 2 + below(few), step);
                try {
                    one.xs.append(more);
                    one.model.insert(one.model.end(), more.begin(), more.end());
                } catch (weir::out_of_memory const&) {
                }
            }
            if (!one.asleep && step % 4 == 0)
                CHECK(one.xs.to_host_sync<std::vector>() == one.model);
        }
        all.clear();
        pages.settle();
        pages.trim();
        CHECK(pages.reserved_bytes() == 0);
    }
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("sleep_group: a pool that finds no room on the device leaves the vectors of its name asleep, and pools before it") {
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_memory(64 * MiB), support::report_all);
    sleepers x;
    weir::compact_device_pool first(weir::pool_options{}.name("first")), second(weir::pool_options{}.name("second"));
    weir::device_vector<int> little(first, x.stream, counting(100));
    weir::device_buffer many(second, x.stream, 30 * MiB);
    x.group->join("weights", first);
    x.group->join("weights", second);
    x.group->suspend("weights");
    x.pages.trim();
    void* taken = nullptr;
    check_cuda(cudaMalloc(&taken, 40 * MiB), "cudaMalloc");
    CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { x.group->resume("weights"); }), "the device has no room");
    CHECK(x.weights.suspended());
    CHECK(first.suspended());
    CHECK(second.suspended());
    CHECK(in_use(x.pages) == 0);
    check_cuda(cudaFree(taken), "cudaFree");
    x.group->resume("weights");
    x.check_weights();
    CHECK(little.to_host_sync<std::vector>() == counting(100));
}

TEST_CASE("sleep_group: whichever call fails, all of a name sleep or all are awake, and nothing is lost") {
    struct together : sleepers {
        stable_vector<int> more{pages, stream, 2 * ints};
        weir::compact_device_pool pool;
        weir::device_vector<int> table{pool, stream, counting(few)};

        together() : sleepers(4, few) {
            more.reserve(ints + 1);
            more.append(counting(few, 3));
            group->join("weights", pool);
            group->join("weights", more);
        }
        void check(bool undone) {
            CHECK(weights.suspended() == more.suspended());
            if (undone)
                CHECK(weights.suspended() == pool.suspended());
            group->resume("weights");
            CHECK_FALSE(pool.suspended());
            check_weights();
            CHECK(table.to_host_sync<std::vector>() == counting(few));
            CHECK(more.to_host_sync<std::vector>() == counting(few, 3));
            CHECK(in_use(pages) == 4);
        }
    };
    std::uint64_t runs = 0;
    for (bool const wakes : {false, true})
        runs += support::fault_sweep(
            [&] {
                auto fresh = std::make_unique<together>();
                if (wakes) {
                    fresh->group->suspend("weights", contents::constant);
                    fresh->disturb();
                    fresh->pages.settle();
                    fresh->pages.trim(page);
                }
                return fresh;
            },
            [&](together& x) {
                try {
                    wakes ? x.group->resume("weights") : static_cast<void>(x.group->suspend("weights"));
                } catch (weir::out_of_memory const& error) {
                    CHECK_SAYS(error.reason(), "CUDA refuses");
                }
            },
            [&](together& x, support::struck const& fault) {
                if (fault.threw)
                    CHECK(x.weights.suspended() == wakes);
                x.check(!fault.pair && !fault.for_ever); // else the pool may have refused to undo it
            },
            support::faults::pairs_too);
    CHECK(runs > 40);
}

TEST_CASE("sleep_group: a vector ends while pages are behind it that a failed copy may use, and the pages go back") {
    std::size_t stayed = 0;
    support::fault_sweep(
        [] {
            auto fresh = std::make_unique<sleepers>(2, few);
            fresh->group->suspend("weights");
            return fresh;
        },
        [](sleepers& x) { x.group->resume("weights"); },
        [&](sleepers& x, support::struck const&) {
            stayed += x.weights.suspended() && in_use(x.pages) == 2;
            x.weights = stable_vector<int>(x.pages, x.stream, ints);
            x.pages.settle();
            CHECK(in_use(x.pages) == 0);
        });
    CHECK(stayed > 0);
}

TEST_CASE("sleep_group: where the host has no memory, a call throws and nothing has changed") {
    if (!support::host_memory_can_fail)
        return;
    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all);
    CHECK(support::each_failure([] { return std::make_unique<sleepers>(2, few); }, [](auto& x) { x->group->suspend("weights"); },
                                [](auto& x) { x->check_weights(); }) > 0);
    CHECK(support::each_failure(
              [] {
                  auto fresh = std::make_unique<sleepers>(2, few);
                  fresh->group->suspend("weights");
                  fresh->disturb();
                  fresh->pages.settle();
                  fresh->pages.trim();
                  return fresh;
              },
              [](auto& x) { x->group->resume("weights"); },
              [](auto& x) {
                  CHECK(x->weights.suspended());
                  x->group->resume("weights");
                  x->check_weights();
              }) > 0);
    CHECK(support::each_failure(
              [] {
                  auto fresh = std::make_unique<sleepers>(2, few);
                  fresh->group->leave(fresh->weights);
                  return fresh;
              },
              [](auto& x) { x->group->join("weights", x->weights); },
              [](auto& x) {
                  x->group->join("weights", x->weights);
                  x->check_weights();
              }) > 0);
}
#endif
