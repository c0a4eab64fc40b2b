# cpack: Debian packages, one for each component of Install.cmake. `./dev package` makes them. Their LibTorch is Debian's
# libtorch-dev; a package cannot depend on the PyTorch of a Python environment.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME triage)
set(CPACK_PACKAGE_VENDOR triage)
set(CPACK_PACKAGE_CONTACT "The triage developers <triage@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime c development policies program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# triage_package(COMPONENT NAME SECTION DEPENDS SUMMARY TEXT)
function(triage_package component name section depends summary text)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  # What every Debian package has of itself.
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} RENAME copyright COMPONENT ${component}
          EXCLUDE_FROM_ALL)
endfunction()
# Debian's LibTorch is content with the reference BLAS, whose matrix products take 10 to 30 times as long.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libopenblas0-openmp | libopenblas0-pthread | libblis4-openmp | libmkl-rt")
set(same "(= ${PROJECT_VERSION})")
triage_package(runtime libtriage${PROJECT_VERSION_MAJOR} libs "" "error records and recovery policies for LibTorch (library)"
  "Every sample of a batch carries a record of what went wrong with it through tensor code. What to do about the bad samples is
written in Lua.")
triage_package(c libtriage-c1 libs "libtriage${PROJECT_VERSION_MAJOR} ${same}" "error records and recovery policies for LibTorch (C library)"
  "The interface for programs in C, and for languages that call C. It only grows.")
triage_package(development libtriage-dev libdevel
  "libtriage${PROJECT_VERSION_MAJOR} ${same}, libtriage-c1 ${same}, triage-policies ${same}, libtorch-dev"
  "error records and recovery policies for LibTorch (development)" "Headers, and what CMake and pkg-config read.")
triage_package(policies triage-policies misc "" "recovery policies that ship with triage" "Scripts in Lua, to use as they are or to change.")
triage_package(program triage science "triage-policies ${same}" "runs, tests and explains recovery policies"
  "Checks, tests, explains and benchmarks policies, and runs them on tensors in files.")
set(CPACK_DEBIAN_POLICIES_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_POLICIES_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
include(CPack)
