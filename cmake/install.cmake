# The install tree of the library, and how CMake and pkg-config find it. The command installs itself.
include(CMakePackageConfigHelpers)

install(TARGETS saccade EXPORT SaccadeTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/saccade DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Saccade)
configure_package_config_file(cmake/SaccadeConfig.cmake.in cmake/SaccadeConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor release may break callers.
write_basic_package_version_file(cmake/SaccadeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT SaccadeTargets NAMESPACE Saccade:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/cmake/SaccadeConfig.cmake ${PROJECT_BINARY_DIR}/cmake/SaccadeConfigVersion.cmake
        DESTINATION ${package_dir})

# Relative to the .pc file, so that the tree may be moved.
file(RELATIVE_PATH prefix_from_pc "/root/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/root")
if(BUILD_SHARED_LIBS)
  set(pc_private_kind .private)
else()
  set(pc_private_kind "")
endif()
configure_file(cmake/saccade.pc.in cmake/saccade.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/saccade.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
