// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does every block keep its bytes for as long as work uses it, on a device where work really runs at the same time?
//
// Threads with streams of their own allocate, fill, look, free at once behind the last look, let a second stream use a block,
// free on another stream, hand blocks to other threads, end streams whose handles come back, and launch graphs with memory of
// their own; the pool is small, so that it runs out, settles, trims and moves what it has. Now and then all threads pause and
// the pool is suspended, with what it holds saved. Kernels find every word that is not what was written (watch.hpp).
// The simulated device judges the same programs by its own rules; tests/simulation is where its schedules are searched.
//
// WEIR_SOAK_STEPS   steps a thread (4,000 on a GPU, 200 on the simulated device)
// WEIR_SOAK_SEED    (1)

#include "watch.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <support/every_schedule.hpp>
#include <support/noted.hpp>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <weir/graph/graph_memory.hpp>
#include <weir/layer/guard.hpp>
#include <weir/layer/limit.hpp>
#include <weir/layer/statistics.hpp>
#include <weir/recipes.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/upstream/device.hpp>

namespace {

using weir::check_cuda;
using weir::KiB;
using weir::MiB;

constexpr std::size_t worker_count = 4;
constexpr std::size_t streams_of_each = 3;
constexpr std::size_t rounds = 4;
#ifdef WEIR_SIMULATED_CUDA
constexpr std::size_t steps_here = 200;
constexpr std::size_t limit_bytes = 24 * MiB; // its kernels are loops of the host
constexpr std::size_t largest_shift = 18;
#else
constexpr std::size_t steps_here = 4000;
constexpr std::size_t limit_bytes = 192 * MiB;
constexpr std::size_t largest_shift = 23;
#endif

std::size_t number_from(char const* variable, std::size_t otherwise) {
    char const* const text = std::getenv(variable);
    return text && *text ? static_cast<std::size_t>(std::strtoull(text, nullptr, 10)) : otherwise;
}

// ---- the pools --------------------------------------------------------------------------------------------------

using after_event_pool = weir::pool<weir::upstream::device, weir::recipes::general_placement, weir::reuse::after_event>;
using waiting_pool = weir::pool<weir::upstream::device, weir::recipes::general_placement,
                                weir::reuse::stream_ordered<weir::identity::checked, weir::handover::wait_first>>;
using guarded_pool = weir::layer::guard<weir::layer::statistics<weir::device_pool>>;

template <class Pool>
Pool make_pool() {
    if constexpr (std::is_constructible_v<Pool, weir::driver_pool_options>) {
        weir::driver_pool_options options;
        options.limit(limit_bytes);
        return Pool(options);
    } else {
        return Pool(weir::pool_options{}.name("soak").limit(limit_bytes));
    }
}

/// 'settle' waits as cudaDeviceSynchronize does, which breaks captures.
template <class Pool>
inline constexpr bool settle_breaks_captures = std::is_constructible_v<Pool, weir::driver_pool_options>;

template <class Pool>
inline constexpr bool streams_may_go = !std::is_same_v<Pool, weir::promised_device_pool>;

template <class Pool, class = void>
inline constexpr bool suspends = false;
template <class Pool>
inline constexpr bool suspends<Pool, std::void_t<decltype(std::declval<Pool&>().suspend())>> = true;

// ---- what threads hand one another --------------------------------------------------------------------------------

struct block {
    void* p = nullptr;
    std::size_t bytes = 0;
    std::uint32_t tag = 0;
    std::size_t home = 0;        ///< of its worker's streams: behind all work on the block, but for what the pool was told of
    bool used_elsewhere = false; ///< as the pool was told
    unsigned marked = 0;         ///< a bit for each of its worker's streams that the pool asks at the free
};

class event {
public:
    explicit event(cudaStream_t behind) {
        check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        check_cuda(cudaEventRecord(event_, behind), "cudaEventRecord");
    }
    event(event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    ~event() {
        if (event_)
            static_cast<void>(cudaEventDestroy(event_));
    }
    void holds(cudaStream_t stream) const { check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }

private:
    cudaEvent_t event_ = nullptr;
};

struct parcel {
    block what;
    event behind;
};

/// Blocks on their way from one thread to whoever comes next.
class post {
public:
    void leave(parcel&& sent) {
        std::lock_guard<std::mutex> const lock(mutex_);
        parcels_.push_back(std::move(sent));
    }
    std::optional<parcel> take() {
        std::lock_guard<std::mutex> const lock(mutex_);
        if (parcels_.empty())
            return {};
        std::optional<parcel> found(std::move(parcels_.front()));
        parcels_.pop_front();
        return found;
    }

private:
    std::mutex mutex_;
    std::deque<parcel> parcels_;
};

using streams = std::array<std::optional<support::scoped_stream>, streams_of_each>;

/// What was done, for those who want to know how much that was.
struct tally {
    std::size_t blocks = 0, bytes = 0, looks = 0, second_uses = 0, handed_over = 0, refusals = 0, streams = 0, launches = 0;
    void add(tally const& other) {
        blocks += other.blocks, bytes += other.bytes, looks += other.looks, second_uses += other.second_uses;
        handed_over += other.handed_over, refusals += other.refusals, streams += other.streams, launches += other.launches;
    }
};

// ---- one thread ---------------------------------------------------------------------------------------------------

template <class Pool>
class worker {
public:
    worker(Pool& pool, streams& own, soak::watch& seen, post& mail, std::uint64_t seed)
        : pool_(&pool), streams_(&own), seen_(&seen), mail_(&mail), draw_(seed) {
        for (std::optional<support::scoped_stream>& each : own)
            each.emplace();
    }

