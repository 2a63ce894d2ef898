// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Every CUDA call and every allocation of host memory fails, of an allocation that finds no room, of what a failure
// handler does about it, and of the retry.

#include "scene.hpp"

#include <functional>
#include <support/fault_sweep.hpp>

using namespace faults;
using weir::failed_allocation;
using weir::GiB;

namespace {

std::function<bool()> give_way; // what the present allocation can do without; none: nothing

struct asks_scene {
    bool operator()(failed_allocation const&) const { return give_way && give_way(); }
};

template <class Pool>
using handled = layer::failure_handler<Pool, asks_scene>;

/// Allocates `bytes` on stream `c`, and blocks of the scene go for it.
template <class Pool>
void allocate_for_live(scene<Pool>& s, std::size_t bytes) {
    struct reset {
        ~reset() { give_way = nullptr; }
    } const at_end{};
    give_way = [&s] {
        if (s.live.empty())
            return false;
        support::enough_memory const here; // what a free without host memory loses, other acts tell
        s.free(s.live.begin()->first);
        return true;
    };
    s.try_allocate(s.c, bytes);
}

template <class Pool>
std::vector<act<scene<Pool>>> const& every_handler_act() {
    using here = scene<Pool>;
    static std::vector<act<here>> const all{
        {"a block in flight goes", 6 * MiB, [](here& s) { s.write(s.a, 6 * MiB); },
         [](here& s) { allocate_for_live(s, 5 * MiB); }},
        {"two blocks of other streams go", 6 * MiB,
         [](here& s) {
             s.write(s.a, 2 * MiB);
             s.write(s.b, 4 * MiB);
         },
         [](here& s) { allocate_for_live(s, 6 * MiB); }},
        {"small blocks go", 2 * MiB,
         [](here& s) {
             for (int i = 0; i < 2; ++i) {
                 s.write(s.a, 512 * KiB);
                 s.write(s.b, 512 * KiB);
             }
         },
         [](here& s) { allocate_for_live(s, 1 * MiB); }},
        {"all go, and it is not enough, since the limit is no whole page", 7 * MiB - 1,
         [](here& s) {
             s.write(s.a, 2 * MiB);
             s.write(s.b, 4 * MiB);
         },
         [](here& s) { allocate_for_live(s, 7 * MiB - 1); }},
    };
    return all;
}

} // namespace

// Of after_event, what a free could not order waits for 'settle', handler or not: its frees are elsewhere.
TEST_CASE_TEMPLATE("faults: a failure handler that frees", Pool,
                   handled<pool<stream_ordered<checked, grow_first>, sized>>,
                   handled<pool<stream_ordered<checked, wait_first, closing>, fitted>>,
                   handled<weir::device_pool>) {
    CHECK(strike_everywhere(every_handler_act<Pool>()) > 10);
}

TEST_CASE_TEMPLATE("memory: a failure handler that frees", Pool,
                   handled<pool<stream_ordered<checked, grow_first>, sized>>,
                   handled<pool<stream_ordered<checked, wait_first, closing>, fitted>>,
                   handled<pool<after_event, sized>>, handled<weir::device_pool>) {
    std::size_t const runs = starve_everywhere(every_handler_act<Pool>());
    CHECK((runs > 5 || !support::host_memory_can_fail));
}

namespace {

/// A pool that wants 30 of the device's 80 GiB, of which another one holds 60 freely.
struct neighbours {
    neighbours() {
        static_cast<void>(handled->allocate(a, 1 * MiB));
        other.deallocate_sync(other.allocate_sync(60 * GiB), 60 * GiB);
    }
    ~neighbours() {
        for (void* const each : got)
            if (each)
                handled->deallocate(a, each, 30 * GiB);
    }
    void allocate() { got[0] = handled->try_allocate(a, 30 * GiB); }

    using plain = pool<stream_ordered<checked>, sized>;
    stage::stream a;
    plain other;
    using trimming = layer::failure_handler<plain, weir::handler::trim_of<plain>>;
    std::unique_ptr<trimming> handled =
        std::make_unique<trimming>(weir::handler::trim(other), weir::pool_options{}.on_leak(weir::leak_action::ignore));
    void* got[2] = {};
};

void is_sound(neighbours& s) {
    CHECK(s.handled->state().live_blocks == (s.got[0] ? 2 : 1));
    if (!s.got[0])
        s.got[1] = s.handled->try_allocate(s.a, 30 * GiB); // now it works
    CHECK((s.got[0] || s.got[1]));
    CHECK(s.other.reserved_bytes() == 0);
}

} // namespace

TEST_CASE("faults: a failure handler that trims another pool") {
    std::uint64_t const runs = support::fault_sweep([] { return std::make_unique<neighbours>(); },
                                                    [](neighbours& s) { s.allocate(); },
                                                    [](neighbours& s, support::struck const& fault) {
                                                        CHECK((!fault.threw || !s.got[0]));
                                                        is_sound(s);
                                                    });
    CHECK(runs > 5);
}

TEST_CASE("memory: a failure handler that trims another pool") {
    if (!support::host_memory_can_fail)
        return;
    long k = 0;
    for (bool threw = true; threw; ++k) {
        stage::world const here;
        neighbours s;
        try {
            support::failing_new const fails(k);
            s.allocate();
            threw = false;
        } catch (std::bad_alloc const&) {
        }
        is_sound(s);
    }
    CHECK(k > 2);
}

#endif
