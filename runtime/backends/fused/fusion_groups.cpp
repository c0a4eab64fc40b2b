#include "runtime/backends/fused/fusion_groups.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "runtime/backends/fused/gpu/gpu_group.h"
#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/backends/fused/parts/in_place_call.h"
#include "runtime/backends/fused/parts/pooled_call.h"
#include "runtime/backends/fused/regions.h"
#include "runtime/backends/fused/strided_views.h"
#include "runtime/backends/fused/waiting_nodes.h"
#include "runtime/graph/copy.h"
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

/// Sums and functions that ATen rounds by where an element lies, so that a row's bits follow its neighbours and the
/// threads. In loops they do not. (FusedGroup leaves those of short rows to ATen, where one by itself would take
/// longer.)
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

/// An operation on flags by itself: one loop of the CPU (runtime/flags/kernels), and several calls of ATen elsewhere.
bool is_of_flags(const Node& node) { return graph::op_name(node.op).rfind("triage::", 0) == 0 && computes(node); }

bool computes_numbers(const Node& node) {
  bool all = !node.results.empty() && std::all_of(node.results.begin(), node.results.end(), is_number);
  if (graph::op_name(node.op) == "triage::size") return all;
  graph::for_each_use(node, [&](const Value* value) { all &= is_number(value); });
  return all;
}

bool is_worth_a_loop(const std::vector<const Node*>& nodes, c10::Device device) {
  if (std::all_of(nodes.begin(), nodes.end(), [](const Node* node) { return computes_numbers(*node); })) return false;
  const auto of_flags = [](const Node* node) { return is_of_flags(*node); };
  if (!device.is_cpu() && std::any_of(nodes.begin(), nodes.end(), of_flags)) return true;
  const auto computing = std::count_if(nodes.begin(), nodes.end(), [](const Node* node) { return computes(*node); });
  const auto found = std::find_if(nodes.begin(), nodes.end(), [](const Node* node) { return computes(*node); });
  return computing >= fewest_nodes || (computing == 1 && is_worth_a_loop(**found));
}

using Values = WaitingNodes::Values;

class FusionGroupCutter {
 public:
  FusionGroupCutter(const Graph& graph, c10::Device device, std::unordered_set<const Node*> calls)
      : graph_(graph), device_(device), waiting_(graph), calls_(std::move(calls)) {
    outputs_.insert(graph.outputs().begin(), graph.outputs().end());
    for (const auto& input : graph.inputs()) {
      kinds_[input.value] = input.kind;
      if (input.kind == graph::InputKind::param) wrapped_.insert(input.value);
    }
    for (const auto& constant : graph.constants())
      if (constant.tensor.unsafeGetTensorImpl()->is_wrapped_number()) wrapped_.insert(constant.value);
    find_numbers_of_loops();
  }

  std::vector<FusionGroup> run() {
    while (!waiting_.empty()) {
      take_numbers();
      const size_t before = waiting_.count();
      take_group();
      take_others(/*refuse=*/waiting_.count() == before);
    }
    return std::move(groups_);
  }

