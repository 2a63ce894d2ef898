// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a file of events say?
//
// 'read_recording' takes the bytes of a file that trace/recording_file.hpp wrote and returns its events, in the order of their
// time, and what they mention: pools, streams, threads and names, each by its number. A file that was cut off, or that is
// damaged, is read up to its last whole segment, and the recording says so in a sentence.
//
// invariant: whatever a number in an event says is there. Bytes that mean nothing are never followed.
// cost:      some 30 ns and 48 bytes an event.
// not for:   other formats: examples/replay reads those.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/trace/clock.hpp>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/event_runs.hpp>
#include <weir/trace/file_format.hpp>
#include <weir/trace/recorder.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// What a file holds. In its events 'stream' and 'thread' are numbers of the lists below, and 'site' and 'source' as they were.
struct recording {
    base::growing_array<event> events;
    base::growing_array<std::uint64_t> streams; ///< CUDA's handles; a handle that was used again is here twice
    base::growing_array<std::uint32_t> threads;
    base::growing_array<frame> frames;          ///< the first has number 1
    base::growing_array<source> sources;        ///< the first has number 0
    moment first, last;                         ///< when recording began, and when the file was written last
    std::uint64_t lost = 0;                     ///< events that were written over in the ring
    std::uint64_t unknown = 0;                  ///< events of kinds that a later weir wrote; they are left out
    text complaint;                             ///< a sentence if the file is not whole; else ""

    /// Nanoseconds since recording began.
    std::uint64_t ns_of(event const& one) const noexcept {
        double const ticks = one.ticks < first.ticks ? 0 : static_cast<double>(one.ticks - first.ticks);
        return static_cast<std::uint64_t>(ticks * trace::ns_per_tick(first, last));
    }
};

/// Whether a file that begins so is one of weir's recordings.
inline bool is_recording(void const* bytes, std::size_t count) noexcept {
    return count >= sizeof file_mark && std::memcmp(bytes, file_mark, sizeof file_mark) == 0;
}

/// Reads the content of segments, one after the other.
class event_decoder {
public:
    /// `into` outlives this object.
    explicit event_decoder(recording& into) : to_(into) { start_over(); }

    /// Adds what a segment says. False if it says what no encoder writes: then a part of it may be there. Throws
    /// std::bad_alloc.
    bool read(unsigned char const* bytes, std::size_t count) {
        at_ = bytes;
        end_ = bytes + count;
        is_sound_ = true;
        while (is_sound_ && at_ != end_) {
            std::uint64_t const what = number();
            if (what >= first_event)
                read_event(what - first_event);
            else
                read_record(static_cast<record_kind>(what));
        }
        return is_sound_;
    }

private:
    static constexpr std::uint64_t first_event = static_cast<std::uint64_t>(record_kind::first_event);

