// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How do parts of a program that is not their turn give their memory to others, and get it back at the same addresses?
//
// They join a group, under names: stable vectors and buffers, and pools that can be suspended. 'suspend(name)' takes the memory
// of all that have this name away, and keeps their contents in host memory, or drops them. 'resume(name)' puts memory behind
// the same addresses, and the contents into it. So pointers, kernels' arguments and captured graphs are good again. Names wake
// one by one: what is needed first can wake first.
//
//     weir::pinned_pool keep;
//     weir::stable::sleep_group sleepers(keep);
//     sleepers.join("weights", weights);                                   // a stable_vector
//     sleepers.join("cache", cache);                                       // a device_pool
//     sleepers.suspend("weights", weir::stable::contents::constant);       // copied once; the next time nothing is
//     sleepers.suspend("cache", weir::stable::contents::drop);
//     ...                                                                  // another model has its turn
//     sleepers.resume("weights");
//
// Pages of vectors become free for other vectors of their page_pool; its 'trim' gives them to the device. They stay with the
// pool because the next one to wake mostly is of the same pool, and mapping a page anew is cheaper than making one. But a page
// that its vector gave back in a capture, and took back, waits where it is until that graph is gone. A pool's memory goes to
// the device.
//
// invariant: all members of a name fall asleep together, or none does, and they wake so. Only if undoing fails, too, is it
//            otherwise (see 'resume').
// order:     both calls block. 'suspend' settles first: it waits for all work on every device that the process uses, so no
//            work still writes what is saved. 'resume' returns when the contents are there. Until then nobody may enqueue work
//            that uses the memory, nor launch a graph that does.
// cost:      the copies, at the link's speed if the host's memory is pinned; a page that nobody took meanwhile wakes without a
//            driver call, another one in 35 to 50 us; pools see supply/suspension.hpp.
// not for:   one pool alone: 'pool.suspend(keep)' does.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <weir/base/error.hpp>
#include <weir/base/growing_array.hpp>
#include <weir/base/memory_space.hpp>
#include <weir/base/size.hpp>
#include <weir/base/text.hpp>
#include <weir/fwd.hpp>
#include <weir/resource/pool_ref.hpp>
#include <weir/runtime/wait.hpp>
#include <weir/stable/mapped/mapped_span.hpp>
#include <weir/stable/sleep_group/container_sleeper.hpp>
#include <weir/stable/sleep_group/pool_sleeper.hpp>
#include <weir/stable/sleep_group/sleeper.hpp>
#include <weir/stable/sleeping_contents.hpp>

