// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

// Random programs of containers and captures: containers live on streams, created and default ones, of which several are
// captured in any mode, into graphs that are launched and end. Streams end as soon as they may. Containers end inside captures,
// while streams that are marked for them are captured, and while another device is current; at many an end one CUDA call fails,
// or all from one on.
//
// A program keeps the rules: what a capture uses and does not free lives longer than its graph. So no capture may break, no
// block that a living graph may use may be handed out, and nothing in flight may be handed out too early. A seed decides all.
//
// WEIR_SIMULATION_SEEDS, WEIR_SIMULATION_FIRST: as in campaign.cpp; a program has 200 operations.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <simulated_cuda/simulated_cuda.hpp>
#include <simulation/pools.hpp>
#include <string>
#include <support/noted.hpp>
#include <support/sanitized.hpp>
#include <utility>
#include <vector>
#include <weir/container/vector.hpp>
#include <weir/order/order_after.hpp>
#include <weir/resource/layered.hpp>

namespace {

namespace device = simulated_cuda;
using weir::MiB;

std::size_t number_from(char const* variable, std::size_t otherwise) {
    char const* const text = std::getenv(variable);
    return text && *text ? static_cast<std::size_t>(std::strtoull(text, nullptr, 10)) : otherwise;
}

/// Makes a call that must not fail.
void must(cudaError_t error) {
    REQUIRE(error == cudaSuccess);
}

/// Tells the simulator of each block. The program tells it of the end, while the device is current on which it works.
template <class Pool>
class noting : public weir::resource::layered<noting<Pool>, Pool> {
    using base = weir::resource::layered<noting<Pool>, Pool>;

public:
    template <class... Arguments>
    explicit noting(Arguments&&... arguments) : base(std::in_place, std::forward<Arguments>(arguments)...) {}

    [[nodiscard]] void* try_allocate(weir::stream_ref on, std::size_t bytes, std::size_t alignment = base::default_alignment) {
        void* const p = this->pool_.try_allocate(on, bytes, alignment);
        support::note_taken(this->pool_, on, p, bytes);
        return p;
    }
    void deallocate(weir::stream_ref on, void* p, std::size_t bytes, std::size_t alignment = base::default_alignment) noexcept {
        this->pool_.deallocate(on, p, bytes, alignment);
    }
};

/// What the program needs of a pool.
struct subject {
    weir::pool_ref<weir::memory_space::device> pool;
    std::function<void()> settle, trim;
    std::function<std::size_t()> lost_bytes;
    bool graphs_give_back; ///< what a gone graph left comes back, and the simulator is told of the blocks
};

constexpr int streams = 3; // created ones; the last one blocks for the legacy stream
constexpr int per_thread = streams, legacy = streams + 1, places = streams + 2;

class program {
public:
    program(subject const& with, std::uint64_t seed) : with_(with), draw_(seed) {
        for (int at = 0; at < streams; ++at)
            renew(at);
        handles_[per_thread] = cudaStreamPerThread;
        handles_[legacy] = cudaStreamLegacy;
    }

    void run(int operations) {
        for (int i = 0; i < operations; ++i)
            step();
        for (int at = 0; at < places; ++at)
            if (capture_on_[at] != 0)
                end_capture(at);
        while (!graphs_.empty())
            end_graph(0);
        while (!items_.empty())
            end_item(0);
        for (int turns = 0; turns < 1000 && with_.lost_bytes() != 0; ++turns) // CUDA tells of a graph's end a little later
            static_cast<void>(cudaStreamQuery(handles_[0]));
        with_.settle();
        with_.trim();
        if (faults_ == 0 && !shared_ && with_.graphs_give_back)
            CHECK(with_.lost_bytes() == 0);
        for (int at = 0; at < streams; ++at)
            must(cudaStreamDestroy(handles_[at]));
    }

    std::size_t captured_ends = 0, faults_ = 0;

private:
    struct item {
        weir::device_vector<char> memory;
        int on;
        std::set<int> marked; ///< places
        std::set<int> graphs; ///< captures that use it
        std::set<int> apart;  ///< places whose work with it nothing comes after
    };
    struct graph {
        int number;
        int on; ///< the captured place, whose work of before comes before the first launch
        cudaGraphExec_t runs;
    };
    struct held_range {
        std::uintptr_t begin, end;
        std::set<int> graphs;
    };

    std::size_t below(std::size_t n) { return static_cast<std::size_t>(draw_() % n); }
    bool chance(unsigned percent) { return draw_() % 100 < percent; }

    bool lives(int number) const {
        for (int each : capture_on_)
            if (each == number)
                return true;
        for (graph const& each : graphs_)
            if (each.number == number)
                return true;
        return false;
    }
    bool is_free(int at) const { // of captures, its own and those in its way
        return capture_on_[at] == 0 &&
               (at != legacy || (capture_on_[per_thread] == 0 && capture_on_[streams - 1] == 0));
    }
    int some_free_place() {
        for (;;)
            if (int const at = static_cast<int>(below(places)); is_free(at))
                return at;
    }

