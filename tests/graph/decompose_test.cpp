#include <doctest/doctest.h>

#include <set>

#include "runtime/given/host_call.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "tests/graph/build.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

namespace {

constexpr int64_t kColumns = 6, kSlots = 16;
const at::ScalarType kCarriers[] = {at::kLong, at::kInt, at::kFloat, at::kDouble};
// Severity first and replacing the oldest; order by time; by location, last, one entry a code; ... see
// AccumulationConfig.
const int64_t kPolicies[] = {0, 1, 4 + 1, 4 + (1 << 3), 2 + (2 << 3), 3 << 3};

struct Variant {
  at::ScalarType data = at::kFloat;
  at::ScalarType carrier = at::kLong;
  int64_t policy = 0;
  bool given_flags = false;  // for `Tensor? flags`
  bool params = false;       // Scalars come as params
  bool scalar_condition = false;
};

at::Tensor mask(int64_t rows) { return at::rand({rows}) < 0.5; }

at::Tensor new_flags(int64_t rows, const Variant& variant) {
  std::vector<c10::IValue> stack{at::zeros({rows, 1}), kSlots, variant.carrier};
  op("triage::new").callBoxed(&stack);
  at::Tensor flags = stack[0].toTensor();
  for (int64_t i = 0; i < 9; ++i) {
    std::vector<c10::IValue> push{flags, 1 + i % 15, 3 * i, 1 + i % 3, mask(rows), kSlots, variant.policy};
    op("triage::push.where").callBoxed(&push);
    flags = push[0].toTensor();
  }
  return flags;
}

at::Tensor data_for(int64_t rows, const Variant& variant) {
  at::Tensor z = at::randn({rows, kColumns});
  const float specials[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), 999.0f, -0.0f};
  for (int64_t row = 0; row < rows; ++row)
    if (row % 3) z[row][row % kColumns] = specials[static_cast<size_t>(row % 5)];
  return z.to(variant.data);
}

at::Tensor tensor_argument(const std::string& name, int64_t rows, const Variant& variant) {
  if (name == "flags" || name == "other") return new_flags(rows, variant);
  if (name == "code") return at::randint(0, 16, {rows}, at::kInt);
  if (name == "where") return mask(rows);
  if (name == "cond" || name == "taken") return variant.scalar_condition ? at::rand({}) < 0.5 : mask(rows);
  if (name == "ids") return at::randint(-3, 15, {rows, kColumns}, at::kLong);
  if (name == "fallback") return at::randn({kColumns}).to(variant.data);
  return data_for(rows, variant);  // z, like, a, b
}

Operand number_argument(const std::string& name, const Variant& variant) {
  if (name == "num_slots") return integer(kSlots);
  if (name == "policy") return integer(variant.policy);
  if (name == "codes") return integer(0b0000'1111'0110'0110);
  if (name == "severity" || name == "min_severity") return integer(2);
  if (name == "num_embeddings") return integer(10);
  if (name == "domain") return integer(1);
  if (name == "integers") return c10::IValue(c10::List<int64_t>({3, 7}));
  return integer(3);  // code, location, index
}

/// A graph that is one call of the operator, with every tensor an input, captured at 32 rows.
Graph graph_of_call(const c10::OperatorHandle& handle, const Variant& variant) {
  Graph graph("one");
  std::vector<Operand> operands;
  for (const auto& argument : handle.schema().arguments()) {
    std::string type = argument.real_type()->str();
    const std::string& name = argument.name();
    if (type == "Tensor" || (type == "Tensor?" && variant.given_flags)) {
      at::Tensor example = tensor_argument(name, 32, variant);
      operands.emplace_back(graph.add_input(name, InputKind::tensor,
                                            TensorMeta{example.scalar_type(), example.sizes().vec(), c10::kCPU}));
    } else if (type == "Tensor?") {
      operands.emplace_back(none());
    } else if (type == "ScalarType") {
      operands.emplace_back(c10::IValue(variant.carrier));
    } else if (type == "number" || type == "Scalar") {
      if (variant.params)
        operands.emplace_back(graph.add_input(name, InputKind::param, meta({}, at::kDouble)));
      else
        operands.emplace_back(number(0.75));
    } else if (type == "bool") {
      operands.emplace_back(c10::IValue(name != "posinf"));
    } else if (type == "float[]") {
      operands.emplace_back(c10::IValue(std::vector<double>{999.0, 0.5}));
    } else {
      operands.push_back(number_argument(name, variant));
    }
  }
  Node* node = graph.append(handle, std::move(operands), handle.schema().returns().size(), {"one.lua", 5});
  graph.set_outputs(node->results);
  return graph;
}

std::vector<at::Tensor> inputs_of(const Graph& graph, int64_t rows, const Variant& variant) {
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) {
    if (input.kind == InputKind::param) {
      inputs.push_back(at::scalar_tensor(-1.25, at::kDouble));
      inputs.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    } else {
      inputs.push_back(tensor_argument(input.value->name, rows, variant));
    }
  }
  return inputs;
}

