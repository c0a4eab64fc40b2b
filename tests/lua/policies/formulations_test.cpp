// What a policy costs does not depend on how it is written. Each policy here is a text with places, and each place has
// several forms that say the same; the policies that they make are cut into as many parts as the one with the fewest,
// and give the same results. A part is a group of loops, or a call of ATen outside of loops. TRIAGE_FORMULATIONS=N
// takes N of each policy (0: all), TRIAGE_FORMULATIONS_SEED others.
#include "bindings/lua/engine/policies/lua_script.h"
#include "tests/cli/folder.h"
#include "tests/policy_library.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/fused.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <triage/graph.h>
#include <triage/runtime.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using triage::Runtime;
using Tensors = std::vector<at::Tensor>;
using Forms = std::vector<std::string>;

struct Place {
  std::string name;  // "$fill" in the text; forms may have places of their own, which come behind it
  Forms forms;
};
struct Written {
  std::string name, text;  // of `run`, whose arguments are x, of 16 rows of 8, and the params p
  std::vector<Place> places;
  double tolerance = 0;  // of results; 0: the same bits
};

/// The eighth part, of which `x:size(1)` is the denominator.
const Forms eighths = {"0.125",
                       "p.eighth",
                       "eighth",
                       "1 / x:size(1)",
                       "1.0 / x:size(-1)",
                       "x:size(1) ^ -1",
                       "x:size(1) / 64",
                       "(x:size(1) // 4) / 16",
                       "1 / math.max(x:size(1), 1)",
                       "(x:size(1) % 5 - 2) / x:size(1)",
                       "1 / (x:size(0) // 2)",
                       "(x:size(0) - x:size(1)) / 64",
                       "math.sqrt(x:size(1) * 2) / 32",
                       "math.floor(x:size(1) * 0.25) * 0.0625",
                       "inverse(x:size(1))",
                       "inverse(count(x))",
                       "1 / x.shape[2]",
                       "1 / (x:numel() // x:size(0))"};
/// A tensor like y that is $eighth everywhere.
const Forms fills = {"torch.full_like(y, $eighth)",
                     "torch.ones_like(y) * $eighth",
                     "torch.zeros_like(y) + ($eighth)",
                     "y:new_full(y:size(), $eighth)",
                     "torch.full({x:size(0), x:size(1)}, $eighth)",
                     "torch.full(x:size(), $eighth)",
                     "y:new_ones(y:size()):mul($eighth)",
                     "torch.zeros(y:size()):fill_($eighth)",
                     "torch.zeros_like(y):add_($eighth)",
                     "y:clone():fill_($eighth)",
                     "filled(y, $eighth)"};
const Forms errors = {"err.is_err(f)",
                      "(~err.is_ok(f))",
                      "(err.has_nan(f) | err.has_inf(f))",
                      "(~(~err.has_nan(f) & ~err.has_inf(f)))",
                      "err.is_ok(f):logical_not()",
                      "torch.logical_or(err.has_nan(f), err.has_inf(f))",
                      "(err.has_nan(f) ~ (err.has_inf(f) & ~err.has_nan(f)))",
                      "(err.is_err(f) * ~err.is_ok(f))",
                      "err.count_errors(f):gt(0)",
                      "(err.count_errors(f) > 0)",
                      "err.is_err(f):to(torch.float32):gt(0.5)",
                      "err.has_domain(f, ErrorDomain.NUMERIC)",
                      "bad(f)"};
const Forms columns = {"$error:unsqueeze(1)",     "$error:unsqueeze(-1)",        "$error:view({-1, 1})",
                       "$error:reshape({-1, 1})", "$error:view({x:size(0), 1})", "$error:unsqueeze(1):expand_as(y)"};
