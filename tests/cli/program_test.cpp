// The `triage` program from the outside: what it prints, what it writes, how it ends.
#include "tests/cli/scene.h"
#include "tests/cli/variable.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <triage/files.h>
#include <triage/version.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

TEST_CASE("wrong use ends with status 2 and one message") {
  Scene triage;
  check_message(triage({"rnu"}), 2, "triage", {"no command \"rnu\"", "did you mean \"run\""});
  check_message(triage({"run"}), 2, "triage run", {"POLICY", "--help"});
  check_message(triage({"run", "repair.lua", "--inptu", "z=ones:2"}), 2, "triage run",
                {"--inptu", "did you mean \"--input\""});
  check_message(triage({"run", "repair.lua"}), 2, "triage run", {"needs the input \"z\"", "--input z="});
  check_message(triage({"run", "repair.lua", "--input", "y=ones:2x2"}), 2, "triage run",
                {"no input \"y\"", "it has \"z\""});
  check_message(triage({"run", "repair.lua", "--input", "z"}), 2, "triage run", {"NAME=FILE"});
  check_message(triage({"explain", "repair.lua", "--input", "z=ones:2x2", "--input", "z=ones:2x2"}), 2,
                "triage explain", {"given twice"});
  check_message(triage({"run", "none.lua", "--input", "z=ones:2x2"}), 2, "triage run", {"none.lua"});
  check_message(triage({"run", "repair.lua", "--input", "z=none.pt"}), 2, "triage run", {"none.pt", "No such file"});
  check_message(triage({"run", "repair.lua", "--input", "z=repair.lua"}), 2, "triage run",
                {".lua is not known", ".safetensors"});
  check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "--backend", "eagre"}), 2, "triage run",
                {"did you mean \"eager\""});
  check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "--device", "gpu"}), 2, "triage run",
                {"no device \"gpu\""});
  check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "--repeat", "0"}), 2, "triage run", {"--repeat"});
  check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "--output", "q=o.pt"}), 2, "triage run",
                {"no output \"q\"", "z, f"});
  check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "--output", "z=o.xyz"}), 2, "triage run",
                {".xyz is not known"});
  check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "--output", "z=no/o.pt"}), 2, "triage run",
                {"does not exist"});
  check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "-o", "z=o.pt", "-o", "f=o.pt"}), 2, "triage run",
                {"both write to", "o.pt:z"});
  check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "-o", "z=o.pt", "-o", "f=./o.pt"}), 2,
                "triage run", {"both write to", "o.pt:z"});
  check_message(triage({"exec", "none.lua"}), 2, "triage exec", {"none.lua"});
  check_message(triage({"check", "none.lua"}), 2, "triage check", {"none.lua"});
  check_message(triage({"watch", "none"}), 2, "triage watch", {"none", "no such folder"});
  CHECK(triage.folder.names() == std::vector<std::string>{"repair.lua"});
}

TEST_CASE("wrong content and a failing policy leave nothing half-written") {
  Scene triage;
  write_bytes(triage.folder / "fake.pt", "this is no tensor\n");
  check_message(triage({"run", "repair.lua", "--input", "z=fake.pt", "--output", "z=o.pt"}), 2, "triage run",
                {"fake.pt", "a text file"});
  write_bytes(triage.folder / "mm.lua", "return function(a, b)\n  return a:mm(b)\nend\n");
  Ran ran = triage({"run", "mm.lua", "--input", "a=ones:2x3", "--input", "b=ones:2x3", "--output", "out0=o.pt"});
  CAPTURE(ran.err);
  CHECK(ran.status == 1);
  CHECK(ran.out.empty());
  CHECK(ran.err.rfind("triage run: ", 0) == 0);
  CHECK(ran.err.find("mm.lua:2") != std::string::npos);
  CHECK(ran.err.find("2x3") != std::string::npos);
  triage::save_tensor(triage.folder / "half.safetensors", at::ones({2, 2}, at::kBFloat16));
  check_message(triage({"run", "repair.lua", "--input", "z=half.safetensors", "--output", "z=o.npy"}), 2, "triage run",
                {"no bfloat16"});
  CHECK(triage.folder.names() == std::vector<std::string>{"fake.pt", "half.safetensors", "mm.lua", "repair.lua"});
}

