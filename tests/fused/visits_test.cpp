// What a compile costs, counted in visits (runtime/graph/visits.h) and not in time: whatever is done to a graph looks
// at each value a bounded number of times, however much is shared and however long a chain is. TRIAGE_SHARING=N makes N
// programs.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <cstdlib>
#include <random>
#include <string>

#include "runtime/backends/deadline.h"
#include "runtime/backends/fused/fusion_groups.h"
#include "runtime/backends/fused/loops/gpu_text.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/visits.h"
#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

constexpr int64_t rows = 4, width = 8;

/// Programs in which most values are read several times. `in`: two batches, a weight, a condition of rows, a number.
class Sharing {
 public:
  Sharing(uint32_t seed, const Tensors& in)
      : random_(seed),
        values_{in[0], in[1]},
        rows_{in[3]},
        flags_{flag_nan(in[0], 1)},
        conditions_{at::where(in[3], 0.0, in[0]) > 0},
        weight_(in[2]),
        number_(in[4]) {}

  static constexpr uint32_t kinds = 15;

  /// One kind of step again and again, each on the results of those before.
  Tensors chain(uint32_t kind, size_t length) {
    for (size_t i = 0; i < length; ++i) step(kind);
    return results();
  }
  Tensors any(size_t length) {
    for (size_t i = 0; i < length; ++i) step(below(kinds));
    return results();
  }

 private:
  uint32_t below(uint32_t count) { return random_() % count; }
  /// Mostly one of the last two.
  const at::Tensor& one_of(const Tensors& list) {
    const auto count = static_cast<uint32_t>(list.size());
    return list[count - 1 - (below(8) == 0 ? below(count) : below(std::min(count, 2u)))];
  }
  const at::Tensor& value() { return one_of(values_); }
  const at::Tensor& row() { return one_of(rows_); }
  at::Tensor mean() { return value().mean(-1, true); }

  void step(uint32_t kind) {
    const at::Tensor x = values_.back();
    switch (kind) {
      case 0:
        return values_.push_back(x * x - x * 0.5);
      case 1:
        return values_.push_back(at::maximum(value(), value()).exp());
      case 2:
        return values_.push_back(at::where(row(), value(), value()) + x);
      case 3:
        return values_.push_back(x - mean());
      case 4:
        return values_.push_back((x + x).matmul(weight_));
      case 5:
        return values_.push_back(
            x.view({rows, 2, width / 2}).sum(1, true).expand({rows, 2, width / 2}).reshape({rows, width}));
      case 6:
        return values_.push_back(at::cat({x, value()}, -1).narrow(-1, 2, width));
      case 7:
        return values_.push_back(at::nan_to_num(x.clamp(-1, 2), 0.0) * value());
      case 8:
        number_ = number_ * number_ - number_;
        return values_.push_back(x * number_ + number_);
      case 9:
        rows_.push_back((value() > mean()).any(-1, true) & row());
        return values_.push_back(at::where(row(), x, value()));
      case 10:
        flags_.push_back(err::merge({flags_.back(), flag_nan_and_inf(x, 2)}));
        return values_.push_back(x * 1.5);
      case 11:
        return values_.push_back(fix(x, flags_.back(), 3).first);
      case 13:  // conditions on a selection of rows, each of which two of the next ones read
        conditions_.push_back((conditions_.back() & one_of(conditions_)).logical_xor(conditions_.back() | (x > 0.5)));
        rows_.push_back(conditions_.back().any(-1, true));
        return values_.push_back(x * 0.5);
      case 12:
        return values_.push_back(at::softmax(x, -1) + x.t().contiguous().t());
      default:
        return values_.push_back(x.sum(-1, true) + at::where(row(), 0.0, x).sum(-1, true) + x);
    }
  }

  Tensors results() {
    Tensors all{values_.back(), rows_.back(), flags_.back()};
    for (size_t i = 0; i < values_.size(); i += 7) all.push_back(values_[i]);
    return all;
  }

  std::mt19937 random_;
  Tensors values_, rows_, flags_, conditions_;
  at::Tensor weight_, number_;
};

Tensors inputs() {
  return {data({rows, width}) * 0.1, with_bad_rows({rows, width}), data({width, width}) * 0.1,
          (at::arange(rows) % 3 == 0).view({rows, 1}), at::full({}, 0.25)};
}

graph::Graph graph_of(const Program& program) {
  const at::NoGradGuard no_grad;
  graph::Graph made = graph::trace(program, inputs());
  made.set_recorded_types();
  return made;
}

