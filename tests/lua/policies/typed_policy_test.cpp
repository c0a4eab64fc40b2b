// Declared tensors in policies, as a host sees them: signatures, tensorcheck in captured code, what is thrown and
// warned.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <unistd.h>
#include <cstdio>
#include <limits>
#include <sstream>
#include <string>
#include <vector>
#include "tests/logs.h"
#include "tests/lua/policies/policies.h"

using triage::Policy;
using triage::Runtime;
using triage::test::nan_value;
using triage::test::says;

namespace {

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

Policy load_typed(const std::string& source) { return runtime().load_source(source, "typed.lua"); }

template <typename E, typename Call>
std::string said_by(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

/// What goes to standard error while `call` runs: LibTorch's warnings among it.
template <typename Call>
std::string standard_error(const Call& call) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file);
  std::fflush(stderr);
  const int saved = ::dup(2);
  ::dup2(::fileno(file), 2);
  call();
  std::fflush(stderr);
  ::dup2(saved, 2);
  ::close(saved);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

const char* const typed = R"(
  return policy {
    name = "repair",
    signature = {z = Tensor(float32_t, {"N", 4}), w = Tensor(float32_t, {"N", 1})},
    run = function(z, w, extra)
      local f = flag_nan_and_inf(z, "typed")
      return fix(z * w, f, "typed")
    end,
  })";

}  // namespace

TEST_CASE("T20, T32: a typed policy serves every batch with one graph") {
  Policy policy = load_typed(typed);
  for (int64_t rows : {3, 0, 1, 2, 31, 32, 33}) {
    at::Tensor z = at::randn({4, rows}).t(), w = at::ones({rows, 1});
    if (rows) z[0][1] = nan_value;
    auto [y, f] = policy.run<2>({z, w, z});
    CHECK(at::isfinite(y).all().item<bool>());
    CHECK(triage::has_err(f) == (rows > 0));
  }
  CHECK(policy.graphs().size() == 1);
  CHECK(policy.graph_breaks().empty());
  CHECK(says(policy.graphs()[0].guards, "w: size(0) == z: size(0)"));
}

TEST_CASE("T20: an input that does not fit the signature is the host's mistake, whatever on_error says") {
  triage::RuntimeOptions options;
  options.on_error = triage::OnError::pass_through;
  Runtime careless(options);
  Policy policy = careless.load_source(typed, "typed.lua");
  const at::Tensor z = at::ones({3, 4}), w = at::ones({3, 1});
  for (int round = 0; round < 2; ++round) {  // before and after there is a graph
    CHECK(
        said_by<triage::DimensionMismatchError>([&] {
          policy.run({at::ones({3, 5}), w, z});
        }) ==
        "DimensionMismatchError: policy 'repair': input 'z': dimension 1: expected 4, got 5; it is float32 (3, 5) and "
        "declared Tensor(float32_t, {\"N\", 4})");
    CHECK(says(said_by<triage::InputError>([&] {
                 policy.run({z, at::ones({2, 1}), z});
               }),
               "input 'w': dimension 0 ('N', as dimension 0 of input 'z'): expected 3, got 2"));
    CHECK_THROWS_AS(policy.run({z.to(at::kDouble), w, z}), triage::DTypeMismatchError);
    CHECK_THROWS_AS(policy.prepare({z, at::ones({2, 1}), z}), triage::ValidationError);
    policy.run({z, w, z});
  }
  CHECK(policy.graphs().size() == 1);
}