TEST_CASE("T20: explain shows the declared types of inputs, and run names the input that does not fit") {
  Scene triage;
  write_bytes(
      triage.folder / "typed.lua",
      "return policy { signature = { z = Tensor(float32_t, {\"N\", 4}) }, run = function(z, w) return z * w end }");
  Ran shown = triage({"explain", "typed.lua", "--input", "z=randn:3x4", "--input", "w=randn:3x4"});
  CHECK(shown.status == 0);
  CHECK(shown.out.find("z: Tensor(float32_t, {\"N\", 4})") != std::string::npos);
  Ran json = triage({"explain", "typed.lua", "--input", "z=randn:3x4", "--input", "w=randn:3x4", "--json"});
  const auto parsed = parse_json(json.out);
  CHECK(parsed["inputs"]["z"] == "Tensor(float32_t, {\"N\", 4})");
  CHECK(parsed["inputs"]["w"] == "any");
  Ran refused = triage({"run", "typed.lua", "--input", "z=randn:3x5", "--input", "w=randn:3x5"});
  CHECK(refused.status != 0);
  CHECK(refused.err.find("input 'z': dimension 1: expected 4, got 5") != std::string::npos);
}

TEST_CASE("check and bench make no inputs of declared sizes that are too large; run reports no output that is") {
  Scene triage;
  const std::string typed =
      "return policy { inputs = {'z'}, outputs = {'y'}, signature = {z = Tensor(float32_t, {'N', 1000000000}), "
      "y = Tensor(float32_t, {'N'})}, run = function(z) return z:sum(-1) end }";
  write_bytes(triage.folder / "typed.lua", typed);
  CHECK(triage({"check", "typed.lua"}).status == 0);
  const Ran made = triage({"bench", "typed.lua"});
  CHECK(made.status != 0);
  CAPTURE(made.err);
  CHECK(made.err.find("of at most 1024 MiB; give --input z=FILE") != std::string::npos);
  write_bytes(triage.folder / "wide.lua", "return function(z) return z[{0, 0}]:expand({3000000000}) end");
  const Ran run = triage({"run", "wide.lua", "--input", "z=randn:2x2"});
  CHECK(run.status != 0);
  CAPTURE(run.err);
  CHECK(run.err.find("is a tensor of 11444 MiB (an expanded tensor counts in full)") != std::string::npos);
}

TEST_CASE("help, for the program and each command") {
  Scene triage;
  Ran help = triage({"--help"});
  CHECK(help.status == 0);
  for (std::string command : {"run", "exec", "check", "test", "explain", "watch", "repl", "version"}) {
    CAPTURE(command);
    CHECK(help.out.find("  " + command) != std::string::npos);
    Ran own = triage({command, "--help"});
    CHECK(own.status == 0);
    CHECK(own.out.find("Usage:") != std::string::npos);
    CHECK(own.err.empty());
  }
  CHECK(triage({"--version"}).out == std::string("triage ") + TRIAGE_VERSION + "\n");
  Ran none = triage({});
  CHECK(none.status == 2);
  CHECK(none.err.find("Usage:") != std::string::npos);
}

TEST_CASE("check finds errors, warnings, and broken contracts") {
  Scene triage;
  write_bytes(triage.folder / "syntax.lua", "return function(z)\n  local = 3\nend\n");
  write_bytes(triage.folder / "nothing.lua", "local x = 1\n");
  write_bytes(triage.folder / "batch.lua",
              "return function(z)\n  local f = flag_nan(z, \"x\")\n  return IF(HAS(f), function() return z * 0 end)"
              ":ELSE(function() return z end)\nend\n");
  Ran good = triage({"check", "repair.lua"});
  CHECK(good.status == 0);
  CHECK(good.out == "repair.lua: ok\n");
  Ran bad = triage({"check", "syntax.lua", "repair.lua", "nothing.lua"});
  CAPTURE(bad.out);
  CHECK(bad.status == 1);
  CHECK(bad.err.empty());
  CHECK(bad.out.find("syntax.lua:2:9: error: ") == 0);
  CHECK(bad.out.find("repair.lua: ok\n") != std::string::npos);
  CHECK(bad.out.find("nothing.lua") != std::string::npos);
  Ran warned = triage({"check", "batch.lua"});
  CAPTURE(warned.out);
  CHECK(warned.status == 0);
  CHECK(warned.out.find("batch.lua:3:") == 0);
  CHECK(warned.out.find(": warning: ") != std::string::npos);
  nlohmann::json json = triage({"check", "syntax.lua", "repair.lua", "--json"}).json();
  CHECK(keys_of(json) == std::vector<std::string>{"files", "ok"});
  CHECK(json["ok"] == false);
  CHECK(keys_of(json["files"][0]) ==
        std::vector<std::string>{"errors", "inputs", "notes", "ok", "outputs", "path", "warnings"});
  CHECK(json["files"][0]["errors"][0]["line"] == 2);
  CHECK(json["files"][0]["errors"][0]["column"] == 9);
  CHECK(json["files"][1]["ok"] == true);
  CHECK(json["files"][1]["inputs"] == nlohmann::json({"z"}));
  CHECK(json["files"][1]["outputs"] == nlohmann::json({"z", "f"}));
}

