"""Optimizers, schedules, clipping and the scaler of Lua against PyTorch's: learning rates and scales bit for bit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch.optim import lr_scheduler as L

pytestmark = pytest.mark.filterwarnings("ignore")


def run_lua(folder, text):
    """Standard output of a script, in lines."""
    (folder / "script.lua").write_text(HEAD + text)
    program = Path(os.environ["TRIAGE_BUILD"]).resolve() / "bin" / "triage"
    done = subprocess.run([program, "exec", folder / "script.lua"], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def bits(text):
    return [float.fromhex(word).hex() for word in text.split()]


def literal(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {literal(one)}" for name, one in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "{" + ", ".join(map(literal, value)) + "}"
    return f'"{value}"' if isinstance(value, str) else repr(value)  # inf and nan are variables


HEAD = """
local L, inf, nan = optim.lr_scheduler, math.huge, 0 / 0
local function hex(list)
  for i, x in ipairs(list) do list[i] = ("%a"):format(x) end
  return table.concat(list, " ")
end
"""

METRICS = [1.0, 0.9, 0.95, 0.9, 0.89999, 0.91, 0.92, 0.93, 0.94, 0.5] + [0.6] * 10

SCHEDULES = [
    ("StepLR(o, 3)", lambda o: L.StepLR(o, 3)),
    ("StepLR(o, {step_size = 4, gamma = 0.7})", lambda o: L.StepLR(o, 4, 0.7)),
    ("MultiStepLR(o, {3, 7, 7, 12}, 0.5)", lambda o: L.MultiStepLR(o, [3, 7, 7, 12], 0.5)),
    ("ConstantLR(o)", lambda o: L.ConstantLR(o)),
    ("LinearLR(o)", lambda o: L.LinearLR(o)),
    ("LinearLR(o, 0.1, 0.7, 9)", lambda o: L.LinearLR(o, 0.1, 0.7, 9)),
    ("ExponentialLR(o, 0.93)", lambda o: L.ExponentialLR(o, 0.93)),
    ("PolynomialLR(o, 9, 1.7)", lambda o: L.PolynomialLR(o, 9, 1.7)),
    ("CosineAnnealingLR(o, 7, 0.01)", lambda o: L.CosineAnnealingLR(o, 7, 0.01)),
    ("CosineAnnealingWarmRestarts(o, 4, 2)", lambda o: L.CosineAnnealingWarmRestarts(o, 4, 2)),
    ("LambdaLR(o, function(e) return 0.9 ^ e end)", lambda o: L.LambdaLR(o, lambda e: 0.9**e)),
    ("MultiplicativeLR(o, function() return 0.95 end)", lambda o: L.MultiplicativeLR(o, lambda _: 0.95)),
    ("OneCycleLR(o, 0.5, 31)", lambda o: L.OneCycleLR(o, 0.5, 31)),
    (
        "OneCycleLR(o, {max_lr = {0.5, 0.2}, epochs = 5, steps_per_epoch = 7, anneal_strategy = 'linear', "
        "three_phase = true})",
        lambda o: L.OneCycleLR(o, [0.5, 0.2], None, 5, 7, anneal_strategy="linear", three_phase=True),
    ),
    (
        "SequentialLR(o, {L.LinearLR(o, 0.1, 1.0, 4), L.CosineAnnealingLR(o, 40)}, {4})",
        lambda o: L.SequentialLR(o, [L.LinearLR(o, 0.1, 1.0, 4), L.CosineAnnealingLR(o, 40)], [4]),
    ),
    (
        "SequentialLR(o, {L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9), "
        "L.CosineAnnealingWarmRestarts(o, 3)}, {2, 6})",
        lambda o: L.SequentialLR(
            o, [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9), L.CosineAnnealingWarmRestarts(o, 3)], [2, 6]
        ),
    ),
    (
        "SequentialLR(o, {L.ExponentialLR(o, 0.9), L.MultiplicativeLR(o, function() return 0.5 end), "
        "L.LambdaLR(o, function(e) return 1 / (e + 1) end)}, {2, 6})",
        lambda o: L.SequentialLR(
            o,
            [L.ExponentialLR(o, 0.9), L.MultiplicativeLR(o, lambda _: 0.5), L.LambdaLR(o, lambda e: 1 / (e + 1))],
            [2, 6],
        ),
    ),
    (
        "ReduceLROnPlateau(o, {patience = 2, cooldown = 1})",
        lambda o: L.ReduceLROnPlateau(o, patience=2, cooldown=1),
    ),
    (
        "ReduceLROnPlateau(o, 'max', 0.5, 1, {threshold_mode = 'abs', threshold = 0.2, min_lr = {0.01, 0.001}})",
        lambda o: L.ReduceLROnPlateau(o, "max", 0.5, 1, threshold_mode="abs", threshold=0.2, min_lr=[0.01, 0.001]),
    ),
]


def schedule_in_python(kind, options, make, metrics):
    """Rates and momenta of both groups, before the first step and after each."""
    a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    optimizer = getattr(torch.optim, kind)([{"params": [a]}, {"params": [b], "lr": 0.03}], **options)
    schedule, found = make(optimizer), []

    def record():
        for group in optimizer.param_groups:
            found.extend([group["lr"], group["betas"][0] if kind == "Adam" else group["momentum"]])

    record()
    for step in range(20 if metrics else 30):
        a.sum().backward()
        optimizer.step()
        schedule.step(*metrics[step : step + 1])
        record()
    return [float(x).hex() for x in found]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_schedules(tmp_path, kind):
    options = {"lr": 0.1, "momentum": 0.9} if kind == "SGD" else {"lr": 0.1}
    expected, program = [], ""
    for lua, make in SCHEDULES:
        metrics = METRICS if "Plateau" in lua else []
        expected.append(schedule_in_python(kind, options, make, metrics))
        program += f"""
