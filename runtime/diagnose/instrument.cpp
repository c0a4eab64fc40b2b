// A look after every return of a submodule: an observer in the inlined graph, which records into the flags of the call.
#include <fmt/format.h>
#include <triage/error.h>
#include <triage/flags.h>
#include <triage/instrument.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "runtime/diagnose/script_graph.h"
#include "runtime/location/glob.h"

namespace triage {
namespace {

/// What is looked for at one location.
struct Look {
  std::string path;
  std::string location;  // ids do not outlive ErrorLocation::reset; empty: values are counted, errors not flagged
  bool nan = true, inf = true;
};

/// One call: its flags, made of what the looks find.
class FlagObserver final : public diagnose::GraphObserver {
 public:
  FlagObserver(int64_t samples, const std::vector<Look>& looks, const std::optional<ErrorConfig>& config,
               const std::optional<ValueCollector>& collector)
      : samples_(samples), looks_(looks), config_(config) {
    if (collector) batch_.emplace(*collector);
  }

  void observe(int64_t point, at::ArrayRef<c10::IValue> values) override {
    const Look& look = looks_.at(static_cast<size_t>(point));
    for (const c10::IValue& value : values)
      diagnose::for_each_tensor(value, [&](const at::Tensor& tensor) { look_at(tensor, look); });
  }

  at::Tensor take_flags(c10::Device device) {
    return flags_.defined() ? flags_ : err::new_t(samples_, {.device = device, .config = config_});
  }
  std::vector<std::string> unlooked() const { return {unlooked_.begin(), unlooked_.end()}; }

 private:
  void look_at(const at::Tensor& tensor, const Look& look) {
    if (!at::isFloatingType(tensor.scalar_type()) && !at::isComplexType(tensor.scalar_type())) return;
    std::lock_guard lock(mutex_);  // a model may fork
    const bool is_dense = tensor.layout() == at::kStrided;
    const bool may_be_bad = !batch_ || !is_dense || batch_->add(look.path, tensor);
    if (look.location.empty()) return;
    if (tensor.dim() == 0 || tensor.size(0) != samples_ || !is_dense) {
      unlooked_.insert(look.location);
      return;
    }
    if (!may_be_bad || (!look.nan && !look.inf)) return;
    if (flags_.defined() && flags_.device() != tensor.device()) flags_ = flags_.to(tensor.device());
    const at::Tensor data = tensor.detach();
    const Location location(look.location);
    if (look.nan && look.inf)
      flags_ = flag_nan_and_inf(data, location, flags_, {config_});
    else if (look.nan)
      flags_ = flag_nan(data, location, flags_, {config_});
    else
      flags_ = flag_inf(data, location, flags_, {config_});
  }

