#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

/// What `triage doctor` looks at. Each function returns what it found of its subject, and throws nothing for what is
/// missing or broken: that is the finding.
namespace triage::cli::doctor {

enum class Severity { fine, note, warning, error };

struct DoctorFinding {
  std::string name;                        // "LibTorch"
  Severity severity = Severity::fine;      // note: worth knowing, nothing to do
  std::string text;                        // what is
  std::string advice;                      // what to do; empty: nothing
  nlohmann::ordered_json facts = nullptr;  // for programs
};

DoctorFinding check_triage();
DoctorFinding check_torch();
DoctorFinding check_blas();
DoctorFinding check_openmp();
DoctorFinding check_lua();
DoctorFinding check_processor();
DoctorFinding check_threads();
DoctorFinding check_watches();
DoctorFinding check_gpu();
DoctorFinding check_environment();

}  // namespace triage::cli::doctor
