// Tensors that have no memory that a loop may read, or whose elements are not what lies there: every kind that LibTorch
// makes, in every place where a host's tensor enters. The result is LibTorch's, or a triage::Error; never a crash. A
// new kind is a line of `kinds`, a new place one of `places`. TRIAGE_KINDS=all tries all places with each backend.
#include "tests/attacks/forked.h"
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/triage.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

namespace triage::test {
namespace {

namespace functional = at::functionalization::impl;

struct TensorKind {
  const char* name;
  at::Tensor (*make)();
  bool crashes_torch = false;  // LibTorch itself would read at null: only an error is right
};

at::Tensor plain() { return at::arange(32, at::kFloat).reshape({4, 8}); }

const TensorKind kinds[] = {
    {"dense", plain},
    {"zeros of forward-mode AD",
     [] {
       return at::_efficientzerotensor({4, 8}, at::kFloat);
     }},
    {"a view of such zeros",
     [] {
       return at::_efficientzerotensor({8, 4}, at::kFloat).t();
     }},
    {"functional", [] { return functional::to_functional_tensor(plain()); }},
    {"meta",
     [] {
       return at::ones({4, 8}, at::device(at::kMeta));
     }},
    {"sparse, COO", [] { return plain().to_sparse(); }},
    {"sparse, CSR", [] { return plain().to_sparse_csr(); }},
    {"sparse, CSC", [] { return plain().to_sparse_csc(); }},
    {"sparse, BSR",
     [] {
       return plain().to_sparse_bsr({2, 2});
     }},
    {"mkldnn", [] { return plain().to_mkldnn(); }},
    {"nested",
     [] {
       return at::_nested_tensor_from_tensor_list({plain(), plain().narrow(0, 0, 2)});
     }},
    {"batched by vmap",
     [] {
       return at::_add_batch_dim(at::stack({plain(), plain() + 1, plain() + 2}), 0, 1);
     }},
    {"conjugated", [] { return at::complex(plain(), plain()).conj(); }},
    {"negated", [] { return at::_neg_view(plain()); }},
    {"imaginary part of a conjugate", [] { return at::imag(at::complex(plain(), plain() + 1).conj()); }},
    {"quantized", [] { return at::quantize_per_tensor(plain(), 0.5, 0, at::kQInt8); }},
    {"made in inference mode",
     [] {
       const c10::InferenceMode mode;
       return plain();
     }},
    {"with strides of 0",
     [] {
       return at::arange(8, at::kFloat).expand({4, 8});
     }},
    {"without elements",
     [] {
       return at::empty({0, 8});
     }},
    {"made of a null pointer",
     [] {
       return at::from_blob(nullptr, {4, 8});
     },
     true},
    {"freed",
     [] {
       at::Tensor z = plain();
       z.storage().set_data_ptr(at::DataPtr(nullptr, at::kCPU));
       return z;
     },
     true},
    {"made smaller",
     [] {
       at::Tensor z = at::ones({1 << 16, 8});
       z.storage().set_nbytes(64);
       return z;
     },
     true},
    {"a view of what was freed",
     [] {
       at::Tensor z = at::ones({8, 4});
       at::Tensor view = z.t();
       z.storage().set_data_ptr(at::DataPtr(nullptr, at::kCPU));
       return view;
     },
     true}};

/// A dense tensor of the same values, to compare.
at::Tensor values(const at::Tensor& tensor) {
  if (functional::isFunctionalTensor(tensor)) {
    functional::sync(tensor);
    return functional::from_functional_tensor(tensor).clone();
  }
  if (c10::toString(tensor.key_set()).find("Batched") != std::string::npos)
    return at::_remove_batch_dim(tensor, 1, 3, 0);
  if (tensor.is_nested()) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : tensor.unbind()) parts.push_back(part.reshape(-1));
    return at::cat(parts);
  }
  if (tensor.is_meta()) return at::zeros(tensor.sizes());
  if (tensor.layout() != at::kStrided) return tensor.to_dense();
  if (tensor.is_quantized()) return tensor.dequantize();
  return tensor.clone().resolve_conj().resolve_neg();
}

/// What a host does with a tensor: what LibTorch makes of it, and what triage does.
struct Place {
  const char* name;
  at::Tensor (*by_torch)(const at::Tensor& t);
  at::Tensor (*by_triage)(const at::Tensor& t, const char* backend);
  bool is_operator = false;  // which passes the exceptions of LibTorch
};

