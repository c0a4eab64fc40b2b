#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

/// What `triage doctor` looks at. Each function returns what it found of its subject, and throws nothing for what is
/// missing or broken: that is the finding.
namespace triage::cli::doctor {

enum class Severity { fine, note, warning, error };

struct Finding {
  std::string name;                        // "LibTorch"
  Severity severity = Severity::fine;      // note: worth knowing, nothing to do
  std::string text;                        // what is
  std::string advice;                      // what to do; empty: nothing
  nlohmann::ordered_json facts = nullptr;  // for programs
};

Finding check_triage();
Finding check_torch();
Finding check_blas();
Finding check_openmp();
Finding check_lua();
Finding check_processor();
Finding check_threads();
Finding check_watches();
Finding check_gpu();
Finding check_environment();

}  // namespace triage::cli::doctor
