// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Managed memory: where it is wanted, what is known of it, and that its contents are no longer needed. Nothing migrates
// here; what was said is remembered by the byte, so that it can be asked for. A discard spoils the bytes when it runs.

#include "calls.hpp"

#include <cstring>
#include <iterator>

namespace simulated_device::inside {

namespace {

/// The managed allocation that holds these bytes whole, or null.
allocation* managed(world_state& world, void const* p, std::size_t bytes) {
    std::uintptr_t base = 0;
    allocation* const memory = find_allocation(world, p, &base);
    if (memory == nullptr || bytes == 0 || bytes > base + memory->bytes - reinterpret_cast<std::uintptr_t>(p))
        return nullptr;
    bool const of_pool = memory->kind == memory_kind::pooled && memory->pool->kind == pool_kind::managed;
    return memory->kind == memory_kind::managed || of_pool ? memory : nullptr;
}

cudaError_t judge(world_state const& world, cudaMemLocation where) {
    switch (where.type) {
    case cudaMemLocationTypeDevice:
        return where.id >= 0 && static_cast<std::size_t>(where.id) < world.devices.size() ? cudaSuccess
                                                                                          : cudaErrorInvalidDevice;
    case cudaMemLocationTypeHost:
    case cudaMemLocationTypeHostNumaCurrent:
        return cudaSuccess;
    case cudaMemLocationTypeHostNuma:
        return where.id == 0 ? cudaSuccess : cudaErrorInvalidValue;
    default:
        return cudaErrorInvalidValue;
    }
}

/// Lets 'change' at what is known of each stretch of the bytes.
template <class Change>
void tell(allocation& memory, std::uintptr_t at, std::size_t bytes, Change&& change) {
    auto& known = memory.advice;
    auto const cut = [&](std::uintptr_t where) {
        auto const next = known.upper_bound(where);
        if (next == known.begin())
            return;
        auto const before = std::prev(next);
        if (before->first < where && where < before->second.end) {
            known[where] = before->second;
            before->second.end = where;
        }
    };
    cut(at);
    cut(at + bytes);
    for (std::uintptr_t place = at; place < at + bytes;) {
        auto it = known.lower_bound(place);
        if (it == known.end() || it->first != place) {
            std::uintptr_t const end = it == known.end() ? at + bytes : std::min(it->first, at + bytes);
            it = known.emplace(place, advised{}).first;
            it->second.end = end;
        }
        change(it->second);
        place = it->second.end;
    }
}

cudaError_t on_stream(world_state& world, stream_record* stream, bool batch) {
    if (stream == nullptr)
        return cudaErrorInvalidResourceHandle;
    if (batch && stream->kind == stream_kind::legacy)
        return cudaErrorInvalidValue;
    if (!stream->capture)
        return cudaSuccess;
    if (!batch) // a batch is refused, and the capture goes on
        invalidate(world, *stream->capture);
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaMemPrefetchAsync_on(null_stream null, void const* p, std::size_t bytes, cudaMemLocation where,
                                    unsigned flags, cudaStream_t handle) {
    static call_site site{"cudaMemPrefetchAsync"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (cudaError_t const error = on_stream(world, stream, false))
            return error;
        allocation* const memory = managed(world, p, bytes);
        if (memory == nullptr || flags != 0)
            return cudaErrorInvalidValue;
        if (cudaError_t const error = judge(world, where))
            return error;
        tell(*memory, reinterpret_cast<std::uintptr_t>(p), bytes, [&](advised& known) { known.prefetched = where; });
        operation work;
        work.what = "prefetch";
        return submit(world, *stream, cudaGraphNodeTypeEmpty, std::move(work), {}, {});
    });
}

/// Discards each range; 'to': and prefetches it there.
cudaError_t discard(call_site& site, null_stream null, void** ranges, std::size_t* sizes, std::size_t count,
                    cudaMemLocation const* to, std::size_t const* first, std::size_t locations, bool prefetches,
                    unsigned long long flags, cudaStream_t handle) {
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const stream = find_stream(world, handle, null, site.name);
        if (cudaError_t const error = on_stream(world, stream, true))
            return error;
        if (ranges == nullptr || sizes == nullptr || count == 0 || flags != 0)
            return cudaErrorInvalidValue;
        if (prefetches) {
            if (to == nullptr || first == nullptr || locations == 0 || locations > count || first[0] != 0)
                return cudaErrorInvalidValue;
            for (std::size_t at = 0; at < locations; ++at) {
                if (first[at] >= count || (at != 0 && first[at] <= first[at - 1]))
                    return cudaErrorInvalidValue;
                if (cudaError_t const error = judge(world, to[at]))
                    return error;
            }
        }
        std::vector<bytes> writes;
        for (std::size_t at = 0; at < count; ++at) {
            if (managed(world, ranges[at], sizes[at]) == nullptr)
                return cudaErrorInvalidValue;
            writes.push_back({ranges[at], sizes[at]});
        }
        std::size_t which = 0;
        for (std::size_t at = 0; prefetches && at < count; ++at) {
            while (which + 1 < locations && first[which + 1] <= at)
                ++which;
            tell(*managed(world, ranges[at], sizes[at]), reinterpret_cast<std::uintptr_t>(ranges[at]), sizes[at],
                 [&](advised& known) { known.prefetched = to[which]; });
        }
        operation work;
        work.what = "discard";
        work.body = [&world, writes] {
            for (bytes const& each : writes)
                if (managed(world, each.at, each.count) != nullptr)
                    std::memset(const_cast<void*>(each.at), 0xd5, each.count);
        };
        return submit(world, *stream, cudaGraphNodeTypeEmpty, std::move(work), {}, writes);
    });
}

