#pragma once
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace triage::python {

/// While alive, operators go the way of a plain call: a program runs below autograd, which records the policy all the
/// same, and modes of Python that look at operators are none of the policy's.
class AsOutside {
 public:
  AsOutside() : guard_(plain()) {}

 private:
  static c10::impl::LocalDispatchKeySet plain() {
    c10::impl::LocalDispatchKeySet keys(c10::impl::PODLocalDispatchKeySet{});
    keys.excluded_ =
        keys.excluded_ | c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});
    return keys;
  }

  const c10::impl::ForceDispatchKeyGuard guard_;
};

}  // namespace triage::python
