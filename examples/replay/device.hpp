// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does the replay run on?

#include <string>

namespace replay {

struct device_facts {
    std::string name;
    bool is_simulated; ///< times would mean nothing; memory is counted as on a GPU, but driver_pool's
};

/// The current device, ready for use: its context exists, so that no pool pays for that. Throws bad_input
/// where there is no GPU or the driver is too old.
device_facts open_device();

/// What the simulated device found wrong in what it was asked to do, a line each; nothing on a GPU.
std::string complaints();

} // namespace replay
