// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifdef WEIR_SIMULATED_CUDA

#include "program.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <mutex>
#include <optional>
#include <set>
#include <simulated_cuda/simulated_cuda.hpp>
#include <utility>
#include <weir/graph/graph_memory.hpp>
#include <weir/resource/pool_base.hpp>
#include <weir/runtime/capture.hpp>

namespace simulation {
namespace {

namespace device = simulated_cuda;

class dice { // SplitMix64 (Steele, Lea and Flood 2014)
public:
    explicit dice(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
    bool chance(unsigned percent) { return next() % 100 < percent; }
    template <class T, std::size_t N>
    T pick(T const (&from)[N]) {
        return from[below(N)];
    }

private:
    std::uint64_t state_;
};

// The program's own calls are made again until they succeed: faults strike once, and must not break its order.
template <class Call>
void surely(Call&& call) {
    for (int tries = 0; tries < 64; ++tries)
        if (call() == cudaSuccess)
            return;
}

/// Lets this thread wait, which would break captures that others have under way.
class unhindered {
public:
    unhindered() {
        surely([&] { return cudaThreadExchangeStreamCaptureMode(&mode_); });
    }
    unhindered(unhindered const&) = delete;
    unhindered& operator=(unhindered const&) = delete;
    ~unhindered() {
        surely([&] { return cudaThreadExchangeStreamCaptureMode(&mode_); });
    }

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void wait_for(cudaStream_t stream) {
    unhindered const here;
    surely([&] { return cudaStreamSynchronize(stream); });
}

/// An event that was recorded once. Outlives its stream.
class point {
public:
    explicit point(cudaStream_t stream) {
        surely([&] { return cudaEventCreateWithFlags(&event_, cudaEventDisableTiming); });
        surely([&] { return cudaEventRecord(event_, stream); });
    }
    point(point const&) = delete;
    point& operator=(point const&) = delete;
    ~point() {
        surely([&] { return cudaEventDestroy(event_); });
    }
    void before(cudaStream_t stream) const {
        surely([&] { return cudaStreamWaitEvent(stream, event_, 0); });
    }
    void before_host() const {
        unhindered const here;
        surely([&] { return cudaEventSynchronize(event_); });
    }

private:
    cudaEvent_t event_ = nullptr;
};
using shared_point = std::shared_ptr<point const>;

constexpr int nowhere = -1;

struct block {
    char* p = nullptr;
    std::size_t bytes = 0;
    std::size_t alignment = 0;
    std::size_t rounded = 0;
    std::size_t number = 0;
    int on = nowhere;                ///< the stream whose order its uses follow
    shared_point ready;              ///< where that is no stream any more: what to wait for; null: nothing
    std::vector<shared_point> second; ///< uses on other streams that 'on' is not ordered after
    bool undeclared = false;          ///< of those, the pool does not know all
    std::vector<int> marked;          ///< streams of which the pool asks at the free, so that they live until then
    std::size_t tagged_for = 0;       ///< the pause for which it holds its number; 0: none
};

struct stream_slot {
    cudaStream_t handle = nullptr;
    unsigned users = 0;
    bool blocking = false; ///< what the legacy stream does while it is captured breaks the capture
    bool going = false;    ///< being destroyed and made anew, or captured
    std::uint64_t freed_at = 0; ///< when memory was freed on it last
    bool only_allocates = false; ///< so that it may go at any time, also by promise
};

constexpr int streams = 4;
constexpr int legacy = streams; // one more slot
constexpr int threads = 3;

class program;

/// The program's pool, as graph memory sees it: the program notes each chunk.
class chunk_source : public weir::resource::pool_base<chunk_source> {
public:
    static constexpr weir::memory_space space = weir::memory_space::device; // whatever the pool has
    [[maybe_unused]] static constexpr bool thread_safe = true;
    [[maybe_unused]] static constexpr bool stream_ordered = true;
    static constexpr std::size_t default_alignment = 256;

    explicit chunk_source(program& of) : program_(of) {}
    void* try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment);
    void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept;
    int device() const noexcept;
    weir::memory_report state() const { return {}; }
    weir::refusal refused(std::size_t, std::size_t) const { return {full_state(), "no room"}; }

    bool capturing = false; ///< set by the thread whose capture gets its memory here

private:
    program& program_;
};

/// A graph, its memory, and the blocks that it uses at each launch.
struct recording {
    explicit recording(program& of) : source(of), memory(source) {}

    chunk_source source;
    weir::graph_memory<chunk_source> memory;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t launchable = nullptr;
    std::vector<block> kept; ///< of the memory, not freed in the capture
    block lent;              ///< of the pool
    shared_point last;       ///< what the next launch comes after
    std::size_t number = 0;
};

class program {
public:
    explicit program(options const& what) : what_(what), common_(what.seed * 0x2545f4914f6cdd1du + 1) {}

    outcome run() {
        {
            device::world world(configuration(), [](auto const&) {});
            limit_ = std::array<std::size_t, 5>{8 * weir::MiB, 16 * weir::MiB, 24 * weir::MiB, 64 * weir::MiB,
                                                static_cast<std::size_t>(-1)}[common_.below(5)];
            pool_ = what_.pool->make(limit_);
            marks_ = common_.chance(50);
            keep_.emplace(weir::pool_options{}.name("saved").on_leak(weir::leak_action::ignore));
            for (int at = 0; at < streams; ++at)
                renew(at, common_);
            slots_[legacy].handle = cudaStreamLegacy;
            static_cast<void>(weir::runtime::is_capturing(slots_[0].handle)); // looks the driver's functions up, once a process
            for (std::size_t half = 1; half <= 2; ++half) { // threads end, and others begin
                budget_ = what_.operations * half / 2;
                std::vector<std::function<void()>> bodies;
                for (int thread = 0; thread < threads; ++thread)
                    bodies.push_back([this, seed = common_.next()] { work(seed); });
                device::run_threads(bodies);
            }
            end();
            for (device::report const& each : world.finish())
                if (!lost_to_faults(each))
                    result_.complaints.push_back(each.sentence);
            result_.faults = device::failed_calls();
            result_.moves = device::calls("cuMemRetainAllocationHandle");
            if (what_.keeps_log)
                result_.log = device::log();
        }
        return std::move(result_);
    }

