// Record and replay (D10): calls of policies and compiled functions in files, and what comes of them again.
#include "runtime/capsule/capsule.h"
#include "bindings/lua/engine/exec.h"
#include "runtime/files/checksum.h"
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/folder.h"
#include "tests/lua/policies/policies.h"

namespace {

namespace fs = std::filesystem;
using triage::Diagnostics;
using triage::Replayed;
using triage::test::batch_with_bad_values;
using triage::test::RestoreDiagnostics;

/// Counts its calls in a variable of its own, which decides what it does: a state that a fresh load has not.
constexpr const char* counting_calls = R"(
local calls = {n = 0}
local factor = torch.full({3}, 2.0)
local function scaled(x) return x * factor * calls.n end
weight = 1.5
return policy {
  name = "counting",
  params = { low = 0.25, on = true, n = 3 },
  run = function(z, p)
    calls.n = calls.n + 1
    local f = flag_nan_and_inf(z, "encoder")
    local y = scaled(z) + p.low * weight + torch.randn({3})
    return fix(y, f, "encoder"), f
  end,
})";

triage::Policy load_named(const std::string& source, const std::string& name, triage::Runtime& runtime) {
  return runtime.load_source(source, name);
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

fs::path only_file(const fs::path& folder) {
  REQUIRE(fs::exists(folder));
  std::vector<fs::path> files(fs::directory_iterator(folder), fs::directory_iterator{});
  REQUIRE(files.size() == 1);
  return files.front();
}

}  // namespace

TEST_CASE("D10: a capsule repeats a call with its state, params and random numbers, on any batch and stride") {
  const TemporaryFolder folder;
  for (const int64_t rows : {0, 1, 2, 31, 32, 33}) {
    triage::RuntimeOptions options;
    options.log = [](const triage::LogRecord&) {};
    triage::Runtime runtime(options);
    const triage::Policy policy = load_named(counting_calls, "counting.lua", runtime);
    policy.set_param("low", 0.75);
    policy.manual_seed(11);
    const at::Tensor z = batch_with_bad_values(rows);
    const at::Tensor strided = at::empty({3, rows}).t().copy_(z);
    for (int call = 0; call < 3; ++call) policy.run({z});
    for (const at::Tensor& input : {z, strided}) {
      const std::string file = (folder.path() / "call.pt").string();
      const auto outputs = triage::record(policy, {input}, {file});
      const Replayed replayed = triage::replay(file);
      CHECK_MESSAGE(replayed.same, replayed.difference);
      CHECK(replayed.name == "counting");
      CHECK(replayed.recorded == "2 outputs");
      const triage::capsule::Capsule capsule = triage::capsule::load(file);
      CHECK(capsule.facts["call"]["params"]["low"] == "0.75");
      CHECK(capsule.facts["call"]["params"]["n"] == 3);
      const triage::capsule::RestoredTensors tensors(capsule.facts["tensors"], capsule.memories);
      const at::Tensor& kept = tensors.at(capsule.facts["call"]["inputs"][0]["tensor"].get<int64_t>());
      CHECK(kept.strides() == input.strides());
      CHECK(at::equal(at::nan_to_num(kept), at::nan_to_num(input)));
    }
  }
}

TEST_CASE("D10: a replay on another backend gives the same bits") {
  const TemporaryFolder folder;
  triage::Runtime runtime;
  const triage::Policy policy = load_named("return function(z) return z * 2 + 1 end", "plain.lua", runtime);
  const std::string file = (folder.path() / "call.pt").string();
  triage::record(policy, {batch_with_bad_values(4)}, {file});
  const auto run = [&](const std::string& backend) {
    triage::ReplayOptions options;
    options.backend = backend;
    return triage::replay(file, options);
  };
  CHECK(run("eager").same);
  CHECK(run("aot_eager").same);
  const Replayed wrong = run("faulty_result:mul");
  CHECK_FALSE(wrong.same);
  CHECK_MESSAGE(wrong.difference.find("output 'out0' differs in sample 0: it was 1, and is ") == 0, wrong.difference);
}

