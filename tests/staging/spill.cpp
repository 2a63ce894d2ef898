// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "scene.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <stdexcept>
#include <support/standard_error.hpp>
#include <weir/layer/failure_handler.hpp>
#include <weir/weir.hpp>
#ifdef WEIR_SIMULATED_CUDA
#include <simulated_cuda/include/weir/simulated_device/watched.hpp>
#endif

using namespace scene;
using namespace weir::staging;
using device_pool = support::recording_pool<weir::memory_space::device>;
using buffer = spillable<unsigned char>;

namespace {

constexpr std::size_t buffer_bytes = 5000;

/// Enqueues work that writes what `seed` says.
void write(access_scope<unsigned char> const& to, unsigned seed) {
    std::size_t const half = to.size() / 2;
    weir::check_cuda(cudaMemsetAsync(to.data(), static_cast<int>(seed % 251), half, to.stream().get()), "cudaMemsetAsync");
    weir::check_cuda(cudaMemsetAsync(to.data() + half, static_cast<int>(seed % 241), to.size() - half, to.stream().get()),
                "cudaMemsetAsync");
}
void use(buffer& of, weir::stream_ref stream) {
    auto const now = of.access(stream);
    CHECK(now.size() == of.size());
}
void look(buffer& of, weir::stream_ref stream) {
    auto const now = of.read(stream);
    CHECK(now.size() == of.size());
}
octets written(std::size_t bytes, unsigned seed) {
    octets row(bytes, static_cast<unsigned char>(seed % 241));
    std::fill(row.begin(), row.begin() + static_cast<long>(bytes / 2), static_cast<unsigned char>(seed % 251));
    return row;
}

/// Its frees overwrite the block, on the stream that they name.
class poisoned_pinned_pool : public support::recording<poisoned_pinned_pool, weir::memory_space::pinned> {
public:
    void before_free(weir::stream_ref stream, void* p) noexcept {
        CHECK(cudaMemsetAsync(p, 0xDD, buffer_bytes, stream.get()) == cudaSuccess);
    }
};

/// What a buffer holds, found out later, when all is enqueued: the host waits for nothing before.
class sight {
public:
    sight(buffer& of, weir::stream_ref stream) : there_(of.size()), stream_(stream) {
        auto const now = of.read(stream);
        weir::check_cuda(cudaMemcpyAsync(there_.at(), now.data(), now.size(), cudaMemcpyDeviceToDevice, stream.get()),
                    "cudaMemcpyAsync");
    }
    octets contents() const { return there_.contents(stream_); }

private:
    memory there_;
    weir::stream_ref stream_;
};

/// A set with room for `fitting` of its buffers, which hold what their number says.
template <class Victims = least_recently_used, class Device = device_pool, class Host = pinned_pool>
struct stage {
    explicit stage(std::size_t count = 4, std::size_t fitting = 2) : set(device, host, fitting * buffer_bytes) {
        for (std::size_t i = 0; i != count; ++i) {
            buffers.emplace_back(set, buffer_bytes);
            write(buffers[i].access(stream), seed_of(i));
        }
    }
    static unsigned seed_of(std::size_t i) { return static_cast<unsigned>(7 * i + 3); }
    void check_contents(weir::stream_ref on) {
        for (std::size_t i = 0; i != buffers.size(); ++i) {
            CAPTURE(i);
            CHECK(sight(buffers[i], on).contents() == written(buffer_bytes, seed_of(i)));
        }
    }
    void check_contents() { check_contents(stream); }
    /// Which buffers are on the device, such as "01-3".
    std::string resident() const {
        std::string there;
        for (std::size_t i = 0; i != buffers.size(); ++i)
            there += buffers[i].is_on_device() ? static_cast<char>('0' + i) : '-';
        return there;
    }

    Device device;
    Host host;
    support::scoped_stream stream, other;
    spill_set<Victims> set;
    std::deque<buffer> buffers;
};

} // namespace

TEST_CASE_TEMPLATE("spill: twice the budget, round and round: each buffer keeps its contents, and the budget holds", Way,
                   std::tuple<least_recently_used, weir::device_pool, weir::pinned_pool>,
                   std::tuple<by_cost_and_size, weir::device_pool, weir::host_pool>,
                   std::tuple<by_next_use, device_pool, pinned_pool>, std::tuple<least_recently_used, device_pool, weir::host_pool>) {
    using here = stage<std::tuple_element_t<0, Way>, std::tuple_element_t<1, Way>, std::tuple_element_t<2, Way>>;
    for (bool const writes : {true, false})
        for (bool const ahead : {true, false})
            for (bool const alternates : {true, false}) {
                CAPTURE(writes);
                CAPTURE(ahead);
                CAPTURE(alternates);
                support::every_schedule([&] {
                    here s(6, 3);
                    std::deque<sight> seen;
                    std::vector<octets> expected;
                    for (std::size_t step = 0; step != 24; ++step) {
                        std::size_t const i = step % 6, next = (i + 1) % 6;
                        weir::stream_ref const stream = alternates && step % 2 == 1 ? s.other : s.stream;
                        seen.emplace_back(s.buffers[i], stream);
                        bool const was_written = writes && step >= 6;
                        expected.push_back(written(buffer_bytes, was_written ? static_cast<unsigned>(step - 6) : here::seed_of(i)));
                        if (writes)
                            write(s.buffers[i].access(stream), static_cast<unsigned>(step));
                        s.buffers[i].set_next_use(step + 6);
                        if (ahead)
                            CHECK(s.buffers[next].prefetch(stream));
                        CHECK(s.set.state().in_use_bytes <= 3 * buffer_bytes);
                    }
                    for (std::size_t step = 0; step != seen.size(); ++step) {
                        CAPTURE(step);
                        CHECK(seen[step].contents() == expected[step]);
                    }
                    auto const now = s.set.state();
                    CHECK(now.accessed_bytes == 0);
                    CHECK(now.buffers == 6);
                    CHECK(now.to_device_bytes >= 12 * buffer_bytes);
                    if (!writes)
                        CHECK(now.to_host_bytes == 6 * buffer_bytes); // each once: later nothing but copies that are up to date
                });
            }
}

