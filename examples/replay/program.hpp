// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What is known of a program that somebody recorded, in whatever format?
//
// Each format is read into a recording of weir's (<weir/trace/recording.hpp>): events in the order of their time, streams, call
// sites, pools. From that come the trace that is replayed, and the files that other tools read.
//
// invariant: numbers in events are those of the recording's lists. A block ends before its address is handed out again.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <weir/trace/recording.hpp>

namespace replay {

struct program {
    weir::trace::recording what;
    bool has_addresses = true; ///< else an event's address is a number of its block
    std::string remark;        ///< what the file lacks; "": nothing
};

/// Puts a program together.
class program_maker {
public:
    /// Time is in nanoseconds since the program began, which was `wall_ns` after 1970.
    explicit program_maker(std::uint64_t wall_ns = 0);

    std::uint64_t stream(std::uint64_t handle);
    std::uint32_t thread(std::uint64_t name);
    std::uint16_t source(std::string const& name, int device);
    std::uint32_t frame(std::uint32_t caller, std::string const& file, std::string const& function, std::uint32_t line);
    /// Time does not go back: what is earlier than the event before counts as of its time.
    void add(weir::trace::event one);
    /// The whole of it.
    program made();

    program& what() { return made_; }

private:
    program made_;
    std::map<std::uint64_t, std::uint64_t> streams_;
    std::map<std::uint64_t, std::uint32_t> threads_;
    std::map<std::string, std::uint16_t> sources_;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::string, std::string>, std::uint32_t> frames_;
};

/// weir's own format. `path` names the file in messages, here and below. These throw bad_input.
program read_weirs(std::string_view bytes, std::string const& path);
/// What PyTorch's torch.cuda.memory._snapshot() returns, as a pickle or as JSON.
program read_snapshot(std::string_view bytes, std::string const& path);
/// RMM's log, 'Thread,Time,Action,Pointer,Size,Stream'.
bool looks_like_rmm_log(std::string_view text);
program read_rmm_log(std::string_view text, std::string const& path);
/// Lifetimes, 'id,lower,upper,size', as MiniMalloc and others publish them; columns in any order, others are passed over.
bool looks_like_lifetimes(std::string_view text);
program read_lifetimes(std::string_view text, std::string const& path);

/// What a file looks like that is none of these, as a sentence's end; "": nothing that is known.
std::string looks_like(std::string_view bytes);

/// What PyTorch's memory_viz reads.
std::string as_snapshot_json(program const& of);
std::string as_snapshot_pickle(program const& of);
/// What heaptrack_print and heaptrack_gui read.
std::string as_heaptrack(program const& of);

} // namespace replay
