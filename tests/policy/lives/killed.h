#pragma once
#include <filesystem>
#include <string>

#include "tests/policy/lives/life.h"

namespace lives {

struct Killed {
  Outside before, after;  // the arrow in which it was killed, as the model has it
  std::string history, failure;
};

/// Another process takes `steps` with `host`, and is killed. `moment`: in which arrow. The files of the host may be
/// half written then.
Killed kill(const Kind& kind, Host& host, const std::filesystem::path& cache, const Steps& steps, uint8_t moment);

}  // namespace lives