TEST_CASE("spill: a policy chooses who leaves, and an access keeps its buffer") {
    support::every_schedule([] {
        stage<> lru(4, 3);
        CHECK(lru.resident() == "-123");
        look(lru.buffers[1], lru.stream);
        lru.buffers[0].prefetch(lru.stream);
        CHECK(lru.resident() == "01-3");
        {
            auto const kept = lru.buffers[3].access(lru.stream); // the oldest but for this
            auto const moved = std::move(const_cast<access_scope<unsigned char>&>(kept));
            CHECK(moved.size() == buffer_bytes);
            look(lru.buffers[2], lru.other);
            CHECK(lru.resident() == "0-23");
            CHECK(lru.set.state().accessed_bytes == buffer_bytes);
            CHECK_FALSE(lru.buffers[3].spill());
            CHECK(lru.set.spill() == 2 * buffer_bytes);
            CHECK(lru.resident() == "---3");
        }
        CHECK(lru.buffers[3].spill());
        CHECK(lru.buffers[3].spill()); // it is off
        CHECK(lru.resident() == "----");
        lru.check_contents();

        stage<by_next_use> planned(4, 4);
        for (std::size_t i = 0; i != 4; ++i)
            planned.buffers[i].set_next_use(std::vector<std::size_t>{2, 9, 5, 9}[i]);
        for (char const* const left : {"0-23", "0-2-", "0---", "----"}) { // of two that are equal the older one
            CHECK(planned.set.spill(1) == buffer_bytes);
            CHECK(planned.resident() == left);
        }
        planned.check_contents();

        stage<by_cost_and_size> weighed(4, 4);
        weighed.buffers[0].set_cost(100.0 * buffer_bytes);
        weighed.buffers[3].set_cost(0.001 * buffer_bytes);
        for (char const* const left : {"012-", "0-2-", "0---"}) {
            CHECK(weighed.set.spill(1) == buffer_bytes);
            CHECK(weighed.resident() == left);
        }
        weighed.check_contents();
    });
}

TEST_CASE("spill: accesses are in order over streams, and readers beside each other") {
    support::every_schedule([] {
        stage<> s(2, 2);
        support::scoped_stream const third;
        weir::stream_ref const streams[] = {s.stream, s.other, third, cudaStreamLegacy, cudaStreamPerThread};
        unsigned last = stage<>::seed_of(0);
        std::deque<sight> seen;
        std::vector<unsigned> expected;
        for (unsigned round = 0; round != 25; ++round) { // each stream writes behind each
            for (unsigned reader = 0; reader < 5; reader += 1 + round % 2)
                seen.emplace_back(s.buffers[0], streams[(round + reader) % 5]), expected.push_back(last);
            last = round;
            write(s.buffers[0].access(streams[(round + round / 5) % 5]), last);
            if (round % 3 == 2) {
                CHECK(s.buffers[0].spill());
                CHECK((round % 2 == 0 || s.buffers[0].prefetch(s.stream)));
            }
        }
        for (std::size_t i = 0; i != seen.size(); ++i)
            CHECK(seen[i].contents() == written(buffer_bytes, expected[i]));
        { // two that live at once, one of which writes again after the other has begun
            auto const first = s.buffers[1].access(s.stream);
            {
                auto const second = s.buffers[1].read(s.other);
            }
            weir::order_after(s.stream, s.other);
            write(first, 77);
        }
        CHECK(sight(s.buffers[1], s.other).contents() == written(buffer_bytes, 77));
    });
}

TEST_CASE("spill: what is computed is dropped, and computed again") {
    support::every_schedule([] {
        stage<> s(1, 3);
        int calls = 0;
        bool fails = false;
        auto const doubled = [&](weir::stream_ref on, unsigned char* data, std::size_t count) {
            auto const from = s.buffers[0].read(on);
            weir::check_cuda(cudaMemcpyAsync(data, from.data(), count, cudaMemcpyDeviceToDevice, on.get()), "cudaMemcpyAsync");
            ++calls;
            if (fails)
                throw std::runtime_error("cannot");
        };
        octets const expected = written(buffer_bytes, stage<>::seed_of(0));
        buffer derived(s.set, buffer_bytes, doubled);
        CHECK(calls == 0);
        for (weir::stream_ref const stream : {weir::stream_ref(s.stream), weir::stream_ref(cudaStreamPerThread)})
            for (bool const ahead : {false, true}) {
                CHECK((!ahead || derived.prefetch(stream)));
                sight const first(derived, s.other), second(derived, stream);
                CHECK(first.contents() == expected);
                CHECK(second.contents() == expected);
                CHECK(derived.spill());
            }
        CHECK(calls == 4);
        CHECK(s.set.state().computed_bytes == 4 * buffer_bytes);
        CHECK(s.set.state().uncopied_bytes == 4 * buffer_bytes);
        CHECK(s.set.state().to_host_bytes == 0);
        fails = true;
        CHECK_SAYS(support::sentence_of<std::runtime_error>([&] { sight(derived, s.stream); }), "cannot");
        CHECK_FALSE(derived.is_on_device());
        CHECK(s.set.state().in_use_bytes == buffer_bytes);
        fails = false;
        CHECK(sight(derived, s.stream).contents() == expected);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { use(derived, s.stream); }), "would be lost; 'read' it");
        buffer* itself = nullptr;
        buffer ring(s.set, buffer_bytes, [&](weir::stream_ref on, unsigned char*, std::size_t) { look(*itself, on); });
        itself = &ring;
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { look(ring, s.stream); }), "cannot access that buffer");
        buffer curious(s.set, buffer_bytes, [&](weir::stream_ref on, unsigned char* p, std::size_t count) {
            CHECK(itself->is_on_device());
            itself->set_cost(1);
            itself->set_next_use(1);
            CHECK_FALSE(itself->spill());
            weir::check_cuda(cudaMemsetAsync(p, 4, count, on.get()), "cudaMemsetAsync");
        });
        itself = &curious;
        CHECK(sight(curious, s.stream).contents() == octets(buffer_bytes, 4));
        buffer short_of_memory(s.set, buffer_bytes, [](weir::stream_ref, unsigned char*, std::size_t) {
            throw weir::out_of_memory(1, {{}, "of its own"});
        });
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { short_of_memory.prefetch(s.stream); }), "of its own");
        s.set.set_budget(buffer_bytes); // too small for the function and what it reads
        s.set.spill();
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { look(derived, s.stream); }), "not enough of the other buffers can leave");
        CHECK(s.set.state().in_use_bytes == 0);
        s.check_contents();
    });
}

