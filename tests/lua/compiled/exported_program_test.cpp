// Exported programs as a C++ host has them.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/export.h>
#include <triage/runtime.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cli/folder.h"

namespace triage {
namespace {

using TensorsRef = at::ArrayRef<at::Tensor>;

std::string message_of_run(const ExportedProgram& program, const std::vector<at::Tensor>& inputs) {
  try {
    program.run(inputs);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("E04: a program of C++ is held to which of its inputs were one tensor, where that matters") {
  const ExportedProgram identity = export_function("identity", {"x", "y"}, {at::ones({2}), at::ones({2})},
                                                   [](TensorsRef inputs) { return inputs.vec(); });
  CHECK(identity.options().same_inputs.empty());
  const at::Tensor a = at::ones({2});
  CHECK(identity.run({a, a}).size() == 2);
  const auto chosen = [](TensorsRef inputs) {
    return std::vector<at::Tensor>{inputs[0].is_same(inputs[1]) ? inputs[0] : inputs[2]};
  };
  const ExportedProgram two =
      export_function("two", {"x", "y", "z"}, {at::ones({2}), at::ones({2}), at::zeros({3})}, chosen);
  CHECK(two.options().same_inputs == std::vector<size_t>{0, 1, 2});
  CHECK(two.run({a, at::ones({2}), at::zeros({3})})[0].numel() == 3);
  CHECK(message_of_run(two, {a, a, at::zeros({3})}).find("inputs 'x' and 'y' are the same tensor") !=
        std::string::npos);
  const ExportedProgram one = export_function("one", {"x", "y", "z"}, {a, a, at::zeros({3})}, chosen);
  CHECK(one.options().same_inputs == std::vector<size_t>{0, 0, 2});
  CHECK(one.run({a, a, at::zeros({3})})[0].numel() == 2);
  CHECK(message_of_run(one, {a, a.clone(), at::zeros({3})}).find("inputs 'x' and 'y' are different tensors") !=
        std::string::npos);
  for (const std::vector<size_t>& wrong : {std::vector<size_t>{0}, {1, 1, 2}, {0, 0, 1}, {0, 1, 2, 3}}) {
    ExportOptions options;
    options.same_inputs = wrong;
    CHECK_THROWS_AS(ExportedProgram(one.graph().clone(), options), InputError);
  }
}

TEST_CASE("E04: more inputs than can be tried in every way are held to what they were") {
  const std::vector<at::Tensor> five(5, at::ones({2}));
  const ExportedProgram program =
      export_function("five", {}, five, [](TensorsRef inputs) { return inputs.slice(0, 1).vec(); });
  CHECK(program.options().same_inputs == std::vector<size_t>{0, 0, 0, 0, 0});
  CHECK(program.run(five).size() == 1);
  std::vector<at::Tensor> other = five;
  other[3] = at::ones({2});
  CHECK(message_of_run(program, other).find("inputs 'x0' and 'x3' are different tensors") != std::string::npos);
}

TEST_CASE("E02: threads run, print and lower one program at once") {
  const ExportedProgram program(graph::parse(R"(graph rows(%n: "i64[]", %z: "f32[3, 2]"):
  %0: "i64[]" = triage::item(%n)
  %1: "b8[]" = aten::ge.Scalar(%0, 0)
  triage::assert_scalar(%1, "n is negative")
  %2: "f32[3, 2]" = aten::zeros([%0, 2])
  %3: "f32[3, 2]" = aten::cat([%2, %z])
  return %3
)"));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t n = -1; n < 33; ++n) {
        const std::vector<at::Tensor> inputs = {at::scalar_tensor(n, at::kLong), at::ones({3, 2}) * t};
        try {
          const ExportedProgram used = n % 8 == t ? program.run_decompositions() : program;
          const at::Tensor out = used.run(inputs)[0];
          wrong += n < 0 || out.size(0) != n + 3 || !out.slice(0, n).equal(inputs[1]);
        } catch (const PolicyError& error) {
          wrong += n >= 0 || std::string(error.what()).find("n is negative") == std::string::npos;
        }
        wrong += program.text().find("Sym(u0)") == std::string::npos;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

namespace {

/// From a file with a program of the line `call`, whose result is %0.
ExportedProgram loaded(const std::string& call, bool trusted = false) {
  const TemporaryFolder folder;
  const std::string path = folder / "contract.program";
  ExportedProgram(graph::parse("graph crafted(%x: \"f32[2, 2]\"):\n  " + call + "\n  return %0\n")).save(path);
  return ExportedProgram::load(path, trusted);
}

std::string why_not_loaded(const std::string& call) {
  try {
    loaded(call);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a program from a file calls operators by contract, unless the host trusts it") {
  for (const char* call : {R"(%0: "f32[2, 2]" = aten::empty_like(%x, None, None, None, None, None))",
                           R"(%0: "f32[2, 2]" = aten::special_zeta(%x, %x))"})
    CHECK(why_not_loaded(call).find("is not among the operators") != std::string::npos);
  CHECK(why_not_loaded(R"(%0: "f32[]" = aten::mse_loss(%x, %x, 77))").find("'reduction' is 77; expected 0 to 2") !=
        std::string::npos);
  CHECK(why_not_loaded(R"(%0: "f32[2, 2]" = aten::slice.Tensor(%x, 0, 0, 9, 1152921504606846976))").find("'step'") !=
        std::string::npos);
  const ExportedProgram zeta = loaded(R"(%0: "f32[2, 2]" = aten::special_zeta(%x, %x))", /*trusted=*/true);
  CHECK(zeta.run({at::full({2, 2}, 2.0)}).size() == 1);
}

TEST_CASE("a program from a file is held to its contracts when it runs") {
  const ExportedProgram large = loaded(R"(%0: "f32[2, 4]" = aten::repeat(%x, [65536, 65536]))");
  CHECK_THROWS_WITH_AS(large.run({at::ones({2, 2})}), doctest::Contains("MiB"), PolicyError);
  const ExportedProgram wrong = loaded(R"(%0: "f32[2, 2]" = aten::softmax.int(%x, 7, None))");
  CHECK_THROWS_WITH_AS(wrong.run({at::ones({2, 2})}), doctest::Contains("argument 'dim' is 7"), PolicyError);
  const ExportedProgram fine = loaded(R"(%0: "f32[2, 2]" = aten::softmax.int(%x, 1, None))");
  CHECK(fine.run({at::ones({2, 2})})[0].sum().item<float>() == doctest::Approx(2));
}

TEST_CASE("a program ends with its deadline, and with that of the policy whose host function runs it") {
  const auto ago = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  const ExportedProgram fine = loaded(R"(%0: "f32[2, 2]" = aten::softmax.int(%x, 1, None))");
  CHECK_THROWS_AS(fine.run({at::ones({2, 2})}, ago), LimitError);
  CHECK(fine.run({at::ones({2, 2})}, std::chrono::steady_clock::now() + std::chrono::hours(1)).size() == 1);

  std::string calls = "graph slow(%x: \"f32[2, 2]\"):\n  %0: \"f32[2, 2]\" = aten::exp(%x)\n";
  for (int i = 1; i < 200'000; ++i) calls += fmt::format("  %{}: \"f32[2, 2]\" = aten::sin(%{})\n", i, i - 1);
  const ExportedProgram slow(graph::parse(calls + "  return %199999\n"));
  RuntimeOptions options;
  options.limits.seconds = 0.05;
  Runtime runtime(options);
  bool ended = false;
  runtime.define("slow", [&](const std::vector<at::Tensor>& inputs) {
    try {
      return slow.run(inputs);
    } catch (const LimitError&) {
      ended = true;
      throw;
    }
  });
  const Policy policy = runtime.load_source("return policy {run = function(z) return slow(z) end}", "p.lua");
  CHECK_THROWS_AS(policy.run({at::ones({2, 2})}), LimitError);
  CHECK(ended);
}

}  // namespace triage
