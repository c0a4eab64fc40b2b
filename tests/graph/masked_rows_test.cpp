// Rows that a selection masks stay out of gradients, or the graph says that they may not: over all differentiable
// operators.
//
// TRIAGE_MASKED_ROWS=20000 tries that many programs, TRIAGE_MASKED_ROWS_SEED=7 begins with that one, and
// TRIAGE_MASKED_ROWS_TOLD=1 prints which operators are told to be outside.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <triage/backend.h>
#include <triage/error.h>
#include <triage/log.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "build.h"
#include "runtime/graph/argument_type.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/text/describe.h"
#include "runtime/operators/contract.h"
#include "runtime/random/sequence.h"

namespace triage::test {
namespace {

constexpr int64_t samples = 3, width = 4, bad_row = 1;

uint64_t asked(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// The operators of the table that scripts may call, which give tensors and write to none.
std::vector<c10::OperatorHandle> operators_of_table() {
  std::vector<c10::OperatorHandle> all;
  for (const auto& [name, overload] : operators::all_contracts()) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
    if (name.rfind("aten::", 0) != 0 || !op || graph::writes(*op) || op->schema().arguments().empty()) continue;
    const auto& returns = op->schema().returns();
    const bool tensors = std::all_of(returns.begin(), returns.end(), [](const auto& result) {
      return graph::type_of(result).kind == graph::Kind::tensor;
    });
    if (tensors && !returns.empty()) all.push_back(*op);
  }
  return all;
}

bool takes_generator(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const auto& argument) { return graph::type_of(argument).kind == graph::Kind::generator; });
}

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), graph_("masked") {}

  /// False where the operators do not take what was made up.
  bool run(const std::vector<c10::OperatorHandle>& ops) {
    graph::Value* h = layer();
    const size_t count = 1 + pick(3) / 2;
    for (size_t i = 0; i < count; ++i) {
      graph::Value* next = any_call(ops[pick(ops.size())], h, /*differentiable=*/true);
      if (!next) return false;
      if (pick(6) > 0) h = next;  // else nobody uses it
    }
    const at::Tensor value = values_.at(h);
    if (!value.requires_grad() || !at::isFloatingType(value.scalar_type())) return false;
    if (value.dim() == 0 || value.size(0) != samples) {  // the samples are one number: each row gets it
      graph::Value* whole = value.dim() == 0 ? h : call("aten::sum", {h});
      h = call("aten::mul.Tensor", {input(0), whole});
    }
    mask(h);
    return true;
  }

  /// The layer times what the operator draws.
  bool run_draw(const c10::OperatorHandle& op) {
    graph::Value* h = layer();
    graph::Value* drawn = any_call(op, h, /*differentiable=*/false);
    if (!drawn || values_.at(drawn).sizes() != values_.at(h).sizes()) return false;
    mask(call("aten::mul.Tensor", {h, drawn}));
    return true;
  }

  const graph::Graph& graph() const { return graph_; }
  const at::Tensor& tangent() const { return tangent_; }
  const std::vector<std::string>& names() const { return names_; }

  Tensors primals(double bad) const {
    Tensors all;
    for (const at::Tensor& given : inputs_) all.push_back(given.detach().clone().requires_grad_(given.requires_grad()));
    const at::NoGradGuard no_grad;
    all[0].select(0, bad_row).fill_(bad);
    return all;
  }

 private:
  graph::Value* layer() {
    const size_t rank = 1 + pick(5);
    std::vector<int64_t> sizes(rank, 2);
    sizes[0] = samples;
    if (rank > 1) sizes.back() = width;
    add_input("x", at::rand(sizes) + 0.25, true);
    add_input("w", rank > 1 ? at::rand({width, width}) : at::rand({}), true);
    add_input("b", rank > 1 ? at::rand({width}) : at::rand({}), true);
    return rank > 1 ? call("aten::linear", {input(0), input(1), input(2)})
                    : call("aten::add.Tensor", {call("aten::mul.Tensor", {input(0), input(1)}), input(2)});
  }

  void mask(graph::Value* h) {
    std::vector<int64_t> over(values_.at(h).sizes().size(), 1);
    over[0] = samples;
    const at::Tensor keep = at::ones(over, at::kBool);
    keep.select(0, bad_row).fill_(false);
    add_input("keep", keep, false);
    graph::Value* zero = constant(at::zeros({}, values_.at(h).scalar_type()));
    h = pick(2) ? call("aten::where.self", {input(3), h, zero})
                : call("aten::masked_fill.Scalar", {h, call("aten::logical_not", {input(3)}), number(0)});
    graph_.set_outputs({h});
    tangent_ = at::rand(values_.at(h).sizes(), values_.at(h).options());
  }

  size_t pick(size_t count) { return static_cast<size_t>(random_() % count); }
  graph::Value* input(size_t i) const { return graph_.inputs()[i].value; }

  void add_input(const std::string& name, const at::Tensor& tensor, bool requires_grad) {
    inputs_.push_back(tensor.detach().requires_grad_(requires_grad));
    values_[graph_.add_input(name, graph::InputKind::tensor, meta(tensor.sizes().vec(), tensor.scalar_type()))] =
        inputs_.back();
  }
  graph::Value* constant(const at::Tensor& tensor) {
    graph::Value* value = graph_.add_constant(tensor);
    values_[value] = tensor;
    return value;
  }
  graph::Value* call(const std::string& name, std::vector<graph::Operand> operands) {
    return evaluated(append(graph_, name, std::move(operands)));
  }
  graph::Value* evaluated(graph::Node* node) {
    const Tensors results = graph::evaluate(*node, [&](const graph::Value* value) { return values_.at(value); });
    for (size_t i = 0; i < results.size(); ++i) values_[node->results[i]] = results[i];
    return node->results[0];
  }

  graph::Value* any_call(const c10::OperatorHandle& op, graph::Value* h, bool differentiable) {
    for (int attempt = 0; attempt < 6; ++attempt) {
      std::vector<graph::Operand> operands;
      for (const auto& argument : op.schema().arguments()) operands.push_back(made_up(argument, h, operands.empty()));
      Tensors results;
      graph::Graph trial("trial");
      try {
        const graph::Node* node = trial.append(op, operands, 1);
        const auto lookup = [&](const graph::Value* value) { return values_.at(value); };
        const auto* contract = operators::find_contract(op.operator_name().name, op.operator_name().overload_name);
        if (operators::violation(*contract, op.schema(), graph::boxed_arguments(*node, lookup))) continue;
        results = graph::evaluate(*node, lookup);
      } catch (const std::exception&) {
        continue;
      }
      if (results.empty() || !results[0].defined() || results[0].numel() == 0) continue;
      if (differentiable && !results[0].requires_grad()) continue;
      if (results[0].layout() != at::kStrided || results[0].numel() > 100'000) continue;
      graph::Node* node = graph_.append(op, std::move(operands), results.size(), {"law.lua", 7});
      node->checks = differentiable && pick(4) == 0;
      names_.push_back(graph::op_name(op));
      for (size_t i = 0; i < results.size(); ++i) values_[node->results[i]] = results[i];
      return node->results[0];
    }
    return nullptr;
  }

  graph::Operand made_up(const c10::Argument& argument, graph::Value* h, bool first) {
    const graph::ArgumentType type = graph::type_of(argument);
    const at::Tensor& like = values_.at(h);
    const auto dim = [&] { return static_cast<int64_t>(pick(static_cast<size_t>(std::max<int64_t>(like.dim(), 1)))); };
    if (first && type.kind == graph::Kind::tensor)
      return type.list ? graph::Operand(std::vector<graph::Operand>{h, h}) : graph::Operand(h);
    const std::string& name = argument.name();
    const bool names_dim = name.rfind("dim", 0) == 0 || name == "axis";
    if (argument.default_value() && pick(3) && !names_dim) return *argument.default_value();
    if (type.optional && pick(2)) return none();
    if (type.kind == graph::Kind::tensor) {
      const at::Tensor tensor = tensor_for(name, like);
      graph::Value* value = pick(5) == 0 && tensor.scalar_type() == at::kFloat ? h : constant(tensor);
      return type.list ? graph::Operand(std::vector<graph::Operand>{value}) : graph::Operand(value);
    }
    const auto one = [&]() -> c10::IValue {
      switch (type.kind) {
        case graph::Kind::number:
        case graph::Kind::real:
          return number(pick(2) ? 0.5 : 2.0);
        case graph::Kind::integer:
          return integer(names_dim ? dim() - (pick(2) ? like.dim() : 0) : static_cast<int64_t>(pick(3)));
        case graph::Kind::boolean:
          return pick(2) == 0;
        default:
          return argument.default_value().value_or(c10::IValue());
      }
    };
    if (!type.list) return one();
    if (type.kind == graph::Kind::integer) {
      if (names_dim || pick(2)) return sizes({dim()});
      return pick(2) ? sizes(like.sizes().vec())
                     : sizes(std::vector<int64_t>(1 + pick(3), 1 + static_cast<int64_t>(pick(2))));
    }
    if (type.kind == graph::Kind::real || type.kind == graph::Kind::number)
      return c10::IValue(std::vector<double>{0.5, 0.25});
    return argument.default_value().value_or(c10::IValue());
  }

  at::Tensor tensor_for(const std::string& name, const at::Tensor& like) {
    if (name.find("mask") != std::string::npos || name == "condition") return at::rand(like.sizes()).gt(0.5);
    const bool place = name.find("ind") == 0 || name == "target" || name.find("label") != std::string::npos;
    if (place) return pick(2) ? at::randint(2, like.sizes(), at::kLong) : at::randint(2, {samples}, at::kLong);
    if (like.dim() == 0 || pick(2)) return at::rand(like.sizes());
    switch (pick(4)) {
      case 0:
        return at::rand({like.size(-1)});
      case 1:
        return at::rand({like.size(-1), like.size(-1)});
      case 2:
        return at::rand({2, 2, 1, 1});
      default:
        return at::rand({like.dim() > 1 ? like.size(1) : 1});
    }
  }

  std::mt19937_64 random_;
  graph::Graph graph_;
  Tensors inputs_;
  std::map<const graph::Value*, at::Tensor> values_;
  std::vector<std::string> names_;
  at::Tensor tangent_;
};

