#pragma once
#include <triage/compiler_config.h>
#include <triage/front_end.h>

#include <optional>
#include <string>

#include "runtime/capture/cache/entry_cache.h"

namespace triage::capture {

struct CompileOptions;

/// What is said of calls that no graph fits, and that there are too many of them. For the thread that runs the script.
class Recompiles {
 public:
  Recompiles(const Script& script, const CompileOptions& options, const EntryCache& entries)
      : script_(script), options_(options), entries_(entries) {}
  void report(at::ArrayRef<at::Tensor> all, Stance stance) const;
  /// Why the newest graph does not fit; empty where there is none.
  std::string last_reason(at::ArrayRef<at::Tensor> all) const;
  /// Why no further graph may be made, where none may.
  struct RecompileLimit {
    std::string text;     // "the limit of 8 captured graphs"
    const char* setting;  // that raises it
  };
  std::optional<RecompileLimit> limit_reached() const;
  /// A call met it: counts, and warns once, or throws.
  void report_limit(const RecompileLimit& limit, at::ArrayRef<at::Tensor> all) const;

 private:
  std::string why_not(const CacheEntry& entry, at::ArrayRef<at::Tensor> all) const;

  const Script& script_;
  const CompileOptions& options_;
  const EntryCache& entries_;
};

}  // namespace triage::capture
