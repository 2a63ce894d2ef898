// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is a captured graph?
//
// Nodes in the order of capture, each with the nodes that it follows and all its ancestors as bits, so that
// 'ordered inside the capture' is one bit. The streams of a capture keep the nodes that their next operation
// follows. The uses of memory that were captured are kept, because every launch repeats them: for as long as
// a graph or an executable of it lives, bytes whose life began in it belong to nobody else.
//
// invariant: a node's number is larger than its ancestors', so the order of capture is an order to run in.

#include "state.hpp"

struct CUgraphNode_st {
    simulated_device::inside::graph_state* graph = nullptr;
    std::size_t index = 0;
};

namespace simulated_device::inside {

struct graph_node {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    std::vector<std::size_t> follows;
    std::vector<bool> ancestors;
    char const* what = "";
    bool foreign = false;
    std::function<void()> body;
    event_record* event = nullptr; ///< external record or wait
    std::vector<wait> waits;
    std::uintptr_t memory = 0; ///< of an allocation or free node
    std::size_t bytes = 0;
    cudaError_t failure = cudaSuccess;
};

/// The references to user objects of one graph or executable, which a launch keeps until it has run.
struct object_refs {
    explicit object_refs(world_state& in) : world(in) {}
    ~object_refs();
    object_refs(object_refs const&) = delete;
    object_refs& operator=(object_refs const&) = delete;

    world_state& world;
    std::map<cudaUserObject_t, unsigned> counts;
    vector_clock past; ///< launches that kept them
};

struct graph_state {
    explicit graph_state(world_state& in) : world(in) {}
    ~graph_state(); ///< its memory goes with it, but for what a launch allocated and nobody has freed
    graph_state(graph_state const&) = delete;
    graph_state& operator=(graph_state const&) = delete;

    world_state& world;
    std::uint64_t id = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    bool active = true;
    bool invalid = false;
    std::uint64_t thread = 0;
    int device = 0;
    stream_record* origin = nullptr;
    std::vector<stream_record*> streams; ///< in the capture
    std::vector<graph_node> nodes;
    std::deque<CUgraphNode_st> handles;
    std::vector<captured_use> uses;
    std::vector<cudaGraphNode_t> dependencies; ///< as last asked for
    std::vector<cudaGraphEdgeData> edges;
    CUgraph_st* handle = nullptr;
    std::size_t executables = 0;
    std::size_t clones = 0;
    std::vector<std::shared_ptr<object_refs>> nested; ///< of executables whose launch was captured

    /// Whether the program can launch it: what was launched is an access like others.
    bool launchable() const { return handle != nullptr || executables != 0 || clones != 0; }
    bool before(std::size_t node, std::size_t later) const {
        return node < nodes[later].ancestors.size() && nodes[later].ancestors[node];
    }
    bool before(std::size_t node, std::vector<std::size_t> const& frontier) const {
        for (std::size_t const at : frontier)
            if (at == node || before(node, at))
                return true;
        return false;
    }
};

/// Adds a node that follows the stream's frontier, and makes it the frontier.
std::size_t capture_node(world_state& world, stream_record& stream, graph_node node);
/// Takes references to a user object away; the last one ends it.
void disown(world_state& world, cudaUserObject_t object, unsigned count);
/// References to the same objects, as an executable or a clone of a graph gets.
std::shared_ptr<object_refs> copy_of(object_refs const& refs);
/// Breaks a capture: its end will say so.
void invalidate(world_state& world, graph_state& graph);
/// For calls that a capture forbids to some threads: cudaErrorStreamCaptureUnsupported, and the captures
/// break.
cudaError_t unsafe_call(world_state& world);
/// For calls that wait for a whole device.
cudaError_t refuse_while_capturing(world_state& world, int device);
/// For the legacy stream while a blocking one is captured.
cudaError_t refuse_implicit(world_state& world, stream_record& stream);

} // namespace simulated_device::inside

struct CUgraph_st {
    std::shared_ptr<simulated_device::inside::graph_state> state; ///< shared with clones and executables
    std::shared_ptr<simulated_device::inside::object_refs> objects =
        std::make_shared<simulated_device::inside::object_refs>(state->world);
};
struct CUuserObject_st {
    void* data = nullptr;
    cudaHostFn_t destroy = nullptr;
    unsigned own = 0;    ///< references of the program
    unsigned owners = 0; ///< with those of graphs
    simulated_device::inside::vector_clock past; ///< launches that kept it
};
struct CUgraphExec_st {
    std::shared_ptr<simulated_device::inside::graph_state> state;
    unsigned long long flags = 0;
    std::shared_ptr<simulated_device::inside::object_refs> objects;
};