/// What is done to a graph. A fault of the kind that this test is for never ends: so there is a deadline, far away.
struct Work {
  std::string name;
  std::function<void(const graph::Graph&)> run;
};
const std::vector<Work>& all_work() {
  static const auto compile = [](const char* backend, bool gradients) {
    return [backend, gradients](const graph::Graph& graph) {
      Tensors given = inputs(), outputs;
      if (gradients)
        for (const size_t i : {0, 1, 2}) given[i].requires_grad_();
      const at::NoGradGuard no_grad;
      const c10::AutoGradMode mode(gradients);
      const auto executable = find_backend(backend)(graph, given);
      executable->run(given, outputs, {});
      if (gradients) outputs[0].nan_to_num().sum().backward();
    };
  };
  static const auto& work = *new std::vector<Work>{
      {"verify", [](const graph::Graph& graph) { graph::verify(graph); }},
      {"clean",
       [](const graph::Graph& graph) {
         graph::Graph copy = graph.clone();
         graph::clean(copy);
       }},
      {"decompose", [](const graph::Graph& graph) { graph::decompose(graph); }},
      {"print", [](const graph::Graph& graph) { graph::print(graph); }},
      {"memory of outputs", [](const graph::Graph& graph) { graph::OutputMemory(graph).depends_on_strides(); }},
      {"loops as text",
       [](const graph::Graph& graph) {
         for (const FusionGroup& part : cut(graph))
           if (part.fused && can_run_on_gpu(part.loops)) emit_for_gpu(part.loops, Lanes::positions);
       }},
      {"eager", compile("eager", false)},
      {"fused", compile("fused", false)},
      {"aot_eager with gradients", compile("aot_eager", true)},
      {"fused with gradients", compile("fused", true)},
  };
  return work;
}

uint64_t visits_of(const Work& work, const graph::Graph& graph) {
  const uint64_t before = graph::visits;
  const Deadline end(Deadline::in(60));
  work.run(graph);
  return graph::visits - before;
}

/// Of each node, of which a graph with gradients has several for each of the script. The most that was seen is 2,410.
constexpr uint64_t most_visits = 6000;

/// TRIAGE_SHARING: how many; TRIAGE_SHARING_SEED: the first.
uint32_t asked(const char* variable, uint32_t otherwise) {
  const char* const text = std::getenv(variable);
  return text ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : otherwise;
}

}  // namespace

TEST_CASE("a compile looks at each value a bounded number of times, in programs that share most of them") {
  const uint32_t first = asked("TRIAGE_SHARING_SEED", 0);
  for (uint32_t seed = first; seed < first + asked("TRIAGE_SHARING", 30); ++seed) {
    const graph::Graph graph = graph_of([&](const Tensors& in) { return Sharing(seed, in).any(20 + seed % 40); });
    for (const Work& work : all_work()) {
      uint64_t visits = 0;
      CHECK_NOTHROW_MESSAGE(visits = visits_of(work, graph), "program " << seed << ", " << work.name);
      CHECK_MESSAGE(visits < most_visits * graph.nodes().size(), "program " << seed << ", " << work.name << ": "
                                                                            << visits << " visits of "
                                                                            << graph.nodes().size() << " nodes");
      if (std::getenv("TRIAGE_SHARING"))
        MESSAGE(seed, " ", work.name, " ", visits / graph.nodes().size(), " of ", graph.nodes().size());
    }
  }
}

TEST_CASE("a chain four times as long takes about four times as many visits") {
  const bool long_ones = std::getenv("TRIAGE_SHARING") != nullptr;
  for (uint32_t kind = 0; kind < Sharing::kinds; ++kind)
    for (const Work& work : all_work()) {
      uint64_t per_node = 0;
      for (const size_t length : {50, 200, 1000, 5000}) {
        if (length > 200 && !long_ones) continue;
        const graph::Graph graph = graph_of([&](const Tensors& in) { return Sharing(1, in).chain(kind, length); });
        const uint64_t of_each = visits_of(work, graph) / graph.nodes().size();
        if (long_ones)
          MESSAGE("chain ", kind, ", ", work.name, ", ", graph.nodes().size(), " nodes: ", of_each, " visits of each");
        CHECK_MESSAGE(of_each <= (per_node == 0 ? most_visits : 3 * per_node),
                      "chain of " << length << " steps of kind " << kind << ", " << work.name << ": " << of_each
                                  << " visits of each node, " << per_node << " in a shorter one");
        per_node = of_each;
      }
    }
}

TEST_CASE("numbers that are computed of one another are found once, when a graph is compiled and when it runs") {
  for (const size_t length : {10, 100}) {
    std::string text = "graph numbers(%x: \"i32[4, 8]\", %n: \"i64[]\"):\n";
    std::string n = "%n";
    for (size_t i = 0; i < length; ++i) {
      const size_t sum = 2 * i, difference = 2 * i + 1;
      text += fmt::format("  %{}: \"i64[]\" = aten::add.Tensor({}, {}, 1)\n", sum, n, n);
      text += fmt::format("  %{}: \"i64[]\" = aten::sub.Tensor(%{}, {}, 1)\n", difference, sum, n);
      n = fmt::format("%{}", difference);
    }
    text += fmt::format("  %{0}: \"i32[4, 8]\" = aten::clamp_min(%x, {1})\n  return %{0}\n", 2 * length, n);
    graph::Graph graph = graph::parse(text);
    graph.set_recorded_types();
    const Tensors given{at::arange(32, at::kInt).view({4, 8}), at::full({}, 3, at::kLong)};
    const uint64_t before = graph::visits;
    const Deadline end(Deadline::in(60));
    const auto executable = find_backend("fused")(graph, given);
    CHECK(run(*executable, given)[0].equal(given[0].clamp_min(3)));
    CHECK(graph::visits - before < most_visits * graph.nodes().size());
  }
}

}  // namespace triage::fused
