#include "bindings/lua/rewriter/findings/vocabulary.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace triage::lua::rewriter {
namespace {

constexpr std::array<std::string_view, 15> kGiveFlags = {
    "push",      "flag_nan",          "flag_inf",        "flag_nan_and_inf", "flag_oob_indices",
    "err.new",   "err.new_t",         "err.from_code",   "err.push",         "err.push_scalar",
    "err.merge", "err.map_err_flags", "err.ensure_mask", "err.guard",        "err.clear"};
constexpr std::array<std::string_view, 4> kGiveDataAndFlags = {"fix", "err.recover_with_fallback", "err.and_then",
                                                               "err.bind"};
constexpr std::array<std::string_view, 11> kForEveryRow = {
    "IF",           "WHERE",    "ELIF",      "ELSE", "err.map_ok", "err.map_err", "err.map_err_flags",
    "err.and_then", "err.bind", "err.guard", "fix"};
constexpr std::array<std::string_view, 17> kRaising = {"cholesky",    "cholesky_solve", "cholesky_inverse",
                                                       "inverse",     "solve",          "triangular_solve",
                                                       "lu_solve",    "lstsq",          "svd",
                                                       "symeig",      "gather",         "index_select",
                                                       "embedding",   "take",           "scatter",
                                                       "scatter_add", "one_hot"};

constexpr std::array<std::string_view, 93> kComputing = {"abs",
                                                         "absolute",
                                                         "add",
                                                         "addmm",
                                                         "amax",
                                                         "amin",
                                                         "aminmax",
                                                         "argmax",
                                                         "argmin",
                                                         "argsort",
                                                         "bfloat16",
                                                         "bincount",
                                                         "bitwise_and",
                                                         "bitwise_left_shift",
                                                         "bitwise_not",
                                                         "bitwise_or",
                                                         "bitwise_right_shift",
                                                         "bitwise_xor",
                                                         "bmm",
                                                         "bool",
                                                         "byte",
                                                         "ceil",
                                                         "char",
                                                         "clamp",
                                                         "clip",
                                                         "cummax",
                                                         "cummin",
                                                         "cumprod",
                                                         "cumsum",
                                                         "diff",
                                                         "div",
                                                         "divide",
                                                         "dot",
                                                         "double",
                                                         "exp",
                                                         "float",
                                                         "floor",
                                                         "floor_divide",
                                                         "fmod",
                                                         "frac",
                                                         "half",
                                                         "histc",
                                                         "int",
                                                         "lerp",
                                                         "linear",
                                                         "log",
                                                         "log10",
                                                         "log1p",
                                                         "log2",
                                                         "log_softmax",
                                                         "logical_not",
                                                         "matmul",
                                                         "max",
                                                         "maximum",
                                                         "mean",
                                                         "median",
                                                         "min",
                                                         "minimum",
                                                         "mm",
                                                         "mode",
                                                         "mul",
                                                         "multiply",
                                                         "mv",
                                                         "nan_to_num",
                                                         "nanmean",
                                                         "nansum",
                                                         "neg",
                                                         "negative",
                                                         "norm",
                                                         "pow",
                                                         "prod",
                                                         "reciprocal",
                                                         "relu",
                                                         "remainder",
                                                         "round",
                                                         "rsqrt",
                                                         "short",
                                                         "sigmoid",
                                                         "sign",
                                                         "softmax",
                                                         "sort",
                                                         "sqrt",
                                                         "square",
                                                         "std",
                                                         "sub",
                                                         "subtract",
                                                         "sum",
                                                         "tanh",
                                                         "topk",
                                                         "true_divide",
                                                         "trunc",
                                                         "unique",
                                                         "var"};

}  // namespace

std::string global_path(const Expression& expression) {
  std::vector<const std::string*> fields;  // from the right
  const Expression* e = &expression;
  for (; e->kind == ExpressionKind::Index && e->right->kind == ExpressionKind::String; e = e->left)
    fields.push_back(&e->right->text);
  if (e->kind != ExpressionKind::Name || e->variable) return "";
  std::string path = e->text;
  for (auto field = fields.rbegin(); field != fields.rend(); ++field) path.append(".").append(**field);
  return path;
}

std::string called_global(const Expression& expression) {
  return expression.kind == ExpressionKind::Call ? global_path(*expression.left) : "";
}

const Expression* policy_table(const Expression& expression) {
  if (called_global(expression) != "policy" || expression.items.size() != 1) return nullptr;
  return expression.items[0]->kind == ExpressionKind::Table ? expression.items[0] : nullptr;
}

const Expression* field(const Expression& table, std::string_view key) {
  for (size_t i = 0; i < table.items.size(); i++)
    if (table.keys[i] == key) return table.items[i];
  return nullptr;
}

const Expression* option(const Expression& call, std::string_view name) {
  if (call.items.empty() || call.items.back()->kind != ExpressionKind::Table) return nullptr;
  return field(*call.items.back(), name);
}

int flags_result(const std::string& path) {
  if (contains(kGiveFlags, path)) return 0;
  return contains(kGiveDataAndFlags, path) ? 1 : -1;
}

int flags_argument(const std::string& path) {
  constexpr std::array<std::string_view, 4> without = {"err.new", "err.new_t", "err.from_code", "err.replace"};
  if (path.rfind("err.", 0) == 0) return contains(without, path) ? -1 : 0;
  if (path == "push" || path == "has_err" || path == "HAS") return 0;
  if (path == "fix" || path == "find" || path == "IS") return 1;
  if (path == "flag_nan" || path == "flag_inf" || path == "flag_nan_and_inf") return 2;
  return path == "flag_oob_indices" ? 3 : -1;
}

bool computes(const std::string& name) { return contains(kComputing, name); }

bool is_torch_computation(const std::string& path) { return path.rfind("torch.", 0) == 0 && computes(path.substr(6)); }

bool is_functional(const std::string& path) {
  return flags_result(path) >= 0 || path.rfind("err.", 0) == 0 || path == "find";
}

bool runs_for_every_row(const std::string& path) { return contains(kForEveryRow, path); }

bool raises_on_bad_values(const std::string& path) {
  const bool is_linalg = path.find("linalg") != std::string::npos && path.find("norm") == std::string::npos;
  return is_linalg || contains(kRaising, last_part(path));
}

}  // namespace triage::lua::rewriter