TEST_CASE("spill: when a pool runs out, its oldest buffers leave, and no more than are needed") {
    support::every_schedule([] {
        constexpr std::size_t large = 3 * MiB;
        weir::device_pool pool{weir::pool_options{}.limit(24 * MiB).name("narrow")}, second;
        weir::pinned_pool host;
        support::scoped_stream const stream;
        spill_set<> set(pool, host, SIZE_MAX);
        weir::layer::failure_handler all(set.handler(), pool);
        buffer elsewhere(set, second, large); // the oldest
        write(elsewhere.access(stream), 99);
        std::deque<buffer> buffers;
        for (unsigned i = 0; i != 6; ++i) {
            buffers.emplace_back(set, large);
            write(buffers[i].access(stream), i);
        }
        {
            auto const kept = buffers[0].read(stream);
            weir::device_buffer const other(all, stream, 8 * MiB);
            CHECK(buffers[0].is_on_device());
            CHECK_FALSE(buffers[1].is_on_device());
            CHECK(buffers[5].is_on_device());
            CHECK(elsewhere.is_on_device()); // which would not help
            CHECK_THROWS_AS(weir::device_buffer(all, stream, 22 * MiB), weir::out_of_memory);
        }
        auto of_second = set.handler(second);
        struct {
            std::size_t bytes = large;
        } const failed;
        CHECK(of_second(failed)); // one of that pool's
        CHECK_FALSE(elsewhere.is_on_device());
        CHECK_FALSE(of_second(failed));
        std::deque<buffer> more; // the set's own buffers find room as well
        for (unsigned i = 0; i != 8; ++i) {
            more.emplace_back(set, large);
            write(more[i].access(stream), 50 + i);
        }
        for (unsigned i = 0; i != 8; ++i)
            CHECK(sight(more[i], stream).contents() == written(large, 50 + i));
        for (unsigned i = 0; i != 6; ++i)
            CHECK(sight(buffers[i], stream).contents() == written(large, i));
        CHECK(sight(elsewhere, stream).contents() == written(large, 99));
        CHECK(pool.reserved_bytes() <= 24 * MiB);
    });
}

TEST_CASE("spill: what cannot be says why, and how much is needed; nothing is lost") {
    support::every_schedule([] {
        stage<> s(3, 2);
        buffer wide(s.set, 2 * buffer_bytes + 1);
        auto const says = [&](buffer& of) {
            return support::sentence_of<weir::out_of_memory>([&] { use(of, s.stream); });
        };
        CHECK_SAYS(says(wide), "the buffer needs 10001 bytes (9.76 KiB) on the device, more than the set's budget of 10000");
        {
            auto const a = s.buffers[0].read(s.stream), b = s.buffers[1].read(s.stream);
            CHECK_SAYS(says(s.buffers[2]), "being accessed; end an access, or raise the budget to at least 15000 bytes");
            CHECK_FALSE(s.buffers[2].prefetch(s.stream));
            CHECK(s.set.set_budget(buffer_bytes) == buffer_bytes); // lowered under them
            CHECK_SAYS(says(s.buffers[2]), "raise the budget to at least 15000 bytes");
            CHECK(s.set.state().in_use_bytes == 2 * buffer_bytes);
        }
        CHECK(s.set.set_budget(buffer_bytes) == 0);
        CHECK(s.set.budget_bytes() == buffer_bytes);
        CHECK(s.set.state().in_use_bytes == buffer_bytes);
        s.check_contents();
        CHECK_SAYS(s.set.report().c_str(), "spill_set: 4 buffers, in use 4.88 KiB of 4.88 KiB, accessed 0 B; to host");

        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { use(s.buffers[0], on_host); }), "'on_host' is none");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { s.buffers[0].prefetch(on_host); }), "'on_host' is none");
        {
            support::scoped_stream const captured;
            support::capture graph(captured);
            for (std::size_t i = 0; i != 3; ++i) // whether it is there or not
                CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { use(s.buffers[i], captured); }), "being captured");
            CHECK(s.buffers[0].spill()); // beside it all goes on
            use(s.buffers[0], s.stream);
            CHECK(graph.unbroken());
        }
        s.check_contents();
        buffer taken = std::move(s.buffers[0]);
        CHECK(s.buffers[0].size() == 0);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { use(s.buffers[0], s.stream); }), "was moved from");
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { buffer(s.set, SIZE_MAX); }), "do not fit the address space");
        s.buffers[0] = std::move(taken);
        s.check_contents();

        buffer none(s.set, 0);
        CHECK(none.prefetch(s.stream));
        CHECK(none.access(s.stream).data() == nullptr);
        CHECK(none.spill());
    });
}

TEST_CASE("spill: a buffer moves and ends while a stream that used it is captured") {
    for (int const way : {0, 1, 2, 3, 4}) {
        CAPTURE(way);
        support::every_schedule([&] {
            stage<> s(2, 2); // nobody has left, so no event tells where an access ended
            write(s.buffers[0].access(s.other), stage<>::seed_of(0));
            write(s.buffers[1].access(s.other), stage<>::seed_of(1));
            buffer third(s.set, buffer_bytes);
            memory const own(buffer_bytes);
            support::capture graph(s.other, cudaStreamCaptureModeThreadLocal);
            weir::check_cuda(cudaMemsetAsync(own.at(), 1, buffer_bytes, s.other), "cudaMemsetAsync");
            if (way == 0)
                CHECK(s.buffers[1].spill());
            else if (way == 1)
                CHECK(s.set.spill() == 2 * buffer_bytes);
            else if (way == 2)
                CHECK(s.set.set_budget(0) == 0);
            else if (way == 3)
                write(third.access(s.stream), 1);
            else
                s.buffers.pop_back();
            std::size_t nodes = 0;
            CHECK(graph.unbroken(&nodes));
            CHECK(nodes == 1);
            s.set.set_budget(2 * buffer_bytes);
            s.check_contents();
        });
    }
}

TEST_CASE("spill: a host pool without memory: buffers that need none leave, and the refusal is the first one") {
    support::every_schedule([] {
        stage<> s(4, 4);
        s.host.fail_at = 1, s.host.fails = SIZE_MAX;
        CHECK(s.set.spill() == 0);
        CHECK_FALSE(s.buffers[0].spill());
        s.set.set_budget(3 * buffer_bytes);
        buffer more(s.set, buffer_bytes);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { use(more, s.stream); }), "the host pool has no memory for them");
        s.device.fail_at = 1, s.device.fails = SIZE_MAX; // now the device pool refuses
        s.set.set_budget(SIZE_MAX);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { use(more, s.stream); }), "the test made it fail");
        s.device.fail_at = s.host.fail_at = 0;
        CHECK(s.resident() == "0123");
        s.check_contents();

        CHECK(s.buffers[2].spill());
        sight const read_only(s.buffers[2], s.stream); // the host's copy is up to date
        s.host.fail_at = 1, s.host.fails = SIZE_MAX;
        CHECK(s.set.spill(1) == buffer_bytes);
        CHECK(s.resident() == "01-3");
        write(s.buffers[2].access(s.stream), stage<>::seed_of(2));
        CHECK(s.buffers[2].spill()); // into the memory that it kept
        write(s.buffers[2].access(s.stream), stage<>::seed_of(2));
        s.host.fail_at = 1, s.host.fails = 1; // what is kept for later goes to who needs it now
        std::size_t const freed = s.host.frees.size();
        CHECK(s.buffers[0].spill());
        CHECK(s.host.frees.size() == freed + 1);
        s.check_contents();

        use(s.buffers[3], s.stream);
        sight const current(s.buffers[0], s.stream); // its copy is up to date, and nobody has another one
        auto const held = s.buffers[0].read(s.stream);
        s.host.fail_at = 1, s.host.fails = 1;
        CHECK(s.buffers[3].spill());
        CHECK(current.contents() == written(buffer_bytes, stage<>::seed_of(0)));
        s.check_contents();
    });
}

