#include "bindings/cli/commands/report/report_data.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

namespace triage::cli {
namespace {

using Json = ReportData::Json;
using Event = ReportData::Event;

// What a page holds at most.
constexpr size_t most_processes = 100, most_sources = 500, most_functions = 1000, most_graphs = 500, most_spans = 5000;
constexpr size_t most_of_function = 200, most_of_graph = 50, most_nodes = 5000, most_policies = 200,
                 most_of_policy = 500;
constexpr size_t longest_text = 200'000;
constexpr double latest_time = 1e11;  // seconds: the year 5138
constexpr int64_t largest_count = int64_t{1} << 40;

std::string text_of(const Event& value) {
  if (!value.is_string()) return {};
  const auto& text = value.get_ref<const std::string&>();
  return text.size() <= longest_text ? text : text.substr(0, longest_text) + "\n... (cut)";
}

std::string text_in(const Event& event, const char* name) {
  const auto found = event.find(name);
  return found == event.end() ? std::string() : text_of(*found);
}

int64_t count_of(const Event& value) {
  if (!value.is_number_integer()) return 0;
  if (value.is_number_unsigned()) return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), largest_count));
  return std::clamp<int64_t>(value.get<int64_t>(), 0, largest_count);
}

int64_t count_in(const Event& event, const char* name) {
  const auto found = event.find(name);
  return found == event.end() ? 0 : count_of(*found);
}

double seconds_in(const Event& event, const char* name) {
  const auto found = event.find(name);
  if (found == event.end() || !found->is_number()) return 0;
  return std::clamp(found->get<double>(), -latest_time, latest_time);
}

const Event& list_in(const Event& event, const char* name) {
  static const auto& empty = *new Event(Event::array());
  const auto found = event.find(name);
  return found != event.end() && found->is_array() ? *found : empty;
}

/// Adds it, or to the count of an equal one; false where there are as many as may be.
bool add_counted(Json& list, Json one, const std::vector<const char*>& same) {
  for (Json& known : list) {
    if (!std::all_of(same.begin(), same.end(), [&](const char* name) { return known[name] == one[name]; })) continue;
    known["count"] = known["count"].get<int64_t>() + 1;
    return true;
  }
  if (list.size() >= most_of_function) return false;
  one["count"] = 1;
  list.push_back(std::move(one));
  return true;
}

/// [whether it is loops, [the first result of each node], text]
bool is_group(const Event& group) {
  return group.is_array() && group.size() == 3 && group[0].is_boolean() && group[1].is_array();
}

std::string without_last_line_end(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

void ReportData::add(const Event& event) {
  using Handler = void (ReportData::*)(const Event&);
  static const auto& handlers = *new std::map<std::string, Handler>{
      {"trace", &ReportData::begin_process},     {"source", &ReportData::add_source},
      {"capture", &ReportData::add_capture},     {"graph", &ReportData::add_graph},
      {"groups", &ReportData::add_groups},       {"guards", &ReportData::add_guards},
      {"times", &ReportData::add_times},         {"code", &ReportData::add_code},
      {"kernel", &ReportData::add_kernel},       {"break", &ReportData::add_break},
      {"recompile", &ReportData::add_recompile}, {"failure", &ReportData::add_failure},
      {"policy", &ReportData::add_policy}};
  const std::string name = text_in(event, "event");
  const double time = time_of(event);
  last_ = std::max(last_, time);
  if (const auto handler = handlers.find(name); handler != handlers.end()) return (this->*handler->second)(event);
  if (name == "phase") return add_span(event, text_in(event, "phase"), "phase");
  if (name == "captured") {
    ReportGraph* const graph = graph_of(event);
    if (graph) graph->seconds = seconds_in(event, "seconds");
    return add_span(event, graph && graph->function >= 0 ? functions_[static_cast<size_t>(graph->function)].name : "",
                    "capture");
  }
  if (name != "flags") return static_cast<void>(++skipped_.damaged);  // of no kind that this format has
  const std::string policy = text_in(event, "policy");
  if (flags_.size() >= most_policies && !flags_.count(policy)) return static_cast<void>(++skipped_.left_out);
  std::vector<std::pair<FlagsOverTime::LocationAndCode, int64_t>> counts;
  for (const Event& one : list_in(event, "counts"))
    if (one.is_array() && one.size() == 3) counts.push_back({{text_of(one[0]), text_of(one[1])}, count_of(one[2])});
  flags_[policy].add(time, count_in(event, "calls"), count_in(event, "samples"), counts);
}

void ReportData::begin_process(const Event& event) {
  process_begin_ = std::max(0.0, seconds_in(event, "time"));
  if (processes_.empty()) first_ = last_ = process_begin_;
  first_ = std::min(first_, process_begin_);
  current_sources_.clear();
  ++process_;
  if (processes_.size() >= most_processes) return static_cast<void>(++skipped_.left_out);
  processes_.push_back({{"triage", text_in(event, "triage")},
                        {"libtorch", text_in(event, "libtorch")},
                        {"machine", text_in(event, "machine")},
                        {"pid", count_in(event, "pid")},
                        {"begin", process_begin_}});
}

double ReportData::time_of(const Event& event) const {
  return std::clamp(process_begin_ + seconds_in(event, "t"), 0.0, latest_time);
}

void ReportData::add_source(const Event& event) {
  const std::string file = text_in(event, "file");
  std::string text = text_in(event, "text");
  const auto known = std::find(sources_.begin(), sources_.end(), std::pair(file, text));
  if (known == sources_.end() && sources_.size() >= most_sources) return static_cast<void>(++skipped_.left_out);
  current_sources_[file] = static_cast<int>(known - sources_.begin());
  if (known == sources_.end()) sources_.emplace_back(file, std::move(text));
}

int ReportData::source_of(const std::string& file) const {
  const auto found = current_sources_.find(file);
  return found == current_sources_.end() ? -1 : found->second;
}

std::pair<int, int64_t> ReportData::place_in(std::string_view text) const {
  if (!text.ends_with(')')) return {-1, 0};
  text.remove_suffix(1);
  const size_t colon = text.rfind(':');
  int64_t line = 0;
  if (colon == std::string_view::npos) return {-1, 0};
  const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), line);
  if (error != std::errc() || end != text.data() + text.size()) return {-1, 0};
  text = text.substr(0, colon);
  for (const auto& [file, source] : current_sources_)
    if (text.ends_with(" " + file) || text.ends_with("(" + file)) return {source, line};
  return {-1, 0};
}

