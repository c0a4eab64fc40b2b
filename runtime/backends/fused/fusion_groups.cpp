#include "runtime/backends/fused/fusion_groups.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "runtime/backends/fused/gpu/gpu_group.h"
#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/backends/fused/parts/in_place_call.h"
#include "runtime/backends/fused/parts/pooled_call.h"
#include "runtime/backends/fused/regions.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/operators/semantics.h"

namespace triage::fused {
namespace {

using graph::Graph;
using graph::Node;
using graph::Operand;
using graph::Value;

constexpr int64_t fewest_nodes = 2;  // but for those below, a single operator gains nothing

/// Sums and functions that ATen rounds by where an element lies, so that a row's bits follow its neighbours and the threads. In
/// loops they do not. (FusedGroup leaves those of short rows to ATen, where one by itself would take longer.)
bool is_worth_a_loop(const Node& node) {
  const auto& meta = node.results[0]->meta;
  return meta && at::isFloatingType(meta->dtype) &&
         operators::semantics_of(node.op).has(operators::Semantics::rounds_by_position);
}

/// Not what only says how elements are counted.
bool computes(const Node& node) {
  const std::string op = graph::op_name(node.op);
  return !is_reshape(op) && op != "triage::size";
}

/// An operation on flags by itself: one kernel of the CPU, and several calls of ATen elsewhere.
bool is_of_flags(const Node& node) { return graph::op_name(node.op).rfind("triage::", 0) == 0 && computes(node); }

bool is_worth_a_loop(const std::vector<const Node*>& nodes, c10::Device device) {
  const auto of_flags = [](const Node* node) { return is_of_flags(*node); };
  if (!device.is_cpu() && std::any_of(nodes.begin(), nodes.end(), of_flags)) return true;
  const auto computing = std::count_if(nodes.begin(), nodes.end(), [](const Node* node) { return computes(*node); });
  const auto found = std::find_if(nodes.begin(), nodes.end(), [](const Node* node) { return computes(*node); });
  return computing >= fewest_nodes || (computing == 1 && is_worth_a_loop(**found));
}

void each_value(const Operand& operand, const std::function<void(const Value*)>& visit) {
  if (const Value* value = operand.value()) visit(value);
  if (const auto* items = operand.list())
    for (const Operand& item : *items) each_value(item, visit);
}

class Cutter {
 public:
  Cutter(const Graph& graph, c10::Device device) : graph_(graph), device_(device) {
    for (const auto& input : graph.inputs()) available_.insert(input.value);
    for (const auto& constant : graph.constants()) available_.insert(constant.value);
    for (const auto& node : graph.nodes()) waiting_.push_back(node.get());
    for (const auto& node : graph.nodes())
      for (const auto& operand : node->operands)
        each_value(operand, [&](const Value* value) { users_[value].insert(node.get()); });
    outputs_.insert(graph.outputs().begin(), graph.outputs().end());
  }

  std::vector<FusionGroup> run() {
    while (!waiting_.empty()) {
      take_numbers();
      const size_t before = waiting_.size();
      take_group();
      take_others(/*refuse=*/waiting_.size() == before);
    }
    return std::move(groups_);
  }

 private:
  bool ready(const Node& node, const std::unordered_set<const Value*>& made) const {
    bool all = true;
    for (const auto& operand : node.operands)
      each_value(operand, [&](const Value* value) { all &= available_.count(value) || made.count(value); });
    return all;
  }

  static bool has_order(const Node& node) {
    return graph::is_random(node.op) || graph::is_effect(node.op) || node.checks;
  }

  /// The batch sizes, as captured, that tensors a waiting node reads may have.
  std::set<int64_t> batches() const {
    std::set<int64_t> sizes;
    for (const Node* node : waiting_) {
      if (!can_lower(graph::op_name(node->op))) continue;
      for (const auto& operand : node->operands)
        each_value(operand, [&](const Value* value) {
          if (available_.count(value) && value->meta && !value->meta->sizes.empty())
            sizes.insert(value->meta->sizes[0]);
        });
    }
    return sizes;
  }

