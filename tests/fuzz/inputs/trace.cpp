#include "bindings/cli/commands/report/page.h"
#include "bindings/cli/commands/report/report_data.h"
#include "bindings/cli/commands/report/trace_reader.h"
#include "tests/fuzz/inputs/targets.h"

namespace triage::fuzz {
namespace {

size_t count(const std::string& text, std::string_view part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

}  // namespace

/// Whatever a trace says, the page has as many tags as without it.
void read_trace(std::string_view lines) {
  static const std::string empty = [] {
    cli::SkippedLines none;
    return cli::page_with("triage report", "page.js", cli::ReportData(none).page());
  }();
  const MemoryFile memory(lines);
  cli::SkippedLines skipped;
  cli::ReportData data(skipped);
  cli::read_trace(
      memory.path(), [&](const nlohmann::json& event) { data.add(event); }, skipped);
  data.summary();
  const std::string page = cli::page_with("triage report", "page.js", data.page());
  if (count(page, "<") != count(empty, "<")) throw Broken("a trace makes tags in the page");
}

std::vector<std::string> trace_seeds() {
  const std::string header =
      R"({"event":"trace","format":1,"triage":"0.1.0","libtorch":"2.1","machine":"Linux","pid":7,"time":1795781668.5})"
      "\n";
  const std::string graph =
      R"lines({"event":"source","file":"f.lua","text":"return policy {}\n","t":-0.1,"thread":1}
{"event":"capture","function":"f","file":"f.lua","line":3,"backend":"fused","segment":false,"t":0.1,"thread":1,"graph":1}
{"event":"graph","stage":"captured","name":"f","head":"graph f(%z):","nodes":[["%1 = aten::isnan(%z)","%1","f.lua",4]],"outputs":"%1","t":0.2,"thread":1,"graph":1}
{"event":"groups","name":"f","groups":[[true,["%1"],"loops over rows\n"]],"t":0.3,"thread":1,"graph":1}
{"event":"code","name":"f","code":"void f() {}\n","t":0.3,"thread":1,"graph":1}
{"event":"guards","text":"z: rank 2 (read at f.lua:3)\n","t":0.3,"thread":1,"graph":1}
{"event":"kernel","key":"8731ae10","origin":"compiled in 0.19 s","t":0.4,"thread":2,"graph":1}
{"event":"captured","t":0.1,"thread":1,"graph":1,"seconds":0.002}
)lines";
  const std::string life =
      R"lines({"event":"policy","policy":"f","path":"f.lua","level":"info","version":1,"message":"loaded","t":0.1,"thread":1}
{"event":"phase","phase":"capture","function":"f","t":0.1,"thread":1,"graph":1,"seconds":0.1}
{"event":"break","function":"f","file":"f.lua","line":3,"at_file":"f.lua","at_line":4,"id":"TB0001","what":"item","explanation":"e","hint":"h","stack":"s","t":0.1,"thread":1}
{"event":"recompile","function":"f","file":"f.lua","line":3,"why":"x size (read at f.lua:3)","t":0.1,"thread":1}
{"event":"failure","function":"f","backend":"fused","message":"</script><!--","t":0.1,"thread":1}
{"event":"flags","policy":"f","calls":1,"samples":64,"counts":[["encoder","NAN",5]],"t":9.5,"thread":1}
)lines";
  return {header + graph, header + life, header + graph + life};
}

}  // namespace triage::fuzz
