// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What state is a pool in when a call fails, and what must be true of it afterwards?
//
// A scene is a pool with live blocks on several streams, and freed ones in every state that a reuse rule knows: open,
// covered and in flight, covered and over, deferred, the host's. Operations are made on it; 'check' holds it against
// the scene's own books, and to the promise that everything works again and comes back.

#include "sweep.hpp"

#include <map>
#include <memory>
#include <reuse/stage.hpp>
#include <support/noted.hpp>
#include <tuple>
#include <utility>
#include <weir/growth/exact.hpp>
#include <weir/layer/failure_handler.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>

namespace faults {

namespace layer = weir::layer;
using stage::checked;
using stage::closing;
using stage::fitted;
using stage::grow_first;
using stage::promised;
using stage::sized;
using stage::wait_first;
using weir::KiB;
using weir::MiB;
using weir::reuse::after_event;
using weir::reuse::stream_ordered;

template <class Reuse, class Placement, class Upstream = weir::upstream::device>
using pool = weir::pool<Upstream, Placement, Reuse, weir::growth::exact>;

/// The placement and the reuse rule under any layers; void: the driver's.
template <class Pool>
struct parts_of : parts_of<typename Pool::pool_type> {};
template <class Upstream, class Placement, class Reuse, class Growth>
struct parts_of<weir::pool<Upstream, Placement, Reuse, Growth>> {
    using placement = Placement;
    using reuse = Reuse;
};
template <class Recipe, bool Guarded>
struct parts_of<weir::recipes::pool_of<Recipe, Guarded>> : parts_of<typename weir::recipes::pool_of<Recipe, Guarded>::parts> {};
template <class First, class Second>
struct parts_of<weir::layer::fallback<First, Second>> : parts_of<First> {};
template <weir::memory_space Space>
struct parts_of<weir::driver_pool_of<Space>> {
    using placement = void;
    using reuse = void;
};

template <class Reuse>
inline constexpr bool promises = false;
template <class Handover, class Tuning>
inline constexpr bool promises<weir::reuse::stream_ordered<weir::identity::promised, Handover, Tuning>> =
    true;

template <class Pool>
inline constexpr bool is_driver_pool = false;
template <weir::memory_space Space>
inline constexpr bool is_driver_pool<weir::driver_pool_of<Space>> = true;

/// What a pool, or a layer, is made of that may hold `limit` bytes.
template <class Pool>
struct arguments : arguments<typename Pool::pool_type> {};
template <class Upstream, class Placement, class Reuse, class Growth>
struct arguments<weir::pool<Upstream, Placement, Reuse, Growth>> {
    static auto of(std::size_t limit) {
        return std::tuple(weir::pool_options{}.limit(limit).on_leak(weir::leak_action::ignore));
    }
};
template <class Recipe, bool Guarded>
struct arguments<weir::recipes::pool_of<Recipe, Guarded>> : arguments<typename weir::recipes::pool_of<Recipe, Guarded>::parts> {};
template <weir::memory_space Space>
struct arguments<weir::driver_pool_of<Space>> {
    static auto of(std::size_t limit) {
        weir::driver_pool_options options;
        options.on_leak(weir::leak_action::ignore);
        if (Space != weir::memory_space::managed) // for which CUDA has no maximum
            options.limit(limit == no_limit ? SIZE_MAX : 4 * limit); // its own pool reuses less than weir's
        return std::tuple(options);
    }
};
template <class Pool>
struct arguments<weir::layer::limit<Pool>> {
    static auto of(std::size_t limit) {
        return std::tuple_cat(std::tuple(SIZE_MAX), arguments<Pool>::of(limit));
    }
};
template <class Pool, class Handler>
struct arguments<weir::layer::failure_handler<Pool, Handler>> {
    static auto of(std::size_t limit) { return std::tuple_cat(std::tuple(Handler{}), arguments<Pool>::of(limit)); }
};
template <class First, class Second>
struct arguments<weir::layer::fallback<First, Second>> {
    static auto of(std::size_t limit) {
        return std::tuple_cat(arguments<First>::of(limit), arguments<Second>::of(limit));
    }
};
template <class Pool>
std::unique_ptr<Pool> made(std::size_t limit) {
    return std::apply([](auto... all) { return std::make_unique<Pool>(std::move(all)...); },
                      arguments<Pool>::of(limit));
}

/// A failure handler that asks for two more tries and frees nothing.
struct persistent {
    bool operator()(weir::failed_allocation const& failed) const { return failed.attempt < 2; }
};

/// A wrong free is the test's failure.
inline void fail(char const* sentence) {
    FAIL_CHECK(sentence);
}
template <class Pool>
void hear(Pool& pool) {
    if constexpr (weir::contract::holds<support::wrapped_pool, Pool>)
        hear(pool.inner());
    else if constexpr (weir::contract::holds<support::second_pool, Pool>)
        hear(pool.first()), hear(pool.second());
}
template <class Pool>
void hear(weir::layer::guard<Pool>& pool) {
    pool.on_violation(&fail);
}
template <class Recipe, bool Guarded>
void hear(weir::recipes::pool_of<Recipe, Guarded>& pool) {
    hear(static_cast<typename weir::recipes::pool_of<Recipe, Guarded>::parts&>(pool));
}

/// Fails unless every layer counts these blocks, with the bytes that were asked for.
template <class Pool>
void check_counts(Pool const&, std::size_t, std::size_t) {}
template <class Pool>
void check_counts(weir::layer::guard<Pool> const& layer, std::size_t blocks, std::size_t bytes) {
    check_counts(layer.inner(), blocks, bytes);
}
template <class Recipe, bool Guarded>
void check_counts(weir::recipes::pool_of<Recipe, Guarded> const& pool, std::size_t blocks, std::size_t bytes) {
    check_counts(static_cast<typename weir::recipes::pool_of<Recipe, Guarded>::parts const&>(pool), blocks, bytes);
}
template <class Pool, class Handler>
void check_counts(weir::layer::failure_handler<Pool, Handler> const& layer, std::size_t blocks, std::size_t bytes) {
    check_counts(layer.inner(), blocks, bytes);
}
template <class Pool>
void check_counts(weir::layer::limit<Pool> const& layer, std::size_t blocks, std::size_t bytes) {
    CHECK(layer.requested_bytes() == bytes);
    check_counts(layer.inner(), blocks, bytes);
}
template <class Pool>
void check_counts(weir::layer::statistics<Pool> const& layer, std::size_t blocks, std::size_t bytes) {
    CHECK(layer.live_blocks() == blocks);
    CHECK(layer.requested_bytes() == bytes);
    check_counts(layer.inner(), blocks, bytes);
}

struct live_block {
    std::size_t bytes = 0;
    weir::stream_ref on = weir::on_host;
};

template <class Pool>
class scene {
    using placement = typename parts_of<Pool>::placement;
    static constexpr bool is_driver = std::is_void_v<placement>;
    template <class P>
    using clears = decltype(std::declval<P&>().clear());

public:
    static constexpr bool streams_may_go = !promises<typename parts_of<Pool>::reuse>;

