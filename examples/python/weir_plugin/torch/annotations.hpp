// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Which parts of the program ran, by PyTorch's record_function, while history was on?

#include "history.hpp"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace weir_plugin::torch {

/// Of all devices. Any thread.
class annotation_list {
public:
    void add(int device, std::vector<std::pair<std::string, std::string>> const& words) {
        caching::AnnotationEntry fresh(static_cast<c10::DeviceIndex>(device), c10::getApproximateTime());
        for (auto const& [name, value] : words)
            fresh.recordUserMetadata(name, value);
        std::lock_guard<std::mutex> const lock(mutex_);
        all_.add(std::move(fresh));
    }
    void limit(std::size_t most) {
        std::lock_guard<std::mutex> const lock(mutex_);
        all_.limit(most);
    }
    void clear() {
        std::lock_guard<std::mutex> const lock(mutex_);
        all_.clear();
    }
    template <class Convert>
    std::vector<caching::AnnotationEntry> list(Convert const& microseconds) const {
        std::unique_lock<std::mutex> lock(mutex_);
        std::vector<caching::AnnotationEntry> found = all_.list();
        lock.unlock();
        for (caching::AnnotationEntry& each : found)
            each.time_.t_ = microseconds(each.time_.approx_t_);
        return found;
    }

private:
    mutable std::mutex mutex_;
    ring<caching::AnnotationEntry> all_;
};
inline annotation_list& annotations() {
    static auto* const made = new annotation_list();
    return *made;
}

} // namespace weir_plugin::torch
