# An overlay port: vcpkg install triage --overlay-ports=packaging/vcpkg. It builds the source tree that it lies in, against LibTorch
# and the libraries of the system: vcpkg's Lua is C, and policies need the one that is C++. TRIAGE_TORCH in the environment is the
# folder of a torch package or an unpacked LibTorch; without it, Debian's is taken.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release)  # one library: LibTorch has no debug build of its own

set(torch_options "")
if(DEFINED ENV{TRIAGE_TORCH})
  set(torch_options "-DCMAKE_PREFIX_PATH=$ENV{TRIAGE_TORCH}/share/cmake\;$ENV{TRIAGE_TORCH}")
endif()

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DTRIAGE_BUILD_TESTS=OFF -DTRIAGE_BUILD_BENCH=OFF -DTRIAGE_BUILD_EXAMPLES=OFF -DTRIAGE_BUILD_PYTHON=OFF ${torch_options})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME triage CONFIG_PATH lib/cmake/triage)
vcpkg_copy_tools(TOOL_NAMES triage AUTO_CLEAN)
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
