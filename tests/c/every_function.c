/// A host in C11 that calls every function of the interface. It is compiled against the header of today, and against
/// that of version 1, as a program of back then: both must run with the library of today. It ends with 0 where all
/// holds.
///
///     every_function FOLDER      a folder that it may write to
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <triage_c.h>

static const TriageApi* triage;

static void expect(int holds, int line, const char* what) {
  if (holds) return;
  fprintf(stderr, "line %d: %s does not hold; the last error: %s\n", line, what, triage->last_error()->message);
  _Exit(1);
}
#define EXPECT(condition) expect(condition, __LINE__, #condition)
#define OK(call) EXPECT((call) == TRIAGE_OK)

static const char repair[] =
    "return policy { name = 'repair', inputs = { 'z' }, outputs = { 'z', 'flags' }, params = { fallback = 0.0 },\n"
    "  state = { calls = { shape = {} } },\n"
    "  run = function(z, p, s)\n"
    "    local y, f = fix(z, flag_nan(z, 'logits'), 'logits', { fallback = p.fallback })\n"
    "    return y, f, { calls = s.calls + 1 }\n"
    "  end }\n";
static const char other[] =
    "return policy { name = 'repair', inputs = { 'z' }, outputs = { 'z', 'flags' }, params = { fallback = 0.0 },\n"
    "  run = function(z, p) return fix(z, flag_nan(z, 'logits'), 'logits', { fallback = 9.0 }) end }\n";

static int records, events, freed;

/// By a rename, so that a watch sees the whole text.
static void save(const char* file, const char* text) {
  char new_file[4210];
  snprintf(new_file, sizeof new_file, "%s.new", file);
  FILE* out = fopen(new_file, "w");
  EXPECT(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0 && rename(new_file, file) == 0);
}

static void count_record(const TriageLogRecord* record, void* user) {
  EXPECT(user == &records && record->text[0] != 0);
  ++records;
}

static void count_event(const TriageWatchEvent* event, void* user) {
  EXPECT(user == &events && event->kind == TRIAGE_WATCH_RELOADED && strcmp(event->name, "reloaded") == 0);
  ++events;
}

static void free_batch(DLManagedTensor* tensor) {
  ++freed;
  free(tensor->dl_tensor.data);
  free(tensor->dl_tensor.shape);
  free(tensor);
}

/// Two samples of one number, the second of them NaN, on the heap: the call that gets it frees it.
static DLManagedTensor* make_batch(void) {
  DLManagedTensor* batch = calloc(1, sizeof *batch);
  float* data = malloc(2 * sizeof *data);
  int64_t* shape = malloc(2 * sizeof *shape);
  data[0] = 1;
  data[1] = NAN;
  shape[0] = 2;
  shape[1] = 1;
  batch->dl_tensor.data = data;
  batch->dl_tensor.shape = shape;
  batch->dl_tensor.ndim = 2;
  batch->dl_tensor.device.device_type = kDLCPU;
  batch->dl_tensor.dtype = (DLDataType){.code = kDLFloat, .bits = 32, .lanes = 1};
  batch->deleter = free_batch;
  return batch;
}

/// What the repaired sample is.
static float second(const DLManagedTensor* output) { return ((const float*)output->dl_tensor.data)[1]; }

static float run(TriagePolicy* policy, const TriageRunOptions* options) {
  DLManagedTensor* inputs[] = {make_batch()};
  DLManagedTensor* outputs[2];
  size_t count = 2;
  OK(triage->run(policy, inputs, 1, options, outputs, &count));
  EXPECT(count == 2);
  float repaired = second(outputs[0]);
  TriageFlag flags[4];
  count = 4;
  OK(triage->read_flags(outputs[1], flags, &count));
  EXPECT(count == 2 && flags[0].sample == 1 && strcmp(flags[0].code_name, "NAN") == 0);
  for (int i = 0; i < 2; ++i) triage->free_tensor(outputs[i]);
  return repaired;
}

static void calls(TriagePolicy* policy) {
  DLManagedTensor* inputs[] = {make_batch()};
  OK(triage->prepare(policy, inputs, 1, NULL));
  OK(triage->manual_seed(policy, 7));
  TriageParam param = {.name = "fallback", .kind = TRIAGE_PARAM_NUMBER, .number = 2.5};
  TriageRunInfo info = {.size = sizeof info};
  TriageRunOptions options = {.size = sizeof options, .params = &param, .param_count = 1, .info = &info};
  EXPECT(run(policy, &options) == 2.5F);
  EXPECT(info.version == 1 && info.form == TRIAGE_FORM_GRAPH && info.flagged == 1);
  EXPECT(run(policy, NULL) == 0);
  OK(triage->set_param(policy, &param));
  EXPECT(run(policy, NULL) == 2.5F);

  TriageNamedTensor input = {.name = "z", .tensor = make_batch()};
  TriageNamedTensor output = {.name = "z"};
  OK(triage->run_named(policy, &input, 1, NULL, &output, 1));
  EXPECT(second(output.tensor) == 2.5F);
  triage->free_tensor(output.tensor);
}

