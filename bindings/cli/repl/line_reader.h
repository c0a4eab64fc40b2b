#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace triage::cli {

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

  struct Line {
    std::string text;
    bool cancelled = false;  // Ctrl-C: forget what was typed so far
  };
  /// The next line, without its end; none at the end of input (Ctrl-D).
  std::optional<Line> read(const std::string& prompt);
  /// Puts a chunk, which may be of several lines, into the history, and the history into its file.
  void remember(const std::string& chunk);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace triage::cli
