// Policies on a device where operations on flags run as composites: how many calls of LibTorch they make there, as
// scripts and captured, that none waits for the device, and that writes end what is known of records.
#include "tests/other_device.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/library.h>
#include <triage/triage.h>

#include "tests/logs.h"

using triage::Policy;
using triage::Runtime;
using namespace triage::test;

namespace {

using Tensors = std::vector<at::Tensor>;

constexpr float NaN = std::numeric_limits<float>::quiet_NaN(), Inf = std::numeric_limits<float>::infinity();

// An operator of another library: LibTorch does not raise the version of what it writes to.
void overwrite(const at::Tensor& f) {
  auto* words = static_cast<int64_t*>(f.data_ptr());
  for (int64_t i = 0; i < f.numel(); ++i) words[i] = i % 4 ? 0 : 7 << 6 | 2 << 2 | 1;
}
TORCH_LIBRARY(triage_test_writes, m) {
  m.def("overwrite(Tensor(a!) f) -> ()", [](const at::Tensor& f) { overwrite(f); });
}

at::Tensor batch() {
  at::Tensor z = at::ones({6, 5});
  z[1][2] = NaN;
  z[3][0] = Inf;
  z[4][0] = Inf;
  z[4][4] = NaN;
  return z;
}

triage::RuntimeOptions options() {
  triage::RuntimeOptions options;
  options.backend = "eager";
  options.trusted = true;  // the contracts of other operators know no such device
  options.log = no_log();
  return options;
}

void same(const Tensors& expected, const Tensors& there) {
  REQUIRE(expected.size() == there.size());
  for (size_t i = 0; i < there.size(); ++i) {
    const at::Tensor got = from_other(there[i]);
    REQUIRE(got.sizes() == expected[i].sizes());
    CHECK_MESSAGE(at::equal(expected[i], got), "result " << i << ": " << at::str(expected[i]) << at::str(got));
  }
}

struct Case {
  const char* name;
  const char* source;
  size_t most;
};

const Case cases[] = {
    {"detection", "return function(z) return flag_nan_and_inf(z, 'a') end", 8},
    {"repair", R"(return function(z)
       local f = flag_nan_and_inf(z, 'a')
       return fix(z, f, 'a', {fallback = 0.0})
     end)",
     16},
    {"a push into new flags", R"(return function(z)
       return err.push(err.new(z), err.INF, 'a', {where = z:select(1, 0):eq(1)})
     end)",
     6},
    {"flags of a number of samples",
     "return function(z) return err.from_code(err.INF, 'a', #z, {device = z.device}) end", 9},
    {"questions", R"(return function(z)
       local f = flag_nan_and_inf(z, 'a')
       return err.has_nan(f), err.is_ok(f), err.has_critical(f)
     end)",
     14},
    {"a push where it has errors", R"(return function(z)
       local f = flag_nan(z, 'a')
       return err.push(f, err.INF, 'b', {where = err.is_err(f)})
     end)",
     9},
};

}  // namespace

TEST_CASE("T34: on a device without kernels policies make few calls and wait for none, as scripts and captured") {
  for (const Case& it : cases) {
    CAPTURE(std::string(it.name));
    const Policy here = Runtime(options()).load_source(it.source, "here.lua"),
                 there = Runtime(options()).load_source(it.source, "there.lua");
    const Tensors expected = here.run({batch()});
    for (const char* mode : {"script", "captured", "captured again"}) {
      CAPTURE(std::string(mode));
      Tensors results;
      const at::Tensor z = to_other(batch());
      const Calls calls = calls_of([&] { results = there.run({z}); });
      same(expected, results);
      CHECK_MESSAGE(!calls.made.empty(), "no call was seen");
      CHECK_MESSAGE(calls.made.size() <= it.most, listed(calls.made));
      CHECK_MESSAGE(calls.waits.empty(), listed(calls.waits));
    }
    CHECK(there.graphs().size() == 1);
  }
}

