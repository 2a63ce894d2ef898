// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a program of Python's record what happens to its memory, and where it asked?
//
// There is one recorder for the process, and at most one file at a time, which is what examples/replay reads. Blocks are written
// down as libraries have them: the tensors of CUDA graphs and MemPools, too, and not the chunks in which those lie. A recording
// that begins late begins with what is there already. There is no thread: an allocation that finds enough events writes them.
//
// invariant: recording fails no allocation and no free. A file that cannot be written to is told of once on stderr, and by the
//            end of the recording.
// order:     as trace/recorder.hpp: a free is written before the pool has the block, an allocation after it handed it out.
// cost:      off: a load and a branch a call. On: some 30 ns a call, and 1 to 5 us for an allocation's stack of Python's; every
//            262,144th event some 30 ms to write them.

#include "python_stack.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <weir/base/error.hpp>
#include <weir/base/range.hpp>
#include <weir/runtime/stream.hpp>
#include <weir/trace.hpp>

namespace weir_plugin {

constexpr int most_devices = 64;
using weir::trace::event_kind;

/// What comes to hold memory, and what ends to: of the events about chunks.
constexpr bool comes(event_kind what) noexcept {
    return what == event_kind::grow || what == event_kind::extend || what == event_kind::move_to || what == event_kind::restore;
}

/// Any thread may call any member.
class recording {
public:
    /// Whether events are written down.
    bool is_on() const noexcept { return recorder_.is_on(); }

    /// Begins one, in a new file. Throws weir::usage_error if there is one already, or the file cannot be made; std::bad_alloc.
    void begin(char const* path, bool with_stacks) {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (file_)
            throw weir::usage_error(weir::text("weir: this process writes a recording already, '") + path_.c_str() +
                                    "'; end that first, with weir_torch.record(None)");
        if (weir::trace::event_ring* const ring = recorder_.ring())
            ring->drain([](weir::trace::event*, std::size_t) {}); // of calls that were under way when the last one ended
        file_ = std::make_unique<weir::trace::recording_file>(recorder_, path);
        path_ = path;
        complaint_.clear();
        with_stacks_.store(with_stacks, std::memory_order_relaxed);
        try {
            recorder_.start();
        } catch (...) {
            file_.reset();
            throw;
        }
    }
    /// Ends it, and writes the rest. Throws weir::usage_error if something could not be written; it has ended then, too.
    void end() {
        recorder_.stop();
        std::lock_guard<std::mutex> const lock(mutex_);
        if (!file_)
            return;
        std::unique_ptr<weir::trace::recording_file> const last = std::move(file_);
        last->flush();
    }
    /// Writes what came so far. Throws weir::usage_error if that cannot be done; nothing is lost then.
    void flush() {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (file_)
            file_->flush();
    }
    /// The same once in a while: call it without a lock after an allocation.
    void flush_if_due() noexcept {
        if (written_.load(std::memory_order_relaxed) < events_of_a_flush)
            return;
        std::unique_lock<std::mutex> const lock(mutex_, std::try_to_lock);
        if (!lock || !file_)
            return;
        written_.store(0, std::memory_order_relaxed);
        try {
            file_->flush();
        } catch (std::exception const& error) {
            if (complaint_ != error.what())
                std::fprintf(stderr, "%s\n", error.what());
            complaint_ = error.what();
        }
    }

    /// The number of the line of Python's that runs now, with its callers; 0: nobody asked for it, or there is none. Takes
    /// Python's lock: call it without another one.
    std::uint32_t site() noexcept {
        return with_stacks_.load(std::memory_order_relaxed) ? python_site(recorder_.names()) : 0;
    }
    /// 'train.py:12' for such a number; "" for 0.
    std::string site_text(std::uint32_t site) const {
        if (site == 0)
            return {};
        weir::trace::frame const found = const_cast<weir::trace::recorder&>(recorder_).names()[site];
        std::string const file = found.file.c_str();
        return file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(found.line);
    }

    /// Writes an event of a block down, if it is on.
    void note(event_kind what, int device, void const* p, std::size_t bytes, std::size_t taken,
              weir::stream_ref stream, std::uint32_t site = 0) noexcept {
        weir::trace::event one;
        one.extra_bytes = taken < bytes ? 0 : static_cast<std::uint32_t>(taken - bytes);
        one.site = site;
        write(one, what, device, reinterpret_cast<std::uintptr_t>(p), bytes, stream.get());
    }
    /// The same of a chunk, or of a device's pool as a whole.
    void note(event_kind what, int device, weir::base::range chunk = {}) noexcept {
        write({}, what, device, chunk.offset, chunk.bytes, nullptr);
    }
    /// A part of the program that has a name begins, or ends.
    void scope(event_kind what, char const* name) noexcept {
        if (!is_on())
            return;
        weir::trace::event one;
        one.site = recorder_.names().number_of_scope(name);
        write(one, what, 0, 0, 0, nullptr);
    }

    /// The pool's name and limit on a device, for who reads the file. Call it before the first 'note' for the device.
    void describe(int device, char const* name, std::size_t limit_bytes) noexcept {
        try {
            sources_[static_cast<std::size_t>(device)].store(
                recorder_.add({name, device, weir::memory_space::device, limit_bytes}), std::memory_order_relaxed);
        } catch (...) { // the events are those of the first device to readers
        }
    }

private:
    static constexpr std::size_t events_of_a_flush = weir::trace::recorder::usual_events / 4;

    void write(weir::trace::event one, event_kind what, int device, std::size_t address, std::size_t bytes,
               cudaStream_t stream) noexcept {
        if (!is_on())
            return;
        one.kind = what;
        one.address = address;
        one.bytes = bytes;
        one.stream = reinterpret_cast<std::uintptr_t>(stream);
        one.source = sources_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed);
        one.log2_alignment = 9; // what every pool here gives
        recorder_.write(one);
        written_.fetch_add(1, std::memory_order_relaxed);
    }

    weir::trace::recorder recorder_;
    std::atomic<bool> with_stacks_{false};
    std::atomic<std::size_t> written_{0}; // since the last flush
    std::array<std::atomic<std::uint16_t>, most_devices> sources_{};
    std::mutex mutex_; // guards the rest
    std::unique_ptr<weir::trace::recording_file> file_;
    std::string path_, complaint_;
};

/// The process's. It never ends: tensors may be freed at the very end.
inline recording& tape() {
    static auto* const made = new recording();
    return *made;
}

} // namespace weir_plugin
