// Whatever fails, triage survives it: no crash, no hang, no damaged file, and the last good version serves. Each failure happens in
// a process of its own, which goes through a policy's life: load, run, capture, reload, refuse, roll back.
//
// TRIAGE_FAILURE_STEP=1 tries every N, from TRIAGE_FAILURE_FROM on, and takes half an hour; without it some of them are tried.
#include "tests/attacks/forked.h"
#include "tests/failures/failing.h"
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <triage/triage.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

using triage::Policy;
using triage::Runtime;
using triage::test::Fails;

namespace {

namespace fs = std::filesystem;

std::string source(int version) {
  return R"(
return policy {
  inputs = {"z"}, outputs = {"z", "f"}, params = {limit = 3.0},
  run = function(z, p)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z", {fallback = )" +
         std::to_string(version) + R"(.0})
    return torch.clamp(z * 1.0, -100.0, 100.0) + p.limit * 0.0, f
  end,
  tests = {{name = "runs", args = function() return torch.ones(2, 3) end, check = function(z, f) return true end}},
})";
}

void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("triage-failures-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

/// Made before anything fails.
const at::Tensor& batch() {
  static const at::Tensor made = [] {
    at::Tensor z = at::ones({4, 8});
    z[1][3] = std::nan("");
    return z;
  }();
  return made;
}

/// What is wrong with an answer of version `version`; empty where it is right.
std::string wrong(const std::vector<at::Tensor>& outputs, int version) {
  at::Tensor expected = at::ones({4, 8});
  expected[1].fill_(version);
  if (outputs.size() != 2) return "it gave " + std::to_string(outputs.size()) + " outputs";
  if (!at::equal(outputs[0], expected)) return "a wrong answer of version " + std::to_string(version);
  return triage::err::count_errors(outputs[1])[1].item<int64_t>() == 2 ? "" : "wrong flags";
}

/// A step that may throw what a failure makes it throw, and nothing else: what has no memory is told as such.
template <class Step>
void may_fail(const Step& step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
  } catch (const c10::Error& error) {
    if (std::string(error.what_without_backtrace()).find("can't allocate memory") == std::string::npos) throw;
  } catch (const triage::Error&) {
  }
}

/// The version of the source that `policy` runs now: its answers must be those of one.
std::string serves(const Policy& policy) {
  std::vector<at::Tensor> outputs = policy.run({batch()});
  const auto fallback = static_cast<int>(outputs.at(0)[1][0].item<float>());
  return fallback >= 1 && fallback <= 3 ? wrong(outputs, fallback) : "it serves no version that there ever was";
}

/// A policy's life while something fails, and what is wrong afterwards; empty where all is well. `count`: of the operations.
std::string live(const triage::lua::testing::Say& tell, Fails kind, uint64_t nth, uint64_t more, bool tell_count) {
  const Folder folder;
  const auto say = [&](const char* stage) {
    const triage::test::Paused paused;
    tell(stage);
  };
  const auto save = [&](const std::string& text) { write(folder / "p.lua", text); };
  const fs::path file = folder / "p.lua";
  save(source(1));
  triage::RuntimeOptions options;
  options.cache_dir = folder / "cache";
  options.log = triage::test::no_log();
  options.trial_calls = 2;
  uint64_t operations = 0;
  {
    std::optional<Runtime> runtime;
    Policy policy;
    batch();
    triage::test::arm(kind, nth, more);
    say("making the Runtime");
    may_fail([&] { runtime.emplace(options); });
    say("loading");
    if (runtime) may_fail([&] { policy = runtime->load(file); });
    if (policy) {
      say("running");
      for (int i = 0; i < 3; ++i) may_fail([&] { policy.run({batch()}); });
      say("reloading");
      {
        const triage::test::Paused paused;
        save(source(2));
      }
      may_fail([&] { policy.reload(); });
      for (int i = 0; i < 3; ++i) may_fail([&] { policy.run({batch()}); });
      say("refusing");
      {
        const triage::test::Paused paused;
        save(source(3) + " broken(");
      }
      may_fail([&] { policy.reload(); });
      may_fail([&] { policy.run({batch()}); });
      say("asking");
      may_fail([&] { policy.statistics(); });
      may_fail([&] { triage::metrics_text(*runtime); });
      may_fail([&] { policy.versions(); });
      say("going back");
      may_fail([&] { policy.rollback(1); });
      may_fail([&] { policy.set_param("limit", 4.0); });
      may_fail([&] { policy.pin(1); });
      may_fail([&] { policy.run({batch()}); });
      may_fail([&] { policy.unpin(); });
    }
    operations = triage::test::disarm();
    say("serving afterwards");
    if (policy) {
      if (const std::string problem = serves(policy); !problem.empty()) return problem;
      save(source(3));
      if (policy.reload() != triage::Reload::swapped && policy.version().last_error)
        return "a good source is refused afterwards: " + policy.version().last_error->message;
      if (const std::string problem = wrong(policy.run({batch()}), 3); !problem.empty()) return problem;
    } else if (runtime) {
      policy = runtime->load(file);
      if (const std::string problem = wrong(policy.run({batch()}), 1); !problem.empty()) return problem;
    }
    say("ending");
  }
  say("restarting");
  Runtime next(options);
  if (const std::string problem = serves(next.load(file)); !problem.empty()) return "after a restart, " + problem;
  if (tell_count) return std::to_string(operations);
  return "";
}

