// What the shared library shows to its users. C and C++.
#pragma once

/// Marks a function or class as part of the public interface; everything else stays inside the library.
#if defined(__GNUC__)
#define SACCADE_API __attribute__((visibility("default")))
#else
#define SACCADE_API
#endif
