// The C++ of docs/locations.md: it stands here too, word for word, and runs.
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/modules/linear.h>

#include <fmt/format.h>
#include <triage/flags.h>
#include <triage/instrument.h>
#include <triage/tracked.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/diagnose/script_model.h"
#include "tests/paths.h"

#include <doctest/doctest.h>

namespace {

struct Net : torch::nn::Module {
  torch::nn::Linear encoder = register_module("encoder", torch::nn::Linear(4, 4));
};

void track(const at::Tensor& x) {
  auto model = std::make_shared<Net>();
  triage::tracked(*model);
  at::Tensor h = model->encoder->forward(x);
  at::Tensor f = triage::flag_nan(h, model->encoder);
  fmt::print("{}\n", triage::flags::repr(f));
  CHECK(triage::flags::summary(f)["encoder"]["NAN"] == 1);
}

void look(const std::string& path, const at::Tensor& x) {
  torch::jit::Module model = torch::jit::load(path);
  triage::Instrumented looked_at = triage::instrument(model, {.benign = {{.location = "*attention*"}}, .every = 10});
  auto [output, f, checked, unlooked] = looked_at({x});
  CHECK(checked);
  CHECK(unlooked.empty());
  CHECK(triage::has_err(f));
  CHECK(output.isTuple());
}

void count(const torch::jit::Module& model, const std::vector<at::Tensor>& batches) {
  torch::nn::Linear encoder(4, 4);
  triage::Instrumented counted = triage::instrument(model, {.statistics = true});
  for (const at::Tensor& x : batches) counted({x});
  fmt::print("{}", triage::value_statistics_text(counted.statistics()));

  triage::ValueCollector collector;
  for (const at::Tensor& x : batches) {
    triage::ValueCollector::Batch batch(collector);
    batch.add("encoder", encoder->forward(x));
  }
  std::string metrics = triage::value_statistics_metrics(collector.statistics());
  CHECK(counted.statistics().size() == 9);
  CHECK(metrics.find("triage_value_batches_total{location=\"encoder\",dtype=\"float32\"} 2\n") != std::string::npos);
}

std::string without_indent(const std::string& text) {
  std::string result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos) result += line.substr(begin) + '\n';
  }
  return result;
}

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("the C++ of docs/locations.md runs") {
  triage::ErrorLocation::reset();
  at::Tensor x = at::ones({2, 4});
  x[1][0] = NAN;
  track(x);
  const auto file = std::filesystem::temp_directory_path() / ("triage-docs-" + std::to_string(::getpid()) + ".pt");
  triage::testing::network().save(file.string());
  look(file.string(), x);
  std::filesystem::remove(file);
  count(triage::testing::network(), {x, x});

  const std::string here = without_indent(read(triage::test::source_dir() + "/tests/diagnose/docs_test.cpp"));
  const std::string page = read(triage::test::source_dir() + "/docs/locations.md");
  int blocks = 0;
  for (size_t at = page.find("```cpp\n"); at != std::string::npos; at = page.find("```cpp\n", at + 1), ++blocks) {
    const size_t begin = at + 7;
    CHECK(here.find(without_indent(page.substr(begin, page.find("```", begin) - begin))) != std::string::npos);
  }
  CHECK(blocks == 3);
}
