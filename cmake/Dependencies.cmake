# Finds LibTorch (1.13 to current) and the other libraries, and makes the interface targets that everything here links:
#   triage_torch  LibTorch with its flags, our include paths, OpenMP
#   triage_lua_api  Lua 5.4 compiled as C++

include(LibTorch)
triage_prefer_python_torch()
find_package(Torch REQUIRED)
triage_check_torch(torch_error)
if(torch_error)
  message(FATAL_ERROR "${torch_error}")
endif()

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(LUA REQUIRED IMPORTED_TARGET lua5.4-c++)

# Everything inside the project links this. Debian's LibTorch parallelises through OpenMP pragmas in its headers: without
# -fopenmp in our own objects at::parallel_for would run on one thread.
add_library(triage_torch INTERFACE)
target_link_libraries(triage_torch INTERFACE ${TORCH_LIBRARIES} OpenMP::OpenMP_CXX Threads::Threads)
target_include_directories(triage_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_include_directories(triage_torch INTERFACE ${CMAKE_SOURCE_DIR}/runtime/include ${CMAKE_SOURCE_DIR})
# PyTorch's wheel brings headers of another fmt than the one that we and spdlog link: ours must be found first.
if(EXISTS "${TORCH_INSTALL_PREFIX}/include/fmt" AND NOT TORCH_INSTALL_PREFIX STREQUAL "/usr")
  get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/own_headers)
  file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/own_headers/fmt SYMBOLIC)
  target_include_directories(triage_torch SYSTEM BEFORE INTERFACE ${CMAKE_BINARY_DIR}/own_headers)
endif()
separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
# GCC 12 sees overflows in LibTorch's reference counting where there are none.
target_compile_options(triage_torch INTERFACE ${torch_flags} -Wall -Wextra -Wno-unused-parameter -Wno-stringop-overflow
                       -Wno-array-bounds -Wno-restrict -ffp-contract=off)
# LibTorch is built with NDEBUG, and some of its classes have members more without it (at::RecordFunction): in whatever
# build type, our objects must see the layout of the library.
target_compile_definitions(triage_torch INTERFACE NDEBUG)
if(TRIAGE_WERROR)
  target_compile_options(triage_torch INTERFACE -Werror)
endif()
if(TRIAGE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(triage_torch INTERFACE TRIAGE_ASSERTIONS)  # runtime/messages/assert.h
endif()
if(TRIAGE_SANITIZE)
  # Instrumented, GCC 12 takes std::regex for uninitialised.
  target_compile_options(triage_torch INTERFACE -Wno-maybe-uninitialized ${triage_sanitize_options})
  target_link_options(triage_torch INTERFACE -fsanitize=${TRIAGE_SANITIZE})
endif()

add_library(triage_lua_api INTERFACE)
target_link_libraries(triage_lua_api INTERFACE PkgConfig::LUA)

# For the program (`triage exec --ranks`), the tests and the example of several processes; the libraries do without.
find_path(TRIAGE_GLOO_HEADERS gloo/rendezvous/store.h)
