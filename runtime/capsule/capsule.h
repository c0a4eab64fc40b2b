#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/capsule/saved_tensors.h"

/// A call with all that it depended on, as one file, which repeats it elsewhere.
///
/// The file is a `.pt` file, which Python reads with torch.load(weights_only=True): a dict of `capsule` (JSON, below),
/// `checksum` (of that text) and `memories` (a list of tensors). It is data: nothing in it runs when it is read.
///
/// The JSON has: `format` (capsule_format), `kind` ("policy" or "function"), `name`, `why`, `when`, `versions`,
/// `machine`, `modes`, `config`, `compiler_config`, `locations` (by id), `random` (the state of the generator, as a
/// tensor), `script` (what the function sees besides its arguments, by the front end), `call` (by who records),
/// `result`, `tensors` (SavedTensors), and `memories` (their checksums).
namespace triage::capsule {

constexpr int capsule_format = 1;
constexpr uint64_t most_bytes = uint64_t{256} << 20;  // of tensors in one

struct Capsule {
  Json facts;
  std::vector<at::Tensor> memories;
};

/// Throws FileError. `tensors` are those that numbers in `facts` mean.
void save(const std::string& path, Json facts, const SavedTensors& tensors);
/// Throws FileError for a file that is none, of another format, or damaged.
Capsule load(const std::string& path);

/// What every capsule has: versions, machine, and the surroundings.
Json common_facts();
/// Modes of this thread, settings of the process, and locations.
Json surroundings();

/// While one lives, modes, settings and locations are as the capsule says. Locations must be the same under the same
/// ids: throws InputError where this process has given an id to another name.
class Surroundings {
 public:
  explicit Surroundings(const Json& facts);
  ~Surroundings();
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

 private:
  struct SavedSettings;
  std::unique_ptr<SavedSettings> before_;
};

/// How this process differs from that of the capsule, where that may change bits: a sentence each.
std::vector<std::string> differences_of_machine(const Json& facts);

}  // namespace triage::capsule
