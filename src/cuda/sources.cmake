# Every kernel source, compiled twice: by nvcc for the GPU, by the host's compiler for the emulator.
set(saccade_kernel_sources kernels.cu reference/reference.cu)
list(TRANSFORM saccade_kernel_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
