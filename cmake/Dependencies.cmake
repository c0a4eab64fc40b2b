# Finds LibTorch (1.13 to current) and the other libraries, and makes the interface targets that everything here links:
#   triage_torch  LibTorch with its flags, our include paths, OpenMP
#   triage_lua_api  Lua 5.4 compiled as C++

find_package(Torch REQUIRED)

# With a system LibTorch installed, the CMake files of a PyTorch wheel resolve `torch` and `c10` to the system's libraries
# unless the prefix path holds the torch package folder itself. Such a program aborts at start; refuse to build it.
file(REAL_PATH "${TORCH_INSTALL_PREFIX}" torch_prefix)
foreach(library IN ITEMS ${TORCH_LIBRARY})
  if(library MATCHES "^/")
    file(REAL_PATH "${library}" real_library)
    cmake_path(IS_PREFIX torch_prefix "${real_library}" NORMALIZE inside)
    if(NOT inside)
      message(FATAL_ERROR "LibTorch mixed from two places: headers and CMake files under ${torch_prefix}, but the library is "
                          "${real_library}. Put both `torch.utils.cmake_prefix_path` and the folder of the torch package in "
                          "CMAKE_PREFIX_PATH (./dev does), or remove one of the two.")
    endif()
  endif()
endforeach()

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(LUA REQUIRED IMPORTED_TARGET lua5.4-c++)

# Everything inside the project links this. Debian's LibTorch parallelises through OpenMP pragmas in its headers: without
# -fopenmp in our own objects at::parallel_for would run on one thread.
add_library(triage_torch INTERFACE)
target_link_libraries(triage_torch INTERFACE ${TORCH_LIBRARIES} OpenMP::OpenMP_CXX Threads::Threads)
target_include_directories(triage_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_include_directories(triage_torch INTERFACE ${CMAKE_SOURCE_DIR}/runtime/include ${CMAKE_SOURCE_DIR})
separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(triage_torch INTERFACE ${torch_flags} -Wall -Wextra -Wno-unused-parameter -ffp-contract=off)
if(TRIAGE_WERROR)
  target_compile_options(triage_torch INTERFACE -Werror)
endif()
if(TRIAGE_SANITIZE)
  target_compile_options(triage_torch INTERFACE -fsanitize=${TRIAGE_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(triage_torch INTERFACE -fsanitize=${TRIAGE_SANITIZE})
endif()

add_library(triage_lua_api INTERFACE)
target_link_libraries(triage_lua_api INTERFACE PkgConfig::LUA)
