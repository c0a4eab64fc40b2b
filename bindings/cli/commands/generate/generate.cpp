// `triage generate DIR`: what shells, `man` and editors read, below DIR as it lies below /usr/share.
#include <triage/error.h>

#include <filesystem>
#include <string>

#include "bindings/cli/commands.h"
#include "bindings/cli/commands/generate/command_tree.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/annotations/annotations.h"
#include "runtime/files/disk.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& file, const std::string& text) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error)
    throw FileError(fmt::format("cannot make the folder \"{}\": {}", file.parent_path().string(), error.message()));
  files::OutputFile out(file.string());
  out.write(text.data(), text.size());
  out.commit();
  say("{}\n", file.string());
}

}  // namespace

int run(const GenerateCommand& options) {
  const fs::path folder = options.folder;
  const std::vector<CommandDescription> commands = describe_commands();
  put(folder / "bash-completion" / "completions" / "triage", bash_completion(commands));
  put(folder / "zsh" / "site-functions" / "_triage", zsh_completion(commands));
  for (const CommandDescription& command : commands)
    put(folder / "man" / "man1" / (command.name.empty() ? "triage.1" : "triage-" + command.name + ".1"),
        man_page(command, commands));
  put(folder / "triage" / "lua" / "triage.lua", lua::editor_annotations());
  put(folder / "triage" / "luacheckrc", lua::luacheck_configuration());
  return 0;
}

}  // namespace triage::cli
