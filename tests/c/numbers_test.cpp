// Every number that a host passes in a struct is tried at the ends of its type: the call works, with the right answer,
// or fails with an error of the host; and the next call works. The list of numbers is that of the header.
#include <functional>
#include <limits>

#include "host.h"
#include "tests/numeric_fields.h"
#include "tests/paths.h"

namespace triage::test {
namespace {

const std::string source = repair_source;

/// Structs that the library fills, but for their `size`.
bool is_result(const std::string& field) {
  static const std::set<std::string> results = {
      "TriageError",         "TriageLogRecord",       "TriageRunInfo",       "TriageFlag",
      "TriageVersion",       "TriageStatistics",      "TriageWatchEvent",    "TriageApi",
      "TriageCandidateSide", "TriageCandidateReport", "TriageBundleVersion", "TriageFunctionCall"};
  const size_t colon = field.find("::");
  if (results.count(field.substr(0, colon)) == 0) return false;
  return field.substr(colon) != "::size" || field == "TriageFunctionCall::size";  // that one it sets, too
}

/// What a call may say to a number: that it is wrong, or that a limit so small is met.
void check_told(TriageStatus status) {
  const bool told = status == TRIAGE_ERROR_ARGUMENT || status == TRIAGE_ERROR_INPUT || status == TRIAGE_ERROR_CONFIG ||
                    status == TRIAGE_ERROR_LIMIT || status == TRIAGE_ERROR_LOAD || status == TRIAGE_ERROR_POLICY;
  CHECK_MESSAGE(told, api().status_name(status) << ": " << last_message());
  CHECK(last_message().size() > 20);
}

struct Batch {
  HostTensor<> z{{1, NAN, 3, 4}, {2, 2}};
  DLManagedTensor* inputs[1] = {&z.managed};
};

void check_outputs(DLManagedTensor** outputs, size_t count) {
  REQUIRE(count == 2);
  const Output z(outputs[0]), flags(outputs[1]);
  CHECK(z.values() == std::vector<float>{0, 0, 3, 4});
}

TriageStatus run_of(TriagePolicy* policy, const TriageRunOptions* options = nullptr, DLManagedTensor* input = nullptr) {
  Batch batch;
  if (input) batch.inputs[0] = input;
  DLManagedTensor* outputs[2];
  size_t count = 2;
  const TriageStatus status = api().run(policy, batch.inputs, 1, options, outputs, &count);
  if (status != TRIAGE_OK) check_told(status);
  if (status == TRIAGE_OK && !input) check_outputs(outputs, count);
  if (status == TRIAGE_OK && input)
    for (DLManagedTensor* output : outputs) api().free_tensor(output);
  return status;
}

/// A host that lives as usual: loads, calls, changes the policy, calls again.
TriageStatus live(const TriageRuntimeOptions& given) {
  TriageRuntimeOptions options = given;
  options.log = [](const TriageLogRecord*, void*) {};
  TriageRuntime* runtime = nullptr;
  TriagePolicy* policy = nullptr;
  TriageStatus status = api().create_runtime(&options, &runtime);
  if (status == TRIAGE_OK) status = api().load_source(runtime, source.data(), source.size(), "p.lua", &policy);
  for (int version = 0; status == TRIAGE_OK && version < 2; ++version) {
    for (int i = 0; status == TRIAGE_OK && i < 2; ++i) status = run_of(policy);
    const std::string next = source + std::string(static_cast<size_t>(version) + 1, '\n');
    int32_t result = -1;
    if (status == TRIAGE_OK) status = api().replace(policy, next.data(), next.size(), &result);
    if (status == TRIAGE_OK) CHECK(result == TRIAGE_RELOAD_SWAPPED);
  }
  if (status != TRIAGE_OK) check_told(status);
  check_ok(api().free_policy(policy));
  check_ok(api().free_runtime(runtime));
  return status;
}

const Host& host() {
  static const Host& one = *new Host;
  return one;
}

TriageStatus live(const TriageRunOptions& options) {
  const TriageStatus status = run_of(host().policy, &options);
  CHECK(run_of(host().policy) == TRIAGE_OK);
  return status;
}

TriageStatus live(const TriageParam& param) {
  const TriageStatus status = api().set_param(host().policy, &param);
  if (status != TRIAGE_OK) check_told(status);
  const double usual = 0;
  const TriageParam back = {"fallback", TRIAGE_PARAM_NUMBER, 0, usual, nullptr, nullptr, 0, nullptr};
  CHECK(api().set_param(host().policy, &back) == TRIAGE_OK);
  CHECK(run_of(host().policy) == TRIAGE_OK);
  return status;
}

TriageStatus live(const TriageWatchOptions& options) {
  TriageWatch* watch = nullptr;
  const TriageStatus status = api().watch(host().runtime, (source_dir() + "/tests/c").c_str(), &options, &watch);
  if (status == TRIAGE_OK)
    check_ok(api().rescan(watch));
  else
    check_told(status);
  check_ok(api().free_watch(watch));
  return status;
}

TriageStatus live(const TriageDecisionLogOptions& given) {
  TriageDecisionLogOptions options = given;
  options.on_line = [](const char*, size_t, void*) {};
  TriageRuntimeOptions with = {};
  with.size = sizeof with;
  with.decisions = &options;
  return live(with);
}

/// A candidate for a call, with what the host says of its end.
template <class Start>
TriageStatus live_with_candidate(const Start& start) {
  const std::string next = source + "\n-- next";
  const TriageStatus status = start(host().policy, next);
  if (status != TRIAGE_OK) check_told(status);
  CHECK(run_of(host().policy) == TRIAGE_OK);
  if (status == TRIAGE_OK) check_ok(api().end_candidate(host().policy, nullptr));
  return status;
}
TriageStatus live(const TriageShadowOptions& options) {
  return live_with_candidate([&](TriagePolicy* policy, const std::string& next) {
    return api().shadow_source(policy, next.data(), next.size(), &options, nullptr);
  });
}
TriageStatus live(const TriageCanaryOptions& given) {
  TriageCanaryOptions options = given;
  if (options.promote_after == 0) options.promote_after = -1;  // it must be there to be ended
  return live_with_candidate([&](TriagePolicy* policy, const std::string& next) {
    return api().canary_source(policy, next.data(), next.size(), &options, nullptr);
  });
}

TriageStatus live(const TriageFunctionOptions& options) {
  const TriageStatus status = api().define_function(
      host().runtime, "unused", [](TriageFunctionCall*, void*) {}, nullptr, &options);
  if (status != TRIAGE_OK) check_told(status);
  return status;
}
TriageStatus live(const TriageModuleOptions& options) {
  const TriageStatus status =
      api().define_module(host().runtime, "unused", (source_dir() + "/tests/data/none.pt").c_str(), &options);
  const bool is_choice = options.training == 0 || options.training == 1;
  CHECK(status == (options.size == sizeof options && is_choice ? TRIAGE_ERROR_FILE : TRIAGE_ERROR_ARGUMENT));
  return status;
}

/// A tensor with one wrong field; its memory is that of `Batch`.
template <class Change>
TriageStatus live_with_tensor(const Change& change) {
  Batch batch;
  DLManagedTensor changed = batch.z.managed;
  change(changed.dl_tensor);
  const TriageStatus status = run_of(host().policy, nullptr, &changed);
  size_t count = 0;
  const TriageStatus read = api().read_flags(&changed, nullptr, &count);
  if (read != TRIAGE_OK) check_told(read);
  CHECK(run_of(host().policy) == TRIAGE_OK);
  return status;
}

template <class Struct>
Struct plain() {
  Struct made{};
  if constexpr (requires { made.size; }) made.size = sizeof made;
  return made;
}
template <>
TriageParam plain() {
  return {"fallback", TRIAGE_PARAM_NUMBER, 0, 0, nullptr, nullptr, 0, nullptr};
}

struct Row {
  const char* field;
  std::function<void(bool none_beyond)> try_ends;
  bool largest_is_no_limit = false;
};

template <class Number, class Live>
void try_ends(bool largest_is_no_limit, const Live& live_with) {
  for (const Number value : ends_of<Number>()) {
    CAPTURE(+value);
    const TriageStatus status = live_with(value);
    if (largest_is_no_limit && value > 0 && value >= Number(std::numeric_limits<int32_t>::max()))
      CHECK(status == TRIAGE_OK);
  }
}

#define OF(STRUCT, FIELD)                                                                                    \
  {                                                                                                          \
#STRUCT "::" #FIELD, [](bool no_limit) {                                                                   \
      try_ends<decltype(STRUCT::FIELD)>(no_limit, [](auto value) {                                             \
        STRUCT given = plain<STRUCT>();                                                                        \
        given.FIELD = value;                                                                                   \
        return live(given);                                                                                    \
      });                                                                                                      \
    } \
  }
#define LIMIT(STRUCT, FIELD)        \
  [] {                              \
    Row row = OF(STRUCT, FIELD);    \
    row.largest_is_no_limit = true; \
    return row;                     \
  }()
#define OF_TENSOR(FIELD, MEMBER)                                                                                 \
  {                                                                                                              \
    FIELD, [](bool) {                                                                                            \
      try_ends<decltype(DLTensor::MEMBER)>(                                                                      \
          false, [](auto value) { return live_with_tensor([&](DLTensor& tensor) { tensor.MEMBER = value; }); }); \
    }                                                                                                            \
  }
#define OF_RESULT(STRUCT, CALL)                                                                              \
  {                                                                                                          \
#STRUCT "::size", [](bool) {                                                                               \
      try_ends<size_t>(false, [](size_t value) {                                                               \
        STRUCT given{};                                                                                        \
        given.size = value;                                                                                    \
        const TriageStatus status = CALL;                                                                      \
        if (status != TRIAGE_OK) check_told(status);                                                           \
        return status;                                                                                         \
      });                                                                                                      \
    } \
  }

