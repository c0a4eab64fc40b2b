#include "bindings/lua/rewriter/edits.h"

#include <algorithm>

namespace triage::lua::rewriter {

void Edits::apply(std::string_view source, size_t start, std::string& result) {
  std::sort(edits_.begin(), edits_.end(), [](const Edit& a, const Edit& b) {
    if (a.offset != b.offset) return a.offset < b.offset;
    if (a.rank != b.rank) return a.rank < b.rank;
    return a.rank == Rank::Before ? a.sequence > b.sequence : a.sequence < b.sequence;
  });
  size_t position = start;
  for (const Edit& edit : edits_) {
    result += source.substr(position, edit.offset - position);
    result += edit.text;
    position = edit.offset + edit.removed;
  }
  result += source.substr(position);
}

}  // namespace triage::lua::rewriter
