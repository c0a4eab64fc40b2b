// BackendComparison: calls of a host, on several threads.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/compare.h>
#include <triage/graph.h>

#include <thread>

namespace {

using namespace triage;

graph::Graph example() {
  return graph::trace(
      [](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{at::tanh(at::exp(in[0]).sum(-1, true) + in[0])};
      },
      {at::randn({33, 40})}, "example");
}

std::vector<GraphComparison> compared(const BackendComparison& comparison, const graph::Graph& graph,
                                      const std::vector<at::Tensor>& inputs) {
  const auto executable = comparison.backend()(graph, inputs);
  std::vector<at::Tensor> outputs;
  executable->run(inputs, outputs);
  CHECK(outputs[0].equal(at::tanh(at::exp(inputs[0]).sum(-1, true) + inputs[0])));  // the bits of `eager`
  return comparison.graphs();
}

}  // namespace

TEST_CASE("D04: BackendComparison compares fused loops with eager, for every batch size and stride") {
  const graph::Graph graph = example();
  const BackendComparison comparison({{"fused", find_backend("fused")}});
  CHECK(comparison.graphs().empty());
  for (const int64_t rows : {0, 1, 2, 31, 32, 33}) compared(comparison, graph, {at::randn({rows, 40})});
  compared(comparison, graph, {at::randn({40, 33}).t()});
  compared(comparison, graph, {at::randn({33, 80}).slice(1, 0, 80, 2)});
  const auto graphs = comparison.graphs();
  REQUIRE(graphs.size() == 8);
  for (const GraphComparison& one : graphs) {
    CAPTURE(text(one));
    CHECK(one.ok());
    CHECK(one.nodes == graph.nodes().size());
  }
}

TEST_CASE("D04: BackendComparison keeps the worst of all calls of a graph, on several threads") {
  const graph::Graph graph = example();
  const BackendComparison comparison(
      {{"faulty", find_backend("faulty_result:tanh")}, {"eager", find_backend("eager")}});
  const std::vector<at::Tensor> inputs = {at::randn({4, 40})};
  const auto executable = comparison.backend()(graph, inputs);
  CHECK(comparison.graphs().empty());  // not called yet
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      std::vector<at::Tensor> outputs;
      executable->run(inputs, outputs);
    });
  for (auto& thread : threads) thread.join();
  const auto graphs = comparison.graphs();
  REQUIRE(graphs.size() == 2);
  REQUIRE(graphs[0].node);
  CHECK_FALSE(graphs[0].ok());
  CHECK(graphs[0].node->value.find("aten::tanh") != std::string::npos);
  CHECK(graphs[1].ok());
  CHECK_FALSE(graphs[1].result);
  CHECK(text(graphs[1]) == "graph example (4 nodes), eager: the same bits as eager");
}

TEST_CASE("D04: BackendComparison finds a backend whose results are right and that draws random numbers twice") {
  class Twice final : public Executable {
   public:
    explicit Twice(std::unique_ptr<Executable> once) : once_(std::move(once)) {}
    void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
             const CallContext& call) const override {
      std::vector<at::Tensor> unused;
      once_->run(inputs, outputs, call);
      once_->run(inputs, unused, call);
    }

   private:
    std::unique_ptr<Executable> once_;
  };
  const Backend twice = [](const graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    return std::make_unique<Twice>(find_backend("eager")(graph, examples));
  };
  const at::Tensor x = at::ones({4, 40});
  const graph::Graph graph = graph::trace(
      [](const std::vector<at::Tensor>& in) { return std::vector<at::Tensor>{at::dropout(in[0], 0.5, true)}; }, {x});
  const BackendComparison comparison(
      {{"twice", twice}, {"aot_eager", find_backend("aot_eager")}, {"fused", find_backend("fused")}});
  std::vector<at::Tensor> outputs;
  comparison.backend()(graph, {x})->run({x}, outputs);
  const auto graphs = comparison.graphs();
  CHECK(text(graphs[0]).find("number of random numbers is another one than with eager") != std::string::npos);
  CHECK_FALSE(graphs[0].ok());
  CHECK_FALSE(graphs[1].result);
  CHECK_FALSE(graphs[2].result);
}
