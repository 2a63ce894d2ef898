// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Containers that end after their pool: the mark lies outside of the pool, whose memory nobody may touch here once it has ended.

#include <cstddef>
#include <cstdio>
#include <doctest/doctest.h>
#include <new>
#include <string>
#include <support/every_schedule.hpp>
#include <support/failing_new.hpp>
#include <support/standard_error.hpp>
#include <sys/mman.h>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/container/buffer.hpp>
#include <weir/container/vector.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/placement/arena.hpp>
#include <weir/pool/pool.hpp>
#include <weir/resource/pool_life.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/upstream/device.hpp>

namespace {

std::vector<std::string> heard;
void hear(char const* sentence) {
    heard.push_back(sentence);
}

// A pool in pages of its own, which nobody can read after its end.
template <class Pool>
class in_own_pages {
public:
    in_own_pages() : pages_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        REQUIRE(pages_ != MAP_FAILED);
        pool = new (pages_) Pool();
    }
    ~in_own_pages() { munmap(pages_, bytes); }
    void end() {
        pool->~Pool();
        REQUIRE(mprotect(pages_, bytes, PROT_NONE) == 0);
    }
    Pool* pool;

private:
    static constexpr std::size_t bytes = sizeof(Pool) + 0x10000 - sizeof(Pool) % 0x10000;
    void* pages_;
};

using guarded = weir::layer::guard<weir::pool<weir::upstream::device, weir::placement::arena, weir::reuse::immediate>>;
using under_statistics = weir::layer::statistics<guarded>;
using pair = weir::layer::fallback<guarded, guarded>;

std::string told(void const* block) {
    char text[32];
    std::snprintf(text, sizeof text, "%p", block);
    return std::string("weir: layer::guard: the block at ") + text +
           " is freed after the end of its pool, with which it went back; free it before, or end its container";
}

} // namespace

TEST_CASE_TEMPLATE("pool_life: a container that ends after its pool is told of, and nothing more happens", Pool, guarded,
                   under_statistics, pair) {
    support::scoped_stream const stream;
    in_own_pages<Pool> owner;
    if constexpr (std::is_same_v<Pool, under_statistics>)
        owner.pool->inner().on_violation(&hear);
    else
        owner.pool->on_violation(&hear);
    heard.clear();
    weir::device_vector<int> moved(*owner.pool, stream);
    weir::device_buffer plain(*owner.pool, stream, 1000);
    weir::device_buffer grown(*owner.pool, stream, 10);
    grown.resize(2000); // its first block goes back in time
    moved = weir::device_vector<int>(*owner.pool, stream, 10);
    CHECK(heard.empty());
    support::standard_error_of([&] { owner.end(); }); // where the pool tells of its blocks, as the guard does
    heard.clear();
    std::vector<std::string> const expected{told(grown.data()), told(plain.data()), told(moved.data())};
    {
        auto const first = std::move(moved); // the last to end
        auto const second = std::move(plain);
        auto const third = std::move(grown);
        CHECK(heard.empty());
    }
    CHECK(heard == expected);
    heard.clear();
}

TEST_CASE("pool_life: without host memory the sentence is shorter") {
    static char const* said = nullptr;
    weir::resource::detail::pool_life life;
    CHECK_FALSE(life.is_over());
    life.end([](char const* sentence) { said = sentence; });
    CHECK(life.is_over());
    if (!support::host_memory_can_fail)
        return;
    {
        support::failing_new const at_once(0);
        life.tell_of_free(nullptr);
    }
    CHECK(std::string(said) == "weir: layer::guard: a block is freed after the end of its pool");
}

TEST_CASE("pool_life: what a pool throws, as a container tells of itself, changes nothing") {
    struct {
        weir::resource::detail::shared_pool_life in_container(void*, weir::stream_ref) { throw weir::usage_error("no"); }
    } pool;
    CHECK_FALSE(weir::resource::detail::in_container(pool, nullptr, weir::on_host));
}
