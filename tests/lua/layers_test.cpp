// The layers of Lua against the modules of LibTorch: the same seed draws the same parameters, the same state gives the
// same outputs, gradients and statistics, in training and in evaluation, plainly and captured. tests/python has
// PyTorch's own modules.
#include "tests/lua/lua_fixture.h"

#include <doctest/doctest.h>
#include <torch/nn.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

namespace triage::lua::testing {
namespace {

namespace nn = torch::nn;
using Tensors = std::vector<at::Tensor>;

void add(Tensors& all, const at::Tensor& tensor) { all.push_back(tensor); }
template <typename... Results>
void add(Tensors& all, const std::tuple<Results...>& results) {
  std::apply([&](const auto&... each) { (add(all, each), ...); }, results);
}

/// A module of LibTorch, and its call.
struct Twin {
  std::shared_ptr<nn::Module> module;
  std::function<Tensors(const Tensors&)> call;
};

template <typename Holder>
Twin twin_of(Holder holder) {
  return {holder.ptr(), [holder](const Tensors& x) mutable {
            Tensors all;
            using Layer = decltype(*holder);
            if constexpr (requires(Layer & layer) { layer.forward(x[0]); })
              if (x.size() == 1) add(all, holder->forward(x[0]));
            if constexpr (requires(Layer & layer) { layer.forward(x[0], x[1]); })
              if (x.size() == 2) add(all, holder->forward(x[0], x[1]));
            if constexpr (requires(Layer & layer) { layer.forward(x[0], x[1], x[2]); })
              if (x.size() == 3) add(all, holder->forward(x[0], x[1], x[2]));
            return all;
          }};
}

struct Case {
  std::string lua;
  std::function<Twin()> make;
  std::vector<std::vector<int64_t>> inputs;  // sizes; for ids a first entry of -1
};

#define LAYER(lua, made, ...)                      \
  Case {                                           \
    lua, [] { return twin_of(made); }, __VA_ARGS__ \
  }

std::vector<Case> cases() {
  using O = nn::TransformerEncoderLayerOptions;
  return {
      LAYER("nn.Linear(4, 3)", nn::Linear(4, 3), {{5, 4}}),
      LAYER("nn.Bilinear(3, 4, 5)", nn::Bilinear(3, 4, 5), {{6, 3}, {6, 4}}),
      LAYER("nn.Conv1d(4, 6, 3, {stride = 2, padding = 1})",
            nn::Conv1d(nn::Conv1dOptions(4, 6, 3).stride(2).padding(1)), {{3, 4, 7}}),
      LAYER("nn.Conv2d(4, 6, {3, 2}, {groups = 2, dilation = 2})",
            nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 2}).groups(2).dilation(2)), {{3, 4, 7, 6}}),
      LAYER("nn.Conv2d(4, 6, 3, {padding = 1, padding_mode = 'circular'})",
            nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(1).padding_mode(torch::kCircular)), {{3, 4, 7, 6}}),
      LAYER("nn.Conv3d(4, 6, 2, {padding = 'same', bias = false})",
            nn::Conv3d(nn::Conv3dOptions(4, 6, 2).padding(torch::kSame).bias(false)), {{3, 4, 5, 4, 3}}),
      LAYER("nn.ConvTranspose1d(4, 6, 3, {stride = 2, output_padding = 1})",
            nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 3).stride(2).output_padding(1)), {{3, 4, 7}}),
      LAYER("nn.ConvTranspose2d(4, 6, 3, {groups = 2, padding = 1})",
            nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 3).groups(2).padding(1)), {{3, 4, 5, 4}}),
      LAYER("nn.ConvTranspose3d(4, 6, 2)", nn::ConvTranspose3d(nn::ConvTranspose3dOptions(4, 6, 2)), {{2, 4, 3, 4, 3}}),
      LAYER("nn.BatchNorm1d(4)", nn::BatchNorm1d(4), {{6, 4}}),
      LAYER("nn.BatchNorm1d(4, {momentum = torch.None})",
            nn::BatchNorm1d(nn::BatchNormOptions(4).momentum(c10::nullopt)), {{3, 4, 5}}),
      LAYER("nn.BatchNorm2d(4, {affine = false, eps = 1e-3})",
            nn::BatchNorm2d(nn::BatchNormOptions(4).affine(false).eps(1e-3)), {{3, 4, 5, 2}}),
      LAYER("nn.BatchNorm3d(4, {track_running_stats = false})",
            nn::BatchNorm3d(nn::BatchNormOptions(4).track_running_stats(false)), {{3, 4, 5, 2, 2}}),
      LAYER("nn.InstanceNorm1d(4)", nn::InstanceNorm1d(4), {{3, 4, 5}}),
      LAYER("nn.InstanceNorm2d(4, {affine = true, track_running_stats = true})",
            nn::InstanceNorm2d(nn::InstanceNormOptions(4).affine(true).track_running_stats(true)), {{3, 4, 5, 2}}),
      LAYER("nn.InstanceNorm3d(4)", nn::InstanceNorm3d(4), {{3, 4, 2, 3, 2}}),
      LAYER("nn.GroupNorm(2, 4)", nn::GroupNorm(2, 4), {{3, 4, 5}}),
      LAYER("nn.LayerNorm({4, 5})", nn::LayerNorm(nn::LayerNormOptions({4, 5})), {{3, 4, 5}}),
      LAYER("nn.LocalResponseNorm(3)", nn::LocalResponseNorm(3), {{3, 4, 5, 2}}),
      LAYER("nn.Embedding(10, 3, {padding_idx = 2})", nn::Embedding(nn::EmbeddingOptions(10, 3).padding_idx(2)),
            {{-1, 4, 2}}),
      LAYER("nn.EmbeddingBag(10, 3)", nn::EmbeddingBag(10, 3), {{-1, 4, 2}}),
      LAYER("nn.MaxPool1d(2)", nn::MaxPool1d(2), {{3, 4, 7}}),
      LAYER("nn.MaxPool2d(3, 2, 1)", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)), {{3, 4, 7, 6}}),
      LAYER("nn.MaxPool3d(2, {ceil_mode = true})", nn::MaxPool3d(nn::MaxPool3dOptions(2).ceil_mode(true)),
            {{3, 4, 5, 3, 4}}),
      LAYER("nn.AvgPool1d(2, {padding = 1})", nn::AvgPool1d(nn::AvgPool1dOptions(2).padding(1)), {{3, 4, 7}}),
      LAYER("nn.AvgPool2d(2, {divisor_override = 3})", nn::AvgPool2d(nn::AvgPool2dOptions(2).divisor_override(3)),
            {{3, 4, 7, 6}}),
      LAYER("nn.AvgPool3d(2)", nn::AvgPool3d(2), {{3, 4, 5, 3, 4}}),
      LAYER("nn.AdaptiveAvgPool1d(3)", nn::AdaptiveAvgPool1d(3), {{3, 4, 7}}),
      LAYER("nn.AdaptiveAvgPool2d({3, torch.None})",
            nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, c10::nullopt})), {{3, 4, 7, 6}}),
      LAYER("nn.AdaptiveMaxPool2d(2)", nn::AdaptiveMaxPool2d(2), {{3, 4, 7, 6}}),
      LAYER("nn.LPPool2d(2, 2)", nn::LPPool2d(nn::LPPool2dOptions(2, 2)), {{3, 4, 7, 6}}),
      LAYER("nn.ReflectionPad2d({1, 2, 1, 0})", nn::ReflectionPad2d(nn::ReflectionPad2dOptions({1, 2, 1, 0})),
            {{3, 4, 5, 4}}),
      LAYER("nn.ReplicationPad3d(1)", nn::ReplicationPad3d(1), {{3, 4, 2, 3, 2}}),
      LAYER("nn.ZeroPad2d(1)", nn::ZeroPad2d(1), {{3, 4, 5, 4}}),
      LAYER("nn.ConstantPad1d({1, 2}, 2.5)", nn::ConstantPad1d(nn::ConstantPad1dOptions({1, 2}, 2.5)), {{3, 4, 5}}),
      LAYER("nn.LSTM(3, 4, {num_layers = 2, bidirectional = true, batch_first = true})",
            nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)), {{5, 2, 3}}),
      LAYER("nn.LSTM(3, 4, {proj_size = 2})", nn::LSTM(nn::LSTMOptions(3, 4).proj_size(2)), {{5, 2, 3}}),
      LAYER("nn.GRU(3, 4)", nn::GRU(3, 4), {{5, 2, 3}}),
      LAYER("nn.GRU(3, 4)", nn::GRU(3, 4), {{5, 2, 3}, {1, 2, 4}}),
      LAYER("nn.RNN(3, 4, {nonlinearity = 'relu', bias = false})",
            nn::RNN(nn::RNNOptions(3, 4).nonlinearity(torch::kReLU).bias(false)), {{5, 2, 3}}),
      LAYER("nn.LSTMCell(3, 4)", nn::LSTMCell(3, 4), {{2, 3}}),
      LAYER("nn.GRUCell(3, 4)", nn::GRUCell(3, 4), {{2, 3}}),
      LAYER("nn.RNNCell(3, 4)", nn::RNNCell(3, 4), {{2, 3}, {2, 4}}),
      LAYER("nn.MultiheadAttention(6, 2)", nn::MultiheadAttention(6, 2), {{4, 3, 6}, {5, 3, 6}, {5, 3, 6}}),
      LAYER("nn.MultiheadAttention(6, 2, {kdim = 3, vdim = 3, add_zero_attn = true})",
            nn::MultiheadAttention(nn::MultiheadAttentionOptions(6, 2).kdim(3).vdim(3).add_zero_attn(true)),
            {{4, 3, 6}, {5, 3, 3}, {5, 3, 3}}),
      LAYER("nn.TransformerEncoderLayer(6, 2, 8, 0.0)",
            nn::TransformerEncoderLayer(O(6, 2).dim_feedforward(8).dropout(0)), {{4, 3, 6}}),
      LAYER("nn.TransformerDecoderLayer(6, 2, 8, 0.0, 'gelu')",
            nn::TransformerDecoderLayer(
                nn::TransformerDecoderLayerOptions(6, 2).dim_feedforward(8).dropout(0).activation(torch::kGELU)),
            {{4, 3, 6}, {5, 3, 6}}),
      LAYER("nn.GELU()", nn::GELU(), {{3, 4}}),
      LAYER("nn.SELU()", nn::SELU(), {{3, 4}}),
      LAYER("nn.CELU(0.7)", nn::CELU(nn::CELUOptions().alpha(0.7)), {{3, 4}}),
      LAYER("nn.ELU(0.7)", nn::ELU(nn::ELUOptions().alpha(0.7)), {{3, 4}}),
      LAYER("nn.LeakyReLU(0.2)", nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)), {{3, 4}}),
      LAYER("nn.ReLU6()", nn::ReLU6(), {{3, 4}}),
      LAYER("nn.PReLU(4)", nn::PReLU(nn::PReLUOptions().num_parameters(4)), {{3, 4}}),
      LAYER("nn.RReLU()", nn::RReLU(), {{3, 4}}),
      LAYER("nn.GLU()", nn::GLU(), {{3, 4}}),
      LAYER("nn.Hardshrink()", nn::Hardshrink(), {{3, 4}}),
      LAYER("nn.Hardtanh()", nn::Hardtanh(), {{3, 4}}),
      LAYER("nn.LogSigmoid()", nn::LogSigmoid(), {{3, 4}}),
      LAYER("nn.Mish()", nn::Mish(), {{3, 4}}),
      LAYER("nn.SiLU()", nn::SiLU(), {{3, 4}}),
      LAYER("nn.Softplus(2, 1)", nn::Softplus(nn::SoftplusOptions().beta(2).threshold(1)), {{3, 4}}),
      LAYER("nn.Softshrink()", nn::Softshrink(), {{3, 4}}),
      LAYER("nn.Softsign()", nn::Softsign(), {{3, 4}}),
      LAYER("nn.Tanhshrink()", nn::Tanhshrink(), {{3, 4}}),
      LAYER("nn.Threshold(0.1, -2)", nn::Threshold(0.1, -2.0), {{3, 4}}),
      LAYER("nn.Softmax(1)", nn::Softmax(1), {{3, 4}}),
      LAYER("nn.LogSoftmax(1)", nn::LogSoftmax(1), {{3, 4}}),
      LAYER("nn.Softmin(1)", nn::Softmin(1), {{3, 4}}),
      LAYER("nn.Softmax2d()", nn::Softmax2d(), {{3, 4, 5, 2}}),
      LAYER("nn.Dropout()", nn::Dropout(), {{3, 4}}),
      LAYER("nn.Dropout2d()", nn::Dropout2d(), {{3, 4, 5, 2}}),
      LAYER("nn.AlphaDropout()", nn::AlphaDropout(), {{3, 4}}),
      LAYER("nn.FeatureAlphaDropout()", nn::FeatureAlphaDropout(), {{3, 4, 5}}),
      LAYER("nn.CosineSimilarity()", nn::CosineSimilarity(), {{3, 4}, {3, 4}}),
      LAYER("nn.PairwiseDistance()", nn::PairwiseDistance(), {{3, 4}, {3, 4}}),
      LAYER("nn.Flatten()", nn::Flatten(), {{3, 4, 5}}),
      LAYER("nn.PixelShuffle(2)", nn::PixelShuffle(2), {{3, 4, 2, 2}}),
      LAYER("nn.PixelUnshuffle(2)", nn::PixelUnshuffle(2), {{3, 2, 4, 4}}),
      LAYER("nn.Unfold(2)", nn::Unfold(2), {{3, 2, 4, 5}}),
      LAYER("nn.Fold({4, 5}, 2)", nn::Fold(nn::FoldOptions({4, 5}, 2)), {{3, 8, 12}}),
      LAYER("nn.Upsample(7, {mode = 'bilinear', align_corners = true})",
            nn::Upsample(
                nn::UpsampleOptions().size(std::vector<int64_t>{7, 7}).mode(torch::kBilinear).align_corners(true)),
            {{3, 2, 4, 5}}),
      LAYER("nn.L1Loss()", nn::L1Loss(), {{3, 4}, {3, 4}}),
      LAYER("nn.MSELoss()", nn::MSELoss(), {{3, 4}, {3, 4}}),
      LAYER("nn.SmoothL1Loss({beta = 0.5})", nn::SmoothL1Loss(nn::SmoothL1LossOptions().beta(0.5)), {{3, 4}, {3, 4}}),
      LAYER("nn.HuberLoss({delta = 0.5})", nn::HuberLoss(nn::HuberLossOptions().delta(0.5)), {{3, 4}, {3, 4}}),
      LAYER("nn.KLDivLoss({reduction = 'batchmean'})",
            nn::KLDivLoss(nn::KLDivLossOptions().reduction(torch::kBatchMean)), {{3, 4}, {3, 4}}),
      LAYER("nn.PoissonNLLLoss()", nn::PoissonNLLLoss(), {{3, 4}, {3, 4}}),
      LAYER("nn.BCEWithLogitsLoss()", nn::BCEWithLogitsLoss(), {{3, 4}, {3, 4}}),
      LAYER("nn.CrossEntropyLoss({label_smoothing = 0.1})",
            nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.1)), {{5, 10}, {-1, 5}}),
      LAYER("nn.NLLLoss({reduction = 'none'})", nn::NLLLoss(nn::NLLLossOptions().reduction(torch::kNone)),
            {{5, 10}, {-1, 5}}),
      LAYER("nn.MultiMarginLoss()", nn::MultiMarginLoss(), {{5, 10}, {-1, 5}}),
      LAYER("nn.TripletMarginLoss()", nn::TripletMarginLoss(), {{3, 4}, {3, 4}, {3, 4}}),
      LAYER("nn.MultiLabelSoftMarginLoss()", nn::MultiLabelSoftMarginLoss(), {{3, 4}, {3, 4}}),
  };
}

