// Declared outputs are the contract of a reload.
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/runtime.h>

using triage::Policy;
using triage::Reload;
using triage::Runtime;

namespace {

bool says(const Policy& policy, const std::string& part) {
  const auto failure = policy.version().last_error;
  return failure && failure->message.find(part) != std::string::npos;
}

/// A policy z -> y, of which both are declared.
std::string typed(const std::string& y, const std::string& body, const std::string& z = "float N 4") {
  return "inputs z\noutputs y\ndeclare z " + z + "\ndeclare y " + y + "\n" + body;
}

}  // namespace

TEST_CASE("a reload that declares other outputs is refused, also where nothing was called") {
  for (const bool called : {false, true}) {
    Runtime runtime;
    const Policy policy = runtime.load_source(typed("float N 4", "add 1"), "p.fake");
    if (called) policy.run({at::zeros({2, 4})});
    const auto refused = [&](const std::string& source, const std::string& why) {
      CHECK((policy.replace(source) == Reload::refused));
      CHECK_MESSAGE(says(policy, why), policy.version().last_error->message);
    };
    const std::string from = "the type of output 'y' from Tensor(float32_t, {\"N\", 4}) to ";
    refused(typed("double N 4", "double"), from + "Tensor(float64_t, {\"N\", 4})");
    refused(typed("float N 2", "narrow 2"), from + "Tensor(float32_t, {\"N\", 2})");
    refused(typed("float N 4 1", "add 1"), from + "Tensor(float32_t, {\"N\", 4, 1})");
    refused(typed("float M 4", "add 1"), from + "Tensor(float32_t, {\"M\", 4})");
    refused("inputs z\noutputs y\ndeclare z float N 4\nadd 1", from + "any");
    refused("inputs z\noutputs w\ndeclare z float N 4\ndeclare w float N 4\nadd 1",
            "the outputs from (y = Tensor(float32_t, {\"N\", 4})) to (w = Tensor(float32_t, {\"N\", 4}))");
    refused("inputs z\noutputs y v\ndeclare z float N 4\ndeclare y float N 4\npair 1",
            "the outputs from (y = Tensor(float32_t, {\"N\", 4})) to (y = Tensor(float32_t, {\"N\", 4}), v)");
    CHECK((policy.replace(typed("float N 4", "add 2")) == Reload::swapped));
  }
}

TEST_CASE("what the declared outputs leave open may differ between versions") {
  const at::Tensor z = at::zeros({3, 4});
  for (const std::string y : {"float N C", "floating N C", "float ...", "floating ..."}) {
    Runtime runtime;
    const Policy policy = runtime.load_source(typed(y, "narrow 2"), "p.fake");
    CHECK(policy.run({z})[0].size(1) == 2);
    CHECK((policy.replace(typed(y, "narrow 3")) == Reload::swapped));
    for (const int64_t rows : {0, 1, 2, 31, 32, 33}) CHECK(policy.run({at::zeros({rows, 4})})[0].size(1) == 3);
    CHECK(policy.version().number == 2);  // on trial as well
    if (y.rfind("floating", 0) == 0) {
      CHECK((policy.replace(typed(y, "double")) == Reload::swapped));
      CHECK((policy.run({z})[0].scalar_type() == at::kDouble));
      CHECK(policy.version().number == 3);
    }
  }
  Runtime runtime;
  const Policy renamed = runtime.load_source(typed("float N C", "narrow 2"), "p.fake");
  CHECK((renamed.replace(typed("float N columns", "narrow 3")) == Reload::swapped));
  const Policy observed = runtime.load_source("narrow 2", "p.fake");
  observed.run({z});
  CHECK((observed.replace("narrow 3") == Reload::refused));
}

TEST_CASE("a version that does not keep its own declaration is refused") {
  Runtime runtime;
  CHECK_THROWS_AS(runtime.load_source(typed("float N 4", "narrow 2"), "p.fake"), triage::LoadError);
  CHECK_THROWS_AS(runtime.load_source(typed("float N 4", "narrow 2", "floating N 4"), "p.fake"), triage::LoadError);
  // Its input has no type, so that nothing can be run before a call was made.
  const Policy policy = runtime.load_source("outputs y\nadd 1", "p.fake");
  policy.run({at::zeros({2, 4})});
  CHECK((policy.replace("outputs y\ndeclare y float N 4\nnarrow 2") == Reload::refused));
  CHECK_MESSAGE(says(policy, "output 'y' does not fit its declared type"), policy.version().last_error->message);
  CHECK(policy.version().number == 1);
}
