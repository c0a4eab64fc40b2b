#pragma once
#include "bindings/lua/sandbox/sandbox.h"

#include <triage/front_end.h>

#include <memory>
#include <string>
#include <vector>

namespace triage::lua {

/// Gives a policy what reads files of its folder, while it is loaded:
///
///     require "checks"         the value of lib/checks.lua, which runs once for each version of the policy
///     torch.load("table.pt")   what is in the file, as for trusted scripts (torch_files.h); `FILE:KEY` one of several
void add_policy_files(ScriptState& state);

/// While one lives, the script is being loaded: it may read files.
class FilesOfLoad {
 public:
  FilesOfLoad(ScriptState& state, const ScriptOptions& options);
  ~FilesOfLoad();
  FilesOfLoad(const FilesOfLoad&) = delete;
  FilesOfLoad& operator=(const FilesOfLoad&) = delete;

  ScriptState& state() const { return state_; }
  /// The bytes of a file. Throws FileError.
  std::shared_ptr<const std::string> read(const std::string& name) const;
  /// How messages name a file of the folder.
  std::string shown(const std::string& name) const;

  std::vector<std::string> loading;  // modules, the innermost last
  struct Module {
    std::string shown;
    std::shared_ptr<const std::string> source;
  };
  std::vector<Module> modules;  // that were loaded

 private:
  ScriptState& state_;
  const ScriptOptions& options_;
};

}  // namespace triage::lua
