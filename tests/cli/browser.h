#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/cli/program.h"

/// A page as a browser shows it: the document after its scripts ran, and what they complained of.
struct Shown {
  std::string document, complaints;
};

inline bool has_browser() {
  if (std::system("chromium --version > /dev/null 2>&1") == 0) return true;
  MESSAGE("skipped: there is no chromium");
  return false;
}

inline Shown show(const TemporaryFolder& folder, const std::string& page, const std::string& fragment) {
  const TemporaryFolder profile;
  const std::string command = "cd " + shell_quoted(folder.path().string()) +
                              " && timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage"
                              " --user-data-dir=" +
                              shell_quoted(profile / "profile") +
                              " --enable-logging=stderr --v=0 --virtual-time-budget=5000 --dump-dom " +
                              shell_quoted("file://" + (folder / page) + fragment) + " > shown.html 2> shown.log";
  REQUIRE(std::system(command.c_str()) == 0);
  Shown shown{read_bytes(folder / "shown.html"), ""};
  std::istringstream log(read_bytes(folder / "shown.log"));
  for (std::string line; std::getline(log, line);)
    if (has(line, "CONSOLE")) shown.complaints += line + "\n";
  return shown;
}

/// The same with a script of the test behind the page's own.
inline Shown show_with(const TemporaryFolder& folder, std::string page, const std::string& fragment,
                       const std::string& code) {
  page.insert(page.rfind("</body>"), "<script>" + code + "</script>\n");
  write_bytes(folder / "tried.html", page);
  return show(folder, "tried.html", fragment);
}