TEST_CASE("T20: a policy file may end with the function that tensorcheck gives") {
  const std::string checked =
      "local function repair(z, f) return fix(z, f, 'repair') end\n"
      "local checked = tensorcheck(repair, {args = {z = Tensor(float32_t, {'N', 2})}, "
      "returns = {Tensor(float32_t, {'N', 2}), Tensor(error_t, {'N', 'words'})}, auto_detect = ";
  for (const std::string end : {"false})\nreturn checked", "true})\nreturn tensorcheck(checked, {})",
                                "true})\nreturn policy {run = checked}"}) {
    CAPTURE(end);
    const Policy policy = load_typed(checked + end);
    CHECK(policy.signature().inputs == std::vector<std::string>{"z", "f"});
    const at::Tensor z = at::ones({3, 2}), f = triage::err::new_t(3);
    CHECK(policy.run({z, f})[0].equal(z));
    CHECK_THROWS_AS(policy.run({at::ones({3, 5}), f}), triage::PolicyError);
    CHECK(policy.graph_breaks().empty());
  }
}

TEST_CASE("T20: a policy that runs as a script is held to its signature on every call") {
  Policy policy = load_typed(
      "return policy {signature = {z = Tensor(float32_t, {\"N\", 2})}, run = function(z) return z * z:sum():item() "
      "end}");
  CHECK(policy.run({at::ones({1, 2})})[0].equal(at::ones({1, 2}) * 2));
  CHECK_FALSE(policy.graph_breaks().empty());
  CHECK_THROWS_AS(policy.run({at::ones({1, 3})}), triage::DimensionMismatchError);
}

TEST_CASE("T20: the signature of a policy shows the types of its inputs") {
  const triage::Signature signature = load_typed(typed).signature();
  REQUIRE(signature.input_types.size() == 3);
  CHECK(signature.input_types[0]->text() == "Tensor(float32_t, {\"N\", 4})");
  CHECK(signature.input_types[1]->dims.size() == 2);
  CHECK_FALSE(signature.input_types[2].has_value());
}

TEST_CASE("T20: a checked function is a policy's function, its inputs named beside it") {
  Policy policy = load_typed(R"(
    return policy {
      inputs = {"z"}, outputs = {"y"},
      run = tensorcheck(function(z) return z * 2 end, {args = {z = Tensor(float32_t, {"N", 2})}}),
    })");
  for (int64_t rows : {3, 0, 1, 33}) CHECK(policy.run({at::ones({rows, 2})})[0].equal(at::ones({rows, 2}) * 2));
  CHECK(policy.graphs().size() == 1);
  CHECK(says(said_by<triage::PolicyError>([&] { policy.run({at::ones({2, 3})}); }), "argument 'z': dimension 1"));
}

TEST_CASE("T20: a signature that cannot be used is refused at load") {
  const auto refused = [](const std::string& signature) {
    return said_by<triage::LoadError>(
        [&] { load_typed("return policy {signature = " + signature + ", run = function(z) return z end}"); });
  };
  CHECK(says(refused("{q = Tensor(float32_t)}"), "'q' is neither an input of the policy"));
  CHECK(says(refused("{Tensor(float32_t)}"), "an entry has no name"));
  CHECK(says(refused("{z = float32_t}"), "'z': expected a type such as Tensor("));
  CHECK(says(refused("{z = Tensor(float32_t, {Dim.hidden})}"), "Dim.hidden is an attribute of `self`"));
  CHECK(says(refused("3"), "expected a table of inputs and their types"));
}

TEST_CASE("T20: a reload keeps the types that hosts rely on") {
  const auto source = [](const std::string& signature) {
    return "return policy {" + signature + " run = function(z) return z * 1 end}";
  };
  Policy policy = load_typed(source("signature = {z = Tensor(float32_t, {\"N\", 4})},"));
  policy.run({at::ones({2, 4})});
  CHECK((policy.replace(source("signature = {z = Tensor(float32_t, {\"N\", 5})},")) == triage::Reload::refused));
  CHECK(says(policy.version().last_error->message, "the type of input 'z' from Tensor(float32_t, {\"N\", 4}) to"));
  CHECK((policy.replace(source("")) == triage::Reload::swapped));
  policy.run({at::ones({2, 7})});  // no type any more
  CHECK((policy.replace(source("signature = {z = Tensor(float32_t, {\"N\", 4})}, ")) == triage::Reload::refused));
  CHECK(says(policy.version().last_error->message, "the type of input 'z' from any to Tensor("));
}

