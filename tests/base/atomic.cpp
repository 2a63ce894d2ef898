// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <atomic>
#include <cstdint>
#include <doctest/doctest.h>
#include <initializer_list>
#include <thread>
#include <type_traits>
#include <weir/base/atomic.hpp>

static_assert(std::is_same_v<weir::atomic<std::uint64_t>, std::atomic<std::uint64_t>>);
static_assert(std::is_same_v<weir::atomic<void const*>, std::atomic<void const*>>);
static_assert(weir::atomic<std::size_t>::is_always_lock_free && weir::atomic<void*>::is_always_lock_free &&
              weir::atomic<bool>::is_always_lock_free);

TEST_CASE("atomic: a loop that spins ends when another thread writes, however long it took") {
    for (int const turns_of_other : {0, 10, 1000}) {
        weir::atomic<bool> waiting{false};
        weir::atomic<bool> done{false};
        int plain = 0;
        std::thread other([&] {
            for (int turns = 0; !waiting.load(std::memory_order_acquire); ++turns)
                weir::spin(turns);
            for (int turns = 0; turns < turns_of_other; ++turns)
                weir::spin(turns);
            plain = 1;
            done.store(true, std::memory_order_release);
        });
        waiting.store(true, std::memory_order_release);
        for (int turns = 0; !done.load(std::memory_order_acquire); ++turns)
            weir::spin(turns);
        CHECK(plain == 1);
        other.join();
    }
}
