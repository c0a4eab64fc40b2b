#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// Operators that move elements, and those that make tensors.
namespace triage::operators {
namespace {

using cost::composed;
using cost::copying;
using cost::moving;
using cost::of_each;
using cost::of_elements;
using cost::of_given;
using cost::view;

constexpr Cost indexed{cost::indexed, 10, cost::indexed_work};
constexpr Cost sized{cost::creation, 20, cost::creation_elements};
constexpr Cost alike = of_given(cost::given<2>, 20);
constexpr Cost drawn = of_elements(cost::spread<2>, 40);

// Views, copies, and tensors put together or apart. They move elements and look at none.
constexpr Row shape[] = {
    // views
    {"alias", ".", "sizes:like_first moves_records never_raises masked:kept", "*: any", view},
    {"detach", ".", "sizes:like_first moves_records never_raises no_gradient masked:kept", "*: any", view},
    {"numpy_T", ".", "moves", "*: any", view},
    {"mT mH adjoint", ".", "sizes:swap_last_two moves never_raises", "*: any rank:2..16", view},
    {"t", ".", "sizes:swap_two moves never_raises masked:moved", "*: any rank:0..2", view},
    {"real", ".", "moves never_raises", "*: any", view},
    {"imag", ".", "moves never_raises", "*: complex", view},
    {"view_as_real", ".", "", "*: complex", view},
    {"view_as_complex", ".", "view_or_copy", "*: single", view},
    {"resolve_conj resolve_neg", ".", "sizes:like_first moves view_or_copy", "*: any", copying},
    {"view", ".", "sizes:view moves masked:reshaped", "*: any; size: inferred", view},
    {"view_as", ".", "moves form_of_second", "*: any", view},
    {"expand", ".", "moves_records raises_by_sizes repeats masked:expanded", "*: any; size: inferred", view},
    {"broadcast_to", ".", "moves repeats", "*: any; size: inferred", view},
    {"expand_as", ".", "sizes:like_other moves_records form_of_second raises_by_sizes repeats", "*: any", view},
    {"squeeze", ". dim dims", "moves raises_by_sizes masked:moved", "*: any", view},
    {"unsqueeze", ".", "sizes:unsqueeze moves never_raises masked:moved", "*: any; dim: newdim", view},
    {"transpose", "int", "sizes:transpose moves never_raises masked:moved", "*: any", view},
    {"swapaxes swapdims", ".", "moves", "*: any", view},
    {"permute", ".", "sizes:permute moves never_raises masked:moved", "*: any", view},
    {"movedim", "int intlist", "moves raises_by_sizes", "*: any", view},
    {"moveaxis", "int intlist", "moves", "*: any", view},
    {"select", "int", "sizes:select moves_records raises_by_sizes masked:selected", "*: any; index: any", view},
    {"slice", "Tensor", "sizes:slice moves_records never_raises masked:taken",
     "*: any; start: any; end: any; step: 1..1048576", view},
    {"narrow", ".", "moves_records raises_by_sizes", "*: any; start: offset; length: 0..1099511627776", view},
    {"narrow", "Tensor", "moves_records judges_values", "*: any; start: whole rank:0..0; length: 0..1099511627776",
     view},
    {"unflatten", "int", "moves raises_by_sizes", "*: any; sizes: inferred len:1..16", view},
    {"diagonal", ".", "moves raises_by_sizes", "*: any rank:2..16; offset: offset", view},
    {"unfold", ".", "moves", "*: any; dimension: dim; size: 0..1099511627776; step: 1..1048576", view},
    {"chunk", ".", "sizes:parts moves raises_by_sizes", "*: any; chunks: 1..100000", view, relation::pieces},
    {"split", "Tensor", "sizes:parts moves raises_by_sizes masked:parts", "*: any; split_size: 0..1099511627776", view,
     relation::pieces},
    {"split", "sizes", "sizes:parts moves raises_by_sizes masked:parts",
     "*: any; split_size: 0..1099511627776 len:0..100000", view},
    {"split_with_sizes", ".", "sizes:parts moves masked:parts", "*: any; split_sizes: 0..1099511627776 len:0..100000",
     view},
    {"tensor_split", "sections", "sizes:parts moves", "*: any; sections: 1..100000", view},
    {"tensor_split", "indices", "sizes:parts moves", "*: any; indices: offset len:0..100000", view},
    {"unbind", "int", "sizes:parts moves raises_by_sizes masked:parts", "*: any rank:1..16", view, relation::pieces},
    {"atleast_1d atleast_2d atleast_3d", ".", "moves view_or_copy", "*: any", view},
    {"broadcast_tensors", ".", "moves view_or_copy", "*: any", view, relation::broadcasts},
    {"meshgrid", ".", "moves view_or_copy", "tensors: any rank:0..1 len:1..16", view, relation::meshes},
    {"meshgrid", "indexing", "moves view_or_copy", "tensors: any rank:0..1 len:1..16; indexing: one:ij|xy", view,
     relation::meshes},

    // views where they can be, copies where not
    {"reshape", ".", "sizes:view moves raises_by_sizes view_or_copy masked:reshaped", "*: any; shape: inferred",
     copying},
    {"reshape_as", ".", "moves form_of_second view_or_copy", "*: any", copying},
    {"flatten", "using_ints", "sizes:flatten moves never_raises view_or_copy", "*: any", copying},
    {"ravel", ".", "moves view_or_copy", "*: any", copying},
    {"contiguous", ".", "sizes:like_first moves_records never_raises view_or_copy", "*: any", copying},
    {"clone", ".", "sizes:like_first moves_records never_raises masked:kept", "*: any", copying},
    {"to", "device dtype dtype_layout other", "sizes:like_first moves never_raises view_or_copy", "*: any",
     of_elements(cost::conversion, 10)},
    {"type_as", ".", "sizes:like_first moves form_of_second view_or_copy", "*: any", of_elements(cost::conversion, 10)},

    // copies
    {"select_copy", "int", "sizes:select moves_records raises_by_sizes", "*: any; index: any", copying},
    {"slice_copy", "Tensor", "sizes:slice moves_records never_raises", "*: any; start: any; end: any; step: 1..1048576",
     copying},
    {"unsqueeze_copy", ".", "sizes:unsqueeze moves never_raises", "*: any; dim: newdim", copying},
    {"select_scatter", ".", "moves_records", "*: any; index: any", copying},
    {"slice_scatter", ".", "moves_records", "*: any; start: any; end: any; step: 1..1048576", copying},
    {"diagonal_scatter", ".", "", "*: any; self: any rank:2..16; offset: offset", copying},
    {"copy_", ".", "moves form_of_first", "*: any", of_elements(cost::conversion, 10)},
    {"fill", "_ Scalar Tensor", "moves form_of_first", "*: any; value: rank:0..0", copying},
    {"zero", "_ .", "moves form_of_first zeros", "", copying},
    {"flip", ".", "sizes:like_first moves_records never_raises masked:turned", "*: any", copying},
    {"fliplr", ".", "moves", "*: any rank:2..16", copying},
    {"flipud", ".", "moves", "*: any rank:1..16", copying},
    {"roll",
     ".",
     "sizes:like_first moves_records raises_by_sizes masked:turned",
     "*: any; shifts: offset; dims: dims",
     {cost::rolled, 10, cost::rolled_work}},
    {"rot90", ".", "moves", "*: any; k: -1000000..1000000; dims: dims len:2..2", copying},
    {"repeat",
     ".",
     "moves_records raises_by_sizes",
     "*: any; repeats: sizes",
     {cost::repetition, 10, cost::repetition_work}},
    {"tile", ".", "moves", "*: any; dims: sizes", {cost::repetition, 10, cost::repetition_work}},
    {"repeat_interleave",
     "self_int",
     "moves judges_values",
     "*: any; repeats: 0..1099511627776; output_size: absent",
     {cost::repetition, 30, cost::repetition_work}},
    {"tril triu", ".", "sizes:like_first never_raises keeps_rows masked:kept", "*: any rank:2..16; diagonal: offset",
     copying},
    {"diag diagflat",
     ".",
     "",
     "*: any; diagonal: offset; offset: offset",
     {cost::diagonal_matrix, 10, cost::diagonal_work}},
    {"diag_embed",
     ".",
     "",
     "*: any rank:1..15; offset: offset; dim1: newdim; dim2: newdim",
     {cost::diagonal_matrix, 10, cost::diagonal_work}},
    {"cat", ".", "sizes:concatenate moves_records raises_by_sizes same_out masked:joined", "tensors: any", copying},
    {"concat concatenate", ".", "sizes:concatenate moves_records raises_by_sizes", "tensors: any", copying},
    {"stack", ".", "sizes:stack moves raises_by_sizes masked:stacked", "tensors: any; dim: newdim", copying},
    {"hstack vstack dstack column_stack row_stack", ".", "moves", "tensors: any", copying},
};

// Elements by position. That positions lie within the tensor is for the kernels to check, and these do.
constexpr Row indexing[] = {
    {"index", "Tensor", "sizes:rows_by_mask moves_records judges_values dynamic_by_mask",
     "self: any; indices: real len:0..16", indexed, relation::indexes},
    {"index_put", "_ .", "moves_records judges_values masked:index_put",
     "self: any apart; indices: real len:0..16; values: any like:self", indexed, relation::indexes},
    // of a 0-dim tensor and an empty index, LibTorch 1.13 gives memory that nobody wrote; so do the gradients of the
    // others
    {"index_select", ".", "moves_records judges_values same_out masked:taken",
     "self: any rank:1..16; index: index rank:0..1", indexed},
    {"index_add", "_ .", "judges_values masked:scattered_rows",
     "self: apart rank:1..16; index: index rank:0..1; source: like:self", moving},
    {"index_copy", "_ .", "moves judges_values",
     "self: any apart rank:1..16; index: int64 rank:0..1; source: any like:self", moving},
    {"index_fill",
     "_ int_Scalar int_Tensor",
     "moves judges_values",
     "self: any apart rank:1..16; index: int64 rank:0..1; value: rank:0..0",
     {cost::moved<2>, 10, cost::indexed_work}},
    {"gather", ".", "moves judges_values same_out", "self: any; index: int64; sparse_grad: false", indexed},
    {"scatter", "_ src value", "moves judges_values masked:scattered",
     "self: any apart; index: int64; src: any like:self", moving},
    {"scatter", "_ reduce value_reduce", "moves judges_values masked:scattered",
     "self: number apart; index: int64; src: like:self; reduce: one:add|multiply", moving},
    {"scatter_add", "_ .", "judges_values masked:scattered", "self: apart; index: int64; src: like:self", moving},
    {"scatter_reduce", "_ two", "judges_values",
     "self: number apart; index: int64; src: like:self; reduce: one:sum|prod|mean|amax|amin",
     of_given(cost::moved<3>, 20)},
    {"take", ".", "moves judges_values", "self: any; index: int64", indexed},
    {"take_along_dim", ".", "moves judges_values", "self: any; indices: int64", composed},
    {"put", "_ .", "moves judges_values", "self: apart; index: int64; source: like:self", moving},
    {"masked_scatter",
     "_ .",
     "moves",
     "self: any apart; mask: bool; source: any like:self",
     {cost::masked_scatter, 18, cost::masked_scatter_work}},
    {"masked_select", ".", "sizes:unknown_length moves dynamic", "self: any; mask: bool",
     of_elements(cost::spread<5>, 20)},
    {"nonzero argwhere", ".", "sizes:positions queries never_raises dynamic", "", {cost::positions, 20}},
    {"where", ".", "queries never_raises dynamic view_or_copy", "", {cost::positions, 20}},
    {"embedding", ".", "sizes:embedding judges_values",
     "weight: float rank:2..2; indices: index; padding_idx: offset; scale_grad_by_freq: false; sparse: false", indexed},
    {"one_hot",
     ".",
     "judges_values dynamic_by_classes",
     "self: int64 rank:0..15; num_classes: 1..2147483647",
     {cost::one_hot, 20, cost::one_hot_work}},
    {"bucketize", "Tensor", "", "boundaries: number rank:1..1", of_given(cost::given<4>, 20)},
    {"bucketize", "Scalar", "", "boundaries: number rank:1..1", of_given(cost::given<2>, 20)},
    {"searchsorted", "Tensor", "", "*: number; sorted_sequence: rank:1..16; side: one:left|right; sorter: absent",
     of_given(cost::given<4>, 20)},
    {"searchsorted", "Scalar", "", "*: number; sorted_sequence: rank:1..16; side: one:left|right; sorter: absent",
     of_given(cost::given<2>, 20)},
    {"isin",
     "Tensor_Tensor Scalar_Tensor",
     "queries",
     "*: number",
     {cost::given<8>, 1000, cost::hashed_work},
     relation::few_reals},
    {"isin", "Tensor_Scalar", "queries", "*: number", of_given(cost::given<3>, 20)},
};

// Tensors out of numbers, and random ones.
constexpr Row creation[] = {
    {"zeros", ".", "never_raises zeros", "", sized},
    {"ones", ".", "never_raises", "", sized},
    {"rand randn", ".", "random", "", sized},
    {"full", ".", "never_raises", "", sized},
    {"eye", ". m", "", "n: 0..1099511627776; m: 0..1099511627776", sized},
    {"arange", ". start start_step", "", "start: finite; end: finite; step: finite", sized},
    {"linspace", ".", "", "start: finite; end: finite; steps: 0..1099511627776; dtype: number", sized},
    {"logspace", ".", "", "start: finite; end: finite; steps: 0..1099511627776; base: finite; dtype: single", sized},
    {"randint", ". low", "random", "low: any; high: any; dtype: number", sized},
    {"randperm", ".", "random", "n: 0..1099511627776; dtype: number", sized},
    {"scalar_tensor", ".", "never_raises", "", sized},
    {"new_zeros", ".", "queries never_raises zeros", "", sized},
    {"new_ones new_full", ".", "queries never_raises", "", sized},
    {"zeros_like", ".", "sizes:like_first queries never_raises no_gradient zeros", "", alike},
    {"ones_like", ".", "sizes:like_first queries never_raises no_gradient", "", alike},
    {"full_like", ".", "sizes:like_first queries never_raises no_gradient checks_numbers", "", alike},
    {"rand_like randn_like", ".", "sizes:like_first queries random", "", alike},
    {"randint_like", ". low_dtype", "queries random", "low: any; high: any; dtype: number", alike},
    {"bernoulli", ".", "sizes:like_first judges_values", "", drawn},
    {"bernoulli", "p Tensor", "sizes:like_first form_of_first judges_values", "p: 0..1", drawn},
    {"bernoulli_", "float", "sizes:like_first form_of_first judges_values", "p: 0..1", drawn},
    {"normal", "Tensor_float float_Tensor Tensor_Tensor", "judges_values", "*: single; mean: finite; std: finite",
     drawn},
    {"normal", "float_float", "judges_values", "mean: finite; std: finite; dtype: float", sized},
    {"normal_", ".", "judges_values", "self: float; mean: finite; std: finite; from: finite; to: finite",
     of_given(cost::given<2>, 60)},
    {"uniform_", ".", "", "self: float; mean: finite; std: finite; from: finite; to: finite", alike},
    {"dropout", "_ .", "sizes:like_first random view_or_copy", "input: float; self: float; p: 0..1", drawn},
    {"multinomial",
     ".",
     "judges_values",
     "self: single rank:1..2; num_samples: 1..1099511627776",
     {cost::multinomial, 100, cost::multinomial_work}},
};

}  // namespace

Rows shape_rows() { return shape; }
Rows indexing_rows() { return indexing; }
Rows creation_rows() { return creation; }

}  // namespace triage::operators