TEST_CASE("check knows the codes that a policy names, in its modules too, and says what was meant") {
  Scene triage;
  std::filesystem::create_directories(triage.folder.path() / "p/lib");
  write_bytes(triage.folder / "p/a.lua",
              "local rows = require 'rows'\nreturn policy {codes = {MISSING = 4},\n  run = function(z)\n"
              "    return rows.mark(z, push(err.new(z), err.MISSING, 'a'))\n  end}\n");
  write_bytes(triage.folder / "p/lib/rows.lua",
              "return {mark = function(z, f) return z, push(f, err.MISSING, 'b') end}\n");
  const Ran good = triage({"check", "p"});
  CAPTURE(good.out);
  CHECK(good.status == 0);
  write_bytes(triage.folder / "p/a.lua",
              "return policy {codes = {MISSING = 4},\n  run = function(z)\n"
              "    return push(err.new(z), err.MISING, 'a')\n  end}\n");
  const Ran misspelt = triage({"check", "p/a.lua"});
  CHECK(misspelt.status == 1);
  CHECK(has(misspelt.out, "p/a.lua:3:29: error: err has no 'MISING'; did you mean 'MISSING'?"));
  write_bytes(triage.folder / "p/a.lua", "return policy {codes = {MISSING = 3}, run = function(z) return z end}\n");
  CHECK(has(triage({"check", "p/a.lua"}).out,
            "p/a.lua:1: error: policy: field 'codes': 'MISSING': expected one of the free codes 4, 8, 12, got 3"));
}

TEST_CASE("check tells of the files there are before it tells of those that are not") {
  Scene triage;
  write_bytes(triage.folder / "open.lua", "return function(z)\n  if true then\n    z = z + 1\n  return z\nend\n");
  write_bytes(triage.folder / "field.lua", "return policy { inpts = {'z'}, run = function(z) return z end }\n");
  const Ran ran = triage({"check", "open.lua", "missing.lua", "field.lua", "gone.lua", "repair.lua"});
  CAPTURE(ran.out);
  CHECK(ran.status == 2);
  CHECK(ran.out.find("open.lua:6:1: error: 'end' expected (to close 'function' at line 1; 'if' at line 2 seems to have "
                     "no `end`") == 0);
  CHECK(ran.out.find("field.lua:1: error: policy: there is no field 'inpts'; did you mean 'inputs'? (fields: ") !=
        std::string::npos);
  CHECK(ran.out.find("repair.lua: ok\n") != std::string::npos);
  CHECK(ran.err ==
        "triage check: cannot read \"missing.lua\": there is no such file\n    cannot read \"gone.lua\": there is no "
        "such file\n");
  const Ran json = triage({"check", "repair.lua", "missing.lua", "--json"});
  CHECK(json.status == 2);
  const nlohmann::json files = parse_json(json.out)["files"];
  CHECK(files[0]["ok"] == true);
  CHECK(files[1]["ok"] == false);
  CHECK(files[1]["errors"][0]["message"] == "cannot read \"missing.lua\": there is no such file");
}

