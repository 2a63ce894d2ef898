// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <memory>
#include <set>
#include <string>
#include <support/every_schedule.hpp>
#include <support/fault_sweep.hpp>
#include <support/sentence.hpp>
#include <type_traits>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>

using support::sentence_of;
using weir::check_cuda;
using weir::stream_ref;

namespace {

// What other libraries' wrappers look like.
struct converts {
    cudaStream_t handle;
    operator cudaStream_t() const { return handle; }
};
struct with_get {
    cudaStream_t handle;
    cudaStream_t get() const { return handle; }
};
struct with_stream {
    cudaStream_t handle;
    cudaStream_t stream() const { return handle; }
};
struct with_value {
    cudaStream_t handle;
    cudaStream_t value() const { return handle; }
};
// The conversion is the type's own word for what it is; then '.get()'.
struct with_all : converts {
    cudaStream_t get() const { return nullptr; }
    cudaStream_t stream() const { return nullptr; }
    cudaStream_t value() const { return nullptr; }
};
struct get_first : with_get {
    cudaStream_t stream() const { return nullptr; }
    cudaStream_t value() const { return nullptr; }
};
// Things that are no stream.
struct gets_int {
    int get() const { return 0; }
};
struct gets_from_lvalue {
    cudaStream_t get() { return nullptr; }
};

bool takes(stream_ref stream, cudaStream_t expected) { return stream.get() == expected && !stream.is_host(); }

} // namespace

static_assert(std::is_trivially_copyable_v<stream_ref>);
static_assert(sizeof(stream_ref) <= 2 * sizeof(void*));
static_assert(std::is_convertible_v<cudaStream_t, stream_ref> && std::is_convertible_v<weir::on_host_t, stream_ref>);
static_assert(std::is_nothrow_constructible_v<stream_ref, cudaStream_t>);
static_assert(std::is_convertible_v<converts, stream_ref> && std::is_convertible_v<with_get const&, stream_ref>);
static_assert(std::is_convertible_v<with_stream, stream_ref> && std::is_convertible_v<with_value, stream_ref>);
// A reader cannot tell what these mean.
static_assert(!std::is_constructible_v<stream_ref, void*>); // numbers are refused with a sentence: tests/refuse
static_assert(!std::is_constructible_v<stream_ref, gets_int> && !std::is_constructible_v<stream_ref, gets_from_lvalue>);
static_assert(!std::is_default_constructible_v<stream_ref>);
static_assert(std::is_convertible_v<stream_ref, cudaStream_t> && !std::is_convertible_v<stream_ref, bool>);
static_assert(!std::is_constructible_v<bool, stream_ref>);

TEST_CASE("stream: takes whatever is or has a stream") {
    support::every_schedule([] {
        support::scoped_stream const own;
        cudaStream_t const s = own;
        CHECK(takes(s, s));
        CHECK(takes(own, s));
        CHECK(takes(converts{s}, s));
        CHECK(takes(with_get{s}, s));
        CHECK(takes(with_stream{s}, s));
        CHECK(takes(with_value{s}, s));
        CHECK(takes(with_all{{s}}, s));
        CHECK(takes(get_first{{s}}, s));
        CHECK(takes(stream_ref(s), s));
        CHECK(takes(std::make_unique<converts>(converts{s}).operator*(), s));
    });
}

TEST_CASE("stream: the default streams are streams like others, and the host is none") {
    CHECK(takes(cudaStream_t{}, cudaStreamLegacy)); // by its name, whatever another file takes null for
    CHECK(stream_ref(cudaStream_t{}) == cudaStreamLegacy);
    CHECK(takes(weir::default_stream, cudaStreamLegacy)); // the thread's own in tests/contract/pool.ptds.cpp
    CHECK(takes(cudaStreamLegacy, cudaStreamLegacy));
    CHECK(takes(cudaStreamPerThread, cudaStreamPerThread));
    CHECK(stream_ref(weir::on_host).is_host());
    CHECK(stream_ref(weir::on_host) == weir::on_host);
    CHECK(stream_ref(weir::on_host) != cudaStream_t{}); // also where the handle is null
    CHECK(stream_ref(cudaStreamLegacy) != cudaStreamPerThread);
}

TEST_CASE("stream: names of one stream are equal") {
    support::every_schedule([] {
        support::scoped_stream const a, b;
        stream_ref const name = a;
        stream_ref copy = name;
        CHECK(copy == name);
        CHECK(copy == a);
        CHECK(copy != b);
        copy = b;
        CHECK(copy == b);
        CHECK_FALSE(copy == name);
    });
}

