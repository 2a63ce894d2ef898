// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Where do the elements of a stream of chunks come from, and where do the results go?
//
// A source is memory, a file or a callable; a sink is memory, a callable, or nothing. What lies in memory has an address, so
// it is copied from there, or to there. A file is read into the pinned memory of a ring; a callable has a buffer of its own.
//
// invariant: elements are asked for, and handed on, in their order, by the thread that called 'stream_chunks'.
// cost:      a callable: a call for each MiB (or slot, if they are smaller), and a copy more in host memory. A file: a pread.
// not for:   files that are mapped: if such a file shrinks the process gets a signal, and no error.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>

namespace weir {
inline namespace v0 {
namespace staging {

/// `count()` of a source that does not know how many elements it has.
inline constexpr std::size_t unknown_count = SIZE_MAX;

/// Elements that lie in host memory, page-locked or not.
template <class T>
class memory_source {
public:
    using value_type = T;
    memory_source(T const* from, std::size_t count) : from_(from), count_(count) { base::require_not_null(from, count); }
    std::size_t count() const noexcept { return count_; }
    T const* data() const noexcept { return from_; }

private:
    T const* from_;
    std::size_t count_;
};
/// `count` elements at `from`, which stay and do not change until 'stream_chunks' returns. Throws usage_error for null.
template <class T>
memory_source<T> from_memory(T const* from, std::size_t count) {
    return {from, count};
}

/// Elements that a callable of yours makes.
template <class T, class Callable>
class callable_source {
public:
    using value_type = T;
    explicit callable_source(Callable callable) : callable_(std::move(callable)) {}
    std::size_t count() const noexcept { return unknown_count; }
    std::size_t fill(T* to, std::size_t most) { return callable_(to, most); }

private:
    Callable callable_;
};
/// `callable(T* to, std::size_t most) -> std::size_t` writes up to `most` elements to `to` and returns how many; 0: there are
/// no more. It may wait, and use the ring. What it throws, 'stream_chunks' throws.
template <class T, class Callable>
callable_source<T, Callable> from_callable(Callable callable) {
    return callable_source<T, Callable>(std::move(callable));
}

/// The elements of a file, whose size is that of its opening. Movable, not copyable.
template <class T>
class file_source {
public:
    using value_type = T;
    /// Throws usage_error if the file cannot be opened, is no regular one, or does not hold a whole number of elements.
    explicit file_source(char const* path) : path_(path), file_(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        struct stat now {};
        if (file_ < 0 || fstat(file_, &now) != 0) {
            close_file();
            throw usage_error("weir: the file '" + path_ + "' cannot be read: " + std::strerror(errno));
        }
        if (!S_ISREG(now.st_mode)) {
            close_file();
            throw usage_error("weir: '" + path_ + "' is no regular file, so nobody knows how much it holds; read it in a "
                              "callable ('from_callable')");
        }
        bytes_ = static_cast<std::size_t>(now.st_size);
        if (bytes_ % sizeof(T) != 0) {
            close_file();
            throw usage_error("weir: the file '" + path_ + "' has " + base::number_text(bytes_) +
                              " bytes, no whole number of elements of " + base::number_text(sizeof(T)) + " bytes");
        }
    }
    file_source(file_source&& other) noexcept
        : path_(other.path_), file_(std::exchange(other.file_, -1)), bytes_(other.bytes_), at_(other.at_) {}
    file_source& operator=(file_source&&) = delete;
    ~file_source() { close_file(); }

    std::size_t count() const noexcept { return bytes_ / sizeof(T); }
    /// Throws usage_error if the file cannot be read, or has become shorter.
    std::size_t fill(T* to, std::size_t most) {
        std::size_t const left = bytes_ - at_;
        std::size_t const bytes = most < left / sizeof(T) ? most * sizeof(T) : left;
        for (std::size_t done = 0; done != bytes;) {
            ssize_t const got = pread(file_, reinterpret_cast<char*>(to) + done, bytes - done, static_cast<off_t>(at_ + done));
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                throw usage_error("weir: the file '" + path_ + "' cannot be read: " + std::strerror(errno));
            if (got == 0)
                throw usage_error("weir: the file '" + path_ + "' ended after " + base::number_text(at_ + done) + " of " +
                                  base::number_text(bytes_) + " bytes: it became shorter while it was read");
            done += static_cast<std::size_t>(got);
        }
        at_ += bytes;
        return bytes / sizeof(T);
    }

private:
    void close_file() noexcept {
        if (file_ >= 0)
            static_cast<void>(close(file_));
    }

    text path_;
    int file_;
    std::size_t bytes_ = 0;
    std::size_t at_ = 0;
};
template <class T>
file_source<T> from_file(char const* path) {
    return file_source<T>(path);
}

/// No results come back: compute keeps what it needs.
struct no_sink {};

/// Results go to host memory.
template <class T>
struct memory_sink {
    T* to;
    std::size_t count;
};
/// Room for `count` elements at `to`, page-locked or not; nobody touches it until 'stream_chunks' returns. Throws usage_error
/// for null.
template <class T>
memory_sink<T> to_memory(T* to, std::size_t count) {
    base::require_not_null(to, count);
    return {to, count};
}

/// Results go to a callable.
template <class Callable>
struct callable_sink {
    Callable callable;
};
/// `callable(T const* from, std::size_t count)` gets the results in order, a chunk at a time. What it throws, 'stream_chunks'
/// throws.
template <class Callable>
callable_sink<Callable> to_callable(Callable callable) {
    return {std::move(callable)};
}

namespace detail {

template <class Source, class = void>
inline constexpr bool lies_in_memory = false;
template <class Source>
inline constexpr bool lies_in_memory<Source, std::void_t<decltype(std::declval<Source const&>().data())>> = true;

template <class Sink>
inline constexpr bool is_no_sink = std::is_same_v<Sink, no_sink>;
template <class Sink>
inline constexpr bool is_memory_sink = false;
template <class T>
inline constexpr bool is_memory_sink<memory_sink<T>> = true;
template <class Sink>
inline constexpr bool is_callable_sink = !is_no_sink<Sink> && !is_memory_sink<Sink>;
template <class Sink, class T>
inline constexpr bool takes = std::is_same_v<Sink, memory_sink<T>>;
template <class Source>
inline constexpr bool is_callable_source = false;
template <class T, class Callable>
inline constexpr bool is_callable_source<callable_source<T, Callable>> = true;

} // namespace detail
} // namespace staging
} // namespace v0
} // namespace weir
