#pragma once
#include <triage/distributed.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace triage {

/// One collective operation, made of sums: each rank adds its own row to a table of zeros, so that all ranks see the
/// same table. Holds the group while it lives. Every error that all ranks see comes from the table, so that all throw it.
class Exchange {
 public:
  enum class Operation : int64_t { refused, agree, reduce, check_same };  // numbers that ranks send
  static constexpr size_t given_count = 3;
  using Given = std::array<int64_t, given_count>;

  /// Throws InputError if another thread runs an operation, DistributedError if an earlier one failed.
  Exchange(const Group& group, Operation operation);

  int rank() const noexcept;
  int size() const noexcept;
  /// What each rank gave, by rank. Throws DistributedError if a rank does another operation, or is at another step.
  std::vector<Given> give(const Given& own);
  /// The bytes of each rank. `lengths` are what all gave.
  std::vector<std::string> gather(const std::string& own, const std::vector<int64_t>& lengths);
  /// Tells the others that this rank takes no part, and throws InputError.
  [[noreturn]] void refuse(const std::string& message);
  /// "agree: rank 1 of 4"
  std::string who() const;

 private:
  at::Tensor table(int64_t columns) const;
  void sum(at::Tensor& table);
  void check_operations(const at::Tensor& table);
  [[noreturn]] void fail(const std::string& message);

  std::shared_ptr<Group::State> state_;
  Operation operation_;
  std::unique_lock<std::mutex> running_;
};

}  // namespace triage
