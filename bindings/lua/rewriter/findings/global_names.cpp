#include "bindings/lua/rewriter/findings/global_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "bindings/lua/rewriter/findings/foreign.h"
#include "bindings/lua/rewriter/findings/vocabulary.h"
#include "bindings/lua/rewriter/syntax/parser.h"
#include "bindings/lua/rewriter/syntax/ranges.h"

namespace triage::lua::rewriter {
namespace {

using Use = GlobalRead::Use;

// What these are given may well be nil.
constexpr std::array<std::string_view, 9> kTakeNil = {"type",  "print",  "tostring", "assert", "rawequal",
                                                      "pcall", "xpcall", "select",   "Ok"};
constexpr std::array<std::string_view, 4> kMakeGlobals = {"_G", "_ENV", "load", "setfenv"};

/// How each expression is used by the one around it.
class ExpressionUses {
 public:
  explicit ExpressionUses(const Chunk& chunk) {
    for (const Expression& e : chunk.expressions) inside(e);
    for (const Statement& s : chunk.statements) {
      const bool condition = s.kind == StatementKind::If || s.kind == StatementKind::While;
      if (condition || s.kind == StatementKind::Repeat) note(s.values, Use::Tested);
      if (s.kind == StatementKind::Local || s.kind == StatementKind::Assign) note(s.values, Use::Kept);
    }
    protected_.finish();
  }

  Use of(const Expression& e) const {
    const auto found = uses_.find(&e);
    return found == uses_.end() ? Use::Needed : found->second;
  }

  bool in_protected_call(const Expression& e) const { return protected_.hold(e.begin, e.end); }

 private:
  void note(const Expression* e, Use use) {
    while (e->kind == ExpressionKind::Parenthesized) e = e->left;
    uses_[e] = use;
  }
  void note(const std::vector<Expression*>& list, Use use) {
    for (const Expression* const e : list) note(e, use);
  }

  void inside(const Expression& e) {
    switch (e.kind) {
      case ExpressionKind::Call:
      case ExpressionKind::MethodCall:
        arguments(e);
        break;
      case ExpressionKind::Binary:
        binary(e);
        break;
      case ExpressionKind::Unary:
        if (e.op == Operator::Not) note(e.left, Use::Tested);
        break;
      default:
        break;
    }
  }

  void arguments(const Expression& call) {
    const std::string name = called_global(call);
    if (contains(kTakeNil, name)) note(call.items, Use::Tested);
    if (name != "pcall" && name != "xpcall") return;
    for (const Expression* const argument : call.items) protected_.add(argument->begin, argument->end);
  }

  void binary(const Expression& e) {
    if (e.op == Operator::Or) note(e.right, Use::Kept);
    if (e.op == Operator::And || e.op == Operator::Or) return note(e.left, Use::Tested);
    if (e.op != Operator::Equal && e.op != Operator::NotEqual) return;
    note(e.left, Use::Tested);
    note(e.right, Use::Tested);
  }

  std::map<const Expression*, Use> uses_;
  Ranges protected_;
};

struct Assigned {
  std::set<const Expression*> targets;
  std::set<std::string> globals;

