#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// Views, copies, and tensors put together or apart. They move elements and look at none.
namespace triage::operators {
namespace {

using cost::copying;
using cost::view;

constexpr Row rows[] = {
    // views
    {"alias detach numpy_T", ".", "*: any", view},
    {"mT mH adjoint", ".", "*: any rank:2..16", view},
    {"t", ".", "*: any rank:0..2", view},
    {"real", ".", "*: any", view},
    {"imag view_as_real", ".", "*: complex", view},
    {"view_as_complex", ".", "*: single", view},
    {"resolve_conj resolve_neg", ".", "*: any", copying},
    {"view", ".", "*: any; size: inferred", view},
    {"view_as", ".", "*: any", view},
    {"expand broadcast_to", ".", "*: any; size: inferred", view},
    {"expand_as", ".", "*: any", view},
    {"squeeze", ". dim dims", "*: any", view},
    {"unsqueeze", ".", "*: any; dim: newdim", view},
    {"transpose", "int", "*: any", view},
    {"swapaxes swapdims", ".", "*: any", view},
    {"permute", ".", "*: any", view},
    {"movedim moveaxis", "int intlist", "*: any", view},
    {"select", "int", "*: any; index: any", view},
    {"slice", "Tensor", "*: any; start: any; end: any; step: 1..1048576", view},
    {"narrow", ".", "*: any; start: offset; length: 0..1099511627776", view},
    {"narrow", "Tensor", "*: any; start: whole rank:0..0; length: 0..1099511627776", view},
    {"unflatten", "int", "*: any; sizes: inferred len:1..16", view},
    {"diagonal", ".", "*: any rank:2..16; offset: offset", view},
    {"unfold", ".", "*: any; dimension: dim; size: 0..1099511627776; step: 1..1048576", view},
    {"chunk", ".", "*: any; chunks: 1..100000", view, relation::pieces},
    {"split", "Tensor", "*: any; split_size: 0..1099511627776", view, relation::pieces},
    {"split", "sizes", "*: any; split_size: 0..1099511627776 len:0..100000", view},
    {"split_with_sizes", ".", "*: any; split_sizes: 0..1099511627776 len:0..100000", view},
    {"tensor_split", "sections", "*: any; sections: 1..100000", view},
    {"tensor_split", "indices", "*: any; indices: offset len:0..100000", view},
    {"unbind", "int", "*: any rank:1..16", view, relation::pieces},
    {"atleast_1d atleast_2d atleast_3d", ".", "*: any", view},
    {"broadcast_tensors", ".", "*: any", view, relation::broadcasts},
    {"meshgrid", ".", "tensors: any rank:0..1 len:1..16", view, relation::meshes},
    {"meshgrid", "indexing", "tensors: any rank:0..1 len:1..16; indexing: one:ij|xy", view, relation::meshes},

    // views where they can be, copies where not
    {"reshape", ".", "*: any; shape: inferred", copying},
    {"reshape_as", ".", "*: any", copying},
    {"flatten", "using_ints", "*: any", copying},
    {"ravel", ".", "*: any", copying},
    {"contiguous clone", ".", "*: any", copying},
    {"to", "device dtype dtype_layout other", "*: any", {cost::conversion, 10}},
    {"type_as", ".", "*: any", {cost::conversion, 10}},

    // copies
    {"select_copy", "int", "*: any; index: any", copying},
    {"slice_copy", "Tensor", "*: any; start: any; end: any; step: 1..1048576", copying},
    {"unsqueeze_copy", ".", "*: any; dim: newdim", copying},
    {"select_scatter", ".", "*: any; index: any", copying},
    {"slice_scatter", ".", "*: any; start: any; end: any; step: 1..1048576", copying},
    {"diagonal_scatter", ".", "*: any; self: any rank:2..16; offset: offset", copying},
    {"copy_", ".", "*: any", {cost::conversion, 10}},
    {"fill", "_ Scalar Tensor", "*: any; value: rank:0..0", copying},
    {"zero", "_ .", "", copying},
    {"flip", ".", "*: any", copying},
    {"fliplr", ".", "*: any rank:2..16", copying},
    {"flipud", ".", "*: any rank:1..16", copying},
    {"roll", ".", "*: any; shifts: offset; dims: dims", {cost::rolled, 10, cost::rolled_work}},
    {"rot90", ".", "*: any; k: -1000000..1000000; dims: dims len:2..2", copying},
    {"repeat", ".", "*: any; repeats: sizes", {cost::repetition, 10, cost::repetition_work}},
    {"tile", ".", "*: any; dims: sizes", {cost::repetition, 10, cost::repetition_work}},
    {"repeat_interleave",
     "self_int",
     "*: any; repeats: 0..1099511627776; output_size: absent",
     {cost::repetition, 20, cost::repetition_work}},
    {"tril triu", ".", "*: any rank:2..16; diagonal: offset", copying},
    {"diag diagflat",
     ".",
     "*: any; diagonal: offset; offset: offset",
     {cost::diagonal_matrix, 10, cost::diagonal_work}},
    {"diag_embed",
     ".",
     "*: any rank:1..15; offset: offset; dim1: newdim; dim2: newdim",
     {cost::diagonal_matrix, 10, cost::diagonal_work}},
    {"cat concat concatenate", ".", "tensors: any", copying},
    {"stack", ".", "tensors: any; dim: newdim", copying},
    {"hstack vstack dstack column_stack row_stack", ".", "tensors: any", copying},
};

}  // namespace

Rows shape_rows() { return rows; }

}  // namespace triage::operators
