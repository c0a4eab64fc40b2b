// What a script, a file or a path says, as logs and terminals get it: one line a message, and nothing that acts on a
// terminal.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <sstream>

#include "runtime/messages/printable.h"
#include "tests/logs.h"

using triage::messages::one_line;
using triage::messages::printable;

namespace {

struct Log {
  std::ostringstream text;
  triage::RuntimeOptions options() {
    triage::RuntimeOptions options;
    options.log = triage::test::log_to(text);
    return options;
  }
  /// Every line is a message of ours, and none has a byte that a terminal acts on.
  bool is_sound() const {
    std::istringstream lines(text.str());
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      CHECK(line.rfind("[", 0) == 0);
      CHECK(line.find("'repair") != std::string::npos);
      for (const char c : line) CHECK((static_cast<unsigned char>(c) >= 0x20 && c != 0x7F));
    }
    return !text.str().empty();
  }
};

}  // namespace

TEST_CASE("text with control characters, marks of direction and bytes that are no UTF-8 is shown with escapes") {
  CHECK(printable("plain, \xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80") == "plain, \xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK(printable("a\nb\tc") == "a\nb\tc");
  CHECK(one_line("a\nb\tc\r") == "a\\nb\\tc\\r");
  CHECK(printable("\x1b[2J\x07\x7f\r") == "\\x1b[2J\\x07\\x7f\\r");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xC2\x9B"
                  "31m") == "\\u{9b}31m");  // an escape sequence of one character
  CHECK(printable("\xE2\x80\xAE"
                  "fdp.lua") == "\\u{202e}fdp.lua");  // written from right to left
  CHECK(one_line("a\xE2\x80\xA8"
                 "b") == "a\\u{2028}b");  // a line end
  for (const char* bad : {"\xff", "\xC0\xAF", "\xE2\x82", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80"})
    CHECK(printable(bad).rfind("\\x", 0) == 0);
}

TEST_CASE("an error of a script is one line of the host's log, whatever its text") {
  Log log;
  triage::Runtime runtime(log.options());
  const std::string bad = "error('x\\n[date] [error] FORGED\\27[2J\\194\\155 \\255', 0)";
  const triage::Policy policy = runtime.load_source("return function(z) " + bad + " end", "repair.lua");
  CHECK_THROWS_AS(policy.run({at::ones({2, 2})}), triage::PolicyError);
  CHECK(policy.replace(bad) == triage::Reload::refused);
  CHECK(policy.replace("return function(z) end end\n[date] [error] FORGED") == triage::Reload::refused);
  CHECK(log.is_sound());
  CHECK(log.text.str().find("x\\n[date] [error] FORGED\\x1b[2J\\u{9b} \\xff") != std::string::npos);
}

TEST_CASE("a graph break is one line of the host's log") {
  Log log;
  triage::Runtime runtime(log.options());
  runtime.load_source("return function(z) if z:sum() > 3 then return z end return z * 2 end", "repair.lua")
      .run({at::ones({2, 2})});
  CHECK(log.is_sound());
}

TEST_CASE("what a policy prints does not act on a terminal, and has its lines") {
  std::string printed;
  triage::RuntimeOptions options;
  options.print = [&](const std::string& text) { printed += text + "|"; };
  triage::Runtime(options).load_source("print('a\\nb\\27[2J\\r', 1)\nreturn function(z) return z end");
  CHECK(printed == "a\nb\\x1b[2J\\r\t1|");
}

TEST_CASE("a `print` of the host that throws what is no error fails the script with words of ours") {
  triage::RuntimeOptions options;
  options.print = [](const std::string&) { throw 1; };
  CHECK_THROWS_WITH(triage::Runtime(options).load_source("print('y')\nreturn function(z) return z end"),
                    doctest::Contains("`print` of the host threw something that is not a std::exception"));
}

TEST_CASE("an error that is no text has the place where it was raised") {
  const std::string values[] = {"{}", "nil", "true", "{code = 3}",
                                "setmetatable({}, {__tostring = function() return 'x' end})"};
  for (const std::string& value : values) {
    CAPTURE(value);
    const std::string source =
        "local function fail()\n error(" + value + ")\nend\nreturn function(z)\n fail()\n return z end";
    const triage::Policy policy = triage::Runtime().load_source(source, "repair.lua");
    try {
      policy.run({at::ones({2, 2})});
      FAIL("nothing was thrown");
    } catch (const triage::PolicyError& error) {
      CHECK(error.source().file == "repair.lua");
      CHECK(error.source().line == 2);
      CHECK(std::string(error.what()).rfind("repair.lua:2: (error object is a ", 0) == 0);
    }
    const triage::Policy live = triage::Runtime().load_source("return function(z) return z end", "live.lua");
    CHECK(live.replace("local n = 1\nerror(" + value + ")") == triage::Reload::refused);
    REQUIRE(live.version().last_error);
    CHECK(live.version().last_error->source.line == 2);
    CHECK(live.version().last_error->message.rfind("live.lua:2: ", 0) == 0);
  }
}

TEST_CASE("a text without a place stays as its author wrote it; the error has the place") {
  const triage::Policy policy = triage::Runtime().load_source("return function(z)\n error('bad', 0) end", "repair.lua");
  try {
    policy.run({at::ones({2, 2})});
    FAIL("nothing was thrown");
  } catch (const triage::PolicyError& error) {
    CHECK(std::string(error.what()) == "bad");
    CHECK(error.source().line == 2);
  }
}

TEST_CASE("quantized values are not told to be complex") {
  const triage::Policy policy =
      triage::Runtime().load_source("return function(z) z:totable() return z end", "repair.lua");
  try {
    policy.run({at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQUInt8)});
    FAIL("nothing was thrown");
  } catch (const triage::PolicyError& error) {
    CHECK(std::string(error.what()).find("Lua has no quantized numbers") != std::string::npos);
  }
}

