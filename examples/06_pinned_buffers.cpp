// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Pinned buffers: copied at full speed, and let go while their copies are on the way.
//
// Sources: this file. Libraries: the CUDA runtime, or the simulated device.

#include <cstdio>
#include <exception>
#include <weir/weir.hpp>

void stage(cudaStream_t stream) {
    weir::pinned_pool staging{weir::pool_options{}.name("staging")};
    weir::device_pool pool{weir::pool_options{}.name("target")};

    constexpr std::size_t rows = 4, columns = 50000;
    weir::device_vector<float> table(pool, stream, rows * columns);

    for (std::size_t row = 0; row < rows; ++row) {
        weir::pinned_vector<float> line(staging, stream, columns);
        for (std::size_t column = 0; column < columns; ++column)
            line[column] = static_cast<float>(row);
        weir::check_cuda(cudaMemcpyAsync(table.data() + row * columns, line.data(), line.size_bytes(),
                                    cudaMemcpyHostToDevice, stream),
                    "cudaMemcpyAsync");
    } // let go: the pool hands these bytes out again when the copy has passed, and not before

    weir::pinned_vector<float> back(staging, stream, table.size());
    table.copy_to_async(back.data());
    weir::synchronize(stream);

    for (std::size_t row = 0; row < rows; ++row)
        std::printf("row %zu came back as %.0f ... %.0f\n", row, static_cast<double>(back[row * columns]),
                    static_cast<double>(back[(row + 1) * columns - 1]));
    std::printf("in use: %zu pinned block of %zu KiB\n", staging.state().live_blocks,
                staging.in_use_bytes() / weir::KiB);
}

int main() {
    try {
        cudaStream_t stream = nullptr;
        weir::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
        stage(stream);
        weir::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