TEST_CASE("spill: a buffer ends whenever it likes: on its way, away, under an access, used by many") {
    enum class when { unused, arriving, away, here, on_two_streams, accessed, computed };
    for (when const now : {when::unused, when::arriving, when::away, when::here, when::on_two_streams, when::accessed, when::computed})
        for (bool const by_thread : {false, true}) {
            CAPTURE(static_cast<int>(now));
            support::every_schedule([&] {
                stage<least_recently_used, device_pool, poisoned_pinned_pool> s(2, 2);
                weir::stream_ref const stream = by_thread ? weir::stream_ref(cudaStreamPerThread) : weir::stream_ref(s.stream);
                auto it = std::make_unique<buffer>(
                    now == when::computed ? buffer(s.set, buffer_bytes, [](weir::stream_ref on, unsigned char* p, std::size_t count) {
                        weir::check_cuda(cudaMemsetAsync(p, 1, count, on.get()), "cudaMemsetAsync");
                    })
                                          : buffer(s.set, buffer_bytes));
                if (now == when::computed)
                    CHECK(it->prefetch(stream));
                else if (now != when::unused)
                    write(it->access(stream), 5);
                if (now == when::arriving || now == when::away)
                    CHECK(it->spill());
                if (now == when::arriving)
                    CHECK(it->prefetch(stream));
                std::optional<sight> seen;
                if (now == when::on_two_streams)
                    seen.emplace(*it, s.other);
                if (now == when::accessed) {
                    auto const kept = it->access(stream);
                    it.reset();
                    write(kept, 6);
                    CHECK(s.set.state().in_use_bytes > 0);
                }
                it.reset();
                CHECK((!seen || seen->contents() == written(buffer_bytes, 5)));
                CHECK(s.set.state().buffers == 2);
                s.check_contents();
                s.buffers.clear();
                CHECK(s.set.state().in_use_bytes == 0);
                CHECK(s.device.live_blocks() == 0);
                CHECK(s.host.live_blocks() == 0);
            });
        }
}

TEST_CASE("spill: a set that ends before its buffers says so, and they end without it") {
    support::every_schedule([] {
        device_pool device;
        pinned_pool host;
        support::scoped_stream const stream;
        std::optional<spill_set<>> set(std::in_place, device, host, 2 * buffer_bytes);
        buffer here(*set, buffer_bytes), away(*set, buffer_bytes), unused(*set, buffer_bytes);
        write(away.access(stream), 1);
        CHECK(away.spill());
        write(here.access(stream), 2);
        std::string const said = support::standard_error_of([&] { set.reset(); });
        CHECK_SAYS(said, "a spill_set ends before 3 of its buffers");
        CHECK(device.live_blocks() == 0); // what nobody accesses goes back
        CHECK(host.live_blocks() == 0);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { use(here, stream); }), "spill_set has ended");

        weir::device_pool keeps{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
        set.emplace(keeps, host, 2 * buffer_bytes);
        {
            std::optional<buffer> first(std::in_place, *set, buffer_bytes), last(std::in_place, *set, buffer_bytes);
            auto const kept = first->access(stream), outlived = last->access(stream);
            first.reset();
            CHECK_SAYS(support::standard_error_of([&] { set.reset(); }), "a spill_set ends before 2 of its buffers");
            CHECK(keeps.state().live_blocks == 2); // work may use them
        }
        CHECK(support::standard_error_of([&] { spill_set<>(device, host, 1); }).empty());
    });
}

TEST_CASE("spill: a pool that hands out at once what is freed is refused, for the device and for what it reaches of the host") {
    support::every_schedule([] {
        weir::pool<weir::upstream::device, weir::placement::best_fit<>, weir::reuse::immediate> at_once;
        weir::pool<weir::upstream::pinned<>, weir::placement::best_fit<>, weir::reuse::immediate> at_once_on_host;
        weir::device_pool pool;
        weir::host_pool pageable; // its bytes are not used any more when a copy's call returns
        spill_set<> set(pool, pageable, buffer_bytes);
        char const* const sentence = "and this pool hands out at once what is freed; use pools that are stream ordered";
        weir::device_pool_ref const device = at_once;
        weir::host_pool_ref const host = at_once_on_host, fitting = pageable;
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { spill_set<>(device, fitting, 1); }), sentence);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { spill_set<>(weir::device_pool_ref(pool), host, 1); }), sentence);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { buffer(set, device, buffer_bytes); }), sentence);
        CHECK(set.state().buffers == 0);
    });
}

namespace {

#ifdef WEIR_SIMULATED_CUDA // which reports bytes that are handed out in flight
template <class Pool>
using observed = simulated_device::watched<Pool>;
#else
template <class Pool>
using observed = Pool;
#endif
using promised_pinned_pool =
    weir::pool<weir::upstream::pinned<>, weir::placement::best_fit<>, weir::reuse::stream_ordered<weir::identity::promised>>;

} // namespace

TEST_CASE_TEMPLATE("spill: what a set freed on its own streams is handed out only when it is safe, also when the set has ended", Way,
                   std::tuple<weir::device_pool, weir::pinned_pool>, std::tuple<weir::promised_device_pool, weir::pinned_pool>,
                   std::tuple<weir::layer::statistics<weir::promised_device_pool>, weir::pinned_pool>,
                   std::tuple<weir::device_pool, promised_pinned_pool>) {
    using Pool = observed<std::tuple_element_t<0, Way>>;
    support::every_schedule([] {
        constexpr std::size_t large = 3 * MiB;
        Pool pool(weir::pool_options{}.limit(24 * MiB)), second;
        std::tuple_element_t<1, Way> host;
        support::scoped_stream const work;
        std::deque<support::scoped_stream> later; // they get the handles of those that ended
        std::deque<memory> seen;
        {
            spill_set<> set(pool, host, large);
            buffer a(set, large), b(set, large), elsewhere(set, second, large);
            write(a.access(work), 1);
            write(b.access(work), 2);
            write(elsewhere.access(work), 3);
            CHECK(b.spill());
            buffer failing(set, large, [&](weir::stream_ref on, unsigned char* p, std::size_t count) {
                weir::check_cuda(cudaMemsetAsync(p, 1, count, on.get()), "cudaMemsetAsync");
                throw std::runtime_error("cannot");
            });
            {
                support::scoped_stream const ends; // what failed there is over, as far as users know
                CHECK_THROWS_AS(look(failing, ends), std::runtime_error);
                write(a.access(ends), 1);
                a = buffer(set, large);
            }
        }
        for (Pool* const each : {&pool, &second})
            for (int i = 0; i != 4; ++i) {
                weir::stream_ref const stream = later.emplace_back();
                void* const p = each->allocate(stream, large);
                weir::check_cuda(cudaMemsetAsync(p, 3, large, stream.get()), "cudaMemsetAsync");
                weir::check_cuda(cudaMemcpyAsync(seen.emplace_back(large).at(), p, large, cudaMemcpyDeviceToDevice, stream.get()),
                            "cudaMemcpyAsync");
                each->deallocate(stream, p, large);
            }
        for (std::size_t i = 0; i != seen.size(); ++i)
            CHECK(seen[i].contents(later[i]) == octets(large, 3));
        pool.settle();
        second.settle();
    });
}

