#include "runtime/capture/recording/kind_reads.h"

#include "runtime/capture/context.h"
#include "runtime/capture/graph_break.h"
#include "runtime/capture/recording/recorder.h"

#include <algorithm>
#include <utility>

namespace triage::capture {

KindReads::KindReads(at::ArrayRef<at::Tensor> inputs)
    : inputs_(inputs), lines_(inputs.size()), previous_(std::exchange(context.kind_reads, this)) {}
KindReads::~KindReads() { context.kind_reads = previous_; }

std::vector<KindLines> KindReads::take() {
  const auto is_known = [](const KindLines& lines) { return !lines.rank.file.empty() || !lines.dtype.file.empty(); };
  const bool any = std::any_of(lines_.begin(), lines_.end(), is_known);
  return any ? std::move(lines_) : std::vector<KindLines>();
}

void KindReads::note(const at::Tensor& tensor, Source KindLines::*read) {
  KindReads* const reads = context.kind_reads;
  if (!reads || !Recorder::current()) return;
  for (size_t i = 0; i < reads->inputs_.size(); ++i) {
    if (!reads->inputs_[i].is_same(tensor)) continue;
    Source& line = reads->lines_[i].*read;  // the first
    if (line.file.empty()) line = ScriptScope::line();
    return;
  }
}

}  // namespace triage::capture
