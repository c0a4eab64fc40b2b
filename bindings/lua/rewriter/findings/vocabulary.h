#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/syntax/syntax_tree.h"

/// What `triage check` knows of the names that scripts use: which calls give flags, run a function for every row, or
/// raise on bad values.
namespace triage::lua::rewriter {

/// The dotted name of a global that an expression is: "push", "err.new", "torch.linalg.cholesky"; empty when it is
/// none.
std::string global_path(const Expression& expression);

/// "cholesky" of "torch.linalg.cholesky".
inline std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

template <typename Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A call `path(...)` of a global function; empty when the expression is none.
std::string called_global(const Expression& expression);

/// The table of `policy {...}`; null where the expression is no such call.
const Expression* policy_table(const Expression& expression);

/// The item of a table behind `key =`; null where there is none.
const Expression* field(const Expression& table, std::string_view key);

/// What a call is given for an option, in a table that is its last argument; null where it is not given.
const Expression* option(const Expression& call, std::string_view name);

/// Which result of a call of `path` is a flags tensor, 0-based; -1: none.
int flags_result(const std::string& path);

/// Which argument of a call of `path` is a flags tensor, 0-based (the first, where there are more); -1: none.
int flags_argument(const std::string& path);

/// `torch.<name>` and `x:<name>` compute with the numbers of a tensor, or convert them: flags are none.
bool computes(const std::string& name);
/// The same of a path: "torch.abs".
bool is_torch_computation(const std::string& path);

/// Gives its result back and changes nothing: a call whose result is dropped does nothing.
bool is_functional(const std::string& path);

/// Runs the functions among its arguments on all rows.
bool runs_for_every_row(const std::string& path);

/// The operation, a method name or the last part of a path, raises on bad values instead of giving NaN.
bool raises_on_bad_values(const std::string& path);

}  // namespace triage::lua::rewriter
