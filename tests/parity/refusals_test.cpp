// Bad input gives the same clear error from the plain script, from the call that records, and from the captured graph; and
// the policy goes on to serve the next batch.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <spdlog/logger.h>
#include <triage/triage.h>

#include "programs.h"

namespace triage::parity {
namespace {

struct Refusal {
  std::string name;
  std::string source;
  size_t input;      // which one is bad
  at::Tensor bad;    // what it is then
  std::string says;  // part of the message
};

constexpr int64_t n = 6;

std::vector<Refusal> refusals() {
  const at::Tensor f = input("f", n, false), z = input("z", n, false), m = input("m", n, false);
  const std::string push = "return function(f, m) return err.push(f, err.NAN, 3, {where = m}) end";
  const std::string codes = "return function(f, c) return err.push(f, c, 3) end";
  const std::string ids = "return function(i, f) return flag_oob_indices(i, 10, 3, f) end";
  const std::string repair = "return function(z, f) return fix(z, f, 3) end";
  const std::string select =
      "return function(m, z) return IF(m, function() return z end):ELSE(function() return z * 2 end) end";
  return {
      {"flags of another width", push, 0, f.slice(1, 0, 3), "16 slots"},
      {"flags of another dtype", push, 0, f.to(at::kHalf), "int64, int32, float32 or float64"},
      {"flags of another rank", push, 0, f.select(1, 0), "(N, num_words)"},
      {"a mask of another batch", push, 1, m.slice(0, 1), "(6,)"},
      {"a mask of one sample does not broadcast", push, 1, m.slice(0, 0, 1), "(6,)"},
      {"a mask over elements", push, 1, z.isnan(), "flatten(1).any(1)"},
      {"a mask of numbers", push, 1, m.to(at::kFloat), "bool mask"},
      {"codes of another batch", codes, 1, input("c", n + 1, false), "(6,)"},
      {"codes that are no integers", codes, 1, input("v", n, false), "integer dtype"},
      {"indices of another batch", ids, 0, input("i", n - 1, false), "5 samples"},
      {"data of another batch", repair, 0, input("z", n + 2, false), "8 samples"},
      {"data without a batch", repair, 0, at::zeros({}), "0-dim"},
      {"an empty batch beside flags", repair, 0, input("z", 0, false), "0 samples"},
      {"a condition of another batch", select, 0, m.slice(0, 2), "sample"},
      {"a condition that is no mask", select, 0, m.to(at::kLong), "bool"},
  };
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
    return "(no error)";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("T05 T14 T15: bad input gives the error of the contract in every mode") {
  RuntimeOptions options;
  options.fullgraph = true;
  options.logger = std::make_shared<spdlog::logger>("quiet");
  for (const Refusal& refusal : refusals()) {
    CAPTURE(refusal.name);
    const Program program{refusal.name, refusal.source, false};
    const Tensors good = inputs(input_names(program), n, false);
    Tensors bad = good;
    bad[refusal.input] = refusal.bad;
    Runtime runtime(options);
    const Policy fresh = runtime.load_source(program.source), warm = runtime.load_source(program.source);
    const Tensors expected = warm.run(good);
    for (const std::string& said : {message_of([&] { run_script(program, bad); }), message_of([&] { fresh.run(bad); }),
                                    message_of([&] { warm.run(bad); })})
      CHECK_MESSAGE(said.find(refusal.says) != std::string::npos,
                    "expected '" << refusal.says << "', it said: " << said);
    CHECK(at::equal(fresh.run(good)[0].nan_to_num(), expected[0].nan_to_num()));
    CHECK(at::equal(warm.run(good)[0].nan_to_num(), expected[0].nan_to_num()));
  }
}

}  // namespace triage::parity
