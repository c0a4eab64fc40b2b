#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/backend.h>
#include <triage/error.h>
#include <triage/files.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/flag_inputs.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/calls/inputs.h"
#include "bindings/cli/calls/limits.h"
#include "bindings/cli/terminal.h"
#include "runtime/files/disk.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/versions/version.h"

namespace triage::cli {
namespace {

constexpr std::string_view standard_input = "-";

/// All of it, however long it says that it is: pipes and the files of /proc do not know. `name` is for messages.
std::string read_stream(std::FILE* from, const std::string& name) {
  std::string text;
  char part[1 << 16];
  for (size_t size; (size = std::fread(part, 1, sizeof(part), from)) > 0;) {
    text.append(part, size);
    if (text.size() > files::largest_text)
      throw FileError(fmt::format("cannot read {}: it is longer than {} MiB, the limit of a script", name,
                                  files::largest_text >> 20));
  }
  if (std::ferror(from)) throw FileError(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  return text;
}

}  // namespace

std::string script_name(const std::string& path) { return path == standard_input ? "stdin.lua" : path; }

Policy load_policy(Runtime& runtime, const std::string& path) {
  return path == standard_input ? runtime.load_source(read_source(path), script_name(path)) : runtime.load(path);
}

decltype(ScriptOptions::read_file) files_of(const std::string& path) {
  return path == standard_input ? nullptr : policy::files_beside(path);
}

std::vector<std::string> with_files_of_folders(const std::vector<std::string>& paths,
                                               std::vector<std::string>* modules) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found, shared;
    std::error_code failed;
    fs::recursive_directory_iterator entry(path, fs::directory_options::skip_permission_denied, failed);
    for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
      if (entry->path().extension() != ".lua" || !entry->is_regular_file(ignored)) continue;  // nor a link in a circle
      const fs::path folder = entry->path().lexically_relative(path).parent_path();
      const bool is_module = std::find(folder.begin(), folder.end(), "lib") != folder.end();
      (is_module ? shared : found).push_back(entry->path().string());
    }
    if (failed) throw FileError(fmt::format("cannot list the folder \"{}\": {}", path, failed.message()));
    std::sort(shared.begin(), shared.end());
    if (modules) modules->insert(modules->end(), shared.begin(), shared.end());
    if (found.empty()) throw FileError(fmt::format("there is no policy under \"{}\": no file ends in .lua", path));
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

std::string read_source(const std::string& path) {
  if (path == standard_input) {
    static const auto& text = *new std::string(read_stream(stdin, "standard input"));
    return text;
  }
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found)
    throw FileError(fmt::format("cannot read \"{}\": there is no such file", messages::one_line(path)), {path, 0});
  if (kind != std::filesystem::file_type::regular)
    throw FileError(
        fmt::format("cannot read \"{}\": expected a file with a policy, but this is {}", messages::one_line(path),
                    kind == std::filesystem::file_type::directory ? "a folder" : "not a regular file"),
        {path, 0});
  return files::read_text(path);
}

std::string read_script(const std::string& path) {
  const std::string name = '"' + messages::one_line(path) + '"';
  const auto refuse = [&](const char* why) {
    throw FileError(fmt::format("cannot read {}: {}", name, why), {path, 0});
  };
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found) refuse("there is no such file");
  if (kind == std::filesystem::file_type::directory) refuse("it is a folder");
  if (kind == std::filesystem::file_type::block) refuse("it is a device");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (!file) refuse(std::strerror(errno));
  return read_stream(file.get(), name);
}

std::string describe(const at::Tensor& tensor) {
  std::string shape = tensor.dim() == 0 ? "0-dim" : fmt::format("{}", fmt::join(tensor.sizes(), "x"));
  std::string device = tensor.is_cpu() ? "" : " " + tensor.device().str();
  return fmt::format("{} {}{}", dtype_name(tensor.scalar_type()), shape, device);
}

namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::vector<std::string> result;
  for (const std::string& name : names) result.push_back('"' + name + '"');
  return result.empty() ? "none" : fmt::format("{}", fmt::join(result, ", "));
}

}  // namespace

c10::Device parse_device(const std::string& text) {
  try {
    c10::Device device(text);
    at::empty({1}, at::TensorOptions().device(device));  // a LibTorch without CUDA parses "cuda" and fails here
    return device;
  } catch (const std::exception&) {
    throw UsageError(
        fmt::format("there is no device \"{}\" here; this LibTorch has cpu{}", text, at::hasCUDA() ? " and cuda" : ""));
  }
}

