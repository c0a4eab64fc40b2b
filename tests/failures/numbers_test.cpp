// Every number that a host passes in a struct of the C++ headers is tried at the ends of its type: what it is passed to
// works, with the right answer, or throws a triage::Error; and the next call works. The list of numbers is that of the
// headers.
#include "tests/attacks/forked.h"
#include "tests/failures/life.h"
#include "tests/logs.h"
#include "tests/numeric_fields.h"
#include "tests/paths.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/triage.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace triage::test {
namespace {

/// Structs that the library fills for its host, or that tell a host what it made itself.
constexpr const char* results[] = {"BundleVersion",
                                   "LoopTiers",
                                   "CacheStatistics",
                                   "CandidateSide",
                                   "FlagDifference",
                                   "SampleDifference",
                                   "ShadowReport",
                                   "CandidateReport",
                                   "ValueDifference",
                                   "ValueStatistics",
                                   "GraphComparison",
                                   "Break",
                                   "Recompile",
                                   "CompileTimes",
                                   "PhaseTime",
                                   "DecisionCounts",
                                   "Source",
                                   "ErrorReport",
                                   "Count",
                                   "Example",
                                   "UnpackedError",
                                   "TableRow",
                                   "MutableValue",
                                   "Node",
                                   "Provenance",
                                   "LoadFailure",
                                   "VersionInfo",
                                   "WatchEvent",
                                   "RunInfo",
                                   "FlagCount",
                                   "CallStatistics",
                                   "PolicyStatistics",
                                   "Version",
                                   "TrackedModule",
                                   "SizeFact",
                                   "Binding",
                                   "LocationUsage",
                                   "Verification",
                                   "Violation",
                                   "ViolationCount",
                                   "Owner"};
/// These need a group of processes (tests/distributed), or are made by a parser of types or a backend.
constexpr const char* elsewhere[] = {"AgreeOptions", "ReduceOptions", "SameOptions", "Dim", "CallContext"};

bool is_tried(const std::string& field) {
  const std::string name = field.substr(0, field.find("::"));
  const auto is_name = [&](const char* one) { return name == one; };
  return std::none_of(std::begin(results), std::end(results), is_name) &&
         std::none_of(std::begin(elsewhere), std::end(elsewhere), is_name);
}

/// A number given is refused, or met as a limit; whatever else is thrown ends the test.
template <class Work>
bool works(const Work& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    if (std::strlen(error.what()) < 20) throw std::runtime_error(fmt::format("a short message: {}", error.what()));
    return false;
  }
}

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

Policy loaded(Runtime& runtime, int version = 1) {
  runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; }, {.pure = true});
  runtime.define_tensor("nothing", at::zeros({8}));
  return runtime.load_source(repair_source(version), "p.lua");
}

void run_twice(const Policy& policy, int version, const RunOptions& options = {}) {
  for (int i = 0; i < 2; ++i) {
    const std::string problem = wrong(policy.run({bad_batch()}, options), version);
    expect(problem.empty(), problem.c_str());
  }
}

bool live(RuntimeOptions options) {
  options.log = no_log();
  return works([&] {
    Runtime runtime(options);
    const Policy policy = loaded(runtime);
    run_twice(policy, 1);
    for (int version = 2; version < 4; ++version) {
      expect(policy.replace(repair_source(version)) == Reload::swapped, "a good source was refused");
      run_twice(policy, version);
    }
    policy.rollback(policy.versions().front().number);
    policy.set_state(policy.state());
  });
}

struct Fixture {
  Runtime runtime{RuntimeOptions{.log = no_log()}};
  Policy policy = loaded(runtime);
};
Fixture& fixture() {
  static auto& one = *new Fixture;
  return one;
}

