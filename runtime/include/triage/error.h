#pragma once
#include <triage/api.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace triage {

/// A position in a script. `line` is 1-based; 0 if unknown. `region` is the call of a function marked with
/// `triage.nested_compile_region` that ran it: "layer#2"; of nested calls "block#1/layer#2"; empty outside of any.
struct Source {
  std::string file;
  int line = 0;
  std::string region = {};
};

/// Base of all exceptions of triage. `what()` is complete: what was done, what was expected, what came, what to do. A
/// bad *sample* never throws; these are for bad scripts, bad calls and bad files, and for what the system refuses.
/// Public functions throw nothing else, but std::bad_alloc without memory. Functions that only call LibTorch's
/// operators (err, flags, graph) also pass what these throw (c10::Error), and who calls a function of the host what it
/// throws, where its comment says so.
class TRIAGE_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Source source = {}, std::string traceback = {})
      : std::runtime_error(message), source_(std::move(source)), traceback_(std::move(traceback)) {}
  /// The script line that caused it; the file is empty if no script was involved.
  const Source& source() const noexcept { return source_; }
  /// The script's traceback, several lines; empty if no script was running.
  const std::string& traceback() const noexcept { return traceback_; }

 private:
  Source source_;
  std::string traceback_;
};

/// A script could not be loaded: syntax, contract (what it returns), budget at load.
class TRIAGE_API LoadError : public Error {
  using Error::Error;
};
/// A policy's own code failed while it ran.
class TRIAGE_API PolicyError : public Error {
  using Error::Error;
};
/// The host passed inputs or options that do not fit the policy's signature.
class TRIAGE_API InputError : public Error {
  using Error::Error;
};
/// The script needs more than one graph (it reads a value, has a side effect, ...).
class TRIAGE_API GraphBreakError : public Error {
  using Error::Error;
};
/// A budget or deadline ran out: instructions, time, memory; or the threads that the system gives the process.
class TRIAGE_API LimitError : public Error {
  using Error::Error;
};
/// A file could not be read or written, or its content does not match its extension.
class TRIAGE_API FileError : public Error {
  using Error::Error;
};
/// A value of the configuration is out of range.
class TRIAGE_API ConfigError : public Error {
  using Error::Error;
};
/// A graph text or graph that does not verify.
class TRIAGE_API GraphError : public Error {
  using Error::Error;
};

}  // namespace triage
