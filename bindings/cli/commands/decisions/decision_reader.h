#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace triage::cli {

/// Lines of a decision log that could not be read: all are counted, the first are named.
struct DamagedLines {
  std::string file;
  uint64_t count = 0;
  std::vector<uint64_t> first = {};
};

/// One file of a decision log, line by line. It comes from elsewhere, and may end amid a line: what is no line of a log
/// is counted, and the rest is read. Takes the memory of one line.
class DecisionFile {
 public:
  /// "-" is standard input. Throws FileError.
  explicit DecisionFile(std::string path);

  /// Null at the end. An object with a `time`, and `dropped`, or `event` and its fields, or the fields of a decision,
  /// each of its type.
  std::optional<nlohmann::ordered_json> next();
  /// The time of the first such line; empty where there is none.
  const std::string& first_time();
  const DamagedLines& damaged() const { return damaged_; }

 private:
  enum class Line : uint8_t { whole, too_long, none };
  Line read_line(std::string& line);
  std::optional<nlohmann::ordered_json> read();

  struct Closer {
    void operator()(std::FILE* file) const;
  };
  std::unique_ptr<std::FILE, Closer> file_;
  DamagedLines damaged_;
  uint64_t line_number_ = 0;
  std::optional<nlohmann::ordered_json> ahead_;
  std::string first_time_;
  bool looked_ahead_ = false;
};

}  // namespace triage::cli
