// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Every CUDA call and every allocation of host memory of a container's operation fails, over real pools, whose own calls
// are among them. A container whose member threw is what it was; others never change.

#include "scene.hpp"

#include <weir/container/buffer.hpp>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>

using namespace faults;

namespace {

/// Tells the simulator of each block, so that it reports one that is freed too early or lent too soon.
template <class Pool>
class noting : public weir::resource::layered<noting<Pool>, Pool> {
    using base = weir::resource::layered<noting<Pool>, Pool>;

public:
    template <class... Arguments>
    explicit noting(Arguments&&... arguments) : base(std::in_place, std::forward<Arguments>(arguments)...) {}

    [[nodiscard]] void* try_allocate(weir::stream_ref on, std::size_t bytes,
                                     std::size_t alignment = base::default_alignment) {
        void* const p = this->pool_.try_allocate(on, bytes, alignment);
        support::enough_memory const here;
        support::note_taken(this->pool_, on, p, bytes);
        return p;
    }
    void deallocate(weir::stream_ref on, void* p, std::size_t bytes,
                    std::size_t alignment = base::default_alignment) noexcept {
        {
            support::enough_memory const here;
            if (p && support::is_noted<Pool>())
                on.is_host() ? device::note_free_host(p, bytes) : device::note_free(p, bytes, on.get());
        }
        this->pool_.deallocate(on, p, bytes, alignment);
    }
};

std::vector<int> counting(std::size_t count, int from) {
    std::vector<int> host(count);
    for (std::size_t i = 0; i < count; ++i)
        host[i] = from + static_cast<int>(i);
    return host;
}
std::vector<int> read(weir::device_vector<int> const& x) {
    return x.template to_host_sync<std::vector>();
}
std::vector<int> read(weir::pinned_vector<int> const& x) {
    return std::vector<int>(x.begin(), x.end());
}
std::vector<int> read(weir::device_buffer const& x) {
    std::vector<int> host(x.size() / sizeof(int));
    x.copy_to_sync(host.data());
    return host;
}
std::vector<int> read(weir::pinned_buffer const& x) {
    auto const* const first = static_cast<int const*>(x.data());
    return std::vector<int>(first, first + x.size() / sizeof(int));
}
std::vector<int> read(weir::device_value<int> const& x) {
    return {x.value_sync()};
}
std::vector<int> read(weir::pinned_value<int> const& x) {
    return {*x};
}

/// A container, and what it was.
template <class Container>
struct kept {
    template <class Pool, class... Arguments>
    explicit kept(Pool& pool, weir::stream_ref stream, Arguments const&... arguments)
        : it(std::make_unique<Container>(pool, stream, arguments...)) {}
    void remember() {
        contents = read(*it);
        where = it->data();
        on = it->stream();
    }
    void check_unchanged() {
        CHECK(it->data() == where);
        CHECK(it->stream() == on);
        CHECK(read(*it) == contents);
    }

    std::unique_ptr<Container> it;
    std::vector<int> contents;
    void const* where = nullptr;
    weir::stream_ref on = weir::on_host;
};

int const numbers[40] = {3, 1, 4, 1, 5, 9, 2, 6};

/// Containers of device memory on two streams and, beside them, of memory that the host reaches.
template <class Pool>
struct containers {
    explicit containers(std::size_t limit)
        : pool(made<noting<Pool>>(limit)), pinned(made<noting<weir::pinned_pool>>(no_limit)),
          x(*pool, a, counting(10, 0)), y(*pool, b, counting(20, 100)), w(*pool, a, numbers, sizeof numbers),
          v(*pool, a, 5), z(*pinned, b, counting(30, 200)), q(*pinned, a, numbers, sizeof numbers),
          u(*pinned, a, 7) {
        hear(*pool);
        hear(*pinned);
    }

    void remember() {
        refused = false;
        x.remember(), y.remember(), w.remember(), v.remember(), z.remember(), q.remember(), u.remember();
        before = pool->state();
    }
    void check_unchanged(bool) {
        CHECK(pool->state().live_blocks == before.live_blocks);
        x.check_unchanged(), w.check_unchanged(), v.check_unchanged(), z.check_unchanged(),
            q.check_unchanged();
        u.check_unchanged();
    }
    std::size_t lost_bytes() const { return pool->state().lost_bytes + pinned->state().lost_bytes; }
    void check(bool may_lose) {
        CHECK((may_lose || lost_bytes() == 0));
        may_lose = lost_bytes() != 0;
        y.check_unchanged(); // every act only reads it
        CHECK(pool->state().live_blocks == live(x) + live(y) + live(w) + live(v));
        CHECK(pinned->state().live_blocks == live(z) + live(q) + live(u));
        x.it->assign(numbers, 40), x.it->append(*y.it), z.it->append(counting(3, 0));
        CHECK(x.it->element_sync(59) == 119);
        end();
        for (int i = 0; i < 2; ++i) {
            pool->settle(), pinned->settle();
            pool->trim(), pinned->trim();
        }
        CHECK(pool->state().live_blocks == 0);
        CHECK(pinned->state().live_blocks == 0);
        CHECK((may_lose || pool->state().reserved_bytes == 0));
        CHECK((may_lose || pinned->state().reserved_bytes == 0));
    }
    void end() {
        x.it.reset(), y.it.reset(), w.it.reset(), v.it.reset(), z.it.reset(), q.it.reset(), u.it.reset();
    }
    void abandon() {
        end();
        pool.reset(), pinned.reset();
    }

