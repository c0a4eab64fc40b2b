// Calls through the C interface: tensors in and out without a copy, and whose memory is freed when.
#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "host.h"

namespace triage::test {
namespace {

constexpr auto nan = std::numeric_limits<float>::quiet_NaN();

std::vector<TriageFlag> flags_of(const Output& output) {
  size_t count = 0;
  check_ok(api().read_flags(output.tensor, nullptr, &count));
  std::vector<TriageFlag> flags(count);
  check_ok(api().read_flags(output.tensor, flags.data(), &count));
  CHECK(count == flags.size());
  return flags;
}

}  // namespace

TEST_CASE("run repairs a batch, and the flags of its samples are structs") {
  const Host host;
  HostTensor z({1, 2, nan, 4, 5, 6}, {3, 2});
  for (const int form : {TRIAGE_FORM_CAPTURE, TRIAGE_FORM_GRAPH}) {
    TriageRunInfo info{};
    info.size = sizeof info;
    TriageRunOptions options{};
    options.size = sizeof options;
    options.info = &info;
    const auto outputs = host.run({&z.managed}, &options);
    REQUIRE(outputs.size() == 2);
    CHECK(outputs[0].values() == std::vector<float>{1, 2, 0, 0, 5, 6});
    CHECK(outputs[0].shape() == std::vector<int64_t>{3, 2});
    const auto flags = flags_of(outputs[1]);
    REQUIRE(flags.size() == 2);
    CHECK(flags[0].sample == 1);
    CHECK(flags[0].count == 1);
    CHECK(flags[0].code == 1);
    CHECK(flags[0].severity == 3);
    CHECK(flags[0].location > 0);
    CHECK(std::string(flags[0].location_name) == "logits");
    CHECK(std::string(flags[0].code_name) == "NAN");
    CHECK(std::string(flags[0].severity_name) == "CRITICAL");
    CHECK(std::string(flags[1].code_name) == "FALLBACK_VALUE");
    CHECK(info.form == form);
    CHECK(info.answered == TRIAGE_ANSWERED_LIVE);
    CHECK(info.version == 1);
    CHECK(std::string(info.hash).size() == 16);
    CHECK(info.flagged == 1);
    CHECK(info.repaired == 1);
    CHECK(info.time_ns > 0);
    CHECK(std::string(info.failure).empty());
  }
}

TEST_CASE("flags beyond the room are counted and left out") {
  const Host host;
  HostTensor z({nan, nan, nan}, {3, 1});
  const auto outputs = host.run({&z.managed});
  TriageFlag first{};
  size_t count = 1;
  check_ok(api().read_flags(outputs[1].tensor, &first, &count));
  CHECK(count == 6);
  CHECK(first.sample == 0);
  CHECK(std::string(first.code_name) == "NAN");
}

TEST_CASE("flags of a policy are read with its names of codes") {
  const Host host(
      "return policy { inputs = {'z'}, outputs = {'z', 'f'}, codes = {MISSING = 4}, run = function(z)\n"
      "  return z, push(err.new(z), err.MISSING, 'rows', {where = z:isnan():any(-1)}) end }");
  HostTensor z({nan, 1}, {2, 1});
  const auto outputs = host.run({&z.managed});
  TriageFlag flag{};
  size_t count = 1;
  check_ok(api().read_policy_flags(host.policy, outputs[1].tensor, &flag, &count));
  CHECK(count == 1);
  CHECK(flag.code == 4);
  CHECK(std::string(flag.code_name) == "MISSING");
  check_ok(api().read_flags(outputs[1].tensor, &flag, &count));
  CHECK(std::string(flag.code_name) == "CODE_4");
  count = 1;
  check_ok(api().flag_counts(host.policy, &flag, &count));
  CHECK(std::string(flag.code_name) == "MISSING");
  CHECK(api().read_policy_flags(nullptr, outputs[1].tensor, &flag, &count) != TRIAGE_OK);
  CHECK(api().read_policy_flags(host.policy, nullptr, &flag, &count) != TRIAGE_OK);
}

TEST_CASE("threads that read new names at once get each name, and keep it") {
  constexpr int64_t first = 600, samples = 300;  // locations that nobody has named
  std::vector<int64_t> words;
  for (int64_t i = 0; i < samples; ++i) words.insert(words.end(), {(first + i) << 6 | 1 << 2 | 3, 0, 0, 0});
  HostTensor<int64_t> records(words, {samples, 4}, {kDLInt, 64, 1});
  std::vector<std::vector<TriageFlag>> read(4, std::vector<TriageFlag>(samples));
  std::vector<std::thread> threads;
  for (std::vector<TriageFlag>& flags : read)
    threads.emplace_back([&] {
      size_t count = flags.size();
      if (api().read_flags(&records.managed, flags.data(), &count) != TRIAGE_OK) flags.clear();
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<TriageFlag>& flags : read) {
    REQUIRE(flags.size() == samples);
    for (int64_t i = 0; i < samples; ++i) CHECK(flags[i].location_name == "Location_" + std::to_string(first + i));
  }
  std::vector<TriageFlag> again(samples);
  size_t count = samples;
  check_ok(api().read_flags(&records.managed, again.data(), &count));
  for (int64_t i = 0; i < samples; ++i)
    CHECK(std::any_of(read.begin(), read.end(), [&](const std::vector<TriageFlag>& flags) {
      return flags[i].location_name == again[i].location_name;  // the same text, no further copy
    }));
}

TEST_CASE("an output that is an input is the host's memory, which is freed after it") {
  const Host host("return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) return z end }");
  HostTensor z({1, 2}, {2});
  host.warm_up(z.managed);
  z.count_frees();
  {
    const auto outputs = host.run({&z.managed});
    CHECK(outputs[0].tensor->dl_tensor.data == z.data.data());
    CHECK(z.freed == 0);
  }
  CHECK(z.freed == 1);
}

TEST_CASE("memory without a deleter is the host's when the call has returned, whatever keeps it") {
  HostTensor z({1, 2}, {2}), step({10, 10}, {2});
  SUBCASE("an output that is the input") {
    const Host host("return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) return z end }");
    for (int i = 0; i < 3; ++i) {
      z.data = {1, 2};
      const auto outputs = host.run({&z.managed});
      CHECK(outputs[0].tensor->dl_tensor.data != z.data.data());
      z.data = {8, 8};
      CHECK(outputs[0].values() == std::vector<float>{1, 2});
    }
  }
  SUBCASE("a variable of the script") {
    const Host host(
        "local last\n"
        "return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z)\n"
        "  local before = last or z last = z return before:clone() end }");
    host.run({&z.managed});
    z.data = {8, 8};
    CHECK(host.run({&step.managed})[0].values() == std::vector<float>{1, 2});
    step.data = {8, 8};
    CHECK(host.run({&z.managed})[0].values() == std::vector<float>{10, 10});
  }
  SUBCASE("a param") {
    const Host host(
        "return policy { inputs = { 'z' }, outputs = { 'z' }, params = { step = torch.zeros(2) },\n"
        "  run = function(z, p) return z + p.step end }");
    const TriageParam param = {"step", TRIAGE_PARAM_TENSOR, 0, 0, nullptr, nullptr, 0, &step.managed};
    check_ok(api().set_param(host.policy, &param));
    step.data = {8, 8};
    CHECK(host.run({&z.managed})[0].values() == std::vector<float>{11, 12});
  }
}

TEST_CASE("an output may outlive its policy and its runtime") {
  std::vector<Output> outputs;
  HostTensor z({nan, 2}, {2, 1});
  {
    const Host host;
    outputs = host.run({&z.managed});
  }
  CHECK(outputs[0].values() == std::vector<float>{0, 2});
}

TEST_CASE("an input is freed once, whatever comes of the call") {
  HostTensor z({1}, {1});  // lives longer than the policy
  z.count_frees();
  DLManagedTensor* inputs[] = {&z.managed, &z.managed};
  int freed = 0;
  const auto is_freed = [&](TriageStatus status) {
    CHECK(status != TRIAGE_OK);
    CHECK(z.freed == ++freed);
  };
  {
    const Host host("return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) error('no') end }");
    size_t count = 0;
    is_freed(api().run(nullptr, inputs, 1, nullptr, nullptr, &count));
    is_freed(api().run(host.policy, inputs, 1, nullptr, nullptr, nullptr));
    is_freed(api().run(host.policy, inputs, 2, nullptr, nullptr, &count));  // the same one twice
    const TriageRunOptions wrong_size{};
    is_freed(api().run(host.policy, inputs, 1, &wrong_size, nullptr, &count));
    is_freed(api().prepare(nullptr, inputs, 1, nullptr));
    const TriageNamedTensor named = {"nobody", &z.managed};
    is_freed(api().run_named(host.policy, &named, 1, nullptr, nullptr, 0));
    CHECK(api().last_error()->status == TRIAGE_ERROR_INPUT);
    const TriageParam param = {"nobody", TRIAGE_PARAM_TENSOR, 0, 0, nullptr, nullptr, 0, &z.managed};
    is_freed(api().set_param(host.policy, &param));
    z.managed.dl_tensor.dtype.bits = 31;
    is_freed(api().run(host.policy, inputs, 1, nullptr, nullptr, &count));
    z.managed.dl_tensor.dtype.bits = 32;
    check_failed(api().run(host.policy, inputs, 1, nullptr, nullptr, &count), TRIAGE_ERROR_POLICY, {"no"});
  }
  is_freed(TRIAGE_ERROR_POLICY);  // the script may have kept it: freed with the policy
}

TEST_CASE("an input without a deleter stays the host's, and may come twice") {
  const Host host(
      "return policy { inputs = { 'a', 'b' }, outputs = { 'sum' }, run = function(a, b) return a + b end }");
  HostTensor z({1, 2}, {2});
  for (int i = 0; i < 3; ++i) CHECK(host.run({&z.managed, &z.managed})[0].values() == std::vector<float>{2, 4});
}

TEST_CASE("strides, offsets and sizes of every kind") {
  const Host host("return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) return z + 1 end }");
  SUBCASE("a transposed view") {
    HostTensor z({1, 2, 3, 4, 5, 6}, {3, 2});
    z.set_strides({1, 3});
    const auto outputs = host.run({&z.managed});
    const DLTensor& got = outputs[0].tensor->dl_tensor;
    const auto* values = static_cast<const float*>(got.data);
    CHECK(values[2 * got.strides[0] + 1 * got.strides[1]] == 7);
    CHECK(values[1 * got.strides[0] + 0 * got.strides[1]] == 3);
  }
  SUBCASE("a row that is repeated") {
    HostTensor z({1, 2}, {3, 2});
    z.set_strides({0, 1});
    const auto outputs = host.run({&z.managed});
    const DLTensor& got = outputs[0].tensor->dl_tensor;
    CHECK(static_cast<const float*>(got.data)[2 * got.strides[0] + 1 * got.strides[1]] == 3);
  }
  SUBCASE("byte_offset") {
    HostTensor z({1, 2, 3, 4}, {2});
    z.managed.dl_tensor.byte_offset = 2 * sizeof(float);
    CHECK(host.run({&z.managed})[0].values() == std::vector<float>{4, 5});
  }
  SUBCASE("a scalar") {
    HostTensor z({41}, {});
    CHECK(host.run({&z.managed})[0].values() == std::vector<float>{42});
  }
  SUBCASE("no elements, and no data") {
    HostTensor z(std::vector<float>{}, {0, 3});
    z.managed.dl_tensor.data = nullptr;
    host.warm_up(z.managed);
    z.count_frees();
    CHECK(host.run({&z.managed})[0].shape() == std::vector<int64_t>{0, 3});
    CHECK(z.freed == 1);
  }
}

TEST_CASE("every dtype goes in and comes out") {
  const Host host("return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) return z:clone() end }");
  struct {
    uint8_t code, bits;
  } const dtypes[] = {{kDLFloat, 16}, {kDLFloat, 32}, {kDLFloat, 64},   {kDLBfloat, 16},
                      {kDLInt, 8},    {kDLInt, 16},   {kDLInt, 32},     {kDLInt, 64},
                      {kDLUInt, 8},   {6, 8},         {kDLComplex, 64}, {kDLComplex, 128}};
  for (const auto& dtype : dtypes) {
    const uint8_t code = dtype.code, bits = dtype.bits;
    CAPTURE(int{code});
    CAPTURE(int{bits});
    HostTensor<double> z({0, 0, 0, 0}, {2}, {code, bits, 1});
    const auto outputs = host.run({&z.managed});
    REQUIRE(outputs.size() == 1);
    CHECK(outputs[0].tensor->dl_tensor.dtype.code == code);
    CHECK(outputs[0].tensor->dl_tensor.dtype.bits == bits);
    CHECK(outputs[0].tensor->dl_tensor.dtype.lanes == 1);
    CHECK(outputs[0].values<unsigned char>() == std::vector<unsigned char>(2, 0));
  }
}

TEST_CASE("run_named takes inputs in any order, and gives the outputs that are named") {
  const Host host(
      "return policy { inputs = { 'a', 'b' }, outputs = { 'less', 'more' }, run = function(a, b) return a - b, a + b "
      "end }");
  HostTensor a({5}, {1}), b({2}, {1});
  const TriageNamedTensor inputs[] = {{"b", &b.managed}, {"a", &a.managed}};
  TriageNamedTensor outputs[] = {{"more", nullptr}, {"less", nullptr}};
  check_ok(api().run_named(host.policy, inputs, 2, nullptr, outputs, 2));
  CHECK(Output(outputs[0].tensor).values() == std::vector<float>{7});
  CHECK(Output(outputs[1].tensor).values() == std::vector<float>{3});
  TriageNamedTensor other[] = {{"less", nullptr}, {"nothing", nullptr}};
  check_failed(api().run_named(host.policy, inputs, 2, nullptr, other, 2), TRIAGE_ERROR_INPUT, {"nothing", "more"});
  CHECK(other[0].tensor == nullptr);
}

TEST_CASE("params: for one call, and for all later ones") {
  const Host host(
      "return policy { inputs = { 'z' }, outputs = { 'z' },\n"
      "  params = { scale = 1.0, shift = 0, on = true, list = { 1.0, 2.0 }, counts = { 1, 2 }, table = torch.zeros(2) "
      "},\n"
      "  run = function(z, p)\n"
      "    return torch.where(p.on, z * p.scale + p.shift + p.list + p.counts + p.table, z) end }");
  HostTensor z({1, 1}, {2});
  const double list[] = {10, 20};
  const int64_t counts[] = {100, 200};
  HostTensor table({1000, 2000}, {2});
  CHECK(host.run({&z.managed})[0].values() == std::vector<float>{3, 5});
  const TriageParam params[] = {
      {"scale", TRIAGE_PARAM_NUMBER, 0, 2.5, nullptr, nullptr, 0, nullptr},
      {"shift", TRIAGE_PARAM_INTEGER, 3, 0, nullptr, nullptr, 0, nullptr},
      {"list", TRIAGE_PARAM_NUMBERS, 0, 0, nullptr, list, 2, nullptr},
      {"counts", TRIAGE_PARAM_INTEGERS, 0, 0, counts, nullptr, 2, nullptr},
      {"table", TRIAGE_PARAM_TENSOR, 0, 0, nullptr, nullptr, 0, &table.managed},
  };
  TriageRunOptions options{};
  options.size = sizeof options;
  options.params = params;
  options.param_count = 5;
  CHECK(host.run({&z.managed}, &options)[0].values() == std::vector<float>{1115.5, 2225.5});
  for (const TriageParam& param : params) check_ok(api().set_param(host.policy, &param));
  CHECK(host.run({&z.managed})[0].values() == std::vector<float>{1115.5, 2225.5});
  const TriageParam off = {"on", TRIAGE_PARAM_BOOL, 0, 0, nullptr, nullptr, 0, nullptr};
  check_ok(api().set_param(host.policy, &off));
  CHECK(host.run({&z.managed})[0].values() == std::vector<float>{1, 1});
}

TEST_CASE("a prepared call is warm, and frees its input before it returns") {
  const Host host;
  HostTensor z({nan, 1}, {2, 1});
  host.warm_up(z.managed);
  z.count_frees();
  TriageRunInfo info{};
  info.size = sizeof info;
  TriageRunOptions options{};
  options.size = sizeof options;
  options.info = &info;
  const auto outputs = host.run({&z.managed}, &options);
  CHECK(info.form == TRIAGE_FORM_GRAPH);
  CHECK(z.freed == 1);
}

TEST_CASE("a donated input gives its memory to the output") {
  const Host host;
  HostTensor z({nan, 1, 2, 3}, {2, 2});
  const size_t donate[] = {0};
  TriageRunOptions options{};
  options.size = sizeof options;
  options.donate = donate;
  options.donate_count = 1;
  host.warm_up(z.managed, &options);
  z.count_frees();
  {
    const auto outputs = host.run({&z.managed}, &options);
    CHECK(outputs[0].tensor->dl_tensor.data == z.data.data());
    CHECK(outputs[0].values() == std::vector<float>{0, 0, 2, 3});
    CHECK(z.freed == 0);
  }
  CHECK(z.freed == 1);
}

TEST_CASE("what a policy gives and DLPack cannot describe is refused, and nothing leaks") {
  const Host host(
      "return policy { inputs = { 'z' }, outputs = { 'z', 's' }, run = function(z) return z * 2, z:to_sparse() end }",
      {.trusted = 1});
  HostTensor z({1, 0}, {2});
  host.misuse({&z.managed}, {"run: output 1: it is a sparse", "dense"});
}

TEST_CASE("on_error and timeout") {
  const Host host(
      "return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) if z:size(0) == 1 then error('one') end "
      "return z * 2 end }");
  HostTensor z({1}, {1});
  TriageRunInfo info{};
  info.size = sizeof info;
  TriageRunOptions options{};
  options.size = sizeof options;
  options.info = &info;
  std::vector<DLManagedTensor*> room(1);
  size_t count = 1;
  DLManagedTensor* inputs[] = {&z.managed};
  check_failed(api().run(host.policy, inputs, 1, &options, room.data(), &count), TRIAGE_ERROR_POLICY,
               {"repair.lua:1", "one"});
  CHECK(std::string(api().last_error()->file) == "repair.lua");
  CHECK(api().last_error()->line == 1);
  CHECK(std::string(api().last_error()->traceback) != "");
  CHECK(info.answered == TRIAGE_ANSWERED_FAILED);
  CHECK(std::string(info.failure).find("one") != std::string::npos);
  options.on_error = TRIAGE_ON_ERROR_PASS_THROUGH;
  CHECK(host.run({&z.managed}, &options)[0].values() == std::vector<float>{1});
  CHECK(info.answered == TRIAGE_ANSWERED_PASSED_THROUGH);
  options.on_error = TRIAGE_ON_ERROR_RAISE;
  options.timeout_ns = 1;
  HostTensor two({1, 2}, {2});
  inputs[0] = &two.managed;
  count = 1;
  check_failed(api().run(host.policy, inputs, 1, &options, room.data(), &count), TRIAGE_ERROR_LIMIT, {});
}

TEST_CASE("threads share a policy, and each has its own last error") {
  const Host host;
  HostTensor first({1, 2, 3, 4}, {2, 2});
  host.warm_up(first.managed);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        HostTensor z({nan, 2, static_cast<float>(i), 4}, {2, 2});
        z.count_frees();
        DLManagedTensor* inputs[] = {&z.managed};
        DLManagedTensor* outputs[2];
        size_t count = 2;
        if (t % 2) {
          wrong += api().run(host.policy, inputs, 1, nullptr, outputs, &count) != TRIAGE_OK;
          wrong += static_cast<const float*>(outputs[0]->dl_tensor.data)[2] != static_cast<float>(i);
          for (DLManagedTensor* output : outputs) api().free_tensor(output);
          wrong += api().last_error()->status != TRIAGE_OK;
        } else {
          z.managed.dl_tensor.dtype.lanes = static_cast<uint16_t>(t + 2);
          wrong += api().run(host.policy, inputs, 1, nullptr, outputs, &count) != TRIAGE_ERROR_ARGUMENT;
          wrong += last_message().find(std::to_string(t + 2) + " lanes") == std::string::npos;
        }
        wrong += z.freed != 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("threads make, ask, reload and free handles of one runtime at once") {
  const Host host;
  const std::string source = repair_source;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, rounds{0};
  std::vector<std::thread> threads;
  const auto repeat = [&](const std::function<bool()>& is_right) {
    threads.emplace_back([&, is_right] {
      for (; !stop; ++rounds) wrong += !is_right();
    });
  };
  // Whether the policy gives what it should for a sample with a NaN, and says so.
  const auto runs = [](TriagePolicy* policy) {
    HostTensor z({nan, 2, 3, 4}, {2, 2});
    TriageRunInfo info{};
    info.size = sizeof info;
    TriageRunOptions options{};
    options.size = sizeof options;
    options.info = &info;
    DLManagedTensor* inputs[] = {&z.managed};
    DLManagedTensor* outputs[2];
    size_t count = 2;
    if (api().run(policy, inputs, 1, &options, outputs, &count) != TRIAGE_OK) return false;
    const Output repaired(outputs[0]), flags(outputs[1]);
    size_t flag_count = 0;
    api().read_flags(flags.tensor, nullptr, &flag_count);
    return repaired.values() == std::vector<float>{0, 0, 3, 4} && flag_count == 2 && info.version > 0 &&
           info.flagged == 1 && std::string(info.failure).empty();
  };
  for (int t = 0; t < 2; ++t) repeat([&] { return runs(host.policy); });
  for (int t = 0; t < 2; ++t)
    repeat([&] {
      TriagePolicy* own = nullptr;
      return api().load_source(host.runtime, source.data(), source.size(), "own.lua", &own) == TRIAGE_OK && runs(own) &&
             api().free_policy(own) == TRIAGE_OK && api().free_policy(own) == TRIAGE_ERROR_ARGUMENT &&
             last_message().find("was freed") != std::string::npos;
    });
  repeat([&] {
    TriageVersion version{};
    version.size = sizeof version;
    TriageStatistics statistics{};
    statistics.size = sizeof statistics;
    size_t count = 0;
    if (api().version(host.policy, &version) != TRIAGE_OK) return false;
    std::this_thread::yield();  // its texts are this thread's until it asks again
    const bool whole =
        version.live && std::string(version.path) == "repair.lua" && std::string(version.last_error).empty();
    return whole && api().versions(host.policy, nullptr, &count) == TRIAGE_OK && count > 0 &&
           api().statistics(host.policy, &statistics) == TRIAGE_OK && statistics.failed == 0;
  });
  repeat([&] {
    char* metrics = nullptr;
    if (api().metrics_text(host.runtime, &metrics) != TRIAGE_OK) return false;
    const bool found = std::string(metrics).find("triage_version_live{policy=\"repair\"") != std::string::npos;
    api().free_text(metrics);
    return found;
  });
  for (int number = 1; number <= 15; ++number) {
    CHECK(host.replace("-- " + std::to_string(number) + "\n" + repair_source) == TRIAGE_RELOAD_SWAPPED);
    check_ok(api().rollback(host.policy, number));
    check_ok(api().pin(host.policy, number + 1));
    check_ok(api().unpin(host.policy, nullptr));
    for (const int seen = rounds; rounds < seen + 12;) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace triage::test
