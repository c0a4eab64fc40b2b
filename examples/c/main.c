/// Loads a policy, runs a batch of which one sample is bad, prints its flags, replaces the policy while the program runs, and
/// prints what happened. It is C11, and needs neither the headers of LibTorch nor a C++ compiler.
///
///     embed_c POLICY.lua
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <triage_c.h>

enum { SAMPLES = 4, CLASSES = 3, MAX_FLAGS = 16 };

static const TriageApi* triage;

static void check(TriageStatus status) {
  if (status == TRIAGE_OK) return;
  const TriageError* error = triage->last_error();
  fprintf(stderr, "%s: %s\n%s", triage->status_name(error->status), error->message, error->traceback);
  exit(1);
}

/// Stands for the model of a real program: one of its samples is spoilt.
static void compute_logits(float logits[SAMPLES][CLASSES]) {
  for (int i = 0; i < SAMPLES; ++i)
    for (int k = 0; k < CLASSES; ++k) logits[i][k] = (float)(i + k) / 2;
  logits[2][1] = NAN;
}

static void print_flags(const DLManagedTensor* tensor) {
  TriageFlag flags[MAX_FLAGS];
  size_t count = MAX_FLAGS;
  check(triage->read_flags(tensor, flags, &count));
  for (size_t i = 0; i < count && i < MAX_FLAGS; ++i)
    printf("  sample %d: %s %s at %s\n", (int)flags[i].sample, flags[i].severity_name, flags[i].code_name,
           flags[i].location_name);
}

static void run_batch(TriagePolicy* policy) {
  float logits[SAMPLES][CLASSES];
  compute_logits(logits);
  int64_t shape[] = {SAMPLES, CLASSES};
  // No deleter: the memory stays ours. It must live until the call has returned.
  DLManagedTensor input = {0};
  input.dl_tensor.data = logits;
  input.dl_tensor.device.device_type = kDLCPU;
  input.dl_tensor.dtype = (DLDataType){.code = kDLFloat, .bits = 32, .lanes = 1};
  input.dl_tensor.ndim = 2;
  input.dl_tensor.shape = shape;

  DLManagedTensor* inputs[] = {&input};
  DLManagedTensor* outputs[2];
  size_t count = 2;
  TriageRunInfo info = {.size = sizeof info};
  TriageRunOptions options = {.size = sizeof options, .info = &info};
  check(triage->run(policy, inputs, 1, &options, outputs, &count));

  const float* repaired = outputs[0]->dl_tensor.data;
  printf("version %d: sample 2 is now %g %g %g; %d of %d samples flagged\n", (int)info.version, (double)repaired[6],
         (double)repaired[7], (double)repaired[8], (int)info.flagged, SAMPLES);
  print_flags(outputs[1]);
  for (size_t i = 0; i < count; ++i) triage->free_tensor(outputs[i]);
}

static const char new_rule[] =
    "return policy {\n"
    "  inputs  = { 'logits' },\n"
    "  outputs = { 'logits', 'flags' },\n"
    "  run     = function(logits) return fix(logits, flag_nan(logits, 'logits'), 'logits', { fallback = -1.0 }) end,\n"
    "}\n";

static void replace_policy(TriagePolicy* policy, const char* source) {
  int32_t result;
  check(triage->replace(policy, source, strlen(source), &result));
  if (result != TRIAGE_RELOAD_REFUSED) return;
  TriageVersion live = {.size = sizeof live};
  check(triage->version(policy, &live));
  printf("refused, version %d stays live: %s\n", (int)live.number, live.last_error);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: embed_c POLICY.lua\n");
    return 2;
  }
  triage = triage_get_api(TRIAGE_C_VERSION);
  if (!triage) {
    fprintf(stderr, "libtriage_c is older than the header that this program was compiled with\n");
    return 1;
  }
  TriageRuntime* runtime;
  TriagePolicy* policy;
  check(triage->create_runtime(NULL, &runtime));
  check(triage->load_file(runtime, argv[1], &policy));

  run_batch(policy);
  replace_policy(policy, new_rule);
  run_batch(policy);
  replace_policy(policy, "return function(");
  run_batch(policy);

  TriageStatistics statistics = {.size = sizeof statistics};
  check(triage->statistics(policy, &statistics));
  printf("%d calls, %d of %d samples flagged, %d repaired\n", (int)statistics.calls, (int)statistics.flagged,
         (int)statistics.samples, (int)statistics.repaired);
  check(triage->free_policy(policy));
  check(triage->free_runtime(runtime));
  return 0;
}