/// y where the flags f are good, else an eighth everywhere.
const Forms choices = {"IF($error, function() return $fill end):ELSE(function() return y end)",
                       "IF(~$error, function() return y end):ELSE(function() return $fill end)",
                       "torch.where($column, $fill, y)",
                       "torch.where(~$column, y, $fill)",
                       "torch.where($column, $eighth, y)",
                       "y:masked_fill($column, $eighth)",
                       "y:clone():masked_fill_($column, $eighth)",
                       "err.take_ok_p(f, y, $eighth)",
                       "err.map_err(f, y, function(z) return $fill end)",
                       "err.map_ok(f, $fill, function() return y end)",
                       "err.take_err_p(f, $fill, 0.0) + err.take_ok_p(f, y, 0.0)",
                       "chosen(f, y, $fill)",
                       "y:where(~$column, $fill)"};
const Forms flags = {"flag_nan_and_inf(x, 7)", "err.merge(flag_nan(x, 7), flag_inf(x, 7))"};

const Place eighth{"$eighth", eighths}, error{"$error", errors}, column{"$column", columns}, fill{"$fill", fills},
    choice{"$choice", choices};

const Forms mean_forms = {"x:mean({-1}, true)",
                          "x:mean(-1, true)",
                          "x:mean(-1):unsqueeze(-1)",
                          "x:sum(-1, true) / x:size(1)",
                          "(x:sum(-1) / x:size(-1)):unsqueeze(1)",
                          "x:sum({1}, true) * (1 / x:size(1))",
                          "average(x)"};
const Forms deviation_forms = {"x:std({-1}, true, true)",
                               "x:std(-1, true, true)",
                               "x:std(-1):unsqueeze(-1)",
                               "x:var(-1, true, true):sqrt()",
                               "torch.sqrt((x - mean):square():sum(-1, true) / (x:size(1) - 1))",
                               "((x - mean) ^ 2):sum(-1, true):div(x:size(1) - 1):sqrt()",
                               "(((x - mean) * (x - mean)):mean(-1, true) * (x:size(1) / (x:size(1) - 1))):sqrt()",
                               "((x - mean):pow(2):sum(-1) / (x:size(1) - 1)):sqrt():unsqueeze(1)",
                               "((x - mean):norm(2, {-1}, true) / math.sqrt(x:size(1) - 1))"};

