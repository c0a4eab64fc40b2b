// Files of exported programs that were damaged, or made to mislead: a program that is whole, or a FileError.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/export.h>

#include <fstream>
#include <iterator>

#include "runtime/files/checksum.h"
#include "tests/cli/folder.h"
#include "tests/mutation.h"

namespace triage {
namespace {

/// With a checksum that fits what is in it now.
std::string sealed(const std::string& text) {
  const size_t end = text.rfind("\nchecksum ");
  const std::string body = end == std::string::npos ? text : text.substr(0, end + 1);
  return body + fmt::format("checksum {:016x}\n", files::checksum(body));
}

std::string file(const std::string& json, const std::string& graph) {
  return sealed("triage exported program, format 2\n" + json + "\n---\n" + graph);
}

std::string json(const std::string& constants = "[]", const std::string& dims = "[]", const std::string& bounds = "{}",
                 const std::string& params = "[]") {
  return "{\"dynamic_dims\": " + dims + ", \"bounds\": " + bounds + ", \"same_inputs\": [], \"params\": " + params +
         ", \"notes\": [], \"constants\": " + constants + "}";
}

const std::string twice =
    "graph twice(%z: \"f32[2, 3]\"):\n  %0: \"f32[2, 3]\" = aten::add.Tensor(%z, %z)\n  return %0\n";

struct ExportedFilesScene {
  TemporaryFolder folder;
  ExportedProgram load(const std::string& bytes) const {
    return ExportedProgram::load(write_bytes(folder / "x.program", bytes));
  }
  void refused(const std::string& bytes, const std::string& why) const {
    std::string said = "(it was read)";
    try {
      load(bytes);
    } catch (const FileError& error) {
      said = error.what();
    }
    CHECK_MESSAGE(said.find(why) != std::string::npos, "expected '" << why << "', it said: " << said);
    CHECK(said.find((folder / "x.program")) != std::string::npos);
  }
};

std::string saved(const ExportedFilesScene& scene) {
  ExportOptions options;
  options.dynamic_dims = {{0, 0, "rows"}};
  options.bounds["rows"] = {0, 1000};
  const at::Tensor w = at::rand({60, 20});
  const auto fn = [&](at::ArrayRef<at::Tensor> inputs) {
    return std::vector<at::Tensor>{at::cat({inputs[0].matmul(w), inputs[0].matmul(w)}).relu()};
  };
  export_function("rows", {"z"}, {at::ones({3, 60})}, fn, options).save(scene.folder / "rows.program");
  return read_bytes(scene.folder / "rows.program");
}

}  // namespace

TEST_CASE("a program of 40,000 nodes is loaded and printed") {
  const ExportedFilesScene scene;
  std::string graph = "graph long(%z: \"f32[s, 3]\"):\n";
  graph = "graph long(%z: \"f32[2, 3]\"):\n  %0: \"f32[2, 3]\" = aten::neg(%z)\n";
  for (int i = 1; i < 40'000; ++i) graph += fmt::format("  %{}: \"f32[2, 3]\" = aten::neg(%{})\n", i, i - 1);
  const ExportedProgram program =
      scene.load(file(json("[]", R"([{"input": 0, "dim": 0, "symbol": "s"}])"), graph + "  return %39999\n"));
  CHECK(program.run({at::ones({5, 3})})[0].size(0) == 5);
  CHECK(program.text().find("neg_39999: \"f32[s, 3]\"") != std::string::npos);
}

TEST_CASE("numbers that are made of themselves again and again have short texts") {
  std::string graph = "graph doubled(%n: \"i64[]\"):\n  %0: \"i64[]\" = triage::item(%n)\n";
  for (int i = 1; i < 200; ++i)
    graph += fmt::format("  %{}: \"i64[]\" = aten::mul.Tensor(%{}, %{})\n", i, i - 1, i - 1);
  CHECK(ExportedFilesScene().load(file(json(), graph + "  return %199\n")).text().size() < 2'000'000);
}

TEST_CASE("loading runs nothing of a program: no random number of the host is drawn") {
  at::manual_seed(3);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(3);
  const ExportedProgram program = ExportedFilesScene().load(
      file(json("[]", R"([{"input": 0, "dim": 0, "symbol": "s"}])"),
           "graph g(%z: \"f32[2, 3]\"):\n  %0: \"f32[2, 3]\" = aten::rand_like(%z)\n  return %0\n"));
  CHECK(program.text().find("f32[s, 3]") != std::string::npos);  // found out by running it, apart
  CHECK(at::rand({4}).equal(expected));
}

TEST_CASE("a program whose inputs are too large to be made up is printed without the laws of its sizes") {
  const ExportedProgram program = ExportedFilesScene().load(
      file(json("[]", R"([{"input": 0, "dim": 0, "symbol": "s"}])"),
           "graph g(%z: \"f32[2, 10000000000]\"):\n  %0: \"f32[2, 10000000000]\" = aten::neg(%z)\n  return %0\n"));
  CHECK(program.text().find("neg: \"f32[?, ?]\"") != std::string::npos);
}

TEST_CASE("programs that say what does not fit are refused") {
  const ExportedFilesScene scene;
  CHECK(scene.load(file(json(), twice)).run({at::ones({2, 3})})[0].equal(at::full({2, 3}, 2.0)));
  scene.refused("hello", "does not begin with");
  scene.refused(file("{}", twice), "dynamic_dims");
  scene.refused(file("{\"a\": 1, \"a\": 2}", twice), "\"a\" twice");
  scene.refused(file(std::string(100, '['), twice), "nested more than 16");
  scene.refused(file(json("[]", R"([{"input": 7, "dim": 0, "symbol": "s"}])"), twice), "there are 1 inputs");
  scene.refused(file(json("[]", R"([{"input": 0, "dim": -1, "symbol": "s"}])"), twice), "a size where one is expected");
  scene.refused(file(json("[]", R"([{"input": 0, "dim": 64, "symbol": "s"}])"), twice), "2 dimensions");
  scene.refused(file(json("[]", R"([{"input": 0, "dim": 0, "symbol": "s"}])", R"({"s": [5, 3]})"), twice),
                "must be in");
  scene.refused(file(json("[]", "[]", R"({"t": [0, 3]})"), twice), "names no size");
  const std::string name(65, 's');
  scene.refused(file(json("[]", R"([{"input": 0, "dim": 0, "symbol": ")" + name + "\"}]"), twice), "at most 64 bytes");
  std::string many = "[";
  for (int i = 0; i < 5000; ++i) many += fmt::format("{}{{\"input\": 0, \"dim\": 0, \"symbol\": \"s\"}}", i ? "," : "");
  scene.refused(file(json("[]", many + "]"), twice), "more than 4096 sizes");
  const auto constant = [](const std::string& name, const std::string& type, const std::string& data) {
    return fmt::format(
        R"({{"name": "{}", "type": "{}", "device": "cpu", "variable": false, "requires_grad": false, "data": "{}"}})",
        name, type, data);
  };
  const std::string z = constant("z", "f32[2, 3]", std::string(32, 'A'));
  CHECK(scene.load(file(json("[" + z + "]"), twice)).run({})[0].equal(at::zeros({2, 3})));
  scene.refused(file(json("[" + z + "," + z + "]"), twice), "constant `z` twice");
  scene.refused(file(json("[" + constant("y", "f32[2, 3]", std::string(32, 'A')) + "]"), twice), "its graph lacks");
  scene.refused(file(json("[" + constant("z", "f32[6]", std::string(32, 'A')) + "]"), twice),
                "do not have the type that its graph declares");
  scene.refused(file(json("[" + constant("z", "f32[2, 4]", std::string(32, 'A')) + "]"), twice),
                "does not match its type");
  scene.refused(file(json("[" + constant("z", "f32[9223372036854775807, 3]", "") + "]"), twice), "too large");
  scene.refused(file(json("[" + constant("z", "f32[2, 3]", std::string(31, 'A') + "!") + "]"), twice), "not base64");
  scene.refused(file(json(), twice + "graph again(%z):\n  return %z\n"), "end of the text");
}

TEST_CASE("params that captured programs do not have are refused, and so is TorchScript of what no operator takes") {
  const ExportedFilesScene scene;
  const auto with_param = [](const std::string& inputs) {
    return file(json("[]", "[]", "{}", "[1]"),
                "graph g(" + inputs + "):\n  %1: \"f32[2, 3]\" = aten::add.Tensor(%z, %p)\n  return %1\n");
  };
  CHECK(scene.load(with_param("%z: \"f32[2, 3]\", %p: \"i64[]\" param")).run({at::ones({2, 3})}).size() == 1);
  scene.refused(with_param("%p: \"i64[]\" param, %z: \"f32[2, 3]\""), "params must come last");
  scene.refused(with_param("%z: \"f32[2, 3]\", %p: \"i64[2]\" param"), "must be a number");
  scene.refused(with_param("%z: \"f32[2, 3]\", %p: \"f64[]\" param"), "default of param 'p' is int64");
  const ExportedProgram odd = scene.load(
      file(json(),
           "graph g(%z: \"f32[2, 3]\"):\n  %1: \"i64[2, 4]\" flags = triage::flag_nan(%z, None, location=%z, "
           "num_slots=16, policy=24, dtype=int64)\n  return %1\n"));
  CHECK_THROWS_WITH_AS(odd.save_torchscript(scene.folder / "odd.pt"),
                       doctest::Contains("cannot be written as TorchScript"), InputError);
}

TEST_CASE("a large file that is no program is not read") {
  const ExportedFilesScene scene;
  const std::string path = scene.folder / "sparse.program";
  std::ofstream(path) << "x";
  std::filesystem::resize_file(path, uint64_t{10} << 30);
  CHECK_THROWS_AS(ExportedProgram::load(path), FileError);
  std::ofstream(path) << "triage exported program, format 2\n";
  std::filesystem::resize_file(path, uint64_t{10} << 30);
  CHECK_THROWS_WITH_AS(ExportedProgram::load(path), doctest::Contains("the limit is"), FileError);
}

TEST_CASE("changed programs are whole or refused") {
  const ExportedFilesScene scene;
  const std::string rows = saved(scene);
  test::Mutator mutator(
      {rows, file(json(), twice), rows.substr(0, rows.find("\"data\"") + 40) + rows.substr(rows.size() - 900)});
  const int count = test::mutations(1500);
  int read = 0;
  for (int round = 0; round < count; ++round) {
    CAPTURE(round);
    try {
      scene.load(sealed(mutator.next())).verify();
      ++read;
    } catch (const FileError&) {
    }
  }
  CHECK(read > 0);
  CHECK(read < count);
}

}  // namespace triage
