#include "bindings/lua/rewriter/findings/mixed_codes.h"

#include <array>
#include <string>

#include "bindings/lua/rewriter/findings/vocabulary.h"
#include "bindings/lua/rewriter/predicates.h"

namespace triage::lua::rewriter {
namespace {

/// Which argument of a call is a code, 0-based.
struct CodeArgument {
  std::string_view path;
  size_t place;
};
constexpr std::array kCodeArguments = std::to_array<CodeArgument>({{"push", 1},
                                                                   {"err.push", 1},
                                                                   {"err.push_scalar", 1},
                                                                   {"err.guard", 3},
                                                                   {"err.ensure_mask", 2},
                                                                   {"err.from_code", 0},
                                                                   {"err.clear", 1},
                                                                   {"err.has_code", 1},
                                                                   {"find", 0},
                                                                   {"IS", 0}});
constexpr std::array<std::string_view, 3> kSeverities = {"WARN", "ERROR", "CRITICAL"};
constexpr std::array<std::string_view, 13> kCodes = {"NAN",
                                                     "INF",
                                                     "OVERFLOW",
                                                     "OUT_OF_BOUNDS",
                                                     "OOB",
                                                     "NEGATIVE_IDX",
                                                     "EMPTY_INPUT",
                                                     "ZERO_OUTPUT",
                                                     "CONSTANT_OUTPUT",
                                                     "SATURATED",
                                                     "FALLBACK_VALUE",
                                                     "VALUE_CLAMPED",
                                                     "UNKNOWN"};

bool is_severity(const Expression& e) {
  const std::string path = global_path(e);
  return path.rfind("Severity.", 0) == 0 || (path.rfind("err.", 0) == 0 && contains(kSeverities, last_part(path)));
}

bool is_code(const Expression& e) {
  const std::string path = global_path(e);
  return path.rfind("ErrorCode.", 0) == 0 || (path.rfind("err.", 0) == 0 && contains(kCodes, last_part(path)));
}

class MixedCodesFinder {
 public:
  std::vector<Warning> find(const Chunk& chunk) {
    for (const Expression& e : chunk.expressions) {
      if (e.kind == ExpressionKind::Call) call(e);
      if (e.kind == ExpressionKind::Binary && is_comparison(e)) {
        comparison(*e.left, *e.right);
        comparison(*e.right, *e.left);
      }
    }
    return std::move(warnings_);
  }

 private:
  void call(const Expression& e) {
    const std::string path = called_global(e);
    for (const auto& [name, place] : kCodeArguments)
      if (path == name && place < e.items.size()) wants_code(*e.items[place]);
    if (!is_functional(path)) return;
    for (const char* const name : {"severity", "min_severity"})
      if (const Expression* const severity = option(e, name)) wants_severity(*severity);
    if (const Expression* const codes = option(e, "codes"); codes && codes->kind == ExpressionKind::Table)
      for (const Expression* const code : codes->items) wants_code(*code);
  }

  /// `err.max_severity(f) >= err.NAN`, `err.get_first_code(f) == err.CRITICAL`.
  void comparison(const Expression& asked, const Expression& value) {
    const std::string path = called_global(asked);
    if (path == "err.max_severity" || path == "err.get_first_severity") wants_severity(value);
    if (path == "err.get_first_code") wants_code(value);
  }

  void wants_code(const Expression& e) {
    if (is_severity(e))
      warnings_.push_back({e.line, e.column,
                           global_path(e) + " is a severity, and its number is taken for that of a code: write a code, "
                                            "such as err.NAN; a severity is an option, {severity = err.CRITICAL}"});
  }

  void wants_severity(const Expression& e) {
    if (is_code(e))
      warnings_.push_back({e.line, e.column,
                           global_path(e) + " is a code, and its number is taken for that of a severity: write "
                                            "err.WARN, err.ERROR or err.CRITICAL"});
  }

  std::vector<Warning> warnings_;
};

}  // namespace

std::vector<Warning> find_mixed_codes(const Chunk& chunk) { return MixedCodesFinder().find(chunk); }

}  // namespace triage::lua::rewriter
