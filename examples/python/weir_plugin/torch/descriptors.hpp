// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does a file descriptor get to another process?
//
// Whoever has some listens at a socket with a name of its own, and a thread answers: who names a chunk of memory gets a
// descriptor of it. To take a descriptor out of a process (pidfd_getfd) needs a permission that containers do not give; this
// needs none.
//
// invariant: only processes of the same user are answered. No descriptor stays open here.
// cost:      a thread from the first 'name' on; it ends with the process.
// not for:   processes in other network namespaces, such as those of other containers.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/text.hpp>

namespace weir_plugin::torch {

/// A descriptor, which is closed at the end.
class descriptor {
public:
    explicit descriptor(int number = -1) noexcept : number_(number) {}
    descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    descriptor& operator=(descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~descriptor() {
        if (number_ >= 0)
            close(number_);
    }
    int number() const noexcept { return number_; }
    explicit operator bool() const noexcept { return number_ >= 0; }

private:
    int number_;
};

/// What is asked for. Another chunk that comes to the same address has another number.
struct chunk_name {
    std::int32_t device = 0;
    std::int32_t number = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
};

/// The address of an abstract socket, which has no file, and its length.
inline std::pair<sockaddr_un, socklen_t> socket_address(std::string const& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

/// Sends a byte, with a descriptor if there is one.
inline void send_descriptor(int to, descriptor const& given) noexcept {
    char byte = given ? 1 : 0;
    iovec content{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    if (given) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        cmsghdr* const head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        int const number = given.number();
        std::memcpy(CMSG_DATA(head), &number, sizeof number);
    }
    static_cast<void>(sendmsg(to, &message, MSG_NOSIGNAL));
}

/// What 'send_descriptor' sent; none: it had none, or is gone.
inline descriptor received_descriptor(int from) noexcept {
    char byte = 0;
    iovec content{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &content;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1)
        return descriptor();
    cmsghdr const* const head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_type != SCM_RIGHTS)
        return descriptor();
    int number = -1;
    std::memcpy(&number, CMSG_DATA(head), sizeof number);
    return descriptor(number);
}

inline void give_up_after(int socket, int seconds) noexcept {
    timeval const limit{seconds, 0};
    static_cast<void>(setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    static_cast<void>(setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
}

inline bool is_of_this_user(int socket) noexcept {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/// Answers for this process. `find` gives a descriptor of a chunk, or none; it may be called by the thread at any time.
class descriptor_server {
public:
    using finder = std::function<descriptor(chunk_name const&)>;

    /// Throws weir::usage_error if the system gives no socket or no thread.
    explicit descriptor_server(finder find) : find_(std::move(find)), socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        std::random_device random;
        name_ = "weir-" + std::to_string(getpid()) + "-" + std::to_string(random()) + std::to_string(random());
        auto const [address, size] = socket_address(name_);
        if (!socket_ || bind(socket_.number(), reinterpret_cast<sockaddr const*>(&address), size) != 0 ||
            listen(socket_.number(), 64) != 0)
            throw weir::usage_error(weir::text("weir: a tensor cannot be sent to another process, since the system gives no "
                                               "socket (") +
                                    std::strerror(errno) + "); send a copy on the host ('.cpu()')");
        std::thread([this] { answer(); }).detach();
    }
    std::string const& name() const noexcept { return name_; }

private:
    void answer() noexcept {
        for (;;) {
            descriptor const asker(accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!asker) {
                if (errno != EINTR && errno != ECONNABORTED)
                    usleep(1000); // no descriptors are left for now
                continue;
            }
            give_up_after(asker.number(), 10);
            chunk_name wanted;
            while (is_of_this_user(asker.number()) &&
                   recv(asker.number(), &wanted, sizeof wanted, MSG_WAITALL) == static_cast<ssize_t>(sizeof wanted)) {
                descriptor found;
                try {
                    found = find_(wanted);
                } catch (...) { // the asker says so
                }
                send_descriptor(asker.number(), found);
            }
        }
    }

    finder find_;
    descriptor socket_;
    std::string name_;
};

/// Asks the process that listens at `name`.
class descriptor_client {
public:
    /// Throws weir::usage_error if it does not answer.
    explicit descriptor_client(std::string const& name) : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        auto const [address, size] = socket_address(name);
        if (!socket_ || connect(socket_.number(), reinterpret_cast<sockaddr const*>(&address), size) != 0)
            fail(std::strerror(errno));
        give_up_after(socket_.number(), 60);
    }
    descriptor get(chunk_name const& wanted) const {
        descriptor found;
        if (send(socket_.number(), &wanted, sizeof wanted, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof wanted))
            found = received_descriptor(socket_.number());
        if (!found)
            fail("it does not have the memory, or one of the two has no descriptors left: 'ulimit -n'");
        return found;
    }

private:
    [[noreturn]] static void fail(char const* why) {
        throw weir::usage_error(weir::text("weir: a tensor of another process cannot be had from its sender (") + why +
                                "); the sender has to live, and to keep the tensor, until it has arrived");
    }

    descriptor socket_;
};

} // namespace weir_plugin::torch
