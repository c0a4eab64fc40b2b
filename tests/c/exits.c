/// A host that ends without freeing what it has, while a watch is about to reload a file. It ends with 0.
///
///     exits FOLDER      a folder that it may write to
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <triage_c.h>

static void ignore(const TriageLogRecord* record, void* user) {
  (void)record;
  (void)user;
}

static int write_policy(const char* file, const char* end) {
  FILE* out = fopen(file, "w");
  return out && fprintf(out, "return function(z) return z * 2 end%s\n", end) > 0 && fclose(out) == 0;
}

int main(int argc, char** argv) {
  char file[4096];
  if (argc != 2) return 2;
  snprintf(file, sizeof file, "%s/double.lua", argv[1]);
  const TriageApi* triage = triage_get_api(1);
  TriageRuntimeOptions options = {.size = sizeof options, .log = ignore};
  TriageWatchOptions at_once = {.size = sizeof at_once, .debounce_ms = 1};
  TriageRuntime* runtime;
  TriagePolicy* policy;
  TriageWatch* watch;
  if (!write_policy(file, "") || triage->create_runtime(&options, &runtime) ||
      triage->load_file(runtime, file, &policy) || triage->watch(runtime, argv[1], &at_once, &watch) ||
      !write_policy(file, " -- changed")) {
    fprintf(stderr, "%s\n", triage->last_error()->message);
    return 1;
  }
  exit(0);
}
