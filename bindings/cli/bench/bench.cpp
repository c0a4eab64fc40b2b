#include "bindings/cli/bench/bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "bindings/cli/bench/empty_cache.h"
#include "bindings/cli/bench/measure.h"
#include "bindings/cli/call.h"
#include "bindings/cli/command.h"
#include "bindings/cli/examples.h"
#include "bindings/cli/report.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t usual_batches[] = {1, 32, 256, 4096};
constexpr int64_t most_bytes = 256 << 20;  // of a batch that nobody asked for

struct Options {
  CallOptions call;
  std::vector<int64_t> batches;
  double seconds = 1;
  int threads = 1;
  bool json = false;
};

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

/// The policy three times: as a script, and captured for two backends.
class Subject {
 public:
  explicit Subject(const Options& options)
      : options_(options),
        script_(read_source(options.call.policy), script_options(options)),
        eager_runtime_(runtime_options(options, "eager")),
        fused_runtime_(runtime_options(options, "fused")),
        eager_(eager_runtime_.load(options.call.policy)),
        fused_(fused_runtime_.load(options.call.policy)) {
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
    const Tensors outputs = fused_.run(example_.inputs, call_);
    report.writes_data = 2 * bytes_of(outputs) > bytes_of(example_.inputs);
    for (const Tensors& inputs : batches()) {
      Progress progress;
      progress.show(fmt::format("measuring {} ({} bytes) ...", describe(inputs[0]), bytes_of(inputs)));
      report.batches.push_back(measure_batch(inputs));
    }
    report.call = call_itself(report.batches);
    find_bounds(report);
    report.graphs = fused_.graphs().size();
    report.graph_breaks = fused_.graph_breaks();
    return report;
  }

 private:
  static ScriptOptions script_options(const Options& options) {
    ScriptOptions script;
    script.path = options.call.policy;
    script.print = [](const std::string&) {};  // a line a call would be measured with it, and fill the screen
    return script;
  }
  static RuntimeOptions runtime_options(const Options& options, const char* backend) {
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
    std::vector<Example> examples = examples_for(script_, options_.call);
    example_ = *std::max_element(examples.begin(), examples.end(), [](const Example& a, const Example& b) {
      return bytes_of(a.inputs) < bytes_of(b.inputs);
    });
    set_params();
  }
  bool runs_on(const Example& example) {
    try {
      script_.call(example.inputs, example.params, std::nullopt);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  void set_params() {
    const auto& params = script_.signature().params;
    for (size_t i = 0; i < params.size(); ++i) call_.params.emplace_back(params[i].name, example_.params[i].item());
  }

  /// The sizes asked for; else the usual ones that fit, and the batch as it came.
  std::vector<Tensors> batches() {
    const Tensors& own = example_.inputs;
    const bool has_rows = !own.empty() && own[0].dim() > 0 && own[0].size(0) > 0;
    if (!has_rows) {
      if (!options_.batches.empty())
        throw UsageError("--batches: the first input has no rows, so there are no other batch sizes");
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

  /// In a process that has run none of it, and with nothing in the cache.
  void measure_first_call(BenchReport& report) {
    const bench::EmptyCache empty;
    const auto run_script = [&] { script_.call(example_.inputs, example_.params, std::nullopt); };
    run_script();  // LibTorch itself is warm from here on
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) times.push_back(bench::milliseconds(run_script));
    std::sort(times.begin(), times.end());
    report.script_ms = times[1];
    report.first_ms = bench::milliseconds([&] { fused_.run(example_.inputs, call_); });
    report.ready_ms = report.first_ms + bench::milliseconds([&] { fused_.prepare(example_.inputs); });
  }

  /// Of no rows at all: the line through the two smallest of what was measured and batches of 1 and 8, where the policy takes
  /// those. Without two sizes there is no telling: 0.
  double call_itself(const std::vector<BatchTimes>& measured) {
    std::map<int64_t, double> times;
    for (const BatchTimes& batch : measured) times[batch.rows] = batch.fused;
    for (const int64_t rows : {1, 8}) {
      const Tensors inputs = with_rows(example_.inputs, rows);
      if (inputs.empty() || times.count(rows) || !runs_on({"", inputs, example_.params})) continue;
      fused_.prepare(inputs);
      times[rows] = bench::measure({[&] { fused_.run(inputs, call_); }}, 41, options_.seconds).micros[0];
    }
    if (times.size() < 2) return 0;
    const auto [rows, time] = *times.begin();
    const auto [more_rows, longer] = *std::next(times.begin());
    const double row = std::max(0.0, (longer - time) / static_cast<double>(more_rows - rows));
    return std::max(0.0, time - row * static_cast<double>(rows));
  }

  BatchTimes measure_batch(const Tensors& inputs) {
    eager_.prepare(inputs);
    fused_.prepare(inputs);
    BatchTimes times;
    times.rows = inputs.empty() || inputs[0].dim() == 0 ? 1 : inputs[0].size(0);
    times.bytes = bytes_of(inputs);
    Tensors data, warm;  // floats in as many bytes as the inputs have, whatever their dtype
    for (const at::Tensor& input : inputs) {
      data.push_back(at::randn({static_cast<int64_t>(input.nbytes() + 3) / 4}));
      warm.push_back(at::zeros_like(data.back()));
    }
    double total = 0;  // keeps the sums from being optimised away
    const bench::Timing timing =
        bench::measure({[&] {
                          for (const at::Tensor& tensor : data) total += static_cast<double>(at::sum(tensor).dim());
                        },
                        [&] {
                          for (size_t i = 0; i < data.size(); ++i) warm[i].copy_(data[i]);
                        },
                        [&] { script_.call(inputs, example_.params, std::nullopt); },
                        [&] { eager_.run(inputs, call_); }, [&] { fused_.run(inputs, call_); }},
                       41, options_.seconds);
    times.read = timing.micros[0];
    times.copy = timing.micros[1];
    times.script = timing.micros[2];
    times.eager = timing.micros[3];
    times.fused = timing.micros[4];
    return times;
  }

  const Options& options_;
  lua::LuaScript script_;
  Runtime eager_runtime_, fused_runtime_;
  Policy eager_, fused_;
  Example example_;
  RunOptions call_;
};

int bench(const Options& options) {
  load_kernel_files(options.call);
  at::set_num_threads(options.threads);
  const BenchReport report = Subject(options).run();
  if (options.json)
    print_json(to_json(report));
  else
    print_bench(report);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "Time a policy as a script and captured, and say what bounds it");
  add_example_options(*command, options->call);
  command->add_option("--batches", options->batches, "batch sizes (rows of the inputs repeated or left out)")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{100'000'000}));
  command->add_option("--threads", options->threads, "how many threads LibTorch may use")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--seconds", options->seconds, "how long to measure each batch size, about")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  add_kernels_option(*command, options->call);
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([options, &action] { action = [options] { return bench(*options); }; });
}

}  // namespace triage::cli
