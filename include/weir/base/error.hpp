// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What can go wrong, and what does the exception carry?
//
// Three families. 'usage_error': the caller broke a precondition, and a retry cannot help. 'cuda_error': a
// CUDA call failed for a reason other than memory. 'out_of_memory': there was no room; it derives from
// std::bad_alloc, so code that already handles exhaustion handles ours.
//
// invariant: whoever throws one of these left its pool as it was before the call.
// order:     parts compose on null; only the outermost 'allocate' throws out_of_memory.
// cost:      text is built when an exception is made, never on a path that succeeds.
// not for:   'deallocate' and destructors: they never throw.

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <weir/base/shared.hpp>

namespace weir {
inline namespace v0 {

/// A broken precondition: a bad alignment, a stream of another device, an allocation on a capturing stream, a
/// free of memory that was not handed out. The text says what to do instead.
class usage_error : public std::logic_error {
public:
    using std::logic_error::logic_error;
};

/// A CUDA call failed. The text carries the call and CUDA's name for the error.
class cuda_error : public std::runtime_error {
public:
    /// `call`: the function's name; `name`: CUDA's name of the error; `code`: its number; `advice`: what to do
    /// about it, or "". `call` must be a literal.
    cuda_error(char const* call, char const* name, int code, char const* advice)
        : std::runtime_error(std::string("weir: ") + call + " failed with " + name + " (" + std::to_string(code) +
                             ")" + (*advice ? ": " : "") + advice),
          call_(call), code_(code) {}

    /// The name of the CUDA function that failed.
    char const* call() const noexcept { return call_; }
    /// The error's number, as cudaError_t counts.
    int code() const noexcept { return code_; }

private:
    char const* call_;
    int code_;
};

/// What a pool knows of itself at one moment. Sizes in bytes.
struct memory_report {
    std::string name;                    ///< the pool's name, as its options gave it
    std::size_t in_use_bytes = 0;        ///< handed out and not yet freed, rounding included
    std::size_t reserved_bytes = 0;      ///< held from the upstream
    std::size_t limit_bytes = 0;         ///< the most it may hold; SIZE_MAX: no limit
    std::size_t largest_free_bytes = 0;  ///< the largest block that needs no growth, on some stream
    std::size_t live_blocks = 0;         ///< blocks handed out and not yet freed
    std::size_t chunks = 0;              ///< pieces held from the upstream
    std::size_t lost_bytes = 0;          ///< held but not handed out again: a graph may use them, see 'deallocate'
};

/// There was no room. Carries what was asked for, the pool's state, and which part refused and why.
class out_of_memory : public std::bad_alloc {
public:
    out_of_memory(std::size_t asked_bytes, memory_report facts, std::string reason)
        : said_(shared<said const>::make(asked_bytes, std::move(facts), std::move(reason))) {}
    out_of_memory(out_of_memory const&) noexcept = default; // and a move is a copy, so that none is ever empty
    out_of_memory& operator=(out_of_memory const&) noexcept = default;

    char const* what() const noexcept override { return said_->text.c_str(); }

    std::size_t asked_bytes() const noexcept { return said_->asked_bytes; }
    std::size_t limit_bytes() const noexcept { return said_->facts.limit_bytes; }
    std::size_t in_use_bytes() const noexcept { return said_->facts.in_use_bytes; }
    std::size_t reserved_bytes() const noexcept { return said_->facts.reserved_bytes; }
    std::size_t largest_free_bytes() const noexcept { return said_->facts.largest_free_bytes; }
    /// The name of the pool that was asked.
    std::string const& pool_name() const noexcept { return said_->facts.name; }
    /// Which part refused, and why.
    std::string const& reason() const noexcept { return said_->reason; }

private:
    // Shared, so that copying the exception, which a rethrow may do, cannot throw.
    struct said {
        said(std::size_t asked, memory_report report, std::string why)
            : asked_bytes(asked), facts(std::move(report)), reason(std::move(why)),
              text("weir: out of memory: pool '" + facts.name + "' cannot hand out " + std::to_string(asked) +
                   " bytes: " + reason + " (in use " + std::to_string(facts.in_use_bytes) + ", reserved " +
                   std::to_string(facts.reserved_bytes) + ", limit " +
                   (facts.limit_bytes == static_cast<std::size_t>(-1) ? "none" : std::to_string(facts.limit_bytes)) +
                   ", largest free " + std::to_string(facts.largest_free_bytes) + ")") {}
        std::size_t asked_bytes;
        memory_report facts;
        std::string reason;
        std::string text;
    };
    shared<said const> said_;
};

} // namespace v0
} // namespace weir