 private:
  /// Loops compute the numbers that they alone read, of sizes and numbers. (Users come after what they read.)
  void find_numbers_of_loops() {
    const auto& nodes = graph_.nodes();
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (graph::has_order(**node) || !computes_numbers(**node) ||
          !(can_lower(graph::op_name((*node)->op)) || is_host_call(**node)))
        continue;
      const Value* const result = (*node)->results[0];
      const auto& users = waiting_.users(result);
      const bool all = std::all_of(users.begin(), users.end(), [&](const Node* user) { return is_for_loops(*user); });
      if (all && !users.empty() && !outputs_.count(result)) numbers_.insert(node->get());
    }
  }

  /// Whether a group may take it.
  bool is_for_loops(const Node& node) const {
    if (calls_.count(&node)) return false;
    if (computes_numbers(node)) return numbers_.count(&node) != 0;
    return can_lower(graph::op_name(node.op)) && (reads_data(node) || is_read_by_loops(node));
  }

  /// Not what makes a tensor of numbers and sizes alone.
  static bool reads_data(const Node& node) {
    bool any = false;
    graph::for_each_use(node, [&](const Value* value) { any |= !is_number(value); });
    return any;
  }
  bool is_read_by_loops(const Node& node) const {
    const auto& users = waiting_.users(node.results.at(0));
    return std::any_of(users.begin(), users.end(),
                       [](const Node* user) { return can_lower(graph::op_name(user->op)); });
  }

  /// Whether loops wait for what these nodes make.
  bool are_read_by_other_loops(const std::vector<const Node*>& nodes) const {
    const std::unordered_set<const Node*> inside(nodes.begin(), nodes.end());
    const auto is_other = [&](const Node* user) {
      return !inside.count(user) && waiting_.has(*user) && is_for_loops(*user);
    };
    return std::any_of(nodes.begin(), nodes.end(), [&](const Node* node) {
      return std::any_of(node->results.begin(), node->results.end(), [&](const Value* value) {
        const auto& users = waiting_.users(value);
        return std::any_of(users.begin(), users.end(), is_other);
      });
    });
  }

  /// What computes numbers from sizes and numbers alone, and is no loop's: where a loop reads them, they come first,
  /// else what reads them would have to wait for the loop after that.
  void take_numbers() {
    std::vector<const Node*> nodes;
    waiting_.walk({}, [&](const Node& node) {
      if (graph::has_order(node) || !computes_numbers(node) || is_for_loops(node)) return false;
      nodes.push_back(&node);
      return true;
    });
    if (are_read_by_other_loops(nodes)) finish(make_group(nodes, false), nodes);
  }

  /// Nodes that loops over `batch` rows can compute.
  struct GroupCandidate {
    std::vector<const Node*> nodes;
    int64_t batch = 0;
    bool operator<(const GroupCandidate& other) const {
      return nodes.size() != other.nodes.size() ? nodes.size() < other.nodes.size() : batch > other.batch;
    }
  };

  /// The largest group that can run now becomes a part. It gives no numbers: those that calls read are calls, and
  /// another group computes them once more.
  void take_group() {
    for (;;) {
      const GroupCandidate best = largest_group();
      if (!is_worth_a_loop(best.nodes, device_)) {
        if (!are_read_by_other_loops(best.nodes) || !take_weights_of_any()) return;
        continue;
      }
      if (take_weights(best)) continue;
      const size_t before = calls_.size();
      const std::set<const Node*> inside(best.nodes.begin(), best.nodes.end());
      for (const Node* node : best.nodes)
        if (computes_numbers(*node) && !numbers_.count(node) && is_read_outside(node->results[0], inside))
          calls_.insert(node);
      if (calls_.size() == before) return add_group(best.nodes, best.batch);
      take_numbers();
    }
  }

  static constexpr size_t most_compared = 16;  // sizes of batches

  /// Of a graph with very many sizes, the first that is worth a loop among those that most nodes read.
  GroupCandidate largest_group() const {
    GroupCandidate best;
    size_t compared = 0;
    for (const int64_t batch : waiting_.batches()) {
      if (compared++ % most_compared == 0 && is_worth_a_loop(best.nodes, device_)) break;
      if (GroupCandidate one{group(batch, {}), batch}; best.nodes.empty() || best < one) best = std::move(one);
    }
    drop_last_reshapes(best.nodes);
    return best;
  }

  /// Where only others read what loops have, they look at it in other sizes by themselves: it is not written once more.
  /// So it is with numbers.
  void drop_last_reshapes(std::vector<const Node*>& nodes) const {
    std::set<const Node*> inside;
    std::vector<const Node*> kept;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      const auto is_read = [&](const Value* value) {
        const auto& users = waiting_.users(value);
        return outputs_.count(value) || std::any_of(users.begin(), users.end(), [&](const Node* user) {
                 return inside.count(user) || dim_of_join(*user);
               });
      };
      const bool again = is_reshape(graph::op_name((*node)->op)) || computes_numbers(**node);
      if (again && !is_read((*node)->results[0])) continue;
      inside.insert(*node);
      kept.push_back(*node);
    }
    nodes.assign(kept.rbegin(), kept.rend());
  }

  /// What loops over `batch` rows can compute, where `made` were there and the nodes that make them are not to be
  /// looked at.
  std::vector<const Node*> group(int64_t batch, const Values& made) const {
    Lowering lowering(batch, device_, &wrapped_);
    std::vector<const Node*> nodes;
    waiting_.walk(made, [&](const Node& node) {
      if (!is_for_loops(node) || (!node.results.empty() && made.count(node.results[0])) || !may_have(node, batch) ||
          !lowering.add(node))
        return false;
      nodes.push_back(&node);
      return true;
    });
    return nodes;
  }

  /// Whether its results are of so many rows, or numbers, as far as they are known.
  static bool may_have(const Node& node, int64_t batch) {
    return std::all_of(node.results.begin(), node.results.end(), [&](const Value* result) {
      return !result->meta || result->meta->sizes.empty() || result->meta->sizes[0] == batch;
    });
  }

  /// No group is worth a loop. One of the first sizes of batches may have one once its weights are computed: in
  /// `x:relu() * (1 + scale)`, relu alone is too small.
  bool take_weights_of_any() {
    size_t tried = 0;
    for (const int64_t batch : waiting_.batches()) {
      if (tried++ == most_compared) return false;
      if (take_weights({group(batch, {}), batch})) return true;
    }
    return false;
  }

  /// What is computed from no data of the batch, such as `1 + scale`, comes first where a group gets larger by it.
  bool take_weights(const GroupCandidate& best) {
    const std::unordered_set<const Node*> inside(best.nodes.begin(), best.nodes.end());
    Values made;
    std::vector<const Node*> nodes;
    waiting_.walk({}, [&](const Node& node) {
      bool data = graph::has_order(node) || inside.count(&node);
      if (!computes_numbers(node))  // a size is no data
        graph::for_each_use(node, [&](const Value* value) {
          data |= !value->meta || (!value->meta->sizes.empty() && value->meta->sizes[0] == best.batch);
        });
      if (data) return false;
      nodes.push_back(&node);
      made.insert(node.results.begin(), node.results.end());
      return true;
    });
    if (nodes.empty()) return false;
    const std::vector<const Node*> larger = group(best.batch, made);
    if (larger.size() <= inside.size() || !is_worth_a_loop(larger, device_)) return false;
    Values read;
    const auto reads = [&](const Node& node) {
      graph::for_each_use(node, [&](const Value* value) { read.insert(value); });
    };
    for (const Node* node : larger)
      graph::for_each_use(*node, [&](const Value* value) {
        if (!is_number(value)) read.insert(value);  // loops find numbers by themselves
      });
    std::vector<const Node*> kept;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      const auto& results = (*node)->results;
      if (std::none_of(results.begin(), results.end(), [&](const Value* value) { return read.count(value) != 0; }))
        continue;
      reads(**node);
      kept.push_back(*node);
    }
    if (kept.empty()) return false;
    std::reverse(kept.begin(), kept.end());
    finish(make_group(kept, false), kept);
    return true;
  }

  void add_group(std::vector<const Node*> nodes, int64_t batch) {
    Lowering lowering(batch, device_, &wrapped_);
    for (const Node* node : nodes) lowering.add(*node);
    const std::set<const Node*> joins = joins_of(nodes, lowering);
    if (!joins.empty()) {
      nodes.insert(nodes.end(), joins.begin(), joins.end());
      waiting_.sort(nodes);
    }
    const std::set<const Node*> done = without_numbers_of_others(nodes);
    FusionGroup part = make_group(nodes, true, done);
    std::vector<const Value*> computed;
    for (const Value* output : part.outputs)
      if (!joins.count(output->producer)) computed.push_back(output);
    for (size_t i = 0; i < part.outputs.size(); ++i)
      if (const Node* join = part.outputs[i]->producer; joins.count(join)) {
        part.joins.push_back({i, dim_of_join(*join).value(), is_stack(*join), {}});
        graph::for_each_use(join->operands[0], [&](const Value* piece) {
          part.joins.back().pieces.push_back(computed.size());
          computed.push_back(piece);
        });
      }
    part.loops = lowering.finish(computed);
    const std::vector<const Value*>& arguments = lowering.arguments();
    std::unordered_map<const Value*, size_t> places;
    for (size_t i = 0; i < part.inputs.size(); ++i) places.emplace(part.inputs[i], i);
    for (LoopInput& input : part.loops.inputs)
      if (!input.computed) input.argument = places.at(arguments[input.argument]);
    part.fused = true;
    if (!device_.is_cpu() && !can_be_gpu_group(part)) part.fused = false, part.loops = {};
    finish(std::move(part), {done.begin(), done.end()});
  }

  /// Without the numbers that other groups read, too. (Users come after what they read.)
  std::set<const Node*> without_numbers_of_others(const std::vector<const Node*>& nodes) const {
    std::set<const Node*> done(nodes.begin(), nodes.end());
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
      if (computes_numbers(**node) && is_read_outside((*node)->results[0], done)) done.erase(*node);
    return done;
  }

  /// The calls that join what the group makes with one another, or with data that is there: loops can write to their
  /// results.
  std::set<const Node*> joins_of(const std::vector<const Node*>& nodes, Lowering& lowering) const {
    std::set<const Node*> joins;
    if (!device_.is_cpu()) return joins;
    Values made;
    for (const Node* node : nodes) made.insert(node->results.begin(), node->results.end());
    waiting_.walk(made, [&](const Node& node) {
      if (!dim_of_join(node)) return false;
      bool any = false, all = true;
      graph::for_each_use(node.operands[0], [&](const Value* piece) {
        any |= made.count(piece) != 0;
        all &= piece->meta && piece->meta->dtype == node.results[0]->meta->dtype &&
               piece->meta->sizes.size() == node.results[0]->meta->sizes.size() - (is_stack(node) ? 1 : 0);
      });
      graph::for_each_use(node.operands[0], [&](const Value* piece) { all = all && any && lowering.has_data(*piece); });
      if (!any || !all) return false;
      graph::for_each_use(node.operands[0], [&](const Value* piece) { lowering.read_data(*piece); });
      joins.insert(&node);
      return false;
    });
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

  /// Everything that can run now and that no group could take; where there is nothing and `refuse`, one node that a
  /// group could have taken and did not.
  void take_others(bool refuse) {
    const std::vector<const Node*> ordered = waiting_.ordered();
    size_t next = 0;  // of these
    std::vector<const Node*> nodes;
    const Node* refused = nullptr;
    waiting_.walk({}, [&](const Node& node) {
      const bool is_ordered = graph::has_order(node);
      if (is_ordered && ordered[next] != &node) return false;  // another one comes first
      if (is_for_loops(node)) {
        if (!refused && nodes.empty()) refused = &node;
        return false;
      }
      next += is_ordered;
      nodes.push_back(&node);
      return true;
    });
    if (nodes.empty() && refused && refuse) nodes = with_numbers(*refused);
    if (!nodes.empty()) finish_calls(nodes);
  }

  /// What no group took: the numbers that can be computed now, and the first node that is left then.
  std::vector<const Node*> with_numbers(const Node& refused) const {
    if (!computes_numbers(refused)) return {&refused};
    std::vector<const Node*> nodes;
    waiting_.walk({}, [&](const Node& node) {
      const bool last = !nodes.empty() && !computes_numbers(*nodes.back());
      if (last || graph::has_order(node) || !is_for_loops(node)) return false;
      nodes.push_back(&node);
      return true;
    });
    return nodes.empty() ? std::vector{&refused} : nodes;
  }

  /// Calls that can write to pooled memory are parts of their own, with the views that they alone read; so are those
  /// that can write in the place of what another part has made.
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
      if (!PooledCall::takes(*node) || graph::has_order(*node)) continue;
      std::vector<const Node*> own = own_views(*node, groups.back());
      own.push_back(node);
      auto& rest = groups.back();
      const std::unordered_set<const Node*> gone(own.begin(), own.end());
      std::erase_if(rest, [&](const Node* other) { return gone.count(other) != 0; });
      if (rest.empty()) groups.pop_back();
      groups.push_back(std::move(own));
      groups.emplace_back();
      pooled.insert(node);
    }
    if (groups.back().empty()) groups.pop_back();
    for (const auto& group : groups) {
      FusionGroup part = make_group(group, false);
      part.pooled = pooled.count(group.back()) != 0 && part.outputs.size() == 1;
      part.in_place = group.size() == 1 && part.outputs.size() == 1 && overwrites(*group.back());
      finish(std::move(part), group);
    }
  }

  /// Whether it can write in the place of its first argument, which nobody reads but it.
  bool overwrites(const Node& node) const {
    if (graph::has_order(node) || !InPlaceCall::takes(node)) return false;
    const Value* first = node.operands[0].value();
    return !outputs_.count(first) && waiting_.users(first).size() == 1;
  }

  /// The views among `nodes` that only `node` reads, and those that only they read.
  std::vector<const Node*> own_views(const Node& node, const std::vector<const Node*>& nodes) const {
    std::set<const Node*> inside{&node};
    std::vector<const Node*> own;
    for (auto view = nodes.rbegin(); view != nodes.rend(); ++view) {
      if (*view == &node || !graph::is_view((*view)->op) || (*view)->results.size() != 1) continue;
      const Value* viewed = (*view)->results[0];
      if (waiting_.users(viewed).empty() || is_read_outside(viewed, inside)) continue;
      inside.insert(*view);
      own.push_back(*view);
    }
    std::reverse(own.begin(), own.end());
    return own;
  }

  void finish(FusionGroup part, const std::vector<const Node*>& nodes) {
    waiting_.finish(nodes);
    groups_.push_back(std::move(part));
  }

  /// A graph of these nodes. Its inputs are what they read from outside (of a fused group the constants too), its
  /// outputs what others read.
  FusionGroup make_group(const std::vector<const Node*>& nodes, bool fused) {
    return make_group(nodes, fused, {nodes.begin(), nodes.end()});
  }

  /// `inside`: what nobody computes once more.
  FusionGroup make_group(const std::vector<const Node*>& nodes, bool fused, const std::set<const Node*>& inside) {
    FusionGroup part{Graph(graph_.name()), {}, {}, nodes, false, false, false, {}, {}, {}};
    std::unordered_map<const Value*, Value*> twins;
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
        if ((inside.count(node) || !fused) && is_read_outside(result, inside)) {
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
    const auto found = kinds_.find(value);
    return found == kinds_.end() ? graph::InputKind::tensor : found->second;
  }

  bool is_read_outside(const Value* value, const std::set<const Node*>& inside) const {
    if (outputs_.count(value)) return true;
    const auto& users = waiting_.users(value);
    return std::any_of(users.begin(), users.end(),
                       [&](const Node* user) { return !inside.count(user) && waiting_.has(*user); });
  }

  const Graph& graph_;
  const c10::Device device_;
  WaitingNodes waiting_;
  std::unordered_set<const Node*> calls_;    // no loop's, though one could compute them
  std::unordered_set<const Node*> numbers_;  // that loops compute
  Values outputs_, wrapped_;                 // wrapped: numbers that promote as those of a script do
  std::unordered_map<const Value*, graph::InputKind> kinds_;
  std::vector<FusionGroup> groups_;
};

}  // namespace

std::vector<FusionGroup> cut(const Graph& graph, c10::Device device) {
  return cut(graph, device, strided_views(graph));
}

std::vector<FusionGroup> cut(const Graph& graph, c10::Device device, std::unordered_set<const Node*> calls) {
  if (has_regions(graph)) return cut_by_regions(graph, device, calls);
  return FusionGroupCutter(graph, device, std::move(calls)).run();
}

bool is_as_seen(const at::Tensor& tensor, const std::optional<graph::TensorMeta>& seen) {
  return seen && tensor.defined() && tensor.dim() == static_cast<int64_t>(seen->sizes.size()) &&
         tensor.scalar_type() == seen->dtype && tensor.device().is_cpu();
}

}  // namespace triage::fused
