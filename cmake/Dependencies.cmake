# Finds LibTorch (1.13 to current) and the other libraries, and makes the interface targets that everything here links:
#   triage_torch  LibTorch with its flags, our include paths, OpenMP
#   triage_interface  what the programs that link a library of triage get of it: LibTorch and the public headers
#   triage_fmt  fmt
#   triage_lua_api  Lua 5.4 compiled as C++
# fmt and spdlog are found by pkg-config: a project that triage is a part of may have targets of CMake for other versions.

include(CMakePushCheckState)
include(CheckCXXSourceCompiles)
include(LibTorch)
triage_prefer_python_torch()
if(NOT PROJECT_IS_TOP_LEVEL)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # programs outside of this folder link LibTorch too
endif()
triage_find_torch(REQUIRED)
triage_check_torch(torch_error)
if(torch_error)
  message(FATAL_ERROR "${torch_error}")
endif()
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL OFF)
triage_torch_version(torch_version)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND torch_version VERSION_LESS 2)
  message(FATAL_ERROR "Clang cannot compile the headers of LibTorch ${torch_version} (${TORCH_INSTALL_PREFIX}) as C++20. Use GCC \
(-DCMAKE_CXX_COMPILER=g++), or LibTorch 2 or newer (./dev --torch wheel).")
endif()

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(TRIAGE_FMT REQUIRED IMPORTED_TARGET fmt)
pkg_check_modules(TRIAGE_SPDLOG REQUIRED IMPORTED_TARGET spdlog)
pkg_check_modules(TRIAGE_LUA REQUIRED IMPORTED_TARGET lua5.4-c++)

# Everything inside the project links this. Debian's LibTorch parallelises through OpenMP pragmas in its headers: without
# -fopenmp in our own objects at::parallel_for would run on one thread.
add_library(triage_torch INTERFACE)
target_link_libraries(triage_torch INTERFACE ${TORCH_LIBRARIES} OpenMP::OpenMP_CXX Threads::Threads)
target_include_directories(triage_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_include_directories(triage_torch INTERFACE ${PROJECT_SOURCE_DIR}/runtime/include ${PROJECT_SOURCE_DIR})
add_library(triage_fmt INTERFACE)
target_link_libraries(triage_fmt INTERFACE PkgConfig::TRIAGE_FMT)
target_compile_definitions(triage_fmt INTERFACE FMT_SHARED)
# A PyTorch wheel brings headers of another fmt than the one that we and spdlog link, and so may a project that triage is a part
# of: ours must be found first, all of one version.
if((EXISTS "${TORCH_INSTALL_PREFIX}/include/fmt" AND NOT TORCH_INSTALL_PREFIX STREQUAL "/usr") OR NOT PROJECT_IS_TOP_LEVEL)
  pkg_get_variable(fmt_include fmt includedir)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/own_headers)
  file(CREATE_LINK ${fmt_include}/fmt ${PROJECT_BINARY_DIR}/own_headers/fmt SYMBOLIC)
  target_include_directories(triage_torch SYSTEM BEFORE INTERFACE ${PROJECT_BINARY_DIR}/own_headers)
endif()
separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
# GCC 12 sees overflows in LibTorch's reference counting where there are none.
set(gcc_without -Wno-stringop-overflow -Wno-array-bounds -Wno-restrict)
# Clang warns of loops that it does not vectorise, and of `|` between conditions, which is there to do without a branch.
set(clang_without -Wno-pass-failed -Wno-bitwise-instead-of-logical -Wno-bitwise-conditional-parentheses)
target_compile_options(triage_torch INTERFACE ${torch_flags} -Wall -Wextra -Wno-unused-parameter
                       "$<$<CXX_COMPILER_ID:GNU>:${gcc_without}>" "$<$<CXX_COMPILER_ID:Clang>:${clang_without}>" -ffp-contract=off)
# LibTorch is built with NDEBUG, and some of its classes have members more without it (at::RecordFunction): in whatever
# build type, our objects must see the layout of the library.
target_compile_definitions(triage_torch INTERFACE NDEBUG)
if(TRIAGE_WERROR)
  target_compile_options(triage_torch INTERFACE -Werror)
elseif(NOT PROJECT_IS_TOP_LEVEL)
  target_compile_options(triage_torch INTERFACE -Wno-error)
endif()
if(TRIAGE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(triage_torch INTERFACE TRIAGE_ASSERTIONS)  # runtime/messages/assert.h
endif()
if(TRIAGE_SANITIZE)
  # Instrumented, GCC 12 takes std::regex for uninitialised.
  target_compile_options(triage_torch INTERFACE -Wno-maybe-uninitialized ${triage_sanitize_options})
  target_link_options(triage_torch INTERFACE -fsanitize=${TRIAGE_SANITIZE})
endif()

add_library(triage_interface INTERFACE)
target_link_libraries(triage_interface INTERFACE ${TORCH_LIBRARIES})
target_include_directories(triage_interface SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_include_directories(triage_interface INTERFACE ${PROJECT_SOURCE_DIR}/runtime/include)
target_compile_options(triage_interface INTERFACE ${torch_flags})
target_compile_features(triage_interface INTERFACE cxx_std_20)
if(TRIAGE_SANITIZE)
  target_link_options(triage_interface INTERFACE -fsanitize=${TRIAGE_SANITIZE})  # programs load the sanitizer, for the library too
endif()

# triage_library(NAME OBJECTS...): the shared library NAME of these objects, `triage::NAME` for programs, as in the installed
# package. It registers operators when it is loaded, so a linker must not drop it where a program names no symbol of it.
function(triage_library name)
  add_library(${name} SHARED)
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX)
  target_link_libraries(${name} PUBLIC triage_interface PRIVATE triage_torch ${ARGN})
  target_link_options(${name} INTERFACE "LINKER:--push-state,--no-as-needed,$<TARGET_FILE:${name}>,--pop-state")
  set_target_properties(${name} PROPERTIES INTERFACE_TRIAGE_LIBRARY_OF_PROGRAM ${name} COMPATIBLE_INTERFACE_STRING TRIAGE_LIBRARY_OF_PROGRAM)
  triage_exports(${name} ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  string(REPLACE "triage_" "" public ${name})
  add_library(triage::${public} ALIAS ${name})
endfunction()

# Lua compiled as C++ exports C names in Debian 12, which its lua.hpp declares, and C++ names in Debian 13.
add_library(triage_lua_api INTERFACE)
target_link_libraries(triage_lua_api INTERFACE PkgConfig::TRIAGE_LUA)
cmake_push_check_state(RESET)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::TRIAGE_LUA)
check_cxx_source_compiles("#include <lua.hpp>\nint main() { lua_close(luaL_newstate()); }" TRIAGE_LUA_HAS_C_NAMES)
cmake_pop_check_state()
if(NOT TRIAGE_LUA_HAS_C_NAMES)
  target_include_directories(triage_lua_api SYSTEM BEFORE INTERFACE ${PROJECT_SOURCE_DIR}/cmake/lua_cxx_names)
endif()

# For the program (`triage exec --ranks`), the tests and the example of several processes; the libraries do without.
find_path(TRIAGE_GLOO_HEADERS gloo/rendezvous/store.h)
