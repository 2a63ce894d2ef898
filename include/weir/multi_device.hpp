// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// multi_device: how does a program use the memory of several devices?
//
// The umbrella of multi_device/, which <weir/weir.hpp> leaves out. It works with one device as well.
//
// not for:   a program that uses one device and never another: pools and containers do without.

#include <weir/multi_device/chunk_registration.hpp>
#include <weir/multi_device/collective_pool.hpp>
#include <weir/multi_device/device_streams.hpp>
#include <weir/multi_device/per_device.hpp>
#include <weir/multi_device/rank_channel.hpp>
#include <weir/multi_device/replicated.hpp>
#include <weir/multi_device/route.hpp>
#include <weir/multi_device/sharded_vector.hpp>
#include <weir/multi_device/socket_channel.hpp>
