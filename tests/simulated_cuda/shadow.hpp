// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Who used which bytes last, and whose are they now?
//
// An interval map over driver memory. Each segment of bytes has a life (the driver's allocation, or a pool's
// block inside it) and the accesses that a later one must be ordered after: the last writes, and the reads
// since. An access is a stream and the number of its operation, so 'ordered' is one look at a vector clock.
//
// invariant: segments are disjoint and cover exactly the live driver allocations.
// invariant: accesses that are ordered before a recorded write are dropped, so a segment's list is short.
// invariant: what is withdrawn is in no segment.
// cost:      logarithmic in segments, linear in those touched; nothing per byte.

#include "clock.hpp"
#include <weir/simulated_device/control.hpp>

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace simulated_device::inside {

struct world_state;
struct stream_record;
struct graph_state;

constexpr int no_device = -1;

/// A span of time in which bytes are one thing.
struct life {
    std::uintptr_t base = 0;
    std::size_t bytes = 0;
    bool block = false; ///< a pool's block, and not the driver's allocation itself
    bool live = true;
    bool pooled = false; ///< driver's: a pool cuts it up
    bool mapped = false; ///< driver's: by cuMemMap
    std::uint64_t number = 0;
    std::uint64_t born = 0; ///< call number
    std::uint64_t died = 0;
    std::string owner; ///< "stream 3" or "the host"
    std::string death;
    std::weak_ptr<graph_state> graph;    ///< born in this capture
    std::weak_ptr<graph_state> freed_in; ///< given back in this capture
    std::vector<stream_record*> used_on; ///< streams for whose work the free waits, too
    vector_clock last_uses;              ///< work on other streams for which it waits
};

struct past_access {
    std::size_t component = 0; ///< stream's, or 0 for the host
    std::uint64_t number = 0;
    bool write = false;
    bool marker = false; ///< stands for all that was enqueued before a free
    std::uint64_t call = 0;
    char const* what = "";
    std::uint64_t of = 0;             ///< number of the life that was used
    std::weak_ptr<graph_state> graph; ///< captured: node 'number' of it
    bool captured = false;
};

/// A use that a graph will repeat at each launch.
struct captured_use {
    std::uintptr_t at;
    std::size_t bytes;
    bool write;
    std::shared_ptr<life> of;
    std::size_t node;
    char const* what;
    int device; ///< that must have access; no_device: none must
};

/// No node of a graph.
constexpr std::size_t no_node = static_cast<std::size_t>(-1);

/// The point from which an access is judged.
struct viewpoint {
    stream_record* stream = nullptr; ///< null: the host
    std::uint64_t number = 0;        ///< of the operation; 0: what comes next on the stream
    vector_clock const* clock = nullptr;
    graph_state* capture = nullptr; ///< captured, and no clock
    std::size_t node = no_node; ///< that makes the access, if it is captured
    std::vector<std::size_t> const* frontier = nullptr;
    char const* what = "";
    int device = no_device; ///< that must have access to mapped memory
};

class shadow {
public:
    struct segment {
        std::uintptr_t end = 0;
        std::shared_ptr<life> now;
        std::vector<past_access> past;
    };

    /// A driver allocation begins; with a stream, its use is ordered after that stream's present end.
    void born(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const* from = nullptr);
    void died(world_state& world, std::uintptr_t at, std::size_t bytes, char const* how);
    /// Addresses are about to lose their memory: whose the blocks are there is kept.
    void withdrawn(std::uintptr_t at, std::size_t bytes);
    /// There is memory again: what lives on belongs to whom it did.
    void restored(std::uintptr_t at, std::size_t bytes);
    /// The addresses themselves go.
    void forget(std::uintptr_t at, std::size_t bytes);
    /// Simulated work or the host uses bytes; complains where it may not. Unknown host memory is ignored.
    void use(world_state& world, void const* at, std::size_t bytes, bool write, viewpoint const& from);
    void hand_out(world_state& world, void const* at, std::size_t bytes, viewpoint const& from);
    /// A block is about to be freed: complains, once, of work that uses it and that this does not come after, save what was
    /// noted for the block.
    void expect_used_before(world_state& world, void const* at, std::size_t bytes, viewpoint const& from);
    /// `strictly`: all that the stream was given counts as uses.
    void take_back(world_state& world, void const* at, std::size_t bytes, viewpoint const& from, bool strictly);
    /// The live block at an address; null: there is none.
    life* block_at(void const* at);
    /// Memory is about to go without a wait: every use must be over for the host.
    void expect_over(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const& from,
                     char const* verb);
    /// A graph's use at a launch.
    void repeat(world_state& world, captured_use const& use, viewpoint const& from, graph_state const& graph);

private:
    using segments = std::map<std::uintptr_t, segment>;
    using pieces = std::vector<segments::iterator>;

    segments::iterator cut(std::uintptr_t at);
    /// Segments of [at, at + bytes), cut at both ends; complains of holes unless the memory is none of ours.
    pieces find(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const& from,
                char const* verb);
    bool ordered(world_state const& world, past_access const& past, viewpoint const& from) const;
    void record(world_state& world, segments::iterator where, bool write, bool marker, viewpoint const& from);
    /// Complains, once, of the accesses in 'where' that this one conflicts with, and forgets them.
    void judge(world_state& world, segments::iterator where, bool write, viewpoint const& from, finding kind,
               char const* verb);
    void join(pieces const& range);
    /// What a free from there comes after, with what was noted for the block.
    vector_clock before_free(world_state const& world, life const& block, viewpoint const& from) const;
    /// Gives back a block that has no memory now, or not everywhere. False: there is none.
    bool take_back_withdrawn(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const& from);

    segments segments_;
    segments withdrawn_; ///< blocks, or parts of them, behind whose addresses there is no memory; no accesses
    std::map<std::uintptr_t, life> dead_; ///< driver allocations that were freed, for wording
    std::uint64_t lives_ = 0;
};

/// "kernel on stream 3 (call 12)".
std::string describe(world_state const& world, viewpoint const& from);

} // namespace simulated_device::inside
