// Bad input gives the same clear error from the plain script, from the call that records, and from the captured graph;
// and the policy goes on to serve the next batch.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <regex>

#include "programs.h"
#include "tests/logs.h"

namespace triage::parity {
namespace {

struct Refusal {
  std::string name;
  std::string source;
  size_t input;      // which one is bad
  at::Tensor bad;    // what it is then
  std::string says;  // part of the message
};

constexpr int64_t n = 6;

std::vector<Refusal> refusals() {
  const at::Tensor f = input("f", n, false), z = input("z", n, false), m = input("m", n, false);
  const std::string push = "return function(f, m) return err.push(f, err.NAN, 3, {where = m}) end";
  const std::string codes = "return function(f, c) return err.push(f, c, 3) end";
  const std::string ids = "return function(i, f) return flag_oob_indices(i, 10, 3, f) end";
  const std::string repair = "return function(z, f) return fix(z, f, 3) end";
  const std::string select =
      "return function(m, z) return IF(m, function() return z end):ELSE(function() return z * 2 end) end";
  const std::string masked_codes = "return function(f, c, m) return err.push(f, c, 3, {where = m}) end";
  const std::string merge = "return function(f, g) return err.merge(f, g) end";
  const std::string ensure = "return function(f, m) return err.ensure_mask(f, m, err.NAN, 3) end";
  const std::string guard =
      "return function(f, z) return err.guard(f, z, function(x) return ~x:isnan():any(-1) end, err.NAN, 3) end";
  const std::string keep = "return function(f, z) return err.take_ok_p(f, z) end";
  const std::string map = "return function(f, z) return err.map_ok(f, z, function(x) return x * 2 end) end";
  const std::string chain =
      "return function(f, z, g) local y, h = err.bind(f, z, function(x) return x * 2, g end) return y, h end";
  const std::string recover = "return function(f, z, y) return err.recover_with_fallback(f, z, y, 3) end";
  const std::string detect = "return function(z, f) return flag_nan_and_inf(z, 3, f) end";
  const std::string ask = "return function(f) return err.is_err(f), err.count_errors(f), err.get_slot(f, 15) end";
  const std::string fresh = "return function(z) return err.new(z) end";
  const std::string clear = "return function(f) return err.clear(f, err.NAN) end";
  const auto meta = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options().device(at::kMeta)); };
  return {
      {"codes under a mask of another batch", masked_codes, 2, m.slice(0, 1), "[5]"},
      {"codes under a mask of one sample", masked_codes, 2, m.slice(0, 0, 1), "sample"},
      {"codes under numbers", masked_codes, 2, m.to(at::kFloat), "bool"},
      {"codes under a mask on another device", masked_codes, 2, meta(m), "device"},
      {"codes over elements", codes, 1, input("i", n, false), "(6,)"},
      {"codes without a batch", codes, 1, at::ones({}, at::kLong), "(6,)"},
      {"codes that are bools", codes, 1, m, "integer dtype"},
      {"merge with another width", merge, 1, f.slice(1, 0, 3), "one carrier and width"},
      {"merge with another carrier", merge, 1, f.view(at::kDouble), "one carrier and width"},
      {"merge with another batch", merge, 1, input("g", n - 1, false), "5 samples"},
      {"merge with another device", merge, 1, meta(f), "on meta"},
      {"merge with no flags", merge, 1, f.to(at::kHalf), "int64, int32, float32 or float64"},
      {"ensure_mask of another batch", ensure, 1, m.slice(0, 1), "(6,)"},
      {"ensure_mask of numbers", ensure, 1, m.to(at::kFloat), "bool mask"},
      {"ensure_mask over elements", ensure, 1, z.isnan(), "(6,)"},
      {"guard of another batch", guard, 1, input("z", n + 1, false), "(6,)"},
      {"take_ok_p of another batch", keep, 1, input("z", n - 1, false), "5 samples"},
      {"take_ok_p without a batch", keep, 1, at::zeros({}), "0-dim"},
      {"take_ok_p on another device", keep, 1, meta(z), "on meta"},
      {"take_ok_p by no flags", keep, 0, f.select(1, 0), "(N, num_words)"},
      {"map_ok of another batch", map, 1, input("z", n + 3, false), "9"},
      {"bind with flags of another batch", chain, 2, input("g", n + 1, false), "7 samples"},
      {"bind with flags of another width", chain, 2, f.slice(1, 0, 2), "one carrier and width"},
      {"a fallback that does not broadcast", recover, 2, at::ones({3}), "does not broadcast"},
      {"a fallback of more samples", recover, 2, input("y", n + 1, false), "does not broadcast"},
      {"a fallback on another device", recover, 2, meta(z), "on meta"},
      {"detection beside flags of another batch", detect, 1, input("f", n + 1, false), "7"},
      {"detection beside flags of another width", detect, 1, f.slice(1, 0, 1), "16 slots"},
      {"detection in data without a batch", detect, 0, at::zeros({}), "0-dim"},
      {"questions to one record", ask, 0, f.select(0, 0), "(N, num_words)"},
      {"questions to no words", ask, 0, f.slice(1, 0, 0), "(N, num_words)"},
      {"questions to data", ask, 0, at::zeros({n, 7001}), "is not a flags tensor"},
      {"questions to integers", ask, 0, at::zeros({n, 7001}, at::kLong), "is not a flags tensor"},
      {"take_ok_p by data", keep, 0, at::zeros({n, 7001}), "is not a flags tensor"},
      {"map_ok by data", map, 0, at::zeros({n, 7001}), "is not a flags tensor"},
      {"clear in other data", clear, 0, at::zeros({n, 7001}, at::kDouble), "is not a flags tensor"},
      {"a slot that is not there", "local _ = ErrorConfig{num_slots = 8} " + ask, 0, f.slice(1, 0, 2), "slots 0..7"},
      {"clear in data", clear, 0, input("h", n, false), "int64, int32, float32 or float64"},
      {"flags for data without a batch", fresh, 0, at::zeros({}), "0-dim"},
      {"flags of another width", push, 0, f.slice(1, 0, 3), "16 slots"},
      {"flags of another dtype", push, 0, f.to(at::kHalf), "int64, int32, float32 or float64"},
      {"flags of another rank", push, 0, f.select(1, 0), "(N, num_words)"},
      {"a mask of another batch", push, 1, m.slice(0, 1), "(6,)"},
      {"a mask of one sample does not broadcast", push, 1, m.slice(0, 0, 1), "(6,)"},
      {"a mask over elements", push, 1, z.isnan(), "flatten(1).any(1)"},
      {"a mask of numbers", push, 1, m.to(at::kFloat), "bool mask"},
      {"codes of another batch", codes, 1, input("c", n + 1, false), "(6,)"},
      {"codes that are no integers", codes, 1, input("v", n, false), "integer dtype"},
      {"indices of another batch", ids, 0, input("i", n - 1, false), "5 samples"},
      {"data of another batch", repair, 0, input("z", n + 2, false), "8 samples"},
      {"data without a batch", repair, 0, at::zeros({}), "0-dim"},
      {"an empty batch beside flags", repair, 0, input("z", 0, false), "0 samples"},
      {"a condition of another batch", select, 0, m.slice(0, 2), "sample"},
      {"a condition that is no mask", select, 0, m.to(at::kLong), "bool"},
  };
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
    return "(no error)";
  } catch (const Error& error) {
    return error.what();
  }
}