TEST_CASE("T20: flags among the inputs: malformed ones are warned of, or refused when validation is strict") {
  Policy policy = load_typed(R"(
    return policy {
      signature = {f = Tensor(error_t, {"N", "words"}), z = Tensor(float32_t, {"N", 2})},
      run = function(f, z) return z * 1 end,
    })");
  const at::Tensor z = at::ones({3, 2});
  policy.run({triage::err::new_t(3), z});
  policy.run({triage::err::new_t(33), at::ones({33, 2})});
  CHECK(policy.graphs().size() == 1);
  policy.run({triage::err::new_t(4), z});
  policy.run({triage::err::new_t(4), z});
  CHECK(policy.graphs().size() == 2);  // a graph for these sizes alone
  triage::ErrorConfig strict = triage::get_config();
  strict.strict_validation = true;
  const triage::ScopedConfig scope(strict);
  CHECK(says(said_by<triage::ValidationError>([&] {
               policy.run({triage::err::new_t(4), z});
             }),
             "ValidationError: policy"));
  CHECK(policy.run({triage::err::new_t(3), z})[0].equal(z));
}

TEST_CASE("T20, T32: tensorcheck in a captured policy costs no graph for another batch") {
  Policy policy = load_typed(R"(
    local head = {inputs = 4, classes = 3, _fx_path = "head"}
    local weight = torch.ones({3, 4})
    local forward = tensorcheck(function(x) return torch.linear(x, weight):softmax(-1), err.new(x) end, {
      name = "head.forward", self = head,
      args = {x = Tensor(float32_t, {"N", Dim.inputs})},
      returns = {Tensor(float32_t, {"N", Dim.classes}), Tensor(error_t, {"N", "words"})},
    })
    return policy {
      fullgraph = true,
      run = function(x)
        local y, f = forward(x)
        return y, f
      end,
    })");
  for (int64_t rows : {3, 0, 1, 2, 31, 32, 33}) {
    at::Tensor x = at::randn({rows, 4});
    if (rows) x[rows - 1][0] = nan_value;
    auto [y, f] = policy.run<2>({x});
    CHECK(y.size(0) == rows);
    CHECK(triage::has_err(f) == (rows > 0));
    if (rows) CHECK(triage::flags::unpack(f, rows - 1)[0].location_name == "head");
  }
  REQUIRE(policy.graphs().size() == 1);
  // Nothing of the checks is left in the graph: linear, softmax, new flags, detection.
  CHECK(policy.graphs()[0].graph->nodes().size() == 4);
  CHECK(says(
      said_by<triage::PolicyError>([&] {
        policy.run({at::ones({2, 5})});
      }),
      "typed.lua:12: DimensionMismatchError: head.forward: argument 'x': dimension 1 (Dim.inputs): expected 4, got 5"));
}

TEST_CASE("T20: a malformed flags result is warned of once for each place, in the log of the Runtime") {
  std::ostringstream log;
  Runtime runtime({.log = triage::test::log_to(log)});
  const Policy policy = runtime.load_source(R"(
    local forward = tensorcheck(function(x) return x * 1, err.new_t(2) end, {
      name = "forward", returns = {Tensor(float32_t, {"N", "D"}), Tensor(error_t, {"N", "words"})},
    })
    return function(x) return forward(x) end)",
                                            "typed.lua");
  const std::string beside = standard_error([&] {
    for (int64_t rows : {3, 4, 5}) CHECK(policy.run({at::ones({rows, 2})})[0].size(0) == rows);
  });
  CHECK(beside.empty());
  const std::string warned = log.str();
  const std::string what = "a malformed flags tensor";
  CHECK(warned.find(what) == warned.rfind(what));
  CHECK(says(warned,
             "ValidationError: forward: result 2: a malformed flags tensor, dimension 0 ('N', as dimension 0 of "
             "result 1): expected 3, got 2"));
  CHECK(says(warned, "with strict_validation this is an error"));
}

