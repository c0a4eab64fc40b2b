#pragma once
#include "table.h"

namespace triage::bench {

struct Report {
  std::string name, title;
  std::vector<Line> lines;
};

void print_head(const Report& report);
void print_line(const Line& line);

/// Every report, with the versions and the load of the machine.
void write_json(const std::string& path, const std::vector<Report>& reports);

/// Puts each report between `<!-- bench NAME: begin -->` and `<!-- bench NAME: end -->` of a Markdown page, where it
/// has them.
void write_page(const std::string& path, const std::vector<Report>& reports);

}  // namespace triage::bench
