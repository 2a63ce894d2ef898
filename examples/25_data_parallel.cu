// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training on several devices: each takes its share of the rows, and they add their gradients while they still compute.
// Each has all weights, goes through its rows in small batches, and accumulates each layer's gradient. In the last batch, what
// the way back has passed is exchanged on a second stream: a device adds up one slice from all, and sends the sum to them.
// 'data_parallel [ROUNDS]': more rounds are more arithmetic for as many bytes to exchange.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device, with two devices.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/multi_device.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const two = (simulated_cuda::reset(simulated_cuda::config{}.with_devices(2).visible()), true); // Thrust's is the host
constexpr std::size_t columns = 1'024, steps = 2, usual_rounds = 1;
#else
constexpr std::size_t columns = 262'144, steps = 20, usual_rounds = 16;
#endif
constexpr std::size_t layers = 16, rows = 192, batch = 8, numbers = batch * columns;
using namespace weir::multi_device;
using weir::interop::thrust::par_nosync;

struct input {
    float* to;
    std::size_t first; // row of the batch
    __host__ __device__ void operator()(std::size_t i) const { to[i] = static_cast<float>(first + i / columns) / rows; }
};
// A layer follows x' = w - x * x * x for a while. Each column has a weight w in each layer, which all rows share.
struct forward {
    float *from, *weights;
    std::size_t rounds;
    __host__ __device__ void operator()(std::size_t i) const {
        float x = from[i], w = weights[i % columns], pace = 0.5f / static_cast<float>(rounds);
        for (std::size_t round = 0; round != rounds; ++round, x += pace * (w - x * x * x)) {}
        from[numbers + i] = x; // the next layer's
    }
};
// The slopes of the loss by what the layer gave become those by what it got; the slope by its weight is added to the gradient.
struct backward {
    float *slopes, *gradient;
    forward layer; // on the way back
    bool is_last;
    __host__ __device__ void operator()(std::size_t column) const {
        float sum = 0, w = layer.weights[column], pace = 0.5f / static_cast<float>(layer.rounds);
        for (std::size_t i = column; i < numbers; i += columns) {
            float x = layer.from[i], by_x = 1, by_w = 0;
            for (std::size_t round = 0; round != layer.rounds; ++round, x += pace * (w - x * x * x))
                by_w += pace - by_w * 3 * pace * x * x, by_x -= by_x * 3 * pace * x * x;
            float const slope = is_last ? 2 * (x - 0.9f) / rows : slopes[i]; // of the mean of (x - 0.9f) * (x - 0.9f)
            sum += slope * by_w, slopes[i] = slope * by_x;
        }
        gradient[column] += sum;
    }
};
struct add { // 'count' rows of 'size' numbers
    float *to, *from, factor;
    std::size_t size, count;
    __host__ __device__ void operator()(std::size_t i) const {
        for (std::size_t row = 0; row != count; ++row)
            to[i] += factor * from[row * size + i];
    }
};

struct trainer {
    per_device<weir::device_pool>& pools;
    device_streams const &work, &talk;
    int devices; // the first ones
    bool overlaps;
    std::size_t rounds;
    replicated<float> weights{pools, work, std::vector<float>(layers * columns, 0.5f)};
    replicated<float> gradients{pools, work, layers * columns}, values{pools, work, (layers + 1) * numbers};
    replicated<float> slopes{pools, work, numbers}, inbox{pools, talk, columns};

