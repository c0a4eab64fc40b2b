#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bindings/cli/commands/generate/command_tree.h"

namespace triage::cli {
namespace {

/// As one word of a shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

/// The first sentence, or what stands before the first `;` or `:`: help in one line.
std::string brief(const std::string& help) {
  const size_t end = std::min({help.find(". "), help.find(';'), help.find(": "), help.find('\n')});
  return help.substr(0, end);
}

std::vector<std::string> command_names(const std::vector<CommandDescription>& commands) {
  std::vector<std::string> names;
  for (const CommandDescription& command : commands)
    if (!command.name.empty()) names.push_back(command.name);
  return names;
}

std::vector<std::string> option_names(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

/// Is it a file, a folder, or something that holds the name of one behind a `=`?
bool names_file(const std::string& value) {
  for (const char* word : {"FILE", "DIR", "PATH", "POLICY", "SCRIPT"})
    if (value.find(word) != std::string::npos) return true;
  return false;
}

/// Colons and brackets mean something in the specifications of zsh.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text)
    result += c == ':' || c == '[' || c == ']' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result;
}

std::string zsh_values(const OptionDescription& option) {
  if (option.value.empty()) return "";
  const std::vector<std::string> words = option.words();
  if (!words.empty()) return fmt::format(":{}:({})", "value", fmt::join(words, " "));
  return fmt::format(":{}:{}", zsh_text(option.value), names_file(option.value) ? "_files" : "");
}

/// `(-o --output)'{-o,--output}'[help]:FILE:_files'`, one for each name: plain words need no brace expansion.
std::vector<std::string> zsh_options(const CommandDescription& command) {
  std::vector<std::string> specifications;
  for (const OptionDescription& option : command.options)
    for (const std::string& name : option.names) {
      const std::string others = option.repeated ? "*" : fmt::format("({})", fmt::join(option.names, " "));
      specifications.push_back(
          quoted(fmt::format("{}{}[{}]{}", others, name, zsh_text(brief(option.help)), zsh_values(option))));
    }
  for (size_t i = 0; i < command.arguments.size(); ++i) {  // the last one stands for all that follow
    const OptionDescription& argument = command.arguments[i];
    const bool last = i + 1 == command.arguments.size();
    const std::string words = zsh_values(argument);
    const std::string values = command.name == "help"     ? ":_triage_commands"
                               : argument.words().empty() ? ":_files"
                                                          : words.substr(words.rfind(':'));
    const std::string name = argument.words().empty() ? argument.value : "value";
    specifications.push_back(quoted((last ? "*" : std::to_string(i + 1)) + ":" + name + values));
  }
  return specifications;
}

}  // namespace

std::vector<std::string> OptionDescription::words() const {
  std::vector<std::string> result;
  if (value.find('|') == std::string::npos) return result;
  for (size_t from = 0, end = 0; end != std::string::npos; from = end + 1) {
    end = value.find('|', from);
    result.push_back(value.substr(from, end - from));
  }
  return result;
}

std::string bash_completion(const std::vector<CommandDescription>& commands) {
  std::string values, options;
  for (const CommandDescription& command : commands) {
    for (const OptionDescription& option : command.options) {
      if (option.value.empty()) continue;
      const std::vector<std::string> words = option.words();
      std::string cases;
      for (const std::string& name : option.names)
        cases += fmt::format("{}'{} {}'", cases.empty() ? "" : " | ", command.name, name);
      if (!words.empty())
        values += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", cases,
                              fmt::join(words, " "));
      else if (names_file(option.value))
        values += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", cases);
      else
        values += fmt::format("    {}) return ;;\n", cases);
    }
    std::vector<std::string> words;
    for (const OptionDescription& argument : command.arguments)
      for (std::string& word : argument.words()) words.push_back(std::move(word));
    options += fmt::format("    '{}') options='{}'{} ;;\n", command.name, fmt::join(option_names(command), " "),
                           words.empty() ? "" : fmt::format(" words='{}'", fmt::join(words, " ")));
  }
  const std::string names = fmt::format("{}", fmt::join(command_names(commands), " "));
  return fmt::format(R"sh(# Completion of triage for bash, generated from its command line.
_triage() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command='' options='' words='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in -*) ;; *) command=${{COMP_WORDS[i]}}; break ;; esac
  done
  # bash takes `=` for a word of its own: behind NAME= stands a file.
  if [[ $word == '=' ]]; then COMPREPLY=($(compgen -f)); return; fi
  if [[ $previous == '=' ]]; then COMPREPLY=($(compgen -f -- "$word")); return; fi
  case "$command $previous" in
{}  esac
  case $command in
{}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ -z $command || $command == help ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$word"))
  else
    COMPREPLY=($(compgen -f -W "$words" -- "$word"))
  fi
}}
complete -o filenames -F _triage triage
)sh",
                     values, options, names);
}

std::string zsh_completion(const std::vector<CommandDescription>& commands) {
  std::string described, cases, own;
  for (const CommandDescription& command : commands) {
    const std::string arguments = fmt::format("{}", fmt::join(zsh_options(command), " \\\n        "));
    if (command.name.empty()) {
      own = arguments;
      continue;
    }
    described += "    " + quoted(zsh_text(command.name) + ":" + brief(command.help)) + "\n";
    cases += fmt::format("      {})\n        _arguments -S {} ;;\n", command.name, arguments);
  }
  return fmt::format(R"sh(#compdef triage
# Completion of triage for zsh, generated from its command line.
_triage_commands() {{
  local -a commands=(
{}  )
  _describe -t commands 'triage command' commands
}}
_triage() {{
  local context state state_descr line
  typeset -A opt_args
  _arguments -C {} \
    '1: :_triage_commands' '*:: :->arguments'
  if [[ $state == arguments ]]; then
    case $words[1] in
{}    esac
  fi
}}
if [[ $funcstack[1] == _triage ]]; then _triage "$@"; else compdef _triage triage; fi
)sh",
                     described, own, cases);
}

}  // namespace triage::cli
