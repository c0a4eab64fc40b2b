#include "tests/failures/life.h"

#include "tests/logs.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace triage::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* log_name = "decisions.jsonl";

/// What has no memory is told as such, by triage or by LibTorch; what the system refuses, by triage alone.
bool is_of_a_failure(Fails kind, const std::exception& error) {
  if (dynamic_cast<const Error*>(&error)) return true;
  if (kind == Fails::system || kind == Fails::file) return false;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return true;
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch && std::string(of_torch->what_without_backtrace()).find("can't allocate memory") != std::string::npos;
}

}  // namespace

const at::Tensor& bad_batch() {
  static const at::Tensor made = [] {
    at::Tensor z = at::ones({4, 8});
    z[1][3] = std::nan("");
    return z;
  }();
  return made;
}

std::string repair_source(const char* number, const char* behind) {
  const Paused paused;
  return R"(
return policy {
  inputs = {"z"}, outputs = {"z", "f"}, params = {limit = 3.0, bounds = {-100.0, 100.0}},
  state = {calls = {shape = {}, dtype = torch.int64}},
  run = function(z, p, s)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z", {fallback = )" +
         std::string(number) + R"(})
    z = same(torch.clamp(z, p.bounds[0], p.bounds[1]) + p.limit * 0.0 + nothing)
    return z, f, {calls = s.calls + 1}
  end,
  tests = {{name = "runs", args = function() return torch.ones(2, 8) end, check = function(z, f) return true end}},
})" + std::string(behind);
}

std::string repair_source(int version, const char* behind) {
  const Paused paused;
  return repair_source((std::to_string(version) + ".0").c_str(), behind);
}

std::string wrong(const std::vector<at::Tensor>& outputs, int version) {
  at::Tensor expected = at::ones({4, 8});
  expected[1].fill_(version);
  if (outputs.size() != 2) return "it gave " + std::to_string(outputs.size()) + " outputs";
  if (!at::equal(outputs[0], expected)) return "a wrong answer of version " + std::to_string(version);
  return err::count_errors(outputs[1])[1].item<int64_t>() == 2 ? "" : "wrong flags";
}

int version_of(const std::vector<at::Tensor>& outputs, int newest) {
  const auto version = static_cast<int>(outputs.at(0)[1][0].item<float>());
  return version >= 1 && version <= newest && wrong(outputs, version).empty() ? version : 0;
}

Life::Life(const lua::testing::Say& say, const Failure& failure)
    : say_(say),
      failure_(failure),
      folder_(fs::temp_directory_path() / ("triage-failures-" + std::to_string(::getpid()))) {
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  bad_batch();
  excuse([] {
    c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get());  // allocates in a move that is noexcept
    const nlohmann::json list = {1, 2}, object = {{"a", list}};           // ... and in their destructors
  });
}

Life::~Life() {
  disarm();
  runtime.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void Life::write(const std::string& name, const std::string& text) const {
  const Paused paused;
  fs::create_directories(path(name).parent_path());
  std::ofstream(path("new")) << text;
  fs::rename(path("new"), path(name));
}

void Life::check(bool holds, const std::string& otherwise) {
  const Paused paused;
  if (!holds && problem.empty()) problem = otherwise;
}

bool Life::go_through(const char* name, const std::function<void()>& work) {
  {
    const Paused paused;
    say_(name);
  }
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    const Paused paused;
    if (!is_of_a_failure(failure_.kind, error)) throw;
    return false;
  }
}

void Life::begin() {
  const auto make = [this](RuntimeOptions options) {
    runtime.emplace(std::move(options));
    runtime->define("same", [](const std::vector<at::Tensor>& in) { return in; }, {.pure = true});
    runtime->define_tensor("nothing", at::zeros({8}));
  };
  RuntimeOptions options;
  options.cache_dir = path("cache");
  options.log = no_log();
  options.trial_calls = 2;
  options.trial_seconds = 0;
  arm(failure_.kind, failure_.nth, failure_.more);
  step("opening the decision log", [&] {
    DecisionLogOptions log;
    log.file = path(log_name);
    log.log = no_log();
    decisions_ = std::make_shared<DecisionLog>(log);
  });
  options.decisions = decisions_;
  if (step("making the Runtime", [&] { make(options); })) return;
  const Paused paused;  // a host that tries again
  make(options);
}

Runtime& Life::restart() {
  say_("restarting");
  runtime.reset();
  decisions_.reset();
  RuntimeOptions options;
  options.cache_dir = path("cache");
  options.log = no_log();
  runtime.emplace(options);
  runtime->define("same", [](const std::vector<at::Tensor>& in) { return in; }, {.pure = true});
  runtime->define_tensor("nothing", at::zeros({8}));
  return *runtime;
}

void Life::end() {
  operations = disarm();
  say_("looking at the decision log");
  if (decisions_) decisions_->flush();
  check_log();
}

/// Each line is whole, but for the end of one that a failing disk cut, and there are as many as were counted.
void Life::check_log() {
  if (!decisions_) return;
  std::ifstream file(path(log_name));
  uint64_t decisions = 0, cut = 0;
  for (std::string line; std::getline(file, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_discarded())
      cut += !line.empty();
    else
      decisions += !parsed.contains("dropped");
  }
  const DecisionCounts counts = decisions_->counts();
  check(cut == 0 || failure_.kind == Fails::file || failure_.kind == Fails::system,
        "a line of the decision log is not whole");
  check(decisions >= counts.written,
        "the decision log has " + std::to_string(decisions) + " lines, and counts " + std::to_string(counts.written));
}

}  // namespace triage::test
