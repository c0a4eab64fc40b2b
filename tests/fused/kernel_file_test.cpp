// Files of kernels that were built ahead of time: what is checked before any of their code runs.
#include <doctest/doctest.h>
#include <runtime/backends/fused/kernel_cache/kernel_manifest.h>
#include <runtime/backends/fused/kernels/kernel.h>
#include <triage/version.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace triage::fused {
namespace {

/// A kernel that no process has compiled before.
std::string new_source() {
  static int count = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return "// \"" + std::to_string(::getpid()) + "?\\ " + std::to_string(now) + " " + std::to_string(count++) +
         "\nextern \"C\" __attribute__((visibility(\"default\"))) void triage_rows() {}\n";
}

/// Under a name of its own: a loader answers with what it loaded from the same path before.
struct File {
  std::filesystem::path path;
  explicit File(const std::string& bytes) {
    static int count = 0;
    path = std::filesystem::temp_directory_path() /
           ("triage-kernels-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".so");
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~File() { std::filesystem::remove(path); }
};

std::string refusal(const std::string& bytes) {
  const File file(bytes);
  try {
    load_kernels(file.path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

KernelManifest manifest() { return {"repair", TRIAGE_VERSION, kernel_abi, "a compiler", architecture(), {}, {}}; }

}  // namespace

TEST_CASE("a builder notes what is asked for, compiles it, and a file of it serves at once") {
  const std::string source = new_source();
  std::string bytes;
  {
    const KernelBuilder builder;
    const auto noted = kernel_of(source);
    noted->wait();  // it is decided: there is none
    CHECK((noted->function() == nullptr));
    kernel_of(source);
    CHECK(builder.size() == 1);
    bytes = builder.build("a test");
  }
  const KernelManifest read = parse_kernel_file(bytes, "the file");
  CHECK(read.name == "a test");
  CHECK(read.version == TRIAGE_VERSION);
  CHECK(read.abi == kernel_abi);
  CHECK(read.architecture == architecture());
  REQUIRE(read.kernels.size() == 1);
  const File file(bytes);
  CHECK(load_kernels(file.path).kernels == read.kernels);
  CHECK((kernel_of(source)->function() != nullptr));  // nothing was waited for
}

TEST_CASE("files of another triage, another processor or another way of calling are refused before they are loaded") {
  KernelManifest other = manifest();
  other.version = "0.0.1";
  CHECK(has(refusal(kernel_file("no object", other)), "triage 0.0.1 has built it"));
  other = manifest();
  other.abi = kernel_abi + 1;
  CHECK(has(refusal(kernel_file("no object", other)), "build it again"));
  other = manifest();
  other.architecture = "z80";
  CHECK(has(refusal(kernel_file("no object", other)), "they are for z80"));
  other = manifest();
  other.features = {"time_travel", "mind_reading"};
  CHECK(has(refusal(kernel_file("no object", other)), "this processor lacks time_travel, mind_reading"));
  CHECK(has(refusal(kernel_file("no object", manifest())), "cannot use the kernels"));  // the loader's own words
}

TEST_CASE("a name does not become lines of the manifest") {
  KernelManifest named = manifest();
  named.name = "x\nfeatures none\nname y\\";
  const KernelManifest read = parse_kernel_file(kernel_file("no object", named), "the file");
  CHECK(read.name == "x\\x0afeatures none\\x0aname y\\x5c");
  CHECK(read.features == named.features);
}

TEST_CASE("N01: calls that a file was built for come back as they were, and what the file held stays") {
  KernelManifest with = manifest();
  with.kernels = {"0123"};
  const std::string bytes = kernel_file("the object", with);
  const std::vector<KnownCall> calls = {{"0a1b", {"f32[32, 512]", "i64[4] grad"}}, {"0a1b", {"b8[]"}}, {"0a1b", {}}};
  const std::string again = with_calls(bytes, "the file", calls);
  CHECK(again.rfind("the object", 0) == 0);
  const KernelManifest read = parse_kernel_file(again, "the file");
  CHECK(read.kernels == with.kernels);
  REQUIRE(read.calls.size() == calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    CHECK(read.calls[i].policy == calls[i].policy);
    CHECK(read.calls[i].inputs == calls[i].inputs);
  }
  CHECK_THROWS_AS(with_calls(bytes.substr(1), "the file", calls), FileError);
}

TEST_CASE("N01: known calls are kept once each, and not without end") {
  const std::string policy = "known once";
  for (int i = 0; i < 100; ++i) {
    add_known_calls({{policy, {"f32[" + std::to_string(i) + "]"}}, {policy, {"f32[0]"}}});
    CHECK(known_calls(policy).size() == std::min<size_t>(static_cast<size_t>(i) + 1, most_known_calls));
  }
  CHECK(known_calls("never heard of").empty());
}

TEST_CASE("a file that is cut short, changed or something else is told from one that build has made") {
  const std::string whole = kernel_file("no object", manifest());
  for (size_t size = 0; size < whole.size(); ++size)
    CHECK(has(refusal(whole.substr(0, size)), "no file that `triage build` has made"));
  for (size_t at = 0; at < whole.size(); at += 3) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    const std::string message = refusal(changed);
    CHECK((has(message, "changed or damaged") || has(message, "no file that `triage build` has made")));
  }
  CHECK(has(refusal(std::string(1000, 'x')), "no file that `triage build` has made"));
  CHECK_THROWS_AS(load_kernels("/nowhere/repair.so"), FileError);
  CHECK_THROWS_AS(load_kernels(std::filesystem::temp_directory_path()), FileError);
}

TEST_CASE("a kernel that no loaded file has is compiled as ever") {
  std::string bytes;
  {
    const KernelBuilder builder;
    kernel_of(new_source());
    bytes = builder.build("another");
  }
  const File file(bytes);
  load_kernels(file.path);
  const auto kernel = kernel_of(new_source());
  kernel->wait();
  CHECK((kernel->function() != nullptr));
}

TEST_CASE("another file under the name of one that is loaded is not mistaken for it") {
  std::string bytes[2], sources[2];
  for (int i = 0; i < 2; ++i) {
    const KernelBuilder builder;
    kernel_of(sources[i] = new_source());
    bytes[i] = builder.build("one of two");
  }
  const File file(bytes[0]);
  load_kernels(file.path);
  std::filesystem::remove(file.path);
  std::ofstream(file.path, std::ios::binary) << bytes[1];
  load_kernels(file.path);
  for (const std::string& source : sources) CHECK((kernel_of(source)->function() != nullptr));
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = descriptors();
  for (int i = 0; i < 10; ++i) load_kernels(file.path);  // what is loaded already takes nothing more
  CHECK(descriptors() == before);
}

TEST_CASE("a builder without kernels, and one for a processor that is none") {
  const KernelBuilder builder;
  CHECK_THROWS_WITH_AS(
      builder.build("nothing"),
      "there is nothing to build for nothing: no part of it became a fused kernel, ATen computes it all", Error);
  kernel_of(new_source());
  CHECK_THROWS_AS(builder.build("x", "no-such-processor"), InputError);
  CHECK_THROWS_AS(builder.build("x", "native;rm"), InputError);
  CHECK_THROWS_AS(builder.build("x", ""), InputError);
}

}  // namespace triage::fused
