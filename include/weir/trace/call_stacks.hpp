// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which functions called one another down to the line that allocates?
//
//     weir::layer::record<weir::device_pool, weir::trace::call_stacks<>> pool(tape);
//
// At each allocation that is recorded the stack is walked with the unwinder that throws exceptions, too. A stack that was seen
// before has a number, by a hash of its addresses. Of a new one each frame is named and gets a number of the name_table, from
// the outermost inwards, so that stacks share what they have in common. The innermost frame is the line that asks, where that
// is known; weir's own frames within are left out.
//
// Functions are named by the linker's table of symbols (function_names.hpp). So a program needs neither debug information nor
// '-rdynamic', but may not be stripped: then a frame is the module's name and an offset in it, as for 'addr2line', and weir's
// own are there, too. What lies where a library was unloaded is named anew.
//
// invariant: an allocation is recorded whether its stack can be walked or not; at worst its line stands alone.
// order:     a lock of its own, of one layer; while it is held, a new stack's names are read from files.
// cost:      some 200 ns a frame that is walked, at each allocation. The first time from an address: the module's symbols are
//            read, 1 ms for 500,000 of them. Host memory: some 100 bytes for each new stack and each new function.
// not for:   callers that the compiler inlined, or left by a tail call: the stack does not have them. Their lines: a return
//            address is known by its function.

#include <cstddef>
#include <cstdint>
#include <new>
#include <unwind.h>
#include <weir/base/address_map.hpp>
#include <weir/base/call_site.hpp>
#include <weir/base/threads/mutex.hpp>
#include <weir/trace/call_stacks/function_names.hpp>
#include <weir/trace/name_table.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// A policy of layer::record. At most `Frames` frames are walked, weir's own among them: what lies further out is left out.
template <std::size_t Frames = 64>
class call_stacks {
    static_assert(Frames != 0, "weir: call_stacks walks no frame; leave the policy out, or give a number from 1 on");

public:
    call_stacks() noexcept = default;
    call_stacks(call_stacks const&) = delete;
    call_stacks& operator=(call_stacks const&) = delete;

    /// The number of the innermost frame. Any thread.
    [[gnu::noinline]] std::uint32_t site_of(name_table& names, call_site const& where) noexcept {
        walked stack;
        _Unwind_Backtrace(&call_stacks::step, &stack);
        std::uint64_t const key = hash_of(stack, where);
        base::lock_guard<base::mutex> const lock(mutex_);
        if (functions_.forget_unloaded())
            by_stack_ = base::address_map();
        std::uint32_t const known = by_stack_.find(key);
        if (known != base::address_map::none)
            return known;
        try {
            std::uint32_t const fresh = number_of(names, stack, where);
            if (fresh != 0)
                by_stack_.insert(key, fresh);
            return fresh;
        } catch (...) { // the host has no memory for it
            return names.number_of(where);
        }
    }

private:
    struct walked {
        std::size_t size = 0;
        std::uintptr_t at[Frames]; // the innermost first
    };

    static _Unwind_Reason_Code step(_Unwind_Context* frame, void* to) noexcept {
        walked& stack = *static_cast<walked*>(to);
        int is_at_fault = 0; // a signal came there: then it is no return address, which is the next instruction's
        std::uintptr_t const at = _Unwind_GetIPInfo(frame, &is_at_fault);
        if (at == 0 || stack.size == Frames)
            return _URC_NORMAL_STOP;
        stack.at[stack.size++] = is_at_fault ? at : at - 1;
        return _URC_NO_REASON;
    }

    // Two stacks in 2^32 get one number by accident; nothing but a name is wrong then.
    static std::uint64_t hash_of(walked const& stack, call_site const& where) noexcept {
        std::uint64_t hash = reinterpret_cast<std::uintptr_t>(where.file) ^ std::uint64_t{where.line} << 48;
        for (std::size_t i = 0; i < stack.size; ++i) {
            hash = (hash ^ stack.at[i]) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 32;
        }
        return hash | 1;
    }

    std::uint32_t number_of(name_table& names, walked const& stack, call_site const& where) {
        std::size_t first = 0;
        while (first != stack.size && functions_.at(stack.at[first]).is_weirs())
            ++first;
        // The line says more than its function does.
        if (where.line != 0 && first != stack.size && functions_.at(stack.at[first]).is_called(where.function))
            ++first;
        std::uint32_t caller = 0;
        for (std::size_t i = stack.size; i-- > first;) {
            caller = names.number_of(caller, "", functions_.at(stack.at[i]).name.c_str(), 0);
            if (caller == 0)
                throw std::bad_alloc();
        }
        return where.line == 0 ? caller : names.number_of(caller, where.file, where.function, where.line);
    }

    base::mutex mutex_;
    base::address_map by_stack_;
    detail::function_names functions_;
};

} // namespace trace
} // namespace v0
} // namespace weir