/// Which Ns are tried: about `most`, or each TRIAGE_FAILURE_STEP-th.
std::vector<uint64_t> chosen(uint64_t operations, uint64_t most) {
  const auto asked = [](const char* name, uint64_t usual) {
    const char* const text = std::getenv(name);
    return std::max<uint64_t>(1, text ? std::strtoull(text, nullptr, 10) : usual);
  };
  const uint64_t step = asked("TRIAGE_FAILURE_STEP", operations / most);
  std::vector<uint64_t> all;
  for (uint64_t n = asked("TRIAGE_FAILURE_FROM", 1); n <= operations; n += step) all.push_back(n);
  return all;
}

void survives(Fails kind, uint64_t most) {
  namespace testing = triage::lua::testing;
  constexpr double seconds = 60;
  const testing::Ended clean =
      testing::in_fork([&](const auto& say) { return live(say, kind, 0, 0, /*tell_count=*/true); }, seconds);
  REQUIRE_MESSAGE(clean.death.empty(), clean.death << " at: " << clean.stage);
  const uint64_t operations = std::strtoull(clean.text.c_str(), nullptr, 10);
  REQUIRE_MESSAGE(operations > 10, clean.text);
  MESSAGE(operations << " operations");
  for (const uint64_t nth : chosen(operations, most))
    for (const uint64_t more : {uint64_t{0}, uint64_t{1000000}}) {
      if (more > 0 && kind != Fails::file) continue;  // a full disk stays full
      const testing::Ended ended =
          testing::in_fork([&](const auto& say) { return live(say, kind, nth, more, /*tell_count=*/false); }, seconds);
      CHECK_MESSAGE((ended.death.empty() && ended.text.empty()),
                    "failure " << nth << (more > 0 ? " and all after it" : "") << ", " << ended.stage << ": "
                               << ended.death << ended.text);
    }
}

}  // namespace

TEST_CASE("the Nth allocation of triage fails: no crash, and a version serves") { survives(Fails::allocation, 100); }

TEST_CASE("the Nth tensor cannot be allocated: no crash, and a version serves") { survives(Fails::tensor, 100); }

TEST_CASE("the Nth file operation fails, or all from the Nth on: no crash, no damaged file, and a version serves") {
  survives(Fails::file, 100);
}

TEST_CASE("a script that hits its budget anywhere leaves the policy that there was") {
  triage::RuntimeOptions options;
  options.log = triage::test::no_log();
  for (uint64_t bytes = 1 << 10; bytes < 4u << 20; bytes += bytes / 16) {
    CAPTURE(bytes);
    options.limits.script_bytes = bytes;
    may_fail([&] { serves(Runtime(options).load_source(source(1), "p.lua")); });
  }
  options.limits = {};
  for (uint64_t instructions = 1; instructions < 100'000; instructions += 1 + instructions / 8) {
    CAPTURE(instructions);
    options.limits.instructions = instructions;
    may_fail([&] { serves(Runtime(options).load_source(source(1), "p.lua")); });
  }
}
