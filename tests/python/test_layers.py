"""The layers of Lua against PyTorch's modules: the same seed draws the same parameters, a state dict of torch.save loads, and
outputs, gradients, statistics and what is left in evaluation are the same, plainly and captured."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn


class Layer:
    """A constructor that reads the same in Python and in Lua."""

    def __init__(self, name, *args, **options):
        self.name, self.args, self.options = name, args, options

    def lua(self):
        parts = [literal(a) for a in self.args]
        if self.options:
            parts.append("{" + ", ".join(f"{k} = {literal(v)}" for k, v in self.options.items()) + "}")
        return f"nn.{self.name}(" + ", ".join(parts) + ")"

    def make(self):
        def plain(value):
            return value.make() if isinstance(value, Layer) else value

        return getattr(nn, self.name)(*map(plain, self.args), **{k: plain(v) for k, v in self.options.items()})


def literal(value):
    if value is None:
        return "torch.None"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(map(literal, value)) + "}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, torch.Tensor):
        return "torch.tensor(" + literal(value.tolist()) + ")"
    return value.lua() if isinstance(value, Layer) else repr(value)


M = Layer
CASES = []


def add(layer, *inputs, call=""):
    """`call`: a further argument of the call, in Lua."""
    CASES.append((layer, inputs, call))


def f(*sizes):
    """Normal numbers, which require grad."""
    return ("f", *sizes)


def u(*sizes):
    """Numbers between 0 and 1, which require grad."""
    return ("u", *sizes)


def ids(limit, *sizes):
    return ("i", limit, *sizes)


def t(values):
    return ("t", torch.tensor(values))


add(M("Linear", 4, 3), f(5, 4))
add(M("Linear", 4, 3, bias=False), f(2, 5, 4))
add(M("Bilinear", 3, 4, 5), f(6, 3), f(6, 4))
for d in (1, 2, 3):
    s = [7, 6, 5][:d]
    for kw in (
        {},
        dict(stride=2, padding=1),
        dict(dilation=2, padding=2),
        dict(groups=2),
        dict(bias=False),
        dict(padding="same"),
        dict(padding="valid"),
        dict(padding=1, padding_mode="reflect"),
        dict(padding=1, padding_mode="replicate"),
        dict(padding=1, padding_mode="circular"),
        dict(padding="same", padding_mode="circular"),
    ):
        add(M(f"Conv{d}d", 4, 6, 3, **kw), f(3, 4, *s))
        if kw.get("padding") == "same":
            add(M(f"Conv{d}d", 4, 6, 2, **kw), f(3, 4, *s))
    add(M(f"Conv{d}d", 4, 6, 3), f(4, *s))
    add(M(f"Conv{d}d", 4, 6, tuple([3, 2, 1][:d]), tuple([2, 1, 1][:d])), f(3, 4, *s))
    for kw in ({}, dict(stride=2, padding=1, output_padding=1), dict(dilation=2), dict(groups=2), dict(bias=False)):
        add(M(f"ConvTranspose{d}d", 4, 6, 3, **kw), f(3, 4, *s))
    add(M(f"ConvTranspose{d}d", 4, 6, 3, 2), f(3, 4, *s), call="{%s}" % ", ".join(str(2 * n + 2) for n in s))
    for kw in ({}, dict(eps=1e-3, momentum=0.3), dict(affine=False), dict(track_running_stats=False), dict(momentum=None)):
        add(M(f"BatchNorm{d}d", 4, **kw), f(3, 4, *s))
        add(M(f"InstanceNorm{d}d", 4, **kw), f(3, 4, *s))
        if d == 1:
            add(M("BatchNorm1d", 4, **kw), f(6, 4))
    add(M(f"InstanceNorm{d}d", 4, affine=True, track_running_stats=True), f(3, 4, *s))
    add(M(f"InstanceNorm{d}d", 4, affine=True), f(4, *s))
    for kw in ({}, dict(stride=1), dict(padding=1), dict(ceil_mode=True)):
        add(M(f"MaxPool{d}d", 2, **kw), f(3, 4, *s))
        add(M(f"AvgPool{d}d", 2, **kw), f(3, 4, *s))
    add(M(f"MaxPool{d}d", 2, dilation=2), f(3, 4, *s))
    add(M(f"MaxPool{d}d", 2, return_indices=True), f(3, 4, *s))
    add(M(f"AvgPool{d}d", 2, padding=1, count_include_pad=False), f(3, 4, *s))
    add(M(f"AvgPool{d}d", 2), f(4, *s))
    if d > 1:
        add(M(f"AvgPool{d}d", 2, divisor_override=3), f(3, 4, *s))
        add(M(f"AdaptiveAvgPool{d}d", (3,) + (None,) * (d - 1)), f(3, 4, *s))
    add(M(f"AdaptiveAvgPool{d}d", 3), f(3, 4, *s))
    add(M(f"AdaptiveMaxPool{d}d", 3), f(3, 4, *s))
    add(M(f"AdaptiveMaxPool{d}d", 2, return_indices=True), f(3, 4, *s))
    add(M(f"LPPool{d}d", 2, 2), f(3, 4, *s))
    add(M(f"LPPool{d}d", 3.0, 2, stride=1), f(3, 4, *s))
    pads = tuple([1, 2, 1, 0, 1, 1][: 2 * d])
    for n in ("ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad"):
        add(M(f"{n}{d}d", pads), f(3, 4, *s))
        add(M(f"{n}{d}d", 1), f(3, 4, *s))
    add(M(f"ConstantPad{d}d", pads, 2.5), f(3, 4, *s))
    add(M(f"ConstantPad{d}d", -1, 2.5), f(3, 4, *s))
add(M("GroupNorm", 2, 4), f(3, 4, 5))
add(M("GroupNorm", 2, 4, affine=False, eps=1e-2), f(3, 4, 5, 2))
add(M("LayerNorm", 5), f(3, 5))
add(M("LayerNorm", (4, 5), eps=1e-3), f(3, 4, 5))
add(M("LayerNorm", 5, bias=False), f(3, 5))
add(M("LayerNorm", 5, elementwise_affine=False), f(3, 5))
add(M("RMSNorm", 5), f(3, 5))
add(M("RMSNorm", (4, 5), eps=1e-3), f(3, 4, 5))
add(M("RMSNorm", 5, elementwise_affine=False), f(3, 5))
add(M("LocalResponseNorm", 2), f(3, 4, 5))
add(M("LocalResponseNorm", 3, alpha=0.1, beta=0.5, k=2.0), f(3, 4, 5, 6))
add(M("LocalResponseNorm", 3), f(3, 4, 5, 6, 2))
add(M("Embedding", 10, 3), ids(10, 4, 2))
add(M("Embedding", 10, 3, padding_idx=-1), ids(10, 4, 2))
add(M("Embedding", 10, 3, padding_idx=2, scale_grad_by_freq=True), ids(10, 4, 2))
add(M("Embedding", 10, 3, max_norm=1.0), ids(10, 4, 2))
for mode in ("sum", "mean", "max"):
    add(M("EmbeddingBag", 10, 3, mode=mode), ids(10, 4, 2))
    add(M("EmbeddingBag", 10, 3, mode=mode), ids(10, 7), t([0, 2, 5]))
add(M("EmbeddingBag", 10, 3, mode="sum", include_last_offset=True), ids(10, 7), t([0, 2, 5, 7]))
add(M("EmbeddingBag", 10, 3, padding_idx=2), ids(10, 4, 2))
add(M("EmbeddingBag", 10, 3, mode="sum", max_norm=1.0), ids(10, 4, 2))
for name in ("LSTM", "GRU", "RNN"):
    for kw in ({}, dict(num_layers=2), dict(num_layers=2, bidirectional=True, batch_first=True), dict(bias=False)):
        add(M(name, 3, 4, **kw), f(5, 2, 3))
    add(M(name, 3, 4), f(5, 3))
    add(M(name, 3, 4, batch_first=True), f(5, 3))
add(M("GRU", 3, 4), f(5, 2, 3), f(1, 2, 4))
add(M("RNN", 3, 4, nonlinearity="relu"), f(5, 2, 3), f(1, 2, 4))
add(M("GRU", 3, 4), f(5, 3), f(1, 4))
add(M("LSTM", 3, 4, proj_size=2, bidirectional=True), f(5, 2, 3))
add(M("LSTM", 3, 4), f(5, 2, 3), [f(1, 2, 4), f(1, 2, 4)])
add(M("GRUCell", 3, 4), f(2, 3))
add(M("GRUCell", 3, 4), f(2, 3), f(2, 4))
add(M("RNNCell", 3, 4), f(3))
add(M("RNNCell", 3, 4, nonlinearity="relu", bias=False), f(2, 3), f(2, 4))
add(M("LSTMCell", 3, 4), f(2, 3))
add(M("LSTMCell", 3, 4), f(2, 3), [f(2, 4), f(2, 4)])
for kw in (
    {},
    dict(batch_first=True),
    dict(bias=False),
    dict(kdim=6, vdim=6),
    dict(add_bias_kv=True),
    dict(add_zero_attn=True),
    dict(add_bias_kv=True, add_zero_attn=True, batch_first=True),
):
    add(M("MultiheadAttention", 6, 2, **kw), f(4, 3, 6), f(4, 3, 6), f(4, 3, 6))
add(M("MultiheadAttention", 6, 2, kdim=3, vdim=5), f(4, 3, 6), f(5, 3, 3), f(5, 3, 5))
for kw in ({}, dict(norm_first=True), dict(activation="gelu", batch_first=True), dict(bias=False)):
    add(M("TransformerEncoderLayer", 6, 2, 8, dropout=0.0, **kw), f(4, 3, 6))
    add(M("TransformerDecoderLayer", 6, 2, 8, dropout=0.0, **kw), f(4, 3, 6), f(4, 3, 6))
add(M("TransformerEncoder", M("TransformerEncoderLayer", 6, 2, 8, dropout=0.0), 2, M("LayerNorm", 6)), f(4, 3, 6))
add(M("TransformerDecoder", M("TransformerDecoderLayer", 6, 2, 8, dropout=0.0), 2), f(4, 3, 6), f(5, 3, 6))
add(M("Transformer", 6, 2, 1, 2, 8, dropout=0.0), f(4, 3, 6), f(5, 3, 6))
small = dict(d_model=6, nhead=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=8, dropout=0.0)
add(M("Transformer", **small, batch_first=True, norm_first=True), f(3, 4, 6), f(3, 5, 6))
for n in (
    "ReLU ReLU6 RReLU LeakyReLU ELU SELU CELU GELU SiLU Mish Sigmoid LogSigmoid Hardsigmoid Hardswish Hardtanh Hardshrink "
    "Softshrink Softplus Softsign Tanh Tanhshrink GLU PReLU Identity Flatten Dropout Dropout1d AlphaDropout "
    "FeatureAlphaDropout"
).split():
    add(M(n), f(3, 4, 6))
for n in ("Softmax", "LogSoftmax", "Softmin"):
    add(M(n, dim=1), f(3, 4, 6))
add(M("Dropout2d"), f(3, 4, 6, 2))
add(M("Dropout3d"), f(3, 4, 6, 2, 2))
for n in "ReLU ReLU6 LeakyReLU ELU SELU CELU SiLU Mish Hardsigmoid Hardswish Hardtanh".split():
    add(M(n, inplace=True), f(3, 4))
add(M("Threshold", 0.1, -2.0), f(3, 4))
add(M("GELU", approximate="tanh"), f(3, 4))
add(M("PReLU", 4, 0.3), f(3, 4))
add(M("LeakyReLU", 0.2), f(3, 4))
add(M("ELU", 0.7), f(3, 4))
add(M("CELU", 0.7), f(3, 4))
add(M("Softplus", 2.0, 1.0), f(3, 4))
add(M("Hardtanh", -0.5, 0.25), f(3, 4))
add(M("Softmax2d"), f(3, 4, 5, 2))
add(M("GLU", 1), f(3, 4))
add(M("Softmax", -1), f(3, 4))
add(M("Hardshrink", 0.2), f(3, 4))
add(M("Softshrink", 0.2), f(3, 4))
add(M("CosineSimilarity"), f(3, 4), f(3, 4))
add(M("PairwiseDistance"), f(3, 4), f(3, 4))
add(M("PairwiseDistance", p=1.0, keepdim=True), f(3, 4), f(3, 4))
add(M("Unflatten", 1, (2, -1)), f(3, 4))
add(M("PixelShuffle", 2), f(3, 4, 2, 2))
add(M("PixelUnshuffle", 2), f(3, 2, 4, 4))
add(M("ChannelShuffle", 2), f(3, 4, 2, 2))
add(M("Unfold", 2, padding=1), f(3, 2, 4, 5))
add(M("Fold", (4, 5), 2), f(3, 8, 12))
for mode, s in (
    ("nearest", (4,)),
    ("nearest", (4, 5)),
    ("nearest", (3, 4, 2)),
    ("linear", (4,)),
    ("bilinear", (4, 5)),
    ("bicubic", (4, 5)),
    ("trilinear", (3, 4, 2)),
    ("nearest-exact", (4, 5)),
):
    add(M("Upsample", scale_factor=2, mode=mode), f(2, 3, *s))
    add(M("Upsample", 7, mode=mode), f(2, 3, *s))
    if "nearest" not in mode:
        add(M("Upsample", scale_factor=1.5, mode=mode, align_corners=True), f(2, 3, *s))
weights = torch.tensor([1.0, 2, 3, 4])
p, y = u(5, 4), t([[1.0, 0, 1, 0]] * 5)
for r in ("mean", "sum", "none"):
    for n in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "PoissonNLLLoss", "KLDivLoss"):
        add(M(n, reduction=r), f(5, 4), f(5, 4))
    add(M("SoftMarginLoss", reduction=r), f(5, 4), t([[1.0, -1, 1, -1]] * 5))
    add(M("HingeEmbeddingLoss", reduction=r), f(5, 4), t([[1.0, -1, 1, -1]] * 5))
    add(M("CrossEntropyLoss", reduction=r, label_smoothing=0.1), f(5, 4), ids(4, 5))
    add(M("CrossEntropyLoss", weight=weights, reduction=r, ignore_index=1), f(5, 4, 3), ids(4, 5, 3))
    add(M("NLLLoss", weight=weights, reduction=r), f(5, 4), ids(4, 5))
    add(M("NLLLoss", reduction=r), f(5, 4, 3), ids(4, 5, 3))
    add(M("BCELoss", reduction=r), p, y)
    add(M("BCEWithLogitsLoss", pos_weight=weights, reduction=r), f(5, 4), y)
    add(M("BCEWithLogitsLoss", weight=weights, reduction=r), f(5, 4), y)
    add(M("MarginRankingLoss", margin=0.5, reduction=r), f(5), f(5), t([1.0, -1, 1, -1, 1]))
    add(M("CosineEmbeddingLoss", margin=0.1, reduction=r), f(5, 4), f(5, 4), t([1.0, -1, 1, -1, 1]))
    add(M("TripletMarginLoss", swap=True, reduction=r), f(5, 4), f(5, 4), f(5, 4))
    add(M("TripletMarginWithDistanceLoss", reduction=r), f(5, 4), f(5, 4), f(5, 4))
    add(M("MultiMarginLoss", p=2, margin=0.5, reduction=r), f(5, 4), ids(4, 5))
    add(M("MultiMarginLoss", reduction=r), f(5, 4), ids(4, 5))
    add(M("MultiLabelMarginLoss", reduction=r), f(5, 4), t([[0, 2, -1, 1]] * 5))
    add(M("MultiLabelSoftMarginLoss", reduction=r), f(5, 4), y)
    add(M("MultiLabelSoftMarginLoss", weight=weights, reduction=r), f(5, 4), y)
    add(M("GaussianNLLLoss", reduction=r), f(5, 4), f(5, 4), p)
    add(M("GaussianNLLLoss", full=True, eps=0.5, reduction=r), f(5, 4), f(5, 4), u(5, 1))
    add(M("GaussianNLLLoss", reduction=r), f(5, 4), f(5, 4), u(5))
add(M("KLDivLoss", reduction="batchmean", log_target=True), f(5, 4), f(5, 4))
add(M("PoissonNLLLoss", log_input=False, full=True), p, p)


def given(spec):
    if isinstance(spec, list):
        return [given(one) for one in spec]
    kind, *rest = spec
    if kind == "f":
        return torch.randn(rest)
    if kind == "u":
        return torch.rand(rest) * 0.9 + 0.05
    return torch.randint(0, rest[0], rest[1:]) if kind == "i" else rest[0].clone()


def is_trained(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def flat(value):
    if value is None or isinstance(value, torch.Tensor):
        return [] if value is None else [value]
    return [tensor for one in value for tensor in flat(one)]


def fresh(value, fixed):
    if not isinstance(value, torch.Tensor):
        return [fresh(one, False) for one in value]
    copy = value.clone()
    return copy.requires_grad_() if is_trained(value) and not fixed else copy


def gradient(tensor):
    return torch.zeros([]) if tensor.grad is None else tensor.grad


def step(model, case):
    """As in layers.lua."""
    model.zero_grad()
    inputs = [fresh(*one) for one in zip(case["inputs"], case["fixed"])]
    arguments = [(x * 1 if case["in_place"] else x) if isinstance(x, torch.Tensor) else tuple(x) for x in inputs]
    if case["call"]:
        arguments.append(eval(case["call"].replace("{", "[").replace("}", "]")))
    torch.manual_seed(5)
    outputs = flat(model(*arguments))
    loss = torch.zeros([])
    for output in outputs:
        if is_trained(output) and output.requires_grad:
            loss = loss + (output * torch.arange(output.numel()).cos().view(output.shape)).sum()
    if loss.requires_grad:
        loss.backward()
    return {
        "outputs": [output.detach() for output in outputs],
        "inputs": [gradient(leaf) for leaf in flat(inputs)],
        "parameters": {name: gradient(parameter) for name, parameter in model.named_parameters()},
        "state": state_of(model),
    }


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def run_in_python(number, layer, specs, call):
    """What Lua is given, and what it is to find."""
    torch.manual_seed(1000 + number)
    model = layer.make()
    drawn = state_of(model)
    torch.manual_seed(number)
    inputs = [given(spec) for spec in specs]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    state = state_of(model)
    case = {
        "code": layer.lua(),
        "seed": 1000 + number,
        "state": state,
        "inputs": inputs,
        "call": call,
        "in_place": bool(layer.options.get("inplace")),
        "fixed": [spec[0] == "t" for spec in specs],
    }
    once, twice = step(model, case), step(model, case)
    model.load_state_dict(state)
    model.eval()
    return case, {"drawn": drawn, "once": once, "twice": twice, "evaluated": step(model, case)}


def check(got, expected, exact=False):
    """An empty table of Lua may be a list or a dict."""
    if isinstance(expected, dict):
        got = got or {}
        assert set(got) == set(expected)
        for name in expected:
            check(got[name], expected[name], exact)
    elif isinstance(expected, list):
        got = list(got.values()) if isinstance(got, dict) else got
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            check(one, other, exact)
    elif exact:
        assert torch.equal(got, expected)
    else:
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of all layers, by their Lua text."""
    folder = tmp_path_factory.mktemp("layers")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pairs = [run_in_python(number, *case) for number, case in enumerate(CASES)]
    torch.set_num_threads(threads)
    torch.save([case for case, _ in pairs], folder / "given.pt")
    program = Path(os.environ["TRIAGE_BUILD"]) / "bin" / "triage"
    script = Path(__file__).with_name("layers.lua")
    done = subprocess.run(
        [program, "exec", script, folder / "given.pt", folder / "results.pt"], stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr
    found = torch.load(folder / "results.pt", weights_only=False)
    return [(case["code"], expected, one) for (case, expected), one in zip(pairs, found)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["plain", "eager", "aot_eager", "fused"])
def test_layers_are_those_of_pytorch(results, mode):
    assert len(results) == len(CASES)
    for code, expected, modes in results:
        got = modes[mode]
        assert "failed" not in got, f"{code}: {got['failed']}"
        try:
            check(got["drawn"], expected["drawn"], exact=True)
            check(got["trained"], expected["once" if mode == "plain" else "twice"])
            check(got["evaluated"], expected["evaluated"])
        except AssertionError as error:
            raise AssertionError(f"{code} ({mode}): {error}") from error
