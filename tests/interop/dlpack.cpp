// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <algorithm>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <support/capture.hpp>
#include <support/every_schedule.hpp>
#include <support/peers.hpp>
#include <support/sentence.hpp>
#include <support/standard_error.hpp>
#include <utility>
#include <vector>
#include <weir/container/vector.hpp>
#include <weir/interop/dlpack.hpp>
#include <weir/recipes.hpp>
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
static_assert(sizeof(DLManagedTensorVersioned) == sizeof(weir::interop::dlpack::managed_tensor) &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == offsetof(weir::interop::dlpack::managed_tensor, tensor));
#endif

namespace dlpack = weir::interop::dlpack;
using support::scoped_stream;
using weir::check_cuda;

namespace {

// Two of them do not fit into 'small': the second gets the first one's bytes.
constexpr std::size_t many = 400'000;
weir::pool_options small() {
    return weir::pool_options{}.limit(2 * weir::MiB);
}

constexpr std::int64_t huge = std::int64_t{1} << 40;

// What 'act' throws, or "".
template <class Act>
std::string refusal_of(Act const& act) {
    try {
        act();
        return "";
    } catch (weir::usage_error const& error) {
        return error.what();
    }
}

// An array of somebody else's, of 2 x 3 floats in the middle of its memory, that counts how often it is given back.
struct foreign {
    explicit foreign(float* data) {
        whole.owner = &ended;
        whole.tensor.data = data;
    }
    int ended = 0;
    std::int64_t shape[2] = {2, 3};
    std::int64_t strides[2] = {3, 1};
    dlpack::managed_tensor whole{1,
                                 3,
                                 nullptr,
                                 [](dlpack::managed_tensor* self) { ++*static_cast<int*>(self->owner); },
                                 0,
                                 {nullptr,
                                  {dlpack::device_kind::cuda, 0},
                                  2,
                                  {dlpack::type_code::floating, 32, 1},
                                  shape,
                                  strides,
                                  8}};
};

} // namespace

TEST_CASE("dlpack: an exported vector says what it is") {
    weir::device_pool pool;
    scoped_stream const stream;
    weir::device_vector<std::int16_t> given(pool, stream, 24);
    std::int16_t const* const data = given.data();
    dlpack::managed_tensor* const array = dlpack::export_vector(std::move(given), weir::on_host, {2, 3, 4});
    CHECK(given.size() == 0);
    CHECK(array->major_version == 1);
    CHECK(array->flags == 0);
    CHECK(array->tensor.data == data);
    CHECK(array->tensor.byte_offset == 0);
    CHECK(array->tensor.device.kind == dlpack::device_kind::cuda);
    CHECK(array->tensor.device.number == 0);
    CHECK((array->tensor.type == dlpack::element_type{dlpack::type_code::integer, 16, 1}));
    REQUIRE(array->tensor.dimensions == 3);
    CHECK(std::vector<std::int64_t>(array->tensor.shape, array->tensor.shape + 3) == std::vector<std::int64_t>{2, 3, 4});
    CHECK(std::vector<std::int64_t>(array->tensor.strides, array->tensor.strides + 3) == std::vector<std::int64_t>{12, 4, 1});
    CHECK(pool.state().live_blocks == 1);
    array->deleter(array);
    CHECK(pool.state().live_blocks == 0);

    weir::pinned_pool locked;
    weir::managed_pool managed;
    dlpack::managed_tensor* const both[] = {
        dlpack::export_vector(weir::device_vector<int>(locked, stream, 10), stream),
        dlpack::export_vector(weir::device_vector<int>(managed, stream, 10), stream),
    };
    CHECK(both[0]->tensor.device.kind == dlpack::device_kind::cuda_host);
    CHECK(both[1]->tensor.device.kind == dlpack::device_kind::cuda_managed);
    for (dlpack::managed_tensor* const each : both) {
        CHECK(each->tensor.device.number == 0);
        CHECK(dlpack::imported_vector<int>(each, stream).size() == 10);
    }

    dlpack::managed_tensor* const none =
        dlpack::export_vector(weir::device_vector<bool>(pool, stream), cudaStreamLegacy);
    CHECK(none->tensor.data == nullptr);
    CHECK(*none->tensor.shape == 0);
    CHECK(none->tensor.type.code == dlpack::type_code::boolean);
    none->deleter(none);
}

