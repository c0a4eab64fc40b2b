#include "runtime/backends/aot/taint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/operators/semantics.h"

namespace triage::aot {
namespace {

using graph::Graph;
using graph::Node;
using graph::Operand;
using graph::Value;
using operators::ResultSizes;
using operators::Semantics;
using operators::semantics_of;
using Rule = operators::MaskedRows;

const std::vector<int64_t>& shape_of(const Value* value) { return value->meta->sizes; }

const std::string& name_of(const Node& node) { return node.op.operator_name().name; }

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<size_t> argument(const Node& node, const char* name) {
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == name) return i;
  return std::nullopt;
}

const c10::IValue* constant_argument(const Node& node, const char* name) {
  const auto at = argument(node, name);
  return at ? node.operands[*at].constant() : nullptr;
}

/// Of two that may differ nowhere.
at::Tensor chosen_by(const at::Tensor& mask, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor none = at::zeros({}, at::kBool);
  return at::where(mask, a.defined() ? a : none, b.defined() ? b : none);
}

/// Whether all tensors but the first have its sizes, along other dimensions than `dim`.
bool are_lines(const at::Tensor& a, at::IntArrayRef of, int64_t dim) {
  if (a.dim() != static_cast<int64_t>(of.size())) return false;
  for (int64_t i = 0; i < a.dim(); ++i)
    if (i != dim && a.size(i) != of[static_cast<size_t>(i)]) return false;
  return true;
}

}  // namespace

bool holds_floats(const Value* value) {
  return value->meta && (at::isFloatingType(value->meta->dtype) || at::isComplexType(value->meta->dtype));
}

int64_t elements_of(const Value* value) {
  int64_t count = 1;
  for (const int64_t size : shape_of(value)) count *= size;
  return count;
}

bool sums_losses(const Node& node) {
  const auto at = argument(node, "reduction");
  const c10::IValue* constant = at ? node.operands[*at].constant() : nullptr;
  return at && !(constant && constant->isInt() && constant->toInt() == 0);
}

class Taint::TaintRules {
 public:
  explicit TaintRules(const Graph& graph) {
    for (const auto& node : graph.nodes())
      if (name_of(*node) == "triage::match") searches_[node->operands[0].value()].push_back(node.get());
  }

  const Node* search_of(const Node& repair) const {
    if (!is_one_of(name_of(repair), {"triage::fix", "triage::take_ok_p", "triage::take_err_p"})) return nullptr;
    const auto found = searches_.find(repair.operands[*argument(repair, "flags")].value());
    if (found == searches_.end()) return nullptr;
    const auto same = [&](const Node& search, const char* name, int64_t otherwise) {
      const c10::IValue *theirs = constant_argument(search, name), *ours = constant_argument(repair, name);
      return theirs && theirs->toInt() == (ours ? ours->toInt() : otherwise);
    };
    for (const Node* search : found->second)
      if (same(*search, "codes", 0xFFFF) && same(*search, "min_severity", 0)) return search;
    return nullptr;
  }

  void visit(const Node& node) {
    bool any = false;
    graph::for_each_use(node, [&](const Value* value) { any |= taints_.count(value) != 0; });
    if (!any) return compute(node);
    if (node.results.size() == 1 && held_.count(node.results[0])) return;
    try {
      if (!follow(node)) set_all(node);
    } catch (const std::exception&) {  // no such operator on bool tensors
      set_all(node);
    }
  }

  at::Tensor taint(const Value* value) const {
    const auto found = taints_.find(value);
    return found == taints_.end() ? at::Tensor() : found->second;
  }

  std::unordered_map<const Value*, at::Tensor> taints_, known_;
  std::unordered_set<const Value*> held_;

 private:
  static at::Tensor everywhere(const Value* value) { return at::ones({}, at::kBool).expand(shape_of(value)); }

