/// A host in C11 that calls every function of version 1 of the interface. It is compiled against the header of today, and against
/// that of version 1, as a program of back then: both must run with the library of today. It ends with 0 where all holds.
///
///     every_function FOLDER      a folder that it may write to
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

  FILE* out = fopen(file, "w");
  EXPECT(out != NULL && fputs(other, out) >= 0 && fputs("-- changed\n", out) >= 0 && fclose(out) == 0);
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

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  EXPECT((triage = triage_get_api(TRIAGE_C_VERSION)) != NULL);
  EXPECT(triage->interface_version >= TRIAGE_C_VERSION && triage_get_api(triage->interface_version + 1) == NULL);
  EXPECT(strchr(triage->library_version(), '.') && strchr(triage->torch_version(), '.'));
  OK(triage->set_log(count_record, &records));
  char file[4096];
  snprintf(file, sizeof file, "%s/repair.lua", argv[1]);
  FILE* out = fopen(file, "w");
  EXPECT(out != NULL && fputs(repair, out) >= 0 && fclose(out) == 0);

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
  OK(triage->free_watch(watch));
  OK(triage->free_policy(policy));
  OK(triage->free_runtime(runtime));
  EXPECT(triage->free_runtime(runtime) == TRIAGE_ERROR_ARGUMENT);
  EXPECT(strcmp(triage->status_name(triage->last_error()->status), "TRIAGE_ERROR_ARGUMENT") == 0);
  EXPECT(strstr(triage->last_error()->message, "was freed") != NULL);
  EXPECT(records > 0 && freed == 8);
  puts("all holds");
  return 0;
}
