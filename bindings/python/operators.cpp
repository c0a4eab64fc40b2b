// Operators that only Python needs: a policy as a node of torch.compile and torch.export programs, and what reads flags, locations
// and the configuration of the process.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/StringUtil.h>
#include <pthread.h>
#include <torch/library.h>
#include <triage/flags.h>
#include <triage/location.h>
#include <triage/version.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "bindings/python/registry.h"
#include "bindings/python/values.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/printable.h"

namespace triage::python {
namespace {

struct Registered {
  Policy policy;
  pid_t process;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Registered> policies;
};

/// Never destroyed: Python may drop policies after this library's own objects are gone. Locked during a fork, so that a child
/// never inherits it half changed.
Registry& registry() {
  static auto* const the = [] {
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] { registry().mutex.unlock(); });
    return new Registry;
  }();
  return *the;
}

}  // namespace

void register_policy(const std::string& key, const Policy& policy) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.policies.find(key);
  if (found == all.policies.end()) {
    all.policies.emplace(key, Registered{policy, ::getpid()});
    return;
  }
  if (found->second.process == ::getpid())
    throw InputError(c10::str("The key \"", key, "\" is taken by another policy of this process: choose another."));
  new Policy(found->second.policy);  // of the parent process: its threads are not here, and its end would wait for them
  found->second = {policy, ::getpid()};
}

void forget_policy(const std::string& key) noexcept {
  Policy last;  // destroyed after the lock is free: it may wait for a reload
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.policies.find(key);
  if (found == all.policies.end() || found->second.process != ::getpid()) return;
  last = std::move(found->second.policy);
  all.policies.erase(found);
}

Policy find_policy(const std::string& key) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.policies.find(key);
  if (found == all.policies.end() || found->second.process != ::getpid()) {
    throw InputError(c10::str("triage::run_policy: this process has no policy with the key \"", key,
                              "\". Load it before the program runs, and keep it: policy = triage.load(path, key=\"",
                              key, "\")."));
  }
  return found->second.policy;
}

namespace {

using Tensors = std::vector<at::Tensor>;

/// A tensor that a class in Python implements, such as FakeTensor.
bool of_python(const at::Tensor& tensor) { return tensor.key_set().has(c10::DispatchKey::Python); }

/// Whether Python code sees each operator that is called: a TorchDispatchMode is on, or an input is no plain tensor. A policy is
/// then called as the one operator that it is for Python: its inner operators take what Python cannot pass on (numbers as tensors).
bool is_seen_by_python(at::TensorList inputs) {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python) ||
         std::any_of(inputs.begin(), inputs.end(), of_python);
}

Tensors call_as_operator(const std::string& key, at::TensorList inputs) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("triage::run_policy", "")
                             .typed<Tensors(const std::string&, at::TensorList)>();
  return op.call(key, inputs);
}

/// Outputs as compilers expect them of an operator: dense, and in memory of their own. (A policy may return an input.)
Tensors own(Tensors outputs, at::TensorList inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = outputs[i].contiguous();
    if (shares_memory(outputs[i], inputs) || shares_memory(outputs[i], at::ArrayRef<at::Tensor>(outputs).slice(0, i)))
      outputs[i] = outputs[i].clone();
  }
  return outputs;
}

Tensors run_policy(const std::string& key, at::TensorList inputs) {
  try {
    return own(find_policy(key).run(inputs), inputs);
  } catch (const Error& error) {
    throw std::runtime_error(messages::printable(error.what()));  // Python takes no text that is not UTF-8
  }
}

/// With real tensors, autograd records the operators of the policy. A traced program has one node for the policy, which has no
/// gradient: then an error, because a result that silently lost its gradient would train a wrong model.
Tensors run_policy_autograd(const std::string& key, at::TensorList inputs) {
  const bool traced = std::any_of(inputs.begin(), inputs.end(), of_python);
  const bool differentiates =
      at::GradMode::is_enabled() &&
      std::any_of(inputs.begin(), inputs.end(), [](const auto& t) { return t.requires_grad(); });
  if (traced && differentiates) {
    throw InputError(c10::str(
        "A policy in a compiled or exported program has no gradient, and an input of \"", key,
        "\" requires one. Compile and call under torch.no_grad(), pass input.detach(), or keep the policy out of the "
        "program: torch.compiler.disable(policy.__call__)."));
  }
  if (differentiates || !is_seen_by_python(inputs)) return run_policy(key, inputs);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_as_operator(key, inputs);
}

/// A plain call from Python. (A method of a TorchBind class takes twice as long to reach.)
Tensors call_policy(const std::string& key, at::TensorList inputs) {
  return for_python(
      [&] { return is_seen_by_python(inputs) ? call_as_operator(key, inputs) : find_policy(key).run(inputs); });
}

ErrorConfig config_from(int64_t num_slots, at::ScalarType flag_dtype, int64_t policy, int64_t default_severity,
                        bool strict_validation) {
  ErrorConfig config;
  config.num_slots = num_slots;
  config.flag_dtype = flag_dtype;
  config.accumulation.priority = static_cast<Priority>(policy & 3);
  config.accumulation.order = static_cast<Order>(policy >> 2 & 1);
  config.accumulation.dedupe = static_cast<Dedupe>(policy >> 3 & 3);
  config.track_overflow = (policy & TRACK_OVERFLOW) != 0;
  config.default_severity = severity_from(default_severity);
  config.strict_validation = strict_validation;
  return config;
}

ErrorConfig layout_of(const at::Tensor& f, int64_t num_slots, bool track_overflow) {
  ErrorConfig config;
  config.flag_dtype = f.scalar_type();
  config.num_slots = num_slots;
  config.track_overflow = track_overflow;
  return config;
}

