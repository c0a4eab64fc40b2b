#pragma once
#include "bindings/c/status.h"

#include <fmt/format.h>
#include <triage/runtime.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

/// The handles of the host. Their memory is never given back, so that a call can read in a freed one that it is freed.
namespace triage::c {

/// The first word of a handle: what it is. The last bit says that it is freed.
enum class Kind : uint64_t { runtime = 0x747269616765'5210, policy = 0x747269616765'5010, watch = 0x747269616765'5710 };
constexpr uint64_t freed_bit = 1;

template <class T, Kind KIND>
struct Handle {
  static constexpr uint64_t live = static_cast<uint64_t>(KIND);
  using Value = T;
  std::atomic<uint64_t> kind{live};
  std::optional<T> value;
};

}  // namespace triage::c

struct TriageRuntime : triage::c::Handle<triage::Runtime, triage::c::Kind::runtime> {};
struct TriagePolicy : triage::c::Handle<triage::Policy, triage::c::Kind::policy> {};
struct TriageWatch : triage::c::Handle<triage::Watch, triage::c::Kind::watch> {};

namespace triage::c {

constexpr const char* kind_name(uint64_t kind) {
  switch (static_cast<Kind>(kind & ~freed_bit)) {
    case Kind::runtime:
      return "runtime";
    case Kind::policy:
      return "policy";
    case Kind::watch:
      return "watch";
  }
  return nullptr;
}

template <class H>
[[noreturn]] void throw_no_handle(const H* handle, uint64_t found) {
  const char* wanted = kind_name(H::live);
  if (!handle) throw Misuse(fmt::format("`{0}` is null; pass the handle of a {0}", wanted));
  const char* name = kind_name(found);
  if (!name) throw Misuse(fmt::format("`{0}` is no handle of this library; pass the handle of a {0}", wanted));
  if (found == (H::live | freed_bit))
    throw Misuse(fmt::format("`{0}` was freed; use no handle after it is freed", wanted));
  throw Misuse(fmt::format("`{0}` is the handle of a {1}; pass that of a {0}", wanted, name));
}

/// What the handle stands for. Throws Misuse for null, for a freed handle, and for one of another kind.
template <class H>
typename H::Value& value_of(H* handle) {
  uint64_t found = 0;
  if (reinterpret_cast<uintptr_t>(handle) % alignof(H) == 0 && handle)
    found = handle->kind.load(std::memory_order_acquire);
  if (found != H::live) throw_no_handle(handle, found);
  return *handle->value;
}

/// Programs in C end without freeing what they have. exit() then destroys what the threads of runtimes use, the latest made first:
/// so each new handle, which may have made more of it, calls this again.
void end_threads_at_exit();

/// Lives until the process ends: threads may still use handles then.
template <class H>
class Pool {
 public:
  static Pool& get() {
    static Pool& pool = *new Pool;
    return pool;
  }

  H* make(typename H::Value value) {
    const std::lock_guard lock(mutex_);
    H* handle = nullptr;
    if (free_.size() > kept_free) {
      handle = free_.front();
      free_.pop_front();
    } else {
      handle = &all_.emplace_back();
      end_threads_at_exit();
    }
    handle->value.emplace(std::move(value));
    handle->kind.store(H::live, std::memory_order_release);
    return handle;
  }

  /// Releases those that are live.
  void release_all() {
    std::vector<H*> live;
    {
      const std::lock_guard lock(mutex_);
      for (H& handle : all_)
        if (handle.kind == H::live) live.push_back(&handle);
    }
    for (H* handle : live) release(handle);
  }

  /// Null is allowed.
  void release(H* handle) {
    if (!handle) return;
    value_of(handle);
    uint64_t expected = H::live;
    if (!handle->kind.compare_exchange_strong(expected, H::live | freed_bit)) throw_no_handle(handle, expected);
    handle->value.reset();
    const std::lock_guard lock(mutex_);
    free_.push_back(handle);
  }

 private:
  /// So many handles stay known as freed; the one that was freed first is used again.
  static constexpr size_t kept_free = 64;
  std::mutex mutex_;
  std::deque<H> all_;
  std::deque<H*> free_;
};

/// A function that creates a handle through `handle`: null if it fails.
template <class H, class Fn>
TriageStatus create(const char* function, H** handle, const Fn& fn) noexcept {
  return guarded(function, [&] {
    if (!handle)
      throw Misuse(fmt::format("the place for the new {} is null; pass the address of a pointer", kind_name(H::live)));
    *handle = nullptr;
    *handle = Pool<H>::get().make(fn());
  });
}

template <class H>
TriageStatus release(const char* function, H* handle) noexcept {
  return guarded(function, [&] { Pool<H>::get().release(handle); });
}

}  // namespace triage::c
