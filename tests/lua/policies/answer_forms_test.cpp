// The form of every answer: what a version gives after its trial is what callers got before, or the version is taken
// back.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/triage.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/policy/bundles/manifest.h"

namespace {

using triage::Answered;
using triage::Policy;
using triage::Runtime;

/// Of a policy that counts its calls, and returns `late` after the first twenty; `usual` before.
std::string counting(const std::string& usual, const std::string& late) {
  return fmt::format(
      "local n = 0\nreturn policy {{name = 'p', inputs = {{'z'}}, run = function(z) n = n + 1 local f = flag_nan(z, "
      "'a') "
      "if n > 20 then return {} end return {} end}}",
      late, usual);
}

/// The same, but what decides is a value of the inputs.
std::string deciding(const std::string& usual, const std::string& late) {
  return fmt::format(
      "return policy {{name = 'p', inputs = {{'z'}}, run = function(z) local f = flag_nan(z, 'a') "
      "if (z:min() > 50):item() then return {} end return {} end}}",
      late, usual);
}

triage::RuntimeOptions quiet(size_t trial_calls) {
  triage::RuntimeOptions options;
  options.trial_calls = trial_calls;
  options.trial_seconds = 0;
  options.log = [](const triage::LogRecord&) {};
  options.print = [](const std::string&) {};
  return options;
}

struct Change {
  const char *usual, *late, *said;
};
const Change changes[] = {
    {"z, f", "f, z", "the type of output"},
    {"z, f", "z:double(), f", "from Float to Double"},
    {"z, f", "z", "the outputs from"},
    {"z, f", "z, f, z", "the outputs from"},
    {"z, f", "z:sum(-1), f", "the shape of output"},
    {"z, f", "z:unsqueeze(0), f", "the shape of output"},
    {"z, f", "z, z", "the type of output"},
    {"z, z:narrow(1, 0, 2)", "z:narrow(1, 0, 2), z", "the shape of output"},
};

std::string shape_of(const std::vector<at::Tensor>& outputs) {
  std::string text;
  for (const at::Tensor& output : outputs)
    text += fmt::format("{}:{} ", c10::toString(output.scalar_type()), output.dim());
  return text;
}

}  // namespace

TEST_CASE("a version that changes the form of its answers after its trial is taken back, and no caller gets one") {
  for (const Change& change : changes) {
    for (const bool counts : {true, false}) {
      CAPTURE(change.late);
      CAPTURE(counts);
      const auto source = [&](const char* late) {
        return counts ? counting(change.usual, late) : deciding(change.usual, late);
      };
      Runtime runtime(quiet(5));
      const Policy policy = runtime.load_source(source(change.usual), "p.lua");
      const std::string before = shape_of(policy.run({at::ones({4, 3})}));
      REQUIRE(policy.replace(source(change.late)) == triage::Reload::swapped);
      int by_previous = 0, other_forms = 0;
      for (int i = 0; i < 60; ++i) {
        triage::RunInfo info;
        const auto outputs = policy.run({at::full({4, 3}, i < 25 ? 1 : 100, at::kFloat)}, {.info = &info});
        other_forms += shape_of(outputs) != before;
        by_previous += info.answered == Answered::previous;
      }
      CHECK(other_forms == 0);
      CHECK(by_previous == 1);
      CHECK(policy.version().number == 1);
      const auto failure = policy.version().last_error;
      REQUIRE(failure);
      CHECK_MESSAGE(failure->message.find(change.said) != std::string::npos, failure->message);
    }
  }
}

