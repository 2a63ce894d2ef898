// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Does the plug-in keep its promises whatever a program of PyTorch's does?
//
// usage: torch_campaign SEEDS STEPS [FIRST]. Each seed is a process of its own, since a plug-in's pools never end.
//
// A random program does all that is allowed: tensors on two devices and on streams of every kind, used on other streams and
// recorded there before or after the launch, captures of which several share an id or are under way at a time, graphs that are
// launched while their tensors are freed, empty_cache, fractions, trims and suspensions. The simulated device reports what is
// handed out too early; each tensor has a mark at both ends, which each of its uses looks at.

#include "plugin_functions.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>
#include <weir/base/size.hpp>
#include <weir/simulated_device/control.hpp>

using weir::KiB;
using weir::MiB;

namespace {

constexpr int devices = 2;
constexpr std::size_t device_bytes = 192 * MiB;

std::string doing; // the step, for what is said of a failure

[[noreturn]] void fail(std::string const& what) {
    std::fprintf(stderr, "%s: %s\n", doing.c_str(), what.c_str());
    std::fflush(stderr);
    _exit(1);
}
void require(bool holds, char const* what) {
    if (!holds)
        fail(what);
}
// The text is asked for after the call that sets it: a compiler may evaluate a call's arguments in any order.
void done(int failed) {
    if (failed)
        fail(weir_error());
}
void check(cudaError_t error, int line = __builtin_LINE()) {
    if (error != cudaSuccess)
        fail(std::string(cudaGetErrorName(error)) + " at line " + std::to_string(line));
}
void no_reports() {
    for (simulated_device::report const& found : simulated_device::reports())
        fail(found.sentence);
}

struct stream {
    int device;
    cudaStream_t handle;
    bool own; // not a default one
};

struct tensor {
    char* p;
    std::size_t bytes;
    stream const* home; // whose memory it is
    std::uint64_t mark;
    stream const* last; // its latest use; null: a graph writes it that was not launched yet
    bool captured;      // written by a graph
    bool for_any;       // allocated as PyTorch's MemPool does
};

struct graph {
    pool_id id;
    int device;
    std::uint64_t number;           // of its capture
    unsigned long long capture = 0; // CUDA's number for it
    std::vector<stream const*> streams;
    cudaGraphExec_t run = nullptr;
    bool over = false;
    std::vector<stream const*> before; // what a launch has to wait for
};

class program {
public:
    explicit program(unsigned seed) : random_(seed) {
        for (int device = 0; device < devices; ++device) {
            make_current(device);
            for (cudaStream_t each : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread})
                streams_.push_back({device, each, false});
            for (int i = 0; i < 5; ++i) {
                cudaStream_t fresh = nullptr;
                check(cudaStreamCreateWithFlags(&fresh, i == 0 ? cudaStreamDefault : cudaStreamNonBlocking));
                streams_.push_back({device, fresh, i != 0});
            }
        }
    }

    void step() {
        if (suspended_)
            return while_suspended();
        constexpr std::pair<std::size_t, void (program::*)()> acts[] = {
            {16, &program::allocate}, {18, &program::use},    {14, &program::free_any}, {4, &program::allocate_for_any},
            {5, &program::begin},     {32, &program::inside}, {4, &program::end},       {10, &program::launch},
            {2, &program::drop},      {1, &program::wait},    {1, &program::suspend},   {4, &program::housekeeping},
        };
        std::size_t left = below(111); // the sum
        for (auto const& [weight, act] : acts) {
            if (left < weight)
                return (this->*act)();
            left -= weight;
        }
    }

    void finish() {
        if (suspended_)
            resume();
        while (!captures_.empty())
            end();
        while (!tensors_.empty())
            release(tensors_.begin());
        while (!graphs_.empty())
            drop();
        weir_empty_cache();
        for (int device = 0; device < devices; ++device) {
            if (std::any_of(broken_.begin(), broken_.end(), [&](graph const& each) { return each.device == device; }))
                continue; // its pool stays
            require(state(device).in_use == 0, "something is in use at the end");
            require(state(device).reserved == 0, "something is held at the end");
            require(state(device).requested == 0, "something counts as requested at the end");
        }
        wait();
    }