    // ---- what graph memory does with the pool -------------------------------------------------------------

    // It belongs to nobody yet, whatever it was: nothing may be under way in it.
    void* take_chunk(weir::stream_ref stream, std::size_t bytes, std::size_t alignment) {
        void* const p = pool_->try_allocate(stream, bytes, alignment);
        if (!p)
            return nullptr;
        device::note_allocate_host(p, bytes);
        device::note_free_host(p, bytes);
        guard const lock(mutex_);
        say("a chunk of %zu bytes for a graph", bytes);
        note_live(p, bytes, pool_->rounded(bytes, alignment), "a chunk for a graph");
        return p;
    }

    // `captured`: a fault kept graph memory from seeing that the graph uses the block, so the pool must.
    void give_chunk(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment, bool captured) {
        if (captured) {
            lost_to_a_graph_ = true;
            if (faults_ == 0)
                complain("a block that a capture freed went to the pool");
        } else if (stream.is_host()) {
            device::note_allocate_host(p, bytes);
            device::note_free_host(p, bytes);
        } else {
            device::note_allocate(p, bytes, stream.get());
            device::note_free(p, bytes, stream.get());
        }
        note_gone(p, pool_->rounded(bytes, alignment));
        pool_->deallocate(stream, p, bytes, alignment);
        note_freed(stream.get());
    }

    int device_of_pool() const { return pool_->device(); }

private:
    using guard = std::lock_guard<std::mutex>;

    device::config configuration() {
        device::config chosen;
        chosen.virtual_memory = what_.pool->maps;
        switch (common_.below(4)) {
        case 0: chosen.eager(); break;
        case 1: chosen.late(); break;
        default: chosen.random(what_.seed); break;
        }
        chosen.seed = what_.seed;
        chosen.log = what_.keeps_log;
        return chosen;
    }

    void renew(int place, dice& die) {
        bool const blocking = die.chance(30);
        cudaStream_t made = nullptr;
        surely([&] { return cudaStreamCreateWithFlags(&made, blocking ? cudaStreamDefault : cudaStreamNonBlocking); });
        slots_[place].handle = made;
        slots_[place].blocking = blocking;
    }

    void complain(std::string sentence) {
        guard const lock(mutex_);
        if (result_.complaints.size() < 20)
            result_.complaints.push_back(std::move(sentence));
    }

    template <class... Parts>
    void say(char const* format, Parts... parts) {
        if (!what_.keeps_log)
            return;
        char line[200];
        if constexpr (sizeof...(parts) == 0)
            std::snprintf(line, sizeof line, "%s", format);
        else
            std::snprintf(line, sizeof line, format, parts...);
        device::log(std::string("* ") + line);
    }

    // ---- what a thread does ---------------------------------------------------------------------------

    void work(std::uint64_t seed) {
        dice die(seed);
        for (;;) {
            bool waits = false;
            {
                guard const lock(mutex_);
                if (done_ >= budget_)
                    return;
                ++done_;
                ++inside_;
                waits = pausing_;
                working_ += !waits;
            }
            waits ? wait_out(die) : step(die);
            {
                guard const lock(mutex_);
                working_ -= !waits;
                // What the pool says of itself holds while no other thread is inside it.
                if (--inside_ == 0 && die.chance(20))
                    compare_facts();
            }
            device::yield();
        }
    }

    // ---- while a pool is suspended ------------------------------------------------------------------------

    // Whoever suspends a pool sees to it that no work uses its memory: from the moment when 'pausing_' is set, threads that
    // begin a step only allocate and free. What is handed out late, by a call that found its block before the pool was
    // suspended, is noted when there is memory again.

    void pause(dice& die) {
        if (!pool_->can_suspend() || !what_.pool->maps)
            return;
        {
            guard const lock(mutex_);
            if (pausing_)
                return;
            pausing_ = true;
        }
        until([&] { return working_ == 1; });
        bool const saves = live_bytes() < 3 * weir::MiB && die.chance(50);
        if (saves)
            tag_blocks();
        {
            guard const lock(mutex_);
            ++stage_; // odd: being suspended
        }
        until([&] { return noting_ == 0; });
        say(saves ? "suspend, and save" : "suspend");
        if (insist("suspend", [&] { pool_->suspend(saves ? &*keep_ : nullptr); })) {
            say("suspended");
            suspended_ = true;
            void* handed_out = nullptr;
            if (insist("allocate", [&] { handed_out = pool_->try_allocate(weir::on_host, 256, 256); }) && handed_out)
                complain("a suspended pool hands out");
            std::size_t const held = pool_->state().reserved_bytes;
            for (std::size_t left = die.below(20); left-- > 0;)
                device::yield();
            if (pool_->state().reserved_bytes > held)
                complain("a suspended pool gets memory");
            suspended_ = false;
            ++resumes_;
            if (!insist("resume", [&] { pool_->resume(); }))
                complain("a pool does not resume");
            say("resumed");
            check_tags();
        }
        guard const lock(mutex_);
        ++result_.pauses;
        ++stage_;
        pausing_ = false;
    }

    // Waits for what other threads do.
    template <class Condition>
    void until(Condition const& condition) {
        for (;; device::yield()) {
            guard const lock(mutex_);
            if (condition())
                return;
        }
    }

    // What is armed may strike anywhere, and then the pool is as it was.
    template <class Call>
    bool insist(char const* what, Call const& call) {
        device::housekeeping const of_pool;
        for (int tries = 0; tries < 64; ++tries) {
            try {
                call();
                return true;
            } catch (weir::cuda_error const&) {
            } catch (weir::out_of_memory const&) { // what a fault of cuMemCreate is told as
            }
            if (faults_ == 0)
                complain(std::string(what) + " threw without a fault");
        }
        return false;
    }

    std::size_t live_bytes() {
        guard const lock(mutex_);
        return live_bytes_;
    }

