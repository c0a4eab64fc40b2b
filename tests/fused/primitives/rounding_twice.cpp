#define NAME rounding_twice
#include "tests/fused/primitives/kernel_functions_table.h"
