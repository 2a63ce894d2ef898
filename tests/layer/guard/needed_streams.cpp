// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What layer::guard says where a stream or a pool ends before the owners of its blocks.

#ifdef WEIR_SIMULATED_CUDA

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <doctest/doctest.h>
#include <memory>
#include <optional>
#include <simulated_cuda/simulated_cuda.hpp>
#include <string>
#include <string_view>
#include <support/failing_new.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/container/vector.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/order/order_after.hpp>
#include <weir/recipes.hpp>

namespace device = simulated_cuda;
using weir::KiB;
using weir::MiB;

namespace {

using ordered = weir::layer::guard<weir::recipes::device::parts>;
using promised = weir::layer::guard<weir::recipes::promised_device::parts>;
using pending = weir::layer::guard<
    weir::pool<weir::upstream::device, weir::placement::best_fit<>, weir::reuse::after_event>>;
using immediate = weir::layer::guard<
    weir::pool<weir::upstream::device, weir::placement::best_fit<>, weir::reuse::immediate>>;
using pinned = weir::layer::guard<weir::recipes::pinned::parts>;
using in_layers = weir::layer::statistics<ordered>;
using unguarded = weir::recipes::device::parts;

std::vector<std::string> heard;

std::string last() {
    REQUIRE(heard.size() == 1);
    std::string const sentence = heard.front();
    heard.clear();
    return sentence;
}

template <class Pool>
void listen(Pool& pool) {
    heard.clear();
    pool.on_violation([](char const* sentence) { heard.push_back(sentence); });
}
void listen(in_layers& pool) { listen(pool.inner()); }

std::string text_of(void const* p) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%p", p);
    return digits;
}

cudaStream_t made() {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

// A new stream that has the handle `former`, of a stream that was destroyed.
cudaStream_t heir_of(cudaStream_t former, std::vector<cudaStream_t>& others) {
    for (int i = 0; i < 50; ++i) {
        cudaStream_t const stream = made();
        if (stream == former)
            return stream;
        others.push_back(stream);
    }
    FAIL("the handle did not come again");
    return nullptr;
}

bool cuda_heard_of_a_destroyed_handle() {
    bool const heard_of = !device::reports(device::finding::destroyed_handle).empty();
    device::clear_reports();
    return heard_of;
}

} // namespace

// What the block at `p` is told of that is freed too late for the stream `gone`.
std::string lost(void const* p, cudaStream_t gone) {
    return "the block at " + text_of(p) + " is freed after the end of stream " + text_of(gone) +
           ", which it needs; before a stream ends, free its blocks, end their containers or move them to another stream "
           "('set_stream'), and tell their last use there ('last_used_on') (it stays handed out)";
}

weir::pool_options named(char const* name) {
    return weir::pool_options{}.name(name).on_leak(weir::leak_action::ignore);
}

TEST_CASE_TEMPLATE("needed_streams: a stream's end names the blocks that need it, and a later free asks CUDA nothing", Pool, ordered, promised,
                   pending, immediate, in_layers) {
    device::world const here(device::config{}.late());
    cudaStream_t const gone = made();
    cudaStream_t const other = made();
    {
        Pool pool(named("mine"));
        listen(pool);
        void* const p = pool.allocate(gone, 1 * MiB);
        void* const q = pool.allocate(other, 1 * MiB);
        CHECK(device::launch(gone, {}, {{p, 1 * MiB}}) == cudaSuccess);
        CHECK(pool.before_destroy(gone) == 1);
        CHECK(last() == "weir: layer::guard: pool 'mine': stream " + text_of(gone) + " ends too early for 1 block: 1 MiB at " +
                            text_of(p) + " ('allocate' on stream " + text_of(gone) +
                            "); free them before, or end their containers, or move those that are on it to another stream ('set_stream')");
        REQUIRE(cudaStreamDestroy(gone) == cudaSuccess);
        pool.deallocate(gone, p, 1 * MiB);
        CHECK(last() == "weir: layer::guard: pool 'mine': " + lost(p, gone));
        pool.deallocate(other, q, 1 * MiB);
        CHECK(pool.in_use_bytes() == 1 * MiB);
        CHECK(device::pending() != 0); // nothing was waited for
        CHECK(heard.empty());
        CHECK_FALSE(cuda_heard_of_a_destroyed_handle());
    }
    CHECK(cudaStreamDestroy(other) == cudaSuccess);
}