    void renew(int at) {
        cudaStream_t made = nullptr;
        must(cudaStreamCreateWithFlags(&made, at == streams - 1 ? cudaStreamDefault : cudaStreamNonBlocking));
        handles_[at] = made;
    }

    void step() {
        std::size_t const what = below(100);
        std::size_t const which = items_.empty() ? 0 : below(items_.size());
        if (what < 22 || items_.empty())
            make();
        else if (what < 36)
            launch(*items_[which], items_[which]->on);
        else if (what < 46)
            use_elsewhere(*items_[which]);
        else if (what < 50)
            move(*items_[which]);
        else if (what < 68)
            end_item(which);
        else if (what < 75)
            begin_capture();
        else if (what < 81)
            end_capture(static_cast<int>(below(places)));
        else if (what < 86 && !graphs_.empty())
            launch_graph(graphs_[below(graphs_.size())]);
        else if (what < 90 && !graphs_.empty())
            end_graph(below(graphs_.size()));
        else if (what < 94)
            replace_stream(static_cast<int>(below(streams)));
        else if (what < 96)
            may_break_nothing() ? with_.settle() : void();
        else if (what < 97)
            with_.trim();
        else
            static_cast<void>(device::run(below(20)));
    }

    // driver_pool's settle breaks captures, as it says.
    bool may_break_nothing() const {
        return with_.graphs_give_back || count_captures() == 0;
    }
    int count_captures() const {
        int count = 0;
        for (int each : capture_on_)
            count += each != 0;
        return count;
    }

    void make() {
        if (items_.size() >= 12)
            return;
        int const at = some_free_place();
        std::size_t const bytes = 1 + below(chance(25) ? 3 * MiB : 100'000);
        try {
            weir::device_vector<char> memory(with_.pool, handles_[at], bytes);
            items_.push_back(std::unique_ptr<item>(new item{std::move(memory), at, {}, {}, {}}));
        } catch (weir::out_of_memory const&) {
            return;
        }
        auto const begin = reinterpret_cast<std::uintptr_t>(items_.back()->memory.data());
        for (held_range const& each : held_)
            CHECK_MESSAGE((begin >= each.end || begin + bytes <= each.begin), "bytes of a living graph were handed out");
        launch(*items_.back(), at);
    }

    void launch(item& with, int at) {
        if (at == legacy && !is_free(legacy))
            return;
        for (int each : with.apart)
            if (each != at && !(is_free(at) && is_free(each)))
                return;
        for (int each : std::exchange(with.apart, {}))
            if (each != at)
                weir::order_after(handles_[at], handles_[each]);
        if (capture_on_[at] != 0)
            with.graphs.insert(capture_on_[at]);
        must(device::launch(handles_[at], {}, {{with.memory.data(), with.memory.size()}}));
    }

    void use_elsewhere(item& with) {
        int const at = some_free_place();
        if (!is_free(with.on) || at == with.on)
            return;
        weir::order_after(handles_[at], handles_[with.on]);
        bool const marks = with.marked.count(at) != 0 || chance(50);
        if (marks && with.marked.insert(at).second)
            with.memory.used_on(handles_[at]);
        launch(with, at);
        if (!marks)
            with.memory.last_used_on(handles_[at]);
        with.apart.insert(at);
    }

    void move(item& with) {
        int const to = some_free_place();
        if (!is_free(with.on))
            return;
        with.memory.set_stream(handles_[to]);
        with.on = to;
    }

    void end_item(std::size_t which) {
        item& gone = *items_[which];
        std::set<int> now; // captures to which the end belongs
        if (capture_on_[gone.on] != 0)
            now.insert(capture_on_[gone.on]);
        for (int each : gone.marked)
            if (capture_on_[each] != 0)
                now.insert(capture_on_[each]);
        for (int each : gone.graphs)
            if (lives(each) && now.count(each) == 0)
                return; // it lives longer than that graph
        for (int each : gone.marked)
            if (!is_free(each) && capture_on_[each] == 0 && !now.empty())
                return; // the legacy stream: nothing is known of it
        auto const begin = reinterpret_cast<std::uintptr_t>(gone.memory.data());
        if (!now.empty())
            held_.push_back({begin, begin + gone.memory.size(), now});
        captured_ends += !now.empty();
        shared_ |= now.size() > 1;
        if (with_.graphs_give_back)
            device::note_free(gone.memory.data(), gone.memory.size(), handles_[gone.on], false);
        if (chance(40))
            must(cudaSetDevice(1));
        std::uint64_t const before = device::failed_calls();
        if (chance(40))
            device::fail_call(1 + below(12), cudaErrorUnknown, chance(15) ? device::lasting::for_ever : device::lasting::once);
        items_[which] = std::move(items_.back());
        items_.pop_back();
        device::clear_faults();
        faults_ += device::failed_calls() - before;
        must(cudaSetDevice(0));
    }

    void begin_capture() {
        int const at = static_cast<int>(below(streams + 1));
        if (capture_on_[at] != 0 || count_captures() == 2)
            return;
        constexpr cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                                   cudaStreamCaptureModeRelaxed};
        must(cudaStreamBeginCapture(handles_[at], modes[below(3)]));
        capture_on_[at] = ++captures_;
    }