TEST_CASE("dlpack: the consumer sees what the vector's stream wrote, and the memory waits for the consumer") {
    support::every_schedule([] {
        weir::device_pool pool{small()};
        scoped_stream const producer;
        scoped_stream const consumer;
        std::vector<int> const ones(many, 1);
        std::vector<int> seen(many);
        dlpack::managed_tensor* const array =
            dlpack::export_vector(weir::device_vector<int>(pool, producer, ones), consumer);
        check_cuda(cudaMemcpyAsync(seen.data(), array->tensor.data, sizeof(int) * many, cudaMemcpyDefault, consumer), "copy");
        check_cuda(cudaMemsetAsync(array->tensor.data, 2, sizeof(int) * many, consumer), "cudaMemsetAsync"); // still under way
        array->deleter(array);
        weir::device_vector<int> next(pool, producer, many);
        next.zero_async();
        check_cuda(cudaStreamSynchronize(consumer), "cudaStreamSynchronize");
        check_cuda(cudaStreamSynchronize(producer), "cudaStreamSynchronize");
        CHECK(seen == ones);
    });
}

TEST_CASE("dlpack: what cannot be exported stays the vector's") {
    weir::device_pool pool;
    scoped_stream const stream;
    weir::device_vector<float> given(pool, stream, 12);
    CHECK(refusal_of([&] { static_cast<void>(dlpack::export_vector(std::move(given), stream, {5, 2})); }) ==
          "weir: the shape of an exported array has 10 elements, and the vector has 12");
    CHECK(refusal_of([&] { static_cast<void>(dlpack::export_vector(std::move(given), stream, {-3, -4})); }).find("negative") !=
          std::string::npos);
    CHECK(refusal_of([&] { static_cast<void>(dlpack::export_vector(std::move(given), stream, {huge, huge})); })
              .find("addresses") != std::string::npos);
    weir::device_vector<float> none(pool, stream); // no elements, but strides
    CHECK(refusal_of([&] { static_cast<void>(dlpack::export_vector(std::move(none), stream, {0, huge, huge})); })
              .find("addresses") != std::string::npos);
    scoped_stream const captured;
    support::capture graph(captured);
    CHECK(refusal_of([&] { static_cast<void>(dlpack::export_vector(std::move(given), captured)); }).find("captured") !=
          std::string::npos);
    CHECK(graph.unbroken());
    CHECK(given.size() == 12);

    support::capture own(stream);
    CHECK_SAYS(refusal_of([&] { static_cast<void>(dlpack::export_vector(std::move(given), captured)); }), "captured");
    CHECK_FALSE(weir::runtime::is_capturing(captured)); // it did not become part of the graph
    CHECK(own.unbroken());
    CHECK(given.size() == 12);
}

TEST_CASE("dlpack: an imported vector is used on its stream and given back behind it") {
    support::every_schedule([] {
        weir::device_pool pool;
        scoped_stream const producer;
        scoped_stream const user;
        for (bool const by_stream : {false, true}) {
            dlpack::imported_vector<int> ours(
                dlpack::export_vector(weir::device_vector<int>(pool, producer, std::vector<int>(500, 7)), user), user);
            REQUIRE(ours.size() == 500);
            CHECK(ours.dimensions() == 1);
            CHECK(ours.side(0) == 500);
            CHECK(ours.device() == 0);
            std::vector<int> seen(500);
            check_cuda(cudaMemcpyAsync(seen.data(), ours.data(), 2000, cudaMemcpyDefault, ours.stream().get()), "cudaMemcpyAsync");
            dlpack::imported_vector<int> moved(std::move(ours));
            CHECK(ours.data() == nullptr);
            if (by_stream)
                moved.end_on(producer);
            else
                dlpack::imported_vector<int>(std::move(moved)); // ends here, after its stream
            CHECK(moved.size() == 0);
            moved.end_on(producer);
            CHECK(pool.state().live_blocks == 0);
            check_cuda(cudaStreamSynchronize(user), "cudaStreamSynchronize");
            CHECK(seen == std::vector<int>(500, 7));
        }
    });
}

TEST_CASE("dlpack: a container is copied from an imported array in order with the array's stream") {
    support::every_schedule([] {
        scoped_stream const a, b;
        weir::device_pool pool;
        std::vector<int> const numbers{1, 2, 3};
        dlpack::imported_vector<int> const xs(dlpack::export_vector(weir::device_vector<int>(pool, a, numbers), a), a);
        weir::device_vector<int> ys(pool, b, xs);
        check_cuda(cudaMemsetAsync(xs.data(), 0, 12, a), "cudaMemsetAsync"); // behind the copy
        CHECK(ys.to_host_sync<std::vector>() == numbers);
        CHECK(xs.placed().stream == a);
    });
}

