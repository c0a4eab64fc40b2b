#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tests/cli/folder.h"

/// Throws what the JSON library throws. Tests that look into the value include <nlohmann/json.hpp>.
nlohmann::json parse_json(const std::string& text);

/// What one call of the `triage` program did.
struct Ran {
  int status;
  std::string out, err;
  nlohmann::json json() const;
};

std::string shell_quoted(const std::string& text);

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// How often `part` stands in `text`.
size_t count_of(const std::string& text, const std::string& part);

/// TRIAGE_PYTHON: a Python with PyTorch; null where it is not set.
const char* python();

/// The `triage` program that was built beside this test.
std::string program_path();

/// Runs `command` of the shell in `folder`, with the program as "$triage". What it redirects is not in the result.
Ran shell(const TemporaryFolder& folder, const std::string& command);
/// Runs the program in `folder`, without a terminal. A fork of a program that has started before runs it, which saves
/// the start of LibTorch.
Ran triage_program(const TemporaryFolder& folder, const std::vector<std::string>& arguments);
