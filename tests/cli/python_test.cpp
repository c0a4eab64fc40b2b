// Files between here and Python: runs where TRIAGE_PYTHON names an interpreter with torch and numpy.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/files.h>

#include <cstdlib>

#include "tests/cli/program.h"

namespace {

/// Runs `code` in Python with the folder as `d`; a failing assert or exception fails the test.
void run_python(const TemporaryFolder& folder, const std::string& code) {
  std::string script =
      write_bytes(folder / "script.py", "import sys, torch, numpy as np\nd = sys.argv[1] + '/'\n" + code);
  std::string command = std::string("env -u LD_LIBRARY_PATH '") + python() + "' '" + script + "' '" +
                        folder.path().string() + "' > '" + (folder / "log") + "' 2>&1";
  int status = std::system(command.c_str());
  std::string log = read_bytes(folder / "log");
  CAPTURE(log);
  CHECK(status == 0);
}

}  // namespace

TEST_SUITE("python") {
  TEST_CASE("torch.load(weights_only=True) reads what is written here" * doctest::skip(python() == nullptr)) {
    TemporaryFolder folder;
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    for (auto dtype : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                       at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
      dict.insert(triage::dtype_name(dtype), at::arange(6).reshape({3, 2}).to(dtype).t());
    }
    c10::impl::GenericList list(c10::AnyType::get());
    list.push_back(at::scalar_tensor(2.5));
    list.push_back(at::empty({0, 3}));
    list.push_back(c10::ivalue::Tuple::create({c10::IValue(1), c10::IValue("text"), c10::IValue(), c10::IValue(0.5)}));
    triage::save_file(folder / "dict.pt", dict);
    triage::save_file(folder / "list.pt", list);
    triage::save_tensor(folder / "tensor.pt", at::ones({2, 3}).set_requires_grad(true));
    run_python(folder, R"(
x = torch.load(d + 'dict.pt', weights_only=True)
assert len(x) == 12, x
for name, tensor in x.items():
    assert str(tensor.dtype) == 'torch.' + name, (name, tensor.dtype)
    assert torch.equal(tensor, torch.arange(6).reshape(3, 2).to(tensor.dtype).t()), name
x = torch.load(d + 'list.pt', weights_only=True)
assert x[0].shape == () and x[0] == 2.5 and x[1].shape == (0, 3) and x[2] == (1, 'text', None, 0.5), x
x = torch.load(d + 'tensor.pt', weights_only=True)
assert torch.equal(x, torch.ones(2, 3)) and not x.requires_grad
)");
  }

  TEST_CASE("torch.load passes over the names beside flags" * doctest::skip(python() == nullptr)) {
    TemporaryFolder folder;
    write_bytes(folder / "p.lua", "return function(z) return push(err.new(z), err.NAN, 'a') end");
    CHECK(triage_program(folder, {"run", "p.lua", "--input", "z=ones:2x2", "--output", "out0=f.pt"}).status == 0);
    run_python(folder, R"(
x = torch.load(d + 'f.pt', weights_only=True)
assert x.shape == (2, 4) and x.dtype == torch.int64 and (x[:, 0] & 63 == 7).all(), x
assert torch.equal(torch.load(d + 'f.pt', weights_only=True, mmap=True), x)
import zipfile, json
assert json.loads(zipfile.ZipFile(d + 'f.pt').read('archive/triage.json')) == {'flags': [''], 'locations': {str(int(x[0, 0]) >> 6): 'a'}, 'codes': {}}
)");
  }

  TEST_CASE("what torch.save writes reads here" * doctest::skip(python() == nullptr)) {
    TemporaryFolder folder;
    run_python(folder, R"(
torch.manual_seed(3)
torch.save({'z': torch.arange(10.).half(), 'nested': [torch.ones(2), {'k': torch.zeros(3, 3).t()}]}, d + 'a.pt')
torch.save(torch.nn.Linear(3, 2).state_dict(), d + 'b.pt')
torch.save(torch.nn.Parameter(torch.ones(4)), d + 'c.pt')
torch.save(torch.arange(1000000), d + 'large.pt')
)");
    CHECK(triage::load_tensor(folder / "a.pt:z").equal(at::arange(10).to(at::kHalf)));
    CHECK(triage::load_tensor(folder / "a.pt:nested:1:k").sizes() == at::IntArrayRef{3, 3});
    CHECK(triage::load_tensor(folder / "b.pt:weight").sizes() == at::IntArrayRef{2, 3});
    CHECK(triage::load_tensor(folder / "c.pt").requires_grad());
    CHECK(triage::load_tensor(folder / "large.pt").equal(at::arange(1000000)));
  }

  TEST_CASE("numpy reads what is written here, and the other way round" * doctest::skip(python() == nullptr)) {
    TemporaryFolder folder;
    triage::save_tensor(folder / "a.npy", at::arange(6).reshape({3, 2}).t().to(at::kHalf));
    triage::save_tensor(folder / "b.npy", at::scalar_tensor(1.5));
    run_python(folder, R"(
a = np.load(d + 'a.npy'); b = np.load(d + 'b.npy')
assert a.dtype == np.float16 and np.array_equal(a, np.arange(6).reshape(3, 2).T)
assert b.shape == () and b == 1.5
for order in 'CF':
    for dtype in ('>i2', '<i8', '>c16', '|u1', '?'):
        name = order + dtype[1:].replace('?', '') + ('b' if dtype == '?' else '')
        np.save(d + name + '.npy', np.array(np.arange(24).reshape(2, 3, 4).astype(dtype), order=order))
)");
    for (std::string order : {"C", "F"}) {
      for (auto [code, dtype] :
           {std::pair("i2", at::kShort), std::pair("i8", at::kLong), std::pair("c16", at::kComplexDouble),
            std::pair("u1", at::kByte), std::pair("b", at::kBool)}) {
        const std::string name = order + code;
        CAPTURE(name);
        CHECK(triage::load_tensor(folder / (name + ".npy")).equal(at::arange(24).reshape({2, 3, 4}).to(dtype)));
      }
    }
  }
}
