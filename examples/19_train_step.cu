// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training steps whose activations exceed the pool's limit: kept, spilled, recomputed, in half precision, and what each costs.
// A chain of layers makes them on the way forward. They are needed once more, the last ones first, on the way back.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cuda_fp16.h>
#include <thrust/for_each.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sequence.h>
#include <thrust/transform.h>
#include <utility>
#include <variant>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/staging.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const shown = (simulated_cuda::make_device_memory_visible(true), true); // there, Thrust's device is the host
constexpr std::size_t columns = 32'768, steps = 2;
constexpr int rounds = 1;
#else
constexpr std::size_t columns = 262'144, steps = 10;
constexpr int rounds = 128; // more arithmetic makes recomputing dearer, and hides more of the copies
#endif
constexpr std::size_t layers = 16, rows = 16, numbers = rows * columns; // what a layer gives: 'numbers' activations
constexpr float pace = 0.5f / rounds, wanted = 0.9f, rate = 0.5f;

// A layer follows x' = w - x * x * x for a while. Each column has a weight w in each layer, which all rows share.
template <class To, class From>
struct forward {
    To to;
    From from;
    float const* weights;
    __host__ __device__ void operator()(std::size_t i) const {
        float x = from[i], w = weights[i % columns];
        for (int round = 0; round != rounds; ++round)
            x += pace * (w - x * x * x);
        to[i] = x;
    }
};
// The slopes of the loss by what the layer gave become those by what it got, and its weights change.
template <class From>
struct backward {
    From from;
    float *slopes, *weights;
    __host__ __device__ void operator()(std::size_t column) const {
        float const w = weights[column];
        float next = w;
        for (std::size_t i = column; i < numbers; i += columns) {
            float x = from[i], by_x = 1, by_w = 0;
            for (int round = 0; round != rounds; ++round) {
                float const turn = 1 - 3 * pace * x * x;
                by_x *= turn, by_w = by_w * turn + pace, x += pace * (w - x * x * x);
            }
            next -= rate * slopes[i] * by_w, slopes[i] *= by_x;
        }
        weights[column] = next;
    }
};
struct first_slope { // of the loss, the mean of (y - wanted) * (y - wanted) in a column
    __host__ __device__ float operator()(float y) const { return 2 * (y - wanted) / rows; }
};

enum class held { kept, spilled, recomputed };
struct way {
    char const* name;
    std::size_t every; // the activations of each so many layers
    held these, others;
    std::size_t budget; // of those that are not kept: of how many layers they may be on the device at a time
};

template <class Storage>
struct network {
    using kept = weir::stored_vector<float, Storage>;
    using may_leave = weir::staging::spillable<Storage>;
    using target = weir::converting_view<float, Storage>;
    using source = weir::converting_view<float, Storage const>;
    way how;
    weir::pool_ref<weir::memory_space::device> pool;
    weir::staging::any_spill_set& set;
    weir::stream_ref stream = cudaStreamPerThread;
    weir::device_vector<float> weights{pool, stream, std::vector<float>(layers * columns, 0.5f)}, slopes{pool, stream, numbers};
    std::vector<std::variant<kept, may_leave>> activations{}; // the input, and those of each layer so far

    double step() { // the loss
        if (activations.empty()) {
            auto& input = std::get<kept>(activations.emplace_back(kept(pool, stream, numbers)));
            thrust::sequence(on(), input.data(), input.data() + input.size(), 0.0f, 1.0f / numbers);
        }
        for (std::size_t layer = 1; layer <= layers; ++layer)
            if (held const as = held_as(layer); as == held::kept) {
                kept here(pool, stream, numbers);
                compute(layer, here.view());
                activations.emplace_back(std::move(here));
            } else {
                auto const again = [this, layer](auto, Storage* to, std::size_t size) { compute(layer, target(to, size)); };
                may_leave here = as == held::spilled ? may_leave(set, numbers) : may_leave(set, numbers, again);
                here.set_next_use(2 * layers - layer); // the turn on the way back: the last one leaves first
                if (as == held::spilled) {         // the others are computed when they are read, and what they read, too
                    auto const now = here.access(stream); // on the device, in this scope
                    compute(layer, target(now.data(), now.size()));
                }
                activations.emplace_back(std::move(here));
            }
        read(layers, [&](source y) { thrust::transform(on(), y.data(), y.data() + y.size(), slopes.data(), first_slope{}); });
        double const squares = thrust::inner_product(on(), slopes.data(), slopes.data() + slopes.size(), slopes.data(), 0.0);
        for (std::size_t layer = layers; layer != 0; --layer) {
            activations.pop_back(); // needed no more, which makes room for what is needed soon
            if (layer > how.budget && held_as(layer - how.budget) == held::spilled)
                std::get<may_leave>(activations[layer - how.budget]).prefetch(stream);
            read(layer - 1, [&](source x) { each(columns, backward<source>{x, slopes.data(), weights_of(layer)}); });
        }
        return squares * rows / 4 / columns;
    }
    held held_as(std::size_t layer) const { return layer % how.every == 0 ? how.these : how.others; }
    void compute(std::size_t layer, target to) {
        read(layer - 1, [&](source x) { each(numbers, forward<target, source>{to, x, weights_of(layer)}); });
    }
    template <class Use>
    void read(std::size_t layer, Use const& use) {
        if (auto* const here = std::get_if<kept>(&activations[layer]))
            return use(here->view());
        auto const now = std::get<may_leave>(activations[layer]).read(stream);
        use(source(now.data(), now.size()));
    }
    template <class Kernel>
    void each(std::size_t size, Kernel const& kernel) {
        thrust::for_each_n(on(), thrust::make_counting_iterator(std::size_t{0}), size, kernel);
    }
    float* weights_of(std::size_t layer) { return weights.data() + (layer - 1) * columns; }
    auto on() { return weir::interop::thrust::par_nosync(pool, stream); }
};