/// Of x, w, b; undefined ones are zeros. `output`: what it is computed from.
Tensors gradients(const Executable& executable, const Tensors& primals, const at::Tensor& tangent, uint64_t seed,
                  at::Tensor* output = nullptr) {
  at::manual_seed(seed);
  Tensors outputs;
  executable.run(primals, outputs);
  if (output) *output = outputs.at(0);
  if (!outputs.at(0).requires_grad()) return {};
  return torch::autograd::grad({outputs[0]}, {primals[0], primals[1], primals[2]}, {tangent}, {}, false, true);
}

/// The first gradient that the bad row changes; empty where there is none.
std::string changed(const Tensors& finite, const Tensors& bad) {
  static const char* const names[] = {"x", "w", "b"};
  if (finite.size() != bad.size()) return "one of the calls has no gradients";
  for (size_t i = 0; i < finite.size(); ++i) {
    if (finite[i].defined() != bad[i].defined()) return names[i];
    if (!finite[i].defined()) continue;
    const at::Tensor good = at::tensor(std::vector<int64_t>{0, 2}, at::kLong);
    const bool same =
        i > 0 ? same_bits(finite[i], bad[i]) : same_bits(finite[i].index_select(0, good), bad[i].index_select(0, good));
    if (!same) return names[i];
  }
  return {};
}

