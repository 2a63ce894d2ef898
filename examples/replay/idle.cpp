// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "idle.hpp"

#include "program.hpp"
#include "text.hpp"
#include <algorithm>
#include <iterator>
#include <optional>
#include <weir/growth/by_holes.hpp>
#include <weir/growth/geometric.hpp>
#include <weir/growth/paged.hpp>
#include <weir/layer/record.hpp>
#include <weir/pool/pool.hpp>
#include <weir/recipes/general_placement.hpp>
#include <weir/resource/pool_options.hpp>
#include <weir/reuse/recorded_rule.hpp>
#include <weir/reuse/stream_ordered.hpp>
#include <weir/runtime/check.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/upstream/recorded.hpp>
#include <weir/upstream/virtual_memory.hpp>

namespace replay {
namespace {

using weir::trace::event_kind;

constexpr std::uint64_t page_bytes = ledger::page_bytes;

/// Puts what a meter says into columns.
class idle_columns {
public:
    idle_columns(std::string who, std::uint64_t end_us) : end_us_(std::max<std::uint64_t>(end_us, 1)) {
        out_.who = std::move(who);
        out_.over_time.resize(idle_report::columns);
    }
    void add(weir::trace::event const& one, std::uint64_t us) {
        us = std::min(us, end_us_);
        if (us > last_us_) {
            for (std::size_t i = 0; i < causes; ++i)
                out_.average[i] += static_cast<double>(last_.of[i]) * static_cast<double>(us - last_us_) / static_cast<double>(end_us_);
            std::size_t const here = column_of(us);
            for (std::size_t i = column_of(last_us_) + 1; i <= here; ++i)
                out_.over_time[i] = last_;
            last_us_ = us;
        }
        meter_.add(one);
        if (one.kind >= event_kind::grow && one.kind <= event_kind::restore)
            return; // in the middle of a call: the block that it is for comes next
        last_ = meter_.now();
        idle_bytes& most = out_.over_time[column_of(us)];
        if (last_.all() >= most.all())
            most = last_;
        std::uint64_t const held = meter_.held_bytes();
        if (held > out_.peak_held_bytes || (held == out_.peak_held_bytes && last_.all() < out_.at_peak.all())) {
            out_.peak_held_bytes = held;
            out_.at_peak = last_;
        }
    }
    idle_report made() {
        for (std::size_t i = column_of(last_us_) + 1; i < idle_report::columns; ++i)
            out_.over_time[i] = last_;
        return std::move(out_);
    }

private:
    std::size_t column_of(std::uint64_t us) const {
        double const part = static_cast<double>(us) / static_cast<double>(end_us_);
        return std::min(idle_report::columns - 1, static_cast<std::size_t>(part * idle_report::columns));
    }