TEST_CASE("dlpack: the producer's stream waits where it frees without being told of the user") {
    support::every_schedule([] {
        weir::device_pool pool{small()};
        scoped_stream const producer;
        scoped_stream const user;
        for (bool const by_stream : {false, true}) {
            // As a producer that takes the consumer's word: it frees on its own stream and knows no other.
            weir::device_vector<int> given(pool, producer, std::vector<int>(many, 7));
            dlpack::imported_vector<int> ours(dlpack::export_vector(std::move(given), weir::on_host), user);
            weir::order_after(user, producer);
            std::vector<int> seen(many);
            check_cuda(cudaMemcpyAsync(seen.data(), ours.data(), sizeof(int) * many, cudaMemcpyDefault, user), "copy");
            check_cuda(cudaMemsetAsync(ours.data(), 2, sizeof(int) * many, user), "cudaMemsetAsync"); // still under way
            if (by_stream)
                ours.end_on(producer);
            else
                dlpack::imported_vector<int>(std::move(ours));
            weir::device_vector<int> next(pool, producer, many);
            next.zero_async();
            check_cuda(cudaStreamSynchronize(user), "cudaStreamSynchronize");
            CHECK(seen == std::vector<int>(many, 7));
        }
    });
}

namespace {

// An array of sevens whose producer frees it on a stream of its own and knows no other, and a consumer that reads it.
struct lent {
    explicit lent(cudaStream_t consumer) : user(consumer) {
        weir::order_after(user, own);
        ours.emplace(array, user);
        check_cuda(cudaMemcpyAsync(seen.data(), ours->data(), sizeof(int) * many, cudaMemcpyDefault, user), "copy");
        check_cuda(cudaMemsetAsync(ours->data(), 2, sizeof(int) * many, user), "cudaMemsetAsync"); // still under way
    }
    bool is_back() const { return pool.state().live_blocks == 0; }
    // The producer uses its memory again, if it has it.
    void judge() {
        if (is_back() && pool.state().lost_bytes == 0) { // lost: nobody could say whether its stream was captured
            weir::device_vector<int> next(pool, own, many);
            next.zero_async();
            check_cuda(cudaStreamSynchronize(own), "cudaStreamSynchronize");
        }
        check_cuda(cudaStreamSynchronize(user), "cudaStreamSynchronize");
        CHECK(seen == std::vector<int>(many, 7));
        if (!is_back())
            array->deleter(array); // it would leak
    }

    weir::device_pool pool{small()};
    scoped_stream own;
    cudaStream_t user;
    dlpack::managed_tensor* array =
        dlpack::export_vector(weir::device_vector<int>(pool, own, std::vector<int>(many, 7)), weir::on_host);
    std::optional<dlpack::imported_vector<int>> ours;
    std::vector<int> seen = std::vector<int>(many);
};

} // namespace

TEST_CASE("dlpack: an import on the legacy stream ends beside a capture, which is not broken") {
    support::every_schedule([] {
        lent array(cudaStreamLegacy);
        cudaStream_t blocking = nullptr;
        check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
        support::capture graph(blocking, cudaStreamCaptureModeRelaxed);
        CHECK_SAYS(refusal_of([&] { array.ours->end_on(array.own); }), "legacy default stream");
        array.ours.reset();
        CHECK(array.is_back());
        CHECK(graph.unbroken());
        array.judge();
        check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
    });
}

TEST_CASE("dlpack: an import whose stream is captured stays, for its graph") {
    support::every_schedule([] {
        scoped_stream const user;
        lent array(user);
        support::capture graph(user);
        CHECK_SAYS(refusal_of([&] { array.ours->end_on(array.own); }), "captured");
        CHECK_SAYS(support::standard_error_of([&] { array.ours.reset(); }), "array of 400000 elements never goes back");
        CHECK_FALSE(array.is_back());
        CHECK(graph.unbroken());
        array.judge();
    });
}

