#include "runtime/policy/versions/recorded_call.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "runtime/files/disk.h"
#include "runtime/graph/output_names.h"
#include "runtime/messages/debugging/replay_settings.h"
#include "runtime/messages/logs/log.h"
#include "runtime/random/sequence.h"

namespace triage::policy {
namespace {

using capsule::CapsuleRecording;
using capsule::Json;

at::Generator generator_of(const PolicyVersion& version) {
  random::Sequence* const own = version.compiled.options().random.get();
  return own ? own->generator(c10::kCPU) : random::copy_of_current();
}

Json number_facts(const at::Tensor& value) {
  if (value.scalar_type() == at::kBool) return value.item<bool>();
  if (at::isIntegralType(value.scalar_type(), /*includeBool=*/false)) return value.item<int64_t>();
  return fmt::format("{:.17g}", value.item<double>());  // JSON has no NaN
}

at::Tensor bytes_tensor(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(tensor.data_ptr<uint8_t>()));
  return tensor;
}

/// Copying a generator takes microseconds: only where a graph draws, else when the script is about to run.
bool draws_without_script(const PolicyVersion& version) {
  const auto entries = version.compiled.entries();
  return std::any_of(entries.begin(), entries.end(), [](const capture::CacheEntry* entry) { return entry->draws; });
}

}  // namespace

RecordedCall::RecordedCall(const VersionCall& call)
    : call_(call),
      version_(call.version),
      recording_(CapsuleRecording::asked_for()
                     ? *CapsuleRecording::asked_for()
                     : own_.emplace(generator_of(version_), !draws_without_script(version_))) {
  if (recording_.whole()) recording_.set_generator(generator_of(version_));
}

void RecordedCall::run(Answer& answer) {
  VersionCall inside = call_;
  inside.may_be_recorded = false;
  try {
    inside.run(answer);
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    failed(error, answer);
    throw;
  }
  answered(answer);
}

capsule::Json RecordedCall::params_facts() {
  Json params = Json::object();
  const std::vector<at::Tensor> values =
      call_.options.params.empty() ? call_.params : override_params(version_, call_.params, call_.options.params);
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = version_.signature.params[i].name;
    const bool is_number = values[i].unsafeGetTensorImpl()->is_wrapped_number();
    params[name] = is_number ? number_facts(values[i])
                             : Json{{"tensor", recording_.tensors().add(values[i], recording_.is_masked(name))}};
  }
  return params;
}

/// Whether values of something that the call depends on are left out: what it computed from them tells of them.
bool RecordedCall::leaves_out() const {
  const auto masked = [&](const auto& all) {
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return recording_.is_masked(one.name); });
  };
  const auto& inputs = version_.signature.inputs;
  return recording_.leaves_out() || masked(version_.signature.state) || masked(version_.signature.params) ||
         masked(version_.compiled.options().host_tensors) ||
         std::any_of(inputs.begin(), inputs.end(), [&](const auto& name) { return recording_.is_masked(name); });
}

/// What the host gave the script besides the inputs. It is copied, so tables of models stay out; a replay says which.
Json RecordedCall::host_tensors() {
  constexpr size_t most_bytes = 64u << 20;
  Json numbers = Json::object();
  for (const HostTensor& given : version_.compiled.options().host_tensors) {
    const bool fits = given.tensor.layout() == c10::kStrided && given.tensor.nbytes() <= most_bytes;
    numbers[given.name] =
        fits ? Json(recording_.tensors().add(given.tensor.detach(), recording_.is_masked(given.name))) : Json();
  }
  return numbers;
}

Json RecordedCall::node_calls() {
  const bool derived = leaves_out();
  const auto all_saved = [&](const std::vector<at::Tensor>& tensors) {
    Json list = Json::array();
    for (const at::Tensor& tensor : tensors) list.push_back(saved("", tensor, derived, /*per_sample=*/true)["tensor"]);
    return list;
  };
  Json calls = Json::array();
  for (const CapsuleRecording::NodeCall& call : recording_.node_calls())
    calls.push_back({{"name", call.name},
                     {"module", call.is_module},
                     {"masked", derived},
                     {"arguments", all_saved(call.arguments)},
                     {"results", all_saved(call.results)}});
  return calls;
}

/// `per_sample`: it has a row for each sample, unless its size says otherwise.
Json RecordedCall::saved(const std::string& name, const at::Tensor& tensor, bool masked, bool per_sample) {
  const bool by_rows = per_sample && rows_ && tensor.dim() > 0 && tensor.size(0) == rows_->size(0);
  Json facts = {{"name", name}};
  facts["tensor"] = recording_.tensors().add(
      by_rows ? tensor.index_select(0, rows_->nonzero().flatten().to(tensor.device())) : tensor, masked);
  if (masked) facts["masked"] = true;
  return facts;
}

/// In the order of the signature; `masked`: values of all of it are left out.
Json RecordedCall::state_facts(at::ArrayRef<at::Tensor> state, bool masked) {
  Json facts = Json::array();
  for (size_t i = 0; i < state.size(); ++i) {
    const StateSpec& spec = version_.signature.state[i];
    const bool per_sample = !spec.type.dims.empty() && spec.type.dims[0].kind == Dim::Kind::name;
    facts.push_back(saved(spec.name, state[i], masked || recording_.is_masked(spec.name), per_sample));
  }
  return facts;
}