cudaError_t cudaMemDiscardBatchAsync_on(null_stream null, void** ranges, std::size_t* sizes, std::size_t count,
                                        unsigned long long flags, cudaStream_t stream) {
    static call_site site{"cudaMemDiscardBatchAsync"};
    return discard(site, null, ranges, sizes, count, nullptr, nullptr, 0, false, flags, stream);
}

cudaError_t cudaMemDiscardAndPrefetchBatchAsync_on(null_stream null, void** ranges, std::size_t* sizes, std::size_t count,
                                                   cudaMemLocation* to, std::size_t* first, std::size_t locations,
                                                   unsigned long long flags, cudaStream_t stream) {
    static call_site site{"cudaMemDiscardAndPrefetchBatchAsync"};
    return discard(site, null, ranges, sizes, count, to, first, locations, true, flags, stream);
}

int id_of(cudaMemLocation where) {
    switch (where.type) {
    case cudaMemLocationTypeDevice:
        return where.id;
    case cudaMemLocationTypeHost:
    case cudaMemLocationTypeHostNuma:
    case cudaMemLocationTypeHostNumaCurrent:
        return cudaCpuDeviceId;
    default:
        return cudaInvalidDeviceId;
    }
}

} // namespace

} // namespace simulated_device::inside

using namespace simulated_device::inside;

#if CUDART_VERSION < 13000 // where the functions that take a location have other names
#define cudaMemAdvise cudaMemAdvise_v2
SIMULATED_CUDA_EXPORT_AS(cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync_on, cudaMemPrefetchAsync_v2_ptsz,
                         (void const* p, std::size_t bytes, cudaMemLocation where, unsigned flags, cudaStream_t stream), p,
                         bytes, where, flags, stream)
#else
SIMULATED_CUDA_EXPORT(cudaMemPrefetchAsync, _ptsz,
                      (void const* p, std::size_t bytes, cudaMemLocation where, unsigned flags, cudaStream_t stream), p,
                      bytes, where, flags, stream)
#endif
SIMULATED_CUDA_EXPORT(cudaMemDiscardBatchAsync, _ptsz,
                      (void** ranges, std::size_t* sizes, std::size_t count, unsigned long long flags, cudaStream_t stream),
                      ranges, sizes, count, flags, stream)
