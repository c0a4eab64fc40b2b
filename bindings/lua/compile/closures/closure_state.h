#pragma once
#include <ATen/core/Tensor.h>

#include <lua.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace triage::lua {

/// Remembers as libraries (semantics/libraries.h) the tables in the environment at the top of the stack, and our own
/// tables that values of scripts lead to. Pops the environment.
void mark_libraries(lua_State* L);

/// Tensors that a function reaches by itself: its variables.
struct Variables {
  std::vector<at::Tensor> tensors;                  // one for each userdata, in the order in which they are come across
  std::vector<std::string> names;                   // of the upvalue or global of the function that leads to each
  std::unordered_map<const void*, size_t> numbers;  // of each userdata
};

/// Everything that the function (or callable) at `index` can read besides its arguments, as bytes: the values of its
/// upvalues and of the globals that its text names (all of them where it has `load` or `_G` at hand), tables and nested
/// functions followed through. Two calls with equal bytes see the same environment, if what they name by address has
/// stayed alive: that is added to the table at `weak_references`, as keys. Only the tensors in it may be others, of the
/// same dtype, device, shape and requires_grad, and the same ones in the same places: graphs take them again on every
/// run.
///
/// `parts`: each upvalue of the function itself and each global that it names, as a person says it ("upvalue 'n'"),
/// with where in the bytes what it holds ends. `too_much`: it is more than is read, so that the bytes are others after
/// any write at all.
using StateParts = std::vector<std::pair<std::string, size_t>>;
std::string closure_state(lua_State* L, int index, int weak_references, Variables& variables, StateParts& parts,
                          bool& too_much);

/// The innermost value of closure_state that holds its byte `at`.
struct StatePlace {
  std::string name;  // as a person says it: "upvalue 'cfg.k'"
  size_t begin;      // of its bytes
};
/// Reads all of it again, so that no other reading has to note names: for an explanation. Nothing where the state is
/// not `state` any more, or no name leads there.
std::optional<StatePlace> place_in_state(lua_State* L, int index, std::string_view state, size_t at);

}  // namespace triage::lua
