// Every example of the README and the docs runs: Lua that returns something is a policy, other Lua is a script; a
// comment
// `--> text` tells what its line prints. C++ is part of a program that is built.
#include "bindings/lua/engine/exec.h"
#include "tests/paths.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/triage.h>

#include <unistd.h>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace fs = std::filesystem;

namespace {

struct Example {
  std::string file, language, text;
  int line = 0;
};

std::string read(const fs::path& file) {
  std::ifstream in(file);
  REQUIRE_MESSAGE(in.good(), "cannot read " << file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<Example> examples_of(const fs::path& file) {
  std::vector<Example> examples;
  std::istringstream in(read(file));
  std::string line;
  bool inside = false;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.rfind("```", 0) == 0) {
      if (!inside) examples.push_back({file.filename().string(), line.substr(3), "", number});
      inside = !inside;
    } else if (inside) {
      examples.back().text += line + "\n";
    }
  }
  CHECK_FALSE(inside);
  return examples;
}

std::vector<Example> all_examples(const std::string& language) {
  fs::path root = triage::test::source_dir();
  std::vector<fs::path> pages = {root / "README.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  std::vector<Example> found;
  for (const auto& page : pages)
    for (auto& example : examples_of(page))
      if (example.language == language) found.push_back(std::move(example));
  return found;
}

/// Shown for what is wrong with it: the commands of the page run it (cli/docs_test.cpp).
bool is_what_not_to_do(const std::string& text) {
  return text.substr(0, text.find('\n')).find("(what not to do)") != std::string::npos;
}

bool is_policy(const std::string& text) {
  return text.rfind("return ", 0) == 0 || text.find("\nreturn ") != std::string::npos;
}

std::vector<std::string> promised_output(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    auto arrow = line.find("--> ");
    if (arrow != std::string::npos) lines.push_back(line.substr(arrow + 4));
  }
  return lines;
}

/// Standard output of a script, which runs in this process.
std::string run_script(const std::string& text, int& status) {
  fs::path script = fs::temp_directory_path() / ("triage-docs-" + std::to_string(::getpid()) + ".lua");
  fs::path output = script.string() + ".out";
  std::ofstream(script) << text;
  std::fflush(stdout);
  int saved = ::dup(1);
  std::FILE* file = std::fopen(output.c_str(), "w");
  ::dup2(::fileno(file), 1);
  status = triage::lua::exec_script(script.string(), {});
  std::fflush(stdout);
  ::dup2(saved, 1);
  ::close(saved);
  std::fclose(file);
  std::string printed = read(output);
  fs::remove(script);
  fs::remove(output);
  return printed;
}

std::string without_indent(const std::string& text) {
  std::string result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    auto begin = line.find_first_not_of(' ');
    if (begin != std::string::npos) result += line.substr(begin) + "\n";
  }
  return result;
}

}  // namespace

namespace {

/// With the modules and tables of examples/shared, which examples may read.
struct PolicyFolder {
  PolicyFolder() {
    fs::remove_all(path);
    fs::copy(triage::test::source_dir() + "/examples/shared", path, fs::copy_options::recursive);
  }
  ~PolicyFolder() { fs::remove_all(path); }
  const fs::path path = fs::temp_directory_path() / ("triage-docs-" + std::to_string(::getpid()));
};

}  // namespace

TEST_CASE("policies in the docs run, and their tests pass") {
  triage::Runtime runtime;
  torch::jit::Module small("Small");
  small.define("def forward(self, x):\n    return torch.relu(x) + 1.0\n");
  runtime.define_module("small", small);
  runtime.define_tensor("means", at::zeros({4}));
  const PolicyFolder folder;
  int ran = 0;
  for (const Example& example : all_examples("lua")) {
    if (!is_policy(example.text) || is_what_not_to_do(example.text)) continue;
    CAPTURE(example.file);
    CAPTURE(example.line);
    const fs::path file = folder.path / (example.file + ":" + std::to_string(example.line) + ".lua");
    std::ofstream(file) << example.text;
    triage::Policy policy = runtime.load(file);
    REQUIRE(policy.signature().inputs == std::vector<std::string>{"z"});
    for (int64_t rows : {0, 1, 33}) {
      at::Tensor z = at::randn({rows, 4});
      if (rows) z[0][1] = std::numeric_limits<float>::quiet_NaN();
      auto [y, f] = policy.run<2>({z});
      CHECK(at::isfinite(y).all().item<bool>());
      CHECK(triage::has_err(f) == (rows > 0));
    }
    CHECK(policy.graphs().size() == 1);
    for (const auto& test : policy.run_tests()) CHECK_MESSAGE(test.second.empty(), test.first << ": " << test.second);
    ++ran;
  }
  CHECK(ran >= 5);
}

TEST_CASE("scripts in the docs run and print what the docs say") {
  int ran = 0;
  for (const Example& example : all_examples("lua")) {
    if (is_policy(example.text) || is_what_not_to_do(example.text)) continue;
    CAPTURE(example.file);
    CAPTURE(example.line);
    int status = 1;
    std::string printed = run_script(example.text, status);
    CHECK(status == 0);
    size_t from = 0;
    for (const auto& line : promised_output(example.text)) {
      auto at = printed.find(line + "\n", from);
      CHECK_MESSAGE(at != std::string::npos, "expected '" << line << "' in:\n" << printed);
      if (at != std::string::npos) from = at + line.size();
    }
    ++ran;
  }
  CHECK(ran >= 2);
}

TEST_CASE("C++ in the docs is taken from programs that run") {
  fs::path root = triage::test::source_dir();
  const std::pair<const char*, std::vector<const char*>> pages[] = {
      {"docs/embedding.md",
       {"examples/embed/main.cpp", "tests/docs/branches.cpp", "tests/docs/verified_host.cpp",
        "tests/docs/given_host.cpp"}},
      {"docs/backends.md", {"tests/docs/own_backend.cpp"}},
      {"docs/operations.md", {"examples/server/main.cpp", "examples/server/admin.cpp", "tests/docs/state_host.cpp"}},
      {"docs/language-models.md", {"examples/decoding/engine.cpp"}},
      {"docs/bundles.md", {"tests/docs/bundles.cpp"}},
      {"docs/distributed.md", {"examples/distributed/main.cpp", "tests/distributed/gloo_test.cpp"}},
      {"docs/rollouts.md", {"tests/docs/rollouts.cpp"}},
      {"docs/decisions.md", {"tests/docs/decision_log.cpp"}},
      {"docs/incidents.md", {"tests/docs/decision_log.cpp"}},
      {"docs/profiling.md", {"tests/docs/profiled_host.cpp"}}};
  for (const auto& [path, sources] : pages) {
    const std::string page = path;
    CAPTURE(page);
    std::string program;
    for (const char* source : sources) program += without_indent(read(root / source));
    for (const Example& example : examples_of(root / page)) {
      if (example.language != "cpp") continue;
      CAPTURE(example.line);
      CHECK(program.find(without_indent(example.text)) != std::string::npos);
    }
  }
}
