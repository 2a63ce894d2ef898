// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do a program of weir's and PyTorch, CuPy or JAX hand arrays to each other without a copy?
//
// DLPack is how they do it among themselves: a struct that says where an array lies, what it holds and how it is given back.
// 'export_vector' turns a device_vector into such a struct, and 'imported_vector' owns one that came from elsewhere. A binding
// puts the struct into a Python capsule named 'dltensor_versioned', or takes it out of one:
//
//     weir::stream_ref consumer = weir::interop::dlpack::consumer_stream(number);   // what '__dlpack__' was given
//     managed_tensor* tensor = weir::interop::dlpack::export_vector(std::move(xs), consumer, {rows, columns});
//
//     weir::interop::dlpack::imported_vector<float> ys(tensor, stream);             // after '__dlpack__(stream=stream)'
//     scale<<<grid, block, 0, stream>>>(ys.data(), ys.size());
//
// JAX still speaks the version before, in capsules named 'dltensor': 'with_version' and 'without_version' turn one struct into
// the other. Both stand with the structs, in dlpack/structs.hpp.
//
// invariant: an array has one owner. Whoever owns the struct calls its deleter once.
// order:     export: the consumer's stream waits for the vector's, and the vector's memory is free for others once the
//            consumer's stream has passed the deleter's call. Import: see 'imported_vector'.
// cost:      export: one allocation, an event, and 'used_on'. Import: two questions to CUDA.
// not for:   arrays with gaps between their elements, or in ordinary memory of the host, which is not page-locked.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_report.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/base/try_twice.hpp>
#include <weir/container/vector.hpp>
#include <weir/interop/dlpack/structs.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace dlpack {

/// The stream that a number of the Python protocol names: '__dlpack__(stream=...)'. -1, which says that the consumer sees to
/// the order itself, is 'on_host'. Throws usage_error for 0 and below -1, which the protocol forbids.
inline stream_ref consumer_stream(std::int64_t number) {
    if (number == -1)
        return on_host;
    if (number < 1)
        throw usage_error("weir: DLPack's number for a stream is a handle, 1 for the legacy default stream, 2 for the thread's "
                          "own or -1 for none");
    return number == 1   ? cudaStreamLegacy
           : number == 2 ? cudaStreamPerThread
                         : reinterpret_cast<cudaStream_t>(static_cast<std::intptr_t>(number));
}

namespace detail {

constexpr device_kind kind_of(memory_space space) noexcept {
    return space == memory_space::device   ? device_kind::cuda
           : space == memory_space::pinned ? device_kind::cuda_host
                                           : device_kind::cuda_managed;
}

template <class T>
struct exported {
    explicit exported(device_vector<T>&& given) noexcept : vector(std::move(given)) {}
    device_vector<T> vector;
    base::growing_array<std::int64_t> sides; // the shape, then the strides
    managed_tensor whole{};
};

template <class T>
void end_exported(managed_tensor* self) {
    delete static_cast<exported<T>*>(self->owner);
}

// How many elements there are with these sides. Throws usage_error if a side is negative, and unless every stride and the
// elements, of which the address space has room for `most`, can be counted.
inline std::size_t count_of(std::int64_t const* sides, std::size_t dimensions, std::size_t most) {
    std::size_t count = 1;
    std::size_t widest = 1; // without the sides that are 0: no stride may overflow
    for (std::size_t i = 0; i < dimensions; ++i) {
        std::size_t const side = static_cast<std::size_t>(sides[i]);
        if (sides[i] < 0 || (side != 0 && widest > most / side))
            throw usage_error("weir: a side of the array is negative, or there are more elements than addresses");
        widest *= side != 0 ? side : 1;
        count *= side;
    }
    return count;
}

} // namespace detail

