#include "runtime/capsule/results.h"

#include <fmt/format.h>

#include <string_view>

#include "runtime/capsule/recording.h"
#include "runtime/diagnose/bits.h"
#include "runtime/messages/printable.h"

namespace triage::capsule {
namespace {

/// Of the facts of an error.
std::string error_text(const Json& error) {
  return messages::one_line(
      fmt::format("{}: {}", text(member(error, "kind"), "kind"), text(member(error, "message"), "message")));
}

/// An operator that fails in a graph is named with its node there, and by its line alone where the script runs it.
std::string without_node(std::string error) {
  constexpr std::string_view behind = " failed: ";
  const size_t node = error.find(": `%"), end = node == std::string::npos ? node : error.find(behind, node);
  return end == std::string::npos ? error : error.substr(0, node + 2) + error.substr(end + behind.size());
}

/// ... and there with the name that the script calls it by: "f.lua:3: torch.mm: ...", "f.lua:3: x:view: ...".
std::string without_call(std::string error) {
  for (const std::string_view name : {": torch.", ": x:"}) {
    const size_t call = error.find(name), end = call == std::string::npos ? call : error.find(": ", call + name.size());
    if (end != std::string::npos) error.erase(call + 2, end - call);
  }
  return error;
}

std::string message_of(const std::string& error) { return without_call(without_node(error)); }

bool is_error(const Json& result) { return result.is_object() && result.contains("error"); }

}  // namespace

std::string describe_result(const Json& result) {
  if (is_error(result)) return error_text(result["error"]);
  const size_t count = member(result, "outputs").size();
  return fmt::format("{} output{}", count, count == 1 ? "" : "s");
}

std::vector<std::string> notes_of_result(const Json& result) {
  std::string names;
  if (const auto outputs = result.find("outputs"); outputs != result.end())
    for (const Json& output : *outputs)
      if (output.value("masked", false))
        names +=
            fmt::format("{}'{}'", names.empty() ? "" : ", ", messages::one_line(text(member(output, "name"), "name")));
  if (names.empty()) return {};
  return {fmt::format("the values of {} were left out: only dtype and sizes are compared", names)};
}

std::string difference(const Json& recorded, const RestoredTensors& tensors, const std::vector<at::Tensor>& outputs) {
  if (is_error(recorded))
    return fmt::format("the recorded call failed, and the replay gives {} output{}", outputs.size(),
                       outputs.size() == 1 ? "" : "s");
  const Json& expected = member(recorded, "outputs");
  if (expected.size() != outputs.size())
    return fmt::format("the recorded call gave {} outputs, and the replay gives {}", expected.size(), outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = messages::one_line(text(member(expected[i], "name"), "name"));
    const at::Tensor& before = tensors.at(integer(member(expected[i], "tensor"), "tensor"));
    const at::Tensor here = outputs[i].to(before.device());
    if (!diagnose::same_kind(before, here))
      return fmt::format("output '{}' was {}, and is {} in the replay", name, diagnose::kind_of(before),
                         diagnose::kind_of(here));
    if (expected[i].value("masked", false) || diagnose::same_bits(before, here)) continue;
    const diagnose::BitDifference first = diagnose::first_difference(before, here);
    return fmt::format("output '{}' differs in sample {}: it was {}, and is {} in the replay", name, first.row, first.a,
                       first.b);
  }
  return "";
}

std::string difference(const Json& recorded, const std::exception& error) {
  const std::string here = error_text(error_facts(error));
  if (!is_error(recorded)) return fmt::format("the recorded call did not fail, and the replay does: {}", here);
  const std::string before = error_text(recorded["error"]);
  return message_of(before) == message_of(here) ? "" : fmt::format("the replay fails otherwise: {}", here);
}

}  // namespace triage::capsule
