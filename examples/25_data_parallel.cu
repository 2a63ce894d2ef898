// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training on several devices: each takes its share of the batches, and sends its gradients to the others.
// Each device has all weights. It goes through its batches and accumulates each layer's gradient. Then every device gets the
// gradients of all, and adds them in the same order. A layer's gradient is complete when the last batch has passed the layer on
// its way back, and can travel from then on, on a second stream.
// The more batches a step has, the smaller is the exchange's share in it: the table has a row for each number of batches.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device, with two devices.
#include <chrono>
#include <cstdio>
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
constexpr std::size_t columns = 512, steps = 1, most_batches = 8;
#else
constexpr std::size_t columns = 1'048'576, steps = 20, most_batches = 64;
#endif
constexpr std::size_t layers = 16, rows = 8, numbers = rows * columns; // of a batch
using namespace weir::multi_device;
using weir::interop::thrust::par_nosync;
enum exchanges { never, afterwards, meanwhile };

// A layer makes x + (w - x * x * x) / 2 of x. Each column has a weight w in each layer, which all rows share.
struct forward {
    float *from, *weights;
    __host__ __device__ void operator()(std::size_t i) const {
        float const x = from[i];
        from[numbers + i] = x + 0.5f * (weights[i % columns] - x * x * x); // the next layer's
    }
};
// The slopes of the loss by what the layer gave become those by what it got; the slope by its weight is added to the gradient.
struct backward {
    float *slopes, *gradient, *from, all_rows;
    bool is_last; // then the loss is the mean of (y - 0.9f) * (y - 0.9f), for what it gave, y
    __host__ __device__ void operator()(std::size_t column) const {
        float sum = 0;
        for (std::size_t i = column; i < numbers; i += columns) {
            float const x = from[i], slope = is_last ? 2 * (from[numbers + i] - 0.9f) / all_rows : slopes[i];
            sum += 0.5f * slope;
            slopes[i] = slope * (1 - 1.5f * x * x);
        }
        gradient[column] += sum;
    }
};
struct trainer {
    per_device<weir::device_pool>& pools;
    device_streams const &work, &talk;
    int devices;         // the first ones
    std::size_t batches; // of each device
    exchanges when;
    replicated<float> weights{pools, work, std::vector<float>(layers * columns, 0.5f)};
    replicated<float> gradients{pools, work, std::size_t(devices) * layers * columns}; // on each device those of all
    replicated<float> values{pools, work, (layers + 1) * numbers}, slopes{pools, work, numbers};

    float* gradient(int on, int of, std::size_t layer) {
        return gradients[on].data() + (std::size_t(of) * layers + layer) * columns;
    }
    void step() {
        std::size_t const parts = unsigned(devices);
        float const all_rows = float(rows * batches * parts);
        gradients.zero_async();
        for (std::size_t batch = 0; batch != batches; ++batch) {
            for (int d = 0; d != devices; ++d) {
                float *const x = values[d].data(), first = float((std::size_t(d) * batches + batch) * rows);
                each(d, numbers, [=] __host__ __device__(std::size_t i) { x[i] = (first + float(i / columns)) / all_rows; });
                for (std::size_t layer = 0; layer != layers; ++layer)
                    each(d, numbers, forward{x + layer * numbers, weights[d].data() + layer * columns});
            }
            for (std::size_t layer = layers; layer-- != 0;) {
                for (int d = 0; d != devices; ++d)
                    each(d, columns, backward{slopes[d].data(), gradient(d, d, layer), values[d].data() + layer * numbers,
                                              all_rows, layer + 1 == layers});
                if (when == meanwhile && batch + 1 == batches)
                    exchange(layer);
            }
        }
        for (std::size_t layer = layers; when == afterwards && layer-- != 0;)
            exchange(layer);
        for (int d = 0; d != devices; ++d) {
            for (int other = 0; other != devices; ++other)
                weir::order_after(work[d], talk[other]);
            float *const weight = weights[d].data(), *const gradients_of_all = gradients[d].data();
            each(d, layers * columns, [=] __host__ __device__(std::size_t i) {
                for (std::size_t of = 0; of != parts; ++of)
                    weight[i] -= 0.5f * gradients_of_all[of * layers * columns + i];
            });
        }
    }
    // Each device sends its gradient of a layer to the others.
    void exchange(std::size_t layer) {
        for (int from = 0; from != devices; ++from) {
            weir::order_after(talk[from], work[from]); // which has computed it
            for (int to = (from + 1) % devices; to != from; to = (to + 1) % devices) {
                weir::order_after(talk[from], work[to]); // which has done with the one before
                weir::check_cuda(cudaMemcpyPeerAsync(gradient(to, from, layer), to, gradient(from, from, layer), from,
                                                     columns * sizeof(float), talk[from]), "cudaMemcpyPeerAsync");
            }
        }
    }
    template <class Kernel>
    void each(int d, std::size_t size, Kernel const& kernel) {
        weir::runtime::device_scope const there(d);
        thrust::for_each_n(par_nosync(pools[d], work[d]), thrust::make_counting_iterator(std::size_t{0}), size, kernel);
    }
    double ms_a_step() {
        step(), work.synchronize(); // warms up
        auto const begin = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i != steps; ++i)
            step();
        work.synchronize();
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / steps;
    }
    double mean_weight(int d) const {
        auto const learnt = weights[d].to_host_sync<std::vector>();
        return std::accumulate(learnt.begin(), learnt.end(), 0.0) / double(learnt.size());
    }
};

int main() try {
    per_device<weir::device_pool> pools;
    device_streams const work, talk;
    int const all = work.size();
    std::printf("%zu layers of %zu weights, on one device and on %d; the exchange afterwards, or while they compute\n"
                "batches   one: ms/step   afterwards   times   the exchange's share   meanwhile   times   mean weight\n",
                layers, columns, all);
    bool good = true;
    for (std::size_t batches = 1; batches * unsigned(all) <= most_batches; batches *= 2) {
        trainer one{pools, work, talk, 1, batches * unsigned(all), never}, silent{pools, work, talk, all, batches, never};
        trainer late{pools, work, talk, all, batches, afterwards}, soon{pools, work, talk, all, batches, meanwhile};
        double const alone = one.ms_a_step(), mute = silent.ms_a_step(), slow = late.ms_a_step(), fast = soon.ms_a_step();
        for (int d = 0; d != all; ++d) // each device has the same weights
            good &= soon.mean_weight(d) == late.mean_weight(0);
        double const mean = soon.mean_weight(0), expected = one.mean_weight(0);
        good &= mean / expected > 0.99999 && mean / expected < 1.00001;
        std::printf("%7zu   %12.2f   %10.2f   %5.2f   %19.1f %%   %9.2f   %5.2f   %.6f\n", batches * unsigned(all), alone, slow,
                    alone / slow, 100 * (1 - mute / slow), fast, alone / fast, mean);
    }
    return good ? 0 : 1;
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