    stage::stream a, b;
    std::unique_ptr<noting<Pool>> pool;
    std::unique_ptr<noting<weir::pinned_pool>> pinned;
    kept<weir::device_vector<int>> x, y;
    kept<weir::device_buffer> w;
    kept<weir::device_value<int>> v;
    kept<weir::pinned_vector<int>> z;
    kept<weir::pinned_buffer> q;
    kept<weir::pinned_value<int>> u;
    weir::memory_report before;
    bool refused = false;
    std::string reason;

private:
    template <class Container>
    static std::size_t live(kept<Container>& one) {
        return one.it && one.it->data() ? 1 : 0;
    }
};

/// Every operation that allocates, frees or calls CUDA. Frees are part of most.
template <class Pool>
std::vector<act<containers<Pool>>> const& every_container_act() {
    using here = containers<Pool>;
    using weir::device_buffer;
    using weir::device_value;
    using weir::device_vector;
    using weir::pinned_buffer;
    using weir::pinned_value;
    using weir::pinned_vector;
    static auto const plain = [](here&) {};
    static auto const reserved = [](here& s) {
        s.x.it->reserve(100), s.w.it->reserve(1000), s.z.it->reserve(100);
    };
    static std::vector<act<here>> const all{
        {"a vector of a size", no_limit, plain, [](here& s) { device_vector<int>(*s.pool, s.b, 5); }, true},
        {"a large vector", no_limit, plain, [](here& s) { device_vector<int>(*s.pool, s.b, 40 * MiB); },
         true},
        {"a vector of the host's", no_limit, plain,
         [](here& s) { device_vector<int>(*s.pool, s.b, counting(5, 0)); }, true},
        {"a vector of another stream's", no_limit, plain,
         [](here& s) { device_vector<int>(*s.pool, s.a, *s.y.it); }, true},
        {"a vector of a pinned one", no_limit, plain,
         [](here& s) { device_vector<int>(*s.pool, s.a, *s.z.it); }, true},
        {"a buffer of another stream's", no_limit, plain,
         [](here& s) { device_buffer(*s.pool, s.b, *s.w.it); }, true},
        {"a value", no_limit, plain, [](here& s) { device_value<int>(*s.pool, s.b, 7); }, true},
        {"a value of another stream's", no_limit, plain,
         [](here& s) { device_value<int>(*s.pool, s.b, *s.v.it); }, true},
        {"a pinned vector", no_limit, plain,
         [](here& s) { pinned_vector<int>(*s.pinned, s.b, counting(5, 0)); }, true},
        {"a pinned buffer", no_limit, plain, [](here& s) { pinned_buffer(*s.pinned, s.b, *s.q.it); }, true},
        {"a pinned value", no_limit, plain, [](here& s) { pinned_value<int>(*s.pinned, s.b, 7); }, true},
        {"reserve", no_limit, plain, [](here& s) { s.x.it->reserve(100); }, true},
        {"resize", no_limit, plain, [](here& s) { s.x.it->resize(100); }, true},
        {"resize within the capacity", no_limit, reserved, [](here& s) { s.x.it->resize(50); }},
        {"shrink_to_fit", no_limit, reserved, [](here& s) { s.x.it->shrink_to_fit(); }, true},
        {"shrink_to_fit to nothing", no_limit, plain,
         [](here& s) {
             device_vector<int> empty(*s.pool, s.b, 10);
             empty.clear();
             empty.shrink_to_fit();
         },
         true},
        {"assign from the host", no_limit, plain, [](here& s) { s.x.it->assign(counting(10, 50)); }},
        {"assign more from the host", no_limit, plain, [](here& s) { s.x.it->assign(counting(11, 50)); },
         true},
        {"assign from another stream's", no_limit, reserved, [](here& s) { s.x.it->assign(*s.y.it); }, true},
        {"assign from a pinned one", no_limit, plain, [](here& s) { s.x.it->assign(*s.z.it); }, true},
        {"assign a part of itself", no_limit, plain, [](here& s) { s.x.it->assign(s.x.it->data() + 3, 4); },
         true},
        {"append from the host", no_limit, plain, [](here& s) { s.x.it->append(counting(5, 50)); }, true},
        {"append within the capacity", no_limit, reserved, [](here& s) { s.x.it->append(counting(5, 50)); }},
        {"append another stream's", no_limit, plain, [](here& s) { s.x.it->append(*s.y.it); }, true},
        {"append another stream's within the capacity", no_limit, reserved,
         [](here& s) { s.x.it->append(*s.y.it); }},
        {"append itself", no_limit, plain, [](here& s) { s.x.it->append(*s.x.it); }, true},
        {"buffer: append another stream's", no_limit, plain, [](here& s) { s.w.it->append(*s.y.it); }, true},
        {"buffer: resize", no_limit, plain, [](here& s) { s.w.it->resize(10000); }, true},
        {"buffer: copy_to_sync", no_limit, plain, [](here& s) { read(*s.w.it); }},
        {"buffer: zero_async", no_limit, plain, [](here& s) { s.w.it->zero_async(); }},
        {"set_stream", no_limit, plain, [](here& s) { s.x.it->set_stream(s.b); }},
        {"set_stream of a pinned one", no_limit, plain, [](here& s) { s.z.it->set_stream(s.a); }},
        {"used_on", no_limit, plain, [](here& s) { s.x.it->used_on(s.b); }},
        {"used_on of a pinned one", no_limit, plain, [](here& s) { s.z.it->used_on(s.a); }},
        {"last_used_on", no_limit, plain, [](here& s) { s.x.it->last_used_on(s.b); }},
        {"growth of one that another stream uses", no_limit, [](here& s) { s.x.it->used_on(s.b); },
         [](here& s) { s.x.it->reserve(10000); }, true},
        {"the end of one that another stream used", no_limit, [](here& s) { s.x.it->used_on(s.b); },
         [](here& s) { *s.x.it = device_vector<int>(*s.pool, s.a); }, true},
        {"a move over another", no_limit, plain,
         [](here& s) {
             device_vector<int> other(*s.pool, s.b, counting(7, 0));
             *s.x.it = std::move(other);
         },
         true},
        {"element_sync", no_limit, plain, [](here& s) { s.x.it->element_sync(3); }},
        {"to_host_sync", no_limit, plain, [](here& s) { s.x.it->template to_host_sync<std::vector>(); }},
        {"set_element_async", no_limit, plain, [](here& s) { s.x.it->set_element_async(3, 4); }},
        {"zero_async", no_limit, plain, [](here& s) { s.x.it->zero_async(); }},
        {"copy_to_async", no_limit, [](here& s) { s.z.it->set_stream(s.a); },
         [](here& s) { s.x.it->copy_to_async(s.z.it->data()); }},
        {"value: set_async", no_limit, plain, [](here& s) { s.v.it->set_async(6); }},
        {"value: value_sync", no_limit, plain, [](here& s) { s.v.it->value_sync(); }},
        {"value: zero_async", no_limit, plain, [](here& s) { s.v.it->zero_async(); }},
        {"value: copy_to_async", no_limit, plain,
         [](here& s) {
             pinned_value<int> to(*s.pinned, s.a, 0);
             s.v.it->copy_to_async(to.data());
         },
         true},
        {"value: set_stream", no_limit, plain, [](here& s) { s.v.it->set_stream(s.b); }},
        {"value: used_on", no_limit, plain, [](here& s) { s.v.it->used_on(s.b); }},
        {"pinned: append", no_limit, plain, [](here& s) { s.z.it->append(counting(5, 0)); }, true},
        {"pinned: push_back", no_limit, plain, [](here& s) { s.z.it->push_back(5); }, true},
        {"pinned: resize", no_limit, plain, [](here& s) { s.z.it->resize(1 * MiB); }, true},
        {"pinned: shrink_to_fit", no_limit, reserved, [](here& s) { s.z.it->shrink_to_fit(); }, true},
        {"pinned: assign", no_limit, plain, [](here& s) { s.z.it->assign(counting(50, 0)); }, true},
        {"pinned buffer: append", no_limit, plain, [](here& s) { s.q.it->append(numbers, 4); }, true},
        {"at the limit, what another stream still uses", 4 * MiB,
         [](here& s) {
             device_vector<int> gone(*s.pool, s.b, 512 * KiB);
             gone.zero_async();
         },
         [](here& s) { device_vector<int>(*s.pool, s.a, 512 * KiB); }, true},
    };
    return all;
}

} // namespace

TEST_CASE_TEMPLATE("containers: every call fails", Pool, weir::device_pool, weir::compact_device_pool,
                   weir::pinned_pool, weir::driver_pool, weir::pinned_driver_pool) {
    CHECK(strike_everywhere(every_container_act<Pool>()) > 500);
}

TEST_CASE_TEMPLATE("containers: the host has no memory", Pool, weir::device_pool, weir::promised_device_pool,
                   weir::pinned_pool, weir::managed_pool, weir::driver_pool) {
    CHECK(starve_everywhere(every_container_act<Pool>()) > 20);
}

#endif