TEST_CASE("explain shows the graph, its plain form and its guards") {
  Scene triage;
  Ran ran = triage({"explain", "repair.lua", "--input", "z=randn:4x8", "--decomposed", "--guards"});
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.out.rfind("repair\n  graphs        1\n  graph breaks  0\n  ops           ", 0) == 0);
  size_t graph = ran.out.find("\ngraph 1\n"), decomposed = ran.out.find("\ngraph 1 in plain ATen, "),
         guards = ran.out.find("\nguards of graph 1\n");
  REQUIRE((graph < decomposed && decomposed < guards && guards != std::string::npos));
  CHECK(ran.out.substr(graph, decomposed - graph).find("triage::fix") != std::string::npos);
  CHECK(ran.out.substr(graph, decomposed - graph).find("repair.lua:4") != std::string::npos);
  CHECK(ran.out.substr(decomposed, guards - decomposed).find("triage::") == std::string::npos);
  CHECK(ran.out.substr(decomposed, guards - decomposed).find("aten::where") != std::string::npos);
  nlohmann::json json = triage({"explain", "repair.lua", "--input", "z=randn:4x8", "--json"}).json();
  CHECK(keys_of(json) == std::vector<std::string>{"backend", "breaks", "cache", "codes", "compile_times", "fused_loops",
                                                  "graph_breaks", "graphs", "inputs", "ops", "output_ranges", "params",
                                                  "policy", "unmasked_rows"});
  CHECK(keys_of(json["compile_times"]) == std::vector<std::string>{"backend", "capture"});
  CHECK(json["compile_times"]["capture"] > 0);
  CHECK(keys_of(json["cache"]) == std::vector<std::string>{"bytes", "graphs", "retired", "segments"});
  CHECK(json["cache"]["graphs"] == 1);
  CHECK(json["cache"]["bytes"] > 1000);
  CHECK(keys_of(json["graphs"][0]) == std::vector<std::string>{"graph", "guards", "op_names", "ops"});
  CHECK(json["graphs"][0]["op_names"].size() == json["graphs"][0]["ops"]);
  CHECK(json["graph_breaks"].empty());
}

TEST_CASE(
    "D14: explain --loops names each part of a fused graph, what it reads and writes, sizes, its body, and its tape") {
  Scene triage;
  write_bytes(triage.folder / "mixed.lua",
              "return function(z)\n  local y = (z * 2):exp()\n  y = y / y:sum(-1, true)\n  return y:sort(-1)\nend\n");
  const Ran ran = triage({"explain", "mixed.lua", "--input", "z=ones:4x8", "--loops"});
  CAPTURE(ran.out);
  CHECK(ran.status == 0);
  for (const char* part :
       {"\nfusion groups of graph 1\nloops over rows: aten::mul.Scalar, aten::exp, aten::sum.dim_IntList, "
        "aten::div.Tensor\n  reads  %z: f32[4, 8]  a row is [8]\n  writes %",
        "\n  body, for each row\n    v0 = load %z  # float, each of [8]\n", " by +  # float, a row\n", "\n    store v",
        " tape of ", "   loop over [8]\n", "mixed.lua:2\n", "\ninterpreter: aten::sort\n  reads  %", "\n  took   ",
        "\nlines of the script: us, share of ", " %  mixed.lua:4\n"})
    CHECK_MESSAGE(ran.out.find(part) != std::string::npos, part);
  const nlohmann::json times =
      triage({"explain", "mixed.lua", "--input", "z=ones:4x8", "--loops", "--json"}).json()["times"];
  double shares = 0;
  for (const auto& line : times["lines"]) shares += line["share"].get<double>();
  CHECK(shares == doctest::Approx(1));
  const auto& parts = times["graphs"][0]["parts"];
  REQUIRE(parts.size() == 2);
  CHECK(parts[1]["source"] == "mixed.lua:4");
  CHECK(parts[1]["steps"].empty());
  for (size_t step = 0; step < parts[0]["steps"].size(); ++step) CHECK(parts[0]["steps"][step]["step"] == step);
}

