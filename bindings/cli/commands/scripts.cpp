// `triage repl` and `triage exec`: Lua that is trusted.
#include <fmt/format.h>
#include <histedit.h>
#include <triage/error.h>
#include <triage/version.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/ranks.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/output.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/engine/exec.h"
#include "bindings/lua/repl/session.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;

/// Lines that a person types, with history, editing and completion; without a terminal, lines of standard input as they
/// come. `complete` gives the whole words that the last word of a line may become.
class LineReader {
 public:
  using Complete = std::function<std::vector<std::string>(const std::string& line)>;
  explicit LineReader(Complete complete);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool on_terminal() const { return terminal_ != nullptr; }

  struct InputLine {
    std::string text;
    bool cancelled = false;  // Ctrl-C: forget what was typed so far
  };
  /// The next line, without its end; none at the end of input (Ctrl-D).
  std::optional<InputLine> read(const std::string& prompt);
  /// Puts a chunk, which may be of several lines, into the history, and the history into its file.
  void remember(const std::string& chunk);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

constexpr int kept_lines = 2000;

/// Where the history stands: $XDG_STATE_HOME/triage/history, else under ~/.local/state. Empty where there is no home.
fs::path history_file() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state && *state == '/') return fs::path(state) / "triage" / "history";  // a relative one is to be ignored
  const char* const home = std::getenv("HOME");
  return home && *home ? fs::path(home) / ".local" / "state" / "triage" / "history" : fs::path();
}

std::string common_start(const std::vector<std::string>& words) {
  std::string start = words[0];
  for (const std::string& word : words)
    start.resize(
        static_cast<size_t>(std::mismatch(start.begin(), start.end(), word.begin(), word.end()).first - start.begin()));
  return start;
}

/// In columns, as wide as a terminal usually is.
void print_words(const std::vector<std::string>& words) {
  constexpr size_t width = 100, most = 200;
  size_t widest = 0;
  for (const std::string& word : words) widest = std::max(widest, word.size() + 2);
  const size_t columns = std::max<size_t>(1, width / widest), shown = std::min(words.size(), most);
  for (size_t i = 0; i < shown; ++i)
    std::printf("%s%-*s", i % columns == 0 ? "\n" : "", static_cast<int>(widest), messages::one_line(words[i]).c_str());
  if (shown < words.size()) std::printf("\n... and %zu more", words.size() - shown);
  std::printf("\n");
  flush(stdout);
}

struct LineReader::Terminal {
  explicit Terminal(Complete with) : complete(std::move(with)), file(history_file()) {
    editor = ::el_init("triage", stdin, stdout, stderr);
    history_list = ::history_init();
    HistEvent event;
    ::history(history_list, &event, H_SETSIZE, kept_lines);
    ::history(history_list, &event, H_SETUNIQUE, 1);
    if (!file.empty()) ::history(history_list, &event, H_LOAD, file.c_str());
    ::el_set(editor, EL_CLIENTDATA, this);
    ::el_set(editor, EL_PROMPT, prompt_of);
    ::el_set(editor, EL_EDITOR, "emacs");
    ::el_set(editor, EL_HIST, ::history, history_list);
    ::el_set(editor, EL_ADDFN, "triage-complete", "complete a name", complete_word);
    ::el_set(editor, EL_BIND, "^I", "triage-complete", nullptr);
    ::el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // Ctrl-C while a line is edited is a key like others; it stops a program only while a chunk runs.
    ::el_set(editor, EL_ADDFN, "triage-cancel", "forget the line", cancel_line);
    ::el_set(editor, EL_BIND, "^C", "triage-cancel", nullptr);
    ::el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    ::el_source(editor, nullptr);  // ~/.editrc
  }
  ~Terminal() {
    ::history_end(history_list);
    ::el_end(editor);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static Terminal& of(EditLine* editor) {
    void* self = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Terminal*>(self);
  }

  static char* prompt_of(EditLine* editor) { return of(editor).prompt.data(); }

  static unsigned char cancel_line(EditLine* editor, int) {
    of(editor).cancelled = true;
    return CC_NEWLINE;
  }

  static unsigned char complete_word(EditLine* editor, int) {
    const LineInfo* const line = ::el_line(editor);
    const std::string typed(line->buffer, line->cursor);
    if (typed.find_first_not_of(' ') == std::string::npos) {  // nothing to complete: an indentation
      ::el_insertstr(editor, "  ");
      return CC_REFRESH;
    }
    const std::vector<std::string> words = of(editor).complete(typed);
    if (words.empty()) return CC_REFRESH_BEEP;
    const std::string start = common_start(words);
    size_t already = std::min(start.size(), typed.size());
    while (typed.compare(typed.size() - already, already, start, 0, already) != 0) --already;
    if (start.size() > already) {
      ::el_insertstr(editor, start.c_str() + already);
      return CC_REFRESH;
    }
    if (words.size() == 1) return CC_REFRESH;
    print_words(words);
    return CC_REDISPLAY;
  }

  Complete complete;
  fs::path file;
  EditLine* editor = nullptr;
  History* history_list = nullptr;
  std::string prompt;
  bool cancelled = false;
};

LineReader::LineReader(Complete complete) {
  if (::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)) terminal_ = std::make_unique<Terminal>(std::move(complete));
}

LineReader::~LineReader() = default;