TEST_CASE("spill: a buffer of no elements keeps no stream, and one that was spilled neither") {
    support::every_schedule([] {
        stage<> s(1, 2);
        buffer none(s.set, 0);
        for (weir::stream_ref const last : {weir::stream_ref(s.stream), weir::stream_ref(cudaStreamPerThread)}) {
            for (buffer* each : {&none, &s.buffers[0]}) {
                {
                    support::scoped_stream const ends;
                    look(*each, ends);
                    use(*each, ends);
                    CHECK(each->spill());
                }
                look(*each, last);
                use(*each, last);
                CHECK(each->size_bytes() == each->size());
            }
            CHECK_FALSE(none.is_on_device());
        }
        s.check_contents();
    });
}

TEST_CASE("spill: streams may end once a buffer has ended, also while it is still accessed") {
    for (bool const captured : {false, true})
        support::every_schedule([&] {
            stage<> s(1, 2);
            std::optional<support::capture> graph;
            auto it = std::make_unique<buffer>(s.set, buffer_bytes);
            {
                auto const first = it->access(s.stream);
                {
                    support::scoped_stream const writes, reads;
                    write(it->access(writes), 5);
                    sight const seen(*it, reads);
                    if (captured) // nothing can be recorded on it
                        graph.emplace(writes, cudaStreamCaptureModeRelaxed);
                    auto const second = it->read(s.other);
                    it.reset();
                    if (graph)
                        CHECK(graph->unbroken());
                    CHECK(seen.contents() == written(buffer_bytes, 5));
                }
                write(first, 6);
            }
            CHECK(s.set.state().buffers == 1);
            s.check_contents();
        });
}

TEST_CASE("spill: a handler may end the buffer that is spilled, though the host has no memory") {
    support::every_schedule([] {
        std::unique_ptr<buffer> it;
        device_pool device;
        support::recording_pool<weir::memory_space::pinned> plain;
        weir::layer::failure_handler host([&](weir::failed_allocation const&) { return it.reset(), false; }, plain);
        support::scoped_stream const stream;
        spill_set<> set(device, host, buffer_bytes);
        it = std::make_unique<buffer>(set, buffer_bytes);
        write(it->access(stream), 1);
        plain.fail_at = 1, plain.fails = SIZE_MAX;
        CHECK_FALSE(it->spill());
        CHECK(set.state().buffers == 0);
    });
}

TEST_CASE("spill: an access that ends while its stream is captured leaves the graph alone, and the buffer can be used") {
    enum class kind { created, own, legacy };
    for (kind const what : {kind::created, kind::own, kind::legacy})
        for (cudaStreamCaptureMode const mode :
             {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed})
            for (bool const is_short : {true, false})
                for (bool const writes : {true, false}) {
                    CAPTURE(static_cast<int>(what));
                    CAPTURE(static_cast<int>(mode));
                    CAPTURE(is_short);
                    CAPTURE(writes);
                    support::every_schedule([&] {
                        stage<> s(3, 3);
                        cudaStream_t blocking = nullptr;
                        weir::check_cuda(cudaStreamCreate(&blocking), "cudaStreamCreate");
                        {
                            weir::stream_ref const stream = what == kind::created ? weir::stream_ref(s.stream)
                                                            : what == kind::own   ? weir::stream_ref(cudaStreamPerThread)
                                                                                  : weir::stream_ref(cudaStreamLegacy);
                            if (is_short)
                                CHECK(s.buffers[2].spill());
                            std::optional<support::capture> graph;
                            memory const target(buffer_bytes);
                            auto const begin_capture = [&] {
                                graph.emplace(what == kind::legacy ? blocking : stream.get(), mode);
                            };
                            if (writes) {
                                auto const now = s.buffers[0].access(stream);
                                write(now, 50);
                                begin_capture();
                            } else {
                                auto const now = s.buffers[0].read(stream);
                                weir::check_cuda(cudaMemcpyAsync(target.at(), now.data(), now.size(), cudaMemcpyDeviceToDevice,
                                                            stream.get()),
                                            "cudaMemcpyAsync");
                                begin_capture();
                            }
                            write(s.buffers[0].access(s.other), 60); // behind the work that came before the capture
                            CHECK(s.buffers[0].spill());
                            write(s.buffers[1].access(s.other), 61);
                            std::size_t nodes = 0;
                            CHECK(graph->unbroken(&nodes));
                            CHECK(nodes == 0);
                            if (!writes)
                                CHECK(target.contents(stream) == written(buffer_bytes, stage<>::seed_of(0)));
                            CHECK(sight(s.buffers[0], stream).contents() == written(buffer_bytes, 60));
                            CHECK(sight(s.buffers[1], stream).contents() == written(buffer_bytes, 61));
                            {
                                auto const now = s.buffers[1].access(stream);
                                write(now, 62);
                                begin_capture();
                            }
                            CHECK(graph->unbroken(&nodes)); // nobody has used it meanwhile
                            CHECK(nodes == 0);
                            CHECK(sight(s.buffers[1], s.other).contents() == written(buffer_bytes, 62));
                            s.buffers.pop_front();
                        }
                        weir::synchronize(s.stream);
                        weir::check_cuda(cudaStreamDestroy(blocking), "cudaStreamDestroy");
                    });
                }
}

