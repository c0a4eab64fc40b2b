// Policies are held to the contracts of operators wherever their graphs run, and autocast passes through them.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>
#include <triage/triage.h>

#include <atomic>
#include <optional>

#include "bindings/lua/testing/policy_tests.h"
#include "runtime/compat/autocast.h"
#include "runtime/operators/untrusted.h"

using triage::Policy;
using triage::Runtime;

namespace {

/// Autocast to bfloat16 on the CPU, as a host sets it around a call.
class Autocast {
 public:
  Autocast() { triage::compat::set_autocast(c10::kCPU, {true, at::kBFloat16}); }
  ~Autocast() { at::autocast::clear_cache(); }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  triage::compat::RestoreAutocast restore_;
};

struct Case {
  const char *name, *body;  // of x, w, b
  at::Tensor (*expected)(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b);
};

const Case cases[] = {
    {"linear", "return torch.linear(x, w, b)",
     [](const auto& x, const auto& w, const auto& b) { return at::linear(x, w, b); }},
    {"linear twice", "return torch.linear(torch.linear(x, w, b), w, b)",
     [](const auto& x, const auto& w, const auto& b) { return at::linear(at::linear(x, w, b), w, b); }},
    {"matmul", "return torch.matmul(x, w)", [](const auto& x, const auto& w, const auto&) { return at::matmul(x, w); }},
    {"layer_norm of a product", "return torch.layer_norm(torch.matmul(x, w), {8}, one, zero)",
     [](const auto& x, const auto& w, const auto&) {
       const at::Tensor one = at::ones({8});
       return at::layer_norm(at::matmul(x, w), {8}, one, one * 0);
     }},
    {"group_norm of a product", "return torch.group_norm(torch.matmul(x, w), 2, one, zero)",
     [](const auto& x, const auto& w, const auto&) {
       const at::Tensor one = at::ones({8});
       return at::group_norm(at::matmul(x, w), 2, one, one * 0);
     }},
    {"cat", "return torch.cat({torch.matmul(x, w), x})",
     [](const auto& x, const auto& w, const auto&) {
       return at::cat({at::matmul(x, w), x});
     }},
    {"where", "return torch.where(x > 0, torch.matmul(x, w), x)",
     [](const auto& x, const auto& w, const auto&) { return at::where(x > 0, at::matmul(x, w), x); }},
    {"convolutions, pooled and normed",
     "local y = torch.conv1d(x:view({1, 4, 8}), w:view({2, 4, 8}), nil, {1}, {4})\n"
     "y = torch.conv1d(y, torch.ones({2, 2, 3}), nil, {1}, {1})\n"
     "return torch.batch_norm(torch.max_pool1d(y, {2}), one:narrow(0, 0, 2), zero:narrow(0, 0, 2), zero:narrow(0, 0, "
     "2), one:narrow(0, 0, 2), false, 0.1, 1e-5, true)",
     [](const auto& x, const auto& w, const auto&) {
       at::Tensor y = at::conv1d(x.view({1, 4, 8}), w.view({2, 4, 8}), {}, 1, 4);
       y = at::conv1d(y, at::ones({2, 2, 3}), {}, 1, 1);
       const at::Tensor one = at::ones({2});
       return at::batch_norm(at::max_pool1d(y, {2}), one, one * 0, one * 0, one, false, 0.1, 1e-5, true);
     }},
    {"a loss of what a product gives",
     "return torch.cross_entropy(torch.matmul(x, w), torch.zeros({4}, {dtype = torch.int64}))",
     [](const auto& x, const auto& w, const auto&) {
       return at::cross_entropy_loss(at::matmul(x, w), at::zeros({4}, at::kLong));
     }},
};

std::string source_of(const Case& one) {
  return std::string("local one, zero = torch.ones({8}), torch.zeros({8})\nreturn function(x, w, b)\n") + one.body +
         "\nend";
}

/// What a policy gives in each way that it runs: as a script, captured, and when its graph runs again.
template <typename Check>
void in_every_mode(const std::string& source, const std::vector<at::Tensor>& inputs, const Check& check) {
  struct Restore {
    triage::Stance stance = triage::get_stance();
    ~Restore() { triage::set_stance(stance); }
  };
  for (const char* mode : {"script", "eager", "aot_eager", "fused"}) {
    CAPTURE(mode);
    triage::RuntimeOptions options;
    const bool script = std::string(mode) == "script";
    if (!script) options.backend = mode;
    const Restore restore;
    if (script) triage::set_stance(triage::Stance::force_eager);
    const Policy policy = Runtime(options).load_source(source);
    for (int call = 0; call < 3; ++call) check([&] { return policy.run(inputs)[0]; });
  }
}

/// What ATen gives; nothing where this LibTorch takes no such call (1.13 has no norms of narrow inputs by float32
/// weights).
template <typename Call>
std::optional<at::Tensor> by_aten(const Call& call) {
  try {
    return call();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

template <typename Run>
void check_near(const Run& run, const std::optional<at::Tensor>& wanted) {
  if (!wanted) {
    CHECK_THROWS_AS(run(), triage::PolicyError);
    return;
  }
  const at::Tensor got = run(), &expected = *wanted;
  CHECK((got.scalar_type() == expected.scalar_type()));
  CHECK(at::allclose(got.to(at::kFloat), expected.to(at::kFloat), 0.02, 0.02));
}

/// An interpreter that counts runs under terms, and without.
struct Runs {
  std::atomic<int> held{0}, free{0};
};
Runs& runs() {
  static Runs counted;
  return counted;
}

class CountingHeld final : public triage::Executable {
 public:
  explicit CountingHeld(std::unique_ptr<triage::Executable> own) : own_(std::move(own)) {}
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
           const triage::CallContext& call) const override {
    ++(triage::operators::Untrusted::current() ? runs().held : runs().free);
    own_->run(inputs, outputs, call);
  }
  size_t bytes() const override { return own_->bytes(); }

 private:
  std::unique_ptr<triage::Executable> own_;
};

void register_counting() {
  static const bool once = [] {
    triage::register_backend("counting_terms",
                             [](const triage::graph::Graph& graph, const std::vector<at::Tensor>& examples) {
                               return std::make_unique<CountingHeld>(triage::find_backend("eager")(graph, examples));
                             });
    return true;
  }();
  (void)once;
  runs().held = runs().free = 0;
}

}  // namespace

TEST_CASE("under autocast of the host, contracts take what autocast casts, in every mode") {
  at::manual_seed(1);
  const at::Tensor x = at::randn({4, 8}), w = at::randn({8, 8}), b = at::randn({8});
  for (const Case& one : cases) {
    CAPTURE(one.name);
    for (const bool narrow_weights : {false, true}) {
      CAPTURE(narrow_weights);
      const at::ScalarType dtype = narrow_weights ? at::kBFloat16 : at::kFloat;
      const std::vector<at::Tensor> inputs{x, w.to(dtype), b.to(dtype)};
      const Autocast autocast;
      const auto expected = by_aten([&] { return one.expected(inputs[0], inputs[1], inputs[2]); });
      in_every_mode(source_of(one), inputs, [&](const auto& run) { check_near(run, expected); });
    }
  }
}

TEST_CASE("autocast that a policy asks for passes its contracts, in every mode") {
  at::manual_seed(2);
  const at::Tensor x = at::randn({4, 8}), w = at::randn({8, 8}), b = at::randn({8});
  for (const Case& one : cases) {
    CAPTURE(one.name);
    const auto expected = by_aten([&] {
      const Autocast autocast;
      return one.expected(x, w, b);
    });
    const std::string source = std::string(
                                   "local one, zero = torch.ones({8}), torch.zeros({8})\nreturn function(x, w, b)\n"
                                   "return torch.autocast('cpu', function()\n") +
                               one.body + "\nend)\nend";
    in_every_mode(source, {x, w, b}, [&](const auto& run) { check_near(run, expected); });
  }
}

TEST_CASE("without autocast, what is of two dtypes is refused, but for norms of narrow inputs") {
  const at::Tensor x = at::randn({4, 8}), w = at::randn({8, 8}), b = at::randn({8});
  const auto refused = [](const auto& run) {
    std::string message;
    try {
      run();
    } catch (const std::exception& error) {
      message = error.what();
    }
    CHECK_MESSAGE(message.find("argument 'weight' is a tensor of BFloat16; expected Float, as argument 'input' is") !=
                      std::string::npos,
                  message);
  };
  in_every_mode(source_of(cases[0]), {x, w.to(at::kBFloat16), b.to(at::kBFloat16)}, refused);
  const at::Tensor narrow = x.to(at::kBFloat16), one = at::ones({8});
  const auto expected = by_aten([&] { return at::layer_norm(narrow, {8}, one, one * 0); });
  in_every_mode("return function(x, one, zero) return torch.layer_norm(x, {8}, one, zero) end", {narrow, one, one * 0},
                [&](const auto& run) { check_near(run, expected); });
}

TEST_CASE("graphs of a policy run under its terms wherever they run: calls, preparation, reloads") {
  register_counting();
  triage::RuntimeOptions options;
  options.backend = "counting_terms";
  const auto drive = [](const Policy& policy) {
    const at::Tensor z = at::ones({4, 3});
    policy.prepare({z}, {.donate = {0}});
    policy.run({z});
    REQUIRE((policy.replace("return function(z) return z * 3 end") == triage::Reload::swapped));
    policy.run({z});
  };
  drive(Runtime(options).load_source("return function(z) return z * 2 end"));
  CHECK(runs().held >= 4);
  CHECK(runs().free == 0);
  register_counting();
  options.trusted = true;
  drive(Runtime(options).load_source("return function(z) return z * 2 end"));
  CHECK(runs().held == 0);
  CHECK(runs().free >= 4);
}

TEST_CASE("a policy's tests run its graphs under its terms, unless it is trusted") {
  const char* const source =
      "return policy { run = function(z) return z * 2 end, tests = {{ name = 'it', args = function() return "
      "torch.ones({4, 3}) end, check = function(y) return true end }} }";
  triage::lua::TestOptions options;
  options.script.path = "p.lua";
  options.backend = "counting_terms";
  for (const bool trusted : {false, true}) {
    register_counting();
    options.script.trusted = trusted;
    CHECK(triage::lua::run_policy_tests(source, options).tests.at(0).failure == "");
    CHECK((trusted ? runs().free : runs().held) >= 1);
    CHECK((trusted ? runs().held : runs().free) == 0);
  }
}
