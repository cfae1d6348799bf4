# Every kernel source, compiled twice: by nvcc for the GPU, by the host's compiler for the emulator.
set(saccade_rungs minimal tiled warp_reduce light_barriers cublas products wmma_qk wmma cp_async warp_specialized persistent)
list(TRANSFORM saccade_rungs REPLACE "(.+)" "ladder/\\1.cu")
set(saccade_kernel_sources kernels.cu reference/reference.cu sm80/sm80.cu ${saccade_rungs})
list(TRANSFORM saccade_kernel_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

# A source for every line of a family's table of instances.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/sm80/instances.def)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/sm80/instances.def saccade_lines REGEX "^SACCADE_SM80")
foreach(line ${saccade_lines})
  string(REGEX REPLACE "^SACCADE_SM80\\((.*)\\)$" "\\1" saccade_instance "${line}")
  string(REPLACE ", " "_" name "${saccade_instance}")
  set(source ${PROJECT_BINARY_DIR}/instances/sm80_${name}.cu)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/sm80/instance.cu.in ${source} @ONLY)
  list(APPEND saccade_kernel_sources ${source})
endforeach()
