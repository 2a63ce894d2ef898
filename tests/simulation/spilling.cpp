// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Random programs over spill sets, one after the other: every recipe that a set takes, on both sides.
//
// A program accesses, spills, prefetches and ends buffers, some of them empty, some computed. It ends each stream as soon as
// the set's documents allow it, captures streams in the three modes while accesses begin and end, makes calls of CUDA's fail,
// and has handlers below both pools that ask the set back. It knows what each buffer holds, and work on the device looks.
//
// WEIR_SPILLING_OPERATIONS    how many operations, of all programs together (40,000; fewer under sanitizers, with WEIR_QUICK)
// WEIR_SPILLING_FIRST         the first seed (1)

#include "pools.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <simulated_cuda/include/weir/simulated_device/watched.hpp>
#include <simulated_cuda/simulated_cuda.hpp>
#include <string>
#include <support/sanitized.hpp>
#include <vector>
#include <weir/layer/failure_handler.hpp>
#include <weir/staging/spill.hpp>

namespace {

namespace device = simulated_cuda;
using buffer = weir::staging::spillable<unsigned char>;

constexpr std::size_t operations_of_a_program = 250;
constexpr std::size_t edge = 64; // what is written and looked at, at both ends of a buffer

struct counts {
    std::size_t operations = 0, accesses = 0, refusals = 0, faults = 0, captures = 0, ended_streams = 0, asked = 0, moves = 0;
};

class program {
public:
    program(std::uint64_t seed, bool streams_stay, counts& total) : random_(seed), streams_stay_(streams_stay), total_(total) {}

