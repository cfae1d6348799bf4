// Which instruction sets the SIMD kernels are compiled for: AVX-512, AVX2, and the baseline (scalar on x86);
// NEON on ARM. Left out: the scalable ones (SVE, RVV), which cannot hold vectors in arrays; SSE, whose
// software conversions of f16 lose NaN and round down; and the steps in between, which gain nothing over
// their neighbours.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
