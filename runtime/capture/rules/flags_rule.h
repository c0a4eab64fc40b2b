#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <triage/graph.h>

#include <unordered_set>
#include <vector>

/// Flags are packed records, not numbers: what captured code may do with their words.
namespace triage::capture {

/// Of an operator that moves elements: whether they come out of this argument. It may only say which are chosen, or
/// give a form.
bool gives_words(const c10::OperatorHandle& op, size_t argument);
/// The values in arguments that do.
std::vector<const graph::Value*> words_given_to(const graph::Node& node);
/// Those, operators that compare, and those that read only the form of a tensor. All others of ATen do arithmetic. (The
/// flags operations, and operators of the host, know flags for what they are.)
bool may_take_flags(const c10::OperatorHandle& op);

/// Where the words of values come from, in one graph while it grows. Remembers what it found, so that a chain of
/// operators is not walked again from each of its ends.
class WordOrigins {
 public:
  /// Whether the value is flags, or words that were moved out of flags, in whatever shape (`f[0]`, `f:view({-1})`).
  bool holds_flags(const graph::Value& value);

  /// The call of ATen that made the value, or what its words were moved out of, by arithmetic or by a conversion to
  /// another dtype; null where there is none. What a flags operation takes cannot have been made so.
  const graph::Node* arithmetic_behind(const graph::Value& value);

  /// The value turns out to be flags.
  void set_flags(graph::MutableValue& value);

 private:
  std::unordered_set<const graph::Value*> without_flags_, without_arithmetic_;
};

}  // namespace triage::capture
