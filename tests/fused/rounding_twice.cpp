#define NAME rounding_twice
#include "kernel_functions_table.h"
