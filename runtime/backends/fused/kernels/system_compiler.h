#pragma once
#include <atomic>
#include <string>
#include <vector>

namespace triage::fused {

/// The C++ compiler of the system, run as a process of its own: no shell, nothing of a policy's on its command line.
class SystemCompiler {
 public:
  /// TRIAGE_CXX, else `c++` on PATH. Looked for once; there until the process ends. Throws as `compile` does where it does not
  /// tell its version; the next call then asks again.
  static const SystemCompiler& instance(const std::atomic<bool>& give_up);

  /// Compiler, its version, flags and processor: what machine code depends on besides its source.
  const std::string& identity() const { return identity_; }
  /// Compiles `source` to the shared object `output`. Throws std::runtime_error with the compiler's first lines; a compiler
  /// that takes longer than TRIAGE_CXX_TIMEOUT seconds (a minute without it) is ended, and so is one when `give_up` becomes
  /// true.
  void compile(const std::string& source, const std::string& output, const std::vector<std::string>& more_flags,
               const std::atomic<bool>& give_up) const;

  /// The same for a processor that -march knows, to an object file and then a shared one.
  void compile_object(const std::string& source, const std::string& output, const std::string& cpu,
                      const std::vector<std::string>& more_flags, const std::atomic<bool>& give_up) const;
  void link(const std::vector<std::string>& objects, const std::string& output, const std::atomic<bool>& give_up) const;
  /// What the compiler defines for that processor, one `#define` a line.
  std::string macros(const std::string& cpu) const;

 private:
  explicit SystemCompiler(const std::atomic<bool>& give_up);
  std::vector<std::string> words(const std::string& cpu) const;
  std::string program_, identity_;
};

}  // namespace triage::fused
