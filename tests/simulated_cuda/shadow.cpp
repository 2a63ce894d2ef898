// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The interval map of uses and lives: see shadow.hpp. Every complaint says who, what, where, and what it
// collides with, in names that are the same in every run of a seed.

#include "calls.hpp"

#include <iterator>

namespace simulated_device::inside {

namespace {

std::uintptr_t number_of(void const* p) {
    return reinterpret_cast<std::uintptr_t>(p);
}

std::string range_text(world_state const& world, std::uintptr_t at, std::size_t bytes) {
    return std::to_string(bytes) + " bytes at " + name_of_address(world, reinterpret_cast<void const*>(at));
}

std::string text_of(world_state const& world, past_access const& past) {
    if (past.captured)
        return "node " + std::to_string(past.number) + " (" + past.what + ") of the same capture";
    if (past.component == 0)
        return "the host's " + std::string(past.write ? "write" : "read") + " at call " +
               std::to_string(past.call);
    stream_record const& stream = *world.streams[past.component - 1];
    if (past.marker)
        return "the free on " + name_of(stream) + " behind its operation " + std::to_string(past.number) +
               ", at call " + std::to_string(past.call);
    return std::string(past.write ? "the write" : "the read") + " by operation " +
           std::to_string(past.number) + " of " + name_of(stream) + " (" + past.what +
           "), enqueued at call " + std::to_string(past.call);
}

/// Memory that a captured stream allocated: whose it is, the driver knows by itself.
bool is_of_graph(world_state& world, void const* p) {
    allocation const* const memory = find_allocation(world, p);
    return memory != nullptr && memory->of_graph;
}

bool same(std::weak_ptr<graph_state> const& graph, graph_state const* other) {
    auto const alive = graph.lock();
    return alive && alive.get() == other;
}

} // namespace

std::string describe(world_state const& world, viewpoint const& from) {
    std::string text = from.what;
    text += from.stream != nullptr ? " on " + name_of(*from.stream) : std::string(" by the host");
    if (from.capture != nullptr)
        text += " (captured)";
    return text + " (call " + std::to_string(world.step) + ")";
}

shadow::segments::iterator shadow::cut(std::uintptr_t at) {
    auto it = segments_.upper_bound(at);
    if (it == segments_.begin())
        return it;
    --it;
    if (it->first == at)
        return it;
    if (it->second.end <= at)
        return std::next(it);
    segment upper = it->second;
    it->second.end = at;
    return segments_.emplace(at, std::move(upper)).first;
}

shadow::pieces shadow::find(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const& from,
                            char const* verb) {
    pieces found;
    std::uintptr_t const end = at + bytes;
    std::uintptr_t reached = at;
    cut(end);
    bool whole = true;
    for (auto it = cut(at); it != segments_.end() && it->first < end; ++it) {
        whole = whole && it->first == reached;
        reached = it->second.end;
        found.push_back(it);
    }
    whole = whole && reached == end;
    if (whole)
        return found;
    auto const ours = [&](void const* p) {
        for (device_state const& device : world.devices)
            if (device.space->memory_region.contains(p))
                return true;
        return world.host_region->contains(p) || (world.virtual_region && world.virtual_region->contains(p));
    };
    if (found.empty() && !ours(reinterpret_cast<void const*>(at)))
        return found;
    auto dead = dead_.lower_bound(end);
    bool was_alive = false;
    if (dead != dead_.begin()) {
        --dead;
        was_alive = dead->first + dead->second.bytes > at;
    }
    std::string sentence = describe(world, from) + " " + verb + " " + range_text(world, at, bytes);
    if (was_alive)
        sentence += ", but " + dead->second.death + " gave memory there back at call " +
                    std::to_string(dead->second.died);
    else
        sentence += found.empty() ? ", which was never allocated" : ", beyond the end of its allocation";
    world.complain(was_alive ? finding::use_after_free : finding::use_before_allocation, std::move(sentence));
    return found;
}

void shadow::born(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const* from) {
    if (bytes == 0)
        return;
    for (auto it = dead_.lower_bound(at); it != dead_.end() && it->first < at + bytes;)
        it = dead_.erase(it);
    auto now = std::make_shared<life>();
    now->base = at;
    now->bytes = bytes;
    now->number = ++lives_;
    now->born = world.step;
    auto const of_driver = world.allocations.find(at);
    now->mapped = of_driver != world.allocations.end() && of_driver->second.kind == memory_kind::mapped;
    segment& fresh = segments_[at];
    fresh.end = at + bytes;
    fresh.now = std::move(now);
    fresh.past.clear();
    if (from != nullptr)
        record(world, segments_.find(at), true, false, *from);
}

void shadow::died(world_state& world, std::uintptr_t at, std::size_t bytes, char const* how) {
    if (bytes == 0)
        return;
    cut(at + bytes);
    auto const first = cut(at);
    auto last = first;
    while (last != segments_.end() && last->first < at + bytes)
        ++last;
    segments_.erase(first, last);
    life& end = dead_[at];
    end.base = at;
    end.bytes = bytes;
    end.death = how;
    end.died = world.step;
}

void shadow::withdrawn(std::uintptr_t at, std::size_t bytes) {
    cut(at + bytes);
    for (auto it = cut(at); it != segments_.end() && it->first < at + bytes; ++it)
        if (it->second.now->block)
            withdrawn_[it->first] = {it->second.end, it->second.now, {}};
}

void shadow::restored(std::uintptr_t at, std::size_t bytes) {
    auto const launchable = [](std::weak_ptr<graph_state> const& graph) {
        auto const alive = graph.lock();
        return alive && alive->launchable();
    };
    auto it = withdrawn_.lower_bound(at);
    if (it != withdrawn_.begin() && std::prev(it)->second.end > at) { // mapped in parts
        segment const& across = std::prev(it)->second;
        it = withdrawn_.insert({at, {across.end, across.now, {}}}).first;
        std::prev(it)->second.end = at;
    }
    while (it != withdrawn_.end() && it->first < at + bytes) {
        std::shared_ptr<life> const back = it->second.now;
        std::uintptr_t const first = it->first;
        std::uintptr_t const end = std::min(it->second.end, at + bytes);
        if (it->second.end > end)
            withdrawn_[end] = it->second;
        it = withdrawn_.erase(it);
        if (!back->live && !launchable(back->graph) && !launchable(back->freed_in))
            continue;
        cut(end);
        segment& there = cut(first)->second;
        there.now->pooled = true; // the rest of the memory is the pool's as well
        there.now = back;
    }
}

void shadow::forget(std::uintptr_t at, std::size_t bytes) {
    withdrawn_.erase(withdrawn_.lower_bound(at), withdrawn_.lower_bound(at + bytes));
}

bool shadow::ordered(world_state const& world, past_access const& past, viewpoint const& from) const {
    if (past.captured)
        return from.capture == nullptr || !same(past.graph, from.capture) ||
               past.number == from.node || // a kernel that works in place
               from.capture->before(past.number, *from.frontier);
    if (from.capture != nullptr)
        return true; // judged when the graph is launched
    if (from.stream != nullptr && past.component == from.stream->component)
        return true;
    if (from.clock->of(past.component) >= past.number)
        return true;
    if (past.component == 0)
        return false;
    std::uint64_t const settled = world.streams[past.component - 1]->settled_at;
    return settled != 0 && from.clock->of(0) >= settled;
}

void shadow::record(world_state& world, segments::iterator where, bool write, bool marker,
                    viewpoint const& from) {
    segment& at = where->second;
    past_access next;
    next.write = write;
    next.marker = marker;
    next.call = world.step;
    next.what = from.what;
    next.of = at.now->number;
    if (from.capture != nullptr) {
        next.captured = true;
        next.number = from.node;
        for (auto const& graph : world.captures)
            if (graph.get() == from.capture)
                next.graph = graph;
        if (!marker)
            from.capture->uses.push_back(
                {where->first, at.end - where->first, write, at.now, from.node, from.what, from.device});
    } else {
        next.component = from.stream != nullptr ? from.stream->component : 0;
        next.number = from.stream != nullptr ? from.number : world.host_step;
    }
    // A later access that is ordered after this write is ordered after all that this write is ordered after;
    // a read says as much of this stream's earlier reads.
    auto const superseded = [&](past_access const& past) {
        if (past.captured != next.captured)
            return false;
        if (write)
            return ordered(world, past, from);
        return !past.captured && !past.write && past.component == next.component && past.of == next.of;
    };
    at.past.erase(std::remove_if(at.past.begin(), at.past.end(), superseded), at.past.end());
    at.past.push_back(std::move(next));
}

void shadow::judge(world_state& world, segments::iterator where, bool write, viewpoint const& from,
                   finding kind, char const* verb) {
    segment& at = where->second;
    past_access worst;
    bool found = false;
    // One sentence for all that collides here; a real access says more than the free behind it.
    for (auto past = at.past.begin(); past != at.past.end();) {
        bool const conflict = write || past->write || past->of != at.now->number;
        if (!conflict || ordered(world, *past, from)) {
            ++past;
            continue;
        }
        if (!found || worst.marker)
            worst = *past;
        found = true;
        past = at.past.erase(past);
    }
    if (found)
        world.complain(kind, describe(world, from) + " " + verb + " " +
                                 range_text(world, where->first, at.end - where->first) +
                                 ", but nothing orders " + text_of(world, worst) + " before it");
}

void shadow::join(pieces const& range) {
    for (std::size_t at = 1; at < range.size(); ++at) {
        segment& next = range[at]->second;
        auto const before = std::prev(range[at]);
        segment& mine = before->second;
        if (before->second.end != range[at]->first || mine.now != next.now || mine.past.size() != 1 ||
            next.past.size() != 1)
            continue;
        past_access const& a = mine.past.front();
        past_access const& b = next.past.front();
        if (a.captured || b.captured || a.component != b.component || a.number != b.number ||
            a.write != b.write || a.of != b.of)
            continue;
        mine.end = next.end;
        segments_.erase(range[at]);
    }
}

void shadow::use(world_state& world, void const* p, std::size_t bytes, bool write, viewpoint const& from) {
    if (bytes == 0)
        return;
    char const* const verb = write ? "writes" : "reads";
    expect_opened(world, number_of(p), bytes, from);
    auto const range = find(world, number_of(p), bytes, from, verb);
    bool const of_pool = this_thread(world).housekeeping != 0;
    for (auto const& where : range) {
        life const& now = *where->second.now;
        if (!now.live && !of_pool)
            world.complain(finding::use_after_free,
                           describe(world, from) + " " + verb + " " +
                               range_text(world, where->first, where->second.end - where->first) +
                               " of a block that was given back to its pool on " + now.death + " at call " +
                               std::to_string(now.died));
        else if (now.pooled && !of_pool)
            world.complain(finding::out_of_bounds,
                           describe(world, from) + " " + verb + " " +
                               range_text(world, where->first, where->second.end - where->first) +
                               ", which belongs to a pool that has not handed it out");
        judge(world, where, write, from, finding::use_in_flight, verb);
        record(world, where, write, false, from);
    }
    if (write)
        join(range);
}

void shadow::hand_out(world_state& world, void const* p, std::size_t bytes, viewpoint const& from) {
    if (bytes == 0 || is_of_graph(world, p))
        return;
    std::uintptr_t const at = number_of(p);
    auto const range = find(world, at, bytes, from, "hands out");
    if (range.empty())
        return;
    auto block = std::make_shared<life>();
    block->base = at;
    block->bytes = bytes;
    block->block = true;
    block->number = ++lives_;
    block->born = world.step;
    block->owner = from.stream != nullptr ? name_of(*from.stream) : std::string("the host");
    if (from.capture != nullptr)
        for (auto const& graph : world.captures)
            if (graph.get() == from.capture)
                block->graph = graph;
    for (auto const& where : range) {
        segment& there = where->second;
        life& old = *there.now;
        std::string const text =
            describe(world, from) + " hands out " + range_text(world, where->first, there.end - where->first);
        if (old.block && old.live)
            world.complain(finding::handed_out_twice,
                           text + ", which " + old.owner + " holds since call " + std::to_string(old.born));
        auto const holder = old.freed_in.lock();
        if (holder && holder->launchable() && holder.get() != from.capture && !old.live)
            world.complain(finding::graph_conflict,
                           text + ", which were given back in capture " + std::to_string(holder->id) +
                               " whose graph still lives and will use them at its next launch");
        if (!old.block)
            old.pooled = true;
        there.now = block;
        judge(world, where, true, from, finding::reuse_in_flight, "hands out");
    }
    // The rest of the driver's allocation is the pool's, and not handed out.
    std::uintptr_t base = 0;
    allocation const* const whole = find_allocation(world, p, &base);
    if (whole == nullptr)
        return;
    for (auto it = segments_.lower_bound(base); it != segments_.end() && it->first < base + whole->bytes;
         ++it)
        if (!it->second.now->block) {
            if (it->second.now->pooled)
                break; // one life for the whole allocation: marked already
            it->second.now->pooled = true;
        }
}

bool shadow::take_back_withdrawn(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const& from) {
    auto const first = withdrawn_.lower_bound(at);
    if (first == withdrawn_.end() || first->first >= at + bytes)
        return false;
    life& now = *first->second.now;
    if (!now.live || now.base != at || now.bytes != bytes)
        world.complain(finding::bad_free, describe(world, from) + " gives back " + range_text(world, at, bytes) +
                                              ", where another block is, or was, whose memory is withdrawn");
    now.live = false;
    now.died = world.step;
    now.death = from.stream != nullptr ? name_of(*from.stream) : std::string("the host");
    return true;
}

life* shadow::block_at(void const* p) {
    std::uintptr_t const at = number_of(p);
    for (segments* const all : {&segments_, &withdrawn_}) {
        auto it = all->upper_bound(at);
        if (it == all->begin() || (--it)->second.end <= at)
            continue;
        life& now = *it->second.now;
        return now.block && now.live ? &now : nullptr;
    }
    return nullptr;
}

vector_clock shadow::before_free(world_state const& world, life const& block, viewpoint const& from) const {
    vector_clock clock = *from.clock;
    for (stream_record const* const each : block.used_on)
        clock.join(next_clock(world, *each));
    clock.join(block.last_uses);
    return clock;
}

void shadow::expect_used_before(world_state& world, void const* p, std::size_t bytes, viewpoint const& from) {
    life const* const block = block_at(p);
    if (block == nullptr || block->base != number_of(p) || block->bytes != bytes || from.capture != nullptr)
        return; // take_back tells what is wrong; and what a capture frees its graph keeps
    vector_clock const clock = before_free(world, *block, from);
    viewpoint known = from;
    known.clock = &clock;
    past_access first;
    bool found = false;
    for (auto it = segments_.lower_bound(block->base); it != segments_.end() && it->first < block->base + bytes; ++it)
        if (it->second.now.get() == block)
            for (auto past = it->second.past.begin(); past != it->second.past.end();) {
                if (past->marker || past->of != block->number || ordered(world, *past, known)) {
                    ++past;
                    continue;
                }
                if (!found)
                    first = *past;
                found = true;
                past = it->second.past.erase(past); // told now, and not again when the bytes are handed out
            }
    if (found)
        world.complain(finding::early_free,
                       describe(world, from) + " gives back " + range_text(world, block->base, bytes) + ", but nothing orders " +
                           text_of(world, first) + " before it, and no used_on told the pool");
}

void shadow::take_back(world_state& world, void const* p, std::size_t bytes, viewpoint const& from, bool strictly) {
    if (bytes == 0 || is_of_graph(world, p))
        return;
    std::uintptr_t const at = number_of(p);
    if (take_back_withdrawn(world, at, bytes, from))
        return;
    auto const range = find(world, at, bytes, from, "gives back");
    for (auto const& where : range) {
        life& now = *where->second.now;
        bool const exact = now.block && now.base == at && now.bytes == bytes;
        if (exact && (now.live || where != range.front()))
            continue;
        std::string text = describe(world, from) + " gives back " + range_text(world, at, bytes);
        if (now.block && !now.live)
            text += ", which were given back before, at call " + std::to_string(now.died);
        else if (now.block)
            text += ", but the block there begins at " +
                    name_of_address(world, reinterpret_cast<void const*>(now.base)) + " and has " +
                    std::to_string(now.bytes) + " bytes";
        else
            text += ", which no pool handed out";
        world.complain(finding::bad_free, std::move(text));
        return;
    }
    for (auto const& where : range) {
        life& now = *where->second.now;
        if (now.live) {
            now.live = false;
            now.died = world.step;
            now.death = from.stream != nullptr ? name_of(*from.stream) : std::string("the host");
            if (from.capture != nullptr)
                for (auto const& graph : world.captures)
                    if (graph.get() == from.capture)
                        now.freed_in = graph;
        }
        if (from.stream == nullptr) {
            vector_clock const clock = before_free(world, now, from);
            viewpoint known = from;
            known.clock = &clock;
            judge(world, where, true, known, finding::early_free, "promises that nobody uses");
            continue;
        }
        if (!strictly)
            continue;
        if (from.capture != nullptr) {
            for (std::size_t const node : *from.frontier) {
                viewpoint point = from;
                point.node = node;
                record(world, where, false, true, point);
            }
            continue;
        }
        if (from.number == 0)
            continue;
        // A read by the stream's last operation: it supersedes nothing that is not its own.
        record(world, where, false, true, from);
        where->second.past.back().write = true;
    }
}

void shadow::expect_over(world_state& world, std::uintptr_t at, std::size_t bytes, viewpoint const& from,
                         char const* verb) {
    for (auto const& where : find(world, at, bytes, from, verb))
        judge(world, where, true, from, finding::use_in_flight, verb);
}

void shadow::repeat(world_state& world, captured_use const& use, viewpoint const& from,
                    graph_state const& graph) {
    viewpoint node = from; // on the device of the stream that was captured
    node.device = use.device;
    expect_opened(world, use.at, use.bytes, node);
    for (auto const& where : find(world, use.at, use.bytes, from, use.write ? "writes" : "reads")) {
        life const& now = *where->second.now;
        bool const same_life = &now == use.of.get();
        // Other memory behind the same addresses: what it does to a graph is defined, and its owner's business.
        bool const mapped_again = now.mapped && !now.pooled && use.of && use.of->mapped && !use.of->pooled &&
                                  now.base == use.of->base && now.bytes == use.of->bytes;
        bool const private_to_graph = same(now.graph, &graph) || same(now.freed_in, &graph);
        if (!private_to_graph && !((same_life || mapped_again) && now.live))
            world.complain(finding::graph_conflict,
                           describe(world, from) + " uses " + range_text(world, use.at, use.bytes) +
                               ", captured when another owner held them; they were " +
                               (now.live
                                    ? "handed to " + now.owner + " at call " + std::to_string(now.born)
                                    : "given back on " + now.death + " at call " + std::to_string(now.died)));
        judge(world, where, use.write, from, finding::use_in_flight, use.write ? "writes" : "reads");
        record(world, where, use.write, false, from);
    }
}

} // namespace simulated_device::inside
