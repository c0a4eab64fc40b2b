#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// Linear algebra, layers, and the operators of triage itself.
namespace triage::operators {
namespace {

using cost::of_each;
using cost::of_elements;
using cost::of_given;

constexpr Cost product{cost::matrix_product, 1, cost::matrix_product_work};
constexpr Cost decomposition{cost::given<3>, 1, cost::cubic_work};
constexpr Cost half_decomposition{cost::given<3>, 0.7, cost::cubic_work};  // of symmetric matrices
constexpr Cost loss = of_elements(cost::joined<4>, 20);
constexpr Cost loss_of_classes = of_given(cost::moved<4>, 20);
constexpr Cost recording{cost::flags, 20, cost::flags_work};
constexpr Cost choosing{cost::flags, 8, cost::flags_work};
constexpr Cost merging{cost::flags, 2, cost::merging_work};
constexpr Cost replacing{cost::flags, 2, cost::replacing_work};
constexpr Cost number = of_given(cost::given<2>, 100);
constexpr const char* kAny =
    "*: any; num_slots: any; dtype: any; location: any; severity: any; policy: any; code: any; codes: any; "
    "min_severity: any; domain: any; index: any; num_embeddings: any; integers: any len:0..100000";

// Linear algebra.
constexpr Row linear[] = {
    {"mm", ".", "sizes:matmul raises_by_sizes same_out masked:product", "*: number rank:2..2", product},
    {"bmm", ".", "sizes:matmul raises_by_sizes same_out masked:product", "*: number rank:3..3", product},
    {"mv", ".", "sizes:matmul raises_by_sizes", "*: number; self: number rank:2..2; vec: number rank:1..1", product},
    {"dot vdot inner", ".", "", "*: number", product},
    {"matmul", ".", "sizes:matmul raises_by_sizes same_out", "*: number rank:1..16", product},
    {"linalg_matmul", ".", "sizes:matmul raises_by_sizes", "*: number rank:1..16", product},
    {"outer ger", ".", "", "*: rank:1..1", {cost::matrix_product, 10, cost::matrix_product_work}},
    {"addmm", "_ .", "sizes:addmm raises_by_sizes same_out",
     "*: number; mat1: number rank:2..2; mat2: number rank:2..2; self: number apart", product},
    {"addmv", "_ .", "", "*: number; mat: number rank:2..2; vec: number rank:1..1; self: number apart", product},
    {"baddbmm", "_ .", "same_out", "*: number; batch1: number rank:3..3; batch2: number rank:3..3; self: number apart",
     product, relation::adds_to_self},
    {"addbmm", ".", "", "*: number; batch1: number rank:3..3; batch2: number rank:3..3; self: number apart", product},
    {"linear", ".", "sizes:linear raises_by_sizes same_out",
     "*: float; weight: float rank:1..2 like:input; bias: float rank:0..1 like:input; input: float rank:1..16",
     product},
    {"einsum",
     ".",
     "view_or_copy",
     "tensors: number; equation: any; path: absent",
     {cost::einsum, 1, cost::einsum_work},
     relation::einsum},
    {"cdist",
     ".",
     "",
     "*: single rank:2..16; p: 0..1000000; compute_mode: 0..2",
     {cost::distances, 5, cost::distance_work}},
    {"cross", ".", "", "*: number", of_elements(cost::joined<4>, 20)},
    {"linalg_cross", ".", "", "*: number", of_elements(cost::joined<4>, 20)},
    {"linalg_cholesky linalg_cholesky_ex cholesky", ".", "", "*: single rank:2..16", half_decomposition},
    {"linalg_inv linalg_inv_ex inverse linalg_det det linalg_slogdet slogdet logdet", ".", "", "*: single rank:2..16",
     decomposition},
    {"linalg_solve", ".", "", "*: single rank:1..16 like:A; A: rank:2..16", {cost::solutions, 2, cost::solutions_work}},
    {"linalg_qr",
     ".",
     "",
     "*: single rank:2..16; mode: one:reduced|complete|r",
     {cost::orthogonal, 2, cost::cubic_work}},
    {"linalg_diagonal", ".", "", "*: any rank:2..16; offset: offset", cost::view},
};

// Layers and losses.
constexpr Row network[] = {
    {"layer_norm", ".", "sizes:like_first raises_by_sizes rounds_by_position",
     "input: float; normalized_shape: sizes len:1..16; weight: mixed:input; bias: mixed:input; eps: finite", of_each},
    {"native_layer_norm", ".", "rounds_by_position",
     "input: float; normalized_shape: sizes len:1..16; weight: mixed:input; bias: mixed:input; eps: finite", of_each},
    {"rms_norm", ".", "keeps_rows", "input: float; normalized_shape: sizes len:1..16; weight: mixed:input; eps: finite",
     of_each},
    {"group_norm", ".", "sizes:like_first keeps_rows",
     "input: float rank:2..16; num_groups: 1..1099511627776; weight: mixed:input rank:1..1; bias: mixed:input "
     "rank:1..1; "
     "eps: finite",
     of_given(cost::normed_channels, 20), relation::groups},
    {"batch_norm", ".", "sizes:like_first keeps_rows",
     "input: float rank:2..5; weight: mixed:input rank:1..1 contiguous; bias: mixed:input rank:1..1 contiguous; "
     "running_mean: mixed:input rank:1..1 contiguous; running_var: mixed:input rank:1..1 contiguous; momentum: finite; "
     "eps: finite",
     of_each, relation::batch_norm},
    {"conv1d",
     ".",
     "sizes:convolution raises_by_sizes",
     "input: float rank:2..3 filled; weight: float rank:3..3 filled like:input; bias: float rank:1..1 like:input; "
     "stride: 1..1048576 len:1..1; padding: 0..1048576 len:1..1; dilation: 1..1048576 len:1..1; groups: 1..1048576",
     {cost::convolution, 1, cost::convolution_work},
     relation::convolution},
    {"conv2d",
     ".",
     "sizes:convolution raises_by_sizes",
     "input: float rank:3..4 filled; weight: float rank:4..4 filled like:input; bias: float rank:1..1 like:input; "
     "stride: 1..1048576 len:1..2; padding: 0..1048576 len:1..2; dilation: 1..1048576 len:1..2; groups: 1..1048576",
     {cost::convolution, 1, cost::convolution_work},
     relation::convolution},
    {"conv3d",
     ".",
     "sizes:convolution raises_by_sizes",
     "input: float rank:4..5 filled; weight: float rank:5..5 filled like:input; bias: float rank:1..1 like:input; "
     "stride: 1..1048576 len:1..3; padding: 0..1048576 len:1..3; dilation: 1..1048576 len:1..3; groups: 1..1048576",
     {cost::convolution, 1, cost::convolution_work},
     relation::convolution},
    {"conv_transpose1d",
     ".",
     "",
     "input: float rank:2..3 filled; weight: float rank:3..3 filled like:input; bias: float rank:1..1 like:input; "
     "stride: 1..1048576 len:1..1; padding: 0..1048576 len:1..1; output_padding: 0..1048576 len:1..1; "
     "dilation: 1..1048576 len:1..1; groups: 1..1048576",
     {cost::transposed_convolution, 2, cost::transposed_convolution_work},
     relation::transposed_convolution},
    {"conv_transpose2d",
     "input",
     "",
     "input: float rank:3..4 filled; weight: float rank:4..4 filled like:input; bias: float rank:1..1 like:input; "
     "stride: 1..1048576 len:1..2; padding: 0..1048576 len:1..2; output_padding: 0..1048576 len:1..2; "
     "dilation: 1..1048576 len:1..2; groups: 1..1048576",
     {cost::transposed_convolution, 2, cost::transposed_convolution_work},
     relation::transposed_convolution},
    {"conv_transpose3d",
     "input",
     "",
     "input: float rank:4..5 filled; weight: float rank:5..5 filled like:input; bias: float rank:1..1 like:input; "
     "stride: 1..1048576 len:1..3; padding: 0..1048576 len:1..3; output_padding: 0..1048576 len:1..3; "
     "dilation: 1..1048576 len:1..3; groups: 1..1048576",
     {cost::transposed_convolution, 2, cost::transposed_convolution_work},
     relation::transposed_convolution},
    {"instance_norm", ".", "sizes:like_first keeps_rows",
     "input: float rank:3..5 filled; weight: mixed:input rank:1..1 contiguous; bias: mixed:input rank:1..1 contiguous; "
     "running_mean: absent; running_var: absent; momentum: finite; eps: finite",
     of_given(cost::normed_channels, 20), relation::instance_norm},
    {"lstm gru rnn_tanh rnn_relu",
     "input",
     "random",
     "input: single rank:3..3 filled; hx: like:input rank:3..3; params: like:input rank:1..2 len:1..4096; "
     "num_layers: 1..1024; dropout: 0..1",
     {cost::recurrent, 2, cost::recurrent_work},
     relation::recurrent},
    {"lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
     ".",
     "raises_by_sizes",
     "input: single rank:2..2 filled; hx: like:input rank:2..2; w_ih: like:input rank:2..2; w_hh: like:input "
     "rank:2..2; "
     "b_ih: like:input rank:1..1; b_hh: like:input rank:1..1",
     {cost::recurrent_cell, 2, cost::recurrent_cell_work},
     relation::recurrent_cell},
    {"pixel_shuffle pixel_unshuffle", ".", "moves",
     "self: any rank:3..14; upscale_factor: 1..65536; downscale_factor: 1..65536", of_given(cost::given<2>, 20),
     relation::shuffled_pixels},
    {"avg_pool1d max_pool1d max_pool1d_with_indices",
     ".",
     "keeps_rows",
     "self: float rank:2..3 filled; kernel_size: 1..1048576 len:1..1; stride: 1..1048576 len:0..1; "
     "padding: 0..1048576 len:1..1; dilation: 1..1048576 len:1..1",
     {cost::pooling, 10, cost::pooling_work},
     relation::pooling},
    {"avg_pool2d max_pool2d max_pool2d_with_indices",
     ".",
     "keeps_rows",
     "self: float rank:3..4 filled; kernel_size: 1..1048576 len:1..2; stride: 1..1048576 len:0..2; "
     "padding: 0..1048576 len:1..2; dilation: 1..1048576 len:1..2; divisor_override: 1..2147483647",
     {cost::pooling, 10, cost::pooling_work},
     relation::pooling},
    {"avg_pool3d max_pool3d max_pool3d_with_indices",
     ".",
     "keeps_rows",
     "self: float rank:4..5 filled; kernel_size: 1..1048576 len:1..3; stride: 1..1048576 len:0..3; "
     "padding: 0..1048576 len:1..3; dilation: 1..1048576 len:1..3; divisor_override: 1..2147483647",
     {cost::pooling, 10, cost::pooling_work},
     relation::pooling},
    {"adaptive_avg_pool1d adaptive_max_pool1d",
     ".",
     "keeps_rows",
     "self: float rank:2..3 filled; output_size: 1..1048576 len:1..1",
     {cost::adaptive_pooling, 12, cost::adaptive_pooling_work}},
    {"adaptive_avg_pool2d adaptive_max_pool2d",
     ".",
     "keeps_rows",
     "self: float rank:3..4 filled; output_size: 1..1048576 len:1..2",
     {cost::adaptive_pooling, 12, cost::adaptive_pooling_work}},
    {"adaptive_avg_pool3d adaptive_max_pool3d",
     ".",
     "keeps_rows",
     "self: float rank:4..5 filled; output_size: 1..1048576 len:1..3",
     {cost::adaptive_pooling, 12, cost::adaptive_pooling_work}},
    {"constant_pad_nd",
     ".",
     "moves keeps_rows masked:padded",
     "self: any; pad: offset len:0..32",
     {cost::padding, 10, cost::padding_work},
     relation::constant_padding},
    {"pad",
     ".",
     "moves keeps_rows",
     "self: any; pad: offset len:0..32; mode: one:constant|reflect|replicate|circular",
     {cost::padding, 20, cost::padding_work},
     relation::padding},

    {"mse_loss l1_loss smooth_l1_loss huber_loss", ".", "",
     "self: float; target: float; reduction: 0..2; beta: finite; delta: finite", loss},
    {"binary_cross_entropy", ".", "judges_values",
     "self: single; target: like:self; weight: like:self; reduction: 0..2", loss, relation::same_sizes},
    {"binary_cross_entropy_with_logits", ".", "", "*: single; reduction: 0..2", loss},
    {"nll_loss", ".", "judges_values",
     "self: single rank:1..2; target: int64 rank:0..1; weight: like:self rank:1..1; reduction: 0..2; "
     "ignore_index: any",
     loss_of_classes},
    {"cross_entropy_loss", ".", "judges_values",
     "self: single rank:1..5; target: number; weight: like:self rank:1..1; reduction: 0..2; "
     "ignore_index: any; label_smoothing: 0..1",
     loss_of_classes},
    {"kl_div soft_margin_loss", ".", "", "*: single; reduction: 0..2", loss},
    {"cosine_similarity", ".", "", "*: single; eps: finite", loss},
    {"pairwise_distance", ".", "", "*: single; p: finite; eps: finite", loss},
    {"cosine_embedding_loss", ".", "", "*: float; reduction: 0..2; margin: finite", of_elements(cost::cosine_loss, 20)},
    {"margin_ranking_loss hinge_embedding_loss triplet_margin_loss poisson_nll_loss", ".", "",
     "*: float; reduction: 0..2; margin: finite; p: finite; eps: finite", of_elements(cost::joined<6>, 20)},
};

// Operators of triage itself. They check what they are given (runtime/flags/checks.h): the rows bound what they cost.
constexpr Row flags[] = {
    {"new flag_nan flag_inf flag_nan_and_inf flag_oob_indices", ".", "sizes:record gives_flags never_raises", kAny,
     recording, nullptr, "triage"},
    {"clear", ".", "sizes:like_first gives_flags never_raises", kAny, recording, nullptr, "triage"},
    {"is_ok is_err has_critical count_errors max_severity get_first_code get_first_location get_first_severity "
     "has_code has_domain",
     ".", "sizes:row_each never_raises", kAny, recording, nullptr, "triage"},
    {"all_ok any_err", ".", "sizes:scalar never_raises", kAny, recording, nullptr, "triage"},
    {"get_slot match", ".", "sizes:row_each", kAny, recording, nullptr, "triage"},
    {"take_ok_p take_err_p", ".", "sizes:like_z moves_records raises_by_sizes checks_numbers", kAny, choosing, nullptr,
     "triage"},
    {"select", ".", "sizes:either moves_records raises_by_sizes", kAny, choosing, nullptr, "triage"},
    {"guard_grad", ".", "sizes:like_first", kAny, choosing, nullptr, "triage"},
    {"guard_grad", "elements", "sizes:either", kAny, choosing, nullptr, "triage"},
    {"merge", ".", "sizes:like_first gives_flags raises_by_sizes", kAny, merging, nullptr, "triage"},
    {"replace", ".", "sizes:like_first checks_numbers", kAny, replacing, nullptr, "triage"},
    {"push", ". where scalar", "sizes:like_first gives_flags raises_by_sizes", kAny, recording, nullptr, "triage"},
    {"fix", ". scalar", "sizes:repaired gives_flags raises_by_sizes checks_numbers", kAny, recording, nullptr,
     "triage"},
    {"restride", ".", "sizes:like_first moves_records never_raises form_of_second masked:kept", "*: any",
     of_elements(cost::spread<3>, 10), nullptr, "triage"},
    {"math", ". Scalar Tensor", "sizes:scalar never_raises no_gradient", "*: any; function: any", number, nullptr,
     "triage"},
    {"item", ".", "sizes:scalar never_raises no_gradient", "*: any", number, nullptr, "triage"},
    {"size", ".", "sizes:scalar never_raises no_gradient", "*: any; dim: dim", cost::view, nullptr, "triage"},
    {"assert_scalar", ".", "no_gradient", "*: any; message: any", number, nullptr, "triage"},
    {"_assert_async", "msg", "queries effect", "*: any; assert_msg: any", number},
};

}  // namespace

Rows linear_rows() { return linear; }
Rows network_rows() { return network; }
Rows flags_rows() { return flags; }

}  // namespace triage::operators
