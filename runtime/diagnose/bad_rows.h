#pragma once
#include <ATen/core/Tensor.h>
#include <triage/provenance.h>

#include <map>
#include <set>
#include <string>
#include <vector>

/// Which operation made which sample bad: what both forms of `provenance` keep while they run.
namespace triage::diagnose {

/// What is bad in one or several tensors. Masks are bool `(N,)` on the CPU; undefined: nothing is.
struct BadRows {
  at::Tensor nan, any;     // samples with a NaN; with a NaN or Inf
  bool per_sample = true;  // false: a bad value without samples in front took part, which concerns all of them
  bool is_bad() const { return any.defined(); }
  void add(const BadRows& other);
};

class Trail {
 public:
  explicit Trail(int64_t samples) : samples_(samples) {}

  /// What is bad in a tensor. `varies`: it depends on the inputs; what does not (a weight) has no samples in front, however
  /// many rows it has.
  BadRows bad_rows(const at::Tensor& tensor, bool varies) const;
  void note_input(const std::string& name, const at::Tensor& tensor);
  void note_held(const std::string& name, const at::Tensor& tensor);
  void note_output(const std::string& name, const BadRows& bad);
  /// One run of operation `index` (in the order in which they stand), which `like` describes.
  void note_operation(size_t index, const Producer& like, const BadRows& read, const BadRows& made);
  Provenance finish() &&;

 private:
  struct Ran {
    Producer like;
    at::Tensor nan, inf;  // samples that it made bad; those with a NaN are not in `inf`
    bool per_sample = true, has_bad = false, produced = false;
  };
  void add_producers(const Producer& like, const at::Tensor& nan, const at::Tensor& inf, bool per_sample);

  int64_t samples_;
  Provenance result_;
  std::map<size_t, Ran> operations_;
};

}  // namespace triage::diagnose
