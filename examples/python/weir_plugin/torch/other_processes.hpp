// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a tensor reach another process?
//
// PyTorch carries a text of ours from the sender to the receiver, and an offset. The text names the sender's socket and the
// chunks that the block lies in; the receiver asks there for a descriptor of each, and maps them side by side. A tensor of a
// process that has PyTorch's own allocator comes with a handle of cudaMalloc's memory, which is opened here too. PyTorch's own
// allocator does not know weir's text: so both sides have weir, or only the receiver.
//
// invariant: the same text gives the same mapping for as long as anybody has it.
// order:     PyTorch orders the streams by an event of its own. A mapping that ends waits for its device.
// cost:      about 0.1 ms a chunk of 2 MiB or more for each receiver; for the pool see WEIR_PLUGIN_HANDLES.

#include "blocks.hpp"
#include "descriptors.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace weir_plugin::torch {

/// The driver's functions for it.
struct sharing_calls {
    decltype(&::cuMemRetainAllocationHandle) retain = nullptr;
    decltype(&::cuMemExportToShareableHandle) to_descriptor = nullptr;
    decltype(&::cuMemImportFromShareableHandle) from_descriptor = nullptr;
    decltype(&::cuMemRelease) release = nullptr;
    decltype(&::cuMemAddressReserve) reserve = nullptr;
    decltype(&::cuMemAddressFree) unreserve = nullptr;
    decltype(&::cuMemMap) map = nullptr;
    decltype(&::cuMemUnmap) unmap = nullptr;
    decltype(&::cuMemSetAccess) set_access = nullptr;

    sharing_calls() {
        find("cuMemRetainAllocationHandle", retain);
        find("cuMemExportToShareableHandle", to_descriptor);
        find("cuMemImportFromShareableHandle", from_descriptor);
        find("cuMemRelease", release);
        find("cuMemAddressReserve", reserve);
        find("cuMemAddressFree", unreserve);
        find("cuMemMap", map);
        find("cuMemUnmap", unmap);
        find("cuMemSetAccess", set_access);
    }

private:
    template <class Function>
    static void find(char const* name, Function& function) {
        weir::runtime::detail::driver_functions::find(name, function);
        if (!function)
            throw weir::usage_error(weir::text("weir: this driver has no ") + name +
                                    ", so tensors do not go to other processes; send a copy on the host ('.cpu()')");
    }
};
inline sharing_calls const& sharing() {
    static sharing_calls const found;
    return found;
}
inline void require_success(CUresult result, char const* call) {
    weir::check_cuda(static_cast<cudaError_t>(result), call); // the numbers are the same
}

