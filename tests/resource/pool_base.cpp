// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <cstdint>
#include <doctest/doctest.h>
#include <new>
#include <string>
#include <support/recording_pool.hpp>
#include <vector>
#include <weir/resource/pool_base.hpp>

namespace {

struct call {
    bool on_host;
    std::size_t bytes;
    std::size_t alignment;
};

// Where a stream would stand. No CUDA is needed to be a pool.
struct stream_or_host {
    stream_or_host(int name) : name_(name) {}
    stream_or_host(weir::on_host_t) : is_host_(true) {}
    int name_ = 0;
    bool is_host_ = false;
};

class bounded : public weir::resource::pool_base<bounded> {
public:
    static constexpr std::size_t default_alignment = 64;

    void* try_allocate(stream_or_host stream, std::size_t bytes, std::size_t alignment) {
        allocations.push_back({stream.is_host_, bytes, alignment});
        if (alignment == 3)
            throw weir::usage_error("weir: 3");
        return bytes == 0 || bytes > 100 ? nullptr : room;
    }
    void deallocate(stream_or_host stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
        frees.push_back({stream.is_host_, bytes, alignment});
        freed.push_back(p);
    }
    weir::memory_report state() const {
        weir::memory_report now;
        now.name = "bounded";
        now.limit_bytes = 100;
        now.in_use_bytes = 40;
        return now;
    }
    weir::refusal refused(std::size_t bytes, std::size_t alignment) const {
        return {full_state(), std::to_string(bytes) + " at " + std::to_string(alignment) + " is more than 100; ask for less"};
    }

    char room[128];
    std::vector<call> allocations;
    std::vector<call> frees;
    std::vector<void*> freed;
};

// Tells more where it is asked for more.
struct talkative : weir::resource::pool_base<talkative> {
    static constexpr std::size_t default_alignment = 64;
    void* try_allocate(stream_or_host, std::size_t bytes, std::size_t) { return bytes > 100 ? nullptr : this; }
    void deallocate(stream_or_host, void*, std::size_t, std::size_t) noexcept {}
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {full_state(), "no"}; }
    std::string report() const { return "talkative"; }
    void examine(weir::memory_report& now) const noexcept {
        ++asked;
        now.device_free_bytes = 5;
        now.largest_live.offer({this, 9});
    }
    mutable int asked = 0;
};

struct failing : weir::resource::pool_base<failing> {
    [[maybe_unused]] static constexpr std::size_t default_alignment = 64; // what 'allocate' asks for, which nothing here calls
    weir::memory_report state() const { return bounded().state(); }
    void examine(weir::memory_report&) const { throw std::bad_alloc(); }
};

} // namespace

static_assert(noexcept(std::declval<bounded&>().deallocate_sync(nullptr, 1)));
static_assert(noexcept(std::declval<bounded const&>() == std::declval<bounded const&>()));

TEST_CASE("pool_base: allocate passes on what it is given") {
    bounded pool;
    CHECK(pool.allocate(7, 100, 32) == pool.room);
    CHECK(pool.allocate(7, 1) == pool.room);
    REQUIRE(pool.allocations.size() == 2);
    CHECK_FALSE(pool.allocations[0].on_host);
    CHECK(pool.allocations[0].bytes == 100);
    CHECK(pool.allocations[0].alignment == 32);
    CHECK(pool.allocations[1].alignment == 64); // the pool's own default
}

TEST_CASE("pool_base: what needs no stream is on the host") {
    bounded pool;
    void* const p = pool.allocate_sync(10);
    CHECK(p == pool.room);
    void* const q = pool.allocate_sync(20, 128);
    pool.deallocate_sync(p, 10);
    pool.deallocate_sync(q, 20, 128);
    CHECK(pool.allocations[0].on_host);
    CHECK(pool.allocations[0].alignment == 64);
    CHECK(pool.allocations[1].alignment == 128);
    REQUIRE(pool.frees.size() == 2);
    CHECK(pool.frees[0].on_host);
    CHECK(pool.frees[0].bytes == 10);
    CHECK(pool.frees[0].alignment == 64);
    CHECK(pool.frees[1].alignment == 128);
    CHECK(pool.freed[0] == p);
}

