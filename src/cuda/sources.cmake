# Every kernel source, compiled twice: by nvcc for the GPU, by the host's compiler for the emulator.
set(saccade_rungs minimal tiled warp_reduce light_barriers cublas products wmma_qk wmma cp_async warp_specialized persistent)
list(TRANSFORM saccade_rungs REPLACE "(.+)" "ladder/\\1.cu")
set(saccade_kernel_sources kernels.cu reference/reference.cu sm80/sm80.cu ${saccade_rungs})
list(TRANSFORM saccade_kernel_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

# The lines of a family's table of instances, three to a source: the headers of each cost as much as an instance.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/sm80/instances.def)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/sm80/instances.def saccade_lines REGEX "^SACCADE_SM80")
list(LENGTH saccade_lines lines)
foreach(first RANGE 0 ${lines} 3)
  list(SUBLIST saccade_lines ${first} 3 saccade_instances)
  if(saccade_instances)
    list(JOIN saccade_instances "\n" saccade_instances)
    set(source ${PROJECT_BINARY_DIR}/instances/sm80_${first}.cu)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/sm80/instances.cu.in ${source} @ONLY)
    list(APPEND saccade_kernel_sources ${source})
  endif()
endforeach()