    // What holds between any two calls.
    void look() {
        int now = -1;
        check(cudaGetDevice(&now));
        require(now == current_, "the current device is another one");
        for (int device = 0; device < devices; ++device) {
            figures const found = state(device);
            require(found.reserved <= found.limit || found.limit == 0, "more is held than the limit");
            require(found.peak_reserved >= found.reserved || suspended_, "the peak is below what is held");
            require(found.lost == 0, "bytes are lost");
            std::uint64_t live = 0;
            for (tensor const& each : tensors_)
                live += each.home->device == device ? each.bytes : 0;
            require(found.peak_requested >= found.requested, "the peak is below what is requested");
            require(found.in_use >= live, "less is in use than tensors have");
        }
        no_reports();
    }

private:
    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
    void make_current(int device) {
        check(cudaSetDevice(device));
        current_ = device;
    }
    static figures state(int device) {
        figures now{};
        require(weir_state(device, &now.requested) == 0, "state failed");
        return now;
    }

    graph* capture_of(stream const& which) {
        for (graph* each : captures_)
            if (std::find(each->streams.begin(), each->streams.end(), &which) != each->streams.end())
                return each;
        return nullptr;
    }
    stream const* any_stream() {
        for (;;)
            if (stream const* const found = &streams_[below(streams_.size())]; !capture_of(*found))
                return found;
    }

    void order(stream const& later, stream const& earlier) {
        if (&later == &earlier)
            return;
        cudaEvent_t event = nullptr;
        make_current(earlier.device);
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        check(cudaEventRecord(event, earlier.handle));
        make_current(later.device);
        check(cudaStreamWaitEvent(later.handle, event, 0));
        check(cudaEventDestroy(event));
    }

    static std::uint64_t* end_of(void* p, std::size_t bytes) {
        return static_cast<std::uint64_t*>(simulated_device::backing(p)) + bytes / 8 - 1;
    }
    void write(tensor const& what, stream const& where) {
        make_current(where.device);
        check(simulated_device::launch(where.handle, std::vector<simulated_device::bytes>{},
                                       std::vector<simulated_device::bytes>{{what.p, what.bytes}}, [=] {
                                           *static_cast<std::uint64_t*>(simulated_device::backing(what.p)) = what.mark;
                                           *end_of(what.p, what.bytes) = what.mark;
                                       }));
    }
    void read(tensor const& what, stream const& where) {
        make_current(where.device);
        check(simulated_device::launch(where.handle, std::vector<simulated_device::bytes>{{what.p, what.bytes}},
                                       std::vector<simulated_device::bytes>{}, [=] {
                                           require(*static_cast<std::uint64_t*>(simulated_device::backing(what.p)) ==
                                                           what.mark &&
                                                       *end_of(what.p, what.bytes) == what.mark,
                                                   "a tensor lost its contents");
                                       }));
    }

    std::size_t any_size() {
        constexpr std::size_t sizes[] = {16, 512, 4 * KiB, 100 * KiB, MiB, 3 * MiB, 10 * MiB};
        return sizes[below(7)] / 8 * 8 * (1 + below(2));
    }

    tensor* keep(void* p, std::size_t bytes, stream const& home, bool captured, bool for_any) {
        tensors_.push_back({static_cast<char*>(p), bytes, &home, ++marks_, &home, captured, for_any});
        write(tensors_.back(), home);
        return &tensors_.back();
    }
    tensor* allocate_on(stream const& home, bool captured) {
        std::size_t const bytes = any_size();
        make_current(home.device);
        try {
            return keep(weir_allocate(bytes, home.device, home.handle), bytes, home, captured, false);
        } catch (std::exception const& error) {
            require(std::strstr(error.what(), "out of memory") != nullptr, error.what());
            return nullptr;
        }
    }
    void allocate() { static_cast<void>(allocate_on(*any_stream(), false)); }
    void allocate_for_any() {
        std::size_t const bytes = any_size();
        stream const& home = *any_stream();
        make_current(home.device);
        if (void* const p = weir_try_allocate_sync(bytes, home.device, nullptr))
            static_cast<void>(keep(p, bytes, home, false, true));
        else
            require(std::strstr(weir_error(), "out of memory") != nullptr, weir_error());
    }

