// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random steps of several vectors on several streams, over a pool that has too few pages for all of them at once: they grow,
// shrink, end, are captured in graphs that are launched later, and are used by another device. Each vector is held against a
// model of its elements; the simulated device sees work that meets a page which has left.

#include <algorithm>
#include <random>
#include <stable/scene.hpp>

using namespace scene;

namespace {

constexpr std::size_t most_pages = 12;
constexpr std::size_t most_elements = 5 * ints;

struct subject {
    stable_vector<int> xs;
    int* data;
    std::vector<std::pair<std::size_t, int>> parts{}; // where each piece ends, and the byte it was filled with; 0: with nothing

    subject(page_pool const& pool, cudaStream_t stream, std::size_t most) : xs(pool, stream, most), data(xs.data()) {}

    int byte_at(std::size_t index) const {
        for (auto const& [end, value] : parts)
            if (index < end)
                return value;
        return 0;
    }
    void cut(std::size_t size) {
        while (!parts.empty() && (parts.size() == 1 ? 0 : parts[parts.size() - 2].first) >= size)
            parts.pop_back();
        if (!parts.empty() && parts.back().first > size)
            parts.back().first = size;
    }
    void overwrite(std::size_t count, int value) {
        std::vector<std::pair<std::size_t, int>> now;
        if (count != 0)
            now.emplace_back(count, value);
        for (auto const& part : parts)
            if (part.first > count)
                now.push_back(part);
        parts = std::move(now);
    }
};

// A graph that overwrites the first elements of a vector. It may be launched while the vector has kept the pages that it did not
// give back in the capture.
struct captured {
    cudaGraphExec_t runs;
    subject* of;
    std::size_t count;
    int value;
    std::size_t needed_bytes;
};

class actor {
public:
    actor(unsigned seed, page_pool const& pool, std::size_t vectors, cudaStreamCaptureMode mode)
        : random_(seed), pool_(pool), all_(vectors), mode_(mode) {
        CAPTURE(seed);
        for (auto& each : all_)
            begin(each);
    }
    actor(actor const&) = delete;
    actor& operator=(actor const&) = delete;
    ~actor() {
        while (!graphs_.empty())
            forget_graph(0);
    }

    void step(int number) {
        CAPTURE(number);
        subject& one = *all_[below(all_.size())];
        change(one, 1 + number % 100);
        for (auto const& each : all_)
            CHECK(each->xs.data() == each->data);
        for (captured& each : graphs_)
            if (each.of && each.of->xs.capacity_bytes() < each.needed_bytes)
                each.of = nullptr;
    }

    /// From now on another device writes over what was looked at.
    void share_with_device_1() {
        pool_.enable_access_from(1);
        is_shared_ = true;
    }

    std::size_t held_bytes() const {
        std::size_t held = 0;
        for (auto const& each : all_)
            held += each->xs.capacity_bytes();
        return held;
    }

private:
    std::size_t below(std::size_t most) { return static_cast<std::size_t>(random_() % most); }
    cudaStream_t any_stream() { return streams_[below(3)]; }

    void begin(std::unique_ptr<subject>& one) {
        for (captured& each : graphs_)
            if (each.of == one.get())
                each.of = nullptr;
        one.reset(); // before the next one, so that its pages are free for that
        one = std::make_unique<subject>(pool_, any_stream(), most_elements - below(2) * ints);
    }

    // Grows, if there is room. Whether it did.
    bool append(subject& one, std::size_t count, int value) {
        std::size_t const size = one.xs.size();
        try {
            write(one.xs.stream().get(), one.xs.append(count), count * sizeof(int), value);
            return true;
        } catch (weir::out_of_memory const&) {
            CHECK(one.xs.size() == size);
        } catch (weir::usage_error const&) {
            CHECK(size + count > one.xs.max_elements());
        }
        return false;
    }

    void change(subject& one, int value) {
        std::size_t const size = one.xs.size();
        switch (below(16)) {
        case 0:
        case 1:
        case 2:
        case 3: {
            std::size_t const count = below(2 * ints);
            if (append(one, count, value))
                one.parts.emplace_back(size + count, value);
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
            cudaStream_t const other = any_stream();
            weir::order_after(weir::stream_ref(other), one.xs.stream());
            write(other, one.data, size * sizeof(int), value);
            one.xs.used_on(other);
            one.xs.set_stream(other);
            one.overwrite(size, value);
            break;
        }
        case 8:
            begin(all_[below(all_.size())]);
            break;
        case 9:
            try {
                one.xs.commit_ahead(below(3) * page);
            } catch (weir::out_of_memory const&) {
            }
            break;
        case 10:
            pool_.trim(below(most_pages) * page);
            break;
        case 11:
            if (graphs_.size() < 3)
                capture(one, value);
            break;
        case 12:
        case 13:
            if (!graphs_.empty())
                launch(graphs_[below(graphs_.size())]);
            break;
        case 14:
            if (!graphs_.empty())
                forget_graph(below(graphs_.size()));
            break;
        default:
            if (size != 0)
                look(one, below(size));
        }
    }

