#pragma once
#include <runtime/capture/break_kind.h>
#include <runtime/capture/context.h>
#include <triage/error.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Where code cannot go on in the same graph, and what is to happen then.
namespace triage::capture {

struct BreakInfo {
  const char *name, *id, *title, *explanation;
};
/// Every kind of break, in the order of the enum.
const std::vector<BreakInfo>& break_kinds();
const BreakInfo& info(Break kind);

struct GraphBreak {
  Break kind;
  std::string what;  // a clause: "`item` reads a value of a tensor"
  std::string hint;  // a sentence, or empty
  Source where;
  std::string user_code;  // the script's stack with its source lines, innermost last; empty where there is none

  /// One line: "file:line: graph break: what (id). Hint: hint".
  std::string brief() const;
  /// All that is known, several lines.
  std::string text() const;
  GraphBreakError error() const { return GraphBreakError(text(), where, user_code); }
};

/// Whether who was told of one was told of the other: the same kind at the same line, whatever its words are.
bool same_place(const GraphBreak& a, const GraphBreak& b);

/// What the front end knows of the script that is running; set while it runs.
struct UserCode {
  std::function<Source()> where;
  std::function<std::string()> stack;
  std::function<std::string()> text = {};  // the line that runs, as it is written
};
class ScriptScope {
 public:
  explicit ScriptScope(UserCode code);
  ~ScriptScope();
  ScriptScope(const ScriptScope&) = delete;
  ScriptScope& operator=(const ScriptScope&) = delete;
  static const UserCode* current() noexcept;
  /// Where the innermost script is; nowhere, where none tells.
  static Source line();

 private:
  UserCode code_;
  ScriptScope* previous_;
};

/// The script does what one graph cannot hold. While one is captured: it ends there, or this throws GraphBreakError,
/// where the capture asked for one graph or `error_on_graph_break` is set. Otherwise nothing happens.
void graph_break(Break kind, const std::string& what, const std::string& hint);

/// What a graph break does on this thread, besides what the capture asked for. The innermost scope wins.
class OnGraphBreak {
 public:
  using Then = OnBreak;
  /// Inside `raise_for_good`, anything else has no effect.
  explicit OnGraphBreak(Then then);
  ~OnGraphBreak();
  OnGraphBreak(const OnGraphBreak&) = delete;
  OnGraphBreak& operator=(const OnGraphBreak&) = delete;
  static bool raises() noexcept;
  /// For scopes that end with a block of a script.
  static Then current() noexcept;
  static void set(Then then) noexcept;

 private:
  Then previous_;
};

/// While alive, side effects are no graph breaks: they happen when the code is captured, and not when its graph runs.
class EffectsAllowed {
 public:
  EffectsAllowed();
  ~EffectsAllowed();
  EffectsAllowed(const EffectsAllowed&) = delete;
  EffectsAllowed& operator=(const EffectsAllowed&) = delete;
  static bool active() noexcept;
};

/// While alive, nothing on this thread is captured: neither recorded nor followed.
class NotCaptured {
 public:
  /// `nested`: nor are compiled functions that are called meanwhile.
  explicit NotCaptured(bool nested);
  ~NotCaptured();
  NotCaptured(const NotCaptured&) = delete;
  NotCaptured& operator=(const NotCaptured&) = delete;
  /// Whether compiled functions run as scripts.
  static bool nested() noexcept;

 private:
  class Recorder* recorder_;
  class TraceReplayer* replayer_;
  bool nested_, not_followed_;
};

/// While alive, a function with graph breaks runs as a script because following it would gain nothing. The script
/// cannot tell: `triage.is_compiling` says the same as in calls that are followed.
class NotFollowed {
 public:
  NotFollowed();
  ~NotFollowed();
  NotFollowed(const NotFollowed&) = delete;
  NotFollowed& operator=(const NotFollowed&) = delete;
  static bool current() noexcept;

 private:
  bool before_;
};

}  // namespace triage::capture
