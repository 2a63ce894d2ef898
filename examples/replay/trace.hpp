// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What did a program allocate and free, and when?
//
// A trace is a recorded program (program.hpp knows the formats), or a CSV file; either may be gzip'd. In the CSV lines that begin
// with '#' may come first and hold state as key=value;
// then the header 'op,id,bytes,stream,t_us'; then a row an event: 'a' allocates and 'f' frees the block 'id',
// of 'bytes' bytes, on a small stream number, 't_us' microseconds after the first event. Blocks that are
// never freed outlive the trace.
//
// invariant: a trace that was read is whole and makes sense: every free is of a live block and of its size,
// no
//            live block is allocated again, time does not run backwards. Whatever reads on need not look.
// cost:      about 100 ns a row; the whole file is in memory while it is read.
// not for:   mending traces: a bad one is refused, with its file, its line and what to do.

#include "text.hpp"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace replay {

/// What the user gave us cannot be used. The text is a sentence that says what to do; it may quote the file.
class bad_input : public std::runtime_error {
public:
    explicit bad_input(std::string const& sentence) : std::runtime_error(printable(sentence)) {}
};

/// One allocation or free. Blocks and streams are numbered from 0, in the order of their first appearance.
struct event {
    std::uint64_t bytes;
    std::uint32_t block;
    std::uint8_t stream;
    std::uint8_t allocated_on; ///< the stream of the block's allocation, which a free may come on another than
    bool is_free;
};

struct program;

/// What the recorded program's own allocator held.
struct held_then {
    std::string who; ///< 'PyTorch, as recorded'
    std::uint64_t peak_bytes = 0;
};

/// Who asked for a block.
struct origin {
    static constexpr std::uint32_t several = UINT32_MAX;
    std::uint32_t site;   ///< as a recording's events have it; 0: not known
    std::uint32_t thread; ///< `several` if another one freed the block
};

/// A part of the program that has a name, from its begin to its end.
struct named_part {
    std::uint32_t name; ///< a site, as a recording's events have it
    std::uint32_t thread;
    std::size_t begin, end; ///< the events between are numbers begin to end - 1, of this thread and of others
    std::uint64_t end_us;
};

/// A whole trace.
struct trace {
    std::string name; ///< the file's name without folders, '.gz', and '.csv', '.weir', ...
    std::vector<event> events;
    std::vector<std::uint64_t> microseconds; ///< of each event, since the first
    std::size_t blocks = 0;                  ///< how many blocks were ever allocated
    std::size_t streams = 0;                 ///< how many streams appear
    std::uint64_t peak_requested_bytes = 0;  ///< the most bytes that were live at once
    std::string remark;                      ///< what the file lacks; "": nothing
    std::optional<held_then> held;           ///< if the file says it
    std::vector<origin> origins;             ///< of each block; empty: the file does not say
    std::vector<named_part> parts;           ///< in the order of their ends
    std::shared_ptr<program const> of;       ///< the program, if it was recorded in more detail than CSV has; else null
};

/// Reads a trace. Throws bad_input.
trace read_trace(std::string const& path);

/// Reads a trace from the bytes of a file; `path` names it in messages. Throws bad_input.
trace parse_trace(std::string_view text, std::string const& path);

} // namespace replay