TEST_CASE("dlpack: an import on a captured stream, and one that ends on a stream of its graph") {
    scoped_stream const producer;
    scoped_stream const user;
    float place[8];
    foreign array(place);
    support::capture graph(user);
    dlpack::imported_vector<float> ours(&array.whole, user);
    weir::order_after(producer, user);
    ours.end_on(producer);
    CHECK(array.ended == 1);
    weir::order_after(user, producer);
    CHECK(graph.unbroken());
}

#ifdef WEIR_SIMULATED_CUDA
TEST_CASE("dlpack: an import of whose end any CUDA call fails") {
    for (cudaStream_t const fixed : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread})
        for (bool const by_stream : {false, true})
            for (auto const how : {simulated_cuda::lasting::once, simulated_cuda::lasting::for_ever}) {
                bool broken = true;
                for (std::uint64_t k = 1; broken; ++k) {
                    simulated_cuda::world const world(simulated_cuda::config{}.late(), support::report_all_but_events);
                    CAPTURE(k);
                    CAPTURE(by_stream);
                    CAPTURE(static_cast<int>(how));
                    scoped_stream const created;
                    lent array(fixed ? fixed : static_cast<cudaStream_t>(created));
                    std::uint64_t const before = simulated_cuda::failed_calls();
                    bool threw = false;
                    simulated_cuda::fail_call(k, cudaErrorUnknown, how);
                    std::string const said = support::standard_error_of([&] {
                        try {
                            if (by_stream)
                                array.ours->end_on(array.own);
                        } catch (weir::cuda_error const&) {
                            threw = true;
                        }
                        if (!by_stream)
                            array.ours.reset();
                    });
                    broken = simulated_cuda::failed_calls() != before;
                    simulated_cuda::clear_faults();
                    bool const told = said.find("never goes back") != said.npos;
                    CHECK(array.is_back() == !(threw || told));
                    CHECK((!told || how == simulated_cuda::lasting::for_ever)); // one failure is no lost device
                    CHECK((told || by_stream || k != 1 || how == simulated_cuda::lasting::once));
                    array.ours.reset(); // which the caller still has if 'end_on' threw
                    array.judge();
                }
            }
}
#endif

#ifdef WEIR_SIMULATED_CUDA
namespace {

// Arrays of which each is written on one stream, and read and ended on another, in a pool that has room for a few.
class campaign {
public:
    explicit campaign(std::uint32_t seed) : random_(seed) {
        check_cuda(cudaStreamCreate(&blocking_), "cudaStreamCreate");
    }
    ~campaign() { static_cast<void>(cudaStreamDestroy(blocking_)); }

    void run(int steps) {
        for (int step = 0; step != steps; ++step)
            switch (pick(8)) {
            case 0:
            case 1: make(); break;
            case 2:
            case 3: read(); break;
            case 4:
            case 5: end(); break;
            case 6: capture_ ? end_capture() : begin_capture(); break;
            default: weir::synchronize(first_), pool_.trim(); break;
            }
        end_capture();
        while (!arrays_.empty())
            end();
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        for (reading const& each : readings_)
            CHECK(each.seen == std::vector<char>(bytes, each.value));
        for (dlpack::managed_tensor* each : left_) // for graphs, which are gone
            each->deleter(each);
        pool_.settle();
        CHECK(pool_.state().live_blocks == 0);
    }

private:
    static constexpr std::size_t bytes = 600'000;
    struct array {
        dlpack::imported_vector<char> ours;
        dlpack::managed_tensor* whole;
        char value;
    };
    struct reading {
        std::vector<char> seen;
        char value;
    };

    std::size_t pick(std::size_t count) { return random_() % count; }
    cudaStream_t stream() {
        cudaStream_t const all[] = {first_, second_, blocking_, cudaStreamLegacy, cudaStreamPerThread};
        return all[pick(5)];
    }
    // Whether work may be enqueued now without becoming a graph's, or breaking it.
    bool is_open(weir::stream_ref stream) const { return !weir::runtime::is_capturing(stream); }

    // act(); one of its CUDA calls may fail, and what is refused is.
    template <class Act>
    void attempt(Act const& act) {
        if (pick(2) == 0)
            simulated_cuda::fail_call(1 + pick(12), cudaErrorUnknown);
        try {
            static_cast<void>(support::standard_error_of(act));
        } catch (std::exception const&) {
        }
        simulated_cuda::clear_faults();
    }