#undef LAYER

Tensors inputs_of(const Case& one) {
  Tensors inputs;
  for (const auto& sizes : one.inputs)
    inputs.push_back(sizes[0] < 0 ? at::randint(10, std::vector<int64_t>(sizes.begin() + 1, sizes.end()), at::kLong)
                                  : at::randn(sizes));
  if (inputs.size() > 1 && one.lua.find("Loss") != std::string::npos && inputs.back().is_floating_point())
    for (size_t i = 1; i < inputs.size(); ++i) inputs[i] = inputs[i].sigmoid();  // targets between 0 and 1
  return inputs;
}

/// Parameters, then buffers.
std::vector<std::pair<std::string, at::Tensor>> state_of(const nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& item : module.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) all.emplace_back(item.key(), item.value());
  return all;
}

/// Outputs and gradients of the inputs and parameters of one step.
Tensors step(const Twin& twin, const Tensors& given) {
  Tensors inputs;
  for (const at::Tensor& input : given)
    inputs.push_back(input.is_floating_point() ? input.clone().requires_grad_() : input);
  for (auto& parameter : twin.module->parameters()) parameter.mutable_grad() = at::Tensor();
  at::manual_seed(5);
  Tensors all = twin.call(inputs);
  at::Tensor loss = at::zeros({});
  for (const at::Tensor& output : all)
    if (output.requires_grad()) loss = loss + output.square().sum();
  if (loss.requires_grad()) loss.backward();
  for (const at::Tensor& input : inputs)
    if (input.is_floating_point()) all.push_back(input.grad().defined() ? input.grad() : at::zeros({}));
  for (const auto& parameter : twin.module->parameters())
    all.push_back(parameter.grad().defined() ? parameter.grad() : at::zeros({}));
  for (const auto& item : state_of(*twin.module)) all.push_back(item.second.detach().clone());
  for (at::Tensor& tensor : all) tensor = tensor.detach();
  return all;
}

