// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Records a program's memory, replays it through other pools, and writes the page and each format into the current folder.
//
// recorded_device_pool writes down each call with its time and stream, and what the pool got of the driver; 'dump' makes a file
// of that. The example 'replay' does the rest: a table, a page to look at, and files for PyTorch's memory_viz and for heaptrack.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>
#include <weir/trace.hpp>
#include <weir/weir.hpp>

static void train(weir::recorded_device_pool& pool, weir::trace::recorder& tape, cudaStream_t loading, cudaStream_t working) {
    weir::device_vector<float> const weights(pool, working, 4 << 20);
    for (std::size_t step = 0; step < 20; ++step) {
        weir::trace::named_scope const whole(tape, "step");
        weir::device_vector<float> batch(pool, loading, (1 + step % 3) << 19);
        weir::order_after(working, loading);
        std::vector<weir::device_vector<float>> layers;
        for (std::size_t layer = 0; layer < 6; ++layer)
            layers.emplace_back(pool, working, batch.size() >> layer % 3);
        for (weir::trace::named_scope const backward(tape, "backward"); !layers.empty(); layers.pop_back())
            weir::device_vector<float> const slopes(pool, working, layers.back().size());
        weir::order_after(loading, working); // before the batch is freed there
    }
}

int main() {
    try {
        cudaStream_t loading = nullptr, working = nullptr;
        weir::check_cuda(cudaStreamCreateWithFlags(&loading, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        weir::check_cuda(cudaStreamCreateWithFlags(&working, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        weir::trace::recorder tape;
        weir::recorded_device_pool pool(tape, weir::pool_options{}.name("training"));
        tape.start();
        train(pool, tape, loading, working);
        weir::trace::dump(tape, "record_and_replay.weir");
        pool.settle();
        weir::check_cuda(cudaStreamDestroy(loading), "cudaStreamDestroy");
        weir::check_cuda(cudaStreamDestroy(working), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::string const replay = "'" WEIR_REPLAY "' record_and_replay.weir"; // the example of that name
    std::string write = replay;
    for (char const* const ending : {".json", ".pickle", ".heaptrack", ".csv"})
        write += std::string(" --write record_and_replay") + ending;
    bool const is_done =
        std::system((replay + " --html record_and_replay.html").c_str()) == 0 && std::system(write.c_str()) == 0;
    return is_done ? 0 : 1;
}
