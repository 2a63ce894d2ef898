// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does what a recorder holds get into a file?
//
// 'dump' writes what is in the ring, which stays there: the next dump has it again. A 'recording_file' grows: each 'flush'
// appends what came since the last one and takes it out of the ring, so that a program that flushes often enough loses nothing,
// however long it runs.
//
//     weir::trace::dump(recorder, "run.weir");
//
// invariant: the file is readable after each flush, and whenever the program ends. If the disk is full, what could not be
//            written stays in memory, and the next flush goes on where this one ended. A dump takes nothing from anybody.
// order:     the events of one flush are in the order of their time. Threads may allocate and free meanwhile.
// cost:      of a flush: some 100 ns an event, a copy of the ring's events in host memory, and the system's calls to write.
// not for:   a thread that writes by itself: whoever calls 'flush' does.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/trace/clock.hpp>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/event_encoder.hpp>
#include <weir/trace/event_runs.hpp>
#include <weir/trace/file_format.hpp>
#include <weir/trace/recorder.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// A file of events that grows. One thread at a time; one file for a recorder.
class recording_file {
public:
    /// Makes the file, or empties it. `of` outlives this object. Throws usage_error if the file cannot be made.
    recording_file(recorder& of, text path) : recorder_(of), path_(std::move(path)) {
        file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (file_ < 0)
            refuse("cannot be made", "give another path");
        unsigned char head[file_head_bytes];
        std::memcpy(head, file_mark, sizeof file_mark);
        event_encoder::put(head + sizeof file_mark, file_version, 4);
        keep(head, sizeof head);
    }
    recording_file(recording_file const&) = delete;
    recording_file& operator=(recording_file const&) = delete;
    /// Closes the file. What no 'flush' wrote is not in it.
    ~recording_file() {
        if (file_ >= 0)
            ::close(file_);
    }

    /// Appends all events that were written to the recorder so far. Blocks for the disk. Throws usage_error if the file cannot
    /// be written to: then call it again once there is room; std::bad_alloc.
    void flush() {
        if (event_ring* const ring = recorder_.ring()) {
            make_room(*ring);
            ring->drain([this](event const* first, std::size_t count) { collect(first, count); });
            encode(*ring);
        }
        write_kept("make room and flush again: what is missing is still in memory");
    }

private:
    friend void dump(recorder& of, text const& path);

    static constexpr std::size_t segment_bytes = 1024 * 1024;

    [[noreturn]] void refuse(char const* what, char const* advice) const {
        throw usage_error("weir: the recording '" + path_ + "' " + what + " (" + std::strerror(errno) + "); " + advice);
    }

    // Before anything is taken out.
    void make_room(event_ring const& ring) {
        events_.reserve_more(ring.capacity());
        ends_.reserve_more(ring.blocks());
    }
    // A block of the ring.
    void collect(event const* first, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            events_.push_back(first[i]);
        ends_.push_back(events_.size());
    }

    // If the host's memory runs out, the events of this call are lost, and the next one begins anew.
    void encode(event_ring& ring) {
        if (begins_anew_) {
            encoder_ = event_encoder();
            encoder_.forget();
            encoder_.add(recorder_.begun());
            frames_ = sources_ = 0;
        }
        begins_anew_ = true;
        in_segment_ = 0;
        lost_ += events_.size(); // until they are kept
        add_events();
        encoder_.add_lost(ring.lost() + lost_ - in_segment_);
        encoder_.add(trace::now(ring.time()));
        keep_segment();
        begins_anew_ = false;
    }

    void add_events() {
        base::growing_array<event_run> runs;
        base::growing_array<event> const events(std::move(events_));
        base::growing_array<std::size_t> const ends(std::move(ends_));
        std::size_t at = 0;
        for (std::size_t const end : ends) {
            add_runs(runs, events.data() + at, events.data() + end);
            at = end;
        }
        add_names();
        if (!events.empty())
            encoder_.add_base(first_of(runs));
        take_in_order(runs, [&](event const& one) {
            encoder_.add(one);
            ++in_segment_;
            if (encoder_.size() >= segment_bytes)
                keep_segment();
        });
    }
    static std::uint64_t first_of(base::growing_array<event_run> const& runs) noexcept {
        std::uint64_t first = UINT64_MAX;
        for (event_run const& each : runs)
            first = each.next->ticks < first ? each.next->ticks : first;
        return first;
    }

    // Those that the events may mention: whoever wrote an event had its name before.
    void add_names() {
        for (std::size_t const count = recorder_.sources(); sources_ < count; ++sources_)
            encoder_.add(sources_, recorder_.source_of(sources_));
        for (std::size_t const count = recorder_.names().size(); frames_ < count; ++frames_)
            encoder_.add(frames_ + 1, recorder_.names()[frames_ + 1]);
    }

    void keep_segment() {
        kept_.reserve_more(segment_head_bytes + encoder_.size()); // a segment is kept whole
        encoder_.take_segment([this](unsigned char const* bytes, std::size_t count) { keep(bytes, count); });
        lost_ -= in_segment_;
        in_segment_ = 0;
    }
    void keep(unsigned char const* bytes, std::size_t count) {
        std::size_t const before = kept_.size();
        kept_.resize(before + count);
        std::memcpy(kept_.data() + before, bytes, count);
    }

    void write_kept(char const* advice) {
        while (written_ < kept_.size()) {
            ssize_t const count = ::write(file_, kept_.data() + written_, kept_.size() - written_);
            if (count < 0 && errno != EINTR)
                refuse("cannot be written to", advice);
            written_ += count < 0 ? 0 : static_cast<std::size_t>(count);
        }
        kept_.clear();
        written_ = 0;
    }

    recorder& recorder_;
    text const path_;
    int file_ = -1;
    bool begins_anew_ = true;
    std::uint64_t lost_ = 0;       // because the host's memory ran out here
    std::uint64_t in_segment_ = 0; // events that are in the encoder
    event_encoder encoder_;
    std::size_t sources_ = 0, frames_ = 0; // that are in the file
    base::growing_array<event> events_;
    base::growing_array<std::size_t> ends_; // of the runs that they consist of
    base::growing_array<unsigned char> kept_;
    std::size_t written_ = 0; // of 'kept_'
};

/// Writes what `of` holds to a new file at `path`. The recorder keeps it: a dump that failed can be made again, and one for a
/// look takes nothing from the next, or from a recording_file. For what is new since then, flush a new recording_file. Any
/// thread. Throws as recording_file.
inline void dump(recorder& of, text const& path) {
    recording_file file(of, path);
    if (event_ring* const ring = of.ring()) {
        file.make_room(*ring);
        ring->copy([&file](event const* first, std::size_t count) { file.collect(first, count); });
        file.encode(*ring);
    }
    file.write_kept("make room and dump again: the recorder still holds it");
}

} // namespace trace
} // namespace v0
} // namespace weir