bool guards_gradient(const Node& node) { return node.op.operator_name().name == "triage::guard_grad"; }

bool is_plain(const Graph& graph) {
  for (const auto& node : graph.nodes())
    if (node->op.operator_name().name.rfind("aten::", 0) != 0 && !guards_gradient(*node)) return false;
  return true;
}

/// The graph and its decomposition give the same bits at every batch size.
void check_decomposition(const Graph& graph, const Variant& variant) {
  Graph plain = decompose(graph);
  INFO(print(plain));
  CHECK(is_plain(plain));
  CHECK(print(parse(print(plain))) == print(plain));
  for (int64_t rows : BATCHES) {
    CAPTURE(rows);
    std::vector<at::Tensor> inputs = inputs_of(graph, rows, variant);
    auto fused = run(graph, inputs), decomposed = run(plain, inputs);
    REQUIRE(fused.size() == decomposed.size());
    for (size_t i = 0; i < fused.size(); ++i) CHECK(same_bits(fused[i], decomposed[i]));
  }
}

/// All operators of ours on flags and data, but those of the tests themselves. No calls of the host, of which nobody
/// knows what they compute, and no layers, which are ATen's.
std::vector<c10::OperatorHandle> our_operators() {
  std::vector<c10::OperatorHandle> found;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
    if (name.name.rfind("triage::", 0) == 0)
      if (auto handle = c10::Dispatcher::singleton().findSchema(name);
          handle && !triage::graph::is_number_op(*handle) && !triage::given::is_host_call(*handle) &&
          name.name != "triage::batch_norm")
        found.push_back(*handle);
  return found;
}

std::string full_name(const c10::OperatorHandle& handle) {
  const auto& name = handle.operator_name();
  return name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
}

}  // namespace

TEST_CASE("decompose: every operator of ours, all carriers, every batch size, to the same bits") {
  auto operators = our_operators();
  REQUIRE(operators.size() >= 30);
  for (const auto& handle : operators)
    for (at::ScalarType carrier : kCarriers) {
      Variant variant;
      variant.carrier = carrier;
      std::string name = full_name(handle);
      CAPTURE(name);
      CAPTURE(variant.carrier);
      check_decomposition(graph_of_call(handle, variant), variant);
    }
}

TEST_CASE("decompose: accumulation policies") {
  for (const char* name : {"triage::push", "triage::push.where", "triage::push.scalar", "triage::merge",
                           "triage::fix.scalar", "triage::flag_nan_and_inf"})
    for (int64_t policy : kPolicies) {
      Variant variant;
      variant.policy = policy;
      variant.given_flags = true;
      CAPTURE(name);
      CAPTURE(policy);
      check_decomposition(graph_of_call(op(name), variant), variant);
    }
}

