#include "tests/fuzz/operators/targets.h"

#include <limits>
#include <map>
#include <string_view>

namespace triage::fuzz {

std::vector<Target> contract_targets() {
  static const std::vector<std::string_view> names = {
#include "bindings/lua/sandbox/allowed_ops.inc"
  };
  std::map<std::string, std::vector<std::string>> known;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) known[name.name].push_back(name.overload_name);
  std::vector<Target> targets;
  for (const std::string_view base : names) {
    const std::string name = "aten::" + std::string(base);
    for (const std::string& overload : known[name]) {
      auto op = c10::Dispatcher::singleton().findSchema({name, overload});
      if (!op || overload.find("imname") != std::string::npos || overload.find("names") != std::string::npos) continue;
      targets.push_back({name + "." + overload, *op, [](Arguments) { return std::nullopt; },
                         [](Arguments) { return int64_t{32} << 20; }, [](Arguments) { return int64_t{500'000'000}; }});
    }
  }
  return targets;
}

}  // namespace triage::fuzz