const std::vector<Written> policies = {
    {"uniform rows of a softmax",
     "local f = $flags local y = $softmax return $choice, f",
     {choice,
      fill,
      column,
      error,
      eighth,
      {"$flags", flags},
      {"$softmax", {"x:softmax(-1)", "torch.softmax(x, 1)", "x:log_softmax(-1):exp()"}}},
     1e-6},
    {"bad rows become a number",
     "local f = flag_nan_and_inf(x, 7) local y = x return $choice",
     {choice, fill, column, error, eighth}},
    {"repair without flags",
     "local bad = $bad local zero = $zero return $where, bad",
     {{"$bad",
       {"~torch.isfinite(x):all(-1)", "(torch.isnan(x) | torch.isinf(x)):any(-1)", "(~torch.isfinite(x)):any(-1)",
        "(x:ne(x) | x:abs():eq(math.huge)):any(-1)", "torch.isfinite(x):all(1):logical_not()",
        "torch.isfinite(x):logical_not():any(1)", "torch.isfinite(x):all(-1, true):squeeze(-1):logical_not()",
        "torch.isfinite(x):sum(-1):lt(x:size(1))", "(x - x):ne(0):any(-1)"}},
      {"$zero",
       {"torch.zeros_like(x)", "0.0", "x:new_zeros(x:size())", "torch.zeros({x:size(0), x:size(1)})",
        "torch.full_like(x, 0)", "torch.full(x:size(), 0.0)", "torch.zeros_like(x):clone()", "torch.ones_like(x) * 0",
        "nothing"}},
      {"$where",
       {"torch.where(bad:unsqueeze(1), zero, x)", "torch.where(bad:view({-1, 1}), zero, x)",
        "torch.where(~bad:unsqueeze(-1), x, zero)", "torch.where(bad:unsqueeze(1):expand_as(x), zero, x)",
        "x:masked_fill(bad:unsqueeze(1), 0.0)", "torch.where(bad:unsqueeze(1), zero, x:clone())",
        "x:clone():masked_fill_(bad:unsqueeze(1), 0)"}}}},
    {"values within limits",
     "local f = flag_nan(x, 7) local y = err.take_ok_p(f, x) return $clamped, f",
     {{"$clamped",
       {"y:clamp($low, $high)", "torch.clamp(y, $low, $high)", "y:clone():clamp_(-0.5, 0.5)",
        "y:clone():clamp_(-(x:size(1) / 16), x:size(1) / 16)", "y:clamp({min = $low, max = $high})",
        "y:clamp({min = $low}):clamp({max = $high})", "y:clamp_min($low):clamp_max($high)",
        "torch.where(y > $high, $high, torch.where(y < $low, $low, y))", "y:clip($low, $high)",
        "torch.minimum(torch.maximum(y, torch.full_like(y, $low)), torch.full_like(y, $high))"}},
      {"$low",
       {"-0.5", "p.low", "low", "-(x:size(1) / 16)", "(4 - x:size(1)) * 0.125", "-math.sqrt(x:size(1) * 2) / 8",
        "0.5 - x:size(1) / 8"}},
      {"$high", {"0.5", "p.high", "-low", "x:size(1) / 16", "x:size(0) / 32", "1 / (x:size(1) - 6)"}}}},
    {"outliers of a row",
     "local f = flag_nan_and_inf(x, 7) x = err.take_ok_p(f, x) local mean = $mean local deviation = $deviation + 1e-6 "
     "local far = $far f = push(f, err.VALUE_CLAMPED, 7, {where = far:any(-1)}) return $pulled, f",
     {{"$mean", mean_forms},
      {"$deviation", deviation_forms},
      {"$far",
       {"(x - mean):abs() > deviation * $three", "((x - mean) / deviation):abs() > $three",
        "(((x - mean) > deviation * $three) | ((x - mean) < deviation * -$three))"}},
      {"$pulled",
       {"torch.where(far, mean + deviation * $three * torch.sign(x - mean), x)",
        "torch.where(~far, x, mean + torch.sign(x - mean) * deviation * $three)",
        "torch.where(far, torch.where(x > mean, mean + deviation * $three, mean - deviation * $three), x)"}},
      {"$three",
       {"1.5", "p.reach", "reach", "(x:size(1) * 3 / 16)", "(3 / (x:size(1) // 4))", "math.sqrt(x:size(1) + 1) / 2"}}},
     1e-4},
    {"a branch for each kind of error",
     "local f = flag_nan_and_inf(x, 7) local y = x local tamed = $tamed return $branches, f",
     {{"$branches",
       {"IF(err.has_nan(f), function() return $fill end):ELIF(err.has_inf(f), function() return tamed end)"
        ":ELSE(function() return torch.tanh(x) end)",
        "torch.where(err.has_nan(f):unsqueeze(1), $fill, torch.where(err.has_inf(f):unsqueeze(1), tamed, "
        "torch.tanh(x)))",
        "IF(err.is_ok(f), function() return x:tanh() end):ELIF(~err.has_nan(f), function() return tamed end)"
        ":ELSE(function() return $fill end)"}},
      fill,
      eighth,
      {"$tamed",
       {"torch.nan_to_num(x, 0.0, 1e4, -1e4):clamp(-10, 10)", "x:nan_to_num(0, 1e4, -1e4):clamp_(-10, 10)",
        "torch.nan_to_num(x, 0.0, 1e4, -1e4):clamp(-x:size(1) - 2, x:size(1) + 2)",
        "torch.where(x:isnan(), 0.0, x):clamp(-10, 10)"}}}},
    {"a mask as a factor",
     "local f = flag_nan_and_inf(x, 7) local y = torch.nan_to_num(x, 0.0, 1.0, -1.0) return $kept",
     {{"$kept",
       {"y * $good:unsqueeze(1)", "$good:unsqueeze(-1) * y", "y * $good:view({-1, 1}):to(torch.float32)",
        "y * $good:float():unsqueeze(1)", "y * (1 - $error:float()):unsqueeze(1)", "y:mul($good:unsqueeze(1))",
        "torch.where($good:unsqueeze(1), y, y * 0)", "y:clone():mul_($good:unsqueeze(1))",
        "y:multiply($good:unsqueeze(1))"}},
      {"$good", {"err.is_ok(f)", "(~$error)", "$error:logical_not()", "$error:eq(false)", "($error ~ true)"}},
      error}},
};

