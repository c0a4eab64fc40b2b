// The table of operators itself.
#include <doctest/doctest.h>

#include "runtime/operators/contract.h"
#include "runtime/operators/table/words.h"
#include "runtime/operators/table_faults.h"

using namespace triage::operators;

namespace {

const Semantics& semantics_of(const char* name, const char* overload) {
  return triage::operators::semantics_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

}  // namespace

TEST_CASE("every row of the table of operators says all that it has to say") {
  for (const std::string& fault : table_faults()) FAIL_CHECK(fault);
  CHECK(all_contracts().size() > 300);
}

TEST_CASE("the words of a row are the semantics that capture, passes and backends read") {
  constexpr Does does = "elementwise moves_records no_gradient number:not_equal masked:kept";
  CHECK(does.semantics().sizes == ResultSizes::broadcast);
  CHECK(does.semantics().has(Semantics::moves));  // whole records are elements
  CHECK(does.semantics().has(Semantics::no_gradient));
  CHECK_FALSE(does.semantics().has(Semantics::random));
  CHECK(does.semantics().arithmetic == Arithmetic::not_equal);
  CHECK(does.semantics().masked_rows == MaskedRows::kept);
  CHECK(std::string(sign(Arithmetic::floor_divide)) == "//");
}

TEST_CASE("overloads of one name have semantics of their own, in-place forms those of the other form") {
  CHECK(semantics_of("aten::where", "").has(Semantics::dynamic));
  CHECK(semantics_of("aten::where", "self").sizes == ResultSizes::broadcast);
  CHECK(semantics_of("aten::div", "Tensor_mode").has(Semantics::quotient));
  CHECK_FALSE(semantics_of("aten::div", "Tensor").has(Semantics::quotient));
  CHECK(semantics_of("aten::mul_", "Scalar").sizes == ResultSizes::broadcast);
  CHECK(semantics_of("aten::mul", "out").sizes == ResultSizes::unknown);  // no row has it
}
