// torch.classes.triage: Runtime, Policy, Bundle and Watch as TorchBind classes, for the package in triage/, which gives
// them the shape that Python's users know. Nothing here needs Python: LibTorch converts the arguments, and releases the
// interpreter's lock while a method runs.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <triage/bundle.h>
#include <triage/decisions.h>
#include <triage/runtime.h>
#include <triage/statistics.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/python/forms.h"
#include "bindings/python/interpreter.h"
#include "bindings/python/registry.h"
#include "bindings/python/saved_tensors.h"
#include "bindings/python/values.h"

namespace triage::python {
namespace {

using Tensors = std::vector<at::Tensor>;

class PolicyObject : public torch::CustomClassHolder {
 public:
  PolicyObject(Policy policy, std::string key) : policy_(std::move(policy)), key_(std::move(key)) {
    register_policy(key_, policy_);
  }
  ~PolicyObject() override {
    const WithoutLock waiting;
    forget_policy(key_);
    policy_ = Policy();
  }

  const Policy& policy() const { return policy_; }

  /// The second of the results is empty unless it is wanted.
  std::tuple<Tensors, Dict> run_with(const Tensors& inputs, const Dict& params, const Dict& options,
                                     bool wants_info) const {
    return for_python([&] {
      std::vector<std::string> sample_ids;
      RunOptions chosen = run_options_from(options, sample_ids);
      chosen.params = params_from(params);
      RunInfo info;
      if (wants_info) chosen.info = &info;
      const WithoutSavedTensorHooks kept;
      Tensors outputs = policy_.run(inputs, chosen);
      return std::make_tuple(std::move(outputs), wants_info ? to_dict(info) : empty_dict());
    });
  }

  void set_params(const Dict& params) const {
    for_python([&] {
      for (const auto& [name, value] : params_from(params)) policy_.set_param(name, value);
    });
  }

  std::vector<std::string> graphs() const {
    return for_python([&] {
      std::vector<std::string> texts;
      for (const CapturedGraph& captured : policy_.graphs()) texts.push_back(graph::print(*captured.graph));
      return texts;
    });
  }

 private:
  Policy policy_;
  std::string key_;
};

class BundleObject : public torch::CustomClassHolder {
 public:
  BundleObject(Runtime& runtime, const std::string& folder) : bundle_(runtime.load_bundle(folder)) {}
  ~BundleObject() override {
    const WithoutLock waiting;
    bundle_ = Bundle();
  }

  const Bundle& bundle() const { return bundle_; }
  c10::intrusive_ptr<PolicyObject> policy(const std::string& name, const std::string& key) const {
    return for_python([&] { return c10::make_intrusive<PolicyObject>(bundle_.policy(name), key); });
  }

 private:
  Bundle bundle_;
};

/// Events wait for Python here: a callback would have to take the interpreter's lock on the thread that watches.
class WatchObject : public torch::CustomClassHolder {
 public:
  WatchObject(Runtime& runtime, const std::string& folder, double debounce, double poll_interval) {
    WatchOptions options;
    options.debounce = milliseconds(debounce);
    options.poll_interval = milliseconds(poll_interval);
    options.on_event = [this](const WatchEvent& event) { add(to_dict(event)); };
    watch_ = runtime.watch(folder, std::move(options));
  }
  ~WatchObject() override {
    const WithoutLock waiting;
    if (!is_finalizing())
      watch_ = Watch();
    else
      new Watch(std::move(watch_));  // its thread may wait for the lock
  }

  /// The next event, within `seconds`; else none. `dropped` in an event counts those before it that nobody read in
  /// time.
  c10::optional<Dict> next(double seconds) {
    const auto time = for_python([&] { return milliseconds(seconds); });
    std::unique_lock lock(mutex_);
    added_.wait_for(lock, time, [&] { return !events_.empty() || stopped_; });
    if (events_.empty()) return {};
    Dict event = std::move(events_.front());
    events_.pop_front();
    event.insert("dropped", dropped_);
    dropped_ = 0;
    return event;
  }

  void stop() {
    for_python([&] { watch_.stop(); });
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    added_.notify_all();
  }

  void rescan() {
    for_python([&] { watch_.rescan(); });
  }

 private:
  static constexpr size_t max_events = 1000;

  static std::chrono::milliseconds milliseconds(double seconds) {
    if (!(seconds >= 0)) throw InputError("A time is a number of seconds of 0 or more.");
    constexpr double longest = 1e8;  // three years: nobody sees the difference
    return std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds, longest) * 1000));
  }

  void add(Dict event) {
    const std::lock_guard lock(mutex_);
    if (events_.size() == max_events) {
      events_.pop_front();
      ++dropped_;
    }
    events_.push_back(std::move(event));
    added_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Dict> events_;
  int64_t dropped_ = 0;
  bool stopped_ = false;
  Watch watch_;  // last: its thread ends before what it uses
};