TEST_CASE("run and explain count the graphs between graph breaks") {
  Scene triage;
  write_bytes(triage.folder / "broken.lua",
              "return function(z)\n  local y = z * 2 + 1\n  if y:sum():item() > 0 then y = y + 1 end\n  return "
              "y:relu():tanh()\nend\n");
  const Ran ran = triage({"explain", "broken.lua", "--input", "z=ones:4x8", "--guards"});
  CAPTURE(ran.out);
  CHECK(ran.out.rfind("broken\n  graphs        2\n  graph breaks  1\n  ops           6\n  cache         ", 0) == 0);
  CHECK(ran.out.find("graph broken_segment_2(") != std::string::npos);
  CHECK(ran.out.find("\nops per graph\n  1: aten::mul.Scalar, aten::add.Scalar, aten::sum\n  2: aten::add.Scalar, "
                     "aten::relu, aten::tanh\n") != std::string::npos);
  CHECK(std::regex_search(ran.out, std::regex("\n  compile time  capture [0-9.]+ ms, backend [0-9.]+ ms\n")));
  CHECK(ran.out.find("# broken.lua:4") != std::string::npos);
  const std::string report =
      "\nbreak 1: broken.lua:3: graph break: `item` reads a value of a tensor\n      Explanation: ";
  const std::string place =
      "(TB0001)\n\n    from user code:\n      broken.lua:3\n        if y:sum():item() > 0 then y = y + 1 end\n";
  const Ran once = triage({"run", "broken.lua", "--input", "z=ones:4x8", "--repeat", "3"});
  for (const std::string& out : {ran.out, once.out}) {  // the same of both
    CHECK(out.find(report) != std::string::npos);
    CHECK(out.find(place) != std::string::npos);
  }
  const nlohmann::json breaks = triage({"explain", "broken.lua", "--input", "z=ones:4x8", "--json"}).json()["breaks"];
  REQUIRE(breaks.size() == 1);
  CHECK(keys_of(breaks[0]) ==
        std::vector<std::string>{"explanation", "file", "hint", "id", "line", "user_code", "what"});
  CHECK(breaks[0]["id"] == "TB0001");
  CHECK(breaks[0]["line"] == 3);
  const nlohmann::json json = triage({"run", "broken.lua", "--input", "z=ones:4x8", "--repeat", "3", "--json"}).json();
  CHECK(json["graphs"] == 2);
  CHECK(json["ops"] == 6);
  CHECK(json["graph_breaks"] == 1);
}

TEST_CASE("version names what it runs on") {
  Scene triage;
  Ran ran = triage({"version"});
  CHECK(ran.status == 0);
  std::regex form(
      "triage [0-9.]+\n  LibTorch  [0-9.]+[^ ]*  /.*libtorch.*\n  Lua       5\\.4\\.[0-9]+  /.*liblua5\\.4-c\\+\\+.*\n"
      "  compiler  .*\n  CPU       .+\n  threads   [0-9]+\n");
  CAPTURE(ran.out);
  CHECK(std::regex_match(ran.out, form));
  nlohmann::json json = triage({"version", "--json"}).json();
  CHECK(keys_of(json) == std::vector<std::string>{"compiler", "cpu", "libtorch", "libtorch_headers", "libtorch_library",
                                                  "lua", "lua_library", "threads", "triage"});
  CHECK(json["triage"] == TRIAGE_VERSION);
  CHECK(json["libtorch"] == json["libtorch_headers"]);
}

TEST_CASE("help COMMAND is COMMAND --help, and -V is --version") {
  Scene triage;
  CHECK(triage({"help"}).out == triage({"--help"}).out);
  for (const std::string command : {"run", "check", "doctor", "help"}) {
    const Ran help = triage({"help", command});
    CHECK(help.status == 0);
    CHECK(help.out == triage({command, "--help"}).out);
  }
  check_message(triage({"help", "rnu"}), 2, "triage help", {"there is no command \"rnu\"; did you mean \"run\"?"});
  CHECK(triage({"-V"}).out == triage({"--version"}).out);
}

TEST_CASE("errors are one JSON object under --json, with the exit status of the text") {
  Scene triage;
  write_bytes(triage.folder / "fails.lua", "return function(z)\n  error('too bad')\nend\n");
  struct Case {
    std::vector<std::string> arguments;
    int status;
    const char *kind, *message;
  };
  for (const Case& now :
       std::vector<Case>{{{"run", "none.lua"}, 2, "file", "there is no such file"},
                         {{"run", "repair.lua"}, 2, "usage", "needs the input \"z\""},
                         {{"run"}, 2, "usage", "POLICY"},
                         {{"rnu"}, 2, "usage", "did you mean \"run\""},
                         {{"run", "repair.lua", "--imput", "z=ones:2"}, 2, "usage", "--imput"},
                         {{"bench", "none.lua"}, 2, "file", "none.lua"},
                         {{"explain", "repair.lua", "-i", "z=zeros:2x2", "--backend", "x"}, 2, "usage", "no backend"},
                         {{"run", "fails.lua", "-i", "z=ones:2x2"}, 1, "policy", "too bad"}}) {
    std::vector<std::string> arguments = now.arguments;
    CAPTURE(now.message);
    const Ran text = triage(arguments);
    arguments.emplace_back("--json");
    const Ran ran = triage(arguments);
    CAPTURE(ran.out);
    CHECK(ran.status == now.status);
    CHECK(text.status == now.status);
    CHECK(ran.err.empty());
    const nlohmann::json json = ran.json();
    CHECK(keys_of(json) == std::vector<std::string>{"command", "error", "ok", "status"});
    CHECK(json["ok"] == false);
    CHECK(json["status"] == now.status);
    CHECK(keys_of(json["error"]) == std::vector<std::string>{"file", "kind", "line", "message", "traceback"});
    CHECK(json["error"]["kind"] == now.kind);
    CHECK(json["error"]["message"].get<std::string>().find(now.message) != std::string::npos);
    CHECK(text.err.find(json["error"]["message"].get<std::string>()) != std::string::npos);
  }
  const nlohmann::json failed = triage({"run", "fails.lua", "-i", "z=ones:2x2", "--json"}).json()["error"];
  CHECK(failed["file"] == "fails.lua");
  CHECK(failed["line"] == 2);
}

