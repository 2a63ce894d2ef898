// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Build: target 'weir-bench', of main.cpp, the questions (all other *.cpp but instructions.cpp), the replay
// example's trace.cpp, busy_kernel.cu and peers/*.cpp: C++17, -O2 -DNDEBUG always, include path of weir, CCCL's
// headers for peers/*.cpp, Google Benchmark (no benchmark_main), zlib, threads, the CUDA runtime, static. Target
// 'weir-bench-simulated': the same, without busy_kernel.cu, with WEIR_BENCH_SIMULATED defined and the simulated
// device in place of the runtime; the tests run it and expect exit code 0.
//
// One program asks all questions of all pools; bench/run.sh runs it and prints the table. Environment:
//
//     WEIR_BENCH_SMOKE=1      small counts, no times: only shows that nothing fails (simulated: unless 0)
//     WEIR_BENCH_MS=20        milliseconds that a repetition measures
//     WEIR_BENCH_SHARE=3      seconds after which a pool is not asked the same question again
//     WEIR_BENCH_DEADLINE=n   after n seconds, what is left is skipped and not cut off
//     WEIR_BENCH_TRACES=path  the folder of the traces that are replayed

#include "harness.hpp"

#include <cstdio>
#include <fstream>
#include <set>
#include <type_traits>

#ifdef WEIR_BENCH_SIMULATED
#include <simulated_cuda/simulated_cuda.hpp>
#endif

namespace {

using weir_bench::is_smoke;

std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
            return line.substr(line.find(": ") + 2);
    return "unknown";
}

template <class Pool, class = void>
struct has_version : std::false_type {};
template <class Pool>
struct has_version<Pool, std::void_t<decltype(Pool::version())>> : std::true_type {};

// Prints runs as ever; of a smoke run, whose times mean nothing, only what failed. Counts both.
class console : public benchmark::ConsoleReporter {
public:
    console() : ConsoleReporter(OO_Tabular) {}
    bool ReportContext(Context const& context) override {
        return is_smoke() || ConsoleReporter::ReportContext(context);
    }
    void ReportRuns(std::vector<Run> const& reported) override {
        for (Run const& run : reported) {
            ++runs;
            std::string const name = run.benchmark_name();
            questions.insert(name.substr(0, name.find('/')));
            failures += run.error_occurred ? 1 : 0;
            if (run.error_occurred && is_smoke())
                std::printf("failed: %s: %s\n", run.benchmark_name().c_str(), run.error_message.c_str());
        }
        if (!is_smoke())
            ConsoleReporter::ReportRuns(reported);
    }
    std::size_t runs = 0;
    std::size_t failures = 0;
    std::set<std::string> questions;
};

// What the simulated device has to say at the end; true if it is content.
bool is_device_content() {
#ifdef WEIR_BENCH_SIMULATED
    std::string const complaints = simulated_cuda::complaints();
    if (!complaints.empty())
        std::fprintf(stderr, "weir-bench: the simulated device complains:\n%.4000s\n", complaints.c_str());
    return complaints.empty();
#else
    return true;
#endif
}

} // namespace

int main(int argc, char** argv) {
    using namespace weir_bench;
    static_cast<void>(is_out_of_time()); // starts its clock

    int driver = 0;
    int runtime = 0;
    cudaDeviceProp properties{};
    if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, 0) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) {
        std::fprintf(stderr,
                     "weir-bench: no GPU answers (%s); check 'nvidia-smi', or run weir-bench-simulated\n",
                     cudaGetErrorString(cudaGetLastError()));
        return 1;
    }
#ifdef WEIR_BENCH_SIMULATED
    benchmark::AddCustomContext("device", "simulated");
#else
    benchmark::AddCustomContext("device", properties.name);
#endif
    benchmark::AddCustomContext("cuda_driver", version_text(driver));
    benchmark::AddCustomContext("cuda_runtime", version_text(runtime));
    benchmark::AddCustomContext("processor", processor_name());
    for_each_pool([](auto tag) {
        using Pool = typename decltype(tag)::type;
        if constexpr (has_version<Pool>::value)
            benchmark::AddCustomContext(std::string("version/") + Pool::name, Pool::version());
    });
#ifdef NDEBUG
    benchmark::AddCustomContext("weir_build", "release");
#else
    benchmark::AddCustomContext("weir_build", "debug");
#endif
    benchmark::AddCustomContext("compiler", __VERSION__);

    pairs();
    random_sizes();
    fragmented();
    threads();
    shapes();
    handover();
    kernels();
    streams();
    growth();
    suspension();
    page_locking();
    interop();
    live_blocks();
    side_by_side_pools();
    traces();

    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 1;
    console reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    benchmark::Shutdown();
    bool const content = is_device_content();
    if (!is_smoke())
        return content ? 0 : 1;
    std::printf(
        "bench smoke: %zu benches of %zu questions ran, %zu failed; times of a smoke run mean nothing\n",
        reporter.runs, reporter.questions.size(), reporter.failures);
    return content && reporter.failures == 0 && reporter.runs != 0 ? 0 : 1;
}
