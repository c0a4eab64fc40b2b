#include <fmt/format.h>
#include <triage/runtime.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/calls/limits.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/check/tried.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/engine/libraries/unknown_names.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/rewriter/findings/global_names.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int wrong_use = 2;
namespace rewriter = lua::rewriter;

struct CheckedFile {
  std::string path;
  std::vector<CheckFinding> errors, warnings, notes;
  Signature signature;
};

/// Messages of Lua start with the place, which is printed apart here.
std::string without_place(const std::string& message, const std::string& path, int line) {
  std::string place = fmt::format("{}:{}: ", path, line);
  return message.compare(0, place.size(), place) == 0 ? message.substr(place.size()) : message;
}

void check_names(CheckedFile& checked, const std::string& source, const std::vector<std::string>& given,
                 const lua::WrittenCodes& codes) {
  std::vector<std::string> names;
  for (const std::string& text : given) names.push_back(text.substr(0, text.find('=')));
  for (const lua::UnknownName& name : lua::unknown_names(source, checked.path, names, codes))
    (name.error ? checked.errors : checked.warnings).push_back({name.line, name.column, name.message});
}

/// What the policy's file returns. A function of the host is never called here.
Signature load_signature(const std::string& path, const CheckCommand& options) {
  RuntimeOptions quiet = quiet_runtime(options.json);
  quiet.log = [log = quiet.log](const LogRecord& record) {
    const bool of_source = record.fields.size() == 1 && record.fields[0].name == "path";  // found here already
    if (!of_source) log(record);
  };
  quiet.limits = parse_limits(options.limits);
  Runtime runtime(quiet);
  for (const std::string& name : options.given)
    if (name.find('=') != std::string::npos)
      define_given(runtime, {name}, c10::kCPU);
    else
      runtime.define(name, [name](const std::vector<at::Tensor>&) -> std::vector<at::Tensor> {
        throw Error(fmt::format("`{}` is a function of the host, which `triage check` cannot call", name));
      });
  return load_policy(runtime, path).signature();
}

/// The codes that these policies name. What is wrong with one of them is told where it is checked.
lua::WrittenCodes codes_of(const std::vector<std::string>& policies) {
  lua::WrittenCodes all;
  for (const std::string& file : policies) {
    try {
      const lua::WrittenCodes codes = rewriter::declared_codes(read_source(file), "@" + script_name(file));
      all.insert(all.end(), codes.begin(), codes.end());
    } catch (const std::exception&) {
    }
  }
  return all;
}

/// A module runs only in a policy that requires it; by itself it has its text and its names. It may use the `codes` of
/// such a policy.
CheckedFile check_file(const std::string& file, const lua::WrittenCodes* codes, const CheckCommand& options) {
  const std::string path = script_name(file);
  CheckedFile checked{path, {}, {}, {}, {}};
  std::string source = read_source(file);
  try {
    for (const rewriter::Warning& warning : rewriter::check(source, "@" + path))
      checked.warnings.push_back({warning.line, warning.column, warning.message});
    check_names(checked, source, options.given, codes ? *codes : lua::WrittenCodes());
    if (checked.errors.empty() && !codes) {
      checked.signature = load_signature(file, options);
      Tried tried = try_policy(file, options);
      checked.warnings.insert(checked.warnings.end(), tried.warnings.begin(), tried.warnings.end());
      checked.notes = std::move(tried.notes);
    }
    std::stable_sort(checked.warnings.begin(), checked.warnings.end(),
                     [](const CheckFinding& a, const CheckFinding& b) {
                       return std::pair(a.line, a.column) < std::pair(b.line, b.column);
                     });
  } catch (const rewriter::SyntaxError& error) {
    checked.errors.push_back(
        {error.line, error.column, without_place(error.what(), path, error.line) + lua::not_lua(source)});
  } catch (const Error& error) {
    int line = error.source().line;
    checked.errors.push_back({line, 0, without_place(error.what(), path, line)});
  }
  return checked;
}

void print_finding(const std::string& path, const CheckFinding& finding, Paint colour, const char* kind) {
  std::string place = messages::one_line(path);
  if (finding.line > 0) place += fmt::format(":{}", finding.line);
  if (finding.column > 0) place += fmt::format(":{}", finding.column);
  say("{}: {}: {}\n", place, paint(colour, kind), finding.message);
}

Json findings_json(const std::vector<CheckFinding>& findings) {
  Json list = Json::array();
  for (const CheckFinding& finding : findings)
    list.push_back({{"line", finding.line}, {"column", finding.column}, {"message", finding.message}});
  return list;
}

Json to_json(const CheckedFile& checked) {
  return {{"path", checked.path},
          {"ok", checked.errors.empty()},
          {"errors", findings_json(checked.errors)},
          {"warnings", findings_json(checked.warnings)},
          {"notes", findings_json(checked.notes)},
          {"inputs", checked.signature.inputs},
          {"outputs", checked.signature.outputs}};
}

}  // namespace

int run(const CheckCommand& options) {
  parse_limits(options.limits);  // wrong use, whatever the files are
  Json files = Json::array();
  size_t broken = 0;
  std::string unreadable;  // wrong use, which is told when the others are checked
  Source first_unreadable;
  std::vector<std::string> modules;
  const std::vector<std::string> policies = with_files_of_folders(options.paths, &modules);
  std::vector<std::string> all = policies;
  all.insert(all.end(), modules.begin(), modules.end());
  const lua::WrittenCodes codes = modules.empty() ? lua::WrittenCodes() : codes_of(policies);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& file = all[i];
    const std::string path = script_name(file);
    CheckedFile checked{path, {}, {}, {}, {}};
    try {
      checked = check_file(file, i < policies.size() ? nullptr : &codes, options);
    } catch (const FileError& error) {
      if (unreadable.empty()) first_unreadable = {file, 0};
      unreadable += (unreadable.empty() ? "" : "\n") + std::string(error.what());
      if (!options.json) continue;
      checked.errors.push_back({0, 0, error.what()});
    }
    broken += !checked.errors.empty();
    if (options.json) {
      files.push_back(to_json(checked));
      continue;
    }
    for (const CheckFinding& finding : checked.errors) print_finding(path, finding, Paint::error, "error");
    for (const CheckFinding& finding : checked.warnings) print_finding(path, finding, Paint::warning, "warning");
    for (const CheckFinding& finding : checked.notes) print_finding(path, finding, Paint::heading, "note");
    if (checked.errors.empty() && checked.warnings.empty())
      say("{}: {}\n", messages::one_line(path), paint(Paint::good, "ok"));
  }
  if (options.json) {
    Json report = {{"ok", broken == 0}};
    if (!unreadable.empty()) report = error_json("triage check", wrong_use, "file", unreadable, first_unreadable);
    report["files"] = files;
    print_json(report);
  }
  if (!unreadable.empty() && options.json) return wrong_use;  // told in the object
  if (!unreadable.empty()) throw FileError(unreadable);
  return broken == 0 ? 0 : 1;
}

}  // namespace triage::cli
