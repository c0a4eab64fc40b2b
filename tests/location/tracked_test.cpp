// Modules as locations, of LibTorch's C++ frontend and of TorchScript.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <triage/flags.h>
#include <triage/tracked.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <doctest/doctest.h>

using triage::ErrorLocation;
using triage::location_of;
using triage::tracked;

namespace {

struct Block : torch::nn::Module {
  Block() : attention(8, 8), ffn(torch::nn::Linear(8, 16), torch::nn::GELU(), torch::nn::Linear(16, 8)) {
    register_module("attention", attention);
    register_module("act", act);
    register_module("ffn", ffn);
  }
  torch::nn::Linear attention;
  torch::nn::ReLU act;
  torch::nn::Sequential ffn;
};

using Paths = std::vector<std::string>;

Paths paths_of(const std::vector<triage::TrackedModule>& modules) {
  Paths paths;
  for (const auto& module : modules) paths.push_back(module.path);
  return paths;
}

/// `{"encoder.0", "encoder.1"}` as a TorchScript model with one parameter a leaf.
torch::jit::Module script_model(const Paths& leaves) {
  torch::jit::Module root("Net");
  for (const auto& path : leaves) {
    torch::jit::Module at = root;
    for (size_t start = 0, dot = 0; dot != std::string::npos; start = dot + 1) {
      dot = path.find('.', start);
      const std::string name = path.substr(start, dot - start);
      if (!at.hasattr(name)) at.register_module(name, torch::jit::Module("Part"));
      at = at.attr(name).toModule();
    }
    at.register_parameter("weight", at::zeros({1}), /*is_buffer=*/false);
  }
  return root;
}

}  // namespace

TEST_CASE("T16: threads that track one model at once, and others beside it, agree on its locations") {
  ErrorLocation::reset();
  const auto model = std::make_shared<Block>();
  const torch::jit::Module script = script_model({"encoder.0", "encoder.1", "head"});
  constexpr size_t count = 4;
  std::vector<std::map<std::string, int64_t>> found(count);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto own = std::make_shared<Block>();
        const std::string prefix = "thread" + std::to_string(t);
        for (const auto& one : tracked(*own, {.prefix = prefix})) wrong += one.path.find(prefix) != 0;
        for (const auto& one : tracked(*model)) {
          const int64_t known = found[t].try_emplace(one.path, one.id).first->second;
          wrong += one.id != known || ErrorLocation::name(one.id) != one.location;
        }
        for (const auto& one : tracked(script, {.prefix = "script"})) found[t].try_emplace(one.path, one.id);
        wrong += location_of(*model->attention).id != found[t].at("attention");
        ErrorLocation::get_all_paths();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(found[0].size() == 10);
  for (const auto& of_thread : found) CHECK(of_thread == found[0]);
  ErrorLocation::reset();
}

TEST_CASE("T16: tracked names the modules that hold parameters, depth first") {
  ErrorLocation::reset();
  auto model = std::make_shared<Block>();
  const auto modules = tracked(*model);
  CHECK(paths_of(modules) == Paths{"root", "attention", "ffn", "ffn.0", "ffn.2"});
  for (size_t i = 0; i < modules.size(); ++i) {
    CHECK(modules[i].id == static_cast<int64_t>(i) + 1);
    CHECK(modules[i].location == modules[i].path);
    CHECK(ErrorLocation::get(modules[i].path) == modules[i].id);
  }
  CHECK(location_of(*model).id == 1);
  CHECK(location_of(*model->attention).id == 2);
  CHECK(ErrorLocation::name(location_of(*model->ffn[2]).id) == "ffn.2");
  CHECK(location_of(*model->act).id == 0);  // stateless
  CHECK(ErrorLocation::count() == 6);
  CHECK(paths_of(tracked(*model)) == paths_of(modules));
  CHECK(ErrorLocation::count() == 6);
}

TEST_CASE("T16 T01: a module stands where an operation takes a location") {
  ErrorLocation::reset();
  auto model = std::make_shared<Block>();
  tracked(*model, {.prefix = "student"});
  at::Tensor x = at::randn({3, 8});
  x[1][2] = NAN;
  at::Tensor f = triage::err::new_(x);
  f = triage::flag_nan(model->attention->forward(x), model->attention, f);  // the holder, as written in the model
  CHECK(triage::flags::repr(f) == "ErrorFlags(3 samples, 1 errors: 1xNAN @ student.attention)");
  f = triage::err::push(triage::err::new_(x), triage::err::inf, *model->attention);  // the module
  CHECK(triage::flags::summary(f)["student.attention"]["INF"] == 3);
  f = triage::err::push(triage::err::new_(x), triage::err::inf, model);  // a shared pointer
  CHECK(triage::flags::summary(f)["student"]["INF"] == 3);
  f = triage::err::push(triage::err::new_(x), triage::err::inf, torch::nn::Linear(2, 2));  // never tracked
  CHECK(triage::flags::summary(f)["Unknown"]["INF"] == 3);
}

