// Reshapes that keep the rows are another way to count their elements: one loop goes through them.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <triage/graph.h>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

/// "F": one loop and nothing else; 'E': calls of ATen.
std::string parts_of(const Program& program, const Tensors& examples) {
  std::string parts;
  for (const FusionGroup& part : cut(graph::trace(program, examples))) parts += part.fused ? 'F' : 'E';
  return parts;
}

struct Shown {
  const char* name;
  Program program;
};

const std::vector<Shown>& programs() {
  static const std::vector<Shown> list = {
      {"flatten, a reduction, and back",
       [](const Tensors& in) {
         const at::Tensor x = (in[0] * 2).flatten(1), y = x / (x.abs().amax(-1, true) + 1);
         return Tensors{y.view(in[0].sizes()).relu() - 1};
       }},
      {"softmax of the whole row",
       [](const Tensors& in) { return Tensors{(in[0] - 1).flatten(1).softmax(-1).view(in[0].sizes()) * in[0]}; }},
      {"a reduction over segments, and one over all",
       [](const Tensors& in) {
         const at::Tensor x = in[0] - in[0].mean(-1, true), y = x.reshape({in[0].size(0), -1});
         return Tensors{y / (y.std(-1, true, true) + 1)};
       }},
      {"last dims as one",
       [](const Tensors& in) {
         const at::Tensor x = in[0].unsqueeze(2).flatten(2) * 2;
         return Tensors{x.softmax(-1).unflatten(-1, {1, in[0].size(2)}).squeeze(2) + in[0]};
       }},
      {"rows in other dims",
       [](const Tensors& in) {
         const at::Tensor x = in[0].flatten(1) + 1;
         return Tensors{
             (x.view({in[0].size(0), in[0].size(1), in[0].size(2)}).softmax(-1) * 3).reshape({in[0].size(0), -1})};
       }},
      {"one a row",
       [](const Tensors& in) {
         const at::Tensor most = in[0].flatten(1).amax(-1);
         return Tensors{in[0] / (most.view({-1, 1, 1}).abs() + 1), most.unsqueeze(1).squeeze(-1) * 2};
       }},
      {"segments in two ways of counting",
       [](const Tensors& in) {
         const at::Tensor x = in[0].view({in[0].size(0), in[0].size(1), in[0].size(2), 1}).softmax(2);
         const at::Tensor y = x.flatten(2).amax(-1, true);
         return Tensors{(x.squeeze(3) - y).reshape({in[0].size(0), -1}).relu()};
       }},
  };
  return list;
}

}  // namespace

TEST_CASE("reshapes that keep the rows do not cut a loop in two") {
  for (const Shown& one : programs()) {
    const Tensors examples{data({6, 5, 40})};
    CHECK_MESSAGE(parts_of(one.program, examples) == "F", one.name << ": " << parts_of(one.program, examples));
  }
}

TEST_CASE("reshapes in loops: ATen's values, at other sizes too") {
  for (const Shown& one : programs())
    for (const auto& sizes : {std::pair{5, 40}, {3, 4}, {40, 6}, {7, 130}}) {
      const int t = sizes.first, d = sizes.second;
      const Tensors examples{data({6, t, d})};
      const auto fused = compiled(one.program, examples);
      const Tensors given{with_bad_rows({6, t, d})}, expected = one.program(given);
      const Tensors got = run(*fused, given);
      for (size_t i = 0; i < expected.size(); ++i)
        CHECK_MESSAGE(same(got[i], expected[i]), one.name << ", " << t << " " << d);
    }
}

TEST_CASE("reductions over different dims of one tensor are one group, with the bits of two") {
  const std::vector<std::pair<const char*, std::function<at::Tensor(const at::Tensor&, int64_t)>>> reductions = {
      {"sum", [](const at::Tensor& x, int64_t dim) { return x.sum(dim); }},
      {"mean", [](const at::Tensor& x, int64_t dim) { return x.mean(dim, true); }},
      {"amax", [](const at::Tensor& x, int64_t dim) { return x.amax(dim); }},
      {"std", [](const at::Tensor& x, int64_t dim) { return x.std(dim, true, true); }},
      {"argmax", [](const at::Tensor& x, int64_t dim) { return x.argmax(dim); }}};
  for (const auto& one : reductions)
    for (const bool first_last : {false, true}) {
      const char* const name = one.first;
      const auto& reduction = one.second;
      const auto over = [&](int64_t dim, const Tensors& in) { return reduction(in[0] * 2 + 1, dim); };
      const Program both = [&](const Tensors& in) {
        const at::Tensor x = in[0] * 2 + 1;
        const at::Tensor a = reduction(x, first_last ? 1 : -1), b = reduction(x, first_last ? -1 : 1);
        return Tensors{first_last ? a : b, first_last ? b : a};
      };
      const Program time = [&](const Tensors& in) { return Tensors{over(1, in)}; };
      const Program features = [&](const Tensors& in) { return Tensors{over(-1, in)}; };
      for (const auto& sizes : {std::pair{30, 70}, {5, 5}, {130, 3}, {3, 200}, {12, 40}}) {
        const int t = sizes.first, d = sizes.second;
        const Tensors given{with_bad_rows({9, t, d})};
        CHECK_MESSAGE(parts_of(both, given) == "F", name << ", " << t << " " << d << ": " << parts_of(both, given));
        const auto make = [&](const Program& program) { return run(*compiled(program, given), given); };
        const Tensors got = make(both);
        CHECK_MESSAGE(same_bits(got[0], make(time)[0]), name << ", " << t << " " << d);
        CHECK_MESSAGE(same_bits(got[1], make(features)[0]), name << ", " << t << " " << d);
      }
    }
}

TEST_CASE("centered over time, then normed over features: one group") {
  const Program program = [](const Tensors& in) {
    const at::Tensor x = in[0] - in[0].mean(1, true);
    return Tensors{x / (x.std(-1, true, true) + 1), x.amax(1), in[0].sum({1, 2})};
  };
  for (const auto& sizes : {std::pair{30, 70}, {5, 5}, {130, 3}, {3, 200}}) {
    const int t = sizes.first, d = sizes.second;
    const Tensors given{data({9, t, d})}, expected = program(given);
    if (t != d) CHECK_MESSAGE(parts_of(program, given) == "F", t << " " << d << ": " << parts_of(program, given));
    const Tensors got = run(*compiled(program, given), given);
    for (size_t i = 0; i < expected.size(); ++i) CHECK_MESSAGE(same(got[i], expected[i]), i << ", " << t << " " << d);
  }
}

}  // namespace triage::fused