namespace {

/// What other languages write for a number or boolean.
std::string habit_of(const std::string& text) {
  if (text == "True" || text == "TRUE") return "; write true";
  if (text == "False" || text == "FALSE") return "; write false";
  if (text.empty()) return "; nothing stands between two commas, before the first or behind `=`";
  int64_t whole = 0;
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const char* const end = text.data() + text.size();
  if (!is_hex) return "";
  const auto [at, error] = std::from_chars(text.data() + 2, end, whole, 16);
  return error == std::errc() && at == end ? fmt::format("; write {}", whole) : "";
}

/// `text` is the value, or an item of the list `given`.
c10::Scalar parse_number(const std::string& name, const std::string& text, const std::string& given) {
  if (text == "true") return true;
  if (text == "false") return false;
  const char* end = text.data() + text.size();
  int64_t whole = 0;
  if (auto [at, error] = std::from_chars(text.data(), end, whole); error == std::errc() && at == end) return whole;
  double real = 0;
  if (auto [at, error] = std::from_chars(text.data(), end, real); error == std::errc() && at == end) return real;
  throw UsageError(fmt::format(
      "--param {}={}: expected a number, true or false, numbers with commas between them, or @FILE with a tensor{}{}",
      name, given, text == given ? "" : fmt::format("; got \"{}\" as an item", text), habit_of(text)));
}

/// "0.5", "1,2,3", "3," (a list of one), "@table.npy".
ParamValue parse_param(const std::string& name, const std::string& text) {
  if (text.rfind('@', 0) == 0) return load_tensor(text.substr(1));
  if (text.find(',') == std::string::npos) return parse_number(name, text, text);
  std::vector<c10::Scalar> numbers;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) numbers.push_back(parse_number(name, item, text));
  const auto is_whole = [](const c10::Scalar& number) { return number.isIntegral(/*includeBool=*/false); };
  std::vector<int64_t> whole;
  std::vector<double> real;
  for (const c10::Scalar& number : numbers) {
    if (number.isBoolean())
      throw UsageError(fmt::format("--param {}={}: a list holds numbers, not true or false", name, text));
    real.push_back(number.toDouble());
    if (is_whole(number)) whole.push_back(number.toLong());
  }
  return whole.size() == numbers.size() ? ParamValue(whole) : ParamValue(real);
}

}  // namespace

Params parse_params(const std::vector<std::string>& texts, const Signature& signature, const std::string& policy) {
  std::vector<std::string> names;
  for (const Param& param : signature.params) names.push_back(param.name);
  Params params;
  for (const std::string& text : texts) {
    auto [name, value] = split_assignment(text, "--param");
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw UsageError(
          fmt::format("{} has no param \"{}\"; it has {}{}", policy, name, quoted(names), did_you_mean(name, names)));
    }
    params.emplace_back(name, parse_param(name, value));
  }
  return params;
}

Params checked_params(const std::vector<std::string>& texts, const Signature& signature, const std::string& policy) {
  Params params = parse_params(texts, signature, policy);
  policy::check_params(policy, signature, params);
  return params;
}

Assignments match_inputs(const std::vector<std::string>& texts, const std::vector<std::string>& names,
                         const std::string& policy) {
  Assignments given;
  for (const std::string& text : texts) {
    auto [name, source] = split_assignment(text, "--input");
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw UsageError(
          fmt::format("{} has no input \"{}\"; it has {}{}", policy, name, quoted(names), did_you_mean(name, names)));
    }
    for (const auto& [earlier, ignored] : given) {
      if (earlier == name) throw UsageError(fmt::format("--input {} is given twice", name));
    }
    given.emplace_back(name, source);
  }
  Assignments ordered;
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    auto found = std::find_if(given.begin(), given.end(), [&](const auto& pair) { return pair.first == name; });
    if (found == given.end())
      missing.push_back(name);
    else
      ordered.push_back(*found);
  }
  if (!missing.empty()) {
    throw UsageError(fmt::format("{} needs the input{} {}; give {} as --input {}=FILE, or try --input {}=randn:32x512",
                                 policy, missing.size() == 1 ? "" : "s", quoted(missing),
                                 missing.size() == 1 ? "it" : "each", missing[0], missing[0]));
  }
  return ordered;
}

std::vector<std::vector<std::string>> inputs_of_calls(const std::vector<std::string>& texts) {
  std::map<std::string, size_t> times;
  for (const std::string& text : texts) ++times[split_assignment(text, "--input").first];
  const auto most = std::max_element(times.begin(), times.end(), [](auto& a, auto& b) { return a.second < b.second; });
  std::vector<std::vector<std::string>> calls(most == times.end() ? 1 : most->second);
  for (const auto& [name, count] : times)
    if (count != 1 && count != calls.size())
      throw UsageError(fmt::format(
          "--input {} is given {} times, and --input {} {} times; give an input once, for all calls, or once "
          "for each call",
          name, count, most->first, most->second));
  std::map<std::string, size_t> next;
  for (const std::string& text : texts) {
    const std::string name = split_assignment(text, "--input").first;
    if (times[name] == 1)
      for (auto& call : calls) call.push_back(text);
    else
      calls[next[name]++].push_back(text);
  }
  return calls;
}

