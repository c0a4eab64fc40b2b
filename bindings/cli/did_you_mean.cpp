#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "bindings/cli/command.h"

namespace triage::cli {
namespace {

/// How many characters have to be inserted, deleted, replaced or swapped with their neighbour.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] != b[j - 1]), last[j] + 1, row[j - 1] + 1});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string* nearest = nullptr;
  size_t best = std::max<size_t>(2, word.size() / 2);  // farther away, a guess would be noise
  for (const std::string& candidate : candidates) {
    size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  return nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "";
}

}  // namespace triage::cli
