// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// A tool that NVTX finds in the program itself ('static injection'), in place of compute-sanitizer and Nsight Systems. It
// remembers what it is told, and complains of what those could not take: a region outside of its heap or over another, one that
// goes twice, a heap that goes before its regions. One file of a program includes it, before any other header of NVTX's.

#include <cstdint>
#include <doctest/doctest.h>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtMem.h>
#include <string>
#include <vector>

namespace support {

struct nvtx_tool {
    struct region {
        std::size_t bytes;
        std::uintptr_t heap;
        std::string name;
    };
    std::mutex mutex;
    bool listens = true;                           ///< asked as a heap or a counter is registered
    std::map<std::uintptr_t, std::size_t> heaps;   ///< address and bytes
    std::map<std::uintptr_t, region> regions;      ///< by address
    int registered = 0, unregistered = 0;          ///< regions so far
    std::function<void(std::uintptr_t)> on_region_ends = [](std::uintptr_t) {};
    std::vector<std::string> counters;             ///< names; the number of the first is 1
    std::map<std::uint64_t, std::vector<std::int64_t>> samples;
    std::vector<std::string> ranges;               ///< '+name', '-', and '!name' for a mark, of weir's domain

    void forget() {
        CHECK(heaps.empty());
        CHECK(regions.empty());
        CHECK(registered == unregistered);
        registered = unregistered = 0;
        on_region_ends = [](std::uintptr_t) {};
        counters.clear(), samples.clear(), ranges.clear();
        listens = true;
    }
};

inline nvtx_tool& tool() {
    static nvtx_tool one;
    return one;
}

namespace nvtx_calls {

inline std::uintptr_t number(void const* p) { return reinterpret_cast<std::uintptr_t>(p); }
inline nvtxDomainHandle_t weirs() { return reinterpret_cast<nvtxDomainHandle_t>(std::uintptr_t{7}); }

inline nvtxDomainHandle_t create(char const* name) { return name == std::string("weir") ? weirs() : nullptr; }
inline void destroy(nvtxDomainHandle_t) {}
inline int push(nvtxDomainHandle_t domain, nvtxEventAttributes_t const* told) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    if (domain == weirs())
        tool().ranges.push_back(std::string("+") + told->message.ascii);
    return 0;
}
inline int pop(nvtxDomainHandle_t domain) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    if (domain == weirs())
        tool().ranges.push_back("-");
    return 0;
}
inline void mark(nvtxDomainHandle_t domain, nvtxEventAttributes_t const* told) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    if (domain == weirs())
        tool().ranges.push_back(std::string("!") + told->message.ascii);
}