  int64_t samples_;
  const std::vector<Look>& looks_;
  const std::optional<ErrorConfig>& config_;
  std::mutex mutex_;
  std::optional<ValueCollector::Batch> batch_;
  at::Tensor flags_;
  std::set<std::string> unlooked_;
};

Look look_for(const TrackedModule& module, const std::vector<Benign>& benign) {
  Look look{module.path, module.location};
  for (const Benign& expected : benign) {
    if (!matches_glob(expected.location, module.path) && !matches_glob(expected.location, module.location)) continue;
    if (!expected.code || *expected.code == err::nan) look.nan = false;
    if (!expected.code || *expected.code == err::inf) look.inf = false;
  }
  return look;
}

void check_options(const InstrumentOptions& options) {
  if (options.every < 1)
    throw InputError(
        fmt::format("instrument: `every` must be 1 or more (every n-th call is checked); got {}.", options.every));
  for (const Benign& expected : options.benign)
    if (expected.code && *expected.code != err::nan && *expected.code != err::inf)
      throw InputError(
          fmt::format("instrument: `benign` takes only the codes NAN and INF; got {}.", code_name(*expected.code)));
}

}  // namespace

struct Instrumented::Plan {
  torch::jit::Module module;
  InstrumentOptions options;
  std::vector<TrackedModule> locations;
  std::vector<std::string> unseen;
  std::vector<Look> looks;  // by point
  std::optional<ValueCollector> collector;
  std::optional<diagnose::ScriptFunction> function;
  mutable std::atomic<uint64_t> calls{0};
};

namespace {

/// Every path of every module with the first one of the same module, which is the one that was tracked.
using FirstPaths = std::unordered_map<std::string, std::string>;
FirstPaths first_paths(const torch::jit::Module& module) {
  std::unordered_map<const c10::ivalue::Object*, std::string> first;
  FirstPaths paths;
  for (const auto& submodule : module.named_modules())
    paths.emplace(submodule.name, first.emplace(submodule.value._ivalue().get(), submodule.name).first->second);
  return paths;
}

/// By the path that the module has in its model, which is empty for the model itself. Modules without parameters have
/// no location, but values that can be counted.
std::map<std::string, Look> looks_by_path(const std::vector<TrackedModule>& locations, const FirstPaths& paths,
                                          const std::string& root, const InstrumentOptions& options) {
  std::map<std::string, Look> by_path;
  const std::string prefix = root == "root" ? "" : root + '.';
  for (const TrackedModule& entry : locations)
    by_path.emplace(entry.path == root ? "" : entry.path.substr(prefix.size()), look_for(entry, options.benign));
  if (!options.statistics) return by_path;
  for (const auto& [path, first] : paths)
    if (path == first) by_path.emplace(path, Look{prefix + path, "", false, false});
  return by_path;
}

}  // namespace

Instrumented instrument(const torch::jit::Module& module, const InstrumentOptions& options) {
  check_options(options);
  auto plan = std::make_shared<Instrumented::Plan>();
  plan->module = module;
  plan->options = options;
  if (options.statistics) plan->collector.emplace();
  plan->options.track.tree = nullptr;  // the caller's, needed only now
  plan->locations = tracked(module, options.track);
  const std::string root = options.track.prefix.empty() ? "root" : options.track.prefix;
  if (plan->locations.empty())  // a frozen model holds no parameters, but its results can be looked at
    plan->locations.push_back({root, root, ErrorLocation::register_path(root)});

  const FirstPaths first_path = first_paths(module);
  const std::map<std::string, Look> by_path = looks_by_path(plan->locations, first_path, root, options);
  std::set<std::string> seen;
  const auto look_at = [&](const diagnose::ScriptGraph& graph, const std::string& path,
                           at::ArrayRef<torch::jit::Value*> results) {
    const auto first = first_path.find(path);
    const auto found = first == first_path.end() ? by_path.end() : by_path.find(first->second);
    if (found == by_path.end()) return;
    const Look& look = found->second;
    seen.insert(look.path);
    if (!look.nan && !look.inf && !options.statistics) return;
    plan->looks.push_back(look);
    diagnose::insert_observer(graph, static_cast<int64_t>(plan->looks.size()) - 1, results);
  };
  diagnose::ScriptGraph graph = diagnose::inline_calls(module, options.method, diagnose::Inline::modules, look_at);
  {
    torch::jit::WithInsertPoint at_the_end(graph.graph->block());
    look_at(graph, "", graph.graph->outputs());
  }
  for (const TrackedModule& entry : plan->locations)
    if (!seen.count(entry.path)) plan->unseen.push_back(entry.path);
  plan->function.emplace(module, options.method, std::move(graph));
  Instrumented result;
  result.plan_ = std::move(plan);
  return result;
}

Instrumented::Result Instrumented::operator()(std::vector<c10::IValue> inputs, const Kwargs& kwargs) const {
  const Plan& plan = *plan_;
  std::vector<c10::IValue> all = inputs;
  for (const auto& [name, value] : kwargs) all.push_back(value);
  const int64_t samples = diagnose::count_samples(all, "calling an instrumented model");
  std::optional<c10::Device> device;
  for (const c10::IValue& input : all)
    diagnose::for_each_tensor(input, [&](const at::Tensor& tensor) { device = device.value_or(tensor.device()); });

  Result result;
  result.checked = plan.calls.fetch_add(1) % static_cast<uint64_t>(plan.options.every) == 0;
  auto call = c10::make_intrusive<FlagObserver>(samples, plan.looks, plan.options.config, plan.collector);
  if (result.checked)
    result.output = (*plan.function)(std::move(inputs), kwargs, call);
  else
    result.output = plan.module.get_method(plan.options.method)(std::move(inputs), kwargs);
  result.flags = call->take_flags(*device);
  result.unlooked = call->unlooked();
  return result;
}

const std::vector<TrackedModule>& Instrumented::locations() const { return plan_->locations; }

const std::vector<std::string>& Instrumented::unseen() const { return plan_->unseen; }

namespace {

template <class Plan>
ValueCollector collector_of(const Plan& plan) {
  if (!plan.collector)
    throw InputError(
        "this model was instrumented without `statistics`; set InstrumentOptions::statistics to count values");
  return *plan.collector;
}

}  // namespace

std::vector<ValueStatistics> Instrumented::statistics() const { return collector_of(*plan_).statistics(); }

void Instrumented::reset_statistics() const { collector_of(*plan_).reset(); }

}  // namespace triage
