#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/emit.h>
#include <runtime/backends/fused/regions.h>
#include <triage/flags.h>
#include <triage/graph.h>
#include <cstdlib>
#include <fstream>
#include "programs.h"
namespace triage::fused {
TEST_CASE("zz dump") {
  const char* dir = std::getenv("DUMP");
  if (!dir) return;
  const auto dump = [&](const std::string& name, const Program& p, const Tensors& in) {
    std::ofstream f(std::string(dir) + "/" + name + ".txt");
    auto g = graph::trace(p, in);
    for (const Part& part : cut(g)) {
      f << "=== fused=" << part.fused << "\n" << graph::print(part.graph) << "\n";
      if (part.fused) {
        auto s = emit(part.loops).source;
        static int k = 0;
        std::ofstream(std::string(dir) + "/" + name + std::to_string(k++) + ".cc") << s;
        auto at = s.find("extern \"C\"");
        f << s.substr(at) << "\n";
        for (auto c : in_place_choices(part.loops)) {
          f << "--- in place " << c.output << " " << c.slot << "\n" << emit(part.loops, c).source.substr(at) << "\n";
        }
      }
    }
  };
  const Tensors x{with_bad_rows({5, 37})};
  dump("detect_repair", detect_repair, x);
  dump("softmax_repair", softmax_repair, x);
  dump("zscore_clip", zscore_clip, x);
  dump(
      "flag",
      [](const Tensors& in) {
        return Tensors{flag_nan(in[0], 1), flag_nan_and_inf(in[0], 2)};
      },
      x);
  dump(
      "plain", [](const Tensors& in) { return Tensors{at::where(at::isfinite(in[0]), in[0], at::zeros({})) * 1}; }, x);
  dump(
      "branch",
      [](const Tensors& in) {
        auto m = in[0].abs().mean(-1, true);
        return Tensors{at::where(m > 3, at::tanh(in[0]), at::where(m < 1, in[0] * 2, in[0] / m)),
                       flag_nan_and_inf(in[0], 1)};
      },
      x);
  dump("mixed",
       [](const Tensors& in) {
         const at::Tensor &z = in[0], &weight = in[1], &q = in[2], &scale = in[3];
         const at::Tensor f = flag_nan_and_inf(q, 2, flag_nan(z, 1));
         const at::Tensor y = z * weight + z.mean(-1, true);
         return Tensors{y * scale, f, q * 2, y.sum(-1), err::count_errors(f)};
       },
       {with_bad_rows({5, 19}), data({19}), with_bad_rows({5, 3, 5}), at::scalar_tensor(1.5f)});
  dump("cube",
       [](const Tensors& in) {
         const at::Tensor& x = in[0];
         const auto [most, where] = x.max(-1);
         return Tensors{x.sum(-1),       x.mean(-1, true),
                        x.amax(-1),      x.amin(-1, true),
                        (x > 0).any(-1), (x < 1.5).all(-1, true),
                        x.std(-1),       x.var(-1, false, true),
                        x.argmax(-1),    most,
                        where,           x.norm(2, -1),
                        x.norm(1, -1)};
       },
       {with_bad_rows({5, 3, 7})});
  dump("chan",
       [](const Tensors& in) {
         const at::Tensor mean = in[0].mean({2, 3}, true);
         return Tensors{(in[0] - mean) * in[1], in[0].amax({2, 3}), in[0] * in[2] + in[1]};
       },
       {data({5, 3, 3, 7}), data({3, 1, 1}), data({5, 3, 1, 1})});
  dump("policy",
       [](const Tensors& in) {
         const at::Tensor f = flag_nan_and_inf(in[0], 1);
         auto [z, g] = fix(in[0], f, 1);
         const at::Tensor y = at::layer_norm(z.softmax(-1), {7}, in[1], in[2]);
         PushOptions options;
         options.where = (y.amax(-1) > 1.5).any(-1);
         return Tensors{y, err::push(g, err::value_clamped, 1, options), y.mean(-1), z.var(-1, false, true)};
       },
       {with_bad_rows({5, 3, 7}), data({7}), data({7})});
  dump("deep",
       [](const Tensors& in) {
         const at::Tensor &x = in[0], &segments = in[1], &positions = in[2], &weight = in[3], &both = in[4];
         return Tensors{x * segments + positions,
                        x - weight,
                        x / (both * both + 1),
                        segments * positions,
                        (x + in[5]).tanh(),
                        x * in[6],
                        segments.exp() * x.sum(-1, true),
                        at::where(segments > 0, x, positions),
                        positions.softmax(-1) * x,
                        segments.squeeze(-1).softmax(-1)};
       },
       {data({5, 3, 7}), data({5, 3, 1}), data({5, 1, 7}), data({7}), data({3, 7}), data({3, 1}), data({1, 1, 7})});
  dump("norms",
       [](const Tensors& in) {
         const at::Tensor& x = in[0];
         return Tensors{x.norm(2, -1),          x.norm(1, -1),          at::layer_norm(in[1], {24}, in[2], in[3]),
                        x.argmax(-1),           at::log_softmax(x, -1), x.std(-1),
                        x.to(at::kDouble).exp()};
       },
       {with_bad_rows({5, 33}), data({5, 24}), data({24}), data({24})});
}
}  // namespace triage::fused
