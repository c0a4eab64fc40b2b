#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// The table of contracts: which operators policies and loaded programs may call. A new operator is a row here.
namespace triage::operators {
namespace {

using cost::composed;
using cost::copying;
using cost::eightfold;
using cost::pointwise;
using cost::reducing;
using cost::slow_pointwise;
using cost::sorting;
using cost::view;

constexpr Cost of_each{eightfold, 50};
constexpr Cost indexed{cost::indexed, 20, cost::indexed_work};
constexpr Cost sized{cost::creation, 20, cost::creation_elements};
constexpr Cost alike{cost::twice_given, 20};
constexpr Cost product{cost::matrix_product, 1, cost::matrix_product_work};
constexpr Cost decomposition{cost::eightfold, 2, cost::cubic_work};
constexpr Cost loss{cost::broadcast_eightfold, 100};
constexpr Cost recording{cost::flags, 50, cost::flags_work};
constexpr Cost merging{cost::flags, 2, cost::merging_work};
constexpr Cost replacing{cost::flags, 2, cost::replacing_work};
constexpr Cost number{cost::twice_given, 100};
constexpr const char* kAny =
    "*: any; num_slots: any; dtype: any; location: any; severity: any; policy: any; code: any; codes: any; "
    "min_severity: any; domain: any; index: any; num_embeddings: any; integers: any len:0..100000";

// One element of the result for each place, after broadcasting.
constexpr Row elementwise[] = {
    // of one tensor
    {"abs absolute neg negative square sgn", "_ .", "self: any", pointwise},
    {"positive", ".", "self: any", cost::view},
    {"sign ceil floor round trunc fix frac reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh "
     "cosh tanh sigmoid relu relu6 silu deg2rad rad2deg hardsigmoid hardswish selu",
     "_ .", "", pointwise},
    {"round", "_ decimals", "decimals: -38..38", pointwise},
    {"asin acos atan asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh erf erfc erfinv lgamma digamma i0 "
     "sinc mish",
     "_ .", "", slow_pointwise},
    {"special_erf special_erfc special_expit special_exp2 special_expm1 special_log1p special_ndtr special_sinc "
     "special_entr special_digamma special_psi special_gammaln special_i0",
     ".",
     "",
     {cost::broadcast_eightfold, 100}},
    {"logit", "_ .", "eps: finite", pointwise},
    {"special_logit", ".", "eps: finite", pointwise},
    {"gelu", "_ .", "approximate: one:none|tanh", slow_pointwise},
    {"elu celu leaky_relu hardtanh threshold", "_ .", "", pointwise},
    {"hardshrink softshrink", ".", "", pointwise},
    {"softplus log_sigmoid", ".", "", composed},
    {"clamp clip", "_ . Tensor", "", pointwise},
    {"clamp_min clamp_max", "_ . Tensor", "", pointwise},
    {"nan_to_num", "_ .", "", composed},
    {"isnan isinf isfinite isposinf isneginf isreal signbit logical_not", ".", "self: any", composed},
    {"logical_not_", ".", "", pointwise},
    {"bitwise_not", "_ .", "self: whole", pointwise},
    {"angle", ".", "self: any", composed},
    {"prelu", ".", "self: single; weight: like:self", composed},
    {"glu", ".", "self: single", composed},

    // of two
    {"add sub subtract mul multiply", "_ Tensor Scalar", "self: any; other: any", pointwise},
    {"rsub", "Tensor Scalar", "", pointwise},
    {"div divide true_divide", "_ Tensor Scalar", "self: any; other: any", pointwise},
    {"div divide", "_ Tensor_mode Scalar_mode", "rounding_mode: one:floor|trunc", composed, relation::divides},
    {"floor_divide", "_ . Scalar", "", composed, relation::divides},
    {"floor_divide_", "Tensor", "", composed, relation::divides},
    {"remainder fmod", "_ Tensor Scalar", "", composed, relation::divides},
    {"remainder", "Scalar_Tensor", "", composed, relation::divides},
    {"pow", "Tensor_Tensor Tensor_Scalar Scalar", "", slow_pointwise},
    {"pow_", "Tensor Scalar", "", slow_pointwise},
    {"float_power", "Tensor_Tensor Tensor_Scalar Scalar", "", {cost::broadcast_eightfold, 100}},
    {"maximum minimum fmax fmin logaddexp logaddexp2", ".", "", slow_pointwise},
    {"max min", "other", "", pointwise},
    {"atan2 arctan2 hypot nextafter heaviside", "_ .", "", slow_pointwise},
    {"copysign", "_ Tensor Scalar", "", pointwise},
    {"xlogy", "_ Tensor Scalar_Self Scalar_Other", "", slow_pointwise},
    {"special_xlogy special_xlog1py", ". self_scalar other_scalar", "", slow_pointwise},
    {"ldexp", "Tensor", "", composed},
    {"eq ne not_equal", "_ Tensor Scalar", "self: any; other: any", pointwise},
    {"lt le gt ge less less_equal greater greater_equal", "_ Tensor Scalar", "", pointwise},
    {"logical_and logical_or logical_xor", "_ .", "", pointwise},
    {"bitwise_and bitwise_or bitwise_xor", "_ Tensor Scalar", "self: whole; other: whole", pointwise},
    {"bitwise_and bitwise_or bitwise_xor", "Scalar_Tensor", "other: whole", pointwise},
    {"bitwise_left_shift bitwise_right_shift", "_ Tensor Tensor_Scalar", "self: whole; other: whole", pointwise},
    {"bitwise_left_shift bitwise_right_shift", "Scalar_Tensor", "other: whole", pointwise},
    {"isclose", ".", "rtol: finite; atol: finite", composed},
    {"allclose", ".", "rtol: finite; atol: finite", composed},
    {"equal", ".", "*: any", composed},
    {"is_same_size is_floating_point is_complex is_signed", ".", "*: any", cost::view},
    {"complex", ".", "*: single", composed},

    // of three
    {"where", "self ScalarSelf ScalarOther Scalar", "condition: mask; self: any; other: any", composed},
    {"lerp", "_ Tensor Scalar", "*: float", slow_pointwise},
    {"addcmul addcdiv", "_ .", "", pointwise},
    {"masked_fill", "_ Scalar Tensor", "self: any; mask: mask; value: rank:0..0", composed},
};

// What draws elements together, along dimensions or of the whole tensor, and what runs along one dimension.
constexpr Row reduction[] = {
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

// Views, copies, and tensors put together or apart. They move elements and look at none.
constexpr Row shape[] = {
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

// Elements by position. That positions lie within the tensor is for the kernels to check, and these do.
constexpr Row indexing[] = {
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
     of_each},
    {"take", ".", "self: any; index: int64", indexed},
    {"take_along_dim", ".", "self: any; indices: int64", {cost::broadcast_eightfold, 50}},
    {"put", "_ .", "self: apart; index: int64; source: like:self", of_each},
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

// Tensors out of numbers, and random ones.
constexpr Row creation[] = {
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

// Linear algebra.
constexpr Row linear[] = {
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

// Layers and losses.
constexpr Row network[] = {
    {"layer_norm native_layer_norm", ".",
     "input: float; normalized_shape: sizes len:1..16; weight: mixed:input; bias: mixed:input; eps: finite", of_each},
    {"rms_norm", ".", "input: float; normalized_shape: sizes len:1..16; weight: mixed:input; eps: finite", of_each},
    {"group_norm", ".",
     "input: float rank:2..16; num_groups: 1..1099511627776; weight: mixed:input rank:1..1; bias: mixed:input "
     "rank:1..1; "
     "eps: finite",
     of_each, relation::groups},
    {"batch_norm", ".",
     "input: float rank:2..5; weight: mixed:input rank:1..1 contiguous; bias: mixed:input rank:1..1 contiguous; "
     "running_mean: mixed:input rank:1..1 contiguous; running_var: mixed:input rank:1..1 contiguous; momentum: finite; "
     "eps: finite",
     of_each, relation::batch_norm},
    {"conv1d",
     ".",
     "input: float rank:2..3 filled; weight: float rank:3..3 filled like:input; bias: float rank:1..1 like:input; "
     "stride: 1..1048576 len:1..1; padding: 0..1048576 len:1..1; dilation: 1..1048576 len:1..1; groups: 1..1048576",
     {cost::convolution, 1, cost::convolution_work},
     relation::convolution},
    {"conv2d",
     ".",
     "input: float rank:3..4 filled; weight: float rank:4..4 filled like:input; bias: float rank:1..1 like:input; "
     "stride: 1..1048576 len:1..2; padding: 0..1048576 len:1..2; dilation: 1..1048576 len:1..2; groups: 1..1048576",
     {cost::convolution, 1, cost::convolution_work},
     relation::convolution},
    {"avg_pool1d max_pool1d",
     ".",
     "self: float rank:2..3 filled; kernel_size: 1..1048576 len:1..1; stride: 1..1048576 len:0..1; "
     "padding: 0..1048576 len:1..1; dilation: 1..1048576 len:1..1",
     {cost::pooling, 5, cost::pooling_work},
     relation::pooling},
    {"avg_pool2d max_pool2d",
     ".",
     "self: float rank:3..4 filled; kernel_size: 1..1048576 len:1..2; stride: 1..1048576 len:0..2; "
     "padding: 0..1048576 len:1..2; dilation: 1..1048576 len:1..2; divisor_override: 1..2147483647",
     {cost::pooling, 5, cost::pooling_work},
     relation::pooling},
    {"adaptive_avg_pool1d",
     ".",
     "self: float rank:2..3 filled; output_size: 1..1048576 len:1..1",
     {cost::adaptive_pooling, 20, cost::adaptive_pooling_work}},
    {"adaptive_avg_pool2d",
     ".",
     "self: float rank:3..4 filled; output_size: 1..1048576 len:1..2",
     {cost::adaptive_pooling, 20, cost::adaptive_pooling_work}},
    {"constant_pad_nd",
     ".",
     "self: any; pad: offset len:0..32",
     {cost::padding, 20, cost::padding_work},
     relation::constant_padding},
    {"pad",
     ".",
     "self: any; pad: offset len:0..32; mode: one:constant|reflect|replicate|circular",
     {cost::padding, 20, cost::padding_work},
     relation::padding},

    {"mse_loss l1_loss smooth_l1_loss huber_loss", ".",
     "self: float; target: float; reduction: 0..2; beta: finite; delta: finite", loss},
    {"binary_cross_entropy", ".", "self: single; target: like:self; weight: like:self; reduction: 0..2", loss,
     relation::same_sizes},
    {"binary_cross_entropy_with_logits", ".", "*: single; reduction: 0..2", loss},
    {"nll_loss", ".",
     "self: single rank:1..2; target: int64 rank:0..1; weight: like:self rank:1..1; reduction: 0..2; "
     "ignore_index: any",
     loss},
    {"cross_entropy_loss", ".",
     "self: single rank:1..5; target: number; weight: like:self rank:1..1; reduction: 0..2; "
     "ignore_index: any; label_smoothing: 0..1",
     loss},
    {"kl_div soft_margin_loss", ".", "*: single; reduction: 0..2", loss},
    {"cosine_similarity", ".", "*: single; eps: finite", loss},
    {"pairwise_distance", ".", "*: single; p: finite; eps: finite", loss},
    {"cosine_embedding_loss margin_ranking_loss hinge_embedding_loss triplet_margin_loss poisson_nll_loss",
     ".",
     "*: float; reduction: 0..2; margin: finite; p: finite; eps: finite",
     {cost::loss_of_pairs, 100}},
};

// Operators of triage itself. They check what they are given (runtime/flags/checks.h): the rows bound what they cost.
constexpr Row flags[] = {
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

Rows elementwise_rows() { return elementwise; }
Rows reduction_rows() { return reduction; }
Rows shape_rows() { return shape; }
Rows indexing_rows() { return indexing; }
Rows creation_rows() { return creation; }
Rows linear_rows() { return linear; }
Rows network_rows() { return network; }
Rows flags_rows() { return flags; }

}  // namespace triage::operators