/// The vector's array as a struct that its new owner ends by its deleter, on any thread. `consumer`: the stream that uses it
/// first; it waits for the vector's stream, and must live until the deleter was called, as the vector's stream and pool must.
/// If `consumer` is a default stream, it is that of the array's device, or of the current one if it lies on no device alone.
/// 'on_host': nothing waits, and whoever ends it promises that no work uses it. `shape`: in rows; one dimension by default.
/// Never blocks. Throws usage_error if the shape has another number of elements, or if one of two streams is captured;
/// cuda_error, std::bad_alloc. The vector is then as it was.
template <class T>
[[nodiscard]] managed_tensor* export_vector(device_vector<T>&& vector, stream_ref consumer,
                                            std::initializer_list<std::int64_t> shape = {}) {
    std::int64_t const alone = static_cast<std::int64_t>(vector.size());
    std::int64_t const* const sides = shape.size() == 0 ? &alone : shape.begin();
    std::size_t const dimensions = shape.size() == 0 ? 1 : shape.size();
    std::size_t const count = detail::count_of(sides, dimensions, vector.max_size());
    if (count != vector.size())
        throw usage_error("weir: the shape of an exported array has " + base::count_text(count, " element") +
                          ", and the vector has " + base::number_text(vector.size()));
    device_vector<T> empty(vector.pool(), vector.stream());
    auto* const own = new detail::exported<T>(std::move(empty));
    try {
        own->sides.reserve(2 * dimensions);
        if (!consumer.is_host()) {
            runtime::device_scope const there(vector.pool().device());
            order::placed_stream const later = order::placed_stream::now(consumer);
            if (vector.placed().is_in_graph() && !later.is_captured())
                throw usage_error("weir: the stream of an exported vector is being captured into a graph, which the consumer's "
                                  "stream would become part of; export it before the capture begins, or after the graph ran");
            order_after(later, vector.placed());
            vector.used_on(consumer);
        }
    } catch (...) {
        delete own;
        throw;
    }
    for (std::size_t i = 0; i < dimensions; ++i)
        own->sides.push_back(sides[i]);
    for (std::size_t i = 0; i < dimensions; ++i) {
        std::int64_t stride = 1;
        for (std::size_t j = i + 1; j < dimensions; ++j)
            stride *= sides[j];
        own->sides.push_back(stride);
    }
    own->vector = std::move(vector);
    device_kind const kind = detail::kind_of(own->vector.pool().space());
    int const number = own->vector.pool().device();
    own->whole = managed_tensor{major_version, 0, own, &detail::end_exported<T>, 0,
                                tensor{own->vector.data(), device{kind, number == any_device ? 0 : number},
                                       static_cast<std::int32_t>(dimensions), type_of<T>::value, &own->sides[0],
                                       &own->sides[0] + dimensions, 0}};
    return &own->whole;
}

/// The owner of an array that came from elsewhere. T is const for an array that must not be written. One thread at a time; with
/// cudaStreamPerThread only the thread that made it.
template <class T>
class imported_vector {
public:
    /// Takes the array over. `stream`: the one whose work uses it; the producer was told of it, and has made it wait. A default
    /// stream is that of the current device. Never blocks. Throws usage_error for another version, element type or kind of
    /// memory, for another device's array, for gaps between elements, for an array that cannot be (a negative side, more
    /// elements than addresses or beyond the last one, an element at no address of its kind), and for a read-only array if T is
    /// not const; cuda_error. The array is then still the caller's.
    imported_vector(managed_tensor* array, stream_ref stream)
        : array_(array), stream_(order::placed_stream::now(stream)) {
        if (array->major_version != major_version)
            throw usage_error("weir: an array of DLPack's version " + base::number_text(array->major_version) +
                              " came, and version 1 is what is known here");
        tensor const& found = array->tensor;
        bool const on_device = found.device.kind == device_kind::cuda && found.device.number >= 0;
        if (!on_device && found.device.kind != device_kind::cuda_managed && found.device.kind != device_kind::cuda_host)
            throw usage_error("weir: kernels cannot use this array: it lies in the host's memory, which is not page-locked, or "
                              "on no device of CUDA's");
        if (!(found.type == type_of<std::remove_const_t<T>>::value))
            throw usage_error("weir: the array's elements are of another type (code " +
                              base::number_text(static_cast<std::size_t>(found.type.code)) + ", " +
                              base::number_text(found.type.bits) + " bits)");
        if (!std::is_const_v<T> && (array->flags & read_only) != 0)
            throw usage_error("weir: the array must not be written; import it as elements that are const");
        if (found.dimensions < 0 || (found.dimensions != 0 && !found.shape))
            throw usage_error("weir: the array does not say which sides it has");
        size_ = detail::count_of(found.shape, static_cast<std::size_t>(found.dimensions), PTRDIFF_MAX / sizeof(T));
        std::int64_t stride = 1;
        bool lies_together = true;
        for (std::int32_t i = found.dimensions; i-- > 0;) {
            lies_together &= found.shape[i] == 1 || !found.strides || found.strides[i] == stride;
            stride *= found.shape[i];
        }
        if (!lies_together && size_ != 0)
            throw usage_error("weir: there are gaps between the array's elements, or they are not in the order of rows; export "
                              "a contiguous copy");
        auto const begin = reinterpret_cast<std::uintptr_t>(found.data);
        if (size_ != 0 && (base::add_overflows(begin, found.byte_offset) ||
                           base::add_overflows(begin + found.byte_offset, size_ * sizeof(T))))
            throw usage_error("weir: " + base::number_text(size_) + " elements do not fit between " +
                              base::address_text(found.data) + ", with an offset of " +
                              base::exact_bytes_text(found.byte_offset) + ", and the last address; whoever made the array "
                              "gave a wrong address or offset");
        if (size_ != 0 && (!found.data || (begin + found.byte_offset) % alignof(T) != 0))
            throw usage_error("weir: an element of this type cannot lie at " +
                              base::address_text(reinterpret_cast<void const*>(begin + found.byte_offset)) +
                              ", where the array begins; export a copy");
        int const here = device_of_stream();
        if (on_device && here != any_device && here != found.device.number)
            throw usage_error("weir: the array lies on device " +
                              base::number_text(static_cast<std::size_t>(found.device.number)) +
                              ", and the stream belongs to device " + base::number_text(static_cast<std::size_t>(here)) +
                              "; name a stream of the array's device");
    }
    imported_vector(imported_vector&& other) noexcept
        : array_(std::exchange(other.array_, nullptr)), stream_(other.stream_), size_(std::exchange(other.size_, 0)) {}
    imported_vector& operator=(imported_vector&&) = delete;
    /// Waits for the stream, and gives the array back: a producer frees on a stream of its own, which knows nothing of this
    /// one. 'end_on' does so without a wait. If nobody can tell that the stream's work is done, the array is never given back,
    /// and stderr says so: while the stream is captured (its graph uses the array at each launch), and if CUDA goes on failing.
    ~imported_vector() {
        if (!array_)
            return;
        if (is_unused()) {
            give_back();
            return;
        }
        std::fprintf(stderr,
                     "weir: an imported array of %zu elements never goes back to its producer, since work may use it: its "
                     "stream is being captured into a graph, or CUDA fails; end it when no graph needs it any more\n",
                     size_);
    }

