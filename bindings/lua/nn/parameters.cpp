// The parameters of layers, made and initialised by LibTorch's own modules.
#include "bindings/lua/nn/nn.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"

#include <c10/core/InferenceMode.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <limits>
#include <string>

namespace triage::lua {
namespace {

using Parameters = torch::OrderedDict<std::string, at::Tensor>;

/// Before they are made: they draw random numbers, which one graph cannot hold, and take memory.
void prepare(lua_State* L, std::initializer_list<int64_t> sizes) {
  capture::graph_break(capture::Break::training_step, "a new layer draws its weights",
                       "Create modules outside of the compiled function, and call them in it.");
  int64_t bytes = sizeof(float);
  for (int64_t size : sizes)
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) bytes = std::numeric_limits<int64_t>::max();
  charge(L, 0, static_cast<size_t>(bytes));
  constexpr double nanoseconds_a_byte = 5;  // of drawing the numbers
  check_time(L, "a new layer", nanoseconds_a_byte * static_cast<double>(bytes));
}

/// Pushes a list of {name, tensor}.
int push_parameters(lua_State* L, const Parameters& parameters) {
  lua_createtable(L, static_cast<int>(parameters.size()), 0);
  lua_Integer position = 0;
  for (const auto& parameter : parameters) {
    if (!parameter.value().defined()) continue;
    lua_createtable(L, 2, 0);
    lua_pushstring(L, parameter.key().c_str());
    lua_rawseti(L, -2, 1);
    push_tensor(L, parameter.value());
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, ++position);
  }
  return 1;
}

/// core.linear_parameters(in, out, bias)
int linear(lua_State* L) {
  const int64_t in = luaL_checkinteger(L, 1), out = luaL_checkinteger(L, 2);
  prepare(L, {in, out});
  const c10::InferenceMode no_inference(false);
  const torch::nn::Linear module(torch::nn::LinearOptions(in, out).bias(lua_toboolean(L, 3)));
  return push_parameters(L, module->named_parameters());
}

/// core.conv2d_parameters(in, out, {height, width}, groups, bias)
int conv2d(lua_State* L) {
  const int64_t in = luaL_checkinteger(L, 1), out = luaL_checkinteger(L, 2);
  const std::vector<int64_t> kernel = check_integers(L, 3, "nn.Conv2d");
  prepare(L, {in, out, kernel.at(0), kernel.at(1)});
  const c10::InferenceMode no_inference(false);
  const torch::nn::Conv2d module(torch::nn::Conv2dOptions(in, out, {kernel[0], kernel[1]})
                                     .groups(luaL_checkinteger(L, 4))
                                     .bias(lua_toboolean(L, 5)));
  return push_parameters(L, module->named_parameters());
}

/// core.layer_norm_parameters(shape)
int layer_norm(lua_State* L) {
  const std::vector<int64_t> shape = check_integers(L, 1, "nn.LayerNorm");
  int64_t elements = 1;
  for (int64_t size : shape)
    if (size > 0 && __builtin_mul_overflow(elements, size, &elements)) elements = std::numeric_limits<int64_t>::max();
  prepare(L, {elements, 2});
  const c10::InferenceMode no_inference(false);
  const torch::nn::LayerNorm module{torch::nn::LayerNormOptions(shape)};
  return push_parameters(L, module->named_parameters());
}

/// core.embedding_parameters(num_embeddings, embedding_dim, padding_idx or nil)
int embedding(lua_State* L) {
  const int64_t rows = luaL_checkinteger(L, 1), columns = luaL_checkinteger(L, 2);
  prepare(L, {rows, columns});
  const c10::InferenceMode no_inference(false);
  torch::nn::EmbeddingOptions options(rows, columns);
  if (!lua_isnoneornil(L, 3)) options.padding_idx(luaL_checkinteger(L, 3));
  const torch::nn::Embedding module(options);
  return push_parameters(L, module->named_parameters());
}

/// core.attention_parameters(embed_dim, num_heads, bias, kdim, vdim)
int attention(lua_State* L) {
  const int64_t width = luaL_checkinteger(L, 1), heads = luaL_checkinteger(L, 2);
  const int64_t keys = luaL_checkinteger(L, 4), values = luaL_checkinteger(L, 5);
  prepare(L, {width, std::max({width, keys, values}), 4});
  const c10::InferenceMode no_inference(false);
  const torch::nn::MultiheadAttention module(
      torch::nn::MultiheadAttentionOptions(width, heads).bias(lua_toboolean(L, 3)).kdim(keys).vdim(values));
  return push_parameters(L, module->named_parameters());
}

}  // namespace

void add_parameters(lua_State* L) {
  static const luaL_Reg functions[] = {
      {"linear_parameters", guarded<linear>},         {"conv2d_parameters", guarded<conv2d>},
      {"layer_norm_parameters", guarded<layer_norm>}, {"embedding_parameters", guarded<embedding>},
      {"attention_parameters", guarded<attention>},   {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
