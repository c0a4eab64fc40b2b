#pragma once
#include <vector>

/// The functions of support/transcendental.h and divisions.h as two sets: a * b + c inside polynomials as two
/// roundings, and as one, where this processor can.
namespace triage::kernel_functions {

struct OfOne {
  const char* name;
  float (*single)(float);
  double (*wide)(double);
  double ulps;  // how far off it may be
};
struct OfTwo {
  const char* name;
  float (*single)(float, float);
};

struct Set {
  const char* name;
  const OfOne* of_one;
  int count_of_one;
  OfTwo power, arc_tangent_of_point, left_over, remainder_of;
};

const Set& rounding_twice();
const Set& rounding_once();
std::vector<Set> all();  // that this processor can run

}  // namespace triage::kernel_functions
