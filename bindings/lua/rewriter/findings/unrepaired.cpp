// Follows values through local variables, a statement at a time. What is not known to pass bad rows on counts as
// repaired: a finding must be right far more often than not.
#include "bindings/lua/rewriter/findings/unrepaired.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/findings/vocabulary.h"

namespace triage::lua::rewriter {
namespace {

using Names = std::set<std::string_view>;

const auto& kSearches = *new Names{"flag_nan", "flag_inf", "flag_nan_and_inf"};
const auto& kAsks = *new Names{"isnan", "isinf", "isfinite", "isposinf", "isneginf"};
const auto& kWeighs = *new Names{"linear",
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
                                 "conv_transpose3d",
                                 "instance_norm"};
/// Those that have weights, and what may hold some.
const auto& kLayers = *new Names{"nn.Linear",
                                 "nn.Bilinear",
                                 "nn.Conv1d",
                                 "nn.Conv2d",
                                 "nn.Conv3d",
                                 "nn.ConvTranspose1d",
                                 "nn.ConvTranspose2d",
                                 "nn.ConvTranspose3d",
                                 "nn.BatchNorm1d",
                                 "nn.BatchNorm2d",
                                 "nn.BatchNorm3d",
                                 "nn.GroupNorm",
                                 "nn.LayerNorm",
                                 "nn.RMSNorm",
                                 "nn.LSTM",
                                 "nn.GRU",
                                 "nn.RNN",
                                 "nn.LSTMCell",
                                 "nn.GRUCell",
                                 "nn.RNNCell",
                                 "nn.MultiheadAttention",
                                 "nn.TransformerEncoderLayer",
                                 "nn.TransformerDecoderLayer",
                                 "nn.TransformerEncoder",
                                 "nn.TransformerDecoder",
                                 "nn.Transformer",
                                 "nn.Sequential",
                                 "nn.ModuleList",
                                 "nn.Module",
                                 "nn.load"};
/// Results that hold no bad value of their argument: repaired, chosen by another rule, or no data at all.
const auto& kEndsHere = *new Names{"nan_to_num",  "where",
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

/// Run the function among their arguments, the third, on all rows of the second.
const auto& kMapping = *new Names{"err.map_ok", "err.map_err", "err.and_then", "err.bind", "err.guard"};

/// Of those, the ones that leave bad rows as they were.
const auto& kFreezing = *new Names{"err.map_ok", "err.and_then", "err.bind"};

bool is_torch(std::string_view path) { return path.substr(0, 6) == "torch."; }

/// Where a value was searched for bad rows.
struct BadRowSearch {
  std::string variable, by;
  int line = 0;
  std::set<std::string> codes;  // as which they were recorded; empty: not known
  int parameter = -1;           // of the function that is being summed up, where the value came in by one
};

/// What a local function does with its parameters, by their places.
struct FunctionSummary {
  std::map<size_t, BadRowSearch> searches;  // looks for bad rows
  std::set<size_t> weighs;                  // hands the rows as they are to a layer
  int passes = -1;                          // gives it back, bad rows and all, as the first result
};

/// What is known of the variables of a file before values are followed.
struct KnownVariables {
  std::set<const Variable*> layers;
  std::map<const Variable*, std::set<std::string>> layers_in;  // fields of tables; "" for those without a name
  std::map<const Variable*, FunctionSummary> functions;
};

bool makes_layer(const Expression& e) { return kLayers.count(called_global(e)) != 0; }

class BadRowFollower {
 public:
  explicit BadRowFollower(const KnownVariables& known) : known_(known) {}

  std::vector<Warning> follow(const Chunk& chunk) {
    block(*chunk.main->body);
    return std::move(warnings_);
  }

  FunctionSummary sum_up(const Function& function) {
    for (size_t i = 0; i < function.parameters.size(); i++)
      unrepaired_[function.parameters[i]].parameter = static_cast<int>(i);
    summed_ = &function;
    block(*function.body);
    return std::move(summary_);
  }

 private:
  void block(const Block& block) {
    for (const Statement* const s : block.statements) statement(*s);
  }

  void statement(const Statement& s) {
    for (const Expression* const value : s.values) look(*value);
    for (const auto& search : searched_) unrepaired_[search.first] = search.second;
    searched_.clear();
    for (size_t i = 0; i < s.variables.size() && s.kind == StatementKind::Local; i++)
      assign(s.variables[i], found_for(s.values, i));
    for (size_t i = 0; i < s.targets.size() && s.kind == StatementKind::Assign; i++)
      if (s.targets[i]->kind == ExpressionKind::Name) assign(s.targets[i]->variable, found_for(s.values, i));
    if (s.kind == StatementKind::Return && summed_ && depth_ == 0 && !s.values.empty())
      if (const auto passed = found(*s.values[0])) summary_.passes = passed->parameter;
    for (const Block* const inner : s.blocks) block(*inner);
    if (s.function) function(*s.function);
  }

  void function(const Function& inner) {
    depth_++;
    block(*inner.body);
    depth_--;
  }

  std::optional<BadRowSearch> found_for(const std::vector<Expression*>& values, size_t i) const {
    return i < values.size() ? found(*values[i]) : std::nullopt;  // only the first result of a call is data
  }

  void assign(const Variable* variable, const std::optional<BadRowSearch>& search) {
    if (!variable) return;
    if (search)
      unrepaired_[variable] = *search;
    else
      unrepaired_.erase(variable);
  }

  // --- where bad rows go

  /// The search whose bad rows may still be in the value of the expression.
  std::optional<BadRowSearch> found(const Expression& whole) const {
    const Expression* e = &whole;
    while (true) {
      switch (e->kind) {
        case ExpressionKind::Name: {
          const auto known = unrepaired_.find(e->variable);
          return known == unrepaired_.end() ? std::nullopt : std::optional<BadRowSearch>(known->second);
        }
        case ExpressionKind::Parenthesized:
          break;
        case ExpressionKind::Unary:
          if (e->op != Operator::Negate) return std::nullopt;
          break;
        case ExpressionKind::Binary:
          if (e->op >= Operator::BitAnd) return std::nullopt;
          if (auto search = found(*e->right)) return search;
          break;
        case ExpressionKind::MethodCall:
          if (kEndsHere.count(e->text)) return std::nullopt;
          if (is_call_of_layer(*e)) return found_in_arguments(e->items);
          break;
        case ExpressionKind::Call:
          return found_in_result(*e);
        default:
          return std::nullopt;
      }
      e = e->left;
    }
  }

  std::optional<BadRowSearch> found_in_result(const Expression& call) const {
    const std::string path = called_global(call);
    if (path == "fix") return left_by_fix(call);
    if (kFreezing.count(path) && call.items.size() > 1) return found(*call.items[1]);
    if (path == "err.take_err_p" || path == "err.take_err" || path == "err.Err") return taken(call, path);
    if (const FunctionSummary* const function = summary_of(*call.left)) {
      const auto i = static_cast<size_t>(function->passes);
      if (function->passes < 0 || i >= call.items.size()) return std::nullopt;
      if (auto search = found(*call.items[i])) return search;
      const auto searched = function->searches.find(i);
      return searched == function->searches.end() ? std::nullopt : search_of(*call.items[i], searched->second);
    }
    const bool passes = is_torch(path) ? !kEndsHere.count(last_part(path)) : is_call_of_layer(call);
    return passes ? found_in_arguments(call.items) : std::nullopt;
  }

  std::optional<BadRowSearch> found_in_arguments(const std::vector<Expression*>& arguments) const {
    for (const Expression* const argument : arguments) {
      const bool list = argument->kind == ExpressionKind::Table;
      if (auto search = list ? found_in_arguments(argument->items) : found(*argument)) return search;
    }
    return std::nullopt;
  }

  /// `fix(z, f, loc, {codes = {err.NAN}})` leaves what was recorded as something else.
  std::optional<BadRowSearch> left_by_fix(const Expression& call) const {
    if (call.items.size() < 4 || call.items[3]->kind != ExpressionKind::Table) return std::nullopt;
    const Expression& options = *call.items[3];
    for (size_t i = 0; i < options.items.size(); i++) {
      if (options.keys[i] != "codes" || options.items[i]->kind != ExpressionKind::Table) continue;
      std::set<std::string> repaired;
      for (const Expression* const code : options.items[i]->items) repaired.insert(global_path(*code));
      const auto search = found(*call.items[0]);
      if (!search || repaired.count("")) return std::nullopt;  // some code is a variable
      for (const std::string& code : search->codes)
        if (!repaired.count(code)) return search;
    }
    return std::nullopt;
  }

  /// The bad rows, and nothing else.
  std::optional<BadRowSearch> taken(const Expression& call, const std::string& by) const {
    if (call.items.size() < 2) return std::nullopt;
    if (auto search = found(*call.items[1])) return search;
    return search_of(*call.items[1], {"", by, call.line, {}, -1});
  }

  static std::optional<BadRowSearch> search_of(const Expression& e, BadRowSearch search) {
    if (e.kind != ExpressionKind::Name || !e.variable) return std::nullopt;
    search.variable = e.text;
    search.parameter = -1;
    return search;
  }

  // --- what happens on the way

  /// Looks for searches and layers in all of an expression.
  void look(const Expression& whole) {
    for (const Expression* e = &whole; e; e = e->left) {
      if (e->right) look(*e->right);
      if (e->kind == ExpressionKind::Call) enter_mapping(*e);
      for (const Expression* const item : e->items) look(*item);
      if (e->kind == ExpressionKind::Function) function(*e->function);
      if (e->kind == ExpressionKind::Call || e->kind == ExpressionKind::MethodCall) call(*e);
    }
  }

  /// `err.map_ok(f, z, fn)`: fn sees all rows of z.
  void enter_mapping(const Expression& e) {
    const std::string path = called_global(e);
    if (!kMapping.count(path) || e.items.size() < 3) return;
    const Expression& function = *e.items[2];
    const auto search = found(*e.items[1]);
    if (function.kind == ExpressionKind::Function && !function.function->parameters.empty())
      assign(function.function->parameters[0], search);
    const FunctionSummary* const known = summary_of(function);
    if (search && (is_layer(function) || (known && known->weighs.count(0)))) warn(e, *search, "a layer");
  }

  void call(const Expression& e) {
    const std::string path = called_global(e);
    if (kSearches.count(path) && !e.items.empty()) note_search(*e.items[0], path, e.line, codes_of(path));
    if (path == "push" || path == "err.push") note_asked_in(e, path, 1);
    if (path == "err.ensure_mask") note_asked_in(e, path, 2);
    if (const FunctionSummary* const function = summary_of(*e.left); function && e.kind == ExpressionKind::Call)
      call_function(e, *function);
    const bool method = e.kind == ExpressionKind::MethodCall;
    const bool weighs = method ? kWeighs.count(e.text) != 0 : is_torch(path) && kWeighs.count(last_part(path));
    if (!weighs && !is_call_of_layer(e)) return;
    auto search = method && weighs ? found(*e.left) : std::nullopt;
    if (!search) search = found_in_arguments(e.items);
    if (search) warn(e, *search, !weighs ? "a layer" : "`" + (path.empty() ? e.text : path) + "`");
  }

  void call_function(const Expression& e, const FunctionSummary& function) {
    for (size_t i = 0; i < e.items.size(); i++) {
      const auto searches = function.searches.find(i);
      if (searches != function.searches.end())
        note_search(*e.items[i], searches->second.by + " in `" + e.left->text + "`", e.line, searches->second.codes);
      if (!function.weighs.count(i)) continue;
      if (const auto search = found(*e.items[i])) warn(e, *search, "a layer in `" + e.left->text + "`");
    }
  }

  void warn(const Expression& e, const BadRowSearch& search, const std::string& into) {
    if (search.parameter >= 0) summary_.weighs.insert(static_cast<size_t>(search.parameter));
    if (search.by.empty()) return;  // a parameter that nobody searched, as yet
    warnings_.push_back(
        {e.line, e.column,
         "'" + search.variable + "' was searched for bad rows by " + search.by + " in line " +
             std::to_string(search.line) + " and goes into " + into +
             " unrepaired: one bad row makes the gradient of the weight NaN (0 * NaN is NaN), even if the output is "
             "masked later; repair it first (fix, err.take_ok_p, err.replace, nan_to_num)"});
  }

  bool is_call_of_layer(const Expression& e) const {
    return (e.kind == ExpressionKind::Call || e.text == "forward") && is_layer(*e.left);
  }

  /// A variable that was assigned a layer, or a field of one, of a table of layers, or of `self`.
  bool is_layer(const Expression& callee) const {
    const Expression* e = &callee;
    const Expression* first = nullptr;  // the index next to the variable
    for (; e->kind == ExpressionKind::Index; e = e->left) first = e;
    if (e->kind != ExpressionKind::Name || !e->variable) return false;
    if (known_.layers.count(e->variable) || (first && e->variable->name == "self")) return true;
    const auto fields = known_.layers_in.find(e->variable);
    if (!first || fields == known_.layers_in.end()) return false;
    return fields->second.count(first->right->kind == ExpressionKind::String ? first->right->text : "") != 0;
  }

  const FunctionSummary* summary_of(const Expression& callee) const {
    if (callee.kind != ExpressionKind::Name) return nullptr;
    const auto known = known_.functions.find(callee.variable);
    return known == known_.functions.end() ? nullptr : &known->second;
  }

  // --- searches

  static std::set<std::string> codes_of(const std::string& search) {
    if (search == "flag_nan") return {"err.NAN"};
    if (search == "flag_inf") return {"err.INF"};
    return {"err.NAN", "err.INF"};
  }

  void note_search(const Expression& e, const std::string& by, int line, const std::set<std::string>& codes) {
    if (e.kind != ExpressionKind::Name || !e.variable) return;
    BadRowSearch search = {e.text, by, line, codes, -1};
    for (const auto* const earlier : {&unrepaired_, &searched_}) {  // flag_nan, then flag_inf: both are left to repair
      const auto known = earlier->find(e.variable);
      if (known == earlier->end()) continue;
      search.parameter = known->second.parameter;
      search.codes.insert(known->second.codes.begin(), known->second.codes.end());
    }
    if (search.parameter >= 0) summary_.searches[static_cast<size_t>(search.parameter)] = search;
    searched_[e.variable] = search;
  }

  /// `push(f, err.NAN, loc, {where = z:isnan():any(-1)})`: a search written out.
  void note_asked_in(const Expression& e, const std::string& by, size_t code) {
    std::set<std::string> codes;
    if (code < e.items.size() && !global_path(*e.items[code]).empty()) codes.insert(global_path(*e.items[code]));
    for (const Expression* const argument : e.items) note_asked(*argument, by, e.line, codes);
  }

  void note_asked(const Expression& whole, const std::string& by, int line, const std::set<std::string>& codes) {
    for (const Expression* e = &whole; e; e = e->left) {
      for (const Expression* const item : e->items) note_asked(*item, by, line, codes);
      if (e->right) note_asked(*e->right, by, line, codes);
      const std::string path = called_global(*e);
      if (is_torch(path) && kAsks.count(last_part(path)) && !e->items.empty())
        note_search(*e->items[0], by, line, codes);
      if (e->kind == ExpressionKind::MethodCall && kAsks.count(e->text)) note_search(*e->left, by, line, codes);
    }
  }

  const KnownVariables& known_;
  std::map<const Variable*, BadRowSearch> unrepaired_, searched_;
  std::vector<Warning> warnings_;
  const Function* summed_ = nullptr;
  FunctionSummary summary_;
  int depth_ = 0;  // of functions in the one that is followed
};

// --- what is known beforehand

void note_layers(const Expression& value, const Variable* variable, KnownVariables& known) {
  if (makes_layer(value)) known.layers.insert(variable);
  if (value.kind != ExpressionKind::Table) return;
  for (size_t i = 0; i < value.items.size(); i++)
    if (makes_layer(*value.items[i])) known.layers_in[variable].insert(i < value.keys.size() ? value.keys[i] : "");
}

void note_layers(const Statement& s, KnownVariables& known) {
  for (size_t i = 0; i < s.variables.size() && i < s.values.size() && s.kind == StatementKind::Local; i++)
    note_layers(*s.values[i], s.variables[i], known);
  for (size_t i = 0; i < s.targets.size() && i < s.values.size() && s.kind == StatementKind::Assign; i++) {
    const Expression& target = *s.targets[i];
    const bool field = target.kind == ExpressionKind::Index && target.left->kind == ExpressionKind::Name;
    if (!field || !target.left->variable || !makes_layer(*s.values[i])) continue;
    const bool named = target.right->kind == ExpressionKind::String;
    known.layers_in[target.left->variable].insert(named ? target.right->text : "");
  }
}

/// In the order of the file, so that one that calls another knows what that does.
void sum_up_functions(const Statement& s, KnownVariables& known) {
  const auto note = [&](const Variable* variable, const Function& function) {
    FunctionSummary summary = BadRowFollower(known).sum_up(function);
    known.functions[variable] = std::move(summary);
  };
  if (s.kind == StatementKind::LocalFunction) note(s.variables[0], *s.function);
  for (size_t i = 0; i < s.variables.size() && i < s.values.size() && s.kind == StatementKind::Local; i++)
    if (s.values[i]->kind == ExpressionKind::Function) note(s.variables[i], *s.values[i]->function);
}

}  // namespace

std::vector<Warning> find_unrepaired(const Chunk& chunk) {
  KnownVariables known;
  for (const Statement& s : chunk.statements) note_layers(s, known);
  for (const Statement& s : chunk.statements) sum_up_functions(s, known);
  return BadRowFollower(known).follow(chunk);
}

}  // namespace triage::lua::rewriter
