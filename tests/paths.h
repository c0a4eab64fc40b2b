#pragma once
#include <string>

namespace triage::test {

/// The folder of the sources. Only tests/main.cpp is compiled with the path: the objects of all other tests are the
/// same in every clone, and a compiler cache serves them.
const std::string& source_dir();

}  // namespace triage::test
