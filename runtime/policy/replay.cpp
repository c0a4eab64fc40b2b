#include "runtime/policy/replay.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <triage/backend.h>
#include <triage/error.h>
#include <triage/files.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "runtime/capsule/results.h"
#include "runtime/diagnose/bits.h"
#include "runtime/files/disk.h"
#include "runtime/messages/boundary.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/host/host_calls.h"
#include "runtime/policy/host/runtime_core.h"
#include "runtime/policy/versions/version_call.h"

namespace triage {
namespace policy {
namespace {

using capsule::Json;
using capsule::member;
using capsule::RestoredTensors;
using capsule::text;

ReplayFunction& replay_of_functions() {
  static auto& replay = *new ReplayFunction;
  return replay;
}

std::string bytes_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kByte || tensor.dim() != 1)
    throw files::Malformed("a file in it is no list of bytes");
  const at::Tensor dense = tensor.contiguous();
  const char* const begin = reinterpret_cast<const char*>(dense.data_ptr<uint8_t>());
  return {begin, begin + dense.numel()};
}

/// The source and the files that it read, which must be those that were recorded.
Contents contents_of(const Json& facts, const RestoredTensors& tensors) {
  const Json& source = member(facts, "source");
  Contents contents{text(member(source, "text"), "text")};
  if (source.contains("files")) {
    contents.in_folder = member(source, "in_folder").get<bool>();
    for (const auto& [name, file] : source["files"].items())
      if (file.contains("bytes"))
        contents.files[name].set_bytes(bytes_of(tensors.at(capsule::integer(file["bytes"], "files"))));
      else
        contents.files[name].error = text(member(file, "error"), "files");
  }
  if (text(member(source, "hash"), "hash") != contents.hash())
    throw files::Malformed("its source does not have the hash that it states");
  return contents;
}

std::vector<at::Tensor> numbered(const Json& list, const RestoredTensors& tensors) {
  std::vector<at::Tensor> found;
  for (const Json& number : list) found.push_back(tensors.at(capsule::integer(number, "results")));
  return found;
}

/// Functions of the host give what they gave, in the order of the calls.
void define_host_functions(RuntimeCore& runtime, const Json& calls, const RestoredTensors& tensors) {
  std::map<std::string, std::vector<std::vector<at::Tensor>>> results;
  for (const Json& call : calls)
    results[text(member(call, "name"), "name")].push_back(numbered(member(call, "results"), tensors));
  for (auto& [name, list] : results)
    runtime.define({name, [name = name, list = list, next = size_t{0}](const std::vector<at::Tensor>&) mutable {
                      if (next == list.size())
                        throw Error(fmt::format("the recorded call did not call the host's function `{}` again",
                                                messages::one_line(name)));
                      return list[next++];
                    }});
}

/// A call of a function or module that is a node of graphs, as it was recorded.
struct RecordedNodeCall {
  bool masked;
  std::vector<at::Tensor> arguments, results;
};

bool same_forms(const given::Forms& a, const given::Forms& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.dtype == other.dtype && one.sizes == other.sizes;
  });
}

const RecordedNodeCall& call_like(const std::string& name, const std::vector<RecordedNodeCall>& calls,
                                  const given::Forms& forms, const std::vector<at::Tensor>* values) {
  for (const RecordedNodeCall& call : calls) {
    if (!same_forms(given::forms_of(call.arguments), forms)) continue;
    if (!values || call.masked ||
        std::equal(values->begin(), values->end(), call.arguments.begin(), diagnose::same_bits))
      return call;
  }
  throw Error(
      fmt::format("the recorded call did not call the host's `{}` with these arguments", messages::one_line(name)));
}

/// They give what they gave for the same arguments, however often and in which order they are called.
void define_node_calls(RuntimeCore& runtime, const Json& facts, const RestoredTensors& tensors) {
  std::map<std::pair<std::string, bool>, std::vector<RecordedNodeCall>> calls;
  for (const Json& call : facts)
    calls[{text(member(call, "name"), "name"), member(call, "module").get<bool>()}].push_back(
        {member(call, "masked").get<bool>(), numbered(member(call, "arguments"), tensors),
         numbered(member(call, "results"), tensors)});
  for (const auto& [callee, list] : calls) {
    const auto shared = std::make_shared<const std::vector<RecordedNodeCall>>(list);
    const std::string name = callee.first;
    given::Callee node{name, [name, shared](const std::vector<at::Tensor>& arguments) {
                         return call_like(name, *shared, given::forms_of(arguments), &arguments).results;
                       }};
    node.shapes = [name, shared](const given::Forms& forms) {
      return given::forms_of(call_like(name, *shared, forms, nullptr).results);
    };
    node.is_module = callee.second;
    runtime.define(node_function(std::move(node)));
  }
}