  /// Of an operand that is no list.
  at::Tensor taint(const Operand& operand) const { return operand.value() ? taint(operand.value()) : at::Tensor(); }
  at::Tensor full_taint(const Value* value) const {
    const at::Tensor known = taint(value);
    return known.defined() ? known : at::zeros({}, at::kBool).expand(shape_of(value));
  }
  std::optional<at::Tensor> known(const Operand& operand) const {
    const auto found = operand.value() ? known_.find(operand.value()) : known_.end();
    return found == known_.end() || taint(operand).defined() ? std::nullopt : std::optional(found->second);
  }

  void set(const Value* value, const at::Tensor& tainted) {
    if (!tainted.defined() || !value->meta || !tainted.any().item<bool>()) return;
    taints_[value] = tainted.sizes() == shape_of(value) ? tainted : tainted.expand(shape_of(value));
  }

  void set_all(const Node& node) {
    for (const Value* result : node.results)
      if (result->meta) taints_[result] = everywhere(result);
  }

  /// Whole numbers and masks that the samples do not decide.
  void compute(const Node& node) {
    if (node.results.size() != 1 || !node.results[0]->meta || holds_floats(node.results[0]) ||
        known_.count(node.results[0]) || !graph::computes_only(node.op))
      return;
    bool all = true;
    graph::for_each_use(node, [&](const Value* value) { all = all && known_.count(value) != 0; });
    if (!all) return;
    try {
      const auto known = [&](const Value* value) { return known_.at(value); };
      known_[node.results[0]] = graph::evaluate(node, known).at(0).to(at::kCPU);
    } catch (const std::exception&) {  // then it is not known
    }
  }

  // --- rules: where results differ, from where arguments do. False: no rule.

  bool follow(const Node& node) {
    const std::string& name = name_of(node);
    const Semantics& does = semantics_of(node.op);
    if (name.starts_with("triage::")) return follow_own(node);
    if (takes_form_alone(node)) return true;
    if (name == "aten::bernoulli" || name == "aten::normal") return follow_elements(node);  // a number for each element
    if (does.masked_rows == Rule::where) return follow_where(node);
    if (does.masked_rows == Rule::masked_fill) return follow_masked_fill(node);
    if (is_one_of(name, {"aten::mm", "aten::bmm", "aten::mv", "aten::dot"})) return follow_product(node, 0);
    if (is_one_of(name, {"aten::addmm", "aten::baddbmm", "aten::addmv"})) return follow_product(node, 1);
    if (name == "aten::gather") return follow_gather(node);
    if (is_one_of(name, {"aten::scatter", "aten::scatter_add"})) return follow_scatter(node);
    if (is_one_of(name, {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss", "aten::binary_cross_entropy",
                         "aten::soft_margin_loss"}))
      return !sums_losses(node) && follow_elements(node);
    if (sums_losses(node)) return false;
    if (does.sizes == ResultSizes::broadcast || does.masked_rows == Rule::elementwise_backward ||
        does.masked_rows == Rule::glu_backward)
      return follow_elements(node);
    if (is_one_of(name, {"aten::slice_backward", "aten::select_backward", "aten::tril", "aten::triu"}) ||
        does.has(Semantics::moves))
      return follow_moves(node);
    if (is_one_of(name, {"aten::cumsum", "aten::index_add", "aten::_index_put_impl", "aten::unfold_backward",
                         "aten::diagonal_backward", "aten::trace"}))
      return follow_sums(node);
    if (name.starts_with("aten::native_") || name.find("_backward") != std::string::npos) return follow_backward(node);
    if (name == "aten::convolution") return follow_rows(node);
    if (does.sizes == ResultSizes::reduced) return follow_reduction(node);
    if (is_one_of(name, {"aten::_softmax", "aten::_log_softmax", "aten::cumprod", "aten::cummax", "aten::cummin",
                         "aten::logcumsumexp"}))
      return follow_lines(node);
    if (does.has(Semantics::keeps_rows) && name.find("batch_norm") == std::string::npos) return follow_rows(node);
    return false;
  }

