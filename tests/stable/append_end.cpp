// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <stable/scene.hpp>
#include <support/recording_pool.hpp>
#include <weir/recipes.hpp>

using namespace scene;
using weir::stable::append_end;
using weir::stable::append_view;

#ifdef WEIR_SIMULATED_CUDA
namespace {

// A kernel that adds `count` numbers from `first` on.
void launch(cudaStream_t stream, append_view<int> view, unsigned long long* end, int first, int count) {
    simulated_cuda::launch(stream, {{end, 8}}, {{end, 8}, {view.data(), view.capacity() * sizeof(int)}}, [=] {
        auto* const places = static_cast<int*>(simulated_cuda::backing(view.data()));
        auto* const number = static_cast<unsigned long long*>(simulated_cuda::backing(end));
        append_view<int> const here(places, view.capacity(), number);
        for (int i = 0; i < count; ++i)
            here.push(first + i);
    });
}

} // namespace

TEST_CASE("append_end: a kernel appends, and where the room did not suffice, it is made and the kernel launched again") {
    support::every_schedule([] {
        scoped_stream const s, other;
        weir::device_pool blocks;
        page_pool pool(small());
        stable_vector<int> xs(pool, s, 4 * ints);
        append_end<int> end(xs, blocks);
        xs.append(counting(5));
        auto const appending = [&](int count) {
            return fill_sync(xs, end, [&](append_view<int> view) { launch(xs.stream().get(), view, view.end(), 5, count); });
        };
        CHECK(appending(100) == 1);
        CHECK(xs.size() == 105);
        CHECK(xs.capacity() == ints);
        xs.resize(5);
        CHECK(appending(static_cast<int>(2 * ints)) == 2);
        CHECK(xs.size() == 2 * ints + 5);
        CHECK(xs.capacity() == 3 * ints);
        xs.set_stream(other);
        CHECK(xs.element_sync(0) == 0);
        CHECK(xs.element_sync(2 * ints + 4) == static_cast<int>(2 * ints + 4));
        xs.resize(5);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { appending(static_cast<int>(4 * ints)); }), "cannot hold");
        CHECK(xs.size() == 5);
        launch(other, end.view(), end.view().end(), 5, static_cast<int>(4 * ints)); // by hand
        CHECK(end.size_sync() == 4 * ints + 5);
        CHECK(xs.size() == 3 * ints);
    });
}

TEST_CASE("append_end: what found no room in the view is not counted as there, whatever room the vector has by then") {
    support::every_schedule([] {
        scoped_stream const s;
        weir::device_pool blocks;
        page_pool pool(small());
        stable_vector<int> xs(pool, s, 8 * ints);
        append_end<int> end(xs, blocks);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { end.size_sync(); }), "nothing to read");
        stable_vector<int> ys(pool, s, ints);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { fill_sync(ys, end, [](append_view<int>) {}); }), "of another");
        int const count = static_cast<int>(2 * ints);
        xs.keep_ahead(3 * page); // after each growth, also that of 'size_sync'
        xs.append(counting(5));
        xs.shrink_to_fit();
        CHECK(fill_sync(xs, end, [&](append_view<int> view) { launch(s, view, view.end(), 5, count); }) == 2);
        CHECK(xs.to_host_sync<std::vector>() == counting(2 * ints + 5));
        xs.keep_ahead(0);
        xs.resize(5);
        xs.shrink_to_fit();
        auto const view = end.view();
        launch(s, view, view.end(), 5, count);
        xs.commit_ahead(3 * page); // meanwhile
        CHECK(end.size_sync() == 2 * ints + 5);
        CHECK(xs.size() == ints);
        CHECK(xs.element_sync(ints - 1) == static_cast<int>(ints) - 1);
    });
}

TEST_CASE("append_end: the number follows the vector's stream, also to its end") {
    support::every_schedule([] {
        scoped_stream const s, other, third;
        weir::device_pool blocks;
        page_pool pool(small());
        stable_vector<int> xs(pool, s, 4 * ints);
        {
            append_end<int> first(xs, blocks);
            append_end<int> end(std::move(first));
            auto const view = end.view();
            launch(s, view, view.end(), 0, 10);
            xs.set_stream(other);
            launch(other, view, view.end(), 10, 10);
            CHECK(end.size_sync() == 20);
            CHECK(xs.empty()); // there is no memory yet, and the streams are in order all the same
            CHECK(fill_sync(xs, end, [&](append_view<int> more) {
                      xs.set_stream(third);
                      launch(third, more, more.end(), 0, 25);
                  }) == 2);
            xs.set_stream(s);
            auto const last = end.view();
            xs.set_stream(other);
            launch(other, last, last.end(), 25, 5);
        } // behind the last launch
        weir::device_value<unsigned long long> next(blocks, s, 7ull); // where the number was
        CHECK(next.value_sync() == 7);
        CHECK(xs.to_host_sync<std::vector>() == counting(25));
    });
}