/// Calls a function of Python. The kernel of the operator, which is Python, takes the interpreter's lock.
Tensors call_python(const std::string& key, const Tensors& inputs) {
  static const auto function = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("triage::_host_function", "")
                                   .typed<Tensors(c10::string_view, at::TensorList)>();
  if (is_finalizing()) throw PolicyError("a function of Python cannot be called: the interpreter ends");
  try {
    return function.call(key, inputs);
  } catch (const std::exception& error) {  // the text of a RuntimeError, and where in Python it came from
    std::string text = error.what();
    text = text.substr(0, text.find("\n\nAt:\n"));
    constexpr std::string_view kind = "RuntimeError: ";
    throw std::runtime_error(text.starts_with(kind) ? text.substr(kind.size()) : text);
  }
}

/// Which outputs the function `key` gives for such inputs: it is called with tensors without data.
std::vector<graph::TensorMeta> shapes_of_python(const std::string& key, const std::vector<graph::TensorMeta>& inputs) {
  Tensors tensors;
  for (const graph::TensorMeta& input : inputs)
    tensors.push_back(at::empty(input.sizes, at::TensorOptions(at::kMeta).dtype(input.dtype)));
  std::vector<graph::TensorMeta> outputs;
  for (const at::Tensor& output : call_python(key, tensors))
    outputs.push_back({output.scalar_type(), output.sizes().vec(), output.device()});
  return outputs;
}

class RuntimeObject : public torch::CustomClassHolder {
 public:
  explicit RuntimeObject(const Dict& options) {
    for_python([&] {
      RuntimeOptions chosen = runtime_options_from(options);
      decisions_ = chosen.decisions;
      runtime_.emplace(std::move(chosen));
    });
  }
  ~RuntimeObject() override {
    const WithoutLock waiting;
    if (!is_finalizing())
      close();
    else if (runtime_)
      new std::pair(std::move(*runtime_), std::move(decisions_));  // their threads may wait for the lock
  }

  /// Waits until what its policies no longer use is freed. Later calls throw InputError.
  void close() {
    if (decisions_) decisions_->flush();  // its policies may keep it open
    runtime_.reset();
    decisions_ = nullptr;
  }

  /// Waits until all decisions so far are written.
  void flush() {
    for_python([&] { open(); });
    if (decisions_) decisions_->flush();
  }

  c10::intrusive_ptr<PolicyObject> load(const std::string& path, const std::string& key) {
    return for_python([&] { return c10::make_intrusive<PolicyObject>(open().load(path), key); });
  }

  c10::intrusive_ptr<PolicyObject> load_source(const std::string& source, const std::string& name,
                                               const std::string& key) {
    return for_python([&] { return c10::make_intrusive<PolicyObject>(open().load_source(source, name), key); });
  }

  /// `key` is that of the function in Python, `shapes` that of another one; empty: none.
  void define(const std::string& name, const std::string& key, bool pure, const std::string& shapes) {
    for_python([&] {
      FunctionOptions options;
      options.pure = pure;
      if (!shapes.empty()) options.shapes = [shapes](const auto& inputs) { return shapes_of_python(shapes, inputs); };
      open().define(
          name, [key](const Tensors& inputs) { return call_python(key, inputs); }, std::move(options));
    });
  }

  void define_tensor(const std::string& name, const at::Tensor& tensor) {
    for_python([&] { open().define_tensor(name, tensor); });
  }

  c10::intrusive_ptr<BundleObject> load_bundle(const std::string& folder) {
    return for_python([&] { return c10::make_intrusive<BundleObject>(open(), folder); });
  }

  c10::intrusive_ptr<WatchObject> watch(const std::string& folder, double debounce, double poll_interval) {
    return for_python([&] { return c10::make_intrusive<WatchObject>(open(), folder, debounce, poll_interval); });
  }

  std::string metrics() {
    return for_python([&] { return metrics_text(open()); });
  }

 private:
  Runtime& open() {
    if (!runtime_) throw InputError("This triage.Runtime is closed: the interpreter ends.");
    return *runtime_;
  }

  std::shared_ptr<DecisionLog> decisions_;
  std::optional<Runtime> runtime_;
};

using PolicyPointer = c10::intrusive_ptr<PolicyObject>;

/// A method that calls `function` with the policy and the arguments.
template <class... Args, class Function>
auto with_policy(Function function) {
  return [function](const PolicyPointer& self, Args... args) {
    return for_python([&] { return function(self->policy(), std::move(args)...); });
  };
}

template <class... Args, class Function>
auto with_bundle(Function function) {
  return [function](const c10::intrusive_ptr<BundleObject>& self, Args... args) {
    return for_python([&] { return function(self->bundle(), std::move(args)...); });
  };
}

template <class Versions>
std::vector<Dict> to_dicts(const Versions& versions) {
  std::vector<Dict> list;
  for (const auto& version : versions) list.push_back(to_dict(version));
  return list;
}

/// The number of a version. What does not fit is that of none.
int to_int(int64_t number) { return std::in_range<int>(number) ? static_cast<int>(number) : 0; }

