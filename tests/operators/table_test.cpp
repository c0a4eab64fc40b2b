// The table of contracts itself.
#include <doctest/doctest.h>

#include "runtime/operators/contract.h"
#include "runtime/operators/table_faults.h"

using namespace triage::operators;

TEST_CASE("every row of the table of contracts says all that it has to say") {
  for (const std::string& fault : table_faults()) FAIL_CHECK(fault);
  CHECK(all_contracts().size() > 300);
}
