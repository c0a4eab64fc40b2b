#pragma once
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/overloads.h"

#include <c10/util/SmallVector.h>

#include <string>
#include <utility>
#include <vector>

/// Which overload a call from Lua means: every one is tried against the values given, and the closest fit is taken, as
/// PyTorch's own argument parser does.
namespace triage::lua {

/// The values of one call, as indices of the Lua stack.
struct Arguments {
  std::vector<int> positions;
  std::vector<std::pair<std::string, int>> options;  // of the trailing table
  std::vector<int> out;                              // tensors of `out=`
  bool empty_table = false;  // the last position is {}: a list where a list parameter is left, else no options
  bool method = false;       // position 0 is `self`
  bool exact = false;        // every parameter is given by position, those that are keyword-only too

  static Arguments positional(int first, int count);
  /// Takes a trailing table apart when it has string keys; its values are pushed.
  static Arguments parse(lua_State* L, int first, int count, bool method, const std::string& name);
};

/// Which value goes to which parameter.
struct ArgumentBinding {
  c10::SmallVector<int, 16> slots;  // index of the value; 0: the default
  int gathered = -1;                // parameter that takes the rest of the positions as its list
  std::vector<int> rest;
  int cost = 0;
  bool requires_grad = false;
};

/// Tries one overload; `why` (may be null) says what did not fit.
bool bind_arguments(lua_State* L, const Overload& overload, const Arguments& arguments, ArgumentBinding& binding,
                    std::string* why);

/// Throws std::invalid_argument that says for the closest overload which argument did not fit, and lists the others.
const Overload& resolve(lua_State* L, const Operator& op, const Arguments& arguments, ArgumentBinding& binding,
                        const std::string& name);

}  // namespace triage::lua