    std::list<tensor>::iterator any_tensor() {
        return std::next(tensors_.begin(), static_cast<std::ptrdiff_t>(below(tensors_.size())));
    }
    // A tensor that a graph writes belongs to the graph's launches: whoever reads it has to come after them.
    void use() {
        if (tensors_.empty())
            return;
        auto const what = any_tensor();
        stream const& where = *any_stream();
        if (!what->last || capture_of(*what->last) || (where.device != what->home->device && !where.own))
            return; // a default stream's name says nothing of its device
        if (where.device != what->home->device && state(where.device).total == 0)
            return; // what another device's kernel makes of it is a tensor there
        bool const before = below(2) == 0;
        order(where, *what->last);
        if (before)
            record(*what, where);
        if (what->captured || below(3) != 0) {
            read(*what, where);
        } else {
            what->mark = ++marks_;
            write(*what, where);
        }
        if (!before)
            record(*what, where);
        what->last = &where;
        for (graph& each : graphs_)
            if (what->captured && each.id == what_id(*what) && each.over)
                each.before.push_back(&where);
    }
    void record(tensor const& what, stream const& where) {
        if (&where == what.home && below(2) == 0)
            return;
        make_current(what.home->device);
        weir_record_stream(what.p, where.handle);
    }

    void release(std::list<tensor>::iterator what) {
        make_current(static_cast<int>(below(devices)));
        weir_deallocate(what->p, what->bytes, what->home->device, what->home->handle);
        writers_.erase(what->p);
        tensors_.erase(what);
    }
    void free_any() {
        if (!tensors_.empty() && (tensors_.size() > 12 || below(2) == 0))
            release(any_tensor());
    }

