// Joint forward and backward graphs: their print, their halves, and the dead-row pass.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>
#include <triage/flags.h>

#include <cstdlib>
#include <limits>

#include "build.h"
#include "runtime/backends/aot/joint.h"

namespace triage::aot {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Tensors run(const graph::Graph& graph, const Tensors& inputs) {
  Tensors outputs;
  find_backend("eager")(graph, inputs)->run(inputs, outputs);
  return outputs;
}

}  // namespace

TEST_CASE("debug") {
  const char* text = std::getenv("TEXT");
  if (!text) return;
  const graph::Graph g = graph::parse(text);
  Tensors primals;
  for (const auto& input : g.inputs())
    primals.push_back(at::isFloatingType(input.value->meta->dtype) ? at::randn(input.value->meta->sizes).requires_grad_() : at::zeros(input.value->meta->sizes, at::kLong));
  Tensors outs = run(g, primals), tangents;
  for (auto& o : outs) tangents.push_back(o.requires_grad() ? at::ones_like(o) : at::Tensor());
  Joint joint = record_joint(g, primals, tangents);
  MESSAGE(graph::print(joint.graph));
  mask_dead_rows(joint);
  MESSAGE(graph::print(joint.graph));
  const Halves halves = partition(joint);
  MESSAGE(graph::print(halves.forward));
  MESSAGE(graph::print(halves.backward));
}

}  // namespace triage::aot
