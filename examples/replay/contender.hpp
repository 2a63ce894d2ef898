// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which pools are compared, and what must each be able to do?
//
// A contender is a name and a way to open a session: one pool, cold, that allocates, frees and says what it
// holds. To add a pool: derive from session_of in a file of its own, declare its 'open' below, add a line to
// contenders.cpp.
//
// invariant: when a session ends, all that its pool held is back with the driver.
// order:     a block that is freed on another stream than it was allocated on was handed over by the program, in a way
//            that the trace does not hold: 'order_free' does it anew, as the pool wants it.
// cost:      the timed loop calls the pool's adapter directly, not through a virtual function.

#include "ledger.hpp"
#include "trace.hpp"
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace replay {

/// Blocks that are out, by block number; null: not allocated, refused, or freed.
using block_table = std::vector<void*>;

/// One pool in a fresh state.
class session {
public:
    virtual ~session() = default;

    /// Memory for work on `stream`; null: the pool has no room. Throws weir::cuda_error when CUDA fails
    /// otherwise.
    virtual void* watched_allocate(cudaStream_t stream, std::size_t bytes) = 0;
    /// Takes back what `watched_allocate` or `run` allocated.
    virtual void watched_deallocate(cudaStream_t stream, void* p, std::size_t bytes) noexcept = 0;

    /// Comes before the free of a block that was allocated on another stream. What the pool counts on is said to CUDA:
    /// where it takes the free's stream for the only one, that stream waits for the other. Throws weir::cuda_error.
    virtual void order_free(cudaStream_t freeing, cudaStream_t allocating) = 0;

    /// Comes before each event that is watched, for a session that does more than the events say. Returns when, by the trace's
    /// clock, it did so; none: it did nothing. Throws weir::cuda_error.
    virtual std::optional<std::uint64_t> before(std::size_t event) {
        static_cast<void>(event);
        return {};
    }
    /// The pool's own, where it has them. They throw weir::cuda_error.
    virtual void settle() {}
    virtual void trim() {}

    /// Bytes of the blocks that are out, with what the pool rounds them up by. Only of watched blocks, if the
    /// pool does not count them itself.
    virtual std::size_t handed_out_bytes() const = 0;
    /// Bytes held from the driver now.
    virtual std::size_t reserved_bytes() const = 0;
    /// Where its calls are entered.
    virtual ledger const& book() const = 0;
    /// The same, for a second pool beside it, whose calls and bytes are to be counted with its own; null: it shares it with none.
    virtual ledger* shared_book() noexcept { return nullptr; }

    /// The loop that is timed: every event and nothing else. Returns how many allocations and frees it made.
    virtual std::uint64_t run(std::vector<event> const& events, std::vector<cudaStream_t> const& streams,
                              block_table& blocks) = 0;
};

/// Makes what is enqueued on `later` from now on run after what is enqueued on `earlier` so far. Throws weir::cuda_error.
void put_after(cudaStream_t later, cudaStream_t earlier);

/// A session whose loop knows the adapter's type. `Session` derives from this and has 'allocate' and
/// 'deallocate', which do nothing but call the pool; an error of cudaFree stays with CUDA, and the next
/// allocation meets it.
template <class Session>
class session_of : public session {
public:
    void* watched_allocate(cudaStream_t stream, std::size_t bytes) final {
        void* const p = self().allocate(stream, bytes);
        if (p)
            self().note_allocate(p, bytes);
        return p;
    }

    void watched_deallocate(cudaStream_t stream, void* p, std::size_t bytes) noexcept final {
        self().note_deallocate(p, bytes);
        self().deallocate(stream, p, bytes);
    }

    void order_free(cudaStream_t freeing, cudaStream_t allocating) override { put_after(freeing, allocating); }

    std::uint64_t run(std::vector<event> const& events, std::vector<cudaStream_t> const& streams,
                      block_table& blocks) final {
        std::uint64_t operations = 0;
        for (event const& e : events) {
            void*& block = blocks[e.block];
            if (!e.is_free) {
                block = self().allocate(streams[e.stream], e.bytes);
                ++operations;
            } else if (block) {
                if (e.stream != e.allocated_on)
                    self().order_free(streams[e.stream], streams[e.allocated_on]);
                self().deallocate(streams[e.stream], block, e.bytes);
                block = nullptr;
                ++operations;
            }
        }
        return operations;
    }

protected:
    /// For pools that do not know how many bytes they handed out.
    void note_allocate(void*, std::size_t) noexcept {}
    void note_deallocate(void*, std::size_t) noexcept {}

private:
    Session& self() noexcept { return static_cast<Session&>(*this); }
};

struct contender {
    std::string_view name;
    std::string_view what;                                     ///< one line that explains it
    std::function<std::unique_ptr<session>(std::size_t limit_bytes)> open; ///< a fresh pool on the current device
    bool is_weirs = false;    ///< weir decides what it holds
    bool is_drivers = false;  ///< the driver does, and the simulated device only guesses how
    bool is_recipe = false;   ///< one of weir's that has a name there
};

/// All of them, in the order of the table.
std::vector<contender> const& contenders();

std::unique_ptr<session> open_device_pool(std::size_t limit_bytes);
std::unique_ptr<session> open_compact_device_pool(std::size_t limit_bytes);
std::unique_ptr<session> open_promised_device_pool(std::size_t limit_bytes);
std::unique_ptr<session> open_composed_pool(std::size_t limit_bytes);
std::unique_ptr<session> open_driver_pool(std::size_t limit_bytes);
std::unique_ptr<session> open_cuda_malloc(std::size_t limit_bytes);
std::unique_ptr<session> open_cub(std::size_t limit_bytes);
std::unique_ptr<session> open_thrust(std::size_t limit_bytes);

} // namespace replay