TEST_CASE("a canary that changes the form of its answers is blamed, and the live version answers") {
  Runtime runtime(quiet(5));
  const Policy policy = runtime.load_source(counting("z, f", "z, f"), "p.lua");
  const std::string before = shape_of(policy.run({at::ones({4, 3})}));
  policy.canary_source(counting("z, f", "z:double(), f"), {.share = 1});
  int other_forms = 0;
  for (int i = 0; i < 60; ++i) other_forms += shape_of(policy.run({at::ones({4, 3})})) != before;
  CHECK(other_forms == 0);
  for (int i = 0; i < 10'000 && policy.candidate()->state != triage::CandidateState::reverted; ++i) ::usleep(1000);
  CHECK(policy.candidate()->state == triage::CandidateState::reverted);
}

TEST_CASE("a policy with state: the answer and the state are those of the version before") {
  Runtime runtime(quiet(5));
  const auto source = [](const char* late) {
    return fmt::format(
        "return policy {{name = 'p', inputs = {{'z'}}, state = {{n = {{shape = {{}}}}}}, run = function(z, s) "
        "local n = s.n + 1 local f = flag_nan(z, 'a') if n:item() > 20 then {} end return z, f, {{n = n}} end}}",
        late);
  };
  const Policy policy = runtime.load_source(source(""), "p.lua");
  const std::string before = shape_of(policy.run({at::ones({4, 3})}));
  REQUIRE(policy.replace(source("return f, z, {n = n + 100}")) == triage::Reload::swapped);
  for (int i = 0; i < 39; ++i) CHECK(shape_of(policy.run({at::ones({4, 3})})) == before);
  CHECK(policy.version().number == 1);
  REQUIRE(policy.state().size() == 1);
  CHECK(policy.state()[0].tensors.at(0).second.item<float>() == 40);
}

TEST_CASE("where no version can stand in, an answer of another form is an error of the policy") {
  Runtime runtime(quiet(5));
  const Policy policy = runtime.load_source(deciding("z, f", "z:double(), f"), "p.lua");
  policy.run({at::ones({4, 3})});
  try {
    policy.run({at::full({4, 3}, 100, at::kFloat)});
    FAIL("it was handed out");
  } catch (const triage::PolicyError& error) {
    const std::string text = error.what();
    CHECK_MESSAGE(text.find("changes the type of output 'out0' from Float to Double") != std::string::npos, text);
    CHECK_MESSAGE(text.find("its answers so far") != std::string::npos, text);
  }
  CHECK((policy.run({at::ones({4, 3})})[0].scalar_type() == at::kFloat));
}

TEST_CASE("forms that follow the forms of the inputs, and sizes that follow values, are what they were") {
  Runtime runtime(quiet(5));
  for (const char* const body :
       {"print(z:sum():item()) return z:squeeze(0)", "print(z:sum():item()) return z:sum(-1)",
        "print(z:sum():item()) return z[z:gt(0.5)]", "print(z:sum():item()) return z:nonzero()",
        "local k = (z:sum() > 20):item() and 1 or 2 return z:narrow(1, 0, k)",
        "if z.dtype == torch.float64 then return z:long() end print(z:sum():item()) return z"}) {
    CAPTURE(body);
    const std::string source = fmt::format("return policy {{name = 'p', run = function(z) {} end}}", body);
    const Policy policy = runtime.load_source(source, "p.lua");
    const auto call = [&] {
      for (const int64_t rows : {4, 1, 7, 0, 33, 4, 1, 2})
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
          for (const int value : {1, 100}) policy.run({at::full({rows, 3}, value, dtype)});
    };
    CHECK_NOTHROW(call());
    REQUIRE(policy.replace("-- again\n" + source) == triage::Reload::swapped);
    for (int times = 0; times < 3; ++times) CHECK_NOTHROW(call());
    CHECK(policy.version().number == 2);
  }
}

TEST_CASE("a param that the host sets may change the form") {
  Runtime runtime(quiet(5));
  const Policy policy = runtime.load_source(
      "return policy {name = 'p', params = {wide = false}, run = function(z, p) if p.wide:item() then return "
      "z:double() end "
      "return z end}",
      "p.lua");
  policy.run({at::ones({2})});
  CHECK((policy.run({at::ones({2})}, {.params = {{"wide", true}}})[0].scalar_type() == at::kDouble));
  CHECK((policy.run({at::ones({2})})[0].scalar_type() == at::kFloat));
  policy.set_param("wide", true);
  CHECK((policy.run({at::ones({2})})[0].scalar_type() == at::kDouble));
}

TEST_CASE("after a reload, an answer for inputs that only the version before knew is held to what it gave") {
  Runtime runtime(quiet(1));
  const char* const first = "return policy {name = 'p', run = function(z) print(z:sum():item()) return z end}";
  const char* const second =
      "return policy {name = 'p', run = function(z) print(z:sum():item()) if z:dim() == 3 and (z:min() > 5):item() "
      "then return "
      "z:long() end return z end}";
  const Policy policy = runtime.load_source(first, "p.lua");
  policy.run({at::zeros({2, 3})});
  policy.run({at::zeros({2, 3, 4})});
  REQUIRE(policy.replace(second) == triage::Reload::swapped);
  policy.run({at::zeros({2, 3})});
  policy.run({at::zeros({2, 3, 4})});
  CHECK((policy.run({at::full({2, 3, 4}, 9, at::kFloat)})[0].scalar_type() == at::kFloat));
  CHECK(policy.version().number == 1);
}

TEST_CASE("a policy of a bundle that changes the form of its answers takes the whole bundle back") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("triage-forms-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const auto save = [&](const std::string& source, const char* version) {
    std::ofstream(folder / "p.lua") << source;
    std::ofstream(folder / "q.lua") << "return policy {name = 'q', run = function(z) return z + " << version << " end}";
    triage::policy::Manifest manifest = triage::policy::list_folder(folder);
    manifest.name = "pair";
    manifest.version = version;
    std::ofstream(folder / "bundle.json") << manifest.text();
  };
  save(counting("z, f", "z, f"), "1");
  Runtime runtime(quiet(5));
  const triage::Bundle bundle = runtime.load_bundle(folder);
  const Policy policy = bundle.policy("p"), other = bundle.policy("q");
  const std::string before = shape_of(policy.run({at::ones({4, 3})}));
  other.run({at::ones({2})});
  save(counting("z, f", "f, z"), "2");
  REQUIRE(bundle.reload() == triage::Reload::swapped);
  for (int i = 0; i < 8; ++i) CHECK(other.run({at::ones({2})})[0].sum().item<float>() == 6);
  for (int i = 0; i < 40; ++i) CHECK(shape_of(policy.run({at::ones({4, 3})})) == before);
  CHECK(bundle.version().number == 1);
  CHECK(other.run({at::ones({2})})[0].sum().item<float>() == 4);
  fs::remove_all(folder);
}
