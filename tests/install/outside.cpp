// What a program outside of triage does with the installed headers alone: a script engine, a backend and a log of its
// own, and errors caught by their types. `run` builds it against the package; it ends with 0 where all holds.
#include <ATen/ATen.h>
#include <triage/triage.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

#define EXPECT(condition)                                                        \
  do {                                                                           \
    if (!(condition)) {                                                          \
      std::fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

at::Tensor call(const char* name, const char* overload, std::vector<c10::IValue> arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  for (size_t i = arguments.size(); i < op.schema().arguments().size(); ++i)
    arguments.push_back(*op.schema().arguments()[i].default_value());
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  triage::call_operator(op, stack);
  return stack.at(0).toTensor();
}

/// Lines such as "multiply 2": `add`, `multiply`, `host NAME`, `read` (of a value), `fail`.
class Steps final : public triage::Script {
 public:
  Steps(std::string_view source, const triage::ScriptOptions& options) : name_(options.path), options_(options) {
    signature_.inputs = {"z"};
    std::istringstream lines{std::string(source)};
    for (std::string verb, word; lines >> verb >> word;) steps_.emplace_back(verb, word);
    if (steps_.empty()) throw triage::LoadError("there are no steps", {options.path, 1});
  }
  const std::string& name() const override { return name_; }
  const triage::Signature& signature() const override { return signature_; }
  bool fullgraph() const override { return false; }
  const std::vector<bool>& flags_outputs() const override { return flags_outputs_; }
  std::vector<std::pair<std::string, std::string>> run_tests() override { return {}; }
  std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> /*params*/,
                               std::optional<std::chrono::steady_clock::time_point> /*deadline*/) override {
    at::Tensor z = inputs.at(0);
    for (const auto& [verb, word] : steps_) z = step(verb, word, z);
    return {z};
  }

 private:
  at::Tensor step(const std::string& verb, const std::string& word, const at::Tensor& z) const {
    if (verb == "add") return ::call("aten::add", "Scalar", {z, std::stod(word)});
    if (verb == "multiply") return ::call("aten::mul", "Scalar", {z, std::stod(word)});
    if (verb == "read") {
      triage::break_graph("`read` looks at values", "Leave it out.");
      triage::materialize(z);
      return z.sum().item<double>() > 1e9 ? -z : z;
    }
    for (const triage::HostFunction& function : options_.host_functions)
      if (function.name == word) return triage::call_host_function(function, {z}).at(0);
    throw triage::PolicyError(verb + " " + word + ": no such step", {name_, 1});
  }

  std::string name_;
  triage::ScriptOptions options_;
  triage::Signature signature_;
  std::vector<std::pair<std::string, std::string>> steps_;
  std::vector<bool> flags_outputs_{false};
};

std::atomic<int> runs{0}, host_calls{0}, records{0};

/// Negates what the graph computes, in a copy: the graph itself is constant.
class Negating final : public triage::Executable {
 public:
  Negating(const triage::graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    triage::graph::Graph copy = graph.clone();
    const auto neg = c10::Dispatcher::singleton().findSchemaOrThrow("aten::neg", "");
    triage::graph::Value* output = copy.outputs().at(0);
    triage::graph::Node* node = copy.append(neg, {output}, 1);
    copy.edit(node->results[0]).meta = output->meta;
    copy.set_outputs({node->results[0]}, graph.output_names());
    triage::graph::verify(copy);
    inner_ = triage::find_backend("eager")(copy, examples);
  }
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
           const triage::CallContext& call) const override {
    ++runs;
    inner_->run(inputs, outputs, call);
  }

 private:
  std::unique_ptr<triage::Executable> inner_;
};

template <class E, class Fn>
bool throws(const Fn& fn) {
  try {
    fn();
  } catch (const triage::Error& error) {
    return dynamic_cast<const E*>(&error) != nullptr;
  } catch (const std::exception&) {
  }
  return false;
}

/// The first interpreter of the process is made here.
void leaves_the_backtraces_of_the_host() {
  c10::SetStackTraceFetcher([]() -> std::string { return "a trace of the host's own"; });
  triage::Runtime runtime;
  const triage::Policy policy = runtime.load_source("return function(z) return z * 2 end", "twice.lua");
  EXPECT(policy.run({at::ones({2})})[0].allclose(at::full({2}, 2.0)));
  std::string text;
  try {
    TORCH_CHECK(false, "an error of the host's");
  } catch (const c10::Error& error) {
    text = error.what();
  }
  EXPECT(text.find("a trace of the host's own") != std::string::npos);
}

