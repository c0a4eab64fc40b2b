#pragma once
#include "bindings/c/structs.h"

#include <fmt/format.h>

#include <cstdint>

/// Numbers in the options of the host.
namespace triage::c {

/// 0: `otherwise`, the default of C++; -1: `none`.
template <class To, class From>
To number(From given, To otherwise, const char* name, To none = 0) {
  if (given == 0) return otherwise;
  if (given == -1) return none;
  if (!(given > 0))
    throw Misuse(
        fmt::format("`options->{}` is {}; pass a positive number, 0 for the default or -1 for none", name, given));
  return static_cast<To>(given);
}

inline int64_t not_negative(int64_t given, const char* name) {
  if (given < 0) throw Misuse(fmt::format("`options->{}` is {}; pass 0 or more", name, given));
  return given;
}

/// 0: `otherwise`; negative numbers are refused.
template <class To>
To positive(int64_t given, To otherwise, const char* name) {
  return number(not_negative(given, name), otherwise, name);
}

}  // namespace triage::c