struct Silence {
  Silence() {
    set_log([](const LogRecord&) {});
  }
  ~Silence() { set_log({}); }
};

}  // namespace

TEST_CASE("D04: a NaN row that is masked leaves gradients as a finite one does, or is told to reach them") {
  const Silence silence;
  std::vector<c10::OperatorHandle> all = operators_of_table();
  std::erase_if(all,
                [](const auto& op) { return graph::type_of(op.schema().arguments()[0]).kind != graph::Kind::tensor; });
  const uint64_t first = asked("TRIAGE_MASKED_ROWS_SEED", 1), count = asked("TRIAGE_MASKED_ROWS", 500);
  std::map<std::string, std::string> told;
  size_t tried = 0, outside = 0, needed = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    at::manual_seed(seed);
    Generator program(seed * 7919);
    bool fits = false;
    try {
      fits = program.run(all);
    } catch (const std::exception&) {
    }
    if (!fits) continue;
    for (const char* backend : {"aot_eager", "fused"}) {
      const auto executable = find_backend(backend)(program.graph(), program.primals(0.5));
      Tensors finite, bad;
      at::Tensor output, bad_output;
      try {
        finite = gradients(*executable, program.primals(0.5), program.tangent(), seed, &output);
        const Tensors with_nan = program.primals(std::numeric_limits<double>::quiet_NaN());
        bad = gradients(*executable, with_nan, program.tangent(), seed, &bad_output);
      } catch (const std::exception&) {
        continue;  // an operator that raises, as it may
      }
      if (!same_bits(output, bad_output)) continue;  // the bad row stands elsewhere, and is not masked
      ++tried;
      const auto why = executable->unmasked_rows(program.primals(0.5));
      const std::string wrong = changed(finite, bad);
      if (why) {
        ++outside;
        needed += !wrong.empty();
        told[fmt::format("{}", fmt::join(program.names(), ", "))] =
            why->reason + (wrong.empty() ? "" : " (" + wrong + ")");
        continue;
      }
      CHECK_MESSAGE(wrong.empty(), "program " << seed << ", " << std::string(backend) << ": the gradient of " << wrong
                                              << " gets values of a masked row, and nobody says so\n"
                                              << graph::print(program.graph()));
    }
  }
  MESSAGE(tried << " programs, " << outside << " told to be outside, " << needed << " of these rightly");
  CHECK(tried > count / 50);
  if (asked("TRIAGE_MASKED_ROWS_TOLD", 0))
    for (const auto& [names, why] : told) MESSAGE(names << ": " << why);
}