TEST_CASE("T20: each kind of fault of a flags result is warned of") {
  Policy policy = load_typed(R"(
    local function made(f)
      return tensorcheck(function(x) return x * 1, f end, {
        name = "F", returns = {Tensor(float32_t, {"N", "D"}), Tensor(error_t, {"N", "words"})},
      })
    end
    local all = {
      made(torch.zeros({3, 4}, {dtype = int16_t})), made(torch.zeros({3, 5}, {dtype = int64_t})),
      made(torch.zeros({2, 4}, {dtype = int64_t})), made(torch.zeros({3}, {dtype = int64_t})),
    }
    return function(x)
      local y = x
      for _, each in ipairs(all) do y = each(y) end
      return y
    end)");
  const std::string warned = standard_error([&] {
    for (int i = 0; i < 2; ++i) policy.run({at::ones({3, 2})});
  });
  int times = 0;
  const std::string what = "a malformed flags tensor";
  for (size_t at = warned.find(what); at != std::string::npos; at = warned.find(what, at + 1)) ++times;
  CHECK(times == 4);
}

TEST_CASE("T24: a budget that runs out is no Result") {
  triage::RuntimeOptions options;
  options.limits.instructions = 200'000;
  Runtime limited(options);
  Policy policy = limited.load_source(
      "return function(z) return z * as_result(function() while true do end end)():unwrap_or(2) end", "loop.lua");
  CHECK_THROWS_AS(policy.run({at::ones({2})}), triage::LimitError);
}

TEST_CASE("a load makes no inputs of declared sizes that are too large, or that cannot be made") {
  const auto declared = [](const std::string& type) {
    return "return policy {inputs = {'z'}, outputs = {'y'}, signature = {z = " + type +
           ", y = Tensor(float32_t, {'N'})}, run = function(z) return z:sum(-1) end}";
  };
  const auto logged = [&](const std::string& type, size_t tensor_bytes = triage::Limits().tensor_bytes) {
    std::ostringstream log;
    triage::RuntimeOptions options;
    options.limits.tensor_bytes = tensor_bytes;
    options.log = triage::test::log_to(log);
    const Policy policy = Runtime(options).load_source(declared(type), "typed.lua");
    CHECK(policy.replace(declared(type) + " -- once more") == triage::Reload::swapped);
    return log.str();
  };
  const std::string first = "triage checks its declared outputs only in calls: ";
  CHECK(says(logged("Tensor(float32_t, {'N', 1000000000})"), first + "inputs of the declared sizes take 15259 MiB"));
  CHECK(says(logged("Tensor(float32_t, {'N', 9000000000000000000, 9000000000000000000})"), first));
  CHECK(says(logged("Tensor(float32_t, {'N', 1000000})", 8 << 20), "more than the 8 MiB"));
  CHECK(says(logged("Tensor(float32_t, {'N', 100000000})", 0), "more than the 256 MiB"));
  CHECK_FALSE(says(logged("Tensor(float32_t, {'N', 3})"), first));
}

TEST_CASE("a trial makes no batches that are far larger than those in use") {
  const std::string plain = "return policy {outputs = {'y'}, run = function(z) return z * 2 end}";
  const std::string other_of_33 =
      "return policy {outputs = {'y'}, run = function(z) if z:size(0) == 33 then return z:sum() end return z * 2 end}";
  for (const int64_t elements : {3, 1 << 20}) {
    const Policy policy = load_typed(plain);
    policy.run({at::ones({1, elements})});
    CHECK(policy.replace(other_of_33) == (elements == 3 ? triage::Reload::refused : triage::Reload::swapped));
  }
}
