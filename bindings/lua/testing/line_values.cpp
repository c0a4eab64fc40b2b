#include "bindings/lua/testing/line_values.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <triage/graph.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/compiled.h"
#include "runtime/capture/hidden_results.h"
#include "runtime/capture/tensors/host_memory.h"
#include "runtime/graph/output_names.h"

namespace triage::lua {
namespace {

using diagnose::RecordedStep;

/// What the lines of a call show while it runs: their texts, and which variable held which tensor first.
class LineWatch {
 public:
  explicit LineWatch(std::map<std::pair<std::string, int>, std::string>& texts) : texts_(texts) {}

  void name(const at::Tensor& tensor, const std::string& name) { names_.emplace(tensor.unsafeGetTensorImpl(), name); }

  /// Before a line of the script or of our own Lua code.
  void operator()(lua_State* L, lua_Debug* frame) noexcept {
    try {
      lua_getinfo(L, "Sl", frame);
      if (std::string_view(frame->source).substr(0, 2) == "=[") return;
      ++visit_;
      std::string& text = texts_[{frame->short_src, frame->currentline}];
      if (text.empty()) text = line_as_written(L);
      note_variables(L, frame);
    } catch (const std::exception&) {  // of memory: then a name or a text is missing
    }
  }

  size_t visit() const { return visit_; }
  std::string name_of(const void* tensor) const {
    const auto found = names_.find(tensor);
    return found == names_.end() ? "" : found->second;
  }

 private:
  void note_variables(lua_State* L, lua_Debug* frame) {
    for (int i = 1; const char* variable = lua_getlocal(L, frame, i); ++i) note(L, variable);
    lua_getinfo(L, "f", frame);
    for (int i = 1; const char* variable = lua_getupvalue(L, -1, i); ++i) note(L, variable);
    lua_pop(L, 1);
  }
  /// Pops the value of the variable. Those that the compiler or the rewriter made have no name that stands in the
  /// script.
  void note(lua_State* L, std::string_view variable) {
    const at::Tensor* const tensor = test_tensor(L, -1);
    const bool is_made = variable.empty() || variable[0] == '(' || variable.substr(0, 8) == "__triage";
    if (tensor && tensor->defined() && !is_made) name(*tensor, std::string(variable));
    lua_pop(L, 1);
  }

  std::map<std::pair<std::string, int>, std::string>& texts_;
  std::unordered_map<const void*, std::string> names_;
  size_t visit_ = 0;
};

/// While alive, the lines that a script runs go to `watch`.
class Watching {
 public:
  Watching(LuaScript& script, LineWatch& watch) : script_(script) {
    script_.watch_lines([&watch](lua_State* L, lua_Debug* frame) { watch(L, frame); });
  }
  ~Watching() { script_.watch_lines(nullptr); }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  LuaScript& script_;
};

bool gives_flags(const std::string& op, size_t result) {
  const size_t dot = op.find('.');
  const auto handle =
      c10::Dispatcher::singleton().findSchema({op.substr(0, dot), dot == std::string::npos ? "" : op.substr(dot + 1)});
  return handle && result < handle->schema().returns().size() && graph::returns_flags(*handle, result);
}

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.dim() == 2 && b.dim() == 2 && a.scalar_type() == b.scalar_type() &&
         a.size(1) == b.size(1);
}

}  // namespace

CallByLine::CallByLine(LuaScript& script, CallOfScript call) {
  const Signature& signature = script.signature();
  codes_ = call.codes.empty() ? signature.codes : call.codes;
  LineWatch watch(texts_);
  std::vector<at::Tensor> inputs, all;
  for (const diagnose::IsolationInput& input : call.inputs) {
    inputs.push_back(input.tensor);
    watch.name(input.tensor, input.name);
    if (input.has_samples && !samples_) samples_ = input.tensor.size(0);
  }
  all = inputs;
  for (size_t i = 0; i < call.values.size(); ++i) {
    const size_t params = signature.params.size();
    watch.name(call.values[i], i < params ? "p." + signature.params[i].name : "s." + signature.state[i - params].name);
    all.push_back(call.values[i]);
  }
  given_ = all.size();
  const Watching watching(script, watch);
  recording_ = diagnose::record_calls(
      [&](const diagnose::Tensors&) {
        const capture::ProtectInputs protect(inputs);
        return script.call(inputs, call.values, std::nullopt);
      },
      all,
      [&] {
        visits_.push_back(watch.visit());
        return script.current_line();
      });
  for (const diagnose::Value& value : recording_.values) names_.push_back(watch.name_of(value.held_by));
  outputs_ = script.signature().outputs;  // known after a call
  for (size_t i = outputs_.size(); i + capture::behind_outputs(signature) < recording_.outputs.size(); ++i)
    outputs_.push_back(graph::output_name({}, i));
  for (const StateSpec& state : signature.state) outputs_.push_back("s." + state.name);
  for (std::string& name : capture::hidden_names(signature)) outputs_.push_back(std::move(name));
  find_kinds(signature, call);
}

