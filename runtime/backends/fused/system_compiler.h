#pragma once
#include <string>

namespace triage::fused {

/// The C++ compiler of the system, run as a process of its own: no shell, nothing of a policy's on its command line.
class SystemCompiler {
 public:
  /// TRIAGE_CXX, else `c++` on PATH. Looked for once.
  static const SystemCompiler& instance();

  /// Compiler, its version, flags and processor: what machine code depends on besides its source.
  const std::string& identity() const { return identity_; }
  /// Compiles `source` to the shared object `output`. Throws std::runtime_error with the compiler's first lines; a compiler
  /// that takes longer than a minute is ended.
  void compile(const std::string& source, const std::string& output) const;

 private:
  SystemCompiler();
  std::string program_, identity_;
};

}  // namespace triage::fused