namespace weir {
inline namespace v0 {
namespace stable {

namespace detail {
template <class Member, class = void>
struct can_suspend : std::false_type {};
template <class Member>
struct can_suspend<Member, std::void_t<decltype(std::declval<Member&>().try_resume())>> : std::true_type {};

template <class Member>
inline constexpr bool is_container = std::is_base_of_v<mapped_span, Member>;
} // namespace detail

/// Names, and who sleeps under them. Not copyable. One thread at a time, and while it calls a member no other thread uses what
/// has joined. A vector or buffer may be moved, which takes its membership along, and may end at any time.
class sleep_group {
public:
    /// `keep`: the pool whose blocks keep contents, of pinned or ordinary host memory. It must outlive the group, and the sleep
    /// of pools that are members, and must be no member itself.
    explicit sleep_group(pool_ref<memory_space::host> keep) noexcept : keep_(keep) {}
    sleep_group(sleep_group const&) = delete;
    sleep_group& operator=(sleep_group const&) = delete;
    /// Drops what it keeps of containers. So wake them before; one that is asleep stays so until it ends.
    ~sleep_group() = default;

    /// `member` sleeps under `name` from now on, with all that have this name. It is a stable vector or buffer, or a pool that
    /// can be suspended. A pool must outlive the group or 'leave'. Throws usage_error if it has joined this group already, or
    /// as a vector or buffer any; std::bad_alloc.
    template <class Member>
    void join(text const& name, Member& member) {
        static_assert(detail::is_container<Member> || detail::can_suspend<Member>::value,
                      "weir: a sleep_group takes stable vectors and buffers, and pools that can be suspended, which are those "
                      "over 'upstream::virtual_memory<>', such as 'device_pool'");
        forget_ended();
        if (find(object(member)) != members_.size())
            throw usage_error("weir: this has joined the sleep_group already, as '" + members_[find(object(member))].name +
                              "'; let it 'leave' first");
        members_.reserve_more(1);
        if constexpr (detail::is_container<Member>)
            members_.push_back(entry(name, new detail::container_sleeper(name, member)));
        else
            members_.push_back(entry(name, new detail::pool_sleeper<Member>(member, keep_)));
    }

    /// `member` is no member any more. Throws usage_error if it was none, and if it sleeps.
    template <class Member>
    void leave(Member& member) {
        std::size_t const at = find(object(member));
        if (at == members_.size())
            throw usage_error("weir: this has not joined the sleep_group, so it cannot leave it");
        if (members_[at].sleeps->asleep())
            throw usage_error("weir: this sleeps as '" + members_[at].name + "'; 'resume' that name before it leaves");
        members_.erase(members_.begin() + at);
    }

    /// Puts the members of that name to sleep that are awake. Blocks until all work is over, on every device that the process
    /// uses, and then until the contents are saved. Returns how many bytes they had. Contents are what lies within a vector's
    /// size, or in blocks of a pool. With 'constant' the user promises that nothing has been written since the last time; if a
    /// vector has another size than then, or a pool other blocks, it is copied anew. Throws usage_error for a name that nobody
    /// has, and if all of them are asleep; what the 'allocate' of `keep` throws; cuda_error; std::bad_alloc: all are awake
    /// then, as before. (If undoing fails, too, pools may sleep, and 'resume' wakes them.)
    std::size_t suspend(text const& name, contents how = contents::save) {
        forget_ended();
        base::growing_array<detail::sleeper*> const wanted = of_name(name, false);
        if (wanted.empty())
            throw usage_error("weir: '" + name + "' is asleep already; call 'resume' first");
        std::size_t bytes = 0;
        for (detail::sleeper const* each : wanted)
            bytes += each->bytes();
        runtime::wait_for_device(any_device);
        std::size_t done = 0;
        try {
            for (; done != wanted.size(); ++done)
                wanted[done]->prepare_sleep(how, keep_);
        } catch (...) {
            while (done != 0)
                wanted[--done]->undo_sleep();
            throw;
        }
        for (detail::sleeper* each : wanted)
            each->sleep();
        return bytes;
    }

    /// Wakes the members of that name that sleep; nothing if none does. Blocks until their contents are there. Throws
    /// out_of_memory if there is no room for all; usage_error for a name that nobody has; cuda_error; std::bad_alloc. All sleep
    /// on then, and the call can be made again. (A pool that had woken is suspended again for that; if that fails, too, it
    /// stays awake.)
    void resume(text const& name) {
        forget_ended();
        base::growing_array<detail::sleeper*> const wanted = of_name(name, true);
        std::size_t begun = 0;
        try {
            for (; begun != wanted.size(); ++begun)
                wanted[begun]->get_memory();
            for (detail::sleeper* each : wanted)
                each->fill();
        } catch (...) {
            while (begun != 0)
                wanted[--begun]->undo_wake();
            throw;
        }
        for (detail::sleeper* each : wanted)
            each->wake();
    }

    /// The same, but false if there is no room.
    [[nodiscard]] bool try_resume(text const& name) {
        try {
            return resume(name), true;
        } catch (out_of_memory const&) {
            return false;
        }
    }

    /// Whether a member of that name sleeps. Throws usage_error for a name that nobody has; std::bad_alloc.
    bool suspended(text const& name) const { return !of_name(name, true).empty(); }

    /// The bytes that 'resume' will get. Throws as above.
    std::size_t suspended_bytes(text const& name) const {
        std::size_t bytes = 0;
        for (detail::sleeper const* each : of_name(name, true))
            bytes += each->bytes();
        return bytes;
    }

private:
    struct entry {
        text name;
        detail::sleeper* sleeps;

        entry(text of, detail::sleeper* owned) noexcept : name(std::move(of)), sleeps(owned) {}
        entry(entry&& other) noexcept : name(std::move(other.name)), sleeps(std::exchange(other.sleeps, nullptr)) {}
        entry& operator=(entry&& other) noexcept {
            name = std::move(other.name);
            delete std::exchange(sleeps, std::exchange(other.sleeps, nullptr));
            return *this;
        }
        ~entry() { delete sleeps; }
    };

    template <class Member>
    static void const* object(Member const& member) noexcept {
        if constexpr (detail::is_container<Member>)
            return static_cast<detail::mapped_span const*>(&member);
        else
            return &member;
    }
    std::size_t find(void const* object) const noexcept {
        std::size_t at = 0;
        while (at != members_.size() && !members_[at].sleeps->is(object))
            ++at;
        return at;
    }
    void forget_ended() noexcept {
        for (std::size_t i = members_.size(); i-- > 0;)
            if (members_[i].sleeps->has_ended())
                members_.erase(members_.begin() + i);
    }

    // The living members of that name which are asleep, or those which are not. Throws usage_error if nobody has the name.
    base::growing_array<detail::sleeper*> of_name(text const& name, bool asleep) const {
        base::growing_array<detail::sleeper*> found;
        bool is_known = false;
        for (entry const& each : members_)
            if (each.name == name && !each.sleeps->has_ended()) {
                is_known = true;
                if (each.sleeps->asleep() == asleep)
                    found.push_back(each.sleeps);
            }
        if (!is_known)
            refuse_name(name);
        return found;
    }
    [[noreturn]] void refuse_name(text const& name) const {
        text all;
        for (std::size_t i = 0; i != members_.size(); ++i) {
            bool is_first = !members_[i].sleeps->has_ended();
            for (std::size_t j = 0; j != i; ++j)
                is_first = is_first && members_[j].name != members_[i].name;
            if (is_first)
                all = all + (all.empty() ? "'" : ", '") + members_[i].name + "'";
        }
        throw usage_error("weir: nobody has joined the sleep_group as '" + name + "'; " +
                          (all.empty() ? text("nobody has joined it at all") : "the names are " + all));
    }

    pool_ref<memory_space::host> keep_;
    base::growing_array<entry> members_;
};

} // namespace stable
} // namespace v0
} // namespace weir