TEST_CASE("a script and a policy may come from the command line and from standard input") {
  Scene triage;
  const auto piped = [&](const std::string& text, const std::string& arguments) {
    write_bytes(triage.folder / "in", text);
    const int status = std::system(("cd " + shell_quoted(triage.folder.path().string()) + " && " +
                                    shell_quoted(program_path()) + " " + arguments + " < in > out 2> err")
                                       .c_str());
    return Ran{WEXITSTATUS(status), read_bytes(triage.folder / "out"), read_bytes(triage.folder / "err")};
  };
  const Ran code = triage({"exec", "-e", "print(arg[1], ...)", "-x", "two words"});
  CHECK(code.out == "-x\t-x\ttwo words\n");
  CHECK(triage({"exec", "-e", "print(1)"}).out == "1\n");
  const Ran wrong = triage({"exec", "-e", "error('no')"});
  CHECK(wrong.status == 1);
  CHECK(wrong.err.find("triage exec: (command line):1: no") == 0);
  check_message(triage({"exec"}), 2, "triage exec", {"SCRIPT is required, or -e CODE"});
  CHECK(piped("print(2, ...)", "exec - a").out == "2\ta\n");
  CHECK(piped("oops(", "exec -").err.find("triage exec: stdin:1: ") == 0);
  const std::string policy = "return function(z) return z * 2 end";
  CHECK(piped(policy, "check -").out == "stdin.lua: ok\n");
  CHECK(piped("x = = 1", "check -").out.find("stdin.lua:1:5: error: ") == 0);
  for (const std::string command : {"run - -i z=ones:2x2", "explain - -i z=ones:2x2",
                                    "bench - -i z=ones:2x2 --seconds 0", "export - -i z=ones:2x2"}) {
    CAPTURE(command);
    CHECK(piped(policy, command).status == 0);
  }
}

TEST_CASE("check looks at all policies of a folder") {
  Scene triage;
  std::filesystem::create_directories(triage.folder / "all/deep");
  write_bytes(triage.folder / "all/deep/b.lua", "return function(z) return z end\n");
  write_bytes(triage.folder / "all/a.lua", "return 3\n");
  write_bytes(triage.folder / "all/notes.txt", "no policy");
  const Ran ran = triage({"check", "all", "repair.lua"});
  CAPTURE(ran.out);
  CHECK(ran.status == 1);
  CHECK(ran.out.find("all/a.lua") == 0);
  CHECK(ran.out.find("\nall/deep/b.lua: ok\nrepair.lua: ok\n") != std::string::npos);
  std::filesystem::create_directory(triage.folder / "none");
  check_message(triage({"check", "none"}), 2, "triage check", {"no file ends in .lua"});
}

TEST_CASE("options, commands and variables of earlier versions say that they are gone") {
  Scene triage;
  for (const char* command : {"run", "explain", "isolate", "verify", "bench", "exec", "repl", "replay", "watch"}) {
    CAPTURE(std::string(command));
    check_message(triage({command, "--compiler", "off", "repair.lua"}), 2, std::string("triage ") + command,
                  {"`--compiler` is gone, and nothing replaces it"});
  }
  check_message(triage({"run", "repair.lua", "--compiler=off"}), 2, "triage run", {"`--compiler` is gone"});
  check_message(triage({"bench", "repair.lua", "--kernels", "a.so"}), 2, "triage bench", {"`--kernels` is gone"});
  check_message(triage({"build", "repair.lua", "-o", "a.so"}), 2, "triage", {"`triage build` is gone"});
  check_message(triage({"cache"}), 2, "triage", {"`triage cache` is gone"});
  const Variable compiler("TRIAGE_CXX", "g++"), cache("TRIAGE_KERNEL_CACHE", "/nowhere"),
      repros("TRIAGE_REPRO_DIR", "/nowhere");
  const Ran ran = triage({"run", "repair.lua", "-i", "z=randn:8x4"});
  CHECK(ran.status == 0);
  CHECK(has(ran.err, "TRIAGE_CXX, TRIAGE_KERNEL_CACHE are gone, and nothing replaces them"));
  CHECK(has(ran.err, "TRIAGE_REPRO_DIR is gone: TRIAGE_DEBUG_DIR names that folder, too"));
  CHECK(ran.err.find("are gone") == ran.err.rfind("are gone"));  // once
}

