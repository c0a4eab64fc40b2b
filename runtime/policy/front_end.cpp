#include "runtime/policy/front_end.h"

#include <fmt/format.h>
#include <triage/front_end.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "runtime/capsule/recording.h"
#include "runtime/capture/graph_break.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/tensors/host_memory.h"
#include "runtime/given/host_call.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/policy/host/host_calls.h"

namespace triage {
namespace {

struct Registry {
  messages::ForkSafeMutex mutex;
  std::map<std::string, FrontEnd> front_ends;
};

// Never destroyed: policies may be loaded while other statics are going away.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

std::string known_endings(const Registry& all) {
  std::string list;
  for (const auto& [ending, front_end] : all.front_ends) list += list.empty() ? ending : ", " + ending;
  return list;
}

size_t holders(const at::Tensor& tensor) {
  return tensor.use_count() + (tensor.has_storage() ? tensor.storage().use_count() : 0);
}

/// What the host keeps of the arguments, and of what it returns, is memory of the host.
std::vector<at::Tensor> call_noting_what_it_keeps(const HostFunction& function,
                                                  const std::vector<at::Tensor>& arguments) {
  std::vector<size_t> before;
  for (const at::Tensor& argument : arguments) before.push_back(holders(argument));
  std::vector<at::Tensor> results = policy::call_as_host(function.name, function.fn, arguments);
  const auto is_argument = [&](const at::Tensor& result) {
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const at::Tensor& argument) { return argument.is_same(result); });
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto returned = static_cast<size_t>(std::count_if(
        results.begin(), results.end(), [&](const at::Tensor& result) { return result.is_same(arguments[i]); }));
    if (holders(arguments[i]) - returned > before[i]) capture::ProtectInputs::add(arguments[i]);
  }
  for (const at::Tensor& result : results)
    if (result.defined() && holders(result) > 2 && !is_argument(result)) capture::ProtectInputs::add(result);
  return results;
}

}  // namespace

void call_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) { capture::call(op, stack); }

void break_graph(const std::string& what, const std::string& hint) {
  capture::graph_break(capture::Break::reads_value, what, hint);
}

void materialize(const at::Tensor& tensor) { capture::materialize(tensor); }

namespace {

std::vector<at::Tensor> call_node(const given::Callee& callee, const std::vector<at::Tensor>& arguments) {
  const c10::OperatorHandle op = given::operator_for(callee);
  torch::jit::Stack stack{c10::List<at::Tensor>(arguments), callee.number};
  capture::call(op, stack);
  return stack.back().toTensorVector();
}

}  // namespace

std::vector<at::Tensor> call_host_function(const HostFunction& function, const std::vector<at::Tensor>& arguments) {
  if (function.callee) return call_node(*function.callee, arguments);
  for (const at::Tensor& argument : arguments) capture::materialize(argument);
  capture::graph_break(
      capture::Break::host_function, "`" + function.name + "` is a function of the host",
      "Call it before or after the policy. If its results depend only on its arguments, define it as pure "
      "(triage::FunctionOptions): it is then part of the graph.");
  if (auto* synthetic = capture::SyntheticInputs::current()) {
    synthetic->stop();
    throw Error("`" + function.name + "` is a function of the host, and triage does not call it with synthetic inputs");
  }
  std::vector<at::Tensor> results = call_noting_what_it_keeps(function, arguments);
  if (auto* recording = capsule::Recording::current()) recording->note_host_call(function.name, results);
  return results;
}

const char* to_string(OnError on_error) noexcept {
  switch (on_error) {
    case OnError::raise:
      return "raise";
    case OnError::pass_through:
      return "pass_through";
    case OnError::last_good:
      return "last_good";
  }
  return "unknown";
}

void register_front_end(const std::string& ending, FrontEnd front_end) {
  std::lock_guard lock(registry().mutex);
  registry().front_ends[ending] = std::move(front_end);
}

FrontEnd find_front_end(const std::string& path) {
  const std::string ending = policy::ending_of(path);
  std::lock_guard lock(registry().mutex);
  const auto found = registry().front_ends.find(ending);
  if (found != registry().front_ends.end()) return found->second;
  const std::string known = known_endings(registry());
  throw LoadError(
      known.empty() ? fmt::format("cannot load '{}': this program has no script engine; link triage::triage "
                                  "(triage::runtime alone has no Lua)",
                                  path)
                    : fmt::format("cannot load '{}': no script engine for the extension '{}'; there are engines for {}",
                                  path, ending, known),
      {path, 0});
}

namespace policy {

std::string ending_of(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  return ending.empty() ? ".lua" : ending;
}

bool has_front_end(const std::string& path) {
  std::lock_guard lock(registry().mutex);
  return registry().front_ends.count(ending_of(path)) > 0;
}

}  // namespace policy
}  // namespace triage
