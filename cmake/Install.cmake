# cmake --install: libraries, headers, program, the CMake package `triage` and pkg-config files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The version stands in CMakeLists.txt and, for programs, in a header: they must agree.
set(version_header ${PROJECT_SOURCE_DIR}/runtime/include/triage/version.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${version_header})
file(STRINGS ${version_header} line REGEX "^#define TRIAGE_VERSION ")
if(NOT line STREQUAL "#define TRIAGE_VERSION \"${PROJECT_VERSION}\"")
  message(FATAL_ERROR "The version is ${PROJECT_VERSION} in CMakeLists.txt, but ${version_header} says: ${line}")
endif()

# Libraries and program find LibTorch where it was linked from, unless that is a system folder. Named here because CMake's own INSTALL_RPATH_USE_LINK_PATH leaves out folders under the source tree, where ./dev keeps a wheel.
cmake_path(GET TORCH_LIBRARY PARENT_PATH torch_library_folder)
set(torch_rpath ${torch_library_folder})
if(torch_library_folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES OR torch_library_folder MATCHES "^(/usr)?/lib(64)?(/|$)")
  set(torch_rpath "")
endif()
set_target_properties(triage triage_runtime triage_cli PROPERTIES INSTALL_RPATH "${torch_rpath}")
# What loads the library for C knows nothing of libtriage, which lies beside it.
set_target_properties(triage_c PROPERTIES INSTALL_RPATH "$ORIGIN;${torch_rpath}")

# Each part is a component, and a Debian package (Package.cmake): `cmake --install build --component program`.
install(TARGETS triage triage_runtime LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(TARGETS triage_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c NAMELINK_COMPONENT development)
install(TARGETS triage_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/include/triage DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/bindings/c/include/triage_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/scripts/policies DESTINATION ${CMAKE_INSTALL_DATADIR}/triage COMPONENT policies)
# Completion for shells, man pages, and the library's names for editors: the program writes them.
install(CODE "execute_process(COMMAND \"$<TARGET_FILE:triage_cli>\" generate \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\"
                COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE written)
              string(REPLACE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/\" \"\${CMAKE_INSTALL_PREFIX}/\" written \"\${written}\")
              string(REGEX MATCHALL \"[^\n]+\" written \"\${written}\")
              list(APPEND CMAKE_INSTALL_MANIFEST_FILES \${written})" COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

# The package is written by hand, not exported: programs get LibTorch's flags, not our warnings and include folders.
file(REAL_PATH "${TORCH_INSTALL_PREFIX}" torch_prefix)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/triage)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/triageConfig.cmake.in ${PROJECT_BINARY_DIR}/package/triageConfig.cmake
                              INSTALL_DESTINATION ${package_folder}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/triageConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/triageConfig.cmake ${PROJECT_BINARY_DIR}/package/triageConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/LibTorch.cmake
        DESTINATION ${package_folder} COMPONENT development)

# For builds without CMake. The file finds its prefix by where it lies: cmake --install may choose any.
list(TRANSFORM TORCH_INCLUDE_DIRS PREPEND "-I" OUTPUT_VARIABLE torch_include_flags)
list(JOIN torch_include_flags " " torch_include_flags)
file(RELATIVE_PATH prefix_from_pkgconfig /${CMAKE_INSTALL_LIBDIR}/pkgconfig /.)
foreach(name IN ITEMS triage triage_c)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${PROJECT_BINARY_DIR}/package/${name}.pc @ONLY)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/package/triage.pc ${PROJECT_BINARY_DIR}/package/triage_c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)

# What the last `cmake --install` of this build folder wrote, and nothing else.
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt -P ${CMAKE_CURRENT_LIST_DIR}/Uninstall.cmake
                  VERBATIM)

include(Package)