/// What the host gave the script besides the inputs; capsules of earlier versions have none.
void define_given(RuntimeCore& runtime, const Json& facts, const RestoredTensors& tensors,
                  std::vector<std::string>& notes) {
  define_host_functions(runtime, member(facts, "host_calls"), tensors);
  if (!facts.contains("node_calls")) return;
  define_node_calls(runtime, member(facts, "node_calls"), tensors);
  for (const auto& [name, number] : member(facts, "host_tensors").items()) {
    if (number.is_null())
      notes.push_back("the host's tensor '" + messages::one_line(name) +
                      "' is too large for a capsule, or not dense, and is not defined here");
    else
      runtime.define(HostTensor{name, tensors.at(capsule::integer(number, "host_tensors"))});
  }
}

ParamValue param_value(const Json& value, const RestoredTensors& tensors) {
  if (value.is_object()) return tensors.at(capsule::integer(member(value, "tensor"), "params"));
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return capsule::integer(value, "params");
  const std::string number = text(value, "params");
  double parsed = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), parsed);
  if (error != std::errc() || end != number.data() + number.size())
    throw files::Malformed("a param in it is no number");
  return parsed;
}

Params params_of(const Json& call, const RestoredTensors& tensors) {
  Params params;
  for (const auto& [name, value] : member(call, "params").items())
    params.emplace_back(name, param_value(value, tensors));
  return params;
}

/// Null for a policy without state.
KeptState state_of(const Json& call, const RestoredTensors& tensors) {
  if (!call.contains("state")) return nullptr;
  auto state = std::make_shared<StateTensors>();
  for (const Json& one : call["state"])
    state->emplace_back(text(member(one, "name"), "state"),
                        as_kept(tensors.at(capsule::integer(member(one, "tensor"), "state"))));
  return state;
}

std::string backend_of(const Json& call, const ReplayOptions& options, std::vector<std::string>& notes) {
  if (!options.backend.empty()) return options.backend;
  std::string backend = text(member(call, "backend"), "backend");
  const std::vector<std::string> known = list_backends();
  const std::string family = backend.substr(0, backend.find(':'));
  if (std::find(known.begin(), known.end(), backend) != known.end() || family != backend) return backend;
  notes.push_back(
      fmt::format("its backend '{}' is not registered here: `eager` stands for it", messages::one_line(backend)));
  return "eager";
}

RuntimeOptions runtime_options(const Json& call, const ReplayOptions& options, std::vector<std::string>& notes) {
  RuntimeOptions runtime;
  runtime.backend = backend_of(call, options, notes);
  runtime.fullgraph = member(call, "fullgraph").get<bool>();
  if (call.contains("masked_rows")) runtime.masked_rows = masked_rows_from(text(call["masked_rows"], "masked_rows"));
  runtime.trusted = options.trusted;
  runtime.print = options.print;
  runtime.log = [](const LogRecord&) {};
  if (member(call, "trusted").get<bool>() && !options.trusted)
    notes.emplace_back("it was recorded from a trusted script, and replays with the limits of policies (`--trusted`)");
  return runtime;
}

void note_missing(const Json& facts, std::vector<std::string>& notes) {
  const Json& script = member(facts, "script");
  if (script.is_null())
    return notes.emplace_back("what the script's variables held is not known: they are as after its load"), void();
  for (const Json& sentence : member(script, "missing")) notes.push_back(messages::one_line(text(sentence, "missing")));
}

void note_call(const Json& call, std::vector<std::string>& notes) {
  for (const Json& input : member(call, "inputs"))
    if (input.value("masked", false))
      notes.push_back(fmt::format("the values of input '{}' were left out: it is zeros here",
                                  messages::one_line(text(member(input, "name"), "name"))));
  if (call.contains("state"))
    for (const Json& state : call["state"])
      if (state.value("masked", false))
        notes.push_back(fmt::format("the values of the state '{}' were left out: it is zeros here",
                                    messages::one_line(text(member(state, "name"), "state"))));
  for (const Json& name : member(call, "donated"))
    notes.push_back(fmt::format("input '{}' was donated: its values are those after the call",
                                messages::one_line(text(name, "donated"))));
  if (call.contains("rows"))
    notes.push_back(fmt::format("it has {} samples of the batch, those that were flagged", call["rows"].size()));
}