at::Tensor read_input(const std::string& source, c10::Device device) {
  const std::optional<at::Tensor> generated = generate(source);
  return (generated ? *generated : load_tensor(source)).to(device);
}

void check_backend(const std::string& name) {
  try {
    find_backend(name);
    return;
  } catch (const InputError&) {  // told below in the words of the command line
  }
  std::vector<std::string> backends = list_backends();
  throw UsageError(fmt::format("there is no backend \"{}\"; the backends are {}{}", name, quoted(backends),
                               did_you_mean(name, backends)));
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code failed;
  if (std::filesystem::equivalent(a, b, failed)) return true;
  const auto whole = [&](const std::string& path) {
    const auto absolute = std::filesystem::weakly_canonical(std::filesystem::absolute(path), failed);
    return failed ? std::filesystem::path(path) : absolute;
  };
  return whole(a) == whole(b);
}

void check_destination(const char* option, const std::string& file, const std::string& policy) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw UsageError(fmt::format("{} {}: it is a folder", option, file));
  if (same_file(file, policy)) throw UsageError(fmt::format("{} {}: it is the policy itself", option, file));
}

std::pair<std::string, std::string> split_assignment(const std::string& text, const char* option) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw UsageError(
        fmt::format("{} {}: expected NAME={}", option, text, std::string_view(option) == "--param" ? "VALUE" : "FILE"));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

RuntimeOptions quiet_runtime(bool json) {
  RuntimeOptions options;
  options.log = [](const LogRecord& record) {
    const bool of_policy = std::any_of(record.fields.begin(), record.fields.end(),
                                       [](const LogField& field) { return field.name == "policy"; });
    // Breaks and limits are in the report; that another backend answers is not.
    const bool of_backend = record.text.find("backend cannot compile") != std::string_view::npos;
    if (!of_policy || of_backend) log_to_standard_error(record);
  };
  options.print = prints_to(json ? stderr : stdout);
  return options;
}

PreparedCall prepare_call(const CallOptions& options, bool json, std::shared_ptr<DecisionLog> decisions,
                          const std::string& cache_dir) {
  check_backend(options.backend);
  const c10::Device device = parse_device(options.device);
  RuntimeOptions runtime_options = quiet_runtime(json);
  runtime_options.backend = options.backend;
  runtime_options.fullgraph = options.fullgraph;
  runtime_options.masked_rows = masked_rows_from(options.masked_rows);
  runtime_options.limits = parse_limits(options.limits);
  const auto profiler = std::make_shared<CompileProfiler>();
  runtime_options.profiler = profiler;
  runtime_options.decisions = std::move(decisions);
  runtime_options.cache_dir = cache_dir;
  Runtime runtime(runtime_options);
  define_given(runtime, options.given, device);
  Policy policy = load_policy(runtime, options.policy);
  Signature signature = policy.signature();
  PreparedCall call{std::move(runtime), policy, {}, {}, {}, profiler, signature.codes};
  call.options.params = checked_params(options.params, signature, options.policy);
  read_inputs(call, options, options.inputs);
  return call;
}

void read_inputs(PreparedCall& call, const CallOptions& options, const std::vector<std::string>& inputs) {
  const c10::Device device = parse_device(options.device);
  const Signature signature = call.policy.signature();
  call.inputs.clear();
  call.sources.clear();
  for (const auto& [name, source] : match_inputs(inputs, signature.inputs, options.policy)) {
    call.inputs.push_back(read_input({name, source, type_of(signature, name)}, device, call.codes));
    call.sources.push_back(source);
  }
}

std::string loops_text(const LoopTiers& loops) {
  std::vector<std::string> parts;
  const auto add = [&](size_t count, const char* one, const char* many) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, count == 1 ? one : many));
  };
  add(loops.kernels, "kernel", "kernels");
  add(loops.tapes, "tape", "tapes");
  add(loops.unfused, "as calls of ATen", "as calls of ATen");
  return fmt::format("{}", fmt::join(parts, ", "));
}

nlohmann::ordered_json loops_json(const LoopTiers& loops) {
  return {{"kernels", loops.kernels}, {"tapes", loops.tapes}, {"neither", loops.unfused}};
}

void print_breaks(const std::vector<BreakReport>& breaks) {
  for (size_t i = 0; i < breaks.size(); ++i)
    say("\n{} {}\n", paint(Paint::warning, fmt::format("break {}:", i + 1)), breaks[i].text);
}

std::vector<CapturedGraph> graphs_of(const Policy& policy) {
  std::vector<CapturedGraph> graphs = policy.graphs();
  for (const auto& segment : policy.segments()) graphs.push_back({segment, ""});
  return graphs;
}

}  // namespace triage::cli
