#pragma once
#include <triage/distributed.h>

#include <array>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

namespace triage {

/// One collective operation, made of sums: each rank adds its own row to a table of zeros, so that all ranks see the
/// same table. Holds the group while it lives. Every error that all ranks see comes from the table, so that all throw
/// it.
class Exchange {
 public:
  /// Numbers that ranks send. A row of zeros was filled by no rank.
  enum class Operation : int64_t { nothing, refused, agree, reduce, check_same, all_reduce };
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
  /// Replaces it by the sum over all ranks. Throws DistributedError, here and in all later operations, if it does not
  /// come.
  void sum(at::Tensor& values);
  /// Tells the others that this rank takes no part, and throws InputError.
  [[noreturn]] void refuse(const std::string& message);
  /// What `make` gives, before anything is sent. If it throws, the others are told, as by `refuse`: a rank that left
  /// without a word would meet them in its next operation, which they take for this one.
  template <class Make>
  auto own(const Make& make) {
    try {
      return make();
    } catch (const std::exception& error) {
      refuse(who() + ": " + text_of(error));
    }
  }
  /// Throws DistributedError, here and in all later operations. For what all ranks see.
  [[noreturn]] void fail(const std::string& message);
  /// "agree: rank 1 of 4"
  std::string who() const;
  static std::string text_of(const std::exception& error);

 private:
  at::Tensor table(int64_t columns) const;
  /// What all ranks give at the beginning, with `operation` and `own` of this one.
  at::Tensor sum_of(Operation operation, const Given& own);
  /// What the ranks that call something else, or at another step, call; empty where none does. Refused operations fit
  /// to all.
  std::string differing(const at::Tensor& table) const;
  void check_operations(const at::Tensor& table);

  std::shared_ptr<Group::State> state_;
  Operation operation_;
  int64_t step_;  // the host may set the next one while this operation waits
  std::unique_lock<std::mutex> running_;
};

}  // namespace triage