    idle_report out_;
    idle_meter meter_;
    idle_bytes last_;
    std::uint64_t end_us_, last_us_ = 0;
};

struct own_streams {
    std::vector<cudaStream_t> handles;
    explicit own_streams(std::size_t count) {
        while (handles.size() < count) {
            cudaStream_t one = nullptr;
            weir::check_cuda(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
            handles.push_back(one);
        }
    }
    ~own_streams() {
        for (cudaStream_t const each : handles)
            static_cast<void>(cudaStreamDestroy(each));
    }
    own_streams(own_streams const&) = delete;
    own_streams& operator=(own_streams const&) = delete;
};

} // namespace

char const* name_of(cause of) {
    constexpr std::array<char const*, causes> names{"another stream's", "beside a lone block", "holes between blocks", "whole pages, kept"};
    return names[static_cast<std::size_t>(of)];
}

char const* meaning_of(cause of) {
    constexpr std::array<char const*, causes> meanings{
        "Freed on another stream than the one that allocated last: until the work before that free is over, only that stream may "
        "have it. A recording does not say when work ends, so this is the most that it can be.",
        "In pages of 2 MiB that hold one live block of less than half a page, which keeps the page from going back.",
        "Between blocks, in pages that are used otherwise: too small or too scattered for what was asked for.",
        "Pages without a live block: the pool keeps them for what comes, within its limit, until a trim."};
    return meanings[static_cast<std::size_t>(of)];
}

// Takes the page out of the sums, or puts it there.
void idle_meter::count(page const& of, bool comes) {
    cause const why = of.blocks == 0                                  ? cause::kept
                      : of.blocks == 1 && of.live < page_bytes / 2 ? cause::lone_block
                                                                      : cause::hole;
    sums& to = sums_[static_cast<std::size_t>(why)];
    auto const put = [comes](std::uint64_t& sum, std::uint64_t bytes) { sum = comes ? sum + bytes : sum - bytes; };
    std::uint64_t left = of.held - std::min(of.live, of.held);
    put(to.free, left);
    for (auto const& [stream, bytes] : of.freed) {
        std::uint64_t const counted = std::min(bytes, left); // what is not held is nobody's
        left -= counted;
        if (to.freed_by.size() <= stream)
            to.freed_by.resize(static_cast<std::size_t>(stream) + 1);
        put(to.freed_by[static_cast<std::size_t>(stream)], counted);
        put(to.freed, counted);
    }
}

template <class Change>
void idle_meter::change(std::uint64_t address, std::uint64_t bytes, Change&& to) {
    for (std::uint64_t at = address, end = address + bytes; at < end;) {
        std::uint64_t const number = at / page_bytes;
        std::uint64_t const next = std::min(end, (number + 1) * page_bytes);
        page& here = pages_[number];
        count(here, false);
        to(here, next - at);
        count(here, true);
        at = next;
    }
}

void idle_meter::hold(std::uint64_t address, std::uint64_t bytes) {
    held_bytes_ += bytes;
    change(address, bytes, [](page& here, std::uint64_t part) { here.held += part; });
}

void idle_meter::drop(std::uint64_t address, std::uint64_t bytes) {
    forget_freed(address, bytes);
    change(address, bytes, [this](page& here, std::uint64_t part) {
        std::uint64_t const known = std::min(part, here.held); // a recording that began late lacks chunks
        here.held -= known;
        held_bytes_ -= known;
    });
}

void idle_meter::mark_freed(std::uint64_t address, std::uint64_t bytes, std::uint64_t stream) {
    forget_freed(address, bytes);
    if (bytes == 0)
        return;
    freed_[address] = {address + bytes, stream};
    change(address, bytes, [stream](page& here, std::uint64_t part) {
        auto const found = std::find_if(here.freed.begin(), here.freed.end(), [&](auto const& each) { return each.first == stream; });
        if (found == here.freed.end())
            here.freed.emplace_back(stream, part);
        else
            found->second += part;
    });
}

void idle_meter::forget_freed(std::uint64_t address, std::uint64_t bytes) {
    std::uint64_t const end = address + bytes;
    auto at = freed_.upper_bound(address);
    if (at != freed_.begin() && std::prev(at)->second.end > address)
        --at;
    while (at != freed_.end() && at->first < end) {
        std::uint64_t const first = at->first;
        run const whole = at->second;
        at = freed_.erase(at);
        std::uint64_t const from = std::max(first, address), to = std::min(whole.end, end);
        if (first < from)
            freed_[first] = {from, whole.stream};
        if (to < whole.end)
            at = freed_.emplace(to, run{whole.end, whole.stream}).first;
        change(from, to - from, [&](page& here, std::uint64_t part) {
            for (std::size_t i = 0; i < here.freed.size(); ++i)
                if (here.freed[i].first == whole.stream && (here.freed[i].second -= part) == 0) {
                    here.freed[i] = here.freed.back();
                    here.freed.pop_back();
                    return;
                }
        });
    }
}

void idle_meter::forget_all_freed() {
    while (!freed_.empty())
        forget_freed(freed_.begin()->first, freed_.begin()->second.end - freed_.begin()->first);
}

void idle_meter::end_block(std::uint64_t address, std::uint64_t stream) {
    auto const found = live_.find(address);
    if (found == live_.end())
        return;
    std::uint64_t const bytes = found->second;
    live_.erase(found);
    change(address, bytes, [](page& here, std::uint64_t part) {
        here.live -= part;
        --here.blocks;
    });
    mark_freed(address, bytes, stream);
}

void idle_meter::add(weir::trace::event const& one) {
    switch (one.kind) {
    case event_kind::allocate: {
        end_block(one.address, one.stream);
        std::uint64_t const bytes = one.bytes + (one.extra_bytes == weir::trace::unknown_extra ? 0 : one.extra_bytes);
        stream_ = one.stream;
        if (bytes == 0)
            return;
        live_[one.address] = bytes;
        forget_freed(one.address, bytes);
        return change(one.address, bytes, [](page& here, std::uint64_t part) {
            here.live += part;
            ++here.blocks;
        });
    }
    case event_kind::free:
        return end_block(one.address, one.stream);
    case event_kind::grow:
    case event_kind::extend:
    case event_kind::restore:
    case event_kind::move_to:
        return hold(one.address, one.bytes);
    case event_kind::give_back:
    case event_kind::withdraw:
    case event_kind::move_from:
        return drop(one.address, one.bytes);
    case event_kind::hand_over:
        return mark_freed(one.address, one.bytes, one.stream);
    case event_kind::settle:
    case event_kind::wait:
        return forget_all_freed();
    default:
        return;
    }
}

idle_bytes idle_meter::now() const {
    idle_bytes out;
    for (std::size_t i = 0; i < causes; ++i) {
        sums const& each = sums_[i];
        std::uint64_t const own = stream_ < each.freed_by.size() ? each.freed_by[static_cast<std::size_t>(stream_)] : 0;
        out.of[static_cast<std::size_t>(cause::another_stream)] += each.freed - own;
        out.of[i] += each.free - (each.freed - own);
    }
    return out;
}

// recorded_device_pool's parts. Not the recipe itself: weir_pools.cpp has the recipes as another version of weir, and a program
// has those of one.
using recorded_pool = weir::layer::record<
    weir::pool<weir::upstream::recorded<weir::upstream::virtual_memory<>>, weir::recipes::general_placement,
               weir::reuse::recorded<weir::reuse::stream_ordered<>>, weir::growth::by_holes<>>>;

idle_report idle_of_replay(trace const& what, std::size_t limit_bytes, progress_function const& progress) {
    own_streams const streams(what.streams);
    std::unordered_map<std::uint64_t, std::uint64_t> numbers;
    for (std::size_t i = 0; i < streams.handles.size(); ++i)
        numbers[reinterpret_cast<std::uint64_t>(streams.handles[i])] = i;
    idle_columns out("device_pool", what.microseconds.back());
    weir::trace::recorder tape;
    recorded_pool pool(tape, weir::upstream::recorded(tape, weir::upstream::virtual_memory<>()),
                       weir::pool_options{}.limit(limit_bytes).name("device_pool"));
    tape.start();
    std::vector<void*> blocks(what.blocks, nullptr);
    constexpr std::size_t often = 4096; // events or parts of the time
    std::uint64_t us = 0;
    std::size_t since = 0;
    auto const take = [&] { // as if all of it had happened at the last event
        since = 0;
        tape.ring()->drain([&](weir::trace::event* first, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                auto const found = numbers.find(first[i].stream);
                first[i].stream = found == numbers.end() ? 0 : found->second;
                out.add(first[i], us);
            }
        });
    };
    for (std::size_t i = 0; i < what.events.size(); ++i) {
        event const& each = what.events[i];
        cudaStream_t const stream = streams.handles[each.stream];
        if (++since == often || what.microseconds[i] - us > what.microseconds.back() / often)
            take();
        us = what.microseconds[i];
        if (!each.is_free) {
            blocks[each.block] = pool.try_allocate(stream, each.bytes);
        } else if (void*& block = blocks[each.block]) {
            if (each.stream != each.allocated_on)
                put_after(stream, streams.handles[each.allocated_on]);
            pool.deallocate(stream, block, each.bytes);
            block = nullptr;
        }
        if (i % 1024 == 0)
            progress(static_cast<double>(i) / static_cast<double>(what.events.size()));
    }
    tape.stop();
    take();
    for (event const& each : what.events)
        if (!each.is_free && blocks[each.block])
            pool.deallocate(streams.handles[each.stream], std::exchange(blocks[each.block], nullptr), each.bytes);
    return out.made();
}

idle_report idle_of_recording(trace const& what) {
    if (!what.of || !what.of->has_addresses || !what.held)
        return {};
    weir::trace::recording const& from = what.of->what;
    if (from.events.empty())
        return {};
    idle_columns out(what.held->who, from.ns_of(from.events[from.events.size() - 1]) / 1000);
    for (weir::trace::event const& each : from.events)
        out.add(each, from.ns_of(each) / 1000);
    return out.made();
}

std::string as_table(std::vector<idle_report> const& reports) {
    std::string out;
    for (idle_report const& each : reports) {
        if (each.over_time.empty())
            continue;
        out += "  free in " + printable(each.who) + " when it held most, " + in_bytes(each.peak_held_bytes) + ": " + in_bytes(each.at_peak.all());
        for (std::size_t i = 0; i < causes; ++i)
            if (each.at_peak.of[i] != 0)
                out += "; " + std::string(name_of(static_cast<cause>(i))) + " " + in_bytes(each.at_peak.of[i]);
        out += '\n';
    }
    return out;
}

} // namespace replay
