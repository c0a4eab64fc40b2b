"""A policy as a node of torch.compile and torch.export programs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from conftest import DECLARED, bad_batch

import triage
from triage import err


class Model(torch.nn.Module):
    def __init__(self, policy):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.policy = policy

    def forward(self, x):
        z, f = self.policy(z=x * self.scale)
        return z + 1, err.is_err(f)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_policy_inside_a_compiled_model(policy, policy_file, backend):
    model = Model(policy)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for rows in (8, 5, 6):
        for plain, fast in zip(model(bad_batch(rows)), compiled(bad_batch(rows))):
            assert torch.equal(plain, fast)
    policy_file.write_text(DECLARED.replace("0.5", "41.0"))
    assert policy.reload() == "swapped"
    assert compiled(bad_batch())[0][2, 0] == 42  # nothing is compiled anew


def test_one_program_serves_every_batch_size(policy):
    compiled = torch.compile(Model(policy), fullgraph=True, backend="aot_eager")
    torch._dynamo.utils.counters.clear()
    for rows in (8, 5, 7, 3):
        compiled(bad_batch(rows))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_export_save_and_run_elsewhere(policy_file, tmp_path):
    policy = triage.load(policy_file, key="repair of the exported model")
    exported = torch.export.export(Model(policy), (bad_batch(),), dynamic_shapes=({0: torch.export.Dim("N")},))
    assert "torch.ops.triage.run_policy.default" in str(exported.graph)
    assert torch.equal(exported.module()(bad_batch(5))[0], Model(policy)(bad_batch(5))[0])
    torch.export.save(exported, tmp_path / "model.pt2")
    program = (
        "import sys, torch, triage\n"
        "model = torch.export.load(sys.argv[1]).module()\n"
        "x = torch.full((3, 4), float('nan'))\n"
        "try: model(x)\n"
        "except RuntimeError as error: print(error)\n"
        "policy = triage.load(sys.argv[2], key='repair of the exported model')\n"
        "print(model(x)[0][0, 0].item())\n"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "model.pt2"), str(policy_file)]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.splitlines()
    assert 'no policy with the key "repair of the exported model"' in said[0] and "triage.load" in said[0]
    assert said[1] == "1.5"


def test_an_output_that_is_an_input_gets_memory_of_its_own():
    same = triage.load_source('return policy {outputs = {"z"}, signature = {z = Tensor(float32_t, {"N"})}, run = function(z) return z end}')
    x = torch.zeros(3)
    (y,) = torch.ops.triage.run_policy(same.key, [x])
    assert torch.equal(x, y) and x.data_ptr() != y.data_ptr()


def test_dims_behind_others_are_found():
    last = triage.load_source(
        'return policy {outputs = {"y"}, signature = {z = Tensor(float32_t, {"...", "D"}), y = Tensor(float64_t, {2, "D"})}, '
        "run = function(z) return torch.zeros({2, z:size(-1)}, {dtype = torch.float64}) end}"
    )
    y = torch.compile(lambda z: last(z), fullgraph=True, backend="aot_eager")(torch.zeros(3, 5, 7))
    assert y.shape == (2, 7) and y.dtype == torch.float64


def test_the_operator_with_gradients_on_real_tensors(policy):
    with torch.enable_grad():
        z = bad_batch().requires_grad_()
        torch.ops.triage.run_policy(policy.key, [z])[0].sum().backward()
        assert z.grad[0, 0] == 1 and z.grad[2, 0] == 0


def test_params_cannot_be_given_inside(policy):
    policy.set_param("fallback", 8)
    assert torch.compile(lambda z: policy(z)[0], fullgraph=True, backend="eager")(bad_batch())[2, 0] == 8


def test_run_inside(policy):
    compiled = torch.compile(lambda z: policy.run([z])[0], fullgraph=True, backend="eager")
    assert torch.equal(compiled(bad_batch()), policy(bad_batch())[0])
    with pytest.raises(Exception, match="raised exception InputError.*run takes no options; set_param works there, too"):
        torch.compile(lambda z: policy.run([z], params={"fallback": 2.0})[0], fullgraph=True, backend="eager")(bad_batch())
    with_break = torch.compile(lambda z: policy.run([z], params={"fallback": 2.0})[0], backend="eager")
    assert with_break(bad_batch())[2, 0] == 2  # a program that may break makes the plain call between its parts


def test_a_mode_that_sees_operators_sees_one(policy):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    names = []
    with Seen():
        z, _ = policy(bad_batch_made)
    assert names == ["triage.run_policy.default"] and z[2, 0] == 0.5


def test_fake_tensors(policy):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        z, f = policy(mode.from_tensor(bad_batch_made))
    assert z.shape == (8, 4) and f.dtype == torch.int64 and f.shape == (8, 4)


bad_batch_made = bad_batch()  # a mode would see how it is made