TEST_CASE("decompose: dtypes of the data") {
  for (const auto& handle : our_operators())
    for (at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kDouble}) {
      Variant variant;
      variant.data = dtype;
      std::string name = full_name(handle);
      CAPTURE(name);
      CAPTURE(variant.data);
      check_decomposition(graph_of_call(handle, variant), variant);
    }
}

TEST_CASE("decompose: a condition for the whole batch") {
  for (const char* name : {"triage::select", "triage::guard_grad"}) {
    Variant variant;
    variant.scalar_condition = true;
    CAPTURE(name);
    check_decomposition(graph_of_call(op(name), variant), variant);
  }
}

TEST_CASE("decompose: numbers that the host may change stay inputs") {
  for (const char* name : {"triage::fix.scalar", "triage::take_ok_p", "triage::take_err_p", "triage::replace"}) {
    Variant variant;
    variant.params = true;
    CAPTURE(name);
    check_decomposition(graph_of_call(op(name), variant), variant);
  }
}

TEST_CASE("decompose: a policy, with its script lines, names and inputs kept") {
  Graph graph = parse(R"(
graph repair(%z: "f32[32, 6]", %unused: "f32[2]"):
  %0: "i64[32, 4]" flags = triage::flag_nan_and_inf(%z, None, location=5, num_slots=16, policy=0, dtype=int64)  # repair.lua:2
  %1 = aten::sub.Tensor(%z, 1)  # repair.lua:3
  %2, %3 flags = triage::fix.scalar(%1, %0, fallback=0.0, location=5, codes=65535, min_severity=0, num_slots=16, policy=0)  # repair.lua:4
  return z=%2, f=%3
)");
  Graph plain = decompose(graph);
  CHECK(plain.name() == "repair");
  CHECK(plain.inputs().size() == 2);
  CHECK(plain.output_names() == std::vector<std::string>{"z", "f"});
  CHECK(plain.outputs()[1]->is_flags);
  std::set<int> lines;
  for (const auto& node : plain.nodes()) {
    CHECK(node->source.file == "repair.lua");
    lines.insert(node->source.line);
  }
  CHECK(lines == std::set<int>{2, 3, 4});
  CHECK(contains(print(plain), "aten::where"));
  for (int64_t rows : BATCHES) {
    at::Tensor z = data_for(rows, {});
    auto fused = run(graph, {z, z}), decomposed = run(plain, {z, z});
    for (size_t i = 0; i < 2; ++i) CHECK(same_bits(fused[i], decomposed[i]));
  }
}

TEST_CASE("T31: decompose keeps what guards gradients") {
  Graph graph = parse(R"(
graph logs(%z: "f32[4, 2]"):
  %0 = aten::gt.Scalar(%z, 0)
  %1 = aten::all.dim(%0, 1)
  %2 = triage::guard_grad(%z, %1)
  %3 = aten::log(%2)
  %4 = triage::select(%1, %3, %z)
  return %4
)");
  const Graph plain = decompose(graph);
  CHECK(is_plain(plain));
  for (int64_t rows : BATCHES) {
    CAPTURE(rows);
    at::Tensor z = at::ones({rows, 2});
    if (rows > 0) z[rows - 1][0] = 0.0;  // log has no finite gradient here
    z.requires_grad_(true);
    run(plain, {z})[0].sum().backward();
    CHECK(at::equal(z.grad(), at::ones({rows, 2})));
  }
}

TEST_CASE("decompose: a graph without operators of ours stays what it is") {
  Graph graph = parse("graph g(%z: \"f32[2]\"):\n  %0 = aten::neg(%z)\n  return %0\n");
  CHECK(print(decompose(graph)) == print(graph));
}

TEST_CASE("decompose needs to know the inputs") {
  Graph graph = parse("graph g(%f):\n  %0 = triage::is_ok(%f)\n  return %0\n");
  CHECK_ERROR(GraphError, decompose(graph), "cannot decompose graph `g`: its input %f has no type");
}
