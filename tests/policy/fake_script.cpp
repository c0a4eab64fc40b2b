#include "tests/policy/fake_script.h"

#include "tests/logs.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <triage/config.h>
#include <triage/error.h>
#include <triage/front_end.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

namespace fake {

std::atomic<int> alive{0};
std::atomic<int> destroyed_by_caller{0};
thread_local bool is_caller = false;
std::function<void()> when_loaded;

namespace {

using triage::Source;

struct Statement {
  std::string verb;
  std::vector<std::string> words;
  int line;
};

/// Calls an operator as a front end does; missing arguments take the schema's defaults.
at::Tensor call(const char* name, const char* overload, std::vector<c10::IValue> arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  for (size_t i = arguments.size(); i < op.schema().arguments().size(); ++i)
    arguments.push_back(*op.schema().arguments()[i].default_value());
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  triage::call_operator(op, stack);
  return stack.at(0).toTensor();
}

at::Tensor flags_of(const at::Tensor& z) {
  const auto& config = triage::get_config();
  return call("triage::flag_nan_and_inf", "",
              {z, c10::IValue(), int64_t{0}, config.num_slots, config.accumulation.packed(), config.flag_dtype});
}

class FakeScript : public triage::Script {
 public:
  FakeScript(std::string_view source, triage::ScriptOptions options) : options_(std::move(options)) {
    name_ = std::filesystem::path(options_.path).stem().string();
    signature_.inputs = {"z"};
    std::istringstream lines{std::string(source)};
    std::string text;
    for (int line = 1; std::getline(lines, text); ++line) load(text, line);
    if (statements_.empty()) throw triage::LoadError("the script is empty", {options_.path, 1});
    ++alive;
  }
  ~FakeScript() override {
    --alive;
    if (is_caller) ++destroyed_by_caller;
  }

  const std::string& name() const override { return name_; }
  const triage::Signature& signature() const override { return signature_; }
  bool fullgraph() const override { return fullgraph_; }
  std::optional<triage::OnError> on_error() const override { return on_error_; }
  const std::vector<bool>& flags_outputs() const override { return flags_outputs_; }
  std::vector<std::pair<std::string, std::string>> run_tests() override { return tests_; }
  uint64_t writes() const override { return count_; }

  std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                               std::optional<std::chrono::steady_clock::time_point> deadline) override {
    if (deadline && std::chrono::steady_clock::now() > *deadline)
      throw triage::LimitError("the deadline has passed", {options_.path, 1});
    std::vector<at::Tensor> values = inputs.vec();
    flags_outputs_.assign(values.size(), false);
    has_deadline_ = deadline.has_value();
    if (remembers()) values[0] = fake::call("aten::add", "Tensor", {values[0], params.back()});
    for (const Statement& statement : statements_) run(statement, values, params);
    if (remembers()) values.push_back(fake::call("aten::add", "Scalar", {params.back(), 1.0}));
    return values;
  }

 private:
  void load(const std::string& text, int line) {
    std::istringstream words{text};
    Statement statement{{}, {}, line};
    if (!(words >> statement.verb)) return;
    for (std::string word; words >> word;) statement.words.push_back(word);
    const std::string& verb = statement.verb;
    if (verb == "inputs") signature_.inputs = statement.words;
    if (verb == "outputs") signature_.outputs = statement.words;
    if (verb == "declare") declare(statement.words);
    if (verb == "param") {
      signature_.params.push_back({statement.words.at(0), std::stod(statement.words.at(1))});
      if (statement.words.size() > 2) signature_.params.back().min = std::stod(statement.words[2]);
      if (statement.words.size() > 3) signature_.params.back().max = std::stod(statement.words[3]);
    }
    if (verb == "int_param")
      signature_.params.push_back({statement.words.at(0), int64_t{std::stol(statement.words.at(1))}});
    if (verb == "remember") signature_.state = {{"calls", {.dims = {}}}};
    if (verb == "name") name_ = statement.words.at(0);
    if (verb == "fullgraph") fullgraph_ = true;
    if (verb == "pass_through") on_error_ = triage::OnError::pass_through;
    if (verb == "sleep") std::this_thread::sleep_for(std::chrono::milliseconds(std::stol(statement.words.at(0))));
    if (verb == "hook" && when_loaded) when_loaded();
    if (verb == "add_file") statement = {"add", {number_in_file(statement.words)}, line};
    if (verb == "test")
      tests_.emplace_back(statement.words.at(0), statement.words.size() > 1 ? statement.words[1] : "");
    if (verb == "broken")
      throw triage::LoadError(fmt::format("{}:{}: {}", options_.path, line, text.substr(7)), {options_.path, line});
    statements_.push_back(std::move(statement));
  }

