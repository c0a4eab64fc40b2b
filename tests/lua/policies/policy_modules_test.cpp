// `require` and `torch.load` of policies: shared code and tables in the folder of the policy.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <triage/capsule.h>
#include <triage/files.h>
#include <triage/triage.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/logs.h"
#include "tests/lua/policies/policies.h"

namespace fs = std::filesystem;
using triage::Policy;
using triage::Reload;
using triage::test::says;

namespace {

/// A folder for policies, removed at the end.
struct Folder {
  Folder() {
    char name[] = "/tmp/triage_modules_XXXXXX";
    path = ::mkdtemp(name);
    fs::create_directories(path / "lib");
  }
  ~Folder() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << text;
  }
  Policy load(const std::string& source, triage::RuntimeOptions options = {}) {
    write("p.lua", source);
    options.log = triage::test::no_log();
    runtime.emplace(std::move(options));
    return runtime->load(path / "p.lua");
  }
  /// Why the policy cannot be loaded.
  std::string refusal(const std::string& source, triage::RuntimeOptions options = {}) {
    try {
      load(source, std::move(options));
    } catch (const triage::Error& error) {
      return error.what();
    }
    return "";
  }
  std::string at(const std::string& place) const { return (path / place).string(); }

  fs::path path;
  std::optional<triage::Runtime> runtime;
};

void check_says(const std::string& text, const std::string& part) {
  INFO("expected: ", part);
  INFO("got:      ", text);
  CHECK(says(text, part));
}

at::Tensor run_one(const Policy& policy, const at::Tensor& z) { return policy.run({z})[0]; }

const std::string identity = "\nreturn function(z) return z end";

}  // namespace

TEST_CASE("require gives the value of a module of the policy's folder, once for all that ask") {
  Folder folder;
  folder.write("lib/clip.lua",
               "local m = {loads = (loads or 0) + 1}\nloads = m.loads\n"
               "function m.clip(z, limit) return z:clamp(-limit, limit) end\nreturn m");
  folder.write("lib/checks/rows.lua",
               "local clip = require 'clip'\nlocal name, file = ...\n"
               "return function(z) return clip.clip(z, 2), name, file end");
  folder.write("lib/nothing.lua", "local x = 1");
  folder.write("lib/no.lua", "return false");
  const Policy policy = folder.load(
      "local rows, clip = require 'checks.rows', require('clip')\n"
      "assert(clip == require 'clip' and clip.loads == 1 and require 'nothing' == true and require 'no' == false)\n"
      "assert(select('#', require 'clip') == 1)\n"
      "local _, name, file = rows(torch.ones(1))\n"
      "assert(name == 'checks.rows' and file == '" +
      folder.at("lib/checks/rows.lua") +
      "')\n"
      "return policy {fullgraph = true, run = function(z) return (rows(z)) + require('clip').clip(z, 1) end}");
  const at::Tensor z = at::tensor({-9.0f, 0.5f, 9.0f}).view({3, 1});
  for (int i = 0; i < 3; ++i) CHECK(run_one(policy, z).equal(at::tensor({-3.0f, 1.0f, 3.0f}).view({3, 1})));
  CHECK(policy.graphs().size() == 1);  // the functions of modules are captured as its own are
}

TEST_CASE("a module has the dialect that its first line says") {
  Folder folder;
  folder.write("lib/natural.lua",
               "--!tensor\nreturn function(z)\n  if z:isnan():any(-1) then z = torch.zeros_like(z) end\n"
               "  return z\nend");
  const Policy policy = folder.load("local f = require 'natural'\nreturn function(z) return f(z) end");
  const float nan_value = std::nanf("");
  CHECK(run_one(policy, at::tensor({1.0f, nan_value, 3.0f, 4.0f}).view({2, 2}))
            .equal(at::tensor({0.0f, 0.0f, 3.0f, 4.0f}).view({2, 2})));
}