    // Writes each block's number into it: what work writes is not simulated, and copies are over when their step is.
    void tag_blocks() {
        guard const lock(mutex_);
        for (block& each : blocks_) {
            each.tagged_for = each.bytes >= sizeof each.number ? result_.pauses + 1 : 0;
            if (each.tagged_for != 0)
                std::memcpy(device::backing(each.p), &each.number, sizeof each.number);
        }
    }
    // Of those that are there and were: what a thread has in hand is looked at in no later pause, which may not save.
    void check_tags() {
        guard const lock(mutex_);
        for (block const& each : blocks_)
            if (each.tagged_for == result_.pauses + 1 &&
                std::memcmp(device::backing(each.p), &each.number, sizeof each.number) != 0)
                result_.complaints.push_back("block " + std::to_string(each.number) +
                                             " lost what it held while the pool was suspended");
    }

    // What a step may do meanwhile.
    void wait_out(dice& die) {
        std::size_t const what = die.below(100);
        if (what < 40)
            allocate(die, false);
        else if (what < 70)
            free(die, false);
        else if (what < 78)
            trim(die);
        else if (what < 86)
            settle();
        else if (what < 92)
            order(die);
        else if (what < 96)
            replace_stream(die);
        else
            break_a_call(die);
    }

    // Notes are made before a pool is suspended, or when it is no longer.
    void begin_note() {
        until([&] { return stage_ % 2 == 0 && (++noting_, true); });
    }
    void end_note() {
        guard const lock(mutex_);
        --noting_;
    }

    void step(dice& die) {
        std::size_t const what = die.below(108);
        if (what < 28)
            allocate(die);
        else if (what < 52)
            use(die);
        else if (what < 74)
            free(die);
        else if (what < 79)
            burst(die);
        else if (what < 83)
            copy(die);
        else if (what < 86)
            order(die);
        else if (what < 88)
            synchronize(die);
        else if (what < 92)
            replace_stream(die);
        else if (what < 94)
            trim(die);
        else if (what < 95)
            settle();
        else if (what < 97)
            break_a_call(die);
        else if (what < 100)
            hand_over(die);
        else if (what < 102)
            capture(die);
        else if (what < 105)
            replay(die);
        else if (what < 106)
            die.chance(50) ? pause(die) : settle();
        else if (std::unique_ptr<recording> const one = some_recording(die))
            put_away(die, *one);
    }

    std::size_t some_bytes(dice& die) {
        static constexpr std::size_t usual[] = {256, 512, 4096, 64 * weir::KiB, weir::MiB};
        std::size_t const kind = die.below(100);
        if (kind < 30)
            return 1 + die.below(8 * weir::KiB);
        if (kind < 60)
            return die.pick(usual);
        if (kind < 80)
            return 1 + die.below(256 * weir::KiB);
        if (kind < 94)
            return 1 + die.below(3 * weir::MiB);
        if (kind < 98) // larger than the holes that the others leave
            return 1 + die.below(10 * weir::MiB);
        static constexpr std::size_t huge[] = {0, static_cast<std::size_t>(-1), static_cast<std::size_t>(-1) / 2,
                                               200 * weir::GiB, 70 * weir::MiB};
        return die.pick(huge);
    }
    std::size_t some_alignment(dice& die) {
        if (die.chance(80))
            return 256;
        if (die.chance(90))
            return std::size_t{1} << die.below(17);
        return std::size_t{1} << (17 + die.below(5));
    }

    // Where a thread allocates, works or frees: a slot, its own default stream, or the host.
    static constexpr int own_default = streams + 1;
    static constexpr int host = streams + 2;
    int some_place(dice& die, bool with_host) {
        std::size_t const kind = die.below(100);
        if (with_host && kind < 6)
            return host;
        if (kind < 14)
            return own_default;
        if (kind < 20)
            return legacy;
        return static_cast<int>(die.below(streams));
    }

    /// Keeps a slot's stream from being destroyed. False: it is being destroyed now.
    bool enter_slot(int place) {
        if (place > legacy)
            return true;
        guard const lock(mutex_);
        if (slots_[place].going)
            return false;
        ++slots_[place].users;
        return true;
    }
    bool only_allocates(int place) {
        guard const lock(mutex_);
        return place >= 0 && place < streams && slots_[place].only_allocates;
    }
    void leave_slot(int place) {
        if (place < 0 || place > legacy)
            return;
        guard const lock(mutex_);
        --slots_[place].users;
    }
    cudaStream_t handle_of(int place) const {
        return place == own_default ? cudaStreamPerThread : slots_[place].handle;
    }

    /// Takes a block out of the common set, so that no other thread works on it; its stream stays.
    bool check_out(dice& die, block& out) {
        guard const lock(mutex_);
        if (blocks_.empty())
            return false;
        std::size_t const at = die.below(blocks_.size());
        if (blocks_[at].on != nowhere) {
            if (slots_[blocks_[at].on].going)
                return false;
            ++slots_[blocks_[at].on].users;
        }
        out = std::move(blocks_[at]);
        blocks_[at] = std::move(blocks_.back());
        blocks_.pop_back();
        return true;
    }
    /// Puts it back; `was_on`: the stream that check_out, or the caller, kept.
    void check_in(block back, int was_on) {
        guard const lock(mutex_);
        if (was_on != nowhere)
            --slots_[was_on].users;
        blocks_.push_back(std::move(back));
    }

    /// Makes what comes next on a stream come after all uses of the block.
    void order_after_uses(block const& of, cudaStream_t stream, bool same_stream) {
        if (!same_stream) {
            if (of.on != nowhere)
                point(slots_[of.on].handle).before(stream);
            else if (of.ready)
                of.ready->before(stream);
        }
        for (shared_point const& each : of.second)
            each->before(stream);
    }

    void launch(block const& on, cudaStream_t stream, bool writes) {
        std::vector<device::bytes> const bytes{{on.p, on.bytes}};
        std::vector<device::bytes> const none;
        surely([&] { return device::launch(stream, writes ? none : bytes, writes ? bytes : none); });
    }

    // Calls a pool; false if it threw. An exception needs a fault.
    template <class Call>
    bool ask(char const* what, Call&& call) {
        try {
            call();
            return true;
        } catch (weir::cuda_error const& error) {
            if (faults_ == 0)
                complain(std::string(what) + " threw without a fault: " + error.what());
        } catch (std::bad_alloc const&) { // a call that told of the host's memory
            if (faults_ == 0)
                complain(std::string(what) + " threw without a fault: it found no host memory");
        } catch (std::exception const& error) {
            complain(std::string(what) + " threw: " + error.what());
        }
        return false;
    }