/// The same in Lua; the state comes before the inputs. `names`: of the state, in LibTorch's order.
std::string program(const Case& one, const std::string& names, bool training, const std::string& mode) {
  return "local given, model, state = {...}, " + one.lua + ", {}\nlocal names = {" + names + "}\nlocal mode = '" +
         mode +
         "'\nfor i, name in ipairs(names) do state[name] = given[i] end\nmodel:load_state_dict(state)\nmodel:train(" +
         (training ? "true" : "false") + R"()
local inputs = {}
for i = #names + 1, #given do
  local x = given[i]
  inputs[#inputs + 1] = x:is_floating_point() and x:clone():requires_grad_() or x
end
local forward = model
if mode ~= "plain" then
  forward = triage.compile(function(...) return model(...) end, {backend = mode})
end
local function flat(list, ...)
  for _, value in ipairs({...}) do
    if torch.is_tensor(value) then list[#list + 1] = value else flat(list, table.unpack(value)) end
  end
  return list
end
torch.manual_seed(5)
local all, loss = flat({}, forward(table.unpack(inputs))), torch.zeros({})
for _, output in ipairs(all) do
  if output.requires_grad then loss = loss + output:square():sum() end
end
if loss.requires_grad then loss:backward() end
for _, x in ipairs(inputs) do
  if x:is_floating_point() then all[#all + 1] = x.grad or torch.zeros({}) end
end
local parameters, own = {}, model:state_dict()
for _, pair in ipairs(model:named_parameters()) do parameters[pair[1]] = pair[2] end
for _, name in ipairs(names) do
  if parameters[name] then all[#all + 1] = parameters[name].grad or torch.zeros({}) end
end
for _, name in ipairs(names) do all[#all + 1] = own[name] end
return table.unpack(all)
)";
}

void check_close(const Tensors& got, const Tensors& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK((got[i].scalar_type() == expected[i].scalar_type()));
    REQUIRE(got[i].sizes() == expected[i].sizes());
    CHECK(at::allclose(got[i].detach(), expected[i], 1e-4, 1e-5, /*equal_nan=*/true));
  }
}

}  // namespace

TEST_CASE("layers are those of LibTorch: parameters as drawn, outputs, gradients, statistics") {
  int64_t seed = 100;
  for (const Case& one : cases()) {
    CAPTURE(one.lua);
    at::manual_seed(++seed);
    const Twin twin = one.make();
    const auto state = state_of(*twin.module);
    std::string names;
    for (const auto& item : state) names += "'" + item.first + "', ";

    Fixture drawn;
    const Tensors fresh = drawn.run("torch.manual_seed(" + std::to_string(seed) + ")\nlocal model = " + one.lua +
                                    "\nlocal all, state = {}, model:state_dict()\nfor i, name in ipairs({" + names +
                                    "}) do all[i] = state[name] end\nreturn table.unpack(all)");
    REQUIRE(fresh.size() == state.size());
    for (size_t i = 0; i < state.size(); ++i)
      CHECK_MESSAGE(same_bits(fresh[i], state[i].second.detach()), state[i].first);

    const Tensors inputs = inputs_of(one);
    Tensors before;
    for (const auto& item : state) before.push_back(item.second.detach().clone());
    for (const bool training : {true, false}) {
      CAPTURE(training);
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < state.size(); ++i) at::Tensor(state[i].second).copy_(before[i]);
      twin.module->train(training);
      const Tensors expected = [&] {
        const c10::AutoGradMode grad(true);
        return step(twin, inputs);
      }();
      Tensors given = before;
      given.insert(given.end(), inputs.begin(), inputs.end());
      for (const char* mode : {"plain", "eager", "fused"}) {
        CAPTURE(mode);
        const c10::AutoGradMode grad(true);
        Fixture fixture;
        check_close(fixture.run(program(one, names, training, mode), given), expected);
      }
    }
  }
}

/// Of these a policy has no operator, whose contract nobody has written.
bool is_left_to_trusted_scripts(const std::string& lua) {
  for (const char* const name : {"Bilinear", "Unfold", "Fold", "Upsample", "MultiMarginLoss"})
    if (lua.find(std::string("nn.") + name) == 0) return true;
  return false;
}

TEST_CASE("layers in a policy give what they give in a script, in evaluation") {
  const at::NoGradGuard no_grad;
  for (const Case& one : cases()) {
    CAPTURE(one.lua);
    at::manual_seed(1);
    Tensors inputs = inputs_of(one);
    const std::string source = "torch.manual_seed(1)\nlocal model = " + one.lua + R"(
      model:eval()
      local function flat(list, ...)
        for _, value in ipairs({...}) do
          if torch.is_tensor(value) then list[#list + 1] = value else flat(list, table.unpack(value)) end
        end
        return list
      end
      return table.unpack(flat({}, model(...))))";
    Fixture script;
    const Tensors expected = script.run(source, inputs);
    StateOptions options = trusted_options();
    options.sandboxed = true;
    Fixture policy(std::move(options));
    // A policy sets no seed: the weights are those that are drawn next.
    at::manual_seed(1);
    const std::string unseeded = source.substr(source.find('\n') + 1);
    if (is_left_to_trusted_scripts(one.lua)) {
      CHECK_THROWS_WITH(policy.run(unseeded, inputs), doctest::Contains("operators of policies"));
      continue;
    }
    check_close(policy.run(unseeded, inputs), expected);
  }
}

TEST_CASE("a policy trains no running statistics") {
  StateOptions options = trusted_options();
  options.sandboxed = true;
  Fixture policy(std::move(options));
  CHECK_THROWS_WITH(policy.run("return nn.BatchNorm1d(4)(...)", {at::randn({3, 4})}),
                    doctest::Contains("nn.BatchNorm1d: in training it writes its running statistics"));
}

}  // namespace triage::lua::testing
