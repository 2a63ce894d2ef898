// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include <stable/scene.hpp>

using namespace scene;

TEST_CASE("stable_buffer: grows where it is, and shrinks in the order of its stream") {
    support::every_schedule([] {
        scoped_stream const s;
        page_pool pool(small());
        stable_buffer bytes(pool, s, 3 * page + 1);
        CHECK(bytes.max_bytes() == 4 * page);
        void* const data = bytes.data();
        CHECK(bytes.append(page + 5) == data);
        bytes.zero_async();
        bytes.append("abc", 3);
        CHECK(bytes.size() == page + 8);
        CHECK(bytes.capacity() == 2 * page);
        std::vector<char> read(bytes.size());
        bytes.copy_to_sync(read.data());
        CHECK(read[page + 4] == 0);
        CHECK(read[page + 7] == 'c');
        read[0] = 'x';
        bytes.copy_to_async(read.data());
        weir::synchronize(s);
        CHECK(read[0] == 0);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { bytes.append(SIZE_MAX - page); }),
                   "the bytes to append do not fit the address space");
        bytes.reserve(3 * page);
        bytes.resize(2 * page);
        CHECK(bytes.capacity() == 3 * page);
        bytes.shrink(page);
        CHECK(bytes.capacity() == page);
        CHECK(std::as_const(bytes).data() == data);
        CHECK_SAYS(support::sentence_of<weir::usage_error>([&] { bytes.shrink(page + 1); }),
                   "a stable buffer of 2097152 bytes cannot shrink by 2097153");
        bytes.assign("de", 2);
        CHECK(bytes.size() == 2);
        bytes.copy_to_sync(read.data());
        CHECK(read[1] == 'e');
    });
}