static void versions(TriagePolicy* policy, TriageWatch* watch, const char* file) {
  int32_t result = -1;
  OK(triage->replace(policy, other, strlen(other), &result));
  EXPECT(result == TRIAGE_RELOAD_SWAPPED && run(policy, NULL) == 9);
  OK(triage->rollback(policy, 1));
  OK(triage->pin(policy, 2));
  OK(triage->unpin(policy, &result));
  TriageVersion live = {.size = sizeof live};
  OK(triage->version(policy, &live));
  EXPECT(live.live && !live.pinned && strlen(live.hash) == 16 && strcmp(live.path, file) == 0);
  size_t count = 0;
  OK(triage->versions(policy, NULL, &count));
  EXPECT(count >= 2);

  char changed[1000];
  snprintf(changed, sizeof changed, "%s-- changed\n", other);
  save(file, changed);
  OK(triage->rescan(watch));
  OK(triage->reload(policy, &result));
  EXPECT(result == TRIAGE_RELOAD_UNCHANGED && run(policy, NULL) == 9);
  EXPECT(events >= 1);
}

static void what_happened(TriageRuntime* runtime, TriagePolicy* policy, const char* folder) {
  TriageStatistics statistics = {.size = sizeof statistics};
  OK(triage->statistics(policy, &statistics));
  EXPECT(statistics.calls == 6 && statistics.flagged == 6 && statistics.failed == 0);
  TriageFlag counts[4];
  size_t count = 4;
  OK(triage->flag_counts(policy, counts, &count));
  EXPECT(count == 2 && counts[0].count == 6);
  char* text;
  OK(triage->metrics_text(runtime, &text));
  EXPECT(strstr(text, "policy=\"repair\"") != NULL);
  triage->free_text(text);

  TriagePolicy* counting;
  OK(triage->load_source(runtime, repair, strlen(repair), "counting.lua", &counting));
  char file[4096];
  snprintf(file, sizeof file, "%s/state.pt", folder);
  run(counting, NULL);
  OK(triage->save_state(counting, file));
  OK(triage->reset_state(counting, NULL));
  OK(triage->load_state(counting, file));
  OK(triage->free_policy(counting));
}

#if TRIAGE_C_VERSION >= 3
static void candidates(TriagePolicy* policy) {
  int32_t number;
  TriageShadowOptions shadow = {.size = sizeof shadow, .share = 1};
  OK(triage->shadow_source(policy, other, strlen(other), &shadow, &number));
  EXPECT(run(policy, NULL) == 0);
  TriageCandidateReport report = {.size = sizeof report};
  OK(triage->candidate(policy, &report));
  EXPECT(report.version == number && report.state == TRIAGE_CANDIDATE_RUNNING && report.text[0] != 0);
  OK(triage->end_candidate(policy, &report));

  TriageCanaryOptions canary = {.size = sizeof canary, .share = 1};
  OK(triage->canary_source(policy, other, strlen(other), &canary, &number));
  EXPECT(run(policy, NULL) == 9);
  OK(triage->promote(policy));
  EXPECT(triage->canary(policy, "no such file", &canary, NULL) == TRIAGE_ERROR_FILE);
  EXPECT(triage->shadow(policy, "no such file", &shadow, NULL) == TRIAGE_ERROR_FILE);
}

static const char summed[] = "return function(z) return first_number(z) + offset end";
static const char summed_sha256[] = "447fd9e6c2be8b5723b35a2afd71f6704b6f762533f35a36717345d3d13c1270";

