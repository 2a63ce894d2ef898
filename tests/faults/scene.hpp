// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What state is a pool in when a call fails, and what must be true of it afterwards?
//
// A scene is a pool with live blocks on several streams, and freed ones in every state that a reuse rule knows: open,
// covered and in flight, covered and over, deferred, the host's. Operations are made on it; 'check' holds it against
// the scene's own books, and to the promise that everything works again and comes back.

#include "shield.hpp"

#include <map>
#include <memory>
#include <reuse/stage.hpp>
#include <string>
#include <utility>
#include <vector>
#include <weir/recipes.hpp>

namespace faults {

namespace device = simulated_cuda;
using weir::KiB;
using weir::MiB;

struct live_block {
    std::size_t bytes = 0;
    cudaStream_t on = nullptr;
};

template <class Pool>
class scene {
public:
    explicit scene(std::size_t limit) : pool(std::make_unique<Pool>(weir::pool_options{}.limit(limit).on_leak(
                                            weir::leak_action::ignore))) {}

    void* try_allocate(cudaStream_t on, std::size_t bytes) {
        void* const p = pool->try_allocate(on, bytes);
        if (p) {
            shield::pause const here;
            if (Pool::stream_ordered)
                device::note_allocate(p, bytes, on);
            else
                device::note_allocate_host(p, bytes);
            live[p] = {bytes, on};
        }
        return p;
    }
    void* write(cudaStream_t on, std::size_t bytes) {
        void* const p = try_allocate(on, bytes);
        REQUIRE(p != nullptr);
        launch(on, p);
        return p;
    }
    void launch(cudaStream_t on, void* p) {
        shield::pause const here;
        if (Pool::stream_ordered)
            CHECK(device::launch(on, {}, {{p, live.at(p).bytes}}) == cudaSuccess);
    }
    /// Frees a block in the order of its stream, in flight where the pool's rule allows it.
    void free(void* p) {
        live_block const gone = live.at(p);
        {
            shield::pause const here;
            if (Pool::stream_ordered)
                device::note_free(p, gone.bytes, gone.on);
            else
                device::note_free_host(p, gone.bytes);
            live.erase(p);
        }
        pool->deallocate(gone.on, p, gone.bytes);
    }

    /// The pool's books are the scene's, and everything works. `may_lose`: a free may have lost its bytes.
    void check(std::size_t limit, bool may_lose = false) {
        {
            weir::memory_report const facts = pool->facts();
            std::size_t bytes = 0;
            for (auto const& each : live)
                bytes += Pool::placement_type::rounded(each.second.bytes, 256);
            CHECK(facts.live_blocks == live.size());
            CHECK(facts.in_use_bytes == bytes);
            CHECK(facts.reserved_bytes >= bytes);
            CHECK(facts.reserved_bytes <= limit);
        }
        for (auto const& each : live) // nobody else has them
            launch(each.second.on, each.first);
        while (!live.empty())
            free(live.begin()->first);
        for (cudaStream_t on : {static_cast<cudaStream_t>(a), static_cast<cudaStream_t>(b), static_cast<cudaStream_t>(c)})
            for (std::size_t const bytes : {2 * KiB, 100 * KiB})
                if (void* const p = try_allocate(on, bytes)) {
                    launch(on, p);
                    free(p);
                } else {
                    CHECK(may_lose);
                }
        for (int i = 0; i < 2; ++i) {
            pool->settle();
            pool->trim();
            CHECK(pool->facts().live_blocks == 0);
            if (!may_lose) {
                CHECK(pool->reserved_bytes() == 0);
                free(write(b, 1 * MiB));
            }
        }
        pool->trim();
    }

