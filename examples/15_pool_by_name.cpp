// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A pool by name: the program's configuration file says which pool it runs on, and it is not built again for another.
//
// Sources: this file; 15_pool_by_name.conf. Libraries: the CUDA runtime, or the simulated device.

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <weir/weir.hpp>

struct config {
    std::string pool = "device";
    std::size_t limit_mib = 1024;
};

config read(char const* path) {
    config read;
    std::ifstream file(path);
    for (std::string key, is; file >> key; std::getline(file, is)) // lines of 'key = value'; others are left out
        if (key == "pool")
            file >> is >> read.pool;
        else if (key == "limit_mib")
            file >> is >> read.limit_mib;
    return read;
}

// Owns its pool, and knows its type no more than its callers do.
class service {
public:
    explicit service(config const& from)
        : pool_(weir::make_pool(from.pool, weir::pool_options{}.name(from.pool).limit(from.limit_mib * weir::MiB))) {}

    void serve(cudaStream_t stream) {
        weir::device_vector<float> answer(pool_, stream, 1 << 20);
        answer.zero_async();
        std::printf("%s\n", pool_.report().c_str());
    }

private:
    weir::any_device_pool pool_;
};

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        service(read(WEIR_EXAMPLES_DIR "/15_pool_by_name.conf")).serve(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
        service(config{"divice", 1}).serve(stream); // what a slip of the pen is told
    } catch (weir::usage_error const& error) {
        std::printf("%s\n", error.what());
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