TEST_CASE_TEMPLATE("needed_streams: a stream that is given the same handle frees its own blocks as any stream does", Pool, ordered, pending) {
    device::world const here(device::config{}.late());
    Pool pool(named("heirs"));
    listen(pool);
    std::vector<cudaStream_t> others;
    cudaStream_t const gone = made();
    void* const older = pool.allocate(gone, 1 * MiB);
    CHECK(pool.before_destroy(gone) == 1);
    heard.clear();
    REQUIRE(cudaStreamDestroy(gone) == cudaSuccess);
    cudaStream_t const heir = heir_of(gone, others);
    void* const own = pool.allocate(heir, 1 * MiB);
    CHECK(device::launch(heir, {}, {{own, 1 * MiB}}) == cudaSuccess);
    pool.deallocate(heir, own, 1 * MiB);
    CHECK(heard.empty());
    CHECK(device::pending() != 0); // nothing was waited for
    CHECK(pool.before_destroy(heir) == 1); // the older one, which still names this handle
    heard.clear();
    pool.deallocate(heir, older, 1 * MiB);
    CHECK_SAYS(last(), lost(older, heir));
    {
        weir::device_buffer moved(pool, weir::default_stream, 1000);
        CHECK(pool.before_destroy(heir) == 0);
        moved.set_stream(heir); // after the end that was told: this stream is another one
    }
    CHECK(heard.empty());
    for (cudaStream_t each : others)
        CHECK(cudaStreamDestroy(each) == cudaSuccess);
    CHECK(cudaStreamDestroy(heir) == cudaSuccess);
}

TEST_CASE("needed_streams: a block that is freed in time, or on another stream, is no mistake") {
    device::world const here(device::config{}.late());
    ordered pool;
    listen(pool);
    cudaStream_t const gone = made();
    cudaStream_t const other = made();
    CHECK(pool.before_destroy(gone) == 0);
    void* const early = pool.allocate(gone, 1000);
    pool.deallocate(gone, early, 1000);
    CHECK(pool.before_destroy(gone) == 0);
    CHECK(heard.empty());
    void* const p = pool.allocate(gone, 1000);
    void* const q = pool.allocate(gone, 1000);
    CHECK(pool.before_destroy(gone) == 2); // nobody knows yet where they are freed
    heard.clear();
    weir::order_after(other, gone);
    REQUIRE(cudaStreamDestroy(gone) == cudaSuccess);
    pool.deallocate(other, p, 1000);
    REQUIRE(cudaStreamSynchronize(other) == cudaSuccess);
    pool.deallocate_sync(q, 1000);
    CHECK(heard.empty());
    CHECK_FALSE(cuda_heard_of_a_destroyed_handle());
    for (weir::stream_ref each : {weir::stream_ref(weir::on_host), weir::stream_ref(weir::default_stream),
                                  weir::stream_ref(cudaStreamLegacy), weir::stream_ref(cudaStreamPerThread)}) {
        void* const r = pool.allocate(each, 1000);
        CHECK(pool.before_destroy(each) == 0); // it does not end
        pool.deallocate(each, r, 1000);
    }
    CHECK(heard.empty());
    CHECK(cudaStreamDestroy(other) == cudaSuccess);
}

TEST_CASE("needed_streams: a container is named as one, and by the stream that it is on now") {
    device::world const here(device::config{}.late());
    ordered pool(named("mine"));
    pinned staging(named("staging"));
    listen(pool);
    listen(staging);
    cudaStream_t const first = made();
    cudaStream_t const second = made();
    void const* held = nullptr;
    {
        weir::device_vector<float> xs(pool, first, 1024);
        CHECK(pool.before_destroy(first) == 1);
        CHECK_SAYS(last(), "4 KiB at " + text_of(xs.data()) + " (a container on stream " + text_of(first) + ")");
        xs.set_stream(second);
        CHECK(pool.before_destroy(first) == 0);
        CHECK(pool.before_destroy(second) == 1);
        heard.clear();
        xs.set_stream(weir::default_stream);
        CHECK(pool.before_destroy(second) == 0);
        weir::pinned_buffer const memory(staging, first, 5000); // allocated for the host, and freed on its stream
        held = memory.data();
        CHECK(staging.before_destroy(second) == 0);
        CHECK(staging.before_destroy(first) == 1);
        CHECK_SAYS(last(), "(a container on stream " + text_of(first) + ")");
    }
    CHECK_SAYS(last(), lost(held, first));
    CHECK(pool.in_use_bytes() == 0);
    CHECK(cudaStreamDestroy(first) == cudaSuccess);
    CHECK(cudaStreamDestroy(second) == cudaSuccess);
}

