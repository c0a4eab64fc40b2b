#include "runtime/capture/kind_reads.h"

#include "runtime/capture/graph_break.h"
#include "runtime/capture/recorder.h"

#include <algorithm>
#include <utility>

namespace triage::capture {

KindReads::KindReads(at::ArrayRef<at::Tensor> inputs)
    : inputs_(inputs), lines_(inputs.size()), previous_(std::exchange(current_, this)) {}
KindReads::~KindReads() { current_ = previous_; }

std::vector<KindLines> KindReads::take() {
  const auto is_known = [](const KindLines& lines) { return !lines.rank.file.empty() || !lines.dtype.file.empty(); };
  const bool any = std::any_of(lines_.begin(), lines_.end(), is_known);
  return any ? std::move(lines_) : std::vector<KindLines>();
}

void KindReads::note(const at::Tensor& tensor, Source KindLines::*read) {
  if (!current_ || !Recorder::current()) return;
  for (size_t i = 0; i < current_->inputs_.size(); ++i) {
    if (!current_->inputs_[i].is_same(tensor)) continue;
    Source& line = current_->lines_[i].*read;  // the first
    if (line.file.empty()) line = ScriptScope::line();
    return;
  }
}

}  // namespace triage::capture
