#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/calls/inputs.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/bench/bench_report.h"
#include "bindings/cli/commands/bench/costs.h"
#include "bindings/cli/commands/bench/measure.h"
#include "bindings/cli/commands/bench/profile.h"
#include "bindings/cli/commands/bench/span_recorder.h"
#include "bindings/cli/commands/blas.h"
#include "bindings/cli/terminal.h"
#include "runtime/files/disk.h"
#include "runtime/policy/params/param_values.h"
#include "runtime/policy/state/state_of_call.h"

namespace triage::cli {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t usual_batches[] = {1, 32, 256, 4096};
constexpr int64_t most_bytes = 256 << 20;  // of a batch that nobody asked for

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

int64_t rows_of(const Tensors& inputs) { return inputs.empty() || inputs[0].dim() == 0 ? 1 : inputs[0].size(0); }

/// The policy as a script, and captured: for `eager`, and for `fused`.
class BenchedPolicy {
 public:
  explicit BenchedPolicy(const BenchCommand& options)
      : options_(options),
        script_(read_source(options.call.policy), script_options(options)),
        eager_(runtime_options(options, "eager"), options.call),
        fused_(runtime_options(options, "fused"), options.call) {
    choose_example();
  }

  BenchReport run() {
    BenchReport report;
    report.policy = script_.name();
    report.from = example_.from;
    report.threads = at::get_num_threads();
    for (size_t i = 0; i < example_.inputs.size(); ++i)
      report.inputs.push_back(fmt::format("{} {}", script_.signature().inputs[i], describe(example_.inputs[i])));
    measure_first_call(report);
    const Tensors outputs = fused().run(example_.inputs, call_);
    report.writes_data = 2 * bytes_of(outputs) > bytes_of(example_.inputs);
    const std::vector<Tensors> all = batches();
    for (const Tensors& inputs : all) {
      Progress progress;
      progress.show(fmt::format("measuring {} ({} bytes) ...", describe(inputs[0]), bytes_of(inputs)));
      report.batches.push_back(measure_batch(inputs));
    }
    report.call = call_itself(report.batches);
    find_costs(report, chosen(all));
    draw_conclusions(report);
    report.slow_blas = slow_blas();
    report.graphs = fused().graphs().size();
    report.graph_breaks = fused().graph_breaks();
    if (!options_.profile.empty()) report.profile = write_profile(chosen(all));
    return report;
  }

 private:
  static ScriptOptions script_options(const BenchCommand& options) {
    ScriptOptions script;
    script.path = script_name(options.call.policy);
    script.read_file = files_of(options.call.policy);
    script.print = [](const std::string&) {};  // a line a call would be measured with it, and fill the screen
    give(script, options.call.given, c10::kCPU);
    return script;
  }
  /// A captured form of the policy, in a runtime of its own.
  struct Captured {
    Captured(RuntimeOptions runtime_options, const CallOptions& call) : runtime(std::move(runtime_options)) {
      define_given(runtime, call.given, c10::kCPU);
      policy = load_policy(runtime, call.policy);
    }
    Runtime runtime;
    Policy policy;
  };
  Policy& fused() { return fused_.policy; }

  static RuntimeOptions runtime_options(const BenchCommand& options, const char* backend) {
    RuntimeOptions runtime = quiet_runtime(options.json);
    runtime.backend = backend;
    runtime.print = [](const std::string&) {};
    return runtime;
  }

