#pragma once

namespace triage::flags {

class KnownForms;

/// What the operators on flags have to know of who calls them. Of the thread, because LibTorch's dispatcher and autograd call
/// them, which hand nothing on.
struct ThreadContext {
  KnownForms* forms_of_script;  // KnownForms::enter
  bool of_all_branches;         // autograd::OfAllBranches
};
extern thread_local constinit ThreadContext context;

}  // namespace triage::flags
