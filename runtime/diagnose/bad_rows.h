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

/// What is bad in one or several tensors.
struct BadRows {
  /// By kind: the samples that have it, bool `(N,)` on the CPU. Both undefined: nothing is bad.
  std::array<at::Tensor, 2> of;
  bool per_sample = true;          // false: a bad value without samples in front took part, which concerns all of them
  std::set<std::string> inf_from;  // who produced the Inf
  bool is_bad() const { return of[is_nan].defined(); }
  bool has(BadKind kind) const;
  at::Tensor any() const;
  void add(const BadRows& other);
};

/// What an operation makes of operands in which the rows with a kind are clean.
using RunClean = std::function<BadRows(BadKind)>;

class Trail {
 public:
  explicit Trail(int64_t samples) : samples_(samples) {}

  /// What is bad in a tensor. `varies`: it depends on the inputs; what does not (a weight) has no samples in front, however
  /// many rows it has.
  BadRows bad_rows(const at::Tensor& tensor, bool varies) const;
  /// The tensor with other values, all fine, in the rows with this kind.
  at::Tensor cleaned(const at::Tensor& tensor, bool varies, BadKind kind) const;
  /// These two return what is bad, with its origin.
  BadRows note_input(const std::string& name, const at::Tensor& tensor);
  BadRows note_held(const std::string& name, const at::Tensor& tensor);
  void note_output(const std::string& name, const BadRows& bad);
  /// One run of operation `index` (in the order in which they stand), which `like` describes. Whether an operation that was
  /// given bad rows mixes rows is asked of `run_clean`; empty: it does not. Returns who produced the Inf in the results.
  std::set<std::string> note_operation(size_t index, const Producer& like, const BadRows& read, const BadRows& made,
                                       const RunClean& run_clean);
  Provenance finish() &&;

 private:
  struct Ran {
    Producer like;
    std::array<at::Tensor, 2> fresh;  // samples that it made bad
    std::set<std::string> nan_from;   // who produced the Inf that it made NaN of
    bool per_sample = true, has_bad = false, produced = false;
  };
  BadRows note_source(Producer::Kind kind, const std::string& name, const at::Tensor& tensor, bool varies);
  at::Tensor fresh_rows(BadKind kind, const BadRows& read, const BadRows& made, const RunClean& run_clean) const;
  void add_producers(const Producer& like, const std::array<at::Tensor, 2>& rows, bool per_sample,
                     const std::set<std::string>& nan_from);

  int64_t samples_;
  Provenance result_;
  std::map<size_t, Ran> operations_;
};

}  // namespace triage::diagnose
