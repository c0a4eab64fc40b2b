# triage_folder(NAME [SUBFOLDERS names...] [DEPENDS targets...] [NO_PCH]) makes the object library triage_NAME of all *.cpp in the
# Objects, not archives: a static library would drop the files that only register operators.
function(triage_folder name)
  cmake_parse_arguments(arg "NO_PCH" "" "DEPENDS;SUBFOLDERS" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(subfolder IN LISTS arg_SUBFOLDERS)
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${subfolder}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(NOT sources)
    add_library(triage_${name} INTERFACE)
    return()
  endif()
  add_library(triage_${name} OBJECT ${sources})
  target_link_libraries(triage_${name} PUBLIC triage_torch ${arg_DEPENDS})
  if(NOT arg_NO_PCH)
    triage_precompiled(triage_${name})
  endif()
endfunction()

# Of what the objects of the shared library TARGET mark as visible, exports only what MAP lists.
function(triage_exports target map)
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
endfunction()

# ATen/ATen.h takes 10 s a file; precompiled once (in triage_precompiled_aten) and shared by every target that includes it.
function(triage_precompiled target)
  if(NOT TARGET triage_precompiled_aten)
    file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cpp "")
    add_library(triage_precompiled_aten OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
    target_link_libraries(triage_precompiled_aten PUBLIC triage_torch)
    target_precompile_headers(triage_precompiled_aten PRIVATE ${CMAKE_SOURCE_DIR}/runtime/compat/precompiled.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM triage_precompiled_aten)
  # Executables would get -fPIE, and a header precompiled with -fPIC is then silently not used.
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()