    // With the lock held.
    void note_live(void* p, std::size_t bytes, std::size_t rounded, std::string const& what) {
        auto const address = reinterpret_cast<std::uintptr_t>(p);
        auto const above = live_.lower_bound(address);
        if ((above != live_.end() && above->first < address + bytes) ||
            (above != live_.begin() && std::prev(above)->second > address))
            result_.complaints.push_back(what + " overlaps one that is live");
        live_[address] = address + bytes;
        live_bytes_ += rounded;
        result_.reuses += gone_.count(address);
    }
    void note_gone(void* p, std::size_t rounded) {
        guard const lock(mutex_);
        live_.erase(reinterpret_cast<std::uintptr_t>(p));
        gone_.insert(reinterpret_cast<std::uintptr_t>(p));
        live_bytes_ -= rounded;
    }

    // ---- operations ---------------------------------------------------------------------------------------

    bool allocate_at(dice& die, int place, std::size_t bytes, std::size_t alignment, block& made) {
        void* p = nullptr;
        weir::stream_ref const stream =
            place == host ? weir::stream_ref(weir::on_host) : weir::stream_ref(handle_of(place));
        std::size_t const stage_before = stage_;
        std::size_t const resumes_before = resumes_;
        bool const suspended_before = suspended_;
        bool const answered = ask("try_allocate", [&] { p = pool_->try_allocate(stream, bytes, alignment); });
        if (p && suspended_before && resumes_ == resumes_before)
            complain("a suspended pool hands out");
        if (!p) {
            say("no %zu bytes at %d", bytes, place);
            guard const lock(mutex_);
            ++result_.refusals;
            std::size_t const rounded = pool_->rounded(bytes, alignment);
            bool const open = stage_before % 2 == 0 && stage_ == stage_before; // at no time suspended
            bool const fits = rounded != 0 && rounded < weir::GiB && limit_ == static_cast<std::size_t>(-1);
            if (open && answered && faults_ == 0 && fits)
                result_.complaints.push_back("no room for " + std::to_string(bytes) + " bytes though there is no limit");
            return false;
        }
        if (pool_->divides()) {
            if (!suspended_before) // else the pool is not suspended by now, and has its memory
                begin_note();
            if (place == host)
                device::note_allocate_host(p, bytes);
            else
                device::note_allocate(p, bytes, stream.get());
            if (!suspended_before)
                end_note();
        }
        made.p = static_cast<char*>(p);
        made.bytes = bytes;
        made.alignment = alignment;
        made.rounded = pool_->rounded(bytes, alignment);
        made.on = place == host || place == own_default ? nowhere : place;
        guard const lock(mutex_);
        ++result_.allocations;
        made.number = ++numbers_;
        say("block %zu: %zu bytes, alignment %zu, at %d", made.number, bytes, alignment, place);
        auto const address = reinterpret_cast<std::uintptr_t>(p);
        if (address % alignment != 0)
            result_.complaints.push_back("a block is not aligned to " + std::to_string(alignment));
        if (bytes == 0)
            result_.complaints.push_back("a block of no bytes");
        note_live(p, bytes, made.rounded, "block " + std::to_string(made.number));
        if (die.chance(10) && !pool_->owns(p))
            result_.complaints.push_back("the pool does not own what it handed out");
        return true;
    }

    // `works`: what the stream was given may use the block, as far as anyone knows.
    void free_at(int place, block const& gone, bool works = true) {
        say("free block %zu at %d", gone.number, place);
        if (!pool_->divides())
            ; // CUDA is told
        else if (place == host)
            device::note_free_host(gone.p, gone.bytes);
        else
            device::note_free(gone.p, gone.bytes, handle_of(place), works);
        note_gone(gone.p, gone.rounded);
        pool_->deallocate(place == host ? weir::stream_ref(weir::on_host) : weir::stream_ref(handle_of(place)), gone.p,
                          gone.bytes, gone.alignment);
        if (place != host)
            note_freed(handle_of(place));
        for (int each : gone.marked)
            leave_slot(each);
    }

    // What identity::promised asks of a program that destroys streams.
    void note_freed(cudaStream_t stream) {
        guard const lock(mutex_);
        ++frees_;
        for (stream_slot& each : slots_)
            if (!each.going && each.handle == stream) // else the handle is being written
                each.freed_at = frees_;
    }

    // What a thread did on its own default stream only it can order others after: at once.
    void leave_default_stream(block& of) { of.ready = std::make_shared<point const>(cudaStreamPerThread); }

    void allocate(dice& die, bool works = true) {
        int const place = some_place(die, true);
        allocate_on(place, die, works);
        if (only_allocates(place) && die.chance(40)) { // the next one of that handle finds what it left
            replace_stream(place, die);
            allocate_on(place, die, works);
        }
    }
    void allocate_on(int place, dice& die, bool works) {
        {
            guard const lock(mutex_);
            if (blocks_.size() > 40)
                return;
        }
        if (!enter_slot(place))
            return;
        block made;
        if (!allocate_at(die, place, some_bytes(die), std::min(some_alignment(die), pool_->largest_alignment()), made)) {
            leave_slot(place);
            return;
        }
        if (works && place != host && die.chance(70))
            launch(made, handle_of(place), true);
        if (place == own_default)
            leave_default_stream(made);
        check_in(std::move(made), place > legacy ? nowhere : place);
    }

    static bool is_marked(block const& which, int place) {
        return std::find(which.marked.begin(), which.marked.end(), place) != which.marked.end();
    }
    /// Tells the pool that the stream there uses the block, now or later. False: the pool threw.
    bool mark(block& which, int place) {
        say("block %zu: marks %d", which.number, place);
        if (!ask("used_on", [&] { pool_->used_on(which.p, handle_of(place)); }))
            return false;
        guard const lock(mutex_);
        ++slots_[place].users; // until the free
        which.marked.push_back(place);
        return true;
    }

