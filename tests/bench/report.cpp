#include "report.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <torch/version.h>
#include <triage/version.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "bindings/cli/commands/blas.h"

namespace triage::bench {
namespace {

/// Three digits that count.
std::string number(double value) {
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

std::string goal_of(const Line& line) {
  if (line.goal == 0) return "";
  return line.limit.empty() ? number(line.goal) : fmt::format("{:.2f} x", line.goal);
}

const char* verdict(const Line& line) { return line.goal == 0 ? "" : line.within() ? "within" : "over"; }

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

double machine_load() {
  double one_minute = 0;
  return ::getloadavg(&one_minute, 1) == 1 ? one_minute : 0;
}

std::string today() {
  char text[16];
  const std::time_t now = std::time(nullptr);
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

std::string markdown(const Report& report) {
  std::string text = fmt::format("{}, {}, {} cores{}; triage {} on LibTorch {}, {}; load {:.1f}.\n\n", today(),
                                 processor(), std::thread::hardware_concurrency(),
                                 at::get_num_threads() == 1 ? "" : fmt::format(", {} threads", at::get_num_threads()),
                                 TRIAGE_VERSION, TORCH_VERSION, cli::loaded_blas().name, machine_load());
  bool limits = false;
  for (const Line& line : report.lines) limits = limits || !line.limit.empty();
  text += limits ? "| | shape | took | limit | | ratio | goal | |\n|---|---|---|---|---|---|---|---|\n"
                 : "| | shape | took | goal | |\n|---|---|---|---|---|\n";
  for (const Line& line : report.lines) {
    text += fmt::format("| {} | {} | {} ± {} {} |", line.work, line.shape, number(line.took), number(line.spread),
                        line.unit);
    if (limits && line.limit.empty()) text += " | | |";
    if (!line.limit.empty())
      text += fmt::format(" {} | {} {} | {:.2f} |", line.limit, number(line.limit_took), line.unit, line.ratio);
    text += fmt::format(" {} | {} |\n", goal_of(line), verdict(line));
  }
  return text;
}

}  // namespace

void print_head(const Report& report) {
  fmt::print("\n{}\n{:<34} {:<11} {:>9} {:>8}    {:<10} {:>9} {:>7} {:>8}\n", report.title, "", "shape", "took", "+-",
             "limit", "took", "ratio", "goal");
}

void print_line(const Line& line) {
  fmt::print("{:<34} {:<11} {:>9} {:>8} {:<2} ", line.work, line.shape, number(line.took), number(line.spread),
             line.unit);
  if (line.limit.empty())
    fmt::print("{:<10} {:>9} {:>7}", "", "", "");
  else
    fmt::print("{:<10} {:>9} {:>7.2f}", line.limit, number(line.limit_took), line.ratio);
  fmt::print(" {:>8}   {}\n", goal_of(line), verdict(line));
  std::fflush(stdout);
}

void write_json(const std::string& path, const std::vector<Report>& reports) {
  nlohmann::json all = {{"triage", TRIAGE_VERSION},        {"libtorch", TORCH_VERSION},
                        {"processor", processor()},        {"threads", at::get_num_threads()},
                        {"blas", cli::loaded_blas().name}, {"date", today()},
                        {"load", machine_load()}};
  for (const Report& report : reports) {
    nlohmann::json lines = nlohmann::json::array();
    for (const Line& line : report.lines) {
      nlohmann::json one = {{"work", line.work},
                            {"shape", line.shape},
                            {"took", line.took},
                            {"spread", line.spread},
                            {"unit", line.unit}};
      if (!line.limit.empty())
        one.update({{"limit", line.limit}, {"limit_took", line.limit_took}, {"ratio", line.ratio}});
      if (line.goal != 0) one.update({{"goal", line.goal}, {"floor", line.floor}, {"within", line.within()}});
      lines.push_back(std::move(one));
    }
    all["tables"][report.name] = std::move(lines);
  }
  std::ofstream file(path);
  file << all.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void write_page(const std::string& path, const std::vector<Report>& reports) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::string page((std::istreambuf_iterator<char>(in)), {});
  bool found = false;
  for (const Report& report : reports) {
    const std::string begin = "<!-- bench " + report.name + ": begin -->\n",
                      end = "<!-- bench " + report.name + ": end -->";
    const size_t from = page.find(begin), to = page.find(end);
    if (from == std::string::npos || to == std::string::npos || to < from) continue;
    found = true;
    page.replace(from + begin.size(), to - from - begin.size(), markdown(report));
  }
  if (!found) throw std::runtime_error(path + " has no marks of these tables; docs/performance-tables.md has");
  std::ofstream out(path);
  out << page;
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace triage::bench