TEST_CASE("spill: a handler below the set may ask about all buffers, spill and end them, also what is on the move") {
    support::every_schedule([] {
        constexpr std::size_t large = 3 * MiB;
        enum class handler { asks_one_by_one, spills_some, ends_what_arrives, accesses };
        for (handler const what :
             {handler::asks_one_by_one, handler::spills_some, handler::ends_what_arrives, handler::accesses}) {
            CAPTURE(static_cast<int>(what));
            any_spill_set* all = nullptr;
            std::vector<std::unique_ptr<buffer>> buffers;
            unsigned asked = 0;
            bool arrives = true; // the last one does
            support::scoped_stream const stream;
            auto const make_room = [&](weir::failed_allocation const&) {
                ++asked;
                REQUIRE(asked < 100);
                static_cast<void>(all->state());
                for (std::unique_ptr<buffer>& each : buffers)
                    if (what == handler::accesses && !each->is_on_device())
                        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { look(*each, stream); }), "cannot bring in");
                for (std::size_t i = buffers.size(); i-- != 0;) { // the one that arrives is the last
                    std::unique_ptr<buffer>& each = buffers[i];
                    each->set_next_use(asked);
                    each->set_cost(1.0);
                    if (what == handler::spills_some && all->spill(1) != 0)
                        return true;
                    if (what == handler::ends_what_arrives) {
                        each.reset();
                        return false;
                    }
                    bool const was = each->is_on_device();
                    if (what == handler::accesses && arrives && each == buffers.back())
                        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { use(*each, stream); }),
                                   "nor access what is on the move");
                    else if (what == handler::accesses && was)
                        look(*each, stream);
                    if (was && each->spill())
                        return true;
                }
                return false;
            };
            weir::device_pool card{weir::pool_options{}.limit(8 * MiB)};
            weir::layer::failure_handler pool(make_room, card);
            support::recording_pool<weir::memory_space::pinned> plain(std::size_t{64} << 20);
            weir::layer::failure_handler host(make_room, plain);
            spill_set<> set(pool, host, 64 * MiB); // more than the card has
            all = &set;
            for (unsigned i = 0; i != 4; ++i) {
                buffers.push_back(std::make_unique<buffer>(set, large));
                if (what == handler::ends_what_arrives && i == 2) {
                    CHECK_NOTHROW(write(buffers[i]->access(stream), i)); // it ends with the access
                    CHECK(!buffers[i]);
                    buffers.pop_back();
                    break;
                }
                write(buffers[i]->access(stream), i);
            }
            CHECK(asked != 0);
            CHECK(set.state().accessed_bytes == 0);
            if (what != handler::ends_what_arrives) {
                plain.fail_at = 1, arrives = false; // a buffer that leaves is on the move, too
                CHECK(set.spill(large) == large);
            }
            CHECK(set.state().buffers == buffers.size());
            for (unsigned i = 0; i != buffers.size() && what != handler::accesses; ++i)
                CHECK(sight(*buffers[i], stream).contents() == written(large, i));
            buffers.clear();
            CHECK(set.state().buffers == 0);
            CHECK(set.state().in_use_bytes == 0);
        }
    });
}

TEST_CASE("spill: what can never be held is refused before anybody leaves") {
    support::every_schedule([] {
        constexpr std::size_t large = 3 * MiB;
        weir::device_pool pool{weir::pool_options{}.limit(12 * MiB)};
        weir::pinned_pool host;
        support::scoped_stream const stream;
        spill_set<> set(pool, host, 64 * MiB);
        buffer a(set, large), b(set, large), wide(set, 16 * MiB), fits(set, 9 * MiB);
        use(a, stream), use(b, stream);
        CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { use(wide, stream); }),
                   "the buffer needs 16777216 bytes (16 MiB) on the device, more than its pool can ever hold");
        CHECK(a.is_on_device());
        CHECK(b.is_on_device());
        set.set_budget(11 * MiB);
        {
            auto const kept = a.access(stream); // with which the other one does not fit
            CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { use(fits, stream); }),
                       "not enough of the other buffers can leave: they are being accessed; end an access, or raise the "
                       "budget to at least 12582912 bytes");
            CHECK(b.is_on_device());
        }
        use(fits, stream);
        CHECK_FALSE(b.is_on_device());
    });
}

TEST_CASE("spill: the budget that a refusal names is the least; while the host has no memory, more is needed") {
    support::every_schedule([] {
        weir::device_pool pool;
        weir::layer::limit<weir::pinned_pool> host(3 * MiB / 2); // for one of the small buffers
        support::scoped_stream const stream;
        spill_set<> set(pool, host, 6 * MiB);
        buffer a(set, MiB), b(set, MiB), c(set, MiB), kept(set, 3 * MiB), last(set, 4 * MiB);
        for (buffer* each : {&a, &b, &c})
            use(*each, stream);
        auto const now = kept.access(stream);
        for (std::size_t const named : {std::size_t{7}, std::size_t{9}}) { // all three, then none of those that are left
            CHECK_SAYS(support::sentence_of<weir::out_of_memory>([&] { use(last, stream); }),
                       "raise the budget to at least " + std::to_string(named * MiB) + " bytes");
            set.set_budget(named * MiB);
        }
        use(last, stream);
        CHECK(set.state().in_use_bytes == 9 * MiB);
    });
}

TEST_CASE("spill: threads share a set, and one another's victims") {
    support::every_schedule([] {
        weir::device_pool pool;
        weir::pinned_pool host;
        spill_set<> set(pool, host, 5 * buffer_bytes);
        buffer shared(set, buffer_bytes, [](weir::stream_ref on, unsigned char* p, std::size_t count) {
            weir::check_cuda(cudaMemsetAsync(p, 9, count, on.get()), "cudaMemsetAsync");
        });
        auto const work = [&](unsigned thread) {
            return [&, thread] {
                support::scoped_stream const own;
                weir::stream_ref const stream = thread == 2 ? weir::stream_ref(cudaStreamPerThread) : weir::stream_ref(own);
                std::deque<buffer> mine;
                for (unsigned i = 0; i != 3; ++i) {
                    mine.emplace_back(set, buffer_bytes);
                    write(mine[i].access(stream), 10 * thread + i);
                }
                for (unsigned round = 0; round != 6; ++round) {
                    unsigned const i = round % 3;
                    sight const all(shared, stream);
                    mine[(i + 1) % 3].prefetch(stream);
                    CHECK(sight(mine[i], stream).contents() == written(buffer_bytes, 10 * thread + i));
                    CHECK(all.contents() == octets(buffer_bytes, 9));
                    if (round % 4 == 3)
                        set.spill(buffer_bytes);
                    CHECK(set.state().in_use_bytes <= 5 * buffer_bytes);
                }
                shared.spill(); // so that it is no more known by a stream that ends
                mine.clear();
            };
        };
#ifdef WEIR_SIMULATED_CUDA
        simulated_cuda::run_threads({work(0), work(1), work(2)});
#else
        std::vector<std::thread> all;
        for (unsigned i = 0; i != 3; ++i)
            all.emplace_back(work(i));
        for (std::thread& each : all)
            each.join();
#endif
        CHECK(set.state().accessed_bytes == 0);
    });
}

#ifdef WEIR_SIMULATED_CUDA

namespace device = simulated_cuda;

