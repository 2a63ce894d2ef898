// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every reuse rule of weir's does what every rule promises, over a simple placement and over the recipes'. A new one adds a
// line to the list.

#include "reuse_subject.hpp"
#include <type_traits>
#include <weir/placement/best_fit.hpp>
#include <weir/placement/bins.hpp>
#include <weir/placement/by_size.hpp>
#include <weir/reuse/after_event.hpp>
#include <weir/reuse/immediate.hpp>
#include <weir/reuse/recorded_rule.hpp>
#include <weir/reuse/stream_ordered.hpp>

namespace reuse_contract {

using weir::handover::grow_first;
using weir::handover::wait_first;
using weir::identity::checked;
using weir::identity::promised;
using weir::reuse::after_event;
using weir::reuse::immediate;
using weir::reuse::recorded;
using weir::reuse::stream_ordered;

using fitted = weir::placement::best_fit<>;
using sized = weir::placement::by_size<64 * KiB, weir::placement::bins<>, weir::placement::best_fit<>>;

template <class... Bounds>
constexpr bool none_is_copied = (!std::is_copy_constructible_v<typename Bounds::over> && ...);

} // namespace reuse_contract

#define WEIR_TEST_RULES                                                                                                \
    bound<immediate, fitted>,                                                                                          \
    bound<immediate, sized>,                                                                                           \
    bound<after_event, fitted>,                                                                                        \
    bound<after_event, sized>,                                                                                         \
    bound<stream_ordered<checked, grow_first>, fitted>,                                                                \
    bound<stream_ordered<checked, grow_first>, sized>,                                                                 \
    bound<stream_ordered<checked, wait_first>, fitted>,                                                                \
    bound<stream_ordered<checked, wait_first>, sized>,                                                                 \
    bound<stream_ordered<promised, grow_first>, fitted>,                                                               \
    bound<stream_ordered<promised, grow_first>, sized>,                                                                \
    bound<stream_ordered<promised, wait_first>, fitted>,                                                               \
    bound<stream_ordered<promised, wait_first>, sized>,                                                                \
    bound<recorded<after_event>, fitted>,                                                                              \
    bound<recorded<stream_ordered<>>, sized>

#include "reuse_suite.hpp"

static_assert(none_is_copied<WEIR_TEST_RULES>);