    void use(dice& die) {
        block at_hand;
        if (!check_out(die, at_hand))
            return;
        int const was_on = at_hand.on;
        int place = was_on != nowhere && die.chance(40) ? was_on : some_place(die, false);
        if (!enter_slot(place)) {
            check_in(std::move(at_hand), was_on);
            return;
        }
        cudaStream_t const stream = handle_of(place);
        order_after_uses(at_hand, stream, place == was_on);
        bool const writes = die.chance(60);
        bool const stays = place != own_default && place != was_on && was_on != nowhere && die.chance(50);
        bool known = is_marked(at_hand, place);
        if (stays && !known && marks_ && die.chance(50))
            known = mark(at_hand, place);
        say("block %zu: %s at %d", at_hand.number, writes ? "write" : "read", place);
        launch(at_hand, stream, writes);
        if (place == own_default) {
            leave_default_stream(at_hand);
            at_hand.on = nowhere;
            at_hand.second.clear();
            at_hand.undeclared = false;
        } else if (!stays) {
            at_hand.on = place; // it moves there
            at_hand.second.clear();
            at_hand.undeclared = false;
            at_hand.ready.reset();
        } else { // a second use: its stream goes on without it
            at_hand.second.push_back(std::make_shared<point const>(stream));
            if (!known && marks_ && die.chance(30))
                known = mark(at_hand, place);
            if (!known)
                known = ask("last_used_on", [&] { pool_->last_used_on(at_hand.p, stream); });
            at_hand.undeclared = at_hand.undeclared || !known;
        }
        check_in(std::move(at_hand), was_on);
        leave_slot(place);
    }

    // While a pool is suspended, not by the host: the pool's copies are under way.
    void free(dice& die, bool works = true) {
        block gone;
        if (!check_out(die, gone))
            return;
        int const was_on = gone.on;
        int place = was_on != nowhere && die.chance(70) ? was_on : some_place(die, works);
        while (only_allocates(place))
            place = some_place(die, works);
        if (!enter_slot(place)) {
            check_in(std::move(gone), was_on);
            return;
        }
        if (place == host) {
            if (was_on != nowhere)
                point(slots_[was_on].handle).before_host();
            else if (gone.ready)
                gone.ready->before_host();
            for (shared_point const& each : gone.second)
                each->before_host();
        } else {
            cudaStream_t const stream = handle_of(place);
            if (place != was_on) {
                if (was_on != nowhere)
                    point(slots_[was_on].handle).before(stream);
                else if (gone.ready)
                    gone.ready->before(stream);
            }
            if (gone.undeclared) // what the pool was not told is ordered here
                for (shared_point const& each : gone.second)
                    each->before(stream);
        }
        free_at(place, gone, works);
        leave_slot(was_on == nowhere ? host : was_on);
        leave_slot(place);
    }

    // Several blocks of a size, allocated and freed in a row: what a loop of temporaries does.
    void burst(dice& die) {
        int const place = some_place(die, false);
        if (only_allocates(place) || !enter_slot(place))
            return;
        std::size_t const bytes = 1 + some_bytes(die) % (256 * weir::KiB);
        std::vector<block> made(1 + die.below(6));
        for (block& each : made)
            if (allocate_at(die, place, bytes, 256, each) && die.chance(50))
                launch(each, handle_of(place), true);
        for (block const& each : made)
            if (each.p)
                free_at(place, each);
        leave_slot(place);
    }

    // Freed on one stream, wanted on another at once.
    void hand_over(dice& die) {
        int const from = static_cast<int>(die.below(streams));
        int const to = static_cast<int>(die.below(streams));
        if (only_allocates(from) || only_allocates(to) || !enter_slot(from))
            return;
        if (!enter_slot(to)) {
            leave_slot(from);
            return;
        }
        std::size_t const bytes = 1 + some_bytes(die) % (2 * weir::MiB);
        block first;
        block then;
        if (allocate_at(die, from, bytes, 256, first)) {
            launch(first, handle_of(from), true);
            free_at(from, first);
            if (allocate_at(die, to, bytes, 256, then)) {
                launch(then, handle_of(to), true);
                free_at(to, then);
            }
        }
        leave_slot(from);
        leave_slot(to);
    }

    void copy(dice& die) {
        block at_hand;
        if (!check_out(die, at_hand))
            return;
        int const was_on = at_hand.on;
        if (was_on != nowhere) {
            static thread_local std::array<char, 512> scratch{};
            std::size_t const bytes = std::min(at_hand.bytes, scratch.size());
            bool const out = die.chance(50);
            order_after_uses(at_hand, slots_[was_on].handle, true);
            at_hand.second.clear();
            at_hand.undeclared = false;
            void* const to = out ? static_cast<void*>(scratch.data()) : at_hand.p;
            void const* const from = out ? at_hand.p : static_cast<void const*>(scratch.data());
            surely([&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, slots_[was_on].handle); });
            // The array ends with its thread.
            wait_for(slots_[was_on].handle);
        }
        check_in(std::move(at_hand), was_on);
    }

    void order(dice& die) {
        int const from = some_place(die, false);
        int const to = some_place(die, false);
        if (!enter_slot(from))
            return;
        if (enter_slot(to)) {
            point(handle_of(from)).before(handle_of(to));
            leave_slot(to);
        }
        leave_slot(from);
    }

    void synchronize(dice& die) {
        int const place = some_place(die, false);
        if (!enter_slot(place))
            return;
        wait_for(handle_of(place));
        leave_slot(place);
    }

