#pragma once
#include <string>
#include <vector>

/// The command line as data: what the generated completion and man pages are made of.
namespace triage::cli {

struct OptionDescription {
  std::vector<std::string> names;  // "--input", "-i"; empty: an argument without a name
  std::string value;               // "NAME=FILE"; empty: a switch
  std::string help;
  std::string default_value;
  bool repeated = false, required = false;
  /// What may be given, where the option takes one of few words: its value is written `a|b|c`.
  std::vector<std::string> words() const;
};

struct CommandDescription {
  std::string name, help, footer;
  std::vector<OptionDescription> options, arguments;
};

/// The program itself comes first, with an empty name.
std::vector<CommandDescription> describe_commands();

std::string bash_completion(const std::vector<CommandDescription>& commands);
std::string zsh_completion(const std::vector<CommandDescription>& commands);
/// The page of one command; that of the program lists them all.
std::string man_page(const CommandDescription& command, const std::vector<CommandDescription>& commands);

}  // namespace triage::cli