    explicit scene(std::size_t limit) : pool(made<Pool>(limit)) { hear(*pool); }

    /// A block of `bytes` bytes, or of the most that the pool's placement has.
    void* try_allocate(weir::stream_ref on, std::size_t bytes) {
        if (rounded(bytes) == 0)
            bytes = 64;
        void* const p = pool->try_allocate(on, bytes);
        support::enough_memory const here;
        if (!p) {
            refused = true;
            reason = pool->refusal(bytes, Pool::default_alignment);
        } else {
            if (support::is_noted<Pool>()) {
                if (Pool::stream_ordered && !on.is_host())
                    device::note_allocate(p, bytes, on.get());
                else
                    device::note_allocate_host(p, bytes);
            }
            live[p] = {bytes, on};
        }
        return p;
    }
    void* write(weir::stream_ref on, std::size_t bytes) {
        void* const p = try_allocate(on, bytes);
        REQUIRE(p != nullptr);
        launch(on, p);
        return p;
    }
    void launch(weir::stream_ref on, void* p) {
        support::enough_memory const here;
        if (Pool::stream_ordered && !on.is_host())
            CHECK(device::launch(on.get(), {}, {{p, live.at(p).bytes}}) == cudaSuccess);
    }
    /// Frees a block in the order of its stream, in flight where the pool's rule allows it.
    void free(void* p) {
        live_block const gone = live.at(p);
        {
            support::enough_memory const here;
            if (support::is_noted<Pool>()) {
                if (Pool::stream_ordered && !gone.on.is_host())
                    device::note_free(p, gone.bytes, gone.on.get());
                else
                    device::note_free_host(p, gone.bytes);
            }
            live.erase(p);
        }
        pool->deallocate(gone.on, p, gone.bytes);
    }

