// Compiled for processors that have fused multiply-add (tests/CMakeLists.txt).
#define NAME rounding_once
#include "kernel_functions_table.h"