TEST_CASE("errors in modules name the module's file and line") {
  Folder folder;
  folder.write("lib/syntax.lua", "local x = 1\nlocal = 2");
  folder.write("lib/raises.lua", "\n\nerror('on purpose')");
  folder.write("lib/unknown.lua", "return {\n f = function(z) return flag_nann(z) end}");
  folder.write("lib/late.lua", "return {f = function(z)\n  return z + nil\nend}");
  folder.write("lib/loads.lua", "\nreturn nn.load('x.pt')");
  check_says(folder.refusal("require 'syntax'" + identity), folder.at("lib/syntax.lua") + ":2: ");
  check_says(folder.refusal("require 'raises'" + identity), folder.at("lib/raises.lua") + ":3: on purpose");
  check_says(folder.refusal("require 'unknown'" + identity),
             folder.at("lib/unknown.lua") + ":2:25: there is no 'flag_nann' in a policy; did you mean 'flag_nan' or");
  check_says(folder.refusal("require 'loads'" + identity), folder.at("lib/loads.lua") + ":2");
  const Policy late = folder.load("local m = require 'late'\nreturn function(z) return m.f(z) end");
  try {
    run_one(late, at::ones({2, 2}));
    CHECK(false);
  } catch (const triage::PolicyError& error) {
    check_says(error.what(), folder.at("lib/late.lua") + ":2: ");
    CHECK(error.source().line == 2);
  }
}

TEST_CASE("a policy whose modules define globals, and the other way round") {
  Folder folder;
  folder.write("lib/defines.lua", "function twice(z) return z * 2 end");
  folder.write("lib/uses.lua", "return function(z) return thrice(z) end");
  const Policy policy = folder.load(
      "require 'defines'\nlocal uses = require 'uses'\nfunction thrice(z) return z * 3 end\n"
      "return function(z) return twice(z) + uses(z) end");
  CHECK(run_one(policy, at::ones({2, 2})).equal(at::full({2, 2}, 5.0f)));
  check_says(folder.refusal("require 'defines'\nreturn function(z) return twise(z) end"), "did you mean 'twice'?");
}

TEST_CASE("what require refuses") {
  Folder folder;
  folder.write("lib/a.lua", "return require 'b'");
  folder.write("lib/b.lua", "\nreturn require 'a'");
  folder.write("secret.lua", "return 1");
  check_says(folder.refusal("require 'a'" + identity), folder.at("lib/b.lua") + ":2: ");
  check_says(folder.refusal("require 'a'" + identity),
             "require: module 'a' needs itself while it is loaded: a -> b -> a; move what both need");
  check_says(folder.refusal("require 'none'" + identity),
             folder.at("p.lua") +
                 ":1: require: cannot read 'lib/none.lua' in the folder of the policy: there is no such file");
  for (const char* name : {"'../secret'", "'..secret'", "'/etc/passwd'", "'a/b'", "'a..b'", "'.a'", "'a.'", "''",
                           "'a b'", "'a\\0'", "'a\\n'", "('a'):rep(300)"})
    check_says(folder.refusal(std::string("require(") + name + ")" + identity),
               "require: expected the name of a module");
  check_says(folder.refusal("require(nil)" + identity), "require: expected a string as `name`, got nil");
  check_says(folder.refusal("require('a', 1)" + identity), "require");
  const Policy late = folder.load("return function(z) return require('a')(z) end");
  try {
    run_one(late, at::ones({1}));
    CHECK(false);
  } catch (const triage::PolicyError& error) {
    check_says(error.what(),
               folder.at("p.lua") +
                   ":1: require: module 'a' was not loaded with the policy, and a policy reads files only while "
                   "it is loaded; write local a = require \"a\" at the top of the file");
  }
  try {
    folder.runtime->load_source("require 'a'" + identity, "text.lua");
    CHECK(false);
  } catch (const triage::LoadError& error) {
    check_says(error.what(),
               "text.lua:1: require: cannot read 'lib/a.lua': the policy 'text.lua' was loaded from text and has "
               "no folder; load it from a file (triage::Runtime::load)");
  }
}

TEST_CASE("files that are no modules: links out, directories, fifos, huge ones") {
  Folder folder;
  folder.write("outside/secret.lua", "return 1");
  folder.write("in/p.lua", "");
  fs::create_directories(folder.path / "in/lib/dir.lua");
  fs::create_symlink("../../outside/secret.lua", folder.path / "in/lib/out.lua");
  fs::create_directory_symlink("../../outside", folder.path / "in/lib/linked");
  REQUIRE(::mkfifo((folder.path / "in/lib/fifo.lua").c_str(), 0600) == 0);
  folder.write("in/lib/huge.lua", "");
  REQUIRE(::truncate((folder.path / "in/lib/huge.lua").c_str(), off_t{1} << 40) == 0);
  triage::Runtime runtime;
  for (const auto& [name, why] :
       {std::pair("out", "leads out of the folder"), std::pair("linked.secret", "leads out of the folder"),
        std::pair("dir", "it is a directory"), std::pair("fifo", "not a regular file"),
        std::pair("huge", "larger than 16777216 bytes")}) {
    folder.write("in/p.lua", std::string("require '") + name + "'" + identity);
    try {
      runtime.load(folder.path / "in/p.lua");
      CHECK(false);
    } catch (const triage::Error& error) {
      check_says(error.what(), why);
    }
  }
}