std::optional<LineReader::InputLine> LineReader::read(const std::string& prompt) {
  if (!terminal_) {
    std::string text;
    int c = 0;
    while ((c = std::getchar()) != EOF && c != '\n') text += static_cast<char>(c);
    if (c == EOF && text.empty()) return std::nullopt;
    return InputLine{text, false};
  }
  terminal_->prompt = prompt;
  terminal_->cancelled = false;
  int count = 0;
  // By itself el_gets shows the prompt first and takes the terminal over only then: a Ctrl-C in between would be a
  // signal, which nobody waits for here, and a Ctrl-D would be lost.
  ::el_set(terminal_->editor, EL_PREP_TERM, 1);
  const char* const typed = ::el_gets(terminal_->editor, &count);
  if (terminal_->cancelled) return InputLine{"", true};
  if (!typed || count <= 0) return std::nullopt;
  std::string text(typed, static_cast<size_t>(count));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return InputLine{text, false};
}

void LineReader::remember(const std::string& chunk) {
  if (!terminal_ || chunk.find_first_not_of(" \t\n") == std::string::npos) return;
  HistEvent event;
  ::history(terminal_->history_list, &event, H_ENTER, chunk.c_str());
  if (terminal_->file.empty()) return;
  std::error_code failed;
  fs::create_directories(terminal_->file.parent_path(), failed);
  // A history that cannot be kept is no reason to stop; the lines of this session are there all the same.
  if (!failed) ::history(terminal_->history_list, &event, H_SAVE, terminal_->file.c_str());
}

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
  say("triage {}. Lua with `torch`, `err`, `flags` and everything else that `triage exec` has.\n{}\n", version(),
      paint(Paint::faint,
            "`help` shows what there is, Tab completes, Ctrl-C stops the running code, `exit` or Ctrl-D exits. Local "
            "variables last for the whole session."));
}

/// A line that is one of the words of the prompt itself: "exit", "help", "help torch.gather".
struct PromptCommand {
  enum class Kind { none, exit, help } kind = Kind::none;
  std::string name;  // of what help is asked for
};

PromptCommand prompt_command(const std::string& line) {
  std::istringstream words(line);
  std::string first, second, third;
  words >> first >> second >> third;
  if (second.empty() && (first == "exit" || first == "quit" || first == "exit()" || first == "quit()"))
    return {PromptCommand::Kind::exit, ""};
  const bool is_path = second.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:") ==
                       std::string::npos;
  if (first == "help" && third.empty() && is_path) return {PromptCommand::Kind::help, second};
  return {};
}

constexpr const char* prompt_help =
    "An expression prints its value; `_` is the last one. A statement prints nothing. An unfinished chunk goes on in "
    "the next line.\n"
    "  help NAME   what a name is: help torch.gather, help fix, help err\n"
    "  exit        ends the session, as Ctrl-D does\n"
    "Tab completes names. Ctrl-C stops the running code. Ctrl-R searches the history.\n"
    "torch      tensors and their operations: torch.randn({4, 3}), z:sum({dim = -1}), z[1]\n"
    "err flags  errors of samples: f = flag_nan(z, \"here\"), err.is_err(f), z, f = fix(z, f, \"here\")\n"
    "triage     triage.compile(function), triage.explain(function, tensor), triage.config\n"
    "nn optim   layers, optimizers\n";

/// Answers with what the chunk gave; errors go to standard error where a program reads the answers.
void print_answer(const lua::Session::ReplAnswer& answer, bool terminal) {
  const bool failed = answer.status == lua::Session::ReplAnswer::Status::failed;
  flush(stdout);
  if (failed && !terminal) {
    say(stderr, "{}", PreformattedText{answer.text});
  } else if (failed) {
    const size_t end = answer.text.find('\n');
    say("{}{}", paint(Paint::error, answer.text.substr(0, end)), PreformattedText{answer.text.substr(end)});
  } else {
    say("{}", PreformattedText{answer.text});
  }
  flush(stdout);
}

}  // namespace

int run(const ReplCommand&) {
  using Status = lua::Session::ReplAnswer::Status;
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
    if (chunk.empty()) {
      const PromptCommand command = prompt_command(line->text);
      if (command.kind == PromptCommand::Kind::exit) return terminal || all_well ? 0 : 1;
      if (command.kind == PromptCommand::Kind::help) {
        const lua::Session::ReplAnswer answer =
            command.name.empty() ? lua::Session::ReplAnswer{Status::done, prompt_help} : session.help(command.name);
        print_answer(answer, terminal);
        all_well &= answer.status == Status::done;
        reader.remember(line->text);
        continue;
      }
    }
    chunk += (chunk.empty() ? "" : "\n") + line->text;
    lua::Session::ReplAnswer answer = session.evaluate(chunk);
    if (answer.status == Status::unfinished) continue;
    print_answer(answer, terminal);
    all_well &= answer.status == Status::done;
    reader.remember(chunk);
    chunk.clear();
  }
  if (terminal) say("\n");
  if (!chunk.empty() && !terminal) {
    say(stderr, "triage repl: the input ended inside a chunk that begins with \"{}\"\n",
        chunk.substr(0, chunk.find('\n')));
    return 1;
  }
  return terminal || all_well ? 0 : 1;
}

int run(const ExecCommand& options) {
  std::string source = options.code, chunk_name = "=(command line)";
  if (source.empty()) {
    if (options.script.empty()) throw UsageError("SCRIPT is required, or -e CODE. See triage exec --help");
    const bool is_input = options.script == "-";
    source = is_input ? read_source("-") : read_script(options.script);
    chunk_name = is_input ? "=stdin" : "@" + options.script;
  }
  if (options.ranks.empty()) return lua::exec_source(source, chunk_name, options.arguments);
  return in_ranks(options.ranks, options.timeout,
                  [&](const Group& group) { return lua::exec_source(source, chunk_name, options.arguments, group); });
}

}  // namespace triage::cli