struct Host {
  explicit Host(const char* backend) : runtime(RuntimeOptions{.log = no_log(), .backend = backend}) {}
  Policy load(const std::string& members) {
    return runtime.load_source("return policy {inputs = {'z'}, outputs = {'y'}, " + members + "}", "p.lua");
  }
  /// Three calls, the last of which is warm.
  at::Tensor run(const Policy& policy, const at::Tensor& input, RunOptions options = {}) const {
    at::Tensor first = policy.run({input}, options)[0];
    policy.run({input}, options);
    const at::Tensor last = policy.run({input}, options)[0];
    if (!at::equal(values(first), values(last))) throw std::runtime_error("a warm call gives something else");
    return last;
  }
  Runtime runtime;
};

at::Tensor twice(const at::Tensor& t) { return t * 2 + 1; }
at::Tensor twice_beside_ones(const at::Tensor& t) { return t * 2 + at::ones({4, 8}); }
const at::Tensor& ones() {
  static const at::Tensor& made = *new at::Tensor(at::ones({4, 8}));
  return made;
}
/// Of flags in eight words of float32.
at::Tensor count_of_errors(const at::Tensor& f) {
  ErrorConfig config;
  config.flag_dtype = at::kFloat;
  return at::scalar_tensor(static_cast<int64_t>(flags::to_table(f, {config}).size()), at::kLong);
}

std::filesystem::path file(const char* ending) {
  return std::filesystem::temp_directory_path() / fmt::format("triage-kinds-{}{}", ::getpid(), ending);
}

const Place places[] = {
    {"input", twice,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       return host.run(host.load("run = function(z) return z * 2 + 1 end"), t);
     }},
    {"input of a graph for dense tensors", twice,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       const Policy policy = host.load("run = function(z) return z * 2 + 1 end");
       host.run(policy, ones());
       at::Tensor result = host.run(policy, t);
       if (!at::equal(host.run(policy, ones()), twice(ones())))
         throw std::runtime_error("a dense call goes wrong then");
       return result;
     }},
    {"input that is reduced", [](const at::Tensor& t) { return t - t.sum(-1, true); },
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       return host.run(host.load("run = function(z) return z - z:sum(-1, true) end"), t);
     }},
    {"input that is flagged and repaired", [](const at::Tensor& t) { return t + 0; },
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       const Policy policy = host.load(
           "run = function(z) local f = flag_nan_and_inf(z, 'z') z, f = fix(z, f, 'z', {fallback = 0.0}) "
           "return z + 0, f end");
       const auto answers = policy.run({t});
       policy.run({t});
       static_cast<void>(flags::repr(answers[1]));
       return answers[0];
     }},
    {"input that is returned", [](const at::Tensor& t) { return t; },
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       return host.run(host.load("run = function(z) return z end"), t);
     }},
    {"donated input", twice,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       const Policy policy = host.load("run = function(z) return z * 2 + 1 end");
       policy.prepare({t}, {.donate = {0}});
       return policy.run({t}, {.donate = {0}})[0];
     }},
    {"input of a policy with graph breaks", twice,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       return host.run(host.load("run = function(z) local y = z * 2 triage.graph_break('here') return y + 1 end"), t);
     }},
    {"input that a script reads", [](const at::Tensor& t) { return t * t.sum().item<double>(); },
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       return host.run(host.load("run = function(z) return z * z:sum():item() end"), t);
     }},
    {"param that is set", twice_beside_ones,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       const Policy policy =
           host.load("params = {w = torch.ones({4, 8})}, run = function(z, p) return p.w * 2 + z end");
       host.run(policy, ones());
       policy.set_param("w", t);
       return host.run(policy, ones());
     }},
    {"param of a call", twice_beside_ones,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       return host.run(host.load("params = {w = torch.ones({4, 8})}, run = function(z, p) return p.w * 2 + z end"),
                       ones(), {.params = {{"w", t}}});
     }},
    {"define_tensor", twice_beside_ones,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       host.runtime.define_tensor("w", t);
       return host.run(host.load("run = function(z) return w * 2 + z end"), ones());
     }},
    {"result of a function of the host", twice_beside_ones,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       host.runtime.define("h", [t](const std::vector<at::Tensor>&) { return std::vector<at::Tensor>{t}; });
       return host.run(host.load("run = function(z) return h(z) * 2 + z end"), ones());
     }},
    {"result of a pure function of the host", twice_beside_ones,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       bool odd = false;
       host.runtime.define("h",
                           [&](const std::vector<at::Tensor>&) { return std::vector<at::Tensor>{odd ? t : plain()}; },
                           {.pure = true});
       const Policy policy = host.load("run = function(z) return h(z) * 2 + z end");
       host.run(policy, ones());
       odd = true;
       return host.run(policy, ones());
     }},
    {"input of a model", twice,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       torch::jit::Module model("m");
       model.define("def forward(self, x):\n  return x * 2 + 1\n");
       host.runtime.define_module("model", model);
       return host.run(host.load("run = function(z) return model(z) end"), t);
     }},
    {"state that is set", [](const at::Tensor& t) { return t + ones(); },
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       const Policy policy = host.load(
           "state = {s = {shape = {4, 8}, dtype = torch.float32}}, run = function(z, s) return z + s.s, {s = s.s} end");
       policy.set_state({{"", {{"s", t}}}});
       return host.run(policy, ones());
     }},
    {"input of a candidate in the shadow", twice,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       const Policy policy = host.load("run = function(z) return z * 2 + 1 end");
       policy.shadow_source("return policy {inputs = {'z'}, outputs = {'y'}, run = function(z) return z * 2 + 1 end}\n",
                            {.share = 1});
       at::Tensor result = host.run(policy, t);
       static_cast<void>(policy.end_candidate().text());
       return result;
     }},
    {"input of a call that is recorded", twice,
     [](const at::Tensor& t, const char* backend) {
       Host host(backend);
       RecordOptions options;
       options.file = file("-capsule.pt").string();
       const at::Tensor result = record(host.load("run = function(z) return z * 2 + 1 end"), {t}, options)[0];
       std::filesystem::remove(options.file);
       return result;
     }},
    {"flag_nan of C++", [](const at::Tensor& t) { return (t * 0).sum().to(at::kLong); },
     [](const at::Tensor& t, const char*) { return flag_nan(t, Location("z")).sum(); }, true},
    {"fix of C++", [](const at::Tensor& t) { return t; },
     [](const at::Tensor& t, const char*) { return fix(t, flag_nan(t, Location("z")), Location("z")).first; }, true},
    {"flags that are read", [](const at::Tensor& t) { return count_of_errors(values(t)); },
     [](const at::Tensor& t, const char*) { return count_of_errors(t); }, true},
    {"a file", [](const at::Tensor& t) { return t; },
     [](const at::Tensor& t, const char*) {
       const std::string path = file(".pt").string();
       save_tensor(path, t);
       at::Tensor read = load_tensor(path);
       std::filesystem::remove(path);
       return read;
     }},
};