    void make() {
        cudaStream_t const producer = stream();
        cudaStream_t const user = stream();
        if (!is_open(producer) || !is_open(user))
            return;
        dlpack::managed_tensor* whole = nullptr;
        char const value = static_cast<char>(1 + pick(100));
        bool const knows = pick(2) == 0; // or else it frees on its own stream, whatever the user does
        bool is_ordered = knows;
        attempt([&] {
            weir::device_vector<char> fresh(pool_, producer, bytes);
            if (cudaMemsetAsync(fresh.data(), value, bytes, producer) != cudaSuccess)
                return;
            whole = dlpack::export_vector(std::move(fresh), knows ? weir::stream_ref(user) : weir::stream_ref(weir::on_host));
            if (!knows)
                weir::order_after(user, producer);
            is_ordered = true;
        });
        if (whole && !is_ordered)
            whole->deleter(whole);
        else if (whole)
            arrays_.emplace_back(new array{dlpack::imported_vector<char>(whole, user), whole, value});
    }
    void read() {
        if (arrays_.empty())
            return;
        array const& from = *arrays_[pick(arrays_.size())];
        if (!is_open(from.ours.stream()))
            return;
        readings_.push_back({std::vector<char>(bytes), from.value});
        cudaStream_t const on = from.ours.stream().get();
        check_cuda(cudaMemcpyAsync(readings_.back().seen.data(), from.ours.data(), bytes, cudaMemcpyDefault, on), "cudaMemcpyAsync");
    }
    void end() {
        if (arrays_.empty())
            return;
        std::swap(arrays_[pick(arrays_.size())], arrays_.back());
        std::unique_ptr<array> last = std::move(arrays_.back());
        arrays_.pop_back();
        if (pick(2) == 0)
            attempt([&] { last->ours.end_on(stream()); });
        bool const is_ours = last->ours.data() != nullptr;
        dlpack::managed_tensor* const whole = last->whole;
        std::size_t const live = pool_.state().live_blocks;
        attempt([&] { last.reset(); });
        if (is_ours && pool_.state().live_blocks == live)
            left_.push_back(whole);
    }
    void begin_capture() {
        captured_ = pick(2) == 0 ? static_cast<cudaStream_t>(second_) : blocking_;
        capture_.emplace(captured_, pick(2) == 0 ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeRelaxed);
    }
    void end_capture() {
        if (capture_)
            CHECK(capture_->unbroken());
        capture_.reset();
    }

    std::mt19937 random_;
    weir::device_pool pool_{small()};
    scoped_stream first_;
    scoped_stream second_;
    cudaStream_t blocking_ = nullptr;
    cudaStream_t captured_ = nullptr;
    std::optional<support::capture> capture_;
    std::vector<std::unique_ptr<array>> arrays_;
    std::vector<reading> readings_;
    std::vector<dlpack::managed_tensor*> left_;
};

} // namespace

TEST_CASE("dlpack: arrays at random, beside captures, while calls fail: no byte is another's, and no capture breaks") {
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        auto const how = seed % 2 == 0 ? simulated_cuda::config{}.late() : simulated_cuda::config{}.random(seed);
        simulated_cuda::world const world(how, support::report_all_but_events);
        campaign(seed).run(120);
    }
}
#endif

TEST_CASE("dlpack: default streams are those of the array's device, whichever is current") {
    support::two_devices const both;
    if (!both)
        return;
    scoped_stream const on_first;
    weir::device_pool pool(small().device(0));
    std::vector<int> const sevens(many, 7);
    std::vector<int> seen(many);
    weir::device_vector<int> given(pool, cudaStreamLegacy, sevens);
    dlpack::managed_tensor* array = nullptr;
    {
        weir::runtime::device_scope const other(1);
        array = dlpack::export_vector(std::move(given), on_first);
    }
    CHECK(array->tensor.device.number == 0);
    check_cuda(cudaMemcpyAsync(seen.data(), array->tensor.data, sizeof(int) * many, cudaMemcpyDefault, on_first), "copy");
    check_cuda(cudaMemsetAsync(array->tensor.data, 2, sizeof(int) * many, on_first), "cudaMemsetAsync");
    array->deleter(array);
    weir::device_vector<int> next(pool, cudaStreamLegacy, many);
    next.zero_async();
    check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
    check_cuda(cudaStreamSynchronize(on_first), "cudaStreamSynchronize");
    CHECK(seen == sevens);

    next = weir::device_vector<int>(pool, on_first);
    array = dlpack::export_vector(weir::device_vector<int>(pool, on_first, sevens), weir::on_host);
    weir::order_after(cudaStreamLegacy, on_first);
    std::fill(seen.begin(), seen.end(), 0);
    {
        dlpack::imported_vector<int> ours(array, cudaStreamLegacy);
        check_cuda(cudaMemcpyAsync(seen.data(), ours.data(), sizeof(int) * many, cudaMemcpyDefault, cudaStreamLegacy), "copy");
        check_cuda(cudaMemsetAsync(ours.data(), 2, sizeof(int) * many, cudaStreamLegacy), "cudaMemsetAsync");
        weir::runtime::device_scope const other(1);
        dlpack::imported_vector<int>(std::move(ours));
    }
    next = weir::device_vector<int>(pool, on_first, many);
    next.zero_async();
    check_cuda(cudaStreamSynchronize(on_first), "cudaStreamSynchronize");
    CHECK(seen == sevens);
}