    void run(weir::device_pool_ref pool, weir::host_pool_ref host) {
        pool_ = &pool;
        std::optional<weir::staging::spill_set<>> set;
        set.emplace(pool, host, (2 + pick(8)) * weir::MiB);
        set_ = &*set;
        for (std::size_t i = 0; i != created; ++i)
            create(i);
        weir::check_cuda(cudaStreamCreateWithFlags(&lasting_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        items_.resize(6);
        for (std::size_t i = 0; i != operations_of_a_program && wrong.empty(); ++i) {
            step();
            ++total_.operations;
        }
        device::clear_faults();
        total_.moves += static_cast<std::size_t>(set->state().to_device_bytes != 0);
        if (pick(2)) // scopes may outlive buffers
            for (item& each : items_)
                end(each);
        scopes_.clear();
        for (stream& each : streams_)
            end_capture(each);
        for (item& each : items_)
            end(each);
        set.reset();
        for (stream& each : streams_)
            if (each.name != cudaStreamPerThread && each.name != cudaStreamLegacy)
                cudaStreamDestroy(each.name);
        device::drain();
        cudaStreamDestroy(lasting_);
        if (device::choose(2))
            device::drain();
    }

    /// A pool below has no room.
    bool asked() {
        if (depth_ >= 2 || ++asked_ > 4)
            return false;
        ++total_.asked;
        ++depth_;
        bool helped = false;
        for (std::size_t left = 1 + pick(3); left != 0; --left)
            helped |= ask();
        --depth_;
        return helped;
    }

    std::string wrong;

private:
    struct stream {
        cudaStream_t name = nullptr;
        bool is_blocking = false;
        bool is_captured = false;
    };
    struct item {
        std::unique_ptr<buffer> it;
        unsigned number = 0; // tells it from others that had the place
        std::size_t bytes = 0;
        bool is_computed = false;
        unsigned char value = 0; // 0: nobody has written
        std::set<std::size_t> known; // streams that may not end
    };
    struct scope {
        std::optional<weir::staging::access_scope<unsigned char>> writes;
        std::optional<weir::staging::access_scope<unsigned char const>> reads;
        std::size_t item;
        unsigned number;
        std::size_t on;
    };
    static constexpr std::size_t created = 3, legacy = 4; // between them: the stream of the thread itself

    std::size_t pick(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

    void create(std::size_t i) {
        weir::runtime::capture_mode_scope const relaxed;
        streams_[i].is_blocking = pick(3) == 0;
        weir::check_cuda(cudaStreamCreateWithFlags(&streams_[i].name,
                                              streams_[i].is_blocking ? cudaStreamDefault : cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags");
    }
    bool may_work(std::size_t on) const {
        if (on == legacy)
            for (stream const& each : streams_)
                if (each.is_captured && each.is_blocking)
                    return false;
        return !streams_[on].is_captured;
    }

    // Makes calls fail while `call` runs; says what may be thrown.
    template <class Call>
    bool attempt(Call const& call) {
        bool const fails = depth_ == 0 && pick(8) == 0;
        std::uint64_t const before = device::failed_calls();
        if (fails)
            device::fail_call(1 + pick(12), cudaErrorUnknown);
        bool done = false;
        try {
            call();
            done = true;
        } catch (weir::out_of_memory const&) {
            ++total_.refusals;
        } catch (weir::usage_error const& error) {
            std::string const said = error.what();
            if (said.find("captured") == std::string::npos && said.find("a handler that makes room") == std::string::npos)
                wrong += said + "\n";
        } catch (weir::cuda_error const& error) {
            if (error.code() != static_cast<int>(cudaErrorUnknown))
                wrong += std::string(error.what()) + "\n";
        }
        if (fails)
            device::clear_faults();
        total_.faults += static_cast<std::size_t>(device::failed_calls() - before);
        static_cast<void>(cudaGetLastError());
        return done;
    }

    void write(std::size_t on, unsigned char* p, std::size_t bytes, unsigned char value) {
        device::launch(streams_[on].name, {}, {{p, bytes}}, [p, bytes, value] {
            auto* const at = static_cast<unsigned char*>(device::backing(p));
            std::memset(at, value, edge);
            std::memset(at + bytes - edge, value, edge);
        });
    }
    void look(std::size_t on, unsigned char const* p, std::size_t bytes, unsigned char value) {
        device::launch(streams_[on].name, {{p, bytes}}, {}, [this, p, bytes, value] {
            auto const* const at = static_cast<unsigned char const*>(device::backing(p));
            for (std::size_t i = 0; i != edge; ++i)
                if (at[i] != value || at[bytes - edge + i] != value) {
                    wrong += "a buffer does not hold what was written\n";
                    return;
                }
        });
    }

    // What is off the device keeps no stream.
    void forget_streams() {
        for (item& each : items_)
            if (each.it && !each.it->is_on_device())
                each.known.clear();
    }
    void end(item& of) {
        of.it.reset();
        of.known.clear();
    }
    void begin(item& of) {
        constexpr std::size_t sizes[] = {0, weir::MiB / 2, weir::MiB, 5 * weir::MiB / 4, weir::MiB, 3 * weir::MiB};
        of.number = ++numbers_;
        of.bytes = sizes[pick(6)];
        of.is_computed = of.bytes != 0 && pick(4) == 0;
        of.value = of.is_computed ? static_cast<unsigned char>(1 + pick(255)) : 0;
        of.it = of.is_computed
                    ? std::make_unique<buffer>(*set_, of.bytes,
                                               [this, value = of.value](weir::stream_ref on, unsigned char* p, std::size_t bytes) {
                                                   for (std::size_t i = 0; i != streams_.size(); ++i)
                                                       if (weir::stream_ref(streams_[i].name) == on)
                                                           write(i, p, bytes, value);
                                                   if (pick(20) == 0)
                                                       throw weir::out_of_memory(1, {{}, "of the function"});
                                               })
                    : std::make_unique<buffer>(*set_, of.bytes);
        of.known.clear();
    }
    bool has_scope(item const& of, bool that_writes, std::size_t but_on) const {
        for (std::unique_ptr<scope> const& each : scopes_)
            if (each->number == of.number && each->on != but_on && (each->writes || !that_writes))
                return true;
        return false;
    }

    void access(item& of, std::size_t on) {
        bool const writes = !of.is_computed && (of.value == 0 || pick(2));
        if (!of.it || has_scope(of, !writes, on))
            return;
        auto made = std::make_unique<scope>(scope{{}, {}, static_cast<std::size_t>(&of - items_.data()), of.number, on});
        scope& fresh = *made;
        if (of.is_computed)
            of.known.insert(on); // also if the function fails
        bool const done = attempt([&] {
            if (writes)
                fresh.writes.emplace(of.it->access(streams_[on].name));
            else
                fresh.reads.emplace(of.it->read(streams_[on].name));
        });
        if (!done)
            return;
        ++total_.accesses;
        if (writes && of.number == fresh.number)
            of.known.clear();
        if (may_work(on) && of.bytes != 0) {
            if (writes)
                write(on, fresh.writes->data(), of.bytes, value_of(fresh, static_cast<unsigned char>(1 + pick(255))));
            else
                look(on, fresh.reads->data(), of.bytes, of.value);
        }
        scopes_.push_back(std::move(made));
        if (pick(3))
            leave(scopes_.size() - 1);
    }
    unsigned char value_of(scope const& by, unsigned char value) {
        if (items_[by.item].number == by.number)
            items_[by.item].value = value;
        return value;
    }
    void leave(std::size_t i) {
        std::swap(scopes_[i], scopes_.back());
        std::unique_ptr<scope> const ending = std::move(scopes_.back());
        scopes_.pop_back();
        item& of = items_[ending->item];
        if (of.number == ending->number && of.it)
            of.known.insert(ending->on);
        attempt([&] { ending->writes.reset(), ending->reads.reset(); });
    }

    void begin_capture(stream& of) {
        constexpr cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                                   cudaStreamCaptureModeRelaxed};
        weir::check_cuda(cudaStreamBeginCapture(of.name, modes[pick(3)]), "cudaStreamBeginCapture");
        of.is_captured = true;
        ++total_.captures;
    }
    void end_capture(stream& of) {
        if (!std::exchange(of.is_captured, false))
            return;
        cudaGraph_t graph = nullptr;
        std::size_t nodes = 0;
        if (cudaStreamEndCapture(of.name, &graph) != cudaSuccess || cudaGraphGetNodes(graph, nullptr, &nodes) != cudaSuccess ||
            nodes != 0)
            wrong += "a capture was broken, or something joined it\n";
        if (graph)
            cudaGraphDestroy(graph);
        static_cast<void>(cudaGetLastError());
    }
    void end_stream(std::size_t i) {
        bool is_known = streams_[i].is_captured;
        for (item const& each : items_)
            is_known |= each.it && each.known.count(i) != 0;
        for (std::unique_ptr<scope> const& each : scopes_)
            is_known |= each->on == i;
        if (is_known)
            return;
        weir::runtime::capture_mode_scope const relaxed;
        weir::check_cuda(cudaStreamDestroy(streams_[i].name), "cudaStreamDestroy");
        ++total_.ended_streams;
        create(i);
    }
    // Somebody else's block, that gets what the set frees.
    void use_pool(std::size_t on) {
        if (!may_work(on))
            return;
        cudaStream_t const by = streams_stay_ ? lasting_ : streams_[on].name;
        std::size_t const bytes = (1 + pick(8)) * weir::MiB / 4;
        attempt([&] {
            void* const p = pool_->allocate(by, bytes);
            device::launch(by, {}, {{p, bytes}}, [p, bytes] { std::memset(device::backing(p), 0, bytes); });
            pool_->deallocate(by, p, bytes);
        });
    }

    void step() {
        asked_ = 0;
        item& of = items_[pick(items_.size())];
        std::size_t const on = pick(streams_.size());
        switch (pick(16)) {
        case 0: case 1: case 2: case 3: case 4:
            of.it ? access(of, on) : begin(of);
            break;
        case 5:
            if (!scopes_.empty())
                leave(pick(scopes_.size()));
            break;
        case 6:
            if (of.it)
                attempt([&] { of.it->spill(); });
            break;
        case 7:
            attempt([&] { set_->spill(pick(3) * weir::MiB); });
            break;
        case 8:
            if (of.it) {
                if (of.is_computed)
                    of.known.insert(on);
                attempt([&] { of.it->prefetch(streams_[on].name); });
            }
            break;
        case 9:
            if (pick(2))
                end(of);
            break;
        case 10:
            attempt([&] { set_->set_budget((1 + pick(10)) * weir::MiB); });
            break;
        case 11:
            if (on != legacy && !streams_[on].is_captured && pick(2))
                begin_capture(streams_[on]);
            break;
        case 12:
            end_capture(streams_[on]);
            break;
        case 13:
            use_pool(on);
            break;
        case 14:
            device::run(pick(20));
            break;
        default:
            break;
        }
        forget_streams();
        for (std::size_t i = 0; i != created; ++i)
            if (pick(2))
                end_stream(i);
    }

    // What a handler does.
    bool ask() {
        item& of = items_[pick(items_.size())];
        bool helped = false;
        if (!of.it)
            return attempt([&] { helped = set_->spill(1) != 0; }) && helped;
        switch (pick(6)) {
        case 0:
            of.it->set_next_use(pick(10));
            of.it->set_cost(1);
            return of.it->is_on_device();
        case 1:
            end(of);
            return true;
        case 2:
            attempt([&] { helped = set_->spill(pick(4) * weir::MiB) != 0; });
            return helped && set_->state().buffers != 0;
        case 3: {
            std::size_t const on = pick(streams_.size());
            if (!has_scope(of, true, on) && (of.is_computed || of.value != 0)) {
                of.known.insert(on);
                attempt([&] { static_cast<void>(of.it->read(streams_[on].name)); });
            }
            return false;
        }
        default:
            attempt([&] { helped = of.it->spill(); });
            return helped;
        }
    }

    std::mt19937_64 random_;
    bool streams_stay_;
    counts& total_;
    weir::device_pool_ref* pool_ = nullptr;
    weir::staging::any_spill_set* set_ = nullptr;
    std::vector<stream> streams_{{}, {}, {}, {cudaStreamPerThread, true, false}, {cudaStreamLegacy, true, false}};
    cudaStream_t lasting_ = nullptr;
    std::vector<item> items_;
    std::vector<std::unique_ptr<scope>> scopes_;
    unsigned numbers_ = 0;
    unsigned asked_ = 0; // in this step
    unsigned depth_ = 0; // of handlers
};

struct asks_back {
    program* of;
    bool operator()(weir::failed_allocation const&) const { return of->asked(); }
};

struct contestant {
    char const* name;
    bool streams_stay; // as identity::promised asks of users
    void (*run)(program& of, weir::host_pool_ref host);
    bool maps = true;
};

template <class Options>
Options limited(std::size_t bytes) {
    Options options;
    options.name("simulated");
    options.on_leak(weir::leak_action::ignore);
    options.limit(bytes);
    return options;
}
template <class Pool, class Options = weir::pool_options>
void run_over(program& of, weir::host_pool_ref host) {
    simulated_device::watched<Pool> card(limited<Options>(8 * weir::MiB));
    weir::layer::failure_handler pool(asks_back{&of}, card);
    of.run(pool, host);
}
template <class Pool, class Options = weir::pool_options>
void run_with_host(program& of, contestant const& on) {
    Pool below(limited<Options>(6 * weir::MiB));
    weir::layer::failure_handler host(asks_back{&of}, below);
    on.run(of, host);
}

using simulation::checked;
using simulation::promised;
using simulation::stream_ordered;
using placement_of_all = weir::recipes::general_placement;
template <class Identity, class Handover>
using hasty_pool = simulation::plain<simulation::device_memory, stream_ordered<Identity, Handover, simulation::hasty>,
                                     placement_of_all, weir::growth::exact>;

contestant const devices[] = {
    {"device_pool", false, &run_over<weir::device_pool>},
    {"compact_device_pool", false, &run_over<weir::compact_device_pool>},
    {"promised_device_pool", true, &run_over<weir::promised_device_pool>},
    {"managed_pool", false, &run_over<weir::managed_pool>},
    {"after_event", false, &run_over<simulation::plain<simulation::device_memory, weir::reuse::after_event>>},
    {"hasty", false, &run_over<hasty_pool<checked, weir::handover::grow_first>>},
    {"hasty_promised_compact", true, &run_over<hasty_pool<promised, weir::handover::wait_first>>},
    {"unmapped_device_pool", false, &run_over<weir::device_pool>, false},
    {"driver_pool", false, &run_over<weir::driver_pool, weir::driver_pool_options>},
};
void (*const hosts[])(program& of, contestant const& on) = {
    &run_with_host<simulated_device::watched<weir::pinned_pool>>, &run_with_host<weir::host_pool>,
    &run_with_host<simulation::plain<weir::upstream::pinned<>, stream_ordered<promised>>>};

std::size_t number_from(char const* variable, std::size_t otherwise) {
    char const* const text = std::getenv(variable);
    return text && *text ? static_cast<std::size_t>(std::strtoull(text, nullptr, 10)) : otherwise;
}

} // namespace

TEST_CASE("simulation: random programs over spill sets") {
    bool const quick = support::sanitized || std::getenv("WEIR_QUICK");
    std::size_t const operations = number_from("WEIR_SPILLING_OPERATIONS", quick ? 5000 : 40000);
    std::size_t failed = 0;
    counts total;
    for (std::uint64_t seed = number_from("WEIR_SPILLING_FIRST", 1); total.operations < operations && failed < 3; ++seed) {
        contestant const& on = devices[seed % std::size(devices)];
        CAPTURE(seed);
        CAPTURE(std::string(on.name));
        device::config how = device::config{}.random(seed);
        if (seed % 4 == 0)
            how = how.late();
        how.virtual_memory = on.maps;
        how.watchdog_seconds = 60;
        device::world world(how);
        std::string wrong;
        std::size_t const faults = total.faults;
        {
            program of(seed, on.streams_stay, total);
            hosts[(seed / std::size(devices)) % std::size(hosts)](of, on);
            wrong = of.wrong;
        }
        for (device::report const& each : world.finish())
            if (each.kind != device::finding::leak || total.faults == faults)
                wrong += each.sentence + "\n";
        if (!wrong.empty())
            ++failed;
        CHECK_MESSAGE(wrong.empty(), wrong);
        if (operations > 100000 && seed % 500 == 0)
            std::fprintf(stderr, "spilling: %zu of %zu operations, seed %zu\n", total.operations, operations,
                         static_cast<std::size_t>(seed));
    }
    if (operations >= 5000) { // the programs do what they are for
        CHECK(total.accesses > total.operations / 10);
        CHECK(total.refusals > 0);
        CHECK(total.faults > total.operations / 1000);
        CHECK(total.captures > total.operations / 100);
        CHECK(total.ended_streams > total.operations / 100);
        CHECK(total.asked > 0);
        CHECK(total.moves > 0);
    }
}

#endif
