#pragma once
#include <triage/backend.h>

#include <memory>

#include "runtime/backends/fused/kernels/kernel.h"
#include "runtime/backends/fused/output_pool.h"
#include "runtime/backends/fused/regions.h"

namespace triage::fused {

/// A fused region at run time: the kernel where it is there and the inputs are such as it was made for, else the interpreter.
class Region final : public Executable {
 public:
  /// `part.fused` holds.
  explicit Region(const Part& part);
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs) const override;
  void finish_compiling() const override { kernel_->wait(); }

 private:
  struct Memory;  // of one call
  bool lay_out(at::ArrayRef<at::Tensor> inputs, Memory& memory) const;
  bool lay_out(const LoopInput& input, const at::Tensor& tensor, size_t slot, Memory& memory) const;
  void make_outputs(const Memory& memory, std::vector<at::Tensor>& outputs) const;

  Loops loops_;
  int64_t scratch_rows_;
  std::shared_ptr<const Kernel> kernel_;
  std::unique_ptr<Executable> interpreter_;
  std::unique_ptr<OutputPool[]> pools_;  // one for each output
};

}  // namespace triage::fused