// A program that no batch can make right, with part of its error.
struct Mistake {
  std::string source;
  std::string says;
};

const Mistake mistakes[] = {
    {"return function(f) return err.push(f, 16, 3) end", "0..15"},
    {"return function(f) return err.push(f, -1, 3) end", "0..15"},
    {"return function(f) return err.push(f, 1.5, 3) end", "error code"},
    {"return function(f) return err.push(f, 'NAN', 3) end", "error code"},
    {"return function(f) return err.push(f, nil, 3) end", "error code"},
    {"return function(f) return err.push_scalar(f, 1, 3, {severity = 4}) end", "0..3"},
    {"return function(f) return err.push(f, 1, 3, {severity = -1}) end", "0..3"},
    {"return function(f) return err.push(f, 1, 1024) end", "0..1023"},
    {"return function(f) return err.push(f, 1, -1) end", "0..1023"},
    {"return function(f) return err.push(f, 1, true) end", "expected a location"},
    {"return function(f) return err.push(f, 1, '') end", "must not be empty"},
    {"return function(f) return err.push(f, 1, 3, {wehre = f}) end", "did you mean 'where'"},
    {"return function(f, m) return err.push(f, 1, 3, m) end", "table of options"},
    {"return function(f) return err.has_code(f, 99) end", "0..15"},
    {"return function(f) return err.has_domain(f, 4) end", "0..3"},
    {"return function(f) return err.clear(f, 16) end", "0..15"},
    {"return function(f) return err.get_slot(f, 16) end", "slots 0..15"},
    {"return function(f) return err.get_slot(f, -1) end", "slots 0..15"},
    {"return function(f) return find(77, f) end", "0..15"},
    {"return function(f) return IS(99, f) end", "0..15"},
    {"return function(z, f) return fix(z, f, 3, {codes = {99}}) end", "0..15"},
    {"return function(z, f) return fix(z, f, 3, {min_severity = 4}) end", "0..3"},
    {"return function(z, f) return fix(z, f, 3, {fallback = 'x'}) end", "expected a number or a tensor"},
    {"return function(z, f) return err.recover_with_fallback(f, z, nil) end",
     "err.recover_with_fallback: expected a number"},
    {"return function(z, f) return err.take_ok_p(f, z, torch.ones({})) end", "expected a number as `fill`"},
    {"return function(z) return err.replace(z, torch.ones({}), {err.NAN}) end", "expected a number as `value`"},
    {"return function(i) return flag_oob_indices(i, torch.tensor(4), 3) end", "as `num_embeddings`"},
    {"return function(z) return err.is_ok(torch.zeros(6, 7001)) end", "is not a flags tensor"},
    {"return function(z) return err.replace(z, 0, {}) end", "list of targets is empty"},
    {"return function(z) return err.replace(z, 0, {'many'}) end", "there is no target"},
    {"return function(i) return flag_oob_indices(i, -4, 3) end", "0 or more"},
    {"return function(z) return flag_oob_indices(z:to(torch.complex64), 4, 3) end",
     "is not a dtype that policies may use"},
    {"return function(z) return flag_oob_indices(z, 4, 3) end", "integer dtype"},
    {"return function(z) return flag_oob_indices(z:isnan(), 4, 3) end", "integer dtype"},
    {"return function(z) return err.new_t(-1) end", "number of samples"},
    {"return function(z) return err.from_code(1, 3, 1.5) end", "number of samples"},
    {"return function(f) return err.push(f, 1, 3, {config = ErrorConfig{num_slots = 4}}) end", "4 slots"},
    {"return function(f) return err.push(f, 1, 3, {config = 4}) end", "expected an ErrorConfig"},
    {"return function(f, z) return err.map_ok(f, z, function() return 'x' end) end", "must return a tensor"},
    {"return function(f, z) return err.bind(f, z, function(x) return x end) end", "must return two tensors"},
    {"return function(f, z) return err.guard(f, z, function(x) return x:isnan() end, 1, 3) end", "(6,)"},
};

}  // namespace

