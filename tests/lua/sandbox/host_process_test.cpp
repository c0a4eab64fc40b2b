// triage runs in a host's process: it leaves the settings of the process, of LibTorch and of the calling thread as they
// were.
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <triage/triage.h>

#include <cfenv>
#include <clocale>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace {

std::string signal_handlers() {
  std::string all;
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM, SIGXFSZ}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    all += fmt::format("{}:{} ", signal, reinterpret_cast<uintptr_t>(action.sa_handler));
  }
  return all;
}

std::string limits() {
  std::string all;
  for (int what = 0; what < RLIM_NLIMITS; ++what) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource_t>(what), &limit);
    all += fmt::format("{}:{} ", what, limit.rlim_cur);
  }
  return all;
}

mode_t mask_of_files() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

/// What is set for the whole process, or for this thread.
std::vector<std::string> settings() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  return {
      fmt::format("threads {} and {}", at::get_num_threads(), at::get_num_interop_threads()),
      fmt::format("default dtype {}", c10::toString(c10::typeMetaToScalarType(at::get_default_dtype()))),
      fmt::format("grad mode {}", c10::GradMode::is_enabled()),
      fmt::format("inference mode {}", c10::InferenceMode::is_enabled()),
      fmt::format("deterministic {}", at::globalContext().deterministicAlgorithms()),
      fmt::format("dispatch keys {} without {}", keys.included_.raw_repr(), keys.excluded_.raw_repr()),
      fmt::format("terminate handler {}", reinterpret_cast<uintptr_t>(std::get_terminate())),
      fmt::format("rounding {}", std::fegetround()),
      "signal handlers " + signal_handlers(),
      "limits " + limits(),
      fmt::format("umask {:o}", mask_of_files()),
      std::string("locale ") + std::setlocale(LC_ALL, nullptr),
      "folder " + std::filesystem::current_path().string(),
      fmt::format("configuration of flags {}", triage::config_epoch()),
      std::string("stance ") + triage::stance_name(triage::get_stance()),
  };
}

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

// Of a script that captures, breaks, fails in the middle of scopes, draws numbers, and runs backward passes.
const std::string eventful = R"(
  local seen = 0
  return function(x)
    local y = torch.dropout(x, 0.5, true) + torch.rand_like(x) + math.random()
    local ok = pcall(function()
      local _ <close> = torch.no_grad()
      error("in the middle")
    end)
    seen = seen + 1
    if y:sum():item() > 1e9 then y = -y end
    pcall(function() return x:reshape({7, 7, 7}) end)
    pcall(function() torch.set_num_threads(1) end)
    pcall(function() torch.set_default_dtype(torch.float64) end)
    pcall(function() torch.set_grad_enabled(false) end)
    pcall(function() torch.manual_seed(1) end)
    if seen > 3 then error("enough") end
    return torch.tanh(y * 2):clamp(-1, 1)
  end
)";

void run_policies() {
  for (const char* backend : {"eager", "aot_eager", "fused"}) {
    triage::Runtime runtime({.log = triage::test::no_log(), .backend = backend});
    const triage::Policy policy = runtime.load_source(eventful, "eventful.lua");
    const triage::Policy plain =
        runtime.load_source("return function(x) return torch.tanh(x * 2 + 1) end", "plain.lua");
    for (int call = 0; call < 6; ++call) {
      const at::Tensor x = at::ones({4, 3}).requires_grad_();
      CHECK_NOTHROW(plain.run({x})[0].sum().backward());
      try {
        policy.run({x});
      } catch (const triage::Error&) {  // the fourth call and those after it
      }
    }
    CHECK_THROWS_AS(runtime.load_source("return function(", "broken.lua"), triage::LoadError);
    plain.replace("return function(x) return torch.tanh(x * 3 + 1) end");
    plain.replace("not a script");
  }
}

}  // namespace

TEST_CASE("a host's process has the settings after policies ran that it had before") {
  const std::vector<std::string> before = settings();
  const at::Tensor drawn = generator_state();
  run_policies();
  CHECK(settings() == before);
  CHECK(at::equal(generator_state(), drawn));
}

TEST_CASE("settings of the host's that are not the defaults stay too, on a thread of its own") {
  std::thread([] {
    const at::ScalarType dtype = c10::typeMetaToScalarType(at::get_default_dtype());
    at::set_default_dtype(at::scalarTypeToTypeMeta(at::kDouble));
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    const at::NoGradGuard no_grad;
    const std::vector<std::string> before = settings();
    triage::Runtime runtime({.log = triage::test::no_log()});
    const triage::Policy policy = runtime.load_source(eventful, "eventful.lua");
    for (int call = 0; call < 5; ++call) {
      try {
        policy.run({at::ones({4, 3})});
      } catch (const triage::Error&) {
      }
    }
    CHECK(settings() == before);
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
    at::set_default_dtype(at::scalarTypeToTypeMeta(dtype));
  }).join();
}

TEST_CASE("errors of LibTorch have the backtrace that the host chose, also after policies were loaded") {
  c10::SetStackTraceFetcher([]() -> std::string { return "a trace of the host's own"; });
  run_policies();
  std::string text;
  try {
    TORCH_CHECK(false, "an error of the host's");
  } catch (const c10::Error& error) {
    text = error.what();
  }
  CHECK(text.find("a trace of the host's own") != std::string::npos);
}
