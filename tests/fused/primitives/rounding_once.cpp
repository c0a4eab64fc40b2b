// Compiled for processors that have fused multiply-add (tests/CMakeLists.txt).
#define NAME rounding_once
#include "tests/fused/primitives/kernel_functions_table.h"