TEST_CASE("T34: on a device without kernels the default backend runs plain ATen, without what nobody needs") {
  for (const Case& it : cases) {
    CAPTURE(std::string(it.name));
    triage::RuntimeOptions on_fused = options();
    on_fused.backend = "fused";
    const Policy here = Runtime(options()).load_source(it.source, "here.lua"),
                 there = Runtime(on_fused).load_source(it.source, "there.lua");
    there.run({to_other(batch())});
    Tensors results;
    const at::Tensor z = to_other(batch());
    const Calls calls = calls_of([&] { results = there.run({z}); });
    same(here.run({batch()}), results);
    CHECK_MESSAGE(calls.made.size() <= 1, listed(calls.made));  // a size that is read
    CHECK_MESSAGE(calls.waits.empty(), listed(calls.waits));
  }
}

TEST_CASE("T34: beside tensors of another device, clamp and where take params and numbers that a script computes") {
  const char* source = R"(return policy {
    inputs = {'z'}, params = {limit = 0.5},
    run = function(z, p)
      local chosen = torch.where(z:gt(0), p.limit, z) + torch.where(z:gt(1), z, p.limit + 1)
      return z:clamp(-p.limit, p.limit):gt(0), flag_nan(z:clamp_min(p.limit * 2), 'a'), chosen:gt(1)
    end
  })";
  const Policy here = Runtime(options()).load_source(source, "here.lua"),
               there = Runtime(options()).load_source(source, "there.lua");
  const at::Tensor z = to_other(batch());
  for (int call = 0; call < 2; ++call) same(here.run({batch()}), there.run({z}));
  here.set_param("limit", 2.5);
  there.set_param("limit", 2.5);
  Tensors results;
  const Calls calls = calls_of([&] { results = there.run({z}); });
  same(here.run({batch()}), results);
  CHECK_MESSAGE(calls.waits.empty(), listed(calls.waits));
  CHECK(there.graphs().size() == 1);
}

TEST_CASE("T34: on a device without kernels what was written to is no longer known") {
  // Each writes to flags that were detected, and pushes into them.
  const char* writes[] = {
      "f:copy_(g)",
      "f[1]:copy_(g[1])",
      "local row = f:select(0, 4); row:copy_(g[0])",
      "f:detach():copy_(g)",
      "f[{2}] = g[2]",
      "f:zero_()",
      "local same = torch._unsafe_view(f, {24}); same:zero_()",
  };
  for (const char* write : writes) {
    CAPTURE(std::string(write));
    const std::string source = std::string(R"(return function(z, g)
      local f = flag_nan_and_inf(z, 'a')
      )") + write + R"(
      return err.push(f, err.OVERFLOW, 'b'), err.is_err(f), err.count_errors(f)
    end)";
    const at::Tensor g = at::full({6, 4}, 0, at::kLong);
    g.select(1, 0).fill_(9 << 6 | 2 << 2 | 1);
    const Policy here = Runtime(options()).load_source(source, "here.lua"),
                 there = Runtime(options()).load_source(source, "there.lua");
    const Tensors expected = here.run({batch(), g});
    for (int call = 0; call < 2; ++call) same(expected, there.run({to_other(batch()), to_other(g)}));
  }
}

TEST_CASE("T34: on a device without kernels writes of other libraries and of the host end what is known") {
  if (is_real_device()) return;  // its memory is not the host's to write to
  const std::string by_library = R"(return function(z)
    local f = flag_nan_and_inf(z, 'a')
    torch.ops.triage_test_writes.overwrite(f)
    return err.push(f, err.OVERFLOW, 'b'), err.is_err(f)
  end)";
  const std::string by_host = R"(return function(z)
    local f = flag_nan_and_inf(z, 'a')
    overwrite(f)
    return err.push(f, err.OVERFLOW, 'b'), err.is_err(f)
  end)";
  for (const std::string& source : {by_library, by_host}) {
    CAPTURE(source);
    const auto load = [&](const char* name) {
      Runtime runtime(options());
      runtime.define("overwrite", [](const Tensors& arguments) {
        overwrite(arguments[0]);
        return Tensors{};
      });
      return runtime.load_source(source, name);
    };
    const Policy here = load("here.lua"), there = load("there.lua");
    const Tensors expected = here.run({batch()});
    for (int call = 0; call < 2; ++call) same(expected, there.run({to_other(batch())}));
  }
}
