// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A model whose layers lie on several devices, a stage on each: what a step needs there is predicted, and then measured.
// A step's rows go through the stages in small batches, so that all devices have work. A stage keeps what each batch brought
// it, and nothing else; on the way back it computes its layers once more from that.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device, with three devices.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <numeric>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/multi_device.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const three = (simulated_cuda::reset(simulated_cuda::config{}.with_devices(3).visible()), true); // Thrust's is the host
constexpr std::size_t columns = 4'096, steps = 2, rounds = 1;
#else
constexpr std::size_t columns = 262'144, steps = 10, rounds = 16;
#endif
constexpr std::size_t layers = 24, batches = 8, rows = 8, numbers = rows * columns; // 'numbers': what a layer gives for a batch
constexpr float pace = 0.5f / rounds;
using namespace weir::multi_device;
using numbers_of = weir::device_vector<float>;
using pool_of = weir::layer::statistics<weir::device_pool>;

struct input {
    float* to;
    std::size_t first; // row of the batch
    __host__ __device__ void operator()(std::size_t i) const { to[i] = float(first + i / columns) / (batches * rows); }
};
// A layer follows x' = w - x * x * x for a while. Each column has a weight w in each layer, which all rows share.
struct forward {
    float *to, *from, *weights;
    __host__ __device__ void operator()(std::size_t i) const {
        float x = from[i], w = weights[i % columns];
        for (std::size_t round = 0; round != rounds; ++round, x += pace * (w - x * x * x)) {}
        to[i] = x;
    }
};
// The slopes of the loss by what the layer gave become those by what it got; the slope by its weight is added to the gradient.
struct backward {
    float *slopes, *gradient, *from, *weights;
    bool is_last;
    __host__ __device__ void operator()(std::size_t column) const {
        for (std::size_t i = column; i < numbers; i += columns) {
            float x = from[i], by_x = 1, by_w = 0, w = weights[column];
            for (std::size_t round = 0; round != rounds; ++round, x += pace * (w - x * x * x))
                by_w += pace - by_w * 3 * pace * x * x, by_x -= by_x * 3 * pace * x * x;
            float const slope = is_last ? 2 * (x - 0.9f) / (batches * rows) : slopes[i]; // of the mean of (x - 0.9f) squared
            gradient[column] += slope * by_w, slopes[i] = slope * by_x;
        }
    }
};
struct descend {
    float *weights, *gradient;
    __host__ __device__ void operator()(std::size_t i) const { weights[i] -= 0.5f * gradient[i], gradient[i] = 0; }
};

struct stage {
    int device;
    weir::pool_ref<weir::memory_space::device> pool;
    weir::stream_ref stream;
    std::size_t count; // of layers
    numbers_of weights{pool, stream, std::vector<float>(count * columns, 0.5f)};
    numbers_of gradients{pool, stream, std::vector<float>(count * columns)};
    std::vector<numbers_of> inputs{}; // of each batch that is on its way

    // What the last layer gives.
    numbers_of go_forward() {
        numbers_of here(pool, stream, inputs.back()), next(pool, stream, numbers);
        for (std::size_t layer = 0; layer != count; ++layer, std::swap(here, next))
            each(numbers, forward{next.data(), here.data(), weights.data() + layer * columns});
        return here;
    }
    // The slopes by the input of the last batch but those that have gone back; 'slopes': by what the last layer gave.
    numbers_of go_back(numbers_of slopes, bool is_last) {
        numbers_of values(pool, stream, inputs.back()); // what each layer gets
        inputs.pop_back();
        values.resize(count * numbers);
        for (std::size_t layer = 0; layer + 1 != count; ++layer) {
            float* const from = values.data() + layer * numbers;
            each(numbers, forward{from + numbers, from, weights.data() + layer * columns});
        }
        for (std::size_t layer = count; layer-- != 0;)
            each(columns, backward{slopes.data(), gradients.data() + layer * columns, values.data() + layer * numbers,
                                   weights.data() + layer * columns, is_last && layer + 1 == count});
        return slopes;
    }
    template <class Kernel>
    void each(std::size_t size, Kernel const& kernel) {
        weir::runtime::device_scope const there(device);
        thrust::counting_iterator<std::size_t> const from_zero(0);
        thrust::for_each_n(weir::interop::thrust::par_nosync(pool, stream), from_zero, size, kernel);
    }
    // In MiB: weights and gradients; an input a batch; what each layer gets, and slopes. 'kept': with all that layers get.
    double predicted(bool kept) const {
        std::size_t const of_numbers = (kept ? batches * count : batches + count) + 1;
        return double(sizeof(float) * (2 * count * columns + of_numbers * numbers)) / weir::MiB;
    }
};

void step(std::vector<stage>& stages) {
    for (std::size_t batch = 0; batch != batches; ++batch) {
        numbers_of between(stages[0].pool, stages[0].stream, numbers);
        stages[0].each(numbers, input{between.data(), batch * rows});
        for (stage& here : stages) {
            here.inputs.push_back(numbers_of(here.pool, here.stream, between)); // after the other device's work
            between = here.go_forward();
        }
    }
    for (std::size_t batch = 0; batch != batches; ++batch) {
        numbers_of slopes(stages.back().pool, stages.back().stream, numbers);
        for (std::size_t i = stages.size(); i-- != 0;) {
            slopes = stages[i].go_back(std::move(slopes), i + 1 == stages.size());
            if (i != 0)
                slopes = numbers_of(stages[i - 1].pool, stages[i - 1].stream, slopes);
        }
    }
    for (stage& here : stages)
        here.each(here.weights.size(), descend{here.weights.data(), here.gradients.data()});
}

int main() try {
    device_streams const streams;
    std::printf("stages   ms/step   device  layers   peak: predicted   measured   if all were kept   (MiB)   mean weight\n");
    double right = 0;
    bool good = true;
    for (int count = 1; count <= streams.size(); ++count) {
        per_device<pool_of> pools;
        std::vector<stage> stages;
        for (std::size_t d = 0, all = std::size_t(count); d != all; ++d)
            stages.push_back({int(d), pools[int(d)], streams[int(d)], layers * (d + 1) / all - layers * d / all});
        step(stages), streams.synchronize(); // warms up
        auto const begin = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i != steps; ++i)
            step(stages);
        streams.synchronize();
        std::chrono::duration<double, std::milli> const spent = std::chrono::steady_clock::now() - begin;
        double sum = 0;
        for (stage const& each : stages) {
            auto const learnt = each.weights.to_host_sync<std::vector>();
            sum = std::accumulate(learnt.begin(), learnt.end(), sum);
        }
        right = count == 1 ? sum : right, good &= std::fabs(sum / right - 1) < 1e-6;
        for (stage const& each : stages) {
            double const measured = double(pools[each.device].peak_requested_bytes()) / weir::MiB;
            good &= std::fabs(measured / each.predicted(false) - 1) < 0.02;
            std::printf("%6d  %8.2f  %7d  %6zu  %16.1f  %9.1f  %17.1f           %.6f\n", count, spent.count() / steps,
                        each.device, each.count, each.predicted(false), measured, each.predicted(true), sum / layers / columns);
        }
    }
    return good ? 0 : 1;
} catch (std::exception const& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
}