SIMULATED_CUDA_EXPORT(cudaMemDiscardAndPrefetchBatchAsync, _ptsz,
                      (void** ranges, std::size_t* sizes, std::size_t count, cudaMemLocation* to, std::size_t* first,
                       std::size_t locations, unsigned long long flags, cudaStream_t stream),
                      ranges, sizes, count, to, first, locations, flags, stream)

extern "C" cudaError_t cudaMemAdvise(void const* p, std::size_t bytes, cudaMemoryAdvise advice, cudaMemLocation where) {
    static call_site site{"cudaMemAdvise"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (cudaError_t const error = unsafe_call(world))
            return error;
        allocation* const memory = managed(world, p, bytes);
        if (memory == nullptr)
            return cudaErrorInvalidValue;
        bool const located = advice == cudaMemAdviseSetPreferredLocation || advice == cudaMemAdviseSetAccessedBy ||
                             advice == cudaMemAdviseUnsetAccessedBy;
        if (located)
            if (cudaError_t const error = judge(world, where))
                return error;
        bool const by_node = where.type == cudaMemLocationTypeHostNuma || where.type == cudaMemLocationTypeHostNumaCurrent;
        if (by_node && (advice == cudaMemAdviseSetAccessedBy || advice == cudaMemAdviseUnsetAccessedBy))
            return cudaErrorInvalidValue;
        if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy)
            return cudaErrorInvalidValue;
        tell(*memory, reinterpret_cast<std::uintptr_t>(p), bytes, [&](advised& known) {
            switch (advice) {
            case cudaMemAdviseSetReadMostly:
            case cudaMemAdviseUnsetReadMostly:
                known.read_mostly = advice == cudaMemAdviseSetReadMostly;
                break;
            case cudaMemAdviseSetPreferredLocation:
                known.preferred = where;
                break;
            case cudaMemAdviseUnsetPreferredLocation:
                known.preferred = advised{}.preferred;
                break;
            case cudaMemAdviseSetAccessedBy:
                known.accessed_by.insert(id_of(where));
                break;
            case cudaMemAdviseUnsetAccessedBy:
                known.accessed_by.erase(id_of(where));
                break;
            }
        });
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaMemRangeGetAttribute(void* data, std::size_t data_bytes, cudaMemRangeAttribute attribute,
                                                void const* p, std::size_t bytes) {
    static call_site site{"cudaMemRangeGetAttribute"};
    return api(site, [&](world_state& world) -> cudaError_t {
        allocation* const memory = managed(world, p, bytes);
        if (memory == nullptr || data == nullptr || data_bytes == 0 || data_bytes % sizeof(int) != 0)
            return cudaErrorInvalidValue;
        std::vector<advised> all;
        tell(*memory, reinterpret_cast<std::uintptr_t>(p), bytes, [&](advised& known) { all.push_back(known); });
        auto* const out = static_cast<int*>(data);
        auto const common = [&](cudaMemLocation advised::*which) {
            int const first = id_of(all.front().*which);
            for (advised const& each : all)
                if (id_of(each.*which) != first)
                    return static_cast<int>(cudaInvalidDeviceId);
            return first;
        };
        switch (attribute) {
        case cudaMemRangeAttributeReadMostly:
            *out = 1;
            for (advised const& each : all)
                *out = *out != 0 && each.read_mostly;
            return cudaSuccess;
        case cudaMemRangeAttributePreferredLocation:
            *out = common(&advised::preferred);
            return cudaSuccess;
        case cudaMemRangeAttributeLastPrefetchLocation:
            *out = common(&advised::prefetched);
            return cudaSuccess;
        case cudaMemRangeAttributeAccessedBy: {
            std::size_t written = 0;
            for (int const id : all.front().accessed_by) {
                bool everywhere = true;
                for (advised const& each : all)
                    everywhere = everywhere && each.accessed_by.count(id) != 0;
                if (everywhere && written < data_bytes / sizeof(int))
                    out[written++] = id;
            }
            while (written < data_bytes / sizeof(int))
                out[written++] = cudaInvalidDeviceId;
            return cudaSuccess;
        }
        default:
            return cudaErrorInvalidValue;
        }
    });
}