using Counts = c10::Dict<std::string, int64_t>;

/// `codes`: names of free codes, as Python has them.
InspectOptions inspect_options(const at::Tensor& f, int64_t num_slots, bool track_overflow, const Counts& codes) {
  InspectOptions options{layout_of(f, num_slots, track_overflow)};
  for (const auto& entry : codes) options.codes.push_back({code_from(entry.value()), entry.key()});
  return options;
}

c10::IValue flags_table(const at::Tensor& f, int64_t num_slots, bool track_overflow, const Counts& codes) {
  return for_python([&] { return to_list(flags::to_table(f, inspect_options(f, num_slots, track_overflow, codes))); });
}

c10::Dict<std::string, Counts> flags_summary(const at::Tensor& f, int64_t num_slots, bool track_overflow,
                                             const Counts& codes) {
  return for_python([&] {
    c10::Dict<std::string, Counts> result;
    for (const auto& [location, found] : flags::summary(f, inspect_options(f, num_slots, track_overflow, codes))) {
      Counts counts;
      for (const auto& [code, count] : found) counts.insert(code, count);
      result.insert(location, counts);
    }
    return result;
  });
}

std::string flags_repr(const at::Tensor& f, int64_t num_slots, bool track_overflow, const Counts& codes) {
  return for_python([&] { return flags::repr(f, inspect_options(f, num_slots, track_overflow, codes)); });
}

std::string flags_pretty(const at::Tensor& f, int64_t sample, int64_t num_slots, bool track_overflow,
                         const Counts& codes) {
  return for_python(
      [&] { return flags::pretty_print(f, sample, inspect_options(f, num_slots, track_overflow, codes)); });
}

void flags_save(const std::string& path, const at::Tensor& f, int64_t num_slots, bool track_overflow,
                const Counts& codes) {
  for_python([&] { flags::save(path, f, inspect_options(f, num_slots, track_overflow, codes)); });
}

std::tuple<at::Tensor, Counts> flags_load(const std::string& path, int64_t num_slots, bool track_overflow,
                                          at::ScalarType dtype) {
  return for_python([&] {
    ErrorConfig config;
    config.num_slots = num_slots;
    config.track_overflow = track_overflow;
    config.flag_dtype = dtype;
    const flags::Loaded loaded = flags::load(path, {config});
    Counts codes;
    for (const CodeName& one : loaded.codes) codes.insert(one.name, to_int(one.code));
    return std::tuple(loaded.f, codes);
  });
}

void set_config_of_process(int64_t num_slots, at::ScalarType flag_dtype, int64_t policy, int64_t default_severity,
                           bool strict_validation) {
  for_python([&] { set_config(config_from(num_slots, flag_dtype, policy, default_severity, strict_validation)); });
}

void check_config(int64_t num_slots, at::ScalarType flag_dtype, int64_t policy, int64_t default_severity,
                  bool strict_validation) {
  for_python([&] { config_from(num_slots, flag_dtype, policy, default_severity, strict_validation).validate(); });
}

int64_t register_location(const std::string& path) {
  return for_python([&] { return ErrorLocation::register_path(path); });
}

TORCH_LIBRARY_FRAGMENT(triage, m) {
  // Two equal calls are not one: a policy may count, draw random numbers, and change between them.
  m.def("run_policy(str policy, Tensor[] inputs) -> Tensor[]", {at::Tag::nondeterministic_seeded});
  m.def("_call_policy(str policy, Tensor[] inputs) -> Tensor[]", TORCH_FN(call_policy));
  m.def("_register_location(str path) -> int", TORCH_FN(register_location));
  m.def("_location_id(str path) -> int", [](const std::string& path) { return ErrorLocation::get(path); });
  m.def("_location_name(int id) -> str", [](int64_t id) { return ErrorLocation::name(id); });
  m.def("_location_count() -> int", [] { return ErrorLocation::count(); });
  m.def("_flags_table(Tensor f, int num_slots, bool track_overflow, Dict(str, int) codes) -> Any",
        TORCH_FN(flags_table));
  m.def(
      "_flags_summary(Tensor f, int num_slots, bool track_overflow, Dict(str, int) codes) -> Dict(str, Dict(str, int))",
      TORCH_FN(flags_summary));
  m.def("_flags_repr(Tensor f, int num_slots, bool track_overflow, Dict(str, int) codes) -> str", TORCH_FN(flags_repr));
  m.def("_flags_save(str path, Tensor f, int num_slots, bool track_overflow, Dict(str, int) codes) -> ()",
        TORCH_FN(flags_save));
  m.def("_flags_load(str path, int num_slots, bool track_overflow, ScalarType dtype) -> (Tensor, Dict(str, int))",
        TORCH_FN(flags_load));
  m.def("_flags_pretty(Tensor f, int sample, int num_slots, bool track_overflow, Dict(str, int) codes) -> str",
        TORCH_FN(flags_pretty));
  m.def(
      "_set_config(int num_slots, ScalarType flag_dtype, int policy, int default_severity, bool strict_validation) -> "
      "()",
      TORCH_FN(set_config_of_process));
  m.def(
      "_check_config(int num_slots, ScalarType flag_dtype, int policy, int default_severity, bool strict_validation) "
      "-> ()",
      TORCH_FN(check_config));
  m.def("_version() -> str", [] { return std::string(version()); });
}

TORCH_LIBRARY_IMPL(triage, CompositeExplicitAutograd, m) { m.impl("run_policy", TORCH_FN(run_policy)); }
TORCH_LIBRARY_IMPL(triage, Autograd, m) { m.impl("run_policy", TORCH_FN(run_policy_autograd)); }

}  // namespace
}  // namespace triage::python