TORCH_LIBRARY_FRAGMENT(triage, m) {
  m.class_<PolicyObject>("Policy")
      .def("run_with", &PolicyObject::run_with)
      .def("form",
           with_policy<Tensors, std::string>([](const Policy& p, const Tensors& inputs, const std::string& autocast) {
             return learn_form(p, inputs, autocast);
           }))
      .def("prepare", with_policy<Tensors>([](const Policy& p, const Tensors& inputs) { p.prepare(inputs); }))
      .def("set_params", &PolicyObject::set_params)
      .def("manual_seed",
           with_policy<int64_t>([](const Policy& p, int64_t seed) { p.manual_seed(static_cast<uint64_t>(seed)); }))
      .def("name", with_policy<>([](const Policy& p) { return p.name(); }))
      .def("signature", with_policy<>([](const Policy& p) { return to_dict(p.signature()); }))
      .def("version", with_policy<>([](const Policy& p) { return to_dict(p.version()); }))
      .def("versions", with_policy<>([](const Policy& p) { return to_dicts(p.versions()); }))
      .def("reload", with_policy<>([](const Policy& p) { return static_cast<int64_t>(p.reload()); }))
      .def("replace", with_policy<std::string>([](const Policy& p, const std::string& source) {
             return static_cast<int64_t>(p.replace(source));
           }))
      .def("rollback", with_policy<int64_t>([](const Policy& p, int64_t number) { p.rollback(to_int(number)); }))
      .def("pin", with_policy<int64_t>([](const Policy& p, int64_t number) { p.pin(to_int(number)); }))
      .def("unpin", with_policy<>([](const Policy& p) { return static_cast<int64_t>(p.unpin()); }))
      .def("shadow", with_policy<std::string, Dict>([](const Policy& p, const std::string& path, const Dict& options) {
             return to_dict(p.shadow(path, shadow_options_from(options)));
           }))
      .def("shadow_source",
           with_policy<std::string, Dict>([](const Policy& p, const std::string& source, const Dict& options) {
             return to_dict(p.shadow_source(source, shadow_options_from(options)));
           }))
      .def("canary", with_policy<std::string, Dict>([](const Policy& p, const std::string& path, const Dict& options) {
             return to_dict(p.canary(path, canary_options_from(options)));
           }))
      .def("canary_source",
           with_policy<std::string, Dict>([](const Policy& p, const std::string& source, const Dict& options) {
             return to_dict(p.canary_source(source, canary_options_from(options)));
           }))
      .def("candidate", with_policy<>([](const Policy& p) -> c10::optional<Dict> {
             const auto report = p.candidate();
             if (!report) return {};
             return to_dict(*report);
           }))
      .def("promote", with_policy<>([](const Policy& p) { p.promote(); }))
      .def("end_candidate", with_policy<>([](const Policy& p) { return to_dict(p.end_candidate()); }))
      .def("statistics", with_policy<>([](const Policy& p) { return to_dict(p.statistics()); }))
      .def("graphs", &PolicyObject::graphs)
      .def("graph_breaks", with_policy<>([](const Policy& p) { return p.graph_breaks(); }))
      .def("reset_state", with_policy<>([](const Policy& p) { p.reset_state(); }))
      .def("save_state", with_policy<std::string>([](const Policy& p, const std::string& file) { p.save_state(file); }))
      .def("load_state",
           with_policy<std::string>([](const Policy& p, const std::string& file) { p.load_state(file); }));
  m.class_<BundleObject>("Bundle")
      .def("policy", &BundleObject::policy)
      .def("name", with_bundle<>([](const Bundle& b) { return b.name(); }))
      .def("policies", with_bundle<>([](const Bundle& b) { return b.policies(); }))
      .def("version", with_bundle<>([](const Bundle& b) { return to_dict(b.version()); }))
      .def("versions", with_bundle<>([](const Bundle& b) { return to_dicts(b.versions()); }))
      .def("reload", with_bundle<>([](const Bundle& b) { return static_cast<int64_t>(b.reload()); }))
      .def("rollback", with_bundle<int64_t>([](const Bundle& b, int64_t number) { b.rollback(to_int(number)); }))
      .def("pin", with_bundle<int64_t>([](const Bundle& b, int64_t number) { b.pin(to_int(number)); }))
      .def("unpin", with_bundle<>([](const Bundle& b) { return static_cast<int64_t>(b.unpin()); }));
  m.class_<WatchObject>("Watch")
      .def("next", &WatchObject::next)
      .def("stop", &WatchObject::stop)
      .def("rescan", &WatchObject::rescan);
  m.class_<RuntimeObject>("Runtime")
      .def(torch::init<const Dict&>())
      .def("load", &RuntimeObject::load)
      .def("load_source", &RuntimeObject::load_source)
      .def("load_bundle", &RuntimeObject::load_bundle)
      .def("define", &RuntimeObject::define)
      .def("define_tensor", &RuntimeObject::define_tensor)
      .def("watch", &RuntimeObject::watch)
      .def("metrics", &RuntimeObject::metrics)
      .def("flush", &RuntimeObject::flush)
      .def("close", &RuntimeObject::close);
}

}  // namespace
}  // namespace triage::python
