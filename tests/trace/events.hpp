// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Events to encode, and a file of them in memory.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>
#include <weir/trace/recorded_event.hpp>
#include <weir/trace/event_encoder.hpp>
#include <weir/trace/file_format.hpp>
#include <weir/trace/recording.hpp>

namespace trace_tests {

/// Any events, of few streams and threads and without names, in the order of their time.
inline std::vector<weir::trace::event> random_events(unsigned seed, std::size_t count) {
    std::mt19937_64 random(seed);
    std::vector<weir::trace::event> events(count);
    std::uint64_t ticks = random() >> 20;
    for (weir::trace::event& each : events) {
        std::uint64_t const block = random() % 500;
        each.ticks = ticks += random() >> (40 + random() % 24);
        each.kind = static_cast<weir::trace::event_kind>(1 + random() % (weir::trace::event_kinds - 1));
        each.address = block % 50 == 0 ? 0 : 0x7f0000000000 + block * 513 * 256;
        each.bytes = random() % 3 == 0 ? random() >> random() % 64 : block * 1000;
        each.extra_bytes = random() % 4 == 0 ? static_cast<std::uint32_t>(random()) : 24;
        each.stream = random() % 5 == 0 ? 0 : 0x550000 + random() % 4 * 64;
        each.thread = static_cast<std::uint32_t>(random() % 6 * 0x1234567);
        each.log2_alignment = static_cast<std::uint8_t>(random() % 12);
    }
    return events;
}

/// Whether an event that was read is the one that was written.
inline bool same(weir::trace::recording const& in, weir::trace::event read, weir::trace::event const& written) {
    read.stream = in.streams[static_cast<std::size_t>(read.stream)];
    read.thread = in.threads[read.thread];
    return std::memcmp(&read, &written, sizeof read) == 0;
}

/// A file of one or more segments.
struct writer {
    weir::trace::event_encoder encoder;
    std::vector<unsigned char> bytes;

    void add(weir::trace::event const& one) { encoder.add(one); }
    void end_segment() {
        encoder.take_segment([this](unsigned char const* from, std::size_t count) {
            bytes.insert(bytes.end(), from, from + count);
        });
    }
    /// All segments, behind the file's head.
    std::vector<unsigned char> file() {
        std::vector<unsigned char> all(weir::trace::file_head_bytes);
        std::memcpy(all.data(), weir::trace::file_mark, sizeof weir::trace::file_mark);
        weir::trace::event_encoder::put(all.data() + sizeof weir::trace::file_mark, weir::trace::file_version, 4);
        if (encoder.size() != 0)
            end_segment();
        all.insert(all.end(), bytes.begin(), bytes.end());
        return all;
    }
    /// What stands in the first segment.
    std::vector<unsigned char> content() {
        std::vector<unsigned char> const all = file();
        return {all.begin() + weir::trace::file_head_bytes + weir::trace::segment_head_bytes, all.end()};
    }
    weir::trace::recording read() {
        std::vector<unsigned char> const all = file();
        return weir::trace::read_recording(all.data(), all.size());
    }
};

inline weir::trace::recording encoded(std::vector<weir::trace::event> const& events) {
    writer all;
    for (weir::trace::event const& each : events)
        all.add(each);
    return all.read();
}

} // namespace trace_tests
