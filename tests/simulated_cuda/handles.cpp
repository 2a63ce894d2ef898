// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What does a stale handle point to?
//
// To a slot of one static table, so that it can be told from a live one and from garbage without being
// dereferenced blindly. Slots are reused at once, last in first out: a library that takes a handle for an
// identity meets its mistake in every run.

#include "state.hpp"

#include <cstdlib>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simulated_device::inside {

namespace {

template <class Slot>
class slot_table {
public:
    /// 'hint': where it begins unless that is taken, so that handles, and what is hashed by them, are the same in every run.
    explicit slot_table(std::uintptr_t hint) {
        long const at = syscall(SYS_mmap, hint, capacity * sizeof(Slot), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == -1)
            std::abort();
        first_ = reinterpret_cast<Slot*>(at);
    }

    Slot* take() {
        if (!free_.empty()) {
            Slot* const slot = free_.back();
            free_.pop_back();
            return slot;
        }
        if (used_ == capacity)
            std::abort();
        return first_ + used_++;
    }

    void give(Slot* slot) {
        slot->record = nullptr;
        free_.push_back(slot);
    }

    bool has(Slot const* slot) const {
        auto const offset = reinterpret_cast<std::uintptr_t>(slot) - reinterpret_cast<std::uintptr_t>(first_);
        return offset < used_ * sizeof(Slot) && offset % sizeof(Slot) == 0;
    }

    void reset() {
        for (std::size_t slot = 0; slot < used_; ++slot)
            first_[slot].record = nullptr;
        free_.clear();
        used_ = 0;
    }

private:
    static constexpr std::size_t capacity = std::size_t(1) << 22;
    Slot* first_;
    std::size_t used_ = 0;
    std::vector<Slot*> free_;
};

slot_table<CUstream_st>& stream_slots() {
    static auto* const table = new slot_table<CUstream_st>(0x7e8800000000u);
    return *table;
}

slot_table<CUevent_st>& event_slots() {
    static auto* const table = new slot_table<CUevent_st>(0x7e8900000000u);
    return *table;
}

} // namespace

CUstream_st* take_stream_handle() {
    return stream_slots().take();
}
CUevent_st* take_event_handle() {
    return event_slots().take();
}
void give_handle(CUstream_st* handle) {
    stream_slots().give(handle);
}
void give_handle(CUevent_st* handle) {
    event_slots().give(handle);
}
bool is_handle(CUstream_st const* handle) {
    return stream_slots().has(handle);
}
bool is_handle(CUevent_st const* handle) {
    return event_slots().has(handle);
}

void reset_handles() {
    stream_slots().reset();
    event_slots().reset();
}

} // namespace simulated_device::inside