    /// Makes `producer`, the stream that the producer frees the array on, wait for this one, and gives the array back. If
    /// `producer` is a default stream, it is that of the array's device. Does not block. Throws as order_after, and usage_error
    /// while this array's stream is captured and `producer` is not; nothing is given back then.
    void end_on(stream_ref producer) {
        if (!array_)
            return;
        bool const on_device = array_->tensor.device.kind == device_kind::cuda;
        order::placed_stream const later{producer, on_device ? device() : any_device};
        if (stream_.is_in_graph() && !later.is_captured())
            throw usage_error("weir: the stream of an imported array is being captured into a graph, which the producer's "
                              "stream would become part of; end the array when the graph is gone");
        order_after(later, stream_);
        give_back();
    }

    /// The first element; null if there is none.
    T* data() const noexcept {
        return array_ && size_ != 0
                   ? reinterpret_cast<T*>(static_cast<std::byte*>(array_->tensor.data) + array_->tensor.byte_offset)
                   : nullptr;
    }
    /// The number of elements.
    std::size_t size() const noexcept { return size_; }
    std::int32_t dimensions() const noexcept { return array_ ? array_->tensor.dimensions : 0; }
    /// How many there are along a dimension, the slowest first.
    std::int64_t side(std::int32_t dimension) const noexcept { return array_->tensor.shape[dimension]; }
    /// The number of the device that the array lies on.
    int device() const noexcept { return array_ ? array_->tensor.device.number : any_device; }
    stream_ref stream() const noexcept { return stream_.stream; }
    /// The same stream, together with its device if it is a default stream. A container that is made from this array, or
    /// assigned, is put in order with it.
    order::placed_stream const& placed() const noexcept { return stream_; }

private:
    // any_device for the host, and for a captured stream, which may not be asked.
    int device_of_stream() const {
        bool const unknown = stream_.device == any_device && !stream_.stream.is_host() && !stream_.is_captured();
        return unknown ? runtime::device_of(stream_.stream) : stream_.device;
    }

    // Waits. False if work may use the array all the same: that of a graph, or CUDA does not answer.
    bool is_unused() const noexcept {
        bool captured = false;
        if (!base::try_twice([&] { return captured = stream_.is_captured(), true; }))
            return false;
        if (captured && !runtime::is_legacy(stream_.stream))
            return false;
        auto const wait_for_stream = [&] {
            runtime::device_scope const there(stream_.device);
            synchronize(stream_.stream);
            return true;
        };
        // While a capture stands in the legacy stream's way, a wait for that stream would break the capture.
        return (!captured && base::try_twice(wait_for_stream)) ||
               base::try_twice([] { return runtime::wait_for_device(any_device), true; });
    }

    void give_back() noexcept {
        managed_tensor* const array = std::exchange(array_, nullptr);
        size_ = 0;
        if (array->deleter)
            array->deleter(array);
    }

    managed_tensor* array_; // null: moved from, or given back
    order::placed_stream stream_;
    std::size_t size_ = 0;
};

} // namespace dlpack
} // namespace interop
} // namespace v0
} // namespace weir
