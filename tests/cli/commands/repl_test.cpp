// `triage repl`: driven by a pipe, and at a terminal of its own.
#include <doctest/doctest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include <fcntl.h>
#include <chrono>
#include <csignal>
#include <regex>
#include <thread>

#include "tests/cli/program.h"

namespace {

/// What the program answers to these lines, read from a pipe.
Ran answers(const std::string& lines) {
  TemporaryFolder folder;
  write_bytes(folder / "in", lines);
  const std::string command = shell_quoted(program_path()) + " repl < " + shell_quoted(folder / "in") + " > " +
                              shell_quoted(folder / "out") + " 2> " + shell_quoted(folder / "err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(folder / "out"), read_bytes(folder / "err")};
}

/// The program at a terminal: what is typed, and what stands on the screen without colours and cursor movements.
class Terminal {
 public:
  explicit Terminal(const std::string& state) {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE(master_ >= 0);
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    const std::string name = ::ptsname(master_);
    child_ = ::fork();
    if (child_ == 0) {
      ::setsid();
      const int slave = ::open(name.c_str(), O_RDWR);
      ::ioctl(slave, TIOCSCTTY, 0);
      winsize size{50, 120, 0, 0};
      ::ioctl(slave, TIOCSWINSZ, &size);
      for (int descriptor : {0, 1, 2}) ::dup2(slave, descriptor);
      ::setenv("XDG_STATE_HOME", state.c_str(), 1);
      ::setenv("TERM", "xterm", 1);
      ::setenv("NO_COLOR", "1", 1);
      ::execl(program_path().c_str(), "triage", "repl", nullptr);
      ::_exit(127);
    }
  }
  ~Terminal() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text) { REQUIRE(::write(master_, text.data(), text.size()) > 0); }

  /// Waits until `text` has come since the last wait, and `then` behind it.
  bool shows(const std::string& text, const std::string& then = "") {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      const std::string seen = plain();
      const size_t at = seen.find(text);
      if (at != std::string::npos && seen.find(then, at + text.size()) != std::string::npos) {
        screen_.clear();
        return true;
      }
      pollfd waiting{master_, POLLIN, 0};
      if (::poll(&waiting, 1, 100) <= 0) continue;
      char buffer[4096];
      const ssize_t count = ::read(master_, buffer, sizeof(buffer));
      if (count <= 0) break;
      screen_.append(buffer, static_cast<size_t>(count));
    }
    MESSAGE("waited for '" << text << "' on: " << plain());
    return false;
  }

  /// Are keys such as Ctrl-C now the program's own, and not signals?
  bool keys_are_read() const {
    termios modes{};
    return ::tcgetattr(master_, &modes) == 0 && (modes.c_lflag & (ISIG | ICANON)) == 0;
  }

  int exit_status() {
    int status = 0;
    for (int i = 0; i < 600; ++i) {
      if (::waitpid(child_, &status, WNOHANG) == child_) {
        child_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      char buffer[4096];
      pollfd waiting{master_, POLLIN, 0};
      if (::poll(&waiting, 1, 0) > 0) (void)!::read(master_, buffer, sizeof(buffer));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // a terminal that was closed is always ready
    }
    return -1;
  }

 private:
  std::string plain() const {
    static const std::regex sequences("\x1b\\[[0-9;?]*[A-Za-z]|\r");
    return std::regex_replace(screen_, sequences, "");
  }

  int master_ = -1;
  pid_t child_ = 0;
  std::string screen_;
};

}  // namespace

TEST_CASE("repl prints the values of expressions, and nothing for statements") {
  Ran ran = answers("1 + 1\n= 'a', nil, true\nx = 3\nx\nprint('p')\n_ * 2\n\n-- a note\n");
  CHECK(ran.status == 0);
  CHECK(ran.err.empty());
  CHECK(ran.out == "2\na\nnil\ntrue\n3\np\n6\n");
}

