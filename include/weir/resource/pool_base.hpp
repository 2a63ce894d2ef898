// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a pool that can say 'no' become one that throws, and one that needs no stream?
//
// Parts say 'no' by returning null: a pool or layer writes 'try_allocate' and 'deallocate', and inherits the rest from here.
// The throwing 'allocate' and the pair without a stream exist once, in this header. The order of arguments, (stream, bytes,
// alignment), is that of CCCL's cuda::mr::resource.
//
// invariant: 'allocate' returns null for zero bytes only; otherwise it returns a block or throws.
// order:     'allocate_sync' returns memory that no enqueued work uses. With 'deallocate_sync' the caller promises that no
//            enqueued work uses the block.
// cost:      nothing over 'try_allocate' on the path that succeeds.
// not for:   choosing a block: that is the pool's.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/call_site.hpp>
#include <weir/base/error.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/stand_ins.hpp>
#include <weir/base/text.hpp>
#include <weir/contract/pool_slot.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/resource/report_text.hpp>
#include <weir/runtime/stream.hpp>

namespace weir {
inline namespace v0 {
namespace resource {

/// The part of a pool that is the same for every pool. `Derived` supplies try_allocate(stream, bytes, alignment),
/// deallocate(stream, p, bytes, alignment), default_alignment, state() and refused(bytes, alignment); and what it can answer
/// better than this base: see 'What a pool need not have'.
template <class Derived>
class pool_base {
public:
    /// A block of `bytes` bytes at a multiple of `alignment`, for work on `stream` that is enqueued after this
    /// call; null for zero bytes. Blocks and locks as `Derived::try_allocate` does. Throws out_of_memory when
    /// there is no room, usage_error for a broken precondition, cuda_error when CUDA fails, std::bad_alloc when
    /// the host has no memory for the bookkeeping; the pool is then as it was. `where`: the line that asks, for
    /// layer::record.
    template <class Stream>
    [[nodiscard]] [[gnu::always_inline]] void* allocate(Stream const& stream, std::size_t bytes,
                                                        std::size_t alignment = Derived::default_alignment,
                                                        call_site const& where = call_site::here()) {
        // Inlined at any level of optimization. Here `stream` becomes a stream_ref, and the calling file decides what a null
        // stream means. If this were not inlined, the linker would keep one file's copy for all files.
        static_assert(std::is_convertible_v<Stream const&, stream_ref>,
                      "weir: 'allocate' takes the stream first: a cudaStream_t, 'weir::on_host', or an object that converts to "
                      "cudaStream_t or has a 'get()', 'stream()' or 'value()' that returns one");
        if constexpr (std::is_convertible_v<Stream const&, stream_ref>) {
            void* const block = self().try_allocate_at(where, stream, bytes, alignment);
            if (!block && bytes != 0)
                refuse(bytes, alignment);
            return block;
        } else {
            return nullptr;
        }
    }

    /// Refused: who asks for memory says which stream uses it first, and who gives it back how large it is.
    template <class Bytes>
    void* allocate(Bytes) {
        static_assert(sizeof(Bytes) == 0, "weir: 'allocate' takes the stream first: 'allocate(stream, bytes)'; memory that no "
                                          "stream uses yet is 'allocate_sync(bytes)'");
        return nullptr;
    }
    template <class Bytes, class Stream, class... Others,
              class = std::enable_if_t<std::is_integral_v<Bytes> && !std::is_integral_v<Stream> &&
                                       std::is_convertible_v<Stream const&, stream_ref>>>
    void* allocate(Bytes, Stream const&, Others...) {
        static_assert(sizeof(Bytes) == 0,
                      "weir: 'allocate' takes the stream first, and then the bytes: 'allocate(stream, bytes)'");
        return nullptr;
    }
    template <class Bytes, class = std::enable_if_t<std::is_integral_v<Bytes>>>
    void deallocate(void const*, Bytes) {
        static_assert(sizeof(Bytes) == 0, "weir: 'deallocate' takes the stream first: 'deallocate(stream, p, bytes)'; memory "
                                          "that nothing uses any more is 'deallocate_sync(p, bytes)'");
    }
    template <class Stream, class Bytes, class = std::enable_if_t<std::is_integral_v<Bytes>>>
    void deallocate(Stream const&, Bytes, void const*) {
        static_assert(sizeof(Bytes) == 0,
                      "weir: 'deallocate' takes the block before its bytes: 'deallocate(stream, p, bytes)'");
    }
    template <class Stream>
    void deallocate(Stream const&, void*) {
        static_assert(sizeof(Stream) == 0, "weir: 'deallocate' takes the bytes of the allocation too: 'deallocate(stream, p, "
                                           "bytes)'; a 'device_vector' keeps them, 'layer::sized' remembers them");
    }

    /// A block that any stream may use at once, and the host too if the space allows it. May wait for a device. Errors as
    /// `allocate`.
    [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = Derived::default_alignment,
                                      call_site const& where = call_site::here()) {
        return allocate(on_host, bytes, alignment, where);
    }

    /// Takes back a block that nothing uses any more. `bytes` and `alignment` are those of the allocation.
    void deallocate_sync(void* p, std::size_t bytes,
                         std::size_t alignment = Derived::default_alignment) noexcept {
        self().deallocate(on_host, p, bytes, alignment);
    }

    /// Ends 'suspend', for a pool that has it, as its 'try_resume' does. Throws out_of_memory if the device has no room; the
    /// pool then stays suspended. Other errors as 'try_resume'.
    template <class Pool = Derived, class = decltype(std::declval<Pool&>().try_resume())>
    void resume() {
        if (!self().try_resume())
            throw out_of_memory(
                self().suspended_bytes(),
                {full_state(), "the device has no room for what the pool held before 'suspend'; free something elsewhere"});
    }

    /// What the pool knows of itself, with what takes longer to find out: the bytes free on its device (a call of CUDA's)
    /// and, where a layer lists them (layer::guard, layer::statistics), the ten largest live blocks. Throws as 'state'.
    memory_report full_state() const {
        memory_report now = self().state();
        try {
            self().examine(now);
        } catch (...) { // the rest stays unknown
        }
        return now;
    }

    /// The same to print: 'report', and the largest live blocks in a line each. Throws as 'report' and 'state'.
    text full_report() const { return resource::full_report_text(self().report(), full_state()); }

    // What a pool need not have. These stand where a pool does not know better.

    /// As 'try_allocate', for the line `where` of the program, which layer::record writes down.
    template <class Stream>
    [[gnu::always_inline]] void* try_allocate_at(call_site const&, Stream const& stream, std::size_t bytes,
                                                 std::size_t alignment) {
        return self().try_allocate(stream, bytes, alignment);
    }
    /// How many bytes of the pool such a block takes; 0: it does not tell.
    static constexpr std::size_t rounded(std::size_t, std::size_t) noexcept { return 0; }
    /// Whether a stream on which memory was freed may end at any time; if not, 'settle' comes before its end.
    static constexpr bool streams_may_end = false;
    /// Each tells one figure of 'state', and throws as that.
    text name() const { return self().state().name; }
    std::size_t reserved_bytes() const { return self().state().reserved_bytes; }
    std::size_t in_use_bytes() const { return self().state().in_use_bytes; }
    std::size_t limit_bytes() const { return self().state().limit_bytes; }
    /// Peaks begin anew; here there are none.
    void reset_peaks() {}
    /// What 'state' tells, as a line to print. Throws as 'state'.
    text report() const { return resource::report_text(self().state(), base::name_of(Derived::space)); }
    /// What the options say: see pool_options.
    violation_action on_violation() const noexcept { return violation_action::report; }
    leak_action on_leak() const noexcept { return leak_action::report; }
    /// Adds to `now` what takes longer to find out; see 'full_state'.
    void examine(memory_report&) const noexcept {}
    /// Offers those of the live blocks that were surely handed out through this pool or layer, and through no other that shares
    /// its memory: a layer that lists blocks (layer::guard, layer::statistics) offers its own.
    void list_own(largest_blocks&) const noexcept {}
    /// Whether it could hand out such a block if no other were out. Throws as 'state'.
    bool can_hold(std::size_t bytes, std::size_t = Derived::default_alignment) const {
        return bytes <= self().state().limit_bytes;
    }
    /// The number of the device that the memory is on, or any_device.
    int device() const noexcept { return any_device; }
    /// Call this before cudaStreamDestroy(stream): layer::guard, which the recipes wear in debug builds, then names the blocks
    /// that still need the stream. Without that layer it does nothing and returns 0.
    std::size_t before_destroy(stream_ref) noexcept { return 0; }

    /// Pools are equal when memory of one may be freed in the other: when they are the same object.
    friend bool operator==(Derived const& a, Derived const& b) noexcept { return &a == &b; }
    friend bool operator!=(Derived const& a, Derived const& b) noexcept { return &a != &b; }

protected:
    pool_base() = default;
    ~pool_base() = default;

private:
    // Not inlined: composing the sentence would cost each allocation registers.
    [[noreturn, gnu::noinline]] void refuse(std::size_t bytes, std::size_t alignment) const {
        throw out_of_memory(bytes, self().refused(bytes, alignment));
    }

    Derived& self() noexcept { return static_cast<Derived&>(*this); }
    Derived const& self() const noexcept { return static_cast<Derived const&>(*this); }
};

} // namespace resource
} // namespace v0
} // namespace weir
