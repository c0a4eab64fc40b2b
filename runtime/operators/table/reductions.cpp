#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// What draws elements together, along dimensions or of the whole tensor, and what runs along one dimension.
namespace triage::operators {
namespace {

using cost::eightfold;
using cost::reducing;
using cost::sorting;

constexpr Cost of_each{eightfold, 50};

constexpr Row rows[] = {
    {"sum", ". dim_IntList", "", of_each},
    {"mean", ". dim", "", of_each},
    {"nansum nanmean", ".", "", of_each},
    {"prod", ". dim_int", "", reducing},
    {"amax amin", ".", "", reducing},
    {"max min", ". dim", "", reducing},
    {"aminmax argmax argmin", ".", "", reducing},
    {"all any", ". dim dims", "", reducing},
    {"std var std_mean var_mean", ". dim correction", "self: float; correction: -1000000..1000000", of_each},
    {"logsumexp special_logsumexp", ".", "", of_each},
    {"count_nonzero", ". dim_IntList", "", of_each},
    {"norm", "Scalar ScalarOpt_dim ScalarOpt_dtype ScalarOpt_dim_dtype", "self: float; dtype: float", of_each},
    {"linalg_vector_norm", ".", "self: float; dtype: float", of_each},
    {"linalg_norm", ".", "self: single; dtype: single", of_each, relation::vector_norm},
    {"linalg_matrix_norm", "str_ord", "self: single rank:2..16; ord: one:fro; dim: dims len:2..2; dtype: single",
     of_each},
    {"softmax log_softmax", "int", "dtype: float", of_each},
    {"special_softmax special_log_softmax", ".", "dtype: float", of_each},
    {"cumsum cumprod", "_ .", "", reducing},
    {"cummax cummin logcumsumexp", ".", "", of_each},
    {"sort", ". stable", "", sorting},
    {"argsort", ". stable", "", sorting},
    {"msort", ".", "", sorting},
    {"topk", ".", "k: 0..1099511627776", sorting},
    {"kthvalue", ".", "k: 1..1099511627776; self: unexpanded", {eightfold, 0.5, cost::selection_work}},
    {"median nanmedian", ". dim", "self: unexpanded", sorting},
    {"quantile nanquantile", "scalar",
     "self: single filled; q: 0..1; interpolation: one:linear|lower|higher|midpoint|nearest", sorting},
    {"quantile nanquantile",
     ".",
     "self: single filled; q: like:self filled rank:0..1; interpolation: one:linear|lower|higher|midpoint|nearest",
     {cost::quantiles, 300, cost::quantile_work}},
    {"diff", ".", "n: 0..64", {cost::repeated_difference, 20}},
    {"trace", ".", "", reducing},
};

}  // namespace

Rows reduction_rows() { return rows; }

}  // namespace triage::operators