std::string replaced(std::string text, const std::string& place, const std::string& by) {
  for (size_t at = text.find(place); at != std::string::npos; at = text.find(place, at + by.size()))
    text.replace(at, place.size(), by);
  return text;
}

std::string source_of(const Written& one, const std::vector<size_t>& forms) {
  std::string text = one.text;
  for (size_t i = 0; i < forms.size(); ++i) text = replaced(text, one.places[i].name, one.places[i].forms[forms[i]]);
  return R"(
local eighth <const>, low <const>, reach <const>, nothing <const> = 0.125, -0.5, 1.5, 0.0
local function inverse(n) return 1 / n end
local function count(x) return x:size(1) end
local function filled(y, n) return torch.zeros_like(y) + n end
local function bad(f) return err.is_err(f) end
local function average(x) return x:sum(-1, true) / x:size(-1) end
local function chosen(f, y, other) return torch.where(err.is_err(f):unsqueeze(-1), other, y) end
return policy {
  name = "formulation", inputs = {"x"}, fullgraph = true,
  params = {eighth = 0.125, low = -0.5, high = 0.5, reach = 1.5},
  run = function(x, p) )" +
         text + " end}";
}

/// The forms of all places, by the number of their combination.
std::vector<size_t> combination(const Written& one, uint64_t number) {
  std::vector<size_t> forms;
  for (const Place& place : one.places) {
    forms.push_back(number % place.forms.size());
    number /= place.forms.size();
  }
  return forms;
}

/// The first forms, each form once beside the first ones of the others, and some of all combinations; each source once.
std::set<std::string> sources_of(const Written& one, size_t some, uint32_t seed) {
  std::set<std::string> sources{source_of(one, combination(one, 0))};
  uint64_t all = 1;
  for (const Place& place : one.places) all *= place.forms.size();
  std::mt19937_64 random(seed);
  for (size_t place = 0; place < one.places.size(); ++place)
    for (size_t form = 0; form < one.places[place].forms.size(); ++form) {
      std::vector<size_t> forms(one.places.size());
      forms[place] = form;
      sources.insert(source_of(one, forms));
    }
  if (some == 0)
    for (uint64_t i = 0; i < all; ++i) sources.insert(source_of(one, combination(one, i)));
  for (size_t i = 0; i < some; ++i) sources.insert(source_of(one, combination(one, random() % all)));
  return sources;
}

struct Parts {
  size_t count = 0;
  std::string outside;  // the calls that are not in loops
};
Parts last_parts;

void register_counting_backend() {
  static const bool once = [] {
    triage::register_backend("counting_parts", [](const triage::graph::Graph& graph, const Tensors& examples) {
      last_parts = {};
      for (const auto& part : triage::fused::cut(graph)) {
        last_parts.count += part.fused ? 1 : part.nodes.size();
        if (!part.fused)
          for (const auto* node : part.nodes) last_parts.outside += " " + node->op.operator_name().name;
      }
      return triage::compile_fused(graph, examples);
    });
    return true;
  }();
  static_cast<void>(once);
}