/// Where an event does not say where its function begins, the newest of that name; -1 where there are too many.
int ReportData::find_function(const Event& event) {
  ReportedFunction made;
  made.name = text_in(event, "function");
  made.file = text_in(event, "file");
  made.line = count_in(event, "line");
  if (made.file.empty())
    for (size_t i = functions_.size(); i-- > 0;)
      if (functions_[i].name == made.name) return static_cast<int>(i);
  made.source = source_of(made.file);
  const std::string key =
      made.name + '\n' + made.file + '\n' + std::to_string(made.line) + '\n' + std::to_string(made.source);
  const auto [number, added] = function_numbers_.emplace(key, static_cast<int>(functions_.size()));
  if (!added) return number->second;
  if (functions_.size() >= most_functions) {
    function_numbers_.erase(number);
    ++skipped_.left_out;
    return -1;
  }
  functions_.push_back(std::move(made));
  return number->second;
}

ReportData::ReportGraph* ReportData::graph_of(const Event& event) {
  const auto found = graph_numbers_.find({process_, count_in(event, "graph")});
  return found == graph_numbers_.end() ? nullptr : &graphs_[found->second];
}

/// An event of a graph that the page does not have.
void ReportData::skip_without_graph() { ++(graphs_.size() >= most_graphs ? skipped_.left_out : skipped_.malformed); }

void ReportData::add_capture(const Event& event) {
  const int64_t number = count_in(event, "graph");
  if (number == 0) return static_cast<void>(++skipped_.malformed);
  if (graph_of(event)) return;
  if (graphs_.size() >= most_graphs) return static_cast<void>(++skipped_.left_out);
  ReportGraph graph;
  graph.function = find_function(event);
  if (graph.function < 0) return;
  const auto segment = event.find("segment");
  graph.segment = segment != event.end() && segment->is_boolean() && segment->get<bool>();
  functions_[static_cast<size_t>(graph.function)].backend = text_in(event, "backend");
  graph_numbers_[{process_, number}] = graphs_.size();
  graphs_.push_back(std::move(graph));
}

void ReportData::add_graph(const Event& event) {
  ReportGraph* const graph = graph_of(event);
  if (!graph) return skip_without_graph();
  if (graph->stages.size() >= most_of_graph) return static_cast<void>(++skipped_.left_out);
  Json nodes = Json::array();
  for (const Event& node : list_in(event, "nodes")) {
    const bool is_node = node.is_array() && node.size() == 4;
    if (!is_node || nodes.size() >= most_nodes) {
      ++(is_node ? skipped_.left_out : skipped_.malformed);
      continue;
    }
    nodes.push_back({text_of(node[0]), text_of(node[1]), source_of(text_of(node[2])), count_of(node[3]), /*group=*/-1});
  }
  if (graph->name.empty()) graph->name = text_in(event, "name");
  graph->stages.push_back({{"stage", text_in(event, "stage")},
                           {"name", text_in(event, "name")},
                           {"head", without_last_line_end(text_in(event, "head"))},
                           {"nodes", std::move(nodes)},
                           {"outputs", text_in(event, "outputs")},
                           {"groups", Json::array()}});
}