TEST_CASE("modules share the budgets of the load") {
  Folder folder;
  folder.write("lib/loops.lua", "while true do end");
  folder.write("lib/again.lua", "return pcall(require, 'loops')");
  folder.write("lib/large.lua", "local t = {} for i = 1, 1e9 do t[i] = i end");
  triage::RuntimeOptions options;
  options.limits = {1'000'000, 1.0, 8u << 20, 64u << 20};
  for (const char* name : {"loops", "again", "large"})
    CHECK_THROWS_AS(folder.load(std::string("require '") + name + "'" + identity, options), triage::LimitError);
  for (int i = 0; i < 400; ++i) folder.write("lib/m" + std::to_string(i) + ".lua", "return 1");
  check_says(folder.refusal("for i = 0, 399 do require('m' .. i) end" + identity), "a policy may read 256 files");
  std::string deep;
  for (int i = 0; i < 250; ++i)
    folder.write("lib/d" + std::to_string(i) + ".lua", "return require 'd" + std::to_string(i + 1) + "'");
  folder.write("lib/d250.lua", "return 1");
  CHECK(folder.refusal("require 'd0'" + identity) != "");  // Lua's bound of nested calls; the process goes on
  CHECK(run_one(folder.load("require 'm1'" + identity), at::ones({1})).numel() == 1);
}

TEST_CASE("a module that failed may be asked for again, and its error is the same") {
  Folder folder;
  folder.write("lib/raises.lua", "error('on purpose')");
  folder.load(
      "local a, b = pcall(require, 'raises')\nlocal c, d = pcall(require, 'raises')\n"
      "assert(not a and not c and b == d and b:find('on purpose'), b .. d)" +
      identity);
}

TEST_CASE("torch.load reads tables of the policy's folder, in every format") {
  Folder folder;
  const at::Tensor table = at::arange(6, at::kFloat).view({2, 3});
  triage::save_tensor(folder.at("t.npy"), table);
  triage::save_tensor(folder.at("t.pt"), table);
  fs::create_directory(folder.path / "tables");
  triage::save_tensor(folder.at("tables/t.safetensors:limits"), at::ones({3}));
  const Policy policy = folder.load(
      "local a, b = torch.load('t.npy'), torch.load('t.pt')\n"
      "local c = torch.load('tables/t.safetensors:limits')\n"
      "assert(torch.load('tables/t.safetensors').limits:equal(c) and a:equal(b))\n"
      "return policy {fullgraph = true, run = function(z) return z + a + b + c end}");
  for (int i = 0; i < 2; ++i) CHECK(run_one(policy, at::zeros({2, 3})).equal(table * 2 + 1));
}

TEST_CASE("a table is a constant of the policy: the host cannot write to it, nor to what the script was given") {
  Folder folder;
  triage::save_tensor(folder.at("t.pt"), at::ones({3}));
  const Policy policy = folder.load("local t = torch.load('t.pt')\nreturn function(z) return t, z + t end");
  for (int i = 0; i < 3; ++i) {
    const auto outputs = policy.run({at::zeros({3})});
    CHECK(outputs[1].equal(at::ones({3})));
    outputs[0].fill_(7);
  }
}

TEST_CASE("what torch.load refuses") {
  Folder folder;
  triage::save_tensor(folder.at("t.pt"), at::ones({3}));
  folder.write("damaged.npy", "no array");
  folder.write("empty.pt", "");
  const auto refused = [&](const std::string& call, const std::string& why) {
    check_says(folder.refusal("local t = torch.load(" + call + ")" + identity), why);
  };
  refused("'none.pt'", ":1: torch.load: cannot read 'none.pt' in the folder of the policy: there is no such file");
  refused("'../t.pt'", "got one with '..'");
  refused("'" + folder.at("t.pt") + "'", "got an absolute path");
  refused("'p.lua'", "expected a .pt, .pth, .npy or .safetensors file");
  refused("'t.pt\\0.npy'", "a control character");
  refused("'damaged.npy'", "damaged.npy");
  refused("'empty.pt'", "it is empty");
  refused("'t.pt:key'", "leave the key out");
  refused("3", "torch.load: ");
  const Policy late = folder.load("return function(z) return z + torch.load('t.pt') end");
  try {
    run_one(late, at::ones({3}));
    CHECK(false);
  } catch (const triage::PolicyError& error) {
    check_says(error.what(), "torch.load: a policy reads files only while it is loaded; write local table = ");
  }
  triage::RuntimeOptions small;
  small.limits.tensor_bytes = 1 << 20;
  triage::save_tensor(folder.at("large.npy"), at::zeros({1 << 20}));
  CHECK_THROWS_AS(folder.load("local t = torch.load('large.npy')" + identity, small), triage::LimitError);
  check_says(folder.refusal("local m = nn.load('m.pt')" + identity),
             "policies have no 'nn.load': TorchScript modules are for");
  check_says(folder.refusal("return function(z) torch.save(z, 'z.pt') return z end"), "a policy writes no files");
}