do
  local a, b = torch.ones({{1}}, {{requires_grad = true}}), torch.ones({{1}}, {{requires_grad = true}})
  local o = optim.{kind}({{{{params = {{a}}}}, {{params = {{b}}, lr = 0.03}}}}, {literal(options)})
  local schedule, out = L.{lua}, {{}}
  local function record()
    for _, group in ipairs(o.param_groups) do
      out[#out + 1] = group.lr
      out[#out + 1] = group.betas and group.betas[1] or group.momentum
    end
  end
  record()
  local metrics = {literal(metrics)}
  for step = 1, {20 if metrics else 30} do
    schedule:step(metrics[step])
    record()
  end
  print(hex(out))
end
"""
    for (lua, _), rates, line in zip(SCHEDULES, expected, run_lua(tmp_path, program)):
        assert bits(line) == rates, lua


OPTIMIZERS = [
    ("SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.1, weight_decay=0.01)),
    ("SGD", dict(lr=0.05, momentum=0.9, nesterov=True)),
    ("Adam", dict()),
    ("Adam", dict(lr=0.05, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1, amsgrad=True)),
    ("AdamW", dict()),
    ("AdamW", dict(lr=0.05, weight_decay=0.3, amsgrad=True)),
    ("RMSprop", dict()),
    ("RMSprop", dict(lr=0.02, alpha=0.9, eps=1e-6, weight_decay=0.1, momentum=0.8, centered=True)),
    ("LBFGS", dict()),
    ("LBFGS", dict(lr=0.3, max_iter=7, history_size=3)),
    ("LBFGS", dict(max_iter=12, line_search_fn="strong_wolfe", tolerance_grad=1e-6, tolerance_change=1e-8)),
]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_optimizers(tmp_path, kind, options):
    torch.manual_seed(1)
    start, x, y = torch.randn(3, 4, dtype=torch.float64), torch.randn(8, 4).double(), torch.randn(8, 3).double()
    torch.save({"start": start, "x": x, "y": y}, tmp_path / "given.pt")
    w = start.clone().requires_grad_()
    optimizer = getattr(torch.optim, kind)([w], **options)

    def closure():
        optimizer.zero_grad()
        loss = ((x @ w.T).tanh() - y).square().mean() + w.square().sum() * 0.01
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure)) for _ in range(6)]
    program = f"""
local given = torch.load("given.pt")
local w = given.start:clone():requires_grad_()
local o = optim.{kind}({{w}}, {literal(options)})
local losses = {{}}
for step = 1, 6 do
  losses[step] = o:step(function()
    o:zero_grad()
    local loss = (torch.matmul(given.x, w:t()):tanh() - given.y):square():mean() + w:square():sum() * 0.01
    loss:backward()
    return loss
  end):item()
end
torch.save({{w = w:detach()}}, "trained.pt")
print(hex(losses))
"""
    lines = run_lua(tmp_path, program)
    torch.testing.assert_close(torch.load(tmp_path / "trained.pt")["w"], w.detach(), rtol=1e-7, atol=1e-9)
    got = [float.fromhex(word) for word in lines[0].split()]
    torch.testing.assert_close(torch.tensor(got), torch.tensor(losses), rtol=1e-6, atol=1e-9)


# Factors of the loss in each step: some overflow float32 when they are scaled.
FACTORS = [1.0, 2.0, 1e38, 1.0, float("nan"), 3.0, 1.0, 1.0, 1.0, 0.5, float("inf"), 1.0, 1e-3, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "options", [dict(), dict(init_scale=8.0, growth_factor=3.0, backoff_factor=0.3, growth_interval=2)]
)
def test_the_scaler(tmp_path, options):
    a, b = torch.tensor([1.0, -2.0], requires_grad=True), torch.tensor([0.5], requires_grad=True)
    first, second = torch.optim.SGD([a], lr=0.1), torch.optim.SGD([b], lr=0.01)
    scaler = torch.amp.GradScaler("cpu", **options)
    expected, trackers = [], []
    for factor in FACTORS:
        first.zero_grad()
        second.zero_grad()
        loss = (a.square().sum() + b.sum() * 3) * factor
        scaler.scale(loss).backward()
        scaler.unscale_(first)
        scaler.step(first)
        scaler.step(second)
        scaler.update()
        expected += [scaler.get_scale(), *a.tolist(), *b.tolist()]
        trackers.append(scaler.state_dict()["_growth_tracker"])
    last = scaler.get_scale()
    scaler.update(77.0)
    expected.append(scaler.get_scale())
    program = f"""
local a, b = torch.tensor({{1.0, -2.0}}, {{requires_grad = true}}), torch.tensor({{0.5}}, {{requires_grad = true}})
local first, second = optim.SGD({{a}}, {{lr = 0.1}}), optim.SGD({{b}}, {{lr = 0.01}})
local scaler = optim.GradScaler({literal(options)})
local out, trackers = {{}}, {{}}
for _, factor in ipairs({literal(FACTORS)}) do
  first:zero_grad()
  second:zero_grad()
  local loss = (a:square():sum() + b:sum() * 3) * factor
  scaler:scale(loss):backward()
  scaler:unscale_(first)
  scaler:step(first)
  scaler:step(second)
  scaler:update()
  for _, x in ipairs({{scaler:get_scale(), a[0]:item(), a[1]:item(), b:item()}}) do out[#out + 1] = x end
  trackers[#trackers + 1] = scaler:state_dict()._growth_tracker
end
torch.save(scaler:state_dict(), "state.pt")
scaler:update(77.0)
out[#out + 1] = scaler:get_scale()
print(hex(out))
print(table.concat(trackers, " "))
"""
    lines = run_lua(tmp_path, program)
    assert bits(lines[0]) == [float(x).hex() for x in expected]
    assert [int(word) for word in lines[1].split()] == trackers
    theirs = torch.amp.GradScaler("cpu")
    theirs.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert theirs.get_scale() == last


BAD = (0.0, float("nan"), float("inf"))
NORMS = [(norm_type, bad) for norm_type in (2.0, 1.0, float("inf"), 0.5, 3.0) for bad in BAD]


def gradients_with(bad):
    torch.manual_seed(2)
    gradients = [torch.randn(3, 4), torch.randn(5)]
    gradients[0][1, 2] = bad
    return gradients


def test_clipping(tmp_path):
    torch.save([gradients_with(bad) for _, bad in NORMS], tmp_path / "given.pt")
    program = f"""
local results = {{}}
for number, given in ipairs(torch.load("given.pt")) do
  local norm_type = {literal([norm_type for norm_type, _ in NORMS])}
  local parameters = {{torch.zeros({{3, 4}}), torch.zeros({{5}}), torch.zeros({{2}})}}
  for i = 1, 2 do
    parameters[i]:requires_grad_()
    local loss = (parameters[i] * given[i]):sum()
    loss:backward()
  end
  local norm, finite = nn.clip_grad_norm_(parameters, 0.7, {{norm_type = norm_type[number]}})
  assert(finite == torch.isfinite(norm):item())
  local clipped = {{parameters[1].grad:clone(), parameters[2].grad:clone()}}
  nn.clip_grad_value_(parameters, 0.05)
  results[number] = {{norm, clipped, {{parameters[1].grad, parameters[2].grad}}}}
end
torch.save(results, "clipped.pt")
"""
    run_lua(tmp_path, program)
    for (norm_type, bad), (norm, clipped, cut) in zip(NORMS, torch.load(tmp_path / "clipped.pt")):
        parameters = [torch.zeros(3, 4), torch.zeros(5), torch.zeros(2)]
        for parameter, gradient in zip(parameters, gradients_with(bad)):
            parameter.grad = gradient
        expected = torch.nn.utils.clip_grad_norm_(parameters, 0.7, norm_type)
        torch.testing.assert_close(norm, expected, equal_nan=True)
        torch.testing.assert_close(clipped, [one.grad for one in parameters[:2]], equal_nan=True)
        torch.nn.utils.clip_grad_value_(parameters, 0.05)
        torch.testing.assert_close(cut, [one.grad for one in parameters[:2]], equal_nan=True)
