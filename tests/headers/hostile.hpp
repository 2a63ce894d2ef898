// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Macros that headers of the world leave behind: <complex.h> (I), <termios.h> (B0), <rpcndr.h> (small, interface),
// <windows.h> (min, max, near, far, ERROR), <sys/sysmacros.h> (major, minor). A header of weir that uses one of
// these names does not survive them.
//
// The C++ library itself does not survive 'min' and 'max' everywhere; they are defined where WEIR_HOSTILE_TO_ALL
// says that its headers have been read already.

#define I (__extension__ 1.0iF)
#define B0 0000000
#define small char
#define near
#define far
#define interface struct
#define ERROR 0
#ifdef WEIR_HOSTILE_TO_ALL
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define major(device) gnu_dev_major(device)
#define minor(device) gnu_dev_minor(device)
#endif