    stage::stream a, b, c;
    std::unique_ptr<Pool> pool;
    std::map<void*, live_block> live;
};

/// An operation, and the state that it starts from.
template <class Pool>
struct act {
    char const* name;
    std::size_t limit;
    void (*prepare)(scene<Pool>&);
    void (*attempt)(scene<Pool>&);
};

template <class Reuse>
inline constexpr bool promises = false;
template <class Handover, class Tuning>
inline constexpr bool promises<weir::reuse::stream_ordered<weir::identity::promised, Handover, Tuning>> = true;

/// A pool that tells its parts.
template <class Reuse, class Placement, class Upstream = weir::upstream::device>
class pool : public weir::pool<Upstream, Placement, Reuse, weir::growth::exact> {
public:
    using placement_type = Placement;
    static constexpr bool streams_may_go = !promises<Reuse>;
    using weir::pool<Upstream, Placement, Reuse, weir::growth::exact>::pool;
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
    if constexpr (weir::contracts::has_used_on<Pool, weir::stream_ref>) {
        void* const p = s.write(s.a, 5 * MiB);
        s.pool->used_on(p, s.b);
        s.free(p);
    }
    void* const h = s.pool->allocate_sync(7 * MiB);
    s.pool->deallocate_sync(h, 7 * MiB);
}

/// Every public operation that may call CUDA, in the states that decide what it does.
template <class Pool>
std::vector<act<Pool>> const& every_act() {
    using here = scene<Pool>;
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    static std::vector<act<Pool>> const all{
        {"allocate: the first block", none, [](here&) {}, [](here& s) { s.try_allocate(s.a, 1 * KiB); }},
        {"allocate: a large block, a stream that is new", none, [](here& s) { s.write(s.a, 1 * KiB); },
         [](here& s) { s.try_allocate(s.b, 3 * MiB); }},
        {"allocate: of the size that was freed", none, [](here& s) { s.free(s.write(s.a, 100 * KiB)); },
         [](here& s) { s.try_allocate(s.a, 100 * KiB); }},
        {"allocate: of a smaller size than was freed", none, [](here& s) { s.free(s.write(s.a, 2 * MiB)); },
         [](here& s) { s.try_allocate(s.a, 1 * MiB); }},
        {"allocate: what another stream is done with", none,
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
         [](here& s) {
             s.free(s.write(s.a, 6 * MiB));
         },
         [](here& s) { s.try_allocate(s.b, 6 * MiB); }},
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
         [](here& s) {
             void* const p = s.try_allocate(s.c, 2 * MiB);
             CHECK(p == nullptr);
         }},
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
             if constexpr (weir::contracts::has_used_on<Pool, weir::stream_ref>) {
                 void* const p = s.write(s.a, 4 * MiB);
                 s.pool->used_on(p, s.b);
                 s.pool->used_on(p, s.c);
                 s.free(p);
             }
         },
         [](here& s) { s.try_allocate(s.a, 4 * MiB); }},
        {"allocate: another stream's block that a second one used", 4 * MiB,
         [](here& s) {
             if constexpr (weir::contracts::has_used_on<Pool, weir::stream_ref>) {
                 void* const p = s.write(s.a, 4 * MiB);
                 s.pool->used_on(p, s.b);
                 s.free(p);
             }
         },
         [](here& s) { s.try_allocate(s.c, 4 * MiB); }},
        {"allocate: on a stream that bears an old handle", 4 * MiB,
         [](here& s) {
             if constexpr (!Pool::streams_may_go)
                 return;
             s.free(s.write(s.b, 100 * KiB));
             s.b.destroy();
             cudaStream_t fresh = nullptr;
             CHECK(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking) == cudaSuccess);
             s.b.reset(fresh);
         },
         [](here& s) { s.try_allocate(s.b, 100 * KiB); }},
        {"allocate and deallocate: on the default streams", none, [](here&) {},
         [](here& s) {
             void* const p = s.try_allocate(cudaStreamLegacy, 1 * KiB);
             if (p)
                 s.free(p);
             void* const q = s.try_allocate(cudaStreamPerThread, 1 * KiB);
             if (q)
                 s.free(q);
         }},
        {"allocate_sync and deallocate_sync", 4 * MiB, [](here& s) { s.free(s.write(s.a, 4 * MiB)); },
         [](here& s) {
             void* const p = s.pool->try_allocate(weir::on_host, 4 * MiB);
             if (!p)
                 return;
             {
                 shield::pause const pause;
                 device::note_allocate_host(p, 4 * MiB);
                 device::note_free_host(p, 4 * MiB);
             }
             s.pool->deallocate_sync(p, 4 * MiB);
         }},
        {"deallocate: small and large", none,
         [](here& s) {
             s.write(s.a, 1 * KiB);
             s.write(s.a, 6 * MiB);
         },
         [](here& s) {
             while (!s.live.empty())
                 s.free(s.live.begin()->first);
         }},
        {"deallocate: many", none,
         [](here& s) {
             for (int i = 0; i < 70; ++i)
                 s.write(s.a, 1 * KiB);
         },
         [](here& s) {
             while (!s.live.empty())
                 s.free(s.live.begin()->first);
         }},
        {"deallocate: on a stream that is new to the pool", none,
         [](here& s) {
             s.write(s.a, 1 * MiB);
             CHECK(cudaStreamSynchronize(s.a) == cudaSuccess);
         },
         [](here& s) {
             auto const block = s.live.begin();
             block->second.on = s.b;
             s.free(block->first);
         }},
        {"deallocate: a block that a second stream used", none,
         [](here& s) {
             if constexpr (weir::contracts::has_used_on<Pool, weir::stream_ref>) {
                 s.pool->used_on(s.write(s.a, 1 * KiB), s.b);
                 s.pool->used_on(s.write(s.a, 6 * MiB), s.b);
             }
         },
         [](here& s) {
             while (!s.live.empty())
                 s.free(s.live.begin()->first);
         }},
        {"used_on", none, [](here& s) { s.write(s.a, 1 * MiB); },
         [](here& s) {
             if constexpr (weir::contracts::has_used_on<Pool, weir::stream_ref>) {
                 void* const p = s.live.begin()->first;
                 s.pool->used_on(p, s.b);
                 s.pool->used_on(p, s.b);
                 s.pool->used_on(p, cudaStreamPerThread);
             }
         }},
        {"trim", none, &clutter<Pool>, [](here& s) { s.pool->trim(); }},
        {"trim, some of it", none, &clutter<Pool>, [](here& s) { s.pool->trim(4 * MiB); }},
        {"settle", none, &clutter<Pool>, [](here& s) { s.pool->settle(); }},
        {"settle and trim", none, &clutter<Pool>,
         [](here& s) {
             s.pool->settle();
             s.pool->trim();
         }},
        {"what a pool says of itself", none, &clutter<Pool>,
         [](here& s) {
             static_cast<void>(s.pool->facts());
             static_cast<void>(s.pool->report());
             static_cast<void>(s.pool->refusal(1 * MiB, 256));
             CHECK(s.pool->owns(s.live.begin()->first));
         }},
    };
    return all;
}

} // namespace faults
