// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// How does whoever gave out views of a container hear that it has ended?
//
// Kernels may hold a view of a vector, and the host cannot ask for it back. But an append_end, which gave it out, can close it,
// if it learns in time that the vector ends. So a container keeps a list of those who gave out views, and tells each of them.
//
// invariant: an owner of views is in the list of its container until one of the two ends, or the container is moved from.
// order:     one thread at a time for a container and its owners of views.
// cost:      a pointer for each container; a walk over the list as an owner ends, which mostly is alone there.
// not for:   spans and addresses that were copied: nobody knows of these.

#include <utility>

namespace weir {
inline namespace v0 {
namespace stable::detail {

class view_owner;

/// A container's list. Not copyable.
class view_list {
public:
    view_list() = default;
    view_list(view_list const&) = delete;
    view_list& operator=(view_list const&) = delete;

    /// The container ends, or gives its memory up: tells all, and forgets them.
    inline void end_all() noexcept;

private:
    friend class view_owner;

    view_owner* first_ = nullptr;
};

/// The base class of what gives out views. A move takes the place in the list along.
class view_owner {
public:
    view_owner(view_owner const&) = delete;
    view_owner& operator=(view_owner const&) = delete;

protected:
    explicit view_owner(view_list& of) noexcept { enter(&of); }
    view_owner(view_owner&& other) noexcept {
        if (view_list* const of = other.leave())
            enter(of);
    }
    ~view_owner() { leave(); }

    /// Whether the container is still there.
    bool has_container() const noexcept { return list_ != nullptr; }

private:
    friend class view_list;

    /// Called once, while the container still has its stream and its pool.
    virtual void container_ends() noexcept = 0;

    void enter(view_list* of) noexcept {
        list_ = of;
        next_ = std::exchange(of->first_, this);
    }
    // Returns the list that it was in.
    view_list* leave() noexcept {
        if (!list_)
            return nullptr;
        view_owner** at = &list_->first_;
        while (*at != this)
            at = &(*at)->next_;
        *at = next_;
        return std::exchange(list_, nullptr);
    }

    view_list* list_ = nullptr;
    view_owner* next_ = nullptr;
};

inline void view_list::end_all() noexcept {
    while (view_owner* const each = first_) {
        each->container_ends();
        each->leave();
    }
}

} // namespace stable::detail
} // namespace v0
} // namespace weir
