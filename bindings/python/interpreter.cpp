#include "bindings/python/interpreter.h"

#include <dlfcn.h>

namespace triage::python {
namespace {

template <class Function>
Function* find(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

bool is_finalizing() noexcept {
  // Public from Python 3.13 on.
  static auto* const current = find<int()>("Py_IsFinalizing");
  static auto* const former = find<int()>("_Py_IsFinalizing");
  return current ? current() != 0 : former && former() != 0;
}

WithoutLock::WithoutLock() noexcept {
  static auto* const holds_lock = find<int()>("PyGILState_Check");
  static auto* const release = find<void*()>("PyEval_SaveThread");
  if (holds_lock && release && !is_finalizing() && holds_lock()) thread_state_ = release();
}

WithoutLock::~WithoutLock() {
  static auto* const take = find<void(void*)>("PyEval_RestoreThread");
  if (thread_state_ && take) take(thread_state_);
}

}  // namespace triage::python
