#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <triage/version.h>

#include <lua.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bindings/cli/commands.h"
#include "bindings/cli/commands/version.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {

using Json = nlohmann::ordered_json;

std::string torch_setting(const std::string& config, std::string_view key) {
  size_t at = config.find(key);
  if (at == std::string::npos) return "";
  at += key.size();
  return config.substr(at, config.find_first_of(",\n", at) - at);
}

std::string torch_release() {
  const std::string running = torch_setting(at::show_config(), "TORCH_VERSION=");
  return running.empty() ? TORCH_VERSION : running;
}

std::string lua_release() {
  std::string_view identity(lua_ident);  // "$LuaVersion: Lua 5.4.4  Copyright ..."
  size_t start = identity.find("Lua 5");
  if (start == std::string_view::npos) return LUA_RELEASE;
  start += 4;
  return std::string(identity.substr(start, identity.find(' ', start) - start));
}

std::string library_of(const void* symbol) {
  Dl_info info{};
  return ::dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "";
}

std::string torch_library() { return library_of(reinterpret_cast<const void*>(&at::show_config)); }
std::string lua_library() { return library_of(lua_ident); }

std::string built_by() {
#ifdef __clang__
  return fmt::format("clang {}", __clang_version__);
#else
  return fmt::format("gcc {}", __VERSION__);
#endif
}

namespace {

Json describe() {
  return {{"triage", version()},
          {"libtorch", torch_release()},
          {"libtorch_headers", TORCH_VERSION},
          {"libtorch_library", torch_library()},
          {"lua", lua_release()},
          {"lua_library", lua_library()},
          {"compiler", built_by()},
          {"cpu", torch_setting(at::show_config(), "CPU capability usage: ")},
          {"threads", at::get_num_threads()}};
}

}  // namespace

int run(const VersionCommand& options) {
  Json facts = describe();
  if (options.json) {
    print_json(facts);
    return 0;
  }
  auto text = [&](const char* key) { return facts[key].get<std::string>(); };
  say("triage {}\n", text("triage"));
  say("  LibTorch  {}  {}\n", text("libtorch"), paint(Paint::faint, text("libtorch_library")));
  if (text("libtorch") != text("libtorch_headers")) say("            built for {}\n", text("libtorch_headers"));
  say("  Lua       {}  {}\n", text("lua"), paint(Paint::faint, text("lua_library")));
  say("  compiler  {}\n  CPU       {}\n  threads   {}\n", text("compiler"), text("cpu"), facts["threads"].get<int>());
  return 0;
}

}  // namespace triage::cli