  /// What computes numbers from sizes and numbers alone, and is no loop's: where a loop reads them, they come first, else what
  /// reads them would have to wait for the loop after that.
  void take_numbers() {
    std::unordered_set<const Value*> made;
    std::vector<const Node*> nodes;
    for (const Node* node : waiting_) {
      if (!ready(*node, made) || has_order(*node) || !computes_numbers(*node)) continue;
      if (can_lower(graph::op_name(node->op)) && !calls_.count(node)) continue;
      nodes.push_back(node);
      made.insert(node->results.begin(), node->results.end());
    }
    const bool read = std::any_of(waiting_.begin(), waiting_.end(), [&](const Node* node) {
      return !made.count(node->results.empty() ? nullptr : node->results[0]) && can_lower(graph::op_name(node->op)) &&
             reads_any(*node, made);
    });
    if (read) finish(make_group(nodes, false), nodes);
  }

  static bool is_number(const Value* value) { return value->meta && value->meta->sizes.empty(); }

  static bool computes_numbers(const Node& node) {
    bool all = !node.results.empty() && std::all_of(node.results.begin(), node.results.end(), is_number);
    if (graph::op_name(node.op) == "triage::size") return all;
    for (const auto& operand : node.operands) each_value(operand, [&](const Value* value) { all &= is_number(value); });
    return all;
  }

  static bool reads_any(const Node& node, const std::unordered_set<const Value*>& values) {
    bool any = false;
    for (const auto& operand : node.operands)
      each_value(operand, [&](const Value* value) { any |= values.count(value) != 0; });
    return any;
  }

  /// The largest group that can run now becomes a part. It gives no numbers: those that others read are calls.
  void take_group() {
    for (;;) {
      const auto [nodes, batch] = largest_group();
      if (!is_worth_a_loop(nodes, device_)) return;
      if (take_weights(nodes, batch)) continue;
      const size_t before = calls_.size();
      const std::set<const Node*> inside(nodes.begin(), nodes.end());
      for (const Node* node : nodes)
        if (computes_numbers(*node) && is_read_outside(node->results[0], inside)) calls_.insert(node);
      if (calls_.size() == before) return add_group(nodes, batch);
      take_numbers();
    }
  }

  std::pair<std::vector<const Node*>, int64_t> largest_group() const {
    std::pair<std::vector<const Node*>, int64_t> best;
    for (const int64_t batch : batches())
      if (auto nodes = group(batch, {}); nodes.size() > best.first.size()) best = {std::move(nodes), batch};
    drop_last_reshapes(best.first);
    return best;
  }

  /// Where only others read what loops have, they look at it in other sizes by themselves: it is not written once more.
  void drop_last_reshapes(std::vector<const Node*>& nodes) const {
    std::set<const Node*> inside;
    std::vector<const Node*> kept;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      const auto users = users_.find((*node)->results.empty() ? nullptr : (*node)->results[0]);
      const bool read = users != users_.end() &&
                        std::any_of(users->second.begin(), users->second.end(),
                                    [&](const Node* user) { return inside.count(user) || dim_of_join(*user); });
      if (is_reshape(graph::op_name((*node)->op)) && !read && !outputs_.count((*node)->results[0])) continue;
      inside.insert(*node);
      kept.push_back(*node);
    }
    nodes.assign(kept.rbegin(), kept.rend());
  }

  /// What loops over `batch` rows can compute, where `made` were there and the nodes that make them are not to be looked at.
  std::vector<const Node*> group(int64_t batch, std::unordered_set<const Value*> made) const {
    Lowering lowering(batch, device_);
    std::vector<const Node*> nodes;
    for (const Node* node : waiting_) {
      if (calls_.count(node) || (!node->results.empty() && made.count(node->results[0]))) continue;
      if (!ready(*node, made) || !lowering.add(*node)) continue;
      nodes.push_back(node);
      made.insert(node->results.begin(), node->results.end());
    }
    return nodes;
  }

