# cpp_literal(VARIABLE TEXT INDENT): TEXT as string literals of C++, one a line of it, those after the first indented by INDENT.
# (A raw string would meet the compilers' limits of length, and `)"` in the text.)
function(cpp_literal variable text indent)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n${indent}\"" text "${text}")
  set(${variable} "\"${text}\"" PARENT_SCOPE)
endfunction()
