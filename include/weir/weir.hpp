// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// weir: CUDA memory pools composed from policies.
//
// The umbrella: every part of the core that most programs use, the recipes and the containers. What a captured graph keeps
// (<weir/graph/graph_memory.hpp>) and what records a program (<weir/trace.hpp>) are one include each, and so is interop with
// another library (<weir/interop/thrust.hpp>, ...), since it brings that library in. To keep a translation unit lean, include
// the parts that it uses instead; <weir/fwd.hpp> has the names alone.
//
// cost:      about 0.6 s of compile time over an empty CUDA file.
// not for:   headers that only mention a pool: <weir/recipes.hpp> has the pools, <weir/fwd.hpp> the parts' names.

#include <weir/fwd.hpp> // first: it says what a compiler must have

#include <weir/base/error.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/container/buffer.hpp>
#include <weir/container/value.hpp>
#include <weir/container/vector.hpp>
#include <weir/driver/driver_pool.hpp>
#include <weir/driver/imported_pool.hpp>
#include <weir/driver/unpooled.hpp>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/exact.hpp>
#include <weir/growth/fixed.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/layer/failure_handler.hpp>
#include <weir/layer/fallback.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/poison.hpp>
#include <weir/layer/sized.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/layer/synchronized.hpp>
#include <weir/make_pool.hpp>
#include <weir/pool/pool.hpp>
#include <weir/pool/scope.hpp>
#include <weir/recipes.hpp>
#include <weir/resource/any_pool.hpp>
#include <weir/resource/layer_options.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/runtime/managed_memory.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/upstream/device.hpp>
#include <weir/upstream/from_pool.hpp>
#include <weir/upstream/host.hpp>
#include <weir/upstream/managed.hpp>
#include <weir/upstream/pinned.hpp>
#include <weir/upstream/registered_host.hpp>
#include <weir/upstream/span.hpp>
#include <weir/upstream/virtual_memory.hpp>