    void step() {
        gradients.zero_async();
        std::size_t const share = rows / unsigned(devices);
        for (std::size_t row = 0; row != share; row += batch) {
            auto const at = [&](int d, std::size_t layer) {
                return forward{values[d].data() + layer * numbers, of(weights, d, layer), rounds};
            };
            for (int d = 0; d != devices; ++d) {
                each(d, work, numbers, input{values[d].data(), unsigned(d) * share + row});
                for (std::size_t i = 0; i != layers; ++i)
                    each(d, work, numbers, at(d, i));
            }
            for (std::size_t layer = layers; layer-- != 0;) {
                for (int d = 0; d != devices; ++d)
                    each(d, work, columns,
                         backward{slopes[d].data(), of(gradients, d, layer), at(d, layer), layer + 1 == layers});
                if (overlaps && row + batch == share)
                    exchange(layer);
            }
        }
        for (std::size_t layer = layers; !overlaps && layer-- != 0;)
            exchange(layer);
        for (int d = 0; d != devices; ++d) {
            weir::order_after(work[d], talk[d]);
            each(d, work, layers * columns, add{weights[d].data(), gradients[d].data(), -0.5f, 0, 1});
        }
    }
    // Each device adds up a slice of a layer's gradient, and sends the sum to the others.
    void exchange(std::size_t layer) {
        unsigned const parts = unsigned(devices);
        auto const begin = [&](int d) { return columns * unsigned(d) / parts; };
        auto const slice = [&](int of_device, int on) { return of(gradients, on, layer) + begin(of_device); };
        auto const copy = [&](float* to, int here, float const* from, int there, std::size_t size) {
            weir::order_after(talk[here], talk[there]);
            weir::check_cuda(cudaMemcpyPeerAsync(to, here, from, there, size * sizeof *to, talk[here]), "cudaMemcpyPeerAsync");
        };
        for (int d = 0; d != devices; ++d)
            weir::order_after(talk[d], work[d]); // which has computed this layer's gradient
        for (int d = 0; d != devices; ++d) {
            std::size_t const size = begin(d + 1) - begin(d);
            for (int i = 1; i != devices; ++i)
                copy(inbox[d].data() + size * unsigned(i - 1), d, slice(d, (d + i) % devices), (d + i) % devices, size);
            each(d, talk, size, add{slice(d, d), inbox[d].data(), 1, size, parts - 1});
        }
        for (int d = 0; d != devices; ++d)
            for (int i = 1; i != devices; ++i)
                copy(slice(d, (d + i) % devices), (d + i) % devices, slice(d, d), d, begin(d + 1) - begin(d));
    }
    template <class Kernel>
    void each(int d, device_streams const& on, std::size_t size, Kernel const& kernel) {
        weir::runtime::device_scope const there(d);
        thrust::for_each_n(par_nosync(pools[d], on[d]), thrust::make_counting_iterator(std::size_t{0}), size, kernel);
    }
    static float* of(replicated<float>& all, int d, std::size_t layer) { return all[d].data() + layer * columns; }
};

int main(int count, char** arguments) try {
    std::size_t const rounds = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : usual_rounds;
    per_device<weir::device_pool> pools;
    device_streams const work, talk;
    std::printf("%zu layers of %zu weights, %zu rows a step\n"
                "devices  the exchange            ms/step   times   mean weight\n", layers, columns, rows);
    double alone = 0, right = 0;
    bool same = true;
    for (int devices = 1; devices <= work.size(); ++devices)
        for (bool const overlaps : {false, true}) {
            if (rows / batch % unsigned(devices) != 0 || (devices == 1 && overlaps)) // uneven; nothing to exchange
                continue;
            trainer all{pools, work, talk, devices, overlaps, rounds};
            all.step(), work.synchronize(); // the first step warms up
            auto const begin = std::chrono::steady_clock::now();
            for (std::size_t i = 0; i != steps; ++i)
                all.step();
            work.synchronize();
            std::chrono::duration<double, std::milli> const spent = std::chrono::steady_clock::now() - begin;
            auto const learnt = all.weights[0].to_host_sync<std::vector>();
            for (int d = 1; d != devices; ++d) // each device has the same weights, to the last bit
                same &= all.weights[d].to_host_sync<std::vector>() == learnt;
            double const sum = std::accumulate(learnt.begin(), learnt.end(), 0.0), ms = spent.count() / steps;
            alone = devices == 1 ? ms : alone, right = devices == 1 ? sum : right;
            same &= sum < right * 1.00001 && sum > right * 0.99999;
            char const* const how = devices == 1 ? "none" : overlaps ? "while they compute" : "afterwards";
            std::printf("%7d  %-20s %10.2f %7.2f   %.6f\n", devices, how, ms, alone / ms, sum / layers / columns);
        }
    return same ? 0 : 1;
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