TEST_CASE("T03 T05 T07 T10 T11 T12 T14: what a script gets wrong is the same error in every mode") {
  RuntimeOptions options;
  options.fullgraph = true;
  options.log = triage::test::no_log();
  for (const Mistake& mistake : mistakes) {
    CAPTURE(mistake.source);
    const Program program{"mistake", mistake.source, false};
    const Tensors given = inputs(input_names(program), n, false);
    Runtime runtime(options);
    const Policy policy = runtime.load_source(program.source);
    for (const std::string& said :
         {message_of([&] { run_script(program, given); }), message_of([&] { policy.run(given); })})
      CHECK_MESSAGE(said.find(mistake.says) != std::string::npos,
                    "expected '" << mistake.says << "', it said: " << said);
  }
}

TEST_CASE("T08: filters refuse data of another batch, of none, or elsewhere, and say so") {
  const at::Tensor f = input("f", n, false), z = input("z", n, false);
  RuntimeOptions options;
  options.log = triage::test::no_log();
  for (const char* filter : {"err.take_ok(f, z)", "err.take_err(f, z)", "err.partition(f, z)",
                             "table.unpack(err.partition_many(f, z)[1])"}) {
    const Program program{"filter", std::string("return function(f, z) return ") + filter + " end", true};
    CAPTURE(program.source);
    const std::pair<at::Tensor, const char*> wrong[] = {
        {input("z", n - 1, false), "5 samples"},
        {at::zeros({}), "0-dim"},
        {at::empty(z.sizes(), z.options().device(at::kMeta)), "on meta"}};
    for (const auto& [bad, text] : wrong) {
      const std::string says = text;
      Runtime runtime(options);
      const Policy policy = runtime.load_source(program.source);
      const Tensors given{f, bad};
      for (const std::string& said :
           {message_of([&] { run_script(program, given); }), message_of([&] { policy.run(given); })})
        CHECK_MESSAGE(said.find(says) != std::string::npos, "expected '" << says << "', it said: " << said);
    }
  }
}