TEST_CASE("exec runs a trusted script with its arguments") {
  Scene triage;
  write_bytes(triage.folder / "hello.lua",
              "print(arg[0], #arg, arg[1], arg[2], ...)\nio.write(os.getenv('HOME') and 'yes' or 'no', '\\n')\n");
  Ran ran = triage({"exec", "hello.lua", "--json", "two words"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.out.rfind("hello.lua\t2\t--json\ttwo words\t--json\ttwo words\n", 0) == 0);
  write_bytes(triage.folder / "fails.lua", "local function inner()\n  error('on purpose')\nend\ninner()\n");
  Ran failed = triage({"exec", "fails.lua"});
  CHECK(failed.status == 1);
  CHECK(failed.err.rfind("triage exec: fails.lua:2: on purpose", 0) == 0);
  CHECK(failed.err.find("traceback") != std::string::npos);
}

TEST_CASE("scripts that print do not spoil --json") {
  Scene triage;
  write_bytes(triage.folder / "chatty.lua", "print('loading')\nreturn function(z) return z + 1 end");
  Ran ran = triage({"run", "chatty.lua", "--input", "z=ones:2", "--json"});
  CHECK(ran.json()["policy"] == "chatty");
  CHECK(ran.err == "print: loading\n");
}

TEST_CASE("watch tells of each change until it is stopped") {
  Scene triage;
  std::string log = triage.folder / "log";
  std::string command = "cd " + shell_quoted(triage.folder.path().string()) + " && exec " +
                        shell_quoted(program_path()) + " watch . --json --debounce 10 > log 2>&1";
  pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  auto wait_for = [&](const std::string& text) {
    for (int i = 0; i < 500; ++i) {
      if (read_bytes(log).find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  };
  CHECK(wait_for("\"loaded\""));
  // The watch starts after the loading is told; an edit in between is found too, as a reload.
  write_bytes(triage.folder / "repair.lua", std::string(repair) + "-- edited\n");
  CHECK(wait_for("\"reloaded\""));
  write_bytes(triage.folder / "repair.lua", "return function(z) return z +\n");
  CHECK(wait_for("\"refused\""));
  std::filesystem::remove(triage.folder / "repair.lua");
  CHECK(wait_for("\"deleted\""));
  // A file that has never loaded is tried again when it changes.
  write_bytes(triage.folder / "second.lua", "return function(z) return z +\n");
  CHECK(wait_for("\"path\":\"./second.lua\",\"message\""));
  write_bytes(triage.folder / "second.lua", "return function(z) return z end\n");
  CHECK(wait_for("\"path\":\"./second.lua\",\"version\""));
  // ... and when the module comes that it misses.
  write_bytes(triage.folder / "third.lua", "local m = require 'm'\nreturn function(z) return z * m.k end\n");
  CHECK(wait_for("\"path\":\"./third.lua\",\"message\""));
  std::filesystem::create_directory(triage.folder / "lib");
  write_bytes(triage.folder / "lib/m.lua", "return {k = 2}\n");
  CHECK(wait_for("\"path\":\"./third.lua\",\"version\""));
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  std::string text = read_bytes(log);
  CAPTURE(text);
  std::vector<nlohmann::json> lines;
  for (size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    lines.push_back(parse_json(text.substr(start, end - start)));
  }
  REQUIRE(lines.size() >= 6);
  CHECK(lines[0]["event"] == "loaded");
  CHECK(lines[0]["version"] == 1);
  CHECK(lines[1]["event"] == "reloaded");
  CHECK(lines[1]["version"] == 2);
  CHECK(lines[1]["hash"] != lines[0]["hash"]);
  CHECK(lines[2]["event"] == "refused");
  CHECK(lines[2]["line"].get<int>() >= 1);
  CHECK(lines[3]["event"] == "deleted");
}

TEST_CASE("check names what does not exist, with its place and a guess") {
  Scene triage;
  const auto check = [&](const std::string& source) {
    write_bytes(triage.folder / "mine.lua", source);
    return triage({"check", "mine.lua"});
  };
  const auto says = [&](const std::string& source, const std::string& line) {
    Ran ran = check(source);
    CAPTURE(source);
    CAPTURE(ran.out);
    CAPTURE(ran.err);
    CHECK(ran.status == (ran.out.find(": error: ") == std::string::npos ? 0 : 1));
    CHECK(ran.out.find(line) != std::string::npos);
  };
  const std::string sandbox = "(the sandbox: no os, io, debug); trusted scripts run with triage exec\n";
  says("return function(z)\n  local f = flag_nan_and_imf(z, 'x')\n  return z, f\nend\n",
       "mine.lua:2:13: error: there is no 'flag_nan_and_imf' in a policy; did you mean 'flag_nan_and_inf'?\n");
  says("return function(z)\n  return z:to(float32)\nend\n",
       "mine.lua:2:15: error: there is no 'float32' in a policy; did you mean 'torch.float32'?\n");
  says("return function(z)\n  return y, z\nend\n", "mine.lua:2:10: error: there is no 'y' in a policy\n");
  says("return function(z)\n  local t = os.time()\n  return z\nend\n",
       "mine.lua:2:13: error: policies have no 'os' " + sandbox);
  says("return function(z)\n  io.write('x')\n  return z\nend\n",
       "mine.lua:2:3: error: policies have no 'io' " + sandbox);
  says("return function(z)\n  return z, err.new(z), find(err.OUT_OF_BOUND, err.new(z))\nend\n",
       "mine.lua:2:30: error: err has no 'OUT_OF_BOUND'; did you mean 'OUT_OF_BOUNDS'?\n");
  says("return function(z)\n  return z * math.flor(2.5)\nend\n",
       "mine.lua:2:14: error: math has no 'flor'; did you mean 'floor'");
  says("return function(z)\n  return torch.nan_to_nun(z)\nend\n", "mine.lua:2:10: error: ");
  says("return policy { params = { limit = 2.0 },\n  run = function(z, p) return z * p.lmit end }\n",
       "mine.lua:2:35: error: there is no param 'lmit'; did you mean 'limit'?\n");
  says("return policy { params = { limit = 2.0 }, run = function(z) return z end }\n",
       "write run = function(z, p), or name the inputs, as in inputs = { \"z\" }\n");
  says("return function(z)\n  if jit then return z end\n  return z\nend\n",
       "mine.lua:2:6: warning: there is no 'jit' in a policy\n");
}

TEST_CASE("check is content with every name that a policy may use") {
  Scene triage;
  write_bytes(triage.folder / "fine.lua", R"(
function twice(z) return z * 2 end
local host = lookup
return policy {
  params = { limit = 2.0 },
  run = function(z, p)
    local f = push(err.new(z), err.VALUE_CLAMPED, "here", {where = z:flatten(1):any(-1)})
    local ok, value = pcall(function() return math.huge + select("#", string.format("%d", 3)) end)
    f = flag_nan(z, nil, f)
    return torch.linalg.vector_norm(twice(z), 2, {1}, true) * p.limit + lookup(z), f
  end,
  tests = {{ name = "n", args = function() return torch.ones({2, 2}) end, check = function(z) return _VERSION ~= nil end }},
}
)");
  Ran unknown = triage({"check", "fine.lua"});
  CAPTURE(unknown.out);
  CHECK(unknown.status == 1);
  CHECK(unknown.out.find("there is no 'lookup' in a policy") != std::string::npos);
  Ran defined = triage({"check", "fine.lua", "--define", "lookup"});
  CAPTURE(defined.out);
  CAPTURE(defined.err);
  CHECK(defined.status == 0);
  CHECK(defined.out.find("error") == std::string::npos);
  CHECK(defined.out.find("there is no") == std::string::npos);
}

TEST_CASE("messages end with one mark, and leave out tracebacks that hold no line of a script") {
  Scene triage;
  Ran guess = triage({"rnu"});
  CHECK(guess.err.find("did you mean \"run\"? See") != std::string::npos);
  write_bytes(triage.folder / "one.lua",
              "return policy { outputs = {\"z\", \"f\"},\n  run = function(z) return z end }\n");
  check_message(triage({"run", "one.lua", "--input", "z=ones:2x3"}), 1, "triage run",
                {"one.lua:2: `run` returned 1 value, and outputs = {\"z\", \"f\"} names 2"});
}
