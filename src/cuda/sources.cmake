# Every kernel source, compiled twice: by nvcc for the GPU, by the host's compiler for the emulator.
set(saccade_rungs minimal tiled warp_reduce light_barriers cublas products wmma_qk wmma cp_async warp_specialized persistent)
list(TRANSFORM saccade_rungs REPLACE "(.+)" "ladder/\\1.cu")
set(saccade_kernel_sources kernels.cu reference/reference.cu ${saccade_rungs})
list(TRANSFORM saccade_kernel_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