TEST_CASE("dlpack: a vector that lies on no device alone is exported behind the default stream that it was put on") {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.late().with_devices(2), support::report_all);
#endif
    if (!support::two_peers())
        return;
    weir::managed_pool pool;
    std::vector<int> const sevens(many, 7);
    std::vector<int> seen(many);
    scoped_stream const on_first;
    for (weir::stream_ref const consumer : {weir::stream_ref(on_first), weir::stream_ref(cudaStreamLegacy)}) {
        dlpack::managed_tensor* array = nullptr;
        {
            weir::runtime::device_scope const other(1);
            weir::device_vector<int> given(pool, cudaStreamLegacy, sevens);
            weir::runtime::device_scope const first(0);
            CHECK((given.placed() == weir::order::placed_stream{cudaStreamLegacy, 1}));
            array = dlpack::export_vector(std::move(given), consumer);
        }
        check_cuda(cudaMemcpyAsync(seen.data(), array->tensor.data, sizeof(int) * many, cudaMemcpyDefault, consumer.get()), "copy");
        weir::synchronize(consumer);
        array->deleter(array);
        CHECK(seen == sevens);
    }
}

TEST_CASE("dlpack: what cannot be imported stays its owner's") {
    struct row {
        char const* name;
        void (*spoil)(foreign& array);
        char const* part;
    };
    row const rows[] = {
        {"version", [](foreign& array) { array.whole.major_version = 2; }, "version 2"},
        {"host", [](foreign& array) { array.whole.tensor.device.kind = dlpack::device_kind::cpu; }, "which is not page-locked"},
        {"bits", [](foreign& array) { array.whole.tensor.type.bits = 64; }, "another type (code 2, 64 bits)"},
        {"code", [](foreign& array) { array.whole.tensor.type.code = dlpack::type_code::integer; }, "another type (code 0"},
        {"lanes", [](foreign& array) { array.whole.tensor.type.lanes = 4; }, "another type"},
        {"read-only", [](foreign& array) { array.whole.flags = dlpack::read_only; }, "must not be written"},
        {"rows apart", [](foreign& array) { array.strides[0] = 4; }, "gaps"},
        {"columns first", [](foreign& array) { array.strides[0] = 1, array.strides[1] = 2; }, "gaps"},
        {"on no device", [](foreign& array) { array.whole.tensor.device.number = -1; }, "on no device"},
        {"on another device", [](foreign& array) { array.whole.tensor.device.number = 1; }, "stream belongs to device 0"},
        {"no sides", [](foreign& array) { array.whole.tensor.shape = nullptr; }, "which sides"},
        {"negative dimensions", [](foreign& array) { array.whole.tensor.dimensions = -2; }, "which sides"},
        {"negative side", [](foreign& array) { array.shape[0] = -5; }, "is negative"},
        {"two negative sides", [](foreign& array) { array.shape[0] = array.shape[1] = -2; }, "is negative"},
        {"too many", [](foreign& array) { array.shape[0] = array.shape[1] = huge; }, "more elements than addresses"},
        {"too many bytes", [](foreign& array) { array.shape[0] = INT64_MAX / 6; }, "more elements than addresses"},
        {"no address", [](foreign& array) { array.whole.tensor.data = nullptr; }, "cannot lie at"},
        {"beyond the last address",
         [](foreign& array) { array.whole.tensor.data = reinterpret_cast<void*>(UINTPTR_MAX - 23); }, "and the last address"},
        {"an offset that wraps", [](foreign& array) { array.whole.tensor.byte_offset = UINT64_MAX - 255; },
         "an offset of 18446744073709551360 bytes"},
        {"between addresses", [](foreign& array) { array.whole.tensor.byte_offset = 6; }, "cannot lie at"},
    };
    scoped_stream const stream;
    float place[8];
    for (row const& each : rows) {
        CAPTURE(each.name);
        foreign array(place);
        each.spoil(array);
        CHECK_SAYS(refusal_of([&] { dlpack::imported_vector<float>(&array.whole, stream); }), each.part);
        CHECK(array.ended == 0);
    }
    foreign elsewhere(place); // a default stream is the current device's
    elsewhere.whole.tensor.device.number = 1;
    CHECK_SAYS(refusal_of([&] { dlpack::imported_vector<float>(&elsewhere.whole, cudaStreamLegacy); }), "to device 0");
    dlpack::imported_vector<float>(&elsewhere.whole, weir::on_host); // which is on no device
    CHECK(elsewhere.ended == 1);
}

