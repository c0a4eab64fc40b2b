#pragma once
#include <triage_c.h>

/// The functions of the table, by its topics; triage_c.h documents them.
namespace triage::c {

TriageStatus set_log(TriageLog log, void* user);
TriageStatus create_runtime(const TriageRuntimeOptions* options, TriageRuntime** runtime);
TriageStatus free_runtime(TriageRuntime* runtime);
TriageStatus load_file(TriageRuntime* runtime, const char* path, TriagePolicy** policy);
TriageStatus load_source(TriageRuntime* runtime, const char* source, size_t length, const char* name,
                         TriagePolicy** policy);
TriageStatus free_policy(TriagePolicy* policy);
TriageStatus watch(TriageRuntime* runtime, const char* folder, const TriageWatchOptions* options, TriageWatch** watch);
TriageStatus rescan(TriageWatch* watch);
TriageStatus free_watch(TriageWatch* watch);
TriageStatus metrics_text(TriageRuntime* runtime, char** text);
TriageStatus flush_decisions(TriageRuntime* runtime);

TriageStatus define_function(TriageRuntime* runtime, const char* name, TriageFunction function, void* user,
                             const TriageFunctionOptions* options);
TriageStatus define_tensor(TriageRuntime* runtime, const char* name, DLManagedTensor* tensor);
TriageStatus define_module(TriageRuntime* runtime, const char* name, const char* path,
                           const TriageModuleOptions* options);

TriageStatus run(TriagePolicy* policy, DLManagedTensor* const* inputs, size_t input_count,
                 const TriageRunOptions* options, DLManagedTensor** outputs, size_t* output_count);
TriageStatus run_named(TriagePolicy* policy, const TriageNamedTensor* inputs, size_t input_count,
                       const TriageRunOptions* options, TriageNamedTensor* outputs, size_t output_count);
TriageStatus prepare(TriagePolicy* policy, DLManagedTensor* const* inputs, size_t input_count,
                     const TriageRunOptions* options);
TriageStatus set_param(TriagePolicy* policy, const TriageParam* param);
TriageStatus manual_seed(TriagePolicy* policy, uint64_t seed);

TriageStatus read_flags(const DLManagedTensor* tensor, TriageFlag* flags, size_t* count);
TriageStatus read_policy_flags(TriagePolicy* policy, const DLManagedTensor* tensor, TriageFlag* flags, size_t* count);
TriageStatus flag_counts(TriagePolicy* policy, TriageFlag* flags, size_t* count);

TriageStatus version(TriagePolicy* policy, TriageVersion* version);
TriageStatus versions(TriagePolicy* policy, TriageVersion* versions, size_t* count);
TriageStatus reload(TriagePolicy* policy, int32_t* result);
TriageStatus replace(TriagePolicy* policy, const char* source, size_t length, int32_t* result);
TriageStatus rollback(TriagePolicy* policy, int32_t number);
TriageStatus pin(TriagePolicy* policy, int32_t number);
TriageStatus unpin(TriagePolicy* policy, int32_t* result);
TriageStatus statistics(TriagePolicy* policy, TriageStatistics* statistics);
TriageStatus save_state(TriagePolicy* policy, const char* file);
TriageStatus load_state(TriagePolicy* policy, const char* file);
TriageStatus reset_state(TriagePolicy* policy, const char* key);

TriageStatus shadow(TriagePolicy* policy, const char* path, const TriageShadowOptions* options, int32_t* number);
TriageStatus shadow_source(TriagePolicy* policy, const char* source, size_t length, const TriageShadowOptions* options,
                           int32_t* number);
TriageStatus canary(TriagePolicy* policy, const char* path, const TriageCanaryOptions* options, int32_t* number);
TriageStatus canary_source(TriagePolicy* policy, const char* source, size_t length, const TriageCanaryOptions* options,
                           int32_t* number);
TriageStatus candidate(TriagePolicy* policy, TriageCandidateReport* report);
TriageStatus promote(TriagePolicy* policy);
TriageStatus end_candidate(TriagePolicy* policy, TriageCandidateReport* report);

TriageStatus load_bundle(TriageRuntime* runtime, const char* folder, TriageBundle** bundle);
TriageStatus free_bundle(TriageBundle* bundle);
TriageStatus bundle_policy(TriageBundle* bundle, const char* name, TriagePolicy** policy);
TriageStatus bundle_version(TriageBundle* bundle, TriageBundleVersion* version);
TriageStatus bundle_versions(TriageBundle* bundle, TriageBundleVersion* versions, size_t* count);
TriageStatus reload_bundle(TriageBundle* bundle, int32_t* result);
TriageStatus rollback_bundle(TriageBundle* bundle, int32_t number);
TriageStatus pin_bundle(TriageBundle* bundle, int32_t number);
TriageStatus unpin_bundle(TriageBundle* bundle, int32_t* result);

}  // namespace triage::c
