// Files that were damaged, or made to mislead. Whatever the bytes, a read gives whole tensors or a FileError.
#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <doctest/doctest.h>
#include <triage/files.h>

#include <functional>
#include <sstream>

#include "tests/cli/files/expect_error.h"
#include "tests/cli/folder.h"
#include "tests/mutation.h"
#include "tests/safetensors_bytes.h"

using triage::FileError;
using triage::load_file;
using triage::load_tensor;
using triage::test::safetensors;

namespace {

/// Reads every element, so that a sanitizer build sees memory that is not there.
void touch(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.numel() > 1'000'000) return;  // expanded: few values, shown many times
    at::Tensor copy = tensor.detach().clone();
    CHECK(copy.defined());
  } else if (value.isGenericDict()) {
    for (const auto& pair : value.toGenericDict()) touch(pair.value());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) touch(item);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) touch(item);
  }
}

/// True when `path` read as tensors, false when it was refused in the proper way; anything else fails the test.
bool reads(const std::string& path) {
  try {
    touch(load_file(path));
    return true;
  } catch (const FileError& error) {
    CHECK(std::string(error.what()).find(path) != std::string::npos);
    return false;
  }
}

std::string text_of(const c10::IValue& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string pickle_int(int64_t value) {
  std::string bytes = "\x8a\x08";  // LONG1, 8 bytes
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(static_cast<uint64_t>(value) >> 8 * i);
  return bytes;
}

std::string pickle_tuple(std::initializer_list<int64_t> values) {
  std::string bytes = "(";
  for (int64_t value : values) bytes += pickle_int(value);
  return bytes + "t";
}

std::string pickle_string(const std::string& text) {
  return std::string("\x8c") + static_cast<char>(text.size()) + text;  // SHORT_BINUNICODE
}

/// The pickle of a float32 tensor with storage "0", as torch.save writes it.
std::string tensor_pickle(int64_t offset, std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides,
                          const std::string& storage = "FloatStorage") {
  return std::string("\x80\x02") + "ctorch._utils\n_rebuild_tensor_v2\n((" + pickle_string("storage") + "ctorch\n" +
         storage + "\n" + pickle_string("0") + pickle_string("cpu") + pickle_int(1000) + "tQ" + pickle_int(offset) +
         pickle_tuple(sizes) + pickle_tuple(strides) + "\x89" + "ccollections\nOrderedDict\n)RtR.";
}

/// A .pt archive of that pickle with a record of 8 floats.
std::string archive(const std::string& path, const std::string& pickle, const std::string& extra_record = "") {
  std::string record(32, '\1');
  caffe2::serialize::PyTorchStreamWriter writer(path);
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("data/0", record.data(), record.size());
  if (!extra_record.empty()) writer.writeRecord(extra_record, "big", 3);
  writer.writeEndOfFile();
  return path;
}

std::string npy(const std::string& header, size_t data_bytes) {
  std::string bytes("\x93NUMPY\1\0", 8);
  bytes += {static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return bytes + header + std::string(data_bytes, '\1');
}

std::vector<std::string> victims() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(data_file(""))) {
    std::string ending = entry.path().extension().string();
    if (ending == ".pt" || ending == ".npy") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TEST_CASE("a pickle that declares more than its record holds is refused") {
  TemporaryFolder folder;
  std::string path = folder / "x.pt";
  CHECK(load_tensor(archive(path, tensor_pickle(0, {2, 4}, {4, 1}))).numel() == 8);
  CHECK(load_tensor(archive(path, tensor_pickle(8, {0}, {1}))).numel() == 0);
  auto refused = [&](const std::string& pickle, std::initializer_list<const char*> parts) {
    archive(path, pickle);
    expect_error<FileError>([&] { load_tensor(path); }, parts);
  };
  refused(tensor_pickle(0, {1000}, {1}), {"beyond its record", "8 elements"});
  refused(tensor_pickle(1, {2, 4}, {4, 1}), {"beyond its record"});
  refused(tensor_pickle(0, {2, 4}, {5, 1}), {"beyond its record"});
  refused(tensor_pickle(9, {0}, {1}), {"beyond its record"});
  refused(tensor_pickle(0, {2}, {INT64_MAX}), {"beyond its record"});
  refused(tensor_pickle(INT64_MAX, {2}, {INT64_MAX}), {"beyond its record"});
  refused(tensor_pickle(0, {3, INT64_MAX}, {INT64_MAX, INT64_MAX}), {"too large"});
  refused(tensor_pickle(0, {INT64_MAX, INT64_MAX, 0}, {1, 1, 1}), {"too large"});
  refused(tensor_pickle(0, {2}, {-1}), {"negative stride"});
  refused(tensor_pickle(-1, {2}, {1}), {"before its storage"});
  refused(tensor_pickle(0, {-2}, {1}), {"negative size"});
  refused(tensor_pickle(0, {2, 2}, {1}), {"strides that do not match its shape"});
  refused(tensor_pickle(0, {8}, {1}, "DoubleStorage"), {"beyond its record", "4 elements"});
}

TEST_CASE("a broadcast tensor of any size needs only the memory of its record") {
  TemporaryFolder folder;
  std::string path = archive(folder / "x.pt", tensor_pickle(0, {1'000'000'000, 8}, {0, 1}));
  CHECK(load_tensor(path).numel() == 8'000'000'000);
}

TEST_CASE("pickles that run code, take from nothing, or grow without end are refused") {
  TemporaryFolder folder;
  std::string path = folder / "x.pt";
  auto refused = [&](const std::string& pickle, std::initializer_list<const char*> parts) {
    archive(path, "\x80\x02" + pickle);
    expect_error<FileError>([&] { load_file(path); }, parts);
  };
  refused("cos\nsystem\n" + pickle_string("true") + "\x85R.", {"os.system", "state_dict()"});
  refused("cos\nsystem\n.", {"os.system"});
  refused(".", {"stack"});
  refused("u.", {"mark"});
  refused("R.", {"empty stack"});
  refused("(Q.", {"empty stack"});
  refused("h\5.", {"memo 5"});
  refused("K\1K\2a.", {"appends to"});
  refused("}(K\1u.", {"key without a value"});
  refused("})K\2s.", {"its key is neither a text nor an integer"});
  refused(
      "X\xff\xff\xff\xff"
      "abc.",
      {"in the middle"});
  refused("\x8a\x20" + std::string(32, '\1') + ".", {"64 bits"});
  refused("iposix\nsystem\n.", {"opcode 0x69"});
  refused("]q\1h\1a.", {"nested"});  // a list that holds itself
  std::string deep, doubled = "]q\1";
  for (int i = 0; i < 100'000; ++i) deep += "]";
  for (int i = 0; i < 99'999; ++i) deep += "a";
  refused(deep + ".", {"nested"});
  for (int i = 1; i < 60; ++i)
    doubled += std::string("](h") + static_cast<char>(i) + "h" + static_cast<char>(i) + "eq" + static_cast<char>(i + 1);
  refused(doubled + ".", {});  // 2^60 values in 500 bytes
}

TEST_CASE("archives without their records, and of the other byte order, are refused") {
  TemporaryFolder folder;
  std::string path = folder / "x.pt";
  archive(path, tensor_pickle(0, {8}, {1}), "byteorder");
  expect_error<FileError>([&] { load_tensor(path); }, {"big-endian"});
  archive(path, tensor_pickle(0, {8}, {1}), "constants.pkl");
  expect_error<FileError>([&] { load_tensor(path); }, {"TorchScript module", "nn.load"});
  std::string bytes = read_bytes(data_file("tensor.pt"));
  expect_error<FileError>([&] { load_tensor(write_bytes(path, bytes.substr(0, bytes.size() / 2))); }, {"damaged"});
}

TEST_CASE("an archive with a compressed record is refused before anything is unpacked") {
  TemporaryFolder folder;
  const std::string path = folder / "bomb.pt";
  {
    const std::string pickle = tensor_pickle(0, {8}, {1}), zeros(size_t{1} << 20, '\0');
    caffe2::serialize::PyTorchStreamWriter writer(path);
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    writer.writeRecord("data/0", zeros.data(), zeros.size(), /*compress=*/true);
    writer.writeEndOfFile();
  }
  CHECK(std::filesystem::file_size(path) < 10'000);
  expect_error<FileError>([&] { load_file(path); }, {path.c_str(), "a record in it is compressed"});
}

TEST_CASE("bytes of a bool that are neither 0 nor 1 become 1") {
  TemporaryFolder folder;
  std::string header = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }\n";
  std::string bytes = npy(header, 3);
  bytes[bytes.size() - 2] = '\x7f';
  bytes[bytes.size() - 1] = 0;
  at::Tensor tensor = load_tensor(write_bytes(folder / "x.npy", bytes)).view(at::kByte);
  CHECK(tensor.equal(at::tensor({1, 1, 0}, at::kByte)));
}

TEST_CASE("headers of .npy files that do not fit") {
  TemporaryFolder folder;
  auto refused = [&](const std::string& bytes, std::initializer_list<const char*> parts) {
    CAPTURE(bytes);
    std::string path = write_bytes(folder / "x.npy", bytes);
    expect_error<FileError>([&] { load_tensor(path); }, parts);
  };
  auto header = [](const std::string& descr, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  };
  CHECK(load_tensor(write_bytes(folder / "x.npy", npy(header("<i4", "(2, 3)"), 24))).numel() == 6);
  CHECK(load_tensor(write_bytes(folder / "x.npy", npy("{\"shape\":(2L,),\"fortran_order\":True,\"descr\":\"=i4\"}", 8)))
            .numel() == 2);
  refused(npy(header("<i4", "(2, 3)"), 23), {"24 bytes of data, but there are 23", "truncated"});
  refused(npy(header("<i4", "(2, 3)"), 25), {"more than one array"});
  refused(npy(header("<i4", "(4611686018427387904, 4)"), 0), {"too large"});
  refused(npy(header("<i4", "(0, 9223372036854775807, 9223372036854775807)"), 0), {"too large"});
  refused(npy(header("<i4", "(99999999999999999999,)"), 0), {"no size"});
  refused(npy(header("<i4", "(-1,)"), 0), {"no size"});
  refused(npy(header("<i4", "(2"), 8), {"where one is expected"});
  refused(npy(header("<V2", "(2,)"), 4), {"<V2", "bfloat16", ".safetensors"});
  refused(npy(header("", "(2,)"), 4), {"dtype is ''"});
  refused(npy(header("xf4", "(2,)"), 8), {"'xf4'"});
  refused(npy("{'descr': '<f4'}\n", 0), {"not all of"});
  refused(npy("{'descr': '<f4', 'evil': 1}\n", 0), {"unknown key 'evil'"});
  refused(npy("garbage", 8), {"no '{'"});
  refused(npy(header("<f4", "()") + "x", 4), {"behind the closing brace"});
  refused(std::string("\x93NUMPY\7\0\1\0{}", 12), {"version is 7"});
  refused(std::string("\x93NUMPY\2\0\xff\xff\xff\x7f{}", 14), {"not read"});
  refused(std::string("\x93NUMPY\1", 7), {"ends in its header"});
}

TEST_CASE("headers of .safetensors files that do not fit") {
  TemporaryFolder folder;
  auto refused = [&](const std::string& bytes, std::initializer_list<const char*> parts) {
    CAPTURE(bytes);
    std::string path = write_bytes(folder / "x.safetensors", bytes);
    expect_error<FileError>([&] { load_file(path); }, parts);
  };
  auto entry = [](const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  std::string a = entry("a", "F32", "[2]", "[0,8]");
  touch(load_file(
      write_bytes(folder / "x.safetensors", safetensors("{" + a + ",\"__metadata__\":{\"made\":\"by hand\"}}  ", 8))));
  touch(load_file(write_bytes(folder / "x.safetensors", safetensors("{}", 0))));
  refused(safetensors("{" + a + "}" + std::string(3, '\0'), 8), {"a byte 0"});
  refused(safetensors("{" + a + "}", 7), {"8 bytes of data, but there are 7", "truncated"});
  refused(safetensors("{" + a + "}", 9), {"damaged"});
  refused(safetensors("{" + a + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12), {"overlap"});
  refused(safetensors("{" + a + "," + entry("b", "F32", "[2]", "[12,20]") + "}", 20), {"gap"});
  refused(safetensors("{" + a + "," + a + "}", 8), {"\"a\" twice"});
  refused(safetensors("{" + entry("a", "F32", "[3]", "[0,8]") + "}", 8), {"needs 12 bytes", "0 to 8"});
  refused(safetensors("{" + entry("a", "F32", "[2]", "[8,0]") + "}", 8), {"8 to 0"});
  refused(safetensors("{" + entry("a", "F32", "[2]", "[0]") + "}", 8), {"1 data_offsets"});
  refused(safetensors("{" + entry("a", "F32", "[-2]", "[0,8]") + "}", 8), {"shape"});
  refused(safetensors("{" + entry("a", "F32", "[2.0]", "[0,8]") + "}", 8), {"shape"});
  refused(safetensors("{" + entry("a", "F32", "[4611686018427387904,4]", "[0,0]") + "}", 0), {"too large"});
  refused(safetensors("{" + entry("a", "F4", "[2]", "[0,8]") + "}", 8), {"dtype F4"});
  refused(safetensors("{\"a\":1}", 0), {"\"a\" has no valid"});
  refused(safetensors("{\"a\":", 0), {"not JSON"});
  refused(safetensors("[1]", 0), {"expected a .safetensors"});
  refused(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10), {"header of"});
  refused("1234", {"expected a .safetensors"});
}

TEST_CASE("a pickle whose few bytes ask for much is refused") {
  TemporaryFolder folder;
  const std::string path = folder / "x.pt";
  auto refused = [&](const std::string& pickle, std::initializer_list<const char*> parts) {
    archive(path, "\x80\x02" + pickle);
    expect_error<FileError>([&] { load_file(path); }, parts);
  };
  // A list whose third item is the list itself, as the arguments of what takes arguments.
  refused("]q\1(ctorch._tensor\n_rebuild_from_type_v2\nK\1h\1}e0ctorch._tensor\n_rebuild_from_type_v2\nh\1R.",
          {"nested"});
  std::string text = "(";
  for (int i = 0; i < 1000; ++i)
    text += i == 0 ? "X" + std::string("\0\0\2\0", 4) + std::string(1 << 17, 'a') + "q\1" : "h\1";
  refused(text + "l.", {"strings have more than"});
  refused(pickle_string(std::string(200, 'm')) + "q\1" + "X" + std::string("\0\0\1\0", 4) + std::string(1 << 16, 'n') +
              "\x93.",
          {"too long"});
  refused(std::string(2'000'001, '('), {"more than 2000000"});
  refused(std::string(2'000'001, 'N'), {"more than 2000000"});
  const std::string many = pickle_tuple({}).substr(0, 1) + std::string(200, 'N') + "t";
  refused("ctorch._utils\n_rebuild_tensor_v2\n((" + pickle_string("storage") + "ctorch\nFloatStorage\n" +
              pickle_string("0") + pickle_string("cpu") + pickle_int(8) + "tQ" + pickle_int(0) + many + many + "\x89" +
              "ccollections\nOrderedDict\n)RtR.",
          {"200 dimensions"});
}

TEST_CASE("an expanded tensor is not written out by a bit of its metadata") {
  TemporaryFolder folder;
  const std::string plain = tensor_pickle(0, {1'000'000'000, 1000}, {0, 0});
  const std::string pickle = plain.substr(0, plain.size() - 3) + "}" + pickle_string("neg") + "\x88s" + "tR.";
  expect_error<FileError>([&] { load_file(archive(folder / "x.pt", pickle)); }, {"expanded", "neg"});
}

TEST_CASE("many tensors over one storage are not copied by bits of their metadata") {
  TemporaryFolder folder;
  const std::string plain = tensor_pickle(0, {2}, {1});
  const std::string negated = plain.substr(0, plain.size() - 3) + "}" + pickle_string("neg") + "\x88s" + "tR";
  const auto tensors = [&](int count) {
    std::string all = "(";
    for (int i = 0; i < count; ++i) all += negated;
    return all + "t.";
  };
  CHECK_NOTHROW(load_file(archive(folder / "few.pt", tensors(4))));
  expect_error<FileError>([&] { load_file(archive(folder / "many.pt", tensors(100))); }, {"share their memory", "neg"});
}

TEST_CASE("a zip directory that lies is refused before memory is taken") {
  TemporaryFolder folder;
  const std::string path = folder / "x.pt";
  const std::string whole = read_bytes(archive(path, tensor_pickle(0, {8}, {1})));
  const size_t directory = whole.find("PK\1\2");
  REQUIRE(directory != std::string::npos);
  auto refused = [&](size_t at, const std::string& bytes, std::initializer_list<const char*> parts) {
    std::string changed = whole;
    changed.replace(directory + at, bytes.size(), bytes);
    write_bytes(path, changed);
    expect_error<FileError>([&] { load_file(path); }, parts);
  };
  refused(20, std::string("\xff\xff\xff\x7f\xff\xff\xff\x7f", 8), {"larger than the file"});
  refused(20, std::string("\1\0\0\0\2\0\0\0", 8), {"compressed"});
  refused(42, std::string("\xff\xff\xff\x7f", 4), {"lies outside of the file"});
  refused(42, std::string("\1\0\0\0", 4), {"does not begin where"});
  const size_t second = whole.find("PK\1\2", directory + 4);
  std::string twice = whole;
  twice.replace(second, 4, "PK\1\3");
  write_bytes(path, twice);
  CHECK_FALSE(reads(path));
}

TEST_CASE("a record of other bytes than those that were written is refused, unless its writer computed no checksum") {
  TemporaryFolder folder;
  const std::string path = folder / "x.pt";
  const std::string whole = read_bytes(archive(path, tensor_pickle(0, {8}, {1})));
  const size_t data = whole.find(std::string(32, '\1')), entry = whole.find("PK\1\2", whole.find("PK\1\2") + 4);
  REQUIRE(data != std::string::npos);
  std::string changed = whole;
  changed[data + 5] = '\3';
  expect_error<FileError>([&] { load_file(write_bytes(path, changed)); },
                          {path.c_str(), "damaged", "data/0\" are not those that were written"});
  changed.replace(entry + 16, 4, 4, '\0');  // as torch.save writes after set_crc32_options(False)
  CHECK(load_tensor(write_bytes(path, changed)).sum().item<float>() !=
        load_tensor(write_bytes(path, whole)).sum().item<float>());
  std::string renamed = whole;
  renamed[whole.find("data/0")] = 'e';  // in its header, not in the directory
  expect_error<FileError>([&] { load_file(write_bytes(path, renamed)); }, {"damaged", "differs from its directory"});
}

TEST_CASE("a .pt file with one bit changed is refused, or gives the same tensors") {
  TemporaryFolder folder;
  c10::impl::GenericDict tensors(c10::StringType::get(), c10::AnyType::get());
  tensors.insert("z", at::arange(6, at::kFloat).view({2, 3}));
  tensors.insert("mask", at::ones({2}, at::kBool));
  triage::save_file(folder / "s.pt", tensors);
  for (const std::string& original : {folder / "s.pt", data_file("tensor.pt")}) {
    const std::string expected = text_of(load_file(original));
    const std::string path = write_bytes(folder / "x.pt", read_bytes(original));
    triage::test::for_each_changed_bit(path, [&](size_t bit) {
      CAPTURE(bit);
      std::string found = expected;
      try {
        found = text_of(load_file(path));
      } catch (const FileError&) {
      }
      CHECK(found == expected);
    });
  }
}

TEST_CASE("a .safetensors file of 80,000 tensors is read") {
  TemporaryFolder folder;
  std::string header = "{";
  for (int i = 0; i < 80'000; ++i)
    header += (i ? ",\"t" : "\"t") + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  const std::string path = write_bytes(folder / "many.safetensors", safetensors(header + "}", 80'000));
  CHECK(load_file(path).toGenericDict().size() == 80'000);
  CHECK(load_tensor(path + ":t79999").numel() == 1);
}

TEST_CASE("the header of a .safetensors file has bounds") {
  TemporaryFolder folder;
  auto refused = [&](const std::string& header, std::initializer_list<const char*> parts) {
    const std::string path = write_bytes(folder / "x.safetensors", safetensors(header, 0));
    expect_error<FileError>([&] { load_file(path); }, parts);
  };
  refused("{\"a\":" + std::string(1'000'000, '[') + "}", {"nested more than 16"});
  std::string values = "{\"a\":[";
  for (int i = 0; i < 4'000'001; ++i) values += "0,";
  refused(values + "0]}", {"more than 4000000 values"});
  refused("{\"" + std::string(100'000, 'n') + "\":1}", {"nnn..."});
}

TEST_CASE("damaged files never crash: changes of every format") {
  TemporaryFolder folder;
  c10::impl::GenericDict tensors(c10::StringType::get(), c10::AnyType::get());
  tensors.insert("z", at::ones({4, 8}, at::kHalf));
  tensors.insert("mask", at::ones({4}, at::kBool));
  tensors.insert("scalar", at::ones({}));
  tensors.insert("none", at::ones({0, 3}));
  triage::save_file(folder / "s.safetensors", tensors);
  triage::save_file(folder / "s.pt", tensors);
  std::vector<std::string> paths = victims();
  paths.push_back(folder / "s.safetensors");
  paths.push_back(folder / "s.pt");
  REQUIRE(paths.size() > 15);
  for (const std::string ending : {".pt", ".npy", ".safetensors"}) {
    CAPTURE(ending);
    std::vector<std::string> originals;
    for (const std::string& path : paths)
      if (std::filesystem::path(path).extension() == ending) originals.push_back(read_bytes(path));
    triage::test::Mutator mutator(originals);
    const std::string path = folder / ("x" + ending);
    const int count = triage::test::mutations(1000);
    int read = 0;
    for (int round = 0; round < count; ++round) {
      CAPTURE(round);
      read += reads(write_bytes(path, mutator.next()));
    }
    CHECK(read > 0);  // a flipped byte of data still is a tensor
    CHECK(read < count * 9 / 10);
  }
}
