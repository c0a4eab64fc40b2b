#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Python pickles as data. The reader builds a tree and runs nothing: where a pickle says "import this and call it",
/// the tree holds a `call`, and whoever walks it decides what that means. LibTorch's own unpickler is not used because
/// it trusts the stream (sizes of storages, and in 1.13 the depth of its stack).
namespace triage::files {

using PickleRef = uint32_t;  // index into Pickle::objects

struct PickleObject {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    string,
    tuple,
    list,
    dict,
    global,
    call,
    persistent,
    other
  };
  Kind kind = Kind::none;
  int64_t integer = 0;  // boolean, integer
  double real = 0;
  std::string text = {};              // string; global: "module.name"; other: what it is, "bytes"
  std::vector<PickleRef> items = {};  // tuple, list; persistent: its id; call: what is called, arguments
  std::vector<PickleRef> pairs = {};  // dict, and call (an OrderedDict that was filled): key, value, key, value, ...
};

struct Pickle {
  std::vector<PickleObject> objects;  // may share and may even contain themselves: walk with a limit
  PickleRef root = 0;
  const PickleObject& at(PickleRef ref) const { return objects[ref]; }
};

/// Protocols 2 to 5, without out-of-band buffers. Throws Malformed. Takes time in proportion to `bytes`, and makes up
/// to 2,000,000 objects.
Pickle parse_pickle(std::string_view bytes);

}  // namespace triage::files
