// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>
#include <random>
#include <support/failing_new.hpp>
#include <vector>
#include <weir/placement/best_fit/size_lists.hpp>

using weir::placement::detail::size_lists;

namespace {
struct node {
    std::uint32_t next = 0;
    std::uint32_t previous = 0;
    unsigned in = 0;
};
} // namespace

TEST_CASE("size_lists: a class per size up to 511 granules, then at most 0.4 % wide, up to 4 Mi granules") {
    for (std::size_t granules = 1; granules < 512; ++granules) {
        CHECK(size_lists::class_of(granules) == granules);
        CHECK(size_lists::one_size(size_lists::class_of(granules)));
    }
    CHECK_FALSE(size_lists::one_size(size_lists::class_of(512)));
    unsigned before = 511;
    std::size_t first = 511;
    for (std::size_t granules = 512; granules < (std::size_t{1} << 23); granules += 1 + granules / 4096) {
        unsigned const in = size_lists::class_of(granules);
        CHECK((in == before || in == before + 1));
        if (in != before)
            first = granules;
        CHECK(granules - first <= first / 256);
        before = in;
    }
    CHECK(size_lists::class_of((std::size_t{1} << 23) - 1) == size_lists::last);
    CHECK(size_lists::class_of(std::size_t{1} << 23) == size_lists::last);
    CHECK(size_lists::class_of(SIZE_MAX / 512) == size_lists::last);
}

TEST_CASE("size_lists: agrees with a plain table of which classes have nodes") {
    for (unsigned seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        size_lists lists;
        CHECK(lists.occupied_from(0) == size_lists::classes);
        CHECK(lists.last_occupied() == size_lists::classes);
        lists.prepare();
        lists.prepare();
        CHECK(lists.bookkeeping_bytes() <= 17 * 1024);
        std::vector<node> nodes(200);
        std::vector<int> count(size_lists::classes);
        std::vector<bool> linked(nodes.size());
        unsigned const spread = seed < 2 ? size_lists::classes : 40u << seed;
        for (int n = 0; n < 3000; ++n) {
            auto const at = static_cast<std::uint32_t>(1 + random() % (nodes.size() - 1));
            if (linked[at]) {
                lists.unlink(nodes, at);
                --count[nodes[at].in];
            } else {
                auto const in = static_cast<unsigned>(size_lists::last - random() % spread);
                lists.link(nodes, at, in);
                CHECK(nodes[at].in == in);
                CHECK(lists.head(in) == at);
                ++count[in];
            }
            linked[at] = !linked[at];
            auto const from = static_cast<unsigned>(size_lists::last - random() % spread);
            unsigned expected = from;
            while (expected < size_lists::classes && count[expected] == 0)
                ++expected;
            CHECK(lists.occupied_from(from) == expected);
            unsigned last = size_lists::classes;
            for (unsigned in = 0; in < size_lists::classes; ++in)
                last = count[in] != 0 ? in : last;
            CHECK(lists.last_occupied() == last);
            if (n % 100 == 0)
                for (unsigned in = size_lists::classes - spread; in < size_lists::classes; ++in) {
                    int length = 0;
                    std::uint32_t previous = 0;
                    for (std::uint32_t each = lists.head(in); each != 0; each = nodes[each].next) {
                        CHECK(nodes[each].previous == previous);
                        previous = each;
                        ++length;
                    }
                    CHECK(length == count[in]);
                }
        }
        CHECK(lists.occupied_from(size_lists::classes) == size_lists::classes);
    }
}

TEST_CASE("size_lists: every class is found from below and not from above") {
    size_lists lists;
    lists.prepare();
    std::vector<node> nodes(2);
    for (unsigned in = 0; in < size_lists::classes; ++in) {
        lists.link(nodes, 1, in);
        CHECK(lists.occupied_from(0) == in);
        CHECK(lists.occupied_from(in) == in);
        CHECK(lists.occupied_from(in + 1) == size_lists::classes);
        CHECK(lists.last_occupied() == in);
        lists.unlink(nodes, 1);
        CHECK(lists.occupied_from(0) == size_lists::classes);
    }
}

TEST_CASE("size_lists: without host memory there are no lists yet") {
    if (!support::host_memory_can_fail)
        return;
    for (long k = 0; k < 2; ++k) {
        size_lists lists;
        CHECK_THROWS_AS(([&] {
                            support::failing_new const fails(k);
                            lists.prepare();
                        }()),
                        std::bad_alloc);
        lists.prepare();
        CHECK(lists.head(17) == 0);
        CHECK(lists.occupied_from(0) == size_lists::classes);
    }
}
