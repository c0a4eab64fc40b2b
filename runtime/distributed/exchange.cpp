#include "runtime/distributed/exchange.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <signal.h>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/printable.h"

namespace triage {

struct Group::State {
  int rank = 0, size = 1;
  Sum sum;
  std::atomic<int64_t> step{0};  // `set_step` may come from a thread that runs no operation
  std::mutex running;
  std::string failure;  // under `running`: from then on, the operations of the ranks need not fit together
};

namespace {

constexpr int64_t operation_column = 0, step_column = 1, first_given = 2;
constexpr int64_t most_bytes = int64_t{1} << 30;  // of the table of an operation

const char* name_of(int64_t operation) {
  switch (static_cast<Exchange::Operation>(operation)) {
    case Exchange::Operation::nothing:
      return "nothing";
    case Exchange::Operation::refused:
      return "an operation with a wrong argument";
    case Exchange::Operation::agree:
      return "agree";
    case Exchange::Operation::reduce:
      return "reduce";
    case Exchange::Operation::check_same:
      return "check_same";
    case Exchange::Operation::all_reduce:
      return "all_reduce";
  }
  return "an unknown operation";
}

/// Gloo writes to the sockets of ranks that have ended. triage changes no signal handler of the process, so it asks for
/// it.
void check_signals() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    throw InputError(
        "Group: if another rank ends, SIGPIPE can end this process before there is an error. Ignore it before the "
        "group is made, as Python does: std::signal(SIGPIPE, SIG_IGN)");
}

}  // namespace

Group::Group() : Group(0, 1, [](at::Tensor&) {}) {}

Group::Group(int rank, int size, Sum sum) : state_(std::make_shared<State>()) {
  if (rank < 0 || rank >= size || !sum)
    throw InputError(fmt::format(
        "Group: expected a rank from 0 to below the number of ranks, and a function that sums; got rank {} of {}{}",
        rank, size, sum ? "" : " and a null function"));
  if (size > 1) check_signals();
  state_->rank = rank;
  state_->size = size;
  state_->sum = std::move(sum);
}

int Group::rank() const noexcept { return state_->rank; }
int Group::size() const noexcept { return state_->size; }
void Group::set_step(int64_t step) noexcept { state_->step = step; }

Exchange::Exchange(const Group& group, Operation operation)
    : state_(group.state_), operation_(operation), step_(state_->step), running_(state_->running, std::try_to_lock) {
  if (!running_)
    throw InputError(who() +
                     ": another thread runs an operation on this group. Ranks pair operations by their order, so one "
                     "thread must run them all; give each thread a process group of its own");
  if (!state_->failure.empty())
    throw DistributedError(who() + ": an earlier operation of this group failed: " + state_->failure);
}

int Exchange::rank() const noexcept { return state_->rank; }
int Exchange::size() const noexcept { return state_->size; }

std::string Exchange::who() const {
  return fmt::format("{}: rank {} of {}", name_of(static_cast<int64_t>(operation_)), state_->rank, state_->size);
}

std::string Exchange::text_of(const std::exception& error) {
  return messages::one_line(messages::message_without_backtrace(error));
}

at::Tensor Exchange::table(int64_t columns) const { return at::zeros({state_->size, columns}, at::kLong); }

void Exchange::fail(const std::string& message) {
  state_->failure = message;
  throw DistributedError(message);
}

void Exchange::sum(at::Tensor& values) {
  const auto start = std::chrono::steady_clock::now();
  std::string reason;
  try {
    state_->sum(values);
    return;
  } catch (const std::exception& error) {
    reason = text_of(error);
  }
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  fail(fmt::format(
      "{} waited {:.1f} s for the other ranks at step {}, and did not hear from all of them: {}. Some rank has ended, "
      "is stopped, or left this call out. The group cannot be used again: end this process, or make a new process "
      "group "
      "with the ranks that are left",
      who(), waited.count(), step_, reason));
}