TEST_CASE("a reload tries a policy with its modules, and a rollback has the ones of its version") {
  Folder folder;
  folder.write("lib/scale.lua", "return 2");
  const std::string source =
      "local k = require 'scale'\nreturn policy {outputs = {'y'}, run = function(z) return z * k end}";
  const Policy policy = folder.load(source);
  CHECK(run_one(policy, at::ones({2, 2})).equal(at::full({2, 2}, 2.0f)));
  folder.write("lib/scale.lua", "return 3");
  CHECK(policy.reload() == Reload::swapped);
  CHECK(run_one(policy, at::ones({2, 2})).equal(at::full({2, 2}, 3.0f)));
  folder.write("lib/scale.lua", "return torch.ones({5, 5, 5})");
  CHECK(policy.reload() == Reload::refused);  // it changes what hosts get
  folder.write("lib/scale.lua", "return 'two'");
  CHECK(policy.reload() == Reload::refused);
  policy.rollback(1);
  CHECK(run_one(policy, at::ones({2, 2})).equal(at::full({2, 2}, 2.0f)));
  folder.write("lib/scale.lua", "return 2");
  CHECK(policy.reload() == Reload::unchanged);  // live again
}

TEST_CASE("a call of a policy with modules and tables is recorded, and replays where they are not there") {
  Folder folder;
  folder.write("lib/scale.lua", "return {by = function(z, t) return z * t end}");
  triage::save_tensor(folder.at("t.pt"), at::full({2}, 3.0f));
  const Policy policy =
      folder.load("local m, t = require 'scale', torch.load 't.pt'\nreturn function(z) return m.by(z, t) end");
  const std::string file = folder.at("call.pt");
  triage::RecordOptions options;
  options.file = file;
  triage::record(policy, {at::ones({2, 2})}, options);
  fs::remove_all(folder.path / "lib");
  fs::remove(folder.path / "t.pt");
  const triage::Replayed replayed = triage::replay(file);
  CHECK_MESSAGE(replayed.same, replayed.difference);
}

TEST_CASE(
    "files that tests name are part of the version: another file is another version, which its tests may refuse") {
  Folder folder;
  fs::create_directories(folder.path / "tests");
  triage::save_tensor(folder.at("tests/rows.npy"), at::ones({2, 2}));
  triage::save_tensor(folder.at("tests/twice.pt"), at::full({2, 2}, 2.0));
  const Policy policy = folder.load(
      "return policy { inputs = {'z'}, outputs = {'y'}, run = function(z) return z * 2 end,\n"
      "  tests = {{ args = {z = 'tests/rows.npy'}, expect = {y = 'tests/twice.pt'} }} }");
  CHECK(run_one(policy, at::ones({1, 2})).eq(2).all().item<bool>());
  const std::string hash = policy.version().hash;
  CHECK(policy.reload() == Reload::unchanged);
  triage::save_tensor(folder.at("tests/twice.pt"), at::full({2, 2}, 3.0));
  CHECK(policy.reload() == Reload::refused);
  CHECK(policy.version().hash == hash);
  triage::save_tensor(folder.at("tests/rows.npy"), at::full({2, 2}, 1.5));
  CHECK(policy.reload() == Reload::swapped);
  CHECK(policy.version().hash != hash);
  fs::remove(folder.path / "tests/rows.npy");
  CHECK(policy.reload() == Reload::refused);
}

TEST_CASE("a policy that is loaded from text has no files for its tests") {
  triage::Runtime runtime;
  const std::string source =
      "return policy { inputs = {'z'}, outputs = {'y'}, run = function(z) return z end,\n"
      "  tests = {{ args = {z = 'rows.npy'}, expect = {y = {{1.0}}} }} }";
  std::string refusal;
  try {
    runtime.load_source(source, "text.lua");
  } catch (const triage::Error& error) {
    refusal = error.what();
  }
  check_says(refusal, "policy: test 1: field 'args'");
  check_says(refusal, "was loaded from text and has no folder");
}