  /// Without inputs given: of the declared types where the policy can run on them, else the test with the most data.
  void choose_example() {
    if (options_.call.inputs.empty()) {
      if (auto made = example_of_types(script_.signature(), options_.call); made && runs_on(*made)) {
        example_ = *made;
        return set_params();
      }
    }
    std::vector<ExampleInputs> examples = examples_for(script_, options_.call);
    example_ = *std::max_element(examples.begin(), examples.end(), [](const ExampleInputs& a, const ExampleInputs& b) {
      return bytes_of(a.inputs) < bytes_of(b.inputs);
    });
    set_params();
  }
  bool runs_on(const ExampleInputs& example) {
    try {
      policy::call_alone(script_, example.inputs, example.params);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  void set_params() {
    const auto& params = script_.signature().params;
    for (size_t i = 0; i < params.size(); ++i)
      call_.params.emplace_back(params[i].name, policy::as_set(example_.params[i]));
  }

  /// The sizes asked for; else the usual ones that fit, and the batch as it came.
  std::vector<Tensors> batches() {
    const Tensors& own = example_.inputs;
    const bool has_rows = !own.empty() && own[0].dim() > 0 && own[0].size(0) > 0;
    if (!has_rows) {
      if (!options_.batches.empty())
        throw UsageError("--batches: the first input has no rows, so triage cannot make other batch sizes");
      return {own};
    }
    const int64_t own_rows = own[0].size(0), row_bytes = std::max<int64_t>(1, bytes_of(own) / own_rows);
    std::vector<int64_t> sizes = options_.batches;
    if (sizes.empty()) {
      sizes.push_back(own_rows);
      for (const int64_t rows : usual_batches)
        if (rows * row_bytes <= most_bytes) sizes.push_back(rows);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    std::vector<Tensors> result;
    for (const int64_t rows : sizes) {
      const Tensors inputs = rows == own_rows ? own : with_rows(own, rows);
      if (!options_.batches.empty() || rows == own_rows || runs_on({"", inputs, example_.params}))
        result.push_back(inputs);
    }
    return result;
  }

  /// The batch as it came, where it was measured; else the largest.
  const Tensors& chosen(const std::vector<Tensors>& all) const {
    for (const Tensors& inputs : all)
      if (rows_of(inputs) == rows_of(example_.inputs)) return inputs;
    return all.back();
  }

  void find_costs(BenchReport& report, const Tensors& inputs) {
    report.chosen_rows = rows_of(inputs);
    report.file = script_.definition().where.file;
    std::istringstream text(read_source(options_.call.policy));
    for (std::string line; std::getline(text, line);) report.source.push_back(line);
    report.lines = bench::costs_by_line(
        script_, [&] { policy::call_alone(script_, inputs, example_.params); }, options_.seconds / 4);
    const auto run = [&] { fused().run(inputs, call_); };
    report.parts = bench::costs_by_part(run, options_.seconds / 4);
    report.steps = time_steps(run, options_.seconds / 4);
  }

  /// What a slow BLAS computes of the policy, if anything: nothing is timed for it.
  std::string slow_blas() {
    const Blas blas = loaded_blas();
    if (!blas.slow) return "";
    const bench::SpanRecorder recorder;
    policy::call_alone(script_, example_.inputs, example_.params);
    for (const bench::SpanRecorder::Span& span : recorder.spans())
      if (span.is_operator && calls_blas(span.name))
        return fmt::format(
            "{} of this policy runs on {}, which is 10 to 30 times slower than OpenBLAS; {}", span.name,
            blas.file.empty() ? "a LibTorch without a BLAS" : fmt::format("{} ({})", blas.name, blas.file),
            slow_blas_advice(blas));
    return "";
  }

  Profile write_profile(const Tensors& inputs) {
    constexpr int calls = 10;
    const std::string& backend = options_.call.backend;
    std::optional<Captured> other;
    if (backend != "fused") other.emplace(runtime_options(options_, backend.c_str()), options_.call);
    Policy& policy = other ? other->policy : fused();
    policy.prepare(inputs);
    const auto call = [&] { policy.run(inputs, call_); };
    call();
    return {options_.profile, backend, bench::write_profile(options_.profile, call, calls), rows_of(inputs), calls};
  }

  /// In a process that has run none of it.
  void measure_first_call(BenchReport& report) {
    const auto run_script = [&] { policy::call_alone(script_, example_.inputs, example_.params); };
    run_script();  // LibTorch itself is warm from here on
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) times.push_back(bench::milliseconds(run_script));
    std::sort(times.begin(), times.end());
    report.script_ms = times[1];
    report.first_ms = bench::milliseconds([&] { fused().run(example_.inputs, call_); });
  }

  /// Of no rows at all: the line through the two smallest of what was measured and batches of 1 and 8, where the policy
  /// takes those. Without two sizes there is no telling: 0.
  double call_itself(const std::vector<BatchTimes>& measured) {
    std::map<int64_t, double> times;
    for (const BatchTimes& batch : measured) times[batch.rows] = batch.fused;
    for (const int64_t rows : {1, 8}) {
      const Tensors inputs = with_rows(example_.inputs, rows);
      if (inputs.empty() || times.count(rows) || !runs_on({"", inputs, example_.params})) continue;
      fused().prepare(inputs);
      times[rows] = bench::measure({[&] { fused().run(inputs, call_); }}, 41, options_.seconds).micros[0];
    }
    if (times.size() < 2) return 0;
    const auto [rows, time] = *times.begin();
    const auto [more_rows, longer] = *std::next(times.begin());
    const double row = std::max(0.0, (longer - time) / static_cast<double>(more_rows - rows));
    return std::max(0.0, time - row * static_cast<double>(rows));
  }

  BatchTimes measure_batch(const Tensors& inputs) {
    const std::vector<Policy> captured{eager_.policy, fused_.policy};
    for (const Policy& policy : captured) policy.prepare(inputs);
    BatchTimes times;
    times.rows = rows_of(inputs);
    times.bytes = bytes_of(inputs);
    Tensors data, warm;  // floats in as many bytes as the inputs have, whatever their dtype
    for (const at::Tensor& input : inputs) {
      data.push_back(at::randn({static_cast<int64_t>(input.nbytes() + 3) / 4}));
      warm.push_back(at::zeros_like(data.back()));
    }
    double total = 0;  // keeps the sums from being optimised away
    std::vector<std::function<void()>> candidates = {[&] {
                                                       for (const at::Tensor& tensor : data)
                                                         total += static_cast<double>(at::sum(tensor).dim());
                                                     },
                                                     [&] {
                                                       for (size_t i = 0; i < data.size(); ++i) warm[i].copy_(data[i]);
                                                     },
                                                     [&] { policy::call_alone(script_, inputs, example_.params); }};
    for (const Policy& policy : captured) candidates.push_back([&] { policy.run(inputs, call_); });
    const bench::Timing timing = bench::measure(candidates, 41, options_.seconds);
    size_t next = 0;
    for (double* time : {&times.read, &times.copy, &times.script, &times.eager, &times.fused})
      *time = timing.micros[next++];
    return times;
  }

  const BenchCommand& options_;
  lua::LuaScript script_;
  Captured eager_, fused_;
  ExampleInputs example_;
  RunOptions call_;
};

}  // namespace

int run(const BenchCommand& options) {
  if (!options.profile.empty()) {
    check_backend(options.call.backend);
    check_destination("--profile", options.profile, options.call.policy);
    const files::OutputFile writable(options.profile);  // else that is told when everything was measured
  }
  at::set_num_threads(options.threads);
  const BenchReport report = BenchedPolicy(options).run();
  if (options.json)
    print_json(to_json(report));
  else
    print_bench(report);
  return 0;
}

}  // namespace triage::cli