TEST_CASE("T05 T06 T07 T09 T10 T11 T12 T14 T15: bad input gives the error of the contract in every mode") {
  RuntimeOptions options;
  options.fullgraph = true;
  options.log = triage::test::no_log();
  for (const Refusal& refusal : refusals()) {
    CAPTURE(refusal.name);
    const Program program{refusal.name, refusal.source, false};
    const Tensors good = inputs(input_names(program), n, false);
    Tensors bad = good;
    bad[refusal.input] = refusal.bad;
    Runtime runtime(options);
    const Policy fresh = runtime.load_source(program.source), warm = runtime.load_source(program.source);
    const Tensors expected = warm.run(good);
    for (const std::string& said : {message_of([&] { run_script(program, bad); }), message_of([&] { fresh.run(bad); }),
                                    message_of([&] { warm.run(bad); })})
      CHECK_MESSAGE(said.find(refusal.says) != std::string::npos,
                    "expected '" << refusal.says << "', it said: " << said);
    CHECK(at::equal(fresh.run(good)[0].nan_to_num(), expected[0].nan_to_num()));
    CHECK(at::equal(warm.run(good)[0].nan_to_num(), expected[0].nan_to_num()));
  }
}

namespace {

// What a script and a C++ host write alike.
struct Alike {
  std::string script;  // the body of a function of z, f, m, g
  std::function<Tensors(const Tensors&)> host;
};

/// In the words of scripts: their names of tensors and dtypes, their calls of methods; without the place, and the end.
std::string in_words_of_scripts(std::string message) {
  static const std::regex place(R"(^\S+:\d+: )"), cpp_tensor(R"((\w+) of shape \[([\d, ]*)\])"),
      lua_tensor(R"(Tensor (\w+)\[([\d, ]*)\])");
  message = std::regex_replace(message, place, "");
  message = std::regex_replace(message, cpp_tensor, "<$1 $2>");
  message = std::regex_replace(message, lua_tensor, "<$1 $2>");
  const std::pair<const char*, const char*> words[] = {{"Float ", "float32 "},
                                                       {"Double ", "float64 "},
                                                       {"Long ", "int64 "},
                                                       {"Bool ", "bool "},
                                                       {R"(z\.scalar_type\(\))", "z.dtype"},
                                                       {" tensors and", " values and"},
                                                       {":", "."}};
  for (const auto& [from, to] : words) message = std::regex_replace(message, std::regex(from), to);
  if (!message.empty() && message.back() == '.') message.pop_back();
  return message;
}

const err::Step& twice() {
  static const err::Step step = [](const at::Tensor& x) {
    return std::pair(x * 2, err::push(err::new_(x), err::saturated, 9));
  };
  return step;
}

const std::string twice_in_script =
    "local function twice(x) return x * 2, err.push(err.new(x), err.SATURATED, 9) end local odd = torch.ones(6, 4) > "
    "0 ";

std::vector<Alike> alike() {
  const auto z_of = [](const Tensors& in) { return [z = in[0]] { return z; }; };
  const auto odd = at::ones({6, 4}) > 0;
  return {
      {"return err.and_then(f, z, twice)",
       [](const Tensors& in) { return both(err::and_then(in[1], in[0], twice())); }},
      {"return err.bind(f, z, twice)", [](const Tensors& in) { return both(err::bind(in[1], in[0], twice())); }},
      {"return err.and_then(g, z, twice, {config = ErrorConfig{num_slots = 16, accumulation = "
       "AccumulationConfig{dedupe = "
       "Dedupe.CODE}}})",
       [](const Tensors& in) {
         ErrorConfig config;
         config.accumulation.dedupe = Dedupe::code;
         return both(err::and_then(in[3], in[0], twice(), {config}));
       }},
      {"return err.map_ok(f, z, function(x) return x:sum(-1, true) end)",
       [](const Tensors& in) {
         return Tensors{err::map_ok(in[1], in[0], [](const at::Tensor& x) { return x.sum(-1, true); })};
       }},
      {"return err.map_ok(f, z, function(x) return x:to(torch.float64) end)",
       [](const Tensors& in) {
         return Tensors{err::map_ok(in[1], in[0], [](const at::Tensor& x) { return x.to(at::kDouble); })};
       }},
      {"return err.map_err(f, z, function(x) return x:sum(0) end)",
       [](const Tensors& in) {
         return Tensors{err::map_err(in[1], in[0], [](const at::Tensor& x) { return x.sum(0); })};
       }},
      {"return err.map_err(f, z, function(x) return x:unsqueeze(0) end)",
       [](const Tensors& in) {
         return Tensors{err::map_err(in[1], in[0], [](const at::Tensor& x) { return x.unsqueeze(0); })};
       }},
      {"return err.and_then(f, z, function(x) return x:to(torch.float64), f end)",
       [](const Tensors& in) {
         return both(
             err::and_then(in[1], in[0], [&](const at::Tensor& x) { return std::pair(x.to(at::kDouble), in[1]); }));
       }},
      {"return IF(m, function() return z * 2 end):ELSE(function() return z end)",
       [=](const Tensors& in) { return Tensors{IF(in[2], [&] { return in[0] * 2; }).ELSE(z_of(in))}; }},
      {"return IF(AND(HAS(f), NOT(HAS(err.new(z)))), function() return z * 2 end):ELSE(function() return z end)",
       [=](const Tensors& in) {
         return Tensors{IF(AND(HAS(in[1]), NOT(HAS(err::new_(in[0])))), [&] { return in[0] * 2; }).ELSE(z_of(in))};
       }},
      {"return IF(m, function() return z:to(torch.float64) end):ELSE(function() return z end)",
       [=](const Tensors& in) { return Tensors{IF(in[2], [&] { return in[0].to(at::kDouble); }).ELSE(z_of(in))}; }},
      {"return IF(m, function() return z:sum() end):ELIF(~m, function() return z:sum() end):ELSE(function() return "
       "z:sum() "
       "* 2 end)",
       [](const Tensors& in) {
         const auto sum = [&] { return in[0].sum(); };
         return Tensors{IF(in[2], sum).ELIF(~in[2], sum).ELSE([&] { return in[0].sum() * 2; })};
       }},
      {"return IF(m, function() return z, f end):ELSE(function() return z end)",
       [](const Tensors& in) {
         return IF(in[2], [&] { return Tensors{in[0], in[1]}; }).ELSE([&] { return Tensors{in[0]}; });
       }},
      {"return IF(odd, function() return z end):ELSE(function() return z end)",
       [=](const Tensors& in) { return Tensors{IF(odd, z_of(in)).ELSE(z_of(in))}; }},
      {"return IF(z, function() return z end):ELSE(function() return z end)",
       [=](const Tensors& in) { return Tensors{IF(in[0], z_of(in)).ELSE(z_of(in))}; }},
      {"return IF(m, function() return z end):ELIF(z, function() return z end):ELSE(function() return z end)",
       [=](const Tensors& in) { return Tensors{IF(in[2], z_of(in)).ELIF(in[0], z_of(in)).ELSE(z_of(in))}; }},
      {"return AND(HAS(f), m)", [](const Tensors& in) { return Tensors{AND(HAS(in[1]), in[2])}; }},
      {"return OR(z, HAS(f))", [](const Tensors& in) { return Tensors{OR(in[0], HAS(in[1]))}; }},
      {"return NOT(m)", [](const Tensors& in) { return Tensors{NOT(in[2])}; }},
      {"return HAS(z)", [](const Tensors& in) { return Tensors{HAS(in[0])}; }},
  };
}

/// More entries of a code than the policy of `alike` would keep, in an order that it would not make.
at::Tensor crowded_flags() {
  ErrorConfig all;
  all.accumulation.dedupe = Dedupe::none;
  at::Tensor f = err::new_t(n, {.config = all});
  for (const int64_t location : {5, 3, 5})
    f = err::push(f, err::nan, location, {.where = at::arange(n) % 2 == 0, .config = all});
  return f;
}

}  // namespace

TEST_CASE(
    "T11 T15: IF and the combinators are the same to scripts and to C++ hosts, in what they give and in what they "
    "refuse") {
  const Tensors given{input("z", n, false), input("f", n, false), input("m", n, false), crowded_flags()};
  for (const Alike& each : alike()) {
    CAPTURE(each.script);
    const Program program{"alike", "return function(z, f, m, g) " + twice_in_script + each.script + " end", true};
    Tensors of_script, of_host;
    const std::string refused = message_of([&] { of_script = run_script(program, given); });
    CHECK(in_words_of_scripts(message_of([&] { of_host = each.host(given); })) == in_words_of_scripts(refused));
    REQUIRE(of_host.size() == of_script.size());
    for (size_t i = 0; i < of_host.size(); ++i) CHECK(at::equal(of_host[i].nan_to_num(), of_script[i].nan_to_num()));
  }
}

}  // namespace triage::parity
