// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random steps of several vectors on several streams, over a pool that has too few pages for all of them at once. Each vector is
// held against a model of its elements; the simulated device sees work that meets a page which has left.

#include <random>
#include <stable/scene.hpp>

using namespace scene;

namespace {

constexpr std::size_t most_pages = 12;
constexpr std::size_t most_elements = 5 * ints;

struct subject {
    stable_vector<int> xs;
    int* data;
    std::vector<std::pair<std::size_t, int>> parts{}; // where each piece ends, and the byte that it was filled with

    subject(page_pool const& pool, cudaStream_t stream, std::size_t most) : xs(pool, stream, most), data(xs.data()) {}

    int byte_at(std::size_t index) const {
        for (auto const& [end, value] : parts)
            if (index < end)
                return value;
        return -1;
    }
    void cut(std::size_t size) {
        while (!parts.empty() && (parts.size() == 1 ? 0 : parts[parts.size() - 2].first) >= size)
            parts.pop_back();
        if (!parts.empty() && parts.back().first > size)
            parts.back().first = size;
    }
};

void run(unsigned seed, int steps) {
    std::mt19937 random(seed);
    auto const below = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
    scoped_stream const streams[3];
    page_pool pool(small().limit(most_pages * page));
    std::vector<std::unique_ptr<subject>> all(4);
    auto const begin = [&](std::unique_ptr<subject>& one) {
        one.reset(); // before the next one, so that its pages are free for that
        one = std::make_unique<subject>(pool, streams[below(3)], most_elements - below(2) * ints);
    };
    for (auto& each : all)
        begin(each);
    for (int step = 0; step < steps; ++step) {
        subject& one = *all[below(all.size())];
        int const value = 1 + step % 100;
        std::size_t const size = one.xs.size();
        CAPTURE(seed);
        CAPTURE(step);
        switch (below(12)) {
        case 0:
        case 1:
        case 2:
        case 3: { // grows, if there is room
            std::size_t const count = below(2 * ints);
            try {
                write(one.xs.stream().get(), one.xs.append(count), count * sizeof(int), value);
                one.parts.emplace_back(size + count, value);
            } catch (weir::out_of_memory const&) {
                CHECK(one.xs.size() == size);
            } catch (weir::usage_error const&) {
                CHECK(size + count > one.xs.max_elements());
            }
            break;
        }
        case 4:
        case 5:
            one.xs.shrink(below(size + 1));
            one.cut(one.xs.size());
            break;
        case 6:
            one.xs.resize(size / 2);
            one.xs.shrink_to_fit();
            one.cut(size / 2);
            break;
        case 7: { // another stream overwrites all, and the vector waits for it as it gives back
            cudaStream_t const other = streams[below(3)];
            weir::order_after(weir::stream_ref(other), one.xs.stream());
            write(other, one.data, size * sizeof(int), value);
            one.xs.used_on(other);
            one.xs.set_stream(other);
            one.parts.assign(size != 0, {size, value});
            break;
        }
        case 8:
            begin(all[below(all.size())]);
            break;
        case 9:
            try {
                one.xs.commit_ahead(below(3) * page);
            } catch (weir::out_of_memory const&) {
            }
            break;
        case 10:
            pool.trim(below(most_pages) * page);
            break;
        default:
            if (size != 0) {
                std::size_t const index = below(size);
                CHECK(one.xs.element_sync(index) == one.byte_at(index) * 0x01010101);
            }
        }
        for (auto const& each : all)
            CHECK(each->xs.data() == each->data);
    }
    weir::memory_report const now = pool.state();
    std::size_t held = 0;
    for (auto const& each : all)
        held += each->xs.capacity_bytes();
    CHECK(now.in_use_bytes == held);
    CHECK(now.reserved_bytes <= most_pages * page);
    all.clear();
    pool.settle();
    CHECK(pool.trim() == now.reserved_bytes);
}

} // namespace

TEST_CASE("stable: vectors of a pool that is too small for all keep their elements, whatever comes in whatever order") {
    for (unsigned seed = 1; seed <= 6; ++seed) {
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::config how;
        if (seed > 2)
            how.random(seed);
        else if (seed == 2)
            how.late();
        simulated_cuda::world const world(how, support::report_all);
#endif
        run(seed, 300);
    }
}