    void look(subject& one, std::size_t index) {
        int const byte = one.byte_at(index);
        if (byte != 0)
            CHECK(one.xs.element_sync(index) == byte * 0x01010101);
        if (is_shared_) { // and the other device writes over them
            support::fill_from(1, one.data, one.xs.size() * sizeof(int));
            one.overwrite(one.xs.size(), 2);
        }
    }

    // A graph that grows the vector, or not, overwrites it, and shrinks it, or not.
    void capture(subject& one, int value) {
        cudaStream_t const stream = one.xs.stream().get();
        check_cuda(cudaStreamBeginCapture(stream, mode_), "cudaStreamBeginCapture");
        if (below(3) == 0)
            append(one, below(2 * ints), value);
        captured made{nullptr, &one, one.xs.size(), value, 0};
        write(stream, one.data, made.count * sizeof(int), value);
        one.overwrite(made.count, 0); // until it is launched
        if (below(2) == 0) {
            one.xs.shrink(below(made.count + 1));
            one.cut(one.xs.size());
        }
        made.needed_bytes = std::min(one.xs.capacity_bytes(), (made.count * sizeof(int) + page - 1) / page * page);
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&made.runs, graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        graphs_.push_back(made);
        launch(graphs_.back());
    }
    void launch(captured const& which) {
        if (!which.of)
            return;
        check_cuda(cudaGraphLaunch(which.runs, which.of->xs.stream().get()), "cudaGraphLaunch");
        which.of->overwrite(std::min(which.count, which.of->xs.size()), which.value);
    }
    void forget_graph(std::size_t at) {
        check_cuda(cudaGraphExecDestroy(graphs_[at].runs), "cudaGraphExecDestroy");
        graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(at));
    }

    std::mt19937 random_;
    page_pool pool_;
    scoped_stream const streams_[3];
    std::vector<std::unique_ptr<subject>> all_;
    std::vector<captured> graphs_;
    cudaStreamCaptureMode mode_;
    bool is_shared_ = false;
};

// Runs the body in worlds of several schedules.
template <class Body>
void each_seed(Body&& body) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::config how;
        if (seed > 2)
            how.random(seed);
        else if (seed == 2)
            how.late();
        simulated_cuda::world const world(how.with_devices(2), support::report_all);
#endif
        body(seed);
    }
}

// No vector is left, and no graph.
void check_all_comes_back(page_pool& pool) {
    weir::memory_report const now = pool.state();
    CHECK(now.in_use_bytes == 0);
    CHECK(now.reserved_bytes <= most_pages * page);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); // launches, whose graphs are gone
    scoped_stream const s;
    for (int turns = 0; turns < 1'000'000 && pool.state().lost_bytes != 0; ++turns) // CUDA may tell of a graph a little later
        static_cast<void>(cudaStreamQuery(s));
    CHECK(pool.state().lost_bytes == 0);
    pool.settle();
    CHECK(pool.state().unsettled_bytes == 0);
    CHECK(pool.trim() == now.reserved_bytes);
}

} // namespace

TEST_CASE("stable: vectors of a pool that is too small for all keep their elements, whatever comes in whatever order") {
    each_seed([](unsigned seed) {
        page_pool pool(small().limit(most_pages * page));
        {
            actor one(seed, pool, 4, cudaStreamCaptureModeGlobal);
            for (int step = 0; step < 400; ++step) {
                if (step == 200 && support::two_peers())
                    one.share_with_device_1();
                one.step(step);
            }
            CHECK(pool.state().in_use_bytes == one.held_bytes());
        }
        check_all_comes_back(pool);
    });
}

TEST_CASE("stable: so do those of several threads") {
    each_seed([](unsigned seed) {
        page_pool pool(small().limit(most_pages * page));
        std::vector<std::thread> threads;
        for (unsigned who = 0; who < 3; ++who)
            threads.emplace_back([&pool, seed, who] {
                actor one(10 * seed + who, pool, 2, cudaStreamCaptureModeThreadLocal);
                for (int step = 0; step < 100; ++step)
                    one.step(step);
            });
        for (std::thread& each : threads)
            each.join();
        check_all_comes_back(pool);
    });
}
