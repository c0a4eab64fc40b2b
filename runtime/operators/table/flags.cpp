#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/row.h"

/// Operators of triage itself. They check what they are given (runtime/flags/checks.h): the rows bound what they cost.
namespace triage::operators {
namespace {

constexpr Cost recording{cost::flags, 50, cost::flags_work};
constexpr Cost merging{cost::flags, 2, cost::merging_work};
constexpr Cost replacing{cost::flags, 2, cost::replacing_work};
constexpr Cost number{cost::twice_given, 100};
constexpr const char* kAny =
    "*: any; num_slots: any; dtype: any; location: any; severity: any; policy: any; code: any; codes: any; "
    "min_severity: any; domain: any; index: any; num_embeddings: any; integers: any len:0..100000";

constexpr Row rows[] = {
    {"new clear is_ok is_err has_critical all_ok any_err count_errors max_severity get_first_code "
     "get_first_location get_first_severity has_code has_domain get_slot match flag_nan flag_inf flag_nan_and_inf "
     "flag_oob_indices take_ok_p take_err_p select guard_grad",
     ".", kAny, recording, nullptr, "triage"},
    {"merge", ".", kAny, merging, nullptr, "triage"},
    {"replace", ".", kAny, replacing, nullptr, "triage"},
    {"push", ". where scalar", kAny, recording, nullptr, "triage"},
    {"fix", ". scalar", kAny, recording, nullptr, "triage"},
    {"math", ". Scalar Tensor", "*: any; function: any", number, nullptr, "triage"},
    {"item", ".", "*: any", number, nullptr, "triage"},
    {"size", ".", "*: any; dim: dim", number, nullptr, "triage"},
    {"assert_scalar", ".", "*: any; message: any", number, nullptr, "triage"},
    {"_assert_async", "msg", "*: any; assert_msg: any", number},
};

}  // namespace

Rows flags_rows() { return rows; }

}  // namespace triage::operators
