// Graph programs as files: what is written runs again, with the same inputs.
#include "runtime/backends/graph_program.h"
#include "bindings/lua/engine/exec.h"
#include "runtime/diagnose/program_run.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>

#include <unistd.h>
#include <filesystem>

namespace triage::diagnose {
namespace {

struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("triage-programs-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// Has a weight that is too large to be printed, a small constant, an input with strides, and a number.
graph::Graph example_graph(const std::vector<at::Tensor>& inputs) {
  const at::Tensor weight = at::randn({40, 40}), bias = at::arange(40, at::kFloat);
  return graph::trace(
      [&](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{at::relu(at::mm(in[0], weight) + bias) * in[1]};
      },
      inputs, "example");
}

TEST_CASE("D08: a graph program runs as a script, with the values of its examples or with random ones") {
  const Folder folder;
  const std::vector<at::Tensor> inputs = {at::randn({40, 8}).t().requires_grad_(true), at::randn({8, 1})};
  const graph::Graph graph = example_graph(inputs);
  for (const bool keep_values : {true, false}) {
    GraphProgram program = program_of(graph, inputs, "eager", keep_values);
    CHECK(program.inputs.size() == 3);  // the weight is an input of the program
    CHECK(program.backward);
    program.check = ProgramCheck::numbers;
    program.comment = "two\nlines";
    const std::string file = (folder.path / (keep_values ? "with.lua" : "without.lua")).string();
    save(program, file);
    CHECK(std::filesystem::exists(std::filesystem::path(file).replace_extension(".pt")) == keep_values);
    CHECK(lua::exec_script(file, {}) == 0);
    const ProgramOutcome outcome = run_program(program, find_backend("eager"));
    REQUIRE_FALSE(outcome.failure);
    CHECK(outcome.results.gradients.size() == 1);
    std::vector<at::Tensor> expected;
    find_backend("eager")(graph, inputs)->run(inputs, expected);
    CHECK(outcome.results.outputs[0].equal(expected[0].detach()) == keep_values);
    program.backend = "faulty_run:relu";
    save(program, file);
    CHECK(lua::exec_script(file, {}) == 1);
  }
}

TEST_CASE("D08: what a program says of an input makes the same tensor again") {
  const auto check = [](const at::Tensor& example) {
    const graph::Graph graph =
        graph::trace([](const auto& in) { return std::vector<at::Tensor>{in[0].clone()}; }, {example}, "g");
    const at::Tensor again = program_of(graph, {example}, "eager", true).inputs[0].make();
    CHECK((again.sizes() == example.sizes()));
    CHECK((again.strides() == example.strides()));
    CHECK((again.scalar_type() == example.scalar_type()));
    CHECK(again.requires_grad() == example.requires_grad());
    CHECK(again.equal(example));
  };
  check(at::randn({3, 4}));
  check(at::randn({3, 4}).t());
  check(at::randn({3, 1}).expand({3, 4}));
  check(at::randn({0, 4}));
  check(at::scalar_tensor(2.5));
  check(at::randn({6, 6}, at::kHalf).slice(1, 0, 6, 2));
  check(at::randint(100, {5}, at::kLong));
  check(at::randn({4}).gt(0));
  check(at::randn({2, 3}, at::kDouble).requires_grad_(true));
}

}  // namespace
}  // namespace triage::diagnose
