// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <stable/scene.hpp>
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
#endif