static void bundles(TriageRuntime* runtime, const char* parent) {
  char folder[4096], path[4200];
  snprintf(folder, sizeof folder, "%s/sums", parent);
  mkdir(folder, 0700);
  snprintf(path, sizeof path, "%s/summed.lua", folder);
  save(path, summed);
  snprintf(path, sizeof path, "%s/bundle.json", folder);
  char listed[1000];
  snprintf(listed, sizeof listed, "{\"name\": \"sums\", \"version\": \"1\", \"policies\": {\"summed.lua\": \"%s\"}}",
           summed_sha256);
  save(path, listed);

  TriageBundle* bundle;
  TriagePolicy* policy;
  OK(triage->load_bundle(runtime, folder, &bundle));
  OK(triage->bundle_policy(bundle, "summed", &policy));
  DLManagedTensor* inputs[] = {make_batch()};
  DLManagedTensor* outputs[1];
  size_t count = 1;
  OK(triage->run(policy, inputs, 1, NULL, outputs, &count));
  EXPECT(*(const float*)outputs[0]->dl_tensor.data == 101);
  triage->free_tensor(outputs[0]);

  TriageBundleVersion live = {.size = sizeof live};
  OK(triage->bundle_version(bundle, &live));
  EXPECT(live.number == 1 && live.policy_count == 1 && strcmp(live.policy_names[0], "summed") == 0);
  count = 0;
  OK(triage->bundle_versions(bundle, NULL, &count));
  EXPECT(count == 1);
  int32_t result;
  OK(triage->reload_bundle(bundle, &result));
  OK(triage->rollback_bundle(bundle, 1));
  OK(triage->pin_bundle(bundle, 1));
  OK(triage->unpin_bundle(bundle, &result));
  OK(triage->free_policy(policy));
  OK(triage->free_bundle(bundle));
}

/// The first number of the batch, as a tensor of the host.
static void first_number(TriageFunctionCall* call, void* user) {
  static _Thread_local float number;  // several threads may call it at once
  static _Thread_local int64_t shape[] = {1};
  static _Thread_local DLManagedTensor output;
  atomic_fetch_add((atomic_int*)user, 1);
  if (call->inputs[0]->dl_tensor.shape[0] == 0) {
    call->error = "the batch is empty";
    return;
  }
  number = *(const float*)call->inputs[0]->dl_tensor.data;
  output.dl_tensor =
      (DLTensor){.data = &number, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  call->outputs[0] = &output;  // without a deleter: it is copied
  call->output_count = 1;
}

static void version_3(const char* folder) {
  static atomic_int calls;
  static float offset = 100;
  static int64_t no_shape[1];
  DLManagedTensor tensor = {0};
  tensor.dl_tensor = (DLTensor){.data = &offset, .device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}, .shape = no_shape};
  char file[4096];
  snprintf(file, sizeof file, "%s/decisions.jsonl", folder);
  TriageDecisionLogOptions decisions = {.size = sizeof decisions, .file = file};
  TriageRuntimeOptions options = {.size = sizeof options, .decisions = &decisions};
  TriageRuntime* runtime;
  TriagePolicy* policy;
  OK(triage->create_runtime(&options, &runtime));
  OK(triage->define_function(runtime, "first_number", first_number, &calls, NULL));
  OK(triage->define_tensor(runtime, "offset", &tensor));
  EXPECT(triage->define_module(runtime, "model", "no such file", NULL) == TRIAGE_ERROR_FILE);
  OK(triage->load_source(runtime, repair, strlen(repair), "repair.lua", &policy));
  candidates(policy);
  bundles(runtime, folder);
  OK(triage->flush_decisions(runtime));
  EXPECT(calls > 0);
  OK(triage->free_policy(policy));
  OK(triage->free_runtime(runtime));
}
#endif

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  EXPECT((triage = triage_get_api(TRIAGE_C_VERSION)) != NULL);
  EXPECT(triage->interface_version >= TRIAGE_C_VERSION && triage_get_api(triage->interface_version + 1) == NULL);
  EXPECT(strchr(triage->library_version(), '.') && strchr(triage->torch_version(), '.'));
  OK(triage->set_log(count_record, &records));
  char file[4096];
  snprintf(file, sizeof file, "%s/repair.lua", argv[1]);
  save(file, repair);

  TriageRuntimeOptions options = {.size = sizeof options, .keep_versions = 4};
  TriageWatchOptions watch_options = {.size = sizeof watch_options, .on_event = count_event, .user = &events};
  TriageRuntime* runtime;
  TriagePolicy* policy;
  TriageWatch* watch;
  OK(triage->create_runtime(&options, &runtime));
  OK(triage->load_file(runtime, file, &policy));
  OK(triage->watch(runtime, argv[1], &watch_options, &watch));
  calls(policy);
  versions(policy, watch, file);
  what_happened(runtime, policy, argv[1]);
#if TRIAGE_C_VERSION >= 3
  version_3(argv[1]);
#endif
  OK(triage->free_watch(watch));
  OK(triage->free_policy(policy));
  OK(triage->free_runtime(runtime));
  EXPECT(triage->free_runtime(runtime) == TRIAGE_ERROR_ARGUMENT);
  EXPECT(strcmp(triage->status_name(triage->last_error()->status), "TRIAGE_ERROR_ARGUMENT") == 0);
  EXPECT(strstr(triage->last_error()->message, "was freed") != NULL);
#if TRIAGE_C_VERSION >= 3
  EXPECT(records > 0 && freed == 11);
#else
  EXPECT(records > 0 && freed == 8);
#endif
  puts("all holds");
  return 0;
}