TEST_CASE("D10: a call that fails is written where the host asks for it, and fails again the same way") {
  const RestoreDiagnostics restore;
  const TemporaryFolder folder;
  Diagnostics diagnostics;
  diagnostics.replay_dir = (folder.path() / "capsules").string();
  triage::set_diagnostics(diagnostics);
  CHECK(triage::get_diagnostics().replay_dir == diagnostics.replay_dir);
  std::vector<std::string> log;
  triage::RuntimeOptions options;
  options.log = [&](const triage::LogRecord& record) { log.emplace_back(record.text); };
  options.on_error = triage::OnError::pass_through;
  triage::Runtime runtime(options);
  const triage::Policy policy = load_named(R"(return policy { name = "fails", outputs = {"z"}, run = function(z)
  if z:size(0) > 2 then error("too many samples: " .. z:size(0)) end
  return z * 2
end })",
                                           "fails.lua", runtime);
  policy.run({batch_with_bad_values(2)});
  CHECK_FALSE(fs::exists(diagnostics.replay_dir));
  CHECK(policy.run({batch_with_bad_values(3)}).size() == 1);  // answered by pass_through
  const std::string file = only_file(diagnostics.replay_dir).string();
  const Replayed replayed = triage::replay(file);
  CHECK_MESSAGE(replayed.same, replayed.difference);
  CHECK(replayed.recorded.find("too many samples: 3") != std::string::npos);
}

TEST_CASE("D10: a failure in a warm graph is recorded, though the script did not run") {
  const RestoreDiagnostics restore;
  const TemporaryFolder folder;
  Diagnostics diagnostics;
  diagnostics.replay_dir = (folder.path() / "capsules").string();
  triage::Runtime runtime;
  const triage::Policy policy =
      load_named("local shift = 4\nreturn function(z, i) return z[i] + shift end", "warm.lua", runtime);
  const at::Tensor z = at::arange(8, at::kFloat);
  policy.run({z, at::tensor({1, 2}, at::kLong)});
  triage::set_diagnostics(diagnostics);
  policy.run({z, at::tensor({3, 4}, at::kLong)});
  CHECK_THROWS_AS(policy.run({z, at::tensor({3, 40}, at::kLong)}), triage::Error);
  const Replayed replayed = triage::replay(only_file(diagnostics.replay_dir).string());
  CHECK_MESSAGE(replayed.same, replayed.difference);
  CHECK(replayed.recorded.find("40") != std::string::npos);
}

TEST_CASE("D10: functions of the host give in a replay what they gave") {
  const TemporaryFolder folder;
  triage::RuntimeOptions options;
  options.log = [](const triage::LogRecord&) {};
  triage::Runtime runtime(options);
  int calls = 0;
  runtime.define("lookup", [&](const std::vector<at::Tensor>& arguments) {
    ++calls;
    return std::vector<at::Tensor>{arguments[0] + calls};
  });
  const triage::Policy policy =
      load_named("return function(z) local a = lookup(z * 2)\n return lookup(a) + z end", "host.lua", runtime);
  policy.run({batch_with_bad_values(1)});
  const std::string file = (folder.path() / "call.pt").string();
  triage::record(policy, {batch_with_bad_values(1)}, {file});
  const int before = calls;
  const Replayed replayed = triage::replay(file);
  CHECK_MESSAGE(replayed.same, replayed.difference);
  CHECK(calls == before);
}

