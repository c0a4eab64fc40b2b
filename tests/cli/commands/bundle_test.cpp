// `triage bundle check`, `pack`, `diff`, and `triage watch` of a bundle.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/scene.h"

namespace fs = std::filesystem;

namespace {

const std::string detect = R"(return policy {
  name = "detect", inputs = {"z"}, outputs = {"f"},
  run = function(z) return flag_nan_and_inf(z, "logits") end,
  tests = {{name = "clean", args = function() return torch.ones({2, 3}) end,
            check = function(f) return not err.is_err(f):any():item() end}},
}
)";

std::string repairing(const std::string& fields) {
  return "local limits = require('limits')\nlocal table = torch.load('limits.npy')\n"
         "return policy {name = 'repair', inputs = {'z'}, outputs = {'z'}, " +
         fields + "run = function(z) return z:clamp(-limits.most, limits.most) end}\n";
}

struct Bundles : TemporaryFolder {
  Bundles() {
    fs::create_directories(*this / "b/lib");
    write_bytes(*this / "b/detect.lua", detect);
    write_bytes(*this / "b/repair.lua", repairing(""));
    write_bytes(*this / "b/lib/limits.lua", "return {most = 3.0}\n");
    // One float64 number, as numpy.save writes it.
    std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }";
    header.resize(117, ' ');
    write_bytes(*this / "b/limits.npy", std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) + header +
                                            "\n" + std::string(8, '\0'));
    write_bytes(*this / "b/README", "not of the bundle\n");
  }
  Ran run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "bundle");
    return triage_program(*this, arguments);
  }
};

}  // namespace

TEST_CASE("bundle pack lists policies, modules and tables; check loads them and runs their tests") {
  const Bundles folder;
  check_message(folder.run({"check", "nowhere"}), 2, "triage bundle", {"there is no such folder"});
  const Ran unpacked = folder.run({"check", "b"});
  CHECK(unpacked.status == 1);
  CHECK(unpacked.out.find("write it with triage bundle pack") != std::string::npos);

  const auto packed = folder.run({"pack", "b", "--version", "7", "--json"}).json();
  CHECK(packed["bundle"] == "b");
  CHECK(packed["version"] == "7");
  CHECK(packed["policies"] == 2);
  CHECK(packed["modules"] == 1);
  CHECK(packed["tables"] == 1);
  const auto written = parse_json(read_bytes(folder / "b/bundle.json"));
  CHECK(keys_of(written) == std::vector<std::string>{"modules", "name", "policies", "tables", "triage", "version"});
  CHECK(keys_of(written["modules"]) == std::vector<std::string>{"lib/limits.lua"});

  const Ran checked = folder.run({"check", "b"});
  CAPTURE(checked.out);
  CHECK(checked.status == 0);
  CHECK(checked.out.find("b 7: 2 policies, 1 module, 1 table; 1 passed, 0 failed") != std::string::npos);

  write_bytes(folder / "b/lib/limits.lua", "return {most = 4.0}\n");
  const auto changed = folder.run({"check", "b", "--json"});
  CHECK(changed.status == 1);
  CHECK(changed.json()["ok"] == false);
  CHECK(changed.json()["error"].get<std::string>().find("lib/limits.lua' has the SHA-256") != std::string::npos);

  write_bytes(folder / "b/detect.lua", detect.substr(0, detect.find("not ")) + detect.substr(detect.find("not ") + 4));
  const auto again = folder.run({"pack", "b", "--json"}).json();
  CHECK(again["version"].get<std::string>().size() == 12);  // of its files
  CHECK(folder.run({"pack", "b", "--json"}).json() == again);
  const Ran failed = folder.run({"check", "b", "--json"});
  CHECK(failed.status == 1);
  CHECK(failed.json()["policies"][0]["file"] == "detect.lua");
  CHECK(failed.json()["policies"][0]["ok"] == false);
  CHECK(failed.json()["policies"][1]["ok"] == true);
}

TEST_CASE("bundle diff shows files, signatures and params that change") {
  const Bundles folder;
  folder.run({"pack", "b", "--version", "1"});
  fs::copy(folder / "b", folder / "c", fs::copy_options::recursive);
  CHECK(folder.run({"diff", "b", "c", "--json"}).json()["same"] == true);
  CHECK(folder.run({"diff", "b", "c"}).out == "the bundles are the same\n");
  write_bytes(folder / "c/repair.lua", repairing("params = {k = {default = 2.5, min = 0}}, signature = {z = "
                                                 "Tensor(float32_t, {'N', 3})}, on_error = 'last_good', "));
  write_bytes(folder / "c/lib/more.lua", "return {}\n");
  folder.run({"pack", "c", "--version", "2"});
  const Ran text = folder.run({"diff", "b", "c"});
  CAPTURE(text.out);
  CAPTURE(text.err);
  CHECK(text.status == 0);
  CHECK(text.out ==
        "version: 1 -> 2\n"
        "files\n"
        "  added    lib/more.lua\n"
        "  changed  repair.lua\n"
        "repair.lua\n"
        "  inputs: (z) -> (z = Tensor(float32_t, {\"N\", 3}))\n"
        "  on_error: as the host says -> last_good\n"
        "  outputs: (z) -> (z = Tensor(float32_t, {\"N\", 3}))\n"
        "  param k: none -> 2.5, at least 0\n");
  const auto json = folder.run({"diff", "b", "c", "--json"}).json();
  CHECK(json["same"] == false);
  CHECK(json["bundle"][0]["to"] == "2");
  CHECK(json["files"][0]["change"] == "added");
  CHECK(json["policies"][0]["policy"] == "repair.lua");
  CHECK(json["policies"][0]["changes"][3]["from"].is_null());
}

TEST_CASE("watch of a bundle reloads it when bundle.json changes") {
  const Bundles folder;
  folder.run({"pack", "b", "--version", "1"});
  const std::string log = folder / "log";
  const std::string command = "cd " + shell_quoted(folder.path().string()) + " && exec " +
                              shell_quoted(program_path()) + " watch b --json --debounce 10 > log 2>&1";
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  const auto wait_for = [&](const std::string& text) {
    for (int i = 0; i < 500; ++i) {
      if (read_bytes(log).find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  };
  CHECK(wait_for("\"loaded\""));
  write_bytes(folder / "b/repair.lua", repairing("params = {k = 1}, "));
  folder.run({"pack", "b", "--version", "2"});
  CHECK(wait_for("\"reloaded\",\"path\":\"b\",\"version\":2"));
  write_bytes(folder / "b/repair.lua", "return\n");
  folder.run({"pack", "b", "--version", "3"});
  CHECK(wait_for("\"refused\""));
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CAPTURE(read_bytes(log));
}

TEST_CASE("bundle: wrong use is told") {
  const Bundles folder;
  check_message(folder.run({"pak", "b"}), 2, "triage bundle", {"there is no action \"pak\"", "did you mean \"pack\""});
  check_message(folder.run({"diff", "b"}), 2, "triage bundle", {"diff needs two folders"});
  check_message(folder.run({"check", "b", "c"}), 2, "triage bundle", {"check takes one folder"});
  check_message(folder.run({"check", "b", "--name", "x"}), 2, "triage bundle", {"are for triage bundle pack"});
  check_message(folder.run({"pack", "b", "--triage", "new"}), 2, "triage bundle", {"got \"new\""});
  fs::create_directory(folder / "empty");
  check_message(folder.run({"pack", "empty"}), 2, "triage bundle", {"there is no policy in it"});
}