    // Destroys a stream with its work still running, and makes another, which may get its handle. By promise, one on which
    // nothing was freed since the pool was settled.
    void replace_stream(dice& die) {
        if (!what_.pool->asks && die.chance(20))
            settle();
        replace_stream(static_cast<int>(die.below(streams)), die);
    }
    void replace_stream(int place, dice& die) {
        std::vector<block> moved;
        {
            guard const lock(mutex_);
            if (slots_[place].users != 0 || slots_[place].going || (!what_.pool->asks && slots_[place].freed_at > settled_))
                return;
            slots_[place].going = true;
            for (std::size_t at = 0; at < blocks_.size();)
                if (blocks_[at].on == place) {
                    moved.push_back(std::move(blocks_[at]));
                    blocks_[at] = std::move(blocks_.back());
                    blocks_.pop_back();
                } else {
                    ++at;
                }
        }
        say("stream %d ends", place);
        auto const last = std::make_shared<point const>(slots_[place].handle);
        surely([&] { return cudaStreamDestroy(slots_[place].handle); });
        renew(place, die);
        guard const lock(mutex_);
        slots_[place].freed_at = 0;
        slots_[place].only_allocates = !what_.pool->asks && die.chance(60);
        for (block& each : moved) {
            each.on = nowhere;
            each.ready = last;
            blocks_.push_back(std::move(each));
        }
        slots_[place].going = false;
    }

    // ---- graphs -------------------------------------------------------------------------------------------

    /// A stream for a capture, which nobody else uses until 'going' is false again; or nowhere.
    int seize(dice& die) {
        int const place = static_cast<int>(die.below(streams));
        guard const lock(mutex_);
        if (slots_[place].users != 0 || slots_[place].going || slots_[place].blocking)
            return nowhere;
        slots_[place].going = true;
        return place;
    }

    /// A block of the pool that nobody else works on until the graph is gone, and its uses before `stream`.
    bool take_for_graph(dice& die, cudaStream_t stream, block& out) {
        if (!check_out(die, out))
            return false;
        if (!out.marked.empty()) { // it is asked about its streams long after
            int const was_on = out.on;
            check_in(std::exchange(out, block{}), was_on);
            return false;
        }
        order_after_uses(out, stream, false);
        leave_slot(out.on);
        out.on = nowhere;
        out.ready.reset();
        out.second.clear();
        out.undeclared = false;
        return true;
    }

    // Another thread's call breaks a capture only where the pool is wrong, or a fault left it nothing else.
    cudaGraph_t end_capture(cudaStream_t stream) {
        cudaGraph_t graph = nullptr;
        surely([&] {
            cudaError_t const error = cudaStreamEndCapture(stream, &graph);
            bool const broken = error == cudaErrorStreamCaptureInvalidated || error == cudaErrorStreamCaptureUnjoined;
            if (broken && faults_ == 0)
                complain("a capture is broken");
            return broken ? cudaSuccess : error;
        });
        return graph;
    }

    // Not over the driver's pool, whose 'settle' breaks captures and whose blocks the simulated device knows whole.
    void capture(dice& die) {
        if (!pool_->divides())
            return;
        {
            guard const lock(mutex_);
            if (recordings_.size() >= 2)
                return;
        }
        static constexpr cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeGlobal,
                                                          cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
        int const places[] = {seize(die), die.chance(40) ? seize(die) : nowhere};
        if (places[0] != nowhere) {
            auto made = std::make_unique<recording>(*this);
            cudaStream_t const origin = slots_[places[0]].handle;
            block given; // to the graph: freed in it
            bool const gives = what_.pool->asks && die.chance(30) && take_for_graph(die, origin, given);
            if (die.chance(30))
                take_for_graph(die, origin, made->lent);
            made->last = std::make_shared<point const>(origin);
            cudaStreamCaptureMode const mode = die.pick(modes);
            {
                guard const lock(mutex_);
                made->number = ++captures_;
                say("capture %zu at %d and %d, mode %d", made->number, places[0], places[1], static_cast<int>(mode));
            }
            surely([&] { return cudaStreamBeginCapture(origin, mode); });
            made->source.capturing = true;
            fill(die, *made, origin, places[1] == nowhere ? nullptr : slots_[places[1]].handle, gives ? &given : nullptr);
            made->source.capturing = false;
            made->graph = end_capture(origin);
            if (made->graph) {
                surely([&] { return cudaGraphInstantiate(&made->launchable, made->graph, 0); });
                if (die.chance(50))
                    surely([&] { return cudaGraphDestroy(std::exchange(made->graph, nullptr)); });
                guard const lock(mutex_);
                recordings_.push_back(std::move(made));
            } else {
                put_away(die, *made);
            }
        }
        guard const lock(mutex_);
        for (int const place : places)
            if (place != nowhere)
                slots_[place].going = false;
    }

    // What is captured: blocks of the memory on one stream or two, used and freed where they were allocated.
    void fill(dice& die, recording& into, cudaStream_t origin, cudaStream_t beside, block const* given) {
        if (beside)
            point(origin).before(beside);
        if (into.lent.p)
            launch(into.lent, origin, true);
        if (given)
            launch(*given, origin, die.chance(50));
        struct placed {
            block of;
            cudaStream_t on;
        };
        std::vector<placed> live;
        for (std::size_t left = 1 + die.below(8); left-- > 0;) {
            if (live.empty() || die.chance(60)) {
                cudaStream_t const on = beside && die.chance(50) ? beside : origin;
                block made;
                if (!allocate_in(die, into, on, made))
                    continue;
                launch(made, on, true);
                live.push_back({made, on});
                continue;
            }
            std::size_t const which = die.below(live.size());
            if (beside && die.chance(30)) { // used by both, in order
                cudaStream_t const other = live[which].on == beside ? origin : beside;
                point(live[which].on).before(other);
                launch(live[which].of, other, die.chance(50));
                point(other).before(live[which].on);
            }
            launch(live[which].of, live[which].on, die.chance(50));
            free_in(into, live[which].on, live[which].of);
            live[which] = live.back();
            live.pop_back();
        }
        for (placed const& each : live)
            if (die.chance(70))
                free_in(into, each.on, each.of);
            else
                into.kept.push_back(each.of);
        if (given) {
            say("free block %zu in capture %zu", given->number, into.number);
            free_in(into, origin, *given);
        }
        if (beside)
            point(beside).before(origin);
    }

