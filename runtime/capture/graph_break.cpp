#include "runtime/capture/graph_break.h"

#include <utility>

#include <algorithm>

#include "runtime/capture/context.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"

namespace triage::capture {
namespace {

bool is_effect(Break kind) { return kind == Break::output || kind == Break::outside_write || kind == Break::registry; }

}  // namespace

const std::vector<BreakInfo>& break_kinds() {
  static const auto& kinds = *new std::vector<BreakInfo>{
#define TRIAGE_GRAPH_BREAK(name, id, title, explanation) {#name, id, title, explanation},
#include "runtime/capture/graph_break.inc"
#undef TRIAGE_GRAPH_BREAK
  };
  return kinds;
}

const BreakInfo& info(Break kind) { return break_kinds()[static_cast<size_t>(kind)]; }

std::string GraphBreak::brief() const {
  const std::string place = where.file.empty() ? "" : where.file + ":" + std::to_string(where.line) + ": ";
  return place + "graph break: " + what + " (" + info(kind).id + ")" + (hint.empty() ? "" : ". Hint: " + hint);
}

std::string GraphBreak::text() const {
  const std::string place = where.file.empty() ? "" : where.file + ":" + std::to_string(where.line) + ": ";
  std::string text = place + "graph break: " + what + "\n  Explanation: " + info(kind).explanation;
  if (!hint.empty()) text += "\n  Hint: " + hint;
  text += std::string("\n  Developer debug context: ") + info(kind).name + " (" + info(kind).id + ")";
  if (!user_code.empty()) text += "\n\nfrom user code:\n" + user_code;
  return text;
}

bool same_place(const GraphBreak& a, const GraphBreak& b) {
  return a.kind == b.kind && a.where.line == b.where.line && a.where.file == b.where.file &&
         (a.where.line > 0 || a.what == b.what);
}

ScriptScope::ScriptScope(UserCode code) : code_(std::move(code)), previous_(context.script) { context.script = this; }
ScriptScope::~ScriptScope() { context.script = previous_; }
const UserCode* ScriptScope::current() noexcept { return context.script ? &context.script->code_ : nullptr; }

Source ScriptScope::line() {
  const UserCode* const script = current();
  return script && script->where ? script->where() : Source{};
}

void graph_break(Break kind, const std::string& what, const std::string& hint) {
  if (UntakenBranch::left()) UntakenBranch::leave();  // whatever runs while the script is unwound
  Recorder* recorder = Recorder::current();
  TraceReplayer* replayer = TraceReplayer::current();
  if (SyntheticInputs* synthetic = SyntheticInputs::current(); synthetic && kind == Break::reads_value)
    synthetic->refuse_values();
  if (!recorder && !replayer) return;
  if (context.effects_allowed > 0 && is_effect(kind)) return OutsideBranches::forbid_restart();
  const UserCode* script = ScriptScope::current();
  GraphBreak graph_break{kind, what, hint, ScriptScope::line(), {}};
  const bool to_be_shown = recorder || OnGraphBreak::raises() || !replayer->knows(graph_break);
  if (to_be_shown && script && script->stack) graph_break.user_code = script->stack();  // reads the script's files
  if (replayer) replayer->graph_break(graph_break);
  if (recorder) recorder->graph_break(graph_break);
  if (!OnGraphBreak::raises()) {
    if (recorder && UntakenBranch::active()) UntakenBranch::leave();
    return;
  }
  if (replayer) replayer->note_raised(graph_break);
  throw graph_break.error();
}

OnGraphBreak::OnGraphBreak(Then then) : previous_(context.on_break) { set(then); }
OnGraphBreak::~OnGraphBreak() { context.on_break = previous_; }
bool OnGraphBreak::raises() noexcept { return context.on_break != Then::go_on; }
OnGraphBreak::Then OnGraphBreak::current() noexcept { return context.on_break; }
void OnGraphBreak::set(Then then) noexcept {
  if (context.on_break != Then::raise_for_good) context.on_break = then;
}

EffectsAllowed::EffectsAllowed() { ++context.effects_allowed; }
EffectsAllowed::~EffectsAllowed() { --context.effects_allowed; }
bool EffectsAllowed::active() noexcept { return context.effects_allowed > 0; }

NotCaptured::NotCaptured(bool nested)
    : recorder_(Recorder::replace_current(nullptr)),
      replayer_(TraceReplayer::replace_current(nullptr)),
      nested_(context.compiled_run_plainly),
      not_followed_(std::exchange(context.not_followed, false)) {
  context.compiled_run_plainly |= nested;
}
NotCaptured::~NotCaptured() {
  Recorder::replace_current(recorder_);
  TraceReplayer::replace_current(replayer_);
  context.compiled_run_plainly = nested_;
  context.not_followed = not_followed_;
}
bool NotCaptured::nested() noexcept { return context.compiled_run_plainly; }

NotFollowed::NotFollowed() : before_(std::exchange(context.not_followed, true)) {}
NotFollowed::~NotFollowed() { context.not_followed = before_; }
bool NotFollowed::current() noexcept { return context.not_followed; }

}  // namespace triage::capture
