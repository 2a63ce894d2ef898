// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What runs when a program launches a kernel on the simulated device?
//
// Code for a GPU does not run there. A test registers a host function that stands in for the kernel, and which bytes a
// launch reads and writes. From then on each launch, by '<<<>>>' or any call, is an operation of its stream: it is judged
// when it is launched, and its stand-in runs when the scheduler picks it. A launch of a kernel that has no stand-in answers
// cudaErrorNoKernelImageForDevice and is reported with the kernel's name.
//
//     __global__ void scale(float* xs, float by, int n);
//
//     simulated_device::on_launch(
//         scale, [](float* xs, float by, int n) { for (int i = 0; i < n; ++i) xs[i] *= by; },
//         [](float* xs, float, int n) { return simulated_device::uses{}.reads(xs, n).writes(xs, n); });
//
// Any function can be named as the kernel, so that a file which no nvcc compiled launches it with cudaLaunchKernel.
//
// invariant: the arguments are copied at the launch, as CUDA does.
// invariant: what is registered stays so in every later world; the last registration of a kernel counts.
// cost:      a launch: a look-up, and a copy of its arguments.
// not for:   bytes that the stand-in touches and 'uses' does not name: nobody checks those. __device__ variables.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "control.hpp"

namespace simulated_device {

/// Which bytes a launch reads and which it writes.
class uses {
public:
    /// `count` elements from `p` on; of void, bytes. Nothing if `count` is not above zero.
    template <class T, class Count>
    uses& reads(T* p, Count count) {
        return add(reads_, p, count);
    }
    template <class T, class Count>
    uses& writes(T* p, Count count) {
        return add(writes_, p, count);
    }

    std::vector<bytes> const& all_reads() const { return reads_; }
    std::vector<bytes> const& all_writes() const { return writes_; }

private:
    template <class T, class Count>
    uses& add(std::vector<bytes>& list, T* p, Count count) {
        using element = std::conditional_t<std::is_void_v<T>, char, T>;
        if (count > Count{0})
            list.push_back({const_cast<void const*>(static_cast<void const volatile*>(p)),
                            static_cast<std::size_t>(count) * sizeof(element)});
        return *this;
    }

    std::vector<bytes> reads_;
    std::vector<bytes> writes_;
};

/// How a kernel was launched.
struct launch_shape {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes = 0;
    cudaStream_t stream = nullptr;
};

namespace detail {

/// A launch whose arguments are copied: what it uses, and what will run.
struct prepared_launch {
    uses of;
    std::function<void()> body;
};

using stand_in = std::function<prepared_launch(launch_shape const&, void** arguments)>;

void register_stand_in(void const* kernel, stand_in function, char const* name);

/// An argument as a host function takes it: a pointer to the device's memory becomes one that the host may follow.
template <class T>
T on_host(T const& argument) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>)
        return static_cast<T>(
            argument == nullptr ? nullptr : backing(const_cast<void const*>(static_cast<void const volatile*>(argument))));
    else
        return argument;
}

template <class... Arguments, std::size_t... Index>
std::tuple<Arguments...> copied(void** arguments, std::index_sequence<Index...>) {
    static_cast<void>(arguments); // a kernel may take none
    return std::tuple<Arguments...>(*static_cast<Arguments const*>(arguments[Index])...);
}

} // namespace detail

/// From now on `function` stands in for `kernel`. It is called with a launch's arguments, or with its launch_shape and those;
/// pointers to device memory arrive as pointers to the same bytes that the host may follow (those within a struct do not:
/// see 'backing'). It may call nothing of CUDA's and must not throw. `uses_of` is called at the launch, with the arguments as
/// they are, and returns the bytes that the launch uses. `name`: what reports say; by default, what nvcc says of the kernel.
/// Any thread.
template <class... Arguments, class Function, class Uses>
void on_launch(void (*kernel)(Arguments...), Function function, Uses uses_of, char const* name = nullptr) {
    constexpr bool takes_shape = std::is_invocable_v<Function&, launch_shape const&, Arguments...>;
    static_assert(takes_shape || std::is_invocable_v<Function&, Arguments...>,
                  "simulated_device::on_launch: the function must take what the kernel takes, or a launch_shape and that");
    static_assert(std::is_invocable_r_v<uses, Uses&, Arguments...>,
                  "simulated_device::on_launch: the third argument must take what the kernel takes, and return 'uses'");
    auto const prepare = [function, uses_of](launch_shape const& shape, void** arguments) {
        auto const values = detail::copied<Arguments...>(arguments, std::index_sequence_for<Arguments...>{});
        auto body = [function, shape, values]() mutable {
            static_cast<void>(shape); // the function may not take it
            std::apply(
                [&](Arguments const&... each) {
                    if constexpr (takes_shape)
                        function(shape, detail::on_host(each)...);
                    else
                        function(detail::on_host(each)...);
                },
                values);
        };
        auto of = uses_of; // as a copy that may change itself
        return detail::prepared_launch{std::apply(of, values), std::move(body)};
    };
    detail::register_stand_in(reinterpret_cast<void const*>(kernel), prepare, name);
}

} // namespace simulated_device
