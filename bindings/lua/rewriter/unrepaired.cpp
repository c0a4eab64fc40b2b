// Follows values through local variables, a statement at a time. What is not known to pass bad rows on counts as
// repaired: a finding must be right far more often than not.
#include "bindings/lua/rewriter/unrepaired.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/vocabulary.h"

namespace triage::lua::rewriter {
namespace {

using Names = std::set<std::string_view>;

const Names kSearches = {"flag_nan", "flag_inf", "flag_nan_and_inf"};
const Names kAsks = {"isnan", "isinf", "isfinite", "isposinf", "isneginf"};
const Names kWeighs = {"linear",
                       "matmul",
                       "mm",
                       "mv",
                       "bmm",
                       "addmm",
                       "addmv",
                       "baddbmm",
                       "bilinear",
                       "einsum",
                       "conv1d",
                       "conv2d",
                       "conv3d",
                       "layer_norm",
                       "group_norm",
                       "batch_norm",
                       "dot",
                       "inner",
                       "conv_transpose1d",
                       "conv_transpose2d",
                       "instance_norm"};
const Names kLayers = {"nn.Linear",     "nn.Conv2d", "nn.LayerNorm", "nn.MultiheadAttention",
                       "nn.Sequential", "nn.Module", "nn.load"};
/// Results that hold no bad value of their argument: repaired, chosen by another rule, or no data at all.
const Names kEndsHere = {"nan_to_num",  "where",
                         "masked_fill", "masked_scatter",
                         "index",       "index_select",
                         "isnan",       "isinf",
                         "isfinite",    "isposinf",
                         "isneginf",    "zeros_like",
                         "ones_like",   "full_like",
                         "rand_like",   "randn_like",
                         "empty_like",  "new_zeros",
                         "new_ones",    "new_full",
                         "size",        "dim",
                         "numel",       "item",
                         "totable",     "any",
                         "all",         "eq",
                         "ne",          "lt",
                         "le",          "gt",
                         "ge",          "argmax",
                         "argmin",      "nonzero",
                         "is_tensor",   "masked_select",
                         "nanmean",     "nansum",
                         "nanmedian",   "requires_grad_"};

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

bool is_torch(std::string_view path) { return path.substr(0, 6) == "torch."; }

class Follower {
 public:
  explicit Follower(const Chunk& chunk) {
    for (const Statement& s : chunk.statements) note_layers(s);
    block(*chunk.main->body);
  }

  std::vector<Warning> take() { return std::move(warnings_); }

 private:
  /// Where a value was searched for bad rows.
  struct Search {
    std::string variable, by;
    int line;
  };
  using Found = const Search*;

  void note_layers(const Statement& s) {
    if (s.kind == StatementKind::Local)
      for (size_t i = 0; i < s.variables.size() && i < s.values.size(); i++)
        if (kLayers.count(called_global(*s.values[i]))) layers_.insert(s.variables[i]);
  }

  void block(const Block& block) {
    for (const Statement* const s : block.statements) statement(*s);
  }

  void statement(const Statement& s) {
    for (const Expression* const value : s.values) look(*value);
    for (size_t i = 0; i < s.variables.size() && s.kind == StatementKind::Local; i++)
      assign(s.variables[i], found_for(s.values, i));
    for (size_t i = 0; i < s.targets.size() && s.kind == StatementKind::Assign; i++)
      if (s.targets[i]->kind == ExpressionKind::Name) assign(s.targets[i]->variable, found_for(s.values, i));
    for (const auto& search : searched_) unrepaired_[search.first] = search.second;
    searched_.clear();
    for (const Block* const inner : s.blocks) block(*inner);
    if (s.function) block(*s.function->body);
  }

  Found found_for(const std::vector<Expression*>& values, size_t i) const {
    return i < values.size() ? found(*values[i]) : nullptr;  // only the first result of a call is data
  }

  void assign(const Variable* variable, Found search) {
    if (!variable) return;
    if (search)
      unrepaired_[variable] = Search(*search);
    else
      unrepaired_.erase(variable);
  }

  // --- where bad rows go

