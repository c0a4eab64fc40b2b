#include "runtime/messages/profiling/profiler_spans.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "runtime/messages/printable.h"

namespace triage::messages {

bool read_spans_environment() noexcept {
  const char* const value = std::getenv("TRIAGE_PROFILER_SPANS");
  const bool on = value && *value && std::string_view(value) != "0";
  SpansState expected = SpansState::unread;  // who has set it meanwhile knows better
  spans_state.compare_exchange_strong(expected, on ? SpansState::on : SpansState::off);
  return spans_state.load(std::memory_order_relaxed) == SpansState::on;
}

void set_profiler_spans(bool on) noexcept { spans_state = on ? SpansState::on : SpansState::off; }

at::RecordFunction* ProfilerSpan::begin() noexcept {
  constexpr auto scope = at::RecordScope::USER_SCOPE;  // as torch.profiler.record_function has it
  auto listeners = at::getStepCallbacksUnlessEmpty(scope);
  return listeners ? new (std::nothrow) at::RecordFunction(std::move(*listeners)) : nullptr;
}

/// Profilers write names into JSON, some as they are.
void ProfilerSpan::enter(at::RecordFunction& span, const std::string& name) {
  std::string plain = "triage::" + one_line(name);
  std::replace(plain.begin(), plain.end(), '"', '\'');
  std::replace(plain.begin(), plain.end(), '\\', '/');
  span.before(std::move(plain));
}

void ProfilerSpan::end(at::RecordFunction* span) noexcept { delete span; }

}  // namespace triage::messages