/// Which nodes each group computes, in the first stage that has these nodes and was not cut into groups before. Stages
/// of one graph have one name: the halves of a graph with gradients are cut in their order.
void ReportData::add_groups(const Event& event) {
  ReportGraph* const graph = graph_of(event);
  std::set<std::string> computed;
  for (const Event& group : list_in(event, "groups"))
    if (is_group(group))
      for (const Event& result : group[1]) computed.insert(text_of(result));
  Json* stage = nullptr;
  std::map<std::string, Json*> nodes;
  for (size_t i = 0; graph && !stage && i < graph->stages.size(); ++i) {
    Json& one = graph->stages[i];
    if (!one["groups"].empty() || one["stage"] == "plain ATen" || one["stage"] == "forward and backward") continue;
    nodes.clear();
    for (Json& node : one["nodes"]) nodes[node[1].get<std::string>()] = &node;
    const auto is_there = [&](const std::string& result) { return nodes.count(result) > 0; };
    if (nodes.size() == computed.size() && std::all_of(computed.begin(), computed.end(), is_there)) stage = &one;
  }
  if (!stage) return;  // of a copy with other numbers, which no stage shows
  for (const Event& group : list_in(event, "groups")) {
    if (!is_group(group)) continue;
    for (const Event& result : group[1])
      if (const auto node = nodes.find(text_of(result)); node != nodes.end())
        (*node->second)[4] = (*stage)["groups"].size();
    (*stage)["groups"].push_back({{"loops", group[0].get<bool>()}, {"text", without_last_line_end(text_of(group[2]))}});
  }
}

void ReportData::add_guards(const Event& event) {
  ReportGraph* const graph = graph_of(event);
  if (!graph) return skip_without_graph();
  const std::string text = text_in(event, "text");
  for (size_t begin = 0; begin < text.size() && graph->guards.size() < most_nodes;) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string guard = text.substr(begin, end - begin);
    const auto [source, line] = place_in(guard);
    graph->guards.push_back({{"text", guard}, {"source", source}, {"line", line}});
    begin = end + 1;
  }
}

void ReportData::add_code(const Event& event) {
  ReportGraph* const graph = graph_of(event);
  std::string code = without_last_line_end(text_in(event, "code"));
  if (!graph) return skip_without_graph();
  if (graph->code.size() >= most_of_graph) return static_cast<void>(++skipped_.left_out);
  if (std::find(graph->code.begin(), graph->code.end(), code) == graph->code.end())
    graph->code.push_back(std::move(code));
}

void ReportData::add_times(const Event& event) {
  ReportGraph* const graph = graph_of(event);
  if (!graph) return skip_without_graph();
  if (graph->times.size() >= most_of_graph) return static_cast<void>(++skipped_.left_out);
  graph->times.push_back(without_last_line_end(text_in(event, "text")));
}

void ReportData::add_kernel(const Event& event) {
  ReportGraph* const graph = graph_of(event);
  if (!graph) return skip_without_graph();
  if (graph->kernels.size() >= most_of_graph) return static_cast<void>(++skipped_.left_out);
  graph->kernels.push_back({{"key", text_in(event, "key")}, {"origin", text_in(event, "origin")}});
}

void ReportData::add_break(const Event& event) {
  const int function = find_function(event);
  if (function < 0) return;
  Json one;
  for (const char* name : {"id", "what", "explanation", "hint", "stack"}) one[name] = text_in(event, name);
  one["source"] = source_of(text_in(event, "at_file"));
  one["file"] = text_in(event, "at_file");
  one["line"] = count_in(event, "at_line");
  auto& breaks = functions_[static_cast<size_t>(function)].breaks;
  if (!add_counted(breaks, std::move(one), {"id", "what", "file", "line"})) ++skipped_.left_out;
}

/// A failure of the same guard with other values is another one: which sizes came is what a reader wants to know.
void ReportData::add_recompile(const Event& event) {
  const int function = find_function(event);
  if (function < 0) return;
  const std::string why = text_in(event, "why");
  const auto [source, line] = place_in(why);
  auto& recompiles = functions_[static_cast<size_t>(function)].recompiles;
  if (!add_counted(recompiles, {{"why", why}, {"source", source}, {"line", line}}, {"why"})) ++skipped_.left_out;
}

void ReportData::add_failure(const Event& event) {
  const int function = find_function(event);
  if (function < 0) return;
  Json one = {{"backend", text_in(event, "backend")}, {"message", text_in(event, "message")}};
  auto& failures = functions_[static_cast<size_t>(function)].failures;
  if (!add_counted(failures, std::move(one), {"backend", "message"})) ++skipped_.left_out;
}

