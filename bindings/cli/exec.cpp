#include "bindings/lua/engine/exec.h"

#include <triage/error.h>

#include <filesystem>
#include <memory>

#include "bindings/cli/command.h"

namespace triage::cli {

void add_exec(CLI::App& app, Action& action, const std::vector<std::string>& script_arguments) {
  struct Options {
    std::string script;
    std::vector<std::string> unused;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("exec", "Run a trusted Lua script with the full library; `arg` holds its arguments");
  command->add_option("SCRIPT", options->script, "Lua file")->required();
  command->add_option("ARGS", options->unused, "arguments of the script, whatever they look like");  // for --help
  command->callback([options, &action, &script_arguments] {
    action = [options, &script_arguments] {
      std::error_code ignored;
      if (!std::filesystem::exists(options->script, ignored))
        throw FileError("cannot read \"" + options->script + "\": there is no such file");
      if (std::filesystem::is_directory(options->script, ignored))
        throw FileError("cannot read \"" + options->script + "\": it is a folder");
      return lua::exec_script(options->script, script_arguments);
    };
  });
}

}  // namespace triage::cli
