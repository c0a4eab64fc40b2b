// Operators that only Python needs: what reads flags, locations and the configuration of the process.
#include <ATen/ATen.h>
#include <torch/library.h>
#include <triage/flags.h>
#include <triage/location.h>
#include <triage/log.h>
#include <triage/version.h>

#include "bindings/python/values.h"
#include "runtime/messages/printable.h"

namespace triage::python {
namespace {

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

/// `callback`: the address of a function of ctypes, which takes the interpreter's lock. 0: standard error.
void set_log_of_process(int64_t callback) {
  using Callback = void (*)(int level, const char* text, const char* fields);
  if (callback == 0) return set_log({});
  set_log([function = reinterpret_cast<Callback>(callback)](const LogRecord& record) {
    std::string fields;
    for (const LogField& field : record.fields)
      fields += std::string(field.name) + "\x1f" + messages::printable(field.value) + "\x1e";
    function(static_cast<int>(record.level), messages::printable(record.text).c_str(), fields.c_str());
  });
}

TORCH_LIBRARY_FRAGMENT(triage, m) {
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
  m.def("_set_log(int callback) -> ()", TORCH_FN(set_log_of_process));
  m.def("_version() -> str", [] { return std::string(version()); });
  m.def("_host_function(str key, Tensor[] inputs) -> Tensor[]");  // triage/_definitions.py is its kernel
}

}  // namespace
}  // namespace triage::python
