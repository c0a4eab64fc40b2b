#pragma once
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string>
#include <string_view>

#include "runtime/operators/call.h"
#include "runtime/operators/table/words.h"

/// The rows of the table of operators.
namespace triage::operators {

/// What a call costs at most, from its arguments.
struct Cost {
  double (*bytes)(const OperatorCall& call) = nullptr;  // allocated: results and workspace
  double nanoseconds = 0;                               // for each unit of work, on one slow core
  /// Units; null: the larger of what the tensors hold and broadcast to.
  double (*work)(const OperatorCall& call) = nullptr;
  bool of_elements = false;  // bytes are in proportion to what the tensors hold or broadcast to
};

/// What holds between arguments: how the sentence "..." ends where it does not hold.
using Relation = std::optional<std::string> (*)(const OperatorCall& call);

/// What is known of several operators that are alike. An overload stands in one row.
struct Row {
  std::string_view names;       // base names: "add sub"
  std::string_view overloads;   // "Tensor Scalar"; "." is the one without a name, "_" says that "add_" is meant as well
  Does does;                    // the words of words.h
  std::string_view rules = {};  // what rules.h reads, beyond what holds of arguments by their type and name
  Cost cost{};                  // without one, policies and loaded programs may not call them
  Relation relation = nullptr;
  std::string_view space = "aten";
};

using Rows = c10::ArrayRef<Row>;
Rows elementwise_rows();
Rows reduction_rows();
Rows shape_rows();
Rows indexing_rows();
Rows creation_rows();
Rows linear_rows();
Rows network_rows();
Rows flags_rows();
Rows trusted_rows();

}  // namespace triage::operators