size_t number_of(const char* variable, size_t otherwise) {
  const char* const asked = std::getenv(variable);
  return asked ? std::strtoul(asked, nullptr, 10) : otherwise;
}

bool same_results(const Tensors& a, const Tensors& b, double tolerance) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].scalar_type() != b[i].scalar_type() || a[i].sizes() != b[i].sizes()) return false;
    const bool close = at::isFloatingType(a[i].scalar_type()) && tolerance > 0
                           ? at::allclose(a[i], b[i], tolerance, tolerance, /*equal_nan=*/true)
                           : (a[i].eq(b[i]) | (a[i].ne(a[i]) & b[i].ne(b[i]))).all().item<bool>();
    if (!close) return false;
  }
  return true;
}

/// Runs and counts policies.
class Counted {
 public:
  Counted()
      : runtime_([] {
          register_counting_backend();
          triage::RuntimeOptions options;
          options.backend = "counting_parts";
          return options;
        }()) {}

  struct Made {
    std::string source;
    Parts parts;
    Tensors results;
  };
  template <class Load>
  Made run(const std::string& source, const Tensors& inputs, const Load& load) {
    Made made{source, {99, " (never compiled)"}, {}};
    last_parts = made.parts;
    CHECK_NOTHROW_MESSAGE(made.results = results_of(load(runtime_), inputs), source);
    made.parts = last_parts;
    return made;
  }

 private:
  static Tensors results_of(const triage::Policy& policy, const Tensors& inputs) {
    policy.run(inputs);  // captures; the next call is the backend's
    return policy.run(inputs);
  }
  Runtime runtime_;
};

/// What is the same in the policies of the library, whatever they compute.
const std::vector<std::pair<std::string, std::string>> rules = {
    {":unsqueeze(1)", ":unsqueeze(-1)"},
    {":unsqueeze(1)", ":view({-1, 1})"},
    {":any(-1)", ":sum(-1):gt(0)"},
    {":square()", ":pow(2)"},
    {"torch.zeros_like(z)", "torch.full_like(z, 0.0)"},
    {"torch.zeros_like(z)", "(torch.ones_like(z) * 0)"},
    {"torch.zeros_like(z)", "z:new_zeros(z:size())"},
    {"x:mean(-1, true)", "(x:sum(-1, true) / x:size(-1))"},
    {"wide:mean(-1, true)", "wide:mean(-1):unsqueeze(-1)"},
    {":amax(-1, true)", ":amax(-1):unsqueeze(-1)"},
    {":clamp(-p.limit, p.limit)", ":clamp({min = -p.limit}):clamp({max = p.limit})"},
    {"z:clamp(p.low, p.high)",
     "torch.minimum(torch.maximum(z, torch.full_like(z, p.low)), torch.full_like(z, p.high))"},
    {"z:clamp(p.low, p.high)", "torch.where(z > p.high, p.high, torch.where(z < p.low, p.low, z))"},
    {"p.low", "-10.0"},
    {"p.deviations", "(z:size(1) / z:size(1) + 2)"},
    {"(below | beyond)", "(torch.logical_or(below, beyond))"},
    {"below | beyond", "below:logical_or(beyond)"},
    {"constant & ~zero", "torch.logical_and(constant, zero:logical_not())"},
    {"fallback = 0.0", "fallback = 0"},
    {"z:eq(0)", "(z == 0)"},
    {"values:eq(0)", "torch.eq(values, torch.zeros_like(values))"},
    {":to(torch.float32):mean(-1)", ":float():mean(-1)"},
    {":to(torch.float32):mean(-1)", ":sum(-1):float():div(z:numel() // z:size(0))"},
    {":reshape_as(g)", ":view(g:size())"},
    {"g:unsqueeze(-1):flatten(1)", "g:reshape({g:size(0), -1})"},
    {":flatten(1)", ":flatten({start_dim = 1})"},
    {"x:std(-1, false, true)", "x:var(-1, false, true):sqrt()"},
    {"(x - mean):abs() > reach", "torch.gt(torch.abs(x - mean), reach)"},
};

}  // namespace

