#pragma once
#include <doctest/doctest.h>
#include <triage_c.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

/// What the tests of the C interface need as its hosts.
namespace triage::test {

inline const TriageApi& api() { return *triage_get_api(TRIAGE_C_VERSION); }

/// A tensor of the host, without a deleter.
template <class T = float>
struct HostTensor {
  std::vector<T> data;
  std::vector<int64_t> shape, strides;
  int freed = 0;
  DLManagedTensor managed = {};

  HostTensor(std::vector<T> values, std::vector<int64_t> sizes, DLDataType dtype = {kDLFloat, 32, 1})
      : data(std::move(values)), shape(std::move(sizes)) {
    managed.dl_tensor = {data.data(), {kDLCPU, 0}, static_cast<int32_t>(shape.size()), dtype, shape.data(), nullptr, 0};
  }
  /// With a deleter, which counts. It must not be kept by a script then, which may free it later than this lives.
  void count_frees() {
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) { ++static_cast<HostTensor*>(self->manager_ctx)->freed; };
  }
  HostTensor(const HostTensor&) = delete;
  HostTensor& operator=(const HostTensor&) = delete;
  void set_strides(std::vector<int64_t> given) {
    strides = std::move(given);
    managed.dl_tensor.strides = strides.data();
  }
};

/// Frees it at the end of the scope.
struct Output {
  DLManagedTensor* tensor = nullptr;
  explicit Output(DLManagedTensor* given) : tensor(given) {}
  Output(Output&& other) noexcept : tensor(std::exchange(other.tensor, nullptr)) {}
  Output& operator=(Output&&) = delete;
  ~Output() { api().free_tensor(tensor); }

  std::vector<int64_t> shape() const {
    return {tensor->dl_tensor.shape, tensor->dl_tensor.shape + tensor->dl_tensor.ndim};
  }
  /// Of a dense tensor.
  template <class T = float>
  std::vector<T> values() const {
    size_t count = 1;
    for (const int64_t size : shape()) count *= static_cast<size_t>(size);
    const auto* first =
        reinterpret_cast<const T*>(static_cast<const char*>(tensor->dl_tensor.data) + tensor->dl_tensor.byte_offset);
    return {first, first + count};
  }
};

inline std::string last_message() { return api().last_error()->message; }

/// The call failed with `status`, and its message has all of `texts`.
inline void check_failed(TriageStatus got, TriageStatus status, const std::vector<std::string>& texts) {
  const std::string message = last_message();
  CAPTURE(message);
  CHECK(std::string(api().status_name(got)) == api().status_name(status));
  CHECK(api().last_error()->status == status);
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(message.find(text) != std::string::npos);
  }
}

inline void check_ok(TriageStatus status) {
  const std::string message = status == TRIAGE_OK ? "" : last_message();
  CHECK_MESSAGE(status == TRIAGE_OK, message);
}

constexpr const char* repair_source =
    "return policy { name = 'repair', inputs = { 'z' }, outputs = { 'z', 'flags' },\n"
    "  params = { fallback = 0.0 },\n"
    "  run = function(z, p) return fix(z, flag_nan(z, 'logits'), 'logits', { fallback = p.fallback }) end }";

/// A runtime that logs nothing, with one policy.
struct Host {
  TriageRuntime* runtime = nullptr;
  TriagePolicy* policy = nullptr;

  explicit Host(const std::string& source = repair_source, TriageRuntimeOptions options = {}) {
    options.size = sizeof options;
    if (!options.log) options.log = [](const TriageLogRecord*, void*) {};
    check_ok(api().create_runtime(&options, &runtime));
    check_ok(api().load_source(runtime, source.data(), source.size(), "repair.lua", &policy));
    REQUIRE(policy);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() {
    check_ok(api().free_policy(policy));
    check_ok(api().free_runtime(runtime));
  }

  /// One call that is to succeed.
  std::vector<Output> run(std::vector<DLManagedTensor*> inputs, const TriageRunOptions* options = nullptr) const {
    std::vector<DLManagedTensor*> room(8);
    size_t count = room.size();
    check_ok(api().run(policy, inputs.data(), inputs.size(), options, room.data(), &count));
    std::vector<Output> outputs;
    for (size_t i = 0; i < count; ++i) outputs.emplace_back(room[i]);
    return outputs;
  }
  /// Captures for such an input, so that no script runs later, which would keep the input until its garbage is
  /// collected.
  void warm_up(DLManagedTensor input, const TriageRunOptions* options = nullptr) const {
    input.deleter = nullptr;
    DLManagedTensor* inputs[] = {&input};
    check_ok(api().prepare(policy, inputs, 1, options));
  }
  /// One call that is to fail with a misuse.
  void misuse(std::vector<DLManagedTensor*> inputs, const std::vector<std::string>& texts,
              const TriageRunOptions* options = nullptr) const {
    std::vector<DLManagedTensor*> room(8);
    size_t count = room.size();
    check_failed(api().run(policy, inputs.data(), inputs.size(), options, room.data(), &count), TRIAGE_ERROR_ARGUMENT,
                 texts);
    CHECK(count == 0);
    for (const DLManagedTensor* output : room) CHECK(output == nullptr);
  }
  int replace(const std::string& source) const {
    int32_t result = -1;
    check_ok(api().replace(policy, source.data(), source.size(), &result));
    return result;
  }
};

}  // namespace triage::test
