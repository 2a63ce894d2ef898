# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A tensor's memory as another process has it, by use(shares=True): sent and received here by one process, for with_torch.py. The
simulated device has no second one, and no events for it, so PyTorch's own part of sending is gpu.py's."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

import weir_plugin
import weir_torch

SOURCE = """
#include <c10/cuda/CUDACachingAllocator.h>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace { std::vector<std::shared_ptr<void>> held; std::string said, error; }

extern "C" char const* error_text() { return error.c_str(); }
extern "C" char const* send(void* p, size_t* bytes, long* offset) {
    try {
        auto const handle = c10::cuda::CUDACachingAllocator::get()->shareIpcHandle(p);
        said = handle.handle;
        *bytes = said.size();
        *offset = handle.offset;
        return said.data();
    } catch (std::exception const& failure) {
        error = failure.what();
        return nullptr;
    }
}
extern "C" void* receive(char const* text, size_t bytes) {
    try {
        held.push_back(c10::cuda::CUDACachingAllocator::get()->getIpcDevPtr(std::string(text, bytes)));
        return held.back().get();
    } catch (std::exception const& failure) {
        error = failure.what();
        return nullptr;
    }
}
extern "C" void drop() { held.clear(); }
"""


def helper():
    place, top = pathlib.Path(tempfile.mkdtemp()) / "shares.so", pathlib.Path(torch.__file__).parent
    place.with_suffix(".cpp").write_text(SOURCE)
    subprocess.run(["g++", "-std=c++20", "-O0", "-shared", "-fPIC", "-isystem", top / "include",
                    *weir_plugin.cuda_flags(weir_plugin.cuda_runtime()), place.with_suffix(".cpp"), f"-L{top / 'lib'}",
                    "-lc10_cuda", "-lc10", "-o", place], check=True)
    code = ctypes.CDLL(str(place))
    code.error_text.restype = ctypes.c_char_p
    code.send.restype = code.receive.restype = ctypes.c_void_p
    code.send.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    code.receive.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    return code


def main():
    weir_torch.use(shares=True, limit="1 GiB")
    code = helper()

    def sent(p):
        size, offset = ctypes.c_size_t(), ctypes.c_long()
        text = code.send(p, ctypes.byref(size), ctypes.byref(offset))
        assert text, code.error_text()
        return ctypes.string_at(text, size.value), offset.value

    def refused(call, *words):
        assert not call(), "nothing was refused"
        said = code.error_text().decode()
        assert all(word in said for word in words), said

    small, large = torch.arange(1000).cuda(), torch.arange(3 << 20).cuda()  # in one chunk, and across several
    for tensor in (small, large):
        text, offset = sent(tensor.data_ptr())
        there = code.receive(text, len(text))
        assert there, code.error_text()
        assert there + offset != tensor.data_ptr() and code.receive(text, len(text)) == there, "it was not mapped once"
        storage = torch._C._construct_storage_from_data_pointer(there + offset, torch.device("cuda:0"), 8 * len(tensor))
        seen = torch.empty(0, dtype=torch.int64, device="cuda").set_(storage)
        assert torch.equal(seen.cpu(), tensor.cpu()), "other contents"
        seen.copy_((7 * torch.arange(len(tensor))).cuda())
        assert torch.equal(tensor.cpu(), 7 * torch.arange(len(tensor))), "the sender does not see it"
        del seen, storage
    refused(lambda: code.send(small.data_ptr() + 8, ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_long())),
            "begins in no block of weir's", "'.cpu()'")
    refused(lambda: code.receive(text[:-4], len(text) - 4), "ends too early")
    refused(lambda: code.receive(b"\x03e" + text, len(text) + 2), "not known here", "shares=True")
    gone = text.replace(b"weir-", b"gone-")
    refused(lambda: code.receive(gone, len(gone)), "cannot be had from its sender", "has to live")
    code.drop()
    del large, tensor
    torch.cuda.empty_cache()
    refused(lambda: code.receive(text, len(text)), "cannot be had from its sender", "does not have the memory")
    print("all holds")


main()