/// The source, and what it read when it was loaded: a replay loads it again.
Json RecordedCall::source_facts() {
  const Contents& contents = version_.contents;
  Json files = Json::object();
  for (const auto& [name, file] : contents.files)
    if (file.usable())
      files[name] = {{"bytes", recording_.tensors().add(bytes_tensor(*file.bytes), /*masked=*/false)}};
    else
      files[name] = {{"error", file.error}};
  return {{"path", version_.path},
          {"hash", version_.hash},
          {"text", contents.source},
          {"in_folder", contents.in_folder},
          {"files", std::move(files)}};
}

Json RecordedCall::facts(const Answer& answer) {
  if (!recording_.has_script())
    version_.compiled.with_script([&](Script& script) {
      if (auto* const state = dynamic_cast<capsule::HasState*>(&script)) recording_.before_script(*state);
    });
  const capture::Compiled::Options& options = version_.compiled.options();
  Json call = {{"backend", options.backend},
               {"fullgraph", options.fullgraph},
               {"masked_rows", masked_rows_name(options.masked_rows)},
               {"trusted", version_.held_to() == nullptr},
               {"params", params_facts()}};
  Json inputs = Json::array(), donated = Json::array();
  for (size_t i = 0; i < call_.inputs.size(); ++i) {
    const std::string& name = version_.signature.inputs[i];
    inputs.push_back(saved(name, call_.inputs[i], recording_.is_masked(name), /*per_sample=*/true));
  }
  for (const size_t index : call_.options.donate) donated.push_back(version_.signature.inputs[index]);
  call["inputs"] = std::move(inputs);
  call["donated"] = std::move(donated);
  if (answer.state) call["state"] = state_facts(answer.state->given, /*masked=*/leaves_out());
  if (rows_) {
    const at::Tensor rows = rows_->nonzero().flatten().contiguous();
    call["rows"] = std::vector<int64_t>(rows.data_ptr<int64_t>(), rows.data_ptr<int64_t>() + rows.numel());
  }
  Json graphs = Json::array();
  for (const capture::CacheEntry* entry : version_.compiled.entries()) graphs.push_back(graph::print(*entry->graph));
  Json given = host_tensors();  // before the calls of the host: what is left out of these, those tell of
  Json facts = recording_.facts();
  facts["host_tensors"] = std::move(given);
  facts["kind"] = "policy";
  facts["name"] = version_.name;
  facts["version"] = version_.number;
  facts["source"] = source_facts();
  facts["call"] = std::move(call);
  facts["graphs"] = std::move(graphs);
  facts["node_calls"] = node_calls();
  return facts;
}

void RecordedCall::failed(const std::exception& error, Answer& answer) noexcept {
  try {
    Json result = {{"error", capsule::error_facts(error)}};
    Json all = facts(answer);
    all["result"] = std::move(result);
    if (auto* const whole = recording_.whole()) {
      whole->done = std::move(all);
      answer.capsule.name(whole->file, /*failure=*/true);
    } else if (answer.capsules && !messages::replay_record_on()) {
      answer.capsule.keep(answer.capsules->make(std::move(all), std::move(recording_.tensors())), /*failure=*/true);
    } else {
      answer.capsule.name(capsule::write_failure(version_.name, std::move(all), recording_.tensors()),
                          /*failure=*/true);
    }
  } catch (const std::exception& failure) {
    messages::warn(
        fmt::format("a call of '{}' failed, and no capsule can be made of it: {}", version_.name, failure.what()));
  }
}

/// One for each sample; nothing where all are kept.
std::optional<at::Tensor> RecordedCall::bad_rows(at::ArrayRef<at::Tensor> outputs) const {
  std::optional<at::Tensor> bad;
  const std::vector<bool> is_flags = version_.compiled.flags_outputs();
  for (size_t i = 0; i < outputs.size() && i < is_flags.size(); ++i) {
    if (!is_flags[i] || outputs[i].dim() != 2 || (bad && bad->size(0) != outputs[i].size(0))) continue;
    if (!recording_.whole() && !outputs[i].is_cpu()) continue;  // a decision waits for no device
    const at::Tensor here = outputs[i].to(at::kCPU).ne(0).any(1);
    bad = bad ? *bad | here : here;
  }
  return bad;
}

Json RecordedCall::facts_of(const Answer& answer) {
  const std::vector<at::Tensor>& outputs = answer.outputs;
  Json all = facts(answer);
  const std::vector<std::string> names = version_.known_signature().outputs;
  Json results = Json::array();
  const bool derived = leaves_out();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = graph::output_name(names, i);
    results.push_back(saved(name, outputs[i], derived || recording_.is_masked(name), /*per_sample=*/true));
  }
  if (answer.state)
    for (Json& state : state_facts(answer.state->after, derived)) {
      state["name"] = "state." + state["name"].get<std::string>();
      results.push_back(std::move(state));
    }
  all["result"] = {{"outputs", std::move(results)}};
  return all;
}

void RecordedCall::answered(Answer& answer) {
  if (CapsuleRecording::CapsuleRequest* const whole = recording_.whole()) {
    if (whole->bad_rows) rows_ = bad_rows(answer.outputs);
    whole->done = facts_of(answer);
    answer.capsule.name(whole->file, /*failure=*/false);
    return;
  }
  if (!answer.capsules) return;
  try {
    const std::optional<at::Tensor> bad = bad_rows(answer.outputs);
    if (!bad || !bad->any().item<bool>()) return answer.capsule.name("", /*failure=*/false);
    if (answer.capsules->bad_rows()) rows_ = bad;
    Json all = facts_of(answer);
    answer.capsule.keep(answer.capsules->make(std::move(all), std::move(recording_.tensors())), /*failure=*/false);
  } catch (const std::exception& failure) {  // the call has been answered
    answer.capsules->cannot(failure.what());
  }
}

}  // namespace triage::policy
