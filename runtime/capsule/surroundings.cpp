#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <triage/compiler_config.h>
#include <triage/config.h>
#include <triage/error.h>
#include <triage/location.h>

#include <optional>

#include "runtime/capsule/capsule.h"
#include "runtime/files/disk.h"
#include "runtime/files/dtype.h"
#include "runtime/messages/printable.h"

namespace triage::capsule {
namespace {

Json config_facts(const ErrorConfig& config) {
  return {{"flag_dtype", files::names_of(config.flag_dtype)->torch},
          {"num_slots", config.num_slots},
          {"priority", static_cast<int>(config.accumulation.priority)},
          {"order", static_cast<int>(config.accumulation.order)},
          {"dedupe", static_cast<int>(config.accumulation.dedupe)},
          {"default_severity", to_int(config.default_severity)},
          {"track_overflow", config.track_overflow},
          {"strict_validation", config.strict_validation},
          {"use_transposed_layout", config.use_transposed_layout},
          {"transpose_threshold", config.transpose_threshold}};
}

int64_t at_most(const Json& facts, const char* name, int64_t most) {
  const int64_t value = integer(member(facts, name), name);
  if (value < 0 || value > most) throw files::Malformed(fmt::format("its field `{}` is out of range", name));
  return value;
}

bool flag(const Json& facts, const char* name) {
  const Json& value = member(facts, name);
  if (!value.is_boolean()) throw files::Malformed(fmt::format("its field `{}` is neither true nor false", name));
  return value.get<bool>();
}

ErrorConfig config_of(const Json& facts) {
  ErrorConfig config;
  const auto dtype = files::find_dtype(&files::DtypeNames::torch, text(member(facts, "flag_dtype"), "flag_dtype"));
  if (!dtype) throw files::Malformed("its flags have an unknown dtype");
  config.flag_dtype = *dtype;
  config.num_slots = at_most(facts, "num_slots", 32768);
  config.accumulation.priority = static_cast<Priority>(at_most(facts, "priority", 2));
  config.accumulation.order = static_cast<Order>(at_most(facts, "order", 1));
  config.accumulation.dedupe = static_cast<Dedupe>(at_most(facts, "dedupe", 3));
  config.default_severity = severity_from(integer(member(facts, "default_severity"), "default_severity"));
  config.track_overflow = flag(facts, "track_overflow");
  config.strict_validation = flag(facts, "strict_validation");
  config.use_transposed_layout = flag(facts, "use_transposed_layout");
  config.transpose_threshold = integer(member(facts, "transpose_threshold"), "transpose_threshold");
  config.validate();
  return config;
}

Json compiler_facts(const CompilerConfig& config) {
  return {{"capture_dynamic_output_shape_ops", config.capture_dynamic_output_shape_ops},
          {"capture_scalar_outputs", config.capture_scalar_outputs}};
}

/// Paths in the order of their ids, which begin with 1.
Json location_facts() {
  Json paths = Json::array();
  for (int64_t id = 1; id < ErrorLocation::count(); ++id)
    paths.push_back(ErrorLocation::path(id).empty() ? ErrorLocation::name(id) : ErrorLocation::path(id));
  return paths;
}

void restore_locations(const Json& paths) {
  int64_t id = 0;
  for (const Json& item : paths) {
    const std::string path = text(item, "locations");
    if (++id > ErrorLocation::MAX_LOCATION_ID || path.empty()) throw files::Malformed("its locations are damaged");
    if (ErrorLocation::register_path(path) != id)
      throw InputError(fmt::format(
          "cannot replay: location {} of the capsule is '{}', and this process has other locations already; replay "
          "it in a process of its own, with `triage replay`",
          id, messages::one_line(path)));
  }
}

}  // namespace

Json surroundings() {
  Json modes = {{"grad", c10::GradMode::is_enabled()},
                {"inference", c10::InferenceMode::is_enabled()},
                {"default_dtype", files::names_of(at::get_default_dtype_as_scalartype())->torch},
                {"stance", stance_name(get_stance())}};
  return {{"modes", std::move(modes)},
          {"config", config_facts(get_config())},
          {"compiler_config", compiler_facts(get_compiler_config())},
          {"locations", location_facts()}};
}

struct Surroundings::SavedSettings {
  bool grad = c10::GradMode::is_enabled();
  caffe2::TypeMeta dtype = at::get_default_dtype();
  Stance stance = get_stance();
  ErrorConfig config = get_config();
  CompilerConfig compiler = get_compiler_config();
  std::optional<c10::InferenceMode> inference;
};

Surroundings::Surroundings(const Json& facts) : before_(std::make_unique<SavedSettings>()) {
  const Json& modes = member(facts, "modes");
  const Json& compiler = member(facts, "compiler_config");
  const auto dtype =
      files::find_dtype(&files::DtypeNames::torch, text(member(modes, "default_dtype"), "default_dtype"));
  if (!dtype || !at::isFloatingType(*dtype)) throw files::Malformed("its default dtype is unknown");
  const ErrorConfig config = config_of(member(facts, "config"));
  const Stance stance = stance_from(text(member(modes, "stance"), "stance"));
  CompilerConfig settings = get_compiler_config();
  settings.capture_dynamic_output_shape_ops = flag(compiler, "capture_dynamic_output_shape_ops");
  settings.capture_scalar_outputs = flag(compiler, "capture_scalar_outputs");
  const bool grad = flag(modes, "grad"), inference = flag(modes, "inference");
  restore_locations(member(facts, "locations"));
  set_config(config);
  set_compiler_config(settings);
  set_stance(stance);
  at::set_default_dtype(at::scalarTypeToTypeMeta(*dtype));
  if (inference) before_->inference.emplace(true);
  c10::GradMode::set_enabled(grad);
}

Surroundings::~Surroundings() {
  before_->inference.reset();
  c10::GradMode::set_enabled(before_->grad);
  at::set_default_dtype(before_->dtype);
  set_stance(before_->stance);
  set_compiler_config(before_->compiler);
  set_config(before_->config);
}

}  // namespace triage::capsule
