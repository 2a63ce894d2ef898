// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// cudaMemcpy* and cudaMemset*. Real bytes move when the scheduler runs the copy. Pageable host memory is read
// when the call is made (CUDA stages it), and a copy to it is over when the call returns.

#include "calls.hpp"

#include <cstring>
#include <iterator>

namespace simulated_device::inside {

namespace {

enum class side { device, known_host, pageable };

struct rows { ///< of a copy: 'count' rows of 'bytes'
    std::size_t bytes = 0;
    std::size_t count = 1;
    std::size_t to_pitch = 0;
    std::size_t from_pitch = 0;
};

side side_of(allocation const* memory) {
    if (memory == nullptr)
        return side::pageable;
    return memory->kind == memory_kind::pinned || memory->kind == memory_kind::registered ? side::known_host
                                                                                          : side::device;
}

bool in_device_range(world_state const& world, void const* p) {
    for (device_state const& device : world.devices)
        if (device.space->memory_region.contains(p))
            return true;
    return world.virtual_region && world.virtual_region->contains(p);
}

/// Whether [p, p + bytes) lies in one allocation, or is host memory that the driver does not know.
bool valid(world_state& world, void const* p, std::size_t bytes) {
    std::uintptr_t base = 0;
    allocation const* const memory = find_allocation(world, p, &base);
    if (memory == nullptr)
        return p != nullptr && !in_device_range(world, p) && !world.host_region->contains(p);
    std::uintptr_t const end = reinterpret_cast<std::uintptr_t>(p) + bytes;
    std::uintptr_t reached = base + memory->bytes;
    for (allocation const* next = memory; reached < end && next->kind == memory_kind::mapped;) { // maps side by side
        next = find_allocation(world, reinterpret_cast<void const*>(reached), &base);
        if (next == nullptr || next->kind != memory_kind::mapped)
            break;
        reached = base + next->bytes;
    }
    return end <= reached;
}

/// Whether a pool holds these bytes of host memory, free or not.
bool in_host_pool(world_state& world, void const* p, std::size_t bytes) {
    auto const at = reinterpret_cast<std::uintptr_t>(p);
    auto const holds = [&](pool_record const& pool) {
        auto const chunk = pool.chunks.upper_bound(at);
        return chunk != pool.chunks.begin() && at + bytes <= std::prev(chunk)->first + std::prev(chunk)->second;
    };
    for (auto const& pool : world.pools)
        if (pool->kind != pool_kind::device && (holds(*pool) || (pool->graphs && holds(*pool->graphs))))
            return true;
    return false;
}

/// Whether the bytes can be touched now that the copy runs: a program at fault may have freed what it copies.
/// Device memory always can; stream-ordered memory is rightly freed before the copy in front of it has run.
bool touchable(world_state& world, void const* p, std::size_t bytes) {
    bool const may_be_closed =
        world.host_region->contains(p) || (world.virtual_region && world.virtual_region->contains(p));
    return !may_be_closed || in_host_pool(world, p, bytes) || valid(world, p, bytes);
}

bool kind_fits(cudaMemcpyKind kind, allocation const* to, allocation const* from) {
    auto const device = [](allocation const* memory) { return memory != nullptr; };
    switch (kind) {
    case cudaMemcpyHostToHost:
        return side_of(to) != side::device && side_of(from) != side::device;
    case cudaMemcpyHostToDevice:
        return device(to);
    case cudaMemcpyDeviceToHost:
        return device(from);
    case cudaMemcpyDeviceToDevice:
        return device(to) && device(from);
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

/// Whether device `here` may use the memory, as a copy wants it of the current device: mapped memory and that of the driver's
/// pools is open to no device by being there. Memory of cudaMalloc, of the host and managed memory copies reach anyway.
bool open_to(world_state& world, int here, void const* p, std::size_t bytes) {
    auto at = reinterpret_cast<std::uintptr_t>(p);
    for (std::uintptr_t const end = at + bytes; at < end;) { // maps side by side
        std::uintptr_t base = 0;
        allocation const* const memory = find_allocation(world, reinterpret_cast<void const*>(at), &base);
        if (memory == nullptr)
            return true;
        if (memory->kind == memory_kind::mapped && memory->opened_to.count(here) == 0)
            return false;
        if (memory->kind == memory_kind::pooled && memory->pool->kind == pool_kind::device) {
            auto const access = memory->pool->accessible.find(here);
            if (access == memory->pool->accessible.end() || access->second == cudaMemAccessFlagsProtNone)
                return false;
        }
        at = base + memory->bytes;
    }
    return true;
}

/// What lies between the first and the last byte of rows.
std::size_t extent(rows const& shape, std::size_t pitch) {
    return shape.count == 0 ? 0 : (shape.count - 1) * pitch + shape.bytes;
}

cudaError_t wait_here(world_state& world, stream_record& stream, char const* who) {
    vector_clock const clock = stream.clock;
    if (!wait_until(world, stream, stream.last, who))
        return cudaErrorLaunchTimeout;
    world.host.join(clock);
    return lost(world, stream.device);
}

void move_rows(world_state& world, char* to, char const* from, rows const& shape) {
    char* const target = bytes_of(world, to);
    char const* const source = bytes_of(world, from);
    for (std::size_t row = 0; row < shape.count; ++row)
        std::memmove(target + row * shape.to_pitch, source + row * shape.from_pitch, shape.bytes);
}

cudaError_t copy(world_state& world, stream_record* stream, void* to, void const* from, rows const& shape,
                 cudaMemcpyKind kind, bool wait, char const* who, bool by_peers = false) {
    if (stream == nullptr)
        return cudaErrorInvalidResourceHandle;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (wait && stream->capture) {
        invalidate(world, *stream->capture);
        return cudaErrorStreamCaptureUnsupported;
    }
    if (wait)
        if (cudaError_t const error = unsafe_call(world))
            return error;
    if (shape.bytes == 0 || shape.count == 0)
        return cudaSuccess;
    std::size_t const to_bytes = extent(shape, shape.to_pitch);
    std::size_t const from_bytes = extent(shape, shape.from_pitch);
    if (!valid(world, to, to_bytes) || !valid(world, from, from_bytes))
        return cudaErrorInvalidValue;
    allocation* const target = find_allocation(world, to);
    allocation const* const source = find_allocation(world, from);
    if (!kind_fits(kind, target, source))
        return cudaErrorInvalidValue;
    int const here = current_device(world);
    if (!by_peers && (!open_to(world, here, to, to_bytes) || !open_to(world, here, from, from_bytes)))
        return cudaErrorInvalidValue;
    if (target != nullptr)
        target->written = true;
    bool const capturing = stream->capture != nullptr;
    bool const stage = source == nullptr && !wait && !capturing && target != nullptr;
    operation work;
    work.what = "copy";
    work.by_peers = by_peers;
    if (stage) {
        auto const* const first = static_cast<char const*>(from);
        auto staged = std::make_shared<std::vector<char>>(first, first + from_bytes);
        work.body = [&world, to, staged, shape] {
            if (touchable(world, to, extent(shape, shape.to_pitch)))
                move_rows(world, static_cast<char*>(to), staged->data(), shape);
        };
    } else {
        work.body = [&world, to, from, shape] {
            if (touchable(world, to, extent(shape, shape.to_pitch)) &&
                touchable(world, from, extent(shape, shape.from_pitch)))
                move_rows(world, static_cast<char*>(to), static_cast<char const*>(from), shape);
        };
    }
    cudaError_t const error = submit(world, *stream, cudaGraphNodeTypeMemcpy, std::move(work),
                                     {{from, from_bytes}}, {{to, to_bytes}});
    if (error != cudaSuccess || capturing)
        return error;
    bool const at_once = wait || target == nullptr;
    return at_once ? wait_here(world, *stream, who) : cudaSuccess;
}

cudaError_t fill(world_state& world, stream_record* stream, void* to, int value, rows const& shape, bool wait,
                 char const* who) {
    if (stream == nullptr)
        return cudaErrorInvalidResourceHandle;
    if (wait && stream->capture) {
        invalidate(world, *stream->capture);
        return cudaErrorStreamCaptureUnsupported;
    }
    if (wait)
        if (cudaError_t const error = unsafe_call(world))
            return error;
    if (shape.bytes == 0 || shape.count == 0)
        return cudaSuccess;
    std::size_t const bytes_touched = extent(shape, shape.to_pitch);
    allocation* const target = find_allocation(world, to);
    if (target == nullptr || !valid(world, to, bytes_touched))
        return cudaErrorInvalidValue;
    target->written = true;
    operation work;
    work.what = "fill";
    work.body = [&world, to, value, shape] {
        if (!touchable(world, to, extent(shape, shape.to_pitch)))
            return;
        char* const first = bytes_of(world, to);
        for (std::size_t row = 0; row < shape.count; ++row)
            std::memset(first + row * shape.to_pitch, value, shape.bytes);
    };
    bool const host_memory = target->kind == memory_kind::pinned || target->kind == memory_kind::registered;
    bool const capturing = stream->capture != nullptr;
    cudaError_t const error =
        submit(world, *stream, cudaGraphNodeTypeMemset, std::move(work), {}, {{to, bytes_touched}});
    // Filling device memory does not make the host wait, even in its plain form.
    if (error != cudaSuccess || capturing || !(wait && host_memory))
        return error;
    return wait_here(world, *stream, who);
}

rows line(std::size_t count) {
    return {count, 1, count, count};
}

cudaError_t cudaMemcpy_on(null_stream null, void* to, void const* from, std::size_t count,
                          cudaMemcpyKind kind) {
    static call_site site{"cudaMemcpy"};
    return api(site, [&](world_state& world) {
        return copy(world, find_stream(world, nullptr, null, site.name), to, from, line(count), kind, true,
                    site.name);
    });
}

cudaError_t cudaMemcpyAsync_on(null_stream null, void* to, void const* from, std::size_t count,
                               cudaMemcpyKind kind, cudaStream_t stream) {
    static call_site site{"cudaMemcpyAsync"};
    return api(site, [&](world_state& world) {
        return copy(world, find_stream(world, stream, null, site.name), to, from, line(count), kind, false,
                    site.name);
    });
}

/// A list of copies, made in its order. The legacy stream takes none.
cudaError_t cudaMemcpyBatchAsync_on(null_stream null, void const* const* to, void const* const* from, std::size_t const* counts,
                                    std::size_t count, cudaMemcpyAttributes const* attributes, std::size_t const* first,
                                    std::size_t kinds, cudaStream_t stream) {
    static call_site site{"cudaMemcpyBatchAsync"};
    return api(site, [&](world_state& world) -> cudaError_t {
        stream_record* const on = find_stream(world, stream, null, site.name);
        if (on == nullptr)
            return cudaErrorInvalidResourceHandle;
        if (on == find_stream(world, nullptr, null_stream::legacy, site.name) || to == nullptr || from == nullptr ||
            counts == nullptr || count == 0 || attributes == nullptr || first == nullptr || kinds != 1 || first[0] != 0 ||
            attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream)
            return cudaErrorInvalidValue;
        for (std::size_t i = 0; i < count; ++i)
            if (counts[i] == 0 || !valid(world, to[i], counts[i]) || !valid(world, from[i], counts[i]))
                return cudaErrorInvalidValue;
        for (std::size_t i = 0; i < count; ++i)
            if (cudaError_t const error = copy(world, on, const_cast<void*>(to[i]), from[i], line(counts[i]), cudaMemcpyDefault,
                                               false, site.name))
                return error;
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpy2D_on(null_stream null, void* to, std::size_t to_pitch, void const* from,
                            std::size_t from_pitch, std::size_t width, std::size_t height,
                            cudaMemcpyKind kind) {
    static call_site site{"cudaMemcpy2D"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (width > to_pitch || width > from_pitch)
            return cudaErrorInvalidPitchValue;
        return copy(world, find_stream(world, nullptr, null, site.name), to, from,
                    {width, height, to_pitch, from_pitch}, kind, true, site.name);
    });
}

cudaError_t cudaMemcpy2DAsync_on(null_stream null, void* to, std::size_t to_pitch, void const* from,
                                 std::size_t from_pitch, std::size_t width, std::size_t height,
                                 cudaMemcpyKind kind, cudaStream_t stream) {
    static call_site site{"cudaMemcpy2DAsync"};
    return api(site, [&](world_state& world) -> cudaError_t {
        if (width > to_pitch || width > from_pitch)
            return cudaErrorInvalidPitchValue;
        return copy(world, find_stream(world, stream, null, site.name), to, from,
                    {width, height, to_pitch, from_pitch}, kind, false, site.name);
    });
}

cudaError_t cudaMemset_on(null_stream null, void* to, int value, std::size_t count) {
    static call_site site{"cudaMemset"};
    return api(site, [&](world_state& world) {
        return fill(world, find_stream(world, nullptr, null, site.name), to, value, line(count), true,
                    site.name);
    });
}

cudaError_t cudaMemsetAsync_on(null_stream null, void* to, int value, std::size_t count,
                               cudaStream_t stream) {
    static call_site site{"cudaMemsetAsync"};
    return api(site, [&](world_state& world) {
        return fill(world, find_stream(world, stream, null, site.name), to, value, line(count), false,
                    site.name);
    });
}

cudaError_t cudaMemset2D_on(null_stream null, void* to, std::size_t pitch, int value, std::size_t width,
                            std::size_t height) {
    static call_site site{"cudaMemset2D"};
    return api(site, [&](world_state& world) {
        return fill(world, find_stream(world, nullptr, null, site.name), to, value,
                    {width, height, pitch, pitch}, true, site.name);
    });
}

cudaError_t cudaMemset2DAsync_on(null_stream null, void* to, std::size_t pitch, int value, std::size_t width,
                                 std::size_t height, cudaStream_t stream) {
    static call_site site{"cudaMemset2DAsync"};
    return api(site, [&](world_state& world) {
        return fill(world, find_stream(world, stream, null, site.name), to, value,
                    {width, height, pitch, pitch}, false, site.name);
    });
}

cudaError_t peer(call_site& site, null_stream null, void* to, int to_device, void const* from,
                 int from_device, std::size_t count, cudaStream_t stream, bool wait) {
    return api(site, [&](world_state& world) -> cudaError_t {
        auto const exists = [&](int device) {
            return device >= 0 && static_cast<std::size_t>(device) < world.devices.size();
        };
        if (!exists(to_device) || !exists(from_device))
            return cudaErrorInvalidDevice;
        stream_record* const on = find_stream(world, stream, null, site.name);
        if (on != nullptr && on->capture) {
            invalidate(world, *on->capture);
            return cudaErrorStreamCaptureUnsupported;
        }
        return copy(world, on, to, from, line(count), cudaMemcpyDeviceToDevice, wait, site.name, true);
    });
}

} // namespace

} // namespace simulated_device::inside

using namespace simulated_device::inside;

SIMULATED_CUDA_EXPORT(cudaMemcpy, _ptds, (void* to, void const* from, std::size_t count, cudaMemcpyKind kind),
                      to, from, count, kind)
SIMULATED_CUDA_EXPORT(cudaMemcpyAsync, _ptsz,
                      (void* to, void const* from, std::size_t count, cudaMemcpyKind kind,
                       cudaStream_t stream),
                      to, from, count, kind, stream)
#if CUDART_VERSION < 13000 // which also told the number of the copy that failed
SIMULATED_CUDA_EXPORT(cudaMemcpyBatchAsync, _ptsz,
                      (void** to, void** from, std::size_t* counts, std::size_t count, cudaMemcpyAttributes* attributes,
                       std::size_t* first, std::size_t kinds, std::size_t*, cudaStream_t stream),
                      to, from, counts, count, attributes, first, kinds, stream)
#else
SIMULATED_CUDA_EXPORT(cudaMemcpyBatchAsync, _ptsz,
                      (void* const* to, void const* const* from, std::size_t const* counts, std::size_t count,
                       cudaMemcpyAttributes* attributes, std::size_t* first, std::size_t kinds, cudaStream_t stream),
                      to, from, counts, count, attributes, first, kinds, stream)
#endif
SIMULATED_CUDA_EXPORT(cudaMemcpy2D, _ptds,
                      (void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
                       std::size_t width, std::size_t height, cudaMemcpyKind kind),
                      to, to_pitch, from, from_pitch, width, height, kind)
SIMULATED_CUDA_EXPORT(cudaMemcpy2DAsync, _ptsz,
                      (void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
                       std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream),
                      to, to_pitch, from, from_pitch, width, height, kind, stream)
SIMULATED_CUDA_EXPORT(cudaMemset, _ptds, (void* to, int value, std::size_t count), to, value, count)
SIMULATED_CUDA_EXPORT(cudaMemsetAsync, _ptsz, (void* to, int value, std::size_t count, cudaStream_t stream),
                      to, value, count, stream)
SIMULATED_CUDA_EXPORT(cudaMemset2D, _ptds,
                      (void* to, std::size_t pitch, int value, std::size_t width, std::size_t height), to,
                      pitch, value, width, height)
SIMULATED_CUDA_EXPORT(cudaMemset2DAsync, _ptsz,
                      (void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                       cudaStream_t stream),
                      to, pitch, value, width, height, stream)
extern "C" cudaError_t cudaMemcpyPeer(void* to, int to_device, void const* from, int from_device,
                                      std::size_t count) {
    static call_site site{"cudaMemcpyPeer"};
    return peer(site, null_stream::legacy, to, to_device, from, from_device, count, nullptr, true);
}

extern "C" cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, void const* from, int from_device,
                                           std::size_t count, cudaStream_t stream) {
    static call_site site{"cudaMemcpyPeerAsync"};
    return peer(site, null_stream::legacy, to, to_device, from, from_device, count, stream, false);
}
