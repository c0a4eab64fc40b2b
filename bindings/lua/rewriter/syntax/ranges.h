#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace triage::lua::rewriter {

/// Byte ranges of constructs of one text: each lies within another or beside it. Those within another are dropped.
class Ranges {
 public:
  void add(size_t begin, size_t end) { ranges_.emplace_back(begin, end); }

  /// Before `hold` is asked.
  void finish() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<Range> outermost;
    for (const Range& range : ranges_)
      if (outermost.empty() || range.second > outermost.back().second) outermost.push_back(range);
    ranges_ = std::move(outermost);
  }

  /// Does one of them hold the whole of this one?
  bool hold(size_t begin, size_t end) const {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                        [](size_t place, const Range& range) { return place < range.first; });
    return after != ranges_.begin() && end <= std::prev(after)->second;
  }

 private:
  using Range = std::pair<size_t, size_t>;
  std::vector<Range> ranges_;
};

}  // namespace triage::lua::rewriter
