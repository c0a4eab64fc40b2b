#include "bindings/lua/testing/examples.h"

#include <fmt/format.h>

#include "bindings/lua/engine/policies/lua_script.h"

namespace triage::lua {

std::vector<Example> examples_of_tests(LuaScript& script) {
  std::vector<Example> examples;
  for (size_t i = 0; i < script.test_count(); ++i)
    examples.push_back(
        {fmt::format("test \"{}\"", script.test_name(i)), script.test_arguments(i), script.test_params(i)});
  return examples;
}

}  // namespace triage::lua