template <class Work>
double ms_of(Work const& work) {
    weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    auto const begin = std::chrono::steady_clock::now();
    work(), weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}
double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / weir::MiB; }

// Prints a row. `link`: MiB that it carries in a millisecond. The last loss; 0 if the memory does not suffice.
template <class Storage>
double train(way how, std::size_t limit, double link) try {
    std::printf("%-5s  %-20s", sizeof(Storage) == sizeof(float) ? "float" : "half", how.name);
    weir::layer::statistics<weir::device_pool> pool{weir::pool_options{}.limit(limit)};
    weir::pinned_pool pinned;
    weir::staging::spill_set<weir::staging::by_next_use> set(pool, pinned, how.budget * numbers * sizeof(Storage));
    network<Storage> net{how, pool, set};
    auto const moved = [&] { return mib(set.state().to_host_bytes + set.state().to_device_bytes); };
    net.step(), net.step(); // the host runs ahead of the device, so what it keeps is not all free again at once
    double loss = net.step(), before = moved(); // from here on the pools have what they need
    double const ms = ms_of([&] {
        for (std::size_t i = 0; i != steps; ++i)
            loss = net.step();
    }) / steps;
    double const a_step = (moved() - before) / steps;
    std::printf("%8.2f %8.0f %8.0f %% %8.0f %8.0f %8.0f  %.6f\n", ms, a_step, 100 * a_step / ms / link,
                mib(pool.peak_requested_bytes()), mib(pool.reserved_bytes()), mib(pinned.reserved_bytes()), loss);
    return loss;
} catch (weir::out_of_memory const& error) {
    return std::printf("  out of memory: %s\n", error.reason().c_str()), 0;
}

int main() try {
    double link = 0; // plain copies of pinned memory, the mean of both ways
    {
        weir::device_pool pool;
        weir::pinned_pool pinned;
        weir::device_vector<float> there(pool, cudaStreamPerThread, numbers);
        weir::pinned_vector<float> here(pinned, cudaStreamPerThread, numbers);
        for (int warm = 0; warm != 2; ++warm)
            link = 2 * mib(here.size_bytes()) / ms_of([&] { there.assign(here), there.copy_to_async(here.data()); });
    }
    std::size_t const limit = 12 * numbers * sizeof(float);
    auto const k = held::kept, s = held::spilled, r = held::recomputed;
    way const ways[] = {
        {"kept", 1, k, k, 0}, {"spilled", 1, s, s, 6}, {"recomputed", 4, k, r, 3}, {"spilled, recomputed", 4, s, r, 5}};
    std::printf("%zu layers, %.0f MiB of floats each; the link carries %.1f GB/s; all memory in MiB\n", layers, mib(limit) / 12,
                link * weir::MiB / 1e6);
    std::printf("activations                 ms/step    moved    of link     peak reserved   pinned  loss\n");
    double const right = train<float>(ways[0], SIZE_MAX, link);
    std::printf("with a limit of %.0f MiB:\n", mib(limit));
    double floats_off = 0, halves_off = 0;
    for (way const& how : ways) {
        double const as_float = train<float>(how, limit, link), as_half = train<__half>(how, limit, link);
        floats_off = std::fmax(floats_off, as_float == 0 ? 0 : std::fabs(as_float / right - 1));
        halves_off = std::fmax(halves_off, std::fabs(as_half / right - 1));
    }
    std::printf("the losses differ by %g (floats) and %.2f %% (halves)\n", floats_off, 100 * halves_off);
    return floats_off < 1e-6 && halves_off < 0.05 ? 0 : 1;
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