  /// What is computed from no data of the batch, such as `1 + scale`, comes first where a group gets larger by it.
  bool take_weights(const std::vector<const Node*>& inside, int64_t batch) {
    const auto is_data = [&](const Value* value) {
      return !value->meta || (!value->meta->sizes.empty() && value->meta->sizes[0] == batch);
    };
    std::unordered_set<const Value*> made;
    std::vector<const Node*> nodes;
    for (const Node* node : waiting_) {
      bool data = has_order(*node) || std::find(inside.begin(), inside.end(), node) != inside.end();
      for (const auto& operand : node->operands)
        each_value(operand, [&](const Value* value) { data |= is_data(value); });
      if (data || graph::op_name(node->op) == "triage::size" || !ready(*node, made)) continue;
      nodes.push_back(node);
      made.insert(node->results.begin(), node->results.end());
    }
    const std::vector<const Node*> larger = group(batch, made);
    if (larger.size() <= inside.size()) return false;
    std::unordered_set<const Value*> read;
    const auto reads = [&](const Node* node) {
      for (const auto& operand : node->operands) each_value(operand, [&](const Value* value) { read.insert(value); });
    };
    for (const Node* node : larger) reads(node);
    std::vector<const Node*> kept;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      const auto& results = (*node)->results;
      if (std::none_of(results.begin(), results.end(), [&](const Value* value) { return read.count(value) != 0; }))
        continue;
      reads(*node);
      kept.insert(kept.begin(), *node);
    }
    if (kept.empty()) return false;
    finish(make_group(kept, false), kept);
    return true;
  }

  void add_group(std::vector<const Node*> nodes, int64_t batch) {
    Lowering lowering(batch, device_);
    for (const Node* node : nodes) lowering.add(*node);
    const std::set<const Node*> joins = joins_of(nodes, lowering);
    if (!joins.empty()) {
      const std::set<const Node*> inside(nodes.begin(), nodes.end());
      nodes.clear();
      for (const Node* node : waiting_)
        if (inside.count(node) || joins.count(node)) nodes.push_back(node);
    }
    FusionGroup part = make_group(nodes, true);
    std::vector<const Value*> computed;
    for (const Value* output : part.outputs)
      if (!joins.count(output->producer)) computed.push_back(output);
    for (size_t i = 0; i < part.outputs.size(); ++i)
      if (const Node* join = part.outputs[i]->producer; joins.count(join)) {
        part.joins.push_back({i, dim_of_join(*join).value(), is_stack(*join), {}});
        each_value(join->operands[0], [&](const Value* piece) {
          part.joins.back().pieces.push_back(computed.size());
          computed.push_back(piece);
        });
      }
    part.loops = lowering.finish(computed);
    const std::vector<const Value*>& arguments = lowering.arguments();
    for (LoopInput& input : part.loops.inputs) {
      const auto found = std::find(part.inputs.begin(), part.inputs.end(), arguments[input.argument]);
      input.argument = static_cast<size_t>(found - part.inputs.begin());
    }
    part.fused = true;
    if (!device_.is_cpu() && !can_be_gpu_group(part)) part.fused = false, part.loops = {};
    finish(std::move(part), nodes);
  }

  /// The calls that join what the group makes with one another, or with data that is there: loops can write to their results.
  std::set<const Node*> joins_of(const std::vector<const Node*>& nodes, Lowering& lowering) const {
    std::unordered_set<const Value*> made;
    for (const Node* node : nodes) made.insert(node->results.begin(), node->results.end());
    std::set<const Node*> joins;
    if (!device_.is_cpu()) return joins;
    for (const Node* node : waiting_) {
      if (!dim_of_join(*node) || !ready(*node, made)) continue;
      bool any = false, all = true;
      each_value(node->operands[0], [&](const Value* piece) {
        any |= made.count(piece) != 0;
        all &= piece->meta && piece->meta->dtype == node->results[0]->meta->dtype &&
               piece->meta->sizes.size() == node->results[0]->meta->sizes.size() - (is_stack(*node) ? 1 : 0);
      });
      each_value(node->operands[0], [&](const Value* piece) { all = all && any && lowering.has_data(*piece); });
      if (any && all) joins.insert(node);
    }
    return joins;
  }

