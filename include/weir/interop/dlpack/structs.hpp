// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does an array look like where DLPack hands it from one library to another?
//
// The structs are declared here, after version 1 of DLPack, so that neither a file of its project nor one of its many copies
// is needed. The layout is fixed for all of version 1, and the struct changes hands as an untyped pointer, so a program that
// has DLManagedTensorVersioned too loses nothing. The struct of before version 1 can be had from the other, and the other from
// it.
//
// invariant: whoever owns a struct calls its deleter once.
// cost:      a struct made from the other is one allocation.
// not for:   owning an array: see 'imported_vector' in interop/dlpack.hpp.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <weir/base/error.hpp>

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

namespace detail {

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

} // namespace dlpack
} // namespace interop
} // namespace v0
} // namespace weir