TEST_CASE_TEMPLATE("needed_streams: a block that is marked for a stream needs it, too, and stays handed out after its end", Pool, ordered,
                   pending) {
    device::world const here(device::config{}.late());
    cudaStream_t const own = made();
    cudaStream_t const user = made();
    cudaStream_t const reader = made();
    {
        Pool pool(weir::pool_options{}.on_leak(weir::leak_action::ignore));
        listen(pool);
        std::vector<void*> marked;
        for (int round = 0; round < 100; ++round) { // marks of blocks that are gone count no more
            void* const before = pool.allocate(own, 1 * MiB);
            marked.push_back(before);
            pool.used_on(before, user);
            pool.deallocate(own, before, 1 * MiB);
        }
        CHECK(pool.before_destroy(user) == 0);
        pool.settle();
        void* const unmarked = pool.allocate(own, 1 * MiB);
        CHECK(std::find(marked.begin(), marked.end(), unmarked) != marked.end());
        CHECK(pool.before_destroy(user) == 0);
        pool.deallocate(own, unmarked, 1 * MiB);
        void* const p = pool.allocate(own, 1 * MiB);
        void* const q = pool.allocate(own, 1 * MiB);
        pool.used_on(p, user);
        pool.last_used_on(q, user); // whose work is over before the stream ends
        CHECK(pool.before_destroy(reader) == 0);
        CHECK(pool.before_destroy(user) == 1);
        CHECK_SAYS(last(), text_of(p) + " ('allocate' on stream " + text_of(own) + ", marked for stream " + text_of(user) + ")");
        REQUIRE(cudaStreamDestroy(user) == cudaSuccess);
        pool.deallocate(own, q, 1 * MiB);
        CHECK(heard.empty());
        pool.deallocate(own, p, 1 * MiB);
        CHECK_SAYS(last(), lost(p, user));
        CHECK(pool.in_use_bytes() == 1 * MiB);
        CHECK(pool.allocate(own, 1 * MiB) != p);
        CHECK_FALSE(cuda_heard_of_a_destroyed_handle());
    }
    CHECK(cudaStreamDestroy(own) == cudaSuccess);
    CHECK(cudaStreamDestroy(reader) == cudaSuccess);
}