    void remember() {
        before = pool->state();
        refused = false;
    }

    void check_unchanged(bool undo) {
        weir::memory_report const now = pool->state();
        CHECK(now.live_blocks == live.size());
        // Chunks may have gone back, to make room; what CUDA's own pool keeps is its business.
        CHECK((!undo || is_driver || now.reserved_bytes <= before.reserved_bytes));
    }

    std::size_t lost_bytes() const { return pool->state().lost_bytes; }

    /// The pool's books are the scene's, and everything works.
    void check(bool may_lose) {
        {
            weir::memory_report const state = pool->state();
            CHECK((may_lose || state.lost_bytes == 0));
            may_lose = state.lost_bytes != 0; // where nothing was lost, all of it comes back
            std::size_t bytes = 0;
            std::size_t asked = 0;
            for (auto const& each : live) {
                bytes += rounded(each.second.bytes);
                asked += each.second.bytes;
            }
            CHECK(state.live_blocks == live.size());
            CHECK((is_driver || state.in_use_bytes == bytes));
            CHECK(state.reserved_bytes >= bytes);
            CHECK((is_driver || state.reserved_bytes <= state.limit_bytes)); // CUDA rounds it up
            check_counts(*pool, live.size(), asked);
        }
        for (auto const& each : live) // nobody else has them
            launch(each.second.on, each.first);
        while (!live.empty())
            free(live.begin()->first);
        for (weir::stream_ref const on : {weir::stream_ref(a), weir::stream_ref(b), weir::stream_ref(c)})
            for (std::size_t const bytes : {2 * KiB, 100 * KiB})
                if (void* const p = try_allocate(on, bytes)) {
                    launch(on, p);
                    free(p);
                } else {
                    CHECK(may_lose);
                }
        for (int i = 0; i < 2; ++i) {
            give_all_back();
            CHECK(pool->state().live_blocks == 0);
            CHECK((pool->state().in_use_bytes == 0 || (is_driver && may_lose))); // CUDA counts what is lost, too
            if (!may_lose) {
                CHECK(pool->state().reserved_bytes == 0);
                free(write(b, 1 * MiB));
            }
        }
        give_all_back();
    }

    void abandon() {
        pool.reset();
        live.clear();
    }

    stage::stream a, b, c;
    std::unique_ptr<Pool> pool;
    std::map<void*, live_block> live;
    bool refused = false;
    std::string reason;

private:
    static std::size_t rounded(std::size_t bytes) {
        if constexpr (is_driver)
            return bytes;
        else
            return placement::rounded(bytes, Pool::default_alignment);
    }
    void give_all_back() {
        pool->settle();
        if constexpr (weir::contract::holds<clears, Pool>)
            pool->clear();
        pool->trim();
    }

