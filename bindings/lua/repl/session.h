#pragma once
#include <memory>
#include <string>
#include <vector>

namespace triage::lua {

/// What `triage repl` talks to: an interpreter with all that `triage exec` has, which remembers from line to line. Not
/// thread-safe, but for `interrupt`.
///
/// Local variables of a chunk's outermost block become globals of the session, so that the next line still knows them
/// (rewriter/prompt_lines.h). They live in a table of the session's own in front of the library: `local err = 3` hides
/// the library's `err`, and `err = nil` brings it back.
class Session {
 public:
  /// Throws LoadError.
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  struct ReplAnswer {
    enum class Status { done, failed, unfinished } status = Status::done;
    std::string text;  // the values, or the error with its traceback; lines end with \n, the last one too
  };
  /// Runs a chunk. An expression, or `= expression`, answers with its values, and `_` then is the first of them. A text
  /// that could go on does nothing, and says so. An error ends the chunk, never the session.
  ReplAnswer evaluate(const std::string& text);

  /// What a name is: the value and, for an operator (`torch.gather`, `z:sum`), what it takes and gives.
  ReplAnswer help(const std::string& name);

  /// Stops the chunk that is running, with an error; nothing happens where none is. May be called from a signal
  /// handler.
  void interrupt() noexcept;

  /// What the last word of `line` may become: whole words (`x:softmax`, `torch.nn.functional`), sorted.
  std::vector<std::string> complete(const std::string& line);

 private:
  struct Interpreter;
  std::unique_ptr<Interpreter> interpreter_;
};

}  // namespace triage::lua
