// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What can go wrong, and what does the exception carry?
//
// There are three families. 'usage_error': the caller broke a precondition, and a retry cannot help. 'cuda_error': a CUDA
// call failed for a reason other than memory. 'out_of_memory': there was no room. It derives from std::bad_alloc, so code
// that already handles exhaustion handles it too. The other two derive from std::exception alone, because <stdexcept> would
// bring in <string> (see base/text.hpp).
//
// invariant: a call that throws one of these left its pool as it was before; copying one never throws.
// order:     the parts of a pool signal 'no room' to each other with a null pointer; only the outermost 'allocate' throws
//            out_of_memory.
// cost:      the text is built when an exception is made, never on a path that succeeds.
// not for:   'deallocate' and destructors: they never throw.

#include <cstddef>
#include <new>
#include <utility>
#include <weir/base/memory_report.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>

namespace weir {
inline namespace v0 {

/// A broken precondition: a bad alignment, a stream of another device, an allocation on a capturing stream, a
/// free of memory that was not handed out. The text says what to do instead.
class usage_error : public std::exception {
public:
    explicit usage_error(text said) noexcept : said_(std::move(said)) {}
    usage_error(usage_error const&) noexcept = default; // a move is a copy, so no text is ever empty
    usage_error& operator=(usage_error const&) noexcept = default;

    char const* what() const noexcept override { return said_.c_str(); }

private:
    text said_;
};

namespace base {
// These are not inlined, so that building the sentence takes no registers from an allocation that succeeds.
[[noreturn, gnu::noinline]] inline void refuse_alignment(std::size_t alignment) {
    throw usage_error("weir: an alignment must be a power of two; got " + base::number_text(alignment));
}
[[noreturn, gnu::noinline]] inline void refuse_null(std::size_t bytes) {
    throw usage_error("weir: " + base::count_text(bytes, " byte") +
                      " cannot be copied from or to a null address; pass the address of as many");
}

/// Throws usage_error if `p` is null although `bytes` bytes are to be copied from or to it.
inline void require_not_null(void const* p, std::size_t bytes) {
    if (!p && bytes != 0)
        refuse_null(bytes);
}

/// Throws usage_error if `alignment` is not a power of two.
inline void require_power_of_two(std::size_t alignment) {
    if (!is_power_of_two(alignment))
        refuse_alignment(alignment);
}
} // namespace base

/// A CUDA call failed. The text names the call and has CUDA's name for the error.
class cuda_error : public std::exception {
public:
    /// `call`: the function's name, which must be a literal. `name`: CUDA's name for the error. `code`: its number, not
    /// negative. `advice`: what to do about it, or "".
    cuda_error(char const* call, char const* name, int code, char const* advice)
        : said_(text("weir: ") + call + " failed with " + name + " (" + base::number_text(static_cast<std::size_t>(code)) +
                ")" + (*advice ? ": " : "") + advice),
          call_(call), code_(code) {}
    cuda_error(cuda_error const&) noexcept = default; // see usage_error
    cuda_error& operator=(cuda_error const&) noexcept = default;

    char const* what() const noexcept override { return said_.c_str(); }
    /// The name of the CUDA function that failed.
    char const* call() const noexcept { return call_; }
    /// The error's number, as in cudaError_t.
    int code() const noexcept { return code_; }

private:
    text said_;
    char const* call_;
    int code_;
};

/// There was no room. The exception carries what was asked for, the pool's state, and which part refused and why.
class out_of_memory : public std::bad_alloc {
public:
    /// `who`: what it is that has no room; a literal.
    out_of_memory(std::size_t asked_bytes, refusal refused, char const* who = "pool")
        : asked_bytes_(asked_bytes), refused_(std::move(refused)), said_(sentence(who)) {}
    out_of_memory(out_of_memory const&) noexcept = default; // see usage_error
    out_of_memory& operator=(out_of_memory const&) noexcept = default;

    char const* what() const noexcept override { return said_.c_str(); }

    /// Bytes that were asked for, without the pool's rounding.
    std::size_t asked_bytes() const noexcept { return asked_bytes_; }
    /// The pool's state when it refused; see memory_report.
    std::size_t limit_bytes() const noexcept { return refused_.state.limit_bytes; }
    std::size_t requested_bytes() const noexcept { return refused_.state.requested_bytes; }
    std::size_t in_use_bytes() const noexcept { return refused_.state.in_use_bytes; }
    std::size_t reserved_bytes() const noexcept { return refused_.state.reserved_bytes; }
    std::size_t largest_free_bytes() const noexcept { return refused_.state.largest_free_bytes; }
    /// Bytes that captured streams freed. Their graphs may still use them, so the pool does not hand them out again.
    std::size_t lost_bytes() const noexcept { return refused_.state.lost_bytes; }
    /// Bytes that were free on the pool's device after the failure; SIZE_MAX: not known, or the pool has no device.
    std::size_t device_free_bytes() const noexcept { return refused_.state.device_free_bytes; }
    /// The largest blocks that were handed out at that time. Empty if no layer lists them (layer::guard and layer::statistics
    /// do).
    largest_blocks const& largest_live() const noexcept { return refused_.state.largest_live; }
    /// The name of the pool that was asked.
    text const& pool_name() const noexcept { return refused_.state.name; }
    /// Which part refused, and why.
    text const& reason() const noexcept { return refused_.reason; }
    /// Which lines of the program hold most of the pool's memory, as text; empty if no layer knows (layer::record does).
    text const& holders() const noexcept { return refused_.holders; }
    /// All that was said of it: who throws it again, amends this.
    refusal const& refused() const noexcept { return refused_; }

private:
    text sentence(char const* who) const {
        memory_report const& state = refused_.state;
        return text("weir: out of memory: ") + who + " '" + state.name + "' cannot hand out " +
               base::exact_bytes_text(asked_bytes_) + ": " + refused_.reason + " (" +
               if_known("requested ", state.requested_bytes, ", ") + if_known("in use ", state.in_use_bytes, ", ") +
               if_known("reserved ", state.reserved_bytes, ", ") + "limit " +
               (state.limit_bytes == memory_report::unknown ? "none" : base::bytes_text(state.limit_bytes)) +
               if_known(", largest free ", state.largest_free_bytes) +
               if_known(", free on the device ", state.device_free_bytes) +
               (state.lost_bytes == 0 ? "" : ", not handed out again " + base::bytes_text(state.lost_bytes)) + ")" +
               live_text(state.largest_live) +
               (refused_.holders.empty() ? "" : "; as recorded, most is held by " + refused_.holders);
    }
    static text if_known(char const* name, std::size_t bytes, char const* end = "") {
        return bytes == memory_report::unknown ? text() : name + base::bytes_text(bytes) + end;
    }
    static text live_text(largest_blocks const& list) {
        text said;
        for (live_block const& each : list)
            said = said + (said.empty() ? "; the largest live blocks: " : ", ") + base::bytes_text(each.bytes) + " at " +
                   base::address_text(each.address);
        return said;
    }

    std::size_t asked_bytes_;
    refusal refused_;
    text said_;
};

} // namespace v0
} // namespace weir