/// A descriptor of the memory behind a chunk. Throws cuda_error.
inline descriptor descriptor_of(std::size_t address) {
    CUmemGenericAllocationHandle memory = 0;
    require_success(sharing().retain(&memory, reinterpret_cast<void*>(address)), "cuMemRetainAllocationHandle");
    int number = -1;
    CUresult const got = sharing().to_descriptor(&number, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    static_cast<void>(sharing().release(memory));
    require_success(got, "cuMemExportToShareableHandle");
    return descriptor(number);
}

/// The chunks that `bytes` bytes at `address` lie in, in their order; none: it is no memory of the pool's.
inline std::vector<chunk_name> chunks_around(int device, std::size_t address, std::size_t bytes) {
    return ledger_of(device).with_chunks([&](chunks const& all, chunks const&) {
        std::vector<chunk_name> found;
        std::size_t end = address; // of what was found
        auto next = all.upper_bound(address);
        if (next != all.begin() && (--next)->first + next->second.bytes > address)
            for (; next != all.end() && end < address + bytes && (found.empty() || next->first == end); ++next) {
                found.push_back({device, next->second.number, next->first, next->second.bytes});
                end = next->first + next->second.bytes;
            }
        return end < address + bytes ? std::vector<chunk_name>() : found;
    });
}

/// The server of this process.
inline descriptor_server& own_descriptors() {
    static auto* const made = new descriptor_server([](chunk_name const& wanted) {
        if (wanted.device < 0 || wanted.device >= most_devices)
            return descriptor();
        std::vector<chunk_name> const found = chunks_around(wanted.device, static_cast<std::size_t>(wanted.address), 1);
        bool const known = !found.empty() && found[0].address == wanted.address && found[0].bytes == wanted.bytes &&
                           found[0].number == wanted.number;
        return known ? descriptor_of(static_cast<std::size_t>(wanted.address)) : descriptor();
    });
    return *made;
}

template <class T>
void put(std::string& to, T const& value) {
    to.append(reinterpret_cast<char const*>(&value), sizeof value);
}
/// Takes what 'put' wrote off the front.
template <class T>
T next_of(std::string const& from, std::size_t& at) {
    T value{};
    if (from.size() < at + sizeof value)
        throw weir::usage_error("weir: what another process sent of a tensor ends too early");
    std::memcpy(&value, from.data() + at, sizeof value);
    at += sizeof value;
    return value;
}

constexpr char ours[] = "weir tensor 1"; // PyTorch's own begin with a small number

/// What another process needs for the block at `p`. Throws weir::usage_error if it cannot be had there, and says why; cuda_error.
inline cuda_caching::ShareableHandle share(void* p) {
#if WEIR_PLUGIN_HANDLES == 0
    static_cast<void>(p);
    throw weir::usage_error(
        "weir: a tensor of weir's cannot be sent to another process unless the pool is made for it: begin with "
        "weir_torch.use(shares=True), or send a copy on the host ('.cpu()')");
#else
    live_tensor known;
    int const device = device_of_block([&](int each) { return ledger_of(each).find(p, known); });
    if (device < 0)
        throw weir::usage_error("weir: what is sent to another process begins in no block of weir's; send a copy on the host "
                                "('.cpu()')");
    std::vector<chunk_name> const parts = chunks_around(device, known.address, known.bytes);
    if (parts.empty())
        throw weir::usage_error("weir: a tensor of a MemPool over another allocator cannot be sent to another process; send a "
                                "copy on the host ('.cpu()')");
    // A system that forbids it tells the sender.
    static_cast<void>(descriptor_of(static_cast<std::size_t>(parts.front().address)));
    std::string said(ours, sizeof ours);
    put(said, static_cast<std::uint32_t>(own_descriptors().name().size()));
    said += own_descriptors().name();
    put(said, static_cast<std::uint64_t>(parts.size()));
    for (chunk_name const& each : parts)
        put(said, each);
    return {static_cast<std::ptrdiff_t>(known.address - static_cast<std::size_t>(parts.front().address)), said};
#endif
}

/// Memory of another process, mapped here until this ends.
class received_memory {
public:
    /// Throws weir::usage_error, cuda_error.
    received_memory(int device, std::string const& said) : device_(device) {
        std::size_t at = sizeof ours;
        auto const length = next_of<std::uint32_t>(said, at);
        descriptor_client const sender(said.substr(std::min(at, said.size()), length));
        at += length;
        std::vector<chunk_name> parts;
        std::size_t whole = 0;
        for (auto left = next_of<std::uint64_t>(said, at); left != 0; --left) {
            parts.push_back(next_of<chunk_name>(said, at));
            whole += static_cast<std::size_t>(parts.back().bytes);
        }
        require_success(sharing().reserve(&address_, whole, 0, 0, 0), "cuMemAddressReserve");
        reserved_ = whole;
        try {
            for (chunk_name const& each : parts)
                map(sender.get(each), static_cast<std::size_t>(each.bytes));
        } catch (...) {
            end();
            throw;
        }
    }
    received_memory(received_memory const&) = delete;
    received_memory& operator=(received_memory const&) = delete;
    ~received_memory() {
        try {
            weir::runtime::device_scope const there(device_);
            weir::runtime::wait_for_device(device_);
        } catch (...) { // a lost device: nothing runs there
        }
        end();
    }
    void* address() const noexcept { return reinterpret_cast<void*>(address_); }

private:
    void map(descriptor const& given, std::size_t bytes) {
        CUmemGenericAllocationHandle memory = 0;
        auto* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(given.number()));
        require_success(sharing().from_descriptor(&memory, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                        "cuMemImportFromShareableHandle");
        CUresult const done = sharing().map(address_ + mapped_bytes_, bytes, 0, memory, 0);
        static_cast<void>(sharing().release(memory)); // the mapping keeps it
        require_success(done, "cuMemMap");
        mapped_.push_back(bytes);
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = device_;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        require_success(sharing().set_access(address_ + mapped_bytes_, bytes, &access, 1), "cuMemSetAccess");
        mapped_bytes_ += bytes;
    }
    void end() noexcept {
        CUdeviceptr at = address_;
        for (std::size_t const bytes : mapped_) {
            static_cast<void>(sharing().unmap(at, bytes));
            at += bytes;
        }
        static_cast<void>(sharing().unreserve(address_, reserved_));
    }

    int device_;
    CUdeviceptr address_ = 0;
    std::size_t reserved_ = 0, mapped_bytes_ = 0;
    std::vector<std::size_t> mapped_;
};

/// PyTorch's own text for memory of cudaMalloc's: a version, 'c', and CUDA's handle.
inline std::shared_ptr<void> opened_handle(std::string const& said) {
    constexpr std::size_t head = 2;
    if (said.size() != head + sizeof(cudaIpcMemHandle_t) || said[1] != 'c')
        throw weir::usage_error(
            "weir: a tensor of another process comes in a way that is not known here, such as from PyTorch's "
            "expandable segments; let the sender use weir too (weir_torch.use(shares=True)), or leave out "
            "expandable_segments there");
    std::size_t at = head;
    void* p = nullptr;
    weir::check_cuda(cudaIpcOpenMemHandle(&p, next_of<cudaIpcMemHandle_t>(said, at), cudaIpcMemLazyEnablePeerAccess),
                     "cudaIpcOpenMemHandle");
    return {p, [](void* gone) { static_cast<void>(cudaIpcCloseMemHandle(gone)); }};
}

/// The memory that such a text names, on the current device; what somebody has already is not mapped twice. Throws
/// weir::usage_error, cuda_error.
inline std::shared_ptr<void> open_shared(std::string const& said) {
    static auto* const mutex = new std::mutex;
    static auto* const known = new std::map<std::pair<int, std::string>, std::weak_ptr<void>>; // guarded by it
    std::lock_guard<std::mutex> const lock(*mutex);
    for (auto each = known->begin(); each != known->end();)
        each = each->second.expired() ? known->erase(each) : std::next(each);
    int const device = weir::runtime::current_device();
    std::weak_ptr<void>& found = (*known)[{device, said}];
    if (std::shared_ptr<void> const whole = found.lock())
        return whole;
    std::shared_ptr<void> whole;
    if (said.compare(0, sizeof ours, std::string(ours, sizeof ours)) == 0) {
        auto const made = std::make_shared<received_memory>(device, said);
        whole = std::shared_ptr<void>(made, made->address());
    } else {
        whole = opened_handle(said);
    }
    found = whole;
    return whole;
}

} // namespace weir_plugin::torch
