#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/version.h>

#include "bindings/cli/commands/generate/command_tree.h"

namespace triage::cli {
namespace {

/// Plain text for roff: nothing in it is a request or an escape.
std::string roff(const std::string& text) {
  std::string result;
  bool at_line_start = true;
  for (const char c : text) {
    if (at_line_start && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else if (c == '`')
      result += "\\`";
    else
      result += c;
    at_line_start = c == '\n';
  }
  return result;
}

std::string sentence(const std::string& text) {
  const bool ends = !text.empty() && (text.back() == '.' || text.back() == '?' || text.back() == '\n');
  return text + (text.empty() || ends ? "" : ".");
}

std::string option_text(const OptionDescription& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
  if (!option.value.empty()) names += (names.empty() ? "" : " ") + ("\\fI" + roff(option.value) + "\\fR");
  std::string text = ".TP\n" + names + "\n" + roff(sentence(option.help));
  if (!option.default_value.empty()) text += " Default: " + roff(option.default_value) + ".";
  if (option.repeated) text += " May be given several times.";
  return text + "\n";
}

std::string synopsis(const CommandDescription& command) {
  std::string text = "\\fBtriage " + roff(command.name) + "\\fR";
  if (command.name.empty()) return "\\fBtriage\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n";
  if (!command.options.empty()) text += " [\\fIOPTIONS\\fR]";
  for (const OptionDescription& argument : command.arguments) {
    const std::string shown = fmt::format("\\fI{}\\fR{}", roff(argument.value), argument.repeated ? "..." : "");
    text += argument.required ? " " + shown : " [" + shown + "]";
  }
  return text + "\n";
}

std::string section(const char* title, const std::vector<OptionDescription>& options) {
  if (options.empty()) return "";
  std::string text = fmt::format(".SH {}\n", title);
  for (const OptionDescription& option : options) text += option_text(option);
  return text;
}

std::string page_name(const CommandDescription& command) {
  return command.name.empty() ? "triage" : "triage-" + command.name;
}

}  // namespace

std::string man_page(const CommandDescription& command, const std::vector<CommandDescription>& commands) {
  std::string upper = page_name(command);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  std::string text =
      fmt::format(".\\\" Generated from the command line of triage.\n.TH {} 1 \"\" \"triage {}\" \"User Commands\"\n",
                  upper, version());
  const std::string brief = command.help.substr(0, command.help.find_first_of(".:\n"));
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(page_name(command)), roff(brief));
  text += ".SH SYNOPSIS\n" + synopsis(command);
  text += ".SH DESCRIPTION\n" + roff(sentence(command.help)) + "\n";
  if (!command.footer.empty())
    text += ".PP\n.nf\n" + roff(command.footer) + (command.footer.back() == '\n' ? "" : "\n") + ".fi\n";
  if (command.name.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandDescription& other : commands)
      if (!other.name.empty())
        text += fmt::format(".TP\n\\fB{}\\fR\n{}\nSee \\fB{}\\fR(1).\n", roff(other.name), roff(sentence(other.help)),
                            roff(page_name(other)));
  }
  text += section("ARGUMENTS", command.arguments) + section("OPTIONS", command.options);
  text += ".SH EXIT STATUS\n0: success. 1: the policy or script failed. 2: wrong use.\n";
  return text + (command.name.empty() ? "" : ".SH SEE ALSO\n\\fBtriage\\fR(1)\n");
}

}  // namespace triage::cli
