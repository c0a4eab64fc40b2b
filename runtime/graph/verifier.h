#pragma once
#include <triage/graph.h>

#include <exception>
#include <string>

#include "runtime/messages/assert.h"

namespace triage::graph {

/// While a pass runs: in a build with assertions, a graph that was valid before is valid after it.
class StaysValid {
 public:
  explicit StaysValid(const Graph& graph) : graph_(graph), was_valid_(kAssertions && fault_of(graph).empty()) {}
  ~StaysValid() {
    if (!was_valid_ || std::uncaught_exceptions() != exceptions_) return;
    if (const std::string fault = fault_of(graph_); !fault.empty()) assertion_failed(fault.c_str(), __FILE__, __LINE__);
  }
  StaysValid(const StaysValid&) = delete;
  StaysValid& operator=(const StaysValid&) = delete;

 private:
  static std::string fault_of(const Graph& graph);
  const Graph& graph_;
  const bool was_valid_;
  const int exceptions_ = kAssertions ? std::uncaught_exceptions() : 0;
};

/// The part of `verify` that concerns one call alone: operands and results match the schema.
void verify_call(const Node& node);

}  // namespace triage::graph
