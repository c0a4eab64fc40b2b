#pragma once
// Every operation exists twice: as the registered kernel, and as its composite of ATen calls, which other devices run.
// Tests run all.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>
#include <runtime/flags/composites/composite.h>
#include <triage/flags.h>

#include "tests/other_device.h"

#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

namespace triage::test {

using at::Tensor;
using c10::IValue;

inline constexpr float NaN = std::numeric_limits<float>::quiet_NaN(), Inf = std::numeric_limits<float>::infinity();
inline constexpr double NAN_VALUE = NaN, INF_VALUE = Inf;

enum class Level { kernel, composite, other_device };
inline constexpr Level LEVELS[] = {Level::kernel, Level::composite, Level::other_device};

/// A slot as layout.h defines it, written plainly.
inline int severity_of(uint16_t slot) { return slot & 3; }
inline int code_of(uint16_t slot) { return slot >> 2 & 15; }
inline int location_of(uint16_t slot) { return slot >> 6; }

inline std::vector<IValue> run_all(Level level, const std::string& name, std::vector<IValue> arguments) {
  if (level == Level::composite) {
    const auto* composite = flags::find_composite("triage::" + name);
    REQUIRE(composite != nullptr);
    (*composite)(arguments);
    return arguments;
  }
  if (level == Level::other_device)
    for (IValue& argument : arguments)
      if (argument.isTensor()) argument = to_other(argument.toTensor());
  const auto dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(("triage::" + name.substr(0, dot)).c_str(), overload.c_str());
  if (level == Level::kernel) {
    op.callBoxed(&arguments);
    return arguments;
  }
  const Calls calls = calls_of([&] { op.callBoxed(&arguments); });
  CHECK_MESSAGE(calls.waits.empty(), name << " waits for the device: " << listed(calls.waits));
  for (IValue& result : arguments)
    if (result.isTensor()) result = from_other(result.toTensor());
  return arguments;
}

inline Tensor run(Level level, const std::string& name, std::vector<IValue> arguments) {
  auto results = run_all(level, name, std::move(arguments));
  REQUIRE(results.size() == 1);
  return results[0].toTensor();
}

/// Equal in dtype, shape and every bit.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const auto x = a.detach().contiguous();
  const auto y = b.detach().contiguous();
  return x.numel() == 0 ||
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}

/// Equal where neither is NaN, and NaN at the same places.
inline bool same_values(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::allclose(a, b, 0, 0, /*equal_nan=*/true);
}

/// The message of the error that `call` throws; empty where it throws none.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

inline void check_refused(const std::string& message, std::initializer_list<const char*> parts) {
  CHECK_MESSAGE(!message.empty(), "nothing was thrown");
  for (const char* part : parts)
    CHECK_MESSAGE(message.find(part) != std::string::npos, "`" << std::string(part) << "` not in: " << message);
}

inline const std::vector<at::ScalarType> CARRIERS = {at::kLong, at::kInt, at::kFloat, at::kDouble};

inline ErrorConfig make_config(int64_t num_slots, at::ScalarType carrier = at::kLong, AccumulationConfig policy = {}) {
  ErrorConfig config;
  config.num_slots = num_slots;
  config.flag_dtype = carrier;
  config.accumulation = policy;
  return config;
}

/// All 24 accumulation policies.
inline std::vector<AccumulationConfig> policies() {
  std::vector<AccumulationConfig> all;
  for (int p = 0; p < 3; ++p) {
    for (int o = 0; o < 2; ++o) {
      for (int d = 0; d < 4; ++d)
        all.push_back({static_cast<Priority>(p), static_cast<Order>(o), static_cast<Dedupe>(d)});
    }
  }
  return all;
}

/// Flags from slots, one list a sample (the rest of each record is empty).
inline Tensor flags_of(const std::vector<std::vector<uint16_t>>& samples, const ErrorConfig& config) {
  NewOptions options;
  options.config = config;
  auto f = err::new_t(static_cast<int64_t>(samples.size()), options);
  const int64_t width = config.num_words() * config.slots_per_word();
  for (size_t i = 0; i < samples.size(); ++i) {
    REQUIRE(samples[i].size() <= static_cast<size_t>(width));
    if (samples[i].empty()) continue;
    std::memcpy(static_cast<uint16_t*>(f.data_ptr()) + static_cast<int64_t>(i) * width, samples[i].data(),
                samples[i].size() * sizeof(uint16_t));
  }
  return f;
}

}  // namespace triage::test