TriageStatus run_with(TriageRunInfo& info) {
  TriageRunOptions options = plain<TriageRunOptions>();
  options.info = &info;
  return run_of(host().policy, &options);
}

std::vector<Row> rows() {
  return {
      OF(TriageRuntimeOptions, size),
      OF(TriageRuntimeOptions, kernel_count),
      OF(TriageRuntimeOptions, compiler),
      OF(TriageRuntimeOptions, on_error),
      OF(TriageRuntimeOptions, trusted),
      OF(TriageRuntimeOptions, fullgraph),
      OF(TriageRuntimeOptions, skip_flag_counts),
      OF(TriageRuntimeOptions, reserved),
      LIMIT(TriageRuntimeOptions, keep_versions),
      LIMIT(TriageRuntimeOptions, trial_calls),
      LIMIT(TriageRuntimeOptions, failures_to_revert),
      LIMIT(TriageRuntimeOptions, state_keys),
      LIMIT(TriageRuntimeOptions, state_age_seconds),
      LIMIT(TriageRuntimeOptions, max_instructions),
      LIMIT(TriageRuntimeOptions, max_seconds),
      LIMIT(TriageRuntimeOptions, max_script_bytes),
      LIMIT(TriageRuntimeOptions, max_tensor_bytes),
      OF(TriageRuntimeOptions, masked_rows),
      OF(TriageRuntimeOptions, reserved_2),
      LIMIT(TriageRuntimeOptions, trial_seconds),
      LIMIT(TriageRuntimeOptions, reload_latency_ratio),
      OF(TriageRuntimeOptions, on_slow_reload),
      OF(TriageRuntimeOptions, on_new_graph_breaks),
      OF(TriageParam, kind),
      OF(TriageParam, integer),
      OF(TriageParam, number),
      OF(TriageParam, count),
      OF(TriageRunOptions, size),
      OF(TriageRunOptions, param_count),
      OF(TriageRunOptions, donate_count),
      LIMIT(TriageRunOptions, timeout_ns),
      OF(TriageRunOptions, on_error),
      OF(TriageRunOptions, reserved),
      OF(TriageRunOptions, sample_id_count),
      OF(TriageWatchOptions, size),
      LIMIT(TriageWatchOptions, debounce_ms),
      LIMIT(TriageWatchOptions, poll_ms),
      OF(TriageDecisionLogOptions, size),
      LIMIT(TriageDecisionLogOptions, max_file_bytes),
      OF(TriageDecisionLogOptions, max_files),
      OF(TriageDecisionLogOptions, clean_share),
      OF(TriageDecisionLogOptions, queue_records),
      OF(TriageDecisionLogOptions, max_samples),
      OF(TriageDecisionLogOptions, at_once),
      OF(TriageDecisionLogOptions, skip_events),
      OF(TriageDecisionLogOptions, drop_count),
      OF(TriageDecisionLogOptions, mask_count),
      OF(TriageShadowOptions, size),
      OF(TriageShadowOptions, share),
      LIMIT(TriageShadowOptions, queue),
      LIMIT(TriageShadowOptions, queue_bytes),
      OF(TriageShadowOptions, tolerance),
      OF(TriageShadowOptions, examples),
      OF(TriageCanaryOptions, size),
      OF(TriageCanaryOptions, share),
      OF(TriageCanaryOptions, promote_after),
      LIMIT(TriageCanaryOptions, failures),
      LIMIT(TriageCanaryOptions, flagged_ratio),
      LIMIT(TriageCanaryOptions, p99_ratio),
      LIMIT(TriageCanaryOptions, min_calls),
      LIMIT(TriageCanaryOptions, min_samples),
      OF(TriageFunctionOptions, size),
      OF(TriageFunctionOptions, pure),
      OF(TriageFunctionOptions, reserved),
      OF(TriageModuleOptions, size),
      OF(TriageModuleOptions, training),
      OF(TriageModuleOptions, reserved),
      OF_RESULT(TriageRunInfo, run_with(given)),
      OF_RESULT(TriageCandidateReport, api().candidate(host().policy, &given)),
      OF_RESULT(TriageBundleVersion, api().bundle_version(nullptr, &given)),
      OF_RESULT(TriageVersion, api().version(host().policy, &given)),
      OF_RESULT(TriageStatistics, api().statistics(host().policy, &given)),
      OF_TENSOR("DLDevice::device_id", device.device_id),
      OF_TENSOR("DLDataType::code", dtype.code),
      OF_TENSOR("DLDataType::bits", dtype.bits),
      OF_TENSOR("DLDataType::lanes", dtype.lanes),
      OF_TENSOR("DLTensor::ndim", ndim),
      OF_TENSOR("DLTensor::byte_offset", byte_offset),
  };
}

}  // namespace