  static bool is_stack(const Node& node) { return graph::op_name(node.op) == "aten::stack"; }

  /// Along which the call joins tensors; nothing where it is another one.
  static std::optional<int64_t> dim_of_join(const Node& node) {
    const std::string name = graph::op_name(node.op);
    if (name != "aten::cat" && name != "aten::stack") return std::nullopt;
    const auto* dim = node.operands[1].constant();
    const auto& made = node.results[0]->meta;
    const auto* items = node.operands[0].list();
    if (!dim || !dim->isInt() || !made || made->sizes.empty() || node.results[0]->is_flags || !items)
      return std::nullopt;
    if (std::any_of(items->begin(), items->end(), [](const Operand& item) { return !item.value(); }))
      return std::nullopt;
    const int64_t at = dim->toInt(), rank = static_cast<int64_t>(made->sizes.size());
    return (name == "aten::stack" && (at == 0 || at == -rank)) ? std::nullopt : std::optional(at < 0 ? at + rank : at);
  }

  /// Everything that can run now and that no group could take; where there is nothing and `refuse`, one node that a group could
  /// have taken and did not.
  void take_others(bool refuse) {
    std::unordered_set<const Value*> made;
    std::vector<const Node*> nodes;
    const Node* refused = nullptr;
    bool order_kept = true;
    for (const Node* node : waiting_) {
      const bool can = ready(*node, made) && (order_kept || !has_order(*node));
      if (can && (calls_.count(node) || !can_lower(graph::op_name(node->op)))) {
        nodes.push_back(node);
        made.insert(node->results.begin(), node->results.end());
        continue;
      }
      if (can && !refused && made.empty()) refused = node;
      order_kept &= !has_order(*node);
    }
    if (nodes.empty() && refused && refuse) nodes.push_back(refused);
    if (!nodes.empty()) finish_calls(nodes);
  }

  /// Calls that can write to pooled memory are parts of their own, with the views that they alone read; so are those that can write
  /// in the place of what another part has made.
  void finish_calls(const std::vector<const Node*>& nodes) {
    std::vector<std::vector<const Node*>> groups(1);
    std::set<const Node*> pooled;
    for (const Node* node : nodes) {
      groups.back().push_back(node);
      if (overwrites(*node)) {
        groups.back().pop_back();
        if (groups.back().empty()) groups.pop_back();
        groups.push_back({node});
        groups.emplace_back();
        continue;
      }
      if (!PooledCall::takes(*node) || has_order(*node)) continue;
      std::vector<const Node*> own = own_views(*node, groups.back());
      own.push_back(node);
      auto& rest = groups.back();
      rest.erase(std::remove_if(rest.begin(), rest.end(),
                                [&](const Node* other) { return std::count(own.begin(), own.end(), other) > 0; }),
                 rest.end());
      if (rest.empty()) groups.pop_back();
      groups.push_back(std::move(own));
      groups.emplace_back();
      pooled.insert(node);
    }
    if (groups.back().empty()) groups.pop_back();
    for (const auto& group : groups) {
      FusionGroup part = make_group(group, false);
      part.pooled = pooled.count(group.back()) != 0 && part.outputs.size() == 1;
      part.in_place = group.size() == 1 && overwrites(*group.back());
      finish(std::move(part), group);
    }
  }