void captures_for_its_own_engine_and_backend() {
  triage::Runtime runtime({.log = [](const triage::LogRecord&) { ++records; }, .backend = "negating"});
  const triage::Policy policy = runtime.load_source("add 1 multiply 2", "twice.steps");
  const at::Tensor z = at::ones({3, 2});
  EXPECT(policy.run({z})[0].allclose(at::full({3, 2}, 4.0)));   // the script's own answer
  EXPECT(policy.run({z})[0].allclose(at::full({3, 2}, -4.0)));  // that of the backend
  EXPECT(runs == 1 && policy.graphs().size() == 1 && policy.graphs()[0].graph->nodes().size() == 2);
  const triage::Policy breaks = runtime.load_source("add 1 read 0 multiply 2", "breaks.steps");
  breaks.run({z});
  EXPECT(breaks.breaks().size() == 1 && breaks.breaks()[0].what == "`read` looks at values");
}

void calls_host_functions_but_not_on_synthetic_inputs() {
  triage::Runtime runtime({.log = [](const triage::LogRecord&) { ++records; }});
  runtime.define("shift", [](const std::vector<at::Tensor>& z) {
    ++host_calls;
    return std::vector<at::Tensor>{z[0] + 10};
  });
  const triage::Policy policy = runtime.load_source("host shift multiply 2", "host.steps");
  EXPECT(policy.run({at::ones({2})})[0].allclose(at::full({2}, 22.0)));
  const int before = host_calls;
  EXPECT(before > 0);
  EXPECT(policy.replace("host shift multiply 3") == triage::Reload::swapped);  // compared with the version before
  EXPECT(host_calls == before);
  EXPECT(policy.run({at::ones({2})})[0].allclose(at::full({2}, 33.0)));
}

void catches_errors_by_their_types() {
  triage::Runtime runtime({.log = [](const triage::LogRecord&) { ++records; }});
  const triage::Policy policy = runtime.load_source("add 1", "p.steps");
  EXPECT(throws<triage::InputError>([&] { policy.run({}); }));
  EXPECT(throws<triage::LoadError>([&] { runtime.load_source("", "p.steps"); }));
  EXPECT(throws<triage::PolicyError>([&] { runtime.load_source("no such", "p.steps").run({at::ones({2})}); }));
  EXPECT(throws<triage::FileError>([&] { triage::load_file("/nowhere/x.npy"); }));
  EXPECT(throws<triage::ConfigError>([] { triage::code_from(16); }));
  EXPECT(throws<triage::GraphError>([] { triage::graph::parse("no graph"); }));
  EXPECT(throws<triage::DTypeMismatchError>(
      [] { triage::TensorMatcher("f").check(at::ones({2}), {.dtype = at::kLong, .dims = {2}}, "x"); }));
  const auto kept = triage::as_result([&] { return policy.run({}); });
  EXPECT(kept.is_err() && kept.unwrap_err().is<triage::InputError>());
}

void survives_a_log_that_throws() {
  int kind = 0;
  triage::Runtime runtime({.log = [&](const triage::LogRecord& record) {
    ++records;
    EXPECT(!record.text.empty());
    if (kind++ % 2) throw 7;
    throw std::runtime_error("the log is full");
  }});
  const triage::Policy policy = runtime.load_source("add 1", "p.steps");
  for (const char* source : {"add 2", "", "add 3"}) policy.replace(source);
  EXPECT(policy.run({at::zeros({2})})[0].allclose(at::full({2}, 3.0)));
  EXPECT(kind > 1);
}

void has_all_that_the_header_of_headers_names() {
  const at::Tensor z = at::tensor({1.0, NAN});
  const at::Tensor f = triage::flag_nan(z, triage::Location("outside"));
  EXPECT(triage::has_err(f));
  const at::Tensor y = triage::IF(triage::err::is_err(f), [&] { return at::zeros_like(z); }).ELSE([&] { return z; });
  EXPECT(y.isfinite().all().item<bool>());
  EXPECT(triage::dtype_name(at::kFloat) == "float32");                                       // files.h
  EXPECT(triage::kept_output_memory() + triage::free_idle_output_memory() < 1'000'000'000);  // output_memory.h
  EXPECT(triage::CompileTimes().capture == 0 && triage::CacheStatistics().graphs == 0);
  EXPECT(std::string(triage::version()) == TRIAGE_VERSION);
}

}  // namespace

int main() {
  triage::register_front_end(".steps", [](std::string_view source, const triage::ScriptOptions& options) {
    return std::make_unique<Steps>(source, options);
  });
  triage::register_backend("negating", [](const triage::graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    return std::make_unique<Negating>(graph, examples);
  });
  leaves_the_backtraces_of_the_host();
  captures_for_its_own_engine_and_backend();
  calls_host_functions_but_not_on_synthetic_inputs();
  catches_errors_by_their_types();
  survives_a_log_that_throws();
  has_all_that_the_header_of_headers_names();
  std::puts("all holds");
}
