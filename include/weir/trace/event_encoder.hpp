// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do events become the bytes of a file?
//
// The encoder remembers what it has written: the addresses, and the contexts, which are what an event has in common with many
// others (trace/file_format.hpp). So an event is mostly three short numbers. What is encoded collects in a segment, which
// whoever drives the encoder takes and writes.
//
// invariant: what a file's segments define, no later one defines again: one encoder writes one file, in order.
// cost:      some 50 ns an event; 40 bytes of host memory for each address, 40 MiB at most.
// not for:   several threads at a time.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <weir/base/address_map.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/trace/clock.hpp>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/file_format.hpp>
#include <weir/trace/name_table.hpp>
#include <weir/trace/recorder.hpp>

namespace weir {
inline namespace v0 {
namespace trace {

/// One thread at a time. Members that add throw std::bad_alloc.
class event_encoder {
public:
    event_encoder() { slots_.push_back({}); }

    // Definitions and states.
    void add(moment const& at) {
        begin(record_kind::moment);
        number(at.ticks), number(at.steady_ns), number(at.wall_ns);
        end();
    }
    void add(std::size_t number_of_frame, frame const& one) {
        begin(record_kind::frame, one.file.size() + one.function.size());
        number(number_of_frame), number(one.caller), number(one.line), characters(one.file), characters(one.function);
        end();
    }
    void add(std::size_t number_of_source, source const& one) {
        begin(record_kind::source, one.name.size());
        number(number_of_source), number(folded(one.device)), number(static_cast<unsigned>(one.space));
        number(one.limit_bytes + 1), characters(one.name);
        end();
    }
    void add_lost(std::uint64_t events) { add(record_kind::lost, events); }
    /// The next event's time counts from `ticks`, which are not more than its own.
    void add_base(std::uint64_t ticks) {
        add(record_kind::base, ticks);
        ticks_ = ticks;
    }

    /// Numbers that were given to streams, threads, contexts and addresses are used anew.
    void forget() {
        begin(record_kind::forget);
        end();
        streams_ = threads_ = by_address_ = contexts_by_hash_ = base::address_map();
        stream_count_ = thread_count_ = 0;
        newest_address_ = 0;
        slots_.resize(1);
        contexts_.clear();
    }

    /// An event that is no earlier than the one before, or than the base. Its names and its source were added.
    void add(event const& one) {
        if (slots_.size() >= most_slots)
            forget();
        std::uint32_t const context = context_of(one);
        make_room(64);
        number(static_cast<unsigned>(record_kind::first_event) + context);
        number(one.ticks - ticks_);
        ticks_ = one.ticks;
        place(one);
        if (one.kind == event_kind::stream_ends)
            streams_.erase(one.stream + 1); // its handle may name another stream from now on
    }

    /// How many bytes the segment has by now.
    std::size_t size() const noexcept { return size_; }

    /// Calls write(bytes, count) with the segment's head, and with its content; then it is empty.
    template <class Write>
    void take_segment(Write const& write) {
        unsigned char head[segment_head_bytes];
        std::uint64_t const sum = checksum_of(bytes_.data(), size_);
        put(head, segment_mark, 4);
        put(head + 4, size_, 4);
        put(head + 8, sum, 8);
        write(static_cast<unsigned char const*>(head), sizeof head);
        write(static_cast<unsigned char const*>(bytes_.data()), size_);
        size_ = 0;
    }

    /// Writes `value` as `count` bytes, the lowest first.
    static void put(unsigned char* to, std::uint64_t value, unsigned count) noexcept {
        for (unsigned i = 0; i < count; ++i)
            to[i] = static_cast<unsigned char>(value >> 8 * i);
    }

private:
    void make_room(std::size_t more) {
        if (bytes_.size() - size_ < more)
            bytes_.resize(2 * bytes_.size() + more);
    }
    void number(std::uint64_t value) noexcept {
        unsigned char* to = bytes_.data() + size_;
        for (; value >= 0x80; value >>= 7)
            *to++ = static_cast<unsigned char>(value | 0x80);
        *to++ = static_cast<unsigned char>(value);
        size_ = static_cast<std::size_t>(to - bytes_.data());
    }
    // A number of up to 64 bits, one of up to 15 zeros that it ends in, and a flag.
    void scaled(std::uint64_t value, bool flag) noexcept {
        unsigned const shift = shift_of(value);
        value >>= shift;
        bytes_[size_++] = static_cast<unsigned char>(shift | (flag ? 16u : 0u) | (value & 3) << 5 | (value > 3 ? 0x80u : 0u));
        if (value > 3)
            number(value >> 2);
    }
    void characters(text const& all) noexcept {
        std::size_t const count = all.size() < most_text_bytes ? all.size() : most_text_bytes;
        number(count);
        std::memcpy(bytes_.data() + size_, all.data(), count);
        size_ += count;
    }

    // The length of a record is written when it ends, in three bytes, which is enough for two texts.
    void begin(record_kind what, std::size_t text_bytes = 0) {
        make_room(text_bytes + 80); // six numbers at most
        number(static_cast<unsigned>(what));
        begun_ = size_;
        size_ += length_bytes;
    }
    void end() noexcept {
        std::uint64_t length = size_ - begun_ - length_bytes;
        for (std::size_t i = 0; i < length_bytes; ++i, length >>= 7)
            bytes_[begun_ + i] = static_cast<unsigned char>((length & 0x7f) | (i + 1 < length_bytes ? 0x80 : 0));
    }
    void add(record_kind what, std::uint64_t value) {
        begin(what);
        number(value);
        end();
    }

    // The number of `key` in a list, which is defined if it is new.
    std::uint32_t number_in(base::address_map& list, std::uint32_t& count, std::uint64_t key, record_kind what) {
        std::uint32_t const known = list.find(key + 1);
        if (known != base::address_map::none)
            return known;
        list.insert(key + 1, count);
        add(what, key);
        return count++;
    }

    std::uint32_t context_of(event const& one) {
        event_context const wanted{static_cast<std::uint32_t>(one.kind),
                                   number_in(streams_, stream_count_, one.stream, record_kind::stream),
                                   number_in(threads_, thread_count_, one.thread, record_kind::thread),
                                   one.source,
                                   one.site,
                                   one.log2_alignment};
        std::uint64_t key = hash_of(wanted);
        std::uint32_t at = contexts_by_hash_.find(key);
        while (at != base::address_map::none && !(contexts_[at] == wanted))
            at = contexts_by_hash_.find(++key); // contexts of one hash have the keys behind it
        if (at != base::address_map::none)
            return at;
        auto const fresh = static_cast<std::uint32_t>(contexts_.size());
        contexts_.reserve_more(1);
        contexts_by_hash_.insert(key, fresh);
        contexts_.push_back(wanted);
        begin(record_kind::context);
        number(wanted.kind), number(wanted.stream), number(wanted.thread), number(wanted.source), number(wanted.site);
        number(wanted.log2_alignment);
        end();
        return fresh;
    }
    static std::uint64_t hash_of(event_context const& of) noexcept {
        std::uint64_t hash = 0;
        for (std::uint32_t const part : {of.kind, of.stream, of.thread, of.source, of.site, of.log2_alignment}) {
            hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 32;
        }
        return hash >> 1 | 1; // not 0, and with room for the keys behind it
    }

    void place(event const& one) {
        std::uint32_t at = one.address == 0 ? 0 : by_address_.find(one.address);
        bool const is_new = at == base::address_map::none;
        if (is_new) {
            at = static_cast<std::uint32_t>(slots_.size());
            slots_.reserve_more(1);
            by_address_.insert(one.address, at);
            slots_.push_back({one.address, 0, 0});
        }
        address_slot& slot = slots_[at];
        bool const same = slot.bytes == one.bytes && slot.extra_bytes == one.extra_bytes;
        number(std::uint64_t{at} << 1 | (same ? 1 : 0));
        if (is_new) {
            bool const is_below = one.address < newest_address_;
            scaled(is_below ? newest_address_ - one.address : one.address - newest_address_, is_below);
            newest_address_ = one.address;
        }
        if (same)
            return;
        slot.bytes = one.bytes;
        slot.extra_bytes = one.extra_bytes;
        scaled(one.bytes, one.extra_bytes != 0);
        if (one.extra_bytes != 0)
            number(one.extra_bytes);
    }

    static constexpr std::size_t length_bytes = 3;

    base::growing_array<unsigned char> bytes_;
    std::size_t size_ = 0;
    std::size_t begun_ = 0;
    std::uint64_t ticks_ = 0;
    base::address_map streams_, threads_, by_address_, contexts_by_hash_;
    std::uint32_t stream_count_ = 0, thread_count_ = 0;
    std::uint64_t newest_address_ = 0;
    base::growing_array<address_slot> slots_; // the first is the address 0
    base::growing_array<event_context> contexts_;
};

} // namespace trace
} // namespace v0
} // namespace weir