  /// Whether it can write in the place of its first argument, which nobody reads but it.
  bool overwrites(const Node& node) const {
    if (has_order(node) || !InPlaceCall::takes(node)) return false;
    const Value* first = node.operands[0].value();
    return !outputs_.count(first) && users_.at(first).size() == 1;
  }

  /// The views among `nodes` that only `node` reads, and those that only they read.
  std::vector<const Node*> own_views(const Node& node, const std::vector<const Node*>& nodes) const {
    std::set<const Node*> inside{&node};
    std::vector<const Node*> own;
    for (auto view = nodes.rbegin(); view != nodes.rend(); ++view) {
      if (*view == &node || !graph::is_view((*view)->op) || (*view)->results.size() != 1) continue;
      const auto users = users_.find((*view)->results[0]);
      if (users == users_.end() || is_read_outside((*view)->results[0], inside)) continue;
      inside.insert(*view);
      own.insert(own.begin(), *view);
    }
    return own;
  }

  void finish(FusionGroup part, const std::vector<const Node*>& nodes) {
    for (const Node* node : nodes) {
      available_.insert(node->results.begin(), node->results.end());
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), node));
    }
    groups_.push_back(std::move(part));
  }

  /// A graph of these nodes. Its inputs are what they read from outside (of a fused group the constants too), its outputs
  /// what others read.
  FusionGroup make_group(const std::vector<const Node*>& nodes, bool fused) {
    FusionGroup part{Graph(graph_.name()), {}, {}, nodes, false, false, false, {}, {}, {}};
    std::unordered_map<const Value*, Value*> twins;
    const std::set<const Node*> inside(nodes.begin(), nodes.end());
    const auto twin = [&](const Value* value) {
      if (const auto found = twins.find(value); found != twins.end()) return found->second;
      const at::Tensor* tensor = graph_.constant_of(value);
      if (tensor && !fused) return twins[value] = part.graph.add_constant(*tensor);
      const std::string name = "in" + std::to_string(part.inputs.size());
      Value* made = part.graph.add_input(name, kind_of(value), value->meta);
      part.graph.edit(made).is_flags = value->is_flags;
      part.inputs.push_back(value);
      return twins[value] = made;
    };
    for (const Node* node : nodes) {
      std::vector<Operand> operands;
      for (const Operand& operand : node->operands) operands.push_back(copied(operand, twin));
      Node* made = part.graph.append(node->op, std::move(operands), node->results.size(), node->source);
      made->checks = node->checks;
      for (size_t i = 0; i < node->results.size(); ++i) {
        graph::copy_facts(*node->results[i], part.graph.edit(made->results[i]));
        twins[node->results[i]] = made->results[i];
      }
    }
    std::vector<Value*> results;
    for (const Node* node : nodes)
      for (const Value* result : node->results)
        if (is_read_outside(result, inside)) {
          part.outputs.push_back(result);
          results.push_back(twins.at(result));
        }
    part.graph.set_outputs(std::move(results));
    return part;
  }

  template <typename Twin>
  static Operand copied(const Operand& operand, const Twin& twin) {
    if (const Value* value = operand.value()) return twin(value);
    if (const auto* constant = operand.constant()) return *constant;
    std::vector<Operand> items;
    for (const Operand& item : *operand.list()) items.push_back(copied(item, twin));
    return items;
  }

  graph::InputKind kind_of(const Value* value) const {
    for (const auto& input : graph_.inputs())
      if (input.value == value) return input.kind;
    return graph::InputKind::tensor;
  }

  bool is_read_outside(const Value* value, const std::set<const Node*>& inside) const {
    if (outputs_.count(value)) return true;
    const auto users = users_.find(value);
    if (users == users_.end()) return false;
    return std::any_of(users->second.begin(), users->second.end(),
                       [&](const Node* user) { return !inside.count(user); });
  }

  const Graph& graph_;
  const c10::Device device_;
  std::vector<const Node*> waiting_;
  std::set<const Node*> calls_;  // no loop's, though one could compute them
  std::unordered_set<const Value*> available_;
  std::unordered_map<const Value*, std::set<const Node*>> users_;
  std::unordered_set<const Value*> outputs_;
  std::vector<FusionGroup> groups_;
};

}  // namespace

