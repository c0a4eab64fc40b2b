#pragma once
#include <new>

namespace triage::messages {

/// The one object of this type that lives until the process ends, threads included. It takes no memory from the heap,
/// so what needs it cannot fail where none is left.
template <class Object>
Object& immortal() {
  alignas(Object) static unsigned char memory[sizeof(Object)];
  static Object& object = *new (memory) Object;
  return object;
}

}  // namespace triage::messages
