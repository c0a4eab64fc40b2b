#include "tests/fuzz/operators/large_calls.h"

#include "tests/fuzz/operators/arguments.h"
#include "tests/fuzz/operators/fenced_allocator.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/operators/call.h"
#include "runtime/operators/semantics.h"

namespace triage::fuzz {
namespace {

constexpr int64_t least_given = 1 << 20, most_given = 32 << 20;
constexpr int64_t most_nanoseconds = 2'000'000'000, most_bytes = int64_t{2} << 30;

/// Of narrow ones as if they were float32, which most are computed in.
int64_t bytes_given(const torch::jit::Stack& arguments) {
  int64_t bytes = 0;
  operators::for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    bytes += tensor.numel() * std::max<int64_t>(4, static_cast<int64_t>(tensor.element_size()));
  });
  return bytes;
}

std::optional<LargeCall> large_call(const Target& target, Random& random) {
  LargeCall call;
  call.plain = random.percent(50);
  const torch::jit::Stack arguments =
      make_arguments(target.op.schema(), random, call.plain ? Reach::large_plain : Reach::large);
  call.given = bytes_given(arguments);
  if (call.given > most_given || target.violation(arguments)) return std::nullopt;
  call.bound = target.allocation_bound(arguments);
  call.time_bound = target.time_bound(arguments);
  if (call.bound > most_bytes || call.time_bound > most_nanoseconds) return std::nullopt;
  FencedAllocator& memory = FencedAllocator::install();
  torch::jit::Stack stack = arguments;
  memory.begin();
  const uint64_t start = cpu_nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
  try {
    target.op.callBoxed(stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  call.nanoseconds = static_cast<int64_t>(cpu_nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - start);
  call.peak = static_cast<int64_t>(memory.highest());
  if (std::max(call.given, call.peak) < least_given) return std::nullopt;
  call.arguments = describe_arguments(target.op.schema(), arguments);
  return call;
}

}  // namespace

std::vector<LargeCall> large_calls(const Target& target, int64_t count, uint64_t seed) {
  constexpr int64_t tries = 90;
  Random random(seed ^ std::hash<std::string>()(target.name));
  std::vector<LargeCall> calls;
  for (int64_t i = 0; i < tries && static_cast<int64_t>(calls.size()) < count; ++i)
    if (auto call = large_call(target, random)) calls.push_back(std::move(*call));
  return calls;
}

bool has_wide_bound(const Target& target) {
  using operators::Semantics;
  if (operators::semantics_of(target.op).has(Semantics::dynamic | Semantics::dynamic_by_mask)) return true;
  const std::string& name = target.op.schema().name();
  const auto is = [&](std::string_view begin) { return name.rfind(begin, 0) == 0; };
  // By columns or by oneDNN; by sorting or by comparing; one LibTorch copies
  // more than another; flags whose rows are known are not compared again.
  return is("aten::conv") || is("aten::isin") || is("aten::quantile") || is("aten::nanquantile") ||
         is("aten::repeat_interleave") || is("aten::lstm") || is("aten::gru") || is("aten::rnn") ||
         is("triage::match") || is("triage::fix");
}

double excess_of_bytes(const LargeCall& call) {
  return static_cast<double>(call.bound) / static_cast<double>(std::max({call.peak, call.given, least_given}));
}

double excess_of_time(const LargeCall& call) {
  constexpr double nanoseconds_a_byte = 0.25;
  const double read = nanoseconds_a_byte * static_cast<double>(std::max(call.given, call.peak));
  return static_cast<double>(call.time_bound) / std::max(static_cast<double>(call.nanoseconds), read);
}

}  // namespace triage::fuzz
