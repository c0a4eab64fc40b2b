#pragma once
#include <ATen/ATen.h>
#include <triage/triage.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

/// Policies with state, and what tests of them ask.
namespace triage::test {

/// Counts calls, keeps the running sum of columns, and the last batch.
inline const char* const keeper = R"(
return policy {
  outputs = {"y"},
  state = {
    count = {shape = {}, dtype = torch.int64, init = 10},
    last = {shape = {"N", 3}, init = -1},
    sums = {shape = {3}, dtype = torch.float64},
  },
  run = function(z, s)
    local sums = s.sums + z:to(torch.float64):sum(0)
    return s.last + s.count, {count = s.count + 1, last = z, sums = sums}
  end,
})";

/// One number of state: how many calls there were before this one.
inline const char* const counter = R"(
return policy {
  outputs = {"z", "n"},
  state = {n = {shape = {}, dtype = torch.int64}},
  inputs = {"z"},
  run = function(z, s) return z + 1, s.n + 0, {n = s.n + 1} end,
})";

inline int64_t next_of(const Policy& policy, const RunOptions& options = {}, int64_t rows = 2) {
  return policy.run({at::ones({rows, 3})}, options).at(1).item<int64_t>();
}

inline int64_t count_of(const Policy& policy, const std::string& key = "", const std::string& name = "n") {
  for (const KeyState& one : policy.state())
    if (one.key == key)
      for (const auto& [known, tensor] : one.tensors)
        if (known == name) return tensor.item<int64_t>();
  return -1;
}

/// As editors do: who watches never sees half of it.
inline void write(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path.string() + ".new", std::ios::binary) << text;
  std::filesystem::rename(path.string() + ".new", path);
}

/// What `fn` throws as text; empty when it does not throw.
template <class Function>
std::string message_of(const Function& fn) {
  try {
    fn();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

/// Waits until `done` holds; false when it does not come about in a minute (never on a machine that works).
template <class Done>
bool eventually(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return done();
}

/// What the log of a Runtime said.
struct Logged {
  std::shared_ptr<std::string> text = std::make_shared<std::string>();
  RuntimeOptions options() const {
    RuntimeOptions options;
    options.log = [to = text](const LogRecord& record) { *to += std::string(record.text) + "\n"; };
    return options;
  }
  bool has(const std::string& part) const { return text->find(part) != std::string::npos; }
};

inline RuntimeOptions quiet() {
  RuntimeOptions options;
  options.log = [](const LogRecord&) {};
  return options;
}

}  // namespace triage::test
