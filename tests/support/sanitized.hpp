// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Does a sanitizer watch? Sweeps and campaigns are shorter then: they run at full length in the plain builds.

namespace support {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

} // namespace support