/// What an operator makes of samples has them, where it is as long as the batch; what it makes of nothing, too.
void CallByLine::find_kinds(const Signature& signature, const CallOfScript& call) {
  kinds_.resize(recording_.values.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) kinds_[i] = {call.inputs[i].has_samples, call.inputs[i].is_flags};
  for (size_t i = 0; i < signature.state.size(); ++i) {
    const std::vector<Dim>& dims = signature.state[i].type.dims;
    kinds_[given_ - signature.state.size() + i].has_samples = !dims.empty() && dims[0].kind != Dim::Kind::size;
  }
  for (const RecordedStep& step : recording_.steps)
    for (size_t i = 0; i < step.results.size(); ++i) {
      kinds_[step.results[i]] = kind_of_result(step, i);
      if (!kinds_[step.results[i]].is_flags || step.op.rfind("triage::", 0) != 0) continue;
      for (const size_t read : step.reads)  // flags that came in, and of which nobody said that they are some
        if (same_form(recording_.values[read].tensor, recording_.values[step.results[i]].tensor))
          kinds_[read].is_flags = true;
    }
}

CallByLine::ValueTraits CallByLine::kind_of_result(const RecordedStep& step, size_t place) const {
  const at::Tensor& result = recording_.values[step.results[place]].tensor;
  ValueTraits kind;
  if (!result.defined()) return kind;
  const auto reads_some = [&](auto is) { return std::any_of(step.reads.begin(), step.reads.end(), is); };
  const bool of_samples = step.reads.empty() || reads_some([&](size_t read) { return kinds_[read].has_samples; });
  kind.has_samples = samples_ && of_samples && result.dim() > 0 && result.size(0) == *samples_;
  kind.is_flags = gives_flags(step.op, place) || reads_some([&](size_t read) {
                    return kinds_[read].is_flags && same_form(recording_.values[read].tensor, result);
                  });
  return kind;
}

ValueOfSample CallByLine::value(size_t index, const std::string& op, int64_t sample) const {
  ValueOfSample value{names_[index],          op,    recording_.values[index].tensor, kinds_[index].has_samples,
                      kinds_[index].is_flags, codes_};
  if (value.has_samples && value.tensor.defined() && value.tensor.layout() == at::kStrided)
    value.tensor = value.is_flags ? value.tensor.narrow(0, sample, 1) : value.tensor.select(0, sample);
  return value;
}

SampleByLine CallByLine::sample(int64_t index) const {
  SampleByLine found{index, samples_.value_or(0), {}, {}, {}};
  for (size_t i = 0; i < given_; ++i) found.given.push_back(value(i, "", index));
  size_t visit = 0;
  for (size_t i = 0; i < recording_.steps.size(); ++i) {
    const RecordedStep& step = recording_.steps[i];
    if (step.results.empty() || step.source.file.empty()) continue;
    if (found.lines.empty() || visits_[i] != visit) {
      const auto text = texts_.find({step.source.file, step.source.line});
      found.lines.push_back({step.source, text == texts_.end() ? "" : text->second, {}});
    }
    visit = visits_[i];
    for (const size_t result : step.results) found.lines.back().values.push_back(value(result, step.op, index));
  }
  for (size_t i = 0; i < recording_.outputs.size(); ++i) {
    if (!recording_.outputs[i]) continue;
    found.outputs.push_back(value(*recording_.outputs[i], "", index));
    found.outputs.back().name = outputs_[i];
  }
  return found;
}

}  // namespace triage::lua
