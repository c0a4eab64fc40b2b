#include "bindings/lua/rewriter/findings/rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bindings/lua/rewriter/edits.h"
#include "bindings/lua/rewriter/findings/vocabulary.h"
#include "bindings/lua/rewriter/natural_edits.h"
#include "bindings/lua/rewriter/predicates.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/parser.h"
#include "bindings/lua/rewriter/syntax/ranges.h"

namespace triage::lua::rewriter {
namespace {

constexpr std::array<std::string_view, 25> kRules = {"IF",
                                                     "WHERE",
                                                     "fix",
                                                     "push",
                                                     "flag_nan",
                                                     "flag_inf",
                                                     "flag_nan_and_inf",
                                                     "flag_oob_indices",
                                                     "err.push",
                                                     "err.push_scalar",
                                                     "err.replace",
                                                     "err.map_ok",
                                                     "err.map_err",
                                                     "err.map_err_flags",
                                                     "err.and_then",
                                                     "err.bind",
                                                     "err.guard",
                                                     "err.ensure_mask",
                                                     "err.recover_with_fallback",
                                                     "err.take_ok",
                                                     "err.take_err",
                                                     "err.take_ok_p",
                                                     "err.take_err_p",
                                                     "err.clear",
                                                     "torch.where"};
constexpr size_t kSelectingArguments = 3;  // torch.where(mask) alone gives indices

bool is_branch(const Expression& e) {
  return e.kind == ExpressionKind::MethodCall && (e.text == "ELIF" || e.text == "ELSE") && !e.items.empty();
}

/// The global that a call calls, also through a local that stands for it (`local fix = fix`).
std::string rule_called(const Expression& e) {
  if (e.kind != ExpressionKind::Call) return "";
  const Expression* callee = e.left;
  if (callee->kind == ExpressionKind::Name && callee->variable && callee->variable->initial)
    callee = callee->variable->initial;
  const std::string path = global_path(*callee);
  if (std::find(kRules.begin(), kRules.end(), path) == kRules.end()) return "";
  return path == "torch.where" && e.items.size() != kSelectingArguments ? "" : path;
}

/// The parts of the source that are tests.
Ranges test_ranges(const Chunk& chunk, std::string_view source) {
  Ranges ranges;
  for (const Expression& table : chunk.expressions) {
    if (table.kind != ExpressionKind::Table) continue;
    int found = 0;
    for (const Expression* const item : table.items) {
      const std::string name = field_name(source, *item);
      found += name == "args" || name == "check";
    }
    if (found == 2) ranges.add(table.begin, table.end);
  }
  ranges.finish();
  return ranges;
}

/// Where a rule is, what calls it (in natural Lua its keyword), and of which expression or at which byte it is
/// announced.
struct RuleSite {
  size_t place;
  std::string called;
  const Expression* expression = nullptr;
  CoverageRule arm;   // of a branch of natural Lua
  size_t begins = 0;  // its first byte
};

/// Where the lines of a text begin.
class LineStarts {
 public:
  explicit LineStarts(std::string_view source) {
    for (size_t i = 0; i < source.size(); i++)
      if (source[i] == '\n') begins_.push_back(i + 1);
  }
  CoverageRule rule_at(size_t place, const std::string& name) const {
    const auto behind = std::upper_bound(begins_.begin(), begins_.end(), place);
    return {static_cast<int>(behind - begins_.begin()), 1 + static_cast<int>(place - *std::prev(behind)), name};
  }

 private:
  std::vector<size_t> begins_ = {0};
};

/// The branches of each `if` of natural Lua.
std::vector<RuleSite> arms(const Chunk& chunk, std::string_view source) {
  constexpr size_t then = std::string_view("then").size(), otherwise = std::string_view("else").size();
  std::vector<RuleSite> sites;
  if (!is_natural(chunk, source)) return sites;
  const LineStarts lines(source);
  for (const Statement& s : chunk.statements) {
    if (s.kind != StatementKind::If || !chooses_samples(s)) continue;
    for (size_t i = 0; i < s.values.size(); i++) {
      const size_t place = i == 0 ? s.begin : s.values[i]->begin;
      const char* const name = i == 0 ? "if" : "elseif";
      sites.push_back({place, name, nullptr, lines.rule_at(place, name), s.then_begins[i] + then});
    }
    if (s.else_begin)
      sites.push_back({s.else_begin, "else", nullptr, lines.rule_at(s.else_begin, "else"), s.else_begin + otherwise});
  }
  return sites;
}

void add_rules(std::vector<CoverageRule>& rules, const Expression& e, const std::string& called) {
  if (is_branch(e)) {
    rules.push_back({e.op_line, e.op_column, e.text});
  } else if (called == "torch.where" || called == "WHERE") {
    rules.push_back({e.line, e.column, called + " (true)"});
    rules.push_back({e.line, e.column, called + " (false)"});
  } else {
    rules.push_back({e.line, e.column, called});
  }
}

}  // namespace

CoverageRules find_rules(std::string_view source, std::string_view chunk_name) {
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, {});
  const Ranges tests = test_ranges(*chunk, source);
  std::vector<RuleSite> sites = arms(*chunk, source);
  std::erase_if(sites, [&](const RuleSite& arm) { return tests.hold(arm.place, arm.begins); });
  for (const Expression& e : chunk->expressions) {
    const std::string called = rule_called(e);
    const size_t place = e.kind == ExpressionKind::MethodCall ? e.op_begin : e.begin;
    if (!tests.hold(e.begin, e.end) && (is_branch(e) || !called.empty())) sites.push_back({place, called, &e, {}, 0});
  }
  std::stable_sort(sites.begin(), sites.end(), [](const RuleSite& a, const RuleSite& b) { return a.place < b.place; });

  CoverageRules found;
  std::vector<size_t> indices;
  for (const RuleSite& site : sites) {
    indices.push_back(found.rules.size());
    if (site.expression)
      add_rules(found.rules, *site.expression, site.called);
    else
      found.rules.push_back(site.arm);
  }
  Edits edits;
  for (size_t i = sites.size(); i-- > 0;) {  // from the inside out
    const Expression* const e = sites[i].expression;
    const std::string index = std::to_string(indices[i]);
    if (!e) {
      edits.after(sites[i].begins, " _triage_arm(" + index + "); ");
    } else if (is_branch(*e)) {
      edits.before(e->items.back()->begin, "_triage_branch(" + index + ",");
      edits.after(e->items.back()->end, ")");
    } else {
      edits.before(e->left->begin, "_triage_cover(" + index + ",\"" + sites[i].called + "\",");
      edits.after(e->left->end, ")");
    }
  }
  edits.apply(source, 0, found.announcing);
  return found;
}

}  // namespace triage::lua::rewriter