TEST_CASE("spill: an access of what is on the device calls nothing of CUDA's") {
    device::world const world(device::config{}.late(), support::report_all);
    stage<> s(3, 3);
    for (auto const& each : {weir::stream_ref(s.stream), weir::stream_ref(cudaStreamLegacy)}) {
        for (buffer& of : s.buffers) // it knows the stream
            use(of, each);
        std::uint64_t const before = device::calls();
        for (buffer& of : s.buffers) {
            use(of, each);
            look(of, each);
            auto const first = of.read(each);
            use(of, each);
        }
        CHECK(device::calls() == before);
    }
    for (buffer& of : s.buffers) // readers on two streams stay with what they know
        look(of, s.stream), look(of, s.other);
    std::uint64_t const before = device::calls();
    for (buffer& of : s.buffers)
        look(of, s.stream), look(of, s.other);
    CHECK(device::calls() == before);
}

TEST_CASE("spill: who leaves waits for its own work, and not for what its stream did since") {
    for (bool const by_read : {false, true}) {
        device::world const world(device::config{}.eager(), support::report_all);
        stage<> s(4, 3);
        s.check_contents();
        if (by_read)
            look(s.buffers[1], s.stream);
        else
            write(s.buffers[1].access(s.stream), stage<>::seed_of(1));
        device::gate closed;
        CHECK(closed.close(s.stream) == cudaSuccess);
        use(s.buffers[2], s.stream);
        CHECK(s.buffers[1].spill());
        sight const seen(s.buffers[1], s.other);
        CHECK(seen.contents() == written(buffer_bytes, stage<>::seed_of(1)));
        closed.open();
        s.check_contents();
    }
}

TEST_CASE("spill: an event behind an access counts for no later one") {
    device::world const world(device::config{}.late(), support::report_all);
    stage<> s(4, 3);
    write(s.buffers[1].access(s.stream), 1);
    device::fail_call("cudaEventRecord", 1, cudaErrorUnknown, device::lasting::for_ever);
    write(s.buffers[1].access(s.stream), 77); // no event tells of its end
    device::clear_faults();
    CHECK(s.buffers[1].spill());
    CHECK(sight(s.buffers[1], s.other).contents() == written(buffer_bytes, 77));
}

TEST_CASE("spill: however far the host is ahead, moves make it wait for nothing, and need no new memory once they are at it") {
    constexpr std::size_t large = 3 * MiB;
    device::world const world(device::config{}.late(), support::report_all);
    simulated_device::watched<weir::device_pool> pool;
    simulated_device::watched<weir::pinned_pool> host;
    support::scoped_stream const stream;
    spill_set<> set(pool, host, 3 * large);
    std::deque<buffer> buffers;
    unsigned step = 0;
    auto const pass = [&] {
        for (std::size_t i = 0; i != 6; ++i, ++step) {
            if (buffers.size() == i)
                buffers.emplace_back(set, large);
            write(buffers[i].access(stream), step);
            CHECK((i % 2 == 0 || buffers.size() != 6 || buffers[(i + 1) % 6].prefetch(stream)));
        }
    };
    pass(), pass();
    char const* const calls[] = {"cudaMalloc",
                                 "cudaHostAlloc",
                                 "cudaHostRegister",
                                 "cuMemCreate",
                                 "cudaStreamCreateWithFlags",
                                 "cudaStreamSynchronize",
                                 "cudaEventSynchronize",
                                 "cudaDeviceSynchronize"};
    std::vector<std::uint64_t> counts;
    for (char const* each : calls)
        counts.push_back(device::calls(each));
    std::size_t const pending = device::pending();
    for (int i = 0; i != 5; ++i)
        pass();
    CHECK(device::pending() > pending); // not even the first of it had to run
    for (std::size_t i = 0; i != counts.size(); ++i)
        CHECK_MESSAGE(device::calls(calls[i]) == counts[i], calls[i]);
    for (unsigned i = 0; i != 6; ++i)
        CHECK(sight(buffers[i], stream).contents() == written(large, 36 + i));
}