TEST_CASE("dlpack: what lies together is imported, however that is said") {
    struct row {
        char const* name;
        void (*change)(foreign& array);
        std::size_t size;
    };
    row const rows[] = {
        {"as it is", [](foreign&) {}, 6},
        {"managed", [](foreign& array) { array.whole.tensor.device.kind = dlpack::device_kind::cuda_managed; }, 6},
        {"page-locked", [](foreign& array) { array.whole.tensor.device.kind = dlpack::device_kind::cuda_host; }, 6},
        {"no strides", [](foreign& array) { array.whole.tensor.strides = nullptr; }, 6},
        {"one row", [](foreign& array) { array.shape[0] = 1, array.strides[0] = 99; }, 3},
        {"no rows", [](foreign& array) { array.shape[0] = 0, array.strides[1] = 5; }, 0},
        {"no rows and no address", [](foreign& array) { array.shape[0] = 0, array.whole.tensor.data = nullptr; }, 0},
        {"a scalar", [](foreign& array) { array.whole.tensor.dimensions = 0; }, 1},
        {"read-only", [](foreign& array) { array.whole.flags = dlpack::read_only; }, 6},
    };
    scoped_stream const stream;
    float place[8];
    for (row const& each : rows) {
        CAPTURE(each.name);
        foreign array(place);
        each.change(array);
        {
            dlpack::imported_vector<float const> const ours(&array.whole, stream);
            CHECK(ours.size() == each.size);
            CHECK(ours.data() == (each.size == 0 ? nullptr : place + 2)); // behind the byte offset
            CHECK(array.ended == 0);
        }
        CHECK(array.ended == 1);
    }
    foreign forgotten(place);
    forgotten.whole.deleter = nullptr; // nothing to call
    dlpack::imported_vector<float>(&forgotten.whole, stream);
}

TEST_CASE("dlpack: the struct of before version 1, to and fro") {
    float place[8];
    foreign array(place);
    dlpack::unversioned_tensor* const older = dlpack::without_version(&array.whole);
    CHECK(older->tensor.data == place);
    dlpack::managed_tensor* const again = dlpack::with_version(older);
    CHECK(again->major_version == 1);
    CHECK(again->flags == 0);
    CHECK(again->tensor.shape == array.shape);
    CHECK(array.ended == 0);
    again->deleter(again);
    CHECK(array.ended == 1);

    array.whole.deleter = nullptr; // nothing to call
    dlpack::unversioned_tensor* const last = dlpack::without_version(&array.whole);
    last->deleter(last);
    array.whole.flags = dlpack::read_only;
    CHECK(refusal_of([&] { static_cast<void>(dlpack::without_version(&array.whole)); }).find("must not be written") !=
          std::string::npos);
}

TEST_CASE("dlpack: the numbers of streams") {
    CHECK(dlpack::consumer_stream(-1).is_host());
    CHECK(dlpack::consumer_stream(1).get() == cudaStreamLegacy);
    CHECK(dlpack::consumer_stream(2).get() == cudaStreamPerThread);
    scoped_stream const stream;
    CHECK(dlpack::consumer_stream(reinterpret_cast<std::intptr_t>(static_cast<cudaStream_t>(stream))).get() ==
          static_cast<cudaStream_t>(stream));
    for (std::int64_t const wrong : {0, -2})
        CHECK(refusal_of([&] { dlpack::consumer_stream(wrong); }).find("1 for the legacy") != std::string::npos);
}
