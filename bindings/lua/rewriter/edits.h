#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace triage::lua::rewriter {

/// Insertions and replacements in a text, applied at once. Constructs are edited from the inside out: of several edits
/// at one place, the one made later encloses the earlier.
class Edits {
 public:
  /// Where something that begins at `offset` gets `text` in front. A space goes first: `and(a)` must not become one
  /// name.
  void before(size_t offset, std::string_view text) { add(offset, 0, Rank::Before, " " + std::string(text)); }
  /// Where something that ends at `offset` gets `text` behind.
  void after(size_t offset, std::string_view text) { add(offset, 0, Rank::After, std::string(text)); }
  void replace(size_t begin, size_t end, std::string_view text) {
    add(begin, end - begin, Rank::Replace, std::string(text));
  }

  /// `source` with the edits, appended to `result`; what stands before `start` is left out.
  void apply(std::string_view source, size_t start, std::string& result);

 private:
  // At one offset: what belongs to the text that ends there, then what belongs to the text that begins there.
  enum class Rank { After, Before, Replace };
  struct Edit {
    size_t offset, removed;
    Rank rank;
    size_t sequence;
    std::string text;
  };
  void add(size_t offset, size_t removed, Rank rank, std::string text) {
    edits_.push_back({offset, removed, rank, edits_.size(), std::move(text)});
  }
  std::vector<Edit> edits_;
};

}  // namespace triage::lua::rewriter
