#pragma once
// A folder with a policy that repairs its input, and what tests of the program ask of its output.
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/policy_folder.h"

inline constexpr const char* repair = R"(return policy {
  inputs = { "z" }, outputs = { "z", "f" }, params = { fallback = 0.5 },
  run = function(z, p)
    local f = flag_nan_and_inf(z, "logits")
    return fix(z, f, "logits", {fallback = 0.0})
  end,
}
)";

struct Scene : PolicyFolder {
  Scene() : PolicyFolder(repair) {}
};

/// One clear message: `command: ...` on one line of standard error, nothing on standard output.
inline void check_message(const Ran& ran, int status, const std::string& command,
                          std::initializer_list<const char*> parts) {
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == status);
  CHECK(ran.out.empty());
  CHECK(ran.err.rfind(command + ": ", 0) == 0);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  for (std::string part : parts) {
    CAPTURE(part);
    CHECK(ran.err.find(part) != std::string::npos);
  }
}

inline std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;  // sorted, as nlohmann::json keeps them
}