TEST_CASE("stream: goes where CUDA takes a stream, and compares with whatever has one") {
    cudaStream_t s = nullptr, other = nullptr;
    check_cuda(cudaStreamCreate(&s), "cudaStreamCreate");
    check_cuda(cudaStreamCreate(&other), "cudaStreamCreate");
    stream_ref const named = s;
    CHECK(cudaStreamSynchronize(named) == cudaSuccess);
    for (stream_ref const each : {named, stream_ref(cudaStreamLegacy), stream_ref(cudaStreamPerThread), stream_ref(cudaStream_t{})}) {
        cudaStream_t const handle = each;
        CHECK(handle == each.get());
        CHECK(stream_ref(handle) == each);
    }
    CHECK((named == s && s == named && named == converts{s} && with_get{s} == named));
    CHECK((named != other && other != named && named != with_stream{other} && with_value{other} != named));
    CHECK(stream_ref(weir::default_stream) == cudaStream_t{}); // null is the default stream here, too
    CHECK(stream_ref(weir::on_host) != cudaStream_t{});
    CHECK(sentence_of<weir::usage_error>([] { static_cast<void>(static_cast<cudaStream_t>(stream_ref(weir::on_host))); }) ==
          "weir: the host is no stream of CUDA's; name a stream for work on a device");
    check_cuda(cudaStreamDestroy(s), "cudaStreamDestroy");
    check_cuda(cudaStreamDestroy(other), "cudaStreamDestroy");
}

TEST_CASE("stream: ids are never used again, whatever becomes of handles") {
    support::every_schedule([] {
        std::set<unsigned long long> ids;
        for (int i = 0; i < 50; ++i) {
            support::scoped_stream const s;
            unsigned long long const id = weir::runtime::id_of(s);
            CHECK(weir::runtime::id_of(s) == id);
            CHECK(ids.insert(id).second);
        }
        CHECK(weir::runtime::id_of(cudaStreamLegacy) == weir::runtime::id_of(cudaStream_t{}));
        CHECK(weir::runtime::id_of(cudaStreamLegacy) != weir::runtime::id_of(cudaStreamPerThread));
        CHECK(ids.count(weir::runtime::id_of(cudaStreamLegacy)) == 0);
    });
}

TEST_CASE("stream: knows the device that a stream belongs to, whichever is current") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.with_devices(3));
#endif
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    for (int i = 0; i < devices; ++i) {
        weir::runtime::device_scope const there(i);
        support::scoped_stream const own;
        CHECK(weir::runtime::device_of(own) == i);
        CHECK(weir::runtime::device_of(cudaStream_t{}) == i);
        CHECK(weir::runtime::device_of(cudaStreamPerThread) == i);
        CHECK(weir::runtime::device_of(weir::on_host) == i); // the current one
        weir::runtime::device_scope const another(0);
        CHECK(weir::runtime::device_of(own) == i);
        CHECK(weir::runtime::device_of(weir::on_host) == 0);
    }
}

TEST_CASE("stream: every call may fail, and names itself") {
    struct one {
        support::scoped_stream s;
    };
    auto const prepare = [] { return std::make_unique<one>(); };
    auto const threw = [](one&, support::struck const& fault) { CHECK(fault.threw == !fault.calls.empty()); };
    auto runs = support::fault_sweep(prepare, [](one& state) { static_cast<void>(weir::runtime::id_of(state.s)); }, threw);
    runs += support::fault_sweep(prepare, [](one& state) { static_cast<void>(weir::runtime::device_of(state.s)); }, threw);
    runs += support::fault_sweep(prepare, [](one&) { static_cast<void>(weir::runtime::device_of(weir::on_host)); }, threw);
#ifdef WEIR_SIMULATED_CUDA
    CHECK(runs == 6);
#endif
    static_cast<void>(runs);
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("stream: a stream that was destroyed is refused with a sentence") {
    simulated_cuda::world world;
    cudaStream_t gone = nullptr;
    check_cuda(cudaStreamCreate(&gone), "cudaStreamCreate");
    check_cuda(cudaStreamDestroy(gone), "cudaStreamDestroy");
    std::string const what_to_do = "the stream or event was destroyed, or belongs to another device";
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(weir::runtime::id_of(gone)); }), what_to_do);
    CHECK_SAYS(sentence_of<weir::cuda_error>([&] { static_cast<void>(weir::runtime::device_of(gone)); }), what_to_do);
    world.forgive(); // on a GPU the first of these would crash: the simulator tells whose bug it is
}
#endif

TEST_CASE("stream: the default streams are values, streams that were made are not") {
    support::every_schedule([] {
        support::scoped_stream const s;
        CHECK(weir::runtime::is_default_stream(cudaStream_t{}));
        CHECK(weir::runtime::is_default_stream(cudaStreamLegacy));
        CHECK(weir::runtime::is_default_stream(cudaStreamPerThread));
        CHECK_FALSE(weir::runtime::is_default_stream(s));
        CHECK(weir::runtime::is_per_thread(cudaStreamPerThread));
        CHECK_FALSE(weir::runtime::is_per_thread(cudaStreamLegacy));
        CHECK_FALSE(weir::runtime::is_per_thread(cudaStream_t{})); // as these tests are compiled
        CHECK_FALSE(weir::runtime::is_per_thread(s));
        CHECK_FALSE(weir::runtime::is_per_thread(weir::on_host));
    });
}
