#include <doctest/doctest.h>

#include "bindings/lua/rewriter/rewriter.h"

namespace triage::lua::rewriter {
namespace {

/// Findings as "line:column: message" lines.
std::string findings(const std::string& source, bool policy = true) {
  std::string text;
  for (const Warning& warning : check(source, "@policy.lua", {policy}))
    text += std::to_string(warning.line) + ":" + std::to_string(warning.column) + ": " + warning.message + "\n";
  return text;
}

/// In a policy with the parameters `z`, `f` and `ids`, whose body begins in line 2.
std::string in_policy(const std::string& body) { return findings("return function(z, f, ids)\n" + body + "\nend"); }

bool says(const std::string& text, const std::string& where, const std::string& what) {
  CAPTURE(text);
  const size_t at = text.find(where + ": ");
  return at != std::string::npos && text.substr(at, text.find('\n', at) - at).find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("a sound policy is left in peace") {
  CHECK(in_policy("local f = flag_nan_and_inf(z, 'logits')\nf = push(f, err.NAN, 'x', {where = z:isnan()})\n"
                  "local y = IF(err.has_nan(f), function() return torch.zeros_like(z) end):ELIF(err.has_inf(f), "
                  "function() return z:clamp(-10, 10) end)"
                  ":ELSE(function() return z:tanh() end)\nlocal t = {}\nt.x = (z + 1):cholesky()\nreturn y, f") == "");
  CHECK(in_policy("local c = IF(m, function() return z end)\nif x then c = c:ELIF(n, function() return z // 2 end) "
                  "end\nreturn c:ELSE(function() return z end)") == "");
  CHECK(in_policy("local z2, f2 = fix(z, f, 'x')\nprint(z2 + 1, f2)\nlocal f3 = f2\nlocal n = 5 n = n + 1\nreturn z2, "
                  "err.merge(f, f2)") == "");
  CHECK(findings("count = 0\nfunction main() count = count + 1 end\nmain()", false) == "");
}

TEST_CASE("conditions for the whole batch") {
  CHECK(says(in_policy("return IF(IS(err.NAN, f), g):ELSE(h)"), "2:11",
             "IF(IS(...)) decides for the whole batch: one bad sample changes all samples"));
  CHECK(says(in_policy("return IF(IS(err.NAN, f), g):ELSE(h)"), "2:11", "err.has_nan(f)"));
  CHECK(says(in_policy("return IF(IS(err.OOB, f), g):ELSE(h)"), "2:11", "err.has_code(f, err.OOB)"));
  CHECK(says(in_policy("return IF(m, g):ELIF(HAS(f), g):ELSE(h)"), "2:22", "err.is_err(f)"));
  CHECK(says(in_policy("return IF(OR(m, NOT(HAS(f))), g):ELSE(h)"), "2:21", "IF(HAS(...))"));
  CHECK(in_policy("local any = HAS(f)\nlocal IS = other\nreturn IF(IS(1), g):ELSE(h), any") == "");
}

TEST_CASE("branches of natural Lua") {
  const auto natural = [](const std::string& body) {
    return findings("--!tensor\nreturn function(z, f, n)\n" + body + "\nend");
  };
  CHECK(natural("if err.has_nan(f) then z = torch.zeros_like(z) elseif z:sum(-1) > 3 then z = z + 1 end\nreturn z") ==
        "");
  CHECK(natural("if n > 3 then return z:cholesky() end\nreturn z") == "");  // n may well be a number
  CHECK(says(natural("if HAS(f) and n then z = z + 1 end\nreturn z"), "3:4",
             "`if` HAS(...) decides for the whole batch"));
  CHECK(says(natural("if not (err.is_ok(f)) then return z end\nreturn z"), "3:28", "return it after the `if`"));
  CHECK(says(natural("if z:sum(-1) > 3 then z = z:cholesky() end\nreturn z"), "3:29", "raises on bad values"));
  CHECK(natural("if err.is_ok(f) then local g = function() return 1 end z = z + g() end\nreturn z") == "");
}

TEST_CASE("arithmetic on flags") {
  CHECK(says(in_policy("local g = err.new(z)\nreturn g + 1"), "3:10", "arithmetic on flags"));
  CHECK(says(in_policy("local g = f or err.new(z)\nreturn g | f"), "3:10", "err.merge"));
  CHECK(says(in_policy("local y, g = fix(z, f)\nreturn y + 1, -g"), "3:15", "arithmetic on flags"));
  CHECK(says(in_policy("return 2 * flag_nan(z, 'x')"), "2:10", "arithmetic on flags"));
  CHECK(says(in_policy("local g = flag_nan(z, 'x')\ng = g + 1\nreturn g"), "3:7", "arithmetic on flags"));
  CHECK(says(in_policy("local g\ng = push(f, err.NAN)\nreturn g << 2"), "4:10", "arithmetic on flags"));
  CHECK(in_policy("local g = err.new(z)\ng = z\nreturn g + 1, g == f, g .. ''") == "");
}

TEST_CASE("T02: calls and methods that compute with flags") {
  const auto found = [](const std::string& use) {
    return says(in_policy("local g = flag_nan(z, 'x')\n" + use + "\ng = push(g, 1, 'x')\nreturn z, g"), "3:11",
                "arithmetic on flags");
  };
  CHECK(found("local h = -g"));
  CHECK(found("local h = torch.add(g, 1)"));
  CHECK(found("local h = torch.mul(2, g)"));
  const auto method = [](const std::string& call) {
    return says(in_policy("local g = flag_nan(z, 'x')\nlocal h = g:" + call + "\nreturn z, g"), "3:13",
                "arithmetic on flags");
  };
  for (const char* call : {"mul(2)", "sum()", "float()", "amax(-1)", "clamp(0, 1)", "sort()", "bitwise_and(15)"})
    CHECK_MESSAGE(method(call), call);
  CHECK(says(in_policy("local g = flag_nan(z, 'x')\nlocal a = -g\ng = push(g, 1, 'x') + 0\nreturn z, g"), "3:11",
             "arithmetic on flags"));
  CHECK(in_policy("local g = flag_nan(z, 'x')\nlocal h, i = torch.cat({g, g}), g:clone():eq(0):sum()\n"
                  "return g:to('cpu'), g[0], torch.where(m, g, h), g:view({-1}), err.is_ok(g):sum(), i") == "");
}

TEST_CASE("T02: a parameter that a flags operation takes is flags") {
  CHECK(says(in_policy("f = f * 2\nreturn z, err.push(f, err.NAN, 'x', {where = z})"), "2:7", "arithmetic on flags"));
  CHECK(says(in_policy("local g = flag_nan(z, 'x', f)\nreturn f * 2, g"), "3:10", "arithmetic on flags"));
  CHECK(says(in_policy("local y = fix(z, f)\nreturn y, f:sum()"), "3:13", "arithmetic on flags"));
  CHECK(in_policy("local g = err.new(f)\nreturn f * 2, err.replace(f, 0, {'nan'}), g") == "");
}

TEST_CASE("T02: what err.map_err_flags calls is given flags, wherever the function is written") {
  CHECK(
      says(in_policy("return z, err.map_err_flags(f, function(g) return g << 2 end)"), "2:53", "arithmetic on flags"));
  CHECK(says(in_policy("local function shift(g)\nreturn g * 2\nend\nreturn z, err.map_err_flags(f, shift)"), "3:10",
             "arithmetic on flags"));
  CHECK(says(in_policy("local shift = function(g)\nreturn torch.add(g, 2)\nend\nreturn z, err.map_err_flags(f, shift)"),
             "3:8", "arithmetic on flags"));
  CHECK(in_policy("local shift = function(g) return g * 2 end\nshift = function(g) return push(g, 1, 'x') end\n"
                  "return z, err.map_err_flags(f, shift)") == "");
}

TEST_CASE("chains without ELSE") {
  CHECK(says(in_policy("local y = IF(m, g)\nreturn y"), "2:11", "an IF chain without ELSE"));
  CHECK(says(in_policy("return IF(m, g):ELIF(n, g)"), "2:8", "an IF chain without ELSE"));
  CHECK(says(in_policy("IF(m, g)"), "2:1", "an IF chain without ELSE"));
  CHECK(in_policy("return IF(m, g):ELSE(h):mean(), (IF(n, g):ELSE(h))") == "");
}

TEST_CASE("dropped results") {
  CHECK(says(in_policy("push(f, err.NAN, 'x')"), "2:1", "use `f = push(...)`"));
  CHECK(says(in_policy("fix(z, f, 'x')"), "2:1", "use `z, f = fix(...)`"));
  CHECK(says(in_policy("if a then flag_nan(z, 'x') end"), "2:11", "use `f = flag_nan(...)`"));
  CHECK(says(in_policy("err.push(f, 1)"), "2:1", "use `f = err.push(...)`"));
  CHECK(says(in_policy("err.map_ok(f, z, g)"), "2:1", "is dropped"));
  CHECK(in_policy("local push = g\npush(f)\nprint(z)\nz:add_(1)\nflags.pretty_print(f, 1)") == "");
}

TEST_CASE("what raises on bad values in a function that runs for every row") {
  const std::string hint = "repair its input first";
  CHECK(says(in_policy("return IF(m, function() return z:cholesky() end):ELSE(h)"), "2:34", hint));
  CHECK(says(in_policy("return IF(m, h):ELSE(function() return torch.gather(z, 1, ids) end)"), "2:40", hint));
  CHECK(says(in_policy("return err.map_err(f, z, function(x) return torch.linalg.inv(x) end)"), "2:45", hint));
  CHECK(says(
      in_policy("return IF(m, function() local function g() return z:index_select(0, ids) end return g() end):ELSE(h)"),
      "2:53", hint));
  CHECK(says(in_policy("return IF(m, function() return z // ids end):ELSE(h)"), "2:34",
             "make the divisor nonzero first"));
  CHECK(in_policy(
            "return z:gather(1, ids), IF(m, function() return z // 2, torch.linalg.vector_norm(z) end):ELSE(h)") == "");
}

TEST_CASE("torch.where whose branch has no finite gradient where it is not taken") {
  const auto where = [](const std::string& condition, const std::string& branch) {
    return findings("return function(x, y, t, m)\nlocal s = x:pow(2):sum(1, true):sqrt()\nreturn torch.where(" +
                    condition + ", " + branch + ", 0.0), s end");
  };
  const std::pair<const char*, const char*> warned[] = {
      {"x > 0", "x:log()"},
      {"x ~= 0", "y / x"},
      {"x:gt(0)", "torch.sqrt(x) * 2"},
      {"x > 0", "x ^ 0.5"},
      {"x > 0", "x:pow(-1)"},
      {"(x ~= 0) | (y ~= 0)", "torch.atan2(y, x)"},
      {"x < 80", "x:exp()"},
      {"x:abs() < 1", "x:acos()"},
      {"torch.abs(x) <= 1", "torch.asin(x)"},
      {"-x < 0 and true or x > 0", "x:log()"},
      {"~t:isnan()", "(y - t) ^ 2"},
      {"t:isfinite()", "(y - t):square()"},
      {"t == t", "(y / t)"},
      {"s > 0", "x:norm({p = 2, dim = 1})"},
      {"s > 0", "x:std(1)"},
      {"s > 0", "x / s"},
      {"(s > 0) & (x > 0)", "x:log()"},
      {"(x > 0) & (s ~= 0)", "torch.log(x)"},
      {"m:any(1, true)", "torch.where(m, x, -math.huge):softmax(1)"},
      {"m:any(1, true)", "torch.softmax(x:masked_fill(~m, -1/0), 1)"},
  };
  for (const auto& [condition, text] : warned) {
    const std::string branch = text;
    CAPTURE(branch);
    CHECK(says(where(condition, branch), "3:8", "torch.where computes both branches"));
  }
  const std::pair<const char*, const char*> fine[] = {
      {"x > 0", "x * 2"},
      {"x > 0", "y:log()"},
      {"x > 0", "x ^ 2"},
      {"x ~= 0", "x:exp()"},
      {"~t:isnan()", "y - t"},
      {"x > 0", "WHERE(x > 0, function() return x:log() end, 0.0)"},
      {"x > 0", "x / 2"},
      {"x > 0", "x:clamp({min = 1e-6}):log()"},
      {"m", "x:softmax(1)"},
      {"m", "torch.where(m, x, 0.0):softmax(1)"},
      {"x > 0", "x:detach():log()"},
      {"y > 0", "x:norm({p = 2, dim = 1})"},
  };
  for (const auto& [condition, text] : fine) {
    const std::string branch = text;
    CAPTURE(branch);
    CHECK(where(condition, branch) == "");
  }
}

TEST_CASE("T31: bad rows that were found and go on into a layer") {
  const std::string hint = "one bad row makes the gradient of the weight NaN";
  CHECK(says(in_policy("f = flag_nan(z, 'x')\nreturn torch.linear(z, w), f"), "3:8", hint));
  CHECK(says(in_policy("f = flag_nan(z, 'x')\nreturn torch.linear(z, w), f"), "3:8",
             "'z' was searched for bad rows by flag_nan in line 2 and goes into `torch.linear` unrepaired"));
  CHECK(
      says(in_policy("f = flag_nan_and_inf(z)\nlocal y = -(z * 2):relu() + 1\nreturn y:matmul(w)"), "4:8", "`matmul`"));
  CHECK(says(in_policy("f = push(f, err.NAN, 1, {where = torch.isnan(z):any(-1)})\nreturn z:mm(w)"), "3:8", hint));
  CHECK(says(in_policy("f = push(f, err.NAN, 1, {where = z:isnan():any(-1)})\nreturn w:mm(z)"), "3:8", hint));
  CHECK(says(
      findings("local head = nn.Linear(4, 2)\nreturn function(z)\nlocal f = flag_nan(z, 'x')\nreturn head(z), f end"),
      "4:8", "goes into a layer unrepaired"));
  CHECK(says(
      findings("local net = nn.Module()\nfunction net:forward(x)\nlocal f = flag_inf(x)\nlocal y = self.a(x)\nreturn "
               "self.b(y), f end return net"),
      "4:11", hint));
  CHECK(says(
      findings(
          "local net = nn.Module()\nreturn function(z) local f = flag_nan(z) return net.head(z:flatten(1)), f end"),
      "2:49", hint));
  for (const char* repaired : {"z, f = fix(z, f, 'x')", "z = err.take_ok_p(f, z)", "z = err.replace(z, 0.0, {err.NAN})",
                               "z = z:nan_to_num()", "z = torch.nan_to_num(z, 0.0)", "z = torch.where(m, z, 0.0)",
                               "z = IF(m, function() return z end):ELSE(function() return 0 end)", "z = z[m]",
                               "z = repair(z)", "local y y = z"}) {
    CAPTURE(repaired);
    const std::string text =
        in_policy(std::string("f = flag_nan(z, 'x')\n") + repaired + "\nreturn torch.linear(z, w), f");
    CHECK((text == "") == (std::string(repaired) != "local y y = z"));
  }
  CHECK(in_policy("local y = torch.linear(z, w)\nf = flag_nan(y, 'x')\nreturn y, f, torch.linear(z, w), helper(y)") ==
        "");
}

TEST_CASE("T31: bad rows take other ways into a layer") {
  const std::string hint = "one bad row makes the gradient of the weight NaN";
  const std::string layers = "local M, L = {lin = nn.Linear(4, 4), act = nn.ReLU()}, nn.Linear(4, 4)\n";
  const auto policy = [&](const std::string& body, const std::string& before = "") {
    return findings(layers + before + "\nreturn function(z, w)\nlocal f = flag_nan_and_inf(z, 'x')\n" + body +
                    "\nreturn z, f, y end");
  };
  for (const char* body : {
           "local y = M.lin(z)",
           "local y = M.lin:forward(z)",
           "local y = err.map_ok(f, z, function(x) return L(x * 2) end)",
           "local y = err.map_ok(f, z, L)",
           "local y = L(err.map_ok(f, z, function(x) return x:tanh() end))",
           "local y, g = fix(z, f, 'x', {codes = {err.NAN}}) y = L(y)",
           "local y = L(err.take_err_p(f, z))",
           "local y = torch.einsum('ij,jk->ik', {z, w})",
           "local y = L(torch.cat({z, w}))",
       }) {
    CAPTURE(body);
    CHECK(policy(body).find(hint) != std::string::npos);
    if (std::string(body).find("take_err_p") == std::string::npos)
      CHECK(policy("z, f = fix(z, f, 'x')\n" + std::string(body)) == "");
  }
  for (const char* body : {
           "local y = M.act(z)",
           "local y = L(err.map_err(f, z, function(x) return torch.zeros_like(x) end))",
           "local y y, f = fix(z, f, 'x', {codes = {err.NAN, err.INF}}) y = L(y)",
           "local y y, f = fix(z, f, 'x', {codes = chosen}) y = L(y)",
           "local y = err.map_ok(f, z, function(x) return L(x:nan_to_num()) end)",
           "local y = L(err.take_ok_p(f, z))",
           "local y = helper(z)",
       }) {
    CAPTURE(body);
    CHECK(policy(body, "local function helper(x) return L(err.replace(x, 0.0, {err.NAN, err.INF})) end") == "");
  }
  CHECK(says(findings(layers + "return function(z)\nlocal f = err.ensure_mask(err.new(z), torch.isfinite(z):all(-1), "
                               "err.NAN, 'x')\nreturn L(z), f end"),
             "4:8", "by err.ensure_mask in line 3"));
  CHECK(findings(layers + "return function(z)\nlocal f = flag_nan(z, 'x')\nz, f = fix(z, f, 'x', {codes = {err.NAN}})\n"
                          "return L(z), f end") == "");
  CHECK(says(findings(layers + "return function(z)\nlocal f = flag_nan(z, 'x')\nf = flag_inf(z, 'x', f)\n"
                               "z, f = fix(z, f, 'x', {codes = {err.INF}})\nreturn L(z), f end"),
             "6:8", hint));
}

TEST_CASE("T31: bad rows go through functions of the same file") {
  const std::string start = "local L = nn.Linear(4, 4)\n";
  const auto says_at = [&](const std::string& source, const std::string& where, const std::string& what) {
    return says(findings(start + source), where, what);
  };
  CHECK(
      says_at("local function look(x) return flag_nan(x, 'x') end\nreturn function(z)\nlocal f = look(z)\n"
              "return L(z), f end",
              "5:8", "by flag_nan in `look` in line 4"));
  CHECK(
      says_at("local function look(x)\nlocal f = flag_nan(x, 'x')\nreturn x * 2, f\nend\nreturn function(z)\n"
              "local y, f = look(z)\nreturn L(y), f end",
              "8:8", "goes into a layer"));
  CHECK(
      says_at("local head = function(a, x) return L(x) end\nreturn function(z)\nlocal f = flag_nan(z, 'x')\n"
              "return head(1, z), f end",
              "5:8", "a layer in `head`"));
  CHECK(
      says_at("local function head(x) return L(x) end\nlocal function both(x) return head(x:relu()) end\n"
              "return function(z)\nlocal f = flag_nan(z, 'x')\nreturn err.map_ok(f, z, both), f end",
              "6:8", "goes into a layer"));
  CHECK(findings(start + "local function clean(x)\nlocal f = flag_nan(x, 'x')\nreturn fix(x, f, 'x')\nend\n"
                         "local function head(x) return L(x) end\nreturn function(z)\n"
                         "local f\nz, f = clean(z)\nreturn head(z), L(z), f end") == "");
}

TEST_CASE("a where whose branch can be non-finite for what the condition keeps from it") {
  const std::string hint = "WHERE(mask, function() return ... end, other)";
  const auto at_8 = [&](const std::string& source, const std::string& what) {
    CAPTURE(source);
    const std::string text = in_policy("return " + source);
    CHECK(says(text, "2:8", hint));
    CHECK(says(text, "2:8", what));
  };
  at_8("torch.where(z > 0, z:log(), 0)", "`log`");
  at_8("torch.where(z > 0, torch.sqrt(z) * 2, z)", "`sqrt`");
  at_8("torch.where(z <= 0, z, (z:rsqrt() + 1):abs())", "`rsqrt`");
  at_8("torch.where(z ~= 0, 1 / z, 0)", "a division");
  at_8("torch.where(z:ne(0), w:div(z), 0)", "a division");
  at_8("torch.where(z > 0, z ^ 0.5, 0)", "a power");
  at_8("torch.where(z > 0, z:pow(-1), 0)", "`pow`");
  at_8("torch.where((z > 0) & (w > 0), torch.atan2(w, z), 0)", "`atan2`");
  at_8("torch.where(z < 80, z:exp(), 0)", "`exp`");
  at_8("torch.where(z:isfinite(), z:log(), 0)", "`log`");
  CHECK(says(in_policy("local good = z > 0\nlocal y = z:log()\nreturn torch.where(good, y, 0)"), "4:8", "`log`"));
  CHECK(says(in_policy("return z:sqrt():where(z > 0, w)"), "2:17", "`sqrt`"));
  for (const char* fine :
       {"torch.where(z > 0, torch.where(z > 0, z, 1):log(), 0)", "torch.where(z > 0, z:clamp({min = 1e-6}):log(), 0)",
        "torch.where(w > 0, z:log(), 0)", "torch.where(z == 0, 0.0, z:exp())", "torch.where(z > 0, z / 2, z)",
        "torch.where(z > 0, z ^ 2, z:pow(3))", "torch.where(z > 0, z:detach():log(), 0)",
        "WHERE(z > 0, function() return z:log() end, 0)", "torch.where(z > 0)",
        "IF(z > 0, function() return z:log() end):ELSE(function() return z end)", "torch.where(z > 0, z, 0):log()"}) {
    CAPTURE(fine);
    CHECK(in_policy(std::string("return ") + fine) == "");
  }
  CHECK(in_policy("local good, y = z > 0, z:log()\ny = w\nreturn torch.where(good, y, 0)") == "");
}

TEST_CASE("values that are read, loops over rows, and state between calls") {
  CHECK(says(in_policy("local m = z:sum():item() return z * m"), "2:19", "the graph breaks here"));
  CHECK(says(in_policy("if z:item() > 0 then return z end"), "2:6", "the graph breaks here"));
  CHECK(in_policy("triage.config.capture_scalar_outputs = true local m = z:sum():item() return z * m") == "");
  CHECK(findings("return policy { run = function(z) return z end, tests = { { check = function(z) return z:item() end "
                 "} } }") == "");
  CHECK(findings("local x = torch.ones({1}):item() return function(z) return z * x end") == "");
  CHECK(findings("local function f(z) return z:item() end", false) == "");

  for (const char* slow :
       {"for i = 0, z:size(0) - 1 do z[i] = 0 end", "for i = 0, #z - 1 do local r = z[i] end",
        "for i = 0, z.shape[1] - 1 do local r = z[i] end", "local n = z:size(0) for i = 0, n - 1 do local r = z[i] end",
        "local last = #z - 1 for i = 0, last do local r = z[i] end",
        "local y = z * 2 for i = 0, #z - 1 do local r = y[i] end"}) {
    CAPTURE(slow);
    const std::string found = in_policy(slow);
    CHECK(found.find("a loop over the rows of 'z'") != std::string::npos);
  }
  for (const char* fine :
       {"for i = 0, z:size(1) - 1 do local c = z[{1, i}] end", "for i = 0, z:size(0) - 1 do print(i) end",
        "for i = 1, #z do local r = z[i] end", "for i = 1, 3 do local r = z[i] end",
        "local n = z:size(0) n = 2 for i = 0, n do local r = z[i] end"}) {
    CAPTURE(fine);
    CHECK(in_policy(fine) == "");
  }

  CHECK(says(findings("local n = 0\nreturn function(z)\n  n = n + 1\n  return z\nend"), "3:3", "'n' keeps its value"));
  CHECK(says(
      findings("local n = 0\nreturn function(z)\n  n = n + 1\n  return z\nend"), "3:3",
      "declare it as state: state = { n = { shape = {} } }, run = function(..., s) ... return ..., { n = new } end"));
  CHECK(says(findings("local seen = {}\nreturn function(z)\n  seen.last = z\n  return z\nend"), "3:3",
             "'seen' keeps its value"));
  CHECK(says(findings("local s = {}\nreturn function(z)\n  local g = function() s[1][2] = z end\n  return z\nend"),
             "3:24", "'s' keeps"));
  CHECK(findings("local n = 0\nn = n + 1\nlocal t = {}\nt.x = 1\nreturn function(z)\n  local m = 0\n"
                 "  local function g() m = m + 1 end\n  g()\n  return z * m * n * t.x\nend") == "");
  CHECK(findings("local n = 0\nlocal function f() n = n + 1 end", false) == "");
}

TEST_CASE("codes and severities take each other's places") {
  for (const char* const call : {"push(f, err.CRITICAL, 'x')", "err.has_code(f, Severity.ERROR)", "find(err.WARN, f)",
                                 "IS(err.ERROR, f)", "err.clear(f, err.CRITICAL)", "err.get_first_code(f) == err.ERROR",
                                 "fix(z, f, 'x', {codes = {err.NAN, err.CRITICAL}})"}) {
    CAPTURE(call);
    CHECK(in_policy("return " + std::string(call)).find("is a severity") != std::string::npos);
  }
  for (const char* const call : {"push(f, err.NAN, 'x', {severity = err.NAN})", "err.max_severity(f) >= err.INF",
                                 "fix(z, f, 'x', {min_severity = ErrorCode.NAN})"}) {
    CAPTURE(call);
    CHECK(in_policy("return " + std::string(call)).find("is a code") != std::string::npos);
  }
  CHECK(in_policy("f = push(f, err.OOB, 'x', {severity = err.CRITICAL})\nf = push(f, err.MISSING, 'x')\n"
                  "return err.max_severity(f) >= err.ERROR, err.get_first_code(f) == err.NAN, err.clear(f, err.OK)") ==
        "");
}

TEST_CASE("flags that nobody has read are replaced") {
  CHECK(says(in_policy("local g = flag_nan(z, 'a')\ng = flag_inf(z, 'b')\nreturn z, g"), "3:5",
             "the flags that 'g' has from line 2 are lost"));
  CHECK(says(in_policy("local g\nif n then g = push(f, 1, 'a') g = push(f, 2, 'b') end\nreturn z, g"), "3:35",
             "err.merge(g, ...)"));
  CHECK(in_policy("local g = err.new(z)\ng = flag_nan(z, 'a')\ng = flag_inf(z, 'b', g)\nlocal h = flag_nan(z, 'c')\n"
                  "g = err.merge(g, h)\nh = flag_nan(z, 'd')\nreturn g, h") == "");
}

TEST_CASE("locals that nobody reads, or that have no value") {
  CHECK(says(in_policy("if n then local z = z:relu() end\nreturn z, f"), "2:11", "remove `local`"));
  CHECK(says(in_policy("do local z, g = fix(z, f) f = g end\nreturn z, f"), "2:4", "which nobody reads"));
  CHECK(says(in_policy("local y = z:relu()\nreturn z, f"), "2:1", "nobody reads 'y'"));
  CHECK(says(in_policy("local g = push(f, err.NAN, 'x')\nreturn z, f"), "2:1", "nobody reads 'g'"));
  CHECK(says(in_policy("local a, b = 1\nreturn z + a, b"), "2:1", "'b' is always nil"));
  CHECK(in_policy("local _, g = fix(z, f)\nlocal a, b = fix(z, g)\nlocal y\nif n then y = 1 else y = 2 end\n"
                  "do local z = z + 1 f = push(f, z, 'x') end\nlocal ok, why = pcall(g)\n"
                  "for _ = 1, 2 do local z = z:relu() f = flag_nan(z, 'x', f) end\nreturn z, f, a, y, ok") == "");
}

TEST_CASE("choices that are none, and what never equals") {
  CHECK(says(in_policy("return n and false or z"), "2:20", "is always b"));
  CHECK(says(in_policy("return z:size(0) == 3 or 4"), "2:23", "so that this always holds"));
  CHECK(says(in_policy("return not z:size(0) > 2"), "2:8", "binds more tightly"));
  CHECK(says(in_policy("return z.shape == 3"), "2:16", "write x:size(0) == 3"));
  CHECK(says(in_policy("return z.shape[1] == '3', z:dim() == '2'"), "2:19", "a number equals no text"));
  CHECK(says(in_policy("return torch.max(z, 0.0)"), "2:8", "write x:clamp({min = 0.0})"));
  CHECK(says(in_policy("return fix(z, f, 'x', {fallback = function(y) return y:mean() end})"), "2:35",
             "a fallback is called without arguments, so that 'y' is nil"));
  CHECK(in_policy("return n and z or false, z:size(0) == 3 or z:size(0) == 4, not n or z.shape[1] == 3, "
                  "not (z:size(0) > 2), #z.shape == 3, n == 3 and 4 or 5") == "");
  CHECK(in_policy("local ks = {1, 2}\nfor i = 0, #ks - 1 do z = z + ks[i] end\nreturn z") == "");
}

TEST_CASE("a function of a file that returns nothing") {
  CHECK(says(findings("return function(x) x = x * 2 end"), "1:8", "this function returns nothing"));
  CHECK(findings("return function(t) t.x = 1 end") == "");
  CHECK(findings("return function() end") == "");
  const auto tested = [](const std::string& check) {
    return findings("return policy { run = function(x) return x end,\n  tests = { a = { check = function(x) " + check +
                    " end } } }");
  };
  CHECK(says(tested("x:eq(1):all()"), "2:27", "this test always passes"));
  CHECK(tested("assert(x:eq(1):all())") == "");
  CHECK(tested("if x:size(0) > 1 then error('long') end") == "");
  CHECK(tested("return x:eq(1):all()") == "");
}

TEST_CASE("globals by accident") {
  CHECK(says(in_policy("x = 1 x = 2"), "2:1", "declare it with `local x`"));
  CHECK(in_policy("x = 1 x = 2").find("2:7") == std::string::npos);
  CHECK(says(findings("function helper() end return helper"), "1:10", "`local function helper`"));
  CHECK(says(findings("function main() typo = 1 end", false), "1:17", "'typo' is written as a global variable"));
  CHECK(in_policy("local x x = 1 local t = {} t.y = 2 function t.f() end _ENV.z = 3") == "");
}

TEST_CASE("a broken script is a SyntaxError here too") { CHECK_THROWS_AS(check("x =", "@p.lua"), SyntaxError); }

TEST_CASE("layers that normalize by the batch") {
  const std::string use = "return function(z) return norm(z), flag_nan(z, 'z') end";
  CHECK(says(findings("local norm = nn.BatchNorm1d(4)\n" + use), "1:14",
             "nn.BatchNorm1d mixes samples until model:eval(): it normalizes by the mean and variance of the batch"));
  CHECK(findings("local norm = nn.BatchNorm1d(4)\nnorm:eval()\n" + use) == "");
  CHECK(says(findings("local norm = nn.BatchNorm2d(4, {track_running_stats = false})\nnorm:eval()\n" + use), "1:14",
             "nn.BatchNorm2d mixes samples: it normalizes"));
  CHECK(findings("local norm = nn.GroupNorm(2, 4)\n" + use) == "");
  // A script that judges no sample trains as it likes.
  CHECK(findings("local norm = nn.BatchNorm1d(4)\nprint(norm(torch.ones({2, 4})))", false) == "");
  CHECK(says(findings("local norm = nn.BatchNorm1d(4)\nlocal f = flag_nan(torch.ones({2, 4}), 'x')", false), "1:14",
             "mixes samples"));
}

}  // namespace triage::lua::rewriter