TEST_CASE("D10: only flagged samples, and no masked values, where a host asks for that") {
  const TemporaryFolder folder;
  triage::Runtime runtime;
  const triage::Policy policy = load_named(
      "local secret = torch.full({3}, 42.0)\nreturn function(z, other) local f = flag_nan(z, 'z')\n return fix(z + "
      "secret, f, 'z'), f end",
      "rows.lua", runtime);
  const std::string file = (folder.path() / "rows.pt").string();
  triage::record(policy, {batch_with_bad_values(33), at::ones({33, 2})},
                 {file, /*bad_rows=*/true, {"other", "secret", "out0"}});
  const triage::capsule::Capsule capsule = triage::capsule::load(file);
  CHECK(capsule.facts["call"]["rows"] == std::vector<int64_t>{1});
  for (const at::Tensor& memory : capsule.memories)
    if (memory.scalar_type() == at::kFloat) {
      CHECK_FALSE(memory.eq(42).any().item<bool>());
      CHECK(memory.numel() <= 3);
    }
  const Replayed replayed = triage::replay(file);
  CHECK_MESSAGE(replayed.same, replayed.difference);
  std::string notes;
  for (const std::string& note : replayed.notes) notes += note + "\n";
  CHECK(notes.find("input 'other'") != std::string::npos);
  CHECK(notes.find("1 samples of the batch") != std::string::npos);
}

TEST_CASE("D10: what was computed from masked values is not in a capsule either") {
  const TemporaryFolder folder;
  triage::RuntimeOptions quiet;
  quiet.log = [](const triage::LogRecord&) {};
  triage::Runtime runtime(quiet);
  runtime.define("seen", [](const std::vector<at::Tensor>& in) { return std::vector<at::Tensor>{in[0] + 1}; });
  const triage::Policy policy = load_named(
      "return function(z, other) local f = flag_nan(z, 'z')\n return fix(z, f, 'z'), seen(z), other * 2, f end",
      "derived.lua", runtime);
  const std::string file = (folder.path() / "derived.pt").string();
  triage::record(policy, {at::full({4, 2}, 42.0), at::ones({4, 2})}, {file, false, {"z"}});
  const triage::capsule::Capsule capsule = triage::capsule::load(file);
  size_t values = 0;
  for (const at::Tensor& memory : capsule.memories)
    if (memory.scalar_type() == at::kFloat) values += memory.ne(0).any().item<bool>();
  CHECK(values == 1);  // `other`
  const Replayed replayed = triage::replay(file);
  CHECK_MESSAGE(replayed.same, replayed.difference);
  std::string notes;
  for (const std::string& note : replayed.notes) notes += note + "\n";
  CHECK_MESSAGE(notes.find("the values of 'out0', 'out1', 'out2', 'out3' were left out") != std::string::npos, notes);
}

TEST_CASE("D10: a capsule that cannot be written costs one word in the log, and the call goes on as without it") {
  const RestoreDiagnostics restore;
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  Diagnostics diagnostics;
  diagnostics.replay_dir = (folder.path() / "file").string();
  triage::set_diagnostics(diagnostics);
  triage::Runtime runtime;
  const triage::Policy policy = load_named("return function(z) return z:reshape({1000}) end", "bad.lua", runtime);
  CHECK_THROWS_AS(policy.run({batch_with_bad_values(2)}), triage::PolicyError);
  CHECK_THROWS_AS(triage::record(policy, {batch_with_bad_values(2)}, {"/nowhere/call.pt"}), triage::FileError);
  CHECK_THROWS_AS(triage::record(policy, {batch_with_bad_values(2)}, {"call.zip"}), triage::FileError);
}