/// A call of a version that no policy has: its outputs, and its new state.
std::vector<at::Tensor> replayed(PolicyVersion& version, at::ArrayRef<at::Tensor> inputs, const Params& params,
                                 const KeptState& state) {
  Answer answer;
  if (state) answer.begin_with(state);
  VersionCall{version, inputs, param_tensors(version.signature, params), {}, /*may_be_recorded=*/false}.run(answer);
  if (answer.state) answer.outputs.insert(answer.outputs.end(), answer.state->after.begin(), answer.state->after.end());
  return std::move(answer.outputs);
}

void restore(PolicyVersion& version, const Json& state, const RestoredTensors& tensors) {
  if (state.is_null()) return;
  try {
    version.compiled.with_script([&](Script& script) {
      if (auto* const has_state = dynamic_cast<capsule::HasState*>(&script)) has_state->restore_state(state, tensors);
    });
  } catch (const Error& error) {
    throw files::Malformed(error.what());
  }
}

/// A version that no policy has, as it was before the recorded call, and what that call gave it.
class RecordedPolicy {
 public:
  RecordedPolicy(const Json& facts, const RestoredTensors& tensors, const ReplayOptions& options,
                 std::vector<std::string>& notes, const Limits& limits = {})
      : facts_(facts), tensors_(tensors), numbers_(std::make_shared<random::Sequence>()) {
    const Json& call = member(facts, "call");
    note_call(call, notes);
    RuntimeOptions own = runtime_options(call, options, notes);
    own.limits = limits;
    runtime_ = std::make_shared<RuntimeCore>(std::move(own));
    define_given(*runtime_, facts, tensors, notes);
    set_numbers(*numbers_, facts, tensors);
    const std::string path = text(member(member(facts, "source"), "path"), "path");
    version_ = runtime_->load_version(contents_of(facts, tensors), path, numbers_);
    version_->number = static_cast<int>(capsule::integer(member(facts, "version"), "version"));
    restore(*version_, member(facts, "script"), tensors);
    for (const Json& input : member(call, "inputs"))
      inputs_.push_back(tensors.at(capsule::integer(member(input, "tensor"), "tensor")));
    if (inputs_.size() != version_->signature.inputs.size())
      throw files::Malformed("its inputs are not those of its source");
    params_ = params_of(call, tensors);
    state_ = state_of(call, tensors);
  }

  std::vector<at::Tensor> call() { return replayed(*version_, inputs_, params_, state_); }
  /// The next call draws the numbers of the recorded one.
  void draw_again() { set_numbers(*numbers_, facts_, tensors_); }
  bool is_one_graph() const { return !version_->compiled.entries().empty() && !version_->compiled.has_breaks(); }

  void use_script(const UseOfScript& use) {
    StateOfCall state;
    state.before = state_;
    begin_state(version_->signature, inputs_, state);
    std::vector<at::Tensor> values = param_tensors(version_->signature, params_);
    values.insert(values.end(), state.given.begin(), state.given.end());
    const random::DrawFrom draws(numbers_.get());
    version_->compiled.with_script([&](Script& script) { use(script, inputs_, values); });
  }

 private:
  const Json& facts_;
  const RestoredTensors& tensors_;
  std::shared_ptr<random::Sequence> numbers_;
  std::shared_ptr<RuntimeCore> runtime_;
  std::shared_ptr<PolicyVersion> version_;
  std::vector<at::Tensor> inputs_;
  Params params_;
  KeptState state_;
};

std::string replay_policy(const Json& facts, const RestoredTensors& tensors, const ReplayOptions& options,
                          std::vector<std::string>& notes) {
  RecordedPolicy recorded(facts, tensors, options, notes);
  const Json& result = member(facts, "result");
  try {
    std::vector<at::Tensor> outputs = recorded.call();
    if (recorded.is_one_graph()) {
      // The call that captures may be answered by the script. A function that is one graph has no side effects: its
      // backend answers now.
      recorded.draw_again();
      outputs = recorded.call();
    }
    return capsule::difference(result, tensors, outputs);
  } catch (const files::Malformed&) {
    throw;
  } catch (const Json::exception&) {
    throw;
  } catch (const std::exception& error) {
    return capsule::difference(result, error);
  }
}

/// Whatever a damaged capsule makes of `read` is a FileError that names it.
template <typename Read>
void with_file_errors(const std::string& file, const Read& read) {
  try {
    read();
  } catch (const files::Malformed& error) {
    throw FileError(fmt::format("cannot replay \"{}\": {}", file, messages::one_line(error.what())));
  } catch (const capsule::Json::exception& error) {
    throw FileError(fmt::format("cannot replay \"{}\": it is damaged ({})", file, messages::one_line(error.what())));
  } catch (const c10::Error& error) {  // of a tensor that is not what it has to be, such as the random state
    throw FileError(fmt::format("cannot replay \"{}\": it is damaged ({})", file,
                                messages::one_line(error.what_without_backtrace())));
  }
}

}  // namespace