  /// What an argument holds does not matter: only its sizes do.
  static bool takes_form_alone(const Node& node) {
    const std::string& name = name_of(node);
    return name.ends_with("_like") || name.starts_with("aten::new_") ||
           is_one_of(name, {"aten::uniform", "aten::normal_functional", "aten::exponential", "aten::geometric",
                            "aten::cauchy", "aten::log_normal", "aten::random"}) ||
           (name == "aten::bernoulli" && node.op.operator_name().overload_name == "p");
  }

  at::Tensor either(const at::Tensor& a, const at::Tensor& b) const {
    if (!a.defined() || !b.defined()) return a.defined() ? a : b;
    return at::logical_or(a, b);
  }
  at::Tensor any_of_operands(const Node& node) const {
    at::Tensor all;
    graph::for_each_use(node, [&](const Value* value) { all = either(all, taint(value)); });
    return all;
  }

  bool follow_elements(const Node& node) {
    at::Tensor all = any_of_operands(node);
    for (const Value* result : node.results) {
      if (semantics_of(node.op).masked_rows == Rule::glu_backward) all = rows_of(all, {});
      set(result, all);
    }
    return true;
  }

  bool follow_where(const Node& node) {
    const at::Tensor a = taint(node.operands[1]), b = taint(node.operands[2]), cond = taint(node.operands[0]);
    const auto mask = known(node.operands[0]);
    set(node.results[0], mask ? chosen_by(mask->to(at::kBool), a, b) : either(cond, either(a, b)));
    return true;
  }

  bool follow_masked_fill(const Node& node) {
    const auto mask = known(node.operands[1]);
    const at::Tensor filled = taint(node.operands[2]);
    if (!mask || filled.defined()) return follow_elements(node);
    if (const at::Tensor tainted = taint(node.operands[0]); tainted.defined())
      set(node.results[0], at::logical_and(tainted, at::logical_not(mask->to(at::kBool))));
    return true;
  }

  /// Whoever adds up marks of differing elements finds out where sums differ.
  static at::Tensor marks(const at::Tensor& tainted) { return tainted.to(at::kFloat); }

  /// Of arguments `first` and the next one; what is before is added.
  bool follow_product(const Node& node, size_t first) {
    const at::Tensor a = taint(node.operands[first]), b = taint(node.operands[first + 1]);
    const auto ones = [&](size_t i) { return at::ones(shape_of(node.operands[i].value())); };
    at::Tensor all;
    if (a.defined()) all = at::matmul(marks(a), ones(first + 1)).gt(0);
    if (b.defined()) all = either(all, at::matmul(ones(first), marks(b)).gt(0));
    if (first > 0) all = either(all, taint(node.operands[0]));
    set(node.results[0], all);
    return true;
  }

  /// Where indices differ, an element may come from anywhere along the dimension.
  bool follow_gather(const Node& node) {
    const at::Tensor places = taint(node.operands[2]);
    if (!places.defined()) return follow_moves(node);
    at::Tensor from = full_taint(node.operands[0].value());
    int64_t dim = node.operands[1].constant()->toInt();
    if (dim < 0) dim += from.dim();
    if (!are_lines(from, shape_of(node.results[0]), dim)) return false;
    set(node.results[0], either(places, from.any(dim, /*keepdim=*/true).expand(shape_of(node.results[0]))));
    return true;
  }
  bool follow_scatter(const Node& node) {
    const at::Tensor places = taint(node.operands[2]);
    if (node.operands.size() != 4 || !node.operands[3].value()) return false;
    if (!places.defined()) return name_of(node) == "aten::scatter" ? follow_moves(node) : follow_sums(node);
    const at::Tensor source = full_taint(node.operands[3].value());
    int64_t dim = node.operands[1].constant()->toInt();
    if (dim < 0) dim += places.dim();
    const auto& to = shape_of(node.results[0]);
    if (source.sizes() != places.sizes() || !are_lines(places, to, dim)) return false;
    const at::Tensor lines = at::logical_or(places, source).any(dim, /*keepdim=*/true).expand(to);
    set(node.results[0], either(taint(node.operands[0]), lines));
    return true;
  }