/// Empty where triage gives what LibTorch gives, or an error.
std::string tried(const TensorKind& kind, const Place& place, const char* backend) {
  at::Tensor want;
  if (!kind.crashes_torch) {
    try {
      want = values(place.by_torch(kind.make()));
    } catch (const std::exception&) {  // LibTorch has no such operator
    }
  }
  try {
    const at::Tensor got = values(place.by_triage(kind.make(), backend));
    if (kind.crashes_torch) return "it gave a result";
    // Where LibTorch has none, a result of a script that asks for less is as good as an error.
    if (want.defined() && !at::equal(got, want)) return fmt::format("it gave {}", at::sum(got).item().toDouble());
    return "";
  } catch (const Error& error) {
    return std::string(error.what()).size() > 20 ? "" : "an error without a message";
  } catch (const c10::Error& error) {
    return place.is_operator ? "" : std::string("it threw ") + error.what_without_backtrace();
  } catch (const std::exception& error) {
    return std::string("it threw ") + error.what();
  }
}

}  // namespace

TEST_CASE("a tensor of any kind in any place gives what LibTorch gives, or an error") {
  const char* const asked = std::getenv("TRIAGE_KINDS");
  const bool everywhere = asked && std::string(asked) == "all";
  for (const TensorKind& kind : kinds) {
    const lua::testing::Ended ended = lua::testing::in_fork(
        [&](const lua::testing::Say& say) {
          std::string wrong;
          for (const char* const backend : {"fused", "aot_eager", "eager"})
            for (const Place& place : places) {
              if (!everywhere && &place != places && std::string(backend) != "fused") continue;
              say(fmt::format("{}, {}", place.name, backend));
              const std::string problem = tried(kind, place, backend);
              if (!problem.empty()) wrong += fmt::format("\n  {}, {}: {}", place.name, backend, problem);
            }
          return wrong;
        },
        60);
    CHECK_MESSAGE((ended.death.empty() && ended.text.empty()),
                  std::string(kind.name) << ": " << ended.death << (ended.death.empty() ? "" : " at: " + ended.stage)
                                         << ended.text);
  }
}

}  // namespace triage::test