void set_numbers(random::Sequence& sequence, const Json& facts, const RestoredTensors& tensors) {
  if (const Json& random = member(facts, "random"); !random.is_null())
    sequence.generator(c10::kCPU).set_state(tensors.at(capsule::integer(random, "random")));
}

void register_replay_of_functions(ReplayFunction replay) { replay_of_functions() = std::move(replay); }

void save_recorded(const RecordOptions& options, const capsule::CapsuleRecording::CapsuleRequest& whole,
                   const capsule::SavedTensors& tensors) {
  if (!whole.done) throw Error(fmt::format("nothing was recorded for \"{}\"", options.file));
  if (tensors.bytes() > capsule::most_bytes)
    throw FileError(
        fmt::format("cannot write \"{}\": the tensors of the call have {} MiB, and the limit of a capsule is {} "
                    "MiB; record a smaller batch, or only its bad rows",
                    options.file, tensors.bytes() >> 20, capsule::most_bytes >> 20));
  capsule::Json facts = *whole.done;
  facts["why"] = "it was asked for";
  capsule::save(options.file, std::move(facts), tensors);
}

Replayed replay(const capsule::Capsule& capsule, const std::string& file, const ReplayOptions& options) {
  const capsule::Json& facts = capsule.facts;
  Replayed replayed;
  with_file_errors(file, [&] {
    const std::string kind = capsule::text(capsule::member(facts, "kind"), "kind");
    replayed.name = messages::one_line(capsule::text(capsule::member(facts, "name"), "name"));
    const capsule::RestoredTensors tensors(capsule::member(facts, "tensors"), capsule.memories);
    replayed.recorded = capsule::describe_result(capsule::member(facts, "result"));
    replayed.notes = tensors.notes();
    note_missing(facts, replayed.notes);
    for (std::string& note : capsule::notes_of_result(capsule::member(facts, "result")))
      replayed.notes.push_back(std::move(note));
    for (std::string& note : capsule::differences_of_machine(facts)) replayed.notes.push_back(std::move(note));
    const capsule::Surroundings surroundings(facts);
    if (kind == "policy")
      replayed.difference = replay_policy(facts, tensors, options, replayed.notes);
    else if (kind == "function" && replay_of_functions())
      replayed.difference = replay_of_functions()(facts, tensors, options);
    else
      throw files::Malformed(fmt::format("it holds a call of kind '{}', which this library cannot repeat", kind));
  });
  replayed.same = replayed.difference.empty();
  return replayed;
}

void use_recorded_script(const capsule::Capsule& capsule, const std::string& file, const ReplayOptions& options,
                         const Limits& limits, const UseOfScript& use) {
  const capsule::Json& facts = capsule.facts;
  with_file_errors(file, [&] {
    if (capsule::text(capsule::member(facts, "kind"), "kind") != "policy")
      throw InputError(
          fmt::format("\"{}\" holds a call of a function; only calls of policies are shown line by line", file));
    const capsule::RestoredTensors tensors(capsule::member(facts, "tensors"), capsule.memories);
    const capsule::Surroundings surroundings(facts);
    std::vector<std::string> notes;  // replay has told them
    RecordedPolicy(facts, tensors, options, notes, limits).use_script(use);
  });
}

}  // namespace policy

std::vector<at::Tensor> record(const Policy& policy, at::ArrayRef<at::Tensor> inputs, const RecordOptions& options,
                               const RunOptions& run) {
  return messages::errors_only([&] {
    check_ending(options.file);
    capsule::CapsuleRecording::CapsuleRequest whole{options.bad_rows, options.masked, {}, options.file};
    capsule::CapsuleRecording recording(whole);
    try {
      std::vector<at::Tensor> outputs = policy.run(inputs, run);
      policy::save_recorded(options, whole, recording.tensors());
      return outputs;
    } catch (const FileError&) {
      throw;
    } catch (const files::Malformed& error) {
      throw FileError(fmt::format("cannot record \"{}\": {}", options.file, error.what()));
    } catch (const std::exception&) {
      if (whole.done) policy::save_recorded(options, whole, recording.tensors());
      throw;
    }
  });
}

Replayed replay(const std::string& file, const ReplayOptions& options) {
  return messages::errors_only([&] { return policy::replay(capsule::load(file), file, options); });
}

}  // namespace triage
