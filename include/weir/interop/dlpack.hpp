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
// The structs are declared here, after version 1 of DLPack, so that neither a file of its project nor one of its many copies
// is needed. The layout is fixed for all of version 1, and the struct changes hands as an untyped pointer, so a program that
// has DLManagedTensorVersioned too loses nothing. JAX still speaks the version before, in capsules named 'dltensor':
// 'with_version' and 'without_version' turn one struct into the other.
//
// invariant: an array has one owner. Whoever owns the struct calls its deleter once.
// order:     export: the consumer's stream waits for the vector's, and the vector's memory is free for others once the
//            consumer's stream has passed the deleter's call. Import: see 'imported_vector'.
// cost:      export: one allocation, an event, and 'used_on'. Import: nothing.
// not for:   arrays with gaps between their elements, or in the host's memory.

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/container/vector.hpp>
#include <weir/order/order_after.hpp>
#include <weir/runtime/devices.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/runtime/wait.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace dlpack {

/// DLPack's numbers for where memory lies.
enum class device_kind : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
/// DLPack's numbers for what an element is.
enum class type_code : std::uint8_t { integer = 0, unsigned_integer = 1, floating = 2, bfloat = 4, complex = 5, boolean = 6 };

/// DLDevice, DLDataType, DLTensor and DLManagedTensorVersioned.
struct device {
    device_kind kind;
    std::int32_t number;
};
struct element_type {
    type_code code;
    std::uint8_t bits;
    std::uint16_t lanes;
    friend bool operator==(element_type a, element_type b) noexcept {
        return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
    }
};
struct tensor {
    void* data;
    dlpack::device device;
    std::int32_t dimensions;
    element_type type;
    std::int64_t* shape;
    std::int64_t* strides; ///< in elements; null: none are between rows
    std::uint64_t byte_offset;
};
struct managed_tensor {
    std::uint32_t major_version;
    std::uint32_t minor_version;
    void* owner;
    void (*deleter)(managed_tensor* self);
    std::uint64_t flags;
    dlpack::tensor tensor;
};
/// DLManagedTensor, of before version 1.
struct unversioned_tensor {
    dlpack::tensor tensor;
    void* owner;
    void (*deleter)(unversioned_tensor* self);
};
static_assert(sizeof(void*) == 8 && sizeof(tensor) == 48 && sizeof(managed_tensor) == 80 && sizeof(unversioned_tensor) == 64 &&
              offsetof(tensor, shape) == 24 && offsetof(managed_tensor, tensor) == 32);

inline constexpr std::uint32_t major_version = 1;
/// A bit of managed_tensor::flags: the elements must not be written.
inline constexpr std::uint64_t read_only = 1;

/// What DLPack calls an element of type T. Specialize it for a type of your own, or of another library.
template <class T, class = void>
struct type_of {
    static_assert(!std::is_same_v<T, T>, "weir: DLPack has no name for this element type; specialize "
                                         "'weir::interop::dlpack::type_of' with 'static constexpr element_type value'");
    static constexpr element_type value{};
};
template <class T>
struct type_of<T, std::enable_if_t<std::is_arithmetic_v<T> && sizeof(T) <= 8>> {
    static constexpr element_type value{std::is_same_v<T, bool>       ? type_code::boolean
                                        : std::is_floating_point_v<T> ? type_code::floating
                                        : std::is_signed_v<T>         ? type_code::integer
                                                                      : type_code::unsigned_integer,
                                        8 * sizeof(T), 1};
};

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

// A struct around another one, which it ends.
template <class Outer, class Inner>
struct rewrapped {
    Outer outer;
    Inner* inner;

    static void end(Outer* self) {
        auto* const own = static_cast<rewrapped*>(self->owner);
        if (own->inner->deleter)
            own->inner->deleter(own->inner);
        delete own;
    }
};

} // namespace detail

/// The same array in the other struct, which takes over the one that is given. Throws std::bad_alloc; it is then the caller's.
[[nodiscard]] inline managed_tensor* with_version(unversioned_tensor* array) {
    using wrapped = detail::rewrapped<managed_tensor, unversioned_tensor>;
    auto* const own = new wrapped{{major_version, 0, nullptr, &wrapped::end, 0, array->tensor}, array};
    own->outer.owner = own;
    return &own->outer;
}
/// The same back. Throws also usage_error for an array that must not be written, which the older struct cannot say.
[[nodiscard]] inline unversioned_tensor* without_version(managed_tensor* array) {
    if ((array->flags & read_only) != 0)
        throw usage_error("weir: DLPack before version 1 cannot say that an array must not be written; hand over a copy");
    using wrapped = detail::rewrapped<unversioned_tensor, managed_tensor>;
    auto* const own = new wrapped{{array->tensor, nullptr, &wrapped::end}, array};
    own->outer.owner = own;
    return &own->outer;
}

