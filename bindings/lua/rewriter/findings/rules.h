#pragma once
#include <string>
#include <string_view>
#include <vector>

/// The rules of a policy: the places in its source where it decides about samples. `triage test` tells which of them
/// took a sample.
namespace triage::lua::rewriter {

struct CoverageRule {
  int line = 0, column = 0;  // 1-based; of the called name
  std::string name;          // "fix", "err.map_ok", "IF", "ELSE", "torch.where (true)", "torch.where (false)", "if"
};

struct CoverageRules {
  std::vector<CoverageRule> rules;  // in the order of the source
  /// The source, lines kept, in which every rule announces itself by its index in `rules`: a call `fix(...)` reads
  /// `_triage_cover(3, "fix", fix)(...)`, a branch `:ELSE(fn)` reads `:ELSE(_triage_branch(4, fn))`. Of a torch.where
  /// the index is that of its true side; the false side is the next. A branch of natural Lua, `then` or `else`, begins
  /// with
  /// `_triage_arm(5);`.
  std::string announcing;
};

/// Finds them. What belongs to the policy's own tests (tables that hold `args` and `check`) is no rule. Throws
/// SyntaxError.
CoverageRules find_rules(std::string_view source, std::string_view chunk_name);

}  // namespace triage::lua::rewriter