TEST_CASE("T16: a module is known by identity, not by its address") {
  ErrorLocation::reset();
  auto model = std::make_shared<Block>();
  tracked(*model, {.prefix = "first"});
  for (int i = 0; i < 100; ++i) {  // some of these lie where the one before lay
    auto other = std::make_shared<Block>();
    CHECK(location_of(*other).id == 0);
    tracked(*other, {.prefix = "other"});
    CHECK(ErrorLocation::name(location_of(*other->attention).id) == "other.attention");
  }
  CHECK(ErrorLocation::name(location_of(*model->attention).id) == "first.attention");
  Block on_the_stack;
  tracked(on_the_stack, {.prefix = "stack"});
  CHECK(ErrorLocation::name(location_of(*on_the_stack.attention).id) == "stack.attention");
  CHECK(location_of(on_the_stack).id == 0);
}

TEST_CASE("T16: a module in two places has its first path") {
  ErrorLocation::reset();
  torch::nn::Linear shared(2, 2);
  torch::nn::Sequential model(shared, torch::nn::ReLU(), shared);
  CHECK(paths_of(tracked(*model)) == Paths{"root", "0"});
  CHECK(ErrorLocation::name(location_of(*shared).id) == "0");
}

TEST_CASE("T16: TorchScript modules") {
  ErrorLocation::reset();
  torch::jit::Module model = script_model({"encoder.0", "encoder.1", "head"});
  model.register_module("act", torch::jit::Module("ReLU"));
  CHECK(paths_of(tracked(model)) == Paths{"root", "encoder", "encoder.0", "encoder.1", "head"});
  const torch::jit::Module layer = model.attr("encoder").toModule().attr("1").toModule();
  CHECK(ErrorLocation::name(location_of(layer).id) == "encoder.1");
  CHECK(location_of(model.attr("act").toModule()).id == 0);
  const at::Tensor f = triage::err::from_code(triage::err::nan, layer, 2);
  CHECK(triage::flags::summary(f)["encoder.1"]["NAN"] == 2);
}

TEST_CASE("T17: a model of 3,000 modules shares 1,023 ids, each path with its longest kept prefix") {
  ErrorLocation::reset();
  Paths leaves;
  for (int layer = 0; layer < 100; ++layer)
    for (int i = 0; i < 29; ++i) leaves.push_back("layers." + std::to_string(layer) + ".part" + std::to_string(i));
  torch::jit::Module model = script_model(leaves);
  const auto modules = tracked(model);
  CHECK(modules.size() == 3002);  // the parts, 100 layers, `layers`, the model
  std::set<int64_t> ids;
  std::map<std::string, int64_t> kept;
  for (const auto& module : modules) {
    CHECK(module.id >= 1);
    ids.insert(module.id);
    if (module.path == module.location) kept.emplace(module.path, module.id);
  }
  CHECK(ids.size() == 1023);
  CHECK(kept.size() == 1023);
  for (const auto& module : modules) {
    std::string prefix = module.path;
    while (kept.count(prefix) == 0) prefix.resize(prefix.rfind('.'));
    CHECK(module.location == prefix);
    CHECK(module.id == kept.at(prefix));
  }
  CHECK(tracked(model).size() == 3002);  // again: the same
  CHECK(ErrorLocation::count() == 1024);

  SUBCASE("T18: a weighted tree says which detail stays") {
    ErrorLocation::reset();
    triage::WeightedLocationTree tree;
    tree.set_weight("layers.99*", 10.0);
    for (const auto& module : tracked(model, {.prefix = "net", .tree = &tree})) {
      CHECK(module.id >= 1);
      if (module.path.rfind("net.layers.99", 0) == 0) CHECK(module.location == module.path);
    }
  }
  SUBCASE("the ids that are left are shared out") {
    ErrorLocation::reset();
    for (int i = 0; i < 1000; ++i) ErrorLocation::register_path("taken" + std::to_string(i));
    std::set<int64_t> few;
    for (const auto& module : tracked(model)) few.insert(module.id);
    CHECK(few.size() == 23);
    CHECK(few.count(0) == 0);
  }
  ErrorLocation::reset();
}

TEST_CASE("T17: when all ids are taken, a new path has the id of its longest prefix that has one") {
  ErrorLocation::reset();
  for (int64_t i = 1; i <= ErrorLocation::MAX_LOCATION_ID; ++i) ErrorLocation::register_path("p" + std::to_string(i));
  const int64_t p5 = ErrorLocation::get("p5");
  CHECK(p5 != 0);
  CHECK(ErrorLocation::register_path("p5.sub.x") == p5);
  CHECK(ErrorLocation::register_path("p5x.sub") == 0);
  CHECK(ErrorLocation::register_path("other") == 0);
  CHECK_FALSE(ErrorLocation::is_registered("p5.sub.x"));
  CHECK(ErrorLocation::count() == ErrorLocation::MAX_LOCATION_ID + 1);
  ErrorLocation::reset();
  CHECK(ErrorLocation::name(ErrorLocation::register_path("p5.sub.x")) == "p5.sub.x");
  ErrorLocation::reset();
}

TEST_CASE("T16: what points to no module, or to no text, is refused") {
  CHECK_THROWS_AS(triage::Location(torch::nn::Linear(nullptr)), triage::InputError);
  CHECK_THROWS_AS(triage::Location(std::shared_ptr<torch::nn::Module>()), triage::InputError);
  const torch::nn::Module* none = nullptr;
  CHECK_THROWS_AS(triage::Location{none}, triage::InputError);
  CHECK_THROWS_AS(triage::Location(static_cast<const char*>(nullptr)), triage::InputError);
}