TEST_CASE("formulations of one policy are cut into as many parts as the best of them, and give the same") {
  const size_t some = number_of("TRIAGE_FORMULATIONS", 60);
  const auto seed = static_cast<uint32_t>(number_of("TRIAGE_FORMULATIONS_SEED", 1));
  Counted counted;
  at::manual_seed(5);
  at::Tensor x = at::randn({16, 8});
  x[3][2] = std::numeric_limits<float>::quiet_NaN();
  x[5][7] = -std::numeric_limits<float>::infinity();
  const auto run = [&](const std::string& source) {
    return counted.run(source, {x}, [&](Runtime& runtime) { return runtime.load_source(source, "formulation.lua"); });
  };
  size_t formulations = 0;
  for (const Written& one : policies) {
    const Tensors expected = run(source_of(one, combination(one, 0))).results;
    std::vector<Counted::Made> all;
    for (const std::string& source : sources_of(one, some, seed)) all.push_back(run(source));
    size_t fewest = all[0].parts.count;
    for (const auto& made : all) fewest = std::min(fewest, made.parts.count);
    CHECK_MESSAGE(fewest == 1, one.name);
    for (const auto& made : all) {
      const std::string text = made.source.substr(made.source.find("run ="));
      CHECK_MESSAGE(same_results(made.results, expected, one.tolerance), one.name << " gives something else: " << text);
      CHECK_MESSAGE(made.parts.count == fewest, one.name << ": " << made.parts.count << " parts, not " << fewest
                                                         << "; outside of loops:" << made.parts.outside << "\n"
                                                         << text);
    }
    formulations += all.size();
  }
  CHECK(formulations >= 300);
  if (std::getenv("TRIAGE_FORMULATIONS")) MESSAGE(formulations, " formulations");
}

TEST_CASE("the policies of the library have as many parts in other words") {
  Counted counted;
  TemporaryFolder folder;
  namespace fs = std::filesystem;
  fs::copy(fs::path(triage::test::source_dir()) / "scripts/policies/serving/lib", folder.path() / "lib");
  size_t formulations = 0;
  for (const fs::path& path : triage::test::library()) {
    const std::string source = read_bytes(path);
    const Tensors inputs = triage::lua::LuaScript(source, triage::test::script_options(path)).test_arguments(0);
    const auto run = [&](const std::string& text) {
      write_bytes(folder / path.filename().string(), text);
      return counted.run(text, inputs,
                         [&](Runtime& runtime) { return runtime.load(folder / path.filename().string()); });
    };
    const Counted::Made as_it_is = run(source);
    if (std::getenv("TRIAGE_FORMULATIONS"))
      MESSAGE(path.stem().string(), ": ", as_it_is.parts.count, " parts; outside of loops:", as_it_is.parts.outside);
    const size_t begin = source.find("run = function"), end = source.find("tests = {");
    for (const auto& [words, others] : rules) {
      const std::string body = source.substr(begin, end - begin), changed = replaced(body, words, others);
      if (changed == body) continue;
      const Counted::Made made = run(source.substr(0, begin) + changed + source.substr(end));
      const std::string what = path.stem().string() + ": " + others + " for " + words;
      CHECK_MESSAGE(same_results(made.results, as_it_is.results, 1e-6), what << " gives something else");
      CHECK_MESSAGE(made.parts.count <= as_it_is.parts.count, what << ": " << made.parts.count << " parts, not "
                                                                   << as_it_is.parts.count
                                                                   << "; outside of loops:" << made.parts.outside);
      ++formulations;
    }
  }
  CHECK(formulations >= 40);
  if (std::getenv("TRIAGE_FORMULATIONS")) MESSAGE(formulations, " formulations");
}
