// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What does a binding with pybind11 look like whose arrays go to PyTorch and CuPy, and which takes theirs?
//
// examples/python/README.md shows most of this file; run.py builds and calls it where there is pybind11.

#include <cstdint>
#include <pybind11/pybind11.h>
#include <utility>
#include <vector>
#include <weir/interop/dlpack.hpp>
#include <weir/weir.hpp>

namespace py = pybind11;
namespace dlpack = weir::interop::dlpack;

weir::device_pool& pool() { // never ends: Python may hold an array to its own end
    static auto* const made = new weir::device_pool(weir::pool_options{}.name("mymodule"));
    return *made;
}
cudaStream_t const ours = cudaStreamLegacy; // not null, whose number the protocol forbids

struct array {
    weir::device_vector<float> xs;
    bool given = false;
};

// array.__dlpack__(stream=..., max_version=...)
py::capsule give(array& self, py::object stream, py::object max_version, py::kwargs) {
    if (self.given)
        throw py::buffer_error("this array was given away");
    if (max_version.is_none()) // an old consumer: 'without_version', in a capsule named 'dltensor'
        throw py::buffer_error("DLPack's version 1 is what is given here");
    std::int64_t const consumer = stream.is_none() ? 1 : stream.cast<std::int64_t>();
    auto* const tensor = dlpack::export_vector(std::move(self.xs), dlpack::consumer_stream(consumer));
    self.given = true;
    return py::capsule(tensor, "dltensor_versioned", [](PyObject* capsule) {
        if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) // whoever takes the array renames the capsule
            return;
        auto* const left = static_cast<dlpack::managed_tensor*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
        left->deleter(left);
    });
}

float first_of(py::object from) {
    py::capsule const capsule = from.attr("__dlpack__")(py::arg("stream") = reinterpret_cast<std::intptr_t>(ours),
                                                        py::arg("max_version") = py::make_tuple(1, 0));
    void* const tensor = PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned");
    if (!tensor)
        throw py::error_already_set();
    dlpack::imported_vector<float> const xs(static_cast<dlpack::managed_tensor*>(tensor), ours);
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned"); // the array was the capsule's until here, and now it is xs's
    float first = 0;
    weir::check_cuda(cudaMemcpyAsync(&first, xs.data(), sizeof first, cudaMemcpyDefault, ours), "cudaMemcpyAsync");
    weir::synchronize(ours);
    return first;
}

PYBIND11_MODULE(mymodule, module) {
    py::class_<array>(module, "Array")
        .def(py::init([](std::size_t n) { return array{{pool(), ours, std::vector<float>(n, 2.0f)}}; }))
        .def("__dlpack__", &give, py::arg("stream") = py::none(), py::arg("max_version") = py::none())
        .def("__dlpack_device__", [](array const&) { return py::make_tuple(2, pool().device()); }); // 2: CUDA's memory
    module.def("first_of", &first_of);
    module.def("live_blocks", [] { return pool().state().live_blocks; });
}