TEST_CASE("append_end: a view that outlives its vector finds no room, and its append_end says so") {
    enum way { vector_ends, vector_moves, another_moves_in, vector_ends_asleep };
    for (way const how : {vector_ends, vector_moves, another_moves_in, vector_ends_asleep})
        support::every_schedule([how] {
            CAPTURE(how);
            scoped_stream const s, other;
            weir::device_pool blocks;
            weir::host_pool keep;
            page_pool pool(small());
            weir::stable::sleep_group sleepers(keep);
            std::optional<stable_vector<int>> xs(std::in_place, pool, s, 4 * ints);
            xs->append(counting(5));
            append_end<int> idle(*xs, blocks), end(*xs, blocks), last(*xs, blocks);
            auto const view = end.view();
            launch(s, view, view.end(), 5, 5);
            xs->set_stream(other); // behind which the view is closed
            std::optional<stable_vector<int>> moved;
            if (how == vector_moves)
                moved.emplace(std::move(*xs));
            if (how == another_moves_in)
                *xs = stable_vector<int>(pool, s, ints);
            if (how == vector_ends_asleep) {
                sleepers.join("it", *xs);
                sleepers.suspend("it");
            }
            if (how == vector_ends || how == vector_ends_asleep)
                xs.reset();
            simulated_cuda::launch(other, {{view.end(), 8}}, {}, [at = view.end()] {
                CHECK(*static_cast<unsigned long long*>(simulated_cuda::backing(at)) == append_view<int>::gone);
            });
            for (append_end<int>* each : {&idle, &end, &last}) {
                CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { each->view(); }), "of this append_end has ended, or was moved");
                CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { each->size_sync(); }), "make an append_end after its vector");
            }
            if (xs)
                CHECK_FALSE(end.is_of(*xs));
            weir::synchronize(other);
        });
}

TEST_CASE("append_end: those of one vector end in any order, and the one that is left ends with the vector") {
    support::every_schedule([] {
        scoped_stream const s;
        weir::device_pool blocks;
        page_pool pool(small());
        std::optional<stable_vector<int>> xs(std::in_place, pool, s, ints);
        std::optional<append_end<int>> first(std::in_place, *xs, blocks), second(std::in_place, *xs, blocks);
        append_end<int> left(*xs, blocks);
        first.reset();
        CHECK(left.is_of(*xs));
        second.reset();
        xs.reset();
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { left.view(); }), "of this append_end has ended, or was moved");
    });
}

#if WEIR_GUARD
TEST_CASE("append_end: in debug builds a view that outlives its append_end finds no room either") {
    support::every_schedule([] {
        scoped_stream const s;
        weir::device_pool blocks;
        page_pool pool(small());
        stable_vector<int> xs(pool, s, ints);
        std::optional<append_end<int>> end(std::in_place, xs, blocks);
        auto const view = end->view();
        end.reset();
        xs.append(1);
        weir::device_value<unsigned long long> number(blocks, s); // where the other one was
        if (number.data() == view.end())
            CHECK(number.value_sync() == append_view<int>::gone);
    });
}
#endif

TEST_CASE("append_end: where the number lies on no device, a default stream is that of the vector's device") {
    support::two_devices const peers;
    REQUIRE(peers);
    support::recording_pool<weir::memory_space::managed> managed;
    page_pool pool(small());
    stable_vector<int> xs(pool, cudaStreamLegacy, ints);
    weir::runtime::device_scope const elsewhere(1);
    append_end<int> end(xs, managed);
    auto const view = end.view();
    {
        weir::runtime::device_scope const there(0);
        launch(cudaStreamLegacy, view, view.end(), 0, 10);
    }
    xs.set_stream(cudaStreamPerThread);
    CHECK(end.size_sync() == 10);
}
#endif
