// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runner.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <weir/runtime/check.hpp>

namespace replay {
namespace {

/// As many streams as the trace has.
class streams {
public:
    explicit streams(std::size_t count) {
        handles_.reserve(count);
        while (handles_.size() < count) {
            cudaStream_t handle = nullptr;
            weir::check_cuda(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking),
                        "cudaStreamCreateWithFlags");
            handles_.push_back(handle);
        }
    }
    ~streams() {
        for (cudaStream_t const handle : handles_)
            static_cast<void>(cudaStreamDestroy(handle));
    }
    streams(streams const&) = delete;
    streams& operator=(streams const&) = delete;

    std::vector<cudaStream_t> const& handles() const { return handles_; }

private:
    std::vector<cudaStream_t> handles_;
};

/// What was held on average, over a trace's time, or over its events if all of them have one time.
class average {
public:
    explicit average(trace const& of) : of_(of), by_time_(of.microseconds.back() != of.microseconds.front()) {}

    /// So much is held from the event's time on, or from `us`.
    void at(std::size_t event, std::uint64_t bytes) { at_us(by_time_ ? of_.microseconds[event] : event, bytes); }
    void at_us(std::uint64_t us, std::uint64_t bytes) {
        sum_ += us > last_ ? static_cast<double>(bytes_) * static_cast<double>(us - last_) : 0;
        first_ = began_ ? first_ : us;
        began_ = true;
        last_ = std::max(last_, us);
        bytes_ = bytes;
    }
    bool by_time() const { return by_time_; }
    std::uint64_t bytes() const {
        return last_ == first_ ? bytes_ : static_cast<std::uint64_t>(sum_ / static_cast<double>(last_ - first_));
    }

private:
    trace const& of_;
    bool const by_time_;
    bool began_ = false;
    double sum_ = 0;
    std::uint64_t first_ = 0, last_ = 0, bytes_ = 0;
};

/// A cold pool with what it needs for a pass. At its end nothing is left, even when the pass broke off:
/// blocks go back to the pool, the pool to the driver, and the streams go last.
class pass {
public:
    pass(contender const& pool, trace const& trace, std::size_t limit_bytes)
        : trace_(trace), streams_(trace.streams), blocks_(trace.blocks, nullptr),
          session_(pool.open(limit_bytes)) {}

    ~pass() {
        for (event const& e : trace_.events)
            if (!e.is_free && blocks_[e.block])
                session_->watched_deallocate(streams_.handles()[e.stream], blocks_[e.block], e.bytes);
    }
    pass(pass const&) = delete;
    pass& operator=(pass const&) = delete;

    /// Notes after every event what the pool holds, and which calls it made.
    result watch(progress_function const& progress) {
        result seen;
        seen.reserved_bytes.reserve(trace_.events.size());
        seen.calls_at.reserve(trace_.events.size());
        seen.waiting_calls_at.reserve(trace_.events.size());
        ledger const& book = session_->book();
        average held(trace_);
        std::uint64_t live_bytes = 0;
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            event const& e = trace_.events[i];
            void*& block = blocks_[e.block];
            if (auto const us = session_->before(i); us && held.by_time())
                held.at_us(*us, session_->reserved_bytes());
            if (!e.is_free) {
                block = session_->watched_allocate(streams_.handles()[e.stream], e.bytes);
                live_bytes += block ? e.bytes : 0;
                bool const is_refused = !block && e.bytes != 0;
                seen.failures += is_refused;
                seen.operations += !is_refused;
            } else if (block) {
                if (e.stream != e.allocated_on)
                    session_->order_free(streams_.handles()[e.stream], streams_.handles()[e.allocated_on]);
                session_->watched_deallocate(streams_.handles()[e.stream], block, e.bytes);
                block = nullptr;
                live_bytes -= e.bytes;
                ++seen.operations;
            }
            seen.calls_at.push_back(static_cast<std::uint32_t>(book.calls() - seen.driver_calls));
            seen.waiting_calls_at.push_back(static_cast<std::uint32_t>(book.waiting_calls() - seen.waiting_calls));
            seen.driver_calls += seen.calls_at.back();
            seen.waiting_calls += seen.waiting_calls_at.back();
            std::uint64_t const reserved = session_->reserved_bytes();
            seen.reserved_bytes.push_back(reserved);
            held.at(i, reserved);
            if (reserved > seen.peak.reserved_bytes)
                seen.peak = {i, live_bytes, session_->handed_out_bytes(), reserved};
            if (i % 1024 == 0)
                progress(static_cast<double>(i) / static_cast<double>(trace_.events.size()));
        }
        seen.mean_reserved_bytes = held.bytes();
        seen.stream_waits = book.stream_waits();
        return seen;
    }

    /// Nanoseconds an operation.
    double time() {
        weir::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        auto const begin = std::chrono::steady_clock::now();
        std::uint64_t const operations = session_->run(trace_.events, streams_.handles(), blocks_);
        std::chrono::duration<double, std::nano> const taken = std::chrono::steady_clock::now() - begin;
        return operations ? taken.count() / static_cast<double>(operations) : 0;
    }

private:
    trace const& trace_;
    streams streams_;
    block_table blocks_;
    std::unique_ptr<session> session_;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::size_t const middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

} // namespace

result run(contender const& pool, trace const& trace, run_options const& options,
           progress_function const& progress) {
    double const watching = options.timed ? 0.5 : 1; // of the progress bar
    result seen =
        pass(pool, trace, options.limit_bytes).watch([&](double done) { progress(done * watching); });
    seen.pool = &pool;

    constexpr std::chrono::seconds enough{1};
    auto const begin = std::chrono::steady_clock::now();
    std::vector<double> times;
    while (options.timed && times.size() < options.timed_passes &&
           (times.empty() || std::chrono::steady_clock::now() - begin < enough)) {
        progress(watching + (1 - watching) * static_cast<double>(times.size()) / options.timed_passes);
        times.push_back(pass(pool, trace, options.limit_bytes).time());
    }
    if (!times.empty())
        seen.ns_per_operation = median(times);
    progress(1);
    return seen;
}

} // namespace replay