/// The vector's array as a struct that its new owner ends by its deleter, on any thread. `consumer`: the stream that uses it
/// first; it waits for the vector's stream, and must live until the deleter was called, as the vector's stream and pool must.
/// 'on_host': nothing waits, and whoever ends it promises that no work uses it. `shape`: in rows; one dimension by default.
/// Never blocks. Throws usage_error if the shape has another number of elements, or if a stream is captured; cuda_error,
/// std::bad_alloc. The vector is then as it was.
template <class T>
[[nodiscard]] managed_tensor* export_vector(device_vector<T>&& vector, stream_ref consumer,
                                            std::initializer_list<std::int64_t> shape = {}) {
    std::int64_t const alone = static_cast<std::int64_t>(vector.size());
    std::int64_t const* const sides = shape.size() == 0 ? &alone : shape.begin();
    std::size_t const dimensions = shape.size() == 0 ? 1 : shape.size();
    std::size_t count = 1;
    std::size_t widest = 1; // without the sides that are 0: no stride may overflow
    for (std::size_t i = 0; i < dimensions; ++i) {
        std::size_t const side = static_cast<std::size_t>(sides[i]);
        if (sides[i] < 0 || (side != 0 && widest > vector.max_size() / side))
            throw usage_error("weir: a side of an exported array is negative, or there are more elements than addresses");
        widest *= side != 0 ? side : 1;
        count *= side;
    }
    if (count != vector.size())
        throw usage_error("weir: the shape of an exported array has " + base::count_text(count, " element") +
                          ", and the vector has " + base::number_text(vector.size()));
    device_vector<T> empty(vector.pool(), vector.stream());
    auto* const own = new detail::exported<T>(std::move(empty));
    try {
        own->sides.reserve(2 * dimensions);
        if (!consumer.is_host()) {
            order_after(consumer, vector.stream());
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
    device_kind const kind = own->vector.pool().space() == memory_space::device ? device_kind::cuda : device_kind::cuda_managed;
    int const number = own->vector.pool().device();
    own->whole = managed_tensor{major_version, 0, own, &detail::end_exported<T>, 0,
                                tensor{own->vector.data(), device{kind, number == any_device ? 0 : number},
                                       static_cast<std::int32_t>(dimensions), type_of<T>::value, &own->sides[0],
                                       &own->sides[0] + dimensions, 0}};
    return &own->whole;
}

/// The owner of an array that came from elsewhere. T is const for an array that must not be written. One thread at a time.
template <class T>
class imported_vector {
public:
    /// Takes the array over. `stream`: the one whose work uses it; the producer was told of it, and has made it wait. Never
    /// blocks. Throws usage_error for another version, element type or kind of memory, for gaps between elements, and for a
    /// read-only array if T is not const; the array is then still the caller's.
    imported_vector(managed_tensor* array, stream_ref stream) : array_(array), stream_(stream) {
        if (array->major_version != major_version)
            throw usage_error("weir: an array of DLPack's version " + base::number_text(array->major_version) +
                              " came, and version 1 is what is known here");
        tensor const& found = array->tensor;
        if (found.device.kind != device_kind::cuda && found.device.kind != device_kind::cuda_managed)
            throw usage_error("weir: kernels cannot use this array: it lies in the host's memory, or on no device of CUDA's");
        if (!(found.type == type_of<std::remove_const_t<T>>::value))
            throw usage_error("weir: the array's elements are of another type (code " +
                              base::number_text(static_cast<std::size_t>(found.type.code)) + ", " +
                              base::number_text(found.type.bits) + " bits)");
        if (!std::is_const_v<T> && (array->flags & read_only) != 0)
            throw usage_error("weir: the array must not be written; import it as elements that are const");
        std::int64_t stride = 1;
        bool lies_together = true;
        for (std::int32_t i = found.dimensions; i-- > 0;) {
            lies_together &= found.shape[i] == 1 || !found.strides || found.strides[i] == stride;
            stride *= found.shape[i];
        }
        if (!lies_together && stride != 0)
            throw usage_error("weir: there are gaps between the array's elements, or they are not in the order of rows; export "
                              "a contiguous copy");
        size_ = static_cast<std::size_t>(stride);
    }
    imported_vector(imported_vector&& other) noexcept
        : array_(std::exchange(other.array_, nullptr)), stream_(other.stream_), size_(std::exchange(other.size_, 0)) {}
    imported_vector& operator=(imported_vector&&) = delete;
    /// Waits for the stream, and gives the array back: a producer frees on a stream of its own, which knows nothing of this
    /// one. 'end_on' does so without a wait. Not while the stream is captured: the wait would break the capture.
    ~imported_vector() {
        if (!array_)
            return;
        try {
            synchronize(stream_);
        } catch (...) { // the device has failed: nothing runs any more
        }
        give_back();
    }

    /// Makes `producer`, the stream that the producer frees the array on, wait for this one, and gives the array back. Does not
    /// block. Throws as order_after; nothing is given back then.
    void end_on(stream_ref producer) {
        if (!array_)
            return;
        order_after(producer, stream_);
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
    stream_ref stream() const noexcept { return stream_; }

private:
    void give_back() noexcept {
        managed_tensor* const array = std::exchange(array_, nullptr);
        size_ = 0;
        if (array->deleter)
            array->deleter(array);
    }

    managed_tensor* array_; // null: moved from, or given back
    stream_ref stream_;
    std::size_t size_ = 0;
};

} // namespace dlpack
} // namespace interop
} // namespace v0
} // namespace weir
