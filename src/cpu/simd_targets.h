// Which instruction sets the SIMD kernels are compiled for: AVX-512, AVX2, and the baseline; NEON on ARM. The
// scalable ones (SVE, RVV) cannot hold vectors in arrays, and the steps in between gain nothing over their
// neighbours.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