    // ---- graphs --------------------------------------------------------------------------------------------------------
    void begin() {
        if (captures_.size() == 2 || graphs_.size() > 10)
            return;
        int const device = static_cast<int>(below(devices));
        pool_id id{0, 1 + below(3) + 10 * static_cast<unsigned long long>(device)};
        for (graph const& each : broken_)
            if (each.id == id)
                return;
        for (graph* each : captures_)
            if (each->id == id)
                return;
        stream const* origin = any_stream();
        if (!origin->own || origin->device != device)
            return;
        if (below(2) == 0) { // torch.cuda.graph does so
            if (captures_.empty())
                wait();
            weir_empty_cache();
        }
        graphs_.push_back({id, device, ++marks_, 0, {}, nullptr, false, {}});
        graph* const own = &graphs_.back();
        make_current(device);
        weir_begin_capture(device, id, [own](cudaStream_t asked) {
            unsigned long long const found = number_of(asked);
            return found != 0 && found == own->capture;
        });
        cudaStreamCaptureMode const modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                               cudaStreamCaptureModeRelaxed};
        check(cudaStreamBeginCapture(origin->handle, modes[below(3)]));
        own->capture = number_of(origin->handle);
        own->streams.push_back(origin);
        captures_.push_back(own);
    }
    static unsigned long long number_of(cudaStream_t asked) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long found = 0;
        check(cudaStreamGetCaptureInfo(asked, &status, &found));
        return status == cudaStreamCaptureStatusActive ? found : 0;
    }

    // Something in a capture that is under way.
    void inside() {
        if (captures_.empty())
            return;
        graph& own = *captures_[below(captures_.size())];
        stream const& where = *own.streams[below(own.streams.size())];
        switch (below(5)) {
        case 0: { // a side stream joins
            stream const* const side = any_stream();
            if (own.streams.size() < 3 && side->own && side->device == own.device) {
                order(*side, where);
                own.streams.push_back(side);
            }
            return;
        }
        case 1:
        case 2:
            if (tensor* const fresh = allocate_on(where, true))
                writers_[fresh->p] = &own;
            return;
        case 3: { // its own tensor, on one of its streams
            std::vector<tensor*> mine;
            for (tensor& each : tensors_)
                if (writers_.count(each.p) != 0 && writers_[each.p] == &own)
                    mine.push_back(&each);
            if (mine.empty())
                return;
            tensor& what = *mine[below(mine.size())];
            order(where, *what.last);
            read(what, where);
            record(what, where);
            what.last = &where;
            return;
        }
        default: { // an ordinary tensor, which then has no other contents any more
            auto const what = tensors_.empty() ? tensors_.end() : any_tensor();
            if (what == tensors_.end() || what->captured || what->for_any || what->home->device != own.device)
                return;
            read(*what, where);
            make_current(own.device);
            weir_record_stream(what->p, where.handle);
            own.before.push_back(what->last);
            what->captured = true; // nobody writes it again
            if (below(2) == 0)
                release(what);
            return;
        }
        }
    }
    void end() {
        if (captures_.empty())
            return;
        std::size_t const at = below(captures_.size());
        graph& own = *captures_[at];
        if (below(10) == 0)
            return break_off(own, at);
        for (std::size_t i = 1; i < own.streams.size(); ++i)
            order(*own.streams[0], *own.streams[i]);
        cudaGraph_t made = nullptr;
        make_current(own.device);
        check(cudaStreamEndCapture(own.streams[0]->handle, &made));
        weir_end_capture(own.device, own.id);
        check(cudaGraphInstantiate(&own.run, made, 0));
        check(cudaGraphDestroy(made));
        for (tensor& each : tensors_)
            if (writers_.count(each.p) != 0 && writers_[each.p] == &own)
                each.last = nullptr; // not launched
        own.over = true;
        captures_.erase(captures_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    // A capture that a wait breaks. PyTorch then says neither that it ended nor that its graph is gone.
    void break_off(graph& own, std::size_t at) {
        cudaGraph_t none = nullptr;
        make_current(own.device);
        require(cudaStreamSynchronize(own.streams[0]->handle) != cudaSuccess, "a captured stream was waited for");
        for (bool const before : {true, false}) {
            for (auto what = tensors_.begin(); what != tensors_.end();) {
                auto const each = what++;
                if (auto const writer = writers_.find(each->p); writer != writers_.end() && writer->second == &own)
                    if (!before || below(2) == 0)
                        release(each);
            }
            make_current(own.device);
            if (before)
                require(cudaStreamEndCapture(own.streams[0]->handle, &none) != cudaSuccess, "a broken capture made a graph");
        }
        static_cast<void>(cudaGetLastError());
        captures_.erase(captures_.begin() + static_cast<std::ptrdiff_t>(at));
        broken_.splice(broken_.end(), graphs_,
                       std::find_if(graphs_.begin(), graphs_.end(), [&](graph& each) { return &each == &own; }));
    }
    pool_id what_id(tensor const& what) {
        auto const found = writers_.find(what.p);
        return found == writers_.end() ? pool_id{0, 0} : found->second->id;
    }

    // The graphs of one id, or some of them, in the order of their captures and one after the other.
    void launch() {
        if (graphs_.empty())
            return;
        pool_id const id = std::next(graphs_.begin(), static_cast<std::ptrdiff_t>(below(graphs_.size())))->id;
        for (graph& each : graphs_) {
            stream const* const where = any_stream();
            if (each.id != id || !each.over || where->device != each.device)
                continue;
            std::vector<stream const*> before = each.before;
            if (launched_on_.count(id) != 0)
                before.push_back(launched_on_[id]);
            if (std::any_of(before.begin(), before.end(), [&](stream const* former) { return capture_of(*former) != nullptr; }))
                return;
            for (stream const* former : before)
                order(*where, *former);
            make_current(each.device);
            check(cudaGraphLaunch(each.run, where->handle));
            launched_on_[id] = where;
            for (tensor& own : tensors_) {
                auto const writer = writers_.find(own.p);
                if (writer == writers_.end() || writer->second->id != id || !writer->second->over)
                    continue;
                if (writer->second == &each)
                    own.last = where;
                else if (writer->second->number > each.number)
                    own.last = nullptr; // an earlier graph writes where a later one's tensor lies
            }
        }
    }
    void drop() {
        if (graphs_.empty())
            return;
        auto const gone = std::next(graphs_.begin(), static_cast<std::ptrdiff_t>(below(graphs_.size())));
        if (!gone->over)
            return;
        // Its tensors outlive it, unless an earlier graph is left that may write there as well.
        bool const others = std::any_of(graphs_.begin(), graphs_.end(),
                                        [&](graph const& each) { return &each != &*gone && each.id == gone->id; });
        for (auto what = tensors_.begin(); what != tensors_.end();) {
            auto const each = what++;
            if (auto const writer = writers_.find(each->p); writer != writers_.end() && writer->second == &*gone)
                others ? release(each) : static_cast<void>(writers_.erase(writer));
        }
        make_current(static_cast<int>(below(devices)));
        weir_release_capture(gone->device, gone->id);
        check(cudaGraphExecDestroy(gone->run));
        graphs_.erase(gone);
    }

    // ---- the rest ------------------------------------------------------------------------------------------------------
    void wait() {
        if (!captures_.empty())
            return;
        for (int device = 0; device < devices; ++device) {
            make_current(device);
            check(cudaDeviceSynchronize());
        }
    }
    void housekeeping() {
        make_current(static_cast<int>(below(devices)));
        int const device = static_cast<int>(below(devices));
        unsigned long long given = 0;
        switch (below(4)) {
        case 0:
            return weir_empty_cache();
        case 1:
            return done(weir_trim(device, below(64) * MiB, &given));
        case 2:
            return done(weir_reset_peak(device));
        default:
            try {
                weir_set_memory_fraction(static_cast<double>(30 + below(71)) / 100, device);
            } catch (std::exception const& error) {
                require(std::strstr(error.what(), "is below what is in use") != nullptr, error.what());
            }
        }
    }
    void suspend() {
        if (!captures_.empty())
            return;
        unsigned long long given = 0;
        done(weir_suspend(-1, 1, &given));
        suspended_ = true;
    }
    void while_suspended() {
        switch (below(4)) {
        case 0:
            return free_any();
        case 1:
            return drop();
        case 2: // a trim may cut the chunks that a graph was captured on, which the simulated device takes for others
            return graphs_.empty() ? housekeeping() : resume();
        default:
            return resume();
        }
    }
    void resume() {
        done(weir_resume(-1));
        suspended_ = false;
    }

    std::mt19937 random_;
    std::vector<stream> streams_;
    std::list<tensor> tensors_;
    std::list<graph> graphs_;
    std::list<graph> broken_; // their filters may still be asked
    std::vector<graph*> captures_;
    std::map<void*, graph*> writers_; // which graph writes a live tensor
    std::map<pool_id, stream const*> launched_on_;
    std::uint64_t marks_ = 0;
    int current_ = 0;
    bool suspended_ = false;
};

void run(unsigned seed, std::size_t steps) {
    simulated_device::reset(simulated_device::config{}.random(seed).with_devices(devices).with_memory(device_bytes));
    if (seed % 3 == 0)
        done(weir_configure(96 * MiB, "campaign"));
    program random(seed);
    for (std::size_t i = 0; i < steps; ++i) {
        doing = "seed " + std::to_string(seed) + ", step " + std::to_string(i);
        random.step();
        random.look();
    }
    doing = "seed " + std::to_string(seed) + ", the end";
    random.finish();
    no_reports();
}

} // namespace

int main(int count, char** words) {
    unsigned const seeds = count > 1 ? static_cast<unsigned>(std::atoi(words[1])) : 4;
    std::size_t const steps = count > 2 ? static_cast<std::size_t>(std::atoi(words[2])) : 400;
    unsigned const first = count > 3 ? static_cast<unsigned>(std::atoi(words[3])) : 1;
    int failed = 0;
    for (unsigned seed = first; seed < first + seeds; ++seed) {
        pid_t const child = fork();
        if (child == 0) {
            try {
                run(seed, steps);
            } catch (std::exception const& error) {
                fail(error.what());
            }
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        failed += status != 0;
        if (status != 0 && !WIFEXITED(status))
            std::fprintf(stderr, "seed %u ended with signal %d\n", seed, WTERMSIG(status));
    }
    std::printf("%u seeds, %d failed\n", seeds, failed);
    return failed != 0;
}
