#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// Elements by position. That positions lie within the tensor is for the kernels to check, and these do.
namespace triage::operators {
namespace {

using cost::copying;

constexpr Cost indexed{cost::indexed, 20, cost::indexed_work};
constexpr Cost composed{cost::eightfold, 50};

constexpr Row rows[] = {
    {"index", "Tensor", "self: any; indices: real len:0..16", indexed, relation::indexes},
    {"index_put", "_ .", "self: any apart; indices: real len:0..16; values: any like:self", indexed, relation::indexes},
    // of a 0-dim tensor and an empty index, LibTorch 1.13 gives memory that nobody wrote; so do the gradients of the others
    {"index_select", ".", "self: any rank:1..16; index: index rank:0..1", indexed},
    {"index_add", "_ .", "self: apart rank:1..16; index: index rank:0..1; source: like:self", copying},
    {"index_copy", "_ .", "self: any apart rank:1..16; index: int64 rank:0..1; source: any like:self", copying},
    {"index_fill",
     "_ int_Scalar int_Tensor",
     "self: any apart rank:1..16; index: int64 rank:0..1; value: rank:0..0",
     {cost::twice_given, 10, cost::indexed_work}},
    {"gather", ".", "self: any; index: int64; sparse_grad: false", indexed},
    {"scatter", "_ src value", "self: any apart; index: int64; src: any like:self", copying},
    {"scatter", "_ reduce value_reduce", "self: number apart; index: int64; src: like:self; reduce: one:add|multiply",
     copying},
    {"scatter_add", "_ .", "self: apart; index: int64; src: like:self", copying},
    {"scatter_reduce", "_ two", "self: number apart; index: int64; src: like:self; reduce: one:sum|prod|mean|amax|amin",
     composed},
    {"take", ".", "self: any; index: int64", indexed},
    {"take_along_dim", ".", "self: any; indices: int64", {cost::broadcast_eightfold, 50}},
    {"put", "_ .", "self: apart; index: int64; source: like:self", composed},
    {"masked_scatter", "_ .", "self: any apart; mask: bool; source: any like:self", {cost::broadcast_eightfold, 50}},
    {"masked_select", ".", "self: any; mask: bool", {cost::broadcast_eightfold, 50}},
    {"nonzero argwhere", ".", "", {cost::positions, 50}},
    {"where", ".", "", {cost::positions, 50}},
    {"embedding", ".",
     "weight: float rank:2..2; indices: index; padding_idx: offset; scale_grad_by_freq: false; sparse: false", indexed},
    {"one_hot", ".", "self: int64 rank:0..15; num_classes: 1..2147483647", {cost::one_hot, 20, cost::one_hot_work}},
    {"bucketize", "Tensor Scalar", "boundaries: number rank:1..1", {cost::eightfold, 100}},
    {"searchsorted",
     "Tensor Scalar",
     "*: number; sorted_sequence: rank:1..16; side: one:left|right; sorter: absent",
     {cost::eightfold, 100}},
    {"isin", "Tensor_Tensor Tensor_Scalar Scalar_Tensor", "*: number", {cost::eightfold, 1000}},
};

}  // namespace

Rows indexing_rows() { return rows; }

}  // namespace triage::operators