    weir::memory_report before;
};

/// Live blocks, and freed ones in every state.
template <class Pool>
void clutter(scene<Pool>& s) {
    s.write(s.a, 1 * KiB);
    s.write(s.b, 3 * MiB);
    s.free(s.write(s.a, 2 * KiB));
    s.free(s.write(s.a, 100 * KiB));
    s.free(s.write(s.c, 6 * MiB));
    s.free(s.write(s.b, 6 * MiB));
    CHECK(cudaStreamSynchronize(s.b) == cudaSuccess);
    if constexpr (weir::contract::holds<weir::contract::has_used_on, Pool, void*, weir::stream_ref>) {
        void* const p = s.write(s.a, 5 * MiB);
        s.pool->used_on(p, s.b);
        s.free(p);
    }
    void* const q = s.write(s.a, 4 * MiB);
    device::fail_call("cudaEventRecord", 1, cudaErrorUnknown); // nothing is known of its last use
    s.free(q);
    device::clear_faults();
    s.free(s.write(weir::on_host, 7 * MiB));
}

/// Every public operation that may call CUDA, in the states that decide what it does.
template <class Pool>
std::vector<act<scene<Pool>>> const& every_pool_act() {
    using here = scene<Pool>;
    static std::vector<act<here>> const all{
        {"allocate: the first block", no_limit, [](here&) {}, [](here& s) { s.try_allocate(s.a, 1 * KiB); }},
        {"allocate: a large block, a stream that is new", no_limit, [](here& s) { s.write(s.a, 1 * KiB); },
         [](here& s) { s.try_allocate(s.b, 3 * MiB); }},
        {"allocate: of the size that was freed", no_limit, [](here& s) { s.free(s.write(s.a, 100 * KiB)); },
         [](here& s) { s.try_allocate(s.a, 100 * KiB); }},
        {"allocate: of a smaller size than was freed", no_limit,
         [](here& s) { s.free(s.write(s.a, 2 * MiB)); }, [](here& s) { s.try_allocate(s.a, 1 * MiB); }},
        {"allocate: what another stream is done with", no_limit,
         [](here& s) {
             s.write(s.b, 1 * KiB);
             s.free(s.write(s.a, 6 * MiB));
             CHECK(cudaStreamSynchronize(s.a) == cudaSuccess);
         },
         [](here& s) { s.try_allocate(s.b, 5 * MiB); }},
        {"allocate: small, what another stream is done with", 2 * MiB,
         [](here& s) {
             s.write(s.b, 1 * MiB);
             for (int i = 0; i < 3; ++i)
                 s.free(s.write(s.a, 100 * KiB));
             s.free(s.write(s.a, 1 * MiB - 64 * KiB));
             CHECK(cudaStreamSynchronize(s.a) == cudaSuccess);
         },
         [](here& s) { s.try_allocate(s.b, 1 * KiB); }},
        {"allocate: at the limit, what another stream still uses", 6 * MiB,
         [](here& s) { s.free(s.write(s.a, 6 * MiB)); }, [](here& s) { s.try_allocate(s.b, 6 * MiB); }},
        {"allocate: small, at the limit, what another stream still uses", 2 * MiB,
         [](here& s) {
             void* const rest = s.write(s.a, 1 * MiB);
             s.write(s.b, 100 * KiB);
             s.free(s.write(s.a, 512 * KiB));
             s.free(rest);
         },
         [](here& s) { s.try_allocate(s.b, 1 * KiB); }},
        {"allocate: at the limit, pieces that several streams still use", 6 * MiB,
         [](here& s) {
             s.free(s.write(s.c, 6 * MiB));
             void* const p = s.write(s.a, 2 * MiB);
             void* const q = s.write(s.b, 2 * MiB);
             s.free(p);
             s.free(q);
         },
         [](here& s) { s.try_allocate(s.c, 6 * MiB); }},
        {"allocate: at the limit, what an idle stream keeps open", 4 * MiB,
         [](here& s) {
             void* const p = s.write(s.a, 1 * MiB);
             void* const q = s.write(s.a, 1 * MiB);
             s.free(p);
             s.free(q);
         },
         [](here& s) { s.try_allocate(s.b, 4 * MiB); }},
        {"allocate: at the limit, and there is no room", 4 * MiB,
         [](here& s) {
             s.write(s.a, 3 * MiB);
             s.free(s.write(s.b, 512 * KiB));
         },
         [](here& s) { s.try_allocate(s.c, 2 * MiB); }},
        {"allocate: at the limit, chunks go back first", 4 * MiB,
         [](here& s) {
             void* const p = s.write(s.a, 2 * MiB);
             void* const q = s.write(s.b, 2 * MiB);
             s.free(p);
             s.free(q);
         },
         [](here& s) { s.try_allocate(s.c, 4 * MiB); }},
        {"allocate: a block that a second stream used", 4 * MiB,
         [](here& s) {
             if constexpr (weir::contract::holds<weir::contract::has_used_on, Pool, void*, weir::stream_ref>) {
                 void* const p = s.write(s.a, 4 * MiB);
                 s.pool->used_on(p, s.b);
                 s.pool->used_on(p, s.c);
                 s.free(p);
             }
         },
         [](here& s) { s.try_allocate(s.a, 4 * MiB); }},
        {"allocate: another stream's block that a second one used", 4 * MiB,
         [](here& s) {
             if constexpr (weir::contract::holds<weir::contract::has_used_on, Pool, void*, weir::stream_ref>) {
                 void* const p = s.write(s.a, 4 * MiB);
                 s.pool->used_on(p, s.b);
                 s.free(p);
             }
         },
         [](here& s) { s.try_allocate(s.c, 4 * MiB); }},
        {"allocate: on a stream that bears an old handle", 4 * MiB,
         [](here& s) {
             if constexpr (!here::streams_may_go)
                 return;
             s.free(s.write(s.b, 100 * KiB));
             s.b.destroy();
             cudaStream_t fresh = nullptr;
             CHECK(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking) == cudaSuccess);
             s.b.reset(fresh);
         },
         [](here& s) { s.try_allocate(s.b, 100 * KiB); }},
        {"allocate: on the default streams, the legacy one", no_limit, [](here&) {},
         [](here& s) { s.try_allocate(cudaStreamLegacy, 1 * KiB); }},
        {"allocate: on the default streams, the thread's own", no_limit, [](here&) {},
         [](here& s) { s.try_allocate(cudaStreamPerThread, 1 * KiB); }},
        {"deallocate: on the default streams", no_limit,
         [](here& s) {
             s.write(cudaStreamLegacy, 1 * KiB);
             s.write(cudaStreamPerThread, 1 * KiB);
         },
         [](here& s) {
             while (!s.live.empty())
                 s.free(s.live.begin()->first);
         },
         true},
        {"allocate_sync and deallocate_sync", 4 * MiB, [](here& s) { s.free(s.write(s.a, 4 * MiB)); },
         [](here& s) {
             if (void* const p = s.try_allocate(weir::on_host, 4 * MiB))
                 s.free(p);
         },
         true},
        {"deallocate: small and large", no_limit,
         [](here& s) {
             s.write(s.a, 1 * KiB);
             s.write(s.a, 6 * MiB);
         },
         [](here& s) {
             while (!s.live.empty())
                 s.free(s.live.begin()->first);
         },
         true},
        {"deallocate: many", no_limit,
         [](here& s) { // the rules look after what was freed at the 64th
             for (int i = 0; i < 70; ++i)
                 s.write(s.a, 1 * KiB);
             while (s.live.size() > 8)
                 s.free(s.live.begin()->first);
         },
         [](here& s) {
             while (!s.live.empty())
                 s.free(s.live.begin()->first);
         },
         true},
        {"deallocate: on a stream that is new to the pool", no_limit,
         [](here& s) {
             s.write(s.a, 1 * MiB);
             CHECK(cudaStreamSynchronize(s.a) == cudaSuccess);
         },
         [](here& s) {
             auto const block = s.live.begin();
             block->second.on = s.b;
             s.free(block->first);
         },
         true},
        {"deallocate: a block that a second stream used", no_limit,
         [](here& s) {
             if constexpr (weir::contract::holds<weir::contract::has_used_on, Pool, void*, weir::stream_ref>) {
                 s.pool->used_on(s.write(s.a, 1 * KiB), s.b);
                 s.pool->used_on(s.write(s.a, 6 * MiB), s.b);
             }
         },
         [](here& s) {
             while (!s.live.empty())
                 s.free(s.live.begin()->first);
         },
         true},
        {"used_on", no_limit, [](here& s) { s.write(s.a, 1 * MiB); },
         [](here& s) {
             if constexpr (weir::contract::holds<weir::contract::has_used_on, Pool, void*, weir::stream_ref>) {
                 void* const p = s.live.begin()->first;
                 s.pool->used_on(p, s.b);
                 s.pool->used_on(p, s.b);
                 s.pool->used_on(p, cudaStreamPerThread);
             }
         }},
        {"last_used_on", no_limit, [](here& s) { s.write(s.a, 1 * MiB); },
         [](here& s) {
             if constexpr (weir::contract::holds<weir::contract::has_used_on, Pool, void*, weir::stream_ref>) {
                 void* const p = s.live.begin()->first;
                 s.pool->last_used_on(p, s.b);
                 s.pool->last_used_on(p, cudaStreamPerThread);
             }
         }},
        {"trim", no_limit, &clutter<Pool>, [](here& s) { s.pool->trim(); }},
        {"trim, some of it", no_limit, &clutter<Pool>, [](here& s) { s.pool->trim(4 * MiB); }},
        {"settle", no_limit, &clutter<Pool>, [](here& s) { s.pool->settle(); }},
        {"settle and trim", no_limit, &clutter<Pool>,
         [](here& s) {
             s.pool->settle();
             s.pool->trim();
         }},
        {"what a pool says of itself", no_limit, &clutter<Pool>,
         [](here& s) {
             static_cast<void>(s.pool->state());
             static_cast<void>(s.pool->report());
             static_cast<void>(s.pool->refusal(1 * MiB, 256));
             if constexpr (weir::contract::holds<weir::contract::has_owns, Pool>)
                 CHECK(s.pool->owns(s.live.begin()->first));
         }},
    };
    return all;
}