bool live(const Limits& limits) {
  RuntimeOptions options;
  options.limits = limits;
  return live(options);
}
bool live(const RunOptions& options) {
  const bool fine = works([&] { run_twice(fixture().policy, 1, options); });
  works([&] { fixture().policy.prepare({bad_batch()}, options); });
  run_twice(fixture().policy, 1);
  return fine;
}
bool live(const WatchOptions& options) {
  return works([&] {
    Watch watch = fixture().runtime.watch(source_dir() + "/tests/failures", options);
    watch.rescan();
  });
}
template <class Start>
bool live_beside(const Start& start) {
  const Policy& policy = fixture().policy;
  const bool fine = works([&] {
    start(policy);
    run_twice(policy, 1);
    static_cast<void>(policy.candidate()->text());
    if (policy.candidate()->state == CandidateState::running) policy.end_candidate();
  });
  run_twice(policy, 1);
  return fine;
}
/// Each time another one: the one before may have gone live.
std::string another_source() {
  static std::string behind;
  behind += '\n';
  return repair_source(1, behind.c_str());
}
bool live(const ShadowOptions& options) {
  return live_beside([&](const Policy& policy) { policy.shadow_source(another_source(), options); });
}
bool live(const CanaryOptions& options) {
  return live_beside([&](const Policy& policy) { policy.canary_source(another_source(), options); });
}
bool live(const RevertIf& rules) {
  CanaryOptions options;
  options.revert_if = rules;
  return live(options);
}
bool live(DecisionLogOptions options) {
  options.on_line = [](std::string_view) {};
  options.file = std::filesystem::temp_directory_path() / fmt::format("triage-numbers-{}.jsonl", ::getpid());
  options.log = no_log();
  const bool fine = works([&] {
    RuntimeOptions of_runtime;
    of_runtime.log = no_log();
    of_runtime.decisions = std::make_shared<DecisionLog>(options);
    Runtime runtime(of_runtime);
    run_twice(loaded(runtime), 1);
    of_runtime.decisions->flush();
  });
  std::filesystem::remove(options.file);
  return fine;
}
bool live(const CompilerConfig& config) {
  const CompilerConfig before = get_compiler_config();
  const bool fine = works([&] {
    set_compiler_config(config);
    Runtime runtime(RuntimeOptions{.log = no_log()});
    run_twice(loaded(runtime), 1);
  });
  set_compiler_config(before);
  return fine;
}
bool live(const ErrorConfig& config) {
  return works([&] {
    const at::Tensor f = err::new_(bad_batch(), {config});
    static_cast<void>(flags::repr(f, {config}));
    config.validate();
  });
}
bool live(const Diagnostics& diagnostics) {
  const Diagnostics before = get_diagnostics();
  const bool fine = works([&] { set_diagnostics(diagnostics); });
  set_diagnostics(before);
  run_twice(fixture().policy, 1);
  return fine;
}
bool live(const ReportOptions& options) {
  return works([&] {
    const auto outputs = fixture().policy.run({bad_batch()});
    expect(report_of(outputs[1], options).flagged == 1, "a report counts wrongly");
  });
}
bool live_exported(const ExportOptions& options) {
  return works([&] {
    const auto program = export_function(
        "f", {"x"}, {at::ones({2, 3})}, [](at::ArrayRef<at::Tensor> in) { return std::vector<at::Tensor>{in[0] * 2}; },
        options);
    expect(at::equal(program.run({at::ones({2, 3})})[0], at::full({2, 3}, 2.0)), "a program computes wrongly");
  });
}
bool live(const DynamicDim& dim) {
  ExportOptions options;
  options.dynamic_dims = {dim};
  options.dynamic_dims[0].symbol = "s";
  return live_exported(options);
}
bool live(const SizeBounds& bounds) {
  ExportOptions options;
  options.dynamic_dims = {{0, 0, "s"}};
  options.bounds["s"] = bounds;
  return live_exported(options);
}
bool live(const InstrumentOptions& options) {
  return works([&] {
    torch::jit::Module module("m");
    module.register_parameter("w", at::ones({3}), false);
    module.define("def forward(self, x):\n  return x * self.w\n");
    const Instrumented model = instrument(module, options);
    for (int i = 0; i < 2; ++i)
      expect(at::equal(model({at::ones({2, 3})}).output.toTensor(), at::ones({2, 3})), "a model computes wrongly");
  });
}
/// Over a policy that has tests, and no open side of a comparison.
bool live(VerifyOptions options) {
  options.batches = {{bad_batch()}};
  return works([&] {
    const auto file = std::filesystem::temp_directory_path() / fmt::format("triage-numbers-{}.lua", ::getpid());
    std::ofstream(file) << "return function(z) local f = flag_nan(z, 'z') return (fix(z, f, 'z')), f end";
    const Verification found = verify_policy(file, options);
    std::filesystem::remove(file);
    expect(found.samples > 0, "no sample was tried");
  });
}
bool live(const Location& location) {
  return works([&] { static_cast<void>(err::push(err::new_t(4), err::nan, location)); });
}

template <class T>
std::vector<T> values_of() {
  if constexpr (std::is_arithmetic_v<T>) {
    return ends_of<T>();
  } else if constexpr (requires { typename T::clock; }) {
    std::vector<T> moments;
    for (const auto ticks : ends_of<typename T::rep>()) moments.push_back(T(typename T::duration(ticks)));
    return moments;
  } else if constexpr (requires { typename T::period; }) {
    std::vector<T> times;
    for (const auto ticks : ends_of<typename T::rep>()) times.push_back(T(ticks));
    return times;
  } else {
    std::vector<T> values;
    for (const auto& value : values_of<typename T::value_type>()) values.emplace_back(value);
    return values;
  }
}

