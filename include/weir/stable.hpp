// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// stable: what holds memory that grows and never moves?
//
// The umbrella of stable/, which <weir/weir.hpp> leaves out. It brings pools of pages, the vectors and buffers that map such
// pages behind their addresses, and groups that put them to sleep.
//
// not for:   blocks that keep their size: pools and containers do without.

#include <weir/fwd.hpp>

#include <weir/stable/append_end.hpp>
#include <weir/stable/append_view.hpp>
#include <weir/stable/page_pool.hpp>
#include <weir/stable/sleep_group.hpp>
#include <weir/stable/sleeping_contents.hpp>
#include <weir/stable/stable_buffer.hpp>
#include <weir/stable/stable_vector.hpp>