  /// The same call, on marks in the place of what it moves; indices must be known.
  bool follow_moves(const Node& node) {
    return call_on(node, [](const at::Tensor& mark) { return mark; });
  }
  bool follow_sums(const Node& node) { return call_on(node, marks); }

  template <class Form>
  bool call_on(const Node& node, const Form& form) {
    bool can = true;
    const Value* const data = node.operands.empty() ? nullptr : node.operands[0].value();
    const auto lookup = [&](const Value* value) -> at::Tensor {
      const bool moves = value == data && value->meta->dtype == at::kBool && taint(value).defined();  // a mask
      if (holds_floats(value) || moves) return form(full_taint(value)).contiguous();
      if (taint(value).defined() || !known_.count(value)) return can = false, at::Tensor();
      return known_.at(value);
    };
    graph::for_each_use(node, [&](const Value* value) { lookup(value); });
    if (!can) return false;
    Node call(node);
    const auto& arguments = node.op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == "value" && call.operands[i].constant()) call.operands[i] = c10::IValue(int64_t{0});
      if (arguments[i].name() == "dtype" && call.operands[i].constant()) call.operands[i] = c10::IValue();
    }
    const auto results = graph::evaluate(call, lookup);
    if (results.size() != node.results.size()) return false;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].sizes() != shape_of(node.results[i])) return false;
      set(node.results[i], results[i].ne(0));
    }
    return true;
  }

  /// Whether any element of a row differs; `last`: of the last dimensions alone, that many.
  static at::Tensor rows_of(const at::Tensor& tainted, std::optional<int64_t> last) {
    if (!tainted.defined()) return tainted;
    at::Tensor rows = tainted;
    const int64_t first = last ? std::max<int64_t>(tainted.dim() - *last, 0) : 1;
    for (int64_t dim = first; dim < tainted.dim(); ++dim) rows = rows.any(dim, /*keepdim=*/true);
    return rows;
  }
  static at::Tensor in_rows(at::Tensor rows, const Value* result) {
    const auto rank = static_cast<int64_t>(shape_of(result).size());
    while (rows.dim() > rank) rows = rows.squeeze(-1);
    while (rows.dim() < rank) rows = rows.unsqueeze(-1);
    return rows.expand(shape_of(result));
  }

  /// Row i of the results is of row i of argument 0; all others are the same for all rows.
  bool follow_rows(const Node& node) {
    if (names_dim_0(node)) return false;
    const Value* first = node.operands[0].value();
    if (!first || shape_of(first).empty()) return false;
    bool others = false;
    for (size_t i = 1; i < node.operands.size(); ++i)
      graph::for_each_use(node.operands[i], [&](const Value* value) { others |= taint(value).defined(); });
    if (others) return false;
    return set_rows(node, rows_of(taint(first), {}));
  }

  bool set_rows(const Node& node, const at::Tensor& rows) {
    for (const Value* result : node.results) {
      if (!result->meta || elements_of(result) == 0) continue;
      if (shape_of(result).empty() && name_of(node).ends_with("_forward")) continue;  // what a loss divides by, or not
      if (shape_of(result).empty() || shape_of(result)[0] != rows.size(0)) return false;
      set(result, in_rows(rows, result));
    }
    return true;
  }

  static bool names_dim_0(const Node& node) {
    const char* const names[] = {"dim", "dims", "dim0", "dim1", "dim2"};
    return std::any_of(std::begin(names), std::end(names), [&](const char* name) {
      const c10::IValue* dims = constant_argument(node, name);
      return dims && names_rows(node, *dims);
    });
  }
  static bool names_rows(const Node& node, const c10::IValue& dims) {
    const auto rank = static_cast<int64_t>(shape_of(node.operands[0].value()).size());
    const auto is_first = [&](int64_t dim) { return dim == 0 || dim == -rank; };
    if (dims.isInt()) return is_first(dims.toInt());
    if (!dims.isIntList()) return dims.isNone();
    const auto list = dims.toIntVector();
    return list.empty() || std::any_of(list.begin(), list.end(), is_first);
  }

  /// The dimensions that a reduction or a run along a line names; nothing where it names none.
  std::optional<std::vector<int64_t>> dims_of(const Node& node) const {
    const c10::IValue* dims = constant_argument(node, "dim");
    if (!dims || dims->isNone()) return std::nullopt;
    if (dims->isInt()) return std::vector<int64_t>{dims->toInt()};
    const auto list = dims->toIntVector();
    return list.empty() ? std::nullopt : std::optional(list);
  }

  bool follow_reduction(const Node& node) {
    const at::Tensor tainted = taint(node.operands[0]);
    const auto dims = dims_of(node);
    if (!tainted.defined() || !dims || node.results.size() != 1) return false;
    const c10::IValue* keep = constant_argument(node, "keepdim");
    set(node.results[0], at::sum(marks(tainted), *dims, keep && keep->isBool() && keep->toBool()).gt(0));
    return true;
  }

  bool follow_lines(const Node& node) {
    const auto dims = dims_of(node);
    at::Tensor all = taint(node.operands[0]);
    if (!dims || !all.defined()) return false;
    for (const int64_t dim : *dims) all = all.any(dim, /*keepdim=*/true);
    for (const Value* result : node.results) set(result, all.expand(shape_of(result)));
    return true;
  }

  at::Tensor of_arguments(const Node& node, std::initializer_list<const char*> names) const {
    at::Tensor all;
    for (const char* name : names)
      if (const auto at = argument(node, name)) {
        at::Tensor more = taint(node.operands[*at]);
        if (more.defined() && all.defined() && more.sizes() != all.sizes())
          more = rows_of(more, {}), all = rows_of(all, {});
        all = either(all, more);
      }
    return all;
  }
  void set_whole(const Value* result, const at::Tensor& tainted) {
    if (tainted.defined() && result->meta) taints_[result] = everywhere(result);
  }

  bool follow_backward(const Node& node) {
    const std::string& name = name_of(node);
    const auto results = [&](size_t i) { return node.results[i]; };
    if (is_one_of(name, {"aten::_softmax_backward_data", "aten::_log_softmax_backward_data"})) {
      const auto dims = dims_of(node);
      if (!dims) return false;
      set(results(0), any_of_operands(node).any((*dims)[0], true).expand(shape_of(results(0))));
      return true;
    }
    if (name == "aten::native_layer_norm" || name == "aten::native_layer_norm_backward") {
      const auto count = static_cast<int64_t>(constant_argument(node, "normalized_shape")->toIntVector().size());
      const at::Tensor all = rows_of(of_arguments(node, {"grad_out", "input", "mean", "rstd"}), count);
      if (of_arguments(node, {"weight", "bias"}).defined() && name == "aten::native_layer_norm") return false;
      if (results(0)->meta && all.defined()) set(results(0), all.expand(shape_of(results(0))));
      if (name == "aten::native_layer_norm") {
        for (const size_t i : {1, 2}) set(results(i), all);
      } else {
        if (of_arguments(node, {"weight"}).defined()) return false;
        set_whole(results(1), all);
        set_whole(results(2), of_arguments(node, {"grad_out"}));
      }
      return true;
    }
    if (name.starts_with("aten::native_batch_norm")) {
      const c10::IValue* trains = constant_argument(node, name.ends_with("_backward") ? "train" : "training");
      if (!trains || !trains->isBool() || trains->toBool()) return false;
      if (!name.ends_with("_backward")) return follow_rows(node);
    }
    if (name == "aten::convolution_backward" || name == "aten::native_group_norm_backward" ||
        name == "aten::native_batch_norm_backward") {
      const bool norm = name == "aten::native_group_norm_backward";
      if (of_arguments(node, {"weight"}).defined()) return false;
      const at::Tensor of_gradient = of_arguments(node, {"grad_output", "grad_out"});
      const at::Tensor all = of_arguments(node, {"grad_output", "grad_out", "input", "mean", "rstd"});
      const at::Tensor of_rows = norm ? all : of_gradient;
      if (of_rows.defined() && results(0)->meta) set(results(0), in_rows(rows_of(of_rows, {}), results(0)));
      set_whole(results(1), all);
      set_whole(results(2), of_gradient);
      return true;
    }
    if (name == "aten::native_group_norm")
      return of_arguments(node, {"weight", "bias"}).defined() ? false : follow_rows(node);
    if (name == "aten::native_dropout" || name == "aten::native_dropout_backward") return follow_elements(node);
    // Of poolings, paddings and the like: row by row, whatever they take.
    if (semantics_of(node.op).has(Semantics::keeps_rows))
      return !names_dim_0(node) && set_rows(node, rows_of_all(node));
    return false;
  }

  at::Tensor rows_of_all(const Node& node) const {
    at::Tensor all;
    graph::for_each_use(node, [&](const Value* value) {
      at::Tensor rows = rows_of(taint(value), {});
      if (rows.defined()) all = either(all, rows.flatten());
    });
    return all;
  }

  /// Operators on flags, and those that repair: row by row.
  bool follow_own(const Node& node) {
    const std::string& name = name_of(node);
    if (is_one_of(name, {"triage::guard_grad", "triage::replace"})) return follow_elements(node);
    if (name == "triage::select") {
      const auto mask = known(node.operands[0]);
      if (mask)
        set(node.results[0],
            chosen_by(in_rows(*mask, node.results[0]), taint(node.operands[1]), taint(node.operands[2])));
      return mask.has_value();
    }
    at::Tensor all;
    bool rows_only = true;
    graph::for_each_use(node, [&](const Value* value) {
      const at::Tensor tainted = taint(value);
      if (!tainted.defined()) return;
      if (tainted.dim() == 0) return void(rows_only = false);
      const at::Tensor rows = rows_of(tainted, {}).flatten();
      if (all.defined() && all.size(0) != rows.size(0)) return void(rows_only = false);
      all = either(all, rows);
    });
    if (!rows_only) return false;
    for (const Value* result : node.results)
      if (shape_of(result).empty() || shape_of(result)[0] != all.size(0)) return false;
    const at::Tensor repaired = replaced_rows(node);
    for (size_t i = 0; i < node.results.size(); ++i)
      set(node.results[i], in_rows(i == 0 && repaired.defined() ? at::logical_and(all, at::logical_not(repaired)) : all,
                                   node.results[i]));
    return true;
  }

  /// The rows that a repair overwrites, by the mask that its gradient has.
  at::Tensor replaced_rows(const Node& node) const {
    const Node* match = search_of(node);
    const auto found = match ? known_.find(match->results[0]) : known_.end();
    if (found == known_.end()) return {};
    return name_of(node) == "triage::take_err_p" ? at::logical_not(found->second) : found->second;
  }

  std::unordered_map<const Value*, std::vector<const Node*>> searches_;  // by the flags that they look at
};

Taint::Taint(const Graph& graph) : rules_(std::make_unique<TaintRules>(graph)) {}
Taint::~Taint() = default;

void Taint::begin_with(const Value* value, const at::Tensor& tainted) { rules_->taints_[value] = tainted; }
void Taint::know(const Value* value, const at::Tensor& known) { rules_->known_.emplace(value, known.to(at::kCPU)); }
void Taint::hold(const Value* mask, const at::Tensor& known) {
  rules_->known_[mask] = known;
  rules_->held_.insert(mask);
}
void Taint::visit(const Node& node) { rules_->visit(node); }
at::Tensor Taint::of(const Value* value) const { return rules_->taint(value); }
const Node* Taint::search_of(const Node& repair) const { return rules_->search_of(repair); }

}  // namespace triage::aot
