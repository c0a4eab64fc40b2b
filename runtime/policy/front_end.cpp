#include "runtime/policy/front_end.h"

#include <fmt/format.h>
#include <triage/front_end.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "runtime/messages/enum_names.h"
#include "runtime/messages/fork_safe_mutex.h"

namespace triage {
namespace {

struct FrontEndRegistry {
  messages::ForkSafeMutex mutex;
  std::map<std::string, FrontEnd> front_ends;
};

// Never destroyed: policies may be loaded while other statics are going away.
FrontEndRegistry& registry() {
  static auto* instance = new FrontEndRegistry;
  return *instance;
}

std::string known_endings(const FrontEndRegistry& all) {
  std::string list;
  for (const auto& [ending, front_end] : all.front_ends) list += list.empty() ? ending : ", " + ending;
  return list;
}

}  // namespace

const char* to_string(OnError on_error) noexcept {
  return messages::name_in<OnError::last_good>({"raise", "pass_through", "last_good"}, on_error);
}

const char* to_string(OnViolation on_violation) noexcept {
  return messages::name_in<OnViolation::revert>({"flag", "pass_through", "revert"}, on_violation);
}

void register_front_end(const std::string& ending, FrontEnd front_end) {
  std::lock_guard lock(registry().mutex);
  registry().front_ends[ending] = std::move(front_end);
}

FrontEnd find_front_end(const std::string& path) {
  const std::string ending = policy::ending_of(path);
  std::lock_guard lock(registry().mutex);
  const auto found = registry().front_ends.find(ending);
  if (found != registry().front_ends.end()) return found->second;
  const std::string known = known_endings(registry());
  throw LoadError(
      known.empty() ? fmt::format("cannot load '{}': this program has no script engine; link triage::triage "
                                  "(triage::runtime alone has no Lua)",
                                  path)
                    : fmt::format("cannot load '{}': no script engine for the extension '{}'; there are engines for {}",
                                  path, ending, known),
      {path, 0});
}

namespace policy {

std::string ending_of(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  return ending.empty() ? ".lua" : ending;
}

bool has_front_end(const std::string& path) {
  std::lock_guard lock(registry().mutex);
  return registry().front_ends.count(ending_of(path)) > 0;
}

}  // namespace policy
}  // namespace triage