namespace {

/// Two of four are on the device; of the two that are away one has gone by itself. Pools may lose blocks where all calls fail.
struct faulty {
    faulty() : set(pool, host, 2 * buffer_bytes) {
        for (std::size_t i = 0; i != 4; ++i) {
            buffers.emplace_back(set, buffer_bytes);
            write(buffers[i].access(stream), static_cast<unsigned>(i));
            seeds.push_back(static_cast<unsigned>(i));
        }
        sight const clean(buffers[2], other);
    }
    /// Each is what it was, and can be written over at once, those on the device before others come.
    void check_contents() {
        std::vector<std::size_t> order;
        for (bool const there : {true, false})
            for (std::size_t i = 0; i != buffers.size(); ++i)
                if (buffers[i].is_on_device() == there)
                    order.push_back(i);
        std::deque<sight> seen;
        for (std::size_t const i : order) {
            seen.emplace_back(buffers[i], stream);
            write(buffers[i].access(stream), seeds[i] + 100);
        }
        for (std::size_t at = 0; at != order.size(); ++at) {
            std::size_t const i = order[at];
            CAPTURE(i);
            CHECK(seen[at].contents() == written(buffer_bytes, seeds[i]));
            CHECK(sight(buffers[i], stream).contents() == written(buffer_bytes, seeds[i] + 100));
        }
    }
    weir::device_pool pool{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
    weir::pinned_pool host{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
    support::scoped_stream stream, other;
    spill_set<> set;
    std::deque<buffer> buffers;
    std::vector<unsigned> seeds;
};

} // namespace

TEST_CASE("spill: wherever a call fails, every buffer keeps its contents, and all goes on") {
    struct operation {
        char const* name;
        std::function<void(faulty&)> run;
    };
    auto const overwrite = [](faulty& s, std::size_t i, weir::stream_ref on) {
        auto const to = s.buffers[i].access(on);
        weir::check_cuda(cudaMemsetAsync(to.data(), static_cast<int>(s.seeds[i]), 1, on.get()), "cudaMemsetAsync");
    };
    operation const all[] = {
        {"come in place of another", [&](faulty& s) { overwrite(s, 0, s.stream); }},
        {"come for a thread's own stream", [&](faulty& s) { overwrite(s, 1, cudaStreamPerThread), overwrite(s, 0, cudaStreamPerThread); }},
        {"come for reading", [&](faulty& s) { look(s.buffers[0], s.other), look(s.buffers[1], s.other); }},
        {"another stream", [&](faulty& s) { overwrite(s, 3, s.other), overwrite(s, 3, s.stream); }},
        {"all leave", [&](faulty& s) { s.set.spill(); }},
        {"leave and come", [&](faulty& s) { s.buffers[3].spill(), s.buffers[3].prefetch(s.stream), overwrite(s, 3, s.other); }},
        {"the budget sinks", [&](faulty& s) { s.set.set_budget(buffer_bytes), s.set.set_budget(3 * buffer_bytes); }},
        {"end on the way", [&](faulty& s) { s.buffers[0].prefetch(s.stream), s.buffers.pop_front(), s.seeds.erase(s.seeds.begin()); }},
        {"end away", [&](faulty& s) { s.buffers.pop_front(), s.seeds.erase(s.seeds.begin()); }},
        {"end on two streams", [&](faulty& s) { look(s.buffers[3], s.other), s.buffers.pop_back(), s.seeds.pop_back(); }},
    };
    for (operation const& each : all) {
        CAPTURE(each.name);
        CHECK(support::fault_sweep([] { return std::make_unique<faulty>(); }, each.run,
                                   [](faulty& s, support::struck const&) {
                                       while (s.seeds.size() > s.buffers.size()) // the end itself never fails
                                           s.seeds.pop_back();
                                       s.check_contents();
                                       CHECK(s.set.state().accessed_bytes <= buffer_bytes);
                                   }) > 3);
    }
}

TEST_CASE("spill: while a promised pool cannot settle, the streams on which it knows memory stay") {
    device::world world(device::config{}.late());
    {
        weir::promised_device_pool pool{weir::pool_options{}.on_leak(weir::leak_action::ignore)};
        weir::pinned_pool host;
        support::scoped_stream const work;
        {
            std::optional<spill_set<>> set;
            set.emplace(pool, host, buffer_bytes);
            buffer(*set, buffer_bytes).access(work).stream();
            device::fail_call(1, cudaErrorUnknown, device::lasting::for_ever);
            set.reset();
            device::clear_faults();
        }
        void* const p = pool.allocate(work, buffer_bytes);
        CHECK(cudaMemsetAsync(p, 1, buffer_bytes, work) == cudaSuccess);
        pool.deallocate(work, p, buffer_bytes);
    }
    auto const found = world.finish();
    CHECK(found.size() == 2);
    for (device::report const& each : found)
        CHECK_SAYS(each.sentence, "stream");
}

TEST_CASE("spill: host memory that ends is told, and nothing is lost") {
    if (!support::host_memory_can_fail)
        return;
    bool done = false;
    for (long k = 0; !done; ++k) {
        REQUIRE(k < 200);
        device::world const world(device::config{}.late(), support::report_all);
        stage<least_recently_used, weir::device_pool, weir::pinned_pool> s(4, 2);
        use(s.buffers[3], cudaStreamPerThread); // the simulated device knows it from here on
        try {
            support::failing_new const from(k);
            buffer more(s.set, buffer_bytes);
            use(more, cudaStreamPerThread);
            look(s.buffers[0], s.other);
            use(s.buffers[1], s.other);
            s.buffers[1].spill();
            done = s.buffers[1].prefetch(s.stream);
        } catch (std::bad_alloc const&) {
        }
        s.check_contents();
    }
}

TEST_CASE("spill: a set knows its device") {
    device::world const world(device::config{}.late().with_devices(2), support::report_all);
    weir::pinned_pool host;
    weir::check_cuda(cudaSetDevice(1), "cudaSetDevice");
    weir::device_pool there;
    weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
    weir::device_pool here;
    spill_set<> set(there, host, 2 * buffer_bytes);
    CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { buffer(set, here, 10); }), "lie on one device");
    buffer a(set, buffer_bytes), b(set, buffer_bytes), c(set, buffer_bytes);
    for (buffer* each : {&a, &b, &c, &a}) { // the legacy stream is that of the set's device
        auto const now = each->access(cudaStreamLegacy);
        weir::runtime::device_scope const its(1);
        weir::check_cuda(cudaMemsetAsync(now.data(), 1, now.size(), cudaStreamLegacy), "cudaMemsetAsync");
    }
    CHECK(set.state().to_device_bytes == buffer_bytes);
}

TEST_CASE("spill: a stream of another device than the pool's is refused, whichever call names it") {
    device::world const world(device::config{}.late().with_devices(2), support::report_all);
    weir::device_pool pool;
    weir::pinned_pool host;
    spill_set<> set(pool, host, 2 * buffer_bytes);
    support::scoped_stream const here;
    weir::check_cuda(cudaSetDevice(1), "cudaSetDevice");
    support::scoped_stream const there;
    weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
    buffer a(set, buffer_bytes), b(set, buffer_bytes), none(set, 0);
    buffer made(set, 16, [](weir::stream_ref, unsigned char*, std::size_t) { FAIL("not to be called"); });
    use(a, here);
    for (bool const is_first : {false, true}) {
        CAPTURE(is_first);
        for (buffer* each : {&a, &b, &none, &made})
            CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { static_cast<void>(each->read(there)); }),
                       "belongs to device 1 and the buffer's pool to device 0; name a stream of the pool's device");
        CHECK_THROWS_AS(use(a, there), weir::usage_error);
        CHECK_THROWS_AS(a.prefetch(there), weir::usage_error);
        CHECK_THROWS_AS(made.prefetch(there), weir::usage_error);
        a.spill();
    }
    CHECK_FALSE(b.is_on_device());
    CHECK(set.state().accessed_bytes == 0);
}

TEST_CASE("spill: streams of two devices use managed memory, which goes back behind the work of both") {
    for (bool const leaves : {false, true})
        for (bool const is_captured : {false, true}) {
            CAPTURE(leaves);
            CAPTURE(is_captured);
            device::world const world(device::config{}.late().with_devices(2), support::report_all);
            device::watched<weir::managed_pool> pool;
            weir::pinned_pool host;
            support::scoped_stream const here;
            weir::check_cuda(cudaSetDevice(1), "cudaSetDevice");
            support::scoped_stream const first, second;
            weir::check_cuda(cudaSetDevice(0), "cudaSetDevice");
            spill_set<> set(pool, host, buffer_bytes);
            auto a = std::make_unique<buffer>(set, buffer_bytes);
            write(a->access(here), 1);
            std::optional<access_scope<unsigned char const>> x, y;
            x.emplace(a->read(first));
            y.emplace(a->read(second));
            {
                weir::runtime::device_scope const its(1);
                device::launch(first, {{x->data(), buffer_bytes}}, {}, {}, "one");
                device::launch(second, {{y->data(), buffer_bytes}}, {}, {}, "two");
            }
            if (!leaves)
                a.reset();
            std::optional<support::capture> graph;
            if (is_captured)
                graph.emplace(second);
            y.reset();
            x.reset();
            if (leaves)
                CHECK(a->spill());
            void* const next = pool.allocate(here, buffer_bytes);
            device::launch(here, {}, {{next, buffer_bytes}}, {}, "next");
            if (graph)
                CHECK(graph->unbroken());
            graph.reset();
            pool.deallocate(here, next, buffer_bytes);
        }
}

#endif
