#include "tests/failures/failing.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <link.h>
#include <torch/version.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_set>

namespace triage::test {
namespace {

std::atomic<int> armed{-1};  // the kind; -1: none
std::atomic<uint64_t> first{0}, last{0}, counted{0};

bool fails(Fails kind) noexcept {
  if (armed.load(std::memory_order_relaxed) != static_cast<int>(kind)) return false;
  const uint64_t number = counted.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < first || number > last) return false;
  return true;
}

struct Range {
  uintptr_t begin = 0, end = 0;
  bool holds(uintptr_t address) const { return address >= begin && address < end; }
};

/// Where the code of this program lies, and of the libraries that only do what it asks them to.
struct Code {
  Range own;
  std::array<Range, 8> helpers;
  size_t helper_count = 0;

  Code() { ::dl_iterate_phdr(&Code::note, this); }
  bool is_helper(uintptr_t address) const {
    for (size_t i = 0; i < helper_count; ++i)
      if (helpers[i].holds(address)) return true;
    return false;
  }

 private:
  static int note(dl_phdr_info* info, size_t, void* to) {
    auto& code = *static_cast<Code*>(to);
    const char* name = info->dlpi_name;
    const bool own = !name || !*name;
    const bool helper =
        !own && (std::strstr(name, "libstdc++") || std::strstr(name, "libfmt") || std::strstr(name, "libspdlog"));
    if (!own && !helper) return 0;
    Range range{UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& part = info->dlpi_phdr[i];
      if (part.p_type != PT_LOAD) continue;
      range.begin = std::min<uintptr_t>(range.begin, info->dlpi_addr + part.p_vaddr);
      range.end = std::max<uintptr_t>(range.end, info->dlpi_addr + part.p_vaddr + part.p_memsz);
    }
    if (own)
      code.own = range;
    else if (code.helper_count < code.helpers.size())
      code.helpers[code.helper_count++] = range;
    return 0;
  }
};

const Code& code() {
  static const Code instance;
  return instance;
}

struct Walk {
  uintptr_t from;  // the caller whose callers count; innermost frames are those of this file
  int depth = 0;
  bool begun = false, ours = false;
};

_Unwind_Reason_Code step(_Unwind_Context* context, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  const uintptr_t address = _Unwind_GetIP(context);
  if (++walk.depth > 16) return _URC_END_OF_STACK;
  walk.begun |= address == walk.from;
  if (!walk.begun || code().is_helper(address)) return _URC_NO_REASON;
  walk.ours = code().own.holds(address);
  return _URC_END_OF_STACK;
}

/// Whether triage asked for it, directly or through the standard library. What LibTorch asks for is left alone: it does
/// not promise to survive that.
__attribute__((noinline)) bool is_ours(void* caller) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  if (code().own.holds(address)) return true;
  if (!code().is_helper(address)) return false;
  Walk walk{address};
  _Unwind_Backtrace(step, &walk);
  return walk.ours;
}

/// Places in code that allocate, and may not fail.
struct Excused {
  std::array<uintptr_t, 64> places{};
  size_t count = 0;
  bool learning = false;

  void learn(void* caller) {
    if (learning && count < places.size()) places[count++] = reinterpret_cast<uintptr_t>(caller);
  }
  bool hold(void* caller) const {
    return std::find(places.begin(), places.begin() + count, reinterpret_cast<uintptr_t>(caller)) !=
           places.begin() + count;
  }
};
Excused excused;

/// The call stacks that allocations came from.
class Stacks {
 public:
  void note(uint64_t number) {
    Innermost walk;
    _Unwind_Backtrace(add, &walk);
    const std::lock_guard lock(mutex_);
    if (known_.insert(walk.hash).second) first_.push_back(number);
  }
  const std::vector<uint64_t>& first() const { return first_; }

 private:
  struct Innermost {
    uint64_t hash = 0xcbf29ce484222325;
    int frames = 0;
  };
  static _Unwind_Reason_Code add(_Unwind_Context* context, void* data) {
    auto& walk = *static_cast<Innermost*>(data);
    walk.hash = (walk.hash ^ _Unwind_GetIP(context)) * 0x100000001b3;
    return ++walk.frames < 32 ? _URC_NO_REASON : _URC_END_OF_STACK;
  }

  std::mutex mutex_;
  std::unordered_set<uint64_t> known_;
  std::vector<uint64_t> first_;
};
Stacks stacks;

thread_local bool inside = false;  // what looks at stacks allocates

bool allocation_fails(void* caller) noexcept {
  excused.learn(caller);
  if (armed.load(std::memory_order_relaxed) != static_cast<int>(Fails::allocation) || inside) return false;
  inside = true;
  const bool ours = is_ours(caller) && !excused.hold(caller);
  const bool failing = ours && fails(Fails::allocation);
  if (ours && last == 0) stacks.note(counted);
  inside = false;
  return failing;
}

class FailingTensors final : public c10::Allocator {
 public:
  FailingTensors() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 100); }
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return checked(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
#else
  c10::DataPtr allocate(size_t bytes) const override { return checked(bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }

 private:
  c10::DataPtr checked(size_t bytes) const {
    TORCH_CHECK(!fails(Fails::tensor), "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes,
                " bytes.");
    return inner_->allocate(bytes);
  }
  c10::Allocator* inner_;
};

}  // namespace

bool fails_now(Fails kind, void* caller) noexcept {
  if (armed.load(std::memory_order_relaxed) != static_cast<int>(kind) || inside) return false;
  inside = true;
  const bool failing = (kind != Fails::system || is_ours(caller)) && fails(kind);
  inside = false;
  return failing;
}

void excuse(const std::function<void()>& work) {
  excused.learning = true;
  work();
  excused.learning = false;
}

void arm(Fails kind, uint64_t nth, uint64_t more) {
  static FailingTensors* const tensors = new FailingTensors;  // for good: blocks may outlive everything
  static_cast<void>(tensors);
  code();
  first = nth == 0 ? UINT64_MAX : nth;
  last = nth == 0 ? 0 : nth + more;
  counted = 0;
  armed = static_cast<int>(kind);
}

uint64_t disarm() {
  armed = -1;
  return counted;
}

const std::vector<uint64_t>& first_of_each_stack() { return stacks.first(); }

Paused::Paused() : kind_(armed.exchange(-1)) {}
Paused::~Paused() { armed = kind_; }

}  // namespace triage::test

// --- what the program calls in place of the libraries' functions ---

namespace {

void* allocate(size_t bytes, void* caller) {
  if (triage::test::allocation_fails(caller)) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

void* allocate_aligned(size_t bytes, std::align_val_t alignment, void* caller) {
  if (triage::test::allocation_fails(caller)) throw std::bad_alloc();
  const auto to = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(to, (bytes + to - 1) / to * to)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, __builtin_return_address(0)); }
void* operator new[](size_t bytes) { return allocate(bytes, __builtin_return_address(0)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return triage::test::allocation_fails(__builtin_return_address(0)) ? nullptr : std::malloc(bytes ? bytes : 1);
}
void* operator new(size_t bytes, std::align_val_t to) {
  return allocate_aligned(bytes, to, __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
