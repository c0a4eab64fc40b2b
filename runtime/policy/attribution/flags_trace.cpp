#include "runtime/policy/attribution/flags_trace.h"

#include <fmt/format.h>

#include <exception>

#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/printable.h"

namespace triage::policy {
namespace {

constexpr std::chrono::milliseconds pause{100};

std::string json_of(const flags::Summary& counts) {
  std::string json;
  for (const auto& [location, codes] : counts)
    for (const auto& [code, count] : codes)
      json += fmt::format("{}[{},{},{}]", json.empty() ? "" : ",", messages::json_text(location),
                          messages::json_text(code), count);
  return "[" + json + "]";
}

}  // namespace

void FlagsTrace::note(at::ArrayRef<at::Tensor> outputs, const std::vector<bool>& is_flags,
                      const CodeNames& codes) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (process_ != ::getpid()) {
      process_ = ::getpid();
      calls_ = samples_ = 0;
      counts_.clear();
    }
    const bool due = !told_ || Clock::now() - *told_ >= pause;
    ++calls_;
    for (size_t i = 0; i < outputs.size() && i < is_flags.size(); ++i)
      if (is_flags[i] && outputs[i].defined() && (due || outputs[i].is_cpu())) add(outputs[i], codes);
    if (due) write_locked();
  } catch (const std::exception&) {  // no flags of the configuration that holds now: a call between two reloads
  }
}

void FlagsTrace::add(const at::Tensor& f, const CodeNames& codes) {
  const flags::Summary found = flags::summary(f, {.codes = codes});
  samples_ += f.size(0);
  for (const auto& [location, codes] : found)
    for (const auto& [code, count] : codes) counts_[location][code] += count;
}

void FlagsTrace::flush() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (calls_ > 0 && process_ == ::getpid()) write_locked();
  } catch (const std::exception&) {  // no memory for a statistic
  }
}

void FlagsTrace::write_locked() {
  messages::trace([&] {
    return messages::TraceEvent("flags")
        .text("policy", policy_)
        .number("calls", calls_)
        .number("samples", samples_)
        .json("counts", json_of(counts_));
  });
  told_ = Clock::now();
  calls_ = samples_ = 0;
  counts_.clear();
}

}  // namespace triage::policy