  explicit Assigned(const Chunk& chunk) {
    for (const Statement& s : chunk.statements)
      for (const Expression* const target : s.targets) {
        targets.insert(target);
        if (target->kind == ExpressionKind::Name && !target->variable) globals.insert(target->text);
      }
  }
};

// --- params

/// The variable of `run` that receives the params of this call of `policy`, and their names; null where the text does
/// not show them.
const Variable* params_variable(const Expression& call, std::vector<std::string>& names) {
  const Expression* const table = policy_table(call);
  if (!table) return nullptr;
  const Expression *const params = field(*table, "params"), *const run = field(*table, "run");
  const Expression* const inputs = field(*table, "inputs");
  if (!params || params->kind != ExpressionKind::Table || !run || run->kind != ExpressionKind::Function) return nullptr;
  if (std::count(params->keys.begin(), params->keys.end(), "") > 0) return nullptr;
  names = params->keys;
  const std::vector<Variable*>& parameters = run->function->parameters;
  if (inputs && inputs->kind != ExpressionKind::Table) return nullptr;
  const size_t behind = field(*table, "state") ? 2 : 1;  // run(z, p, s)
  const size_t place = inputs ? inputs->items.size() : parameters.size() - behind;
  return place < parameters.size() ? parameters[place] : nullptr;
}

/// The params of each function that a call of `policy` runs, where the text shows them and nothing assigns to them.
std::map<const Variable*, std::vector<std::string>> known_params(const Chunk& chunk) {
  std::map<const Variable*, std::vector<std::string>> known;
  for (const Expression& call : chunk.expressions) {
    std::vector<std::string> names;
    if (const Variable* const params = params_variable(call, names)) known[params] = std::move(names);
  }
  for (const Statement& s : chunk.statements)
    for (const Expression* const target : s.targets) known.erase(target->variable);
  return known;
}

/// The texts of a list, `{"x", "y"}`.
std::vector<std::string> texts_of(const Expression& list) {
  std::vector<std::string> texts;
  for (const Expression* const item : list.items)
    if (item->kind == ExpressionKind::String) texts.push_back(item->text);
  return texts;
}

void note_declared(const Chunk& chunk, GlobalReads& reads) {
  for (const Expression& call : chunk.expressions) {
    const Expression* const table = policy_table(call);
    if (!table) continue;
    if (const Expression* const params = field(*table, "params")) reads.params = params->keys;
    if (const Expression* const inputs = field(*table, "inputs")) reads.inputs = texts_of(*inputs);
  }
}

}  // namespace

std::vector<std::pair<int, std::string>> global_names(const Chunk& chunk) {
  std::set<std::pair<int, std::string>> names;
  for (const Expression& e : chunk.expressions)
    if (e.kind == ExpressionKind::Name && !e.variable) names.emplace(e.line, e.text);
  return {names.begin(), names.end()};
}

GlobalReads global_reads(std::string_view source, std::string_view chunk_name, const ParseOptions& options) {
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, options);
  const ExpressionUses uses(*chunk);
  const Assigned assigned(*chunk);
  GlobalReads result;
  result.foreign = find_foreign(*chunk, source);
  note_declared(*chunk, result);
  for (const Expression& e : chunk->expressions) {
    const std::string path = assigned.targets.count(&e) ? "" : global_path(e);
    if (path.empty()) continue;
    const std::string root = path.substr(0, path.find('.'));
    result.makes_globals |= contains(kMakeGlobals, root);
    if (assigned.globals.count(root)) continue;
    result.reads.push_back({path, e.line, e.column, uses.of(e), uses.in_protected_call(e)});
  }
  std::stable_sort(result.reads.begin(), result.reads.end(), [](const GlobalRead& a, const GlobalRead& b) {
    return std::tuple(a.line, a.column, a.path.size()) < std::tuple(b.line, b.column, b.path.size());
  });
  return result;
}

std::vector<UnknownParam> unknown_params(std::string_view source, std::string_view chunk_name,
                                         const ParseOptions& options) {
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, options);
  const auto known = known_params(*chunk);
  std::vector<UnknownParam> unknown;
  for (const Expression& e : chunk->expressions) {
    if (e.kind != ExpressionKind::Index || e.right->kind != ExpressionKind::String) continue;
    const auto names = known.find(e.left->variable);
    if (!e.left->variable || names == known.end()) continue;
    if (std::find(names->second.begin(), names->second.end(), e.right->text) == names->second.end())
      unknown.push_back({e.right->text, e.line, e.column, names->second});
  }
  return unknown;
}

std::vector<std::pair<std::string, int64_t>> declared_codes(std::string_view source, std::string_view chunk_name,
                                                            const ParseOptions& options) {
  std::vector<std::pair<std::string, int64_t>> declared;
  if (source.find("codes") == std::string_view::npos) return declared;
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, options);
  for (const Expression& call : chunk->expressions) {
    const Expression* const table = policy_table(call);
    const Expression* const codes = table ? field(*table, "codes") : nullptr;
    if (!codes || codes->kind != ExpressionKind::Table) continue;
    for (size_t i = 0; i < codes->items.size(); ++i) {
      const std::string& text = codes->items[i]->text;
      const bool is_number = codes->items[i]->kind == ExpressionKind::Integer && !text.empty() && text.size() <= 2 &&
                             text.find_first_not_of("0123456789") == std::string::npos;
      if (is_number && !codes->keys[i].empty()) declared.emplace_back(codes->keys[i], std::stoi(text));
    }
  }
  return declared;
}

}  // namespace triage::lua::rewriter