TEST_CASE("needed_streams: pools without a guard, and layers, have 'before_destroy', too") {
    device::world const here;
    cudaStream_t const stream = made();
    unguarded pool;
    weir::layer::statistics<unguarded&> counted(pool);
    weir::driver_pool driver;
    void* const p = pool.allocate(stream, 1000);
    CHECK(pool.before_destroy(stream) == 0);
    CHECK(counted.before_destroy(stream) == 0);
    CHECK(driver.before_destroy(stream) == 0);
    pool.deallocate(stream, p, 1000);
    weir::layer::fallback<ordered, ordered> both(named("first"), named("second"));
    listen(both.first());
    listen(both.second());
    void* const a = both.first().allocate(stream, 1000);
    void* const b = both.second().allocate(stream, 1000);
    both.in_container(b, stream);
    CHECK(both.before_destroy(stream) == 2);
    CHECK(heard.size() == 2);
    CHECK(heard[0].find("('allocate' on ") != std::string::npos);
    CHECK(heard[1].find("(a container on ") != std::string::npos);
    both.first().deallocate(weir::on_host, a, 1000);
    both.second().deallocate(weir::on_host, b, 1000);
    {
        heard.clear();
        cudaStream_t const other = made();
        weir::device_vector<float> xs(both, other, 1024);
        xs.set_stream(stream);
        CHECK(both.before_destroy(other) == 0);
        CHECK(both.before_destroy(stream) == 1);
        CHECK_SAYS(last(), "(a container on stream " + text_of(stream) + ")");
        heard.clear();
        CHECK(cudaStreamDestroy(other) == cudaSuccess);
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("needed_streams: a pool that ends before the owners of its blocks says who they are") {
    device::world const here;
    cudaStream_t const stream = made();
    std::string said;
    for (weir::leak_action const action : {weir::leak_action::report, weir::leak_action::ignore}) {
        std::string const sentence = support::standard_error_of([&] {
            std::optional<ordered> pool;
            pool.emplace(weir::pool_options{}.name("short").on_leak(action));
            void* const p = pool->allocate(weir::default_stream, 2 * MiB);
            void* const sync = pool->allocate_sync(1000);
            auto const xs = std::make_unique<weir::device_vector<float>>(*pool, stream, 1024); // ends after the pool
            said = "weir: layer::guard: pool 'short': the pool ends before the owners of its blocks: 2 MiB at " + text_of(p) +
                   " ('allocate' on the legacy default stream), 4 KiB at " + text_of(xs->data()) + " (a container on stream " +
                   text_of(stream) + "), 1000 B at " + text_of(sync) +
                   " ('allocate' on the host); free them before, or end their containers\n";
            pool.reset();
        });
        CHECK(sentence.find("weir: layer::guard: the block at ") != std::string::npos); // freed after the end
        CHECK(sentence.find(said) == (action == weir::leak_action::report ? 0 : std::string::npos));
    }
    heard.clear();
    {
        ordered pool(weir::pool_options{}.on_leak(weir::leak_action::ignore));
        weir::layer::guard<ordered&> around(pool); // which ends before the pool, as it may
        listen(around);
        void* const p = around.allocate(stream, 1000);
        void* const q = around.allocate(stream, 1000);
        around.deallocate(stream, q, 1000);
        CHECK(p != nullptr);
    }
    CHECK(heard.empty());
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("needed_streams: the list of owners ends after ten, with how many there are besides") {
    device::world const here;
    cudaStream_t const stream = made();
    ordered pool;
    listen(pool);
    std::vector<void*> live;
    for (std::size_t i = 1; i <= 12; ++i)
        live.push_back(pool.allocate(stream, i * KiB));
    CHECK(pool.before_destroy(stream) == 12);
    std::string const said = last();
    CHECK_SAYS(said, "ends too early for 12 blocks: 12 KiB at ");
    CHECK_SAYS(said, " and 2 more; free them");
    CHECK_FALSE(support::contains(said, "2 KiB at " + text_of(live[1])));
    for (std::size_t i = 1; i <= 12; ++i)
        pool.deallocate(weir::on_host, live[i - 1], i * KiB);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("needed_streams: without host memory the end of a stream is still said") {
    if (!support::host_memory_can_fail)
        return;
    device::world const here;
    cudaStream_t const stream = made();
    ordered pool;
    listen(pool);
    void* const p = pool.allocate(stream, 1000);
    heard.reserve(4);
    {
        static bool told = false;
        pool.on_violation([](char const* sentence) {
            told = std::string_view(sentence) ==
                   "weir: layer::guard: a mistake, and the host has no memory to say which";
        });
        support::failing_new const none(0);
        CHECK(pool.before_destroy(stream) == 1);
        CHECK(told);
    }
    pool.deallocate(weir::on_host, p, 1000);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

// The program ends where the mistake is, and not in a crash later.
TEST_CASE("needed_streams: with 'abort' the program ends at a stream's or a pool's early end") {
    for (bool const of_stream : {true, false}) {
        int status = 0;
        std::string const said = support::standard_error_of([&] {
            pid_t const child = fork();
            if (child == 0) {
                std::signal(SIGABRT, SIG_DFL);
                device::world const here;
                cudaStream_t const stream = made();
                std::optional<ordered> pool;
                pool.emplace(weir::pool_options{}.on_violation(weir::violation_action::abort));
                static_cast<void>(pool->allocate(stream, 1000));
                if (of_stream)
                    pool->before_destroy(stream);
                else
                    pool.reset();
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child);
        });
        REQUIRE(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == SIGABRT);
        CHECK_SAYS(said, of_stream ? "ends too early for 1 block" : "ends before the owners");
    }
}

#endif
