"""Policies inside torch.compile as they stand: without declared outputs, with gradients, under autocast and checkpointing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from conftest import ROOT, bad_batch
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint

import triage

README = """
return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
  local f = flag_nan_and_inf(z, "logits")
  return fix(z, f, "logits", {fallback = 0.5})
end }
"""

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def repair():
    return triage.load_source(README, "repair.lua")


def compiled(function, backend="aot_eager", **options):
    return torch.compile(function, fullgraph=True, backend=backend, **options)


def value_and_gradients(function, x, parameters):
    for each in parameters:
        each.grad = None
    value = function(x)
    value.sum().backward()
    return [value.detach(), *(each.grad.clone() for each in parameters)]


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_training_step_is_that_of_the_plain_call(repair, backend):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    bias = torch.nn.Parameter(torch.randn(4))

    def step(x):
        z, f = repair(x + bias)
        return layer(z) * (~triage.err.is_err(f)).unsqueeze(1)

    program = compiled(step, backend)
    parameters = [bias, *layer.parameters()]
    for rows in (8, 3, 33):
        plain = value_and_gradients(step, bad_batch(rows), parameters)
        fast = value_and_gradients(program, bad_batch(rows), parameters)
        assert all(torch.isfinite(each).all() for each in plain)
        for one, other in zip(plain, fast):
            assert torch.equal(one, other) if backend != "inductor" else torch.allclose(one, other)


def test_repaired_rows_send_nothing_back(repair):
    x = bad_batch().requires_grad_()
    compiled(lambda x: repair(x)[0].sum())(x).backward()
    assert torch.equal(x.grad[2], torch.zeros(4)) and torch.equal(x.grad[0], torch.ones(4))


@pytest.mark.parametrize("gradients", [False, True])
def test_one_program_serves_every_batch(repair, gradients):
    program = compiled(lambda x: repair(x)[0], dynamic=True)
    for rows in (8, 2, 33, 7):
        x = torch.randn(rows, 4, requires_grad=gradients)
        y = program(x)
        assert torch.equal(y, x)
        if gradients:
            y.sum().backward()
            assert torch.equal(x.grad, torch.ones(rows, 4))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    for rows in (0, 1):  # PyTorch compiles these sizes anew, of any program
        assert program(torch.randn(rows, 4, requires_grad=gradients)).shape == (rows, 4)


def library():
    files = sorted((ROOT / "scripts" / "policies").rglob("*.lua"))
    return [file for file in files if file.parent.name != "lib"]


def inputs_for(policy, rows):
    """Of the declared types; numbers in [0, 0.1), integers 0."""
    inputs = []
    for spec in policy.signature["input_types"]:
        text, shape = spec["text"], []
        for place, dim in enumerate(spec["dims"]):
            shape.append(dim if isinstance(dim, int) else rows if place == 0 else 8)
        if spec["flags"]:
            inputs.append(torch.zeros(rows, 16, dtype=torch.int64))
        elif "int" in text or "bool" in text:
            inputs.append(torch.zeros(shape, dtype={1: torch.int8, 3: torch.int32, 11: torch.bool}.get(spec["dtype"], torch.int64)))
        else:
            inputs.append(torch.rand(shape) / 10)
    return inputs


@pytest.mark.parametrize("file", library(), ids=lambda file: file.stem)
def test_every_policy_of_the_library(file):
    policy = triage.load(file)
    program = compiled(lambda *inputs: policy(*inputs), dynamic=True)
    for rows in (6, 3):
        for gradients in (False, True):
            given = [each.requires_grad_(gradients and each.is_floating_point()) for each in inputs_for(policy, rows)]
            plain, fast = policy(*given), program(*given)
            plain, fast = (each if isinstance(each, tuple) else (each,) for each in (plain, fast))
            assert all(map(same_bits, plain, fast))
            leaves = [each for each in given if each.requires_grad]
            roots = [(a, b) for a, b in zip(plain, fast) if a.requires_grad]
            if not leaves or not roots:
                continue
            of_plain = torch.autograd.grad(sum(a.sum() for a, _ in roots), leaves, allow_unused=True)
            of_fast = torch.autograd.grad(sum(b.sum() for _, b in roots), leaves, allow_unused=True)
            for leaf, a, b in zip(leaves, of_plain, of_fast):
                zeros = torch.zeros_like(leaf)
                assert same_bits(zeros if a is None else a, zeros if b is None else b)


def test_sizes_of_outputs_follow_those_of_inputs():
    sizes = triage.load_source(
        'return policy { inputs = {"z", "w"}, outputs = {"a", "b", "c", "d"}, run = function(z, w)\n'
        "  return z:reshape({-1}), torch.cat({z, z, w}), torch.zeros({z:size(0) + 1, 3}), z:sum(-1):to(torch.float64)\n"
        "end }"
    )
    program = compiled(lambda z, w: sizes(z, w), "inductor", dynamic=True)
    for rows, columns, more in ((6, 4, 5), (3, 5, 2), (33, 2, 3)):
        given = torch.randn(rows, columns), torch.randn(more, columns)
        for one, other in zip(sizes(*given), program(*given)):
            assert same_bits(one, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_autocast_is_that_of_the_line(backend):
    product = triage.load_source('return policy { inputs = {"z"}, outputs = {"y"}, run = function(z) return z:matmul(z) end }')
    program = compiled(lambda z: product(z), backend)
    torch.manual_seed(0)
    for gradients in (False, True):
        z = torch.randn(8, 8, requires_grad=gradients)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            plain, fast = product(z), program(z)
        assert plain.dtype == torch.bfloat16 and same_bits(plain, fast)
        if gradients:
            of_plain, of_fast = (torch.autograd.grad(y.float().sum(), z)[0] for y in (plain, fast))
            assert same_bits(of_plain, of_fast)
    assert same_bits(product(z), program(z))  # and none where none is on


def test_one_program_under_two_autocasts_in_turn():
    product = triage.load_source('return policy { inputs = {"z"}, outputs = {"y"}, run = function(z) return z:matmul(z) end }')
    program = compiled(lambda z: product(z))
    z = torch.randn(8, 8)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert program(z).dtype == torch.bfloat16
        assert program(z).dtype == torch.float32


def test_each_program_is_held_to_what_it_was_told():
    wide = triage.load_source(
        'return policy { inputs = {"z"}, outputs = {"y"}, params = {wide = false}, '
        "run = function(z, p) if p.wide then return (z * 3):to(torch.float64) end return z * 2 end }"
    )
    first, second = compiled(lambda z: wide(z) + 1, "inductor"), compiled(lambda z: wide(z) + 2, "inductor")
    assert first(torch.ones(4))[0] == 3
    wide.set_param("wide", True)
    with pytest.raises(RuntimeError, match="gave output 1 as Double"):
        first(torch.ones(4))
    assert second(torch.ones(4)).dtype == torch.float64
    with pytest.raises(RuntimeError, match="gave output 1 as Double"):  # the other program has not changed it
        first(torch.ones(4))


def test_programs_kept_on_disk_are_of_one_text(tmp_path):
    program = (
        "import sys, torch, triage\n"
        "p = triage.load_source('return policy { inputs = {\"z\"}, outputs = {\"a\"}, run = function(z) return ' + sys.argv[1] + ' end }', key='k')\n"
        "z = torch.arange(8.0)\n"
        "print(torch.equal(torch.compile(lambda z: p(z) * 1 + 1, fullgraph=True)(z), p(z) * 1 + 1))\n"
    )
    for body in ("z * 2", "(z * 2):to(torch.float64)", "z:to(torch.int32)", "z:sum()"):
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        said = subprocess.run([sys.executable, "-c", program, body], capture_output=True, text=True, env=environment)
        assert said.stdout == "True\n", said.stderr


def test_random_numbers_are_the_policys_own_from_the_first_call_on():
    draws = triage.load_source('return policy { inputs = {"z"}, outputs = {"y"}, run = function(z) return z * torch.rand(z:size()) end }')
    one = torch.ones(4)
    for backend in ("aot_eager", "inductor"):
        draws.manual_seed(3)
        plain = [draws(one) for _ in range(3)]
        draws.manual_seed(3)
        program = compiled(lambda z: draws(z), backend)
        assert all(torch.equal(a, program(one)) for a in plain)
        torch._dynamo.reset()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_program_in_a_forked_child(repair):
    program = compiled(lambda x: repair(x)[0])
    program(bad_batch())
    child = os.fork()
    if child == 0:
        os._exit(0 if program(bad_batch())[2, 0] == 0.5 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("body", ["z:detach() * 2", "z:detach()", "z * p.list", "z * p.tensor", "z * made"])
def test_what_policies_make_while_a_program_is_traced(body):
    made = triage.load_source(
        'local made = torch.ones({4})\nreturn policy { inputs = {"z"}, outputs = {"y"}, '
        f"params = {{list = {{0.5, 1.0, 1.5, 2.0}}, tensor = torch.ones({{4}})}}, run = function(z, p) return {body} end }}"
    )
    z = torch.ones(2, 4)
    assert torch.equal(compiled(lambda z: made(z))(z), made(z))


def test_inputs_that_must_be_as_large_as_each_other():
    loss = triage.load_source(
        'return policy { inputs = {"pred", "wanted"}, outputs = {"d", "f"}, run = function(pred, wanted) local d = pred - wanted '
        'local f = flag_nan(d, "d") return fix(d, f, "d") end }'
    )
    program = compiled(lambda a, b: loss(a, b)[0])
    for rows in (4, 6, 9, 33):
        assert program(torch.ones(rows, 4), torch.zeros(rows, 4)).shape == (rows, 4)

    class Both(torch.nn.Module):
        def forward(self, a, b):
            return loss(a, b)[0]

    batch = torch.export.Dim("batch")
    exported = torch.export.export(Both(), (torch.ones(4, 4), torch.zeros(4, 4)), dynamic_shapes=({0: batch}, {0: batch}))
    assert exported.module()(torch.ones(7, 4), torch.zeros(7, 4)).shape == (7, 4)


def test_other_threads_call_while_a_program_is_compiled(repair):
    ended, failures = threading.Event(), []

    def call():
        while not ended.is_set():
            try:
                repair.run([bad_batch()], info={})
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        compiled(lambda x: repair(x)[0].softmax(-1), "inductor")(torch.randn(6, 4))
    finally:
        ended.set()
        thread.join()
    assert not failures


def test_a_reload_takes_effect_in_a_program_and_not_in_a_backward_that_waits(repair):
    program = compiled(lambda x: repair(x)[0])
    x = bad_batch().requires_grad_()
    before = program(x)
    assert repair.replace(README.replace("0.5", "41.0")) == "swapped"
    before.sum().backward()
    assert x.grad[2, 0] == 0 and before[2, 0] == 0.5
    assert program(x)[2, 0] == 41
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_graph_that_is_kept_gives_its_gradients_again(repair):
    x = bad_batch().requires_grad_()
    value = compiled(lambda x: (repair(x)[0] ** 2).sum())(x)
    (one,) = torch.autograd.grad(value, x, retain_graph=True)
    (other,) = torch.autograd.grad(value, x)
    assert torch.equal(one, other) and one[0, 1] == 2


def test_outputs_and_inputs_without_a_gradient():
    two = triage.load_source('return policy { inputs = {"a", "b"}, outputs = {"x", "y", "n"}, run = function(a, b) return a * 2, b * 3, a:size(0) * torch.ones({1}) end }')
    a, b = torch.ones(3), torch.ones(3, requires_grad=True)
    x, y, n = compiled(lambda a, b: two(a, b))(a, b)
    (x.sum() + n.sum()).backward()
    assert b.grad is None or torch.equal(b.grad, torch.zeros(3))
    b.grad = None
    compiled(lambda a, b: two(a, b)[1].sum())(a, b).backward()
    assert torch.equal(b.grad, torch.full((3,), 3.0))


def test_two_equal_calls_are_two(repair):
    counts = triage.load_source(
        'return policy { inputs = {"z"}, outputs = {"y"}, state = {n = {shape = {}}}, run = function(z, s) return z + s.n, {n = s.n + 1} end }'
    )
    z = torch.zeros(3, requires_grad=True)
    first, second = compiled(lambda z: (counts(z), counts(z)))(z)
    assert second[0] == first[0] + 1


def test_checkpointing_in_a_program(repair):
    layer = torch.nn.Linear(4, 4)

    def block(x):
        return layer(repair(x)[0])

    program = compiled(lambda x: checkpoint(block, x, use_reentrant=False))
    parameters = list(layer.parameters())
    for one, other in zip(value_and_gradients(block, bad_batch().requires_grad_(), parameters), value_and_gradients(program, bad_batch().requires_grad_(), parameters)):
        assert torch.equal(one, other)


@pytest.mark.parametrize("early_stop", [True, False])
def test_checkpointing_around_a_policy(repair, early_stop):
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    broken = triage.load_source(README.replace("  return", "  triage.graph_break()\n  return"), "broken.lua")
    for policy in (repair, broken):

        def block(x, layer):
            return torch.relu(policy(layer(x))[0] * 2)

        def plain(x):
            for layer in layers:
                x = block(x, layer)
            return x

        def checkpointed(x):
            for layer in layers:
                x = checkpoint(block, x, layer, use_reentrant=False, early_stop=early_stop)
            return x

        parameters = list(layers.parameters())
        for _ in range(3):  # the first call captures
            x = torch.randn(6, 4)
            got = value_and_gradients(checkpointed, x, parameters)
            for one, other in zip(value_and_gradients(plain, x, parameters), got):
                assert torch.equal(one, other)
        assert sum(policy.statistics()["failures"].values()) == 0


def test_hooks_of_saved_tensors_leave_a_policy_alone(repair):
    def never(tensor):
        raise ValueError("a hook")

    x = bad_batch().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(never, never):
        y, _ = repair(x)
        z, _ = repair.run([x])
        with pytest.raises(ValueError, match="a hook"):
            torch.exp(x)
    (y.sum() + z.sum()).backward()
    assert x.grad[0, 0] == 2 and sum(repair.statistics()["failures"].values()) == 0


def test_distributed_data_parallel(repair, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        layer = torch.nn.Linear(4, 4)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(layer))
        step = lambda x: repair(model(x))[0]  # noqa: E731
        x = torch.randn(6, 4)
        for one, other in zip(value_and_gradients(step, x, list(layer.parameters())), value_and_gradients(torch.compile(step, backend="aot_eager"), x, list(layer.parameters()))):
            assert torch.equal(one, other)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("source", [README, 'return policy { inputs = {"z"}, outputs = {"y", "y2"}, run = function(z) return z, z end }', 'return policy { inputs = {"z"}, outputs = {"y"}, run = function(z) return z:sum() end }'])  # fmt: skip
def test_opcheck(source, gradients):
    policy = triage.load_source(source)
    z = torch.randn(6, 4, requires_grad=gradients)
    assert set(opcheck(torch.ops.triage.run_policy, (policy.key, [z])).values()) == {"SUCCESS"}


def test_inference_mode(repair):
    program = compiled(lambda x: repair(x)[0], dynamic=True)
    with torch.inference_mode():
        for rows in (8, 3):
            assert torch.equal(program(bad_batch(rows)), repair(bad_batch(rows))[0])


def test_what_cannot_be_known_is_said():
    rows = triage.load_source(
        'return policy { inputs = {"z"}, outputs = {"kept"}, run = function(z)\n  return z[z:isfinite():all(-1)]\nend }', "rows.lua"
    )
    with pytest.raises(Exception, match=r"output 'kept' whose dimension 0 depends on values \(rows.lua:2\).*torch.compiler.disable"):
        compiled(lambda z: rows(z))(bad_batch())
    none = triage.load_source('return policy { inputs = {}, outputs = {"y"}, run = function() return torch.ones({2}) end }')
    with pytest.raises(Exception, match="has no inputs"):
        compiled(lambda z: none())(bad_batch())
    fails = triage.load_source('return policy { inputs = {"z"}, outputs = {"y"}, run = function(z)\n  return z:view({-1, 7})\nend }', "fails.lua")
    with pytest.raises(Exception, match="fails.lua:2"):
        compiled(lambda z: fails(z))(bad_batch())


def test_an_answer_of_another_form_than_the_program_was_made_for():
    either = triage.load_source(
        'return policy { inputs = {"z"}, outputs = {"y"}, run = function(z) if z:sum():item() > 100 then return z:sum(-1) end return z end }'
    )
    program = compiled(lambda z: either(z) * 2)
    with pytest.raises(RuntimeError, match=r"Float of shape \[6\] to a compiled program that was made for Float of shape \[6, 4\]"):
        program(torch.full((6, 4), 100.0))


def test_transforms_of_torch_func_are_refused_at_the_door(repair):
    z = torch.randn(6, 4)
    first = lambda z: repair(z)[0]  # noqa: E731
    for transformed in (torch.func.grad(lambda z: first(z).sum()), torch.vmap(first), torch.func.jacrev(first), lambda z: torch.func.jvp(first, (z,), (z,))):
        with pytest.raises(triage.InputError, match="inside of torch.func.grad, vmap, jvp"):
            transformed(z)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(z, z)
        with pytest.raises(triage.InputError, match="has a tangent"):
            repair(dual)
        with pytest.raises(RuntimeError, match="no forward-mode derivative"):
            triage.fix(dual, triage.flag_nan(z, "a"), "a")
    assert sum(repair.statistics()["failures"].values()) == 0


def test_a_ticket_is_good_for_its_call_alone(repair):
    z = bad_batch()
    *outputs, ticket = torch.ops.triage.run_policy_train(repair.key, [z], [0], "", "", 0)
    (gradient,) = torch.ops.triage.run_policy_backward(ticket, [torch.ones(8, 4), None], [z], [0])
    assert gradient[0, 0] == 1 and gradient[2, 0] == 0 and outputs[0][2, 0] == 0.5
    with pytest.raises(RuntimeError, match="got a copy of the tensor that ties it to its call"):
        torch.ops.triage.run_policy_backward(ticket.clone(), [torch.ones(8, 4), None], [z], [0])