  /// The search whose bad rows may still be in the value of the expression.
  Found found(const Expression& whole) const {
    const Expression* e = &whole;
    while (true) {
      switch (e->kind) {
        case ExpressionKind::Name: {
          const auto known = unrepaired_.find(e->variable);
          return known == unrepaired_.end() ? nullptr : &known->second;
        }
        case ExpressionKind::Parenthesized:
          break;
        case ExpressionKind::Unary:
          if (e->op != Operator::Negate) return nullptr;
          break;
        case ExpressionKind::Binary:
          if (e->op >= Operator::BitAnd) return nullptr;
          if (Found search = found(*e->right)) return search;
          break;
        case ExpressionKind::MethodCall:
          if (kEndsHere.count(e->text)) return nullptr;
          if (is_call_of_layer(*e)) return found_in_arguments(*e);
          break;
        case ExpressionKind::Call: {
          const std::string path = called_global(*e);
          const bool passes = is_torch(path) ? !kEndsHere.count(last_part(path)) : is_call_of_layer(*e);
          return passes ? found_in_arguments(*e) : nullptr;
        }
        default:
          return nullptr;
      }
      e = e->left;
    }
  }

  Found found_in_arguments(const Expression& call) const {
    for (const Expression* const argument : call.items)
      if (Found search = found(*argument)) return search;
    return nullptr;
  }

  // --- what happens on the way

  /// Looks for searches and layers in all of an expression.
  void look(const Expression& whole) {
    for (const Expression* e = &whole; e; e = e->left) {
      if (e->right) look(*e->right);
      for (const Expression* const item : e->items) look(*item);
      if (e->kind == ExpressionKind::Function) block(*e->function->body);
      if (e->kind == ExpressionKind::Call || e->kind == ExpressionKind::MethodCall) call(*e);
    }
  }

  void call(const Expression& e) {
    const std::string path = called_global(e);
    if (kSearches.count(path) && !e.items.empty()) note_search(*e.items[0], path, e.line);
    if (path == "push" || path == "err.push")
      for (const Expression* const argument : e.items) note_asked(*argument, path, e.line);
    const bool method = e.kind == ExpressionKind::MethodCall;
    const bool weighs = method ? kWeighs.count(e.text) != 0 : is_torch(path) && kWeighs.count(last_part(path));
    if (!weighs && !is_call_of_layer(e)) return;
    Found search = method && weighs ? found(*e.left) : nullptr;
    if (!search) search = found_in_arguments(e);
    if (search) warn(e, *search, weighs, path);
  }

  void warn(const Expression& e, const Search& search, bool operation, const std::string& path) {
    const std::string into = !operation ? "a layer" : path.empty() ? "`" + e.text + "`" : "`" + path + "`";
    warnings_.push_back({e.line, e.column,
                         "'" + search.variable + "' was searched for bad rows by " + search.by + " in line " +
                             std::to_string(search.line) + " and goes into " + into +
                             " unrepaired: one bad row makes the gradient of the weight NaN (0 * NaN is NaN), whatever "
                             "masks the output "
                             "later; repair it first (fix, err.take_ok_p, err.replace, nan_to_num)"});
  }

  bool is_call_of_layer(const Expression& e) const {
    return (e.kind == ExpressionKind::Call || e.text == "forward") && is_layer(*e.left);
  }

  /// A variable that was assigned a layer, or a field of one, or of `self`.
  bool is_layer(const Expression& callee) const {
    const Expression* e = &callee;
    while (e->kind == ExpressionKind::Index) e = e->left;
    if (e->kind != ExpressionKind::Name || !e->variable) return false;
    return layers_.count(e->variable) || (e != &callee && e->variable->name == "self");
  }

  void note_search(const Expression& e, const std::string& by, int line) {
    if (e.kind == ExpressionKind::Name && e.variable) searched_[e.variable] = {e.text, by, line};
  }

  /// `push(f, err.NAN, loc, {where = z:isnan():any(-1)})`: a search written out.
  void note_asked(const Expression& whole, const std::string& by, int line) {
    for (const Expression* e = &whole; e; e = e->left) {
      for (const Expression* const item : e->items) note_asked(*item, by, line);
      if (e->right) note_asked(*e->right, by, line);
      const std::string path = called_global(*e);
      if (is_torch(path) && kAsks.count(last_part(path)) && !e->items.empty()) note_search(*e->items[0], by, line);
      if (e->kind == ExpressionKind::MethodCall && kAsks.count(e->text)) note_search(*e->left, by, line);
    }
  }

  std::map<const Variable*, Search> unrepaired_, searched_;
  std::set<const Variable*> layers_;
  std::vector<Warning> warnings_;
};

}  // namespace

std::vector<Warning> find_unrepaired(const Chunk& chunk) { return Follower(chunk).take(); }

}  // namespace triage::lua::rewriter
