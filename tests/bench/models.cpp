#include "models.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "tests/diagnose/script_model.h"

namespace triage::bench {
namespace {

using testing::script;
using torch::jit::Module;

at::Tensor parameter(Model& model, at::IntArrayRef sizes, double deviation, double mean = 0) {
  return model.parameters.emplace_back((at::randn(sizes) * deviation + mean).requires_grad_());
}

std::string shape_of(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

Model empty_model(const std::string& name, at::IntArrayRef sizes, const char* source) {
  Model model;
  model.name = name;
  model.shape = shape_of(sizes);
  model.source = source;
  model.input = at::randn(sizes);
  model.target = at::randn(sizes);
  return model;
}

Module linear(Model& model, int64_t in, int64_t out) {
  const at::Tensor weight = parameter(model, {out, in}, 1 / std::sqrt(static_cast<double>(in)));
  return script("Linear", R"(
    def forward(self, x):
        return torch.linear(x, self.weight, self.bias)
  )",
                {}, {{"weight", weight}, {"bias", parameter(model, {out}, 0.1)}});
}

Model mlp(int64_t rows, int64_t width) {
  Model model = empty_model("MLP", {rows, width}, R"(
local function forward(look, x, p)
  x = torch.relu(look(torch.linear(x, p[1], p[2]), "first"))
  x = torch.relu(look(torch.linear(x, p[3], p[4]), "second"))
  return look(torch.linear(x, p[5], p[6]), "third")
end
)");
  const Module first = linear(model, width, 2 * width), second = linear(model, 2 * width, 2 * width),
               third = linear(model, 2 * width, width);
  model.script = script("MLP", R"(
    def forward(self, x):
        x = torch.relu(self.first.forward(x))
        x = torch.relu(self.second.forward(x))
        return self.third.forward(x)
  )",
                        {{"first", first}, {"second", second}, {"third", third}});
  return model;
}

// The basic block of ResNet

Module convolution(Model& model, int64_t channels) {
  const double deviation = 1 / std::sqrt(9.0 * static_cast<double>(channels));
  return script("Conv2d", R"(
    def forward(self, x):
        return torch.conv2d(x, self.weight, None, [1, 1], [1, 1])
  )",
                {}, {{"weight", parameter(model, {channels, channels, 3, 3}, deviation)}});
}

/// Its own parameters stand in for the statistics that it would have.
Module batch_norm(Model& model, int64_t channels, bool training) {
  const at::Tensor weight = parameter(model, {channels}, 0.1, 1);
  return script("BatchNorm2d",
                training ? R"(
    def forward(self, x):
        return torch.batch_norm(x, self.weight, self.bias, None, None, True, 0.1, 1e-5, False)
  )"
                         : R"(
    def forward(self, x):
        return torch.batch_norm(x, self.weight, self.bias, self.bias.detach(), self.weight.detach(), False, 0.1, 1e-5, False)
  )",
                {}, {{"weight", weight}, {"bias", parameter(model, {channels}, 0.1)}});
}

Model resnet_block(int64_t rows, int64_t channels, int64_t size, bool training) {
  Model model = empty_model("ResNet block", {rows, channels, size, size}, R"(
local function normalised(x, weight, bias)
  if training then
    return torch.batch_norm(x, weight, bias, nil, nil, true, 0.1, 1e-5, false)
  end
  return torch.batch_norm(x, weight, bias, bias:detach(), weight:detach(), false, 0.1, 1e-5, false)
end

local function forward(look, x, p)
  local h = look(torch.conv2d(x, p[1], nil, {1, 1}, {1, 1}), "conv1")
  h = torch.relu(look(normalised(h, p[2], p[3]), "norm1"))
  h = look(torch.conv2d(h, p[4], nil, {1, 1}, {1, 1}), "conv2")
  h = look(normalised(h, p[5], p[6]), "norm2")
  return look(torch.relu(h + x), "block")
end
)");
  model.source = std::string("local training <const> = ") + (training ? "true" : "false") + model.source;
  const Module conv1 = convolution(model, channels), norm1 = batch_norm(model, channels, training),
               conv2 = convolution(model, channels), norm2 = batch_norm(model, channels, training);
  model.script = script("BasicBlock", R"(
    def forward(self, x):
        h = torch.relu(self.norm1.forward(self.conv1.forward(x)))
        return torch.relu(self.norm2.forward(self.conv2.forward(h)) + x)
  )",
                        {{"conv1", conv1}, {"norm1", norm1}, {"conv2", conv2}, {"norm2", norm2}});
  return model;
}