    // Numbers; 0, and no longer sound, where there is none.
    std::uint64_t number() noexcept {
        std::uint64_t value = 0;
        for (unsigned shift = 0; at_ != end_ && shift < 64; shift += 7) {
            unsigned char const byte = *at_++;
            value |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80)
                return value;
        }
        is_sound_ = false;
        return 0;
    }
    // One that is less than `limit`.
    std::uint64_t number_below(std::uint64_t limit) noexcept {
        std::uint64_t const value = number();
        is_sound_ = is_sound_ && value < limit;
        return is_sound_ ? value : 0;
    }
    // How many bytes belong together, of those behind the number.
    std::size_t length_ahead() noexcept {
        std::uint64_t const value = number();
        is_sound_ = is_sound_ && value <= static_cast<std::size_t>(end_ - at_);
        return is_sound_ ? static_cast<std::size_t>(value) : 0;
    }
    std::uint32_t small_number() noexcept { return static_cast<std::uint32_t>(number_below(std::uint64_t{1} << 32)); }
    std::uint64_t scaled(bool& flag) noexcept {
        if (at_ == end_)
            is_sound_ = false;
        unsigned const byte = is_sound_ ? *at_++ : 0u;
        flag = (byte & 16) != 0;
        std::uint64_t const value = (byte >> 5 & 3) | (byte < 0x80 ? 0 : number() << 2);
        return value << (byte & 15);
    }
    text characters() {
        std::size_t const count = length_ahead();
        struct {
            char const* first;
            std::size_t count;
            char const* data() const noexcept { return first; }
            std::size_t size() const noexcept { return count; }
        } const piece{reinterpret_cast<char const*>(at_), count};
        at_ += count;
        return text(piece);
    }

    void read_record(record_kind what) {
        std::size_t const length = length_ahead();
        unsigned char const* const behind = at_ + length;
        unsigned char const* const end = end_;
        end_ = behind;
        read_body(what);
        at_ = behind; // also past what a later version adds
        end_ = end;
    }
    void read_body(record_kind what) {
        switch (what) {
        case record_kind::moment:
            return read_moment();
        case record_kind::frame:
            return read_frame();
        case record_kind::source:
            return read_source();
        case record_kind::stream:
            streams_.push_back(number_of_stream(number()));
            return;
        case record_kind::thread:
            to_.threads.push_back(small_number());
            threads_.push_back(static_cast<std::uint32_t>(to_.threads.size() - 1));
            return;
        case record_kind::context:
            return read_context();
        case record_kind::lost:
            to_.lost = number();
            return;
        case record_kind::base:
            ticks_ = number();
            return;
        case record_kind::forget:
            return start_over();
        default:
            return; // a record that a later version writes; nothing refers to it
        }
    }
    void read_moment() {
        moment read;
        read.ticks = number();
        read.steady_ns = number();
        read.wall_ns = number();
        if (!has_begun_)
            to_.first = read;
        has_begun_ = true;
        to_.last = read;
    }
    void read_frame() {
        // No frame is defined before those with smaller numbers are.
        std::size_t const own = static_cast<std::size_t>(number_below(to_.frames.size() + 2));
        frame read;
        read.caller = static_cast<std::uint32_t>(number_below(own + (own == 0)));
        read.line = small_number();
        read.file = characters();
        read.function = characters();
        if (own == to_.frames.size() + 1 && is_sound_)
            to_.frames.push_back(std::move(read));
    }
    void read_source() {
        std::size_t const own = static_cast<std::size_t>(number_below(to_.sources.size() + 1));
        source read;
        read.device = static_cast<int>(unfolded(number()));
        read.space = static_cast<memory_space>(number_below(4));
        read.limit_bytes = number() - 1;
        read.name = characters();
        if (own == to_.sources.size() && is_sound_)
            to_.sources.push_back(std::move(read));
    }
    void read_context() {
        event_context read;
        read.kind = small_number();
        read.stream = static_cast<std::uint32_t>(number_below(streams_.size()));
        read.thread = static_cast<std::uint32_t>(number_below(threads_.size()));
        read.source = static_cast<std::uint32_t>(number_below(to_.sources.empty() ? 1 : to_.sources.size()));
        read.site = static_cast<std::uint32_t>(number_below(to_.frames.size() + 1));
        read.log2_alignment = static_cast<std::uint32_t>(number_below(64));
        if (is_sound_)
            contexts_.push_back(read);
    }

    void read_event(std::uint64_t context) {
        is_sound_ = is_sound_ && context < contexts_.size();
        ticks_ += number();
        std::uint64_t const place = number();
        std::size_t const at = static_cast<std::size_t>(place >> 1);
        is_sound_ = is_sound_ && at <= slots_.size();
        if (is_sound_ && at == slots_.size()) {
            bool is_below = false;
            std::uint64_t const distance = scaled(is_below);
            newest_address_ = is_below ? newest_address_ - distance : newest_address_ + distance;
            slots_.push_back({newest_address_, 0, 0});
        }
        if (!is_sound_)
            return;
        address_slot& slot = slots_[at];
        if ((place & 1) == 0) {
            bool has_extra = false;
            slot.bytes = scaled(has_extra);
            slot.extra_bytes = has_extra ? small_number() : 0;
        }
        if (is_sound_)
            add(contexts_[static_cast<std::size_t>(context)], slot);
    }
    void add(event_context const& of, address_slot const& slot) {
        if (of.kind == 0 || of.kind >= event_kinds) {
            ++to_.unknown;
            return;
        }
        event one;
        one.ticks = ticks_;
        one.address = slot.address;
        one.bytes = slot.bytes;
        one.extra_bytes = slot.extra_bytes;
        one.stream = streams_[of.stream];
        one.thread = threads_[of.thread];
        one.source = static_cast<std::uint16_t>(of.source);
        one.site = of.site;
        one.kind = static_cast<event_kind>(of.kind);
        one.log2_alignment = static_cast<std::uint8_t>(of.log2_alignment);
        to_.events.push_back(one);
        if (one.kind == event_kind::stream_ends)
            by_handle_.erase(to_.streams[static_cast<std::size_t>(one.stream)] + 1);
    }

    // A handle whose stream's end was not told is the same stream, also after 'forget'.
    std::uint32_t number_of_stream(std::uint64_t handle) {
        std::uint32_t const known = by_handle_.find(handle + 1);
        if (known != base::address_map::none)
            return known;
        auto const fresh = static_cast<std::uint32_t>(to_.streams.size());
        by_handle_.insert(handle + 1, fresh);
        to_.streams.push_back(handle);
        return fresh;
    }

    void start_over() {
        streams_.clear();
        threads_.clear();
        contexts_.clear();
        slots_.clear();
        slots_.push_back({});
        newest_address_ = 0;
    }

    recording& to_;
    unsigned char const* at_ = nullptr;
    unsigned char const* end_ = nullptr;
    bool is_sound_ = true;
    bool has_begun_ = false;
    std::uint64_t ticks_ = 0;
    std::uint64_t newest_address_ = 0;
    base::address_map by_handle_;
    base::growing_array<std::uint32_t> streams_, threads_; // the file's numbers now -> the recording's
    base::growing_array<event_context> contexts_;
    base::growing_array<address_slot> slots_;
};