std::string Exchange::differing(const at::Tensor& table) const {
  const auto rows = table.accessor<int64_t, 2>();
  std::string others;
  for (int64_t other = 0; other < rows.size(0); ++other) {
    const int64_t operation = rows[other][operation_column], step = rows[other][step_column];
    const bool same =
        operation == static_cast<int64_t>(operation_) || operation == static_cast<int64_t>(Operation::refused);
    if (!same || step != step_)
      others +=
          fmt::format("{}rank {} calls {} at step {}", others.empty() ? "" : ", ", other, name_of(operation), step);
  }
  return others.empty() ? ""
                        : fmt::format(
                              "{} calls it at step {}, but {}. All ranks must make the same calls in the same "
                              "order. The group cannot be used again",
                              who(), step_, others);
}

void Exchange::check_operations(const at::Tensor& table) {
  if (const std::string text = differing(table); !text.empty()) fail(text);
  const auto rows = table.accessor<int64_t, 2>();
  std::string refused;
  for (int64_t other = 0; other < rows.size(0); ++other)
    if (rows[other][operation_column] == static_cast<int64_t>(Operation::refused))
      refused += fmt::format("{}{}", refused.empty() ? "" : ", ", other);
  if (!refused.empty())
    throw DistributedError(
        fmt::format("{} has no result: the call of rank {} had a wrong argument (its own error says "
                    "which)",
                    who(), refused));
}

at::Tensor Exchange::sum_of(Operation operation, const Given& own) {
  at::Tensor all = table(first_given + static_cast<int64_t>(given_count));
  auto row = all.accessor<int64_t, 2>()[state_->rank];
  row[operation_column] = static_cast<int64_t>(operation);
  row[step_column] = step_;
  for (size_t i = 0; i < given_count; ++i) row[first_given + static_cast<int64_t>(i)] = own[i];
  const at::Tensor sent = all[state_->rank].clone();
  sum(all);
  if (!all[state_->rank].equal(sent))
    fail(who() +
         ": what this rank sent came back changed. Two ranks have the same number, or the function that the Group was "
         "made "
         "with does not sum. Make a new group");
  return all;
}

std::vector<Exchange::Given> Exchange::give(const Given& own) {
  const at::Tensor all = sum_of(operation_, own);
  check_operations(all);
  const auto rows = all.accessor<int64_t, 2>();
  std::vector<Given> given(static_cast<size_t>(state_->size));
  for (size_t other = 0; other < given.size(); ++other)
    for (size_t i = 0; i < given_count; ++i)
      given[other][i] = rows[static_cast<int64_t>(other)][first_given + static_cast<int64_t>(i)];
  return given;
}

void Exchange::refuse(const std::string& message) {
  state_->failure =
      differing(sum_of(Operation::refused, {}));  // the others may find the same, and go on without this rank
  throw InputError(message);
}

std::vector<std::string> Exchange::gather(const std::string& own, const std::vector<int64_t>& lengths) {
  constexpr int64_t bytes_of_word = sizeof(int64_t);
  const int64_t most = most_bytes / state_->size;
  for (size_t other = 0; other < lengths.size(); ++other)
    if (lengths[other] < 0 || lengths[other] > most)
      throw DistributedError(
          fmt::format("{} has no result: rank {} has {} bytes to send, and a rank can send {}. Give it fewer "
                      "examples, or less in all",
                      who(), other, lengths[other], most));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  state_->failure = who() + " ended on this rank before it had sent its part";  // until it has: there may be no memory
  at::Tensor all = table((longest + bytes_of_word - 1) / bytes_of_word);
  const auto row = [&](size_t rank) {
    return reinterpret_cast<char*>(all.data_ptr<int64_t>() + static_cast<int64_t>(rank) * all.size(1));
  };
  std::memcpy(row(static_cast<size_t>(state_->rank)), own.data(), own.size());
  sum(all);
  state_->failure.clear();
  std::vector<std::string> bytes(lengths.size());
  for (size_t other = 0; other < bytes.size(); ++other)
    bytes[other].assign(row(other), static_cast<size_t>(lengths[other]));
  return bytes;
}

}  // namespace triage