    void steps(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            step();
    }

    /// Everything back.
    void end() {
        while (!graphs_.empty())
            end_graph();
        while (std::optional<parcel> const sent = mail_->take())
            accept(*sent);
        while (!live_.empty())
            free_one();
    }

    tally done;

private:
    struct graph {
        std::unique_ptr<weir::graph_memory<Pool>> memory;
        cudaGraph_t captured = nullptr;
        cudaGraphExec_t executable = nullptr;
        std::size_t home = 0;
    };

    /// Of the pool or of a graph's memory. What the driver's own pool hands out the simulator is not told of: it knows.
    template <class Source>
    static void* take(Source& source, cudaStream_t s, std::size_t bytes) {
        void* const p = source.try_allocate(s, bytes);
        if (support::is_noted<Pool>())
            support::note_taken(source, s, p, bytes);
        return p;
    }
    template <class Source>
    static void give(Source& source, cudaStream_t s, void* p, std::size_t bytes) {
        if (support::is_noted<Pool>())
            support::give(source, s, p, bytes);
        else
            source.deallocate(s, p, bytes);
    }

    std::size_t below(std::size_t n) { return static_cast<std::size_t>(draw_() % n); }
    /// Most kernels are short, and wait behind a few that take a millisecond.
    unsigned some_cycles() { return static_cast<unsigned>(below(below(12) == 0 ? 3'000'000 : 20'000)); }
    cudaStream_t stream(std::size_t which) const { return *(*streams_)[which]; }

    void step() {
        std::size_t const what = below(100);
        if (what < 38)
            allocate();
        else if (what < 44)
            launch();
        else if (what < 45)
            capture();
        else if (what < 46)
            replace_stream();
        else if (what < 47)
            static_cast<void>(pool_->trim(below(limit_bytes)));
        else if (what < 48 && !settle_breaks_captures<Pool>)
            pool_->settle();
        else if (what < 51)
            check_cuda(cudaStreamSynchronize(stream(below(streams_of_each))),
                  "cudaStreamSynchronize"); // the queue does not grow for ever
        else if (what < 54)
            receive();
        else if (!live_.empty()) {
            if (what < 60)
                send();
            else if (what < 66)
                refill();
            else if (what < 74)
                use_on_another();
            else if (what < 80)
                change_home();
            else
                free_one();
        }
    }

    void allocate() {
        std::size_t const shift = below(8) == 0 ? largest_shift : 8 + below(10);
        block fresh{nullptr, (std::size_t{1} << shift) + below(std::size_t{1} << shift), tag(), below(streams_of_each), false};
        fresh.p = take(*pool_, stream(fresh.home), fresh.bytes);
        if (!fresh.p) {
            ++done.refusals;
            for (int i = 0; i < 8 && !live_.empty(); ++i)
                free_one();
            return;
        }
        seen_->fill(stream(fresh.home), fresh.p, fresh.bytes, fresh.tag, some_cycles());
        live_.push_back(fresh);
        ++done.blocks;
        done.bytes += fresh.bytes;
    }

    /// Behind the last look, which runs later.
    void free_one() {
        std::swap(live_[below(live_.size())], live_.back());
        block const freed = live_.back();
        live_.pop_back();
        look(freed, freed.home);
        give(*pool_, stream(freed.home), freed.p, freed.bytes);
    }

    void refill() {
        block& chosen = live_[below(live_.size())];
        if (chosen.used_elsewhere)
            return; // its second user may still look
        look(chosen, chosen.home);
        chosen.tag = tag();
        seen_->fill(stream(chosen.home), chosen.p, chosen.bytes, chosen.tag, some_cycles());
    }

    /// The block's own stream does not wait for that one: its free does.
    void use_on_another() {
        block& chosen = live_[below(live_.size())];
        std::size_t const other = below(streams_of_each);
        event(stream(chosen.home)).holds(stream(other));
        bool const marks = below(2) == 0;
        if (marks && (chosen.marked >> other & 1) == 0) { // before the work, once
            pool_->used_on(chosen.p, stream(other));
            chosen.marked |= 1u << other;
        }
        look(chosen, other);
        if (!marks)
            pool_->last_used_on(chosen.p, stream(other));
        chosen.used_elsewhere = true;
        ++done.second_uses;
    }

    /// From now on another stream is behind all work on it, and frees it.
    void change_home() {
        block& chosen = live_[below(live_.size())];
        std::size_t const other = below(streams_of_each);
        event(stream(chosen.home)).holds(stream(other));
        chosen.home = other;
        look(chosen, other);
        ++done.handed_over;
    }

    void send() {
        std::swap(live_[below(live_.size())], live_.back());
        if (live_.back().marked != 0)
            return; // its streams are this worker's, and may end before its free elsewhere
        mail_->leave({live_.back(), event(stream(live_.back().home))});
        live_.pop_back();
        ++done.handed_over;
    }
    void receive() {
        if (std::optional<parcel> const sent = mail_->take())
            accept(*sent);
    }
    void accept(parcel const& sent) {
        live_.push_back(sent.what);
        live_.back().home = below(streams_of_each);
        sent.behind.holds(stream(live_.back().home));
        look(live_.back(), live_.back().home);
    }

    /// A stream ends with its work under way, and another comes, often with the same handle.
    void replace_stream() {
        if (!streams_may_go<Pool>)
            return;
        std::size_t const gone = below(streams_of_each);
        std::size_t const heir = (gone + 1) % streams_of_each;
        for (block const& each : live_)
            if ((each.marked >> gone & 1) != 0)
                return; // it lives until that block's free
        event(stream(gone)).holds(stream(heir));
        for (block& each : live_)
            if (each.home == gone)
                each.home = heir;
        for (graph& each : graphs_)
            if (each.home == gone)
                each.home = heir;
        (*streams_)[gone].reset();
        (*streams_)[gone].emplace();
        ++done.streams;
    }

    void look(block const& at, std::size_t on) {
        seen_->check(stream(on), at.p, at.bytes, at.tag, some_cycles());
        ++done.looks;
    }

    std::uint32_t tag() { return static_cast<std::uint32_t>(draw_()); }

    // ---- graphs ----

    /// Captures work on temporaries, of which a later one may have the bytes of an earlier one.
    void capture() {
        if (graphs_.size() >= 3)
            return end_graph();
        graph made{std::make_unique<weir::graph_memory<Pool>>(*pool_), nullptr, nullptr, below(streams_of_each)};
        cudaStream_t const s = stream(made.home);
        check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        std::array<block, 2> pair;
        for (int turn = 0; turn < 3; ++turn) {
            for (block& each : pair) {
                each = {nullptr, 256 + below(64 * KiB), tag(), made.home, false};
                if ((each.p = take(*made.memory, s, each.bytes)) != nullptr)
                    seen_->fill(s, each.p, each.bytes, each.tag, some_cycles());
            }
            for (block const& each : pair)
                if (each.p) {
                    look(each, made.home);
                    give(*made.memory, s, each.p, each.bytes);
                }
        }
        check_cuda(cudaStreamEndCapture(s, &made.captured), "cudaStreamEndCapture");
        check_cuda(cudaGraphInstantiate(&made.executable, made.captured, 0), "cudaGraphInstantiate");
        graphs_.push_back(std::move(made));
        launch();
    }

    void launch() {
        if (graphs_.empty())
            return;
        graph const& chosen = graphs_[below(graphs_.size())];
        check_cuda(cudaGraphLaunch(chosen.executable, stream(chosen.home)), "cudaGraphLaunch");
        ++done.launches;
    }

    void end_graph() {
        std::swap(graphs_[below(graphs_.size())], graphs_.back());
        graph const& ended = graphs_.back();
        check_cuda(cudaGraphExecDestroy(ended.executable), "cudaGraphExecDestroy");
        check_cuda(cudaGraphDestroy(ended.captured), "cudaGraphDestroy");
        ended.memory->release(stream(ended.home));
        graphs_.pop_back();
    }

    Pool* pool_;
    streams* streams_;
    soak::watch* seen_;
    post* mail_;
    std::mt19937_64 draw_;
    std::vector<block> live_;
    std::vector<graph> graphs_;
};

/// Each in a thread of its own; what one throws, this throws when all have ended.
template <class Crew, class Work>
void at_once(Crew& crew, Work const& work) {
    std::mutex mutex;
    std::exception_ptr thrown;
    std::vector<std::thread> threads;
    for (auto& each : crew)
        threads.emplace_back([&] {
            try {
                work(each);
            } catch (...) {
                std::lock_guard<std::mutex> const lock(mutex);
                thrown = std::current_exception();
            }
        });
    for (std::thread& each : threads)
        each.join();
    if (thrown)
        std::rethrow_exception(thrown);
}

} // namespace

#define SOAK_POOLS                                                                                                             \
    weir::device_pool, weir::compact_device_pool, weir::promised_device_pool, weir::managed_pool, weir::driver_pool,           \
        after_event_pool, waiting_pool, guarded_pool

TEST_CASE_TEMPLATE("soak: kernels of many streams and threads find in every block what was written", Pool, SOAK_POOLS) {
#ifdef WEIR_SIMULATED_CUDA
    simulated_cuda::world const world(simulated_cuda::config{}.random(number_from("WEIR_SOAK_SEED", 1)), support::report_all);
#endif
    std::size_t const steps = number_from("WEIR_SOAK_STEPS", steps_here);
    soak::watch seen;
    weir::pinned_pool keep;
    post mail;
    tally done;
    {
        std::array<streams, worker_count> every_stream; // they outlive the pool, as identity::promised asks
        Pool pool = make_pool<Pool>();
        std::deque<worker<Pool>> crew;
        for (streams& own : every_stream)
            crew.emplace_back(pool, own, seen, mail, number_from("WEIR_SOAK_SEED", 1) * worker_count + crew.size());
        for (std::size_t round = 0; round < rounds; ++round) {
            at_once(crew, [&](worker<Pool>& each) { each.steps(steps / rounds); });
            if constexpr (suspends<Pool>) {
#ifdef WEIR_SIMULATED_CUDA
                simulated_cuda::housekeeping const copies_what_is_not_handed_out;
#endif
                pool.suspend(keep);
                if (round % 2 == 0)
                    pool.trim();
                pool.resume();
            }
        }
        for (worker<Pool>& each : crew) {
            each.end();
            done.add(each.done);
        }
        CHECK(pool.state().live_blocks == 0);
        pool.settle();
        pool.trim();
        CHECK(pool.state().reserved_bytes == 0);
    }
    CHECK(seen.wrong_words() == 0);
    if (std::getenv("WEIR_SOAK_STEPS"))
        std::printf(
            "%zu blocks, %zu MiB, %zu looks; %zu second uses, %zu handed over, %zu refusals, %zu streams, %zu launches\n",
            done.blocks, done.bytes / MiB, done.looks, done.second_uses, done.handed_over, done.refusals, done.streams,
            done.launches);
}