    bool allocate_in(dice& die, recording& from, cudaStream_t stream, block& made) {
        made.bytes = 1 + some_bytes(die) % (2 * weir::MiB);
        made.alignment = some_alignment(die) % (64 * weir::KiB);
        if (made.alignment == 0)
            made.alignment = 256;
        void* p = nullptr;
        ask("graph_memory::try_allocate", [&] {
            try {
                p = from.memory.try_allocate(stream, made.bytes, made.alignment);
            } catch (weir::usage_error const&) { // the capture is broken, by a wait for a device that refused a byte
                if (faults_ == 0)
                    throw;
            }
        });
        say("%zu bytes for capture %zu: %s", made.bytes, from.number, p ? "yes" : "no");
        if (!p)
            return false;
        device::note_allocate(p, made.bytes, stream);
        made.p = static_cast<char*>(p);
        if (reinterpret_cast<std::uintptr_t>(p) % made.alignment != 0)
            complain("a block of graph memory is not aligned to " + std::to_string(made.alignment));
        return true;
    }
    void free_in(recording& from, cudaStream_t stream, block const& gone) {
        device::note_free(gone.p, gone.bytes, stream);
        from.memory.deallocate(stream, gone.p, gone.bytes, gone.alignment);
    }

    std::unique_ptr<recording> some_recording(dice& die) {
        guard const lock(mutex_);
        if (recordings_.empty())
            return nullptr;
        std::size_t const at = die.below(recordings_.size());
        std::unique_ptr<recording> one = std::move(recordings_[at]);
        recordings_[at] = std::move(recordings_.back());
        recordings_.pop_back();
        return one;
    }

    // Launches of one graph run in order: they share its memory.
    void replay(dice& die) {
        std::unique_ptr<recording> one = some_recording(die);
        if (!one)
            return;
        for (std::size_t left = 1 + die.below(4); left-- > 0;) {
            int const place = some_place(die, false);
            if (!enter_slot(place))
                continue;
            cudaStream_t const stream = handle_of(place);
            one->last->before(stream);
            say("launch graph %zu at %d", one->number, place);
            surely([&] { return cudaGraphLaunch(one->launchable, stream); });
            if (one->lent.p && die.chance(30))
                launch(one->lent, stream, die.chance(50));
            for (block const& each : one->kept)
                if (die.chance(30))
                    launch(each, stream, die.chance(50));
            one->last = std::make_shared<point const>(stream);
            leave_slot(place);
            device::yield();
            guard const lock(mutex_);
            ++result_.launches;
        }
        guard const lock(mutex_);
        recordings_.push_back(std::move(one));
    }

    // The graph goes, and its memory goes back behind its last launch.
    void put_away(dice& die, recording& gone) {
        int place = some_place(die, false);
        if (!enter_slot(place))
            place = own_default;
        cudaStream_t const stream = handle_of(place);
        say("the end of graph %zu at %d", gone.number, place);
        gone.last->before(stream);
        for (block const& each : gone.kept)
            free_in(gone, stream, each);
        gone.kept.clear();
        if ((gone.launchable || gone.graph) && gone.memory.reserved_bytes() != 0)
            ask("graph_memory::try_release", [&] {
                if (gone.memory.try_release(stream))
                    complain("graph memory came back while its graph could be launched");
            });
        if (gone.launchable)
            surely([&] { return cudaGraphExecDestroy(gone.launchable); });
        if (gone.graph)
            surely([&] { return cudaGraphDestroy(gone.graph); });
        if (gone.memory.in_use_bytes() != 0)
            complain("graph memory counts blocks that were freed");
        // At its end it waits, once, for a device that may be told to fail; then nothing would order what comes next.
        bool const waits = what_.seed % 3 != 0 && die.chance(30);
        bool done = false;
        if (!waits && die.chance(50)) // CUDA is asked first, for a while
            for (int tries = 0; tries < 8 && !done; ++tries, device::yield())
                ask("graph_memory::try_release", [&] { done = gone.memory.try_release(stream); });
        if (done)
            device::note_ends();
        for (int tries = 0; tries < 64 && !waits && !done; ++tries)
            done = ask("graph_memory::release", [&] { gone.memory.release(stream); });
        if (gone.lent.p) {
            gone.lent.ready = std::make_shared<point const>(stream);
            check_in(std::move(gone.lent), nowhere);
        }
        leave_slot(place);
    }

    // ---- the pool as a whole ------------------------------------------------------------------------------

    void trim(dice& die) {
        say("trim");
        std::size_t const keep = die.chance(50) ? 0 : die.below(32 * weir::MiB);
        ask("trim", [&] { static_cast<void>(pool_->trim(keep)); });
    }

    void settle() {
        say("settle");
        std::uint64_t const before = [&] {
            guard const lock(mutex_);
            return frees_;
        }();
        if (!ask("settle", [&] { pool_->settle(); }))
            return;
        guard const lock(mutex_);
        settled_ = std::max(settled_, before);
    }

    void break_a_call(dice& die) {
        static constexpr char const* functions[] = {
            "cudaMalloc",           "cudaMallocManaged",    "cudaHostAlloc",       "cudaFree",
            "cudaFreeHost",         "cudaEventRecord",      "cudaEventQuery",      "cudaEventSynchronize",
            "cudaHostRegister",     "cudaHostUnregister",
            "cudaEventRecord",      "cudaEventQuery",       "cudaStreamWaitEvent", "cudaEventCreateWithFlags",
            "cudaStreamGetId",      "cudaStreamGetDevice",  "cudaStreamIsCapturing", "cudaDeviceSynchronize",
            "cudaStreamWaitEvent",  "cudaThreadExchangeStreamCaptureMode", "cudaStreamGetCaptureInfo",
            "cuMemCreate",          "cuMemMap",             "cuMemSetAccess",      "cuMemUnmap",
            "cudaMemcpyAsync",      "cudaStreamSynchronize", "cudaStreamCreateWithFlags",
            "cudaUserObjectCreate", "cudaGraphRetainUserObject", "cudaMallocFromPoolAsync", "cudaFreeAsync"};
        static constexpr cudaError_t errors[] = {cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorUnknown};
        char const* const function = die.pick(functions);
        cudaError_t const error = die.pick(errors);
        guard const lock(mutex_);
        if (what_.seed % 3 != 0) // two programs of three see no fault
            return;
        ++faults_;
        say("the next %s fails", function);
        device::fail_call(function, 1 + die.below(3), error);
    }

