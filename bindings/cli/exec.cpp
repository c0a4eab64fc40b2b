#include "bindings/lua/engine/exec.h"

#include <triage/error.h>

#include <filesystem>
#include <memory>

#include "bindings/cli/command.h"

namespace triage::cli {

void add_exec(CLI::App& app, Action& action) {
  struct Options {
    std::string script;
    std::vector<std::string> arguments;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("exec", "Run a trusted Lua script with the full library; `arg` holds its arguments");
  command->add_option("SCRIPT", options->script, "Lua file")->required();
  command->add_option("ARGS", options->arguments, "arguments of the script, options included");
  command->prefix_command();   // what follows SCRIPT is the script's own, whatever it looks like
  command->callback([options, command, &action] {
    std::vector<std::string> rest = command->remaining();
    options->arguments.insert(options->arguments.end(), rest.begin(), rest.end());
    action = [options] {
      if (!std::filesystem::is_regular_file(options->script)) throw FileError("cannot read \"" + options->script + "\": there is no such file");
      return lua::exec_script(options->script, options->arguments);
    };
  });
}

}  // namespace triage::cli
