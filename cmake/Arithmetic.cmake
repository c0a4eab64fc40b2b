# NaN and Inf are the subject here: code that is compiled as if there were none would be silently wrong. So the flags of the user
# or of a project that triage is a part of are refused if they say so.
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
get_directory_property(directory_options COMPILE_OPTIONS)
set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} ${directory_options}")
if(flags MATCHES "(-ffast-math|-Ofast|-ffinite-math-only|-funsafe-math-optimizations|-fassociative-math|-freciprocal-math|-fno-signed-zeros)")
  message(FATAL_ERROR "triage cannot be compiled with ${CMAKE_MATCH_1}: it computes with NaN, Inf and signed zeros. Give the option to your own \
targets (target_compile_options), not to the whole project (CMAKE_CXX_FLAGS, add_compile_options).")
endif()