void ReportData::add_span(const Event& event, const std::string& label, const char* kind) {
  if (spans_.size() >= most_spans) return static_cast<void>(++skipped_.left_out);
  const double seconds = std::max(0.0, seconds_in(event, "seconds"));
  last_ = std::max(last_, time_of(event) + seconds);
  const auto graph = graph_numbers_.find({process_, count_in(event, "graph")});
  spans_.push_back({{"process", process_},
                    {"thread", count_in(event, "thread")},
                    {"begin", time_of(event)},
                    {"seconds", seconds},
                    {"label", label.empty() ? text_in(event, "function") : label},
                    {"kind", kind},
                    {"graph", graph == graph_numbers_.end() ? -1 : static_cast<int64_t>(graph->second)}});
}

void ReportData::add_policy(const Event& event) {
  const std::string name = text_in(event, "policy");
  if (policies_.size() >= most_policies && !policies_.count(name)) return static_cast<void>(++skipped_.left_out);
  Json& events = policies_.emplace(name, Json::array()).first->second;
  if (events.size() >= most_of_policy) return static_cast<void>(++skipped_.left_out);
  events.push_back({{"time", time_of(event)},
                    {"level", text_in(event, "level")},
                    {"version", count_in(event, "version")},
                    {"message", text_in(event, "message")}});
}

ReportData::Json ReportData::summary() const {
  int64_t breaks = 0, recompiles = 0, failures = 0, flags = 0;
  for (const ReportedFunction& function : functions_) {
    breaks += static_cast<int64_t>(function.breaks.size());
    for (const Json& one : function.recompiles) recompiles += one["count"].get<int64_t>();
    failures += static_cast<int64_t>(function.failures.size());
  }
  for (const auto& [policy, over_time] : flags_) flags += over_time.flags();
  const auto graphs =
      std::count_if(graphs_.begin(), graphs_.end(), [](const ReportGraph& graph) { return !graph.stages.empty(); });
  return {{"processes", processes_.size()},
          {"functions", functions_.size()},
          {"graphs", graphs},
          {"breaks", breaks},
          {"recompiles", recompiles},
          {"failures", failures},
          {"flags", flags},
          {"skipped_lines", skipped_.all()}};
}

namespace {

/// The stages of a graph. What was captured with gradients is computed by its forward half: where that has the same
/// lines of the script, its groups are those of what was captured, too.
Json with_groups(Json stages) {
  Json& captured = stages[0];
  for (size_t i = 1; i < stages.size() && captured["groups"].empty(); ++i) {
    const Json& other = stages[i];
    if (other["stage"] != "forward" || other["nodes"].size() != captured["nodes"].size()) continue;
    const auto same_line = [](const Json& a, const Json& b) { return a[2] == b[2] && a[3] == b[3]; };
    if (!std::equal(other["nodes"].begin(), other["nodes"].end(), captured["nodes"].begin(), same_line)) continue;
    for (size_t node = 0; node < captured["nodes"].size(); ++node) captured["nodes"][node][4] = other["nodes"][node][4];
    captured["groups"] = other["groups"];
  }
  return stages;
}

}  // namespace

ReportData::Json ReportData::page() const {
  Json sources = Json::array(), functions = Json::array(), graphs = Json::array(), policies = Json::array(),
       flags = Json::array();
  for (const auto& [file, text] : sources_) sources.push_back({{"file", file}, {"text", text}});
  for (const ReportedFunction& one : functions_)
    functions.push_back({{"name", one.name},
                         {"file", one.file},
                         {"line", one.line},
                         {"source", one.source},
                         {"backend", one.backend},
                         {"breaks", one.breaks},
                         {"recompiles", one.recompiles},
                         {"failures", one.failures}});
  for (const ReportGraph& one : graphs_)
    graphs.push_back({{"function", one.function},
                      {"name", one.name},
                      {"segment", one.segment},
                      {"seconds", one.seconds},
                      {"stages", one.stages.empty() ? one.stages : with_groups(one.stages)},
                      {"guards", one.guards},
                      {"code", one.code},
                      {"times", one.times},
                      {"kernels", one.kernels}});
  for (const auto& [name, events] : policies_) policies.push_back({{"name", name}, {"events", events}});
  for (const auto& [name, over_time] : flags_) {
    Json one = over_time.json();
    one["policy"] = name;
    flags.push_back(std::move(one));
  }
  return {{"summary", summary()},
          {"begin", first_},
          {"end", last_},
          {"skipped",
           {{"damaged", skipped_.damaged},
            {"too_long", skipped_.too_long},
            {"left_out", skipped_.left_out},
            {"malformed", skipped_.malformed}}},
          {"processes", processes_},
          {"sources", std::move(sources)},
          {"functions", std::move(functions)},
          {"graphs", std::move(graphs)},
          {"spans", spans_},
          {"policies", std::move(policies)},
          {"flags", std::move(flags)}};
}

}  // namespace triage::cli
