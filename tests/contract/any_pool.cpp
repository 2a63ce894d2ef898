// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// An owner of any pool does what every pool must do. And 'make_pool' knows the recipes by their names.

#include "pool_subject.hpp"
#include <support/standard_error.hpp>
#include <weir/layer/limit.hpp>
#include <weir/make_pool.hpp>

namespace pool_contract {

using weir::memory_space;

template <memory_space Required>
struct subject_by_name {
    static constexpr std::size_t largest_bytes = SIZE_MAX;
    static constexpr std::size_t largest_alignment = SIZE_MAX / 2 + 1;
    static constexpr bool frees = true;
    static weir::any_pool<Required> made(std::size_t limit_bytes) {
        return weir::make_pool<Required>(weir::base::name_of(Required), weir::pool_options{}.limit(limit_bytes));
    }
};

template <memory_space Required>
struct subject<weir::any_pool<Required>> : subject_by_name<Required> {
    explicit subject(std::size_t limit_bytes = SIZE_MAX) : pool(subject::made(limit_bytes)) {}
    weir::any_pool<Required> pool;
};

using tenant = weir::layer::limit<weir::any_pinned_pool>;
template <>
struct subject<tenant> : subject_by_name<memory_space::pinned> {
    explicit subject(std::size_t limit_bytes = SIZE_MAX) : pool(SIZE_MAX, subject::made(limit_bytes)) {}
    tenant pool;
};

} // namespace pool_contract

#define WEIR_TEST_POOLS weir::any_device_pool, weir::any_host_pool, pool_contract::tenant

#include "pool_suite.hpp"

namespace {

std::vector<std::string> split(std::string const& names) {
    std::vector<std::string> all;
    for (std::size_t at = 0, end; at < names.size(); at = end + 2) {
        end = std::min(names.find(", ", at), names.size());
        all.push_back(names.substr(at, end - at));
        if (end == names.size())
            break;
    }
    return all;
}

template <memory_space Required>
void try_each_name() {
    for (std::string const& name : split(weir::pool_names<Required>()))
        support::every_schedule([&] {
            CAPTURE(name);
            support::scoped_stream const s;
            weir::any_pool<Required> pool = weir::make_pool<Required>(name, weir::pool_options{}.name("by name"));
            CHECK(pool.state().name == "by name");
            CHECK(weir::resource::reaches(pool.ref().space(), Required));
            bool const is_host = name == "host";
            CHECK((is_host || name.find(weir::base::name_of(pool.ref().space())) != std::string::npos || name == "driver"));
            void* const p = pool.allocate(s, 1000);
            pool.deallocate(s, p, 1000);
            CHECK(pool.state().live_blocks == 0);
            pool.settle();
            pool.trim();
            CHECK(pool.state().reserved_bytes == 0);
        });
}

} // namespace

TEST_CASE("make_pool: each name that it tells makes a pool whose memory is within reach") {
    try_each_name<memory_space::device>();
    try_each_name<memory_space::pinned>();
    try_each_name<memory_space::host>();
}

TEST_CASE("make_pool: an unknown name is answered with those that there are") {
    std::string const managed_driver = CUDART_VERSION >= 13000 ? ", managed_driver" : "";
    CHECK(std::string(weir::pool_names()) ==
          "device, promised_device, compact_device, pinned, managed, driver, pinned_driver" + managed_driver);
    CHECK(std::string(weir::pool_names<memory_space::pinned>()) == "pinned, managed, pinned_driver" + managed_driver);
    CHECK(std::string(weir::pool_names<memory_space::host>()) == "pinned, managed, host, pinned_driver" + managed_driver);
    auto const answer = [](auto make) { return support::sentence_of<weir::usage_error>(make); };
    CHECK(answer([] { static_cast<void>(weir::make_pool("host")); }) ==
          "weir: no pool of memory that kernels reach is called 'host'; there are: " + std::string(weir::pool_names()));
    CHECK(answer([] { static_cast<void>(weir::make_pool<memory_space::host>("device_pool")); }) ==
          "weir: no pool of memory that the host reaches is called 'device_pool'; there are: " +
              std::string(weir::pool_names<memory_space::host>()));
    CHECK(answer([] { static_cast<void>(weir::make_pool<memory_space::pinned>(std::string())); }) ==
          "weir: no pool of memory that kernels and the host reach is called ''; there are: " +
              std::string(weir::pool_names<memory_space::pinned>()));
    CHECK(answer([] { static_cast<void>(weir::make_pool(std::string("device\0x", 8))); }) ==
          "weir: no pool of memory that kernels reach is called 'device' with a zero character and more; there are: " +
              std::string(weir::pool_names()));
}

TEST_CASE("make_pool: the options are the pool's, CUDA's own pools among them") {
    for (char const* name : {"device", "driver"})
        support::every_schedule([&] {
            CAPTURE(name);
            weir::any_device_pool pool =
                weir::make_pool(name, weir::pool_options{}.name("all").device(0).limit(64 * MiB).reserve(32 * MiB));
            weir::memory_report const state = pool.state();
            CHECK(state.name == "all");
            CHECK(pool.device() == 0);
            CHECK(state.limit_bytes == 64 * MiB);
            CHECK(state.reserved_bytes == 32 * MiB);
        });
    support::every_schedule([] {
        CHECK(support::standard_error_of([] {
                  weir::any_device_pool ends =
                      weir::make_pool("device", weir::pool_options{}.on_leak(weir::leak_action::ignore));
                  static_cast<void>(ends.allocate_sync(100));
              }) == "");
    });
}
