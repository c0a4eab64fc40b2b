#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "tests/cli/program.h"

/// `unshare` with options, as this user may use it; empty, with a message, where they may not. `works` says what must work.
inline std::string unshare(const std::string& options, const std::string& works) {
  for (const char* more : {"", " --user --map-root-user"})
    if (const std::string way = "unshare" + std::string(more) + " " + options;
        std::system((way + " sh -c " + shell_quoted(works) + " > /dev/null 2>&1").c_str()) == 0)
      return way;
  MESSAGE("left out: this user may not use `unshare ", options, "`");
  return "";
}
