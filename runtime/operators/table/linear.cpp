#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// Linear algebra.
namespace triage::operators {
namespace {

constexpr Cost product{cost::matrix_product, 1, cost::matrix_product_work};
constexpr Cost decomposition{cost::eightfold, 2, cost::cubic_work};

constexpr Row rows[] = {
    {"mm", ".", "*: number rank:2..2", product},
    {"bmm", ".", "*: number rank:3..3", product},
    {"mv", ".", "*: number; self: number rank:2..2; vec: number rank:1..1", product},
    {"dot vdot inner", ".", "*: number", product},
    {"matmul linalg_matmul", ".", "*: number rank:1..16", product},
    {"outer ger", ".", "*: rank:1..1", product},
    {"addmm", "_ .", "*: number; mat1: number rank:2..2; mat2: number rank:2..2; self: number apart", product},
    {"addmv", "_ .", "*: number; mat: number rank:2..2; vec: number rank:1..1; self: number apart", product},
    {"baddbmm", "_ .", "*: number; batch1: number rank:3..3; batch2: number rank:3..3; self: number apart", product,
     relation::adds_to_self},
    {"addbmm", ".", "*: number; batch1: number rank:3..3; batch2: number rank:3..3; self: number apart", product},
    {"linear", ".",
     "*: float; weight: float rank:1..2 like:input; bias: float rank:0..1 like:input; input: float rank:1..16",
     product},
    {"einsum",
     ".",
     "tensors: number; equation: any; path: absent",
     {cost::einsum, 1, cost::einsum_work},
     relation::einsum},
    {"cdist",
     ".",
     "*: single rank:2..16; p: 0..1000000; compute_mode: 0..2",
     {cost::distances, 5, cost::distance_work}},
    {"cross", ".", "*: number", {cost::broadcast_eightfold, 20}},
    {"linalg_cross", ".", "*: number", {cost::broadcast_eightfold, 20}},
    {"linalg_cholesky linalg_cholesky_ex cholesky", ".", "*: single rank:2..16", decomposition},
    {"linalg_inv linalg_inv_ex inverse linalg_det det linalg_slogdet slogdet logdet", ".", "*: single rank:2..16",
     decomposition},
    {"linalg_solve", ".", "*: single rank:1..16 like:A; A: rank:2..16", {cost::solutions, 2, cost::solutions_work}},
    {"linalg_qr", ".", "*: single rank:2..16; mode: one:reduced|complete|r", {cost::orthogonal, 2, cost::cubic_work}},
    {"linalg_diagonal", ".", "*: any rank:2..16; offset: offset", cost::view},
};

}  // namespace

Rows linear_rows() { return rows; }

}  // namespace triage::operators