TEST_CASE("D04: operators that take a generator stand in joint graphs, and draw there what they draw in ATen") {
  const Silence silence;
  size_t tried = 0;
  for (const c10::OperatorHandle& op : operators_of_table()) {
    if (!takes_generator(op)) continue;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      at::manual_seed(seed);
      Generator program(seed);
      bool fits = false;
      try {
        fits = program.run_draw(op);
      } catch (const std::exception&) {
      }
      if (!fits) continue;
      Tensors expected;
      try {
        expected =
            gradients(*find_backend("eager")(program.graph(), {}), program.primals(0.5), program.tangent(), seed);
      } catch (const std::exception&) {
        continue;  // newer LibTorches have no derivative of some
      }
      ++tried;
      for (const char* backend : {"aot_eager", "fused"}) {
        const auto executable = find_backend(backend)(program.graph(), program.primals(0.5));
        random::Sequence numbers;  // a policy's own
        const auto why = [&] {
          const random::DrawFrom own(&numbers);
          return executable->unmasked_rows(program.primals(0.5));
        }();
        CHECK_MESSAGE(!why, graph::op_name(op) << ": " << why.value_or(UnmaskedRows()).reason);
        const Tensors got = gradients(*executable, program.primals(0.5), program.tangent(), seed);
        for (size_t i = 0; i < got.size(); ++i)
          CHECK_MESSAGE(same_bits(got[i], expected[i]), graph::op_name(op)
                                                            << ", " << std::string(backend) << ", gradient " << i);
      }
      break;
    }
  }
  MESSAGE(tried << " operators with a generator");
  CHECK(tried >= 3);
}

}  // namespace triage::test
