#pragma once
// Failures on demand, SQLite's way: the Nth allocation, or the Nth file operation, of this program fails.
#include <cstdint>
#include <functional>
#include <vector>

namespace triage::test {

enum class Fails : uint8_t {
  allocation,  // operator new, where triage's own code asks for memory: std::bad_alloc
  tensor,      // LibTorch's CPU allocator: c10::Error
  file,        // open, write, fwrite, fsync, rename, mkdir of any thread: ENOSPC
  system,  // any function of the system that can fail (system_calls.cpp), where triage's own code asks: its usual error
};

/// Whether the operation of that kind that `caller`, a return address, asks for now is to fail.
bool fails_now(Fails kind, void* caller) noexcept;
/// What `work` allocates is never failed, wherever it is called: for code of LibTorch in headers that ends the process
/// without memory.
void excuse(const std::function<void()>& work);
/// From now on the operations of that kind are counted, on all threads; the one with the number `nth` fails, and so do
/// the `more` ones after it. 0: none does.
void arm(Fails kind, uint64_t nth, uint64_t more = 0);
/// Nothing fails any more. Returns how many operations were counted.
uint64_t disarm();
/// The numbers of those allocations, counted with `nth` 0, that came from a call stack that none before them came from.
const std::vector<uint64_t>& first_of_each_stack();
/// While it lives nothing fails, and nothing is counted: for what the test does itself.
class Paused {
 public:
  Paused();
  ~Paused();
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  int kind_;
};

}  // namespace triage::test