namespace {

/// What loops give is contiguous, where ATen would have kept the order of dims that a transposed input has, or have given a view.
/// No part asks that of the others, nor do the operators that serve where a group has no kernel. `made`: by loops, or computed from that.
void reshape_what_loops_made(std::vector<FusionGroup>& parts, std::unordered_set<const Value*> made) {
  for (FusionGroup& part : parts) {
    std::unordered_set<const Value*> inside;
    for (size_t i = 0; i < part.inputs.size(); ++i)
      if (made.count(part.inputs[i])) inside.insert(part.graph.inputs()[i].value);
    graph::reshape_what_follows(part.graph, inside);
    for (size_t i = 0; i < part.outputs.size(); ++i)
      if (part.fused || inside.count(part.graph.outputs()[i])) made.insert(part.outputs[i]);
  }
}

/// Whether a random operator gives its numbers to elements as they lie in memory. These are known to give them by indices.
bool draws_by_memory(const Node& node) {
  static const auto& by_index =
      *new std::unordered_set<std::string>{"aten::bernoulli", "aten::bernoulli.p", "aten::normal.Tensor_float",
                                           "aten::normal.float_Tensor", "aten::normal.Tensor_Tensor"};
  return graph::is_random(node.op) && !by_index.count(graph::op_name(node.op));
}

/// Of a transposed input ATen makes transposed results where loops make contiguous ones: a number that is drawn for one of their
/// elements would go to another one. Marks the parts that such a draw follows from.
void keep_order_of_draws(const Graph& graph, std::vector<FusionGroup>& parts) {
  std::unordered_set<const Value*> drawn_for;
  const auto is_marked = [&](const Value* value) { return drawn_for.count(value) != 0; };
  const auto& nodes = graph.nodes();
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const auto& results = (*node)->results;
    if (!draws_by_memory(**node) && std::none_of(results.begin(), results.end(), is_marked)) continue;
    graph::for_each_use(**node, [&](const Value* value) {
      if (!value->meta || value->meta->sizes.size() > 1) drawn_for.insert(value);
    });
  }
  if (drawn_for.empty()) return;
  const auto code_of = [&](FusionGroup& part) -> FusionGroup& { return part.same_as ? parts[*part.same_as] : part; };
  for (FusionGroup& part : parts)
    if (std::any_of(part.outputs.begin(), part.outputs.end(), is_marked)) code_of(part).keeps_order = true;
  for (FusionGroup& part : parts) part.pooled &= !code_of(part).keeps_order;  // that memory is contiguous, too
}

std::vector<FusionGroup> cut_by_operators(const Graph& graph, c10::Device device, bool inputs_from_loops) {
  std::vector<FusionGroup> parts = Cutter(graph, device).run();
  std::unordered_set<const Value*> made;
  if (inputs_from_loops)
    for (const auto& input : graph.inputs()) made.insert(input.value);
  reshape_what_loops_made(parts, std::move(made));
  return parts;
}

}  // namespace

std::vector<FusionGroup> cut(const Graph& graph, c10::Device device, bool inputs_from_loops) {
  std::vector<FusionGroup> parts =
      has_regions(graph) ? cut_by_regions(graph, device) : cut_by_operators(graph, device, inputs_from_loops);
  if (!inputs_from_loops) keep_order_of_draws(graph, parts);  // else whoever has the whole graph does
  return parts;
}

bool is_as_seen(const at::Tensor& tensor, const std::optional<graph::TensorMeta>& seen) {
  return seen && tensor.defined() && tensor.dim() == static_cast<int64_t>(seen->sizes.size()) &&
         tensor.scalar_type() == seen->dtype && tensor.device().is_cpu();
}

}  // namespace triage::fused