TEST_CASE("a source that is no Lua: the message says what it looks like") {
  const auto message = [](const std::string& source) -> std::string {
    try {
      triage::Runtime().load_source(source, "policy.lua");
      return "(it loads)";
    } catch (const triage::LoadError& error) {
      return error.what();
    }
  };
  const std::pair<std::string, const char*> sources[] = {
      {"{\"inputs\": [\"z\"]}", "JSON text"},
      {"\n[1, 2]", "JSON text"},
      {"<!DOCTYPE html>\n<html></html>", "an HTML page"},
      {"<?xml version='1.0'?>", "XML text"},
      {"import torch\n\ndef run(z):\n    return z\n", "a Python script"},
      {"\"\"\"A model.\"\"\"\nfrom torch import nn\n", "a Python script"},
      {std::string("PK\3\4\0\0\0\0data", 12), "a zip archive, as .pt files are"},
      {"\x80\x02}q.", "a Python pickle"},
      {"\x93NUMPY\1", "a NumPy .npy file"},
      {std::string("\x1bLuaT\0\x19\x93", 8), "compiled Lua"},
      {std::string("\0\1\2\3\4", 5), "data of an unknown format"},
      {std::string("\xff\xferet", 5), "UTF-16 text"},
  };
  for (const auto& [source, what] : sources) {
    const std::string said = message(source);
    CAPTURE(said);
    CHECK(said.find("policy.lua:") == 0);
    CHECK(said.find("looks like " + std::string(what) + ", not like a script in Lua") != std::string::npos);
  }
  for (const char* lua :
       {"return function(z return z end", "{ run = 1 }", "-- \xC3\xA9t\xC3\xA9\nreturn functio(z) end end"}) {
    const std::string said = message(lua);
    CAPTURE(said);
    CHECK(said.find("looks like") == std::string::npos);
  }
}
