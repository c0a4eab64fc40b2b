#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace triage::cli {

enum class Paint { heading, good, warning, error, faint };

/// `text` in colour where standard output is a terminal and NO_COLOR is not set (https://no-color.org).
std::string paint(Paint paint, std::string_view text);

/// One JSON value to standard output, ended by a newline, flushed. Text that is not UTF-8 is mended, never an error.
void print_json(const nlohmann::ordered_json& json, bool on_one_line = false);

/// To standard error, for a person who waits; overwritten by the next one. Nothing where that is no terminal.
class Progress {
 public:
  void show(const std::string& text);
  ~Progress();

 private:
  size_t shown_ = 0;
};

}  // namespace triage::cli
