// Functions, tensors and modules that a host in C gives to policies.
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "host.h"

namespace triage::test {
namespace {

namespace fs = std::filesystem;

/// A tensor on the heap, which frees itself, and is counted.
struct Made {
  static inline int alive = 0;
  std::vector<float> data;
  std::vector<int64_t> shape;
  DLManagedTensor managed = {};

  static DLManagedTensor* of(std::vector<float> values, std::vector<int64_t> sizes) {
    auto* made = new Made;
    ++alive;
    made->data = std::move(values);
    made->shape = std::move(sizes);
    made->managed.dl_tensor = {made->data.data(),
                               {kDLCPU, 0},
                               static_cast<int32_t>(made->shape.size()),
                               {kDLFloat, 32, 1},
                               made->shape.data(),
                               nullptr,
                               0};
    made->managed.manager_ctx = made;
    made->managed.deleter = [](DLManagedTensor* self) {
      delete static_cast<Made*>(self->manager_ctx);
      --alive;
    };
    return &made->managed;
  }
};

/// A runtime, whose policies come after what a test defines.
struct Scene {
  TriageRuntime* runtime = nullptr;
  TriagePolicy* policy = nullptr;

  Scene() {
    TriageRuntimeOptions options = {};
    options.size = sizeof options;
    options.log = [](const TriageLogRecord*, void*) {};
    check_ok(api().create_runtime(&options, &runtime));
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  ~Scene() {
    check_ok(api().free_policy(policy));
    check_ok(api().free_runtime(runtime));
  }
  void define(const char* name, TriageFunction function, void* user = nullptr, TriageFunctionOptions options = {}) {
    options.size = sizeof options;
    check_ok(api().define_function(runtime, name, function, user, &options));
  }
  void load(const std::string& source) {
    check_ok(api().load_source(runtime, source.data(), source.size(), "scene.lua", &policy));
  }
  TriageStatus run(DLManagedTensor* input, std::vector<float>& values, TriageRunInfo* info = nullptr) const {
    TriageRunOptions options = {};
    options.size = sizeof options;
    options.info = info;
    DLManagedTensor* outputs[1] = {};
    size_t count = 1;
    const TriageStatus status = api().run(policy, &input, 1, &options, outputs, &count);
    if (status == TRIAGE_OK) values = Output(outputs[0]).values();
    return status;
  }
  std::vector<float> run(std::vector<float> input, int32_t* form = nullptr) const {
    const auto count = static_cast<int64_t>(input.size());
    HostTensor z(std::move(input), {count, 1});
    std::vector<float> values;
    TriageRunInfo info = {};
    info.size = sizeof info;
    check_ok(run(&z.managed, values, &info));
    if (form) *form = info.form;
    return values;
  }
  void fails(const std::vector<std::string>& texts) const {
    HostTensor z({1}, {1, 1});
    std::vector<float> values;
    check_failed(run(&z.managed, values), TRIAGE_ERROR_POLICY, texts);
  }
};

/// Twice the input.
void twice(TriageFunctionCall* call, void* user) {
  if (user) ++*static_cast<int*>(user);
  const DLTensor& input = call->inputs[0]->dl_tensor;
  const std::vector<int64_t> shape(input.shape, input.shape + input.ndim);
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  if (input.data)
    for (size_t i = 0; i < values.size(); ++i) values[i] = 2 * static_cast<const float*>(input.data)[i];
  call->outputs[0] = Made::of(values, shape);
  call->output_count = 1;
}

constexpr const char* calls_it = "return function(z) return host(z) + 1 end";

}  // namespace

TEST_CASE("a function of the host is called for each call, between graphs") {
  int calls = 0;
  {
    Scene scene;
    scene.define("host", twice, &calls);
    scene.load(calls_it);
    for (const size_t batch : {0, 1, 2, 31, 32, 33})
      CHECK(scene.run(std::vector<float>(batch, 3)) == std::vector<float>(batch, 7));
    CHECK(calls >= 6);
  }
  CHECK(Made::alive == 0);
}

TEST_CASE("a pure function is a node of the graph") {
  {
    Scene scene;
    TriageFunctionOptions options = {};
    options.pure = 1;
    options.shapes = twice;
    scene.define("host", twice, nullptr, options);
    scene.load(calls_it);
    int32_t form = -1;
    scene.run({1, 2});
    CHECK(scene.run({1, 2, 3}, &form) == std::vector<float>{3, 5, 7});
    CHECK(form == TRIAGE_FORM_GRAPH);
  }
  CHECK(Made::alive == 0);
}

TEST_CASE("outputs without a deleter are copied, and may be written over by the next call") {
  Scene scene;
  static std::vector<float> data(1);
  static std::vector<int64_t> shape = {1, 1};
  static DLManagedTensor managed = {};
  managed.dl_tensor = {data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape.data(), nullptr, 0};
  scene.define("host", [](TriageFunctionCall* call, void*) {
    data[0] = *static_cast<const float*>(call->inputs[0]->dl_tensor.data) * 10;
    call->outputs[0] = &managed;
    call->output_count = 1;
  });
  scene.load("return function(z) local a = host(z) local b = host(z + 1) return torch.cat({a, b}) end");
  CHECK(scene.run({1}) == std::vector<float>{10, 20});
}

TEST_CASE("what a function does wrong fails the call with its line, and loses nothing") {
  {
    Scene scene;
    scene.define("fails", [](TriageFunctionCall* call, void*) {
      call->outputs[0] = Made::of({1}, {1});
      call->output_count = 1;
      call->error = "the cache is cold";
    });
    scene.define("returns_input", [](TriageFunctionCall* call, void*) {
      call->outputs[0] = call->inputs[0];
      call->output_count = 1;
    });
    scene.define("many", [](TriageFunctionCall* call, void*) { call->output_count = call->output_room + 1; });
    scene.define("forgets", [](TriageFunctionCall* call, void*) { call->outputs[0] = Made::of({1}, {1}); });
    scene.define("too_many", [](TriageFunctionCall* call, void*) {
      call->outputs[3] = Made::of({1}, {1});
      call->output_count = SIZE_MAX;
    });
    scene.define("silent", [](TriageFunctionCall* call, void*) { call->error = ""; });
    scene.define("null", [](TriageFunctionCall* call, void*) { call->output_count = 1; });
    const std::pair<const char*, std::vector<std::string>> cases[] = {
        {"fails", {"scene.lua:1", "function `fails` of the host failed: the cache is cold"}},
        {"returns_input", {"scene.lua:1", "`returns_input`", "returns one of its inputs"}},
        {"many", {"scene.lua:1", "`many`", "17 outputs", "16"}},
        {"forgets", {"scene.lua:1", "`forgets`", "has set outputs[0]", "0 outputs; set `output_count`"}},
        {"too_many", {"`too_many`", "there is room for 16"}},
        {"silent", {"`silent` of the host failed: it gives no reason"}},
        {"null", {"scene.lua:1", "output of function `null` 0: it is null"}}};
    for (const auto& [name, texts] : cases) {
      CAPTURE(std::string(name));
      scene.load("return function(z) return " + std::string(name) + "(z) end");
      scene.fails(texts);
      check_ok(api().free_policy(scene.policy));
      scene.policy = nullptr;
    }
  }
  CHECK(Made::alive == 0);
}

TEST_CASE("a pure function that returns another shape than it said fails the call") {
  Scene scene;
  TriageFunctionOptions options = {};
  options.pure = 1;
  scene.define(
      "host",
      [](TriageFunctionCall* call, void*) {
        call->outputs[0] = Made::of({1, 2, 3}, {3});
        call->output_count = 1;
      },
      nullptr, options);
  scene.load("return function(z) return host(z) end");
  scene.fails({"scene.lua:1", "host"});
}

TEST_CASE("`user` is freed once, when no policy can call the function") {
  int freed = 0;
  TriageFunctionOptions options = {};
  options.free_user = [](void* user) { ++*static_cast<int*>(user); };
  {
    Scene scene;
    scene.define(
        "host",
        [](TriageFunctionCall* call, void* user) {
          CHECK(*static_cast<int*>(user) == 0);
          twice(call, nullptr);
        },
        &freed, options);
    scene.load(calls_it);
    check_ok(api().free_runtime(scene.runtime));
    check_ok(api().create_runtime(nullptr, &scene.runtime));
    CHECK(scene.run({1}) == std::vector<float>{3});
    CHECK(freed == 0);
    check_ok(api().free_policy(scene.policy));
    CHECK(freed == 1);
    scene.policy = nullptr;
  }
  CHECK(freed == 1);
  Scene scene;
  options.size = sizeof options;
  check_failed(api().define_function(scene.runtime, "host", nullptr, &freed, &options), TRIAGE_ERROR_ARGUMENT,
               {"`function` is null"});
  check_failed(api().define_function(scene.runtime, "", twice, &freed, &options), TRIAGE_ERROR_INPUT, {"name"});
  options.shapes = twice;  // of a function that is not pure
  check_failed(api().define_function(scene.runtime, "host", twice, &freed, &options), TRIAGE_ERROR_INPUT, {"pure"});
  CHECK(freed == 1);
}

TEST_CASE("what a redefinition frees may define on the same runtime") {
  Scene scene;
  static TriageRuntime* runtime;
  static int freed;
  runtime = scene.runtime;
  freed = 0;
  TriageFunctionOptions options = {};
  options.free_user = [](void*) {
    ++freed;
    TriageFunctionOptions none = {};
    none.size = sizeof none;
    CHECK(api().define_function(runtime, "other", twice, nullptr, &none) == TRIAGE_OK);
  };
  scene.define("host", twice, &freed, options);
  scene.define("host", twice);
  CHECK(freed == 1);
  scene.load("return function(z) return other(z) + host(z) end");
  CHECK(scene.run({1}) == std::vector<float>{4});
}

TEST_CASE("`shapes` needs no device and no data") {
  Scene scene;
  TriageFunctionOptions options = {};
  options.pure = 1;
  options.shapes = [](TriageFunctionCall* call, void*) {
    static thread_local std::vector<int64_t> shape;
    static thread_local DLManagedTensor output;
    const DLTensor& input = call->inputs[0]->dl_tensor;
    CHECK(input.data == nullptr);
    shape.assign(input.shape, input.shape + input.ndim);
    output = {};
    output.dl_tensor.ndim = input.ndim;
    output.dl_tensor.shape = shape.data();
    output.dl_tensor.dtype = {kDLFloat, 32, 1};
    call->outputs[0] = &output;
    call->output_count = 1;
  };
  scene.define("host", twice, nullptr, options);
  scene.load(calls_it);
  scene.run({1});
  int32_t form = -1;
  CHECK(scene.run({1, 2}, &form) == std::vector<float>{3, 5});
  CHECK(form == TRIAGE_FORM_GRAPH);
}

TEST_CASE("an error drops all outputs, and one output twice is refused") {
  {
    Scene scene;
    scene.define("late", [](TriageFunctionCall* call, void*) {
      for (int i = 0; i < 3; ++i) call->outputs[i] = Made::of({1}, {1});
      call->output_count = 3;
      call->error = "too late";
    });
    scene.define("same", [](TriageFunctionCall* call, void*) {
      call->outputs[0] = call->outputs[1] = Made::of({1}, {1});
      call->output_count = 2;
    });
    scene.load("return function(z) return late(z) end");
    scene.fails({"too late"});
    check_ok(api().free_policy(scene.policy));
    scene.load("return function(z) return same(z) end");
    scene.fails({"output of function `same` 1", "the same DLManagedTensor"});
  }
  CHECK(Made::alive == 0);
}

TEST_CASE("a tensor of the host is read by each call") {
  Scene scene;
  HostTensor limits({10}, {1});
  limits.count_frees();
  check_ok(api().define_tensor(scene.runtime, "limits", &limits.managed));
  scene.load("return function(z) return z + limits end");
  CHECK(scene.run({1, 2}) == std::vector<float>{11, 12});
  limits.data[0] = 20;
  CHECK(scene.run({1, 2}) == std::vector<float>{21, 22});
  CHECK(limits.freed == 0);
  check_ok(api().free_policy(scene.policy));
  check_ok(api().free_runtime(scene.runtime));
  CHECK(limits.freed == 1);
  scene.policy = nullptr;
  scene.runtime = nullptr;
  check_failed(api().define_tensor(scene.runtime, "x", nullptr), TRIAGE_ERROR_ARGUMENT, {"`runtime` is null"});
  check_ok(api().create_runtime(nullptr, &scene.runtime));
  check_failed(api().define_tensor(scene.runtime, "x", nullptr), TRIAGE_ERROR_ARGUMENT, {"tensor 0: it is null"});
}

TEST_CASE("a TorchScript module is a function of policies") {
  const fs::path folder = fs::temp_directory_path() / ("triage-c-module-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  torch::jit::Module module("scale");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("w", at::full({1}, 3.0f), false);
  module.define("def forward(self, x):\n  if self.training:\n    return x\n  return x * self.w\n");
  module.save((folder / "scale.pt").string());
  std::ofstream(folder / "broken.pt") << "no module";
  Scene scene;
  check_ok(api().define_module(scene.runtime, "model", (folder / "scale.pt").c_str(), nullptr));
  scene.load("return function(z) return model(z) + 1 end");
  CHECK(scene.run({1, 2}) == std::vector<float>{4, 7});
  TriageModuleOptions options = {};
  options.size = sizeof options;
  options.training = 1;
  options.device = {kDLCPU, 0};
  check_ok(api().define_module(scene.runtime, "model", (folder / "scale.pt").c_str(), &options));
  check_ok(api().free_policy(scene.policy));
  scene.load("return function(z) return model(z) + 1 end");
  CHECK(scene.run({1, 2}) == std::vector<float>{2, 3});
  check_failed(api().define_module(scene.runtime, "m", (folder / "none.pt").c_str(), nullptr), TRIAGE_ERROR_FILE,
               {"there is no file", "none.pt"});
  check_failed(api().define_module(scene.runtime, "m", (folder / "broken.pt").c_str(), nullptr), TRIAGE_ERROR_FILE,
               {"broken.pt", "TorchScript"});
  options.training = 2;
  check_failed(api().define_module(scene.runtime, "m", (folder / "scale.pt").c_str(), &options), TRIAGE_ERROR_ARGUMENT,
               {"options->training"});
  options.training = 0;
  options.device.device_type = static_cast<DLDeviceType>(77);
  check_failed(api().define_module(scene.runtime, "m", (folder / "scale.pt").c_str(), &options), TRIAGE_ERROR_ARGUMENT,
               {"options->device", "77"});
  fs::remove_all(folder);
}

}  // namespace triage::test
