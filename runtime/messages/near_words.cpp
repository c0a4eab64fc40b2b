#include "runtime/messages/near_words.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace triage::messages {
namespace {

/// Letters to insert, drop, change or swap with a neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] != b[j - 1]), last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> close_words(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t most = 3;
  const size_t allowed = word.size() < 4 ? 1 : word.size() < 8 ? 2 : 3;
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& candidate : candidates) {
    if (std::max(candidate.size(), word.size()) - std::min(candidate.size(), word.size()) > allowed) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance > 0 && distance <= allowed) ranked.emplace_back(distance, candidate);
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.erase(std::unique(ranked.begin(), ranked.end()), ranked.end());
  std::vector<std::string> words;
  for (size_t i = 0; i < ranked.size() && i < most; ++i) words.push_back(std::move(ranked[i].second));
  return words;
}

std::string did_you_mean(const std::vector<std::string>& words, char quote) {
  if (words.empty()) return "";
  std::string text = "; did you mean ";
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += quote + words[i] + quote;
  }
  return text + "?";
}

}  // namespace triage::messages
