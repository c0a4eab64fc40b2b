# Finding LibTorch. Used by this build, and installed with the CMake package for the programs that use it.

# triage_prefer_python_torch(): where nothing else says which LibTorch is meant (CMAKE_PREFIX_PATH, Torch_DIR), the torch
# package of the python3 on PATH goes before the system's.
macro(triage_prefer_python_torch)
  if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH AND NOT DEFINED ENV{CMAKE_PREFIX_PATH} AND NOT DEFINED ENV{Torch_DIR})
    execute_process(
      COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE triage_python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(EXISTS "${triage_python_torch}/share/cmake/Torch/TorchConfig.cmake")
      list(PREPEND CMAKE_PREFIX_PATH "${triage_python_torch}/share/cmake" "${triage_python_torch}")
    endif()
  endif()
endmacro()

# triage_find_torch(ARGUMENTS): find_package(Torch ARGUMENTS). The PyTorch of PyPI is built with CUDA, and its CMake files end
# the configuration where they find no CUDA toolkit, which nothing here needs: such a LibTorch is taken as it lies.
macro(triage_find_torch)
  find_file(triage_torch_config TorchConfig.cmake PATHS ${Torch_DIR} $ENV{Torch_DIR} ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH}
            PATH_SUFFIXES share/cmake/Torch Torch NO_DEFAULT_PATH NO_CACHE)
  get_filename_component(triage_torch_folder "${triage_torch_config}/../../../.." ABSOLUTE)
  if(EXISTS "${triage_torch_folder}/lib/libtorch_cuda.so")
    triage_torch_as_it_lies("${triage_torch_folder}")
  else()
    find_package(Torch ${ARGN})
  endif()
  unset(triage_torch_config)
  unset(triage_torch_folder)
endmacro()

# Sets what find_package(Torch) sets, for the LibTorch in a folder.
macro(triage_torch_as_it_lies folder)
  set(TORCH_INSTALL_PREFIX "${folder}")
  set(TORCH_INCLUDE_DIRS "${folder}/include" "${folder}/include/torch/csrc/api/include")
  set(TORCH_LIBRARY "${folder}/lib/libtorch.so")
  file(STRINGS "${folder}/share/cmake/Torch/TorchConfig.cmake" TORCH_CXX_FLAGS REGEX "set\\(TORCH_CXX_FLAGS ")
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" TORCH_CXX_FLAGS "${TORCH_CXX_FLAGS}")
  if(NOT TARGET triage_libtorch)
    add_library(triage_libtorch INTERFACE IMPORTED GLOBAL)
    # libtorch.so has no symbols: it loads the library of each device, and a linker would drop it.
    target_link_options(triage_libtorch INTERFACE "LINKER:--push-state,--no-as-needed,${TORCH_LIBRARY},--pop-state")
    target_link_libraries(triage_libtorch INTERFACE "${folder}/lib/libtorch_cpu.so" "${folder}/lib/libc10.so")
    if(EXISTS "${folder}/include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp")
      target_compile_definitions(triage_libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
    endif()
  endif()
  set(TORCH_LIBRARIES triage_libtorch)
  set(Torch_FOUND TRUE)
endmacro()

# triage_check_torch(RESULT): an error message when the libraries that find_package(Torch) chose do not belong to its headers,
# else empty. With a LibTorch under /usr as well, the CMake files of a PyTorch wheel resolve `torch` and `c10` to the
# system's libraries unless the prefix path holds the torch package folder itself; such a program aborts at start.
function(triage_check_torch result)
  set(${result} "" PARENT_SCOPE)
  file(REAL_PATH "${TORCH_INSTALL_PREFIX}" prefix)
  foreach(library IN LISTS TORCH_LIBRARY TORCH_LIBRARIES)
    if(NOT library MATCHES "^/.*/lib(torch|c10)")
      continue()
    endif()
    file(REAL_PATH "${library}" library)
    cmake_path(IS_PREFIX prefix "${library}" NORMALIZE inside)
    if(NOT inside)
      set(${result} "LibTorch mixed from two places: its headers and CMake files are under ${prefix}, but the library is \
${library}. Put both `torch.utils.cmake_prefix_path` and the folder of the torch package in CMAKE_PREFIX_PATH (./dev does), \
or remove one of the two." PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# triage_torch_version(RESULT): MAJOR.MINOR of the LibTorch found. Its CMake version file is wrong in some releases; the
# header is what programs compile with.
function(triage_torch_version result)
  set(${result} "unknown" PARENT_SCOPE)
  foreach(folder IN LISTS TORCH_INCLUDE_DIRS)
    foreach(header IN ITEMS torch/headeronly/version.h torch/version.h)
      if(EXISTS "${folder}/${header}")
        file(STRINGS "${folder}/${header}" lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR) [0-9]+")
        string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" version "${lines}")
        set(${result} "${version}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()
