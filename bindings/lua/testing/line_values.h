#pragma once
#include <ATen/core/Tensor.h>
#include <triage/error.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/lua/engine/policies/lua_script.h"
#include "runtime/diagnose/isolation/check.h"

/// A call of a policy as a debugger shows it: which tensors each line of the script made, for one sample. The script
/// itself runs, operator by operator, so graph breaks hide nothing.
namespace triage::lua {

struct ValueOfSample {
  std::string name;   // of the input, param, output, or the first variable that held it; empty: none did
  std::string op;     // "aten::mul.Tensor"; empty: the script was given it
  at::Tensor tensor;  // the sample alone, of flags as (1, words); the whole tensor where it has no samples. Undefined:
                      // not kept
  bool has_samples = false, is_flags = false;
  CodeNames codes = {};  // of flags: the names of free codes
};

/// A line each time that it ran and made a tensor.
struct LineOfSample {
  Source where;
  std::string text;  // without its indentation
  std::vector<ValueOfSample> values;
};

struct SampleByLine {
  int64_t sample = 0, samples = 0;  // which, and how many the batch has
  std::vector<ValueOfSample> given, outputs;
  std::vector<LineOfSample> lines;
};

struct CallOfScript {
  std::vector<diagnose::IsolationInput> inputs;
  std::vector<at::Tensor> values;  // params, then state
  CodeNames codes = {};            // names of codes in what is shown; empty: those of the script
};

/// Copies of all values take longer than the call that makes them: the time that a script gets, where nobody says
/// another.
inline constexpr double seconds_by_line = 60;

/// One call, recorded as a whole by the constructor, which alone needs the script.
class CallByLine {
 public:
  CallByLine(LuaScript& script, CallOfScript call);

  /// How many the batch has; nothing where no input has samples.
  std::optional<int64_t> samples() const { return samples_; }
  /// `index` must be one of them.
  SampleByLine sample(int64_t index) const;
  /// What the script raised; empty: nothing.
  const std::string& failure() const { return recording_.failure; }
  /// False: it made more bytes than are kept, and the rest is missing.
  bool complete() const { return recording_.complete; }

 private:
  struct ValueTraits {
    bool has_samples = false, is_flags = false;
  };
  void find_kinds(const Signature& signature, const CallOfScript& call);
  ValueTraits kind_of_result(const diagnose::RecordedStep& step, size_t place) const;
  ValueOfSample value(size_t index, const std::string& op, int64_t sample) const;

  diagnose::Recording recording_;
  std::vector<size_t> visits_;                                // for each step, when its line was begun
  std::vector<ValueTraits> kinds_;                            // of the values
  std::vector<std::string> names_;                            // likewise
  std::map<std::pair<std::string, int>, std::string> texts_;  // of lines
  std::vector<std::string> outputs_;                          // their names
  CodeNames codes_;
  size_t given_ = 0;  // how many values the script was given
  std::optional<int64_t> samples_;
};

}  // namespace triage::lua
