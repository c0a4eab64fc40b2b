#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// Layers and losses.
namespace triage::operators {
namespace {

constexpr Cost norm{cost::eightfold, 50};
constexpr Cost loss{cost::broadcast_eightfold, 100};

constexpr Row rows[] = {
    {"layer_norm native_layer_norm", ".",
     "input: float; normalized_shape: sizes len:1..16; weight: mixed:input; bias: mixed:input; eps: finite", norm},
    {"rms_norm", ".", "input: float; normalized_shape: sizes len:1..16; weight: mixed:input; eps: finite", norm},
    {"group_norm", ".",
     "input: float rank:2..16; num_groups: 1..1099511627776; weight: mixed:input rank:1..1; bias: mixed:input "
     "rank:1..1; "
     "eps: finite",
     norm, relation::groups},
    {"batch_norm", ".",
     "input: float rank:2..5; weight: mixed:input rank:1..1 contiguous; bias: mixed:input rank:1..1 contiguous; "
     "running_mean: mixed:input rank:1..1 contiguous; running_var: mixed:input rank:1..1 contiguous; momentum: finite; "
     "eps: finite",
     norm, relation::batch_norm},
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

}  // namespace

Rows network_rows() { return rows; }

}  // namespace triage::operators