TEST_CASE("pool_base: zero bytes are null and no error, also where there is no room") {
    bounded pool;
    CHECK(pool.allocate(7, 0) == nullptr);
    CHECK(pool.allocate_sync(0) == nullptr);
}

TEST_CASE("pool_base: no room is an out_of_memory with the pool's state and its reason") {
    bounded pool;
    for (std::size_t bytes : {std::size_t{101}, std::size_t{1} << 40, SIZE_MAX}) {
        try {
            static_cast<void>(pool.allocate(7, bytes, 16));
            FAIL_CHECK("nothing was thrown");
        } catch (weir::out_of_memory const& error) {
            CHECK(error.asked_bytes() == bytes);
            CHECK(error.limit_bytes() == 100);
            CHECK(error.in_use_bytes() == 40);
            CHECK(error.pool_name() == "bounded");
            CHECK(error.reason() == std::to_string(bytes) + " at 16 is more than 100; ask for less");
        }
    }
    CHECK_THROWS_AS(static_cast<void>(pool.allocate_sync(101)), std::bad_alloc);
}

TEST_CASE("pool_base: a pool that can tell more is asked for it after a refusal, and for a full report, and else never") {
    talkative pool;
    static_cast<void>(pool.allocate(7, 100));
    static_cast<void>(pool.state());
    CHECK(pool.asked == 0);
    try {
        static_cast<void>(pool.allocate(7, 101));
        FAIL_CHECK("nothing was thrown");
    } catch (weir::out_of_memory const& error) {
        CHECK(error.device_free_bytes() == 5);
        REQUIRE(error.largest_live().size() == 1);
        CHECK(error.largest_live()[0].bytes == 9);
    }
    CHECK(pool.asked == 1);
    CHECK(pool.full_state().device_free_bytes == 5);
    std::string const said = pool.full_report();
    CHECK(said.find("talkative, 5 B free on the device; the largest live blocks:\n  9 B at 0x") == 0);
    CHECK(bounded().full_state().name == "bounded");
    CHECK(bounded().full_state().largest_live.empty());
}

TEST_CASE("pool_base: a pool holds what it says itself, and else what its limit allows") {
    struct says_so : bounded {
        bool can_hold(std::size_t bytes, std::size_t alignment) const { return bytes <= 50 && alignment <= 64; }
    };
    CHECK(bounded().can_hold(100, 4096));
    CHECK_FALSE(bounded().can_hold(101));
    CHECK(says_so().can_hold(50, 64));
    CHECK_FALSE(says_so().can_hold(51, 64));
    CHECK_FALSE(says_so().can_hold(50, 128));
}

TEST_CASE("pool_base: a pool has what it may leave out") {
    bounded pool;
    weir::largest_blocks own;
    pool.list_own(own);
    CHECK(own.empty());
    CHECK(pool.device() == weir::any_device);
    CHECK(pool.before_destroy(weir::on_host) == 0);
}

TEST_CASE("pool_base: what an examination throws leaves the rest unknown") {
    CHECK(failing().full_state().in_use_bytes == 40);
}

TEST_CASE("pool_base: other errors pass through as they are") {
    bounded pool;
    CHECK_THROWS_AS(static_cast<void>(pool.allocate(7, 1, 3)), weir::usage_error);
    CHECK_THROWS_AS(static_cast<void>(pool.allocate_sync(1, 3)), weir::usage_error);
}

TEST_CASE("pool_base: a pool equals itself and no other") {
    bounded a, b;
    CHECK(a == a);
    CHECK_FALSE(a == b);
    CHECK(a != b);
    CHECK_FALSE(a != a);
    bounded const& same = a;
    CHECK(same == a);
}

TEST_CASE("pool_base: a null stream is the legacy one to a file that is compiled as usual") { // pool_base.ptds.cpp is not
    support::recording_pool<> pool;
    cudaStream_t const null = nullptr;
    void* const p = pool.allocate(null, 100);
    CHECK(pool.allocations.back().stream == cudaStreamLegacy);
    pool.deallocate(null, p, 100);
}
