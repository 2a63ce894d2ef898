// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What did NCCL say, and what does it call the types of C++?
//
// Each call of NCCL's answers a number. A number that is no success becomes an exception that tells the call, the number, and
// what NCCL noted of the cause.
//
// order:     NCCL's text on what led to an error is the calling thread's last one, so it is asked for at once.
// cost:      a comparison for a call that succeeds.

#include <cstddef>
#include <exception>
#include <nccl.h>
#include <type_traits>
#include <utility>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace interop {
namespace nccl {

/// A call of NCCL's failed. The text names the call, what NCCL says of the error, and of what led to it.
class nccl_error : public std::exception {
public:
    nccl_error(char const* call, ncclResult_t code, ncclComm_t of)
        : said_(text("weir: ") + call + " failed: " + ncclGetErrorString(code) + " (" +
                base::number_text(static_cast<std::size_t>(code)) + "): " + ncclGetLastError(of)),
          code_(code) {}
    explicit nccl_error(text said) : said_(std::move(said)), code_(ncclInProgress) {}

    char const* what() const noexcept override { return said_.c_str(); }
    /// NCCL's number; ncclInProgress: it took too long.
    ncclResult_t code() const noexcept { return code_; }

private:
    text said_;
    ncclResult_t code_;
};

/// Throws nccl_error unless `result` is success.
inline void check_nccl(ncclResult_t result, char const* call, ncclComm_t of = nullptr) {
    if (result != ncclSuccess)
        throw nccl_error(call, result, of);
}

namespace detail {
template <class T>
constexpr ncclDataType_t type_of() noexcept {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) != 2 && sizeof(T) <= 8,
                  "weir: NCCL has no such type; specialize 'weir::interop::nccl::data_type', as in 'template <> inline "
                  "constexpr ncclDataType_t weir::interop::nccl::data_type<__half> = ncclFloat16;'");
    if constexpr (std::is_floating_point_v<T>)
        return sizeof(T) == 4 ? ncclFloat32 : ncclFloat64;
    else if constexpr (std::is_signed_v<T>)
        return sizeof(T) == 1 ? ncclInt8 : sizeof(T) == 4 ? ncclInt32 : ncclInt64;
    else
        return sizeof(T) == 1 ? ncclUint8 : sizeof(T) == 4 ? ncclUint32 : ncclUint64;
}
template <class Range>
using element_of = std::remove_cv_t<std::remove_pointer_t<decltype(std::declval<Range&>().data())>>;
} // namespace detail

/// NCCL's name of a type. Specialize it for types that C++ does not have.
template <class T>
inline constexpr ncclDataType_t data_type = detail::type_of<T>();

} // namespace nccl
} // namespace interop
} // namespace v0
} // namespace weir
