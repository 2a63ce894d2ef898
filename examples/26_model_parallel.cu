// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A model whose layers lie on several devices, a stage on each: what a step needs there is predicted, and then measured.
// A step's rows go through the stages in small batches, so that all devices have work. A stage keeps what each batch brought
// it, and nothing else; on the way back it computes its layers once more from that.
// Sources: this file, as 05_thrust_sort.cu. Libraries: CCCL, and the CUDA runtime or the simulated device, with three devices.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <vector>
#include <weir/interop/thrust.hpp>
#include <weir/multi_device.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/simulated_cuda.hpp>
auto const three = (simulated_cuda::reset(simulated_cuda::config{}.with_devices(3).visible()), true); // Thrust's is the host
constexpr std::size_t columns = 4'096, steps = 2;
#else
constexpr std::size_t columns = 1'048'576, steps = 10;
#endif
constexpr std::size_t layers = 24, batches = 8, rows = 8, samples = batches * rows, numbers = rows * columns;
using namespace weir::multi_device;
using numbers_of = weir::device_vector<float>;
using pool_of = weir::layer::statistics<weir::device_pool>;

// A layer makes x + (w - x * x * x) / 2 of x. Each column has a weight w in each layer, which all rows share.
struct forward {
    float *to, *from, *weights;
    __host__ __device__ void operator()(std::size_t i) const {
        float const x = from[i];
        to[i] = x + 0.5f * (weights[i % columns] - x * x * x);
    }
};
// The slopes of the loss by what the layer gave become those by what it got; the slope by its weight is added to the gradient.
struct backward {
    float *slopes, *gradient, *from, *weights;
    bool is_last; // then the loss is the mean of (y - 0.9f) * (y - 0.9f), for what it gave, y
    __host__ __device__ void operator()(std::size_t column) const {
        for (std::size_t i = column; i < numbers; i += columns) {
            float const x = from[i], y = x + 0.5f * (weights[column] - x * x * x);
            float const slope = is_last ? 2 * (y - 0.9f) / samples : slopes[i];
            gradient[column] += 0.5f * slope;
            slopes[i] = slope * (1 - 1.5f * x * x);
        }
    }
};

struct stage {
    int device;
    weir::pool_ref<weir::memory_space::device> pool;
    weir::stream_ref stream;
    std::size_t count; // of layers
    numbers_of weights, gradients;
    std::vector<numbers_of> inputs{}; // of each batch that is on its way
    stage(int number, pool_of& memory, weir::stream_ref on, std::size_t some)
        : device(number), pool(memory), stream(on), count(some), weights(pool, stream, std::vector<float>(some * columns, 0.5f)),
          gradients(pool, stream, std::vector<float>(some * columns)) {}

    numbers_of go_forward() { // what the last layer gives
        numbers_of here(pool, stream, inputs.back()), next(pool, stream, numbers);
        for (std::size_t layer = 0; layer != count; ++layer, std::swap(here, next))
            each(numbers, forward{next.data(), here.data(), weights.data() + layer * columns});
        return here;
    }
    numbers_of go_back(numbers_of slopes, bool is_last) { // by what the last layer gave; returns those by the last input
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
        float* const x = between.data();
        stages[0].each(numbers, [=] __host__ __device__(std::size_t i) { x[i] = float(batch * rows + i / columns) / samples; });
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
    for (stage& here : stages) {
        float *const weights = here.weights.data(), *const gradients = here.gradients.data();
        here.each(here.weights.size(), [=] __host__ __device__(std::size_t i) { weights[i] -= 0.5f * gradients[i]; });
        here.gradients.zero_async();
    }
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
            stages.emplace_back(int(d), pools[int(d)], streams[int(d)], layers * (d + 1) / all - layers * d / all);
        step(stages), streams.synchronize(); // warms up
        auto const begin = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i != steps; ++i)
            step(stages);
        streams.synchronize();
        std::chrono::duration<double, std::milli> const spent = std::chrono::steady_clock::now() - begin;
        double sum = 0;
        for (stage const& each : stages)
            for (float const weight : each.weights.to_host_sync<std::vector>())
                sum += double(weight);
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
