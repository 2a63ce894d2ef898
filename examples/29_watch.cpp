// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A running program shows its pools to whoever looks: a board in shared memory, and the example 'weir_top' in another process.
//
// layer::watch writes nothing until a watcher asks; the next allocation, or 'poll', answers. Here the program calls weir_top for
// itself, and goes on meanwhile; with an argument it runs for so many seconds, and waits for you to do so.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <unistd.h>
#include <weir/trace.hpp>
#include <weir/weir.hpp>

using watched_pool = weir::layer::watch<weir::device_pool>;

static void step(watched_pool& pool, cudaStream_t loading, cudaStream_t working, std::size_t i) {
    weir::device_vector<float> batch(pool, loading, (1 + i % 3) << 19);
    weir::order_after(working, loading);
    weir::device_vector<float> const results(pool, working, batch.size() / 2);
    weir::order_after(loading, working); // before the batch is freed there
}

int main(int argc, char** argv) {
    try {
        cudaStream_t loading = nullptr, working = nullptr;
        weir::check_cuda(cudaStreamCreateWithFlags(&loading, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        weir::check_cuda(cudaStreamCreateWithFlags(&working, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        {
            weir::trace::watch_board board("29_watch");
            watched_pool pool(board, weir::pool_options{}.name("batches"));
            weir::device_vector<float> const weights(pool, working, 4 << 20);
            std::string const look = "'" WEIR_TOP "' --once --every 0.2 " + std::to_string(::getpid());
            std::string const wait = argc > 1 ? std::string("sleep ") + argv[1] : look;
            std::atomic<int> ended{-1};
            std::thread watcher([&] { ended = std::system(wait.c_str()); });
            for (std::size_t i = 0; ended < 0; ++i) {
                step(pool, loading, working, i);
                weir::check_cuda(cudaStreamSynchronize(working), "cudaStreamSynchronize");
                std::this_thread::sleep_for(std::chrono::milliseconds(1)); // the host's own part of a step
            }
            watcher.join();
            pool.settle();
            if (ended != 0)
                return 1;
        }
        weir::check_cuda(cudaStreamDestroy(loading), "cudaStreamDestroy");
        weir::check_cuda(cudaStreamDestroy(working), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