TEST_CASE("D10: damaged, cut and foreign files are errors, and none runs anything") {
  const TemporaryFolder folder;
  triage::RuntimeOptions options;
  options.log = [](const triage::LogRecord&) {};
  triage::Runtime runtime(options);
  const triage::Policy policy = load_named(counting_calls, "counting.lua", runtime);
  const std::string file = (folder.path() / "call.pt").string(), damaged = (folder.path() / "damaged.pt").string();
  triage::record(policy, {batch_with_bad_values(2)}, {file});
  const std::string bytes = bytes_of(file);
  int refused = 0;
  for (size_t i = 0; i < bytes.size(); i += 1 + bytes.size() / 150) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x15);
    std::ofstream(damaged, std::ios::binary) << changed;
    try {
      triage::replay(damaged);
    } catch (const triage::FileError&) {
      ++refused;
    } catch (const triage::Error&) {
    }
  }
  CHECK(refused > 50);                                                     // the rest are bits that no value depends on
  for (const at::Tensor& memory : triage::capsule::load(file).memories) {  // of each tensor, bits of its values
    if (memory.nbytes() < 8) continue;
    const size_t at = bytes.find(std::string(static_cast<const char*>(memory.data_ptr()), memory.nbytes()));
    REQUIRE(at != std::string::npos);
    std::string changed = bytes;
    changed[at + memory.nbytes() / 2] = static_cast<char>(changed[at + memory.nbytes() / 2] ^ 0x15);
    std::ofstream(damaged, std::ios::binary) << changed;
    CHECK_THROWS_AS(triage::replay(damaged), triage::FileError);
  }
  std::ofstream(damaged, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  CHECK_THROWS_AS(triage::replay(damaged), triage::FileError);
  triage::save_tensor(damaged, at::ones({2}));
  CHECK_THROWS_WITH_AS(triage::replay(damaged), ("cannot replay \"" + damaged + "\": it is no capsule").c_str(),
                       triage::FileError);
}

TEST_CASE("D10: a capsule made by hand runs in the sandbox, and what does not fit in it is an error") {
  const TemporaryFolder folder;
  triage::Runtime runtime;
  const triage::Policy policy =
      load_named("local k = math.abs\nreturn function(z) return z * k(-2) end", "hand.lua", runtime);
  const std::string file = (folder.path() / "call.pt").string(), made = (folder.path() / "made.pt").string();
  triage::record(policy, {batch_with_bad_values(2)}, {file});
  const auto with = [&](const auto& change) {
    triage::capsule::Capsule capsule = triage::capsule::load(file);
    change(capsule.facts);
    const std::string json = capsule.facts.dump();
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    c10::impl::GenericList memories(c10::AnyType::get());
    for (const at::Tensor& memory : capsule.memories) memories.push_back(memory);
    dict.insert("capsule", json);
    dict.insert("checksum", triage::files::checksum_text(triage::files::checksum(json)));
    dict.insert("memories", memories);
    triage::save_file(made, dict);
    return triage::replay(made);
  };
  using Json = triage::capsule::Json;
  const Replayed unchanged = with([](Json&) {});
  CHECK_MESSAGE(unchanged.same, unchanged.difference);
  // A name that policies may not use is not there, whatever a capsule says.
  const Replayed escaped = with([](Json& facts) { facts["script"]["cells"][0] = {{"lib", {"os", "execute"}}}; });
  CHECK_FALSE(escaped.same);
  CHECK(escaped.difference.find("os.execute") != std::string::npos);
  for (const auto& change : std::vector<std::function<void(Json&)>>{
           [](Json& facts) { facts["format"] = 99; },
           [](Json& facts) { facts["source"]["text"] = "return function(z) return z end"; },
           [](Json& facts) { facts["script"]["chunks"][0]["text"] = "local k\nreturn function(z) return z end"; },
           [](Json& facts) { facts["script"]["objects"][0]["upvalues"][0][1] = 7; },
           [](Json& facts) { facts["script"]["objects"][0]["function"] = -1; },
           [](Json& facts) {
             facts["script"]["roots"] = Json::array({{{"o", 99}}});
           },
           [](Json& facts) { facts["tensors"][0]["sizes"][0] = int64_t{1} << 62; },
           [](Json& facts) { facts["tensors"][0]["strides"][0] = -1; },
           [](Json& facts) { facts["tensors"][0]["memory"] = 1000; },
           [](Json& facts) { facts["call"]["inputs"] = Json::array(); },
           [](Json& facts) { facts["config"]["num_slots"] = 0; }, [](Json& facts) { facts.erase("call"); },
           [](Json& facts) { facts["kind"] = "program"; }})
    CHECK_THROWS_AS(with(change), triage::Error);
}
