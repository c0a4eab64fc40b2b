#pragma once
#include "bindings/lua/rewriter/findings/rules.h"
#include "bindings/lua/state/state.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace triage::lua {

class ScriptState;

/// Which rules of a policy took which samples. The policy is loaded from `source()`, in an interpreter that `install`
/// has prepared; what its rules do counts from `start` to `finish`. Must outlive that interpreter.
class Coverage {
 public:
  /// Throws rewriter::SyntaxError.
  Coverage(std::string_view source, const std::string& path);
  Coverage(const Coverage&) = delete;
  Coverage& operator=(const Coverage&) = delete;

  const std::string& source() const { return found_.announcing; }
  void install(ScriptState& state);

  /// The policy's function runs from here on.
  void start(ScriptState& state);
  /// It returned: `flags` (undefined where it returns none) say of what class each sample is.
  void finish(const at::Tensor& flags, const CodeNames& codes);
  /// It failed: nothing of that run counts.
  void abandon() { notes_.clear(), running_ = false; }

  /// Samples taken, by class: "ok", the code of a sample's first entry, or "any" where the policy returns no flags.
  using Samples = std::map<std::string, int64_t>;
  struct RuleCoverage {
    rewriter::CoverageRule rule;
    Samples samples;  // empty: the rule took no sample
  };
  /// Every rule, in the order of the source, but those that only the policy's tests use.
  std::vector<RuleCoverage> taken() const;

 private:
  struct Note {
    size_t rule;
    at::Tensor mask;
  };
  static int note(lua_State* L);
  static std::vector<Note> once_for_each_rule(std::vector<Note> notes);

  rewriter::CoverageRules found_;
  std::vector<Samples> samples_;
  std::vector<bool> ran_, ran_outside_;  // while the policy's function ran, and otherwise
  std::vector<Note> notes_;              // of the run in progress
  bool running_ = false;
};

}  // namespace triage::lua
