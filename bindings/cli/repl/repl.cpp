#include <fmt/format.h>
#include <triage/version.h>

#include <csignal>
#include <optional>
#include <string>

#include "bindings/cli/command.h"
#include "bindings/cli/repl/line_reader.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/repl/session.h"

namespace triage::cli {
namespace {

/// The session that Ctrl-C stops. Set before the handler is.
lua::Session* interrupted_session = nullptr;

void on_interrupt(int) { interrupted_session->interrupt(); }

/// Ctrl-C stops the chunk that runs, and nothing else.
class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(lua::Session& session) {
    interrupted_session = &session;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, &previous_);
  }
  ~StopOnInterrupt() { ::sigaction(SIGINT, &previous_, nullptr); }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

 private:
  struct sigaction previous_ {};
};

void greet() {
  say("triage {}. Lua with `torch`, `err`, `flags` and all that `triage exec` has.\n{}\n", version(),
      paint(Paint::faint, "Tab completes, Ctrl-C stops what runs, Ctrl-D ends. Local variables last until the end."));
}

/// Answers with what the chunk gave; errors go to standard error where a program reads the answers.
void print_answer(const lua::Session::Answer& answer, bool terminal) {
  const bool failed = answer.status == lua::Session::Answer::Status::failed;
  std::fflush(stdout);
  if (failed && !terminal) {
    say(stderr, "{}", answer.text);
  } else if (failed) {
    const size_t end = answer.text.find('\n');
    say("{}{}", paint(Paint::error, answer.text.substr(0, end)), answer.text.substr(end));
  } else {
    say("{}", answer.text);
  }
  std::fflush(stdout);
}

int repl() {
  using Status = lua::Session::Answer::Status;
  lua::Session session;
  LineReader reader([&](const std::string& line) { return session.complete(line); });
  const bool terminal = reader.on_terminal();
  std::optional<StopOnInterrupt> stop;  // where nobody types, Ctrl-C ends the program as it does others
  if (terminal) {
    stop.emplace(session);
    greet();
  }
  bool all_well = true;
  std::string chunk;
  while (auto line = reader.read(chunk.empty() ? "> " : ">> ")) {
    if (line->cancelled) {
      say("\n");
      chunk.clear();
      continue;
    }
    chunk += (chunk.empty() ? "" : "\n") + line->text;
    lua::Session::Answer answer = session.evaluate(chunk);
    if (answer.status == Status::unfinished) continue;
    print_answer(answer, terminal);
    all_well &= answer.status == Status::done;
    reader.remember(chunk);
    chunk.clear();
  }
  if (terminal) say("\n");
  if (!chunk.empty() && !terminal) {
    say(stderr, "triage repl: the input ended inside of a chunk that begins with \"{}\"\n",
        chunk.substr(0, chunk.find('\n')));
    return 1;
  }
  return terminal || all_well ? 0 : 1;
}

}  // namespace

void add_repl(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("repl", "Type Lua, line by line, with all that `triage exec` has");
  command->footer(
      "Expressions print their values; `_` is the last one. An unfinished chunk goes on in the next line.\n"
      "The history is kept in $XDG_STATE_HOME/triage/history, else ~/.local/state/triage/history.\n"
      "Without a terminal it reads standard input line by line, and ends with status 1 if anything failed.");
  command->callback([&action] { action = repl; });
}

}  // namespace triage::cli