    void end_capture(int at) {
        if (capture_on_[at] == 0)
            return;
        cudaGraph_t made = nullptr;
        graph fresh{std::exchange(capture_on_[at], 0), at, nullptr};
        must(cudaStreamEndCapture(handles_[at], &made)); // nothing broke it
        relaxed([&] { must(cudaGraphInstantiate(&fresh.runs, made, 0)); });
        must(cudaGraphDestroy(made));
        graphs_.push_back(fresh);
    }

    void launch_graph(graph const& which) {
        if (count_captures() != 0)
            return;
        int const at = some_free_place();
        for (int other = 0; other < places; ++other)
            weir::order_after(handles_[at], handles_[other]);
        must(cudaGraphLaunch(which.runs, handles_[at]));
        for (int other = 0; other < places; ++other)
            weir::order_after(handles_[other], handles_[at]);
    }

    void end_graph(std::size_t which) {
        int const number = graphs_[which].number;
        relaxed([&] { must(cudaGraphExecDestroy(graphs_[which].runs)); });
        graphs_[which] = graphs_.back();
        graphs_.pop_back();
        for (std::size_t i = held_.size(); i-- > 0;)
            if (held_[i].graphs.erase(number) != 0 && held_[i].graphs.empty()) {
                held_[i] = held_.back();
                held_.pop_back();
            }
    }

    // Streams end as soon as they may.
    void replace_stream(int at) {
        if (capture_on_[at] != 0)
            return;
        for (std::unique_ptr<item> const& each : items_)
            if (each->on == at || each->marked.count(at) != 0 || each->apart.count(at) != 0)
                return;
        for (graph const& each : graphs_)
            if (each.on == at)
                return;
        relaxed([&] {
            must(cudaStreamDestroy(handles_[at]));
            renew(at);
        });
    }

    // The program's own calls leave others' captures alone.
    template <class Call>
    static void relaxed(Call const& call) {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        must(cudaThreadExchangeStreamCaptureMode(&mode));
        call();
        must(cudaThreadExchangeStreamCaptureMode(&mode));
    }

    subject const& with_;
    std::mt19937_64 draw_;
    cudaStream_t handles_[places] = {};
    int capture_on_[places] = {}; // the number of the capture; 0: none
    int captures_ = 0;
    bool shared_ = false; // whether several graphs used one block
    std::vector<std::unique_ptr<item>> items_;
    std::vector<graph> graphs_;
    std::vector<held_range> held_; // what containers left that ended in captures
};

struct totals {
    std::size_t captured_ends = 0, faults = 0;
};

template <class Pool>
void play(std::uint64_t seed, totals& sum) {
    device::config settings = seed % 3 == 0   ? device::config{}.late()
                              : seed % 3 == 1 ? device::config{}.random(seed)
                                              : device::config{}.eager();
    device::world world(settings.with_devices(2), [](auto const&) {});
    std::size_t faults = 0;
    {
        noting<Pool> pool;
        subject const with{pool, [&] { pool.settle(); }, [&] { static_cast<void>(pool.trim()); },
                           [&] { return pool.state().lost_bytes; }, support::is_noted<Pool>()};
        program one(with, seed);
        one.run(200);
        sum.captured_ends += one.captured_ends;
        faults = one.faults_;
        sum.faults += faults;
    }
    for (device::report const& each : world.finish())
        CHECK_MESSAGE((faults != 0 && each.kind == device::finding::leak), each.sentence); // of what CUDA did not destroy
}

using hasty_pool = simulation::plain<simulation::device_memory, weir::reuse::stream_ordered<weir::identity::checked,
                                                                                            weir::handover::wait_first,
                                                                                            simulation::hasty>>;

} // namespace

TEST_CASE("simulation: random captures and containers over every recipe that asks its streams") {
    constexpr void (*plays[])(std::uint64_t, totals&) = {&play<weir::device_pool>,  &play<weir::compact_device_pool>,
                                                         &play<weir::pinned_pool>,  &play<weir::managed_pool>,
                                                         &play<weir::driver_pool>,  &play<hasty_pool>};
    std::size_t const first = number_from("WEIR_SIMULATION_FIRST", 1);
    std::size_t const seeds =
        number_from("WEIR_SIMULATION_SEEDS", std::getenv("WEIR_QUICK") || support::sanitized ? 60 : 300);
    totals sum;
    for (std::size_t seed = first; seed < first + seeds; ++seed) {
        CAPTURE(seed);
        plays[seed % (sizeof plays / sizeof plays[0])](seed, sum);
    }
    if (seeds >= 60) { // the programs do what they are for
        CHECK(sum.captured_ends > seeds);
        CHECK(sum.faults > seeds);
    }
}

#endif
