#pragma once
#include <ATen/core/Tensor.h>
#include <triage/error.h>

#include <utility>
#include <vector>

namespace triage::capture {

/// Where a script read what a graph is always guarded for. Nowhere: it did not, or not by name.
struct KindLines {
  Source rank, dtype;
};

/// While alive, notes which lines of the script read the rank and dtype of the inputs of a capture on this thread.
class KindReads {
 public:
  /// `inputs`: as the script has them.
  explicit KindReads(at::ArrayRef<at::Tensor> inputs);
  ~KindReads();
  KindReads(const KindReads&) = delete;
  KindReads& operator=(const KindReads&) = delete;

  /// By input; none where no line is known.
  std::vector<KindLines> take();

  static void note_rank(const at::Tensor& tensor) { note(tensor, &KindLines::rank); }
  static void note_dtype(const at::Tensor& tensor) { note(tensor, &KindLines::dtype); }

 private:
  static void note(const at::Tensor& tensor, Source KindLines::*read);

  at::ArrayRef<at::Tensor> inputs_;
  std::vector<KindLines> lines_;
  KindReads* previous_;
};

}  // namespace triage::capture
