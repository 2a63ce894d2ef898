// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// What does a test include to run on the simulated device?
//
// This header, and it links weir::simulated_device where a program for a GPU links weir::weir. That is a CUDA runtime which
// runs on the host, for tests: streams are queues, a seeded scheduler picks what runs, and a mistake is reported as a
// sentence at the call that made it. What is reported and not cleared is printed when the program ends, with a count, and
// the program then ends with an error.
//
//     weir/simulated_device/control.hpp  worlds and reports, schedules, work, failing calls
//     weir/simulated_device/kernels.hpp  a host function that stands in for a kernel: on_launch
//     weir/simulated_device/watched.hpp  a layer that tells the device which blocks a pool hands out: watched<Pool>
//
// invariant: a program that links it holds no other CUDA runtime.
// cost:      a call takes well under a microsecond; memory is committed when it is written.
// not for:   times, and what a kernel does beside its stand-in.

#include <weir/simulated_device/control.hpp>
#include <weir/simulated_device/kernels.hpp>
#include <weir/simulated_device/watched.hpp>