TEST_CASE("repl goes on in the next line while a chunk is unfinished") {
  Ran ran =
      answers("for i = 1, 2 do\nprint(i)\nend\nlocal t = {\n  1,\n  name = 'x',\n}\nt\ns = [[a\nb]]\ns\n1 +\n2\n");
  CHECK(ran.status == 0);
  CHECK(ran.out == "1\n2\n{1, name = \"x\"}\na\nb\n3\n");
  Ran cut = answers("for i = 1, 2 do\n");
  CHECK(cut.status == 1);
  CHECK(has(cut.err, "the input ended inside a chunk that begins with \"for i = 1, 2 do\""));
}

TEST_CASE("repl remembers locals from line to line, and a local hides the library without harming it") {
  Ran ran = answers(
      "local n <const>, m = 2, 3\nlocal function f(k) return k * n end\nf(m)\nlocal err = 'mine'\nerr\nerr = nil\n"
      "err.NAN\ndo local hidden = 1 end\nhidden\nload('return n')()\n_G.n\n");
  CHECK(ran.err.empty());
  CHECK(ran.out == "6\nmine\n1\nnil\n2\n2\n");
}

TEST_CASE("repl prints tensors, flags with their bad samples, tables and graphs") {
  Ran ran = answers(
      "x = torch.tensor({{1.0, 2.0}, {0/0, 1.0}})\nx\nf = flag_nan(x, 'layer')\nf\nf2 = push(f, err.SATURATED, "
      "'out')\nf2\n"
      "{f = f, 1, {2}}\nerr.new(x)\ntriage.compile(function(z) return flag_nan(z, 'c') end)(x)\n"
      "triage.explain(function(z) return z:relu() end, x)\n");
  CHECK(ran.err.empty());
  CHECK(ran.out.rfind("tensor([[1., 2.],\n        [nan, 1.]])\nTensor float32[2, 2]  (1 NaN)\n"
                      "ErrorFlags(2 samples, 1 errors: 1xNAN @ layer)\n"
                      "  sample  slot  code  location  severity\n"
                      "       1     0  NAN   layer     CRITICAL\n"
                      "ErrorFlags(2 samples, 3 errors: 2xSATURATED, 1xNAN @ layer, out)\n"
                      "  sample  slot  code       location  severity\n"
                      "       0     0  SATURATED  out       WARN\n"
                      "       1     0  NAN        layer     CRITICAL\n"
                      "       1     1  SATURATED  out       WARN\n"
                      "{1, {2}, f = Tensor int64[2, 4]}\n"
                      "ErrorFlags(2 samples, no errors)\n"
                      "ErrorFlags(2 samples, 1 errors: 1xNAN @ c)\n",
                      0) == 0);
  CHECK(has(ran.out, "Graph Count: 1\n"));
  CHECK(has(ran.out, "aten::relu(%z)"));
}

TEST_CASE("repl: help, exit, and what functions take") {
  TemporaryFolder folder;
  const auto typed = [&](const std::string& text) {
    write_bytes(folder / "typed", text);
    const int status = std::system((shell_quoted(program_path()) + " repl < " + shell_quoted(folder / "typed") + " > " +
                                    shell_quoted(folder / "out") + " 2> " + shell_quoted(folder / "err"))
                                       .c_str());
    CHECK(WIFEXITED(status));
    return std::pair(WEXITSTATUS(status), read_bytes(folder / "out"));
  };
  CHECK(typed("1\nexit\n2\n") == std::pair(0, std::string("1\n")));
  CHECK(typed("quit()\n2\n") == std::pair(0, std::string()));
  CHECK(typed("error('x')\nexit\n").first == 1);
  CHECK(typed("help\n").second.find("help NAME") != std::string::npos);
  CHECK(typed("help torch.gather\n").second ==
        "gather(self: Tensor, dim: int, index: Tensor, {sparse_grad: boolean = false}) -> Tensor\n");
  CHECK(typed("help z:sum_to_size\n").second.find("sum_to_size(self: Tensor, size: {int}) -> Tensor\n") == 0);
  CHECK(typed("help nope\n").first == 1);
  CHECK(typed("function(a, b, ...) end\n").second == "function(a, b, ...) repl:1\n");
  CHECK(typed("fix\n").second.find("fix: function(z, flags, location, options)\n") == 0);
  CHECK(typed("err.has_nan\n").second.find("err.has_nan: function(f") == 0);
  CHECK(typed("print\n").second == "print: function\n");
  CHECK(typed("torch.ones({2, 3}):size()\n").second == "{2, 3}\n");
}

