#include "runtime/operators/table/row.h"

/// Operators that policies and loaded programs may not call. Functions of a host that capture compiles may, and
/// LibTorch's own decompositions and gradients do.
namespace triage::operators {
namespace {

constexpr Row trusted[] = {
    // arithmetic
    {"__and__ __or__ __xor__ __lshift__ __rshift__ float_power_", "Scalar Tensor", "elementwise"},
    {"ldexp_", ".", "elementwise"},
    {"_softmax _log_softmax", ".", "sizes:like_first never_raises rounds_by_position"},
    {"_to_copy", ".", "sizes:like_first moves never_raises masked:kept"},
    {"_cast_Byte _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short conj_physical "
     "conj_physical_ linalg_matrix_power matrix_power chain_matmul sum_to_size",
     ".", "view_or_copy"},
    {"tril_ triu_", ".", "sizes:like_first never_raises masked:kept"},
    {"conv1d conv2d", "padding", "sizes:convolution raises_by_sizes"},
    {"conv3d", "padding", "sizes:convolution raises_by_sizes"},

    // memory and views
    {"_unsafe_view", ".", "moves view_or_copy masked:reshaped"},
    {"_reshape_alias as_strided as_strided_ swapaxes_ swapdims_ narrow_copy lift_fresh block_diag", ".", "moves"},
    {"view", "dtype", "moves"},
    {"dsplit hsplit vsplit", "array int", "moves"},
    {"tensor_split", "tensor_indices_or_sections", "sizes:parts moves"},
    {"unsafe_split", "Tensor", "moves view_or_copy"},
    {"unsafe_chunk unsafe_split_with_sizes cartesian_prod pin_memory", ".", "moves view_or_copy"},
    {"atleast_1d atleast_2d atleast_3d", "Sequence", "moves view_or_copy"},
    {"_pin_memory lift to_dense unflatten_dense_tensors", ".", "view_or_copy"},
    {"copy", ".", "moves form_of_first"},
    {"detach_", ".", "sizes:like_first moves_records never_raises masked:kept"},
    {"t_", ".", "sizes:swap_two moves never_raises masked:moved"},
    {"transpose_", ".", "sizes:transpose moves never_raises masked:moved"},
    {"unsqueeze_", ".", "sizes:unsqueeze moves never_raises masked:moved"},
    {"squeeze_", ". dim dims", "moves raises_by_sizes masked:moved"},
    {"empty", "memory_format", "uninitialized"},
    {"empty_strided empty_permuted empty_quantized _empty_affine_quantized", ".", "uninitialized"},
    {"empty_like", ".", "queries no_gradient uninitialized"},
    {"new_empty new_empty_strided", ".", "queries uninitialized"},

    // results that values decide, and arguments that some values do not fit
    {"repeat_interleave", "Tensor self_Tensor", "moves judges_values dynamic"},
    {"nonzero_numpy", ".", "queries dynamic"},
    {"_unique _unique2 unique_consecutive unique_dim unique_dim_consecutive combinations linalg_lstsq", ".", "dynamic"},
    {"histogram", "bin_ct bins_tensor", "dynamic"},
    {"histogramdd", ". TensorList_bins int_bins", "dynamic"},
    {"bincount", ".", "judges_values dynamic"},
    {"histc lu_solve poisson binomial nll_loss_nd multi_margin_loss multilabel_margin_loss", ".", "judges_values"},
    {"ctc_loss", "IntList Tensor", "judges_values"},
    {"embedding_bag", ". padding_idx", "judges_values"},

    // random numbers
    {"bernoulli_", "Tensor", "sizes:like_first form_of_first judges_values"},
    {"rand_like randn_like", "generator", "sizes:like_first queries random"},
    {"randint_like", "Tensor Tensor_generator generator low_generator_dtype", "queries random"},
    {"rand randn randperm", "generator", "random"},
    {"randint", "generator low_generator", "random"},
    {"native_dropout rrelu rrelu_", ".", "random"},
    {"alpha_dropout alpha_dropout_ feature_alpha_dropout feature_alpha_dropout_ feature_dropout feature_dropout_", ".",
     "random view_or_copy"},
    {"gru lstm rnn_relu rnn_tanh", "data", "random"},
    {"_cudnn_rnn miopen_rnn scaled_dot_product_attention _scaled_dot_product_attention "
     "_scaled_dot_product_efficient_attention _efficient_attention_forward",
     ".", "random"},
    {"_scaled_dot_product_flash_attention _flash_attention_forward", ". quantized", "random"},

    // answers that are no tensors, and assertions
    {"item is_nonzero _local_scalar_dense record_stream requires_grad_", ".", "queries"},
    {"dim numel", ".", "queries reads_metadata"},
    {"size stride", "int", "queries reads_metadata"},
    {"sym_size sym_stride", "int", "reads_metadata"},
    {"sym_numel can_cast is_inference is_neg is_conj is_coalesced is_leaf _is_zerotensor _version _fw_primal", ".",
     "reads_metadata"},
    {"is_contiguous", ". memory_format", "reads_metadata"},
    {"_assert_async", ".", "queries effect"},
    {"_assert_scalar _assert_tensor_metadata _functional_assert_scalar _print sym_constrain_range "
     "sym_constrain_range_for_size _functional_sym_constrain_range _functional_sym_constrain_range_for_size",
     ".", "effect"},
    {"_functional_assert_async", "msg", "effect"},

    // gradients
    {"gelu_backward silu_backward mish_backward logit_backward log_sigmoid_backward hardswish_backward "
     "softshrink_backward hardshrink_backward",
     ".", "masked:elementwise_backward"},
    {"tanh_backward", ".", {"masked:elementwise_backward", "real: a * (1 - b * b)"}},
    {"sigmoid_backward", ".", {"masked:elementwise_backward", "real: a * (1 - b) * b"}},
    {"hardsigmoid_backward",
     ".",
     {"masked:elementwise_backward", "real: (b > -3) & (b < 3) ? a * 0.16666667163372040 : 0"}},
    {"elu_backward", ".", "checks_numbers masked:elementwise_backward"},
    {"threshold_backward", ".", {"checks_numbers masked:elementwise_backward", "number: b <= c ? 0 : a"}},
    {"hardtanh_backward", ".", {"checks_numbers masked:elementwise_backward", "real: (b <= c) | (b >= d) ? 0 : a"}},
    {"leaky_relu_backward", ".", {"checks_numbers masked:elementwise_backward", "real: b > 0 ? a : a * c"}},
    {"softplus_backward",
     ".",
     {"checks_numbers masked:elementwise_backward", "real: b * c > d ? a : a * exp(b * c) / (exp(b * c) + 1)"}},
    {"glu_backward", ".", "masked:glu_backward"},
    {"_softmax_backward_data _log_softmax_backward_data", ".", "masked:softmax_backward"},
    {"native_layer_norm_backward native_group_norm_backward native_batch_norm_backward", ".",
     "masked:layer_norm_backward"},
    // without a reduction
    {"mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward "
     "soft_margin_loss_backward",
     ".", "masked:elementwise_backward"},
    {"nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward", ".", "keeps_rows"},
    // row by row, but along the dimensions that they name
    {"max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward "
     "adaptive_max_pool3d_backward avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d "
     "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward",
     ".", "keeps_rows"},
    {"reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d "
     "reflection_pad3d_backward replication_pad1d replication_pad1d_backward replication_pad2d "
     "replication_pad2d_backward replication_pad3d replication_pad3d_backward",
     ".", "keeps_rows"},
    {"upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward "
     "upsample_nearest3d upsample_nearest3d_backward upsample_linear1d upsample_linear1d_backward upsample_bilinear2d "
     "upsample_bilinear2d_backward upsample_bicubic2d upsample_bicubic2d_backward upsample_trilinear3d "
     "upsample_trilinear3d_backward",
     ".", "keeps_rows"},
    {"unfold_backward diagonal_backward", ".", "keeps_rows"},
    {"convolution_backward", ".", "masked:convolution_backward"},
    {"slice_backward", ".", "masked:slice_backward"},
    {"select_backward", ".", "masked:select_backward"},
    {"_index_put_impl _index_put_impl_", ".", "masked:index_put"},
    // What they call is the host's: a policy calls it by the name that it was given.
    {"call_host", ".", "sizes:host judges_values fixed_count", {}, {}, nullptr, "triage"},
    {"batch_norm", ".", "sizes:like_first effect", {}, {}, nullptr, "triage"},
    {"call_module", ".", "effect judges_values fixed_count", {}, {}, nullptr, "triage"},
};

}  // namespace

Rows trusted_rows() { return trusted; }

}  // namespace triage::operators
