#pragma once
#include <fmt/format.h>

#include <string>

#include "runtime/messages/printable.h"

/// Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/
namespace triage::messages {

/// Names come from scripts: in a label they may not end it.
inline std::string label(const char* name, const std::string& value) {
  std::string text;
  for (const char c : one_line(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return fmt::format("{}=\"{}\"", name, text);
}

/// One metric: its head, and a line for each set of labels.
class Metric {
 public:
  Metric(std::string& text, const char* name, const char* type, const char* help) : text_(text), name_(name) {
    text_ += fmt::format("# HELP triage_{0} {2}\n# TYPE triage_{0} {1}\n", name, type, help);
  }
  template <class Number>
  void add(const std::string& labels, Number value, const char* ending = "") {
    text_ += fmt::format("triage_{}{}{{{}}} {}\n", name_, ending, labels, value);
  }

 private:
  std::string& text_;
  const char* name_;
};

}  // namespace triage::messages
