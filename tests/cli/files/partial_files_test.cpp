// Files with one entry of a kind that triage does not read: the others stay readable, and the message names the entry.
#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/files.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/files/expect_error.h"
#include "tests/cli/folder.h"
#include "tests/memory_use.h"
#include "tests/safetensors_bytes.h"

using triage::FileError;
using triage::load_file;
using triage::load_tensor;
using triage::test::safetensors;

namespace {

std::string text(const std::string& value) {
  return std::string("\x8c") + static_cast<char>(value.size()) + value;  // SHORT_BINUNICODE
}

std::string integer(char value) { return std::string("K") + value; }

/// A tensor of two elements in storage "0".
std::string tensor(const std::string& storage) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + storage + "\n" + text("0") +
         text("cpu") + integer(8) + "tQ" + integer(0) + integer(2) + "\x85" + integer(1) + "\x85\x89" +
         "ccollections\nOrderedDict\n)RtR";
}

/// A dict of the pickles.
std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string pickle = "}(";
  for (const auto& [key, value] : entries) pickle += text(key) + value;
  return pickle + "u";
}

std::string archive(const std::string& path, const std::string& pickle) {
  const std::string record(32, '\1'), whole = "\x80\x04" + pickle + ".";
  caffe2::serialize::PyTorchStreamWriter writer(path);
  writer.writeRecord("data.pkl", whole.data(), whole.size());
  writer.writeRecord("data/0", record.data(), record.size());
  writer.writeEndOfFile();
  return path;
}

struct Kind {
  std::string pickle;
  const char* says;
};

std::vector<Kind> not_read() {
  const std::string numpy_scalar = "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n" + text("f8") + "\x85R" +
                                   std::string("C\x08") + std::string(8, '\1') + "\x86R";
  return {{"c__builtin__\nset\n]\x85R", "set"},
          {std::string("\x8f(") + integer(1) + "\x90", "a set"},
          {std::string("(") + integer(1) + "\x91", "a set"},
          {std::string("C\3abc"), "bytes"},
          {std::string("\x8a\x09") + std::string(9, '\1'), "64 bits"},
          {numpy_scalar, "NumPy"},
          {"ctorch._utils\n_rebuild_tensor_v3\n)R", "float8"},
          {"ctorch._utils\n_rebuild_tensor_v3\n(NNNNNNctorch\nfloat3_e1m1\ntR", "tensor of torch.float3_e1m1"},
          {tensor("StrangeStorage"), "StrangeStorage"},
          {"ctorch._utils\n_rebuild_sparse_tensor\n)R", "sparse"},
          {std::string("ccollections\ndeque\n)R(") + integer(1) + "e", "collections.deque"},
          {"cmy\nThing\n)}\x92}b", "my.Thing"},
          {"cos\nsystem\n", "os.system"}};
}

}  // namespace

TEST_CASE("a .pt file: one entry that is not read spoils no other, and has its name in the message") {
  TemporaryFolder folder;
  const std::string path = folder / "x.pt";
  for (const Kind& kind : not_read()) {
    CAPTURE(std::string(kind.says));
    const std::string inner = dict({{"bad", kind.pickle}, {"good", tensor("FloatStorage")}});
    archive(path, inner);
    CHECK(load_tensor(path + ":good").numel() == 2);
    expect_error<FileError>([&] { load_tensor(path + ":bad"); }, {"x.pt:bad", kind.says, "x.pt:KEY"});
    expect_error<FileError>([&] { load_file(path); }, {"x.pt:bad", kind.says, "x.pt:KEY"});
    expect_error<FileError>([&] { load_tensor(path); }, {"bad (cannot be read)", "good (float32 2)", "x.pt:good"});
    expect_error<FileError>([&] { load_tensor(path + ":none"); }, {"no \"none\"", "bad (cannot be read)"});
    archive(path, dict({{"outer", inner}, {"list", "](" + kind.pickle + tensor("FloatStorage") + "e"}}));
    CHECK(load_tensor(path + ":outer:good").numel() == 2);
    CHECK(load_tensor(path + ":list:1").numel() == 2);
    expect_error<FileError>([&] { load_file(path + ":outer"); }, {"x.pt:outer:bad", kind.says});
    expect_error<FileError>([&] { load_tensor(path + ":list:0"); }, {kind.says});
    archive(path, kind.pickle);
    expect_error<FileError>([&] { load_file(path); }, {"x.pt", kind.says});
  }
}

