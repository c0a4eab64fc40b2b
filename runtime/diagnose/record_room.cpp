#include "runtime/diagnose/record_room.h"

#include <runtime/flags/checks.h>
#include <triage/layout.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/graph/output_names.h"

namespace triage::diagnose {
namespace {

constexpr int64_t of_this_node = -1;  // a code that is in a tensor: one entry, of which only the place is known

struct PushedEntry {
  int64_t code, location;
  const graph::Node* by;
};

std::optional<int64_t> integer(const graph::Node& node, const char* argument) {
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (const c10::IValue* constant = node.operands[i].constant();
        arguments[i].name() == argument && constant && constant->isInt())
      return constant->toInt();
  return std::nullopt;
}

/// The codes of the entries that an operator adds to a record.
std::vector<int64_t> codes_of(const graph::Node& node) {
  const std::string& name = node.op.operator_name().name;
  if (name == "triage::flag_nan") return {to_int(Code::nan)};
  if (name == "triage::flag_inf") return {to_int(Code::inf)};
  if (name == "triage::flag_nan_and_inf") return {to_int(Code::nan), to_int(Code::inf)};
  if (name == "triage::flag_oob_indices") return {to_int(Code::out_of_bounds)};
  if (name == "triage::fix") return {to_int(Code::fallback_value)};
  if (name == "triage::push") return {integer(node, "code").value_or(of_this_node)};
  return {};
}

/// All entries that may come to the record of a sample on the way to a value, in the order in which they are added.
class Entries {
 public:
  explicit Entries(const graph::Value* flags) { add(flags); }
  /// The policy of the last operator that adds one, and its slots.
  int64_t slots = 0, policy = 0;
  std::vector<PushedEntry> all;

 private:
  void add(const graph::Value* value) {
    if (!value || !value->is_flags || !value->producer || !seen_.insert(value).second) return;
    const graph::Node& node = *value->producer;
    for (const graph::Operand& operand : node.operands) add_operand(operand);
    if (node.op.operator_name().name == "triage::clear")
      std::erase_if(all, [cleared = integer(node, "code")](const PushedEntry& entry) { return cleared == entry.code; });
    for (const int64_t code : codes_of(node)) {
      slots = integer(node, "num_slots").value_or(slots);
      policy = integer(node, "policy").value_or(policy);
      all.push_back({code, integer(node, "location").value_or(0), &node});
    }
  }
  void add_operand(const graph::Operand& operand) {
    if (const auto* list = operand.list())
      for (const graph::Operand& item : *list) add_operand(item);
    else
      add(operand.value());
  }

  std::set<const graph::Value*> seen_;
};

/// The same for entries that a record joins.
std::pair<int64_t, int64_t> key_of(const PushedEntry& entry, Dedupe dedupe, int64_t index) {
  const int64_t code = entry.code == of_this_node ? -2 - index : entry.code;
  switch (dedupe) {
    case Dedupe::none:
      return {index, index};
    case Dedupe::code:
      return {code, 0};
    case Dedupe::location:
      return {0, entry.location};
    default:
      return {code, entry.location};
  }
}

}  // namespace

std::optional<RecordRoom> too_little_room(const graph::Graph& graph) {
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Entries entries(graph.outputs()[i]);
    const AccumulationConfig kept = flags::check::unpack(entries.policy);
    const bool keeps_worst = kept.priority == Priority::severity && kept.order == Order::last;
    if (entries.slots == 0 || (entries.policy & TRACK_OVERFLOW) || keeps_worst) continue;
    std::set<std::pair<int64_t, int64_t>> distinct;
    RecordRoom room{graph::output_name(graph.output_names(), i), 0, entries.slots};
    for (size_t k = 0; k < entries.all.size(); ++k) {
      distinct.insert(key_of(entries.all[k], kept.dedupe, static_cast<int64_t>(k)));
      if (room.source.line == 0 && static_cast<int64_t>(distinct.size()) > entries.slots)
        room.source = entries.all[k].by->source;
    }
    room.entries = static_cast<int64_t>(distinct.size());
    if (room.entries > room.slots) return room;
  }
  return std::nullopt;
}

}  // namespace triage::diagnose
