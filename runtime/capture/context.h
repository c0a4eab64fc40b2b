#pragma once
#include <cstdint>

namespace triage::capture {

class AutocastWatch;
class BranchGuard;
class CLocale;
class FlagsTracker;
class KindReads;
class TraceReplayer;
class SyntheticInputs;
class OutsideBranches;
class ProtectInputs;
class Recorder;
class ScriptLock;
class ScriptScope;
class UntakenBranch;

/// What happens at a graph break. The last: in a function with `fullgraph` that is called inside.
enum class OnBreak : uint8_t { go_on, raise, raise_for_good };

/// What this thread captures, and the scopes around it: of each kind the innermost object that is alive, which sets the
/// field and puts it back. Only the class that a field names writes to it; others ask that class.
struct CaptureContext {
  Recorder* recorder;
  TraceReplayer* replayer;
  FlagsTracker* flags_tracker;
  KindReads* kind_reads;
  SyntheticInputs* synthetic_inputs;
  ProtectInputs* protect_inputs;
  ScriptScope* script;
  BranchGuard* branch;
  UntakenBranch* untaken_branch;
  OutsideBranches* outside_branches;
  AutocastWatch* autocast_watch;
  const ScriptLock* script_lock;
  const CLocale* c_locale;
  OnBreak on_break;
  bool compiled_run_plainly;           // NotCaptured::nested
  bool not_followed;                   // NotFollowed
  int effects_allowed;                 // how many EffectsAllowed
  const char *stack_low, *stack_high;  // of the thread, once stack_left was asked
};

/// Of the thread, because operators reach a capture from calls that know nothing of it: Lua's, the host's functions,
/// LibTorch's observers. Zero where nothing is captured.
extern thread_local constinit CaptureContext context;

}  // namespace triage::capture
