// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// trace: what records a program's memory, and what reads such a recording?
//
// The umbrella of trace/, which <weir/weir.hpp> leaves out, with the layer that writes down what passes it.
//
// not for:   converting recordings to other tools' formats: examples/replay does that.

#include <weir/fwd.hpp>

#include <weir/layer/record.hpp>
#include <weir/layer/watch.hpp>
#include <weir/recipes/recorded_device_pool.hpp>
#include <weir/trace/named_scope.hpp>
#include <weir/trace/recorder.hpp>
#include <weir/trace/recording.hpp>
#include <weir/trace/recording_file.hpp>
#include <weir/trace/watch_board.hpp>
#include <weir/upstream/recorded.hpp>
