#pragma once
#include <ATen/core/Tensor.h>
#include <triage/provenance.h>

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

/// Which operation made which sample bad: what both forms of `provenance` keep while they run.
namespace triage::diagnose {

enum BadKind : uint8_t { is_nan, is_inf };
inline constexpr BadKind bad_kinds[] = {is_nan, is_inf};

/// Who produced an Inf, and the samples that have it: bool `(N,)` on the CPU.
using Origins = std::map<std::string, at::Tensor>;

/// What is bad in one or several tensors.
struct BadRows {
  /// By kind: the samples that have it, bool `(N,)` on the CPU. Both undefined: nothing is bad.
  std::array<at::Tensor, 2> of;
  bool per_sample = true;  // false: a bad value without samples in front took part, which concerns all of them
  Origins inf_from;
  bool is_bad() const { return of[is_nan].defined(); }
  bool has(BadKind kind) const;
  at::Tensor any() const;
  void add(const BadRows& other);
};

/// Runs an operation once more, and tells what is bad in its results. Both are empty where it must not run twice.
struct Rerun {
  std::function<BadRows(BadKind)> clean;  // on operands in which the rows with a kind are clean
  /// On operands in which the Inf of one producer is replaced; of an empty name: every Inf.
  std::function<BadRows(const std::string&)> without_inf_of;
};

class Trail {
 public:
  explicit Trail(int64_t samples) : samples_(samples) {}

  /// What is bad in a tensor. `varies`: it depends on the inputs; what does not (a weight) has no samples in front,
  /// however many rows it has.
  BadRows bad_rows(const at::Tensor& tensor, bool varies) const;
  /// The tensor with other values, all fine, in the rows with this kind.
  at::Tensor cleaned(const at::Tensor& tensor, bool varies, BadKind kind) const;
  /// The tensor, of which `bad` is known, with 1 in place of each Inf in the samples where `origin` produced one; of an
  /// empty `origin`, in all samples.
  at::Tensor without_inf_of(const std::string& origin, const at::Tensor& tensor, const BadRows& bad, bool varies) const;
  /// These two return what is bad, with its origin.
  BadRows note_input(const std::string& name, const at::Tensor& tensor);
  BadRows note_held(const std::string& name, const at::Tensor& tensor);
  void note_output(const std::string& name, const BadRows& bad);
  /// One run of operation `index` (in the order in which they stand), which `like` describes. Whether an operation that
  /// was given bad rows mixes rows is asked of `rerun`; empty: it does not. Returns who produced the Inf in the
  /// results.
  Origins note_operation(size_t index, const Producer& like, const BadRows& read, const BadRows& made,
                         const Rerun& rerun);
  Provenance finish() &&;

 private:
  struct OperationRuns {
    Producer like;
    std::array<at::Tensor, 2> fresh;  // samples that it made bad
    Origins nan_from;                 // who produced the Inf that it made NaN of, and in which samples it did
    bool per_sample = true, has_bad = false, produced = false;
  };
  BadRows note_source(Producer::Kind kind, const std::string& name, const at::Tensor& tensor, bool varies);
  at::Tensor fresh_rows(BadKind kind, const BadRows& read, const BadRows& made, const Rerun& rerun) const;
  Origins causes(BadKind kind, const at::Tensor& rows, const BadRows& read, const Rerun& rerun) const;
  void add_producers(const Producer& like, const std::array<at::Tensor, 2>& rows, bool per_sample,
                     const Origins& nan_from);

  int64_t samples_;
  Provenance result_;
  std::map<size_t, OperationRuns> operations_;
};

}  // namespace triage::diagnose
