#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "tests/paths.h"

#include <doctest/doctest.h>

const std::string& triage::test::source_dir() {
  static const std::string path = TRIAGE_SOURCE_DIR;
  return path;
}
