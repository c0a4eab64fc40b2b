#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// Tensors out of numbers, and random ones.
namespace triage::operators {
namespace {

constexpr Cost sized{cost::creation, 20, cost::creation_elements};
constexpr Cost alike{cost::twice_given, 20};

constexpr Row rows[] = {
    {"zeros ones rand randn", ".", "", sized},
    {"full", ".", "", sized},
    {"eye", ". m", "n: 0..1099511627776; m: 0..1099511627776", sized},
    {"arange", ". start start_step", "start: finite; end: finite; step: finite", sized},
    {"linspace", ".", "start: finite; end: finite; steps: 0..1099511627776; dtype: number", sized},
    {"logspace", ".", "start: finite; end: finite; steps: 0..1099511627776; base: finite; dtype: single", sized},
    {"randint", ". low", "low: any; high: any; dtype: number", sized},
    {"randperm", ".", "n: 0..1099511627776; dtype: number", sized},
    {"scalar_tensor", ".", "", sized},
    {"new_zeros new_ones new_full", ".", "", sized},
    {"zeros_like ones_like full_like rand_like randn_like", ".", "", alike},
    {"randint_like", ". low_dtype", "low: any; high: any; dtype: number", alike},
    {"bernoulli", ". p Tensor", "p: 0..1", {cost::broadcast_eightfold, 50}},
    {"bernoulli_", "float", "p: 0..1", {cost::broadcast_eightfold, 50}},
    {"normal",
     "Tensor_float float_Tensor Tensor_Tensor",
     "*: single; mean: finite; std: finite",
     {cost::broadcast_eightfold, 50}},
    {"normal", "float_float", "mean: finite; std: finite; dtype: float", sized},
    {"normal_ uniform_", ".", "self: float; mean: finite; std: finite; from: finite; to: finite", alike},
    {"dropout", "_ .", "input: float; self: float; p: 0..1", {cost::broadcast_eightfold, 50}},
    {"multinomial",
     ".",
     "self: single rank:1..2; num_samples: 1..1099511627776",
     {cost::multinomial, 100, cost::multinomial_work}},
};

}  // namespace

Rows creation_rows() { return rows; }

}  // namespace triage::operators
