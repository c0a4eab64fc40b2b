#pragma once
#include "bindings/c/callbacks.h"
#include "bindings/c/status.h"

#include <fmt/format.h>
#include <triage/bundle.h>
#include <triage/decisions.h>
#include <triage/runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

/// The handles of the host. Their memory is never given back, so that a call can read in a freed one that it is freed.
///
/// A call uses what a handle stands for until it ends (HandleUse), whoever frees the handle meanwhile: a callback of
/// that call, or another thread. A freed handle is refused by later calls at once; what it stood for is destroyed by
/// the last call that leaves it, and never inside a callback (callbacks.h).
namespace triage::c {

/// The first word of a handle: what it is. Its last two bits say what has become of it.
enum class Kind : uint64_t {
  runtime = 0x747269616765'5210,
  policy = 0x747269616765'5010,
  watch = 0x747269616765'5710,
  bundle = 0x747269616765'4210
};
constexpr uint64_t freed_bit = 1, destroyed_bit = 2;

/// How many calls use something. Threads count in different places: a counter that all of them wrote to would cost more
/// than the rest of the interface.
class UseCount {
 public:
  void enter() noexcept { of_this_thread().fetch_add(1); }
  void leave() noexcept { of_this_thread().fetch_sub(1); }
  bool is_zero() const noexcept {
    return std::all_of(stripes_.begin(), stripes_.end(),
                       [](const UseCountStripe& stripe) { return stripe.count.load() == 0; });
  }

 private:
  struct alignas(64) UseCountStripe {
    std::atomic<int64_t> count{0};
  };
  std::atomic<int64_t>& of_this_thread() noexcept {
    static std::atomic<size_t> threads{0};
    if (context.stack.number == 0) context.stack.number = ++threads;
    return stripes_[context.stack.number % stripes_.size()].count;
  }
  std::array<UseCountStripe, 8> stripes_;
};

template <class T, Kind KIND>
struct Handle {
  static constexpr uint64_t live = static_cast<uint64_t>(KIND);
  using Value = T;
  std::atomic<uint64_t> kind{live};
  std::optional<T> value;
  UseCount uses;
  Freed freed;
};

/// With its decision log, for flush_decisions.
struct RuntimeOfHost : Runtime {
  std::shared_ptr<DecisionLog> decisions;  // null: it has none
};

}  // namespace triage::c

struct TriageRuntime : triage::c::Handle<triage::c::RuntimeOfHost, triage::c::Kind::runtime> {};
struct TriagePolicy : triage::c::Handle<triage::Policy, triage::c::Kind::policy> {};
struct TriageWatch : triage::c::Handle<triage::Watch, triage::c::Kind::watch> {};
struct TriageBundle : triage::c::Handle<triage::Bundle, triage::c::Kind::bundle> {};

namespace triage::c {

constexpr const char* kind_name(uint64_t kind) {
  switch (static_cast<Kind>(kind & ~(freed_bit | destroyed_bit))) {
    case Kind::runtime:
      return "runtime";
    case Kind::policy:
      return "policy";
    case Kind::watch:
      return "watch";
    case Kind::bundle:
      return "bundle";
  }
  return nullptr;
}

template <class H>
[[noreturn]] void throw_no_handle(const H* handle, uint64_t found) {
  const char* wanted = kind_name(H::live);
  if (!handle) throw Misuse(fmt::format("`{0}` is null; pass the handle of a {0}", wanted));
  const char* name = kind_name(found);
  if (!name) throw Misuse(fmt::format("`{0}` is no handle of this library; pass the handle of a {0}", wanted));
  if ((found & ~destroyed_bit) == (H::live | freed_bit))
    throw Misuse(fmt::format("`{0}` was freed; use no handle after it is freed", wanted));
  throw Misuse(fmt::format("`{0}` is the handle of a {1}; pass that of a {0}", wanted, name));
}

/// Throws Misuse for null, for a freed handle, and for one of another kind.
template <class H>
void check_handle(const H* handle) {
  uint64_t found = 0;
  if (reinterpret_cast<uintptr_t>(handle) % alignof(H) == 0 && handle) found = handle->kind.load();
  if (found != H::live) throw_no_handle(handle, found);
}

/// What the handle stands for, for the time of a call.
template <class H>
class HandleUse {
 public:
  /// Throws as check_handle does.
  explicit HandleUse(H* handle) : handle_(handle) {
    check_handle(handle);
    handle->uses.enter();
    if (const uint64_t found = handle->kind.load(); found != H::live) {  // another thread freed it just now
      leave();
      throw_no_handle(handle, found);
    }
  }
  ~HandleUse() { leave(); }
  HandleUse(const HandleUse&) = delete;
  HandleUse& operator=(const HandleUse&) = delete;
  typename H::Value& operator*() const noexcept { return *handle_->value; }
  typename H::Value* operator->() const noexcept { return &*handle_->value; }

 private:
  void leave() noexcept;
  H* handle_;
};

/// Programs in C end without freeing what they have. exit() then destroys what the threads of runtimes use, the latest
/// made first: so each new handle, which may have made more of it, calls this again.
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
    handle->kind.store(H::live);
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
    check_handle(handle);
    uint64_t expected = H::live;
    if (!handle->kind.compare_exchange_strong(expected, H::live | freed_bit)) throw_no_handle(handle, expected);
    destroy_unused(handle);
  }

  /// Of a freed handle: destroys what it stood for, unless a call uses it, which comes here when it leaves.
  void destroy_unused(H* handle) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (handle->kind.load() != (H::live | freed_bit) || !handle->uses.is_zero()) return;
      handle->kind.store(H::live | freed_bit | destroyed_bit);
    }
    handle->freed = {[](void* freed) noexcept { get().destroy(static_cast<H*>(freed)); }, handle};
    destroy_after_callbacks(handle->freed);
  }

 private:
  void destroy(H* handle) noexcept {
    handle->value.reset();
    const std::lock_guard lock(mutex_);
    try {
      free_.push_back(handle);
    } catch (const std::bad_alloc&) {  // it is never used again
    }
  }

  /// So many handles stay known as freed; the one that was freed first is used again.
  static constexpr size_t kept_free = 64;
  std::mutex mutex_;
  std::deque<H> all_;
  std::deque<H*> free_;
};

template <class H>
void HandleUse<H>::leave() noexcept {
  handle_->uses.leave();
  if (handle_->kind.load() == (H::live | freed_bit)) Pool<H>::get().destroy_unused(handle_);
}

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
