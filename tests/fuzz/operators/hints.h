#pragma once
#include "tests/fuzz/operators/random.h"
#include "tests/fuzz/operators/tensors.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// What arguments fit together for operators whose arguments must: hints.txt, one line a form of a call.
namespace triage::fuzz {

struct Hint {
  /// Names of parameters, and the texts after their "=": one of them is taken, at random.
  std::map<std::string, std::vector<std::string>> settings;
};

/// The forms known of an operator ("mm", also for "mm_"); empty where any sizes do.
const std::vector<Hint>& hints_for(std::string_view base_name);

/// Letters of a hint, which stand for sizes: each gets one number a call. "B" is a list, of leading dimensions.
class Symbols {
 public:
  Symbols(Random& random, Reach reach) : random_(random), reach_(reach) {}
  /// Of "n", "n+4", "c*r*r", "n-1", "-1".
  int64_t value(std::string_view expression);
  /// Of "B,n,k".
  std::vector<int64_t> list(std::string_view expressions);

 private:
  int64_t letter(char name);
  int64_t product(std::string_view expression);
  Random& random_;
  Reach reach_;
  std::map<char, int64_t> letters_;
  std::vector<int64_t> leading_;
  bool has_leading_ = false;
};

/// Texts between the separators.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace triage::fuzz