TEST_CASE("every number in a struct of the header is tried at its ends") {
  Fields untried = numeric_fields(std::filesystem::path(source_dir()) / "bindings/c/include/triage_c.h");
  REQUIRE(untried.size() > 60);
  std::erase_if(untried, is_result);
  for (const Row& row : rows()) {
    CAPTURE(std::string(row.field));
    CHECK_MESSAGE(untried.erase(row.field) == 1, "the header has no such number");
    row.try_ends(row.largest_is_no_limit);
  }
  for (const std::string& field : untried) CHECK_MESSAGE(false, field << " has no row");
}

TEST_CASE("sizes and strides of a tensor at their ends") {
  for (const int64_t value : ends_of<int64_t>())
    for (const bool is_stride : {false, true})
      for (const int dim : {0, 1}) {
        CAPTURE(value);
        int64_t shape[] = {2, 2}, strides[] = {2, 1};
        (is_stride ? strides : shape)[dim] = value;
        const bool fits = value == 0 || value == 1;  // others would have more elements than the memory
        const TriageStatus status = live_with_tensor([&](DLTensor& tensor) {
          tensor.shape = shape;
          tensor.strides = is_stride ? strides : nullptr;
          if (!fits) tensor.byte_offset = UINT64_MAX - 3;  // never to be read
        });
        CHECK((status == TRIAGE_OK) == fits);
      }
}

TEST_CASE("a tensor whose memory would lie beyond the end of all memory") {
  for (const uint64_t offset : {uint64_t{1} << 63, (uint64_t{1} << 63) + 4, UINT64_MAX - 3, uint64_t{1} << 62}) {
    CAPTURE(offset);
    CHECK(live_with_tensor([&](DLTensor& tensor) { tensor.byte_offset = offset; }) == TRIAGE_ERROR_ARGUMENT);
    CHECK(last_message().size() > 20);
  }
}

TEST_CASE("a count without its array, and a tensor with elements without memory") {
  CHECK(live_with_tensor([](DLTensor& tensor) { tensor.data = nullptr; }) == TRIAGE_ERROR_ARGUMENT);
  CHECK(live_with_tensor([](DLTensor& tensor) { tensor.shape = nullptr; }) == TRIAGE_ERROR_ARGUMENT);
  CHECK(live_with_tensor([](DLTensor& tensor) { tensor.device.device_type = static_cast<DLDeviceType>(77); }) ==
        TRIAGE_ERROR_ARGUMENT);
}

}  // namespace triage::test
