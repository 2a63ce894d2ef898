// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How the pool contract makes a pool and looks at it. A pool that is not made of pool_options, or that cannot serve
// every size, has a specialisation of 'subject' in the file that lists it. The cases are in pool_suite.hpp.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <support/every_schedule.hpp>
#include <support/filled.hpp>
#include <support/noted.hpp>
#include <support/sentence.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/order/order_after.hpp>
#include <weir/pool/scope.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/stream.hpp>

namespace pool_contract {

using weir::check_cuda;
using weir::KiB;
using weir::MiB;
using weir::on_host;
using weir::stream_ref;

/// How a pool is made, and what it cannot do.
template <class Pool>
struct subject {
    static constexpr std::size_t largest_bytes = SIZE_MAX; // of a block
    static constexpr std::size_t largest_alignment = SIZE_MAX / 2 + 1;
    static constexpr bool frees = true; // a block's bytes can be handed out again once it is freed

    subject() = default;
    explicit subject(std::size_t limit_bytes) : pool(weir::pool_options{}.limit(limit_bytes)) {}
    Pool pool{weir::pool_options{}.name("subject")};
};

/// Whether it can be told how much it may hold.
template <class Pool>
inline constexpr bool has_limit = true;

/// Whether memory may be for a thread's own default stream.
template <class Pool>
inline constexpr bool knows_thread_streams = true;

template <class Pool>
void fill(void* p, int value, std::size_t bytes, stream_ref stream) {
    if (bytes == 0)
        return;
    if (weir::base::device_accessible(Pool::space) && !stream.is_host()) {
        check_cuda(cudaMemsetAsync(p, value, bytes, stream.get()), "cudaMemsetAsync");
    } else if (weir::base::host_accessible(Pool::space)) {
        std::memset(p, value, bytes);
    } else {
        check_cuda(cudaMemset(p, value, bytes), "cudaMemset");
        check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
}

template <class Pool>
bool is_filled(void* p, int value, std::size_t bytes) {
    std::vector<unsigned char> host(bytes);
    if (weir::base::host_accessible(Pool::space))
        std::memcpy(host.data(), p, bytes);
    else
        check_cuda(cudaMemcpy(host.data(), p, bytes, cudaMemcpyDefault), "cudaMemcpy");
    return support::filled(host, static_cast<unsigned char>(value));
}

/// The blocks that are out, as a map of what lies where.
class live_blocks {
public:
    struct block {
        std::size_t bytes, alignment;
        int value;
    };

    /// Whether the block overlaps no other.
    bool add(void* p, block what) {
        auto const begin = reinterpret_cast<std::uintptr_t>(p);
        auto const next = blocks_.lower_bound(begin);
        if (next != blocks_.end() && next->first < begin + what.bytes)
            return false;
        if (next != blocks_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin)
            return false;
        blocks_[begin] = what;
        bytes_ += what.bytes;
        return true;
    }
    std::pair<void*, block> take(std::uint64_t nth) {
        auto found = blocks_.begin();
        std::advance(found, static_cast<long>(nth % blocks_.size()));
        std::pair<void*, block> const taken(reinterpret_cast<void*>(found->first), found->second);
        bytes_ -= taken.second.bytes;
        blocks_.erase(found);
        return taken;
    }
    void remove(void* p) {
        auto const found = blocks_.find(reinterpret_cast<std::uintptr_t>(p));
        bytes_ -= found->second.bytes;
        blocks_.erase(found);
    }
    std::size_t size() const { return blocks_.size(); }
    std::size_t bytes() const { return bytes_; }

private:
    std::map<std::uintptr_t, block> blocks_;
    std::size_t bytes_ = 0;
};

template <class Pool, class = void>
struct owns_memory : std::false_type {};
template <class Pool>
struct owns_memory<Pool, std::void_t<decltype(std::declval<Pool const&>().owns(nullptr))>> : std::true_type {};
template <class Pool, class = void>
struct can_trim : std::false_type {};
template <class Pool>
struct can_trim<Pool, std::void_t<decltype(std::declval<Pool&>().trim())>> : std::true_type {};
template <class Pool, class = void>
struct can_mark : std::false_type {};
template <class Pool>
struct can_mark<Pool, std::void_t<decltype(std::declval<Pool&>().mark())>> : std::true_type {};

/// A size that the pool can serve: many small ones, some large.
template <class Pool>
std::size_t some_bytes(std::mt19937_64& draw) {
    std::size_t const shift = draw() % 20;
    return std::min<std::size_t>(subject<Pool>::largest_bytes, draw() % (std::size_t{1} << shift) + 1);
}
template <class Pool>
std::size_t some_alignment(std::mt19937_64& draw) {
    return std::min<std::size_t>(subject<Pool>::largest_alignment, std::size_t{1} << draw() % 13);
}

/// Blocks of pools over memory marks end without a free.
template <class Pool>
void end_blocks(Pool& pool) {
    if constexpr (can_mark<Pool>::value)
        pool.clear();
    else
        static_cast<void>(pool);
}

} // namespace pool_contract