TEST_CASE("repl goes on after an error, and a pipe learns of it by the status") {
  Ran ran = answers("error('first')\nx = )\nnosuch.field\ntorch.ones({2}):mm(3)\n'still here'\n");
  CHECK(ran.status == 1);
  CHECK(ran.out == "still here\n");
  CHECK(has(ran.err, "repl:1: first\nstack traceback:\n"));
  CHECK(has(ran.err, "unexpected symbol near ')'"));
  CHECK(has(ran.err, "attempt to index a nil value (global 'nosuch')"));
  CHECK(has(ran.err, "mm"));
}

TEST_CASE("repl has the whole environment of exec") {
  Ran ran = answers("type(io.open)\ntype(require)\ntorch.manual_seed(1)\ntype(set_config)\narg[0]\n");
  CHECK(ran.err.empty());
  CHECK(ran.out == "function\nfunction\nfunction\nrepl\n");
}

TEST_CASE("at a terminal: completion, history, Ctrl-C, Ctrl-D") {
  TemporaryFolder state;
  {
    // What is typed before the prompt is there would meet the terminal as the kernel drives it.
    Terminal terminal(state.path().string());
    REQUIRE(terminal.shows("> "));
    terminal.type("x = torch.ones({2, 2})\n");
    REQUIRE(terminal.shows("\n> "));
    terminal.type("x:softma\t(-1)\n");
    CHECK(terminal.shows("tensor([[0.5000, 0.5000]", "\n> "));
    terminal.type("flag_nan_and_\t\n");
    CHECK(terminal.shows("function", "\n> "));
    terminal.type("x:log_s\t");
    CHECK(terminal.shows("x:log_softmax", "> x:log_s"));
    terminal.type("\x03");  // forgets the line
    CHECK(terminal.shows("\n> "));
    terminal.type("for i = 1, 2 do\n");
    CHECK(terminal.shows("\n>> "));
    terminal.type("\x03");
    CHECK(terminal.shows("\n> "));
    terminal.type("print('running') while true do pcall(function() end) end\n");
    CHECK(terminal.shows("\nrunning\n"));
    terminal.type("\x03");
    CHECK(terminal.shows("interrupted", "\n> "));
    terminal.type("'alive', #x\n");
    CHECK(terminal.shows("alive\n2\n", "> "));
    terminal.type("\x04");
    CHECK(terminal.exit_status() == 0);
  }
  const std::string history = read_bytes(state / "triage/history");
  CHECK(has(history, "softmax"));
  Terminal terminal(state.path().string());
  REQUIRE(terminal.shows("> "));
  terminal.type("\x1b[A\n");  // the last line of the session before
  CHECK(terminal.shows("attempt to get length of a nil value (global 'x')", "\n> "));
  terminal.type("\x04");
  CHECK(terminal.exit_status() == 0);
}

TEST_CASE("at a terminal: whoever sees the prompt may press Ctrl-C") {
  TemporaryFolder state;
  Terminal terminal(state.path().string());
  REQUIRE(terminal.shows("> "));
  CHECK(terminal.keys_are_read());
  for (int i = 0; i < 300; ++i) {
    terminal.type("for i = 1, 2 do\n");
    REQUIRE(terminal.shows("\n>> "));
    REQUIRE(terminal.keys_are_read());
    terminal.type("\x03");
    REQUIRE(terminal.shows("\n> "));
    REQUIRE(terminal.keys_are_read());
  }
  terminal.type("\x04");
  CHECK(terminal.exit_status() == 0);
}