// A stack of transformer blocks, each normalised before its attention and before its MLP

Module layer_norm(Model& model, int64_t width) {
  const at::Tensor weight = parameter(model, {width}, 0.1, 1);
  return script("LayerNorm", R"(
    def forward(self, x):
        return torch.layer_norm(x, [x.size(-1)], self.weight, self.bias)
  )",
                {}, {{"weight", weight}, {"bias", parameter(model, {width}, 0.1)}});
}

Module attention(Model& model, int64_t width) {
  const Module qkv = linear(model, width, 3 * width), out = linear(model, width, width);
  return script("Attention", R"(
    def forward(self, x):
        b, t, d = x.size(0), x.size(1), x.size(2)
        qkv = self.qkv.forward(x).reshape(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(qkv[0] * 0.125, qkv[1].transpose(-2, -1))
        mixed = torch.matmul(torch.softmax(scores, -1), qkv[2])
        return self.out.forward(mixed.transpose(1, 2).reshape(b, t, d))
  )",
                {{"qkv", qkv}, {"out", out}});
}

Module transformer_block(Model& model, int64_t width) {
  const Module norm1 = layer_norm(model, width), mixes = attention(model, width), norm2 = layer_norm(model, width),
               up = linear(model, width, 4 * width), down = linear(model, 4 * width, width);
  return script("Block", R"(
    def forward(self, x):
        x = x + self.attention.forward(self.norm1.forward(x))
        return x + self.down.forward(torch.gelu(self.up.forward(self.norm2.forward(x))))
  )",
                {{"norm1", norm1}, {"attention", mixes}, {"norm2", norm2}, {"up", up}, {"down", down}});
}

Model transformer(int64_t rows, int64_t length, int64_t width) {
  Model model = empty_model("2 transformer blocks", {rows, length, width}, R"(
local function attention(look, x, weight, bias, out_weight, out_bias, name)
  local b, t, d = x:size(0), x:size(1), x:size(2)
  local qkv = look(torch.linear(x, weight, bias), name .. ".qkv"):reshape({b, t, 3, 4, d // 4}):permute({2, 0, 3, 1, 4})
  local scores = torch.matmul(qkv[0] * 0.125, qkv[1]:transpose(-2, -1))
  local mixed = torch.matmul(torch.softmax(scores, -1), qkv[2])
  return look(torch.linear(mixed:transpose(1, 2):reshape({b, t, d}), out_weight, out_bias), name .. ".out")
end

local function block(look, x, p, first, name)
  local width = x:size(-1)
  local function at(i) return p[first + i] end
  local h = look(torch.layer_norm(x, {width}, at(0), at(1)), name .. ".norm1")
  x = x + attention(look, h, at(2), at(3), at(4), at(5), name .. ".attention")
  h = look(torch.layer_norm(x, {width}, at(6), at(7)), name .. ".norm2")
  h = torch.gelu(look(torch.linear(h, at(8), at(9)), name .. ".up"))
  return look(x + look(torch.linear(h, at(10), at(11)), name .. ".down"), name)
end

local function forward(look, x, p)
  x = block(look, x, p, 1, "blocks.0")
  return block(look, x, p, 13, "blocks.1")
end
)");
  const Module first = transformer_block(model, width), second = transformer_block(model, width);
  model.script = script("Transformer", R"(
    def forward(self, x):
        return self.second.forward(self.first.forward(x))
  )",
                        {{"first", first}, {"second", second}});
  return model;
}

}  // namespace

std::vector<Model> models(bool training) {
  return {mlp(32, 512),
          mlp(256, 512),
          resnet_block(8, 64, 28, training),
          resnet_block(4, 128, 14, training),
          transformer(8, 64, 256),
          transformer(4, 128, 512)};
}

std::string policy_source(const Model& model, bool with_flags) {
  std::string names = "'x'";
  for (size_t i = 1; i <= model.parameters.size(); ++i) names += ", 'p" + std::to_string(i) + "'";
  const char* const run = with_flags ? R"(
  local f = err.new(x)
  local function look(h, name)
    f = flag_nan_and_inf(h, name, f)
    return h
  end
  local y = forward(look, x, {...})
  return fix(y, f, "output")
)"
                                     : R"(
  return forward(function(h) return h end, x, {...})
)";
  return model.source + "return policy {inputs = {" + names + "}, run = function(x, ...)" + run + "end}";
}

}  // namespace triage::bench