    // With the lock held, and no other thread inside.
    void compare_facts() {
        weir::memory_report const state = pool_->state();
        if ((pool_->divides() && state.in_use_bytes != live_bytes_) || state.live_blocks != live_.size())
            result_.complaints.push_back(
                "the pool counts " + std::to_string(state.in_use_bytes) + " bytes in " +
                std::to_string(state.live_blocks) + " blocks; there are " + std::to_string(live_bytes_) + " in " +
                std::to_string(live_.size()));
        if (state.reserved_bytes > limit_ || state.in_use_bytes > state.reserved_bytes ||
            (state.largest_free_bytes > state.reserved_bytes && state.largest_free_bytes != SIZE_MAX))
            result_.complaints.push_back("the pool holds " + std::to_string(state.reserved_bytes) +
                                         " bytes with " + std::to_string(state.in_use_bytes) + " in use, " +
                                         std::to_string(state.largest_free_bytes) + " free in one piece and a limit of " +
                                         std::to_string(limit_));
    }

    // ---- the end ------------------------------------------------------------------------------------------

    // The byte by whose freeing a pool waits for the device stays where two faults in a row keep it from being freed.
    bool lost_to_faults(device::report const& found) const {
        return faults_ >= 2 && found.kind == device::finding::leak &&
               found.sentence.find(" 1 bytes of cudaMalloc") != std::string::npos;
    }

    void end() {
        say("the end");
        device::clear_faults();
        std::uint64_t const faults = faults_.exchange(0);
        dice die(what_.seed);
        while (std::unique_ptr<recording> const one = some_recording(die))
            put_away(die, *one);
        for (block const& each : blocks_) {
            int const place = each.on != nowhere ? each.on : 0;
            if (each.on == nowhere && each.ready)
                each.ready->before(slots_[place].handle);
            if (each.undeclared)
                order_after_uses(each, slots_[place].handle, true);
            free_at(place, each);
        }
        blocks_.clear();
        compare_facts();
        give_all_back("everything is freed");
        if (limit_ != static_cast<std::size_t>(-1) && !lost_to_a_graph_) {
            block large; // there is room for one of half the limit again
            if (!allocate_at(die, 0, limit_ / 2, 256, large))
                result_.complaints.push_back("no block of half the limit though all is free");
            else
                free_at(0, large);
            give_all_back("the large block is freed");
        }
        if (pool_->violations() != 0)
            result_.complaints.push_back("layer::guard saw wrong frees");
        pool_.reset();
        keep_.reset();
        for (int at = 0; at < streams; ++at)
            surely([&] { return cudaStreamDestroy(slots_[at].handle); });
        faults_ = faults;
    }

    void give_all_back(char const* when) {
        ask("settle", [&] { pool_->settle(); });
        ask("trim", [&] { static_cast<void>(pool_->trim(0)); });
        weir::memory_report const state = pool_->state();
        bool const keeps = state.reserved_bytes != 0 && !lost_to_a_graph_;
        if (keeps || state.in_use_bytes != 0 || state.live_blocks != 0)
            result_.complaints.push_back(std::to_string(state.reserved_bytes) + " bytes are still reserved after " +
                                         when + ", 'settle' and 'trim'");
    }

    options what_;
    dice common_;
    std::size_t limit_ = 0;
    std::optional<weir::pinned_pool> keep_;
    std::unique_ptr<pool_face> pool_;
    stream_slot slots_[streams + 1];
    bool marks_ = false; // its streams live longer, and fewer are captured

    std::mutex mutex_; // what follows; never held over a call that may switch threads, but for notes in the log
    std::vector<block> blocks_;
    std::uint64_t frees_ = 0;   // so far
    std::uint64_t settled_ = 0; // those up to here are over
    std::vector<std::unique_ptr<recording>> recordings_;
    std::size_t captures_ = 0;
    std::map<std::uintptr_t, std::uintptr_t> live_;
    std::set<std::uintptr_t> gone_; // where freed blocks began
    std::size_t live_bytes_ = 0;
    std::size_t numbers_ = 0;
    std::size_t done_ = 0;
    std::size_t budget_ = 0;
    unsigned inside_ = 0;
    unsigned working_ = 0; // of those inside, whose steps may use memory
    unsigned noting_ = 0;
    std::atomic<std::size_t> stage_{0}; // odd from before 'suspend' until after 'resume'
    bool pausing_ = false;
    std::atomic<bool> suspended_{false};
    std::atomic<std::size_t> resumes_{0};
    std::atomic<bool> lost_to_a_graph_{false}; // bytes that the pool keeps for ever
    std::atomic<std::uint64_t> faults_{0}; // calls that were told to fail; read anywhere
    outcome result_;
};

void* chunk_source::try_allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return program_.take_chunk(stream, bytes, alignment);
}
void chunk_source::deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    program_.give_chunk(stream, p, bytes, alignment, capturing);
}
int chunk_source::device() const noexcept {
    return program_.device_of_pool();
}

} // namespace

outcome run(options const& what) { return program(what).run(); }

std::string account(options const& failed, outcome const& with) {
    std::string text = "seed " + std::to_string(failed.seed) + " on " + failed.pool->name + ", " +
                       std::to_string(failed.operations) + " operations; again with WEIR_SIMULATION_FIRST=" +
                       std::to_string(failed.seed) + " WEIR_SIMULATION_SEEDS=1\n";
    for (std::string const& each : with.complaints)
        text += "  " + each + "\n";
    // A program's first operations do not depend on how many follow.
    std::size_t good = 0;
    std::size_t bad = failed.operations;
    options shorter = failed;
    while (bad - good > 1) {
        shorter.operations = good + (bad - good) / 2;
        (run(shorter).complaints.empty() ? good : bad) = shorter.operations;
    }
    shorter.operations = bad;
    shorter.keeps_log = true;
    outcome const seen = run(shorter);
    text += "the first " + std::to_string(bad) + " operations fail already:\n";
    for (std::string const& each : seen.complaints)
        text += "  " + each + "\n";
    std::size_t from = seen.log.size();
    for (int line = 0; line < 120 && from != std::string::npos && from > 1; ++line)
        from = seen.log.rfind('\n', from - 2);
    return text + seen.log.substr(from == std::string::npos || from < 2 ? 0 : from + 1);
}

} // namespace simulation

#endif
