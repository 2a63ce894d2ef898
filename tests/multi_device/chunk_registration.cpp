// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <doctest/doctest.h>
#include <string>
#include <weir/multi_device.hpp>

TEST_CASE("chunk_registration: is told of each chunk once, and of the last one first when the pool ends") {
    struct noted : weir::multi_device::chunk_registration {
        void enter(void*, std::size_t bytes) override { said += "+" + std::to_string(bytes / weir::MiB); }
        void leave(void*, std::size_t bytes) noexcept override { said += "-" + std::to_string(bytes / weir::MiB); }
        std::string said;
    } chunks;
    {
        weir::multi_device::thread_ranks const place(1);
        weir::multi_device::thread_channel channel(place, 0);
        weir::multi_device::collective_pool<> pool(channel, {}, &chunks);
        for (std::size_t const bytes : {1 * weir::MiB, 4 * weir::MiB})
            pool.grow(bytes);
        pool.deallocate_sync(pool.allocate_sync(4 * weir::MiB), 4 * weir::MiB); // of which nobody is told
    }
    CHECK(chunks.said == "+2+4-4-2");
}
