#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <triage/files.h>

#include <csignal>
#include <cstring>

#include "tests/cli/files/expect_error.h"
#include "tests/cli/folder.h"

#include "runtime/files/dtype.h"

using triage::FileError;
using triage::load_file;
using triage::load_tensor;
using triage::save_file;
using triage::save_tensor;

namespace {

/// Equal in dtype, shape and bits.
bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  at::Tensor x = a.detach().resolve_conj().contiguous(), y = b.detach().resolve_conj().contiguous();
  return x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

const std::vector<at::ScalarType> dtypes = {at::kBool,  at::kByte,   at::kChar,         at::kShort,
                                            at::kInt,   at::kLong,   at::kHalf,         at::kBFloat16,
                                            at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

bool holds(const std::string& ending, at::ScalarType dtype) {
  if (ending == ".npy") return dtype != at::kBFloat16;
  if (ending == ".safetensors") return !c10::isComplexType(dtype);
  return true;
}

at::Tensor at_key(const c10::IValue& dict, const std::string& key) { return dict.toGenericDict().at(key).toTensor(); }

}  // namespace

TEST_CASE("every dtype, shape and layout survives each format") {
  TemporaryFolder folder;
  std::vector<at::Tensor> shapes = {at::arange(24).reshape({2, 3, 4}),
                                    at::arange(12).reshape({3, 4}).t(),
                                    at::arange(12).reshape({3, 4})[1],
                                    at::arange(12).reshape({3, 4}).slice(1, 0, 4, 2),
                                    at::ones({1}).expand({5, 2}),
                                    at::scalar_tensor(7),
                                    at::empty({0}),
                                    at::empty({3, 0, 2}),
                                    at::arange(5).flip(0)};
  for (std::string ending : {".pt", ".pth", ".npy", ".safetensors"}) {
    for (at::ScalarType dtype : dtypes) {
      for (size_t i = 0; i < shapes.size(); ++i) {
        if (!holds(ending, dtype)) continue;
        CAPTURE(ending);
        CAPTURE(c10::toString(dtype));
        CAPTURE(i);
        at::Tensor tensor =
            shapes[i].to(dtype);  // keeps the order of strides, so that the writer meets transposed ones
        std::string path = folder / ("x" + ending);
        save_tensor(path, tensor);
        CHECK(same(load_tensor(path), tensor));
      }
    }
  }
}

TEST_CASE("NaN payloads, signed zeros and infinities keep their bits") {
  TemporaryFolder folder;
  at::Tensor bits = at::tensor(
      {0x7fc00001, 0x7f800001, static_cast<int>(0xffc12345), static_cast<int>(0x80000000), 0x7f800000, 1}, at::kInt);
  at::Tensor tensor = bits.view(at::kFloat);
  for (std::string ending : {".pt", ".npy", ".safetensors"}) {
    std::string path = folder / ("x" + ending);
    save_tensor(path, tensor);
    CHECK(same(load_tensor(path).view(at::kInt), bits));
  }
}

TEST_CASE("a view is written as its values, not with the storage around it") {
  TemporaryFolder folder;
  save_tensor(folder / "row.pt", at::zeros({1000, 1000})[3]);
  CHECK(std::filesystem::file_size(folder / "row.pt") < 10'000);
  CHECK(load_tensor(folder / "row.pt").sizes() == at::IntArrayRef{1000});
}

TEST_CASE("gradient history and conjugate views are resolved when a tensor is written") {
  TemporaryFolder folder;
  at::Tensor complex = at::complex(at::ones({2}), at::ones({2})).conj();
  REQUIRE(complex.is_conj());
  save_tensor(folder / "c.pt", complex);
  CHECK(same(load_tensor(folder / "c.pt"), complex));
  save_tensor(folder / "g.pt", at::ones({2}).set_requires_grad(true));
  CHECK_FALSE(load_tensor(folder / "g.pt").requires_grad());
}

TEST_CASE("structures of tensors survive .pt") {
  TemporaryFolder folder;
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  c10::impl::GenericList list(c10::AnyType::get());
  list.push_back(at::ones({2}));
  list.push_back(c10::IValue(3));
  dict.insert("z", at::arange(4).reshape({2, 2}));
  dict.insert("list", list);
  dict.insert("tuple",
              c10::ivalue::Tuple::create({c10::IValue(2.5), c10::IValue("text"), c10::IValue(), c10::IValue(true)}));
  save_file(folder / "x.pt", dict);
  c10::IValue back = load_file(folder / "x.pt");
  CHECK(same(at_key(back, "z"), at::arange(4).reshape({2, 2})));
  CHECK(same(back.toGenericDict().at("list").toListRef()[0].toTensor(), at::ones({2})));
  CHECK(back.toGenericDict().at("list").toListRef()[1].toInt() == 3);
  auto tuple = back.toGenericDict().at("tuple").toTupleRef().elements();
  CHECK(tuple[0].toDouble() == 2.5);
  CHECK(tuple[1].toStringRef() == "text");
  CHECK(tuple[2].isNone());
  CHECK(tuple[3].toBool());
}

TEST_CASE("FILE:KEY picks one tensor") {
  TemporaryFolder folder;
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("z", at::ones({32, 512}, at::kHalf));
  dict.insert("f", at::zeros({32, 4}, at::kLong));
  for (std::string ending : {".pt", ".safetensors"}) {
    std::string path = folder / ("x" + ending);
    save_file(path, dict);
    CHECK((load_tensor(path + ":f").scalar_type() == at::kLong));
    expect_error<FileError>([&] { load_tensor(path); },
                            {"cannot read", "x.", "z (float16 32x512)", "f (int64 32x4)", "Pick one as ", ":"});
    expect_error<FileError>([&] { load_tensor(path + ":g"); }, {"no \"g\"", "z (float16 32x512)"});
  }
  CHECK(load_tensor(data_file("nested.pt:0")).size(0) == 2);
  CHECK((load_tensor(data_file("nested.pt:-1:0")).scalar_type() == at::kLong));
  expect_error<FileError>([&] { load_tensor(data_file("nested.pt:1:a")); }, {"expected one tensor", "tuple of 5"});
  expect_error<FileError>([&] { load_tensor(data_file("tensor.pt:z")); }, {"one tensor", "leave the key out"});
  save_tensor(folder / "named.safetensors:weight", at::ones({2}));
  CHECK(at_key(load_file(folder / "named.safetensors"), "weight").numel() == 2);
}

TEST_CASE("a colon in a name is part of it where such a file exists") {
  TemporaryFolder folder;
  save_tensor(folder / "run.pt", at::zeros({1}));
  std::filesystem::rename(folder / "run.pt", folder / "a.pt:b.pt");
  CHECK(load_tensor(folder / "a.pt:b.pt").numel() == 1);
  CHECK(triage::split_key("x.pt:a:b") == std::pair<std::string, std::string>("x.pt", "a:b"));
  CHECK(triage::split_key("C:x.pt") == std::pair<std::string, std::string>("C:x.pt", ""));
}

TEST_CASE("files written by PyTorch") {
  c10::IValue all = load_file(data_file("dtypes.pt"));
  for (const auto& pair : all.toGenericDict()) {
    CAPTURE(pair.key().toStringRef());
    at::Tensor tensor = pair.value().toTensor();
    CHECK(triage::dtype_name(tensor.scalar_type()) == pair.key().toStringRef());
    if (tensor.scalar_type() == at::kBool) {
      CHECK(same(tensor, at::arange(6).reshape({2, 3}).remainder(2).eq(0)));
    } else {
      CHECK(same(tensor, at::arange(6).reshape({2, 3}).to(tensor.scalar_type())));
    }
  }
  at::Tensor base = at::arange(12.0, at::kFloat).reshape({3, 4});
  CHECK(same(load_tensor(data_file("tensor.pt")), base));
  c10::IValue views = load_file(data_file("views.pt"));
  CHECK(same(at_key(views, "transposed"), base.t()));
  CHECK(same(at_key(views, "row"), base[1]));
  CHECK(same(at_key(views, "column"), base.select(1, 2)));
  CHECK(same(at_key(views, "scalar"), at::scalar_tensor(3.5)));
  CHECK(at_key(views, "empty").sizes() == at::IntArrayRef{0, 4});
  CHECK(at_key(views, "shared").data_ptr() == at_key(views, "transposed").data_ptr());  // one record, one memory
  CHECK(at::imag(at_key(views, "conj")).item<float>() == -2);
  CHECK(at_key(views, "grad").requires_grad());
  CHECK(at_key(load_file(data_file("parameter.pt")), "parameter").requires_grad());
}

TEST_CASE("a state_dict reads as a dict") {
  c10::IValue state = load_file(data_file("state_dict.pt"));
  CHECK(same(at_key(state, "encoder.weight"), at::arange(6.0, at::kFloat).reshape({2, 3})));
  CHECK(same(load_tensor(data_file("state_dict.pt:encoder.bias")), at::full({2}, 0.5)));
}

TEST_CASE("what .pt files hold beyond tensors is refused with the way out") {
  expect_error<FileError>([] { load_file(data_file("module.pt")); },
                          {"module.pt", "torch.nn.modules.container.Sequential", "state_dict()"});
  expect_error<FileError>([] { load_file(data_file("sparse.pt")); }, {"sparse", "to_dense()"});
  expect_error<FileError>([] { load_file(data_file("legacy.pt")); }, {"bare pickle", "save it again with torch.save"});
  if (triage::files::find_dtype(&triage::files::DtypeNames::torch, "uint16"))
    CHECK(load_tensor(data_file("uint16.pt")).sizes() == at::IntArrayRef({2}));
  else  // LibTorch 1.13
    expect_error<FileError>([] { load_file(data_file("uint16.pt")); },
                            {"torch.uint16", "with this LibTorch", "convert it"});
  expect_error<FileError>([] { load_file(data_file("numpy_inside.pt")); }, {"NumPy array", "torch.from_numpy"});
}

TEST_CASE("files written by NumPy") {
  at::Tensor matrix = at::arange(6.0, at::kFloat).reshape({2, 3});
  CHECK(same(load_tensor(data_file("matrix.npy")), matrix));
  CHECK(same(load_tensor(data_file("fortran.npy")), matrix.to(at::kDouble)));
  CHECK(load_tensor(data_file("fortran.npy")).is_contiguous());
  CHECK(same(load_tensor(data_file("big_endian.npy")), matrix));
  CHECK(same(load_tensor(data_file("big_endian_complex.npy")),
             at::complex(at::arange(3.0, at::kFloat), at::arange(3.0, 6.0, at::kFloat))));
  CHECK(same(load_tensor(data_file("half.npy")), matrix.to(at::kHalf)));
  CHECK(same(load_tensor(data_file("bool.npy")), at::tensor({1, 0, 1}).to(at::kBool)));
  CHECK(same(load_tensor(data_file("scalar.npy")), at::scalar_tensor(3.5, at::kDouble)));
  CHECK(same(load_tensor(data_file("empty.npy")), at::empty({0, 4}, at::kShort)));
  CHECK(same(load_tensor(data_file("version2.npy")), at::arange(3)));
  CHECK(same(load_tensor(data_file("version3.npy")), at::arange(3)));
}

TEST_CASE("arrays that are no tensors are refused with the way out") {
  expect_error<FileError>([] { load_file(data_file("text.npy")); }, {"<U1", "text is not a tensor"});
  expect_error<FileError>([] { load_file(data_file("objects.npy")); },
                          {"|O", "does not read arrays of Python objects"});
  expect_error<FileError>([] { load_file(data_file("structured.npy")); }, {"structured array", "each field"});
  expect_error<FileError>([] { load_file(data_file("archive.npz")); }, {".npz is not known", "numpy.save"});
}

TEST_CASE("an .npy file is byte for byte what NumPy writes") {
  TemporaryFolder folder;
  save_tensor(folder / "matrix.npy", at::arange(6.0, at::kFloat).reshape({2, 3}));
  CHECK(read_bytes(folder / "matrix.npy") == read_bytes(data_file("matrix.npy")));
  save_tensor(folder / "bool.npy", at::tensor({1, 0, 1}).to(at::kBool));
  CHECK(read_bytes(folder / "bool.npy") == read_bytes(data_file("bool.npy")));
  save_tensor(folder / "scalar.npy", at::scalar_tensor(3.5, at::kDouble));
  CHECK(read_bytes(folder / "scalar.npy") == read_bytes(data_file("scalar.npy")));
}

TEST_CASE("a format that cannot hold a value says which one can") {
  TemporaryFolder folder;
  expect_error<FileError>([&] { save_tensor(folder / "x.npy", at::ones({2}, at::kBFloat16)); },
                          {"x.npy", "no bfloat16", ".safetensors"});
  expect_error<FileError>([&] { save_tensor(folder / "x.safetensors", at::ones({2}, at::kComplexFloat)); },
                          {"complex64", ".pt"});
  expect_error<FileError>(
      [&] {
        save_tensor(folder / "x.pt", at::ones({2, 2}).to_sparse());
      },
      {"sparse", "to_dense()"});
  expect_error<FileError>([&] { save_file(folder / "x.npy", c10::ivalue::Tuple::create({c10::IValue(1)})); },
                          {"one tensor", "tuple of 1"});
  expect_error<FileError>([&] { save_file(folder / "x.safetensors", c10::IValue(1)); }, {"tensors by name"});
  CHECK(folder.names().empty());
}

TEST_CASE("missing files, folders and unknown endings") {
  TemporaryFolder folder;
  expect_error<FileError>([&] { load_tensor(folder / "none.pt"); }, {"none.pt", "No such file"});
  expect_error<FileError>([&] { load_tensor(folder / "x.csv"); }, {".csv is not known", ".safetensors"});
  expect_error<FileError>([&] { load_tensor(folder / "plain"); }, {"no extension"});
  std::filesystem::create_directory(folder / "dir.pt");
  expect_error<FileError>([&] { load_tensor(folder / "dir.pt"); }, {"a folder"});
  expect_error<FileError>([&] { save_tensor(folder / "dir.pt", at::ones({1})); }, {"a folder has that name"});
  expect_error<FileError>([&] { save_tensor(folder / "no/x.pt", at::ones({1})); },
                          {"no\" does not exist", "make it first"});
  CHECK(folder.names() == std::vector<std::string>{"dir.pt"});
}

TEST_CASE("content that is not what the ending says is named") {
  TemporaryFolder folder;
  auto renamed = [&](const std::string& from, const std::string& to) {
    return write_bytes(folder / to, read_bytes(data_file(from)));
  };
  save_tensor(folder / "x.safetensors", at::ones({2}));
  expect_error<FileError>([&] { load_file(renamed("matrix.npy", "a.pt")); }, {"a NumPy .npy file"});
  expect_error<FileError>([&] { load_file(renamed("tensor.pt", "b.npy")); },
                          {"expected a NumPy .npy", "zip archive, as .pt"});
  expect_error<FileError>([&] { load_file(renamed("tensor.pt", "c.safetensors")); },
                          {"expected a .safetensors", "zip archive"});
  expect_error<FileError>([&] { load_file(renamed("archive.npz", "d.pt")); }, {".npz"});
  expect_error<FileError>([&] { load_file(write_bytes(folder / "e.npy", read_bytes(folder / "x.safetensors"))); },
                          {"a .safetensors file"});
  expect_error<FileError>([&] { load_file(write_bytes(folder / "f.pt", "hello, world\n")); }, {"a text file"});
  expect_error<FileError>([&] { load_file(write_bytes(folder / "g.npy", "")); }, {"it is empty"});
  expect_error<FileError>([&] { load_file(write_bytes(folder / "h.safetensors", "{\"a\": 1}")); }, {"JSON text"});
}

TEST_CASE("a write replaces the whole file or nothing") {
  TemporaryFolder folder;
  std::string path = folder / "x.npy";
  save_tensor(path, at::ones({3}));
  ::chmod(path.c_str(), 0640);
  std::string before = read_bytes(path);
  CHECK_THROWS_AS(save_tensor(path, at::ones({2}, at::kBFloat16)), FileError);
  CHECK(read_bytes(path) == before);
  CHECK_THROWS_AS(triage::save_files({{path, at::zeros({3})}, {folder / "no/y.npy", at::zeros({3})}}), FileError);
  CHECK(read_bytes(path) == before);
  save_tensor(path, at::zeros({3}));
  CHECK(read_bytes(path) != before);
  CHECK((std::filesystem::status(path).permissions() == std::filesystem::perms(0640)));
  CHECK(folder.names() == std::vector<std::string>{"x.npy"});
}

TEST_CASE("a write through a symbolic link keeps the link") {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_symlink("real/x.npy", folder / "x.npy");
  save_tensor(folder / "x.npy", at::ones({3}));
  CHECK(std::filesystem::is_symlink(folder / "x.npy"));
  CHECK(load_tensor(folder / "real/x.npy").numel() == 3);
}

TEST_CASE("a write that fails half way leaves the old file and says so") {
  // In a child process, because the limit on the size of files cannot be lifted again.
  TemporaryFolder folder;
  std::string path = folder / "x.pt";
  save_tensor(path, at::ones({3}));
  std::string before = read_bytes(path);
  at::Tensor large = at::ones({100'000});  // made here: the threads of LibTorch do not live on in a forked child
  pid_t child = ::fork();
  if (child == 0) {
    struct rlimit limit {
      20'000, 20'000
    };
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save_tensor(path, large);
    } catch (const FileError& error) {
      ::_exit(std::string(error.what()).find("the file is unchanged") != std::string::npos ? 7 : 8);
    }
    ::_exit(9);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(read_bytes(path) == before);
  CHECK(folder.names() == std::vector<std::string>{"x.pt"});
}
