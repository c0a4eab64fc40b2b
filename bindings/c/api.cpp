// The table of the interface: its order never changes.
#include "bindings/c/functions.h"
#include "bindings/c/status.h"

#include <torch/version.h>
#include <triage/version.h>

#include <cstdlib>

namespace triage::c {
namespace {

const char* torch_version() { return TORCH_VERSION; }

void free_text(char* text) { std::free(text); }

void free_tensor(DLManagedTensor* tensor) {
  if (tensor && tensor->deleter) tensor->deleter(tensor);
}

constexpr TriageApi table = {
    TRIAGE_C_VERSION,
    triage::version,
    torch_version,
    last_error,
    status_name,
    set_log,
    free_text,
    free_tensor,
    create_runtime,
    free_runtime,
    load_file,
    load_source,
    free_policy,
    watch,
    rescan,
    free_watch,
    metrics_text,
    run,
    run_named,
    prepare,
    set_param,
    manual_seed,
    read_flags,
    c::version,
    versions,
    reload,
    replace,
    rollback,
    pin,
    unpin,
    statistics,
    flag_counts,
    save_state,
    load_state,
    reset_state,
    read_policy_flags,
    shadow,
    shadow_source,
    canary,
    canary_source,
    candidate,
    promote,
    end_candidate,
    load_bundle,
    free_bundle,
    bundle_policy,
    bundle_version,
    bundle_versions,
    reload_bundle,
    rollback_bundle,
    pin_bundle,
    unpin_bundle,
    define_function,
    define_tensor,
    define_module,
    flush_decisions,
};

}  // namespace
}  // namespace triage::c

const TriageApi* triage_get_api(uint32_t version) {
  return version >= 1 && version <= TRIAGE_C_VERSION ? &triage::c::table : nullptr;
}
