#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "folder.h"

/// Throws what the JSON library throws. Tests that look into the value include <nlohmann/json.hpp>.
nlohmann::json parse_json(const std::string& text);

/// What one call of the `triage` program did.
struct Ran {
  int status;
  std::string out, err;
  nlohmann::json json() const;
};

std::string shell_quoted(const std::string& text);

/// The `triage` program that was built beside this test.
std::string program_path();

/// Runs it in `folder`, without a terminal.
Ran triage_program(const TemporaryFolder& folder, const std::vector<std::string>& arguments);
