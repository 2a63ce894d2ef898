// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Which operation runs next, and what is ordered before what?
//
// Order is settled when an operation is enqueued: it joins the clocks of its stream, of the streams that the
// legacy rules put before it, and of the host. When it runs is a choice among the streams whose first
// operation waits for nothing; each mode makes that choice in its own way, at every call.
//
// invariant: work runs only inside a CUDA call or a control call, on the thread that makes it.

#include "calls.hpp"

#include <chrono>
#include <condition_variable>

namespace simulated_device::inside {

namespace {

std::condition_variable& waiters() {
    static auto* const condition = new std::condition_variable;
    return *condition;
}

std::size_t waiting = 0;

std::uint64_t next_random(std::uint64_t& state) { // SplitMix64 (Steele, Lea and Flood 2014)
    std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

bool over(wait const& w) {
    return w.stream->done >= w.number;
}

bool ready(world_state const& world, stream_record const& stream) {
    if (stream.running || stream.queue.empty())
        return false;
    operation const& first = stream.queue.front();
    if (first.gate != 0 && world.closed_gates.count(first.gate) != 0)
        return false;
    return std::all_of(first.waits.begin(), first.waits.end(), over);
}

std::vector<stream_record*> ready_streams(world_state const& world) {
    std::vector<stream_record*> all;
    for (stream_record* const stream : world.active)
        if (ready(world, *stream))
            all.push_back(stream);
    return all;
}

/// The stream to run for this one to get on; null: something else has to happen first.
stream_record* needed(world_state const& world, stream_record& wanted) {
    stream_record* stream = &wanted;
    for (;;) {
        if (stream->running || stream->queue.empty())
            return nullptr;
        operation const& first = stream->queue.front();
        if (first.gate != 0 && world.closed_gates.count(first.gate) != 0)
            return nullptr;
        auto const unmet = std::find_if_not(first.waits.begin(), first.waits.end(), over);
        if (unmet == first.waits.end())
            return stream;
        stream = unmet->stream;
    }
}

void finish(world_state& world, stream_record& stream, std::uint64_t number) {
    stream.done = number;
    world.fruitless_queries = 0;
    if (stream.queue.empty())
        world.active.erase(std::find(world.active.begin(), world.active.end(), &stream));
    wake_waiters();
}

void execute(world_state& world, stream_record& stream) {
    operation work = std::move(stream.queue.front());
    stream.queue.pop_front();
    stream.running = true;
    if (world.logging())
        world.say("  run " + name_of(stream) + " #" + std::to_string(work.number) + " " + work.what);
    cudaError_t& sticky = world.devices[static_cast<std::size_t>(stream.device)].sticky;
    if (sticky == cudaSuccess && work.body)
        run_body(world, work.foreign, work.body);
    if (sticky == cudaSuccess && work.failure != cudaSuccess)
        sticky = work.failure;
    stream.running = false;
    finish(world, stream, work.number);
}

void wait_for(stream_record& other, std::uint64_t number, stream_record const& stream, std::vector<wait>& waits) {
    if (&other != &stream && other.done < number)
        waits.push_back({&other, number});
}

void prune(world_state& world, vector_clock& clock) {
    if (clock.size() < 24)
        return;
    std::uint64_t const host = clock.of(0);
    clock.prune([&](std::size_t component) {
        if (component == 0)
            return false;
        stream_record const& stream = *world.streams[component - 1];
        return stream.settled_at != 0 && host >= stream.settled_at;
    });
}

/// Destroyed streams that the host knows to be over need no component in clocks made from now on.
void settle_destroyed(world_state& world) {
    bool any = false;
    for (auto const& stream : world.streams)
        if (stream->destroyed && stream->settled_at == 0 &&
            world.host.of(stream->component) >= stream->last) {
            stream->settled_at = world.host_step + 1;
            any = true;
        }
    if (any)
        host_steps(world);
    prune(world, world.host);
}

} // namespace

void run_body(world_state& world, bool foreign, std::function<void()> const& body) {
    if (!foreign) {
        body();
        return;
    }
    thread_state& thread = this_thread(world);
    bool const before = thread.in_host_function;
    std::unique_lock<std::mutex>* const lock = thread.lock;
    thread.in_host_function = true;
    lock->unlock();
    body();
    lock->lock();
    thread.lock = lock;
    thread.in_host_function = before;
}

void wake_waiters() {
    if (waiting != 0)
        waiters().notify_all();
}

void host_steps(world_state& world) {
    world.host.raise(0, ++world.host_step);
}

std::size_t decide(world_state& world, std::size_t n) {
    if (n < 2)
        return 0;
    if (world.settings.mode != schedule::exhaustive)
        return next_random(world.random_state) % n;
    if (world.script_at == world.script.size())
        world.script.push_back(0);
    world.script_sizes.resize(world.script_at);
    world.script_sizes.push_back(n);
    return world.script[world.script_at++];
}

stream_record& make_stream(world_state& world, int device, unsigned flags, int priority, stream_kind kind) {
    if (world.streams.size() % 16 == 15)
        settle_destroyed(world);
    world.streams.push_back(std::make_unique<stream_record>());
    stream_record& stream = *world.streams.back();
    stream.id = world.next_id++;
    stream.component = world.streams.size();
    stream.device = device;
    stream.flags = flags;
    stream.priority = priority;
    stream.kind = kind;
    if (stream.blocking())
        world.devices[static_cast<std::size_t>(device)].blocking.push_back(&stream);
    return stream;
}

void order_after(world_state&, stream_record& stream, stream_record* other, std::uint64_t number,
                 vector_clock const& clock, std::vector<wait>& waits) {
    stream.clock.join(clock);
    if (other != nullptr)
        wait_for(*other, number, stream, waits);
}

vector_clock next_clock(world_state const& world, stream_record const& stream) {
    device_state const& device = world.devices[static_cast<std::size_t>(stream.device)];
    vector_clock clock = stream.clock;
    if (stream.kind == stream_kind::legacy) {
        for (stream_record const* const other : device.blocking)
            clock.join(other->clock);
        clock.join(device.blocking_past);
    } else if (stream.blocking() && device.legacy->last != 0) {
        clock.join(device.legacy->clock);
    }
    clock.join(world.host);
    return clock;
}

std::uint64_t enqueue(world_state& world, stream_record& stream, operation work,
                      std::vector<bytes> const& reads, std::vector<bytes> const& writes) {
    device_state& device = world.devices[static_cast<std::size_t>(stream.device)];
    vector_clock clock = next_clock(world, stream);
    if (stream.kind == stream_kind::legacy) {
        auto& blocking = device.blocking;
        for (std::size_t at = 0; at < blocking.size();) {
            stream_record& other = *blocking[at];
            wait_for(other, other.last, stream, work.waits);
            if (other.destroyed && other.done == other.last) {
                device.blocking_past.join(other.clock);
                blocking.erase(blocking.begin() + static_cast<std::ptrdiff_t>(at));
            } else {
                ++at;
            }
        }
    } else if (stream.blocking()) {
        wait_for(*device.legacy, device.legacy->last, stream, work.waits);
    }
    stream.clock = std::move(clock);
    work.number = ++stream.last;
    stream.clock.raise(stream.component, work.number);
    prune(world, stream.clock);
    viewpoint from;
    from.stream = &stream;
    from.number = work.number;
    from.clock = &stream.clock;
    from.what = work.what;
    from.device = work.by_peers ? no_device : stream.device;
    for (bytes const& range : reads)
        world.knowledge.use(world, range.at, range.count, false, from);
    for (bytes const& range : writes)
        world.knowledge.use(world, range.at, range.count, true, from);
    if (stream.queue.empty() && !stream.running)
        world.active.push_back(&stream);
    std::uint64_t const number = work.number;
    stream.queue.push_back(std::move(work));
    settle_eagerly(world);
    return number;
}

void settle_eagerly(world_state& world) {
    if (world.settings.mode != schedule::eager)
        return;
    for (std::size_t at = 0; at < world.active.size();)
        if (ready(world, *world.active[at])) {
            execute(world, *world.active[at]);
            at = 0;
        } else {
            ++at;
        }
}

std::size_t run_some(world_state& world, std::size_t count) {
    std::size_t ran = 0;
    for (; ran < count; ++ran) {
        auto const all = ready_streams(world);
        if (all.empty())
            break;
        execute(world, *all[decide(world, all.size())]);
    }
    return ran;
}

void schedule_turn(world_state& world) {
    if (world.active.empty())
        return;
    switch (world.settings.mode) {
    case schedule::eager:
        settle_eagerly(world);
        break;
    case schedule::late:
        break;
    case schedule::random:
        while (decide(world, 8) < world.keenness && run_some(world, 1) != 0) {
        }
        break;
    case schedule::exhaustive:
        for (;;) {
            auto const all = ready_streams(world);
            std::size_t const choice = decide(world, all.size() + 1);
            if (choice == 0)
                break;
            execute(world, *all[choice - 1]);
        }
        break;
    }
}

void note_fruitless_query(world_state& world) {
    if (++world.fruitless_queries < 64)
        return;
    world.fruitless_queries = 0;
    run_some(world, 1);
}

bool wait_until(world_state& world, stream_record& stream, std::uint64_t number, char const* who) {
    thread_state& thread = this_thread(world);
    // As for a mutex (turnstile.cpp): all may seem to wait where one has been let go since it looked.
    for (unsigned in_vain = 0; stream.done < number;) {
        stream_record* next = nullptr;
        if (world.settings.mode == schedule::random || world.settings.mode == schedule::exhaustive) {
            auto const all = ready_streams(world);
            if (!all.empty())
                next = all[decide(world, all.size())];
        } else {
            next = needed(world, stream);
        }
        if (next != nullptr) {
            execute(world, *next);
            continue;
        }
        bool stuck = false;
        std::unique_lock<std::mutex>* const lock = thread.lock;
        lock->unlock();
        bool const stepped = step_aside(stuck);
        lock->lock();
        thread.lock = lock;
        if ((stepped && (!stuck || ++in_vain < 1000)) || stream.done >= number) // another thread may have run it just now
            continue;
        if (!stepped) {
            std::uint64_t const seen = stream.done;
            ++waiting;
            // The system clock: gcc's thread sanitizer knows no wait on the steady one.
            auto const limit =
                std::chrono::system_clock::now() + std::chrono::seconds(world.settings.watchdog_seconds);
            bool const moved = waiters().wait_until(
                *lock, limit, [&] { return stream.done != seen || needed(world, stream) != nullptr; });
            --waiting;
            thread.lock = lock;
            if (moved)
                continue;
        }
        world.complain(finding::deadlock, std::string(who) + " waits for operation " +
                                              std::to_string(number) + " of " + name_of(stream) +
                                              ", which nothing can start: a gate is closed");
        return false;
    }
    return true;
}

void host_joins(world_state& world, stream_record& stream) {
    world.host.join(stream.clock);
}

bool wait_for_device(world_state& world, int device, char const* who) {
    // What other threads enqueue while this one waits is none of its knowledge: the ends of now are.
    struct end {
        stream_record* stream;
        std::uint64_t number;
    };
    std::vector<end> ends;
    vector_clock known;
    for (auto const& stream : world.streams)
        if (stream->device == device && stream->settled_at == 0) {
            ends.push_back({stream.get(), stream->last});
            known.join(stream->clock);
        }
    for (end const& one : ends)
        if (!wait_until(world, *one.stream, one.number, who))
            return false;
    world.host.join(known);
    settle_destroyed(world);
    return true;
}

} // namespace simulated_device::inside