  void declare(const std::vector<std::string>& words) {
    triage::TensorSpec spec;
    spec.dtype = words.at(1) == "double" ? at::kDouble : at::kFloat;
    if (words[1] == "floating") spec.kind = triage::DTypeKind::floating;
    spec.flags = words[1] == "error";
    spec.dims.clear();
    for (size_t i = 2; i < words.size(); ++i)
      spec.dims.push_back(std::isdigit(words[i][0]) ? triage::Dim(std::stol(words[i])) : triage::Dim(words[i]));
    const auto set = [&](const std::vector<std::string>& names, auto& types) {
      types.resize(names.size());
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i] == words[0]) types[i] = spec;
    };
    set(signature_.inputs, signature_.input_types);
    set(signature_.outputs, signature_.output_types);
  }

  std::string number_in_file(const std::vector<std::string>& words) const {
    try {
      return *options_.read_file(words.at(0));
    } catch (const triage::FileError&) {
      if (words.size() < 2) throw;
      return words[1];
    }
  }

  void run(const Statement& statement, std::vector<at::Tensor>& values, at::ArrayRef<at::Tensor> params) {
    const auto& words = statement.words;
    const auto number = [&] { return c10::IValue(std::stod(words.at(0))); };
    at::Tensor& z = values.at(0);
    if (statement.verb == "for_double") {
      if (z.scalar_type() == at::kDouble)
        run({words.at(0), {words.begin() + 1, words.end()}, statement.line}, values, params);
      return;
    }
    if (statement.verb == "cholesky") z = fake::call("aten::linalg_cholesky", "", {z});
    if (statement.verb == "count") {
      break_graph(z, "`count` remembers a number");
      z = z + static_cast<double>(++count_);
    }
    if (statement.verb == "raise_above" && above(z, number().toDouble()))
      throw triage::PolicyError("too large", {options_.path, statement.line});
    if (statement.verb == "overrun_above" && above(z, number().toDouble()) && has_deadline_)
      throw triage::LimitError("too slow", {options_.path, statement.line});
    if (statement.verb == "double_above" && above(z, number().toDouble())) z = z.to(at::kDouble);
    if (statement.verb == "add") z = fake::call("aten::add", "Scalar", {z, number()});
    if (statement.verb == "mul") z = fake::call("aten::mul", "Scalar", {z, number()});
    if (statement.verb == "add_param") z = fake::call("aten::add", "Tensor", {z, params.at(param_index(words.at(0)))});
    if (statement.verb == "fail_unless_rows")
      z = fake::call("aten::mm", "", {at::eye(std::stol(words.at(0)), z.options()), z});
    if (statement.verb == "narrow")
      z = fake::call("aten::narrow", "", {z, int64_t{1}, int64_t{0}, int64_t{std::stol(words.at(0))}});
    if (statement.verb == "double") z = fake::call("aten::to", "dtype", {z, static_cast<int64_t>(at::kDouble)});
    if (statement.verb == "raise")
      throw triage::PolicyError(fmt::format("{}:{}: raised", options_.path, statement.line),
                                {options_.path, statement.line});
    if (statement.verb == "break") break_graph(z, "`break` reads a value");
    if (statement.verb == "host") z = host(words.at(0), z);
    if (statement.verb == "pair") {
      const at::Tensor v = fake::call("aten::add", "Scalar", {fake::call("aten::mul", "Scalar", {z, 0.0}), number()});
      z = fake::call("aten::add", "Scalar", {z, number()});
      values.push_back(v);
      flags_outputs_.push_back(false);
    }
    if (statement.verb == "flags") {
      values.push_back(flags_of(values.at(0)));
      flags_outputs_.push_back(true);
    }
  }

  static void break_graph(const at::Tensor& z, const std::string& what) {
    triage::materialize(z);
    triage::break_graph(what, "Do not.");
  }

  static bool above(const at::Tensor& z, double limit) {
    break_graph(z, "a value is read");
    return z.numel() > 0 && z.max().item<double>() > limit;
  }

  at::Tensor host(const std::string& name, const at::Tensor& z) const {
    for (const auto& function : options_.host_functions)
      if (function.name == name) return triage::call_host_function(function, {z}).at(0);
    throw triage::PolicyError("there is no host function " + name, {options_.path, 0});
  }

  bool remembers() const { return !signature_.state.empty(); }

  size_t param_index(const std::string& name) const {
    for (size_t i = 0; i < signature_.params.size(); ++i)
      if (signature_.params[i].name == name) return i;
    throw triage::PolicyError("there is no param " + name, {options_.path, 0});
  }

  triage::ScriptOptions options_;
  std::string name_;
  triage::Signature signature_;
  bool fullgraph_ = false;
  std::optional<triage::OnError> on_error_;
  std::vector<Statement> statements_;
  std::vector<std::pair<std::string, std::string>> tests_;
  std::vector<bool> flags_outputs_;
  uint64_t count_ = 0;
  bool has_deadline_ = false;  // of the call
};

const bool registered = [] {
  triage::set_log(triage::test::no_log());  // the refusals that the tests provoke would drown what doctest says
  triage::register_front_end(".fake", [](std::string_view source, const triage::ScriptOptions& options) {
    return std::make_unique<FakeScript>(source, options);
  });
  return true;
}();

}  // namespace

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path& path, std::string_view text) { std::ofstream(path, std::ios::trunc) << text; }

void rename_save(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path draft = path.string() + "~";
  write(draft, text);
  std::filesystem::rename(draft, path);
}

Folder::Folder() {
  static std::atomic<int> serial{0};
  path_ = std::filesystem::temp_directory_path() / fmt::format("triage-policy-{}-{}", ::getpid(), serial++);
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace fake
