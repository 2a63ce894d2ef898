// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The one world, its threads and its names: see state.hpp.

#include "calls.hpp"

#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>

namespace simulated_device::inside {

namespace {

std::uint64_t generations = 0;
world_state* current = nullptr; // never destroyed at exit: detached threads may still call
bool exits_with_error = true;

/// What was reported in worlds that are gone, and that nobody dealt with. Never destroyed.
std::vector<std::string>& left_over() {
    static auto& sentences = *new std::vector<std::string>;
    return sentences;
}

void keep_reports() {
    if (current == nullptr)
        return;
    for (std::size_t at = current->dealt_with; at < current->reports.size(); ++at)
        left_over().push_back(current->reports[at].sentence);
    current->deal_with_reports();
}

void end_of_program() {
    std::lock_guard<std::mutex> const lock(world_mutex());
    keep_reports();
    std::size_t const count = left_over().size();
    if (count == 0)
        return;
    constexpr std::size_t most = 100;
    for (std::size_t at = 0; at < count && at < most; ++at)
        std::fprintf(stderr, "simulated device: %s\n", left_over()[at].c_str());
    std::fprintf(stderr, "simulated device: %zu %s%s%s\n", count, count == 1 ? "report" : "reports",
                 count > most ? ", of which the first 100 are above" : "", exits_with_error ? "; this program ends with an error" : "");
    if (!exits_with_error)
        return;
    std::fflush(nullptr);
    std::_Exit(1); // the status of an exit that is under way cannot be changed
}

/// Before any object of the program is made, so that its destructors run before the end.
[[gnu::constructor(101)]] void register_end() {
    std::atexit(end_of_program);
}

// Device views start at one place in every run, so that a replay sees the same addresses.
constexpr std::uintptr_t first_hint = 0x7e9000000000u;
constexpr std::uintptr_t hint_step = 0x004000000000u; // 256 GiB

} // namespace

std::mutex& world_mutex() {
    static auto* const mutex = new std::mutex;
    return *mutex;
}

void replace_world(config const& configuration) {
    keep_reports();
    delete current;
    current = nullptr; // the new world may want the old one's addresses
    current = new world_state(configuration);
}

world_state& the_world() {
    if (current == nullptr)
        replace_world({});
    return *current;
}

world_state::world_state(config const& configuration) : settings(configuration), generation(++generations) {
    access const how = settings.device_memory_visible ? access::open : access::closed;
    std::uintptr_t hint = first_hint;
    constexpr int most = sizeof(thread_state::own_streams) / sizeof(stream_record*);
    devices.resize(static_cast<std::size_t>(settings.devices > most ? most : settings.devices > 0 ? settings.devices : 0));
    for (device_state& device : devices) {
        device.space = std::make_unique<device_space>(settings.memory_bytes, how, hint);
        hint += hint_step;
    }
    host_region =
        std::make_unique<region>(settings.pinned_bytes, access::closed, false, first_hint - hint_step);
    random_state = settings.seed * 0x9e3779b97f4a7c15ull + 1;
    constexpr unsigned keen[] = {1, 3, 5, 7};
    host.raise(0, host_step);
    if (settings.mode == schedule::random) {
        keenness = keen[decide(*this, 4)];
        restlessness = 1u << decide(*this, 4);
    }
    for (std::size_t ordinal = 0; ordinal < devices.size(); ++ordinal) {
        device_state& device = devices[ordinal];
        device.legacy = &make_stream(*this, static_cast<int>(ordinal), 0, 0, stream_kind::legacy);
        pools.push_back(std::make_unique<pool_record>());
        pool_record& pool = *pools.back();
        pool.device = static_cast<int>(ordinal);
        pool.location = {cudaMemLocationTypeDevice, pool.device};
        pool.is_default = true;
        pool.id = next_pool++;
        pool.accessible[pool.device] = cudaMemAccessFlagsProtReadWrite;
        pool.handle = new CUmemPoolHandle_st{&pool};
        device.default_pool = device.current_pool = &pool;
    }
}

world_state::~world_state() {
    ending = true;
    for (auto const& pool : pools)
        delete pool->handle;
    for (auto const& capture : captures)
        delete capture->handle; // never ended
    for (cudaGraph_t const graph : graph_handles)
        delete graph;
    for (cudaGraphExec_t const exec : exec_handles)
        delete exec;
    for (ended_object const& last : ended_objects)
        last.destroy(last.data);
    for (cudaUserObject_t const object : user_objects)
        if (object->own == object->owners) { // no graph's, and reported; what it holds would be reported again
            object->destroy(object->data);
            delete object;
        }
    reset_handles();
}

thread_state& this_thread(world_state& world) {
    static thread_local thread_state state;
    if (state.generation != world.generation) {
        std::unique_lock<std::mutex>* const lock = state.lock;
        state = thread_state{};
        state.generation = world.generation;
        state.lock = lock;
        state.number = world.threads++;
    }
    return state;
}

void fail_at_end(bool fails) {
    exits_with_error = fails;
}

void world_state::complain(finding kind, std::string sentence) {
    if (logging())
        say("  REPORT " + sentence);
    reports.push_back({kind, std::move(sentence)});
}

void world_state::say(std::string const& line) {
    log += line;
    log += '\n';
}

std::string name_of(stream_record const& stream) {
    switch (stream.kind) {
    case stream_kind::legacy:
        return "legacy stream " + std::to_string(stream.id);
    case stream_kind::per_thread:
        return "per-thread stream " + std::to_string(stream.id);
    case stream_kind::created:
        break;
    }
    return "stream " + std::to_string(stream.id);
}

std::string name_of_address(world_state const& world, void const* p) {
    auto const text = [&](std::string where, region const& in) {
        constexpr char digits[] = "0123456789abcdef";
        std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(p) - in.base();
        std::string hex;
        do {
            hex.insert(hex.begin(), digits[offset % 16]);
            offset /= 16;
        } while (offset != 0);
        return where + " + 0x" + hex;
    };
    for (std::size_t ordinal = 0; ordinal < world.devices.size(); ++ordinal)
        if (world.devices[ordinal].space->memory_region.contains(p))
            return text("device " + std::to_string(ordinal), world.devices[ordinal].space->memory_region);
    if (world.host_region->contains(p))
        return text("pinned memory", *world.host_region);
    if (world.virtual_region && world.virtual_region->contains(p))
        return text("virtual memory", *world.virtual_region);
    return p == nullptr ? "null" : "host memory";
}

} // namespace simulated_device::inside
