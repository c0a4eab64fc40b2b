#pragma once

/// Whether an intrusive_ptr is the only owner of its object, with all that former owners wrote to it visible from here
/// on. LibTorch 1.13 loads the count with acquire order in `unique`; current ones do only in `is_uniquely_owned`.
namespace triage::compat {

template <typename Pointer>
bool is_unique(const Pointer& pointer) noexcept {
  if constexpr (requires { pointer.is_uniquely_owned(); })
    return pointer.is_uniquely_owned();
  else
    return pointer.unique();
}

}  // namespace triage::compat
