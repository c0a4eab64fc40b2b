# Writes OUTPUT, a C++ file whose FUNCTION (declared in HEADER) gives text that goes in front of generated kernels:
# cmake -DOUTPUT=... -DHEADER=... -DFUNCTION=... -DSOURCES=a.h;b.h -P EmbedSupport.cmake. The headers come in the order of their dependence; what they include of each other is left out.
include(${CMAKE_CURRENT_LIST_DIR}/CppLiteral.cmake)
set(content "// Generated from runtime/backends/fused/support by cmake/EmbedSupport.cmake.\n#include \"${HEADER}\"\n\n")
string(APPEND content "namespace triage::fused {\n\nconst std::string& ${FUNCTION}() {\n  static const auto& source = *new std::string(\n")
foreach(source IN LISTS SOURCES)
  file(READ ${source} text)
  string(REGEX REPLACE "#pragma once\n" "" text "${text}")
  string(REGEX REPLACE "#include [<\"](runtime|triage)/[^\n]*\n" "" text "${text}")
  cpp_literal(text "${text}" "      ")
  string(APPEND content "      ${text}\n")
endforeach()
string(APPEND content "      );\n  return source;\n}\n\n}  // namespace triage::fused\n")
file(WRITE ${OUTPUT} "${content}")
