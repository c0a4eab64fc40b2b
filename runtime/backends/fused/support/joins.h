#pragma once
// How loops join values over the positions of a row: position i of a block goes into lane i % lane_count, and the
// lanes are joined by halves. So the order of additions is written down here, the same for every processor, and the
// lanes are as many chains that need not wait for each other as a processor can keep busy.
#include "runtime/backends/fused/support/numbers.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

inline constexpr int64_t lane_count = 64;
/// So many positions are a block: what its lanes come to joins the total of the row. Sums of blocks are added up as
/// doubles: in one float a lane would lose a row of a million elements.
inline constexpr int64_t block_positions = 2048;

struct Sum {
  template <class V>
  static void join(V& a, const V& b) {
    a = a + b;
  }
};
struct Product {
  template <class V>
  static void join(V& a, const V& b) {
    a = a * b;
  }
};
struct Any {
  template <class V>
  static void join(V& a, const V& b) {
    a = a | b;
  }
};
struct Largest {
  template <class V>
  static void join(V& a, const V& b) {
    a = b > a ? b : a;
  }
};
struct Smallest {
  template <class V>
  static void join(V& a, const V& b) {
    a = b < a ? b : a;
  }
};

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
