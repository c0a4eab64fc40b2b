#pragma once

namespace triage::flags {

class KnownForms;
class KnownRows;

/// What the operators on flags have to know of who calls them. Of the thread, because LibTorch's dispatcher and
/// autograd call them, which hand nothing on.
struct FlagsThreadContext {
  KnownForms* forms_of_script;  // KnownForms::enter
  bool of_all_branches;         // autograd::OfAllBranches
  KnownRows* known_rows;        // of composites
};
extern thread_local constinit FlagsThreadContext context;

}  // namespace triage::flags