inline nvtxMemHeapHandle_t enter_heap(nvtxDomainHandle_t, nvtxMemHeapDesc_t const* told) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    if (!tool().listens)
        return nullptr;
    CHECK(told->usage == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR);
    auto const& range = *static_cast<nvtxMemVirtualRangeDesc_t const*>(told->typeSpecificDesc);
    CHECK(told->typeSpecificDescSize == sizeof range);
    CHECK_MESSAGE(tool().heaps.count(number(range.ptr)) == 0, "a heap was registered twice");
    tool().heaps[number(range.ptr)] = range.size;
    return reinterpret_cast<nvtxMemHeapHandle_t>(number(range.ptr));
}
inline void leave_heap(nvtxDomainHandle_t, nvtxMemHeapHandle_t heap) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    for (auto const& each : tool().regions)
        CHECK_MESSAGE(each.second.heap != number(heap), "a heap goes before its regions");
    CHECK(tool().heaps.erase(number(heap)) == 1);
}
inline void enter_regions(nvtxDomainHandle_t, nvtxMemRegionsRegisterBatch_t const* told) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    auto const& range = *static_cast<nvtxMemVirtualRangeDesc_t const*>(told->regionDescElements);
    REQUIRE(told->regionCount == 1);
    std::uintptr_t const heap = number(told->heap), first = number(range.ptr);
    REQUIRE(tool().heaps.count(heap) == 1);
    CHECK(first >= heap);
    CHECK(first + range.size <= heap + tool().heaps[heap]);
    auto const next = tool().regions.lower_bound(first);
    if (next != tool().regions.end())
        CHECK_MESSAGE(first + range.size + 256 <= next->first, "no zone behind a region");
    if (next != tool().regions.begin())
        CHECK_MESSAGE(std::prev(next)->first + std::prev(next)->second.bytes + 256 <= first, "no zone before a region");
    tool().regions[first] = {range.size, heap, ""};
    ++tool().registered;
}
inline void leave_regions(nvtxDomainHandle_t, nvtxMemRegionsUnregisterBatch_t const* told) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    REQUIRE(told->refCount == 1);
    REQUIRE(told->refType == NVTX_MEM_REGION_REF_TYPE_POINTER);
    tool().on_region_ends(number(told->refElements->pointer));
    CHECK(tool().regions.erase(number(told->refElements->pointer)) == 1);
    ++tool().unregistered;
}
inline void name_regions(nvtxDomainHandle_t, nvtxMemRegionsNameBatch_t const* told) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    auto const found = tool().regions.find(number(told->regionElements->region.pointer));
    REQUIRE(found != tool().regions.end());
    found->second.name = told->regionElements->name.ascii;
}

inline std::uint64_t enter_counter(nvtxDomainHandle_t, nvtxCounterAttr_t const* told) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    if (!tool().listens)
        return NVTX_COUNTER_ID_NONE;
    tool().counters.push_back(told->name);
    return tool().counters.size();
}
inline void sample(nvtxDomainHandle_t, std::uint64_t counter, std::int64_t value) {
    std::lock_guard<std::mutex> const lock(tool().mutex);
    tool().samples[counter].push_back(value);
}

template <class Function>
std::intptr_t slot(Function* function) {
    return reinterpret_cast<std::intptr_t>(function);
}

inline int attach_extension(nvtxExtModuleInfo_t* module) {
    std::intptr_t* const slots = module->segments[0].functionSlots;
    if (module->moduleId == NVTX_EXT_MODULEID_MEM) {
        slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = slot(&enter_heap);
        slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = slot(&leave_heap);
        slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = slot(&enter_regions);
        slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = slot(&leave_regions);
        slots[NVTX3EXT_CBID_nvtxMemRegionsName] = slot(&name_regions);
    } else if (module->moduleId == NVTX_EXT_COUNTERS_MODULEID) {
        slots[NVTX3EXT_CBID_nvtxCounterRegister] = slot(&enter_counter);
        slots[NVTX3EXT_CBID_nvtxCounterSampleInt64] = slot(&sample);
    }
    return 1;
}

inline int attach(NvtxGetExportTableFunc_t exports) {
    NvtxFunctionTable functions = nullptr;
    unsigned size = 0;
    if (static_cast<NvtxExportTableCallbacks const*>(exports(NVTX_ETID_CALLBACKS))
            ->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &size) == 0)
        return 0;
    auto const set = [&](int which, auto* function) {
        *functions[which] = reinterpret_cast<NvtxFunctionPointer>(function);
    };
    set(NVTX_CBID_CORE2_DomainCreateA, &create);
    set(NVTX_CBID_CORE2_DomainDestroy, &destroy);
    set(NVTX_CBID_CORE2_DomainRangePushEx, &push);
    set(NVTX_CBID_CORE2_DomainRangePop, &pop);
    set(NVTX_CBID_CORE2_DomainMarkEx, &mark);
    return 1;
}

// NVTX looks at these two at its first call, which comes after the static objects of all files.
inline bool const is_found = (InitializeInjectionNvtx2_fnptr = &attach,
                              InitializeInjectionNvtxExtension_fnptr = &attach_extension, true);

} // namespace nvtx_calls
} // namespace support