/// The same for a pool that ends its blocks all at once.
template <class Pool>
std::vector<act<scene<Pool>>> const& every_frame_act() {
    using here = scene<Pool>;
    static std::vector<act<here>> const all{
        {"allocate: the first block", no_limit, [](here&) {}, [](here& s) { s.try_allocate(s.a, 1 * KiB); }},
        {"allocate: what is left of a chunk", no_limit, [](here& s) { s.write(s.a, 1 * KiB); },
         [](here& s) { s.try_allocate(s.b, 3 * MiB); }},
        {"allocate: the next chunk", no_limit, [](here& s) { s.write(s.a, 9 * MiB); },
         [](here& s) { s.try_allocate(s.a, 9 * MiB); }},
        {"allocate: at the limit", 16 * MiB, [](here& s) { s.write(s.a, 9 * MiB); },
         [](here& s) { s.try_allocate(s.a, 9 * MiB); }},
        {"allocate: at the limit, chunks go back first", 20 * MiB,
         [](here& s) {
             s.free(s.write(s.a, 9 * MiB));
             s.pool->clear();
         },
         [](here& s) { s.try_allocate(s.a, 18 * MiB); }},
        {"a scope ends", no_limit, [](here& s) { s.write(s.a, 1 * MiB); },
         [](here& s) {
             weir::scope<Pool> const frame(*s.pool);
             for (std::size_t bytes : {2 * MiB, 9 * MiB, 9 * MiB})
                 if (void* const p =
                         s.try_allocate(s.a, bytes)) // the arena takes nothing back before the frame ends
                     s.free(p);
         },
         true},
        {"trim", no_limit, [](here& s) { s.write(s.a, 9 * MiB); }, [](here& s) { s.pool->trim(); }},
        {"settle and clear", no_limit,
         [](here& s) {
             for (int i = 0; i < 4; ++i)
                 s.free(s.write(s.a, 9 * MiB));
         },
         [](here& s) {
             s.pool->settle();
             s.pool->clear();
             s.pool->trim();
         }},
        {"what a pool says of itself", no_limit, [](here& s) { s.write(s.a, 9 * MiB); },
         [](here& s) { static_cast<void>(s.pool->report()); }},
    };
    return all;
}

/// What a pool can be asked, in the states that decide what it does.
template <class Pool>
std::vector<act<scene<Pool>>> const& every_act() {
    if constexpr (weir::contract::holds<weir::contract::has_rewind, Pool>)
        return every_frame_act<Pool>();
    else
        return every_pool_act<Pool>();
}

} // namespace faults