/// Reads a whole file. Throws usage_error if it is no recording, or one of another version; std::bad_alloc.
inline recording read_recording(void const* file, std::size_t count) {
    auto const* const bytes = static_cast<unsigned char const*>(file);
    auto const number_at = [bytes](std::size_t at, unsigned length) {
        std::uint64_t value = 0;
        for (unsigned i = 0; i < length; ++i)
            value |= std::uint64_t{bytes[at + i]} << 8 * i;
        return value;
    };
    if (!trace::is_recording(bytes, count) || count < file_head_bytes)
        throw usage_error("weir: these bytes are no recording of weir's; give a file that 'weir::trace::dump' wrote");
    std::uint64_t const version = number_at(sizeof file_mark, 4);
    if (version != file_version)
        throw usage_error("weir: the recording is of version " + base::number_text(static_cast<std::size_t>(version)) +
                          ", and this weir reads version " + base::number_text(file_version) +
                          "; read it with the weir that wrote it");
    recording read;
    event_decoder decoder(read);
    std::size_t at = file_head_bytes;
    while (at != count && read.complaint.empty()) {
        std::size_t const left = count - at;
        std::size_t const length = left < segment_head_bytes ? 0 : static_cast<std::size_t>(number_at(at + 4, 4));
        if (left < segment_head_bytes || left - segment_head_bytes < length)
            read.complaint = "the recording was cut off: ";
        else if (unsigned char const* const content = bytes + at + segment_head_bytes;
                 number_at(at, 4) != segment_mark || number_at(at + 8, 8) != checksum_of(content, length) ||
                 !decoder.read(content, length))
            read.complaint = "the recording is damaged: ";
        at += segment_head_bytes + length;
    }
    if (!read.complaint.empty())
        read.complaint = read.complaint + base::count_text(read.events.size(), " event") + " before that can be read";
    // Two flushes may overlap by what threads wrote meanwhile.
    if (read.sources.empty() && !read.events.empty())
        read.sources.push_back(source()); // of the scopes of a program that recorded no pool
    base::growing_array<event_run> runs;
    add_runs(runs, read.events.begin(), read.events.end());
    if (runs.size() > 1) {
        base::growing_array<event> in_order;
        in_order.reserve(read.events.size());
        take_in_order(runs, [&](event const& one) { in_order.push_back(one); });
        read.events = std::move(in_order);
    }
    return read;
}

} // namespace trace
} // namespace v0
} // namespace weir