TEST_CASE("a .pt file: a dict with keys of several kinds") {
  TemporaryFolder folder;
  const std::string path = folder / "x.pt", whole = tensor("FloatStorage");
  archive(path, "}(" + integer(3) + whole + text("w") + whole + integer(1) + "\x85" + whole + "u");  // 3, "w" and (1,)
  CHECK(load_tensor(path + ":3").numel() == 2);
  CHECK(load_tensor(path + ":w").numel() == 2);
  const char* const unnamed = "its key is neither a text nor an integer";
  expect_error<FileError>([&] { load_tensor(path + ":<entry 2>"); }, {"x.pt:<entry 2>", unnamed});
  expect_error<FileError>([&] { load_file(path); }, {"x.pt:<entry 2>", unnamed});
  archive(path, "}(" + integer(3) + whole + text("3") + whole + text("w") + whole + "u");
  CHECK(load_tensor(path + ":w").numel() == 2);
  expect_error<FileError>([&] { load_tensor(path + ":3"); }, {"x.pt:3", "two entries of its dict have this name"});
  archive(path, "}(" + integer(3) + whole + integer(4) + whole + "u");
  CHECK(load_file(path).toGenericDict().contains(3));
  std::string unnamed_keys = "}(";
  for (int i = 0; i < 10'001; ++i) unnamed_keys += integer(1) + "\x85" + integer(2);
  archive(path, unnamed_keys + text("w") + whole + "u");
  expect_error<FileError>([&] { load_tensor(path); }, {unnamed});  // as many entries as nobody reads are refused
}

TEST_CASE("a .safetensors file: a dtype that LibTorch lacks spoils no other tensor") {
  TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::string header = R"({"bad":{"dtype":"F4","shape":[3],"data_offsets":[0,2]},)"
                             R"("good":{"dtype":"F32","shape":[2],"data_offsets":[2,10]}})";
  write_bytes(path, safetensors(header, 10));
  CHECK(load_tensor(path + ":good").numel() == 2);
  expect_error<FileError>([&] { load_tensor(path + ":bad"); }, {"x.safetensors:bad", "dtype F4"});
  expect_error<FileError>([&] { load_file(path); }, {"x.safetensors:bad", "dtype F4"});
  expect_error<FileError>([&] { load_tensor(path); }, {"bad (cannot be read)", "x.safetensors:good"});
}

TEST_CASE("a .safetensors file: a tensor behind 4 GiB is read from its place, in memory of its own size") {
  TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::string header = R"({"hole":{"dtype":"U8","shape":[5368709120],"data_offsets":[0,5368709120]},)"
                             R"("last":{"dtype":"I64","shape":[1],"data_offsets":[5368709120,5368709128]}})";
  write_bytes(path, safetensors(header, 0));
  std::filesystem::resize_file(path, 8 + header.size() + 5368709120);  // sparse: takes no room on the disk
  std::ofstream(path, std::ios::binary | std::ios::app) << std::string(8, '\1');
  triage::test::CountedTensorMemory memory;
  memory.begin();
  const size_t before = memory.now();
  CHECK(load_tensor(path + ":last").item<int64_t>() == 0x0101010101010101);
  CHECK(memory.highest() - before < 4096);
}

TEST_CASE("a TorchScript file given as data is called that") {
  TemporaryFolder folder;
  const std::string path = folder / "net.pt";
  torch::jit::Module net("Net");
  net.define("\ndef forward(self, x):\n    return x + 1\n");
  net.save(path);
  for (const std::string& given : {path, path + ":weight"})
    expect_error<FileError>([&] { load_tensor(given); }, {"net.pt", "TorchScript module", "nn.load"});
}

TEST_CASE("a .pt file: of several tensors, the one that is asked for is read, in memory of its own size") {
  TemporaryFolder folder;
  const std::string path = folder / "large.pt";
  c10::impl::GenericDict inner(c10::StringType::get(), c10::AnyType::get());
  inner.insert("b", at::full({2}, 3.0));
  c10::impl::GenericDict values(c10::StringType::get(), c10::AnyType::get());
  values.insert("large", at::zeros({100'000}));
  values.insert("a", at::full({3}, 2.0));
  values.insert("inner", inner);
  values.insert("inner:b", at::full({1}, 4.0));  // a whole name goes before a way of two
  triage::save_file(path, values);
  const auto sum_and_bytes = [&](const std::string& key) {
    triage::test::CountedTensorMemory memory;
    memory.begin();
    const size_t before = memory.now();
    const double sum = load_tensor(path + ":" + key).sum().item<double>();
    return std::pair(sum, memory.highest() - before);
  };
  for (const auto& [name, sum] : {std::pair("a", 6.0), {"inner:b", 4.0}}) {
    const std::string key = name;
    CAPTURE(key);
    const auto [found, bytes] = sum_and_bytes(key);
    CHECK(found == sum);
    CHECK(bytes < 4096);
  }
  CHECK(sum_and_bytes("large").second >= 400'000);
  CHECK(load_file(path + ":inner").toGenericDict().at("b").toTensor().sum().item<double>() == 6.0);
  expect_error<FileError>([&] { load_file(path + ":inner:c"); }, {"no \"c\"", "b (float32 2)"});
  expect_error<FileError>([&] { load_file(path + ":b"); }, {"large (float32", "a (float32"});
}
