# The Python package around a libsaccade.so that is there already: only the torch operators are compiled.
if(NOT EXISTS ${SACCADE_PREBUILT})
  message(FATAL_ERROR "SACCADE_PREBUILT is ${SACCADE_PREBUILT}, which does not exist")
endif()
file(REAL_PATH ${SACCADE_PREBUILT} library)
add_library(Saccade::saccade SHARED IMPORTED)
set_target_properties(Saccade::saccade PROPERTIES IMPORTED_LOCATION ${library}
                      INTERFACE_INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/include)
add_library(saccade_options INTERFACE)
target_compile_options(saccade_options INTERFACE -Wall -Wextra -Wshadow -Werror -Wnon-virtual-dtor)
add_subdirectory(python)
