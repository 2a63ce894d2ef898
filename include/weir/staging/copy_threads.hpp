// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do several threads copy one piece of memory?
//
// One thread copies at some 10 GB/s, a fifth of what a link to the device carries. 'copy_threads' is a few threads that wait
// for work. A piece of work is a number of bytes and a function that does any part of them. 'start' puts it into a queue,
// whose threads take it share by share. 'finish' does shares, too, until none is left, and waits for those that others do. A
// caller that starts the next piece before it finishes the last one keeps the threads, and itself, busy.
//
// invariant: each byte is done once. When 'finish' returns, no thread looks at the work any more.
// order:     pieces are begun in the order of their start. What was done before 'start' is seen by whoever does a share, and
//            what all shares did is seen after 'finish'.
// cost:      a lock a share, and a wake-up for threads that sleep: some microseconds. Idle threads cost nothing.
// not for:   small copies, which are over before a thread has woken up.

#include <cstddef>
#include <cstring>
#include <exception>
#include <pthread.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// Bytes to be done by several threads. It stays where it is from 'start' until 'finish' has returned.
struct shared_work {
    /// Does the bytes from `begin` to before `end`. Several threads call it at once, for different bytes, also such that are in
    /// 'finish' for other work: it needs no lock that one of them may hold. What it throws, 'finish' throws.
    void (*run)(void* what, std::size_t begin, std::size_t end) = nullptr;
    void* what = nullptr;  ///< passed on
    std::size_t bytes = 0; ///< in all

    // The queue's own, under its lock.
    std::size_t begun_bytes = 0;
    std::size_t done_bytes = 0;
    shared_work* later = nullptr;
    std::exception_ptr failed;
};

/// Threads that copy for whoever asks them: one object may serve any number of rings and callers, from any thread. It outlives
/// them. Not copyable.
class copy_threads {
public:
    /// What a thread takes at a time, in bytes. More: fewer locks. Less: threads end at the same time.
    static constexpr std::size_t share_bytes = std::size_t{64} << 10;

    /// Starts `count` threads; with those who call there is one more that copies. Throws usage_error if the system does not
    /// start that many, std::bad_alloc.
    explicit copy_threads(unsigned count) {
        threads_.reserve(count);
        while (threads_.size() != count) {
            pthread_t thread;
            if (pthread_create(&thread, nullptr, &copy_threads::serve, this) != 0) {
                text const started = base::number_text(threads_.size());
                end(); // what was started
                throw usage_error("weir: the system started only " + started + " of " + base::number_text(count) +
                                  " copying threads; ask for fewer, or raise its limit ('ulimit -u')");
            }
            threads_.push_back(thread);
        }
    }
    copy_threads(copy_threads const&) = delete;
    copy_threads& operator=(copy_threads const&) = delete;
    /// Waits for the threads to end. Nobody may use the object any more.
    ~copy_threads() { end(); }

    /// How many threads were started.
    std::size_t count() const noexcept { return threads_.size(); }

    /// Copies `bytes` bytes of host memory from `from` to `to`, as memcpy does, by all threads and the calling one. Blocks
    /// until all is copied. Any thread. Throws usage_error for a null address.
    void copy(void* to, void const* from, std::size_t bytes) {
        base::require_not_null(to, bytes);
        base::require_not_null(from, bytes);
        std::pair<void*, void const*> ends(to, from);
        shared_work work;
        work.run = [](void* what, std::size_t begin, std::size_t end) {
            auto const& both = *static_cast<std::pair<void*, void const*>*>(what);
            std::memcpy(static_cast<char*>(both.first) + begin, static_cast<char const*>(both.second) + begin, end - begin);
        };
        work.what = &ends;
        work.bytes = bytes;
        start(work);
        finish(work);
    }

    /// Lets the threads begin with `work`. Does not block. Any thread. Each start is followed by one 'finish'; then the same
    /// work may be started again.
    void start(shared_work& work) noexcept {
        work.begun_bytes = work.done_bytes = 0; // nobody else has it yet
        work.later = nullptr;
        if (work.bytes == 0)
            return;
        lock();
        *last_ = &work;
        last_ = &work.later;
        pthread_cond_broadcast(&started_);
        unlock();
    }

    /// Helps with `work`, and blocks until it is done. While others still do its last shares this thread begins with the next
    /// work in the queue, whoever started that. Throws what the work's function threw first; all of it was tried then.
    void finish(shared_work& work) {
        lock();
        while (work.begun_bytes != work.bytes)
            do_share(work);
        while (work.done_bytes != work.bytes)
            if (first_)
                do_share(*first_);
            else
                pthread_cond_wait(&done_, &mutex_);
        unlock();
        if (work.failed)
            std::rethrow_exception(std::exchange(work.failed, nullptr));
    }

private:
    void lock() noexcept { pthread_mutex_lock(&mutex_); }
    void unlock() noexcept { pthread_mutex_unlock(&mutex_); }

    // Takes a share and does it, without the lock meanwhile, which is held before and afterwards.
    void do_share(shared_work& work) noexcept {
        std::size_t const begin = work.begun_bytes;
        std::size_t const left = work.bytes - begin;
        std::size_t const end = begin + (left < share_bytes ? left : share_bytes);
        work.begun_bytes = end;
        if (end == work.bytes)
            take_off(work);
        unlock();
        std::exception_ptr failed;
        try {
            work.run(work.what, begin, end);
        } catch (...) {
            failed = std::current_exception();
        }
        lock();
        if (failed && !work.failed)
            work.failed = std::move(failed);
        work.done_bytes += end - begin;
        if (work.done_bytes == work.bytes)
            pthread_cond_broadcast(&done_);
    }

    // Takes `work`, all of which has begun, out of the queue.
    void take_off(shared_work& work) noexcept {
        shared_work** at = &first_;
        while (*at != &work)
            at = &(*at)->later;
        *at = work.later;
        if (last_ == &work.later)
            last_ = at;
    }

    static void* serve(void* all) noexcept {
        copy_threads& self = *static_cast<copy_threads*>(all);
        self.lock();
        for (;;) {
            while (!self.first_ && !self.ending_)
                pthread_cond_wait(&self.started_, &self.mutex_);
            if (!self.first_)
                break;
            self.do_share(*self.first_);
        }
        self.unlock();
        return nullptr;
    }

    void end() noexcept {
        lock();
        ending_ = true;
        pthread_cond_broadcast(&started_);
        unlock();
        for (pthread_t const each : threads_)
            pthread_join(each, nullptr);
        pthread_cond_destroy(&started_);
        pthread_cond_destroy(&done_);
        pthread_mutex_destroy(&mutex_);
    }

    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t started_ = PTHREAD_COND_INITIALIZER; // there is work, or the end has come
    pthread_cond_t done_ = PTHREAD_COND_INITIALIZER;    // some work is done
    shared_work* first_ = nullptr;                      // begins the work that still has shares to take
    shared_work** last_ = &first_;                      // where the next one is hung on
    bool ending_ = false;
    base::growing_array<pthread_t> threads_;
};

} // namespace staging
} // namespace v0
} // namespace weir