struct Row {
  const char* field;
  void (*try_ends)();
};

/// `largest_works`: the largest value is no limit.
template <class Struct, class Member>
void try_ends(Member Struct::*field, bool largest_works, Struct given = {}) {
  for (const Member& value : values_of<Member>()) {
    given.*field = value;
    const bool fine = live(given);
    if (largest_works && value == values_of<Member>()[2]) expect(fine, "the largest value does not work");
  }
}

#define OF(STRUCT, FIELD)                                        \
  {                                                              \
#STRUCT "::" #FIELD, [] { try_ends(&STRUCT::FIELD, false); } \
  }
#define LIMIT(STRUCT, FIELD)                                    \
  {                                                             \
#STRUCT "::" #FIELD, [] { try_ends(&STRUCT::FIELD, true); } \
  }

const Row rows[] = {
    LIMIT(RuntimeOptions, keep_versions),
    LIMIT(RuntimeOptions, trial_calls),
    LIMIT(RuntimeOptions, trial_seconds),
    LIMIT(RuntimeOptions, reload_latency_ratio),
    LIMIT(RuntimeOptions, failures_to_revert),
    LIMIT(RuntimeOptions, state_keys),
    LIMIT(RuntimeOptions, state_age),
    LIMIT(RuntimeOptions, seed),
    LIMIT(Limits, instructions),
    LIMIT(Limits, seconds),
    LIMIT(Limits, script_bytes),
    LIMIT(Limits, tensor_bytes),
    LIMIT(RunOptions, deadline),
    LIMIT(WatchOptions, debounce),
    LIMIT(WatchOptions, poll_interval),
    OF(ShadowOptions, share),
    LIMIT(ShadowOptions, queue),
    LIMIT(ShadowOptions, queue_bytes),
    LIMIT(ShadowOptions, tolerance),
    LIMIT(ShadowOptions, examples),
    OF(CanaryOptions, share),
    LIMIT(CanaryOptions, promote_after),
    LIMIT(CanaryOptions, min_calls),
    LIMIT(CanaryOptions, min_samples),
    LIMIT(RevertIf, failures),
    LIMIT(RevertIf, flagged_ratio),
    LIMIT(RevertIf, p99_ratio),
    LIMIT(DecisionLogOptions, max_file_bytes),
    OF(DecisionLogOptions, max_files),
    OF(DecisionLogOptions, clean_share),
    OF(DecisionLogOptions, queue_records),
    OF(DecisionLogOptions, max_samples),
    LIMIT(DecisionLogOptions, max_capsules),
    LIMIT(CompilerConfig, recompile_limit),
    LIMIT(CompilerConfig, accumulated_recompile_limit),
    OF(ErrorConfig, num_slots),
    OF(ErrorConfig, transpose_threshold),
    OF(Diagnostics, repro_level),
    LIMIT(ReportOptions, examples),
    OF(DynamicDim, input),
    OF(DynamicDim, dim),
    OF(SizeBounds, min),
    LIMIT(SizeBounds, max),
    LIMIT(InstrumentOptions, every),
    OF(Location, id),
    OF(VerifyOptions, search),
    LIMIT(VerifyOptions, seed),
};

}  // namespace

TEST_CASE("every number in a struct of the headers is tried at its ends") {
  Fields untried;
  for (const auto& header : std::filesystem::directory_iterator(source_dir() + "/runtime/include/triage"))
    untried.merge(numeric_fields(header.path()));
  REQUIRE(untried.size() > 100);
  std::erase_if(untried, [](const std::string& field) { return !is_tried(field); });
  for (const Row& row : rows) {
    CHECK_MESSAGE(untried.erase(row.field) == 1, "no header has the number " << row.field);
    const lua::testing::Ended ended = lua::testing::in_fork(
        [&](const lua::testing::Say& say) -> std::string {
          say(row.field);
          try {
            row.try_ends();
            return "";
          } catch (const std::exception& error) {
            return error.what();
          }
        },
        20);
    CHECK_MESSAGE((ended.death.empty() && ended.text.empty()), row.field << ": " << ended.death << ended.text);
  }
  for (const std::string& field : untried) CHECK_MESSAGE(false, field << " has no row");
}

}  // namespace triage::test
