// Every misuse gives a status, and a message that says what was expected, what came and what to do. None ends the
// process.
#include <functional>
#include <utility>

#include "host.h"

namespace triage::test {
namespace {

template <class T>
T sized() {
  T value{};
  value.size = sizeof value;
  return value;
}

/// Calls of all functions that take a policy first, with what is none.
std::vector<std::pair<std::string, std::function<TriageStatus(TriagePolicy*)>>> calls_of_policies() {
  static size_t count;
  static TriageVersion version = sized<TriageVersion>();
  static TriageStatistics statistics = sized<TriageStatistics>();
  static TriageParam param = {"p", TRIAGE_PARAM_NUMBER, 0, 0, nullptr, nullptr, 0, nullptr};
  count = 0;
  return {
      {"run", [](TriagePolicy* p) { return api().run(p, nullptr, 0, nullptr, nullptr, &count); }},
      {"run_named", [](TriagePolicy* p) { return api().run_named(p, nullptr, 0, nullptr, nullptr, 0); }},
      {"prepare", [](TriagePolicy* p) { return api().prepare(p, nullptr, 0, nullptr); }},
      {"set_param", [](TriagePolicy* p) { return api().set_param(p, &param); }},
      {"manual_seed", [](TriagePolicy* p) { return api().manual_seed(p, 1); }},
      {"version", [](TriagePolicy* p) { return api().version(p, &version); }},
      {"versions", [](TriagePolicy* p) { return api().versions(p, nullptr, &count); }},
      {"reload", [](TriagePolicy* p) { return api().reload(p, nullptr); }},
      {"replace", [](TriagePolicy* p) { return api().replace(p, "", 0, nullptr); }},
      {"rollback", [](TriagePolicy* p) { return api().rollback(p, 1); }},
      {"pin", [](TriagePolicy* p) { return api().pin(p, 1); }},
      {"unpin", [](TriagePolicy* p) { return api().unpin(p, nullptr); }},
      {"statistics", [](TriagePolicy* p) { return api().statistics(p, &statistics); }},
      {"flag_counts", [](TriagePolicy* p) { return api().flag_counts(p, nullptr, &count); }},
      {"save_state", [](TriagePolicy* p) { return api().save_state(p, "/nowhere/x.pt"); }},
      {"load_state", [](TriagePolicy* p) { return api().load_state(p, "/nowhere/x.pt"); }},
      {"reset_state", [](TriagePolicy* p) { return api().reset_state(p, nullptr); }},
  };
}

/// A policy of another thread's or an earlier call's handle, as a careless host has it.
template <class To, class From>
To* cast(From* handle) {
  return reinterpret_cast<To*>(handle);
}

}  // namespace

TEST_CASE("a version that the library does not have gives no table") {
  CHECK(triage_get_api(0) == nullptr);
  CHECK(triage_get_api(TRIAGE_C_VERSION + 1) == nullptr);
  CHECK(triage_get_api(UINT32_MAX) == nullptr);
  REQUIRE(triage_get_api(1) != nullptr);
  CHECK(api().interface_version == TRIAGE_C_VERSION);
}

TEST_CASE("every function of policies refuses null, a handle of another kind, and what is no handle") {
  const Host host;
  uint64_t memory[8] = {};
  for (const auto& [function, call] : calls_of_policies()) {
    const std::string name = function;
    CAPTURE(name);
    check_failed(call(nullptr), TRIAGE_ERROR_ARGUMENT, {name + ": `policy` is null", "pass the handle of a policy"});
    check_failed(call(cast<TriagePolicy>(host.runtime)), TRIAGE_ERROR_ARGUMENT,
                 {name + ": `policy` is the handle of a runtime", "pass that of a policy"});
    check_failed(call(cast<TriagePolicy>(memory)), TRIAGE_ERROR_ARGUMENT, {name + ": `policy` is no handle"});
    check_failed(call(cast<TriagePolicy>(reinterpret_cast<char*>(memory) + 1)), TRIAGE_ERROR_ARGUMENT,
                 {"is no handle"});
  }
  check_failed(api().free_policy(cast<TriagePolicy>(host.runtime)), TRIAGE_ERROR_ARGUMENT,
               {"free_policy", "of a runtime"});
}

TEST_CASE("a freed handle is refused, and frees nothing twice") {
  TriagePolicy* policy = nullptr;
  TriageRuntime* runtime = nullptr;
  {
    const Host host;
    policy = host.policy;
    runtime = host.runtime;
  }
  for (const auto& [function, call] : calls_of_policies()) {
    const std::string name = function;
    CAPTURE(name);
    check_failed(call(policy), TRIAGE_ERROR_ARGUMENT, {name + ": `policy` was freed"});
  }
  check_failed(api().free_policy(policy), TRIAGE_ERROR_ARGUMENT, {"free_policy: `policy` was freed"});
  check_failed(api().free_runtime(runtime), TRIAGE_ERROR_ARGUMENT, {"free_runtime: `runtime` was freed"});
  char* text = nullptr;
  check_failed(api().metrics_text(runtime, &text), TRIAGE_ERROR_ARGUMENT, {"`runtime` was freed"});
  CHECK(text == nullptr);
  TriagePolicy* loaded = policy;
  check_failed(api().load_file(runtime, "x.lua", &loaded), TRIAGE_ERROR_ARGUMENT, {"load_file: `runtime` was freed"});
  CHECK(loaded == nullptr);
  for (int i = 0; i < 40; ++i) const Host other;  // none of these handles is the freed one
  check_failed(api().manual_seed(policy, 1), TRIAGE_ERROR_ARGUMENT, {"`policy` was freed"});
  check_ok(api().free_policy(nullptr));
  check_ok(api().free_runtime(nullptr));
  check_ok(api().free_watch(nullptr));
  api().free_text(nullptr);
  api().free_tensor(nullptr);
}

TEST_CASE("null in place of a result, a text or an array") {
  const Host host;
  TriagePolicy* policy = nullptr;
  TriageWatch* watch = nullptr;
  size_t count = 0;
  check_failed(api().create_runtime(nullptr, nullptr), TRIAGE_ERROR_ARGUMENT,
               {"create_runtime", "the new runtime is null"});
  check_failed(api().load_file(host.runtime, "x.lua", nullptr), TRIAGE_ERROR_ARGUMENT, {"the new policy is null"});
  check_failed(api().load_file(host.runtime, nullptr, &policy), TRIAGE_ERROR_ARGUMENT, {"load_file: `path` is null"});
  check_failed(api().load_source(host.runtime, nullptr, 3, nullptr, &policy), TRIAGE_ERROR_ARGUMENT,
               {"`source` is null"});
  check_failed(api().watch(host.runtime, nullptr, nullptr, &watch), TRIAGE_ERROR_ARGUMENT, {"watch: `folder` is null"});
  check_failed(api().metrics_text(host.runtime, nullptr), TRIAGE_ERROR_ARGUMENT, {"metrics_text: `text` is null"});
  check_failed(api().rescan(nullptr), TRIAGE_ERROR_ARGUMENT, {"rescan: `watch` is null"});
  check_failed(api().run(host.policy, nullptr, 1, nullptr, nullptr, &count), TRIAGE_ERROR_ARGUMENT,
               {"`inputs` is null"});
  HostTensor z({1}, {1});
  DLManagedTensor* inputs[] = {&z.managed};
  check_failed(api().run(host.policy, inputs, 1, nullptr, nullptr, nullptr), TRIAGE_ERROR_ARGUMENT,
               {"`output_count` is null"});
  count = 2;
  check_failed(api().run(host.policy, inputs, 1, nullptr, nullptr, &count), TRIAGE_ERROR_ARGUMENT,
               {"`outputs` is null"});
  host.misuse({nullptr}, {"run: input 0: it is null", "DLManagedTensor"});
  check_failed(api().run_named(host.policy, nullptr, 1, nullptr, nullptr, 0), TRIAGE_ERROR_ARGUMENT,
               {"`inputs` is null"});
  const TriageNamedTensor nameless = {nullptr, &z.managed};
  check_failed(api().run_named(host.policy, &nameless, 1, nullptr, nullptr, 0), TRIAGE_ERROR_ARGUMENT,
               {"inputs[i].name"});
  check_failed(api().set_param(host.policy, nullptr), TRIAGE_ERROR_ARGUMENT, {"set_param: `param` is null"});
  check_failed(api().version(host.policy, nullptr), TRIAGE_ERROR_ARGUMENT, {"version: `version` is null"});
  check_failed(api().versions(host.policy, nullptr, nullptr), TRIAGE_ERROR_ARGUMENT, {"versions: `count` is null"});
  count = 1;
  check_failed(api().versions(host.policy, nullptr, &count), TRIAGE_ERROR_ARGUMENT, {"versions: `versions` is null"});
  check_failed(api().statistics(host.policy, nullptr), TRIAGE_ERROR_ARGUMENT, {"statistics: `statistics` is null"});
  check_failed(api().replace(host.policy, nullptr, 0, nullptr), TRIAGE_ERROR_ARGUMENT, {"replace: `source` is null"});
  check_failed(api().save_state(host.policy, nullptr), TRIAGE_ERROR_ARGUMENT, {"save_state: `file` is null"});
  check_failed(api().read_flags(nullptr, nullptr, &count), TRIAGE_ERROR_ARGUMENT, {"read_flags: tensor 0: it is null"});
  check_failed(api().read_flags(nullptr, nullptr, nullptr), TRIAGE_ERROR_ARGUMENT, {"read_flags: `count` is null"});
}

TEST_CASE("structs whose size is no version's") {
  const Host host;
  for (const size_t wrong : {size_t{0}, sizeof(TriageRunOptions) - 8, sizeof(TriageRunOptions) + 8}) {
    TriageRunOptions options{};
    options.size = wrong;
    host.misuse({}, {"`options->size` is " + std::to_string(wrong), "sizeof the struct"}, &options);
  }
  auto options = sized<TriageRunOptions>();
  TriageRunInfo info{};
  options.info = &info;
  host.misuse({}, {"`options->info->size` is 0"}, &options);
  TriageRuntime* runtime = nullptr;
  TriageWatch* watch = nullptr;
  const TriageRuntimeOptions runtime_options{};
  const TriageWatchOptions watch_options{};
  check_failed(api().create_runtime(&runtime_options, &runtime), TRIAGE_ERROR_ARGUMENT, {"`options->size` is 0"});
  check_failed(api().watch(host.runtime, "/tmp", &watch_options, &watch), TRIAGE_ERROR_ARGUMENT,
               {"`options->size` is 0"});
  TriageVersion version{};
  TriageStatistics statistics{};
  size_t count = 1;
  check_failed(api().version(host.policy, &version), TRIAGE_ERROR_ARGUMENT, {"`version->size` is 0"});
  check_failed(api().versions(host.policy, &version, &count), TRIAGE_ERROR_ARGUMENT, {"`versions->size` is 0"});
  check_failed(api().statistics(host.policy, &statistics), TRIAGE_ERROR_ARGUMENT, {"`statistics->size` is 0"});
}

TEST_CASE("tensors that DLPack allows and triage does not, and those that nobody may make") {
  const Host host;
  HostTensor z({1, 2, 3, 4}, {2, 2});
  z.count_frees();
  DLTensor& tensor = z.managed.dl_tensor;
  int64_t sizes[] = {2, 2};
  std::vector<std::string> texts;
  SUBCASE("an unknown dtype") { tensor.dtype.code = 77, texts = {"a dtype of code 77, 32 bits and 1 lanes", "pass"}; }
  SUBCASE("unsigned integers of 16 bits") { tensor.dtype = {kDLUInt, 16, 1}, texts = {"a dtype of code 1, 16 bits"}; }
  SUBCASE("vectors") { tensor.dtype.lanes = 4, texts = {"4 lanes", "one lane"}; }
  SUBCASE("another device") {
    tensor.device.device_type = static_cast<DLDeviceType>(8), texts = {"a device of type 8", "memory of the CPU"};
  }
  SUBCASE("a CUDA device that is not there") { tensor.device = {kDLCUDA, 127}, texts = {"CUDA device"}; }
  SUBCASE("negative ndim") { tensor.ndim = -1, texts = {"ndim is -1; pass 0 to 64"}; }
  SUBCASE("too many dims") { tensor.ndim = 65, texts = {"ndim is 65; pass 0 to 64"}; }
  SUBCASE("no shape") { tensor.shape = nullptr, texts = {"shape is null, but ndim is 2"}; }
  SUBCASE("no data") { tensor.data = nullptr, texts = {"data is null, but it has 4 elements"}; }
  SUBCASE("a negative size") { sizes[1] = -2, tensor.shape = sizes, texts = {"size -2 of dimension 1 is negative"}; }
  SUBCASE("a negative stride") {
    z.set_strides({2, -1}), texts = {"stride -1 of dimension 1 is negative", "copy the tensor"};
  }
  SUBCASE("sizes that overflow") {
    sizes[0] = sizes[1] = int64_t{1} << 40, tensor.shape = sizes, texts = {"span more than 2^63 bytes"};
  }
  SUBCASE("strides that overflow") { z.set_strides({INT64_MAX, 1}), texts = {"span more than 2^63 bytes"}; }
  SUBCASE("an offset within an element") { tensor.byte_offset = 2, texts = {"byte_offset (2)", "4 bytes", "align it"}; }
  texts.emplace_back("run: input 0: ");
  host.misuse({&z.managed}, texts);
  CHECK(z.freed == 1);
}

TEST_CASE("the same tensor twice") {
  const Host host("return policy { inputs = { 'a', 'b' }, outputs = { 'c' }, run = function(a, b) return a + b end }");
  HostTensor z({1}, {1});
  z.count_frees();
  host.misuse({&z.managed, &z.managed}, {"input 1: it is the same DLManagedTensor as input 0", "only once"});
  CHECK(z.freed == 1);
}

TEST_CASE("numbers of inputs and outputs, names, batches that do not fit") {
  const Host host(
      "return policy { inputs = { 'a', 'b' }, outputs = { 'c', 'd' }, run = function(a, b) return a + b, a - b end }");
  HostTensor a({1, 2}, {2}), b({1, 2, 3}, {3});
  DLManagedTensor* inputs[] = {&a.managed, &b.managed};
  DLManagedTensor* outputs[2];
  size_t count = 2;
  check_failed(api().run(host.policy, inputs, 1, nullptr, outputs, &count), TRIAGE_ERROR_INPUT, {"2 inputs", "1"});
  count = 2;
  check_failed(api().run(host.policy, inputs, 2, nullptr, outputs, &count), TRIAGE_ERROR_POLICY,
               {"repair.lua:1", "size"});
  CHECK(count == 0);
  inputs[1] = inputs[0];
  count = 1;
  check_failed(api().run(host.policy, inputs, 2, nullptr, outputs, &count), TRIAGE_ERROR_ARGUMENT,
               {"returns 2 outputs, but `outputs` has room for 1"});
  CHECK(count == 2);
  CHECK(outputs[0] == nullptr);
  const TriageNamedTensor named[] = {{"a", &a.managed}, {"x", &a.managed}};
  check_failed(api().run_named(host.policy, named, 2, nullptr, nullptr, 0), TRIAGE_ERROR_INPUT, {"x", "b"});
}

TEST_CASE("options out of range") {
  const Host host;
  HostTensor z({1}, {1});
  auto options = sized<TriageRunOptions>();
  const size_t donate[] = {3};
  const char* ids[] = {"a", nullptr};
  int on_no_device = 0;
  const auto refused = [&](TriageStatus status, const std::vector<std::string>& texts) {
    DLManagedTensor* inputs[] = {&z.managed};
    DLManagedTensor* outputs[2];
    size_t count = 2;
    check_failed(api().run(host.policy, inputs, 1, &options, outputs, &count), status, texts);
    options = sized<TriageRunOptions>();
  };
  options.on_error = 4;
  refused(TRIAGE_ERROR_ARGUMENT, {"`options->on_error` is 4; pass one of 0 to 3"});
  options.timeout_ns = -1;
  refused(TRIAGE_ERROR_ARGUMENT, {"`options->timeout_ns` is -1"});
  options.stream = &on_no_device;
  refused(TRIAGE_ERROR_ARGUMENT, {"`options->stream` is set, but no input is on a CUDA device"});
  options.param_count = 1;
  refused(TRIAGE_ERROR_ARGUMENT, {"`options->params` is null"});
  options.donate_count = 1;
  refused(TRIAGE_ERROR_ARGUMENT, {"`options->donate` is null"});
  options.donate_count = 1, options.donate = donate;
  refused(TRIAGE_ERROR_INPUT, {"3"});
  options.sample_id_count = 2, options.sample_ids = ids;
  refused(TRIAGE_ERROR_ARGUMENT, {"`options->sample_ids[i]` is null"});

  const auto refused_runtime = [](TriageRuntimeOptions given, TriageStatus status,
                                  const std::vector<std::string>& texts) {
    given.size = sizeof given;
    TriageRuntime* runtime = nullptr;
    check_failed(api().create_runtime(&given, &runtime), status, texts);
    CHECK(runtime == nullptr);
  };
  refused_runtime({.compiler = 1}, TRIAGE_ERROR_ARGUMENT, {"options->compiler: `compiler` is gone"});
  refused_runtime({.trusted = 2}, TRIAGE_ERROR_ARGUMENT, {"`options->trusted` is 2"});
  refused_runtime({.trial_calls = -2}, TRIAGE_ERROR_ARGUMENT, {"`options->trial_calls` is -2", "-1 for none"});
  refused_runtime({.trial_seconds = -2}, TRIAGE_ERROR_ARGUMENT, {"`options->trial_seconds` is -2", "-1 for none"});
  refused_runtime({.reload_latency_ratio = std::nan("")}, TRIAGE_ERROR_ARGUMENT,
                  {"`options->reload_latency_ratio` is nan"});
  refused_runtime({.reload_latency_ratio = 0.5}, TRIAGE_ERROR_CONFIG, {"reload_latency_ratio is 0.5", "at least 1"});
  refused_runtime({.on_slow_reload = 4}, TRIAGE_ERROR_ARGUMENT, {"`options->on_slow_reload` is 4"});
  refused_runtime({.on_new_graph_breaks = -1}, TRIAGE_ERROR_ARGUMENT, {"`options->on_new_graph_breaks` is -1"});
  refused_runtime({.max_seconds = std::nan("")}, TRIAGE_ERROR_ARGUMENT, {"`options->max_seconds` is nan"});
  refused_runtime({.keep_versions = -1}, TRIAGE_ERROR_ARGUMENT, {"`options->keep_versions` is -1"});
  refused_runtime({.kernel_count = 1}, TRIAGE_ERROR_ARGUMENT, {"options->kernels: `kernels` is gone"});
  refused_runtime({.backend = "nobody"}, TRIAGE_ERROR_INPUT, {"nobody", "fused"});
}

TEST_CASE("params that do not fit") {
  const Host host;
  const auto refused = [&](TriageParam param, TriageStatus status, const std::vector<std::string>& texts) {
    check_failed(api().set_param(host.policy, &param), status, texts);
  };
  refused({.name = "fallback", .kind = 6}, TRIAGE_ERROR_ARGUMENT, {"param `fallback`: `kind` is 6"});
  refused({.name = nullptr}, TRIAGE_ERROR_ARGUMENT, {"`name of a param` is null"});
  refused({.name = "fallback", .kind = TRIAGE_PARAM_BOOL, .integer = 2}, TRIAGE_ERROR_ARGUMENT,
          {"`integer` is 2", "pass 0 or 1"});
  refused({.name = "fallback", .kind = TRIAGE_PARAM_NUMBERS, .count = 2}, TRIAGE_ERROR_ARGUMENT, {"`numbers` is null"});
  refused({.name = "fallback", .kind = TRIAGE_PARAM_TENSOR}, TRIAGE_ERROR_ARGUMENT,
          {"tensor of a param 0: it is null"});
  refused({.name = "nobody"}, TRIAGE_ERROR_INPUT, {"nobody", "fallback"});
}

TEST_CASE("params that the policy does not allow") {
  const Host host(
      "return policy { inputs = { 'z' }, outputs = { 'z' }, params = { k = { default = 1.0, max = 5, help = 'a scale' "
      "} },\n"
      "  run = function(z, p) return z * p.k end }");
  const TriageParam param = {"k", TRIAGE_PARAM_NUMBER, 0, 6, nullptr, nullptr, 0, nullptr};
  check_failed(api().set_param(host.policy, &param), TRIAGE_ERROR_INPUT,
               {"param 'k' must be at most 5, got 6 (a scale)"});
  TriageRunOptions options{};
  options.size = sizeof options;
  options.params = &param;
  options.param_count = 1;
  HostTensor z({1, 1}, {2});
  DLManagedTensor* inputs[] = {&z.managed};
  DLManagedTensor* output = nullptr;
  size_t count = 1;
  check_failed(api().run(host.policy, inputs, 1, &options, &output, &count), TRIAGE_ERROR_INPUT,
               {"param 'k' must be at most 5, got 6"});
}

TEST_CASE("scripts and files that are broken or missing") {
  const Host host;
  TriagePolicy* policy = nullptr;
  const std::string broken = "return function(";
  check_failed(api().load_source(host.runtime, broken.data(), broken.size(), "broken.lua", &policy), TRIAGE_ERROR_LOAD,
               {"broken.lua:1"});
  CHECK(std::string(api().last_error()->file) == "broken.lua");
  CHECK(api().last_error()->line == 1);
  check_failed(api().load_file(host.runtime, "/nowhere/x.lua", &policy), TRIAGE_ERROR_FILE, {"/nowhere/x.lua"});
  check_failed(api().load_source(host.runtime, "x", 1, "x.unknown", &policy), TRIAGE_ERROR_LOAD, {".unknown"});
  CHECK(policy == nullptr);
  TriageWatch* watch = nullptr;
  check_failed(api().watch(host.runtime, "/nowhere", nullptr, &watch), TRIAGE_ERROR_FILE, {"/nowhere"});
  CHECK(watch == nullptr);
  check_failed(api().rollback(host.policy, 7), TRIAGE_ERROR_INPUT, {"7"});
  check_failed(api().pin(host.policy, 7), TRIAGE_ERROR_INPUT, {"7"});
  check_failed(api().load_state(host.policy, "/nowhere/x.pt"), TRIAGE_ERROR_FILE, {"/nowhere/x.pt"});
}

TEST_CASE("data is no flags") {
  HostTensor z({1, 2}, {1, 2});
  z.count_frees();
  size_t count = 0;
  check_failed(api().read_flags(&z.managed, nullptr, &count), TRIAGE_ERROR_INPUT, {"flags"});
  HostTensor<int32_t> one({1, 2}, {2}, {kDLInt, 16, 1});
  check_failed(api().read_flags(&one.managed, nullptr, &count), TRIAGE_ERROR_INPUT, {"flags"});
  CHECK(z.freed == 0);
}

TEST_CASE("a status has a name, and a thread without a failure no error") {
  CHECK(std::string(api().status_name(TRIAGE_OK)) == "TRIAGE_OK");
  CHECK(std::string(api().status_name(TRIAGE_ERROR_OTHER)) == "TRIAGE_ERROR_OTHER");
  CHECK(std::string(api().status_name(99)) == "unknown status");
  CHECK(std::string(api().status_name(-1)) == "unknown status");
}

}  // namespace triage::test
