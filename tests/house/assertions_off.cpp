// TRIAGE_ASSERT where it is off, in whatever build.
#undef TRIAGE_ASSERTIONS
#include "runtime/messages/assert.h"
#include "tests/house/assertions.h"

int triage::test::evaluated_without_assertions() {
  int evaluated = 0;
  TRIAGE_ASSERT(++evaluated > 1);
  return evaluated;
}
