#include "bindings/cli/commands/incident/source_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace triage::cli {
namespace {

using Lines = std::vector<std::string_view>;

/// Of a larger table, what lies between the first and the last change is shown as replaced as a whole.
constexpr size_t largest_table = size_t{16} << 20;
constexpr size_t around = 3;

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

struct DiffLine {
  char kind;  // ' ', '-', '+'
  std::string_view line;
};

/// By the longest common subsequence of `before` and `after`.
void add_edits(const Lines& before, const Lines& after, std::vector<DiffLine>& edits) {
  const size_t columns = after.size() + 1;
  const bool fits = (before.size() + 1) * columns <= largest_table;
  std::vector<uint32_t> longest(fits ? (before.size() + 1) * columns : 0);  // from there to both ends
  for (size_t i = before.size(); fits && i-- > 0;)
    for (size_t j = after.size(); j-- > 0;)
      longest[i * columns + j] = before[i] == after[j]
                                     ? longest[(i + 1) * columns + j + 1] + 1
                                     : std::max(longest[(i + 1) * columns + j], longest[i * columns + j + 1]);
  size_t i = 0, j = 0;
  while (i < before.size() || j < after.size()) {
    const bool same = fits && i < before.size() && j < after.size() && before[i] == after[j];
    const bool removes = i < before.size() &&
                         (!fits || j == after.size() || longest[(i + 1) * columns + j] >= longest[i * columns + j + 1]);
    if (same)
      edits.push_back({' ', before[i++]}), ++j;
    else if (removes)
      edits.push_back({'-', before[i++]});
    else
      edits.push_back({'+', after[j++]});
  }
}

std::vector<DiffLine> edits_between(const Lines& before, const Lines& after) {
  const size_t most = std::min(before.size(), after.size());
  size_t begin = 0, end = 0;
  while (begin < most && before[begin] == after[begin]) ++begin;
  while (end < most - begin && before[before.size() - 1 - end] == after[after.size() - 1 - end]) ++end;
  const auto at = [](const Lines& lines, size_t index) { return lines.begin() + static_cast<ptrdiff_t>(index); };
  std::vector<DiffLine> edits;
  for (size_t i = 0; i < begin; ++i) edits.push_back({' ', before[i]});
  add_edits(Lines(at(before, begin), at(before, before.size() - end)),
            Lines(at(after, begin), at(after, after.size() - end)), edits);
  for (size_t i = before.size() - end; i < before.size(); ++i) edits.push_back({' ', before[i]});
  return edits;
}

/// Where a hunk that begins at `begin` ends: its changes are at most twice `around` apart.
size_t end_of_hunk(const std::vector<DiffLine>& edits, size_t begin) {
  size_t last = begin;
  for (size_t i = begin; i < edits.size() && i <= last + 2 * around + 1; ++i)
    if (edits[i].kind != ' ') last = i;
  return std::min(edits.size(), last + around + 1);
}

std::string range(size_t first, size_t count) {
  const size_t shown = count == 0 ? first : first + 1;
  return count == 1 ? fmt::format("{}", shown) : fmt::format("{},{}", shown, count);
}

}  // namespace

std::vector<std::string> unified_diff(std::string_view before, std::string_view after, const std::string& name_before,
                                      const std::string& name_after) {
  const std::vector<DiffLine> edits = edits_between(lines_of(before), lines_of(after));
  std::vector<std::string> lines;
  size_t line_before = 0, line_after = 0;  // of what stands before edits[i]
  for (size_t i = 0; i < edits.size();) {
    size_t change = i;
    while (change < edits.size() && edits[change].kind == ' ') ++change;
    if (change == edits.size()) break;
    const size_t begin = std::max(i, change < around ? 0 : change - around), end = end_of_hunk(edits, change);
    line_before += begin - i;
    line_after += begin - i;
    size_t count_before = 0, count_after = 0;
    for (size_t at = begin; at < end; ++at) {
      count_before += edits[at].kind != '+';
      count_after += edits[at].kind != '-';
    }
    lines.push_back(fmt::format("@@ -{} +{} @@", range(line_before, count_before), range(line_after, count_after)));
    for (size_t at = begin; at < end; ++at) lines.push_back(edits[at].kind + std::string(edits[at].line));
    line_before += count_before;
    line_after += count_after;
    i = end;
  }
  if (!lines.empty()) lines.insert(lines.begin(), {"--- " + name_before, "+++ " + name_after});
  return lines;
}

}  // namespace triage::cli
